/* round.h: from f32 to the small number formats of bits.h, to nearest with ties to even. */
#ifndef PLEC_LYRW_CODEC_ROUND_H
#define PLEC_LYRW_CODEC_ROUND_H

#include "lyrw/codec/bits.h"

/* A magnitude as exponent and mantissa bits of a small float, not limited at the top: the caller
 * saturates. A carry out of the mantissa moves into the exponent, as it should. */
PLEC_HD uint32_t plec_round_small(float magnitude, int mantissa_bits, int bias) {
    uint32_t a = plec_f32_bits(magnitude);
    int shift = 23 - mantissa_bits;
    if (a >= (uint32_t)(128 - bias) << 23) {
        a += (UINT32_C(1) << (shift - 1)) - 1u + (a >> shift & 1u);
        return (a >> shift) - ((uint32_t)(127 - bias) << mantissa_bits);
    }
    /* subnormal: one unit in the last place of `unit` is the smallest step, so the sum is rounded
     * where it must be */
    float unit = plec_bits_f32((uint32_t)(151 - bias - mantissa_bits) << 23);
    return plec_f32_bits(plec_add(magnitude, unit)) - plec_f32_bits(unit);
}

/* Infinity from 65520 up; NaN stays NaN. */
PLEC_HD uint16_t plec_f32_f16(float value) {
    uint32_t bits = plec_f32_bits(value), sign = bits >> 16 & 0x8000u;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) return (uint16_t)(sign | 0x7E00u);
    uint32_t rounded = plec_round_small(plec_bits_f32(bits), 10, 15);
    return (uint16_t)(sign | (rounded > 0x7C00u ? 0x7C00u : rounded));
}

/* Infinity where f32 rounds up to it; NaN stays NaN. */
PLEC_HD uint16_t plec_f32_bf16(float value) {
    uint32_t bits = plec_f32_bits(value);
    if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)(bits >> 16 | 0x40u);
    return (uint16_t)((bits + 0x7FFFu + (bits >> 16 & 1u)) >> 16);
}

/* Saturates at 448; NaN is 0x7F. */
PLEC_HD uint8_t plec_f32_e4m3(float value) {
    uint32_t bits = plec_f32_bits(value), sign = bits >> 24 & 0x80u;
    bits &= 0x7FFFFFFFu;
    if (bits > 0x7F800000u) return 0x7Fu;
    uint32_t rounded = plec_round_small(plec_bits_f32(bits), 3, 7);
    return (uint8_t)(sign | (rounded > 0x7Eu ? 0x7Eu : rounded));
}

/* Saturates at 6; NaN has no code and must not come. */
PLEC_HD uint8_t plec_f32_e2m1(float value) {
    uint32_t bits = plec_f32_bits(value), sign = bits >> 28 & 8u;
    uint32_t rounded = plec_round_small(plec_bits_f32(bits & 0x7FFFFFFFu), 1, 1);
    return (uint8_t)(sign | (rounded > 7u ? 7u : rounded));
}

#endif
