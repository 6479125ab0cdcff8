/* nibble.cuh: fragments of the formats whose codes are four bits and mean themselves. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_NIBBLE_H
#define PLEC_DEVICE_CUDA_FRAGMENT_NIBBLE_H

#include "device/cuda/fragment/fragment.cuh"
#include "lyrw/codec/q4_0.h"
#include "lyrw/codec/q4_1.h"
#include "lyrw/codec/q4_k.h"

/* Nibble i of 32 whose low nibbles are elements 0-15 and high ones 16-31. */
PLEC_HD uint32_t plec_fragment_split_nibble(const uint8_t *qs, uint32_t i) {
    return qs[i & 15u] >> 4 * (i >> 4) & 15u;
}
/* The eight codes of lane c of 32 such nibbles. */
PLEC_HD uint32_t plec_fragment_split_word(const uint8_t *qs, uint32_t c) {
    const uint8_t *from = qs + 8 * (c & 1u);
    uint32_t shift = 4 * (c >> 1);
    return plec_fragment_interleave(plec_le32(from) >> shift & 0x0F0F0F0Fu,
                                    plec_le32(from + 4) >> shift & 0x0F0F0F0Fu);
}
/* Word i of the record made of one f16 a block; 0 past the row's end. */
PLEC_HD uint32_t plec_fragment_f16_word(const uint8_t *blocks, size_t block_bytes, uint32_t first,
                                        uint32_t n_blocks, uint32_t i) {
    uint32_t at = first + 2 * i;
    uint32_t low = at < n_blocks ? plec_le16(blocks + at * block_bytes) : 0;
    return low | (at + 1 < n_blocks ? (uint32_t)plec_le16(blocks + (at + 1) * block_bytes) : 0)
                     << 16;
}

struct plec_fragment_q4_0 : plec_fragment_nibbles {
    typedef plec_fragment_inline<32, sizeof(struct plec_q4_0_block)> file;
    enum { packs = 1, offset = 8 };
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        words[b] = plec_fragment_split_word(row.blocks + (size_t)(k / 32 + b) * 18 + 2, c);
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_split_nibble(row.blocks + (size_t)(k / 32) * 18 + 2, k % 32);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = plec_fragment_f16_word(row.blocks, 18, k / 32, row.n_cols / 32, i);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s / 2], s & 1);
    }
};

struct plec_fragment_q4_1 : plec_fragment_nibbles {
    typedef plec_fragment_inline<32, sizeof(struct plec_q4_1_block)> file;
    enum { packs = 1, record_words = 8, has_minimum = 1 };
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        words[b] = plec_fragment_split_word(row.blocks + (size_t)(k / 32 + b) * 20 + 4, c);
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_split_nibble(row.blocks + (size_t)(k / 32) * 20 + 4, k % 32);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < record_words; i++)
            words[i] = k / 32 + i < row.n_cols / 32
                           ? plec_le32(row.blocks + (size_t)(k / 32 + i) * 20)
                           : 0;
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s], 0);
    }
    PLEC_HD float minimum(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_half(record[s], 1);
    }
};

/* d, dmin and the twelve bytes of kscales.h, as the file has them: q4_k and q5_k. */
struct plec_fragment_k_scales {
    /* Scales (from: bits of the low six) of sub-blocks 0-3 or 4-7, a byte each. */
    PLEC_HD uint32_t scales(const uint32_t *record, uint32_t upper) {
        return upper ? (record[3] & 0x0F0F0F0Fu) | (record[1] >> 2 & 0x30303030u)
                     : record[1] & 0x3F3F3F3Fu;
    }
    PLEC_HD uint32_t minima(const uint32_t *record, uint32_t upper) {
        return upper ? (record[3] >> 4 & 0x0F0F0F0Fu) | (record[2] >> 2 & 0x30303030u)
                     : record[2] & 0x3F3F3F3Fu;
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t s) {
        return plec_fragment_times_byte(plec_fragment_half(record[0], 0), scales(record, s >> 2),
                                        s & 3, 0);
    }
    PLEC_HD float minimum(const uint32_t *record, uint32_t s) {
        return plec_fragment_times_byte(-plec_fragment_half(record[0], 1), minima(record, s >> 2),
                                        s & 3, 0);
    }
    PLEC_HD void record(uint32_t *words, const uint8_t *block) {
        for (uint32_t i = 0; i < 4; i++)
            words[i] = plec_le32(block + 4 * i);
    }
};

struct plec_fragment_q4_k : plec_fragment_nibbles {
    typedef plec_fragment_inline<256, sizeof(struct plec_q4_k_block)> file;
    enum { packs = 1, has_minimum = 1 };
    PLEC_HD void pack(uint32_t *words, const plec_fragment_row &row, uint32_t k, uint32_t b,
                      uint32_t c) {
        const uint8_t *from = row.blocks + (size_t)(k / 256) * 144 + 16 + b / 2 * 32 + 8 * c;
        uint32_t shift = 4 * (b % 2);
        words[b] = plec_fragment_interleave(plec_le32(from) >> shift & 0x0F0F0F0Fu,
                                            plec_le32(from + 4) >> shift & 0x0F0F0F0Fu);
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *qs = row.blocks + (size_t)(k / 256) * 144 + 16;
        return qs[k % 256 / 64 * 32 + k % 32] >> 4 * (k / 32 % 2) & 15u;
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        plec_fragment_k_scales::record(words, row.blocks + (size_t)(k / 256) * 144);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_k_scales::scale(record, s);
    }
    PLEC_HD float minimum(const uint32_t *record, uint32_t, uint32_t s) {
        return plec_fragment_k_scales::minimum(record, s);
    }
};

#endif
