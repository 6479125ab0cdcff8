/* mxfp8.h: OCP MXFP8: 32 E4M3 values in one region, their E8M0 scale in another.
 *
 * Value: e4m3 * 2^(scale - 127); scale 0 is 0.0 and 255 NaN, as in mxfp4.
 */
#ifndef PLEC_LYRW_CODEC_MXFP8_H
#define PLEC_LYRW_CODEC_MXFP8_H

#include "lyrw/codec/bits.h"

struct plec_mxfp8_block {
    uint8_t qs[32];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_mxfp8_block) == 32, "mxfp8 block");

/* Writes 32 values. */
PLEC_HD void plec_mxfp8_decode(float *out, const uint8_t *block, uint8_t scale_byte) {
    float scale = plec_e8m0_f32(scale_byte);
    for (int i = 0; i < 32; i++)
        out[i] = plec_mul(plec_e4m3_f32(block[i]), scale);
}

#endif
