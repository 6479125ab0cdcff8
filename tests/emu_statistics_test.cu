// What the emulation counts, where the answer is known.
#include "device/cuda/ptx.cuh"
#include "tests/emu/emulator.h"

#include <gtest/gtest.h>

namespace {

class Statistics : public testing::Test {
  protected:
    void SetUp() override {
        ASSERT_EQ(cudaSuccess, cudaMalloc((void **)&d, N * sizeof(int)));
        ASSERT_EQ(cudaSuccess, cudaMalloc((void **)&e, N * sizeof(int)));
        ASSERT_EQ(cudaSuccess, cudaMemset(d, 0, N * sizeof(int)));
        ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
        plec_emu_stats_start();
    }
    void TearDown() override { plec_emu_reset(); }

    static plec_emu_line of(int kind) {
        EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
        return plec_emu_stats(nullptr, nullptr, kind);
    }
    static double share_used(const plec_emu_line &line) {
        return (double)line.n_bytes_used / (double)line.n_bytes_fetched;
    }

    enum { N = 8192 };
    int *d, *e;
};

/* ---- global memory --------------------------------------------------------------------------- */

__global__ void copy_strided(int *to, const int *from, int stride) {
    int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    to[i] = from[i * stride];
}

TEST_F(Statistics, AStrideOfASectorUsesAnEighthOfIt) {
    PLEC_LAUNCH(copy_strided, dim3(4), dim3(64), 0, 0, e, (const int *)d, 8);
    plec_emu_line loads = of(PLEC_EMU_GLOBAL_LOAD), stores = of(PLEC_EMU_GLOBAL_STORE);
    EXPECT_EQ(8u, loads.n_requests); /* 4 blocks of 2 warps */
    EXPECT_EQ(256u * 4, loads.n_bytes);
    EXPECT_EQ(256u * 32, loads.n_bytes_fetched);
    EXPECT_EQ(0.125, share_used(loads));
    EXPECT_EQ(1.0, share_used(stores));
}

TEST_F(Statistics, LanesThatReadOneWordFetchOneSector) {
    PLEC_LAUNCH(copy_strided, dim3(1), dim3(32), 0, 0, e, (const int *)d, 0);
    plec_emu_line loads = of(PLEC_EMU_GLOBAL_LOAD);
    EXPECT_EQ(32u * 4, loads.n_bytes);
    EXPECT_EQ(4u, loads.n_bytes_used);
    EXPECT_EQ(32u, loads.n_bytes_fetched);
}

__global__ void copy_wide(int *to, const int *from, int shift) {
    plec_store_16(to + 4 * threadIdx.x, plec_load_16(from + 4 * (threadIdx.x + shift)));
}

TEST_F(Statistics, SixteenBytesALaneAreOneRequest) {
    PLEC_LAUNCH(copy_wide, dim3(1), dim3(32), 0, 0, e, (const int *)d, 0);
    plec_emu_line loads = of(PLEC_EMU_GLOBAL_LOAD);
    EXPECT_EQ(1u, loads.n_requests);
    EXPECT_EQ(512u, loads.n_bytes_fetched);
    EXPECT_EQ(1.0, share_used(loads));
}

TEST_F(Statistics, ARowThatBeginsInsideASectorFetchesOneMore) {
    PLEC_LAUNCH(copy_wide, dim3(1), dim3(32), 0, 0, e, (const int *)d, 1);
    EXPECT_EQ(544u, of(PLEC_EMU_GLOBAL_LOAD).n_bytes_fetched);
}

/* ---- shared memory --------------------------------------------------------------------------- */

/* Lane i stores word i * stride and loads the same. */
template <class T> __global__ void touch_shared(T *to, int stride) {
    PLEC_SHARED_STATIC(T[1024], s);
    int t = threadIdx.x;
    s[t * stride] = (T)t;
    __syncthreads();
    to[t] = s[t * stride];
}

TEST_F(Statistics, BankConflictsAreCounted) {
    const struct {
        int stride;
        uint64_t waves;
    } cases[] = {{1, 1}, {2, 2}, {4, 4}, {3, 1}, {32, 32}, {0, 1}};
    for (const auto &c : cases) {
        plec_emu_stats_start();
        if (c.stride)
            PLEC_LAUNCH(touch_shared<int>, dim3(1), dim3(32), 0, 0, e, c.stride);
        else
            continue;
        for (int kind : {PLEC_EMU_SHARED_LOAD, PLEC_EMU_SHARED_STORE}) {
            plec_emu_line line = of(kind);
            EXPECT_EQ(1u, line.n_requests) << c.stride;
            EXPECT_EQ(c.waves, line.n_waves) << c.stride;
            EXPECT_EQ(c.waves - 1, line.n_conflicts) << c.stride;
        }
    }
}

TEST_F(Statistics, EightBytesALaneTakeTwoWavesWithoutConflict) {
    PLEC_LAUNCH(touch_shared<double>, dim3(1), dim3(32), 0, 0, (double *)e, 1);
    plec_emu_line loads = of(PLEC_EMU_SHARED_LOAD);
    EXPECT_EQ(2u, loads.n_waves);
    EXPECT_EQ(0u, loads.n_conflicts);
}

__global__ void broadcast(int *to) {
    PLEC_SHARED_STATIC(int[32], s);
    int t = threadIdx.x;
    s[t] = t;
    __syncthreads();
    to[t] = s[7];
}

TEST_F(Statistics, ABroadcastIsNoConflict) {
    PLEC_LAUNCH(broadcast, dim3(1), dim3(32), 0, 0, e);
    EXPECT_EQ(1u, of(PLEC_EMU_SHARED_LOAD).n_waves);
    EXPECT_EQ(0u, of(PLEC_EMU_SHARED_LOAD).n_conflicts);
}

/* Rows of 16-bit elements, `pitch` bytes apart. */
__global__ void load_matrices(int *to, int pitch) {
    PLEC_SHARED_DYNAMIC(raw);
    unsigned r[4], lane = threadIdx.x;
    for (unsigned i = lane; i < 2048; i += 32)
        raw[i] = 0;
    __syncwarp();
    plec_ldmatrix_x4(r, plec_shared_address(raw) + lane % 8 * (unsigned)pitch + lane / 8 * 16);
    to[lane] = (int)(r[0] + r[1] + r[2] + r[3]);
}

TEST_F(Statistics, LdmatrixConflictsWhenRowsShareBanks) {
    PLEC_LAUNCH(load_matrices, dim3(1), dim3(32), 2048, 0, e, 128);
    plec_emu_line line = of(PLEC_EMU_LDMATRIX);
    EXPECT_EQ(4u, line.n_requests);
    EXPECT_EQ(32u, line.n_waves);
    EXPECT_EQ(28u, line.n_conflicts);
    plec_emu_stats_start();
    PLEC_LAUNCH(load_matrices, dim3(1), dim3(32), 2048, 0, e, 144);
    EXPECT_EQ(0u, of(PLEC_EMU_LDMATRIX).n_conflicts);
}

/* ---- instructions, lines, bytes read once ---------------------------------------------------- */

__global__ void multiply_often(float *out, int n) {
    unsigned a[4] = {1, 2, 3, 4};
    float d[4] = {};
    for (int i = 0; i < n; i++)
        plec_mma_bf16(d, a, 5, 6);
    __syncthreads();
    out[blockIdx.x * 64 + threadIdx.x] = d[0] + __shfl_xor_sync(0xffffffffu, d[1], 1);
}

TEST_F(Statistics, InstructionsOfAWarpAreCountedOnce) {
    PLEC_LAUNCH(multiply_often, dim3(3), dim3(64), 0, 0, (float *)e, 5);
    EXPECT_EQ(3u * 2 * 5, of(PLEC_EMU_MMA).n_requests);
    EXPECT_EQ(3u * 2, of(PLEC_EMU_BARRIER).n_requests);
    EXPECT_EQ(3u * 2, of(PLEC_EMU_SHUFFLE).n_requests);
}

enum { READ_LINE = __LINE__ + 4 };
template <int TIMES> __global__ void read_rows(int *out, const int *from, int n) {
    int sum = 0;
    for (int i = (int)threadIdx.x; i < n * TIMES; i += 32)
        sum += from[i % n];
    out[threadIdx.x] = sum;
}

TEST_F(Statistics, BytesReadOnceAreProvedSo) {
    uint32_t fewest, most;
    plec_emu_watch(d, 4000);
    PLEC_LAUNCH(read_rows<1>, dim3(1), dim3(32), 0, 0, e, (const int *)d, 1000);
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    ASSERT_TRUE(plec_emu_watched(d, &fewest, &most));
    EXPECT_EQ(1u, fewest);
    EXPECT_EQ(1u, most);
    PLEC_LAUNCH(read_rows<1>, dim3(1), dim3(32), 0, 0, e, (const int *)d, 999);
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    ASSERT_TRUE(plec_emu_watched(d, &fewest, &most));
    EXPECT_EQ(1u, fewest);
    EXPECT_EQ(2u, most);
    EXPECT_FALSE(plec_emu_watched(e, &fewest, &most));
}

__global__ void stage_rows(int *out, const int *from) {
    PLEC_SHARED_STATIC(int[128], s);
    int t = threadIdx.x;
    plec_copy_async_16(plec_shared_address(&s[4 * t]), from + 4 * t, t < 24);
    plec_copy_async_commit();
    plec_copy_async_wait<0>();
    __syncthreads();
    out[t] = s[t];
}

TEST_F(Statistics, CopiesThatAreNotThereReadNothing) {
    uint32_t fewest, most;
    plec_emu_watch(d, 384);
    plec_emu_watch(d + 96, 128);
    PLEC_LAUNCH(stage_rows, dim3(1), dim3(32), 0, 0, e, (const int *)d);
    EXPECT_EQ(384u, of(PLEC_EMU_COPY_ASYNC).n_bytes);
    EXPECT_EQ(384u, of(PLEC_EMU_COPY_ASYNC).n_bytes_fetched);
    ASSERT_TRUE(plec_emu_watched(d, &fewest, &most));
    EXPECT_EQ(1u, fewest);
    EXPECT_EQ(1u, most);
    ASSERT_TRUE(plec_emu_watched(d + 96, &fewest, &most));
    EXPECT_EQ(0u, most);
}

/* Three copies a thread of 16 bytes each, `ahead` of them under way. */
template <int ahead> __global__ void stage_ahead(int *out, const int *from) {
    PLEC_SHARED_STATIC(int[4 * 32 * 3], s);
    int t = threadIdx.x;
    for (int i = 0; i < 3; i++) {
        plec_copy_async_16(plec_shared_address(&s[4 * (32 * i + t)]), from + 4 * t, true);
        plec_copy_async_commit();
        plec_copy_async_wait<ahead - 1>();
    }
    plec_copy_async_wait<0>();
    out[t] = s[4 * t];
}

TEST_F(Statistics, CopiesUnderWayAreThoseNotWaitedFor) {
    PLEC_LAUNCH(stage_ahead<1>, dim3(2), dim3(32), 0, 0, e, (const int *)d);
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    EXPECT_EQ(512u, plec_emu_stats_under_way("stage_ahead", nullptr));
    PLEC_LAUNCH(stage_ahead<3>, dim3(1), dim3(32), 0, 0, e, (const int *)d);
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    EXPECT_EQ(3 * 512u, plec_emu_stats_under_way("stage_ahead", nullptr));
    EXPECT_EQ(3 * 512u, plec_emu_stats_under_way("stage_ahead", "emu_statistics_test.cu"));
    EXPECT_EQ(0u, plec_emu_stats_under_way("read_rows", nullptr));
    PLEC_LAUNCH(stage_rows, dim3(1), dim3(32), 0, 0, e, (const int *)d);
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    EXPECT_EQ(384u, plec_emu_stats_under_way("stage_rows", nullptr));
}

TEST_F(Statistics, LinesAndKernelsAreToldApart) {
    PLEC_LAUNCH(read_rows<1>, dim3(1), dim3(32), 0, 0, e, (const int *)d, 320);
    PLEC_LAUNCH(read_rows<2>, dim3(1), dim3(32), 0, 0, e, (const int *)d, 320);
    std::string line = "emu_statistics_test.cu:" + std::to_string(READ_LINE);
    EXPECT_EQ(30u, of(PLEC_EMU_GLOBAL_LOAD).n_requests);
    EXPECT_EQ(10u, plec_emu_stats("read_rows<1>", line.c_str(), -1).n_requests);
    EXPECT_EQ(20u, plec_emu_stats("read_rows<2>", line.c_str(), -1).n_requests);
    EXPECT_EQ(0u, plec_emu_stats("copy_strided", nullptr, -1).n_requests);
}

TEST_F(Statistics, TheTableNamesKernelLineAndShare) {
    char text[4096] = {};
    FILE *memory = fmemopen(text, sizeof(text) - 1, "w");
    PLEC_LAUNCH(copy_strided, dim3(1), dim3(32), 0, 0, e, (const int *)d, 8);
    EXPECT_EQ(cudaSuccess, cudaDeviceSynchronize());
    plec_emu_stats_print(memory);
    fclose(memory);
    EXPECT_NE(nullptr, strstr(text, "EMU: copy_strided, 1 launch(es)")) << text;
    EXPECT_NE(nullptr, strstr(text, "emu_statistics_test.cu:")) << text;
    EXPECT_NE(nullptr, strstr(text, "128 bytes,  12.5% of 1024 fetched")) << text;
}

} // namespace
