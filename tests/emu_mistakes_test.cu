// Deliberate mistakes, each reported under its name by the checked emulation.
#include "device/cuda/ptx.cuh"
#include "tests/emu/emulator.h"

#include <gtest/gtest.h>

namespace {

const unsigned ALL = 0xffffffffu;

class Mistakes : public testing::Test {
  protected:
    void SetUp() override {
        plec_emu_reset();
        void *memory;
        ASSERT_EQ(cudaSuccess, cudaMalloc(&memory, 4096));
        d = (int *)memory;
        ASSERT_EQ(cudaSuccess, cudaMalloc(&memory, 4096));
        e = (int *)memory;
        ASSERT_EQ(cudaSuccess, cudaMallocHost(&memory, 4096));
        h = (int *)memory;
        memset(h, 0, 4096);
        ASSERT_EQ(cudaSuccess, cudaMemset(d, 0, 4096));
        ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking));
        ASSERT_EQ(cudaSuccess, cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking));
        ASSERT_EQ(cudaSuccess, cudaEventCreate(&ev));
        ASSERT_EQ(cudaSuccess, cudaDeviceSynchronize());
    }
    void TearDown() override { plec_emu_reset(); }

    static int after_sync(const char *kind) {
        cudaDeviceSynchronize();
        return plec_emu_errors(kind);
    }

    int *d, *e, *h;
    cudaStream_t a, b;
    cudaEvent_t ev;
};

__global__ void shared_index(int *o, int i) {
    PLEC_SHARED_STATIC(int[32], s);
    s[threadIdx.x] = 1;
    __syncthreads();
    o[threadIdx.x] = s[threadIdx.x + i];
}

TEST_F(Mistakes, SharedIndexOutOfBounds) {
    PLEC_LAUNCH(shared_index, dim3(1), dim3(32), 0, 0, d, 1);
    EXPECT_GT(after_sync("oob"), 0);
}

__global__ void global_index(int *o, int i) {
    o[threadIdx.x + i] = 1;
}

TEST_F(Mistakes, GlobalIndexOutOfBounds) {
    PLEC_LAUNCH(global_index, dim3(1), dim3(32), 0, 0, d, 1000);
    EXPECT_GT(after_sync("oob"), 0);
}

__global__ void misaligned(float *o) {
    *(float4 *)(o + 1) = make_float4(0, 0, 0, 0);
}

TEST_F(Mistakes, VectorStoreMisaligned) {
    PLEC_LAUNCH(misaligned, dim3(1), dim3(1), 0, 0, (float *)d);
    EXPECT_GT(after_sync("misaligned"), 0);
}

__global__ void half_mask(int *o) {
    o[threadIdx.x] = __shfl_sync(0xffffu, (int)threadIdx.x, 3);
}

TEST_F(Mistakes, LaneOutsideItsOwnMask) {
    PLEC_LAUNCH(half_mask, dim3(1), dim3(32), 0, 0, d);
    EXPECT_GT(after_sync("warp-mask"), 0);
}

__global__ void diverge(int *o) {
    int v;
    if (threadIdx.x & 1)
        v = __shfl_sync(ALL, 1, 0);
    else
        v = (int)__ballot_sync(ALL, 1);
    o[threadIdx.x] = v;
}

TEST_F(Mistakes, CollectivesThatDiverge) {
    PLEC_LAUNCH(diverge, dim3(1), dim3(32), 0, 0, d);
    EXPECT_GT(after_sync("divergent-collective"), 0);
}

__global__ void warp_synchronous(int *o) {
    PLEC_SHARED_STATIC(int[32], s);
    s[threadIdx.x] = (int)threadIdx.x;
    o[threadIdx.x] = s[threadIdx.x ^ 1];
}

TEST_F(Mistakes, LanesReliedOnWithoutSyncwarp) {
    PLEC_LAUNCH(warp_synchronous, dim3(1), dim3(32), 0, 0, d);
    EXPECT_GT(after_sync("race"), 0);
}

__global__ void write(int *p, int n, int v) {
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(gridDim.x * blockDim.x))
        p[i] = v;
}

__global__ void copy(int *to, const int *from, int n) {
    for (int i = (int)threadIdx.x; i < n; i += (int)blockDim.x)
        to[i] = from[i];
}

TEST_F(Mistakes, StreamReadsWhatAnotherWrites) {
    PLEC_LAUNCH(write, dim3(2), dim3(32), 0, a, d, 64, 7);
    PLEC_LAUNCH(copy, dim3(1), dim3(32), 0, b, e, d, 64);
    EXPECT_GT(after_sync("stream-race"), 0);
}

TEST_F(Mistakes, NoneWithAnEventBetweenStreams) {
    PLEC_LAUNCH(write, dim3(2), dim3(32), 0, a, d, 64, 7);
    EXPECT_EQ(cudaSuccess, cudaEventRecord(ev, a));
    EXPECT_EQ(cudaSuccess, cudaStreamWaitEvent(b, ev, 0));
    PLEC_LAUNCH(copy, dim3(1), dim3(32), 0, b, e, d, 64);
    EXPECT_EQ(0, after_sync(nullptr));
    int got[64];
    EXPECT_EQ(cudaSuccess, cudaMemcpy(got, e, sizeof(got), cudaMemcpyDeviceToHost));
    EXPECT_EQ(7, got[63]);
}

TEST_F(Mistakes, PinnedBufferReusedWhileItsCopyIsPending) {
    EXPECT_EQ(cudaSuccess, cudaMemcpyAsync(d, h, 256, cudaMemcpyHostToDevice, a));
    h[0] = 5;
    EXPECT_GT(after_sync("stream-race"), 0);
}

} // namespace
