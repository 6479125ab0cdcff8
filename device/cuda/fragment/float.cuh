/* float.cuh: fragments of bf16, which enters as it is, and of f16, which enters as the sum of two
 * bf16: eight leading bits and what is left of the eleven, exact. An infinite f16 gives NaN. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_FLOAT_H
#define PLEC_DEVICE_CUDA_FRAGMENT_FLOAT_H

#include "device/cuda/fragment/fragment.cuh"
#include "lyrw/codec/bf16.h"
#include "lyrw/codec/f16.h"

/* Sixteen bits a code, four words a block; no scales. */
struct plec_fragment_sixteens : plec_fragment_defaults {
    enum { packs = 1, k_step = 64, block = k_step, record_words = 0, token_shift = 0, unit = 0 };
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        const uint8_t *from = row.blocks + ((size_t)k + 32 * b + 8 * c) * 2;
        for (uint32_t p = 0; p < 4; p++)
            words[4 * b + p] = plec_le32(from + 4 * p);
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_le16(row.blocks + (size_t)k * 2);
    }
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[4 * b + p] |= code << 16 * side;
    }
    PLEC_HD void record(uint32_t *, const plec_fragment_row &, uint32_t) {}
    PLEC_HD float scale(const uint32_t *, uint32_t, uint32_t) { return 1.0f; }
};

struct plec_fragment_bf16 : plec_fragment_sixteens {
    typedef plec_fragment_inline<1, sizeof(struct plec_bf16_block)> file;
    enum { swizzled = 1 };
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p++)
            out[p] = words[4 * b + p];
    }
};

struct plec_fragment_f16 : plec_fragment_sixteens {
    typedef plec_fragment_inline<1, sizeof(struct plec_f16_block)> file;
    enum { parts = 2 };
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p++) {
            uint32_t word = words[4 * b + p];
            out[p] = plec_permute(plec_f32_bits(plec_fragment_half(word, 0)),
                                  plec_f32_bits(plec_fragment_half(word, 1)), 0x7632u);
        }
    }
    /* What pairs leaves of one value. */
    PLEC_HD uint32_t rest(uint32_t word, uint32_t side) {
        float value = plec_fragment_half(word, side);
        float head = plec_bits_f32(plec_f32_bits(value) & 0xFFFF0000u);
        return plec_f32_bits(plec_sub(value, head));
    }
    PLEC_HD void rests(uint32_t out[4], const uint32_t *words, uint32_t b) {
        for (uint32_t p = 0; p < 4; p++)
            out[p] = plec_permute(rest(words[4 * b + p], 0), rest(words[4 * b + p], 1), 0x7632u);
    }
};

#endif
