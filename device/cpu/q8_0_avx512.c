/* q8_0_avx512.c: q8_0. A vector is its own image. Sixteen codes widen to sixteen f32 lanes; a
 * block's sum is scaled once; blocks alternate between two chains a token. */
#if defined(__x86_64__)
#include "device/cpu/avx512.h"
#include "lyrw/codec/q8_0.h"

PLEC_CPU_INLINE __m512 widen(const int8_t *codes) {
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)codes);
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

PLEC_CPU_INLINE __m512 load_scale(const struct plec_q8_0_block *block) {
    uint16_t half;
    memcpy(&half, block->d, sizeof half);
    return _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
}

/* sums[t][chain] += d * (the block . x). */
PLEC_CPU_INLINE void add_block(__m512 (*sums)[2], int chain, const struct plec_q8_0_block *block,
                               const float *const *x, size_t at, const int n) {
    __m512 low = widen(block->qs), high = widen(block->qs + 16), d = load_scale(block);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++) {
        __m512 part = _mm512_mul_ps(low, _mm512_loadu_ps(x[t] + at));
        part = _mm512_fmadd_ps(high, _mm512_loadu_ps(x[t] + at + 16), part);
        sums[t][chain] = _mm512_fmadd_ps(part, d, sums[t][chain]);
    }
}

PLEC_CPU_INLINE void q8_0_dot(__m512 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q8_0_block *blocks =
        (const struct plec_q8_0_block *)(const void *)row->blocks;
    __m512 sums[PLEC_CPU_TOKENS][2];
    size_t n_blocks = row->cols / 32, i = 0;
    plec_avx512_clear(sums, n);
    for (; i + 2 <= n_blocks; i += 2) {
        add_block(sums, 0, blocks + i, images, 32 * i, n);
        add_block(sums, 1, blocks + i + 1, images, 32 * i + 32, n);
    }
    if (i < n_blocks) add_block(sums, 0, blocks + i, images, 32 * i, n);
    plec_avx512_join(out, sums, n);
}

PLEC_CPU_KERNEL(q8_0, avx512, PLEC_FORMAT_Q8_0, NULL, NULL, PLEC_CPU_AHEAD)
#endif
