#include "lyrw/tezw.h"
#include "tests/support/data.h"
#include "tests/support/keyword.h"

#include <gtest/gtest.h>

#include <sstream>

using plec_test::data_path;

TEST(Tezw, MalformedFilesComeOutAsExpected) {
    std::stringstream table(plec_test::read_text(data_path("tezw/malformed/expected.tsv")));
    std::string line;
    std::getline(table, line);
    unsigned n_rows = 0;
    for (; std::getline(table, line); n_rows++) {
        std::stringstream row(line);
        std::string name, expect, keyword;
        std::getline(row, name, '\t');
        std::getline(row, expect, '\t');
        std::getline(row, keyword, '\t');
        std::vector<uint8_t> bytes = plec_test::read_file(data_path("tezw/malformed/" + name));
        plec_tezw file;
        plec_error err = {};
        EXPECT_EQ(expect, "refuse");
        EXPECT_EQ(plec_tezw_parse(&file, bytes.data(), bytes.size(), &err), PLEC_MALFORMED) << name;
        EXPECT_TRUE(plec_test::has_keyword(err.message, keyword)) << name << ": " << err.message;
    }
    EXPECT_EQ(n_rows, 9u);
}

TEST(Tezw, EveryMatrixFollowsTheOneBefore) {
    std::vector<uint8_t> bytes = plec_test::read_file(data_path("tezw/tiny/model.tezw"));
    plec_tezw file;
    plec_error err = {};
    ASSERT_EQ(plec_tezw_parse(&file, bytes.data(), bytes.size(), &err), PLEC_OK) << err.message;
    EXPECT_EQ(file.n_layer, 2u);
    EXPECT_EQ(file.dim, 8u);
    EXPECT_EQ(file.ffn_dim, 12u);
    EXPECT_EQ(plec_tezw_n_weights(&file), 1216u);
    uint64_t at = PLEC_TEZW_HEADER_BYTES;
    for (uint32_t layer = 0; layer < file.n_layer; layer++)
        for (int kind = layer == 0 ? 0 : PLEC_TEZW_RMS1; kind < PLEC_TEZW_N_KINDS; kind++) {
            plec_tezw_tensor tensor =
                plec_tezw_tensor_at(&file, layer, static_cast<plec_tezw_tensor_kind>(kind));
            EXPECT_EQ(tensor.at, at) << tensor.name << " of layer " << layer;
            EXPECT_EQ(tensor.n_bytes, uint64_t(tensor.rows) * tensor.cols * 8);
            at += tensor.n_bytes;
        }
    EXPECT_EQ(at, file.size);
    plec_tezw_tensor down = plec_tezw_tensor_at(&file, 1, PLEC_TEZW_WPROJ);
    EXPECT_STREQ(down.name, "wproj");
    EXPECT_EQ(down.rows, 8u);
    EXPECT_EQ(down.cols, 12u);
}

TEST(Tezw, DefaultModelHasThePublishedSize) {
    std::vector<uint8_t> bytes(8660008);
    const uint32_t fields[] = {0x57325A54, 2, 4, 4, 128, 256, 128, 512};
    for (size_t i = 0; i < 8; i++)
        for (size_t k = 0; k < 4; k++)
            bytes[4 * i + k] = static_cast<uint8_t>(fields[i] >> (8 * k));
    plec_tezw file;
    plec_error err = {};
    ASSERT_EQ(plec_tezw_parse(&file, bytes.data(), bytes.size(), &err), PLEC_OK) << err.message;
    EXPECT_EQ(plec_tezw_n_weights(&file), 1082496u);
}

TEST(Tezw, EachDimIsRefusedByName) {
    std::vector<uint8_t> good = plec_test::read_file(data_path("tezw/tiny/model.tezw"));
    const char *const names[] = {"n_layer", "n_head", "dim", "vocab_sz", "max_seq", "ffn_dim"};
    for (size_t i = 0; i < 6; i++)
        for (uint8_t top : {0x00, 0x80, 0xFF}) {
            std::vector<uint8_t> bad = good;
            bad[8 + 4 * i] = bad[9 + 4 * i] = bad[10 + 4 * i] = 0;
            bad[11 + 4 * i] = top;
            plec_tezw file;
            plec_error err = {};
            EXPECT_EQ(plec_tezw_parse(&file, bad.data(), bad.size(), &err), PLEC_MALFORMED);
            EXPECT_STREQ(err.name, "BadDim");
            EXPECT_EQ(err.byte, 8 + 4 * i);
            EXPECT_NE(std::string(err.message).find(names[i]), std::string::npos) << err.message;
        }
}

TEST(Tezw, LargestDimsOverflowByName) {
    std::vector<uint8_t> bytes = plec_test::read_file(data_path("tezw/tiny/model.tezw"));
    for (size_t i = 0; i < 6; i++) {
        bytes[8 + 4 * i] = bytes[9 + 4 * i] = bytes[10 + 4 * i] = 0xFF;
        bytes[11 + 4 * i] = 0x7F;
    }
    plec_tezw file;
    plec_error err = {};
    EXPECT_EQ(plec_tezw_parse(&file, bytes.data(), bytes.size(), &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "SizeOverflow");
}

TEST(Tezw, EveryPrefixIsRefused) {
    std::vector<uint8_t> whole = plec_test::read_file(data_path("tezw/tiny/model.tezw"));
    for (size_t n = 0; n < whole.size(); n++) {
        std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
        plec_tezw file;
        ASSERT_EQ(plec_tezw_parse(&file, cut.data(), n, nullptr), PLEC_MALFORMED) << n;
    }
}

TEST(Tezw, EveryByteChangeInTheHeaderIsRefusedOrHarmless) {
    std::vector<uint8_t> whole = plec_test::read_file(data_path("tezw/tiny/model.tezw"));
    for (size_t at = 0; at < PLEC_TEZW_HEADER_BYTES; at++)
        for (unsigned value = 0; value < 256; value++) {
            std::vector<uint8_t> changed = whole;
            changed[at] = static_cast<uint8_t>(value);
            plec_tezw file;
            plec_status status = plec_tezw_parse(&file, changed.data(), changed.size(), nullptr);
            bool same = value == whole[at];
            /* n_head and max_seq do not move a weight; the reserved bytes are not read. */
            bool harmless = at >= 32 || (at >= 12 && at < 16) || (at >= 24 && at < 28);
            ASSERT_TRUE(status == PLEC_MALFORMED || same || harmless) << at << " " << value;
        }
}
