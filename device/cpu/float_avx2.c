/* float_avx2.c: f32, f16 and bf16. A vector is its own image; 16 elements a turn, two chains of
 * eight lanes a token; the last 1 to 15 elements go through zero-filled copies. */
#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx2.h"

enum { TURN = 16 };

PLEC_CPU_INLINE void load_f32(__m256 *w, const uint8_t *p) {
    w[0] = _mm256_loadu_ps((const float *)(const void *)p);
    w[1] = _mm256_loadu_ps((const float *)(const void *)(p + 32));
}

PLEC_CPU_INLINE void load_f16(__m256 *w, const uint8_t *p) {
    w[0] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
    w[1] = _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)(p + 16)));
}

PLEC_CPU_INLINE __m256 widen_bf16(const uint8_t *p) {
    __m128i halves = _mm_loadu_si128((const __m128i *)(const void *)p);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

PLEC_CPU_INLINE void load_bf16(__m256 *w, const uint8_t *p) {
    w[0] = widen_bf16(p);
    w[1] = widen_bf16(p + 16);
}

/* One turn of n tokens whose vectors start at x[t] + at. */
PLEC_CPU_INLINE void turn(__m256 (*sums)[2], const __m256 *w, const float *const *x, size_t at,
                          const int n) {
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++) {
        sums[t][0] = _mm256_fmadd_ps(w[0], _mm256_loadu_ps(x[t] + at), sums[t][0]);
        sums[t][1] = _mm256_fmadd_ps(w[1], _mm256_loadu_ps(x[t] + at + 8), sums[t][1]);
    }
}

PLEC_CPU_INLINE void float_dot(__m256 *out, const struct plec_cpu_row *row,
                               const float *const *images, const int n, const size_t bytes,
                               void (*load)(__m256 *w, const uint8_t *p)) {
    __m256 sums[PLEC_CPU_TOKENS][2], w[2];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_ps();
    size_t at = 0, cols = row->cols;
    for (; at + TURN <= cols; at += TURN) {
        load(w, row->blocks + at * bytes);
        turn(sums, w, images, at, n);
    }
    if (at < cols) {
        uint8_t tail[TURN * sizeof(float)] = {0};
        float x[PLEC_CPU_TOKENS][TURN] = {{0}};
        const float *x_at[PLEC_CPU_TOKENS];
        memcpy(tail, row->blocks + at * bytes, (cols - at) * bytes);
        for (int t = 0; t < n; t++) {
            memcpy(x[t], images[t] + at, (cols - at) * sizeof(float));
            x_at[t] = x[t];
        }
        load(w, tail);
        turn(sums, w, x_at, 0, n);
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm256_add_ps(sums[t][0], sums[t][1]);
}

PLEC_CPU_INLINE void f32_dot(__m256 *out, const struct plec_cpu_row *row,
                             const float *const *images, const int n) {
    float_dot(out, row, images, n, 4, load_f32);
}
PLEC_CPU_INLINE void f16_dot(__m256 *out, const struct plec_cpu_row *row,
                             const float *const *images, const int n) {
    float_dot(out, row, images, n, 2, load_f16);
}
PLEC_CPU_INLINE void bf16_dot(__m256 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    float_dot(out, row, images, n, 2, load_bf16);
}

PLEC_CPU_KERNEL(f32, avx2, PLEC_FORMAT_F32, NULL, NULL, 0)
PLEC_CPU_KERNEL(f16, avx2, PLEC_FORMAT_F16, NULL, NULL, 0)
PLEC_CPU_KERNEL(bf16, avx2, PLEC_FORMAT_BF16, NULL, NULL, 0)
#endif
