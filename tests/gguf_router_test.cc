/* How routers of GGUF layers choose, each layer made up, bound from a file, and held against plain
 * formulas. */
#include "tests/support/gguf_moe.h"

using namespace plec_test;

namespace {

/* ---- how the router chooses ---- */

TEST(GgufBind, GroupsOfAnyArchitecture) {
    Moe moe(24, 6, 24, 5);
    moe.gating = "sigmoid";
    moe.groups = 6;
    moe.groups_used = 2;
    moe.selection_bias = moe.noise(24, 0.2f);
    moe.scale = 2.5;
    moe.add_shared(6);
    GgufFile file = moe.file("deepseek2");
    file.u32(".expert_gating_func", 2).flag(".expert_weights_norm", true);
    file.f32(".expert_weights_scale", 2.5f).u32(".expert_group_count", 6);
    file.u32(".expert_group_used_count", 2);
    const std::string news = expect_layer(moe, file);
    EXPECT_FALSE(contains(news, "default")) << news;
}

TEST(GgufBind, DeepseekTwoWithoutItsKeysSaysTheDefaultsItTook) {
    Moe moe(24, 6, 8, 3);
    moe.norm = false;
    moe.add_shared(6);
    const std::string news = expect_layer(moe, moe.file("deepseek2"));
    EXPECT_TRUE(
        contains(news, "expert_gating_func: softmax, the default of architecture deepseek2"))
        << news;
    EXPECT_TRUE(contains(news, "expert_weights_norm: no, the default")) << news;
    EXPECT_TRUE(contains(news, "expert_weights_scale: 1, the default")) << news;
}

TEST(GgufBind, ScaleOfZeroMeansOne) {
    Moe moe(24, 6, 8, 3);
    moe.norm = false;
    moe.add_shared(6);
    GgufFile file = moe.file("deepseek");
    file.f32(".expert_weights_scale", 0);
    expect_layer(moe, file);
}

TEST(GgufBind, SelectionBiasUnderEitherName) {
    for (const std::string name : {"exp_probs_b.bias", "exp_probs_b"}) {
        Moe moe(24, 6, 12, 3);
        moe.gating = "sigmoid";
        moe.selection_bias = moe.noise(12);
        GgufFile file = moe.file("minimax-m2");
        file.u32(".expert_gating_func", 2).rename("blk.0.exp_probs_b.bias", moe.name(name));
        expect_layer(moe, file);
    }
}

TEST(GgufBind, LlamaFourSelectsOnLogitsAndWeighsTheInput) {
    Moe moe(24, 10, 6, 1);
    moe.gating = "sigmoid";
    moe.select_on = "logits";
    moe.norm = false;
    moe.weight_before = true;
    moe.add_shared(10);
    moe.layer = 1;
    GgufFile file = moe.file("llama4");
    file.u32(".interleave_moe_layer_step", 2);
    expect_layer(moe, file);
}

TEST(GgufBind, GrovemoeSelectsBySigmoidAndWeighsBySoftmax) {
    Moe moe(24, 10, 6, 3);
    moe.select_on = "sigmoid";
    expect_layer(moe, moe.file("grovemoe"));
}

TEST(GgufBind, SmallthinkerRouterReadsTheBlocksInput) {
    Moe moe(24, 10, 6, 2);
    moe.gating = "sigmoid";
    moe.routed.act = "relu";
    GgufFile file = moe.file("smallthinker");
    file.u32(".expert_gating_func", 2);
    const std::string news = expect_layer(moe, file);
    EXPECT_TRUE(contains(news, "reads the block's input")) << news;
}

TEST(GgufBind, GemmaFourRouterReadsTheNormedAndScaledAttentionOutput) {
    Moe moe(24, 10, 6, 2);
    moe.routed.act = "gelu_tanh";
    moe.routed.down_scale = moe.noise(6);
    moe.normed_input = true;
    moe.input_scale = moe.noise(24, 4);
    moe.input_eps = 0.25;
    GgufFile file = moe.file("gemma4");
    moe.fuse(&file);
    file.f32(".attention.layer_norm_rms_epsilon", 0.25f);
    file.tensor("blk.0.ffn_gate.weight", {24, 16}, moe.noise(24 * 16));
    file.tensor("blk.0.ffn_up.weight", {24, 16}, moe.noise(24 * 16));
    file.tensor("blk.0.ffn_down.weight", {16, 24}, moe.noise(24 * 16));
    const std::string news = expect_layer(moe, file);
    EXPECT_TRUE(contains(news, "attention output")) << news;
    EXPECT_TRUE(contains(news, "blk.0.ffn_up.weight\": a dense branch that reads another vector is "
                               "left out"))
        << news;
}

TEST(GgufBind, HashLayersTakeIdsFromTheTableAndWeightsFromTheScores) {
    Moe moe(24, 10, 6, 3);
    moe.gating = "sqrt_softplus";
    moe.scale = 1.5;
    moe.add_shared(10);
    moe.table = {0, 1, 2, 5, 4, 3, 2, 2, 4, 5, 0, 5};
    moe.routed.act = moe.shared.act = "clamped_gated";
    moe.routed.limit = moe.shared.limit = 0.4;
    GgufFile file = moe.file("deepseek4");
    file.u32(".expert_gating_func", 4).flag(".expert_weights_norm", true);
    file.f32(".expert_weights_scale", 1.5f).u32(".hash_layer_count", 1);
    file.f32(".swiglu_clamp_exp", 0.4f);
    expect_layer(moe, file);
}

TEST(GgufBind, DeepseekFourBehindItsHashLayersHasABias) {
    Moe moe(24, 10, 6, 3);
    moe.layer = 1;
    moe.gating = "sqrt_softplus";
    moe.norm = true;
    moe.add_shared(10);
    moe.selection_bias = moe.noise(6);
    moe.routed.act = "clamped_gated";
    moe.routed.limit = 0.5;
    GgufFile file = moe.file("deepseek4");
    file.u32(".expert_gating_func", 4).flag(".expert_weights_norm", true);
    file.f32(".expert_weights_scale", 0).u32(".hash_layer_count", 1);
    file.f32s(".swiglu_clamp_exp", {0, 0.5f}).f32s(".swiglu_clamp_shexp", {9, 0});
    expect_layer(moe, file);
}

} // namespace
