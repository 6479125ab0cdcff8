/* q5_0.h: 32 values of 5 bits and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2      4   fifth bits, u32: bit i of value i
 *    6     16   byte j: low nibble value j, high nibble value j + 16
 *
 * Value: (q - 16) * d.
 */
#ifndef PLEC_LYRW_CODEC_Q5_0_H
#define PLEC_LYRW_CODEC_Q5_0_H

#include "lyrw/codec/bits.h"

struct plec_q5_0_block {
    uint8_t d[2];
    uint8_t qh[4];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q5_0_block) == 22, "q5_0 block");

/* Writes 32 values. */
PLEC_HD void plec_q5_0_decode(float *out, const uint8_t *block) {
    const struct plec_q5_0_block *b = (const struct plec_q5_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    uint32_t qh = plec_le32(b->qh);
    for (int j = 0; j < 16; j++) {
        int low = (b->qs[j] & 15) | (int)(qh >> j & 1u) << 4;
        int high = b->qs[j] >> 4 | (int)(qh >> (j + 16) & 1u) << 4;
        out[j] = plec_mul((float)(low - 16), d);
        out[j + 16] = plec_mul((float)(high - 16), d);
    }
}

#endif
