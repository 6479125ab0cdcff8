// Mistakes with what happens behind the threads' backs: cp.async, bulk copies, mbarriers, wgmma.
#include "device/cuda/ptx_wgmma.cuh"
#include "tests/emu/mistakes.h"

namespace {

using namespace plec_test;

/* ---- cp.async -------------------------------------------------------------------------------- */

enum Staging { RIGHT, NO_WAIT, NO_BARRIER, NO_SECOND_BARRIER, WAITS_FOR_TOO_FEW, NEVER_WAITED };

/* Sums rows of 64 ints through two stages. */
template <Staging HOW> __global__ void sum_staged(const int *x, int *y, int n_rows) {
    PLEC_SHARED_STATIC(int[2][64], stage);
    int t = threadIdx.x, sum = 0;
    auto fetch = [&](int row) {
        if (row < n_rows && t < 16)
            plec_copy_async_16(plec_shared_address(&stage[row & 1][t * 4]), x + row * 64 + t * 4,
                               true);
        plec_copy_async_commit();
    };
    fetch(0);
    for (int row = 0; row < n_rows; row++) {
        fetch(row + 1);
        if (HOW == WAITS_FOR_TOO_FEW)
            plec_copy_async_wait<2>();
        else if (HOW != NO_WAIT && HOW != NEVER_WAITED)
            plec_copy_async_wait<1>();
        if (HOW != NO_BARRIER) __syncthreads();
        sum += stage[row & 1][t];
        if (HOW != NO_SECOND_BARRIER) __syncthreads();
    }
    if (HOW != NEVER_WAITED) plec_copy_async_wait<0>();
    y[t] = sum;
}

template <Staging HOW> void run_staged(cudaStream_t stream, int *d, int *e) {
    PLEC_LAUNCH(sum_staged<HOW>, dim3(1), dim3(64), 0, stream, (const int *)d, e, 6);
}

TEST_F(Mistakes, CopyAsyncReadBeforeItIsWaitedFor) {
    expect_reported("uninit", [&](bool wrong) {
        if (wrong)
            run_staged<NO_WAIT>(a, d, e);
        else
            run_staged<RIGHT>(a, d, e);
    });
    expect_reported("uninit", [&](bool wrong) {
        if (wrong)
            run_staged<WAITS_FOR_TOO_FEW>(a, d, e);
        else
            run_staged<RIGHT>(a, d, e);
    });
}

/* Zeroes are copied: sums of anything else were read too early. */
TEST_F(Mistakes, CopyAsyncReadTooEarlyGivesPoison) {
    int sum = 0;
    expect_reported("uninit", [&](bool wrong) {
        if (wrong)
            run_staged<NO_WAIT>(a, d, e);
        else
            run_staged<RIGHT>(a, d, e);
        ASSERT_EQ(cudaSuccess, cudaMemcpyAsync(h, e, 4, cudaMemcpyDeviceToHost, a));
        ASSERT_EQ(cudaSuccess, cudaStreamSynchronize(a));
        sum = h[0];
        EXPECT_EQ(wrong, sum != 0);
    });
}

TEST_F(Mistakes, CopyAsyncWaitedForButNotByOthers) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            run_staged<NO_BARRIER>(a, d, e);
        else
            run_staged<RIGHT>(a, d, e);
    });
}

TEST_F(Mistakes, CopyAsyncIntoAStageStillRead) {
    expect_reported("race", [&](bool wrong) {
        if (wrong)
            run_staged<NO_SECOND_BARRIER>(a, d, e);
        else
            run_staged<RIGHT>(a, d, e);
    });
}

TEST_F(Mistakes, CopyAsyncNeverWaitedFor) {
    expect_reported("cp-async", [&](bool wrong) {
        if (wrong)
            run_staged<NEVER_WAITED>(a, d, e);
        else
            run_staged<RIGHT>(a, d, e);
    });
    expect_said("issued at emu_mistakes_async_test.cu:");
}

__global__ void copy_at(const int *from, int *to, int by) {
    PLEC_SHARED_STATIC(int[64], s);
    plec_copy_async_16(plec_shared_address(&s[4 * threadIdx.x]), from + by + 4 * threadIdx.x, true);
    plec_copy_async_commit();
    plec_copy_async_wait<0>();
    to[threadIdx.x] = s[4 * threadIdx.x];
}

TEST_F(Mistakes, CopyAsyncMisaligned) {
    expect_reported("trap", [&](bool wrong) {
        PLEC_LAUNCH(copy_at, dim3(1), dim3(8), 0, a, (const int *)d, e, wrong ? 2 : 4);
    });
}

TEST_F(Mistakes, CopyAsyncFromPastTheEnd) {
    expect_reported("oob", [&](bool wrong) {
        PLEC_LAUNCH(copy_at, dim3(1), dim3(8), 0, a, (const int *)d, e,
                    N_INTS - 32 + (wrong ? 4 : 0));
    });
}

/* ---- bulk copies and mbarriers --------------------------------------------------------------- */

enum Ring {
    WHOLE,
    NOT_INITIALISED,
    INIT_NOT_FENCED,
    ZEROS_NOT_FENCED,
    PRODUCER_RUNS_AHEAD,
    WRONG_BYTES,
    CONSUMER_RUNS_AHEAD,
    WRONG_PARITY,
    MISALIGNED
};

/* A producer thread fills a ring of two, 64 consumers sum. */
template <Ring HOW> __global__ void sum_ring(const int *x, int *y, int n_rows) {
    PLEC_SHARED_DYNAMIC(raw);
    int *ring = (int *)raw; /* [2][64] */
    PLEC_SHARED_STATIC(uint64_t[4], barrier);
    const int t = threadIdx.x;
    const unsigned full = plec_shared_address(&barrier[0]), empty = full + 16;
    for (int i = t; i < 128; i += 96)
        ring[i] = 0; /* which the copies write over */
    if (HOW != ZEROS_NOT_FENCED) plec_fence_proxy_async();
    if (t == 0) {
        for (int i = 0; i < 2 && HOW != NOT_INITIALISED; i++) {
            plec_mbarrier_init(full + 8 * i, 1);
            plec_mbarrier_init(empty + 8 * i, 64);
        }
        if (HOW != INIT_NOT_FENCED) plec_mbarrier_init_fence();
    }
    __syncthreads();
    if (t == 0) {
        for (int row = 0; row < n_rows; row++) {
            int stage = row & 1, phase = row >> 1 & 1;
            if (HOW != PRODUCER_RUNS_AHEAD) plec_mbarrier_wait(empty + 8 * stage, phase ^ 1);
            plec_mbarrier_arrive_expect(full + 8 * stage, HOW == WRONG_BYTES ? 128 : 256);
            plec_bulk_load(plec_shared_address(ring + stage * 64),
                           x + row * 64 + (HOW == MISALIGNED), 256, full + 8 * stage);
        }
    } else if (t >= 32) {
        int sum = 0;
        for (int row = 0; row < n_rows; row++) {
            int stage = row & 1, phase = row >> 1 & 1;
            if (HOW != CONSUMER_RUNS_AHEAD)
                plec_mbarrier_wait(full + 8 * stage, HOW == WRONG_PARITY ? phase ^ 1 : phase);
            sum += ring[stage * 64 + t - 32];
            plec_mbarrier_arrive(empty + 8 * stage);
        }
        y[t - 32] = sum;
    }
}

template <Ring HOW> void run_ring(cudaStream_t stream, int *d, int *e) {
    PLEC_LAUNCH(sum_ring<HOW>, dim3(1), dim3(96), 512, stream, (const int *)d, e, 9);
}

#define RING_MISTAKE(name, kind, how)                                                              \
    TEST_F(Mistakes, name) {                                                                       \
        expect_reported(kind, [&](bool wrong) {                                                    \
            if (wrong)                                                                             \
                run_ring<how>(a, d, e);                                                            \
            else                                                                                   \
                run_ring<WHOLE>(a, d, e);                                                          \
        });                                                                                        \
    }

RING_MISTAKE(MbarrierNotInitialised, "mbarrier", NOT_INITIALISED)
RING_MISTAKE(MbarrierNotMadeKnown, "mbarrier-fence", INIT_NOT_FENCED)
RING_MISTAKE(OrdinaryStoresUnderABulkCopyWithoutAProxyFence, "proxy-fence", ZEROS_NOT_FENCED)
RING_MISTAKE(ProducerDoesNotWaitForAnEmptyStage, nullptr, PRODUCER_RUNS_AHEAD)
RING_MISTAKE(BytesExpectedAreNotTheBytesCopied, "deadlock", WRONG_BYTES)
RING_MISTAKE(ConsumerDoesNotWaitForAFullStage, nullptr, CONSUMER_RUNS_AHEAD)
RING_MISTAKE(ConsumerWaitsForTheWrongParity, nullptr, WRONG_PARITY)
RING_MISTAKE(BulkCopyMisaligned, "trap", MISALIGNED)

/* ---- cp.async that an mbarrier counts -------------------------------------------------------- */

enum Counted {
    COUNTED,
    ARRIVES_TOO_EARLY,
    NEVER_ARRIVES,
    EXPECTS_TOO_FEW,
    NOT_READ_BACK,
    STILL_GOING
};

/* 16 threads copy 64 ints, 64 others wait for them. */
template <Counted HOW> __global__ void sum_counted(const int *x, int *y) {
    PLEC_SHARED_STATIC(int[64], stage);
    PLEC_SHARED_STATIC(uint64_t, word);
    const int t = threadIdx.x;
    const unsigned full = plec_shared_address(&word);
    if (t == 0) {
        plec_mbarrier_init(full, HOW == EXPECTS_TOO_FEW ? 8 : 16);
        plec_mbarrier_init_fence();
    }
    __syncthreads();
    if (t < 16) {
        if (HOW == ARRIVES_TOO_EARLY) plec_copy_async_arrive(full);
        plec_copy_async_16(plec_shared_address(&stage[t * 4]), x + t * 4, true);
        if (HOW != ARRIVES_TOO_EARLY && HOW != NEVER_ARRIVES) plec_copy_async_arrive(full);
        if (HOW == ARRIVES_TOO_EARLY || HOW == NEVER_ARRIVES) {
            plec_copy_async_commit();
            plec_copy_async_wait<0>();
        }
    } else if (t >= 32 && HOW != STILL_GOING) {
        if (HOW != NOT_READ_BACK) plec_mbarrier_wait(full, 0);
        y[t - 32] = stage[t - 32];
    }
}

template <Counted HOW> void run_counted(cudaStream_t stream, int *d, int *e) {
    PLEC_LAUNCH(sum_counted<HOW>, dim3(1), dim3(96), 0, stream, (const int *)d, e);
}

#define COUNTED_MISTAKE(name, kind, how)                                                           \
    TEST_F(Mistakes, name) {                                                                       \
        expect_reported(kind, [&](bool wrong) {                                                    \
            if (wrong)                                                                             \
                run_counted<how>(a, d, e);                                                         \
            else                                                                                   \
                run_counted<COUNTED>(a, d, e);                                                     \
        });                                                                                        \
    }

COUNTED_MISTAKE(CopyAsyncArrivesForCopiesStillToCome, nullptr, ARRIVES_TOO_EARLY)
COUNTED_MISTAKE(CopyAsyncNeverArrives, "deadlock", NEVER_ARRIVES)
COUNTED_MISTAKE(CopyAsyncArrivesMoreOftenThanExpected, nullptr, EXPECTS_TOO_FEW)
COUNTED_MISTAKE(CopyAsyncReadBeforeItsBarrierIsWaitedFor, nullptr, NOT_READ_BACK)
COUNTED_MISTAKE(BlockEndsWithCopiesUnderWay, "cp-async", STILL_GOING)

/* ---- wgmma ----------------------------------------------------------------------------------- */

enum Product {
    CORRECT,
    NO_PROXY_FENCE,
    NO_WGMMA_FENCE,
    NOT_WAITED_FOR,
    OPERAND_OVERWRITTEN,
    SUM_READ_EARLY,
    DESCRIPTORS_DIFFER,
    OPERAND_OUT_OF_BOUNDS
};

/* d[64][8] = a[64][16] * b[8][16], both in 8 x 8 parts without a swizzle, all ones. */
template <Product HOW> __global__ void product(float *out) {
    PLEC_SHARED_DYNAMIC(raw);
    unsigned short *operands = (unsigned short *)raw; /* a: 2048 bytes, b: 256 */
    int t = threadIdx.x;
    for (int i = t; i < 1152; i += 128)
        operands[i] = 0x3f80;
    if (HOW != NO_PROXY_FENCE) plec_fence_proxy_async();
    __syncthreads();
    unsigned start = plec_shared_address(raw);
    if (HOW == DESCRIPTORS_DIFFER && t == 5) start += 16;
    uint64_t da = plec_wgmma_descriptor_plain(start, 128, 256);
    uint64_t db =
        plec_wgmma_descriptor_plain(start + (HOW == OPERAND_OUT_OF_BOUNDS ? 4096 : 2048), 128, 256);
    float d[4] = {};
    if (HOW != NO_WGMMA_FENCE) plec_wgmma_fence();
    plec_wgmma_bf16(d, da, db, 0);
    plec_wgmma_commit();
    if (HOW == SUM_READ_EARLY) out[t] = d[0];
    if (HOW == OPERAND_OVERWRITTEN) operands[t] = 0;
    if (HOW != NOT_WAITED_FOR) plec_wgmma_wait<0>();
    if (HOW != SUM_READ_EARLY) out[t] = d[0];
}

template <Product HOW> void run_product(cudaStream_t stream, int *d) {
    PLEC_LAUNCH(product<HOW>, dim3(1), dim3(128), 2304, stream, (float *)d);
}

#define PRODUCT_MISTAKE(name, kind, how)                                                           \
    TEST_F(Mistakes, name) {                                                                       \
        expect_reported(kind, [&](bool wrong) {                                                    \
            if (wrong)                                                                             \
                run_product<how>(a, d);                                                            \
            else                                                                                   \
                run_product<CORRECT>(a, d);                                                        \
        });                                                                                        \
    }

PRODUCT_MISTAKE(OrdinaryStoresReadByWgmmaWithoutAProxyFence, "proxy-fence", NO_PROXY_FENCE)
PRODUCT_MISTAKE(WgmmaWithoutAFence, "wgmma", NO_WGMMA_FENCE)
PRODUCT_MISTAKE(WgmmaNeverWaitedFor, "wgmma", NOT_WAITED_FOR)
PRODUCT_MISTAKE(WgmmaOperandOverwrittenTooEarly, "wgmma-overwrite", OPERAND_OVERWRITTEN)
PRODUCT_MISTAKE(WarpgroupDisagreesOnAWgmma, "wgmma", DESCRIPTORS_DIFFER)
PRODUCT_MISTAKE(WgmmaOperandOutsideSharedMemory, "smem-oob", OPERAND_OUT_OF_BOUNDS)

/* ---- wgmma with operand A in registers ------------------------------------------------------- */

enum Registers {
    RIGHT_ORDER,
    A_CHANGED,
    A_CHANGED_LATER,
    SUM_WRITTEN,
    WRONG_STRIDE,
    COPY_NOT_FENCED
};

/* d[64][8] = a[64][32] * b[8][32], a by registers, both ones: b in 8 x 8 parts, a row's four after
 * each other, copied by cp.async. */
template <Registers HOW> __global__ void product_registers(const unsigned short *b, float *out) {
    PLEC_SHARED_DYNAMIC(raw); /* 512 bytes, and 512 that nobody writes */
    const unsigned ones = 0x3f803f80u;
    unsigned start = plec_shared_address(raw);
    if (threadIdx.x < 32) plec_copy_async_16(start + threadIdx.x * 16, b + threadIdx.x * 8, true);
    plec_copy_async_commit();
    plec_copy_async_wait<0>();
    if (HOW != COPY_NOT_FENCED) plec_fence_proxy_async();
    __syncthreads();
    unsigned a[2][4] = {{ones, ones, ones, ones}, {ones, ones, ones, ones}};
    uint64_t db = plec_wgmma_descriptor_plain(start, HOW == WRONG_STRIDE ? 512 : 128, 512);
    float d[4] = {};
    plec_wgmma_fence();
    plec_wgmma_bf16(d, a[0], db, 0);
    plec_wgmma_commit();
    if (HOW == A_CHANGED) a[0][2] = 0;
    plec_wgmma_fence();
    plec_wgmma_bf16(d, a[1], db + (256 >> 4), 1);
    plec_wgmma_commit();
    plec_wgmma_wait<1>();
    a[0][1] = 0;
    if (HOW == A_CHANGED_LATER) a[1][3] = 0;
    if (HOW == SUM_WRITTEN) d[1] = 0;
    plec_wgmma_wait<0>();
    out[threadIdx.x] = d[0];
}

template <Registers HOW> float run_registers(cudaStream_t stream, int *b, int *out, int *host) {
    unsigned short *ones = (unsigned short *)host;
    for (int i = 0; i < 256; i++)
        ones[i] = 0x3f80;
    EXPECT_EQ(cudaSuccess, cudaMemcpyAsync(b, ones, 512, cudaMemcpyHostToDevice, stream));
    PLEC_LAUNCH(product_registers<HOW>, dim3(1), dim3(128), 1024, stream, (const unsigned short *)b,
                (float *)out);
    float sum = 0;
    EXPECT_EQ(cudaSuccess,
              cudaMemcpyAsync(&host[512], out, sizeof sum, cudaMemcpyDeviceToHost, stream));
    EXPECT_EQ(cudaSuccess, cudaStreamSynchronize(stream));
    memcpy(&sum, &host[512], sizeof sum);
    return sum;
}

#define REGISTERS_MISTAKE(name, kind, how)                                                         \
    TEST_F(Mistakes, name) {                                                                       \
        expect_reported(kind, [&](bool wrong) {                                                    \
            if (wrong)                                                                             \
                run_registers<how>(a, d, e, h);                                                    \
            else                                                                                   \
                EXPECT_EQ(32.0f, run_registers<RIGHT_ORDER>(a, d, e, h));                          \
        });                                                                                        \
    }

REGISTERS_MISTAKE(WgmmaOperandAChangedBeforeTheWait, "wgmma-registers", A_CHANGED)
REGISTERS_MISTAKE(WgmmaOperandAChangedWhileALaterOneIsWaitedFor, "wgmma-registers", A_CHANGED_LATER)
REGISTERS_MISTAKE(WgmmaSumsWrittenBeforeTheWait, "wgmma", SUM_WRITTEN)
REGISTERS_MISTAKE(WgmmaOperandByAWrongStride, "uninit", WRONG_STRIDE)
REGISTERS_MISTAKE(CopiesReadByWgmmaWithoutAProxyFence, "proxy-fence", COPY_NOT_FENCED)

TEST_F(Mistakes, SumsOfWgmmaReadBeforeTheWaitAreNotNumbers) {
    float sum[2];
    expect_clean([&] { run_product<SUM_READ_EARLY>(a, d); });
    ASSERT_EQ(cudaSuccess, cudaMemcpy(&sum[0], d, sizeof(float), cudaMemcpyDeviceToHost));
    expect_clean([&] { run_product<CORRECT>(a, d); });
    ASSERT_EQ(cudaSuccess, cudaMemcpy(&sum[1], d, sizeof(float), cudaMemcpyDeviceToHost));
    EXPECT_TRUE(std::isnan(sum[0]));
    EXPECT_EQ(16.0f, sum[1]);
}

} // namespace
