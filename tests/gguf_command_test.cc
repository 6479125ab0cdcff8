/* `plectrum run` on GGUF and TEZW files, from the command line. */
#include "tests/support/data.h"
#include "tests/support/gguf_moe.h"
#include "tests/support/json.h"

#include "tools/plectrum/npy.h"

using namespace plec_test;

namespace {

/* A made-up model in a folder, its input beside it. */
struct Model {
    Model(Moe &moe, const GgufFile &file, bool router_input = false)
        : path(folder.path("model.gguf")), input(moe.input(4, router_input)),
          wanted(moe.expected(input)) {
        file.write(path);
        put_f32("x", input.x, moe.hidden);
        if (router_input) put_f32("r", input.router_input, moe.hidden);
        if (!input.tokens.empty()) put_i32("t", input.tokens);
    }
    void put_f32(const std::string &name, const std::vector<float> &values, uint32_t cols) {
        plec_error error = {};
        EXPECT_EQ(plec_npy_write(folder.path(name + ".npy").c_str(), PLEC_NPY_F32, values.data(),
                                 static_cast<uint32_t>(values.size()) / cols, cols, &error),
                  PLEC_OK)
            << error.message;
    }
    void put_i32(const std::string &name, const std::vector<int32_t> &values) {
        plec_error error = {};
        EXPECT_EQ(plec_npy_write(folder.path(name + ".npy").c_str(), PLEC_NPY_I32, values.data(),
                                 static_cast<uint32_t>(values.size()), 1, &error),
                  PLEC_OK)
            << error.message;
    }
    ToolResult run(std::vector<std::string> more) const {
        std::vector<std::string> args = {"run",           path,
                                         "--input",       folder.path("x.npy"),
                                         "--output",      folder.path("y.npy"),
                                         "--routing-out", folder.path("routing")};
        args.insert(args.end(), more.begin(), more.end());
        return run_tool(args);
    }
    std::string array(const std::string &name) const { return folder.path(name + ".npy"); }
    void expect_right(const ToolResult &result) const {
        ASSERT_EQ(result.exit_status, 0) << result.err;
        EXPECT_LT(
            nmse(read_npy(folder.path("y.npy")).f32(), Reals(wanted.y.begin(), wanted.y.end())),
            1e-9);
        EXPECT_EQ(read_npy(folder.path("routing.ids.npy")).i32(), wanted.ids);
        const std::vector<double> weights = read_npy(folder.path("routing.weights.npy")).values;
        for (size_t i = 0; i < weights.size(); i++)
            EXPECT_NEAR(weights[i], wanted.weights[i], 1e-6 * std::fabs(wanted.weights[i]));
    }
    void expect_refused(const ToolResult &result, const std::string &name) const {
        EXPECT_EQ(result.exit_status, 3) << result.out;
        EXPECT_NE(result.err.find(name), std::string::npos) << result.err;
    }

    TempDir folder;
    std::string path;
    LayerInput input;
    LayerOutput wanted;
};

Moe smallthinker() {
    Moe moe(24, 10, 6, 2);
    moe.gating = "sigmoid";
    moe.routed.act = "relu";
    return moe;
}

Moe hashed() {
    Moe moe(24, 10, 6, 3);
    moe.gating = "sqrt_softplus";
    moe.add_shared(10);
    moe.table = {0, 1, 2, 5, 4, 3, 2, 2, 4, 5, 0, 5};
    return moe;
}

TEST(GgufCommand, RouterInputIsWhatTheRouterReads) {
    Moe moe = smallthinker();
    GgufFile file = moe.file("smallthinker");
    const Model model(moe, file.u32(".expert_gating_func", 2), true);
    for (const std::string device : {"cpu", "reference"})
        model.expect_right(model.run({"--router-input", model.array("r"), "--device", device}));
    model.expect_refused(model.run({}), "RouterInputRequired");
}

TEST(GgufCommand, TokensChooseTheExpertsOfHashLayers) {
    Moe moe = hashed();
    GgufFile file = moe.file("deepseek4");
    file.flag(".expert_weights_norm", true).f32(".expert_weights_scale", 1);
    Model model(moe, file.u32(".hash_layer_count", 1));
    for (const std::string device : {"cpu", "reference"})
        model.expect_right(model.run({"--tokens", model.array("t"), "--device", device}));
    model.expect_refused(model.run({}), "TokenIdsRequired");
    model.put_i32("t", {0, 1, 4, 2});
    model.expect_refused(model.run({"--tokens", model.array("t")}), "BadTokenId");
}

TEST(GgufCommand, UnknownArchitecturesNeedHelpAndSaySo) {
    Moe moe(24, 10, 6, 2);
    const Model model(moe, moe.file("brandnew"));
    model.expect_refused(model.run({}), "UnknownArchitecture");
    const ToolResult as = model.run({"--as", "qwen3moe"});
    model.expect_right(as);
    EXPECT_NE(as.err.find("taken as architecture qwen3moe"), std::string::npos) << as.err;
    const ToolResult set = model.run({"--set", "gating=softmax,norm=1,act=silu"});
    model.expect_right(set);
    EXPECT_NE(set.err.find("\"brandnew\" is unknown"), std::string::npos) << set.err;
    model.expect_refused(model.run({"--as", "nothing"}), "UnknownArchitecture");
    model.expect_refused(model.run({"--set", "colour=red"}), "UnknownSetting");
}

TEST(GgufCommand, SaysWhichDefaultsItTook) {
    Moe moe(24, 10, 6, 2);
    moe.norm = false;
    moe.add_shared(10);
    const Model model(moe, moe.file("deepseek2"));
    const ToolResult result = model.run({});
    model.expect_right(result);
    EXPECT_NE(result.err.find("no key expert_gating_func: softmax"), std::string::npos)
        << result.err;
}

TEST(GgufCommand, AnyNumberOfExpertsATokenMayBeSet) {
    Moe moe(24, 10, 6, 2);
    for (uint32_t k = 1; k <= 6; k++) {
        moe.k = k;
        const Model model(moe, moe.file("llama").u32(".expert_used_count", 2));
        model.expect_right(model.run({"--set", "k=" + std::to_string(k)}));
    }
}

TEST(GgufCommand, NamesLayersThatAreNotThereAndInputsThatDoNotFit) {
    Moe moe(24, 10, 6, 2);
    Model model(moe, moe.file("llama"));
    model.expect_refused(model.run({"--layer", "1"}), "NoSuchLayer");
    model.put_f32("x", moe.noise(4 * 25), 25);
    const ToolResult result = model.run({"--layer", "0"});
    EXPECT_EQ(result.exit_status, 3) << result.err;
}

TEST(GgufCommand, CheckAndJsonOfEveryShard) {
    for (int shard = 1; shard <= 3; shard++) {
        const std::string folder = "gguf/17_split/";
        const ToolResult result = run_tool(
            {"run", data_path(folder + "model-0000" + std::to_string(shard) + "-of-00003.gguf"),
             "--layer", "0", "--input", data_path(folder + "x.npy"), "--check", "--json"});
        ASSERT_EQ(result.exit_status, 0) << result.err;
        Json json(result.out);
        EXPECT_STREQ(json_string_value(json_object_get(json.get(), "kind")), "gguf");
        EXPECT_LT(json_real_value(json_object_get(json.get(), "nmse")), 1e-9);
    }
}

TEST(GgufCommand, TezwRunsLikeADenseLayer) {
    const ToolResult result =
        run_tool({"run", data_path("tezw/tiny/model.tezw"), "--layer", "1", "--input",
                  data_path("tezw/tiny/x.npy"), "--check", "--json"});
    ASSERT_EQ(result.exit_status, 0) << result.err;
    Json json(result.out);
    EXPECT_STREQ(json_string_value(json_object_get(json.get(), "kind")), "tezw");
    EXPECT_STREQ(json_string_value(json_object_get(json.get(), "routing")), "dense");
}

TEST(GgufCommand, MalformedFilesAreRefused) {
    for (const std::string name : {"truncdata", "overlap", "v1", "hugent"}) {
        const ToolResult result = run_tool({"run", data_path("gguf/malformed/" + name + ".gguf"),
                                            "--layer", "0", "--random", "1"});
        EXPECT_EQ(result.exit_status, 3) << name << ": " << result.out << result.err;
    }
}

} // namespace
