/* avx2.h: what the AVX2 kernels share. Only for files compiled with -mavx2 -mfma -mf16c.
 *
 * A kernel is one always-inline function over n tokens, made into functions for 1 to 4 by
 * PLEC_CPU_KERNEL. Each token has its own accumulators and the same operations whatever n is. The
 * loops over tokens and parts are unrolled, so that accumulators stay in registers.
 */
#ifndef PLEC_DEVICE_CPU_AVX2_H
#define PLEC_DEVICE_CPU_AVX2_H

#include <immintrin.h>

#include "device/cpu/kernel.h"

#define PLEC_CPU_INLINE static inline __attribute__((always_inline))
#define PLEC_CPU_UNROLL _Pragma("GCC unroll 8")

/* Lanes added in a fixed order. */
PLEC_CPU_INLINE float plec_avx2_add_lanes(__m256 v) {
    __m128 sum = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    sum = _mm_add_ps(sum, _mm_movehl_ps(sum, sum));
    return _mm_cvtss_f32(_mm_add_ss(sum, _mm_shuffle_ps(sum, sum, 1)));
}

/* An f16 at any address, in all lanes. */
PLEC_CPU_INLINE __m256 plec_avx2_f16(const uint8_t *p) {
    uint16_t half;
    __builtin_memcpy(&half, p, sizeof half);
    return _mm256_cvtph_ps(_mm_set1_epi16((short)half));
}

/* Two f16: the first in the lower half, the second in the upper. */
PLEC_CPU_INLINE __m256 plec_avx2_f16_pair(const uint8_t *low, const uint8_t *high) {
    uint16_t a, b;
    __builtin_memcpy(&a, low, sizeof a);
    __builtin_memcpy(&b, high, sizeof b);
    return _mm256_cvtph_ps(_mm_unpacklo_epi64(_mm_set1_epi16((short)a), _mm_set1_epi16((short)b)));
}

PLEC_CPU_INLINE __m256i plec_avx2_load(const void *p) {
    return _mm256_loadu_si256((const __m256i *)p);
}

/* Makes plec_cpu_<format>_avx2 from <format>_dot(out, row, images, n). */
#define PLEC_CPU_KERNEL(format_name, format_tag, floats, make)                                     \
    static void format_name##_dot1(float *out, const struct plec_cpu_row *row,                     \
                                   const float *const *images) {                                   \
        format_name##_dot(out, row, images, 1);                                                    \
    }                                                                                              \
    static void format_name##_dot2(float *out, const struct plec_cpu_row *row,                     \
                                   const float *const *images) {                                   \
        format_name##_dot(out, row, images, 2);                                                    \
    }                                                                                              \
    static void format_name##_dot3(float *out, const struct plec_cpu_row *row,                     \
                                   const float *const *images) {                                   \
        format_name##_dot(out, row, images, 3);                                                    \
    }                                                                                              \
    static void format_name##_dot4(float *out, const struct plec_cpu_row *row,                     \
                                   const float *const *images) {                                   \
        format_name##_dot(out, row, images, 4);                                                    \
    }                                                                                              \
    const struct plec_cpu_kernel plec_cpu_##format_name##_avx2 = {                                 \
        format_tag,                                                                                \
        "avx2",                                                                                    \
        floats,                                                                                    \
        make,                                                                                      \
        {format_name##_dot1, format_name##_dot2, format_name##_dot3, format_name##_dot4}};

#endif
