/* q2_0.h: 64 values of 2 bits and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2     16   value i: bits 2(i % 4) of byte i / 4
 *
 * Value: (q - 1) * d.
 */
#ifndef PLEC_LYRW_CODEC_Q2_0_H
#define PLEC_LYRW_CODEC_Q2_0_H

#include "lyrw/codec/bits.h"

struct plec_q2_0_block {
    uint8_t d[2];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q2_0_block) == 18, "q2_0 block");

/* Writes 64 values. */
PLEC_HD void plec_q2_0_decode(float *out, const uint8_t *block) {
    const struct plec_q2_0_block *b = (const struct plec_q2_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int i = 0; i < 64; i++)
        out[i] = plec_mul((float)((b->qs[i / 4] >> 2 * (i % 4) & 3) - 1), d);
}

#endif
