/* mxfp4_avx2.c: mxfp4, two blocks at a time, one in each half of a vector.
 *
 * A code becomes the two bytes of its value as bf16 (exact) through two 16-entry tables;
 * interleaved they are 16-bit values, and an f32 is such a value with 16 zero bits under it: no
 * integer is converted, and signs cost nothing.
 *
 *   vector v = 4 nibble + 2 half + odd, lane i of a block: column 2 (8 half + 2 i + odd) + nibble
 *
 * The image of 64 columns: 8 vectors of 8. An odd last block has zeros beside it. */
#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "device/cpu/avx2.h"
#include "lyrw/codec/mxfp4.h"

enum { PAIR = 64, PAIRS_A_TURN = 4, BLOCKS_A_TURN = 2 * PAIRS_A_TURN };

static size_t mxfp4_image_floats(uint32_t cols) {
    return ((size_t)cols + PAIR - 1) / PAIR * PAIR;
}

static void make_mxfp4_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    memset(image, 0, mxfp4_image_floats(cols) * sizeof *image);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t nibble = i % 2, byte = i / 2 % 16, block = i / 32 % 2;
        uint32_t vector = 4 * nibble + byte / 8 * 2 + byte % 2;
        image[i / PAIR * PAIR + 8 * vector + 4 * block + byte % 8 / 2] = x[i];
    }
}

/* parts += 16 values, as bf16 pairs, times their two vectors of x. */
PLEC_CPU_INLINE void add_pairs(__m256 *parts, __m256i pairs, const float *const *x, size_t at,
                               const int n) {
    __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++) {
        parts[t] = _mm256_fmadd_ps(even, _mm256_load_ps(x[t] + at), parts[t]);
        parts[t] = _mm256_fmadd_ps(odd, _mm256_load_ps(x[t] + at + 8), parts[t]);
    }
}

PLEC_CPU_INLINE void add_codes(__m256 *parts, __m256i codes, const float *const *x, size_t at,
                               const int n) {
    const __m256i low_bytes = _mm256_broadcastsi128_si256(
        _mm_set_epi32((int)0xC0804000, (int)0xC0800000, (int)0xC0804000, (int)0xC0800000));
    const __m256i high_bytes = _mm256_broadcastsi128_si256(
        _mm_set_epi32((int)0xC0C0C0C0, (int)0xBFBFBF80, 0x40404040, 0x3F3F3F00));
    __m256i low = _mm256_shuffle_epi8(low_bytes, codes);
    __m256i high = _mm256_shuffle_epi8(high_bytes, codes);
    add_pairs(parts, _mm256_unpacklo_epi8(low, high), x, at, n);
    add_pairs(parts, _mm256_unpackhi_epi8(low, high), x, at + 16, n);
}

/* sums += scale * (two blocks . x). */
PLEC_CPU_INLINE void add_two_blocks(__m256 *sums, __m256i bytes, __m256 scale,
                                    const float *const *x, size_t at, const int n) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256 parts[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        parts[t] = _mm256_setzero_ps();
    add_codes(parts, _mm256_and_si256(bytes, mask), x, at, n);
    add_codes(parts, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), x, at + 32, n);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_fmadd_ps(parts[t], scale, sums[t]);
}

/* Eight E8M0 scales as f32 and, of those, the two of pair k, each in its half of a vector. 255
 * comes out infinite: the sum is then not finite, which plec_cpu_dot sees. */
PLEC_CPU_INLINE __m256 e8m0_scales(__m128i bytes) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23));
}
PLEC_CPU_INLINE __m256 scale_pair(__m256 scales, int k) {
    const __m256i halves = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    return _mm256_permutevar8x32_ps(scales, _mm256_add_epi32(halves, _mm256_set1_epi32(2 * k)));
}

/* The last blocks, fewer than a turn. */
PLEC_CPU_INLINE void add_last(__m256 *sums, const uint8_t *blocks, const uint8_t *scale_bytes,
                              size_t n_blocks, const float *const *x, size_t at, const int n) {
    uint8_t bytes[BLOCKS_A_TURN * sizeof(struct plec_mxfp4_block)] = {0}, last[8] = {0};
    memcpy(bytes, blocks, n_blocks * sizeof(struct plec_mxfp4_block));
    memcpy(last, scale_bytes, n_blocks);
    __m256 scales = e8m0_scales(_mm_loadl_epi64((const __m128i *)(const void *)last));
    for (int k = 0; 2 * (size_t)k < n_blocks; k++)
        add_two_blocks(sums, plec_avx2_load(bytes + 32 * k), scale_pair(scales, k), x,
                       at + PAIR * (size_t)k, n);
}

/* Scales of 2^126 and 2^127 make some codes infinite, which a sum scaled afterwards need not be. */
PLEC_CPU_INLINE bool scales_are_small(const uint8_t *scales, size_t n) {
    const __m128i most = _mm_set1_epi8((char)252);
    __m128i over = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)(scales + i));
        over = _mm_or_si128(over, _mm_subs_epu8(bytes, most));
    }
    bool small = _mm_testz_si128(over, over);
    for (; i < n; i++)
        small = small && scales[i] <= 252;
    return small;
}

PLEC_CPU_INLINE void mxfp4_dot(__m256 *out, const struct plec_cpu_row *row,
                               const float *const *images, const int n) {
    __m256 sums[PLEC_CPU_TOKENS];
    const uint8_t *blocks = row->blocks, *scale_bytes = row->scales;
    size_t n_blocks = row->cols / 32, i = 0;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_setzero_ps();
    for (; i + BLOCKS_A_TURN <= n_blocks; i += BLOCKS_A_TURN) {
        __m256 scales =
            e8m0_scales(_mm_loadl_epi64((const __m128i *)(const void *)(scale_bytes + i)));
        PLEC_CPU_UNROLL
        for (int k = 0; k < PAIRS_A_TURN; k++)
            add_two_blocks(sums, plec_avx2_load(blocks + 16 * i + 32 * k), scale_pair(scales, k),
                           images, 32 * i + PAIR * (size_t)k, n);
    }
    if (i < n_blocks)
        add_last(sums, blocks + 16 * i, scale_bytes + i, n_blocks - i, images, 32 * i, n);
    bool small = scales_are_small(scale_bytes, n_blocks);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++) /* NAN: have it decoded exactly */
        out[t] = small ? sums[t] : _mm256_set1_ps(NAN);
}

PLEC_CPU_KERNEL(mxfp4, avx2, PLEC_FORMAT_MXFP4, mxfp4_image_floats, make_mxfp4_image,
                PLEC_CPU_AHEAD)
#endif
