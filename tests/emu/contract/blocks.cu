/* blocks.cu: threads of a block and blocks of a grid that wait for each other. */
#include "device/cuda/ptx.cuh"
#include "tests/emu/contract/array.cuh"

/* 64 threads write and go on, 64 wait for them */
static __global__ void hand_over(int *y) {
    PLEC_SHARED_STATIC(int[64], square);
    int t = threadIdx.x;
    if (t < 64) {
        square[t] = t * t;
        plec_barrier_arrive(1, 128);
    } else {
        plec_barrier_sync(1, 128);
        y[t - 64] = square[127 - t];
    }
}

CONTRACT(NamedBarriersHandOver, 80) {
    device_array<int> y(64);
    MUST(PLEC_LAUNCH(hand_over, dim3(1), dim3(128), 0, 0, y.data));
    std::vector<int> got = y.get();
    for (int i = 0; i < 64; i++)
        EXPECT_SAME(got[i], (63 - i) * (63 - i), "item %d", i);
}

/* block 0 waits for a flag of every other block, then adds what they wrote */
static __global__ void sum_by_flags(float *part, uint32_t *flag, float *out) {
    int b = blockIdx.x, t = threadIdx.x;
    part[b * 32 + t] = (float)(b * 100 + t);
    __syncthreads();
    if (b) {
        if (t == 0) plec_store_release(&flag[b], 1);
        return;
    }
    if (t == 0)
        for (unsigned i = 1; i < gridDim.x; i++)
            while (plec_load_acquire(&flag[i]) == 0)
                plec_spin();
    __syncthreads();
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum += part[i * 32 + t];
    out[t] = sum;
}

CONTRACT(ReleasedFlagsPublishAcrossBlocks, 80) {
    device_array<float> part(4 * 32), out(32);
    device_array<uint32_t> flag(4);
    flag.zero();
    MUST(PLEC_LAUNCH_AS(PLEC_LAUNCH_COOPERATIVE, sum_by_flags, dim3(4), dim3(32), 0, 0, part.data,
                        flag.data, out.data));
    std::vector<float> got = out.get();
    for (int i = 0; i < 32; i++)
        EXPECT_SAME(got[i], 600.0f + 4.0f * (float)i, "item %d", i);
}

/* the block that arrives last adds everybody's part */
static __global__ void sum_by_last(float *part, unsigned *count, float *out) {
    PLEC_SHARED_STATIC(int, last);
    int t = threadIdx.x;
    part[blockIdx.x * 32 + t] = (float)t;
    __threadfence();
    __syncthreads();
    if (t == 0) last = atomicAdd(count, 1u) == gridDim.x - 1;
    __syncthreads();
    if (!last) return;
    __threadfence();
    float sum = 0;
    for (unsigned i = 0; i < gridDim.x; i++)
        sum += part[i * 32 + t];
    out[t] = sum;
}

CONTRACT(TheLastBlockSeesAllParts, 80) {
    device_array<float> part(8 * 32), out(32);
    device_array<unsigned> count(1);
    count.zero();
    MUST(PLEC_LAUNCH(sum_by_last, dim3(8), dim3(32), 0, 0, part.data, count.data, out.data));
    std::vector<float> got = out.get();
    for (int i = 0; i < 32; i++)
        EXPECT_SAME(got[i], 8.0f * (float)i, "item %d", i);
    EXPECT_SAME(count.get()[0], 8u, "count");
}

/* a histogram in shared memory, and a barrier that counts */
static __global__ void histogram(const int *expert, int n, int *count) {
    PLEC_SHARED_STATIC(int[16], bins);
    int t = threadIdx.x;
    if (t < 16) bins[t] = 0;
    __syncthreads();
    if (t < n) atomicAdd(&bins[expert[t]], 1);
    int threes = __syncthreads_count(t < n && expert[t] == 3);
    if (t < 16) count[t] = bins[t];
    if (t == 16) count[16] = threes;
}

CONTRACT(SharedAtomicsAndBarriersCount, 80) {
    std::vector<int> expert(200);
    int want[17] = {0};
    for (int i = 0; i < 200; i++)
        want[expert[i] = (i * 7 + i / 3) % 16]++;
    want[16] = want[3];
    device_array<int> dev(expert), count(17);
    MUST(PLEC_LAUNCH(histogram, dim3(1), dim3(224), 0, 0, dev.data, 200, count.data));
    std::vector<int> got = count.get();
    for (int i = 0; i < 17; i++)
        EXPECT_SAME(got[i], want[i], "bin %d", i);
}
