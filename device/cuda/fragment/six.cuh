/* six.cuh: the fragment of q6_k. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_SIX_H
#define PLEC_DEVICE_CUDA_FRAGMENT_SIX_H

#include "device/cuda/fragment/fragment.cuh"
#include "lyrw/codec/q6_k.h"

/* Two blocks of 32 are three words: in each half of each word two codes at bits 0 and 6, and of the
 * four bits left over two more codes: their low bits in words 0 and 1, their high ones in word 2.
 */
struct plec_fragment_q6_k : plec_fragment_defaults {
    typedef plec_fragment_inline<256, sizeof(struct plec_q6_k_block)> file;
    enum { block = 16, lane_words = 12, super_words = 1, offset = 32 };
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        uint32_t *three = words + 3 * (b / 2), pair = 4 * (b & 1) + p;
        if (pair < 6) {
            three[pair / 2] |= code << (6 * (pair & 1) + 16 * side);
            return;
        }
        three[pair - 6] |= (code & 15u) << (12 + 16 * side);
        three[2] |= code >> 4 << (12 + 2 * (pair - 6) + 16 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        const uint32_t *three = words + 3 * (b / 2);
        if (b % 2 == 0) {
            out[0] = three[0] & 0x003F003Fu;
            out[1] = three[0] >> 6 & 0x003F003Fu;
            out[2] = three[1] & 0x003F003Fu;
            out[3] = three[1] >> 6 & 0x003F003Fu;
        } else {
            out[0] = three[2] & 0x003F003Fu;
            out[1] = three[2] >> 6 & 0x003F003Fu;
            out[2] = (three[0] >> 12 & 0x000F000Fu) | (three[2] >> 8 & 0x00300030u);
            out[3] = (three[1] >> 12 & 0x000F000Fu) | (three[2] >> 10 & 0x00300030u);
        }
    }
    PLEC_HD uint32_t code(const plec_fragment_row &row, uint32_t k) {
        const uint8_t *b = row.blocks + (size_t)(k / 256) * 210;
        uint32_t n = k % 256 / 128, quarter = k / 32 % 4, l = k % 32;
        uint32_t low = b[64 * n + 32 * (quarter % 2) + l] >> 4 * (quarter / 2) & 15u;
        return low | (b[128 + 32 * n + l] >> 2 * quarter & 3u) << 4;
    }
    PLEC_HD void record(uint32_t *words, const plec_fragment_row &row, uint32_t k) {
        for (uint32_t i = 0; i < 4; i++)
            words[i] = plec_le32(row.blocks + (size_t)(k / 256) * 210 + 192 + 4 * i) ^ 0x80808080u;
    }
    PLEC_HD uint32_t super(const plec_fragment_row &row, uint32_t k) {
        return plec_le16(row.blocks + (size_t)(k / 256) * 210 + 208);
    }
    PLEC_HD float scale(const uint32_t *record, uint32_t super, uint32_t s) {
        return plec_fragment_times_byte(plec_fragment_half(super, 0), record[s / 4], s & 3, 128);
    }
};

#endif
