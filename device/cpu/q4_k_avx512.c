/* q4_k_avx512.c: q4_k: sums of codes times x, scaled by sub-block, less minima times sums of x.
 *
 * 64 bytes are two pairs of sub-blocks, a pair in each half of a vector: 16 dwords of 8 codes
 * (plec_avx512_look_up), the even nibbles of the even sub-block.
 *
 *   vector p of a half block, lane 8 h + i: element 4 i + p / 2 of its sub-block 2 h + p % 2
 *
 * The image of 256 columns: for each half of 128 columns 8 vectors of 16; then 8 zeros, and the
 * sums of x over the 8 sub-blocks. */
#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx512.h"
#include "device/cpu/kscales_x86.h"
#include "lyrw/codec/q4_k.h"

enum { BLOCK = 256, HALF = 128, SUB = 32, IMAGE = BLOCK + 16 };

static size_t q4_k_image_floats(uint32_t cols) {
    return (size_t)cols / BLOCK * IMAGE;
}

static void make_q4_k_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    memset(image, 0, q4_k_image_floats(cols) * sizeof *image);
    for (uint32_t at = 0; at < cols; at += BLOCK, image += IMAGE)
        for (uint32_t sub = 0; sub < BLOCK / SUB; sub++) {
            double sum = 0;
            for (uint32_t i = 0; i < SUB; i++) {
                uint32_t p = i % 4 * 2 + sub % 2, lane = sub / 2 % 2 * 8 + i / 4;
                uint32_t from = at + SUB * sub + i;
                float value = from < n ? x[from] : 0;
                image[sub / 4 * HALF + 16 * p + lane] = value;
                sum += value;
            }
            image[BLOCK + 8 + sub] = (float)sum;
        }
}

/* Scale 4 half + odd in the lower eight lanes, 4 half + 2 + odd in the upper. */
PLEC_CPU_INLINE __m512 spread(__m512 scales, int half, int odd) {
    int low = 4 * half + odd, high = low + 2;
    return _mm512_permutexvar_ps(_mm512_setr_epi32(low, low, low, low, low, low, low, low, high,
                                                   high, high, high, high, high, high, high),
                                 scales);
}

/* The 8 scales times d in the lower half, the 8 minima times dmin in the upper. */
PLEC_CPU_INLINE __m512 load_scales(const struct plec_q4_k_block *block) {
    const __m256i halves =
        _mm256_setr_epi16(0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0100, 0x0302,
                          0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302, 0x0302);
    int both;
    memcpy(&both, block->d, sizeof both);
    struct plec_cpu_kscales packed = plec_cpu_kscales_load(block->scales);
    __m128i bytes = _mm_unpacklo_epi64(packed.scales, packed.minima);
    __m512 factors = _mm512_cvtph_ps(_mm256_shuffle_epi8(_mm256_set1_epi32(both), halves));
    return _mm512_mul_ps(factors, _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes)));
}

PLEC_CPU_INLINE void q4_k_dot(__m512 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q4_k_block *block = (const struct plec_q4_k_block *)(const void *)row->blocks;
    const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    __m512 sums[PLEC_CPU_TOKENS][2], even[PLEC_CPU_TOKENS], odd[PLEC_CPU_TOKENS];
    size_t n_blocks = row->cols / BLOCK, at = 0;
    plec_avx512_clear(sums, n);
    for (size_t i = 0; i < n_blocks; i++, block++, at += IMAGE) {
        __m512 scales = load_scales(block);
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            sums[t][0] =
                _mm512_fnmadd_ps(scales, _mm512_load_ps(images[t] + at + BLOCK), sums[t][0]);
        PLEC_CPU_UNROLL
        for (int half = 0; half < 2; half++) {
            plec_avx512_look_up(even, odd, _mm512_loadu_si512(block->qs + 64 * half), table, images,
                                at + HALF * (size_t)half, n);
            plec_avx512_add_scaled(sums, 0, even, spread(scales, half, 0), n);
            plec_avx512_add_scaled(sums, 1, odd, spread(scales, half, 1), n);
        }
    }
    plec_avx512_join(out, sums, n);
}

PLEC_CPU_KERNEL(q4_k, avx512, PLEC_FORMAT_Q4_K, q4_k_image_floats, make_q4_k_image, PLEC_CPU_AHEAD)
#endif
