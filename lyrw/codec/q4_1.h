/* q4_1.h: 32 values of 4 bits, an f16 scale and an f16 minimum.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2      2   m, f16
 *    4     16   byte j: low nibble value j, high nibble value j + 16
 *
 * Value: q * d + m, two roundings.
 */
#ifndef PLEC_LYRW_CODEC_Q4_1_H
#define PLEC_LYRW_CODEC_Q4_1_H

#include "lyrw/codec/bits.h"

struct plec_q4_1_block {
    uint8_t d[2], m[2];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q4_1_block) == 20, "q4_1 block");

/* Writes 32 values. */
PLEC_HD void plec_q4_1_decode(float *out, const uint8_t *block) {
    const struct plec_q4_1_block *b = (const struct plec_q4_1_block *)block;
    float d = plec_f16_f32(plec_le16(b->d)), m = plec_f16_f32(plec_le16(b->m));
    for (int j = 0; j < 16; j++) {
        out[j] = plec_add(plec_mul((float)(b->qs[j] & 15), d), m);
        out[j + 16] = plec_add(plec_mul((float)(b->qs[j] >> 4), d), m);
    }
}

#endif
