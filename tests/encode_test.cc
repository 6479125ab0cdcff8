#include "lyrw/encode.h"

#include "lyrw/codec/round.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <functional>
#include <random>

namespace {

const uint16_t encodable[] = {
    PLEC_FORMAT_F32,       PLEC_FORMAT_F16,       PLEC_FORMAT_BF16,      PLEC_FORMAT_Q4_0,
    PLEC_FORMAT_Q4_K,      PLEC_FORMAT_Q6_K,      PLEC_FORMAT_Q8_0,      PLEC_FORMAT_FP4_LARQL,
    PLEC_FORMAT_MXFP4,     PLEC_FORMAT_NVFP4,     PLEC_FORMAT_MXFP8,     PLEC_FORMAT_GGUF_Q4_1,
    PLEC_FORMAT_GGUF_Q5_0, PLEC_FORMAT_GGUF_Q5_1, PLEC_FORMAT_GGUF_Q5_K, PLEC_FORMAT_GGUF_MXFP4,
};

/* Formats whose encoder gives a decoded matrix its bytes back. */
const uint16_t exact_again[] = {PLEC_FORMAT_F32,   PLEC_FORMAT_F16,   PLEC_FORMAT_BF16,
                                PLEC_FORMAT_MXFP4, PLEC_FORMAT_MXFP8, PLEC_FORMAT_GGUF_MXFP4};

const char *name_of(uint16_t tag) {
    return plec_format_find(tag)->name;
}

struct Encoded {
    plec_status status;
    plec_error err;
    uint32_t rows, cols;
    uint16_t tag;
    std::vector<uint8_t> values, scales;
    std::vector<float> decoded() const {
        plec_matrix m = {tag, rows, cols, values.data(), scales.empty() ? nullptr : scales.data()};
        std::vector<float> out(size_t(rows) * cols, NAN);
        for (uint32_t r = 0; r < rows; r++)
            plec_matrix_row_f32(out.data() + size_t(r) * cols, &m, r);
        return out;
    }
};

Encoded encode(uint16_t tag, uint32_t rows, uint32_t cols, const std::vector<float> &x,
               uint8_t filler = 0xA5) {
    Encoded e = {};
    e.rows = rows;
    e.cols = cols;
    e.tag = tag;
    uint64_t n_values = 0, n_scales = 0;
    EXPECT_EQ(plec_format_size(&n_values, &n_scales, tag, rows, cols, &e.err), PLEC_OK);
    EXPECT_EQ(x.size(), size_t(rows) * cols);
    e.values.assign(n_values, filler);
    e.scales.assign(n_scales, filler);
    plec_encode_args args = {
        tag, rows, cols, x.data(), e.values.data(), n_scales ? e.scales.data() : nullptr};
    e.status = plec_matrix_encode(&args, &e.err);
    return e;
}

std::vector<float> normal_values(size_t n, double sigma, uint32_t seed) {
    std::mt19937 random(seed);
    std::normal_distribution<double> normal(0, sigma);
    std::vector<float> x(n);
    for (float &value : x)
        value = float(normal(random));
    return x;
}

double relative_rmse(const std::vector<float> &y, const std::vector<float> &x) {
    double error = 0, power = 0;
    for (size_t i = 0; i < x.size(); i++) {
        error += (double(y[i]) - x[i]) * (double(y[i]) - x[i]);
        power += double(x[i]) * x[i];
    }
    return std::sqrt(error / power);
}

double block_largest(const std::vector<float> &x, size_t i, size_t block) {
    double largest = 0;
    for (size_t j = i / block * block; j < i / block * block + block; j++)
        largest = std::max(largest, std::fabs(double(x[j])));
    return largest;
}

/* Whether `to_code` sends every value between the finite codes first .. last, whose values rise, to
 * the nearest one, and the middle of two to the even one. */
void expect_nearest_even(uint32_t first, uint32_t last, std::function<float(uint32_t)> value,
                         std::function<uint32_t(float)> to_code) {
    for (uint32_t code = first; code < last; code++) {
        float low = value(code), high = value(code + 1), middle = float((double(low) + high) / 2);
        ASSERT_LT(low, high);
        ASSERT_EQ(to_code(low), code);
        ASSERT_EQ(to_code(std::nextafter(middle, low)), code);
        ASSERT_EQ(to_code(std::nextafter(middle, high)), code + 1);
        ASSERT_EQ(to_code(middle), code % 2 == 0 ? code : code + 1) << middle;
    }
    ASSERT_EQ(to_code(value(last)), last);
}

} // namespace

TEST(Round, EveryF16GapTiesToEven) {
    expect_nearest_even(
        0, 0x7BFF, [](uint32_t c) { return plec_f16_f32(uint16_t(c)); },
        [](float x) { return plec_f32_f16(x); });
    EXPECT_EQ(plec_f32_f16(std::nextafter(65520.0f, 0.0f)), 0x7BFF);
    EXPECT_EQ(plec_f32_f16(65520.0f), 0x7C00);
    EXPECT_EQ(plec_f32_f16(-INFINITY), 0xFC00);
    EXPECT_EQ(plec_f32_f16(-FLT_MAX), 0xFC00);
    EXPECT_TRUE(std::isnan(plec_f16_f32(plec_f32_f16(NAN))));
    EXPECT_EQ(plec_f32_f16(-0.0f), 0x8000);
    EXPECT_EQ(plec_f32_f16(-1.5f), 0xBE00);
}

TEST(Round, EveryBf16GapTiesToEven) {
    expect_nearest_even(
        0, 0x7F7F, [](uint32_t c) { return plec_bf16_f32(uint16_t(c)); },
        [](float x) { return plec_f32_bf16(x); });
    EXPECT_EQ(plec_f32_bf16(FLT_MAX), 0x7F80);
    EXPECT_EQ(plec_f32_bf16(-INFINITY), 0xFF80);
    EXPECT_TRUE(std::isnan(plec_bf16_f32(plec_f32_bf16(NAN))));
    EXPECT_TRUE(std::isnan(plec_bf16_f32(plec_f32_bf16(plec_bits_f32(0x7F800001)))))
        << "a NaN whose upper half alone would be an infinity";
    EXPECT_EQ(plec_f32_bf16(-0.0f), 0x8000);
}

TEST(Round, EveryE4M3GapTiesToEvenAndTheTopSaturates) {
    expect_nearest_even(
        0, 0x7E, [](uint32_t c) { return plec_e4m3_f32(uint8_t(c)); },
        [](float x) { return plec_f32_e4m3(x); });
    EXPECT_EQ(plec_f32_e4m3(464.0f), 0x7E);
    EXPECT_EQ(plec_f32_e4m3(1e30f), 0x7E);
    EXPECT_EQ(plec_f32_e4m3(-INFINITY), 0xFE);
    EXPECT_EQ(plec_f32_e4m3(NAN), 0x7F);
    EXPECT_EQ(plec_f32_e4m3(-0.0f), 0x80);
}

TEST(Round, EveryE2M1GapTiesToEvenAndTheTopSaturates) {
    expect_nearest_even(
        0, 7, [](uint32_t c) { return plec_e2m1_f32(c); },
        [](float x) { return plec_f32_e2m1(x); });
    EXPECT_EQ(plec_f32_e2m1(1e30f), 7);
    EXPECT_EQ(plec_f32_e2m1(-7.0f), 15);
    EXPECT_EQ(plec_f32_e2m1(-0.25f), 8);
}

TEST(Encode, NormalValuesKeepTheStatedError) {
    /* the table in encode.h */
    const struct {
        uint16_t tag;
        double rmse;
    } stated[] = {
        {PLEC_FORMAT_F32, 0},
        {PLEC_FORMAT_F16, 0.00022},
        {PLEC_FORMAT_BF16, 0.0017},
        {PLEC_FORMAT_Q8_0, 0.0055},
        {PLEC_FORMAT_Q6_K, 0.0172},
        {PLEC_FORMAT_GGUF_Q5_1, 0.0340},
        {PLEC_FORMAT_GGUF_Q5_0, 0.0410},
        {PLEC_FORMAT_GGUF_Q5_K, 0.0352},
        {PLEC_FORMAT_GGUF_Q4_1, 0.0710},
        {PLEC_FORMAT_Q4_0, 0.0825},
        {PLEC_FORMAT_Q4_K, 0.0715},
        {PLEC_FORMAT_MXFP8, 0.0270},
        {PLEC_FORMAT_NVFP4, 0.0970},
        {PLEC_FORMAT_FP4_LARQL, 0.1035},
        {PLEC_FORMAT_MXFP4, 0.1140},
        {PLEC_FORMAT_GGUF_MXFP4, 0.1140},
    };
    ASSERT_EQ(std::size(stated), std::size(encodable));
    for (double sigma : {0.03, 3.0}) {
        std::vector<float> x = normal_values(64 * 1024, sigma, 11);
        for (const auto &s : stated) {
            SCOPED_TRACE(name_of(s.tag));
            Encoded e = encode(s.tag, 64, 1024, x);
            ASSERT_EQ(e.status, PLEC_OK) << e.err.message;
            double rmse = relative_rmse(e.decoded(), x);
            EXPECT_LE(rmse, s.rmse);
            EXPECT_GE(rmse, 0.9 * s.rmse) << "the stated bound has become idle";
        }
    }
}

TEST(Encode, NoElementIsFurtherOffThanStated) {
    const uint32_t rows = 16, cols = 1024;
    std::vector<float> x = normal_values(rows * cols, 0.05, 3);
    for (size_t i = 0; i < x.size(); i += 97)
        x[i] *= 20; /* some blocks have one value far out */
    auto worst = [&](uint16_t tag, std::function<double(size_t)> bound) {
        SCOPED_TRACE(name_of(tag));
        std::vector<float> y = encode(tag, rows, cols, x).decoded();
        for (size_t i = 0; i < x.size(); i++)
            ASSERT_LE(std::fabs(double(y[i]) - x[i]), bound(i)) << i << ": " << x[i];
    };
    worst(PLEC_FORMAT_F32, [&](size_t) { return 0.0; });
    worst(PLEC_FORMAT_F16,
          [&](size_t i) { return std::max(std::fabs(double(x[i])) / 2048, std::ldexp(1, -25)); });
    worst(PLEC_FORMAT_BF16, [&](size_t i) { return std::fabs(double(x[i])) / 256; });
    worst(PLEC_FORMAT_Q8_0, [&](size_t i) { return block_largest(x, i, 32) / 253; });
    worst(PLEC_FORMAT_MXFP8, [&](size_t i) { return block_largest(x, i, 32) / 8; });
    worst(PLEC_FORMAT_MXFP4, [&](size_t i) { return block_largest(x, i, 32) / 4; });
    worst(PLEC_FORMAT_GGUF_MXFP4, [&](size_t i) { return block_largest(x, i, 32) / 4; });
    worst(PLEC_FORMAT_NVFP4, [&](size_t i) { return block_largest(x, i, 16) * 0.18; });
    worst(PLEC_FORMAT_FP4_LARQL, [&](size_t i) { return block_largest(x, i, 32) * 0.18; });
}

TEST(Encode, EveryRowAndBlockHasItsOwnScale) {
    /* 6 rows x 2 super-blocks of very different size: an error that leaks from a neighbour shows */
    const uint32_t rows = 6, cols = 512;
    std::vector<float> x = normal_values(rows * cols, 1, 17);
    auto gain = [](uint32_t r, uint32_t c) {
        return std::ldexp(1.0, int(r) - 4 + (c < 256 ? 0 : 3));
    };
    for (uint32_t i = 0; i < rows * cols; i++)
        x[i] *= float(gain(i / cols, i % cols));
    for (uint16_t tag : encodable) {
        SCOPED_TRACE(name_of(tag));
        Encoded e = encode(tag, rows, cols, x);
        ASSERT_EQ(e.status, PLEC_OK) << e.err.message;
        std::vector<float> y = e.decoded();
        for (uint32_t b = 0; b < rows * 2; b++) {
            std::vector<float> part(x.begin() + b * 256, x.begin() + b * 256 + 256);
            std::vector<float> got(y.begin() + b * 256, y.begin() + b * 256 + 256);
            EXPECT_LT(relative_rmse(got, part), 0.14) << b;
        }
    }
}

TEST(Encode, DecodedMatricesGetTheirBytesBack) {
    std::mt19937 random(29);
    const uint32_t rows = 64, cols = 512;
    std::vector<float> x(rows * cols);
    for (uint32_t r = 0; r < rows; r++)
        for (uint32_t c = 0; c < cols; c++) {
            /* rows from 2^-140 to 2^112; zeros of both signs; some blocks nearly empty */
            double v = std::normal_distribution<double>(0, 1)(random);
            if (c % 7 == 0) v = c % 2 ? 0.0 : -0.0;
            if (c / 32 % 5 == 4 && c % 32 != 3) v *= 1e-3;
            x[r * cols + c] = float(std::ldexp(v, int(r) * 4 - 140));
        }
    for (uint16_t tag : exact_again) {
        SCOPED_TRACE(name_of(tag));
        std::vector<float> input = x;
        if (tag == PLEC_FORMAT_F16)
            for (float &value : input)
                value = std::fmod(value, 60000.0f);
        Encoded once = encode(tag, rows, cols, input);
        ASSERT_EQ(once.status, PLEC_OK) << once.err.message;
        Encoded twice = encode(tag, rows, cols, once.decoded());
        ASSERT_EQ(twice.status, PLEC_OK) << twice.err.message;
        EXPECT_EQ(once.values, twice.values);
        EXPECT_EQ(once.scales, twice.scales);
    }
}

TEST(Encode, EveryFiniteHalfKeepsItsBits) {
    for (uint16_t tag : {PLEC_FORMAT_F16, PLEC_FORMAT_BF16}) {
        uint32_t exponent = tag == PLEC_FORMAT_F16 ? 0x7C00 : 0x7F80;
        std::vector<float> x;
        std::vector<uint8_t> bytes;
        for (uint32_t h = 0; h < 65536; h++) {
            if ((h & exponent) == exponent) continue;
            x.push_back(tag == PLEC_FORMAT_F16 ? plec_f16_f32(uint16_t(h))
                                               : plec_bf16_f32(uint16_t(h)));
            bytes.push_back(uint8_t(h));
            bytes.push_back(uint8_t(h >> 8));
        }
        Encoded e = encode(tag, 1, uint32_t(x.size()), x);
        ASSERT_EQ(e.status, PLEC_OK) << e.err.message;
        EXPECT_EQ(e.values, bytes);
    }
}

TEST(Encode, ZerosStayZero) {
    for (uint16_t tag : encodable) {
        SCOPED_TRACE(name_of(tag));
        Encoded e = encode(tag, 2, 512, std::vector<float>(1024, 0.0f));
        ASSERT_EQ(e.status, PLEC_OK) << e.err.message;
        for (float value : e.decoded())
            ASSERT_EQ(value, 0.0f);
    }
}

TEST(Encode, MicroscaledZerosHaveScaleByteZero) {
    /* also what underflows to zero: one way to write a block of zeros */
    for (float value : {0.0f, std::ldexp(1.0f, -149)}) {
        std::vector<float> x(32, value);
        EXPECT_EQ(encode(PLEC_FORMAT_MXFP4, 1, 32, x).scales[0], 0);
        EXPECT_EQ(encode(PLEC_FORMAT_GGUF_MXFP4, 1, 32, x).values[0], 0);
    }
    EXPECT_EQ(encode(PLEC_FORMAT_MXFP8, 1, 32, std::vector<float>(32, 0.0f)).scales[0], 0);
}

TEST(Encode, ConstantsAndLoneValuesSurvive) {
    std::vector<float> constant(512, -0.75f), lone(512, 0.0f);
    lone[5] = 3.0f;
    lone[300] = -1.5f;
    for (uint16_t tag : encodable) {
        SCOPED_TRACE(name_of(tag));
        /* what one extreme costs: the step of its scale, 2^-4 at the coarsest */
        EXPECT_LT(relative_rmse(encode(tag, 1, 512, constant).decoded(), constant), 0.07);
        EXPECT_LT(relative_rmse(encode(tag, 1, 512, lone).decoded(), lone), 0.07);
    }
}

TEST(Encode, WritesEveryByteAndNoMore) {
    std::vector<float> x = normal_values(3 * 512, 1, 5);
    for (uint16_t tag : encodable) {
        SCOPED_TRACE(name_of(tag));
        Encoded a = encode(tag, 3, 512, x, 0x00), b = encode(tag, 3, 512, x, 0xFF);
        EXPECT_EQ(a.values, b.values) << "a byte kept what was there before";
        EXPECT_EQ(a.scales, b.scales);
        std::vector<uint8_t> values(a.values.size() + 8, 0x5A), scales(a.scales.size() + 8, 0x5A);
        plec_encode_args args = {tag, 3, 512, x.data(), values.data(), scales.data()};
        ASSERT_EQ(plec_matrix_encode(&args, nullptr), PLEC_OK);
        for (size_t i = 0; i < 8; i++) {
            EXPECT_EQ(values[a.values.size() + i], 0x5A);
            EXPECT_EQ(scales[a.scales.size() + i], 0x5A);
        }
    }
}

TEST(Encode, Nvfp4FollowsItsRule) {
    std::vector<float> x(64, 0.0f);
    x[0] = 1344.0f; /* tensor scale 1344 / 2688 = .5; block scale 1344 / (6 * .5) = 448 */
    x[1] = -448.0f; /* 2 */
    x[16] = 6.0f;   /* block scale 2 */
    x[17] = 2.5f;   /* a tie of 2 and 3: the even one, 2 */
    Encoded e = encode(PLEC_FORMAT_NVFP4, 2, 32, x);
    ASSERT_EQ(e.status, PLEC_OK);
    EXPECT_EQ(e.values[0], 0xC7);
    EXPECT_EQ(e.values[8], 0x47);
    EXPECT_EQ(e.values[32], 0x7E);
    EXPECT_EQ(e.values[33], 0x40);
    EXPECT_EQ(e.values[34], 0x00);
    EXPECT_EQ(plec_bits_f32(plec_le32(&e.values[36])), 0.5f);
    Encoded zero = encode(PLEC_FORMAT_NVFP4, 1, 16, std::vector<float>(16, 0.0f));
    EXPECT_EQ(plec_bits_f32(plec_le32(&zero.values[9])), 1.0f);
}

TEST(Encode, Fp4LarqlFollowsItsRule) {
    std::vector<float> x(256, 0.0f);
    x[0] = 12.0f;    /* block scale 12; sub-scale 1; step 2: code of 6 */
    x[1] = -1.0f;    /* -.5 */
    x[33] = 6.0f;    /* sub-scale .5, step 1: code of 6 in the high nibble */
    x[34] = 1.25f;   /* a tie of 1 and 1.5: the even one, 1 */
    x[255] = -0.01f; /* sub-scale 0.01 / 12, which E4M3 rounds to 0 */
    Encoded e = encode(PLEC_FORMAT_FP4_LARQL, 1, 256, x);
    ASSERT_EQ(e.status, PLEC_OK);
    EXPECT_EQ(e.values[0], 0x97);
    EXPECT_EQ(e.values[16], 0x70);
    EXPECT_EQ(e.values[17], 0x02);
    EXPECT_EQ(e.values[127], 0x00);
    EXPECT_EQ(e.values[128], 0x38);
    EXPECT_EQ(e.values[129], 0x30);
    EXPECT_EQ(e.values[135], 0x00);
    EXPECT_EQ(e.values[136], 0x54);
    EXPECT_EQ(e.decoded()[0], 12.0f);
}

TEST(Encode, Fp4LarqlReachesPastItsBlockScale) {
    std::vector<float> x(256, 0.0f);
    x[10] = 100000.0f; /* block scale 448, sub-scale 224 */
    Encoded e = encode(PLEC_FORMAT_FP4_LARQL, 1, 256, x);
    ASSERT_EQ(e.status, PLEC_OK);
    EXPECT_NEAR(e.decoded()[10], 100000.0f, 7000.0f);
    x[10] = 448.0f * 448.0f;
    EXPECT_EQ(encode(PLEC_FORMAT_FP4_LARQL, 1, 256, x).decoded()[10], 448.0f * 448.0f);
    x[10] = 464.0f * 448.0f; /* the last that rounds to 448 times 448 */
    EXPECT_EQ(encode(PLEC_FORMAT_FP4_LARQL, 1, 256, x).decoded()[10], 448.0f * 448.0f);
    x[10] = std::nextafter(x[10], FLT_MAX);
    EXPECT_EQ(encode(PLEC_FORMAT_FP4_LARQL, 1, 256, x).status, PLEC_BAD_INPUT);
}

TEST(Encode, MicroscalingReachesBothEndsOfF32) {
    for (uint16_t tag : {PLEC_FORMAT_MXFP4, PLEC_FORMAT_MXFP8, PLEC_FORMAT_GGUF_MXFP4}) {
        SCOPED_TRACE(name_of(tag));
        std::vector<float> x(32, -FLT_MAX);
        x[3] = FLT_MAX / 2;
        for (float value : encode(tag, 1, 32, x).decoded())
            ASSERT_TRUE(std::isfinite(value));
        EXPECT_LT(relative_rmse(encode(tag, 1, 32, x).decoded(), x), 0.26);
        std::vector<float> tiny(32, std::ldexp(1.0f, -127));
        EXPECT_EQ(encode(tag, 1, 32, tiny).decoded(), tiny);
    }
}

TEST(Encode, RefusesWhatIsNotFinite) {
    for (uint16_t tag : encodable)
        for (float bad : {NAN, INFINITY, -INFINITY}) {
            std::vector<float> x(1024, 1.0f);
            x[512 + 300] = bad;
            Encoded e = encode(tag, 2, 512, x);
            EXPECT_EQ(e.status, PLEC_BAD_INPUT) << name_of(tag);
            EXPECT_STREQ(e.err.name, "NotFinite");
            EXPECT_NE(std::string(e.err.message).find("row 1, column 300"), std::string::npos)
                << e.err.message;
        }
}

TEST(Encode, RefusesWhatTheFormatCannotHold) {
    const struct {
        uint16_t tag;
        float fits, exceeds;
    } cases[] = {
        {PLEC_FORMAT_F16, 65519.0f, 65520.0f}, {PLEC_FORMAT_BF16, 3.38e38f, FLT_MAX},
        {PLEC_FORMAT_Q4_0, 3e5f, 1e6f},        {PLEC_FORMAT_Q8_0, 8e6f, 9e6f},
        {PLEC_FORMAT_Q4_K, 3e7f, 1e30f},       {PLEC_FORMAT_Q6_K, 2e8f, 1e30f},
        {PLEC_FORMAT_GGUF_Q4_1, 5e4f, 2e6f},   {PLEC_FORMAT_GGUF_Q5_0, 8e5f, 2e6f},
        {PLEC_FORMAT_GGUF_Q5_1, 5e4f, 4e6f},   {PLEC_FORMAT_GGUF_Q5_K, 3e7f, 1e30f},
        {PLEC_FORMAT_FP4_LARQL, 2e5f, 2.1e5f},
    };
    for (const auto &c : cases) {
        SCOPED_TRACE(name_of(c.tag));
        std::vector<float> x(1024, 0.0f);
        x[512 + 260] = c.fits;
        Encoded fits = encode(c.tag, 2, 512, x);
        ASSERT_EQ(fits.status, PLEC_OK) << fits.err.message;
        for (float value : fits.decoded())
            ASSERT_TRUE(std::isfinite(value));
        x[512 + 260] = c.exceeds;
        Encoded exceeds = encode(c.tag, 2, 512, x);
        EXPECT_EQ(exceeds.status, PLEC_BAD_INPUT);
        EXPECT_STREQ(exceeds.err.name, "OutOfRange");
        EXPECT_NE(std::string(exceeds.err.message).find("row 1, column 2"), std::string::npos)
            << exceeds.err.message;
    }
}

TEST(Encode, RefusesFormatsWithoutAnEncoderByName) {
    plec_error err;
    std::vector<float> x(256, 1.0f);
    std::vector<uint8_t> values(256);
    plec_encode_args args = {PLEC_FORMAT_GGUF_Q2_K, 1, 256, x.data(), values.data(), nullptr};
    EXPECT_EQ(plec_matrix_encode(&args, &err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err.message, "NoEncoder: gguf_q2_k can only be decoded");
    args.format = 4242;
    EXPECT_EQ(plec_matrix_encode(&args, &err), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err.name, "UnknownFormat");
    args.format = PLEC_FORMAT_Q4_K;
    args.cols = 128;
    EXPECT_EQ(plec_matrix_encode(&args, &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "NotWholeBlocks");
    size_t n = 0, n_encodable = 0;
    const plec_format *formats = plec_format_all(&n);
    for (size_t i = 0; i < n; i++)
        n_encodable += plec_format_encodable(formats[i].tag);
    EXPECT_EQ(n_encodable, std::size(encodable));
}

TEST(Encode, NothingIsNothing) {
    for (uint16_t tag : encodable) {
        EXPECT_EQ(encode(tag, 0, 512, {}).status, PLEC_OK) << name_of(tag);
        EXPECT_EQ(encode(tag, 3, 0, {}).status, PLEC_OK) << name_of(tag);
    }
}
