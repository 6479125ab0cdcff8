/* eight.cuh: fragments of the formats of eight bits. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_EIGHT_H
#define PLEC_DEVICE_CUDA_FRAGMENT_EIGHT_H

#include "device/cuda/fragment/nibble.cuh"
#include "lyrw/codec/mxfp8.h"
#include "lyrw/codec/q8_0.h"

struct plec_fragment_q8_0 : plec_fragment_bytes {
    typedef plec_fragment_inline<32, sizeof(struct plec_q8_0_block)> file;
    enum { packs = 1, offset = 128 };
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        const uint8_t *from = row.blocks + (size_t)(k / 32 + b) * 34 + 2 + 8 * c;
        words[2 * b] = plec_le32(from) ^ 0x80808080u;
        words[2 * b + 1] = plec_le32(from + 4) ^ 0x80808080u;
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return row.blocks[(size_t)(k / 32) * 34 + 2 + k % 32] ^ 0x80u;
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = plec_fragment_f16_word(row.blocks, 34, k / 32, row.n_cols / 32, i);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s / 2], s & 1);
    }
};

/* One E8M0 byte a block, a record of k_step / 32 of them; NaN bytes become the row's scale. */
PLEC_HD void plec_fragment_e8m0_record(uint32_t *words, uint32_t n_words,
                                       const plec_fragment_row &row, uint32_t k) {
    for (uint32_t i = 0; i < n_words; i++)
        words[i] = 0;
    for (uint32_t s = k / 32; s < row.n_cols / 32 && s < k / 32 + 4 * n_words; s++)
        words[(s - k / 32) / 4] |= (row.scales[s] == 255u ? 0u : row.scales[s]) << 8 * (s & 3);
}

/* E4M3 codes: sign at bit 15, exponent and mantissa at bits 10-4 of a bf16 is the value times
 * 2^-120, subnormals included. */
struct plec_fragment_mxfp8 : plec_fragment_bytes {
    typedef plec_fragment_paired<32, sizeof(struct plec_mxfp8_block)> file;
    enum { packs = 1, record_words = 1, unit = 120 - token_shift };
    /* NaN codes stay what they are: the row's factor is NaN. */
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        const uint8_t *from = row.blocks + k + 32 * b + 8 * c;
        words[2 * b] = plec_permute(plec_le32(from), 0, 0x3120u);
        words[2 * b + 1] = plec_permute(plec_le32(from + 4), 0, 0x3120u);
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        uint8_t code = row.blocks[k];
        return plec_fragment_e4m3_is_nan(code) ? 0u : code;
    }
    /* Pairs (0, 1) of a word: bytes (0, 2) and (1, 3). */
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[2 * b + p / 2] |= code << (8 * (p & 1) + 16 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p += 2) {
            uint32_t word = words[2 * b + p / 2];
            out[p] = (word << 8 & 0x80008000u) | (word << 4 & 0x07F007F0u);
            out[p + 1] = (word & 0x80008000u) | (word >> 4 & 0x07F007F0u);
        }
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        plec_fragment_e8m0_record(words, record_words, row, k);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_exponent(record[0], s);
    }
    PLEC_HD bool has_nan(const plec_fragment_row &row, uint32_t first, uint32_t stride) {
        for (uint32_t k = first; k < row.n_cols; k += stride) {
            if (plec_fragment_e4m3_is_nan(row.blocks[k])) return true;
            if (row.scales[k / 32] < 247u) continue; /* 448 times it is an f32 */
            float scale = plec_e8m0_f32(row.scales[k / 32]);
            if (!plec_fragment_is_number(plec_mul(plec_e4m3_f32(row.blocks[k]), scale)))
                return true;
        }
        return false;
    }
};

#endif
