/* planes.h: planes of a matrix made and read back on the host, with the very lines that kernels are
 * made of: each weight as an MMA would see it. */
#ifndef PLEC_TESTS_SUPPORT_PLANES_H
#define PLEC_TESTS_SUPPORT_PLANES_H

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "device/cuda/fragment/float.cuh"
#include "device/cuda/planes.cuh"
#include "tests/support/bank.h"

namespace plec_test {

template <uint16_t format_tag, class F> struct Fragment {
    typedef F type;
    static const uint16_t tag = format_tag;
};

inline double bf16_value(uint32_t bits) {
    return plec_bf16_f32(static_cast<uint16_t>(bits));
}

/* What a format's own zero is among an MMA's operands. */
template <class F> uint32_t zero_code_bits() {
    uint32_t words[F::lane_words] = {}, table[F::n_table + 1], out[4];
    F::table(table);
    F::pairs(out, words, 0, table);
    return out[0] & 0xFFFFu;
}

/* Rests exist for formats of two parts alone. */
template <class F, int parts = F::parts> struct Rests {
    static void get(uint32_t out[4], const uint32_t *, uint32_t) { memset(out, 0, 16); }
};
template <class F> struct Rests<F, 2> {
    static void get(uint32_t out[4], const uint32_t *words, uint32_t b) { F::rests(out, words, b); }
};

template <class T> class PlaneCopy {
    typedef typename T::type F;

  public:
    PlaneCopy(const Matrix &m, uint32_t n_valid) : planes_(plec_planes_of<F>(m.rows, m.cols)) {
        F::table(table_);
        bytes_.assign(planes_.n_bytes / 4, 0xFFFFFFFFu);
        for (uint32_t r = 0; r < m.rows; r++) {
            plec_fragment_row row =
                F::file::row(m.values.data(), m.scales.data(), m.rows, m.cols, r);
            uint32_t scratch[PLEC_PLANE_SCRATCH];
            for (uint32_t step = 0; step < planes_.n_steps; step++)
                for (uint32_t c = 0; c < 4; c++)
                    plec_planes_fill<F>(data(), planes_, r, row, n_valid, step, c, scratch);
            bool has_nan = false;
            for (uint32_t lane = 0; lane < 32; lane++)
                has_nan = has_nan || F::has_nan(row, lane, 32);
            float factor = plec_planes_factor<F>(row, has_nan);
            memcpy(data() + planes_.factors + r * 4, &factor, 4);
        }
    }
    /* The weight of column k as sums are put right: exact in double but for roundings that the
     * format's own scales have. */
    double weight(uint32_t r, uint32_t k) const {
        Place at = place(r, k);
        uint32_t head[4], rest[4];
        F::pairs(head, at.words, at.block, table_);
        Rests<F>::get(rest, at.words, at.block);
        uint32_t shift = 16 * (at.i & 1), pair = at.i / 2;
        double code = bf16_value(head[pair] >> shift) + bf16_value(rest[pair] >> shift);
        if (F::spread && pair % 2 == 1) code /= 16;
        double one = std::ldexp(1.0, F::token_shift == 0 ? 0 : -133);
        uint32_t sub = F::block < 32 ? k % F::k_step / F::block : at.block;
        double sum = F::scale(at.record, at.super, sub) * (code - F::offset * one) +
                     (F::has_minimum ? F::minimum(at.record, at.super, sub) * one : 0);
        return std::ldexp(sum * word_f32(planes_.factors + r * 4), F::token_shift);
    }
    const std::vector<uint32_t> &words() const { return bytes_; } /* 0xFFFFFFFF: padding */
    uint32_t code_bits(uint32_t r, uint32_t k) const {
        Place at = place(r, k);
        uint32_t head[4];
        F::pairs(head, at.words, at.block, table_);
        return head[at.i / 2] >> 16 * (at.i & 1) & 0xFFFFu;
    }

  private:
    struct Place {
        uint32_t words[F::lane_words], record[F::record_words + 1], super, block, i;
    };
    Place place(uint32_t r, uint32_t k) const {
        Place at;
        uint32_t step = k / F::k_step, spot = plec_fragment_place(F::block, k % 32), c = spot / 8;
        typedef plec_planes_group<F> G;
        uint64_t group = plec_planes_at<F>(planes_, step, r);
        for (uint32_t w = 0; w < F::lane_words; w++)
            at.words[w] = word(group + plec_planes_word<F>(r, c, w));
        for (uint32_t w = 0; w < F::record_words; w++)
            at.record[w] = word(group + G::RECORDS + (r % 8 * F::record_words + w) * 4);
        at.super = F::super_words != 0 ? word(group + G::SUPERS + r % 8 * 4) : 0;
        at.block = k % F::k_step / 32;
        at.i = spot % 8;
        return at;
    }
    uint32_t word(uint64_t at) const { return bytes_[at / 4]; }
    float word_f32(uint64_t at) const { return plec_bits_f32(word(at)); }
    uint8_t *data() { return reinterpret_cast<uint8_t *>(bytes_.data()); }

    plec_planes planes_;
    uint32_t table_[F::n_table + 1];
    std::vector<uint32_t> bytes_;
};

/* Relative difference allowed to the codec: formats that round in two places do it elsewhere. */
inline double tolerance(uint16_t tag) {
    return tag == PLEC_FORMAT_NVFP4 || tag == PLEC_FORMAT_FP4_LARQL ? 0x1p-22 : 0;
}

inline bool same_weight(double got, double wanted, double relative) {
    if (!std::isfinite(wanted)) return !std::isfinite(static_cast<float>(got));
    if (relative == 0) return static_cast<float>(got) == static_cast<float>(wanted);
    return std::fabs(got - wanted) <= relative * std::fabs(wanted);
}

/* Formats a row of which is NaN as a whole where one of its weights is no number; elsewhere the
 * scale is infinite, and does the like by itself. */
inline bool spoils_rows(uint16_t tag) {
    return tag == PLEC_FORMAT_MXFP4 || tag == PLEC_FORMAT_GGUF_MXFP4 || tag == PLEC_FORMAT_MXFP8 ||
           tag == PLEC_FORMAT_NVFP4;
}

/* Every weight of a matrix is what its codec says, or, in a row with one that is no number, NaN. */
template <class T> void expect_same_weights(const Matrix &m, uint32_t n_valid) {
    PlaneCopy<T> planes(m, n_valid);
    struct plec_matrix view = m.view();
    std::vector<double> wanted(m.cols);
    int n_wrong = 0;
    for (uint32_t r = 0; r < m.rows && n_wrong < 5; r++) {
        plec_matrix_row_f64(wanted.data(), &view, r);
        bool has_nan = false;
        for (double w : wanted)
            has_nan = has_nan || !std::isfinite(w);
        for (uint32_t k = 0; k < n_valid && n_wrong < 5; k++) {
            double got = planes.weight(r, k);
            /* an infinite scale times a code of 0 is NaN there and here, elsewhere infinite there
             * and NaN here: such a row's product is no number either way */
            bool good = has_nan && spoils_rows(T::tag) ? std::isnan(got)
                        : has_nan
                            ? std::isnan(got) || same_weight(got, wanted[k], tolerance(T::tag))
                            : same_weight(got, wanted[k], tolerance(T::tag));
            if (good) continue;
            n_wrong++;
            ADD_FAILURE() << plec_format_find(T::tag)->name << " row " << r << " column " << k
                          << ": got " << got << ", wanted " << wanted[k];
        }
    }
}

/* Blocks with every f16 at bytes d and, in another order, at bytes m; all other bytes random, so
 * that every code meets many scales in every place. A block a row: NaN stays in its row. */
template <class T> void every_half_scale(size_t d, size_t m) {
    const struct plec_format *format = plec_format_find(T::tag);
    Random random(T::tag);
    Matrix matrix;
    matrix.format = T::tag, matrix.rows = 4096, matrix.cols = format->block_elems;
    for (uint32_t first = 0; first < 65536; first += matrix.rows) {
        matrix.values.resize(static_cast<size_t>(matrix.rows) * format->block_bytes);
        for (uint8_t &byte : matrix.values)
            byte = static_cast<uint8_t>(random.below(256));
        for (uint32_t r = 0; r < matrix.rows; r++) {
            uint8_t *block = &matrix.values[static_cast<size_t>(r) * format->block_bytes];
            uint16_t one = static_cast<uint16_t>(first + r);
            uint16_t two = static_cast<uint16_t>(one * 40503u + 17u);
            memcpy(block + m, &two, 2);
            memcpy(block + d, &one, 2);
        }
        expect_same_weights<T>(matrix, matrix.cols);
        if (::testing::Test::HasFailure()) return;
    }
}

/* Every scale byte over every code byte in every place. */
template <class T> void every_scale_byte() {
    const struct plec_format *format = plec_format_find(T::tag);
    Matrix m;
    m.format = T::tag, m.rows = 256, m.cols = 256;
    uint64_t values_bytes = 0, scales_bytes = 0;
    EXPECT_EQ(plec_format_size(&values_bytes, &scales_bytes, m.format, m.rows, m.cols, nullptr),
              PLEC_OK);
    m.values.resize(values_bytes), m.scales.resize(scales_bytes);
    bool larql = T::tag == PLEC_FORMAT_FP4_LARQL, trailing = format->geometry == PLEC_TRAILING;
    size_t n_blocks = 256u * (256u / format->block_elems);
    /* codes of a block that has its scales inside: from .. to */
    size_t from = T::tag == PLEC_FORMAT_GGUF_MXFP4 ? 1 : T::tag == PLEC_FORMAT_GGUF_NVFP4 ? 4 : 0;
    size_t to = larql ? 128 : format->block_bytes;
    for (uint32_t turn = 0; turn < 256; turn += 5) {
        for (size_t b = 0; b < n_blocks; b++) {
            uint8_t *block = &m.values[b * format->block_bytes];
            uint8_t scale = static_cast<uint8_t>(b / (256u / format->block_elems));
            for (size_t i = from; i < to; i++) /* every byte in every place, turn by turn */
                block[i] = static_cast<uint8_t>(i * 37 + turn + (i * turn & 3));
            for (size_t i = 0; i < from; i++)
                block[i] = static_cast<uint8_t>(scale + i * turn);
            for (size_t i = to; i < format->block_bytes; i++)
                block[i] =
                    i == 136 ? static_cast<uint8_t>(turn * 3) : static_cast<uint8_t>(scale + i);
            if (format->geometry == PLEC_PAIRED) m.scales[b] = scale;
            if (trailing) m.values[n_blocks * format->block_bytes + b] = scale;
        }
        float tensor_scale = 1.5f;
        if (trailing) memcpy(&m.values[values_bytes - 4], &tensor_scale, 4);
        expect_same_weights<T>(m, m.cols);
        if (::testing::Test::HasFailure()) return;
    }
}

/* Every pattern of 16 bits in every place of a block. */
template <class T> void every_sixteen_bits() {
    Matrix m;
    m.format = T::tag, m.rows = 1024, m.cols = 64;
    m.values.resize(65536 * 2);
    for (uint32_t turn = 0; turn < 64; turn++) {
        for (uint32_t i = 0; i < 65536; i++) {
            uint16_t bits = static_cast<uint16_t>((i & ~63u) | ((i + turn) & 63u));
            memcpy(&m.values[2 * static_cast<size_t>(i)], &bits, 2);
        }
        expect_same_weights<T>(m, m.cols);
        if (::testing::Test::HasFailure()) return;
    }
}

} // namespace plec_test
#endif
