/* q4_0_avx512.c: q4_0, four blocks at a time (plec_avx512_look_up). Dword i of a block's four holds
 * columns 4 i to 4 i + 3 in its even nibbles, and those 16 further in its odd ones.
 *
 * The image of 128 columns: for block b, column 4 i + p / 2 + 16 (p % 2) at lane 4 b + i of vector
 * p; zeros after the last. */
#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx512.h"
#include "lyrw/codec/q4_0.h"

enum { TURN = 128, BLOCKS = 4 };

static size_t q4_0_image_floats(uint32_t cols) {
    return ((size_t)cols + TURN - 1) / TURN * TURN;
}

static void make_q4_0_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    memset(image, 0, q4_0_image_floats(cols) * sizeof *image);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t vector = i % 4 * 2 + i / 16 % 2, lane = i / 32 % BLOCKS * 4 + i % 16 / 4;
        image[i / TURN * TURN + 16 * vector + lane] = x[i];
    }
}

/* Four blocks are 36 words of 16 bits: words 9 b are the scales, the eight after each the codes.
 * Two loads cover them: words 0 to 31, and 4 to 35. */
PLEC_CPU_INLINE __m512i join_codes(__m512i first, __m512i second) {
    const __m512i words =
        _mm512_set_epi16(63, 62, 61, 60, 59, 58, 57, 56, 26, 25, 24, 23, 22, 21, 20, 19, 17, 16, 15,
                         14, 13, 12, 11, 10, 8, 7, 6, 5, 4, 3, 2, 1);
    return _mm512_permutex2var_epi16(first, words, second);
}

/* The four scales, each in four lanes. */
PLEC_CPU_INLINE __m512 join_scales(__m512i first) {
    const __m512i words = _mm512_castsi256_si512(
        _mm256_setr_epi16(0, 0, 0, 0, 9, 9, 9, 9, 18, 18, 18, 18, 27, 27, 27, 27));
    return _mm512_cvtph_ps(_mm512_castsi512_si256(_mm512_permutexvar_epi16(words, first)));
}

/* sums += scale * (four blocks . x). */
PLEC_CPU_INLINE void add_blocks(__m512 (*sums)[2], const struct plec_q4_0_block *blocks,
                                const float *const *x, size_t at, const int n) {
    const __m512 table = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
    __m512i first = _mm512_loadu_si512(blocks);
    __m512i second = _mm512_loadu_si512((const uint8_t *)blocks + 8);
    __m512 even[PLEC_CPU_TOKENS], odd[PLEC_CPU_TOKENS], scale = join_scales(first);
    plec_avx512_look_up(even, odd, join_codes(first, second), table, x, at, n);
    plec_avx512_add_scaled(sums, 0, even, scale, n);
    plec_avx512_add_scaled(sums, 1, odd, scale, n);
}

PLEC_CPU_INLINE void q4_0_dot(__m512 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q4_0_block *blocks =
        (const struct plec_q4_0_block *)(const void *)row->blocks;
    __m512 sums[PLEC_CPU_TOKENS][2];
    size_t n_blocks = row->cols / 32, i = 0;
    plec_avx512_clear(sums, n);
    for (; i + BLOCKS <= n_blocks; i += BLOCKS)
        add_blocks(sums, blocks + i, images, 32 * i, n);
    if (i < n_blocks) {
        struct plec_q4_0_block last[BLOCKS] = {0};
        memcpy(last, blocks + i, (n_blocks - i) * sizeof *last);
        add_blocks(sums, last, images, 32 * i, n);
    }
    plec_avx512_join(out, sums, n);
}

PLEC_CPU_KERNEL(q4_0, avx512, PLEC_FORMAT_Q4_0, q4_0_image_floats, make_q4_0_image, PLEC_CPU_AHEAD)
#endif
