/* nvfp4.h: NVFP4 as LYRW keeps it: 16 E2M1 values, an E4M3 scale apart, one f32 a matrix.
 *
 *   OFFSET SIZE MEANING
 *    0      8   byte i: low nibble value 2i, high nibble value 2i + 1
 *
 * Value: (tensor * scale) * e2m1. GGUF's blocks of 64 are gguf_nvfp4.h.
 */
#ifndef PLEC_LYRW_CODEC_NVFP4_H
#define PLEC_LYRW_CODEC_NVFP4_H

#include "lyrw/codec/bits.h"

struct plec_nvfp4_block {
    uint8_t qs[8];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_nvfp4_block) == 8, "nvfp4 block");

/* Writes 16 values. */
PLEC_HD void plec_nvfp4_decode(float *out, const uint8_t *block, uint8_t scale_byte,
                               float tensor_scale) {
    float scale = plec_mul(tensor_scale, plec_e4m3_f32(scale_byte));
    for (int i = 0; i < 8; i++) {
        out[2 * i] = plec_mul(scale, plec_e2m1_f32(block[i] & 15u));
        out[2 * i + 1] = plec_mul(scale, plec_e2m1_f32(block[i] >> 4));
    }
}

#endif
