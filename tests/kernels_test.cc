// `plectrum kernels`: what it lists is what the code has.
#include "manifests/capability.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <map>
#include <memory>

using namespace plec_test;

TEST(Kernels, EveryProgrammeFormatAndBackendHasARung) {
    ToolResult result = run_tool({"kernels", "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    std::unique_ptr<json_t, decltype(&json_decref)> json(
        json_loads(result.out.c_str(), JSON_REJECT_DUPLICATES, nullptr), &json_decref);
    ASSERT_NE(json, nullptr);
    size_t n_programmes, n_formats;
    plec_programme_all(&n_programmes);
    plec_format_all(&n_formats);
    json_t *rows = json_object_get(json.get(), "rows");
    EXPECT_EQ(json_array_size(rows), n_programmes * n_formats * 3);
    std::map<std::string, size_t> n_of;
    for (size_t i = 0; i < json_array_size(rows); i++) {
        json_t *row = json_array_get(rows, i);
        std::string backend = json_string_value(json_object_get(row, "backend"));
        std::string rung = json_string_value(json_object_get(row, "rung"));
        bool has_kernel = json_is_string(json_object_get(row, "kernel"));
        n_of[backend + " " + rung]++;
        EXPECT_EQ(has_kernel, rung == "dispatched") << backend << " " << rung;
    }
    EXPECT_EQ(n_of["reference reference"], n_programmes * n_formats);
    EXPECT_EQ(n_of["cpu dispatched"], n_programmes * n_formats);
}

TEST(Kernels, TextNamesProgrammesAndRoles) {
    ToolResult result = run_tool({"kernels"});
    EXPECT_EQ(result.exit_status, 0);
    for (const char *part :
         {"gpt-oss-expert-v1", "gate_up_fused down bias", "mxfp4", "reference", "dispatched"})
        EXPECT_NE(result.out.find(part), std::string::npos) << part;
}

/* It said "not built in, or no device", whichever it was and whatever the runtime had said. */
TEST(Kernels, TextSaysWhyABackendIsNotThere) {
    ToolResult text = run_tool({"kernels"}), result = run_tool({"kernels", "--json"});
    std::unique_ptr<json_t, decltype(&json_decref)> json(json_loads(result.out.c_str(), 0, nullptr),
                                                         &json_decref);
    ASSERT_NE(json, nullptr);
    json_t *cuda = json_array_get(json_object_get(json.get(), "backends"), 2);
    size_t at = text.out.find("\n  cuda ");
    ASSERT_NE(at, std::string::npos);
    std::string line = text.out.substr(at + 1, text.out.find('\n', at + 1) - at - 1);
    if (json_is_true(json_object_get(cuda, "available")))
        EXPECT_NE(line.find(json_string_value(json_object_get(cuda, "device"))), std::string::npos);
    else
        EXPECT_TRUE(line.find("DeviceNotBuilt: ") != std::string::npos ||
                    line.find("DeviceAbsent: ") != std::string::npos)
            << line;
    EXPECT_EQ(text.out.find(" \n"), std::string::npos);
}
