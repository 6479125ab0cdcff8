/* q5_1.h: 32 values of 5 bits, an f16 scale and an f16 minimum.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2      2   m, f16
 *    4      4   fifth bits, u32: bit i of value i
 *    8     16   byte j: low nibble value j, high nibble value j + 16
 *
 * Value: q * d + m, two roundings.
 */
#ifndef PLEC_LYRW_CODEC_Q5_1_H
#define PLEC_LYRW_CODEC_Q5_1_H

#include "lyrw/codec/bits.h"

struct plec_q5_1_block {
    uint8_t d[2], m[2];
    uint8_t qh[4];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q5_1_block) == 24, "q5_1 block");

/* Writes 32 values. */
PLEC_HD void plec_q5_1_decode(float *out, const uint8_t *block) {
    const struct plec_q5_1_block *b = (const struct plec_q5_1_block *)block;
    float d = plec_f16_f32(plec_le16(b->d)), m = plec_f16_f32(plec_le16(b->m));
    uint32_t qh = plec_le32(b->qh);
    for (int j = 0; j < 16; j++) {
        int low = (b->qs[j] & 15) | (int)(qh >> j & 1u) << 4;
        int high = b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1u) << 4;
        out[j] = plec_add(plec_mul((float)low, d), m);
        out[j + 16] = plec_add(plec_mul((float)high, d), m);
    }
}

#endif
