/* q4_k_avx2.c: q4_k: sums of codes times x, scaled by sub-block, less minima times sums of x.
 *
 * 32 bytes are 8 dwords of 8 codes. Masking a dword in place isolates a code times 16^p, which
 * converts exactly; the image holds x / 16^p, so that a code costs a mask, a conversion and a
 * multiply-add. p is 0 to 3: the upper 16 bits are shifted down once.
 *
 *   vector v = 4 odd + byte, lane i: element 4 i + byte of sub-block 2 g + odd
 *
 * The image of 256 columns: for each of four pairs g of sub-blocks 8 vectors of 8, then the sums
 * of x over the 8 sub-blocks. */
#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx2.h"
#include "device/cpu/kscales_x86.h"
#include "lyrw/codec/q4_k.h"

enum { BLOCK = 256, PAIR = 64, SUB = 32, IMAGE = BLOCK + 8 };

static size_t q4_k_image_floats(uint32_t cols) {
    return (size_t)cols / BLOCK * IMAGE;
}

static void make_block_image(float *image, const float *x) {
    for (uint32_t g = 0; g < 4; g++)
        for (uint32_t i = 0; i < PAIR; i++) {
            uint32_t odd = i / SUB, element = i % SUB, byte = element % 4;
            uint32_t position = byte % 2 * 2 + odd; /* of the code in its 16 bits */
            image[PAIR * g + 8 * (4 * odd + byte) + element / 4] =
                x[PAIR * g + i] / (float)(1 << 4 * position);
        }
    for (uint32_t s = 0; s < 8; s++) {
        double sum = 0;
        for (uint32_t i = 0; i < SUB; i++)
            sum += x[SUB * s + i];
        image[BLOCK + s] = (float)sum;
    }
}

static void make_q4_k_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    for (uint32_t at = 0; at < cols; at += BLOCK, image += IMAGE) {
        float padded[BLOCK] = {0};
        uint32_t left = at < n ? n - at : 0;
        memcpy(padded, x + (left != 0 ? at : 0), (left < BLOCK ? left : BLOCK) * sizeof *x);
        make_block_image(image, padded);
    }
}

PLEC_CPU_INLINE __m256 times_f16(__m128i bytes, const uint8_t *half) {
    return _mm256_mul_ps(plec_avx2_f16(half), _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)));
}

/* parts += the codes of four bytes' low (odd 0) or high (odd 1) nibbles times their x. */
PLEC_CPU_INLINE void add_sub_block(__m256 *sums, __m256i low, __m256i high, __m256 scale,
                                   const float *const *x, size_t at, const int odd, const int n) {
    __m256 parts[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int byte = 0; byte < 4; byte++) {
        __m256i mask = _mm256_set1_epi32(15 << 4 * (byte % 2 * 2 + odd));
        __m256 w = _mm256_cvtepi32_ps(_mm256_and_si256(byte < 2 ? low : high, mask));
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++) {
            __m256 v = _mm256_load_ps(x[t] + at + 8 * (4 * odd + byte));
            parts[t] = byte == 0 ? _mm256_mul_ps(w, v) : _mm256_fmadd_ps(w, v, parts[t]);
        }
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_fmadd_ps(parts[t], scale, sums[t]);
}

PLEC_CPU_INLINE void q4_k_dot(__m256 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    const struct plec_q4_k_block *block = (const struct plec_q4_k_block *)(const void *)row->blocks;
    __m256 even[PLEC_CPU_TOKENS], odd[PLEC_CPU_TOKENS];
    _Alignas(32) float scale[8];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        even[t] = odd[t] = _mm256_setzero_ps();
    size_t n_blocks = row->cols / BLOCK, at = 0;
    for (size_t i = 0; i < n_blocks; i++, block++, at += IMAGE) {
        struct plec_cpu_kscales packed = plec_cpu_kscales_load(block->scales);
        __m256 minimum = times_f16(packed.minima, block->dmin);
        _mm256_store_ps(scale, times_f16(packed.scales, block->d));
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            even[t] = _mm256_fnmadd_ps(minimum, _mm256_load_ps(images[t] + at + BLOCK), even[t]);
        PLEC_CPU_UNROLL
        for (int g = 0; g < 4; g++) {
            __m256i low = plec_avx2_load(block->qs + 32 * g), high = _mm256_srli_epi32(low, 16);
            add_sub_block(even, low, high, _mm256_broadcast_ss(scale + 2 * g), images,
                          at + PAIR * (size_t)g, 0, n);
            add_sub_block(odd, low, high, _mm256_broadcast_ss(scale + 2 * g + 1), images,
                          at + PAIR * (size_t)g, 1, n);
        }
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = _mm256_add_ps(even[t], odd[t]);
}

PLEC_CPU_KERNEL(q4_k, avx2, PLEC_FORMAT_Q4_K, q4_k_image_floats, make_q4_k_image, PLEC_CPU_AHEAD)
#endif
