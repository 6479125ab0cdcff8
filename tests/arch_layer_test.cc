#include "tests/support/arch_keys.h"

#include <array>
#include <cmath>

using namespace plec_test;

namespace {

TEST(ArchLayer, DenseLayersNeedNoRoutingKeys) {
    Ask ask;
    ask.name = "deepseek32"; /* its gating's key is required where there are experts */
    ask.n_experts = 0;
    ask.keys.one["feed_forward_length"] = integer(1536);
    Resolved r = resolve(ask);
    EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
    EXPECT_EQ(r.layer.dense_width.value, 1536u);
    ask.name = "gpt-oss";
    expect_refused(resolve(ask), PLEC_MISSING, "NotSet", "dense_act");
}

TEST(ArchLayer, GlmFlashAsDeepseek2IsSigmoidBySize) {
    Ask ask;
    ask.name = "deepseek2";
    ask.vocabulary = 154880;
    for (int blocks : {46, 47, 48, 49}) {
        ask.keys = full_keys().without("expert_gating_func").with("block_count", integer(blocks));
        bool flash = blocks == 47 || blocks == 48;
        Resolved r = resolve(ask);
        EXPECT_EQ(r.layer.gating.value, flash ? 2u : 1u) << blocks;
        EXPECT_EQ(r.layer.gating.origin, PLEC_ARCH_BY_DEFAULT);
    }
    ask.keys = full_keys()
                   .without("expert_gating_func")
                   .with("block_count", integer(48))
                   .with("nextn_predict_layers", integer(1));
    EXPECT_EQ(resolve(ask).layer.gating.value, 2u) << "47 layers and a prediction head";
    ask.keys.one["expert_gating_func"] = integer(1);
    EXPECT_EQ(resolve(ask).layer.gating.value, 1u) << "the file rules";
    ask.keys.one.erase("expert_gating_func");
    ask.vocabulary = 154881;
    EXPECT_EQ(resolve(ask).layer.gating.value, 1u);
    ask.vocabulary = 154880;
    ask.name = "mistral4";
    EXPECT_EQ(resolve(ask).layer.gating.value, 1u);
}

TEST(ArchLayer, GatingsOutsideTheArchitectureAreRefused) {
    for (int gating : {1, 2, 3, 5})
        expect_refused(
            resolve("deepseek4", full_keys().with("expert_gating_func", integer(gating))),
            PLEC_UNSUPPORTED, "UnknownGating", std::to_string(gating));
    for (int gating : {1, 2})
        EXPECT_EQ(
            resolve("smallthinker", full_keys().with("expert_gating_func", integer(gating))).status,
            PLEC_OK);
    for (int gating : {3, 4})
        expect_refused(
            resolve("smallthinker", full_keys().with("expert_gating_func", integer(gating))),
            PLEC_UNSUPPORTED, "UnknownGating", "smallthinker");
    expect_refused(resolve("deepseek2", full_keys().with("expert_gating_func", integer(5))),
                   PLEC_UNSUPPORTED, "UnknownGating", "5");
}

TEST(ArchLayer, PredictionHeadsAreToldByTheKeys) {
    Ask ask;
    ask.name = "glm4moe";
    ask.keys = full_keys().with("nextn_predict_layers", integer(2));
    for (uint32_t layer : {29u, 30u, 31u}) {
        ask.layer = layer;
        Resolved r = resolve(ask);
        EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
        EXPECT_EQ(r.layer.mtp, layer >= 30) << layer;
    }
    ask.keys.one["nextn_predict_layers"] = integer(33);
    expect_refused(resolve(ask), PLEC_MALFORMED, "IntegerRange", "33");
}

plec_arch_presence experts_of(const std::string &name, const Keys &keys, uint32_t layer) {
    Ask ask;
    ask.name = name;
    ask.keys = keys;
    ask.layer = layer;
    return resolve(ask).layer.experts;
}

TEST(ArchLayer, KeysSayWhichLayersHaveExperts) {
    Keys keys = full_keys();
    EXPECT_EQ(experts_of("llama", keys, 0), PLEC_ARCH_YES);
    EXPECT_EQ(experts_of("llama", keys.with("expert_count", integer(0)), 0), PLEC_ARCH_NO);
    EXPECT_EQ(experts_of("jamba", keys, 0), PLEC_ARCH_OPTIONAL);
    Keys leading = keys.with("leading_dense_block_count", integer(3));
    EXPECT_EQ(experts_of("deepseek2", leading, 2), PLEC_ARCH_NO);
    EXPECT_EQ(experts_of("deepseek2", leading, 3), PLEC_ARCH_YES);
    Keys step = keys.with("interleave_moe_layer_step", integer(2));
    EXPECT_EQ(experts_of("llama4", step, 0), PLEC_ARCH_NO);
    EXPECT_EQ(experts_of("llama4", step, 1), PLEC_ARCH_YES);
    Keys both = step.with("leading_dense_block_count", integer(2));
    EXPECT_EQ(experts_of("ernie4_5-moe", both, 1), PLEC_ARCH_NO);
    EXPECT_EQ(experts_of("ernie4_5-moe", both, 3), PLEC_ARCH_YES);
    Keys every = keys.with("moe_every_n_layers", integer(2));
    EXPECT_EQ(experts_of("nomic-bert-moe", every, 0), PLEC_ARCH_NO);
    EXPECT_EQ(experts_of("nomic-bert-moe", every, 1), PLEC_ARCH_YES);
}

TEST(ArchLayer, HashLayersHaveNoSelectionBias) {
    Ask ask;
    ask.name = "deepseek4";
    ask.keys =
        full_keys().with("expert_gating_func", integer(4)).with("hash_layer_count", integer(3));
    ask.layer = 2;
    EXPECT_TRUE(resolve(ask).layer.hash_routed);
    EXPECT_EQ(resolve(ask).layer.selection_bias, PLEC_ARCH_NO);
    ask.layer = 3;
    EXPECT_FALSE(resolve(ask).layer.hash_routed);
    EXPECT_EQ(resolve(ask).layer.selection_bias, PLEC_ARCH_YES);
}

void expect_maths(const plec_arch_maths &maths, const std::string &activation, double limit) {
    EXPECT_STREQ(maths.activation.value, activation.c_str());
    EXPECT_EQ(maths.limit.value, limit);
}

TEST(ArchLayer, LimitsClampTheWayOfTheirArchitecture) {
    Keys keys = full_keys().with("swiglu_clamp_exp", real(10));
    Resolved v4 = resolve("deepseek4", keys.with("expert_gating_func", integer(4)));
    EXPECT_EQ(v4.status, PLEC_OK) << v4.error.message;
    expect_maths(v4.layer.expert, "clamped_gated", 10);
    EXPECT_EQ(v4.layer.expert.limit.origin, PLEC_ARCH_IN_FILE);
    expect_maths(v4.layer.shared_expert, "clamped_gated", 10); /* absent: the routed one's */
    Resolved step = resolve("step35", keys);
    expect_maths(step.layer.expert, "silu_step", 10);
    expect_maths(step.layer.shared_expert, "silu", 0); /* absent: none */

    keys.one["swiglu_clamp_shexp"] = real(0);
    v4 = resolve("deepseek4", keys.with("expert_gating_func", integer(4)));
    expect_maths(v4.layer.expert, "clamped_gated", 10);
    expect_maths(v4.layer.shared_expert, "silu", 0); /* 0 is off */
    keys.one["swiglu_clamp_shexp"] = real(16);
    step = resolve("step35", keys);
    expect_maths(step.layer.shared_expert, "silu_step", 16);
    EXPECT_STREQ(step.layer.dense.activation.value, "silu_step") << "dense layers clamp as shared";
    EXPECT_EQ(step.layer.dense.limit.value, 16);
}

TEST(ArchLayer, LimitsMayDifferByLayer) {
    Ask ask;
    ask.name = "step35";
    ask.keys = full_keys();
    ask.keys.by_layer["swiglu_clamp_exp"] = {real(0), real(7)};
    ask.keys.by_layer["expert_used_count"] = {integer(2), integer(3)};
    ask.layer = 0;
    expect_maths(resolve(ask).layer.expert, "silu", 0);
    EXPECT_EQ(resolve(ask).layer.top_k.value, 2u);
    ask.layer = 1;
    expect_maths(resolve(ask).layer.expert, "silu_step", 7);
    EXPECT_EQ(resolve(ask).layer.top_k.value, 3u);
    ask.layer = 2;
    expect_refused(resolve(ask), PLEC_MALFORMED, "WrongType", "array without one for this layer");
}

TEST(ArchLayer, ATrainedLimitIsNeverDropped) {
    Keys keys = full_keys().with("swiglu_clamp_exp", real(7));
    Resolved r = resolve("qwen3moe", keys);
    expect_refused(r, PLEC_UNSUPPORTED, "LimitWithoutRule", "clamps at 7");
    expect_refused(resolve("grok", keys), PLEC_UNSUPPORTED, "LimitWithoutRule", "gelu_tanh");
    EXPECT_EQ(resolve("qwen3moe", full_keys().with("swiglu_clamp_exp", real(0))).status, PLEC_OK);
    expect_maths(resolve("qwen3moe", keys, "act=silu_step").layer.expert, "silu_step", 7);
    expect_maths(resolve("qwen3moe", keys, "act=clamped_gated").layer.expert, "clamped_gated", 7);
    Resolved off = resolve("qwen3moe", keys, "limit=0");
    EXPECT_EQ(off.status, PLEC_OK) << off.error.message;
    expect_maths(off.layer.expert, "silu", 0);
    expect_refused(resolve("step35", full_keys().with("swiglu_clamp_exp", real(-1))),
                   PLEC_MALFORMED, "BadLimit", "-1");
}

TEST(ArchLayer, SelectionThatDoesNotFitIsRefused) {
    Keys keys = full_keys();
    auto with_groups = [&](int groups, int used) {
        return keys.with("expert_group_count", integer(groups))
            .with("expert_group_used_count", integer(used));
    };
    const std::string name = "deepseek2";
    expect_refused(resolve(name, keys.with("expert_used_count", integer(0))), PLEC_MALFORMED,
                   "NoExpertsUsed", "0 of 16");
    expect_refused(resolve(name, keys.without("expert_used_count")), PLEC_MALFORMED,
                   "NoExpertsUsed", "0 of 16");
    expect_refused(resolve(name, keys.with("expert_used_count", integer(17))), PLEC_MALFORMED,
                   "SelectionExceedsBank", "17 of 16");
    EXPECT_EQ(resolve(name, keys.with("expert_used_count", integer(16))).status, PLEC_OK);
    expect_refused(resolve(name, keys.with("expert_count", integer(15))), PLEC_MALFORMED,
                   "ExpertCountMismatch", "15");
    for (int groups : {3, 16, 32})
        expect_refused(resolve(name, with_groups(groups, 2)), PLEC_MALFORMED, "BadGroups",
                       std::to_string(groups) + " equal groups");
    for (int used : {0, 4, 5})
        expect_refused(resolve(name, with_groups(4, used)), PLEC_MALFORMED, "BadGroups",
                       "wanted 1 to 3, found " + std::to_string(used));
    keys.one["expert_used_count"] = integer(5);
    expect_refused(resolve(name, with_groups(4, 1)), PLEC_MALFORMED, "BadGroups",
                   "1 groups hold 4");
    EXPECT_EQ(resolve(name, with_groups(4, 2)).status, PLEC_OK);
    EXPECT_EQ(resolve(name, with_groups(1, 1)).status, PLEC_OK);
    EXPECT_EQ(resolve(name, with_groups(0, 0)).status, PLEC_OK);
}

TEST(ArchLayer, TheTensorsCountWhereTheKeyIsAbsent) {
    Resolved r = resolve("llama", full_keys().without("expert_count"));
    EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
    EXPECT_EQ(r.layer.n_experts.value, 16u);
}

TEST(ArchLayer, SharedCountOfZeroMakesTheSharedExpertOptional) {
    EXPECT_EQ(
        resolve("deepseek2", full_keys().with("expert_shared_count", integer(0))).layer.shared,
        PLEC_ARCH_OPTIONAL);
    EXPECT_EQ(resolve("deepseek2", full_keys()).layer.shared, PLEC_ARCH_YES);
    EXPECT_EQ(resolve("qwen3moe", full_keys()).layer.shared, PLEC_ARCH_NO);
}

TEST(ArchLayer, OnlyBranchesWithAFactorAreScaled) {
    EXPECT_EQ(resolve("cohere2moe", full_keys()).layer.branch_factor.value, 0.5);
    EXPECT_DOUBLE_EQ(resolve("grok", full_keys()).layer.branch_factor.value, std::sqrt(0.5));
    EXPECT_EQ(resolve("deepseek2", full_keys()).layer.branch_factor.value, 1);
}

TEST(ArchLayer, KeysOfAnotherTypeAreRefusedByName) {
    const std::string name = "deepseek2";
    Keys keys = full_keys();
    std::vector<std::pair<std::string, plec_arch_key>> wrong = {
        {"expert_used_count", real(4)},
        {"expert_used_count", boolean(true)},
        {"expert_used_count", OTHER},
        {"expert_gating_func", OTHER},
        {"expert_weights_norm", real(1)},
        {"expert_weights_norm", integer(2)},
        {"expert_weights_scale", boolean(true)},
        {"expert_weights_scale", OTHER}};
    for (const auto &[key, value] : wrong)
        expect_refused(resolve(name, keys.with(key, value)), PLEC_MALFORMED, "WrongType", key);
    for (int64_t value : {int64_t(-1), int64_t(1) << 32})
        expect_refused(resolve(name, keys.with("expert_used_count", integer(value))),
                       PLEC_MALFORMED, "IntegerRange", std::to_string(value));
    for (double value : {HUGE_VAL, std::nan("")})
        expect_refused(resolve(name, keys.with("expert_weights_scale", real(value))),
                       PLEC_MALFORMED, "NotFinite", "expert_weights_scale");
    Keys array = keys.without("expert_gating_func");
    array.by_layer["expert_gating_func"] = std::vector<plec_arch_key>(32, integer(2));
    expect_refused(resolve(name, array), PLEC_MALFORMED, "WrongType", "found an array");
    EXPECT_EQ(resolve(name, keys.with("expert_weights_norm", integer(1))).status, PLEC_OK);
    EXPECT_EQ(resolve(name, keys.with("expert_weights_scale", integer(3))).layer.scale.value, 3);
}

TEST(ArchLayer, AnUnknownArchitectureIsRefusedAndStillDescribed) {
    Resolved r = resolve("brand-new", full_keys());
    expect_refused(r, PLEC_UNSUPPORTED, "UnknownArchitecture", "brand-new");
    EXPECT_EQ(r.layer.arch, nullptr);
    EXPECT_EQ(r.layer.gating.value, 2u);
    EXPECT_EQ(r.layer.gating.origin, PLEC_ARCH_IN_FILE);
    EXPECT_EQ(r.layer.weight_on_input.origin, PLEC_ARCH_UNKNOWN);
    EXPECT_EQ(r.layer.expert.activation.value, nullptr);
    plec_arch_line lines[PLEC_ARCH_LINES_MAX];
    size_t n = plec_arch_describe(lines, &r.layer, true);
    ASSERT_GT(n, 8u);
    bool found = false;
    for (size_t i = 0; i < n; i++)
        found |= std::string(lines[i].name) == "activation" && std::string(lines[i].text) == "?";
    EXPECT_TRUE(found);
}

TEST(ArchLayer, AnUnknownArchitectureRunsWithWhatIsSet) {
    Keys bare = full_keys();
    for (const char *key : {"expert_gating_func", "expert_weights_norm", "expert_weights_scale"})
        bare.one.erase(key);
    expect_refused(resolve("brand-new", bare, "norm=1,act=silu"), PLEC_MISSING, "NotSet",
                   "--set gating=");
    expect_refused(resolve("brand-new", bare, "gating=sigmoid,act=silu"), PLEC_MISSING, "NotSet",
                   "--set norm=");
    expect_refused(resolve("brand-new", bare, "gating=sigmoid,norm=1"), PLEC_MISSING, "NotSet",
                   "--set act=");
    Resolved r = resolve("brand-new", bare, "gating=sigmoid,norm=1,act=relu");
    EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
    EXPECT_EQ(r.layer.gating.origin, PLEC_ARCH_BY_USER);
    EXPECT_EQ(r.layer.scale.origin, PLEC_ARCH_UNKNOWN);
    EXPECT_EQ(r.layer.top_k.value, 4u);
    EXPECT_STREQ(r.layer.dense.activation.value, "relu");
    r = resolve("brand-new", full_keys(), "act=silu");
    EXPECT_EQ(r.status, PLEC_OK) << "gating and norm stand in the file: " << r.error.message;
}

TEST(ArchSet, EverySettingRulesOverFileAndArchitecture) {
    Keys keys = full_keys().with("swiglu_clamp_exp", real(3));
    Resolved r = resolve("deepseek2", keys,
                         "gating=softmax_selected,norm=0,scale=1.5,k=8,groups=8,groups_used=4,"
                         "act=silu,limit=7,weight_before=1,select_on=logits,router_input=block,"
                         "factor=0.5,dense_act=gelu_erf");
    ASSERT_EQ(r.status, PLEC_OK) << r.error.message;
    const plec_arch_layer &layer = r.layer;
    EXPECT_EQ(layer.gating.value, uint32_t(PLEC_ARCH_SOFTMAX_SELECTED));
    EXPECT_EQ(layer.norm.value, 0u);
    EXPECT_EQ(layer.scale.value, 1.5);
    EXPECT_EQ(layer.top_k.value, 8u);
    EXPECT_EQ(layer.groups.value, 8u);
    EXPECT_EQ(layer.groups_used.value, 4u);
    EXPECT_EQ(layer.weight_on_input.value, 1u);
    EXPECT_EQ(layer.select_on.value, uint32_t(PLEC_ARCH_ON_LOGITS));
    EXPECT_EQ(layer.router_input.value, uint32_t(PLEC_ARCH_BLOCK_INPUT));
    EXPECT_EQ(layer.branch_factor.value, 0.5);
    expect_maths(layer.expert, "clamped_gated", 7);
    expect_maths(layer.shared_expert, "clamped_gated", 7);
    expect_maths(layer.dense, "gelu_erf", 0);
    for (plec_arch_origin origin :
         {layer.gating.origin, layer.norm.origin, layer.scale.origin, layer.top_k.origin,
          layer.groups.origin, layer.groups_used.origin, layer.weight_on_input.origin,
          layer.select_on.origin, layer.router_input.origin, layer.branch_factor.origin,
          layer.expert.activation.origin, layer.expert.limit.origin, layer.dense.activation.origin})
        EXPECT_EQ(origin, PLEC_ARCH_BY_USER);
}

TEST(ArchSet, SharedAndDenseMayDifferFromTheExperts) {
    Resolved r = resolve("deepseek2", full_keys(),
                         "act=clamped_glu,limit=5,alpha=2,shared_act=gelu_tanh,"
                         "dense_act=silu_step,dense_limit=4,norm_floor=0.25,norm=1");
    ASSERT_EQ(r.status, PLEC_OK) << r.error.message;
    expect_maths(r.layer.expert, "clamped_glu", 5);
    EXPECT_EQ(r.layer.expert.alpha.value, 2);
    expect_maths(r.layer.shared_expert, "gelu_tanh", 0);
    expect_maths(r.layer.dense, "silu_step", 4);
    EXPECT_EQ(r.layer.norm_floor.value, 0.25);
    r = resolve("deepseek2", full_keys(), "shared_act=silu_step,shared_limit=6");
    expect_maths(r.layer.expert, "silu", 0);
    expect_maths(r.layer.shared_expert, "silu_step", 6);
    r = resolve("deepseek2", full_keys(), "act=clamped_gated");
    expect_maths(r.layer.expert, "clamped_gated", 10);
}

TEST(ArchSet, SettingsThatWouldDoNothingAreRefused) {
    expect_refused(resolve("grok", full_keys(), "limit=7"), PLEC_BAD_INPUT, "SettingUnused",
                   "limit: gelu_tanh");
    expect_refused(resolve("llama", full_keys(), "alpha=2"), PLEC_BAD_INPUT, "SettingUnused",
                   "alpha");
    expect_refused(resolve("llama", full_keys(), "groups_used=2"), PLEC_BAD_INPUT, "SettingUnused",
                   "groups_used");
    expect_refused(resolve("olmoe", full_keys(), "norm_floor=1"), PLEC_BAD_INPUT, "SettingUnused",
                   "norm_floor");
    expect_refused(resolve("llama", full_keys(), "act=silu_step"), PLEC_MISSING, "NotSet",
                   "--set limit=");
}

TEST(ArchSet, SettingsThatDoNotFitAreTheUsersFault) {
    expect_refused(resolve("llama", full_keys(), "k=0"), PLEC_BAD_INPUT, "NoExpertsUsed",
                   "0 of 16");
    expect_refused(resolve("llama", full_keys(), "k=17"), PLEC_BAD_INPUT, "SelectionExceedsBank",
                   "17 of 16");
    expect_refused(resolve("llama", full_keys(), "groups=5,groups_used=2"), PLEC_BAD_INPUT,
                   "BadGroups", "5 equal groups");
}

TEST(ArchSet, EveryFaultOfTheTextIsNamed) {
    std::vector<std::array<std::string, 3>> faults = {
        {"speed=9", "UnknownSetting", "\"speed\" is none of gating, select_on"},
        {"gating=sigmoid,", "UnknownSetting", "\"\""},
        {"=1", "UnknownSetting", "\"\""},
        {std::string(40, 'x') + "=1", "UnknownSetting", "too long"},
        {"gating=" + std::string(40, 's'), "UnknownSetting", "too long"},
        {"gating=softmux", "BadSetting", "found \"softmux\""},
        {"gating=none", "BadSetting", "wanted softmax, sigmoid"},
        {"gating", "BadSetting", "found \"\""},
        {"select_on=z", "BadSetting", "scores, logits or sigmoid"},
        {"router_input=x", "BadSetting", "ffn, attention or block"},
        {"norm=2", "BadSetting", "0 or 1"},
        {"norm=yes", "BadSetting", "0 or 1"},
        {"k=-1", "BadSetting", "a whole number"},
        {"k= 1", "BadSetting", "a whole number"},
        {"k=4294967296", "BadSetting", "a whole number"},
        {"k=1.5", "BadSetting", "a whole number"},
        {"scale=0", "BadSetting", "a number above 0"},
        {"scale=nan", "BadSetting", "a number above 0"},
        {"scale=1e999", "BadSetting", "a number above 0"},
        {"scale=2.5x", "BadSetting", "a number above 0"},
        {"limit=-1", "BadSetting", "a number of at least 0"},
        {"act=swish", "BadSetting", "silu, gelu_tanh"},
        {"act=situ_glu", "BadSetting", "silu, gelu_tanh"},
        {"norm=1,norm=1", "SettingGivenTwice", "norm"},
    };
    for (const auto &[text, name, message] : faults) {
        plec_arch_set set;
        plec_error err = {};
        EXPECT_EQ(plec_arch_set_parse(&set, text.c_str(), &err), PLEC_BAD_INPUT) << text;
        EXPECT_STREQ(err.name, name.c_str()) << text;
        EXPECT_NE(std::string(err.message).find(message), std::string::npos) << err.message;
    }
    plec_arch_set set;
    EXPECT_EQ(plec_arch_set_parse(&set, "", nullptr), PLEC_OK);
    EXPECT_EQ(set.given, 0u);
}

std::string described(const Resolved &r, const std::string &name) {
    plec_arch_line lines[PLEC_ARCH_LINES_MAX];
    size_t n = plec_arch_describe(lines, &r.layer, true);
    for (size_t i = 0; i < n; i++)
        if (lines[i].name == name)
            return std::string(lines[i].text) + ", " + plec_arch_origin_name(lines[i].origin);
    return "";
}

TEST(ArchLayer, EveryValueIsDescribedWithItsOrigin) {
    Keys keys = full_keys()
                    .with("expert_group_count", integer(8))
                    .with("expert_group_used_count", integer(4))
                    .with("expert_feed_forward_length", integer(2048));
    Resolved r = resolve("deepseek2", keys, "k=6,act=clamped_glu");
    ASSERT_EQ(r.status, PLEC_OK) << r.error.message;
    EXPECT_EQ(described(r, "experts"), "16, in file");
    EXPECT_EQ(described(r, "experts used"), "6, set by user");
    EXPECT_EQ(described(r, "gating"), "sigmoid, in file");
    EXPECT_EQ(described(r, "select on"), "scores, default of architecture");
    EXPECT_EQ(described(r, "groups"), "8, in file");
    EXPECT_EQ(described(r, "groups used"), "4, in file");
    EXPECT_EQ(described(r, "normalise"), "yes, in file");
    EXPECT_EQ(described(r, "norm floor"), "6.10351562e-05, default of architecture");
    EXPECT_EQ(described(r, "scale"), "2.5, in file");
    EXPECT_EQ(described(r, "weight on"), "output, default of architecture");
    EXPECT_EQ(described(r, "router reads"), "ffn, default of architecture");
    EXPECT_EQ(described(r, "activation"), "clamped_glu, set by user");
    EXPECT_EQ(described(r, "limit"), "7, default of architecture");
    EXPECT_EQ(described(r, "alpha"), "1.702, default of architecture");
    EXPECT_EQ(described(r, "width"), "2048, in file");
    EXPECT_EQ(described(r, "latent"), "");
}

} // namespace
