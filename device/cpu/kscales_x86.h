/* kscales_x86.h: the scales and minima of a q4_k block as bytes, for the vector kernels. */
#ifndef PLEC_DEVICE_CPU_KSCALES_X86_H
#define PLEC_DEVICE_CPU_KSCALES_X86_H

#include <immintrin.h>
#include <string.h>

#include "device/cpu/vector.h"

/* Eight bytes of 0 to 63 each; lyrw/codec/kscales.h has the packing. */
struct plec_cpu_kscales {
    __m128i scales, minima;
};

PLEC_CPU_INLINE struct plec_cpu_kscales plec_cpu_kscales_load(const uint8_t *packed) {
    uint32_t s[3];
    memcpy(s, packed, sizeof s);
    uint32_t scale_low = s[0] & 0x3F3F3F3Fu, minimum_low = s[1] & 0x3F3F3F3Fu;
    uint32_t scale_high = (s[2] & 0x0F0F0F0Fu) | (s[0] >> 2 & 0x30303030u);
    uint32_t minimum_high = (s[2] >> 4 & 0x0F0F0F0Fu) | (s[1] >> 2 & 0x30303030u);
    struct plec_cpu_kscales out = {
        _mm_cvtsi64_si128((long long)((uint64_t)scale_high << 32 | scale_low)),
        _mm_cvtsi64_si128((long long)((uint64_t)minimum_high << 32 | minimum_low))};
    return out;
}

#endif
