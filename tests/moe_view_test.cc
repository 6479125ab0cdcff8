/* What `inspect` says of a GGUF model's layers. */
#include "tests/support/data.h"
#include "tests/support/gguf_moe.h"
#include "tests/support/json.h"

#include "host/gguf_view.h"

using namespace plec_test;

namespace {

/* A model opened to look, and the views of its layers. */
class Views {
  public:
    explicit Views(const GgufFile &file) {
        file.write(folder_.path("m.gguf"));
        plec_error error = {};
        EXPECT_EQ(plec_gguf_set_open(&set_, path().c_str(), PLEC_GGUF_LOOK, &error), PLEC_OK)
            << error.message;
        EXPECT_EQ(plec_gguf_model_open(&model_, &set_, nullptr, &error), PLEC_OK) << error.message;
        layers.resize(model_.n_blocks);
        for (uint32_t i = 0; i < model_.n_blocks; i++) {
            plec_gguf_view_layer(&layers[i], &model_, i);
            plec_gguf_totals_add_layer(&totals, &layers[i]);
        }
        plec_gguf_totals_add_rest(&totals, &model_);
    }
    Views(const Views &) = delete;
    Views &operator=(const Views &) = delete;
    ~Views() {
        plec_gguf_model_close(&model_);
        plec_gguf_set_close(&set_);
    }
    std::string path() const { return folder_.path("m.gguf"); }

    std::vector<plec_gguf_layer_view> layers;
    plec_gguf_totals totals = {};

  private:
    TempDir folder_;
    plec_gguf_set set_ = {};
    plec_gguf_model model_ = {};
};

/* Four layers: dense, two alike with experts, one with a type that needs a codebook, and a head. */
GgufFile four_layers() {
    Moe moe(256, 32, 4, 2);
    moe.add_shared(64);
    const Mlp mlp = moe.mlp(1, 256, 128, 256);
    GgufFile one = moe.file("deepseek"), all = one;
    for (const GgufTensor &tensor : one.tensors())
        all.without(tensor.name);
    all.tensor("token_embd.weight", {256, 10}, moe.noise(2560));
    all.tensor("output.weight", {256, 10}, moe.noise(2560));
    all.tensor("blk.0.ffn_gate.weight", {256, 128}, mlp.gate);
    all.tensor("blk.0.ffn_up.weight", {256, 128}, mlp.up);
    all.tensor("blk.0.ffn_down.weight", {128, 256}, mlp.down);
    for (char block : {'1', '2', '3', '4'})
        for (const GgufTensor &tensor : one.tensors()) {
            std::string name = tensor.name;
            name[4] = block;
            all.tensor_bytes(name, tensor.ne, tensor.type, tensor.bytes);
        }
    all.tensor_bytes("blk.3.ffn_up_exps.weight", {256, 32, 4}, 16, std::vector<uint8_t>(128 * 66));
    all.u32(".block_count", 5).u32(".nextn_predict_layers", 1);
    all.u32(".leading_dense_block_count", 1);
    return all;
}

TEST(MoeView, CountsBytesAndWeights) {
    Views views(four_layers());
    ASSERT_EQ(views.layers.size(), 4u);
    const plec_gguf_layer_view &layer = views.layers[1];
    EXPECT_EQ(layer.number, 1u);
    EXPECT_FALSE(layer.dense);
    EXPECT_EQ(layer.n_experts, 4u);
    EXPECT_EQ(layer.top_k, 2u);
    EXPECT_EQ(layer.hidden, 256u);
    EXPECT_EQ(layer.inner, 32u);
    EXPECT_EQ(layer.shared_inner, 64u);
    const uint64_t expert = 3 * 32 * 256, shared = 3 * 64 * 256, router = 1024, norm = 256;
    EXPECT_EQ(layer.expert_bytes, 4 * expert);
    EXPECT_EQ(layer.routed_bytes, 16 * expert);
    EXPECT_EQ(layer.layer_bytes, 4 * (4 * expert + shared + router + norm));
    EXPECT_EQ(layer.touched_bytes, 4 * (2 * expert + shared + router + norm));
    EXPECT_EQ(layer.n_weights, 4 * expert + shared + router + norm);
    EXPECT_EQ(layer.n_active, 2 * expert + shared + router + norm);
    EXPECT_TRUE(layer.converts) << layer.why.message;

    const uint64_t dense = 3 * 128 * 256, of_a_layer = layer.n_active;
    EXPECT_EQ(views.layers[0].touched_bytes, 4 * dense);
    EXPECT_EQ(views.totals.n_active, dense + 3 * of_a_layer + 256 + 2560);
    EXPECT_EQ(views.totals.n_weights, dense + 4 * layer.n_weights + 2 * 2560);
    EXPECT_EQ(views.totals.routed_weights, 12 * expert);
    EXPECT_EQ(views.totals.n_moe, 3u);
    EXPECT_EQ(views.totals.n_dense, 1u);
    EXPECT_EQ(views.totals.n_converting, 3u);
}

TEST(MoeView, GivesTheExactReasonWhatDoesNotConvert) {
    Views views(four_layers());
    ASSERT_EQ(views.layers.size(), 4u);
    EXPECT_FALSE(views.layers[3].converts);
    EXPECT_STREQ(views.layers[3].why.name, "NeedsCodebook");
    EXPECT_EQ(views.layers[3].types.up, 16);
}

TEST(MoeView, KnowsEveryLayout) {
    Moe moe(24, 10, 6, 2);
    GgufFile file = moe.file("llama");
    EXPECT_EQ(Views(file).layers[0].layout, PLEC_GGUF_SEPARATE);
    GgufFile fused = file;
    moe.fuse(&fused);
    EXPECT_EQ(Views(fused).layers[0].layout, PLEC_GGUF_FUSED);
    GgufFile apart = file;
    moe.take_apart(&apart);
    Views views(apart);
    EXPECT_EQ(views.layers[0].layout, PLEC_GGUF_PER_EXPERT);
    EXPECT_EQ(views.layers[0].routed_bytes, Views(file).layers[0].routed_bytes);
    EXPECT_EQ(views.layers[0].inner, 10u);
    EXPECT_EQ(views.layers[0].types.down, PLEC_GGUF_TYPE_F32);
    EXPECT_TRUE(views.layers[0].converts) << views.layers[0].why.message;
    apart.tensor_bytes("blk.0.ffn_up.3.weight", {24, 10}, PLEC_GGUF_TYPE_F16,
                       std::vector<uint8_t>(480));
    Views mixed(apart);
    EXPECT_EQ(mixed.layers[0].types.up, PLEC_GGUF_MIXED_TYPES);
    EXPECT_STREQ(mixed.layers[0].why.name, "TypesDiffer");
    file.without("blk.0.ffn_gate_exps.weight");
    EXPECT_EQ(Views(file).layers[0].layout, PLEC_GGUF_NO_GATE);
}

TEST(MoeView, SurvivesTensorsOfAbsurdShapes) {
    Moe moe(24, 10, 6, 2);
    GgufFile file = moe.file("llama");
    for (const char *name : {"blk.0.ffn_up_exps.weight", "blk.0.ffn_gate_inp.weight"}) {
        GgufFile odd = file;
        odd.find(name).ne = {0, 0, 0};
        odd.find(name).bytes.clear();
        Views views(odd);
        EXPECT_FALSE(views.layers[0].converts);
    }
}

TEST(MoeViewTool, PutsEqualLayersInOneLineAndNamesOrigins) {
    Views views(four_layers());
    const ToolResult r = run_tool({"inspect", views.path()});
    EXPECT_EQ(r.exit_status, 0) << r.err;
    for (const std::string text : {
             "layer 0       dense; 256 -> 128 -> 256, separate: gate f32, up f32, down f32",
             "layers 1-2    4 experts, top 2; 256 -> 32 -> 256, separate: gate f32, up f32, down "
             "f32; + shared, 64 wide, gate f32, up f32, down f32; 96.0 KiB an expert",
             "layer 3       4 experts",
             "DOES NOT CONVERT: NeedsCodebook: tensor \"blk.N.ffn_up_exps.weight\": iq2_xxs needs "
             "a codebook",
             "values of layers 1-3",
             "gating               softmax              default of architecture deepseek",
             "experts used         2                    in file",
             "converts  3 of 4 layers (3 with experts, 1 dense); prediction heads from block 4 on",
         })
        EXPECT_NE(r.out.find(text), std::string::npos) << text << "\nin\n" << r.out;
}

TEST(MoeViewTool, UnknownArchitecturesAreShownAsFarAsTheyGo) {
    Moe moe(24, 10, 6, 2);
    Views views(moe.file("brandnew"));
    const ToolResult r = run_tool({"inspect", views.path()});
    EXPECT_EQ(r.exit_status, 0) << r.err;
    for (const std::string text : {"6 experts, top 2; 24 -> 10 -> 24", "UnknownArchitecture",
                                   "gating               none                 unknown"})
        EXPECT_NE(r.out.find(text), std::string::npos) << text << "\nin\n" << r.out;
}

TEST(MoeViewTool, JsonHasEveryKeyOfEveryLayer) {
    Views views(four_layers());
    const ToolResult r = run_tool({"inspect", "--json", views.path()});
    ASSERT_EQ(r.exit_status, 0) << r.err;
    Json document(r.out);
    json_t *layers = json_object_get(document.get(), "layers");
    ASSERT_EQ(json_array_size(layers), 4u);
    const char *keys[] = {"layer",          "dense",          "experts",       "top_k",
                          "hidden",         "inner",          "shared_inner",  "latent",
                          "layout",         "types",          "shared_types",  "router",
                          "router_bias",    "selection_bias", "expert_biases", "expert_scales",
                          "shared_gate",    "token_table",    "branch",        "expert_bytes",
                          "routed_bytes",   "layer_bytes",    "touched_bytes", "weights",
                          "active_weights", "values",         "converts",      "reason"};
    for (size_t i = 0; i < 4; i++) {
        json_t *layer = json_array_get(layers, i);
        EXPECT_EQ(json_object_size(layer), sizeof keys / sizeof keys[0]);
        for (const char *key : keys)
            EXPECT_NE(json_object_get(layer, key), nullptr) << key;
    }
    json_t *last = json_array_get(layers, 3);
    EXPECT_TRUE(json_is_false(json_object_get(last, "converts")));
    EXPECT_TRUE(json_is_string(json_object_get(last, "reason")));
    EXPECT_TRUE(json_is_null(json_object_get(json_array_get(layers, 0), "reason")));
    json_t *experts = json_object_get(document.get(), "experts");
    EXPECT_EQ(json_integer_value(json_object_get(experts, "heads_from_block")), 4);
    EXPECT_EQ(json_integer_value(json_object_get(experts, "converting_layers")), 3);
    EXPECT_EQ(json_integer_value(json_object_get(experts, "routed_bytes")),
              static_cast<json_int_t>(views.totals.routed_bytes));
}

} // namespace
