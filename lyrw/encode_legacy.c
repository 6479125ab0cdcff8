/* encode_legacy.c: blocks of 32 with one f16 scale, and a minimum or none. */
#include <math.h>
#include <string.h>

#include "lyrw/codec/q4_0.h"
#include "lyrw/codec/q4_1.h"
#include "lyrw/codec/q5_0.h"
#include "lyrw/codec/q5_1.h"
#include "lyrw/codec/q8_0.h"
#include "lyrw/cursor.h"
#include "lyrw/encode_block.h"

enum { N = 32 };

/* Low nibbles are the first half, high nibbles the second. */
static void pack_nibbles(uint8_t *qs, const int *codes) {
    for (int j = 0; j < N / 2; j++)
        qs[j] = (uint8_t)((codes[j] & 15) | (codes[j + N / 2] & 15) << 4);
}

static void pack_fifth_bits(uint8_t *qh, const int *codes) {
    uint32_t bits = 0;
    for (int i = 0; i < N; i++)
        bits |= (uint32_t)(codes[i] >> 4 & 1) << i;
    plec_store_u32(qh, bits);
}

/* codes[i] - middle times *d; codes in [0, 2 * middle). */
static bool fit_symmetric(int *codes, uint8_t *d, const float *x, int middle) {
    double scale;
    if (!plec_store_f16(d, &scale, plec_fit_scale(x, N, -middle, middle - 1))) return false;
    for (int i = 0; i < N; i++)
        codes[i] = middle + plec_nearest_code(x[i], scale, 0, -middle, middle - 1);
    return true;
}

static bool fit_with_minimum(int *codes, uint8_t *d, uint8_t *m, const float *x, int q_max) {
    struct plec_affine map = plec_fit_affine(x, N, q_max, false);
    if (!plec_store_f16(d, &map.scale, map.scale) || !plec_store_f16(m, &map.minimum, map.minimum))
        return false;
    for (int i = 0; i < N; i++)
        codes[i] = plec_nearest_code(x[i], map.scale, map.minimum, 0, q_max);
    return true;
}

bool plec_encode_q4_0(const struct plec_encode_target *to, const float *x) {
    struct plec_q4_0_block *b = (struct plec_q4_0_block *)to->block;
    int codes[N];
    if (!fit_symmetric(codes, b->d, x, 8)) return false;
    pack_nibbles(b->qs, codes);
    return true;
}

bool plec_encode_q4_1(const struct plec_encode_target *to, const float *x) {
    struct plec_q4_1_block *b = (struct plec_q4_1_block *)to->block;
    int codes[N];
    if (!fit_with_minimum(codes, b->d, b->m, x, 15)) return false;
    pack_nibbles(b->qs, codes);
    return true;
}

bool plec_encode_q5_0(const struct plec_encode_target *to, const float *x) {
    struct plec_q5_0_block *b = (struct plec_q5_0_block *)to->block;
    int codes[N];
    if (!fit_symmetric(codes, b->d, x, 16)) return false;
    pack_nibbles(b->qs, codes);
    pack_fifth_bits(b->qh, codes);
    return true;
}

bool plec_encode_q5_1(const struct plec_encode_target *to, const float *x) {
    struct plec_q5_1_block *b = (struct plec_q5_1_block *)to->block;
    int codes[N];
    if (!fit_with_minimum(codes, b->d, b->m, x, 31)) return false;
    pack_nibbles(b->qs, codes);
    pack_fifth_bits(b->qh, codes);
    return true;
}

bool plec_encode_q8_0(const struct plec_encode_target *to, const float *x) {
    struct plec_q8_0_block *b = (struct plec_q8_0_block *)to->block;
    double scale;
    if (!plec_store_f16(b->d, &scale, plec_largest_magnitude(x, N) / 127)) return false;
    for (int i = 0; i < N; i++)
        b->qs[i] = (int8_t)plec_nearest_code(x[i], scale, 0, -127, 127);
    return true;
}
