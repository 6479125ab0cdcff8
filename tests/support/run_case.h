/* run_case.h: `plectrum run` of one small container, run01_sigmoid_two_segments, and arrays for it.
 */
#ifndef PLEC_TESTS_SUPPORT_RUN_CASE_H
#define PLEC_TESTS_SUPPORT_RUN_CASE_H

#include "tests/support/data.h"
#include "tools/plectrum/npy.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace plec_test {

inline std::string case_path(const std::string &file = "") {
    return data_path("run/run01_sigmoid_two_segments") + (file.empty() ? "" : "/" + file);
}

/* run <path> --layer 3 --input x.npy and more. */
inline ToolResult run_case(std::vector<std::string> more,
                           const std::string &input = case_path("x.npy")) {
    std::vector<std::string> args = {"run", case_path(), "--layer", "3", "--input", input};
    args.insert(args.end(), more.begin(), more.end());
    return run_tool(args);
}

inline void expect_message(const ToolResult &result, int status,
                           const std::vector<std::string> &parts) {
    EXPECT_EQ(result.exit_status, status) << result.out << result.err;
    EXPECT_EQ(result.out, "");
    for (const std::string &part : parts)
        EXPECT_NE(result.err.find(part), std::string::npos) << part << ": " << result.err;
}

inline std::string save_f32(const TempDir &dir, const std::string &name,
                            const std::vector<float> &values, uint64_t rows, uint64_t cols) {
    plec_error err = {};
    EXPECT_EQ(plec_npy_write(dir.path(name).c_str(), PLEC_NPY_F32, values.data(), rows, cols, &err),
              PLEC_OK)
        << err.message;
    return dir.path(name);
}

inline std::string save_i32(const TempDir &dir, const std::string &name,
                            const std::vector<int32_t> &values, uint64_t rows, uint64_t cols) {
    plec_error err = {};
    EXPECT_EQ(plec_npy_write(dir.path(name).c_str(), PLEC_NPY_I32, values.data(), rows, cols, &err),
              PLEC_OK)
        << err.message;
    return dir.path(name);
}

} // namespace plec_test
#endif
