/* fragment.cuh: how the weights of a format enter a tensor-core product, in words of the device.
 *
 * The kernels multiply with mma.m16n8k16: weights are operand A, tokens operand B. A format's codes
 * enter as whole numbers n in the low byte of a bf16: exponent 0 or 1, so that every n from 0 to
 * 255 stands for n * 2^-133 exactly, with no arithmetic at all. Tokens enter times 2^64. What the
 * codes mean is put right on the f32 sums, block by block: times the block's scale, with what is
 * due to an offset or a minimum from the sum of the block's tokens.
 *
 * Lanes. A block of 32 columns is two MMA steps; lane c of a quad (lane % 4) holds 8 of them for a
 * row, as four pairs: pairs 0 and 1 are A registers a0, a2 (a1, a3 for row g + 8) of the first
 * step, pairs 2 and 3 of the second. Pair p is elements plec_fragment_column(c, 2p) and (c, 2p + 1)
 * of the block, low half first. With blocks of 16 each step is one block.
 *
 * A format is a struct of constants and functions, the same lines on host and device:
 *
 *   k_step        columns a kernel's step takes: 64, 128 or 256
 *   block         columns under one scale: 16, 32, or k_step when there is none
 *   lane_words    words of codes a lane holds of one row and step
 *   record_words  words of scales of one row and step
 *   super_words   1: one more word, of what a record's scales have in common; else 0
 *   offset        what is taken from every code
 *   has_minimum   the format adds a number of its own to every weight of a block
 *   spread        odd pairs come out 16 times too large; their tokens enter 16 times smaller
 *   parts         MMA operands that add up to a weight: 1, or 2 for f16
 *   swizzled      planes are rows of 64 codes of 16 bits, as wgmma reads them (planes.cuh)
 *   widest        rows of the largest tiles: 64, or 32 where an architecture has too few registers
 *   token_shift   tokens enter times 2^this
 *   unit          the sums must be multiplied by 2^this
 *   file          where a row lies in the file's layout
 *
 *   pack(words, row, k, b, c)       lane c's codes of block b of the step from column k on, put
 *                                   where pairs finds them; the block is whole
 *   code(row, k)                    the code of column k of a row in file layout
 *   put(words, b, p, side, code)    where it stands among a lane's words
 *   record(words, row, k)           the scales of columns k .. k + k_step - 1
 *   super(row, k)                   what they have in common
 *   row_scale(row)                  f32 that all sums of a row are multiplied by
 *   has_nan(row, first, stride)     whether a code or a scale among every stride-th from first is
 *                                   NaN, or a weight of theirs too large for an f32, which the
 *                                   codec makes infinite: then a product with the row is no number,
 *                                   and its row scale will be NaN
 *   table(words)                    n_table words that pairs looks codes up in
 *   pairs(out, words, b, table)     the four pairs of block b: the main loop's work
 *   scale(record, super, s)         of block s
 *   minimum(record, super, s)       likewise
 */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_H
#define PLEC_DEVICE_CUDA_FRAGMENT_H

#include "lyrw/codec/bits.h"

#if defined(__CUDACC__)
#include "device/cuda/ptx.cuh"
#endif

/* One row of a matrix in file layout. */
struct plec_fragment_row {
    const uint8_t *blocks; /* [n_cols / block] */
    const uint8_t *scales; /* one byte a block: paired and trailing formats */
    float tensor_scale;    /* trailing formats */
    uint32_t n_cols;
};

/* Column of a block of 32 that lane c's element i (of 8) is; blocks: 16 or 32 columns a scale. */
PLEC_HD uint32_t plec_fragment_column(uint32_t blocks, uint32_t c, uint32_t i) {
    return blocks == 16 ? 16 * (i >> 2) + 4 * c + (i & 3) : 8 * c + i;
}
/* Where column e of 32 stands in a staged token: lane by lane. */
PLEC_HD uint32_t plec_fragment_place(uint32_t blocks, uint32_t e) {
    return blocks == 16 ? 8 * (e >> 2 & 3) + 4 * (e >> 4) + (e & 3) : e;
}

/* PRMT: byte i of the result is the byte that nibble i of the selector (0..7) names in high:low. */
PLEC_HD uint32_t plec_permute(uint32_t low, uint32_t high, uint32_t selector) {
#if defined(__CUDA_ARCH__)
    return plec_byte_permute(low, high, selector);
#else
    uint64_t both = (uint64_t)high << 32 | low;
    uint32_t out = 0;
    for (uint32_t i = 0; i < 4; i++)
        out |= (uint32_t)(both >> 8 * (selector >> 4 * i & 7u) & 255u) << 8 * i;
    return out;
#endif
}

/* x * y + z rounded once. */
PLEC_HD float plec_fragment_fma(float x, float y, float z) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(x, y, z);
#else
    return (float)((double)x * (double)y + (double)z); /* only where the exact sum is an f32 */
#endif
}

/* The f16 in the low or the high half of a word. */
PLEC_HD float plec_fragment_half(uint32_t word, uint32_t side) {
#if defined(__CUDA_ARCH__)
    return __half2float(__ushort_as_half((unsigned short)(word >> 16 * side)));
#else
    return plec_f16_f32((uint16_t)(word >> 16 * side));
#endif
}

/* Byte `byte` (0..3) of a word as 2^15 + its value: the byte moves into an f32's mantissa. */
PLEC_HD float plec_fragment_biased(uint32_t word, uint32_t byte) {
    return plec_bits_f32(plec_permute(word, 0x47000000u, 0x7404u | byte << 4));
}
/* d * (byte - offset), exact for a d of 11 significant bits and an offset of 0, 32 or 128. The
 * second factor of the sum is the same for a whole record. */
PLEC_HD float plec_fragment_times_byte(float d, uint32_t word, uint32_t byte, int offset) {
    return plec_fragment_fma(d, plec_fragment_biased(word, byte), plec_mul(d, -32768.0f - offset));
}

/* Byte s of words as the exponent of an f32, above the given bits. */
PLEC_HD float plec_fragment_exponent(uint32_t word, uint32_t byte) {
    uint32_t moved = byte == 3 ? word >> 1 : word << (23 - 8 * byte);
    return plec_bits_f32(moved & 0x7F800000u);
}

/* A number of four significant bits from 2^-15 to 480, as E4M3 scales are, without subnormals: five
 * exponent and three mantissa bits, value times 2^-16 once placed in an f32. 0 has no code: the
 * weights under a zero scale become 0 instead. */
PLEC_HD uint32_t plec_fragment_e5m3_of(float magnitude) {
    uint32_t bits = plec_f32_bits(magnitude);
    return bits == 0 ? 0 : (bits >> 20) - ((96u + 16u) << 3);
}
PLEC_HD uint32_t plec_fragment_e5m3(uint8_t e4m3) {
    return plec_fragment_e5m3_of(plec_e4m3_f32(e4m3 & 0x7Fu));
}
PLEC_HD float plec_fragment_e5m3_value(uint32_t word, uint32_t byte) {
    uint32_t moved = byte == 3 ? word >> 4 : byte == 2 ? word << 4 : word << (20 - 8 * byte);
    return plec_bits_f32((moved & 0x0FF00000u) | 0x30000000u);
}

PLEC_HD bool plec_fragment_is_number(float value) {
    return (plec_f32_bits(value) & 0x7F800000u) != 0x7F800000u;
}
PLEC_HD bool plec_fragment_e4m3_is_nan(uint8_t byte) {
    return (byte & 0x7Fu) == 0x7Fu;
}

/* Where row r of a matrix lies: blocks of n_elems columns and n_bytes bytes, their scales inside.
 */
template <uint32_t n_elems, uint32_t n_bytes> struct plec_fragment_inline {
    PLEC_HD plec_fragment_row row(const uint8_t *values, const uint8_t *, uint32_t, uint32_t cols,
                                  uint32_t r) {
        return {values + (size_t)r * (cols / n_elems) * n_bytes, 0, 1.0f, cols};
    }
};
/* Scales in an array of their own. */
template <uint32_t n_elems, uint32_t n_bytes> struct plec_fragment_paired {
    PLEC_HD plec_fragment_row row(const uint8_t *values, const uint8_t *scales, uint32_t,
                                  uint32_t cols, uint32_t r) {
        size_t first = (size_t)r * (cols / n_elems);
        return {values + first * n_bytes, scales + first, 1.0f, cols};
    }
};
/* Scales and then the f32 scale of the tensor behind all blocks. */
template <uint32_t n_elems, uint32_t n_bytes> struct plec_fragment_trailing {
    PLEC_HD plec_fragment_row row(const uint8_t *values, const uint8_t *, uint32_t rows,
                                  uint32_t cols, uint32_t r) {
        size_t first = (size_t)r * (cols / n_elems), all = (size_t)rows * (cols / n_elems);
        const uint8_t *scales = values + all * n_bytes;
        return {values + first * n_bytes, scales + first, plec_bits_f32(plec_le32(scales + all)),
                cols};
    }
};

/* What most formats have in common. */
struct plec_fragment_defaults {
    enum {
        k_step = 256,
        block = 32,
        lane_words = 8,
        record_words = 4,
        super_words = 0,
        n_table = 0,
        offset = 0,
        has_minimum = 0,
        spread = 0,
        packs = 0, /* 1: it has a pack */
        parts = 1,
        swizzled = 0,
        widest = 64,
        token_shift = 64,
        unit = 133 - token_shift
    };
    PLEC_HD void pack(uint32_t *, const plec_fragment_row &, uint32_t, uint32_t, uint32_t) {}
    PLEC_HD uint32_t super(const plec_fragment_row &, uint32_t) { return 0; }
    PLEC_HD void table(uint32_t *) {}
    PLEC_HD float row_scale(const plec_fragment_row &) { return 1.0f; }
    PLEC_HD bool has_nan(const plec_fragment_row &, uint32_t, uint32_t) { return false; }
    PLEC_HD float minimum(const uint32_t *, uint32_t, uint32_t) { return 0.0f; }
};

/* Codes one by one, by a format's code and put: any format, at a dozen instructions a code. Formats
 * with a pack of their own, word by word, need neither in the kernel but where a row ends inside a
 * block. */
template <class F>
PLEC_HD void plec_fragment_pack(uint32_t *words, const plec_fragment_row &row, uint32_t k,
                                uint32_t b, uint32_t c, uint32_t n_valid) {
    for (uint32_t i = 0; i < 8; i++) {
        uint32_t at = k + 32 * b + plec_fragment_column(F::block, c, i);
        if (at < n_valid) F::put(words, b, i / 2, i % 2, F::code(row, at));
    }
}

/* ---- layouts of codes -------------------------------------------------------------------------*/

/* Eight nibbles a block, a word of them: pairs at bits 0, 4, 8 and 12 of each half. */
struct plec_fragment_nibbles : plec_fragment_defaults {
    enum { spread = 1 };
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[b] |= code << (4 * p + 16 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        uint32_t low = words[b], high = low >> 8;
        out[0] = low & 0x000F000Fu;
        out[1] = low & 0x00F000F0u;
        out[2] = high & 0x000F000Fu;
        out[3] = high & 0x00F000F0u;
    }
};

/* Four codes in the low nibbles of a word's bytes, and four more, as a word of nibbles: 0 2 4 6 in
 * the lower half, 1 3 5 7 in the upper one. */
PLEC_HD uint32_t plec_fragment_interleave(uint32_t first, uint32_t second) {
    uint32_t a = (first | first >> 12) & 0x0000FFFFu;   /* bytes: 0 and 2, 1 and 3 */
    uint32_t b = (second | second >> 12) & 0x0000FFFFu; /* 4 and 6, 5 and 7 */
    return plec_permute(a, b, 0x5140u);
}

/* Five bits: nibbles as above, fifth bits of four blocks in one word. */
struct plec_fragment_fives : plec_fragment_defaults {
    enum { lane_words = 10 };
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[b] |= (code & 15u) << (4 * p + 16 * side);
        words[8 + b / 4] |= code >> 4 << (4 * (b & 3) + p + 16 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p++) {
            uint32_t at = 4 * (b & 3) + p, fifth = words[8 + b / 4];
            fifth = at < 4 ? fifth << (4 - at) : fifth >> (at - 4);
            out[p] = (words[b] >> 4 * p & 0x000F000Fu) | (fifth & 0x00100010u);
        }
    }
};

/* Bytes, two words a block. */
struct plec_fragment_bytes : plec_fragment_defaults {
    enum { k_step = 128, record_words = 2 };
    PLEC_HD void put(uint32_t *words, uint32_t b, uint32_t p, uint32_t side, uint32_t code) {
        words[2 * b + p / 2] |= code << (16 * (p & 1) + 8 * side);
    }
    PLEC_HD void pairs(uint32_t out[4], const uint32_t *words, uint32_t b, const uint32_t *) {
        for (uint32_t p = 0; p < 4; p++)
            out[p] = plec_permute(words[2 * b + p / 2], 0, p & 1 ? 0x4342u : 0x4140u);
    }
};

#endif
