#include "lyrw/format.h"

#include "lyrw/cursor.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <set>

namespace {

std::vector<const plec_format *> all_formats() {
    size_t n = 0;
    const plec_format *formats = plec_format_all(&n);
    std::vector<const plec_format *> all;
    for (size_t i = 0; i < n; i++)
        all.push_back(formats + i);
    return all;
}

/* A matrix and the bytes it views; values start `shift` bytes into their buffer. */
struct Bytes {
    std::vector<uint8_t> values, scales;
    plec_matrix matrix;
};

Bytes make_matrix(uint16_t tag, uint32_t rows, uint32_t cols, uint32_t seed, size_t shift = 0) {
    uint64_t n_values = 0, n_scales = 0;
    EXPECT_EQ(plec_format_size(&n_values, &n_scales, tag, rows, cols, nullptr), PLEC_OK);
    std::mt19937 random(seed);
    Bytes made;
    made.values.resize(shift + n_values);
    made.scales.resize(shift + n_scales);
    for (size_t i = 0; i < n_values; i++)
        made.values[shift + i] = uint8_t(random());
    for (size_t i = 0; i < n_scales; i++)
        made.scales[shift + i] = uint8_t(random());
    made.matrix = {tag, rows, cols, made.values.data() + shift,
                   n_scales ? made.scales.data() + shift : nullptr};
    return made;
}

std::vector<float> rows_f32(const plec_matrix &m) {
    std::vector<float> out(size_t(m.rows) * m.cols, NAN);
    for (uint32_t r = 0; r < m.rows; r++)
        plec_matrix_row_f32(out.data() + size_t(r) * m.cols, &m, r);
    return out;
}

std::vector<double> rows_f64(const plec_matrix &m) {
    std::vector<double> out(size_t(m.rows) * m.cols, NAN);
    for (uint32_t r = 0; r < m.rows; r++)
        plec_matrix_row_f64(out.data() + size_t(r) * m.cols, &m, r);
    return out;
}

uint32_t bits(float value) {
    uint32_t b;
    memcpy(&b, &value, sizeof b);
    return b;
}

std::vector<float> decode_one(uint16_t tag, const std::vector<uint8_t> &block,
                              const uint8_t *scales = nullptr, float tensor_scale = 1.0f) {
    const plec_format *format = plec_format_find(tag);
    EXPECT_EQ(block.size(), format->block_bytes);
    std::vector<float> out(format->block_elems, NAN);
    format->decode(out.data(), block.data(), scales, tensor_scale, 1);
    return out;
}

/* Block bytes (37 i + 11) mod 256 with the fields at `half` and `quarter` set to f16 0.5 and 0.25,
 * and what ggml makes of them. */
struct Vector {
    const char *name;
    int half, quarter; /* -1: no such field */
    double first[8], last, sum, sum_abs, sum_weighted;
};

const Vector vectors[] = {
    {"q4_0", 0, -1, {-1.5, 1, 3.5, -2, 0.5, 3, -2.5, 0}, 0, -10.5, 61.5, -259},
    {"gguf_q4_1",
     0,
     2,
     {7.75, 2.25, 4.75, 7.25, 1.75, 4.25, 6.75, 1.25},
     6.25,
     130.5,
     130.5,
     2123.5},
    {"gguf_q5_0", 0, -1, {4.5, -1, 1.5, -4, 6.5, -7, 3.5, -2}, 0.5, 7.5, 123.5, 56},
    {"gguf_q5_1",
     0,
     2,
     {9.75, 12.25, 14.75, 9.25, 11.75, 6.25, 0.75, 11.25},
     2.75,
     260.5,
     260.5,
     4082.5},
    {"q8_0", 0, -1, {42.5, 61, -48.5, -30, -11.5, 7, 25.5, 44}, -24, -88, 1086, -4040},
    {"gguf_q2_k", 80, 82, {16.5, 0, 5.5, 11, 16.5, 0, 5.5, 11}, 2.25, 1029.5, 1282, 121565},
    {"gguf_q3_k", 108, -1, {40.5, -54, 13.5, -27, 40.5, -54, 13.5, -27}, 21, 479, 4605, 88572.5},
    {"q4_k",
     0,
     2,
     {157.75, -12.75, 64.75, 142.25, 219.75, 49.25, 126.75, 204.25},
     24.25,
     27220,
     27514,
     3786420},
    {"gguf_q5_k",
     0,
     2,
     {405.75, -12.75, 312.75, 142.25, 467.75, 49.25, 374.75, 204.25},
     54.25,
     58108,
     58279.5,
     8013724},
    {"q6_k",
     208,
     -1,
     {-715.5, 848, 291.5, -265, -821.5, 742, 185.5, -371},
     -30,
     2306,
     133251,
     392210},
    {"gguf_mxfp4", -1, -1, {0, 3, -1, -6, 2, -0.5, -4, 1.5}, 3, 12.5, 75.5, 319},
    {"gguf_nvfp4",
     -1,
     -1,
     {-6, 2, -0.5, -4, 1.5, 0, -3, 1},
     0.1875,
     5.830078125,
     113.4296875,
     238.413086},
    {"gguf_iq4_nl",
     0,
     -1,
     {-17.5, 12.5, 56.5, -24.5, 6.5, 44.5, -32.5, 0.5},
     0.5,
     -128.5,
     852.5,
     -3459.5},
    {"gguf_iq4_xs",
     0,
     -1,
     {32.5, -0.5, -34.5, 41.5, 5, -26.5, 52, 11},
     -8,
     -5502.5,
     83331.5,
     -1045567},
    {"gguf_tq2_0", 64, -1, {1, -0.5, 0, 0.5, 1, -0.5, 0, 0.5}, -0.5, 64.5, 129.5, 8622.5},
    {"gguf_tq1_0", 52, -1, {-0.5, -0.5, -0.5, 0, 0, 0.5, 0.5, -0.5}, -0.5, -1, 87, -65.5},
    {"gguf_q1_0", 0, -1, {0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.5, -0.5}, 0.5, 0, 64, -266},
    {"gguf_q2_0", 0, -1, {0, 0, 0, 0, 0.5, 0.5, 1, 0}, 0.5, 15, 31, 406.5},
};

std::vector<uint8_t> vector_block(const Vector &v, const plec_format *format) {
    std::vector<uint8_t> block(format->block_bytes);
    for (size_t i = 0; i < block.size(); i++)
        block[i] = uint8_t(37 * i + 11);
    if (v.half >= 0) plec_store_u16(&block[v.half], 0x3800);
    if (v.quarter >= 0) plec_store_u16(&block[v.quarter], 0x3400);
    if (format->tag == PLEC_FORMAT_GGUF_MXFP4) block[0] = 127;
    const uint8_t nvfp4_scales[] = {0x38, 0x40, 0x07, 0x2C};
    if (format->tag == PLEC_FORMAT_GGUF_NVFP4)
        std::copy(nvfp4_scales, nvfp4_scales + 4, block.begin());
    return block;
}

} // namespace

TEST(Format, DecodesTheTestVectors) {
    for (const Vector &v : vectors) {
        SCOPED_TRACE(v.name);
        const plec_format *format = plec_format_by_name(v.name);
        ASSERT_NE(format, nullptr);
        std::vector<float> y = decode_one(format->tag, vector_block(v, format));
        for (int i = 0; i < 8; i++)
            EXPECT_EQ(y[i], v.first[i]) << i;
        EXPECT_EQ(y.back(), v.last);
        double sum = 0, sum_abs = 0, sum_weighted = 0;
        for (size_t i = 0; i < y.size(); i++) {
            sum += y[i];
            sum_abs += std::fabs(y[i]);
            sum_weighted += double(i + 1) * y[i];
        }
        EXPECT_EQ(sum, v.sum);
        EXPECT_EQ(sum_abs, v.sum_abs);
        EXPECT_NEAR(sum_weighted, v.sum_weighted, 5e-7) << "the table has six decimals";
    }
}

TEST(Format, DecodesManyBlocksBitForBitLikeAnIndependentDecoder) {
    /* FNV-1a64 over the f32 values of 16 blocks, as the gguf Python package decodes them. The f16
     * fields at `half` are made finite; every other byte is arbitrary. */
    const struct {
        const char *name;
        int half[2];
        uint64_t fnv;
    } peers[] = {
        {"q4_0", {0, -1}, 0x85ECD91C23E7B3FD},        {"gguf_q4_1", {0, 2}, 0x47B6DB13442D952D},
        {"gguf_q5_0", {0, -1}, 0x48B79B9AAD479EFF},   {"gguf_q5_1", {0, 2}, 0x2A088A4EE6955EFF},
        {"q8_0", {0, -1}, 0x208469C3381BFE64},        {"gguf_q2_k", {80, 82}, 0x91308C4B3DD25539},
        {"gguf_q3_k", {108, -1}, 0x83F953BDAAE42637}, {"q4_k", {0, 2}, 0x0406A301A2829498},
        {"gguf_q5_k", {0, 2}, 0x3B7C31C4BD38C416},    {"q6_k", {208, -1}, 0xA7B5942AC1133B1D},
        {"gguf_iq4_nl", {0, -1}, 0x9C061138663D7A70}, {"gguf_iq4_xs", {0, -1}, 0x22219A18EC02FF26},
        {"gguf_tq1_0", {52, -1}, 0x40A7B3924AD8B8E4}, {"gguf_tq2_0", {64, -1}, 0xF7C7829C6133C443},
        {"gguf_mxfp4", {-1, -1}, 0x7E0DC88167C8F655}, {"gguf_nvfp4", {-1, -1}, 0xE2539AF5D54720C0},
    };
    for (const auto &peer : peers) {
        const plec_format *format = plec_format_by_name(peer.name);
        std::vector<uint8_t> blocks(16 * format->block_bytes);
        uint32_t state = 1;
        for (uint8_t &byte : blocks) {
            state = state * 1664525u + 1013904223u;
            byte = uint8_t(state >> 24);
        }
        for (int half : peer.half)
            for (size_t i = 0; half >= 0 && i < 16; i++)
                blocks[i * format->block_bytes + size_t(half) + 1] &= 0xBF;
        std::vector<float> y(16 * format->block_elems);
        format->decode(y.data(), blocks.data(), nullptr, 0, 16);
        EXPECT_EQ(plec_test::fnv1a64(y.data(), y.size() * sizeof(float)), peer.fnv) << peer.name;
    }
}

TEST(Format, TableIsInTagOrderWithUniqueNames) {
    std::set<std::string> names;
    int last = -1;
    for (const plec_format *f : all_formats()) {
        EXPECT_GT(int(f->tag), last);
        last = f->tag;
        EXPECT_TRUE(names.insert(f->name).second) << f->name;
        EXPECT_EQ(plec_format_find(f->tag), f);
        EXPECT_EQ(plec_format_by_name(f->name), f);
        EXPECT_EQ(f->scale_bytes, f->geometry == PLEC_INLINE ? 0 : 1) << f->name;
        EXPECT_EQ(f->decode == nullptr, f->tag == PLEC_FORMAT_GGUF_F64) << f->name;
        EXPECT_EQ(256 % f->block_elems, 0) << f->name;
    }
    EXPECT_EQ(names.size(), 26u);
}

TEST(Format, UnknownTagsHaveNoEntryAndANumberForAName) {
    char buffer[PLEC_NAME_MAX];
    EXPECT_EQ(plec_format_find(11), nullptr);
    EXPECT_EQ(plec_format_find(0x4700), nullptr) << "GGUF's f32 travels as LYRW's";
    EXPECT_EQ(plec_format_find(0x4702), nullptr) << "GGUF's q4_0 travels as LYRW's";
    EXPECT_EQ(plec_format_by_name("q4_1"), nullptr);
    EXPECT_EQ(plec_format_by_name(""), nullptr);
    EXPECT_STREQ(plec_format_name(4242, buffer), "format_4242");
    EXPECT_STREQ(plec_format_name(65535, buffer), "format_65535");
    EXPECT_STREQ(plec_format_name(PLEC_FORMAT_GGUF_Q5_1, buffer), "gguf_q5_1");
}

TEST(FormatSize, FollowsShapeAndGeometry) {
    struct {
        const char *name;
        uint32_t rows, cols;
        uint64_t values, scales;
    } cases[] = {
        {"f32", 3, 5, 60, 0},         {"f16", 3, 5, 30, 0},
        {"bf16", 1, 1, 2, 0},         {"q4_0", 64, 64, 2304, 0},
        {"q4_k", 512, 256, 73728, 0}, {"q6_k", 2, 512, 840, 0},
        {"q8_0", 64, 32, 2176, 0},    {"fp4_larql", 256, 256, 35072, 0},
        {"mxfp4", 64, 64, 2048, 128}, {"nvfp4", 32, 32, 32 * 2 * 9 + 4, 0},
        {"mxfp8", 64, 64, 4096, 128}, {"gguf_mxfp4", 2, 2880, 3060, 0},
        {"gguf_nvfp4", 1, 64, 36, 0}, {"gguf_f64", 2, 2, 32, 0},
        {"gguf_q2_k", 1, 256, 84, 0}, {"gguf_iq4_xs", 1, 256, 136, 0},
        {"mxfp4", 0, 64, 0, 0},       {"mxfp4", 64, 0, 0, 0},
        {"nvfp4", 0, 0, 4, 0},        {"gguf_f64", 1u << 30, 1u << 30, UINT64_C(1) << 63, 0},
    };
    for (const auto &c : cases) {
        uint64_t values = 1, scales = 1;
        plec_error err;
        ASSERT_EQ(plec_format_size(&values, &scales, plec_format_by_name(c.name)->tag, c.rows,
                                   c.cols, &err),
                  PLEC_OK)
            << err.message;
        EXPECT_EQ(values, c.values) << c.name;
        EXPECT_EQ(scales, c.scales) << c.name;
    }
    EXPECT_EQ(plec_format_size(nullptr, nullptr, PLEC_FORMAT_F32, 1, 1, nullptr), PLEC_OK);
}

TEST(FormatSize, TellsStreamsApart) {
    plec_stream_bytes bytes;
    ASSERT_EQ(plec_format_streams(&bytes, PLEC_FORMAT_NVFP4, 32, 32, nullptr), PLEC_OK);
    EXPECT_EQ(bytes.codes, 512u);
    EXPECT_EQ(bytes.scales, 64u);
    EXPECT_EQ(bytes.tensor_scale, 4u);
    EXPECT_EQ(bytes.total, 580u);
    ASSERT_EQ(plec_format_streams(&bytes, PLEC_FORMAT_MXFP4, 64, 64, nullptr), PLEC_OK);
    EXPECT_EQ(bytes.codes, 2048u);
    EXPECT_EQ(bytes.scales, 128u);
    EXPECT_EQ(bytes.tensor_scale, 0u);
    EXPECT_EQ(bytes.total, 2176u) << "a single region of both";
}

TEST(FormatSize, RefusesByName) {
    plec_error err;
    uint64_t values = 7;
    EXPECT_EQ(plec_format_size(&values, nullptr, 4242, 1, 1, &err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err.message, "UnknownFormat: format tag 4242 has no codec");
    EXPECT_EQ(plec_format_size(&values, nullptr, PLEC_FORMAT_Q4_K, 1, 255, &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.message, "NotWholeBlocks: q4_k wants columns in blocks of 256, found 255");
    EXPECT_EQ(
        plec_format_size(&values, nullptr, PLEC_FORMAT_GGUF_F64, UINT32_MAX, UINT32_MAX, &err),
        PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "SizeOverflow");
    EXPECT_EQ(plec_format_size(&values, nullptr, PLEC_FORMAT_GGUF_F64, 1u << 31, 1u << 30, &err),
              PLEC_MALFORMED);
    EXPECT_EQ(values, 7u) << "untouched by a refusal";
    for (const plec_format *f : all_formats())
        for (uint32_t cols = 1; cols < f->block_elems; cols++)
            ASSERT_EQ(plec_format_size(nullptr, nullptr, f->tag, 1, f->block_elems + cols, &err),
                      PLEC_MALFORMED)
                << f->name;
}

TEST(FormatRows, DecodeAtOddAddressesAsAtAlignedOnes) {
    for (const plec_format *f : all_formats()) {
        SCOPED_TRACE(f->name);
        uint32_t cols = 512;
        Bytes aligned = make_matrix(f->tag, 3, cols, 5), odd = make_matrix(f->tag, 3, cols, 5, 1);
        std::vector<float> a = rows_f32(aligned.matrix), b = rows_f32(odd.matrix);
        EXPECT_EQ(memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0);
    }
}

TEST(FormatRows, DoublesAreTheFloatsWidened) {
    for (const plec_format *f : all_formats()) {
        if (f->tag == PLEC_FORMAT_GGUF_F64) continue;
        SCOPED_TRACE(f->name);
        /* 33 blocks: chunks of the double path do not divide it */
        Bytes m = make_matrix(f->tag, 2, 33u * f->block_elems, 9);
        std::vector<float> narrow = rows_f32(m.matrix);
        std::vector<double> wide = rows_f64(m.matrix);
        for (size_t i = 0; i < narrow.size(); i++) {
            ASSERT_EQ(std::isnan(wide[i]), std::isnan(narrow[i])) << i;
            if (!std::isnan(wide[i])) {
                ASSERT_EQ(wide[i], double(narrow[i])) << i;
                ASSERT_EQ(std::signbit(wide[i]), std::signbit(narrow[i])) << i;
            }
        }
    }
}

TEST(FormatRows, RowsAreTheirOwnBlocks) {
    for (const plec_format *f : all_formats()) {
        if (f->geometry != PLEC_INLINE || f->decode == nullptr) continue;
        SCOPED_TRACE(f->name);
        Bytes m = make_matrix(f->tag, 4, 3u * f->block_elems, 21);
        std::vector<float> whole(size_t(4) * m.matrix.cols);
        f->decode(whole.data(), m.matrix.values, nullptr, 0, 12);
        std::vector<float> rows = rows_f32(m.matrix);
        EXPECT_EQ(memcmp(whole.data(), rows.data(), rows.size() * sizeof(float)), 0);
    }
}

TEST(FormatRows, F64IsExactInDoubleAndRoundedOnceInFloat) {
    const double values[] = {1.0 / 3, -1e300, 5e-324, 16777217.0, 1.00000005960464477539};
    std::vector<uint8_t> raw(1 + sizeof values);
    memcpy(raw.data() + 1, values, sizeof values);
    plec_matrix m = {PLEC_FORMAT_GGUF_F64, 1, 5, raw.data() + 1, nullptr};
    std::vector<double> wide = rows_f64(m);
    std::vector<float> narrow = rows_f32(m);
    EXPECT_EQ(memcmp(wide.data(), values, sizeof values), 0);
    EXPECT_EQ(narrow[0], 0.333333343f);
    EXPECT_TRUE(std::isinf(narrow[1]));
    EXPECT_EQ(narrow[2], 0.0f);
    EXPECT_EQ(narrow[3], 16777216.0f);
    EXPECT_EQ(narrow[4], 1.0f);
}

TEST(FormatRows, PairedRowsTakeTheirOwnScales) {
    /* [2][64] mxfp4: every code is 1.0 (2), one scale a block */
    std::vector<uint8_t> codes(64, 0x22), scales = {127, 128, 126, 130};
    plec_matrix m = {PLEC_FORMAT_MXFP4, 2, 64, codes.data(), scales.data()};
    std::vector<float> y = rows_f32(m);
    const float want[] = {1, 2, 0.5, 8};
    for (size_t i = 0; i < y.size(); i++)
        ASSERT_EQ(y[i], want[i / 32]) << i;
}

TEST(FormatRows, TrailingRowsTakeScalesBehindAllCodes) {
    /* [2][32] nvfp4: codes 1.0, scales 1 2 .5 448, tensor scale .25 */
    std::vector<uint8_t> raw(32, 0x22);
    for (uint8_t scale : {0x38, 0x40, 0x30, 0x7E})
        raw.push_back(scale);
    for (uint8_t byte : {0x00, 0x00, 0x80, 0x3E})
        raw.push_back(byte);
    plec_matrix m = {PLEC_FORMAT_NVFP4, 2, 32, raw.data(), nullptr};
    std::vector<float> y = rows_f32(m);
    const float want[] = {0.25, 0.5, 0.125, 112};
    for (size_t i = 0; i < y.size(); i++)
        ASSERT_EQ(y[i], want[i / 16]) << i;
}

TEST(FormatRows, LyrwNibblesAreNeighboursAndGgufNibblesAreHalves) {
    std::vector<uint8_t> codes(16, 0x00), gguf(17, 0x00);
    codes[3] = 0x42; /* 1.0 low, 2.0 high */
    gguf[0] = 127;
    gguf[1 + 3] = 0x42;
    uint8_t one = 127;
    std::vector<float> lyrw = decode_one(PLEC_FORMAT_MXFP4, codes, &one);
    EXPECT_EQ(lyrw[6], 1.0f);
    EXPECT_EQ(lyrw[7], 2.0f);
    std::vector<float> split = decode_one(PLEC_FORMAT_GGUF_MXFP4, gguf);
    EXPECT_EQ(split[3], 1.0f);
    EXPECT_EQ(split[19], 2.0f);
    uint8_t one_e4m3 = 0x38;
    std::vector<uint8_t> short_codes(8, 0x00);
    short_codes[3] = 0x42;
    std::vector<float> nv = decode_one(PLEC_FORMAT_NVFP4, short_codes, &one_e4m3, 1.0f);
    EXPECT_EQ(nv[6], 1.0f);
    EXPECT_EQ(nv[7], 2.0f);
    std::vector<uint8_t> nv_gguf(36, 0x00);
    nv_gguf[1] = 0x38;
    nv_gguf[4 + 8 + 3] = 0x42;
    std::vector<float> nv_split = decode_one(PLEC_FORMAT_GGUF_NVFP4, nv_gguf);
    EXPECT_EQ(nv_split[16 + 3], 1.0f);
    EXPECT_EQ(nv_split[16 + 11], 2.0f);
}

/* Small domains, all of them, against a formula in double that shares no line with the codec. */

namespace {

double small_float(unsigned code, int exponent_bits, int mantissa_bits, int bias) {
    unsigned mantissa = code & ((1u << mantissa_bits) - 1);
    int exponent = int(code >> mantissa_bits & ((1u << exponent_bits) - 1));
    double value = exponent == 0 ? std::ldexp(mantissa, 1 - bias - mantissa_bits)
                                 : std::ldexp(mantissa + std::ldexp(1, mantissa_bits),
                                              exponent - bias - mantissa_bits);
    return code >> (exponent_bits + mantissa_bits) & 1 ? -value : value;
}

void expect_same(float got, double want) {
    if (std::isnan(want)) {
        ASSERT_TRUE(std::isnan(got));
        return;
    }
    ASSERT_EQ(double(got), want);
    ASSERT_EQ(std::signbit(got), std::signbit(want));
}

} // namespace

TEST(FormatExhaustive, AllF16) {
    for (unsigned h = 0; h < 65536; h++) {
        std::vector<float> y = decode_one(PLEC_FORMAT_F16, {uint8_t(h), uint8_t(h >> 8)});
        if ((h >> 10 & 31) == 31) {
            ASSERT_EQ(bits(y[0]), (h & 0x8000u) << 16 | 0x7F800000u | (h & 1023u) << 13) << h;
        } else {
            ASSERT_NO_FATAL_FAILURE(expect_same(y[0], small_float(h, 5, 10, 15))) << h;
        }
    }
}

TEST(FormatExhaustive, AllBf16) {
    for (unsigned h = 0; h < 65536; h++) {
        std::vector<float> y = decode_one(PLEC_FORMAT_BF16, {uint8_t(h), uint8_t(h >> 8)});
        ASSERT_EQ(bits(y[0]), h << 16);
        if ((h >> 7 & 255) == 255) continue;
        ASSERT_NO_FATAL_FAILURE(expect_same(y[0], small_float(h, 8, 7, 127))) << h;
    }
}

TEST(FormatExhaustive, AllE4M3AndAllE8M0) {
    for (unsigned scale = 0; scale < 256; scale++) {
        double factor = scale == 0 ? 0 : scale == 255 ? NAN : std::ldexp(1, int(scale) - 127);
        for (unsigned code = 0; code < 256; code++) {
            uint8_t scale_byte = uint8_t(scale);
            std::vector<float> y =
                decode_one(PLEC_FORMAT_MXFP8, std::vector<uint8_t>(32, uint8_t(code)), &scale_byte);
            double element = (code & 127) == 127 ? NAN : small_float(code, 4, 3, 7);
            ASSERT_NO_FATAL_FAILURE(expect_same(y[31], double(float(element * factor))))
                << scale << " " << code;
        }
    }
}

TEST(FormatExhaustive, AllE2M1UnderAllScales) {
    for (unsigned scale = 0; scale < 256; scale++) {
        double factor = scale == 0 ? 0 : scale == 255 ? NAN : std::ldexp(1, int(scale) - 127);
        double gguf_factor = std::ldexp(1, int(scale) - 128);
        double ue4m3 = scale == 127 ? 0 : small_float(scale & 127, 4, 3, 7); /* 255: 480 */
        double e4m3 = (scale & 127) == 127 ? NAN : small_float(scale, 4, 3, 7);
        for (unsigned code = 0; code < 16; code++) {
            double element = small_float(code, 2, 1, 1);
            double no_negative_zero = element == 0 ? 0 : element;
            uint8_t pair = uint8_t(code << 4 | (code ^ 15)), scale_byte = uint8_t(scale);
            double other = small_float(code ^ 15, 2, 1, 1); /* in the low nibble */
            std::vector<float> y =
                decode_one(PLEC_FORMAT_MXFP4, std::vector<uint8_t>(16, pair), &scale_byte);
            ASSERT_NO_FATAL_FAILURE(expect_same(y[31], double(float(element * factor))));
            ASSERT_NO_FATAL_FAILURE(expect_same(y[30], double(float(other * factor))));
            y = decode_one(PLEC_FORMAT_NVFP4, std::vector<uint8_t>(8, pair), &scale_byte, 0.375f);
            ASSERT_NO_FATAL_FAILURE(expect_same(y[15], 0.375 * e4m3 * element));
            ASSERT_NO_FATAL_FAILURE(expect_same(y[14], 0.375 * e4m3 * other));
            std::vector<uint8_t> block(17, pair);
            block[0] = scale_byte;
            y = decode_one(PLEC_FORMAT_GGUF_MXFP4, block);
            ASSERT_NO_FATAL_FAILURE(
                expect_same(y[31], double(float(2 * no_negative_zero * gguf_factor))));
            block.assign(36, pair);
            std::fill(block.begin(), block.begin() + 4, scale_byte);
            y = decode_one(PLEC_FORMAT_GGUF_NVFP4, block);
            ASSERT_NO_FATAL_FAILURE(expect_same(y[63], no_negative_zero * ue4m3));
        }
    }
}

TEST(FormatExhaustive, Fp4LarqlScalesMultiplyAndASixthIsRoundedOnce) {
    for (unsigned scale = 0; scale < 256; scale++)
        for (unsigned sub = 0; sub < 256; sub++) {
            std::vector<uint8_t> block(137, 0x70); /* 0 low, 6 high */
            block[128 + 7] = uint8_t(sub);
            block[127] = 0x35; /* 3 high, 5 low: 1.5 and 3 */
            block[136] = uint8_t(scale);
            std::vector<float> y = decode_one(PLEC_FORMAT_FP4_LARQL, block);
            double a = (scale & 127) == 127 ? NAN : small_float(scale, 4, 3, 7);
            double b = (sub & 127) == 127 ? NAN : small_float(sub, 4, 3, 7);
            bool zero = (scale & 127) == 0;
            ASSERT_NO_FATAL_FAILURE(expect_same(y[255], zero ? 0 : double(float(1.5 * a * b / 6))));
            ASSERT_NO_FATAL_FAILURE(expect_same(y[254], zero ? 0 : double(float(3 * a * b / 6))));
            ASSERT_NO_FATAL_FAILURE(expect_same(y[253], zero ? 0 : double(float(6 * a * b / 6))));
        }
}

TEST(FormatRows, Fp4LarqlSubScalesCoverThirtyTwoValuesEach) {
    std::vector<uint8_t> block(137, 0x22); /* all codes 1.0 */
    for (int g = 0; g < 8; g++)
        block[128 + g] = uint8_t(0x38 + 8 * g); /* 2^g */
    block[136] = 0x4C;                          /* 6 */
    std::vector<float> y = decode_one(PLEC_FORMAT_FP4_LARQL, block);
    for (int i = 0; i < 256; i++)
        ASSERT_EQ(y[i], std::ldexp(1.0f, i / 32)) << i;
}

TEST(FormatExhaustive, AllTernaryBytes) {
    /* A TQ1_0 byte holds the base-3 number n as ceil(n * 256 / 243); its digits come out high
     * first. */
    for (unsigned n = 0; n < 243; n++) {
        std::vector<uint8_t> block(54, uint8_t((n * 256 + 242) / 243));
        plec_store_u16(&block[52], 0x3C00);
        std::vector<float> y = decode_one(PLEC_FORMAT_GGUF_TQ1_0, block);
        const unsigned digit[5] = {n / 81, n / 27 % 3, n / 9 % 3, n / 3 % 3, n % 3};
        for (unsigned i = 0; i < 256; i++) {
            unsigned place = i < 160 ? i / 32 : i < 240 ? (i - 160) / 16 : (i - 240) / 4;
            ASSERT_EQ(y[i], float(digit[place]) - 1.0f) << n << " " << i;
        }
    }
}
