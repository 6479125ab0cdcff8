/* q4_0.h: 32 values of 4 bits and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2     16   byte j: low nibble value j, high nibble value j + 16
 *
 * Value: (q - 8) * d.
 */
#ifndef PLEC_LYRW_CODEC_Q4_0_H
#define PLEC_LYRW_CODEC_Q4_0_H

#include "lyrw/codec/bits.h"

struct plec_q4_0_block {
    uint8_t d[2];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q4_0_block) == 18, "q4_0 block");

/* Writes 32 values. */
PLEC_HD void plec_q4_0_decode(float *out, const uint8_t *block) {
    const struct plec_q4_0_block *b = (const struct plec_q4_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int j = 0; j < 16; j++) {
        out[j] = plec_mul((float)((b->qs[j] & 15) - 8), d);
        out[j + 16] = plec_mul((float)((b->qs[j] >> 4) - 8), d);
    }
}

#endif
