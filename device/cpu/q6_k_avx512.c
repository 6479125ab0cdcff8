/* q6_k_avx512.c: q6_k. Codes are put together as bytes, 64 at a time (two groups of 32, one in each
 * half of a vector), and then taken from dwords in place: byte c of dword i is its code times 256^c
 * where c < 3 (a mask) and the code where c = 3 (a shift); both convert exactly. Codes count from
 * 0; the 32 that they are too high is taken off by starting each sum at -32 times the sum of x.
 *
 * The image of 64 columns: column 4 i + c over 256^c (c < 3) at lane i of vector c, then the sums
 * of the lanes times -32. Four lanes have one scale. */
#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx512.h"
#include "lyrw/codec/q6_k.h"

enum { BLOCK = 256, GROUPS = 64, IMAGE = GROUPS + 16 };

static size_t q6_k_image_floats(uint32_t cols) {
    return (size_t)cols / GROUPS * IMAGE;
}

static void make_q6_k_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    static const float shrink[4] = {1, 1.0f / 256, 1.0f / 65536, 1};
    for (uint32_t at = 0; at < cols; at += GROUPS, image += IMAGE)
        for (uint32_t lane = 0; lane < 16; lane++) {
            double sum = 0;
            for (uint32_t c = 0; c < 4; c++) {
                uint32_t from = at + 4 * lane + c;
                float value = from < n ? x[from] : 0;
                image[16 * c + lane] = value * shrink[c];
                sum += value;
            }
            image[GROUPS + lane] = (float)(-32 * sum);
        }
}

/* sums += scale * (64 codes . x). */
PLEC_CPU_INLINE void add_groups(__m512 *sums, __m512i codes, __m512 scale, const float *const *x,
                                size_t at, const int n) {
    __m512 parts[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        parts[t] = _mm512_load_ps(x[t] + at + GROUPS);
    PLEC_CPU_UNROLL
    for (int c = 0; c < 4; c++) {
        __m512i code = c == 3 ? _mm512_srli_epi32(codes, 24)
                              : _mm512_and_si512(codes, _mm512_set1_epi32(255 << 8 * c));
        __m512 w = _mm512_cvtepi32_ps(code);
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            parts[t] = _mm512_fmadd_ps(w, _mm512_load_ps(x[t] + at + 16 * (size_t)c), parts[t]);
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm512_fmadd_ps(parts[t], scale, sums[t]);
}

/* Scales first to first + 3 of 16, four lanes each. */
PLEC_CPU_INLINE __m512 spread(__m512 scales, int first) {
    const __m512i lanes = _mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3);
    return _mm512_permutexvar_ps(_mm512_add_epi32(lanes, _mm512_set1_epi32(first)), scales);
}

/* Half a block, 128 columns: the low nibbles of ql are its first 64 codes, the high ones the rest;
 * qh has two bits for each of the four groups. */
PLEC_CPU_INLINE void add_half(__m512 (*sums)[2], const struct plec_q6_k_block *block, __m512 scales,
                              const int half, const float *const *x, size_t at, const int n) {
    const __m512i four = _mm512_set1_epi8(15), two = _mm512_set1_epi8(0x30);
    const __m512i up = _mm512_setr_epi64(4, 4, 4, 4, 2, 2, 2, 2);
    const __m512i down = _mm512_setr_epi64(0, 0, 0, 0, 2, 2, 2, 2);
    __m512i ql = _mm512_loadu_si512(block->ql + 64 * half);
    __m512i qh = _mm512_broadcast_i64x4(
        _mm256_loadu_si256((const __m256i *)(const void *)(block->qh + 32 * half)));
    __m512i high[2] = {_mm512_sllv_epi64(qh, up), _mm512_srlv_epi64(qh, down)};
    __m512i low[2] = {ql, _mm512_srli_epi16(ql, 4)};
    __m512 chain[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int k = 0; k < 2; k++) {
        __m512i codes =
            _mm512_or_si512(_mm512_and_si512(low[k], four), _mm512_and_si512(high[k], two));
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            chain[t] = sums[t][k];
        add_groups(chain, codes, spread(scales, 8 * half + 4 * k), x, at + IMAGE * (size_t)k, n);
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            sums[t][k] = chain[t];
    }
}

PLEC_CPU_INLINE __m512 load_scales(const struct plec_q6_k_block *block) {
    uint16_t half;
    memcpy(&half, block->d, sizeof half);
    __m512 d = _mm512_cvtph_ps(_mm256_set1_epi16((short)half));
    __m128i bytes = _mm_loadu_si128((const __m128i *)(const void *)block->scales);
    return _mm512_mul_ps(d, _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)));
}

PLEC_CPU_INLINE void q6_k_dot(__m512 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q6_k_block *block = (const struct plec_q6_k_block *)(const void *)row->blocks;
    __m512 sums[PLEC_CPU_TOKENS][2];
    size_t n_blocks = row->cols / BLOCK, at = 0;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t][0] = sums[t][1] = _mm512_setzero_ps();
    for (size_t i = 0; i < n_blocks; i++, block++, at += 4 * IMAGE) {
        __m512 scales = load_scales(block);
        add_half(sums, block, scales, 0, images, at, n);
        add_half(sums, block, scales, 1, images, at + 2 * IMAGE, n);
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm512_add_ps(sums[t][0], sums[t][1]);
}

PLEC_CPU_KERNEL(q6_k, avx512, PLEC_FORMAT_Q6_K, q6_k_image_floats, make_q6_k_image, PLEC_CPU_AHEAD)
#endif
