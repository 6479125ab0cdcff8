/* q1_0.h: 128 signs and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2     16   value i: bit i % 8 of byte i / 8
 *
 * Value: d where the bit is set, else -d.
 */
#ifndef PLEC_LYRW_CODEC_Q1_0_H
#define PLEC_LYRW_CODEC_Q1_0_H

#include "lyrw/codec/bits.h"

struct plec_q1_0_block {
    uint8_t d[2];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q1_0_block) == 18, "q1_0 block");

/* Writes 128 values. */
PLEC_HD void plec_q1_0_decode(float *out, const uint8_t *block) {
    const struct plec_q1_0_block *b = (const struct plec_q1_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int i = 0; i < 128; i++)
        out[i] = b->qs[i / 8] >> i % 8 & 1 ? d : -d;
}

#endif
