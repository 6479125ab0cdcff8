/* avx512.h: what the AVX-512 kernels share. Only for files compiled with -mavx512f -mavx512bw
 * -mavx512vl -mavx512dq.
 *
 * Codes of 4 bits: a dword holds eight; shifted right by 4 p, its lowest four bits select one of 16
 * f32 values. A shift, a selection and a multiply-add for 16 weights, exact for any code.
 */
#ifndef PLEC_DEVICE_CPU_AVX512_H
#define PLEC_DEVICE_CPU_AVX512_H

#include <immintrin.h>
#include <string.h>

#include "device/cpu/vector.h"

typedef __m512 plec_avx512_vector;

/* The lanes of 16 vectors added, always in the same order: lane i is the sum of sums[i]. */
PLEC_CPU_INLINE __m512 plec_avx512_add_sixteen(const __m512 *sums) {
    __m512 pairs[8], fours[4], eights[2];
    PLEC_CPU_UNROLL
    for (int i = 0; i < 8; i++) /* a0+a2 b0+b2 a1+a3 b1+b3, in each quarter */
        pairs[i] = _mm512_add_ps(_mm512_unpacklo_ps(sums[2 * i], sums[2 * i + 1]),
                                 _mm512_unpackhi_ps(sums[2 * i], sums[2 * i + 1]));
    PLEC_CPU_UNROLL
    for (int i = 0; i < 4; i++) /* a b c d */
        fours[i] = _mm512_add_ps(_mm512_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0x44),
                                 _mm512_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0xEE));
    PLEC_CPU_UNROLL
    for (int i = 0; i < 2; i++) /* even and odd quarters together */
        eights[i] = _mm512_add_ps(_mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0x88),
                                  _mm512_shuffle_f32x4(fours[2 * i], fours[2 * i + 1], 0xDD));
    return _mm512_add_ps(_mm512_shuffle_f32x4(eights[0], eights[1], 0x88),
                         _mm512_shuffle_f32x4(eights[0], eights[1], 0xDD));
}

/* out [n] = the lanes of each of sums [n, rounded up to 16] added. */
static inline void plec_avx512_add_lanes(float *out, __m512 *sums, uint32_t n) {
    for (uint32_t i = n; i % 16 != 0; i++)
        sums[i] = _mm512_setzero_ps();
    for (; n >= 16; n -= 16, out += 16, sums += 16)
        _mm512_storeu_ps(out, plec_avx512_add_sixteen(sums));
    if (n != 0)
        _mm512_mask_storeu_ps(out, (__mmask16)((1u << n) - 1), plec_avx512_add_sixteen(sums));
}

/* The 128 codes of 16 dwords, looked up, times x: vector p of the image goes with nibble p. even
 * and odd: the sums over even and odd p; two chains keep the multipliers busy. */
PLEC_CPU_INLINE void plec_avx512_look_up(__m512 *even, __m512 *odd, __m512i codes, __m512 table,
                                         const float *const *x, size_t at, const int n) {
    __asm__("" : "+v"(codes)); /* stay in a register: loads are scarcer than shifts */
    PLEC_CPU_UNROLL
    for (int p = 0; p < 8; p++) {
        __m512 w = _mm512_permutexvar_ps(_mm512_srli_epi32(codes, 4 * (unsigned)p), table);
        __m512 *chain = p % 2 == 0 ? even : odd;
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++) {
            __m512 v = _mm512_load_ps(x[t] + at + 16 * (size_t)p);
            chain[t] = p < 2 ? _mm512_mul_ps(w, v) : _mm512_fmadd_ps(w, v, chain[t]);
        }
    }
}

/* sums += scale * part, for each token; sums holds two chains a token. */
PLEC_CPU_INLINE void plec_avx512_add_scaled(__m512 (*sums)[2], int chain, const __m512 *part,
                                            __m512 scale, const int n) {
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t][chain] = _mm512_fmadd_ps(part[t], scale, sums[t][chain]);
}

PLEC_CPU_INLINE void plec_avx512_clear(__m512 (*sums)[2], const int n) {
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm512_setzero_ps();
}

PLEC_CPU_INLINE void plec_avx512_join(__m512 *out, __m512 (*sums)[2], const int n) {
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm512_add_ps(sums[t][0], sums[t][1]);
}

#endif
