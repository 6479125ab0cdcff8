/* vector_types.h: small vectors and dim3, C++ only. A subset of the toolkit's header of this name,
 * for the emulation. */
#ifndef PLEC_TESTS_EMU_STUB_VECTOR_TYPES_H
#define PLEC_TESTS_EMU_STUB_VECTOR_TYPES_H

#define PLEC_VECTORS(type, name, alignment)                                                        \
    struct alignas(alignment) name##2 {                                                            \
        type x, y;                                                                                 \
    };                                                                                             \
    struct name##3 {                                                                               \
        type x, y, z;                                                                              \
    };                                                                                             \
    struct alignas(2 * alignment) name##4 {                                                        \
        type x, y, z, w;                                                                           \
    };                                                                                             \
    static inline name##2 make_##name##2(type x, type y) {                                         \
        return name##2 {x, y};                                                                     \
    }                                                                                              \
    static inline name##4 make_##name##4(type x, type y, type z, type w) {                         \
        return name##4 {x, y, z, w};                                                               \
    }
PLEC_VECTORS(signed char, char, 2)
PLEC_VECTORS(unsigned char, uchar, 2)
PLEC_VECTORS(short, short, 4)
PLEC_VECTORS(unsigned short, ushort, 4)
PLEC_VECTORS(int, int, 8)
PLEC_VECTORS(unsigned, uint, 8)
PLEC_VECTORS(float, float, 8)
#undef PLEC_VECTORS

struct alignas(16) double2 {
    double x, y;
};

struct dim3 {
    unsigned x, y, z;
    constexpr dim3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}
};

#endif
