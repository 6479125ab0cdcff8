// `plectrum layout`: numbers that the format implies, and requests that make no sense.
#include "tests/support/data.h"

#include <gtest/gtest.h>

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
