/* q6_k.h: 256 values of 6 bits in 16 sub-blocks of 16, each with an 8-bit scale.
 *
 *   OFFSET SIZE MEANING
 *    0    128   ql, low four bits   value i = 128n + 32k + l (n of 2, k of 4, l of 32):
 *  128     64   qh, high two bits   nibble k/2 of ql[64n + 32(k%2) + l], bits 2k of qh[32n + l]
 *  192     16   scales, signed, one for 16 values in a row
 *  208      2   d, f16: last, not first
 *
 * Value: (d * scale) * (q - 32).
 */
#ifndef PLEC_LYRW_CODEC_Q6_K_H
#define PLEC_LYRW_CODEC_Q6_K_H

#include "lyrw/codec/bits.h"

struct plec_q6_k_block {
    uint8_t ql[128];
    uint8_t qh[64];
    int8_t scales[16];
    uint8_t d[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_q6_k_block) == 210, "q6_k block");

/* Writes 256 values. */
PLEC_HD void plec_q6_k_decode(float *out, const uint8_t *block) {
    const struct plec_q6_k_block *b = (const struct plec_q6_k_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    for (int i = 0; i < 256; i++) {
        int n = i / 128, k = i / 32 % 4, l = i % 32;
        int low = b->ql[64 * n + 32 * (k % 2) + l] >> 4 * (k / 2) & 15;
        int high = b->qh[32 * n + l] >> 2 * k & 3;
        float scale = plec_mul(d, (float)b->scales[i / 16]);
        out[i] = plec_mul(scale, (float)((low | high << 4) - 32));
    }
}

#endif
