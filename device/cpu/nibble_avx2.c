/* nibble_avx2.c: the 32-element formats of 4-bit codes: q4_0 and mxfp4.
 *
 * Two blocks a turn, one in each 128-bit half. A code becomes the two bytes of its value as bf16
 * (exact: at most three significant bits) through two 16-entry tables; interleaved they are 16-bit
 * values, and an f32 is such a value with 16 zero bits under it. So no integer is converted, and
 * signs and steps of any kind cost nothing.
 *
 *   vector v = 4 nibble + 2 half + odd; lane i of a block: byte 8 half + 2 i + odd, that nibble
 *
 * The image of 64 columns: 8 vectors of 8, in that order. An odd last block has zeros beside it. */
#if defined(__x86_64__)
#include <math.h>
#include <string.h>

#include "device/cpu/avx2.h"
#include "lyrw/codec/mxfp4.h"
#include "lyrw/codec/q4_0.h"

enum { PAIR = 64 };

static size_t nibble_image_floats(uint32_t cols) {
    return ((size_t)cols + PAIR - 1) / PAIR * PAIR;
}

/* The column, within its block, of byte `byte`, nibble `nibble`. */
typedef uint32_t column_of(uint32_t byte, uint32_t nibble);
static uint32_t q4_0_column(uint32_t byte, uint32_t nibble) {
    return byte + 16 * nibble;
}
static uint32_t mxfp4_column(uint32_t byte, uint32_t nibble) {
    return 2 * byte + nibble;
}

static void make_nibble_image(float *image, const float *x, uint32_t n, uint32_t cols,
                              column_of *column) {
    memset(image, 0, nibble_image_floats(cols) * sizeof *image);
    for (uint32_t at = 0; at < cols; at += 32)
        for (uint32_t i = 0; i < 32; i++) {
            uint32_t byte = i / 2, nibble = i % 2, from = at + column(byte, nibble);
            uint32_t vector = 4 * nibble + 2 * (byte / 8) + byte % 2;
            uint32_t lane = at / 32 % 2 * 4 + byte % 8 / 2;
            if (from < n) image[at / PAIR * PAIR + 8 * vector + lane] = x[from];
        }
}
static void make_q4_0_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    make_nibble_image(image, x, n, cols, q4_0_column);
}
static void make_mxfp4_image(float *image, const float *x, uint32_t n, uint32_t cols) {
    make_nibble_image(image, x, n, cols, mxfp4_column);
}

/* The bytes of a code's value as bf16. */
struct nibble_table {
    __m256i low, high;
};

PLEC_CPU_INLINE struct nibble_table load_table(const uint8_t *low, const uint8_t *high) {
    struct nibble_table table;
    table.low = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)low));
    table.high = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)(const void *)high));
    return table;
}

/* parts += the 16 values of two vectors times their x; pairs: 16 bf16. */
PLEC_CPU_INLINE void add_halves(__m256 *parts, __m256i pairs, const float *const *x, size_t at,
                                const int n) {
    __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++) {
        parts[t] = _mm256_fmadd_ps(even, _mm256_load_ps(x[t] + at), parts[t]);
        parts[t] = _mm256_fmadd_ps(odd, _mm256_load_ps(x[t] + at + 8), parts[t]);
    }
}

PLEC_CPU_INLINE void add_nibbles(__m256 *parts, __m256i codes, const struct nibble_table *table,
                                 const float *const *x, size_t at, const int n) {
    __m256i low = _mm256_shuffle_epi8(table->low, codes);
    __m256i high = _mm256_shuffle_epi8(table->high, codes);
    add_halves(parts, _mm256_unpacklo_epi8(low, high), x, at, n);
    add_halves(parts, _mm256_unpackhi_epi8(low, high), x, at + 16, n);
}

/* sums += scale * (two blocks . x). */
PLEC_CPU_INLINE void add_pair(__m256 *sums, __m256i bytes, __m256 scale,
                              const struct nibble_table *table, const float *const *x, size_t at,
                              const int n) {
    const __m256i mask = _mm256_set1_epi8(15);
    __m256 parts[PLEC_CPU_TOKENS];
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        parts[t] = _mm256_setzero_ps();
    add_nibbles(parts, _mm256_and_si256(bytes, mask), table, x, at, n);
    add_nibbles(parts, _mm256_and_si256(_mm256_srli_epi16(bytes, 4), mask), table, x, at + 32, n);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_fmadd_ps(parts[t], scale, sums[t]);
}

PLEC_CPU_INLINE __m256i join_blocks(const uint8_t *low, const uint8_t *high) {
    __m128i a = _mm_loadu_si128((const __m128i *)(const void *)low);
    return _mm256_inserti128_si256(_mm256_castsi128_si256(a),
                                   _mm_loadu_si128((const __m128i *)(const void *)high), 1);
}

PLEC_CPU_INLINE void q4_0_dot(float *out, const struct plec_cpu_row *row,
                              const float *const *images, const int n) {
    /* -8 to 7 */
    static const uint8_t low[16] = {0x00, 0xE0, 0xC0, 0xA0, 0x80, 0x40, 0x00, 0x80,
                                    0x00, 0x80, 0x00, 0x40, 0x80, 0xA0, 0xC0, 0xE0};
    static const uint8_t high[16] = {0xC1, 0xC0, 0xC0, 0xC0, 0xC0, 0xC0, 0xC0, 0xBF,
                                     0x00, 0x3F, 0x40, 0x40, 0x40, 0x40, 0x40, 0x40};
    static const struct plec_q4_0_block none;
    const struct plec_q4_0_block *blocks =
        (const struct plec_q4_0_block *)(const void *)row->blocks;
    struct nibble_table table = load_table(low, high);
    __m256 sums[PLEC_CPU_TOKENS];
    size_t n_blocks = row->cols / 32;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_setzero_ps();
    for (size_t i = 0; i < n_blocks; i += 2) {
        const struct plec_q4_0_block *a = blocks + i, *b = i + 1 < n_blocks ? a + 1 : &none;
        add_pair(sums, join_blocks(a->qs, b->qs), plec_avx2_f16_pair(a->d, b->d), &table, images,
                 32 * i, n);
    }
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = plec_avx2_add_lanes(sums[t]);
}

/* Two E8M0 scales as f32. 255 comes out infinite: the sum is then not finite, which plec_cpu_dot
 * sees. */
PLEC_CPU_INLINE __m256 e8m0_pair(const uint8_t *p, bool two) {
    uint32_t a = (uint32_t)p[0] << 23, b = two ? (uint32_t)p[1] << 23 : 0;
    __m128i low = _mm_set1_epi32((int)a), high = _mm_set1_epi32((int)b);
    return _mm256_castsi256_ps(_mm256_inserti128_si256(_mm256_castsi128_si256(low), high, 1));
}

/* Scales of 2^126 and 2^127 make some codes infinite, which a sum scaled afterwards need not be. */
PLEC_CPU_INLINE bool scales_are_small(const uint8_t *scales, size_t n) {
    __m128i largest = _mm_setzero_si128();
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        largest =
            _mm_max_epu8(largest, _mm_loadu_si128((const __m128i *)(const void *)(scales + i)));
    bool small = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_subs_epu8(largest, _mm_set1_epi8((char)252)),
                                                  _mm_setzero_si128())) == 0xFFFF;
    for (; i < n; i++)
        small = small && scales[i] <= 252;
    return small;
}

PLEC_CPU_INLINE void mxfp4_dot(float *out, const struct plec_cpu_row *row,
                               const float *const *images, const int n) {
    static const uint8_t low[16] = {0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0,
                                    0x00, 0x00, 0x80, 0xC0, 0x00, 0x40, 0x80, 0xC0};
    static const uint8_t high[16] = {0x00, 0x3F, 0x3F, 0x3F, 0x40, 0x40, 0x40, 0x40,
                                     0x80, 0xBF, 0xBF, 0xBF, 0xC0, 0xC0, 0xC0, 0xC0};
    struct nibble_table table = load_table(low, high);
    __m256 sums[PLEC_CPU_TOKENS];
    size_t n_blocks = row->cols / 32, i = 0;
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        sums[t] = _mm256_setzero_ps();
    for (; i + 2 <= n_blocks; i += 2)
        add_pair(sums, plec_avx2_load(row->blocks + 16 * i), e8m0_pair(row->scales + i, true),
                 &table, images, 32 * i, n);
    if (i < n_blocks) {
        static const uint8_t none[16];
        add_pair(sums, join_blocks(row->blocks + 16 * i, none), e8m0_pair(row->scales + i, false),
                 &table, images, 32 * i, n);
    }
    bool small = scales_are_small(row->scales, n_blocks);
    PLEC_CPU_UNROLL
    for (int t = 0; t < n; t++)
        out[t] = small ? plec_avx2_add_lanes(sums[t]) : NAN; /* NAN: have it decoded exactly */
}

PLEC_CPU_KERNEL(q4_0, PLEC_FORMAT_Q4_0, nibble_image_floats, make_q4_0_image)
PLEC_CPU_KERNEL(mxfp4, PLEC_FORMAT_MXFP4, nibble_image_floats, make_mxfp4_image)
#endif
