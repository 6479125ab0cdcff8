/* q4_0_avx2.c: q4_0, two blocks a turn, one in each half of a vector.
 *
 * 16 bytes are 4 dwords of 8 codes. Masking a dword in place isolates a code times 16^p, which
 * converts exactly; the image holds x / 16^p. p is 0 to 3: the upper 16 bits are shifted down once.
 * Codes count from 0; the 8 that they are too high is taken off by starting each sum at -8 times
 * the sum of x.
 *
 *   vector v = 4 high + byte, lane i of a block: element 4 i + byte + 16 high
 *
 * The image of 64 columns: 8 vectors of 8, then their sum times -8. An odd last block has zeros
 * beside it. */
#if defined(__x86_64__)
#include <string.h>

#include "device/cpu/avx2.h"
#include "lyrw/codec/q4_0.h"

enum { PAIR = 64, IMAGE = PAIR + 8 };

static size_t q4_0_image_floats(uint32_t cols) {
    return ((size_t)cols + PAIR - 1) / PAIR * IMAGE;
}

static void make_lane(float *image, uint32_t lane, const float *x, uint32_t n) {
    double sum = 0;
    for (uint32_t high = 0; high < 2; high++)
        for (uint32_t byte = 0; byte < 4; byte++) {
            uint32_t from = byte + 16 * high, position = byte % 2 * 2 + high;
            float value = from < n ? x[from] : 0;
            image[8 * (4 * high + byte) + lane] = value / (float)(1 << 4 * position);
            sum += value;
        }
    image[PAIR + lane] = (float)(-8 * sum);
}

static void make_q4_0_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    for (uint32_t at = 0; at < cols; at += PAIR, image += IMAGE)
        for (uint32_t lane = 0; lane < 8; lane++) {
            uint32_t first = at + lane / 4 * 32 + lane % 4 * 4;
            make_lane(image, lane, x + (first < n ? first : 0), first < n ? n - first : 0);
        }
}

/* sums += scale * (two blocks . x). */
PLEC_CPU_INLINE void add_pair(__m256 *sums, const struct plec_q4_0_block *a,
                              const struct plec_q4_0_block *b, const float *const *x, size_t at,
                              const int n) {
    __m128i first = _mm_loadu_si128((const __m128i *)(const void *)a->qs);
    __m256i low = _mm256_inserti128_si256(_mm256_castsi128_si256(first),
                                          _mm_loadu_si128((const __m128i *)(const void *)b->qs), 1);
    __m256i high = _mm256_srli_epi32(low, 16);
    __m256 parts[PLEC_CPU_TOKENS], scale = plec_avx2_f16_pair(a->d, b->d);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        parts[t] = _mm256_load_ps(x[t] + at + PAIR);
    PLEC_CPU_UNROLL
    for (int v = 0; v < 8; v++) {
        __m256i mask = _mm256_set1_epi32(15 << 4 * (v % 2 * 2 + v / 4));
        __m256 w = _mm256_cvtepi32_ps(_mm256_and_si256(v % 4 < 2 ? low : high, mask));
        PLEC_CPU_UNROLL
        for (int t = 0; t < n; t++)
            parts[t] = _mm256_fmadd_ps(w, _mm256_load_ps(x[t] + at + 8 * (size_t)v), parts[t]);
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_fmadd_ps(parts[t], scale, sums[t]);
}

PLEC_CPU_INLINE void q4_0_dot(__m256 *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    static const struct plec_q4_0_block none;
    const struct plec_q4_0_block *blocks =
        (const struct plec_q4_0_block *)(const void *)row->blocks;
    __m256 sums[PLEC_CPU_TOKENS];
    size_t n_blocks = row->cols / 32, i = 0, at = 0;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_setzero_ps();
    for (; i + 2 <= n_blocks; i += 2, at += IMAGE)
        add_pair(sums, blocks + i, blocks + i + 1, images, at, n);
    if (i < n_blocks) add_pair(sums, blocks + i, &none, images, at, n);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = sums[t];
}

PLEC_CPU_KERNEL(q4_0, avx2, PLEC_FORMAT_Q4_0, q4_0_image_floats, make_q4_0_image, PLEC_CPU_AHEAD)
#endif
