/* e2m1.cuh: fragments of the formats of E2M1 codes: three of LYRW, two of GGUF. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_E2M1_H
#define PLEC_DEVICE_CUDA_FRAGMENT_E2M1_H

#include "device/cuda/fragment/eight.cuh"
#include "lyrw/codec/fp4_larql.h"
#include "lyrw/codec/gguf_mxfp4.h"
#include "lyrw/codec/gguf_nvfp4.h"
#include "lyrw/codec/mxfp4.h"
#include "lyrw/codec/nvfp4.h"

/* A code's magnitude is looked up as the whole number 2v, its sign moves into the upper byte. */
struct plec_fragment_e2m1 : plec_fragment_defaults {
    enum { unit = 132 - token_shift, n_table = 2 };
    PLEC_HD void table(uint32_t *words) {
        words[0] = 0x03020100u;
        words[1] = 0x0C080604u;
    }
    /* Nibbles 0-3 make pairs (0, 2), (1, 3), nibbles 4-7 likewise. */
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[b] |= code << (16 * (p >> 1) + 4 * (p & 1) + 8 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *table) {
        uint32_t word = words[b], magnitudes = word & 0x77777777u;
        uint32_t odd = word & 0x80808080u, even = word << 4 & 0x80808080u;
        uint32_t first = plec_permute(table[0], table[1], magnitudes);
        uint32_t second = plec_permute(table[0], table[1], magnitudes >> 16);
        out[0] = plec_permute(first, even, 0x5240u);
        out[1] = plec_permute(first, odd, 0x5341u);
        out[2] = plec_permute(second, even, 0x7260u);
        out[3] = plec_permute(second, odd, 0x7361u);
    }
    /* Eight nibbles in the order of their columns. */
    PLEC_HD uint32_t in_order(uint32_t word) {
        uint32_t differ = (word ^ word >> 4) & 0x00F000F0u; /* nibbles 1 and 2, 5 and 6 change */
        return word ^ differ ^ differ << 4;
    }
    PLEC_HD uint32_t nibble(const uint8_t *codes, uint32_t k) {
        return codes[k / 2] >> 4 * (k % 2) & 15u;
    }
    /* Whether one of 32 nibbles times 2^(e - 127) is more than an f32 holds: 4 and 6 where e is
     * 253, 2 and 3 as well where it is 254, and where it is 255, 1 and 1.5. */
    PLEC_HD bool is_infinite(const uint8_t *codes, uint32_t e) {
        for (uint32_t i = 0; i < 32 && e >= 253u; i++)
            if ((nibble(codes, i) & 7u) >= 2u * (256u - e)) return true;
        return false;
    }
};

struct plec_fragment_mxfp4 : plec_fragment_e2m1 {
    typedef plec_fragment_paired<32, sizeof(struct plec_mxfp4_block)> file;
    enum { packs = 1, record_words = 2 };
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        words[b] = in_order(plec_le32(row.blocks + k / 2 + 16 * b + 4 * c));
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return nibble(row.blocks, k);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        plec_fragment_e8m0_record(words, record_words, row, k);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_exponent(record[s / 4], s & 3);
    }
    PLEC_HD bool has_nan(const plec_fragment_row &row, uint32_t first, uint32_t stride) {
        for (uint32_t s = first; s < row.n_cols / 32; s += stride)
            if (row.scales[s] == 255u || is_infinite(row.blocks + 16 * (size_t)s, row.scales[s]))
                return true;
        return false;
    }
};

/* A block's scale byte comes first. 0 is 2^-127, an f32 subnormal; 255 is 2^128, which no f32
 * holds: its codes are doubled under 254 instead, where 1 is the one that stays finite. */
struct plec_fragment_gguf_mxfp4 : plec_fragment_e2m1 {
    typedef plec_fragment_inline<32, sizeof(struct plec_gguf_mxfp4_block)> file;
    enum { packs = 1, record_words = 2 };
    PLEC_HD const uint8_t *at(const plec_fragment_row &row, uint32_t k) {
        return row.blocks + (size_t)(k / 32) * 17;
    }
    /* 0 .5 1 1.5 2 3 4 6 twice as large, at most 6: there all but 0 and 1 are infinite. */
    PLEC_HD uint32_t doubled(uint32_t code) {
        return (code & 8u) | (0x77765420u >> 4 * (code & 7u) & 15u);
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *block = at(row, k);
        uint32_t code = plec_fragment_split_nibble(block + 1, k % 32);
        return block[0] == 255u ? doubled(code) : code;
    }
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        const uint8_t *block = at(row, k + 32 * b), *from = block + 1 + 8 * (c & 1u);
        uint32_t shift = 4 * (c >> 1), first = plec_le32(from) >> shift & 0x0F0F0F0Fu,
                 second = plec_le32(from + 4) >> shift & 0x0F0F0F0Fu;
        words[b] = plec_permute(first | first >> 12, second | second >> 12, 0x5410u);
        if (block[0] != 255u) return;
        uint32_t word = 0;
        for (uint32_t i = 0; i < 8; i++)
            word |= doubled(words[b] >> 4 * i & 15u) << 4 * i;
        words[b] = word;
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = 0;
        for (uint32_t s = 0; s < 8 && k / 32 + s < row.n_cols / 32; s++) {
            uint32_t e = at(row, k + 32 * s)[0];
            words[s / 4] |= (e == 255u ? 254u : e) << 8 * (s & 3);
        }
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        uint32_t bits = plec_f32_bits(plec_fragment_exponent(record[s / 4], s & 3));
        return plec_bits_f32(bits > 0x00400000u ? bits : 0x00400000u);
    }
    PLEC_HD bool has_nan(const plec_fragment_row &row, uint32_t first, uint32_t stride) {
        for (uint32_t s = first; s < row.n_cols / 32; s += stride) {
            const uint8_t *block = at(row, 32 * s);
            if (is_infinite(block + 1, block[0])) return true;
        }
        return false;
    }
};

/* The scale's sign goes to its codes, a zero scale makes them zero. */
PLEC_HD uint32_t plec_fragment_scaled_code(uint32_t code, uint8_t scale) {
    if ((scale & 0x7Fu) == 0u || plec_fragment_e4m3_is_nan(scale)) return 0;
    return code ^ (scale >> 7 << 3);
}

struct plec_fragment_nvfp4 : plec_fragment_e2m1 {
    typedef plec_fragment_trailing<16, sizeof(struct plec_nvfp4_block)> file;
    enum { block = 16, unit = plec_fragment_e2m1::unit + 16 };
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_scaled_code(nibble(row.blocks, k), row.scales[k / 16]);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = 0;
        for (uint32_t s = k / 16; s < row.n_cols / 16 && s < k / 16 + 16; s++)
            words[(s - k / 16) / 4] |= (plec_fragment_e5m3(row.scales[s]) & 255u) << 8 * (s & 3);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_e5m3_value(record[s / 4], s & 3);
    }
    PLEC_HD float row_scale(const plec_fragment_row &row) { return row.tensor_scale; }
    PLEC_HD bool has_nan(const plec_fragment_row &row, uint32_t first, uint32_t stride) {
        bool large = !plec_fragment_is_number(plec_mul(row.tensor_scale, 448.0f * 6.0f));
        for (uint32_t s = first; s < row.n_cols / 16; s += stride) {
            if (plec_fragment_e4m3_is_nan(row.scales[s])) return true;
            float scale = plec_mul(row.tensor_scale, plec_e4m3_f32(row.scales[s]));
            for (uint32_t k = 16 * s; k < 16 * s + 16 && large; k++)
                if (!plec_fragment_is_number(plec_mul(scale, plec_e2m1_f32(nibble(row.blocks, k)))))
                    return true;
        }
        return false;
    }
};

/* Blocks of 64, four scale bytes first, whose values GGUF takes without a sign and never for NaN.
 */
struct plec_fragment_gguf_nvfp4 : plec_fragment_e2m1 {
    typedef plec_fragment_inline<64, sizeof(struct plec_gguf_nvfp4_block)> file;
    enum { block = 16, unit = plec_fragment_e2m1::unit + 16 };
    PLEC_HD const uint8_t *at(const plec_fragment_row &row, uint32_t k) {
        return row.blocks + (size_t)(k / 64) * 36;
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *block = at(row, k);
        uint32_t g = k % 64 / 16, r = k % 16;
        if (plec_gguf_ue4m3_half(block[g]) == 0.0f) return 0;
        return block[4 + 8 * g + r % 8] >> 4 * (r / 8) & 15u;
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = 0;
        for (uint32_t s = k / 16; s < row.n_cols / 16 && s < k / 16 + 16; s++) {
            float scale = plec_mul(plec_gguf_ue4m3_half(at(row, 16 * s)[s % 4]), 2.0f);
            words[(s - k / 16) / 4] |= (plec_fragment_e5m3_of(scale) & 255u) << 8 * (s & 3);
        }
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_e5m3_value(record[s / 4], s & 3);
    }
};

struct plec_fragment_fp4_larql : plec_fragment_e2m1 {
    typedef plec_fragment_inline<256, sizeof(struct plec_fp4_larql_block)> file;
    enum { record_words = 2, super_words = 1, widest = 32, unit = plec_fragment_e2m1::unit + 16 };
    PLEC_HD const uint8_t *at(const plec_fragment_row &row, uint32_t k) {
        return row.blocks + (size_t)(k / 256) * 137;
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *block = at(row, k);
        return plec_fragment_scaled_code(nibble(block, k % 256), block[128 + k % 256 / 32]);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        const uint8_t *scales = at(row, k) + 128;
        words[0] = words[1] = 0;
        for (uint32_t s = 0; s < 8; s++)
            words[s / 4] |= (plec_fragment_e5m3(scales[s]) & 255u) << 8 * (s & 3);
    }
    PLEC_HD uint32_t super(const plec_fragment_row &row, uint32_t k) {
        return plec_f32_bits(plec_div(plec_e4m3_f32(at(row, k)[136]), 6.0f));
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t super, uint32_t s) {
        return plec_mul(plec_fragment_e5m3_value(record[s / 4], s & 3), plec_bits_f32(super));
    }
    /* A block scale of 0 makes its weights 0, whatever the sub-scales are. */
    PLEC_HD bool has_nan(const plec_fragment_row &row, uint32_t first, uint32_t stride) {
        for (uint32_t s = first; s < row.n_cols / 32; s += stride) {
            const uint8_t *scales = at(row, 32 * s) + 128;
            bool is_nan = plec_fragment_e4m3_is_nan(scales[s % 8]);
            if (is_nan && (scales[8] & 0x7Fu) != 0u) return true;
        }
        return false; /* a NaN block scale stays one by itself */
    }
};

#endif
