/* few.cuh: fragments of the formats of two and three bits. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_FEW_H
#define PLEC_DEVICE_CUDA_FRAGMENT_FEW_H

#include "device/cuda/fragment/fragment.cuh"
#include "lyrw/codec/q2_k.h"
#include "lyrw/codec/q3_k.h"

/* Two bits of column k of 256: bits 2j of byte 32n + l. */
PLEC_HD uint32_t plec_fragment_two_bits(const uint8_t *qs, uint32_t k) {
    return qs[k / 128 * 32 + k % 32] >> 2 * (k / 32 % 4) & 3u;
}

/* A word is two blocks of 32. */
struct plec_fragment_q2_k : plec_fragment_defaults {
    typedef plec_fragment_inline<256, sizeof(struct plec_q2_k_block)> file;
    enum { block = 16, lane_words = 4, super_words = 1, has_minimum = 1, spread = 1 };
    /* Where pairs (0, 1) and (2, 3) of an even and an odd block begin in each half. */
    PLEC_HD uint32_t shift(uint32_t b, uint32_t p) { return 8 * (b & 1) + 2 * (p >> 1); }
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[b / 2] |= code << (shift(b, p) + 4 * (p & 1) + 16 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p++)
            out[p] = words[b / 2] >> shift(b, p) & (p & 1 ? 0x00300030u : 0x00030003u);
    }
    PLEC_HD const uint8_t *at(const plec_fragment_row &row, uint32_t k) {
        return row.blocks + (size_t)(k / 256) * 84;
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        return plec_fragment_two_bits(at(row, k) + 16, k % 256);
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < 4; i++)
            words[i] = plec_le32(at(row, k) + 4 * i);
    }
    PLEC_HD uint32_t super(const plec_fragment_row &row, uint32_t k) {
        return plec_le32(at(row, k) + 80);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t super, uint32_t s) {
        return plec_fragment_times_byte(plec_fragment_half(super, 0), record[s / 4] & 0x0F0F0F0Fu,
                                        s & 3, 0);
    }
    PLEC_HD float minimum(const uint32_t *record, uint32_t super, uint32_t s) {
        return plec_fragment_times_byte(-plec_fragment_half(super, 1),
                                        record[s / 4] >> 4 & 0x0F0F0F0Fu, s & 3, 0);
    }
};

/* Low two bits of two blocks of 32 in a word, third bits of four in another. */
struct plec_fragment_q3_k : plec_fragment_defaults {
    typedef plec_fragment_inline<256, sizeof(struct plec_q3_k_block)> file;
    enum { block = 16, lane_words = 6, super_words = 1, offset = 4 };
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[b / 2] |= (code & 3u) << (8 * (b & 1) + 2 * p + 16 * side);
        words[4 + b / 4] |= code >> 2 << (4 * (b & 3) + p + 16 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p++) {
            uint32_t at = 4 * (b & 3) + p, third = words[4 + b / 4];
            third = at < 2 ? third << (2 - at) : third >> (at - 2);
            out[p] = (words[b / 2] >> (8 * (b & 1) + 2 * p) & 0x00030003u) | (third & 0x00040004u);
        }
    }
    PLEC_HD const uint8_t *at(const plec_fragment_row &row, uint32_t k) {
        return row.blocks + (size_t)(k / 256) * 110;
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *block = at(row, k);
        uint32_t third = block[k % 32] >> (k % 256 / 128 * 4 + k / 32 % 4) & 1u;
        return plec_fragment_two_bits(block + 32, k % 256) | third << 2;
    }
    /* Each scale in a byte of its own, plus 32. */
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < 4; i++)
            words[i] = 0;
        for (uint32_t s = 0; s < 16; s++)
            words[s / 4] |= (uint32_t)(plec_q3_k_scale(at(row, k) + 96, (int)s) + 32)
                            << 8 * (s & 3);
    }
    PLEC_HD uint32_t super(const plec_fragment_row &row, uint32_t k) {
        return plec_le16(at(row, k) + 108);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t super, uint32_t s) {
        return plec_fragment_times_byte(plec_fragment_half(super, 0), record[s / 4], s & 3, 32);
    }
};

#endif
