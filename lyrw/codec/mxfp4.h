/* mxfp4.h: OCP MXFP4 as LYRW keeps it: 32 E2M1 values in one region, their E8M0 scale in
 * another.
 *
 *   OFFSET SIZE MEANING
 *    0     16   byte i: low nibble value 2i, high nibble value 2i + 1
 *
 * Value: e2m1 * 2^(scale - 127); scale 0 is 0.0 and 255 NaN. GGUF orders the nibbles otherwise and
 * reads the scale otherwise: gguf_mxfp4.h.
 */
#ifndef PLEC_LYRW_CODEC_MXFP4_H
#define PLEC_LYRW_CODEC_MXFP4_H

#include "lyrw/codec/bits.h"

struct plec_mxfp4_block {
    uint8_t qs[16];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_mxfp4_block) == 16, "mxfp4 block");

/* Writes 32 values. */
PLEC_HD void plec_mxfp4_decode(float *out, const uint8_t *block, uint8_t scale_byte) {
    float scale = plec_e8m0_f32(scale_byte);
    for (int i = 0; i < 16; i++) {
        out[2 * i] = plec_mul(plec_e2m1_f32(block[i] & 15u), scale);
        out[2 * i + 1] = plec_mul(plec_e2m1_f32(block[i] >> 4), scale);
    }
}

#endif
