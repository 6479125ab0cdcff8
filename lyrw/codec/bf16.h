/* bf16.h: the upper half of an f32, little-endian. */
#ifndef PLEC_LYRW_CODEC_BF16_H
#define PLEC_LYRW_CODEC_BF16_H

#include "lyrw/codec/bits.h"

struct plec_bf16_block {
    uint8_t bits[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_bf16_block) == 2, "bf16 block");

/* Writes 1 value; a NaN keeps its bits. */
PLEC_HD void plec_bf16_decode(float *out, const uint8_t *block) {
    *out = plec_bf16_f32(plec_le16(block));
}

#endif
