/* Every GGUF model under tests/data/gguf, run without converting it. What a layer computes comes
 * from the file and its architecture; of case.json only the number of the layer is read. */
#include "tests/support/data.h"
#include "tests/support/json.h"
#include "tests/support/layer_run.h"

#include <gtest/gtest.h>

#include <filesystem>

using namespace plec_test;

namespace {

std::vector<std::string> case_names() {
    std::vector<std::string> names;
    for (const std::string &name : list_folder(data_path("gguf"), ""))
        if (std::filesystem::exists(data_path("gguf/" + name + "/case.json")))
            names.push_back(name);
    return names;
}

class GgufCase : public testing::TestWithParam<std::string> {
  protected:
    std::string file(const std::string &name) const {
        return data_path("gguf/" + GetParam() + "/" + name);
    }
    bool has(const std::string &name) const { return std::filesystem::exists(file(name)); }
    /* The last shard of a split set: any shard must do. */
    std::string model() const {
        return has("model.gguf") ? file("model.gguf") : file("model-00003-of-00003.gguf");
    }
    uint32_t layer() const {
        Json document = load_json(file("case.json"));
        return static_cast<uint32_t>(json_integer_value(json_object_get(document.get(), "layer")));
    }
    LayerInput input() const { return {read_npy(file("x.npy")).f32(), {}, {}, false}; }
};

TEST_P(GgufCase, RoutesAsExpected) {
    OpenLayer open(model(), layer());
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    LayerOutput out = run_layer(open.bound, input());
    EXPECT_EQ(out.ids, read_npy(file("ids.npy")).i32());
    Npy weights = read_npy(file("weights.npy"));
    ASSERT_EQ(out.weights.size(), weights.values.size());
    for (size_t i = 0; i < out.weights.size(); i++)
        EXPECT_NEAR(out.weights[i], weights.values[i], 1e-6 * std::fabs(weights.values[i]))
            << "slot " << i;
}

TEST_P(GgufCase, ReferenceGivesTheOutput) {
    OpenLayer open(model(), layer());
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    EXPECT_LT(nmse(run_layer(open.bound, input()).y, read_npy(file("y.npy")).values), 1e-12);
}

TEST_P(GgufCase, ReferenceGivesTheRoutedPartAlone) {
    OpenLayer open(model(), layer());
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    ASSERT_EQ(open.bound.layer.shared.n_entries > 0, has("y_routed.npy"));
    LayerInput routed = input();
    routed.routed_only = true;
    std::string wanted = has("y_routed.npy") ? "y_routed.npy" : "y.npy";
    EXPECT_LT(nmse(run_layer(open.bound, routed).y, read_npy(file(wanted)).values), 1e-12);
}

TEST_P(GgufCase, CpuDeviceGivesTheOutputAndTheRouting) {
    OpenLayer open(model(), layer());
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    const LayerOutput out = run_layer_on_cpu(open, layer(), input());
    EXPECT_EQ(out.ids, read_npy(file("ids.npy")).i32());
    EXPECT_LT(nmse(out.y, read_npy(file("y.npy")).values), 1e-8);
}

INSTANTIATE_TEST_SUITE_P(All, GgufCase, testing::ValuesIn(case_names()),
                         [](const testing::TestParamInfo<std::string> &given) {
                             return given.param;
                         });

TEST(GgufCases, AreThere) {
    EXPECT_GE(case_names().size(), 12u);
}

} // namespace
