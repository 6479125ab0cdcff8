/* bits.h: the small number formats that block codecs are written with.
 *
 * The same lines compile as C17, C++17 and CUDA: PLEC_HD is the only difference. No function here
 * may be contracted to a fused multiply-add; the build passes -ffp-contract=off, and on the device
 * the explicitly rounded intrinsics stand behind plec_mul, plec_add, plec_sub and plec_div.
 */
#ifndef PLEC_LYRW_CODEC_BITS_H
#define PLEC_LYRW_CODEC_BITS_H

#include <stdint.h>
#include <string.h>

#if defined(__CUDACC__)
#define PLEC_HD static __host__ __device__ __forceinline__
#else
#define PLEC_HD static inline
#endif

#ifdef __cplusplus
#define PLEC_STATIC_ASSERT(condition, text) static_assert(condition, text)
#else
#define PLEC_STATIC_ASSERT(condition, text) _Static_assert(condition, text)
#endif

/* One rounding each, never contracted. */
PLEC_HD float plec_mul(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fmul_rn(a, b);
#else
    return a * b;
#endif
}
PLEC_HD float plec_add(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fadd_rn(a, b);
#else
    return a + b;
#endif
}
PLEC_HD float plec_sub(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fsub_rn(a, b);
#else
    return a - b;
#endif
}
PLEC_HD float plec_div(float a, float b) {
#if defined(__CUDA_ARCH__)
    return __fdiv_rn(a, b);
#else
    return a / b;
#endif
}

PLEC_HD float plec_bits_f32(uint32_t bits) {
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}
PLEC_HD uint32_t plec_f32_bits(float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* Little-endian loads at any alignment. */
PLEC_HD uint16_t plec_le16(const uint8_t *p) {
    return (uint16_t)(p[0] | p[1] << 8);
}
PLEC_HD uint32_t plec_le32(const uint8_t *p) {
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

/* bf16 is the upper half of an f32. */
PLEC_HD float plec_bf16_f32(uint16_t b) {
    return plec_bits_f32((uint32_t)b << 16);
}

/* IEEE binary16, exact. A NaN keeps its payload: the mantissa moves up by 13 bits. */
PLEC_HD float plec_f16_f32(uint16_t h) {
    uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
    uint32_t exponent = h >> 10 & 31u, mantissa = h & 1023u;
    if (exponent == 31u) return plec_bits_f32(sign | 0x7F800000u | mantissa << 13);
    if (exponent != 0u) return plec_bits_f32(sign | (exponent + 112u) << 23 | mantissa << 13);
    float magnitude = plec_mul((float)mantissa, 5.9604644775390625e-8f); /* 2^-24 */
    return plec_bits_f32(sign | plec_f32_bits(magnitude));
}

/* E2M1: 0 .5 1 1.5 2 3 4 6, bit 3 is the sign. */
PLEC_HD float plec_e2m1_f32(uint32_t code) {
    uint32_t exponent = code >> 1 & 3u, mantissa = code & 1u, sign = (code & 8u) << 28;
    if (exponent == 0u) return plec_bits_f32(sign | (mantissa ? 0x3F000000u : 0u));
    return plec_bits_f32(sign | (exponent + 126u) << 23 | mantissa << 22);
}

/* Twice an E2M1 code as a whole number, the way GGUF reads it: 0 1 2 3 4 6 8 12, no negative zero.
 */
PLEC_HD int plec_e2m1_doubled(uint32_t code) {
    int magnitude = (int)(0xC8643210u >> 4u * (code & 7u) & 15u);
    return code & 8u ? -magnitude : magnitude;
}

/* OCP E4M3 (fn): bias 7, largest 448, 0x7F and 0xFF are NaN, no infinity. */
PLEC_HD float plec_e4m3_f32(uint8_t b) {
    uint32_t exponent = b >> 3 & 15u, mantissa = b & 7u, sign = (uint32_t)(b & 0x80u) << 24;
    if ((b & 0x7Fu) == 0x7Fu) return plec_bits_f32(sign | 0x7FC00000u);
    if (exponent == 0u) {
        float magnitude = plec_mul((float)mantissa, 0.001953125f); /* m/8 * 2^-6 */
        return plec_bits_f32(sign | plec_f32_bits(magnitude));
    }
    return plec_bits_f32(sign | (exponent + 120u) << 23 | mantissa << 20);
}

/* E8M0 as LYRW reads it: 2^(b-127), but 0 is 0.0 and 255 is NaN. */
PLEC_HD float plec_e8m0_f32(uint8_t b) {
    if (b == 255u) return plec_bits_f32(0x7FC00000u);
    return plec_bits_f32((uint32_t)b << 23);
}

#endif
