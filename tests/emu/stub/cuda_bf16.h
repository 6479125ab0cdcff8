/* cuda_bf16.h: bfloat16, rounded to nearest even, in software. A subset of the toolkit's header of
 * this name, for the emulation. */
#ifndef PLEC_TESTS_EMU_STUB_CUDA_BF16_H
#define PLEC_TESTS_EMU_STUB_CUDA_BF16_H

#include "cuda_fp16.h"

static inline float plec_bf16_to_float(unsigned short bf16) {
    return plec_float_of((uint32_t)bf16 << 16);
}

static inline unsigned short plec_float_to_bf16(float value) {
    uint32_t bits = plec_bits_of(value);
    if ((bits & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

struct __nv_bfloat16_raw {
    unsigned short x;
};

struct __nv_bfloat16 {
    unsigned short x;
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw raw) : x(raw.x) {}
    explicit __nv_bfloat16(float value) : x(plec_float_to_bf16(value)) {}
    operator __nv_bfloat16_raw() const { return {x}; }
    operator float() const { return plec_bf16_to_float(x); }
};

struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};

static inline float __bfloat162float(__nv_bfloat16 b) {
    return plec_bf16_to_float(b.x);
}
static inline __nv_bfloat16 __float2bfloat16(float value) {
    return __nv_bfloat16(value);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float value) {
    return __nv_bfloat16(value);
}
static inline float __low2float(__nv_bfloat162 a) {
    return __bfloat162float(a.x);
}
static inline float __high2float(__nv_bfloat162 a) {
    return __bfloat162float(a.y);
}

static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __nv_bfloat162{a, b};
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
    return {__nv_bfloat16(a), __nv_bfloat16(b)};
}
static inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
    __nv_bfloat16_raw raw = {bits};
    return __nv_bfloat16(raw);
}
static inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 b) {
    return b.x;
}

/* One rounding but for a double's: products of bf16 are exact in double. */
static inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __nv_bfloat16(
        (float)((double)__bfloat162float(a) * __bfloat162float(b) + __bfloat162float(c)));
}
static inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return {__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y)};
}
static inline __nv_bfloat16 __hmul(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __nv_bfloat16(__bfloat162float(a) * __bfloat162float(b));
}
static inline __nv_bfloat16 __hadd(__nv_bfloat16 a, __nv_bfloat16 b) {
    return __nv_bfloat16(__bfloat162float(a) + __bfloat162float(b));
}
static inline __nv_bfloat162 __hmul2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {__hmul(a.x, b.x), __hmul(a.y, b.y)};
}
static inline __nv_bfloat162 __hadd2(__nv_bfloat162 a, __nv_bfloat162 b) {
    return {__hadd(a.x, b.x), __hadd(a.y, b.y)};
}

#endif
