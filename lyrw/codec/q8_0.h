/* q8_0.h: 32 values of 8 bits and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2     32   values, signed
 *
 * Value: q * d.
 */
#ifndef PLEC_LYRW_CODEC_Q8_0_H
#define PLEC_LYRW_CODEC_Q8_0_H

#include "lyrw/codec/bits.h"

struct plec_q8_0_block {
    uint8_t d[2];
    int8_t qs[32];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q8_0_block) == 34, "q8_0 block");

/* Writes 32 values. */
PLEC_HD void plec_q8_0_decode(float *out, const uint8_t *block) {
    const struct plec_q8_0_block *b = (const struct plec_q8_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int i = 0; i < 32; i++)
        out[i] = plec_mul((float)b->qs[i], d);
}

#endif
