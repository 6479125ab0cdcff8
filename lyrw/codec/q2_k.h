/* q2_k.h: 256 values of 2 bits in 16 sub-blocks of 16, each with a 4-bit scale and minimum.
 *
 *   OFFSET SIZE MEANING
 *    0     16   low nibble scale, high nibble minimum
 *   16     64   value i = 128n + 32j + l: bits 2j of byte 32n + l
 *   80      2   d, f16
 *   82      2   dmin, f16
 *
 * Value: (d * scale) * q - dmin * min.
 */
#ifndef PLEC_LYRW_CODEC_Q2_K_H
#define PLEC_LYRW_CODEC_Q2_K_H

#include "lyrw/codec/bits.h"

struct plec_q2_k_block {
    uint8_t scales[16];
    uint8_t qs[64];
    uint8_t d[2], dmin[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q2_k_block) == 84, "q2_k block");

/* Writes 256 values. */
PLEC_HD void plec_q2_k_decode(float *out, const uint8_t *block) {
    const struct plec_q2_k_block *b = (const struct plec_q2_k_block *)block;
    float d = plec_f16_f32(plec_le16(b->d)), dmin = plec_f16_f32(plec_le16(b->dmin));
    for (int i = 0; i < 256; i++) {
        int n = i / 128, j = i / 32 % 4, l = i % 32;
        int q = b->qs[32 * n + l] >> 2 * j & 3;
        float scale = plec_mul(d, (float)(b->scales[i / 16] & 15));
        float minimum = plec_mul(dmin, (float)(b->scales[i / 16] >> 4));
        out[i] = plec_sub(plec_mul(scale, (float)q), minimum);
    }
}

#endif
