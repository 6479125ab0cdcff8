/* gguf_mxfp4.h: MXFP4 as GGUF keeps it: the scale first, in the block, and nibbles split by half.
 *
 *   OFFSET SIZE MEANING
 *    0      1   e
 *    1     16   byte j: low nibble value j, high nibble value j + 16
 *
 * Value: k * 2^(e - 128), k twice the E2M1 value and never a negative zero. e = 0 and 1 are f32
 * subnormals; 255 is 2^127, not NaN.
 */
#ifndef PLEC_LYRW_CODEC_GGUF_MXFP4_H
#define PLEC_LYRW_CODEC_GGUF_MXFP4_H

#include "lyrw/codec/bits.h"

struct plec_gguf_mxfp4_block {
    uint8_t e;
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_gguf_mxfp4_block) == 17, "gguf_mxfp4 block");

/* 2^(e - 128). */
PLEC_HD float plec_gguf_e8m0_half(uint8_t e) {
    return plec_bits_f32(e < 2u ? UINT32_C(0x00200000) << e : (uint32_t)(e - 1u) << 23);
}

/* Writes 32 values. */
PLEC_HD void plec_gguf_mxfp4_decode(float *out, const uint8_t *block) {
    const struct plec_gguf_mxfp4_block *b = (const struct plec_gguf_mxfp4_block *)block;
    float scale = plec_gguf_e8m0_half(b->e);
    for (int j = 0; j < 16; j++) {
        out[j] = plec_mul((float)plec_e2m1_doubled(b->qs[j] & 15u), scale);
        out[j + 16] = plec_mul((float)plec_e2m1_doubled(b->qs[j] >> 4), scale);
    }
}

#endif
