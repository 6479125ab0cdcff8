/* q4_k.h: 256 values of 4 bits in 8 sub-blocks, each with a 6-bit scale and minimum.
 *
 *   OFFSET SIZE MEANING
 *    0      2   d, f16
 *    2      2   dmin, f16
 *    4     12   scales and minima (kscales.h)
 *   16    128   32 bytes a pair of sub-blocks: low nibbles the even one, high nibbles the odd one
 *
 * Value: (d * scale) * q - dmin * min.
 */
#ifndef PLEC_LYRW_CODEC_Q4_K_H
#define PLEC_LYRW_CODEC_Q4_K_H

#include "lyrw/codec/bits.h"
#include "lyrw/codec/kscales.h"

struct plec_q4_k_block {
    uint8_t d[2], dmin[2];
    uint8_t scales[12];
    uint8_t qs[128];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q4_k_block) == 144, "q4_k block");

/* Writes 256 values. */
PLEC_HD void plec_q4_k_decode(float *out, const uint8_t *block) {
    const struct plec_q4_k_block *b = (const struct plec_q4_k_block *)block;
    float d = plec_f16_f32(plec_le16(b->d)), dmin = plec_f16_f32(plec_le16(b->dmin));
    for (int g = 0; g < 8; g++) {
        float scale = plec_mul(d, (float)plec_k_scale(b->scales, g));
        float minimum = plec_mul(dmin, (float)plec_k_min(b->scales, g));
        for (int l = 0; l < 32; l++) {
            int q = b->qs[32 * (g / 2) + l] >> 4 * (g % 2) & 15;
            out[32 * g + l] = plec_sub(plec_mul(scale, (float)q), minimum);
        }
    }
}

#endif
