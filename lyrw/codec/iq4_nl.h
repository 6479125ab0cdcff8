/* iq4_nl.h: 32 codes into a fixed table of 16 unequal steps, and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2     16   byte j: low nibble value j, high nibble value j + 16
 *
 * Value: d * table[q].
 */
#ifndef PLEC_LYRW_CODEC_IQ4_NL_H
#define PLEC_LYRW_CODEC_IQ4_NL_H

#include "lyrw/codec/bits.h"

struct plec_iq4_nl_block {
    uint8_t d[2];
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_iq4_nl_block) == 18, "iq4_nl block");

/* -127 -104 -83 -65 -49 -35 -22 -10 | 1 13 25 38 53 69 89 113, a byte each, lowest code first:
 * words and not an array, so that device code needs no memory for it. */
PLEC_HD float plec_iq4_value(uint32_t code) {
    uint64_t values = code & 8u ? UINT64_C(0x7159453526190D01) : UINT64_C(0xF6EADDCFBFAD9881);
    return (float)(int8_t)(values >> 8u * (code & 7u) & 255u);
}

/* Writes 32 values. */
PLEC_HD void plec_iq4_nl_decode(float *out, const uint8_t *block) {
    const struct plec_iq4_nl_block *b = (const struct plec_iq4_nl_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int j = 0; j < 16; j++) {
        out[j] = plec_mul(d, plec_iq4_value(b->qs[j] & 15u));
        out[j + 16] = plec_mul(d, plec_iq4_value(b->qs[j] >> 4));
    }
}

#endif
