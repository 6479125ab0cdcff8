/* q3_k.h: 256 values of 3 bits in 16 sub-blocks of 16, each with a 6-bit scale.
 *
 *   OFFSET SIZE MEANING
 *    0     32   third bits: bit 4n + j of byte l   value i = 128n + 32j + l
 *   32     64   low two bits: bits 2j of byte 32n + l
 *   96     12   scales: nibbles in bytes 0-7 (8-15 in the high ones), upper two bits in 8-11
 *  108      2   d, f16
 *
 * Value: (d * (scale - 32)) * q, where a third bit that is clear takes 4 away.
 */
#ifndef PLEC_LYRW_CODEC_Q3_K_H
#define PLEC_LYRW_CODEC_Q3_K_H

#include "lyrw/codec/bits.h"

struct plec_q3_k_block {
    uint8_t hmask[32];
    uint8_t qs[64];
    uint8_t scales[12];
    uint8_t d[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q3_k_block) == 110, "q3_k block");

/* Scale of sub-block g of 16, offset removed. */
PLEC_HD int plec_q3_k_scale(const uint8_t *s, int g) {
    int low = s[g % 8] >> 4 * (g / 8) & 15;
    int high = s[8 + g % 4] >> 2 * (g / 4) & 3;
    return (low | high << 4) - 32;
}

/* Writes 256 values. */
PLEC_HD void plec_q3_k_decode(float *out, const uint8_t *block) {
    const struct plec_q3_k_block *b = (const struct plec_q3_k_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int i = 0; i < 256; i++) {
        int n = i / 128, j = i / 32 % 4, l = i % 32;
        int q = b->qs[32 * n + l] >> 2 * j & 3;
        if ((b->hmask[l] >> (4 * n + j) & 1) == 0) q -= 4;
        float scale = plec_mul(d, (float)plec_q3_k_scale(b->scales, i / 16));
        out[i] = plec_mul(scale, (float)q);
    }
}

#endif
