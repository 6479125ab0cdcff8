/* What experts of GGUF layers compute, which layers a file has, and architectures that nobody
 * knows: made up, bound from a file, and held against plain formulas. */
#include "tests/support/data.h"
#include "tests/support/gguf_moe.h"

using namespace plec_test;

namespace {

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
