/* f32.h: plain IEEE binary32, little-endian. */
#ifndef PLEC_LYRW_CODEC_F32_H
#define PLEC_LYRW_CODEC_F32_H

#include "lyrw/codec/bits.h"

struct plec_f32_block {
    uint8_t bits[4];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_f32_block) == 4, "f32 block");

/* Writes 1 value; a NaN keeps its bits. */
PLEC_HD void plec_f32_decode(float *out, const uint8_t *block) {
    uint32_t bits = plec_le32(block);
    memcpy(out, &bits, sizeof bits);
}

#endif
