/* avx2.h: what the AVX2 kernels share. Only for files compiled with -mavx2 -mfma -mf16c. */
#ifndef PLEC_DEVICE_CPU_AVX2_H
#define PLEC_DEVICE_CPU_AVX2_H

#include <immintrin.h>
#include <string.h>

#include "device/cpu/vector.h"

typedef __m256 plec_avx2_vector;

/* The lanes of eight vectors added, always in the same order: lane i is the sum of sums[i]. */
PLEC_CPU_INLINE __m256 plec_avx2_add_eight(const __m256 *sums) {
    __m256 pairs[4], fours[2];
    PLEC_CPU_UNROLL
    for (int i = 0; i < 4; i++) /* a0+a2 b0+b2 a1+a3 b1+b3, in either half */
        pairs[i] = _mm256_add_ps(_mm256_unpacklo_ps(sums[2 * i], sums[2 * i + 1]),
                                 _mm256_unpackhi_ps(sums[2 * i], sums[2 * i + 1]));
    PLEC_CPU_UNROLL
    for (int i = 0; i < 2; i++) /* a b c d */
        fours[i] = _mm256_add_ps(_mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0x44),
                                 _mm256_shuffle_ps(pairs[2 * i], pairs[2 * i + 1], 0xEE));
    return _mm256_add_ps(_mm256_permute2f128_ps(fours[0], fours[1], 0x20),
                         _mm256_permute2f128_ps(fours[0], fours[1], 0x31));
}

/* out [n] = the lanes of each of sums [n, rounded up to 8] added. */
static inline void plec_avx2_add_lanes(float *out, __m256 *sums, uint32_t n) {
    for (uint32_t i = n; i % 8 != 0; i++)
        sums[i] = _mm256_setzero_ps();
    for (; n >= 8; n -= 8, out += 8, sums += 8)
        _mm256_storeu_ps(out, plec_avx2_add_eight(sums));
    if (n == 0) return;
    float last[8];
    _mm256_storeu_ps(last, plec_avx2_add_eight(sums));
    memcpy(out, last, n * sizeof *out);
}

/* An f16 at any address, in all lanes. */
PLEC_CPU_INLINE __m256 plec_avx2_f16(const uint8_t *p) {
    uint16_t half;
    memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

/* Two f16: the first in the lower half, the second in the upper. */
PLEC_CPU_INLINE __m256 plec_avx2_f16_pair(const uint8_t *low, const uint8_t *high) {
    uint16_t a, b;
    memcpy(&a, low, sizeof a);
    memcpy(&b, high, sizeof b);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm_set1_epi16((short)a), _mm_set1_epi16((short)b)));
}

PLEC_CPU_INLINE __m256i plec_avx2_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

#endif
