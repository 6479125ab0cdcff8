/* codebook.cuh: fragments of the formats whose four bits choose among sixteen unequal steps. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_CODEBOOK_H
#define PLEC_DEVICE_CUDA_FRAGMENT_CODEBOOK_H

#include "device/cuda/fragment/nibble.cuh"
#include "lyrw/codec/iq4_nl.h"
#include "lyrw/codec/iq4_xs.h"

/* The steps plus 128 are bytes: two tables of eight are looked up for four codes at once, and a
 * code's upper bit chooses between the two. */
struct plec_fragment_iq4 : plec_fragment_defaults {
    enum { offset = 128, n_table = 4 };
    PLEC_HD void table(uint32_t *words) {
        words[0] = 0x3F2D1801u;
        words[1] = 0x766A5D4Fu;
        words[2] = 0xA6998D81u;
        words[3] = 0xF1D9C5B5u;
    }
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[b] |= code << (8 * p + 4 * side);
    }
    PLEC_HD uint32_t look_up(const uint32_t *table, uint32_t index, uint32_t chooser) {
        uint32_t low = plec_permute(table[0], table[1], index);
        uint32_t high = plec_permute(table[2], table[3], index);
        return plec_permute(low, high, chooser);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *table) {
        uint32_t index = words[b] & 0x77777777u;
        uint32_t chooser = (words[b] >> 1 & 0x44444444u) | 0x32103210u;
        uint32_t first = look_up(table, index, chooser),
                 second = look_up(table, index >> 16, chooser >> 16);
        out[0] = plec_permute(first, 0, 0x4140u);
        out[1] = plec_permute(first, 0, 0x4342u);
        out[2] = plec_permute(second, 0, 0x4140u);
        out[3] = plec_permute(second, 0, 0x4342u);
    }
};

struct plec_fragment_iq4_nl : plec_fragment_iq4 {
    typedef plec_fragment_inline<32, sizeof(struct plec_iq4_nl_block)> file;
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

struct plec_fragment_iq4_xs : plec_fragment_iq4 {
    typedef plec_fragment_inline<256, sizeof(struct plec_iq4_xs_block)> file;
    enum { record_words = 2, super_words = 1 };
    PLEC_HD const uint8_t *at(const plec_fragment_row &row, uint32_t k) {
        return row.blocks + (size_t)(k / 256) * 136;
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_split_nibble(at(row, k) + 8 + k % 256 / 32 * 16, k % 32);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        const uint8_t *block = at(row, k);
        uint32_t high = plec_le16(block + 2);
        words[0] = words[1] = 0;
        for (uint32_t s = 0; s < 8; s++) {
            uint32_t low = block[4 + s / 2] >> 4 * (s & 1) & 15u;
            words[s / 4] |= (low | (high >> 2 * s & 3u) << 4) << 8 * (s & 3);
        }
    }
    PLEC_HD uint32_t super(const plec_fragment_row &row, uint32_t k) {
        return plec_le16(at(row, k));
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t super, uint32_t s) {
        return plec_fragment_times_byte(plec_fragment_half(super, 0), record[s / 4], s & 3, 32);
    }
};

#endif
