/* ptx_wgmma.cuh: wgmma of sm_90a, the asynchronous product of a warpgroup of 128 threads:
 *
 *     d[64][n] (+)= a[64][16] * b[16][n]      bf16 or f16 operands, f32 accumulators
 *
 * n is told by the number of accumulators a thread holds, n / 2: n is a multiple of 8 up to 128, or
 * 256. The layout of d within a 16-row slab of a warp is that of mma.m16n8k16, eight columns
 * after eight. B lies in shared memory, K-major (for each of n columns its k in a row), behind a
 * descriptor; A likewise (64 rows), or in registers as the fragment of mma.m16n8k16.
 *
 *     plec_wgmma_hold(d);            // for the compiler; a likewise
 *     plec_wgmma_fence();            // registers and shared memory are ready
 *     plec_wgmma_bf16(d, a, b, 0);   // 0: d is not read, the first product of a sum
 *     plec_wgmma_bf16(d, a, b, 1);
 *     plec_wgmma_commit();
 *     plec_wgmma_wait<0>();          // d may be read, a and b written, from here on
 *     plec_wgmma_hold(d);
 */
#ifndef PLEC_DEVICE_CUDA_PTX_WGMMA_CUH
#define PLEC_DEVICE_CUDA_PTX_WGMMA_CUH

#include "device/cuda/ptx.cuh"

#ifdef PLEC_HAS_SM90A

PLEC_PTX_FUNCTION void plec_wgmma_fence(PLEC_HERE_ONLY) {
    PLEC_PTX(wgmma_fence(file_, line_), asm volatile("wgmma.fence.sync.aligned;" ::: "memory"));
}

PLEC_PTX_FUNCTION void plec_wgmma_commit(PLEC_HERE_ONLY) {
    PLEC_PTX(wgmma_commit(file_, line_), asm volatile("wgmma.commit_group.sync.aligned;" ::
                                                          : "memory"));
}

/* Waits until at most N of this warpgroup's groups are under way. */
template <int N> PLEC_PTX_FUNCTION void plec_wgmma_wait(PLEC_HERE_ONLY) {
    PLEC_PTX(wgmma_wait(N, file_, line_), asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N)
                                                       : "memory"));
}

/* Gives each thread of this warpgroup N registers from here on, where the kernel was launched with
 * more (shrink) or fewer (grow): what one warpgroup gives up another can have, and waits for. The
 * warps of a warpgroup call it together. The emulation counts no registers. */
template <int N> PLEC_PTX_FUNCTION void plec_registers_shrink(void) {
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "what setmaxnreg takes");
#ifndef PLEC_CUDA_EMULATED
    asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(N));
#endif
}
template <int N> PLEC_PTX_FUNCTION void plec_registers_grow(void) {
    static_assert(N % 8 == 0 && N >= 24 && N <= 256, "what setmaxnreg takes");
#ifndef PLEC_CUDA_EMULATED
    asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(N));
#endif
}

/* Holds registers in place for the compiler, which sees no order between them and the instructions
 * above: what is written before stays before, what is read behind stays behind. Accumulators and
 * operand A are held before the fence, accumulators again after the wait. */
template <int N> PLEC_PTX_FUNCTION void plec_wgmma_hold(float (&d)[N]) {
#ifndef PLEC_CUDA_EMULATED
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+f"(d[i])::"memory");
#else
    (void)d;
#endif
}
template <int N> PLEC_PTX_FUNCTION void plec_wgmma_hold(unsigned (&a)[N]) {
#ifndef PLEC_CUDA_EMULATED
#pragma unroll
    for (int i = 0; i < N; i++)
        asm volatile("" : "+r"(a[i])::"memory");
#else
    (void)a;
#endif
}

/* The descriptor of an operand whose rows are 64 elements (128 bytes) swizzled by 128 bytes, eight
 * rows after eight; the address aligned to 1024. Add 2 for each next 16 of k. */
PLEC_PTX_FUNCTION uint64_t plec_wgmma_descriptor_128(unsigned shared_address) {
    return (uint64_t)((shared_address & 0x3ffff) >> 4) | (uint64_t)1 << 16 |
           (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* The same for an operand without a swizzle: 8 x 8 parts of 128 bytes each, the second half of k
 * `k_bytes` after the first, the next eight rows `row_bytes` after the last. */
PLEC_PTX_FUNCTION uint64_t plec_wgmma_descriptor_plain(unsigned shared_address, unsigned k_bytes,
                                                       unsigned row_bytes) {
    return (uint64_t)((shared_address & 0x3ffff) >> 4) | (uint64_t)(k_bytes >> 4) << 16 |
           (uint64_t)(row_bytes >> 4) << 32;
}

#ifdef PLEC_CUDA_EMULATED

template <int N>
PLEC_PTX_FUNCTION void plec_wgmma_bf16(float (&d)[N], uint64_t a, uint64_t b, int add PLEC_HERE) {
    plec_emu::wgmma_shared(plec_emu::WGMMA_BF16, 2 * N, d, a, b, add, file_, line_);
}
template <int N>
PLEC_PTX_FUNCTION void plec_wgmma_f16(float (&d)[N], uint64_t a, uint64_t b, int add PLEC_HERE) {
    plec_emu::wgmma_shared(plec_emu::WGMMA_F16, 2 * N, d, a, b, add, file_, line_);
}
template <int N>
PLEC_PTX_FUNCTION void plec_wgmma_bf16(float (&d)[N], const unsigned (&a)[4], uint64_t b,
                                       int add PLEC_HERE) {
    plec_emu::wgmma_registers(plec_emu::WGMMA_BF16, 2 * N, d, a, b, add, file_, line_);
}
template <int N>
PLEC_PTX_FUNCTION void plec_wgmma_f16(float (&d)[N], const unsigned (&a)[4], uint64_t b,
                                      int add PLEC_HERE) {
    plec_emu::wgmma_registers(plec_emu::WGMMA_F16, 2 * N, d, a, b, add, file_, line_);
}

#else

/* Accumulators %0 to %127 as the text of an instruction. */
#define PLEC_WGMMA_D4  "%0,%1,%2,%3"
#define PLEC_WGMMA_D8  PLEC_WGMMA_D4 ",%4,%5,%6,%7"
#define PLEC_WGMMA_D12 PLEC_WGMMA_D8 ",%8,%9,%10,%11"
#define PLEC_WGMMA_D16 PLEC_WGMMA_D12 ",%12,%13,%14,%15"
#define PLEC_WGMMA_D20 PLEC_WGMMA_D16 ",%16,%17,%18,%19"
#define PLEC_WGMMA_D24 PLEC_WGMMA_D20 ",%20,%21,%22,%23"
#define PLEC_WGMMA_D28 PLEC_WGMMA_D24 ",%24,%25,%26,%27"
#define PLEC_WGMMA_D32 PLEC_WGMMA_D28 ",%28,%29,%30,%31"
#define PLEC_WGMMA_D36 PLEC_WGMMA_D32 ",%32,%33,%34,%35"
#define PLEC_WGMMA_D40 PLEC_WGMMA_D36 ",%36,%37,%38,%39"
#define PLEC_WGMMA_D44 PLEC_WGMMA_D40 ",%40,%41,%42,%43"
#define PLEC_WGMMA_D48 PLEC_WGMMA_D44 ",%44,%45,%46,%47"
#define PLEC_WGMMA_D52 PLEC_WGMMA_D48 ",%48,%49,%50,%51"
#define PLEC_WGMMA_D56 PLEC_WGMMA_D52 ",%52,%53,%54,%55"
#define PLEC_WGMMA_D60 PLEC_WGMMA_D56 ",%56,%57,%58,%59"
#define PLEC_WGMMA_D64 PLEC_WGMMA_D60 ",%60,%61,%62,%63"
#define PLEC_WGMMA_D128                                                                            \
    PLEC_WGMMA_D64                                                                                 \
    ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"                             \
    ",%80,%81,%82,%83,%84,%85,%86,%87,%88,%89,%90,%91,%92,%93,%94,%95"                             \
    ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"                 \
    ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"
/* The same as operands. */
#define PLEC_WGMMA_O4(i)   "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define PLEC_WGMMA_O8(i)   PLEC_WGMMA_O4(i), PLEC_WGMMA_O4(i + 4)
#define PLEC_WGMMA_O12(i)  PLEC_WGMMA_O8(i), PLEC_WGMMA_O4(i + 8)
#define PLEC_WGMMA_O16(i)  PLEC_WGMMA_O12(i), PLEC_WGMMA_O4(i + 12)
#define PLEC_WGMMA_O20(i)  PLEC_WGMMA_O16(i), PLEC_WGMMA_O4(i + 16)
#define PLEC_WGMMA_O24(i)  PLEC_WGMMA_O20(i), PLEC_WGMMA_O4(i + 20)
#define PLEC_WGMMA_O28(i)  PLEC_WGMMA_O24(i), PLEC_WGMMA_O4(i + 24)
#define PLEC_WGMMA_O32(i)  PLEC_WGMMA_O28(i), PLEC_WGMMA_O4(i + 28)
#define PLEC_WGMMA_O36(i)  PLEC_WGMMA_O32(i), PLEC_WGMMA_O4(i + 32)
#define PLEC_WGMMA_O40(i)  PLEC_WGMMA_O36(i), PLEC_WGMMA_O4(i + 36)
#define PLEC_WGMMA_O44(i)  PLEC_WGMMA_O40(i), PLEC_WGMMA_O4(i + 40)
#define PLEC_WGMMA_O48(i)  PLEC_WGMMA_O44(i), PLEC_WGMMA_O4(i + 44)
#define PLEC_WGMMA_O52(i)  PLEC_WGMMA_O48(i), PLEC_WGMMA_O4(i + 48)
#define PLEC_WGMMA_O56(i)  PLEC_WGMMA_O52(i), PLEC_WGMMA_O4(i + 52)
#define PLEC_WGMMA_O60(i)  PLEC_WGMMA_O56(i), PLEC_WGMMA_O4(i + 56)
#define PLEC_WGMMA_O64(i)  PLEC_WGMMA_O60(i), PLEC_WGMMA_O4(i + 60)
#define PLEC_WGMMA_O128(i) PLEC_WGMMA_O64(i), PLEC_WGMMA_O64(i + 64)

/* Both forms of one n and one type; COUNT accumulators, so that the operands behind them are
 * numbered COUNT (P0) to COUNT + 5 (P5). */
#define PLEC_WGMMA_DEFINE(NAME, TYPE, N, COUNT, P0, P1, P2, P3, P4, P5)                            \
    PLEC_PTX_FUNCTION void NAME(float(&d)[COUNT], uint64_t a, uint64_t b, int add) {               \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #P2 ", 0; "                                \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                     " {" PLEC_WGMMA_D##COUNT "}, %" #P0 ", %" #P1 ", p, 1, 1, 0, 0; }"            \
                     : PLEC_WGMMA_O##COUNT(0)                                                      \
                     : "l"(a), "l"(b), "r"(add));                                                  \
    }                                                                                              \
    PLEC_PTX_FUNCTION void NAME(float(&d)[COUNT], const unsigned(&a)[4], uint64_t b, int add) {    \
        asm volatile("{ .reg .pred p; setp.ne.b32 p, %" #P5 ", 0; "                                \
                     "wgmma.mma_async.sync.aligned.m64n" #N "k16.f32." TYPE "." TYPE               \
                     " {" PLEC_WGMMA_D##COUNT "}, {%" #P0 ", %" #P1 ", %" #P2 ", %" #P3 "}, %" #P4 \
                                              ", p, 1, 1, 0; }"                                    \
                     : PLEC_WGMMA_O##COUNT(0)                                                      \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));              \
    }
#define PLEC_WGMMA_BOTH(N, COUNT, ...)                                                             \
    PLEC_WGMMA_DEFINE(plec_wgmma_bf16, "bf16", N, COUNT, __VA_ARGS__)                              \
    PLEC_WGMMA_DEFINE(plec_wgmma_f16, "f16", N, COUNT, __VA_ARGS__)
PLEC_WGMMA_BOTH(8, 4, 4, 5, 6, 7, 8, 9)
PLEC_WGMMA_BOTH(16, 8, 8, 9, 10, 11, 12, 13)
PLEC_WGMMA_BOTH(24, 12, 12, 13, 14, 15, 16, 17)
PLEC_WGMMA_BOTH(32, 16, 16, 17, 18, 19, 20, 21)
PLEC_WGMMA_BOTH(40, 20, 20, 21, 22, 23, 24, 25)
PLEC_WGMMA_BOTH(48, 24, 24, 25, 26, 27, 28, 29)
PLEC_WGMMA_BOTH(56, 28, 28, 29, 30, 31, 32, 33)
PLEC_WGMMA_BOTH(64, 32, 32, 33, 34, 35, 36, 37)
PLEC_WGMMA_BOTH(72, 36, 36, 37, 38, 39, 40, 41)
PLEC_WGMMA_BOTH(80, 40, 40, 41, 42, 43, 44, 45)
PLEC_WGMMA_BOTH(88, 44, 44, 45, 46, 47, 48, 49)
PLEC_WGMMA_BOTH(96, 48, 48, 49, 50, 51, 52, 53)
PLEC_WGMMA_BOTH(104, 52, 52, 53, 54, 55, 56, 57)
PLEC_WGMMA_BOTH(112, 56, 56, 57, 58, 59, 60, 61)
PLEC_WGMMA_BOTH(120, 60, 60, 61, 62, 63, 64, 65)
PLEC_WGMMA_BOTH(128, 64, 64, 65, 66, 67, 68, 69)
PLEC_WGMMA_BOTH(256, 128, 128, 129, 130, 131, 132, 133)
#endif
#endif

#endif
