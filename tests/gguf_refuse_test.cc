/* Everything a GGUF layer is refused for, by name. */
#include "tests/support/data.h"
#include "tests/support/gguf_moe.h"

#include <limits>

using namespace plec_test;

namespace {

Moe plain() {
    return Moe(24, 10, 6, 2);
}

/* deepseek2 with all its keys and a shared expert. */
Moe shared() {
    Moe moe(24, 10, 6, 2);
    moe.add_shared(10);
    return moe;
}

const std::string GATE = "blk.0.ffn_gate_exps.weight", UP = "blk.0.ffn_up_exps.weight",
                  DOWN = "blk.0.ffn_down_exps.weight", ROUTER = "blk.0.ffn_gate_inp.weight";

/* ---- what is not there ---- */

TEST(GgufRefuses, MissingMatrices) {
    const Moe moe = plain();
    for (const std::string &name : {GATE, UP, DOWN}) {
        GgufFile file = moe.file("llama");
        expect_refused(moe, file.without(name), "MissingTensor", {name, "layer 0"});
    }
}

TEST(GgufRefuses, RouterWithoutExperts) {
    const Moe moe = plain();
    GgufFile file = moe.file("llama");
    expect_refused(moe, file.without(GATE).without(UP).without(DOWN), "MissingTensor", {GATE});
}

TEST(GgufRefuses, MissingSharedExpertAndItsGate) {
    Moe moe = plain();
    expect_refused(moe, moe.file("deepseek"), "MissingTensor", {"blk.0.ffn_up_shexp.weight"});
    moe.add_shared(10);
    expect_refused(moe, moe.file("qwen2moe"), "MissingTensor", {"blk.0.ffn_gate_inp_shexp.weight"});
    GgufFile file = moe.file("deepseek");
    expect_refused(moe, file.without("blk.0.ffn_down_shexp.weight"), "MissingTensor",
                   {"blk.0.ffn_down_shexp.weight"});
}

TEST(GgufRefuses, MissingBiasesOfAnArchitectureThatHasThem) {
    Moe moe = plain();
    moe.add_biases(&moe.routed);
    moe.router_bias = moe.noise(6);
    for (const std::string name :
         {"ffn_gate_exps.bias", "ffn_up_exps.bias", "ffn_down_exps.bias", "ffn_gate_inp.bias"}) {
        GgufFile file = moe.file("gpt-oss");
        expect_refused(moe, file.without(moe.name(name)), "MissingTensor", {moe.name(name)});
    }
}

TEST(GgufRefuses, MissingSelectionBias) {
    const Moe moe = plain();
    GgufFile file = moe.file("lfm2moe");
    expect_refused(moe, file.u32(".expert_gating_func", 2), "MissingTensor",
                   {"blk.0.exp_probs_b.bias"});
}

TEST(GgufRefuses, HalfALatentSpace) {
    Moe moe = plain();
    moe.add_latent(8, false);
    moe.add_shared(8, false);
    moe.selection_bias = moe.noise(6);
    for (const std::string name : {"ffn_latent_up.weight", "ffn_latent_down.weight"}) {
        GgufFile file = moe.file("nemotron_h_moe");
        expect_refused(moe, file.without(moe.name(name)), "MissingTensor", {moe.name(name)});
    }
}

TEST(GgufRefuses, LatentSpaceThatOnlyTheKeyKnows) {
    Moe moe = plain();
    moe.routed = moe.mlp(6, 24, 10, 24, false);
    moe.add_shared(8, false);
    moe.selection_bias = moe.noise(6);
    GgufFile file = moe.file("nemotron_h_moe");
    expect_refused(moe, file.u32(".moe_latent_size", 8), "MissingTensor", {"ffn_latent_down"});
}

TEST(GgufRefuses, RouterInputScaleMissing) {
    const Moe moe = plain();
    expect_refused(moe, moe.file("gemma4"), "MissingTensor", {"blk.0.ffn_gate_inp.scale"});
}

TEST(GgufRefuses, HashLayersWithoutTheirTable) {
    const Moe moe = shared();
    GgufFile file = moe.file("deepseek4");
    file.flag(".expert_weights_norm", true).f32(".expert_weights_scale", 1);
    expect_refused(moe, file.u32(".hash_layer_count", 1), "MissingTensor", {"ffn_gate_tid2eid"});
}

TEST(GgufRefuses, SingleExpertsThatAreMissingByNumber) {
    Moe moe(24, 10, 12, 2);
    GgufFile file = moe.file("llama");
    moe.take_apart(&file);
    file.without("blk.0.ffn_up.3.weight").without("blk.0.ffn_up.11.weight");
    expect_refused(moe, file, "MissingTensor",
                   {"blk.0.ffn_up.N.weight", "2 of 12 experts", "3, 11"});
}

TEST(GgufRefuses, HalfADenseLayer) {
    Moe moe = plain();
    GgufFile file("llama");
    file.tensor("blk.0.ffn_down.weight", {10, 24}, moe.noise(240));
    expect_refused(moe, file, "MissingTensor", {"blk.0.ffn_up.weight"});
}

/* ---- what should not be there ---- */

TEST(GgufRefuses, TensorsTheArchitectureHasNoUseFor) {
    Moe gated = plain();
    gated.selection_bias = gated.noise(6);
    gated.add_shared(8, false);
    expect_refused(gated, gated.file("nemotron_h_moe"), "UnexpectedTensor", {GATE, "no gate"});

    Moe with_shared = shared();
    expect_refused(with_shared, with_shared.file("llama"), "UnexpectedTensor",
                   {"blk.0.ffn_up_shexp.weight", "no shared expert"});
    with_shared.shared_gate = with_shared.noise(24);
    expect_refused(with_shared, with_shared.file("deepseek"), "UnexpectedTensor",
                   {"blk.0.ffn_gate_inp_shexp.weight"});

    Moe scaled = plain();
    scaled.input_scale = scaled.noise(24);
    expect_refused(scaled, scaled.file("llama"), "UnexpectedTensor", {"blk.0.ffn_gate_inp.scale"});

    Moe beside = plain();
    beside.dense = beside.mlp(1, 24, 12, 24);
    expect_refused(beside, beside.file("llama"), "UnexpectedTensor",
                   {"blk.0.ffn_up.weight", "no dense branch"});

    Moe hashed = plain();
    hashed.table = {0, 1, 2, 3};
    expect_refused(hashed, hashed.file("llama"), "UnexpectedTensor", {"ffn_gate_tid2eid"});
}

TEST(GgufRefuses, SharedExpertThatTheKeyDenies) {
    const Moe moe = shared();
    GgufFile file = moe.file("glm4moe");
    file.without_key(".expert_shared_feed_forward_length").u32(".expert_shared_count", 0);
    file.tensor("blk.0.exp_probs_b.bias", {6}, std::vector<float>(6, 0));
    expect_refused(moe, file, "UnexpectedTensor", {"expert_shared_count"});
}

TEST(GgufRefuses, TwoWaysOfHoldingTheExpertsAtOnce) {
    const Moe moe = plain();
    GgufFile fused = moe.file("llama"), both = fused;
    moe.fuse(&fused);
    both.tensor_bytes("blk.0.ffn_gate_up_exps.weight", {24, 20, 6}, 0,
                      fused.find("blk.0.ffn_gate_up_exps.weight").bytes);
    expect_refused(moe, both, "UnexpectedTensor", {"fused"});
    GgufFile apart = moe.file("llama"), mixed = apart;
    moe.take_apart(&apart);
    mixed.tensor_bytes("blk.0.ffn_up.0.weight", {24, 10}, 0,
                       apart.find("blk.0.ffn_up.0.weight").bytes);
    expect_refused(moe, mixed, "UnexpectedTensor", {"single experts"});
}

TEST(GgufRefuses, ASecondTensorForOnePlace) {
    Moe moe = plain();
    moe.add_scales(&moe.routed);
    GgufFile file = moe.file("llama");
    file.tensor("blk.0.ffn_up_exps.weight.scale", {6}, moe.noise(6));
    expect_refused(moe, file, "DuplicateTensor", {"blk.0.ffn_up_exps.weight.scale"});
}

TEST(GgufRefuses, ChunkExpertsByName) {
    Moe moe = plain();
    GgufFile file = moe.file("grovemoe");
    file.tensor("blk.0.ffn_up_chexps.weight", {24, 4, 3}, moe.noise(24 * 12));
    expect_refused(moe, file, "ChunkExperts", {"blk.0.ffn_up_chexps.weight"});
}

TEST(GgufRefuses, TensorsThatChangeTheResultAndHaveNoDefinition) {
    Moe moe = plain();
    for (const std::string name : {"ffn_act.scales", "ffn_sub_norm.weight", "ffn_up.2.scale",
                                   "ffn_gate_inp_shexp.scale", "ffn_latent_up.scale"}) {
        GgufFile file = moe.file("llama");
        file.tensor(moe.name(name), {24}, moe.noise(24));
        expect_refused(moe, file, "NoDefinition", {moe.name(name)});
    }
}

/* ---- shapes ---- */

TEST(GgufRefuses, ShapesThatDisagreeInNeOrder) {
    const Moe moe = plain();
    const struct {
        std::string name;
        std::vector<uint64_t> ne;
        std::string wanted;
    } cases[] = {
        {GATE, {24, 6, 10}, "wanted [24, 6, 6] (input, output, experts), found [24, 6, 10]"},
        {UP, {6, 10, 24}, "wanted [24, 10, 6] (input, output, experts), found [6, 10, 24]"},
        {UP, {24, 5, 12}, "wanted [24, 10, 6]"},
        {DOWN, {6, 24, 10}, "wanted [10, 24, 6] (input, output, experts), found [6, 24, 10]"},
        {DOWN, {10, 24, 3, 2}, "wanted [10, 24, 6]"},
        {DOWN, {24, 10, 6}, "wanted [10, 24, 6]"},
        {DOWN, {5, 48, 6}, "wanted [10, 24, 6]"},
    };
    for (const auto &c : cases) {
        GgufFile file = moe.file("llama");
        expect_refused(moe, file.reshape(c.name, c.ne), "ShapesDisagree", {c.name, c.wanted});
    }
}

TEST(GgufRefuses, VectorsOfTheWrongLength) {
    Moe moe = plain();
    GgufFile file = moe.file("llama");
    file.tensor("blk.0.ffn_gate_inp.bias", {5}, moe.noise(5));
    expect_refused(moe, file, "ShapesDisagree", {"ffn_gate_inp.bias", "wanted [6]"});
    file = moe.file("llama");
    file.tensor("blk.0.exp_probs_b.bias", {7}, moe.noise(7));
    expect_refused(moe, file, "ShapesDisagree", {"exp_probs_b.bias", "found [7]"});
    moe.add_biases(&moe.routed);
    file = moe.file("llama");
    file.reshape("blk.0.ffn_up_exps.bias", {6, 10});
    expect_refused(moe, file, "ShapesDisagree",
                   {"wanted [10, 6] (output, experts), found [6, 10]"});
    moe = plain();
    moe.add_scales(&moe.routed);
    file = moe.file("llama");
    file.tensor("blk.0.ffn_up_exps.scale", {12}, moe.noise(12));
    expect_refused(moe, file, "ShapesDisagree", {"ffn_up_exps.scale"});
}

TEST(GgufRefuses, RouterOverAnotherNumberOfExperts) {
    const Moe moe = plain();
    GgufFile file = moe.file("llama");
    file.without_key(".expert_count").tensor(ROUTER, {24, 5}, std::vector<float>(120, 1));
    expect_refused(moe, file, "ShapesDisagree", {"wanted [24, 10, 5]"});
}

TEST(GgufRefuses, DimsOfZero) {
    const Moe moe = plain();
    for (const std::string &name : {GATE, UP, DOWN, ROUTER}) {
        GgufFile file = moe.file("llama");
        GgufTensor &tensor = file.find(name);
        tensor.ne.back() = 0;
        tensor.bytes.clear();
        expect_refused(moe, file, name == ROUTER ? "TooManyExperts" : "ShapesDisagree");
        file.find(name).ne = {0, name == ROUTER ? 6u : 10u, name == ROUTER ? 1u : 6u};
        expect_refused(moe, file, name == ROUTER ? "BadDim" : "ShapesDisagree");
    }
}

TEST(GgufRefuses, MoreExpertsThanABankHolds) {
    Moe moe(1, 1, 65537, 2);
    expect_refused(moe, moe.file("llama"), "TooManyExperts", {"65537", "65536"});
}

/* ---- keys ---- */

TEST(GgufRefuses, KeysThatContradictTheTensors) {
    const struct {
        const char *key;
        uint32_t value;
        const char *name, *text;
    } cases[] = {
        {".expert_count", 128, "ExpertCountMismatch", "128"},
        {".embedding_length", 32, "DimensionContradicted", "key embedding_length: 32"},
        {".expert_feed_forward_length", 12, "DimensionContradicted",
         "key expert_feed_forward_length: 12, but the tensors' width of an expert is 10"},
        {".expert_used_count", 7, "SelectionExceedsBank", "7 of 6"},
        {".expert_used_count", 0, "NoExpertsUsed", "0 of 6"},
        {".expert_shared_feed_forward_length", 11, "DimensionContradicted", "11"},
        {".expert_group_count", 4, "BadGroups", "4"},
        {".expert_gating_func", 9, "UnknownGating", "9"},
    };
    const Moe moe = shared();
    for (const auto &c : cases) {
        GgufFile file = moe.file("deepseek2");
        expect_refused(moe, file.u32(c.key, c.value), c.name, {c.text, "layer 0"});
    }
}

TEST(GgufRefuses, WidthsThatNoKeyExplains) {
    Moe moe = plain();
    GgufFile file = moe.file("llama");
    file.without_key(".expert_feed_forward_length").u32(".feed_forward_length", 15);
    expect_refused(moe, file, "DimensionContradicted", {"key feed_forward_length: 15"});
    moe = shared();
    file = moe.file("deepseek");
    file.without_key(".expert_shared_feed_forward_length").u32(".expert_shared_count", 2);
    expect_refused(moe, file, "DimensionContradicted", {"expert_shared_count: 2"});
}

TEST(GgufRefuses, KeysOfTheWrongType) {
    const Moe moe = plain();
    GgufFile file = moe.file("llama");
    expect_refused(moe, file.text(".expert_count", "six"), "WrongType", {"expert_count"});
    GgufFile other = moe.file("deepseek2");
    expect_refused(moe, other.text(".expert_weights_norm", "yes"), "WrongType",
                   {"expert_weights_norm"});
}

TEST(GgufRefuses, KeysAnArchitectureCannotDoWithout) {
    const Moe moe = shared();
    expect_refused(moe, moe.file("dots1"), "MissingKey", {"expert_gating_func", "--set gating="});
}

TEST(GgufRefuses, LimitsOfAnArchitectureThatGivesThemNoMeaning) {
    const Moe moe = plain();
    GgufFile file = moe.file("llama");
    expect_refused(moe, file.f32(".swiglu_clamp_exp", 7), "LimitWithoutRule", {"7"});
}

/* ---- types ---- */

TEST(GgufRefuses, TypesThatNeedACodebookByName) {
    Moe moe(256, 256, 2, 1);
    const struct {
        uint32_t type;
        size_t bytes;
        const char *name;
    } types[] = {{16, 66, "iq2_xxs"}, {17, 74, "iq2_xs"}, {18, 98, "iq3_xxs"}, {19, 50, "iq1_s"},
                 {21, 110, "iq3_s"},  {22, 82, "iq2_s"},  {29, 56, "iq1_m"}};
    for (const auto &type : types) {
        GgufFile file = moe.file("llama");
        file.tensor_bytes(UP, {256, 256, 2}, type.type, std::vector<uint8_t>(512 * type.bytes));
        expect_refused(
            moe, file, "NeedsCodebook",
            {std::string(type.name) + " needs a codebook; not supported; re-quantise", UP});
    }
}

TEST(GgufRefuses, TypesThatAreNoWeights) {
    Moe moe(32, 32, 2, 1);
    GgufFile file = moe.file("llama");
    file.tensor_bytes(UP, {32, 32, 2}, 24, std::vector<uint8_t>(2048));
    expect_refused(moe, file, "NoCodec", {"i8", UP});
    file.tensor_bytes(UP, {32, 32, 2}, 9, std::vector<uint8_t>(64 * 36));
    expect_refused(moe, file, "NoCodec", {"q8_1", UP});
}

TEST(GgufRefuses, UnknownTypesOnlyWhereTheLayerNeedsThem) {
    Moe moe = plain();
    GgufFile file = moe.file("llama");
    std::vector<uint8_t> bytes(64);
    file.tensor_bytes("blk.0.attn_q.weight", {4, 4}, 0, bytes);
    TempDir folder;
    const std::string path = folder.path("m.gguf");
    /* The last tensor's type: its bytes are what is left of the file. */
    file.write(path);
    std::vector<uint8_t> whole = read_file(path);
    const std::string name = "blk.0.attn_q.weight";
    auto at = std::search(whole.begin(), whole.end(), name.begin(), name.end());
    at[name.size() + 4 + 16] = 139;
    write_file(path, whole.data(), whole.size());
    OpenLayer open(path, 0);
    EXPECT_EQ(open.status, PLEC_OK) << open.error.message;

    at = std::search(whole.begin(), whole.end(), UP.begin(), UP.end());
    at[UP.size() + 4 + 24] = 139;
    write_file(path, whole.data(), whole.size());
    OpenLayer refused(path, 0);
    EXPECT_EQ(refused.status, PLEC_UNSUPPORTED);
    EXPECT_STREQ(refused.error.name, "UnknownType");
    EXPECT_NE(std::string(refused.error.message).find("type 139 (unknown)"), std::string::npos)
        << refused.error.message;
}

TEST(GgufRefuses, SingleExpertsOfDifferentTypes) {
    Moe moe(32, 32, 5, 2);
    GgufFile file = moe.file("llama");
    moe.take_apart(&file);
    file.requantise("blk.0.ffn_down.3.weight", PLEC_FORMAT_Q8_0);
    expect_refused(moe, file, "TypesDiffer",
                   {"blk.0.ffn_down.N.weight", "expert 3 is q8_0", "the others are f32"});
    for (const char *e : {"1", "2", "4"})
        file.requantise("blk.0.ffn_down." + std::string(e) + ".weight", PLEC_FORMAT_Q8_0);
    expect_refused(moe, file, "TypesDiffer", {"expert 0 is f32", "the others are q8_0"});
}

TEST(GgufRefuses, SingleExpertsOfDifferentShapesOrBeyondTheRouter) {
    Moe moe(24, 10, 5, 2);
    GgufFile file = moe.file("llama"), more = file;
    moe.take_apart(&file);
    more = file;
    file.reshape("blk.0.ffn_up.2.weight", {10, 24});
    expect_refused(moe, file, "ShapesDisagree", {"blk.0.ffn_up.2.weight", "wanted [24, 10]"});
    more.tensor("blk.0.ffn_up.5.weight", {24, 10}, moe.noise(240));
    expect_refused(moe, more, "ExpertOutOfRange", {"blk.0.ffn_up.5.weight", "expert 5 of 5"});
}

/* ---- values ---- */

TEST(GgufRefuses, FactorsThatAreZeroOrNotFinite) {
    for (float bad : {0.0f, -0.0f, std::numeric_limits<float>::infinity(),
                      std::numeric_limits<float>::quiet_NaN()})
        for (const std::string part : {"gate", "up", "down"}) {
            Moe moe = plain();
            moe.add_scales(&moe.routed);
            (part == "gate" ? moe.routed.gate_scale
             : part == "up" ? moe.routed.up_scale
                            : moe.routed.down_scale)[4] = bad;
            expect_refused(moe, moe.file("llama"), "BadScale",
                           {"blk.0.ffn_" + part + "_exps.scale", "expert 4"});
        }
}

TEST(GgufRefuses, FactorsOfAFusedTensorThatLeaveItsHalvesOpen) {
    Moe moe = plain();
    moe.add_scales(&moe.routed);
    GgufFile file = moe.file("llama");
    moe.fuse(&file);
    expect_refused(moe, file, "UnexpectedTensor", {"differ from the fused tensor's"});
    file.without("blk.0.ffn_up_exps.scale");
    expect_refused(moe, file, "UnexpectedTensor", {"gate half of a fused tensor alone"});
}

TEST(GgufRefuses, TokenTablesWithIdsOutsideTheExperts) {
    Moe moe = shared();
    const auto file_with = [&](const std::vector<int32_t> &table) {
        moe.table = table;
        GgufFile file = moe.file("deepseek4");
        file.flag(".expert_weights_norm", true).f32(".expert_weights_scale", 1);
        file.u32(".hash_layer_count", 1);
        return file;
    };
    expect_refused(moe, file_with({0, 1, 2, 6, 3, 4}), "BadTokenTable",
                   {"token id 1 slot 1: expert 6, wanted 0 to 5"});
    expect_refused(moe, file_with({0, 1, -1, 2, 3, 4}), "BadTokenTable",
                   {"token id 1 slot 0: expert -1"});
    GgufFile narrow = file_with({0, 1, 2, 3});
    narrow.reshape("blk.0.ffn_gate_tid2eid.weight", {4, 1});
    expect_refused(moe, narrow, "ShapesDisagree", {"wanted [2, 1]"});
    GgufFile real = file_with({0, 1, 2, 3});
    real.tensor("blk.0.ffn_gate_tid2eid.weight", {2, 2}, {0, 1, 2, 3});
    expect_refused(moe, real, "TokenTableType", {"wanted i32, found f32"});
    GgufFile biased = file_with({0, 1, 2, 3});
    biased.tensor("blk.0.exp_probs_b.bias", {6}, moe.noise(6));
    expect_refused(moe, biased, "UnexpectedTensor", {"chosen by token id"});
}

/* ---- what the user asks for ---- */

TEST(GgufRefuses, UnknownArchitecturesWithoutHelp) {
    const Moe moe = plain();
    expect_refused(moe, moe.file("brandnew"), "UnknownArchitecture",
                   {"\"brandnew\"", "--as", "--set"});
    plec_container_options options = {};
    options.set = "gating=sigmoid";
    expect_refused(moe, moe.file("brandnew"), "NotSet", {"norm"}, options);
    options = {};
    options.architecture = "newer";
    expect_refused(moe, moe.file("llama"), "UnknownArchitecture", {"\"newer\""}, options);
}

TEST(GgufRefuses, SettingsThatMeanNothingHere) {
    const Moe moe = plain();
    plec_container_options options = {};
    options.set = "factor=0.5";
    expect_refused(moe, moe.file("llama"), "SettingUnused", {"factor"}, options);
    options.set = "color=red";
    expect_refused(moe, moe.file("llama"), "UnknownSetting", {"color"}, options);
    options.set = "k=9";
    expect_refused(moe, moe.file("llama"), "SelectionExceedsBank", {"9 of 6"}, options);
    options.set = nullptr;
    options.profile = "exact";
    expect_refused(moe, moe.file("llama"), "UndeclaredProfile", {"exact"}, options);
}

TEST(GgufRefuses, FilesWithDefectsBeforeAnythingRuns) {
    const Moe moe = plain();
    TempDir folder;
    moe.file("llama").write(folder.path("m.gguf"));
    std::vector<uint8_t> bytes = read_file(folder.path("m.gguf"));
    write_file(folder.path("cut.gguf"), bytes.data(), bytes.size() - 100);
    OpenLayer open(folder.path("cut.gguf"), 0);
    EXPECT_EQ(open.status, PLEC_MALFORMED);
    EXPECT_STREQ(open.error.name, "TensorOutsideFile");
    EXPECT_NE(std::string(open.error.message).find("cut.gguf"), std::string::npos)
        << open.error.message;
}

} // namespace
