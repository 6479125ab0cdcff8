// Mistakes within a block and a warp: barriers, collectives, bounds.
#include "tests/emu/mistakes.h"

namespace {

using namespace plec_test;

enum { RACING_LINE = __LINE__ + 6 };
template <bool WRONG> __global__ void exchange(int *out) {
    PLEC_SHARED_STATIC(int[64], s);
    int t = threadIdx.x;
    s[t] = t;
    if (!WRONG) __syncthreads();
    out[t] = s[t ^ 32];
}

TEST_F(Mistakes, MissingSyncthreads) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(exchange<true>, dim3(1), dim3(64), 0, a, d);
        else
            PLEC_LAUNCH(exchange<false>, dim3(1), dim3(64), 0, a, d);
    });
    expect_said("exchange<true> block (0,0,0) thread ");
    expect_said(("emu_mistakes_block_test.cu:" + std::to_string(RACING_LINE)).c_str());
}

template <bool WRONG> __global__ void exchange_lanes(int *out) {
    PLEC_SHARED_STATIC(int[32], s);
    int t = threadIdx.x;
    s[t] = t;
    if (!WRONG) __syncwarp();
    out[t] = s[t ^ 1];
}

TEST_F(Mistakes, LanesReliedOnWithoutSyncwarp) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(exchange_lanes<true>, dim3(1), dim3(32), 0, a, d);
        else
            PLEC_LAUNCH(exchange_lanes<false>, dim3(1), dim3(32), 0, a, d);
    });
}

/* Reading again what the next round overwrites. */
template <bool WRONG> __global__ void rounds(int *out) {
    PLEC_SHARED_STATIC(int[64], s);
    int t = threadIdx.x, sum = 0;
    for (int round = 0; round < 3; round++) {
        s[t] = t + round;
        __syncthreads();
        sum += s[63 - t];
        if (!WRONG) __syncthreads();
    }
    out[t] = sum;
}

TEST_F(Mistakes, MissingBarrierBeforeTheNextRound) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(rounds<true>, dim3(1), dim3(64), 0, a, d);
        else
            PLEC_LAUNCH(rounds<false>, dim3(1), dim3(64), 0, a, d);
    });
}

__global__ void sum_shared(int *out, int n) {
    PLEC_SHARED_STATIC(int[64], s);
    int t = threadIdx.x, sum = 0;
    if (t < n) s[t] = 1;
    __syncthreads();
    for (int i = 0; i < 64; i++)
        sum += s[i];
    out[t] = sum;
}

TEST_F(Mistakes, SharedMemoryReadUninitialised) {
    expect_reported("uninit", [&](bool wrong) {
        PLEC_LAUNCH(sum_shared, dim3(1), dim3(64), 0, a, d, wrong ? 63 : 64);
    });
}

__global__ void copy_ints(int *to, const int *from, int n) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) to[i] = from[i];
}

TEST_F(Mistakes, GlobalMemoryReadUninitialised) {
    expect_reported("uninit", [&](bool wrong) {
        int *fresh;
        ASSERT_EQ(cudaSuccess, cudaMalloc((void **)&fresh, 128));
        if (!wrong) {
            ASSERT_EQ(cudaSuccess, cudaMemsetAsync(fresh, 0, 128, a));
        }
        PLEC_LAUNCH(copy_ints, dim3(1), dim3(32), 0, a, d, fresh, 32);
    });
}

TEST_F(Mistakes, GlobalWriteOnePastTheEnd) {
    expect_reported("oob", [&](bool wrong) {
        PLEC_LAUNCH(copy_ints, dim3(33), dim3(32), 0, a, d, (const int *)e + wrong, N_INTS);
    });
    expect_said("past the end of device allocation");
}

__global__ void shared_index(int *out, int i) {
    PLEC_SHARED_STATIC(int[32], s);
    s[threadIdx.x] = 1;
    __syncthreads();
    int *moving = s;
    out[threadIdx.x] = moving[(int)threadIdx.x * (i == 0) + i];
}

TEST_F(Mistakes, SharedIndexOutOfBounds) {
    expect_reported("oob", [&](bool wrong) {
        PLEC_LAUNCH(shared_index, dim3(1), dim3(32), 0, a, d, wrong ? 32 : 0);
    });
}

__global__ void local_index(int *out, int i) {
    int table[4] = {1, 2, 3, 4};
    out[threadIdx.x] = table[(int)threadIdx.x % 2 + i];
}

TEST_F(Mistakes, LocalArrayOutOfBounds) {
    expect_reported("bounds", [&](bool wrong) {
        PLEC_LAUNCH(local_index, dim3(1), dim3(32), 0, a, d, wrong ? 3 : 2);
    });
}

__global__ void store_four(float *to) {
    *(float4 *)to = make_float4(0, 0, 0, 0);
}
__global__ void load_sixteen(int *to, const int *from) {
    to[0] = (int)plec_load_16(from).x;
}

TEST_F(Mistakes, VectorAccessMisaligned) {
    expect_reported("misaligned", [&](bool wrong) {
        PLEC_LAUNCH(store_four, dim3(1), dim3(1), 0, a, (float *)d + wrong);
    });
    expect_reported("misaligned", [&](bool wrong) {
        PLEC_LAUNCH(load_sixteen, dim3(1), dim3(1), 0, a, d, (const int *)e + 2 * wrong);
    });
}

__global__ void follow(int *out, const int *const *pointer) {
    out[0] = **pointer;
}

TEST_F(Mistakes, HostMemoryInAKernel) {
    static int host_things[4];
    std::vector<int> heap(4);
    expect_reported("host-memory", [&](bool wrong) {
        const int **table;
        const int *target = wrong ? heap.data() : e;
        ASSERT_EQ(cudaSuccess, cudaMalloc((void **)&table, sizeof(*table)));
        ASSERT_EQ(cudaSuccess, cudaMemcpy(table, &target, sizeof(target), cudaMemcpyHostToDevice));
        PLEC_LAUNCH(follow, dim3(1), dim3(1), 0, a, d, (const int *const *)table);
    });
    (void)host_things;
}

/* ---- collectives ----------------------------------------------------------------------------- */

__global__ void shuffle_by(int *out, unsigned mask, int from) {
    int t = threadIdx.x;
    if (t < 16 || mask == ALL_LANES) out[t] = __shfl_sync(mask, t, from);
}

__global__ void shuffle_all(int *out, unsigned mask) {
    out[threadIdx.x] = __shfl_sync(mask, (int)threadIdx.x, 3);
}

TEST_F(Mistakes, LaneOutsideItsOwnMask) {
    expect_reported("warp-mask", [&](bool wrong) {
        PLEC_LAUNCH(shuffle_all, dim3(1), dim3(32), 0, a, d, wrong ? 0xffffu : ALL_LANES);
    });
}

TEST_F(Mistakes, ShuffleFromOutsideTheMask) {
    expect_reported("shfl-inactive", [&](bool wrong) {
        PLEC_LAUNCH(shuffle_by, dim3(1), dim3(32), 0, a, d, 0xffffu, wrong ? 20 : 3);
    });
}

template <bool WRONG> __global__ void diverge(int *out) {
    int t = threadIdx.x, v;
    unsigned mask = WRONG ? ALL_LANES : t & 1 ? 0xaaaaaaaau : 0x55555555u;
    if (t & 1)
        v = __shfl_sync(mask, 1, 1);
    else
        v = (int)__ballot_sync(mask, 1);
    out[t] = v;
}

TEST_F(Mistakes, CollectivesThatDiverge) {
    expect_reported("divergent-collective", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(diverge<true>, dim3(1), dim3(32), 0, a, d);
        else
            PLEC_LAUNCH(diverge<false>, dim3(1), dim3(32), 0, a, d);
    });
}

template <bool WRONG> __global__ void leave_early(int *out, int n) {
    int t = threadIdx.x, v = 0;
    if (WRONG && t >= n) return;
    if (t < n) v = t;
    v += __shfl_xor_sync(ALL_LANES, v, 16);
    if (t < n) out[t] = v;
}

TEST_F(Mistakes, LaneExitsWhileOthersShuffle) {
    expect_reported("warp-mask", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(leave_early<true>, dim3(1), dim3(32), 0, a, d, 20);
        else
            PLEC_LAUNCH(leave_early<false>, dim3(1), dim3(32), 0, a, d, 20);
    });
}

/* ---- barriers -------------------------------------------------------------------------------- */

template <bool WRONG> __global__ void return_before_barrier(int *out, int n) {
    int t = threadIdx.x;
    if (WRONG && t >= n) return;
    __syncthreads();
    if (t < n) out[t] = t;
}

TEST_F(Mistakes, ReturnBeforeABarrier) {
    expect_reported("exited-before-barrier", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(return_before_barrier<true>, dim3(1), dim3(64), 0, a, d, 40);
        else
            PLEC_LAUNCH(return_before_barrier<false>, dim3(1), dim3(64), 0, a, d, 40);
    });
}

template <bool WRONG> __global__ void barrier_in_branch(int *out) {
    int t = threadIdx.x;
    if (WRONG && t < 32) {
        out[t] = 1;
        __syncthreads();
    } else {
        out[t] = 2;
        __syncthreads();
    }
}

TEST_F(Mistakes, BarriersOfDifferentLines) {
    expect_reported("divergent-barrier", [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(barrier_in_branch<true>, dim3(1), dim3(64), 0, a, d);
        else
            PLEC_LAUNCH(barrier_in_branch<false>, dim3(1), dim3(64), 0, a, d);
    });
}

template <bool WRONG> __global__ void count_barrier(int *out) {
    int t = threadIdx.x;
    plec_barrier_sync(1, WRONG && t >= 32 ? 64 : 96);
    out[t] = t;
}

/* Where all who ask for 64 come first, the barrier lets them go, and the others wait for ever. */
TEST_F(Mistakes, BarrierCountsThatDisagree) {
    expect_reported(nullptr, [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(count_barrier<true>, dim3(1), dim3(96), 0, a, d);
        else
            PLEC_LAUNCH(count_barrier<false>, dim3(1), dim3(96), 0, a, d);
    });
}

template <bool WRONG> __global__ void hand_over(int *out) {
    PLEC_SHARED_STATIC(int[64], s);
    int t = threadIdx.x;
    if (t < 64) {
        s[t] = t * t;
        plec_barrier_arrive(1, 128);
    } else {
        if (WRONG)
            __nanosleep(1);
        else
            plec_barrier_sync(1, 128);
        out[t - 64] = s[127 - t];
    }
}

TEST_F(Mistakes, ConsumerDoesNotWaitAtTheNamedBarrier) {
    expect_reported(nullptr, [&](bool wrong) {
        if (wrong)
            PLEC_LAUNCH(hand_over<true>, dim3(1), dim3(128), 0, a, d);
        else
            PLEC_LAUNCH(hand_over<false>, dim3(1), dim3(128), 0, a, d);
    });
}

__global__ void wait_for(int n_threads) {
    if (threadIdx.x < 32) plec_barrier_sync(1, n_threads);
}

TEST_F(Mistakes, BarrierThatNobodyElseReaches) {
    expect_reported("deadlock", [&](bool wrong) {
        PLEC_LAUNCH(wait_for, dim3(1), dim3(64), 0, a, wrong ? 64 : 32);
    });
}

/* ---- launches -------------------------------------------------------------------------------- */

__global__ void use_dynamic(int *out) {
    PLEC_SHARED_DYNAMIC(raw);
    raw[threadIdx.x] = 1;
    out[threadIdx.x] = raw[threadIdx.x];
}

TEST_F(Mistakes, DynamicSharedMemoryNotAskedFor) {
    expect_reported("smem", [&](bool wrong) {
        PLEC_LAUNCH(use_dynamic, dim3(1), dim3(32), wrong ? 0 : 32, a, d);
    });
}

TEST_F(Mistakes, DynamicSharedMemoryBeyondTheLimit) {
    expect_reported("launch", [&](bool wrong) {
        if (!wrong)
            cudaFuncSetAttribute((const void *)use_dynamic,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, 60000);
        cudaError_t status = PLEC_LAUNCH(use_dynamic, dim3(1), dim3(32), 60000, a, d);
        EXPECT_EQ(wrong ? cudaErrorInvalidValue : cudaSuccess, status);
    });
}

TEST_F(Mistakes, EmptyGrid) {
    expect_reported("launch", [&](bool wrong) {
        cudaError_t status = PLEC_LAUNCH(use_dynamic, dim3(wrong ? 0 : 1), dim3(32), 32, a, d);
        EXPECT_EQ(wrong ? cudaErrorInvalidConfiguration : cudaSuccess, status);
        if (wrong) {
            EXPECT_EQ(cudaErrorInvalidConfiguration, cudaGetLastError());
        }
    });
}

__global__ void recurse(int *out, int depth) {
    volatile char frame[4096];
    frame[0] = frame[4095] = (char)depth;
    out[0] = frame[0];
    if (depth > 0) recurse(out, depth - 1);
    out[1] = frame[4095];
}

TEST_F(Mistakes, StackOfAThreadOverflows) {
    expect_clean([&] { PLEC_LAUNCH(recurse, dim3(1), dim3(1), 0, a, d, 4); });
    PLEC_LAUNCH(recurse, dim3(1), dim3(1), 0, a, d, 1000);
    EXPECT_EXIT(cudaDeviceSynchronize(), testing::ExitedWithCode(68), "stack-overflow of recurse");
}

} // namespace
