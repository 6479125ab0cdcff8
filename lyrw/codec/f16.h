/* f16.h: IEEE binary16, little-endian, widened exactly. */
#ifndef PLEC_LYRW_CODEC_F16_H
#define PLEC_LYRW_CODEC_F16_H

#include "lyrw/codec/bits.h"

struct plec_f16_block {
    uint8_t bits[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_f16_block) == 2, "f16 block");

/* Writes 1 value; a NaN keeps its payload (mantissa << 13). */
PLEC_HD void plec_f16_decode(float *out, const uint8_t *block) {
    *out = plec_f16_f32(plec_le16(block));
}

#endif
