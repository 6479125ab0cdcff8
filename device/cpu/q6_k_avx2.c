/* q6_k_avx2.c: q6_k. Codes are put together as bytes, 32 at a time, and then taken from dwords in
 * place. Codes count from 0; the 32 that they are too high is taken off by
 * starting each sum at -32 times the sum of x. Lanes 0 to 3 have one scale, 4 to 7 the next.
 *
 * The image of 32 columns: that of the codes, then the sums of its lanes times -32. */

#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx2.h"
#include "lyrw/codec/q6_k.h"

enum { BLOCK = 256, GROUP = 32, IMAGE = GROUP + 8 };

static size_t q6_k_image_floats(uint32_t cols) {
    return (size_t)cols / GROUP * IMAGE;
}

static void make_q6_k_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    static const float shrink[4] = {1, 1.0f / 256, 1.0f / 65536, 1};
    for (uint32_t at = 0; at < cols; at += GROUP, image += IMAGE) {
        double sums[8] = {0};
        for (uint32_t i = 0; i < GROUP; i++) {
            float value = at + i < n ? x[at + i] : 0;
            image[8 * (i % 4) + i / 4] = value * shrink[i % 4];
            sums[i / 4] += value;
        }
        for (uint32_t lane = 0; lane < 8; lane++)
            image[GROUP + lane] = (float)(-32 * sums[lane]);
    }
}

/* Byte c of dword i is its code times 256^c where c < 3 (a mask) and the code where c = 3 (a
 * shift); both convert exactly. So the image has the x of byte 4 i + c at lane i of vector c, over
 * 256^c where c < 3. */
PLEC_CPU_INLINE void add_codes(__m256 *parts, __m256i codes, const float *const *x, size_t at,
                               const int n) {
    PLEC_CPU_UNROLL
    for (int c = 0; c < 4; c++) {
        __m256i code = c == 3 ? _mm256_srli_epi32(codes, 24)
                              : _mm256_and_si256(codes, _mm256_set1_epi32(255 << 8 * c));
        __m256 w = _mm256_cvtepi32_ps(code);
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            parts[t] = _mm256_fmadd_ps(w, _mm256_load_ps(x[t] + at + 8 * (size_t)c), parts[t]);
    }
}

/* sums += scale * (32 codes . x). */
PLEC_CPU_INLINE void add_group(__m256 *sums, __m256i codes, __m256 scale, const float *const *x,
                               size_t at, const int n) {
    __m256 parts[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        parts[t] = _mm256_load_ps(x[t] + at + GROUP);
    add_codes(parts, codes, x, at, n);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_fmadd_ps(parts[t], scale, sums[t]);
}

/* The codes of group k of a half block: ql its two 32-byte vectors, qh its one. */
PLEC_CPU_INLINE __m256i join_codes(const __m256i *ql, __m256i qh, const int k) {
    const __m256i four = _mm256_set1_epi8(15), two = _mm256_set1_epi8(0x30);
    __m256i low = k < 2 ? ql[k] : _mm256_srli_epi16(ql[k - 2], 4);
    __m256i high = k == 0   ? _mm256_slli_epi16(qh, 4)
                   : k == 1 ? _mm256_slli_epi16(qh, 2)
                   : k == 2 ? qh
                            : _mm256_srli_epi16(qh, 2);
    return _mm256_or_si256(_mm256_and_si256(low, four), _mm256_and_si256(high, two));
}

PLEC_CPU_INLINE void add_half(__m256 (*sums)[2], const struct plec_q6_k_block *block,
                              const int half, __m256 d, const float *const *x, size_t at,
                              const int n) {
    const __m256i lane_scale = _mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1);
    __m128i bytes = _mm_loadl_epi64((const __m128i *)(const void *)(block->scales + 8 * half));
    __m256 scales = _mm256_mul_ps(d, _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)));
    __m256i ql[2] = {plec_avx2_load(block->ql + 64 * half),
                     plec_avx2_load(block->ql + 64 * half + 32)};
    __m256i qh = plec_avx2_load(block->qh + 32 * half);
    __m256 one[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int k = 0; k < 4; k++) {
        __m256 scale = _mm256_permutevar8x32_ps(
            scales, _mm256_add_epi32(lane_scale, _mm256_set1_epi32(2 * k)));
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            one[t] = sums[t][k % 2];
        add_group(one, join_codes(ql, qh, k), scale, x, at + IMAGE * (size_t)k, n);
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            sums[t][k % 2] = one[t];
    }
}

PLEC_CPU_INLINE void q6_k_dot(__m256 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q6_k_block *block = (const struct plec_q6_k_block *)(const void *)row->blocks;
    __m256 sums[PLEC_CPU_TOKENS][2];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm256_setzero_ps();
    size_t n_blocks = row->cols / BLOCK, at = 0;
    for (size_t i = 0; i < n_blocks; i++, block++, at += 8 * IMAGE) {
        __m256 d = plec_avx2_f16(block->d);
        add_half(sums, block, 0, d, images, at, n);
        add_half(sums, block, 1, d, images, at + 4 * IMAGE, n);
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm256_add_ps(sums[t][0], sums[t][1]);
}

PLEC_CPU_KERNEL(q6_k, avx2, PLEC_FORMAT_Q6_K, q6_k_image_floats, make_q6_k_image, PLEC_CPU_AHEAD)
#endif
