/* numbers.h: 16-bit floats as bits. */
#ifndef PLEC_TESTS_EMU_NUMBERS_H
#define PLEC_TESTS_EMU_NUMBERS_H

#include <cuda_fp16.h>

namespace plec_emu {

inline float bf16_to_float(unsigned bits) {
    unsigned wide = bits << 16;
    float value;
    __builtin_memcpy(&value, &wide, 4);
    return value;
}

inline float half_to_float(unsigned bits) {
    return plec_half_to_float((unsigned short)bits);
}

} // namespace plec_emu

#endif
