#pragma once
#include <stdint.h>
#include <string.h>
// IEEE binary16 with round-to-nearest-even, in software
struct __half_raw {
    unsigned short x;
};
static inline float emu_h2f(unsigned short h) {
    unsigned s = (unsigned)(h & 0x8000) << 16, e = h >> 10 & 31, m = h & 1023, u;
    float f;
    if (e == 31)
        u = s | 0x7f800000 | m << 13;
    else if (e)
        u = s | (e + 112) << 23 | m << 13;
    else {
        f = (float)m * 5.9604644775390625e-8f;
        memcpy(&u, &f, 4);
        u |= s;
    }
    memcpy(&f, &u, 4);
    return f;
}
static inline unsigned short emu_f2h(float f) {
    unsigned u;
    memcpy(&u, &f, 4);
    unsigned s = u >> 16 & 0x8000, a = u & 0x7fffffff;
    if (a > 0x7f800000) return 0x7fff;
    if (a >= 0x477ff000) return (unsigned short)(s | 0x7c00);
    if (a < 0x38800000) {
        float g;
        memcpy(&g, &a, 4);
        g += 0.5f;
        unsigned v;
        memcpy(&v, &g, 4);
        return (unsigned short)(s | (v - 0x3f000000));
    } // subnormal: let the FPU round
    a += 0xfff + (a >> 13 & 1);
    return (unsigned short)(s | ((a >> 13) - (112 << 10)));
}
struct __half {
    unsigned short x;
    __half() = default;
    __half(__half_raw r) : x(r.x) {}
    explicit __half(float f) : x(emu_f2h(f)) {}
    operator __half_raw() const { return {x}; }
    operator float() const { return emu_h2f(x); }
};
struct alignas(4) __half2 {
    __half x, y;
};
typedef __half half;
typedef __half2 half2;
static inline float __half2float(__half h) {
    return emu_h2f(h.x);
}
static inline __half __float2half(float f) {
    return __half(f);
}
static inline __half __float2half_rn(float f) {
    return __half(f);
}
static inline __half2 __halves2half2(__half a, __half b) {
    __half2 r;
    r.x = a;
    r.y = b;
    return r;
}
static inline __half2 __floats2half2_rn(float a, float b) {
    return __halves2half2(__half(a), __half(b));
}
struct float2;
