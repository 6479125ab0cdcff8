/* float_avx512.c: f32, f16 and bf16. A vector is its own image; 32 elements a turn, two chains of
 * 16 lanes a token; what is left over is loaded under a mask, as zeros. */
#if defined(__x86_64__)
#include "device/cpu/avx512.h"

enum { LANES = 16, TURN = 2 * LANES, ALL = 0xFFFF };

/* 16 weights at p, zeros but for those of `some`. */
PLEC_CPU_INLINE __m256i load_halves(const uint8_t *p, __mmask16 some) {
    return some == ALL ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                       : _mm256_maskz_loadu_epi16(some, p);
}
PLEC_CPU_INLINE __m512 load_f32(const uint8_t *p, __mmask16 some) {
    return some == ALL ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(some, p);
}
PLEC_CPU_INLINE __m512 load_f16(const uint8_t *p, __mmask16 some) {
    return _mm512_cvtph_ps(load_halves(p, some));
}
PLEC_CPU_INLINE __m512 load_bf16(const uint8_t *p, __mmask16 some) {
    __m512i halves = _mm512_cvtepu16_epi32(load_halves(p, some));
    return _mm512_castsi512_ps(_mm512_slli_epi32(halves, 16));
}

typedef __m512 load_function(const uint8_t *p, __mmask16 some);

/* sums[t][chain] += w * x for each token. */
PLEC_CPU_INLINE void add_lanes(__m512 (*sums)[2], int chain, __m512 w, const float *const *x,
                               size_t at, __mmask16 some, const int n) {
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t][chain] = _mm512_fmadd_ps(w, _mm512_maskz_loadu_ps(some, x[t] + at), sums[t][chain]);
}

PLEC_CPU_INLINE __mmask16 first_of(size_t n) {
    return n < LANES ? (__mmask16)((1u << n) - 1) : ALL;
}

PLEC_CPU_INLINE void float_dot(__m512 *out, const struct plec_cpu_row *row,
                               const float *const *images, const int n, const size_t bytes,
                               load_function *load) {
    __m512 sums[PLEC_CPU_TOKENS][2];
    const uint8_t *p = row->blocks;
    size_t at = 0, cols = row->cols;
    plec_avx512_clear(sums, n);
    for (; at + TURN <= cols; at += TURN) {
        add_lanes(sums, 0, load(p + at * bytes, ALL), images, at, ALL, n);
        add_lanes(sums, 1, load(p + (at + LANES) * bytes, ALL), images, at + LANES, ALL, n);
    }
    /* constant chains: an index would put the sums in memory */
    if (at < cols) {
        __mmask16 some = first_of(cols - at);
        add_lanes(sums, 0, load(p + at * bytes, some), images, at, some, n);
    }
    if (at + LANES < cols) {
        __mmask16 some = first_of(cols - at - LANES);
        add_lanes(sums, 1, load(p + (at + LANES) * bytes, some), images, at + LANES, some, n);
    }
    plec_avx512_join(out, sums, n);
}

PLEC_CPU_INLINE void f32_dot(__m512 *out, const struct plec_cpu_row *row,
                             const float *const *images, const int n) {
    float_dot(out, row, images, n, 4, load_f32);
}
PLEC_CPU_INLINE void f16_dot(__m512 *out, const struct plec_cpu_row *row,
                             const float *const *images, const int n) {
    float_dot(out, row, images, n, 2, load_f16);
}
PLEC_CPU_INLINE void bf16_dot(__m512 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    float_dot(out, row, images, n, 2, load_bf16);
}

PLEC_CPU_KERNEL(f32, avx512, PLEC_FORMAT_F32, NULL, NULL, 0)
PLEC_CPU_KERNEL(f16, avx512, PLEC_FORMAT_F16, NULL, NULL, 0)
PLEC_CPU_KERNEL(bf16, avx512, PLEC_FORMAT_BF16, NULL, NULL, 0)
#endif
