// `plectrum layout`, and the sizing behind it.
#include "lyrw/sizing.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

using plec_test::run_tool;
using plec_test::ToolResult;

namespace {
const std::vector<std::string> small = {"layout",
                                        "--experts",
                                        "32",
                                        "--input",
                                        "2048",
                                        "--intermediate",
                                        "6144",
                                        "--output",
                                        "2048",
                                        "--regions",
                                        "gate_up_fused:mxfp4,down:mxfp4"};
const std::vector<std::string> large = {"layout",
                                        "--experts",
                                        "896",
                                        "--input",
                                        "3584",
                                        "--intermediate",
                                        "3072",
                                        "--output",
                                        "3584",
                                        "--regions",
                                        "gate_up_fused:q6_k,down:q6_k"};

std::string out(std::vector<std::string> args, const std::vector<std::string> &more = {}) {
    args.insert(args.end(), more.begin(), more.end());
    ToolResult result = run_tool(args);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    return result.out;
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}
} // namespace

TEST(Layout, InlineMxfp4HasTwoSchemas) {
    std::string text = out(small);
    EXPECT_TRUE(has(text, "payload    612.0 MiB (641,728,512 bytes)")) << text;
    EXPECT_TRUE(has(text, "structure  1.1 KiB (tables of 1,124 bytes)")) << text;
    EXPECT_TRUE(has(text, "payload from byte 1152")) << "only --extent aligns to 4096: " << text;
}

TEST(Layout, PairedMxfp4HasFourSchemas) {
    std::string text = out(small, {"--paired"});
    EXPECT_TRUE(has(text, "payload    612.0 MiB")) << text;
    EXPECT_TRUE(has(text, "tables of 2,188 bytes")) << text;
}

TEST(Layout, ExtentsStartOnPages) {
    EXPECT_TRUE(has(out(small, {"--extent", "16"}), "payload from byte 4096"));
}

TEST(Layout, LargeLayerFallsIntoTwoEqualFiles) {
    std::string text = out(large, {"--segment-cap", "20GiB", "--extent", "16"});
    EXPECT_TRUE(has(text, "33,030,144 parameters")) << text;
    EXPECT_TRUE(has(text, "layer      22.61 GiB in 2 files")) << text;
    EXPECT_TRUE(has(text, "2 files of 448 experts, 28 extents of 16")) << text;
}

TEST(Layout, JsonHasExactBytesAndKeysInOrder) {
    std::string text = out(large, {"--segment-cap", "20GiB", "--extent", "16", "--json"});
    size_t at = 0;
    for (const char *part :
         {"{\"experts\": 896", "\"input\": 3584", "\"intermediate\": 3072", "\"output\": 3584",
          "\"regions\": [{\"role\": \"gate_up_fused\", \"format\": \"q6_k\"",
          "\"parameters_per_expert\": 33030144", "\"bytes_per_expert\": 27095040",
          "\"structure_bytes\": 28872", "\"payload_bytes\": 24277155840", "\"total_bytes\": ",
          "\"files\": 2", "\"extent\": {\"width\": 16, \"bytes\": 433520640, \"count\": 56}",
          "\"segments\": [{\"first_entry\": 0, \"entries\": 448, \"extents\": 28"}) {
        size_t found = text.find(part, at);
        ASSERT_NE(found, std::string::npos) << part << " in " << text;
        at = found;
    }
    EXPECT_TRUE(has(out(large, {"--json"}), "\"extent\": null"));
}

TEST(Layout, DownIsPaddedToWholeBlocks) {
    std::string text = out({"layout", "--experts", "4", "--input", "256", "--intermediate", "300",
                            "--output", "256", "--regions", "gate:q4_k,up:q4_k,down:q4_k"});
    EXPECT_TRUE(has(text, "256 x 512")) << text;
    EXPECT_TRUE(has(text, "230,400 parameters")) << "padding is no parameter: " << text;
}

TEST(Layout, BadRequestsAreUsage) {
    auto status = [](std::vector<std::string> more) {
        std::vector<std::string> args = small;
        args.insert(args.end(), more.begin(), more.end());
        return run_tool(args).exit_status;
    };
    EXPECT_EQ(run_tool({"layout"}).exit_status, 2);
    EXPECT_EQ(status({"--experts", "0"}), 2);
    EXPECT_EQ(status({"--regions", "gate"}), 2);
    EXPECT_EQ(status({"--regions", "gate:q9"}), 2);
    EXPECT_EQ(status({"--regions", "hate:f32"}), 2);
    EXPECT_EQ(status({"--regions", "gate:f32,"}), 2);
    EXPECT_EQ(status({"--regions", "gate:f32", "--paired"}), 2);
    EXPECT_EQ(status({"--extent", "0"}), 2);
    EXPECT_EQ(status({"--segment-cap", "1MiB"}), 2);
    EXPECT_EQ(status({"--input", "2049"}), 2) << "no whole blocks";
    EXPECT_EQ(status({"--experts", "4294967295", "--input", "4294967264", "--intermediate",
                      "2147483647", "--output", "4294967295", "--regions", "gate:f32"}),
              2)
        << "more than 64 bits";
    EXPECT_EQ(status({"path"}), 2);
}

namespace {
plec_sizing plan(uint32_t n_entries, const std::vector<uint64_t> &bytes, uint32_t width,
                 uint64_t cap, plec_status wanted = PLEC_OK) {
    plec_sizing_args args = {n_entries, bytes.data(), static_cast<uint32_t>(bytes.size()), width,
                             cap};
    plec_sizing sizing;
    plec_error err;
    EXPECT_EQ(plec_sizing_plan(&sizing, &args, &err), wanted) << err.message;
    return sizing;
}
} // namespace

TEST(Sizing, SegmentsTileTheBankUnderTheCapInWholeExtents) {
    std::vector<uint64_t> bytes = {1000, 64, 130};
    for (uint32_t n_entries : {1u, 7u, 40u, 60u, 205u, 896u})
        for (uint32_t width : {0u, 1u, 8u, 16u, 32u})
            for (uint64_t cap : {UINT64_C(0), UINT64_C(50000), UINT64_C(200000)}) {
                plec_sizing sizing = plan(n_entries, bytes, width, cap);
                uint32_t next = 0, most = 0, least = UINT32_MAX;
                for (uint32_t i = 0; i < sizing.n_segments; i++) {
                    plec_sizing_segment segment;
                    plec_sizing_segment_at(&segment, &sizing, i);
                    EXPECT_EQ(segment.first_entry, next);
                    next += segment.n_entries;
                    EXPECT_TRUE(cap == 0 || segment.file_bytes <= cap);
                    bool last = i + 1 == sizing.n_segments;
                    EXPECT_TRUE(width == 0 || last || segment.n_entries % width == 0);
                    if (!last) least = std::min(least, segment.n_entries);
                    most = std::max(most, segment.n_entries);
                }
                EXPECT_EQ(next, n_entries);
                EXPECT_TRUE(sizing.n_segments == 1 || most - least <= std::max(width, 1u));
            }
}

TEST(Sizing, FewestFiles) {

    std::vector<uint64_t> bytes = {64};
    plec_sizing whole = plan(10, bytes, 0, 0);
    plec_sizing_segment segment;
    plec_sizing_segment_at(&segment, &whole, 0);
    EXPECT_EQ(segment.table_bytes, 24u + 24 + 12 + 20 + 160);
    EXPECT_EQ(segment.payload_start, 256u);
    EXPECT_EQ(segment.file_bytes, 256u + 640);
    EXPECT_EQ(plan(10, bytes, 0, 896).n_segments, 1u);
    EXPECT_EQ(plan(10, bytes, 0, 895).n_segments, 2u);
}

TEST(Sizing, ACapBelowOneExtentIsRefused) {
    plan(10, {64}, 8, 2000, PLEC_BAD_INPUT);
}

TEST(Sizing, EmptyBanksAreTablesOnly) {
    plec_sizing sizing = plan(0, {64}, 16, 1000);
    plec_sizing_segment segment;
    plec_sizing_segment_at(&segment, &sizing, 0);
    EXPECT_EQ(segment.n_entries, 0u);
    EXPECT_EQ(segment.file_bytes, 128u);
}
