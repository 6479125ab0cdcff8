/* What GGUF layers may have, each made up, bound from a file, and held against plain formulas. */
#include "tests/support/data.h"
#include "tests/support/gguf_moe.h"

#include "host/gguf_bind.h"
#include "lyrw/gguf_type.h"

#include <algorithm>

using namespace plec_test;

namespace {

plec_container_options as(const char *architecture, const char *set = nullptr) {
    plec_container_options options = {};
    options.architecture = architecture;
    options.set = set;
    return options;
}

bool contains(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

/* ---- how the tensors may lie ---- */

TEST(GgufBind, SeparateTensors) {
    Moe moe(24, 10, 6, 2);
    expect_layer(moe, moe.file("llama"));
}

TEST(GgufBind, FusedTensorHasTheGateFirst) {
    Moe moe(24, 10, 6, 2);
    moe.add_shared(12);
    moe.shared_gate = moe.noise(24);
    GgufFile file = moe.file("qwen3next");
    moe.fuse(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, TensorsOfSingleExpertsInAnyOrder) {
    Moe moe(24, 10, 11, 3);
    GgufFile file = moe.file("llama");
    moe.take_apart(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, TensorsOfOneLayerInSeveralShards) {
    Moe moe(24, 10, 6, 2);
    TempDir folder;
    const std::string path = moe.file("llama").write_split(
        folder.path("model"), 4,
        [](const std::string &name) {
            return name.find("gate_exps") != std::string::npos ? 1u
                   : name.find("down") != std::string::npos    ? 3u
                                                               : 2u;
        },
        3);
    OpenLayer open(path, 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    const LayerInput input = moe.input(4);
    const LayerOutput wanted = moe.expected(input), got = run_layer(open.bound, input);
    EXPECT_EQ(got.ids, wanted.ids);
    EXPECT_LT(nmse(got.y, Reals(wanted.y.begin(), wanted.y.end())), 1e-13);
    EXPECT_EQ(plec_container_n_files(open.container), 4u);
}

TEST(GgufBind, ExpertCountsThatAreNoPowerOfTwo) {
    for (uint32_t n : {1u, 3u, 154u, 205u, 257u}) {
        Moe moe(8, 4, n, std::min(n, 5u));
        expect_layer(moe, moe.file("qwen3moe"));
    }
}

TEST(GgufBind, SixtyFiveThousandExperts) {
    Moe moe(2, 1, 65536, 7);
    expect_layer(moe, moe.file("qwen3moe"));
}

TEST(GgufBind, OneExpertWhoseTensorsLostTheirThirdDim) {
    Moe moe(8, 4, 1, 1);
    GgufFile file = moe.file("llama");
    for (const char *part : {"gate", "up"})
        file.reshape(moe.name(std::string("ffn_") + part + "_exps.weight"), {8, 4});
    file.reshape(moe.name("ffn_down_exps.weight"), {4, 8});
    expect_layer(moe, file);
}

TEST(GgufBind, EveryTypeOfAMatrixIsItsOwn) {
    Moe moe(64, 32, 5, 2);
    GgufFile file = moe.file("llama");
    moe.routed.gate = file.requantise("blk.0.ffn_gate_exps.weight", PLEC_FORMAT_Q4_0);
    moe.routed.up = file.requantise("blk.0.ffn_up_exps.weight", PLEC_FORMAT_GGUF_Q5_1);
    moe.routed.down = file.requantise("blk.0.ffn_down_exps.weight", PLEC_FORMAT_Q8_0);
    moe.router = file.requantise("blk.0.ffn_gate_inp.weight", PLEC_FORMAT_F16);
    expect_layer(moe, file);
}

TEST(GgufBind, RouterInAQuantisedType) {
    Moe moe(64, 8, 6, 3);
    GgufFile file = moe.file("llama");
    moe.router = file.requantise("blk.0.ffn_gate_inp.weight", PLEC_FORMAT_Q8_0);
    expect_layer(moe, file);
}

TEST(GgufBind, RegionsAreTheBytesOfTheFile) {
    Moe moe(64, 32, 5, 2);
    moe.add_biases(&moe.routed);
    moe.router_bias = moe.noise(5);
    moe.gating = "softmax_selected";
    GgufFile file = moe.file("gpt-oss");
    file.requantise("blk.0.ffn_gate_exps.weight", PLEC_FORMAT_GGUF_MXFP4);
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    const plec_bank &bank = open.bound.layer.routed;
    EXPECT_EQ(bank.operands[PLEC_GATE].format, PLEC_FORMAT_GGUF_MXFP4);
    const std::vector<uint8_t> bytes = read_file(folder.path("m.gguf"));
    const struct {
        plec_operand_id id;
        const char *name;
    } operands[] = {{PLEC_GATE, "ffn_gate_exps.weight"}, {PLEC_UP, "ffn_up_exps.weight"},
                    {PLEC_DOWN, "ffn_down_exps.weight"}, {PLEC_GATE_BIAS, "ffn_gate_exps.bias"},
                    {PLEC_UP_BIAS, "ffn_up_exps.bias"},  {PLEC_DOWN_BIAS, "ffn_down_exps.bias"}};
    for (const auto &operand : operands) {
        const GgufTensor &tensor = file.find(moe.name(operand.name));
        for (uint32_t e = 0; e < 5; e++) {
            uint32_t number;
            uint64_t offset;
            ASSERT_TRUE(plec_container_locate(&number, &offset, open.container,
                                              bank.entries[e].values[operand.id]))
                << operand.name << ": not in the mapped file";
            const size_t each = tensor.bytes.size() / 5;
            EXPECT_EQ(memcmp(bytes.data() + offset, tensor.bytes.data() + e * each, each), 0);
        }
    }
}

TEST(GgufBind, FilesOfAnyAlignment) {
    for (uint32_t alignment : {1u, 2u, 8u, 64u, 4096u}) {
        Moe moe(24, 10, 6, 2);
        moe.add_scales(&moe.routed);
        moe.selection_bias = moe.noise(6);
        moe.gating = "sigmoid";
        GgufFile file = moe.file("mimo2");
        file.first_tensor({"odd.weight", {3}, PLEC_GGUF_TYPE_I8, {1, 2, 3}});
        TempDir folder;
        file.write(folder.path("m.gguf"), alignment);
        OpenLayer open(folder.path("m.gguf"), 0);
        ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
        const LayerInput input = moe.input(3);
        const LayerOutput wanted = moe.expected(input), got = run_layer(open.bound, input);
        EXPECT_EQ(got.ids, wanted.ids) << alignment;
        EXPECT_LT(nmse(got.y, Reals(wanted.y.begin(), wanted.y.end())), 1e-13) << alignment;
    }
}

/* ---- biases and factors ---- */

TEST(GgufBind, BiasesOfRouterAndExperts) {
    Moe moe(24, 10, 6, 2);
    moe.add_biases(&moe.routed);
    moe.router_bias = moe.noise(6);
    moe.gating = "softmax_selected";
    moe.norm = false;
    moe.routed.act = "clamped_glu";
    moe.routed.limit = 7;
    expect_layer(moe, moe.file("gpt-oss"));
}

TEST(GgufBind, BiasesApplyWhereverTheyAre) {
    Moe moe(24, 10, 6, 2);
    moe.routed.down_bias = moe.noise(6 * 24);
    moe.router_bias = moe.noise(6);
    expect_layer(moe, moe.file("llama"));
}

TEST(GgufBind, BiasesInOtherTypesAndShapes) {
    Moe moe(32, 32, 6, 2);
    moe.add_biases(&moe.routed);
    GgufFile file = moe.file("llama");
    moe.routed.up_bias = file.requantise("blk.0.ffn_up_exps.bias", PLEC_FORMAT_F16);
    moe.routed.down_bias = file.requantise("blk.0.ffn_down_exps.bias", PLEC_FORMAT_Q8_0);
    file.reshape("blk.0.ffn_gate_exps.bias", {32, 1, 6});
    expect_layer(moe, file);
}

TEST(GgufBind, FusedTensorWithItsBias) {
    Moe moe(24, 10, 6, 2);
    moe.add_biases(&moe.routed);
    moe.gating = "sigmoid";
    moe.norm = false;
    moe.selection_bias = moe.noise(6);
    moe.add_shared(10);
    GgufFile file = moe.file("hy-v3");
    moe.fuse(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, FusedTensorWhoseBiasesComeApartIsTwoViews) {
    Moe moe(24, 10, 6, 2);
    moe.add_biases(&moe.routed);
    GgufFile file = moe.file("llama");
    moe.fuse(&file);
    file.without("blk.0.ffn_gate_up_exps.bias");
    file.tensor("blk.0.ffn_gate_exps.bias", {10, 6}, moe.routed.gate_bias);
    file.tensor("blk.0.ffn_up_exps.bias", {10, 6}, moe.routed.up_bias);
    expect_layer(moe, file);
}

TEST(GgufBind, FactorsOfEachMatrix) {
    Moe moe(24, 10, 6, 2);
    moe.add_scales(&moe.routed);
    moe.add_biases(&moe.routed);
    expect_layer(moe, moe.file("llama"));
}

TEST(GgufBind, FactorsUnderTheOtherNamingHabit) {
    Moe moe(24, 10, 6, 2);
    moe.add_scales(&moe.routed);
    GgufFile file = moe.file("llama");
    for (const std::string part : {"gate", "up", "down"})
        file.rename("blk.0.ffn_" + part + "_exps.scale",
                    "blk.0.ffn_" + part + "_exps.weight.scale");
    file.tensor("blk.0.ffn_up_exps.input_scale", {6}, std::vector<float>(6, 0));
    expect_layer(moe, file);
}

TEST(GgufBind, UpsFactorScalesBothHalvesOfAFusedTensor) {
    for (const std::string name : {"ffn_up_exps.scale", "ffn_gate_up_exps.scale"}) {
        Moe moe(24, 10, 6, 2);
        moe.routed.up_scale = moe.routed.gate_scale = moe.noise(6);
        GgufFile file = moe.file("llama");
        moe.fuse(&file);
        file.without("blk.0.ffn_gate_exps.scale");
        file.rename("blk.0.ffn_up_exps.scale", moe.name(name));
        expect_layer(moe, file);
    }
}

TEST(GgufBind, EqualFactorsOfBothHalvesOfAFusedTensor) {
    Moe moe(24, 10, 6, 2);
    moe.routed.up_scale = moe.routed.gate_scale = moe.noise(6);
    GgufFile file = moe.file("llama");
    moe.fuse(&file);
    expect_layer(moe, file);
}

/* Bytes of a type without an encoder in place of a matrix, and what they decode to. */
std::vector<float> put_blocks(Moe &moe, GgufFile *file, const std::string &name, uint16_t format) {
    GgufTensor &tensor = file->find(name);
    plec_matrix matrix = {format, static_cast<uint32_t>(tensor.bytes.size() / 4 / tensor.ne[0]),
                          static_cast<uint32_t>(tensor.ne[0]), nullptr, nullptr};
    uint64_t n_bytes = 0;
    EXPECT_EQ(plec_format_size(&n_bytes, nullptr, format, matrix.rows, matrix.cols, nullptr),
              PLEC_OK);
    std::vector<uint8_t> bytes;
    for (float value : moe.noise(n_bytes, 40))
        bytes.push_back(static_cast<uint8_t>(std::min(std::fabs(value), 126.f)));
    matrix.values = bytes.data();
    std::vector<float> values(size_t(matrix.rows) * matrix.cols);
    for (uint32_t row = 0; row < matrix.rows; row++)
        plec_matrix_row_f32(values.data() + size_t(row) * matrix.cols, &matrix, row);
    EXPECT_TRUE(plec_gguf_type_of_tag(&tensor.type, format));
    tensor.bytes = bytes;
    return values;
}

TEST(GgufBind, NvfpFourWithItsFactorsAndWithout) {
    Moe moe(64, 64, 4, 2);
    GgufFile file = moe.file("qwen3moe");
    moe.routed.up = put_blocks(moe, &file, "blk.0.ffn_up_exps.weight", PLEC_FORMAT_GGUF_NVFP4);
    moe.routed.down = put_blocks(moe, &file, "blk.0.ffn_down_exps.weight", PLEC_FORMAT_GGUF_NVFP4);
    const std::string news = expect_layer(moe, file);
    EXPECT_TRUE(contains(news, "nvfp4 without a .scale tensor: the factor is 1")) << news;
    moe.routed.up_scale = moe.noise(4);
    moe.routed.down_scale = moe.noise(4);
    file.tensor("blk.0.ffn_up_exps.scale", {4}, moe.routed.up_scale);
    file.tensor("blk.0.ffn_down_exps.weight.scale", {4}, moe.routed.down_scale);
    EXPECT_FALSE(contains(expect_layer(moe, file), "nvfp4"));
}

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

/* ---- what experts compute ---- */

TEST(GgufBind, FusedTensorsClampLikeSeparateOnes) {
    Moe moe(24, 10, 6, 2);
    moe.gating = "sigmoid";
    moe.norm = false;
    moe.add_shared(12);
    moe.routed.act = "silu_step";
    moe.routed.limit = 0.25;
    moe.layer = 2;
    GgufFile file = moe.file("step35");
    file.f32s(".swiglu_clamp_exp", {7, 0, 0.25f}).f32s(".swiglu_clamp_shexp", {1, 1, 0});
    expect_layer(moe, file);
    moe.fuse(&file);
    expect_layer(moe, file);
}

TEST(GgufBind, LimitsAreByLayer) {
    for (uint32_t layer : {0u, 1u}) {
        Moe moe(24, 10, 6, 2);
        moe.layer = layer;
        moe.gating = "sigmoid";
        moe.norm = false;
        moe.add_shared(12);
        if (layer == 1) moe.routed.act = "silu_step";
        moe.routed.limit = 0.25;
        moe.shared.act = "silu_step";
        moe.shared.limit = layer == 1 ? 0.125 : 0.5;
        GgufFile file = moe.file("step35");
        file.f32s(".swiglu_clamp_exp", {0, 0.25f}).f32s(".swiglu_clamp_shexp", {0.5f, 0.125f});
        expect_layer(moe, file);
    }
}

TEST(GgufBind, NemotronExpertsWorkInALatentSpaceWithoutAGate) {
    Moe moe(24, 10, 6, 3);
    moe.gating = "sigmoid";
    moe.norm = false;
    moe.routed.act = "relu_sqr";
    moe.add_latent(8, false);
    moe.routed.act = "relu_sqr";
    moe.add_shared(14, false);
    moe.shared.act = "relu_sqr";
    moe.selection_bias = moe.noise(6);
    GgufFile file = moe.file("nemotron_h_moe");
    file.u32(".moe_latent_size", 8).u32s(".feed_forward_length", {0});
    expect_layer(moe, file);
    file.without_key(".moe_latent_size");
    expect_layer(moe, file);
}

TEST(GgufBind, NomicBertHasNoGate) {
    Moe moe(24, 10, 6, 2);
    moe.routed = moe.mlp(6, 24, 10, 24, false);
    moe.routed.act = "gelu_tanh";
    moe.norm = false;
    moe.layer = 1;
    GgufFile file = moe.file("nomic-bert-moe");
    file.u32(".moe_every_n_layers", 2);
    expect_layer(moe, file);
}

TEST(GgufBind, SharedExpertTimesItsSigmoidGate) {
    for (const std::vector<uint64_t> &ne :
         {std::vector<uint64_t>{24}, std::vector<uint64_t>{24, 1}, std::vector<uint64_t>{1, 24}}) {
        Moe moe(24, 10, 6, 2);
        moe.norm = false;
        moe.add_shared(14);
        moe.add_scales(&moe.shared);
        moe.add_biases(&moe.shared);
        moe.shared_gate = moe.noise(24);
        GgufFile file = moe.file("qwen2moe");
        file.reshape("blk.0.ffn_gate_inp_shexp.weight", ne);
        expect_layer(moe, file);
    }
}

TEST(GgufBind, SharedExpertOfSeveralConcatenated) {
    Moe moe(24, 10, 6, 2);
    moe.norm = false;
    moe.add_shared(30);
    GgufFile file = moe.file("deepseek");
    file.without_key(".expert_shared_feed_forward_length").u32(".expert_shared_count", 3);
    expect_layer(moe, file);
}

TEST(GgufBind, GrokAddsItsDenseBranchAndScalesTheSum) {
    Moe moe(24, 10, 6, 2);
    moe.routed.act = "gelu_tanh";
    expect_layer(moe, moe.file("grok"));
    moe.dense = moe.mlp(1, 24, 18, 24);
    moe.dense.act = "gelu_tanh";
    moe.factor = std::sqrt(0.5);
    expect_layer(moe, moe.file("grok"));
}

TEST(GgufBind, CohereHalvesTheSumWithItsSharedExpert) {
    Moe moe(24, 10, 6, 2);
    moe.gating = "sigmoid";
    moe.norm = false;
    expect_layer(moe, moe.file("cohere2moe"));
    moe.add_shared(10);
    moe.factor = 0.5;
    expect_layer(moe, moe.file("cohere2moe"));
}

TEST(GgufBind, RoutedPartAloneKeepsTheFactor) {
    Moe moe(24, 10, 6, 2);
    moe.routed.act = moe.dense.act = "gelu_tanh";
    moe.factor = std::sqrt(0.5);
    moe.dense = moe.mlp(1, 24, 18, 24);
    moe.dense.act = "gelu_tanh";
    TempDir folder;
    moe.file("grok").write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    LayerInput input = moe.input(3);
    input.routed_only = true;
    moe.dense.n = 0;
    const LayerOutput wanted = moe.expected(input);
    EXPECT_LT(nmse(run_layer(open.bound, input).y, Reals(wanted.y.begin(), wanted.y.end())), 1e-13);
}

TEST(GgufBind, ArcticsDenseBranchIsLeftOutAndNamed) {
    Moe moe(24, 10, 6, 2);
    moe.dense = moe.mlp(1, 24, 24, 24);
    GgufFile file = moe.file("arctic");
    file.tensor("blk.0.ffn_norm_exps.weight", {24}, std::vector<float>(24, 3));
    moe.dense.n = 0;
    const std::string news = expect_layer(moe, file);
    EXPECT_TRUE(contains(news, "left out")) << news;
}

/* ---- dense layers ---- */

/* The one MLP of a layer without experts. */
void expect_dense(const std::string &architecture, bool gated, const std::string &act,
                  bool biased = false) {
    Moe moe(24, 2, 2, 1);
    moe.dense = moe.mlp(1, 24, 17, 24, gated);
    moe.dense.act = act;
    if (biased) moe.add_biases(&moe.dense);
    GgufFile whole = moe.file(architecture), file(architecture);
    file.u32(".block_count", 1).u32(".embedding_length", 24).u32(".feed_forward_length", 17);
    for (const GgufTensor &tensor : whole.tensors())
        if (!contains(tensor.name, "exps") && !contains(tensor.name, "gate_inp"))
            file.tensor_bytes(tensor.name, tensor.ne, tensor.type, tensor.bytes);
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 0);
    ASSERT_EQ(open.status, PLEC_OK) << architecture << ": " << open.error.message;
    EXPECT_TRUE(open.bound.dense);
    const LayerInput input = moe.input(3);
    std::vector<double> wanted;
    for (size_t t = 0; t < 3; t++)
        for (double value :
             moe.dense.run(0, Reals(input.x.begin() + t * 24, input.x.begin() + (t + 1) * 24)))
            wanted.push_back(value);
    EXPECT_LT(nmse(run_layer(open.bound, input).y, wanted), 1e-13) << architecture;
}

TEST(GgufBindDense, GatedLayersTakeTheirArchitecturesActivation) {
    expect_dense("llama", true, "silu");
    expect_dense("qwen2", true, "silu");
    expect_dense("gemma3", true, "gelu_tanh");
    expect_dense("deepseek2", true, "silu");
}

TEST(GgufBindDense, PlainLayersWithBiases) {
    expect_dense("gpt2", false, "gelu_tanh", true);
    expect_dense("starcoder2", false, "gelu_tanh", true);
    expect_dense("nemotron", false, "relu_sqr");
    expect_dense("llama", false, "silu");
}

TEST(GgufBindDense, UpOfTwiceTheWidthHoldsTheGateFirst) {
    Moe moe(24, 2, 2, 1);
    const Mlp mlp = moe.mlp(1, 24, 10, 24);
    std::vector<float> both = mlp.gate;
    both.insert(both.end(), mlp.up.begin(), mlp.up.end());
    GgufFile file("phi3");
    file.tensor("blk.3.ffn_up.weight", {24, 20}, both)
        .tensor("blk.3.ffn_down.weight", {10, 24}, mlp.down);
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 3);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    EXPECT_EQ(open.bound.layer.routed.fusion, PLEC_FUSED_GATE_FIRST);
    const LayerInput input = moe.input(1);
    EXPECT_LT(
        nmse(run_layer(open.bound, input).y, mlp.run(0, Reals(input.x.begin(), input.x.end()))),
        1e-13);
}

TEST(GgufBindDense, BesideExpertLayersByTheirTensors) {
    Moe moe(24, 10, 6, 2);
    moe.layer = 1;
    moe.norm = false;
    moe.add_shared(10);
    GgufFile file = moe.file("deepseek");
    file.u32(".leading_dense_block_count", 1);
    const Mlp mlp = moe.mlp(1, 24, 40, 24);
    file.tensor("blk.0.ffn_gate.weight", {24, 40}, mlp.gate);
    file.tensor("blk.0.ffn_up.weight", {24, 40}, mlp.up);
    file.tensor("blk.0.ffn_down.weight", {40, 24}, mlp.down);
    expect_layer(moe, file);
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    EXPECT_EQ(plec_container_n_layers(open.container), 2u);
    const LayerInput input = moe.input(1);
    EXPECT_LT(
        nmse(run_layer(open.bound, input).y, mlp.run(0, Reals(input.x.begin(), input.x.end()))),
        1e-13);
}

/* ---- which layers there are ---- */

TEST(GgufBindLayers, PredictionHeadsAreNone) {
    Moe moe(24, 10, 6, 2);
    moe.gating = "sigmoid";
    moe.norm = false;
    moe.selection_bias = moe.noise(6);
    moe.add_shared(10);
    GgufFile file = moe.file("glm4moe"), more = file;
    for (const GgufTensor &tensor : file.tensors()) {
        std::string name = tensor.name;
        name[4] = '1';
        more.tensor_bytes(name, tensor.ne, tensor.type, tensor.bytes);
    }
    more.u32(".block_count", 2).u32(".nextn_predict_layers", 1);
    TempDir folder;
    more.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 1);
    EXPECT_STREQ(open.error.name, "NoSuchLayer");
    EXPECT_EQ(plec_container_n_layers(open.container), 1u);
}

TEST(GgufBindLayers, AreListedByTheirTensorsWhateverBlockCountSays) {
    Moe moe(24, 10, 6, 2);
    moe.layer = 4000000000u;
    moe.add_shared(12);
    GgufFile file = moe.file("hunyuan-moe");
    file.u32(".block_count", 100000);
    file.tensor("blk.7.attn_q.weight", {4}, {1, 2, 3, 4});
    file.tensor("blk.12.ffn_down.weight", {4, 24}, moe.noise(96));
    file.tensor("blk.012.ffn_down.weight", {4, 24}, moe.noise(96));
    expect_layer(moe, file);
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 4000000000u);
    ASSERT_EQ(plec_container_n_layers(open.container), 2u);
    plec_layer_info info;
    plec_container_layer_info(&info, open.container, 1);
    EXPECT_EQ(info.layer, 4000000000u);
    EXPECT_FALSE(info.dense);
    EXPECT_EQ(info.hidden_size, 24u);
    EXPECT_EQ(info.n_experts, 6u);
    EXPECT_EQ(info.top_k, 2u);
    EXPECT_EQ(info.n_shared, 1u);
    EXPECT_STREQ(info.programme, "gated-mlp-v1");
    EXPECT_STREQ(info.storage, "blk.4000000000");
    plec_container_layer_info(&info, open.container, 0);
    EXPECT_TRUE(info.dense);
    EXPECT_STREQ(info.programme, "plectrum-mlp-v1");
}

TEST(GgufBindLayers, WithoutARouterTheCallerRoutes) {
    Moe moe(24, 10, 6, 2);
    GgufFile file = moe.file("llama");
    file.without("blk.0.ffn_gate_inp.weight");
    TempDir folder;
    file.write(folder.path("m.gguf"));
    OpenLayer open(folder.path("m.gguf"), 0);
    ASSERT_EQ(open.status, PLEC_OK) << open.error.message;
    EXPECT_TRUE(open.bound.routing_required);
    EXPECT_TRUE(contains(open.news, "the routing must be given")) << open.news;
}

/* ---- architectures the table does not have ---- */

TEST(GgufBindUnknown, RunsWithSettingsAndSaysSo) {
    Moe moe(24, 10, 6, 2);
    moe.gating = "sigmoid";
    moe.norm = true;
    moe.scale = 3;
    moe.routed.act = "gelu_tanh";
    const std::string news = expect_layer(
        moe, moe.file("brandnew"), as(nullptr, "gating=sigmoid,norm=1,scale=3,act=gelu_tanh"));
    EXPECT_TRUE(contains(news, "architecture \"brandnew\" is unknown")) << news;
}

TEST(GgufBindUnknown, TakesWhatTheTensorsHave) {
    Moe moe(24, 10, 6, 2);
    moe.add_latent(8, false);
    moe.add_shared(12, false);
    moe.shared_gate = moe.noise(24);
    moe.selection_bias = moe.noise(6);
    moe.routed.act = moe.shared.act = "relu_sqr";
    expect_layer(moe, moe.file("brandnew"), as(nullptr, "gating=softmax,norm=1,act=relu_sqr"));
}

TEST(GgufBindUnknown, RunsAsAnotherAndSaysSo) {
    Moe moe(24, 10, 6, 2);
    const std::string news = expect_layer(moe, moe.file("brandnew"), as("qwen3moe"));
    EXPECT_TRUE(contains(news, "taken as architecture qwen3moe (--as); the file says \"brandnew\""))
        << news;
}

TEST(GgufBindUnknown, SettingsRuleOverTheFile) {
    Moe moe(24, 10, 6, 3);
    moe.norm = false;
    GgufFile file = moe.file("qwen3moe");
    file.u32(".expert_used_count", 2);
    expect_layer(moe, file, as(nullptr, "norm=0,k=3"));
}

} // namespace
