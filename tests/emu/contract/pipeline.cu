/* pipeline.cu: copies behind the threads' backs: cp.async groups, bulk copies counted by mbarriers.
 */
#include "device/cuda/ptx.cuh"
#include "tests/emu/contract/array.cuh"

/* sums rows of 64 floats that two stages of cp.async bring */
static __global__ void sum_staged(const float *x, float *y, int n_rows, int n_there) {
    PLEC_SHARED_STATIC(float[2][64], stage);
    int t = threadIdx.x;
    float sum = 0;
    auto fetch = [&](int row) {
        if (row < n_rows && t < 16)
            plec_copy_async_16(plec_shared_address(&stage[row & 1][t * 4]),
                               x + (row < n_there ? row : 0) * 64 + t * 4, row < n_there);
        plec_copy_async_commit();
    };
    fetch(0);
    for (int row = 0; row < n_rows; row++) {
        fetch(row + 1);
        plec_copy_async_wait<1>();
        __syncthreads();
        sum += stage[row & 1][t];
        __syncthreads();
    }
    plec_copy_async_wait<0>();
    y[t] = sum;
}

CONTRACT(CopyAsyncFillsStagesAndZeroesWhatIsNotThere, 80) {
    std::vector<float> x(64 * 7);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i % 89);
    device_array<float> dx(x), dy(64);
    MUST(PLEC_LAUNCH(sum_staged, dim3(1), dim3(64), 0, 0, dx.data, dy.data, 9, 7));
    std::vector<float> got = dy.get();
    for (int i = 0; i < 64; i++) {
        float want = 0;
        for (int row = 0; row < 7; row++)
            want += x[row * 64 + i];
        EXPECT_SAME(got[i], want, "column %d", i);
    }
}

/* a producer warp fills a ring of two by bulk copies, two consumer warps sum */
static __global__ void sum_ring(const float *x, float *y, int n_rows) {
#ifdef PLEC_HAS_SM90
    PLEC_SHARED_DYNAMIC(raw);
    float *ring = (float *)raw; /* [2][64] */
    PLEC_SHARED_STATIC(uint64_t[4], barrier);
    const int t = threadIdx.x;
    const unsigned full = plec_shared_address(&barrier[0]), empty = full + 16;
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            plec_mbarrier_init(full + 8 * i, 1);
            plec_mbarrier_init(empty + 8 * i, 64);
        }
        plec_mbarrier_init_fence();
    }
    __syncthreads();
    if (t == 0) {
        for (int row = 0; row < n_rows; row++) {
            int stage = row & 1, phase = row >> 1 & 1;
            plec_mbarrier_wait(empty + 8 * stage, phase ^ 1); /* the first round passes at once */
            plec_mbarrier_arrive_expect(full + 8 * stage, 256);
            plec_bulk_load(plec_shared_address(ring + stage * 64), x + row * 64, 256,
                           full + 8 * stage);
        }
    } else if (t >= 32) {
        float sum = 0;
        for (int row = 0; row < n_rows; row++) {
            int stage = row & 1, phase = row >> 1 & 1;
            plec_mbarrier_wait(full + 8 * stage, phase);
            sum += ring[stage * 64 + t - 32];
            plec_mbarrier_arrive(empty + 8 * stage);
        }
        y[t - 32] = sum;
    }
#endif
}

CONTRACT(BulkCopiesAndMbarriersMakeARing, 90) {
    std::vector<float> x(64 * 9);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i % 97);
    device_array<float> dx(x), dy(64);
    MUST(PLEC_LAUNCH(sum_ring, dim3(1), dim3(96), 512, 0, dx.data, dy.data, 9));
    std::vector<float> got = dy.get();
    for (int i = 0; i < 64; i++) {
        float want = 0;
        for (int row = 0; row < 9; row++)
            want += x[row * 64 + i];
        EXPECT_SAME(got[i], want, "column %d", i);
    }
}

/* a warp fills a ring of two: the first half of a stage by a bulk copy with a cache policy, the
 * second by cp.async of 8 lanes, all of it counted by one barrier; two warps sum */
static __global__ void sum_mixed_ring(const float *x, float *y, int n_rows) {
#ifdef PLEC_HAS_SM90
    PLEC_SHARED_DYNAMIC(raw);
    float *ring = (float *)raw; /* [2][64] */
    PLEC_SHARED_STATIC(uint64_t[4], barrier);
    const int t = threadIdx.x;
    const unsigned full = plec_shared_address(&barrier[0]), empty = full + 16;
    if (t == 0) {
        for (int i = 0; i < 2; i++) {
            plec_mbarrier_init(full + 8 * i, 1 + 32);
            plec_mbarrier_init(empty + 8 * i, 64);
        }
        plec_mbarrier_init_fence();
    }
    __syncthreads();
    if (t < 32) {
        for (int row = 0; row < n_rows; row++) {
            int stage = row & 1, phase = row >> 1 & 1;
            unsigned to = plec_shared_address(ring + stage * 64);
            plec_mbarrier_wait(empty + 8 * stage, phase ^ 1);
            if (t == 0) {
                plec_mbarrier_arrive_expect(full + 8 * stage, 128);
                plec_bulk_load_once(to, x + row * 64, 128, full + 8 * stage, plec_evict_first());
            }
            if (t < 8) plec_copy_async_16(to + 128 + t * 16, x + row * 64 + 32 + t * 4, true);
            plec_copy_async_arrive(full + 8 * stage);
        }
    } else {
        float sum = 0;
        for (int row = 0; row < n_rows; row++) {
            int stage = row & 1, phase = row >> 1 & 1;
            plec_mbarrier_wait(full + 8 * stage, phase);
            sum += ring[stage * 64 + t - 32];
            plec_mbarrier_arrive(empty + 8 * stage);
        }
        y[t - 32] = sum;
    }
#else
    (void)x, (void)y, (void)n_rows;
#endif
}

CONTRACT(BarriersCountBulkCopiesAndCopyAsyncTogether, 90) {
    std::vector<float> x(64 * 9);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = (float)(i % 89);
    device_array<float> dx(x), dy(64);
    MUST(PLEC_LAUNCH(sum_mixed_ring, dim3(1), dim3(96), 512, 0, dx.data, dy.data, 9));
    std::vector<float> got = dy.get();
    for (int i = 0; i < 64; i++) {
        float want = 0;
        for (int row = 0; row < 9; row++)
            want += x[row * 64 + i];
        EXPECT_SAME(got[i], want, "column %d", i);
    }
}
