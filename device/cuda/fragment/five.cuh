/* five.cuh: fragments of the formats of five bits. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_FIVE_H
#define PLEC_DEVICE_CUDA_FRAGMENT_FIVE_H

#include "device/cuda/fragment/nibble.cuh"
#include "lyrw/codec/q5_0.h"
#include "lyrw/codec/q5_1.h"
#include "lyrw/codec/q5_k.h"

/* A block's fifth bits as one number, bit i of value i, then its split nibbles. */
PLEC_HD uint32_t plec_fragment_five(const uint8_t *qh, uint32_t i) {
    return plec_fragment_split_nibble(qh + 4, i) | (plec_le32(qh) >> i & 1u) << 4;
}

struct plec_fragment_q5_0 : plec_fragment_fives {
    typedef plec_fragment_inline<32, sizeof(struct plec_q5_0_block)> file;
    enum { offset = 16 };
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_five(row.blocks + (size_t)(k / 32) * 22 + 2, k % 32);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = plec_fragment_f16_word(row.blocks, 22, k / 32, row.n_cols / 32, i);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s / 2], s & 1);
    }
};

struct plec_fragment_q5_1 : plec_fragment_fives {
    typedef plec_fragment_inline<32, sizeof(struct plec_q5_1_block)> file;
    enum { record_words = 8, has_minimum = 1 };
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_five(row.blocks + (size_t)(k / 32) * 24 + 4, k % 32);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = k / 32 + i < row.n_cols / 32
                           ? plec_le32(row.blocks + (size_t)(k / 32 + i) * 24)
                           : 0;
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s], 0);
    }
    PLEC_HD float minimum(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s], 1);
    }
};

struct plec_fragment_q5_k : plec_fragment_fives {
    typedef plec_fragment_inline<256, sizeof(struct plec_q5_k_block)> file;
    enum { has_minimum = 1 };
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *block = row.blocks + (size_t)(k / 256) * 176;
        uint32_t g = k % 256 / 32, l = k % 32;
        return (block[48 + g / 2 * 32 + l] >> 4 * (g % 2) & 15u) | (block[16 + l] >> g & 1u) << 4;
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        plec_fragment_k_scales::record(words, row.blocks + (size_t)(k / 256) * 176);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_k_scales::scale(record, s);
    }
    PLEC_HD float minimum(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_k_scales::minimum(record, s);
    }
};

#endif
