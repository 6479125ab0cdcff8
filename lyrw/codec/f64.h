/* f64.h: plain IEEE binary64, little-endian: the one format whose values need f64. */
#ifndef PLEC_LYRW_CODEC_F64_H
#define PLEC_LYRW_CODEC_F64_H

#include "lyrw/codec/bits.h"

struct plec_f64_block {
    uint8_t bits[8];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_f64_block) == 8, "f64 block");

/* Writes 1 value, exact. */
PLEC_HD void plec_f64_decode(double *out, const uint8_t *block) {
    uint64_t bits = (uint64_t)plec_le32(block) | (uint64_t)plec_le32(block + 4) << 32;
    memcpy(out, &bits, sizeof bits);
}

#endif
