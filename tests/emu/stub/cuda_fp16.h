/* cuda_fp16.h: IEEE binary16, rounded to nearest even, in software. A subset of the toolkit's
 * header of this name, for the emulation. */
#ifndef PLEC_TESTS_EMU_STUB_CUDA_FP16_H
#define PLEC_TESTS_EMU_STUB_CUDA_FP16_H

#include <stdint.h>
#include <string.h>

static inline float plec_float_of(uint32_t bits) {
    float value;
    memcpy(&value, &bits, 4);
    return value;
}

static inline uint32_t plec_bits_of(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return bits;
}

static inline float plec_half_to_float(unsigned short half) {
    uint32_t sign = (uint32_t)(half & 0x8000) << 16, exponent = half >> 10 & 31;
    uint32_t mantissa = half & 1023;
    if (exponent == 31) return plec_float_of(sign | 0x7f800000 | mantissa << 13);
    if (exponent) return plec_float_of(sign | (exponent + 112) << 23 | mantissa << 13);
    return plec_float_of(sign | plec_bits_of((float)mantissa * 5.9604644775390625e-8f));
}

static inline unsigned short plec_float_to_half(float value) {
    uint32_t bits = plec_bits_of(value), sign = bits >> 16 & 0x8000, size = bits & 0x7fffffff;
    if (size > 0x7f800000) return 0x7fff;
    if (size >= 0x477ff000) return (unsigned short)(sign | 0x7c00);
    if (size < 0x38800000) /* subnormal: added to 0.5, the last bit kept weighs 2^-24 */
        return (unsigned short)(sign | (plec_bits_of(plec_float_of(size) + 0.5f) - 0x3f000000));
    size += 0xfff + (size >> 13 & 1);
    return (unsigned short)(sign | ((size >> 13) - (112 << 10)));
}

struct __half_raw {
    unsigned short x;
};

struct __half {
    unsigned short x;
    __half() = default;
    __half(__half_raw raw) : x(raw.x) {}
    explicit __half(float value) : x(plec_float_to_half(value)) {}
    operator __half_raw() const { return {x}; }
    operator float() const { return plec_half_to_float(x); }
};

struct alignas(4) __half2 {
    __half x, y;
};

typedef __half half;
typedef __half2 half2;

static inline float __half2float(__half h) {
    return plec_half_to_float(h.x);
}
static inline __half __float2half(float value) {
    return __half(value);
}
static inline __half __float2half_rn(float value) {
    return __half(value);
}
static inline __half2 __halves2half2(__half a, __half b) {
    return __half2{a, b};
}
static inline __half2 __floats2half2_rn(float a, float b) {
    return {__half(a), __half(b)};
}
static inline float __low2float(__half2 a) {
    return __half2float(a.x);
}
static inline float __high2float(__half2 a) {
    return __half2float(a.y);
}

static inline __half __ushort_as_half(unsigned short bits) {
    __half_raw raw = {bits};
    return __half(raw);
}

static inline unsigned short __half_as_ushort(__half h) {
    return h.x;
}

/* One rounding: product and sum are exact enough in double. */
static inline __half __hfma(__half a, __half b, __half c) {
    return __half((float)((double)__half2float(a) * __half2float(b) + __half2float(c)));
}
static inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
static inline __half __hmul(__half a, __half b) {
    return __half(__half2float(a) * __half2float(b));
}
static inline __half __hadd(__half a, __half b) {
    return __half(__half2float(a) + __half2float(b));
}
static inline __half2 __hmul2(__half2 a, __half2 b) {
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
static inline __half2 __hadd2(__half2 a, __half2 b) {
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}

#endif
