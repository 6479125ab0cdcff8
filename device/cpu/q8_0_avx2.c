/* q8_0_avx2.c: q8_0. A vector is its own image. Eight codes widen to eight f32 lanes; a block's sum
 * is scaled once; blocks alternate between two chains a token. */
#if defined(__x86_64__)
#include "device/cpu/avx2.h"
#include "lyrw/codec/q8_0.h"

PLEC_CPU_INLINE void q8_0_block(__m256 *sums, const struct plec_q8_0_block *block,
                                const float *const *x, size_t at, const int n) {
    __m256 parts[PLEC_CPU_TOKENS], d = plec_avx2_f16(block->d);
    PLEC_CPU_UNROLL
    for (int i = 0; i < 4; i++) {
        __m128i codes = _mm_loadl_epi64((const __m128i *)(const void *)(block->qs + 8 * i));
        __m256 w = _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(codes));
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++) {
            __m256 v = _mm256_loadu_ps(x[t] + at + 8 * i);
            parts[t] = i == 0 ? _mm256_mul_ps(w, v) : _mm256_fmadd_ps(w, v, parts[t]);
        }
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_fmadd_ps(parts[t], d, sums[t]);
}

PLEC_CPU_INLINE void q8_0_dot(__m256 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q8_0_block *blocks =
        (const struct plec_q8_0_block *)(const void *)row->blocks;
    __m256 even[PLEC_CPU_TOKENS], odd[PLEC_CPU_TOKENS];
    size_t n_blocks = row->cols / 32, i = 0;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        even[t] = odd[t] = _mm256_setzero_ps();
    for (; i + 2 <= n_blocks; i += 2) {
        q8_0_block(even, blocks + i, images, 32 * i, n);
        q8_0_block(odd, blocks + i + 1, images, 32 * i + 32, n);
    }
    if (i < n_blocks) q8_0_block(even, blocks + i, images, 32 * i, n);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm256_add_ps(even[t], odd[t]);
}

PLEC_CPU_KERNEL(q8_0, avx2, PLEC_FORMAT_Q8_0, NULL, NULL, PLEC_CPU_AHEAD)
#endif
