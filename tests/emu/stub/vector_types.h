#pragma once
#define PLEC_EMU_V(T, n, al)                                                                       \
    struct alignas(al) n##2 {                                                                      \
        T x, y;                                                                                    \
    };                                                                                             \
    struct alignas(al * 2) n##4 {                                                                  \
        T x, y, z, w;                                                                              \
    };                                                                                             \
    struct n##3 {                                                                                  \
        T x, y, z;                                                                                 \
    };                                                                                             \
    static inline n##2 make_##n##2(T x, T y) {                                                     \
        return n##2 {x, y};                                                                        \
    }                                                                                              \
    static inline n##4 make_##n##4(T x, T y, T z, T w) {                                           \
        return n##4 {x, y, z, w};                                                                  \
    }
PLEC_EMU_V(float, float, 8)
PLEC_EMU_V(int, int, 8)
PLEC_EMU_V(unsigned, uint, 8)
PLEC_EMU_V(short, short, 4)
PLEC_EMU_V(unsigned short, ushort, 4) PLEC_EMU_V(signed char, char, 2)
    PLEC_EMU_V(unsigned char, uchar, 2) struct alignas(16) double2 {
    double x, y;
};
struct dim3 {
    unsigned x, y, z;
    dim3(unsigned a = 1, unsigned b = 1, unsigned c = 1) : x(a), y(b), z(c) {}
};
