/* iq4_xs.h: 256 codes into iq4_nl's table in 8 sub-blocks of 32, each with a 6-bit scale.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2      2   upper two bits of the scales, u16: bits 2g of sub-block g
 *    4      4   low nibbles of the scales
 *    8    128   16 bytes a sub-block: byte j has value j low and value j + 16 high
 *
 * Value: (d * (scale - 32)) * table[q].
 */
#ifndef PLEC_LYRW_CODEC_IQ4_XS_H
#define PLEC_LYRW_CODEC_IQ4_XS_H

#include "lyrw/codec/iq4_nl.h"

struct plec_iq4_xs_block {
    uint8_t d[2];
    uint8_t scales_high[2];
    uint8_t scales_low[4];
    uint8_t qs[128];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_iq4_xs_block) == 136, "iq4_xs block");

/* Writes 256 values. */
PLEC_HD void plec_iq4_xs_decode(float *out, const uint8_t *block) {
    const struct plec_iq4_xs_block *b = (const struct plec_iq4_xs_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    uint32_t high = plec_le16(b->scales_high);
    for (int g = 0; g < 8; g++) {
        int low = b->scales_low[g / 2] >> 4 * (g % 2) & 15;
        float scale = plec_mul(d, (float)((low | (int)(high >> 2 * g & 3u) << 4) - 32));
        for (int j = 0; j < 16; j++) {
            uint32_t pair = b->qs[16 * g + j];
            out[32 * g + j] = plec_mul(scale, plec_iq4_value(pair & 15u));
            out[32 * g + j + 16] = plec_mul(scale, plec_iq4_value(pair >> 4));
        }
    }
}

#endif
