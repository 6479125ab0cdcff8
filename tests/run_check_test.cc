/* What `plectrum run` says of its output: that it is not finite, and how far it is from the
 * reference. */
#include "tests/support/bank_files.h"
#include "tests/support/run_case.h"

#include <cmath>
#include <limits>

using namespace plec_test;

namespace {

TEST(RunCheck, AboveTheToleranceIsOne) {
    ToolResult result = run_case({"--check", "--device", "cpu"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.out.find("within the tolerance of 1e-09"), std::string::npos) << result.out;
    result = run_case({"--check", "--device", "cpu", "--tolerance", "0"});
    EXPECT_EQ(result.exit_status, 1) << result.out << result.err;
    EXPECT_NE(result.out.find("above"), std::string::npos) << result.out;
    result = run_case({"--check", "--device", "reference", "--tolerance", "0"});
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_NE(result.out.find("which is this device itself"), std::string::npos) << result.out;
}

TEST(RunCheck, NanInputNamesItsTokenAndWritesTheOtherRows) {
    TempDir dir;
    std::vector<float> x = read_npy(case_path("x.npy")).f32();
    x[2 * 64 + 9] = std::numeric_limits<float>::quiet_NaN();
    std::string input = save_f32(dir, "x.npy", x, 6, 64);
    for (const char *device : {"reference", "cpu"}) {
        expect_message(
            run_case({"--device", device, "--output", dir.path("y.npy"), "--check"}, input), 3,
            {"NanScores", "token 2"});
        std::vector<double> y = read_npy(dir.path("y.npy")).values;
        std::vector<double> expected = read_npy(case_path("y.npy")).values;
        for (size_t i = 0; i < y.size(); i++) {
            EXPECT_EQ(std::isnan(y[i]), i / 64 == 2) << i;
            if (i / 64 != 2) {
                EXPECT_NEAR(y[i], expected[i], 1e-3);
            }
        }
    }
}

/* Finite inputs that overflow: the values were written, and nothing was said. */
TEST(RunCheck, AnOutputThatIsNotFiniteIsToldAndIsOne) {
    TempDir dir;
    std::vector<float> x = read_npy(case_path("x.npy")).f32();
    for (size_t i = 0; i < 64; i++)
        x[3 * 64 + i] *= 1e25f;
    std::string input = save_f32(dir, "x.npy", x, 6, 64);
    for (const char *device : {"reference", "cpu"})
        for (bool check : {false, true}) {
            std::vector<std::string> more = {"--device", device, "--output", dir.path("y.npy"),
                                             "--json"};
            if (check) more.push_back("--check");
            ToolResult result = run_case(more, input);
            EXPECT_EQ(result.exit_status, 1) << result.err;
            std::vector<double> y = read_npy(dir.path("y.npy")).values;
            size_t n = 0, first = y.size();
            for (size_t i = y.size(); i-- > 0;)
                if (!std::isfinite(y[i])) n++, first = i;
            ASSERT_EQ(first / 64, 3u);
            std::string told = "OutputNotFinite: " + std::to_string(n) +
                               " of 384 values, the first in column " + std::to_string(first % 64) +
                               " of token 3\n";
            EXPECT_NE(result.err.find(told), std::string::npos) << told << result.err;
            Json json(result.out);
            auto is_null = [&](const char *key) {
                return json_is_null(json_object_get(json.get(), key));
            };
            EXPECT_EQ(json_integer_value(json_object_get(json.get(), "not_finite")), int64_t(n));
            EXPECT_TRUE(is_null("output_norm"));
            EXPECT_TRUE(is_null("nmse")) << "no number, with --check and without";
            EXPECT_EQ(is_null("tolerance"), !check);
            EXPECT_EQ(json_is_false(json_object_get(json.get(), "within")), check);
        }
}

TEST(RunCheck, AnOutputOfAnInputThatIsNotFiniteIsToldAndIsNoFault) {
    TempDir dir;
    std::vector<float> x(3 * 8, 0.25f), weights(3 * 2, 0.5f);
    x[8 + 5] = std::numeric_limits<float>::infinity();
    BankDirectory bank;
    std::string ids = save_i32(dir, "i.npy", {0, 1, 1, 2, 2, 3}, 3, 2);
    auto run = [&](const std::vector<float> &input) {
        return run_tool({"run", bank.write(), "--input", save_f32(dir, "x.npy", input, 3, 8),
                         "--ids", ids, "--weights", save_f32(dir, "w.npy", weights, 3, 2)});
    };
    ToolResult result = run(x);
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_NE(result.err.find("OutputNotFinite: 8 of 24 values, the first in column 0 of token 1; "
                              "what such tokens were given is not finite either"),
              std::string::npos)
        << result.err;
    for (size_t i = 16; i < 24; i++)
        x[i] = 1e30f;
    result = run(x);
    EXPECT_EQ(result.exit_status, 1) << result.err;
    EXPECT_NE(result.err.find("OutputNotFinite: 16 of 24"), std::string::npos) << result.err;
    x[0] = std::numeric_limits<float>::quiet_NaN();
    result = run(x);
    EXPECT_EQ(result.exit_status, 3) << result.err;
    EXPECT_NE(result.err.find("NanScores"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("OutputNotFinite: 16 of 24"), std::string::npos)
        << "beside the row of the token that has no routing: " << result.err;
}

} // namespace
