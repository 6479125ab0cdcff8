/* tq1_0.h: 256 ternary values, five to a byte, and one f16 scale.
 *
 *   OFFSET SIZE MEANING
 *    0     48   digits 0-4 of bytes 0-31 (160 values), then of bytes 32-47 (80 values)
 *   48      4   digits 0-3 (16 values)
 *   52      2   d, f16
 *
 * Digit n of byte v: (v * 3^n mod 256) * 3 / 256, rounded down. Values run digit by digit over a
 * group of bytes. Value: (digit - 1) * d.
 */
#ifndef PLEC_LYRW_CODEC_TQ1_0_H
#define PLEC_LYRW_CODEC_TQ1_0_H

#include "lyrw/codec/bits.h"

struct plec_tq1_0_block {
    uint8_t qs[48];
    uint8_t qh[4];
    uint8_t d[2];
};
PLEC_STATIC_ASSERT(sizeof(struct plec_tq1_0_block) == 54, "tq1_0 block");

/* Digits 0 .. n_digits - 1 of n_bytes bytes; returns where the next value goes. */
PLEC_HD float *plec_tq1_0_digits(float *out, const uint8_t *bytes, int n_bytes, int n_digits,
                                 float d) {
    uint32_t power = 1;
    for (int n = 0; n < n_digits; n++, power *= 3u)
        for (int i = 0; i < n_bytes; i++) {
            uint32_t digit = (bytes[i] * power & 255u) * 3u >> 8;
            *out++ = plec_mul((float)((int)digit - 1), d);
        }
    return out;
}

/* Writes 256 values. */
PLEC_HD void plec_tq1_0_decode(float *out, const uint8_t *block) {
    const struct plec_tq1_0_block *b = (const struct plec_tq1_0_block *)block;
    float d = plec_f16_f32(plec_le16(b->d));
    out = plec_tq1_0_digits(out, b->qs, 32, 5, d);
    out = plec_tq1_0_digits(out, b->qs + 32, 16, 5, d);
    plec_tq1_0_digits(out, b->qh, 4, 4, d);
}

#endif
