/* gguf_nvfp4.h: NVFP4 as GGUF keeps it: 64 E2M1 values in 4 sub-blocks of 16.
 *
 *   OFFSET SIZE MEANING
 *    0      4   scales, E4M3 without a sign: bit 7 is ignored, no NaN
 *    4     32   8 bytes a sub-block: byte r has value r low and value r + 8 high
 *
 * Value: k * scale / 2, k twice the E2M1 value and never a negative zero. Scale byte 0x7F is 0;
 * 0xFF is 480, as its exponent and mantissa say. The factor that GGUF keeps in a tensor of its own
 * is not part of the format.
 */
#ifndef PLEC_LYRW_CODEC_GGUF_NVFP4_H
#define PLEC_LYRW_CODEC_GGUF_NVFP4_H

#include "lyrw/codec/bits.h"

struct plec_gguf_nvfp4_block {
    uint8_t scales[4];
    uint8_t qs[32];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_gguf_nvfp4_block) == 36, "gguf_nvfp4 block");

/* Half of a scale byte's value; exact. */
PLEC_HD float plec_gguf_ue4m3_half(uint8_t byte) {
    uint32_t exponent = byte >> 3 & 15u, mantissa = byte & 7u;
    if (byte == 0x7Fu) return 0.0f;
    if (exponent == 0u) return plec_mul((float)mantissa, 0.0009765625f); /* m/8 * 2^-6 / 2 */
    return plec_bits_f32((exponent + 119u) << 23 | mantissa << 20);
}

/* Writes 64 values. */
PLEC_HD void plec_gguf_nvfp4_decode(float *out, const uint8_t *block) {
    const struct plec_gguf_nvfp4_block *b = (const struct plec_gguf_nvfp4_block *)block;
    for (int g = 0; g < 4; g++) {
        float scale = plec_gguf_ue4m3_half(b->scales[g]);
        for (int r = 0; r < 8; r++) {
            uint32_t pair = b->qs[8 * g + r];
            out[16 * g + r] = plec_mul((float)plec_e2m1_doubled(pair & 15u), scale);
            out[16 * g + r + 8] = plec_mul((float)plec_e2m1_doubled(pair >> 4), scale);
        }
    }
}

#endif
