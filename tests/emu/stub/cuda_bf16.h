#pragma once
#include "cuda_fp16.h"
struct __nv_bfloat16_raw {
    unsigned short x;
};
static inline float emu_b2f(unsigned short h) {
    unsigned u = (unsigned)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned short emu_f2b(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffff) > 0x7f800000) return 0x7fff;
    return (unsigned short)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}
struct __nv_bfloat16 {
    unsigned short x;
    __nv_bfloat16() = default;
    __nv_bfloat16(__nv_bfloat16_raw r) : x(r.x) {}
    explicit __nv_bfloat16(float f) : x(emu_f2b(f)) {}
    operator float() const { return emu_b2f(x); }
};
struct alignas(4) __nv_bfloat162 {
    __nv_bfloat16 x, y;
};
static inline float __bfloat162float(__nv_bfloat16 h) {
    return emu_b2f(h.x);
}
static inline __nv_bfloat16 __float2bfloat16(float f) {
    return __nv_bfloat16(f);
}
static inline __nv_bfloat16 __float2bfloat16_rn(float f) {
    return __nv_bfloat16(f);
}
static inline __nv_bfloat162 __halves2bfloat162(__nv_bfloat16 a, __nv_bfloat16 b) {
    __nv_bfloat162 r;
    r.x = a;
    r.y = b;
    return r;
}
static inline __nv_bfloat162 __floats2bfloat162_rn(float a, float b) {
    return __halves2bfloat162(__nv_bfloat16(a), __nv_bfloat16(b));
}
