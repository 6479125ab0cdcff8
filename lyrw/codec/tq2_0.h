/* tq2_0.h: 256 ternary values of 2 bits and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0     64   value i = 128n + 32j + l: bits 2j of byte 32n + l
 *   64      2   d, f16
 *
 * Value: (q - 1) * d.
 */
#ifndef PLEC_LYRW_CODEC_TQ2_0_H
#define PLEC_LYRW_CODEC_TQ2_0_H

#include "lyrw/codec/bits.h"

struct plec_tq2_0_block {
    uint8_t qs[64];
    uint8_t d[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_tq2_0_block) == 66, "tq2_0 block");

/* Writes 256 values. */
PLEC_HD void plec_tq2_0_decode(float *out, const uint8_t *block) {
    const struct plec_tq2_0_block *b = (const struct plec_tq2_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int i = 0; i < 256; i++) {
        int n = i / 128, j = i / 32 % 4, l = i % 32;
        out[i] = plec_mul((float)((b->qs[32 * n + l] >> 2 * j & 3) - 1), d);
    }
}

#endif
