/* GGUF mxfp4 and nvfp4 into LYRW's regions: every value stays, from whatever byte the stream is
 * asked for. */
#include "lyrw/repack.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

namespace {

using Bytes = std::vector<uint8_t>;

/* A stream made in steps that take no more than max_source bytes, asked for `ask` bytes at a time.
 */
Bytes stream(plec_repack how, const Bytes &blocks, uint64_t n_blocks, uint64_t ask,
             uint64_t max_source) {
    Bytes out(plec_repack_bytes(how, n_blocks), 0xEE);
    for (uint64_t at = 0; at < out.size();) {
        uint64_t n = std::min<uint64_t>(ask, out.size() - at);
        plec_repack_step step = plec_repack_plan(how, n_blocks, at, n, max_source);
        EXPECT_GE(step.n_out, 1u);
        EXPECT_LE(step.n_out, n);
        EXPECT_LE(step.n_source, max_source);
        EXPECT_LE(step.source_at + step.n_source, blocks.size());
        /* A copy of just the bytes that were asked for: a sanitizer sees any other being read. */
        Bytes source(blocks.begin() + static_cast<ptrdiff_t>(step.source_at),
                     blocks.begin() + static_cast<ptrdiff_t>(step.source_at + step.n_source));
        plec_repack_make(out.data() + at, how, n_blocks, at, &step, source.data());
        at += step.n_out;
    }
    return out;
}

Bytes whole(plec_repack how, const Bytes &blocks, uint64_t n_blocks) {
    return stream(how, blocks, n_blocks, UINT64_MAX, UINT64_MAX);
}

std::vector<double> decoded(uint16_t format, uint32_t rows, uint32_t cols, const Bytes &values,
                            const Bytes &scales) {
    plec_matrix matrix = {format, rows, cols, values.data(),
                          scales.empty() ? nullptr : scales.data()};
    std::vector<double> out(size_t(rows) * cols);
    for (uint32_t row = 0; row < rows; row++)
        plec_matrix_row_f64(&out[size_t(row) * cols], &matrix, row);
    return out;
}

bool same_bits(const std::vector<double> &a, const std::vector<double> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0;
}

/* One block for every scale byte, its codes all sixteen in both halves. */
Bytes every_mxfp4_scale() {
    Bytes blocks;
    for (int e = 0; e < 256; e++) {
        blocks.push_back(static_cast<uint8_t>(e));
        for (int j = 0; j < 16; j++)
            blocks.push_back(static_cast<uint8_t>(j | ((j * 7 + e) & 15) << 4));
    }
    return blocks;
}

Bytes random_bytes(size_t n, unsigned seed) {
    std::mt19937 random(seed);
    Bytes out(n);
    for (uint8_t &byte : out)
        byte = static_cast<uint8_t>(random());
    return out;
}

} // namespace

TEST(Repack, Mxfp4KeepsEveryValueOfEveryAllowedScale) {
    const Bytes blocks = every_mxfp4_scale();
    for (int e = 0; e < 256; e++) {
        const Bytes one(blocks.begin() + e * 17, blocks.begin() + (e + 1) * 17);
        const bool allowed = plec_repack_allowed(PLEC_FORMAT_GGUF_MXFP4, one.data(), 1);
        EXPECT_EQ(allowed, e != 0 && e != 255) << e;
        const bool same =
            same_bits(decoded(PLEC_FORMAT_GGUF_MXFP4, 1, 32, one, {}),
                      decoded(PLEC_FORMAT_MXFP4, 1, 32, whole(PLEC_REPACK_MXFP4_VALUES, one, 1),
                              whole(PLEC_REPACK_MXFP4_SCALES, one, 1)));
        if (allowed) {
            EXPECT_TRUE(same) << e;
        }
    }
}

TEST(Repack, Mxfp4ScaleZeroIsAllowedOverZerosOnly) {
    Bytes block(17, 0);
    EXPECT_TRUE(plec_repack_allowed(PLEC_FORMAT_GGUF_MXFP4, block.data(), 1));
    EXPECT_TRUE(
        same_bits(decoded(PLEC_FORMAT_GGUF_MXFP4, 1, 32, block, {}),
                  decoded(PLEC_FORMAT_MXFP4, 1, 32, whole(PLEC_REPACK_MXFP4_VALUES, block, 1),
                          whole(PLEC_REPACK_MXFP4_SCALES, block, 1))));
    for (size_t i = 1; i < 17; i++)
        for (uint8_t code : {0x01, 0x10, 0x80}) {
            Bytes spoilt = block;
            spoilt[i] = code;
            EXPECT_FALSE(plec_repack_allowed(PLEC_FORMAT_GGUF_MXFP4, spoilt.data(), 1)) << i;
        }
}

TEST(Repack, Nvfp4KeepsEveryValueOfEveryAllowedScale) {
    for (int s = 0; s < 256; s++) {
        Bytes block(36);
        for (size_t i = 0; i < 4; i++)
            block[i] = static_cast<uint8_t>(i == 2 ? s : 0x38);
        for (size_t i = 0; i < 32; i++)
            block[4 + i] = static_cast<uint8_t>((i & 15) | ((i * 5 + 3) & 15) << 4);
        EXPECT_EQ(plec_repack_allowed(PLEC_FORMAT_GGUF_NVFP4, block.data(), 1), s < 0x7F) << s;
        if (s >= 0x7F) continue;
        EXPECT_TRUE(
            same_bits(decoded(PLEC_FORMAT_GGUF_NVFP4, 1, 64, block, {}),
                      decoded(PLEC_FORMAT_NVFP4, 1, 64, whole(PLEC_REPACK_NVFP4, block, 1), {})))
            << s;
    }
}

TEST(Repack, MatricesKeepTheirValues) {
    const uint32_t rows = 7, cols = 192;
    Bytes mxfp4 = random_bytes(rows * cols / 32 * 17, 1),
          nvfp4 = random_bytes(rows * cols / 64 * 36, 2);
    for (size_t i = 0; i < mxfp4.size(); i += 17)
        mxfp4[i] = static_cast<uint8_t>(100 + mxfp4[i] % 60);
    for (size_t i = 0; i < nvfp4.size(); i += 36)
        for (size_t g = 0; g < 4; g++)
            nvfp4[i + g] %= 0x7F;
    const uint64_t n32 = rows * cols / 32, n64 = rows * cols / 64;
    ASSERT_TRUE(plec_repack_allowed(PLEC_FORMAT_GGUF_MXFP4, mxfp4.data(), n32));
    ASSERT_TRUE(plec_repack_allowed(PLEC_FORMAT_GGUF_NVFP4, nvfp4.data(), n64));
    EXPECT_TRUE(same_bits(decoded(PLEC_FORMAT_GGUF_MXFP4, rows, cols, mxfp4, {}),
                          decoded(PLEC_FORMAT_MXFP4, rows, cols,
                                  whole(PLEC_REPACK_MXFP4_VALUES, mxfp4, n32),
                                  whole(PLEC_REPACK_MXFP4_SCALES, mxfp4, n32))));
    EXPECT_TRUE(same_bits(
        decoded(PLEC_FORMAT_GGUF_NVFP4, rows, cols, nvfp4, {}),
        decoded(PLEC_FORMAT_NVFP4, rows, cols, whole(PLEC_REPACK_NVFP4, nvfp4, n64), {})));
    nvfp4[nvfp4.size() - 36 + 3] = 0x80;
    EXPECT_FALSE(plec_repack_allowed(PLEC_FORMAT_GGUF_NVFP4, nvfp4.data(), n64));
}

TEST(Repack, AStreamIsTheSameFromAnyByteOnAndInAnySteps) {
    const uint64_t n = 23;
    const struct {
        plec_repack how;
        uint64_t block;
    } kinds[] = {
        {PLEC_REPACK_MXFP4_VALUES, 17}, {PLEC_REPACK_MXFP4_SCALES, 17}, {PLEC_REPACK_NVFP4, 36}};
    for (const auto &kind : kinds) {
        const Bytes blocks = random_bytes(n * kind.block, 3);
        const Bytes wanted = whole(kind.how, blocks, n);
        for (uint64_t ask : {1u, 2u, 3u, 5u, 16u, 31u, 33u, 100u})
            for (uint64_t max_source : {36u, 40u, 75u, 1000u})
                EXPECT_EQ(stream(kind.how, blocks, n, ask, max_source), wanted)
                    << kind.how << " " << ask << " " << max_source;
    }
}

TEST(Repack, OtherFormatsAreLeftAlone) {
    size_t n_formats;
    const plec_format *all = plec_format_all(&n_formats);
    const uint8_t block[256] = {0};
    for (size_t i = 0; i < n_formats; i++) {
        if (all[i].tag == PLEC_FORMAT_GGUF_MXFP4 || all[i].tag == PLEC_FORMAT_GGUF_NVFP4) continue;
        EXPECT_EQ(plec_repack_target(all[i].tag), all[i].tag) << all[i].name;
        EXPECT_FALSE(plec_repack_allowed(all[i].tag, block, 1)) << all[i].name;
    }
    EXPECT_EQ(plec_repack_target(PLEC_FORMAT_GGUF_MXFP4), PLEC_FORMAT_MXFP4);
    EXPECT_EQ(plec_repack_target(PLEC_FORMAT_GGUF_NVFP4), PLEC_FORMAT_NVFP4);
}
