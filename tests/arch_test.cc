#include "device/layer.h"
#include "tests/support/arch_keys.h"

#include <cmath>
#include <set>

using namespace plec_test;

namespace {

/* The columns of docs/architectures.md, typed from it. */
struct Row {
    const char *name;
    const char *gating; /* "1": fixed; "key/2": a default; "key!": required */
    const char *bias;   /* "no", "optional", "yes" */
    const char *norm;   /* "yes", "no", "key/no", "key!" */
    const char *scale;  /* "-", "key", "key!" */
    const char *act;    /* without a limit */
    const char *shared; /* "no", "yes", "gated", "if" */
};
const Row rows[] = {
    {"llama", "1", "no", "yes", "-", "silu", "no"},
    {"mistral3", "1", "no", "yes", "-", "silu", "no"},
    {"qwen2moe", "1", "no", "no", "-", "silu", "gated"},
    {"qwen3moe", "1", "no", "yes", "-", "silu", "no"},
    {"qwen3vlmoe", "1", "no", "yes", "-", "silu", "no"},
    {"rnd1", "1", "no", "yes", "-", "silu", "no"},
    {"mellum", "1", "no", "yes", "-", "silu", "no"},
    {"qwen3next", "1", "no", "yes", "-", "silu", "gated"},
    {"qwen35moe", "1", "no", "yes", "-", "silu", "gated"},
    {"deepseek", "1", "no", "no", "key", "silu", "yes"},
    {"deepseek2", "key/1", "optional", "key/no", "key", "silu", "yes"},
    {"deepseek32", "key!", "optional", "key/no", "key", "silu", "yes"},
    {"glm-dsa", "key/2", "optional", "key/no", "key", "silu", "yes"},
    {"deepseek4", "key/4", "yes", "key!", "key!", "silu", "yes"},
    {"dots1", "key!", "optional", "key/no", "key", "silu", "yes"},
    {"glm4moe", "key/2", "yes", "key/no", "key", "silu", "if"},
    {"bailingmoe", "1", "no", "key/no", "key", "silu", "yes"},
    {"bailingmoe2", "key!", "optional", "key/no", "key", "silu", "yes"},
    {"minimax-m2", "key!", "yes", "yes", "-", "silu", "no"},
    {"minimax-m3", "key!", "yes", "key/no", "key", "clamped_glu", "yes"},
    {"hunyuan-moe", "1", "no", "yes", "-", "silu", "yes"},
    {"hy-v3", "key/2", "yes", "key/no", "key", "silu", "yes"},
    {"hy_v3", "key/2", "yes", "key/no", "key", "silu", "yes"},
    {"ernie4_5-moe", "1", "optional", "yes", "-", "silu", "if"},
    {"olmoe", "1", "no", "no", "-", "silu", "no"},
    {"llada-moe", "1", "no", "no", "-", "silu", "no"},
    {"granitemoe", "1", "no", "yes", "-", "silu", "if"},
    {"granitehybrid", "1", "no", "yes", "-", "silu", "if"},
    {"grok", "1", "no", "yes", "-", "gelu_tanh", "no"},
    {"dbrx", "1", "no", "yes", "-", "silu", "no"},
    {"arctic", "1", "no", "yes", "-", "silu", "no"},
    {"jamba", "1", "no", "no", "-", "silu", "no"},
    {"phimoe", "1", "no", "yes", "-", "silu", "no"},
    {"gpt-oss", "3", "no", "no", "-", "clamped_glu", "no"},
    {"llama4", "2", "no", "no", "-", "silu", "yes"},
    {"gemma4", "1", "no", "yes", "-", "gelu_tanh", "no"},
    {"lfm2moe", "key!", "yes", "yes", "-", "silu", "no"},
    {"afmoe", "key/2", "yes", "key/no", "key", "silu", "if"},
    {"exaone-moe", "key!", "optional", "key/no", "key", "silu", "yes"},
    {"step35", "key/2", "optional", "key/no", "key", "silu", "yes"},
    {"mimo2", "2", "optional", "yes", "-", "silu", "no"},
    {"kimi-linear", "key!", "yes", "yes", "key", "silu", "yes"},
    {"laguna", "key/2", "yes", "key/no", "key", "silu", "yes"},
    {"cohere2moe", "key/2", "no", "key/no", "key", "silu", "if"},
    {"nemotron_h_moe", "2", "yes", "key/no", "key", "relu_sqr", "yes"},
    {"smallthinker", "key!", "no", "yes", "-", "relu", "no"},
    {"grovemoe", "1", "no", "yes", "-", "silu", "no"},
    {"nomic-bert-moe", "1", "no", "no", "-", "gelu_tanh", "no"},
    /* Not in that table: the same graphs under other names. */
    {"deepseek2-ocr", "key/1", "optional", "key/no", "key", "silu", "yes"},
    {"mistral4", "key/1", "optional", "key/no", "key", "silu", "yes"},
};

Keys keys_for(const Row &row) {
    return std::string(row.name) == "deepseek4" ? full_keys().with("expert_gating_func", integer(4))
                                                : full_keys();
}

void expect_gating(const Row &row) {
    std::string rule = row.gating;
    Keys keys = keys_for(row);
    Resolved there = resolve(row.name, keys);
    Resolved absent = resolve(row.name, keys.without("expert_gating_func"));
    Resolved zero = resolve(row.name, keys.with("expert_gating_func", integer(0)));
    uint32_t in_file = uint32_t(keys.one["expert_gating_func"].integer);
    bool fixed = rule.compare(0, 3, "key") != 0;
    EXPECT_EQ(there.status, PLEC_OK) << there.error.message;
    EXPECT_EQ(there.layer.gating.value, fixed ? std::stoul(rule) : in_file);
    EXPECT_EQ(there.layer.gating.origin, fixed ? PLEC_ARCH_BY_DEFAULT : PLEC_ARCH_IN_FILE);
    if (rule == "key!") {
        expect_refused(absent, PLEC_MISSING, "MissingKey", "expert_gating_func");
        expect_refused(zero, PLEC_MISSING, "MissingKey", "--set gating=");
        EXPECT_EQ(absent.layer.gating.origin, PLEC_ARCH_UNKNOWN);
        return;
    }
    uint32_t wanted = uint32_t(std::stoul(fixed ? rule : rule.substr(4)));
    for (const Resolved &r : {absent, zero}) {
        EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
        EXPECT_EQ(r.layer.gating.value, wanted);
        EXPECT_EQ(r.layer.gating.origin, PLEC_ARCH_BY_DEFAULT);
    }
}

void expect_norm(const Row &row) {
    std::string rule = row.norm;
    Keys keys = keys_for(row);
    Resolved yes = resolve(row.name, keys);
    Resolved no = resolve(row.name, keys.with("expert_weights_norm", boolean(false)));
    Resolved absent = resolve(row.name, keys.without("expert_weights_norm"));
    bool fixed = rule == "yes" || rule == "no";
    EXPECT_EQ(yes.layer.norm.value, rule == "no" ? 0u : 1u);
    EXPECT_EQ(no.layer.norm.value, rule == "yes" ? 1u : 0u);
    EXPECT_EQ(no.layer.norm.origin, fixed ? PLEC_ARCH_BY_DEFAULT : PLEC_ARCH_IN_FILE);
    EXPECT_EQ(yes.layer.norm_floor.value, 6.103515625e-5);
    if (rule == "key!") {
        expect_refused(absent, PLEC_MISSING, "MissingKey", "expert_weights_norm");
        return;
    }
    EXPECT_EQ(absent.layer.norm.value, rule == "yes" ? 1u : 0u);
    EXPECT_EQ(absent.layer.norm.origin, PLEC_ARCH_BY_DEFAULT);
}

void expect_scale(const Row &row) {
    std::string rule = row.scale;
    Keys keys = keys_for(row);
    Resolved there = resolve(row.name, keys);
    Resolved zero = resolve(row.name, keys.with("expert_weights_scale", real(0)));
    Resolved absent = resolve(row.name, keys.without("expert_weights_scale"));
    EXPECT_EQ(there.layer.scale.value, rule == "-" ? 1 : 2.5);
    EXPECT_EQ(there.layer.scale.origin, rule == "-" ? PLEC_ARCH_BY_DEFAULT : PLEC_ARCH_IN_FILE);
    EXPECT_EQ(zero.layer.scale.value, 1) << "0 means 1";
    EXPECT_EQ(absent.layer.scale.value, 1);
    if (rule == "key!")
        expect_refused(absent, PLEC_MISSING, "MissingKey", "expert_weights_scale");
    else
        EXPECT_EQ(absent.layer.scale.origin, PLEC_ARCH_BY_DEFAULT);
}

void expect_operands(const Row &row) {
    std::map<std::string, plec_arch_presence> presences = {{"no", PLEC_ARCH_NO},
                                                           {"optional", PLEC_ARCH_OPTIONAL},
                                                           {"yes", PLEC_ARCH_YES},
                                                           {"gated", PLEC_ARCH_YES},
                                                           {"if", PLEC_ARCH_OPTIONAL}};
    Keys keys = keys_for(row).without("expert_shared_count");
    Resolved r = resolve(row.name, keys);
    EXPECT_EQ(r.layer.selection_bias, presences[row.bias]);
    EXPECT_EQ(r.layer.shared, presences[row.shared]);
    EXPECT_EQ(r.layer.arch->shared_gated, std::string(row.shared) == "gated");
    EXPECT_STREQ(r.layer.expert.activation.value, row.act);
    EXPECT_EQ(r.layer.expert.activation.origin, PLEC_ARCH_BY_DEFAULT);
    EXPECT_STREQ(r.layer.shared_expert.activation.value, row.act);
    bool oai = std::string(row.act) == "clamped_glu";
    for (const plec_arch_maths &maths : {r.layer.expert, r.layer.shared_expert}) {
        EXPECT_EQ(maths.limit.value, oai ? 7 : 0);
        EXPECT_EQ(maths.alpha.value, oai ? 1.702 : 0);
    }
    if (std::string(row.shared) != "if") return;
    EXPECT_EQ(resolve(row.name, keys_for(row)).layer.shared, PLEC_ARCH_YES);
    Keys by_width = keys.with("expert_shared_feed_forward_length", integer(64));
    EXPECT_EQ(resolve(row.name, by_width).layer.shared, PLEC_ARCH_YES);
}

/* Group keys are read whatever the architecture. */
void expect_groups(const Row &row) {
    Keys keys = keys_for(row)
                    .with("expert_group_count", integer(4))
                    .with("expert_group_used_count", integer(2));
    Resolved r = resolve(row.name, keys);
    EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
    EXPECT_EQ(r.layer.groups.value, 4u);
    EXPECT_EQ(r.layer.groups_used.value, 2u);
    EXPECT_EQ(r.layer.groups.origin, PLEC_ARCH_IN_FILE);
}

TEST(Arch, EveryRowOfThePageIsInTheTable) {
    for (const Row &row : rows) {
        SCOPED_TRACE(row.name);
        expect_gating(row);
        expect_norm(row);
        expect_scale(row);
        expect_operands(row);
        expect_groups(row);
    }
}

TEST(Arch, EveryRowWithExpertsIsOnThePage) {
    std::set<std::string> typed;
    for (const Row &row : rows)
        typed.insert(row.name);
    size_t n;
    const plec_arch *archs = plec_arch_all(&n);
    std::set<std::string> names;
    for (size_t i = 0; i < n; i++) {
        EXPECT_TRUE(names.insert(archs[i].name).second) << archs[i].name << " stands twice";
        EXPECT_EQ(plec_arch_find(archs[i].name), &archs[i]);
        EXPECT_EQ(archs[i].activation != nullptr, typed.count(archs[i].name) == 1) << archs[i].name;
    }
    EXPECT_EQ(plec_arch_find("no-such-architecture"), nullptr);
}

/* What no two rows share: the notes of the page. */
TEST(Arch, NotesOfThePageAreFlags) {
    std::map<std::string, std::set<std::string>> flagged;
    size_t n;
    const plec_arch *archs = plec_arch_all(&n);
    for (size_t i = 0; i < n; i++) {
        const plec_arch &a = archs[i];
        auto flag = [&](bool on, const char *name) {
            if (on) flagged[name].insert(a.name);
        };
        flag(a.select_on == PLEC_ARCH_ON_LOGITS, "on logits");
        flag(a.select_on == PLEC_ARCH_ON_SIGMOID, "on sigmoid");
        flag(a.weight_on_input, "weight before");
        flag(a.biases, "biases");
        flag(a.hash_layers, "hash");
        flag(a.chunk_experts, "chunks");
        flag(a.by_tensors, "by tensors");
        flag(a.activation != nullptr && a.no_gate, "no gate");
        flag(a.limit == PLEC_ARCH_LIMIT_GATED, "limit gated");
        flag(a.limit == PLEC_ARCH_LIMIT_STEP, "limit step");
        flag(a.router_input == PLEC_ARCH_ATTENTION_OUTPUT, "router attention");
        flag(a.router_input == PLEC_ARCH_BLOCK_INPUT, "router block");
        flag(a.parallel == PLEC_ARCH_PARALLEL, "parallel");
        flag(a.parallel == PLEC_ARCH_PARALLEL_APART, "apart");
        flag(a.branch_factor != 0, "factor");
    }
    std::map<std::string, std::set<std::string>> wanted = {
        {"on logits", {"llama4"}},
        {"on sigmoid", {"grovemoe"}},
        {"weight before", {"llama4"}},
        {"biases", {"gpt-oss"}},
        {"hash", {"deepseek4"}},
        {"chunks", {"grovemoe"}},
        {"by tensors", {"jamba", "mimo2", "nemotron_h_moe"}},
        {"no gate", {"nemotron_h_moe", "nomic-bert-moe"}},
        {"limit gated", {"deepseek4"}},
        {"limit step", {"step35"}},
        {"router attention", {"gemma4"}},
        {"router block", {"smallthinker"}},
        {"parallel", {"grok"}},
        {"apart", {"arctic", "gemma4"}},
        {"factor", {"cohere2moe", "grok"}},
    };
    EXPECT_EQ(flagged, wanted);
    EXPECT_DOUBLE_EQ(plec_arch_find("grok")->branch_factor, std::sqrt(2) / 2);
    EXPECT_EQ(plec_arch_find("cohere2moe")->branch_factor, 0.5);
}

TEST(Arch, ActivationNamesAreThoseOfTheLayer) {
    for (int i = 0; i < PLEC_N_ACTIVATIONS; i++) {
        const char *name = plec_activation_name(plec_activation(i));
        EXPECT_STREQ(plec_arch_activation(name), name);
    }
    EXPECT_EQ(plec_arch_activation("gelu"), nullptr);
    size_t n;
    const plec_arch *archs = plec_arch_all(&n);
    for (size_t i = 0; i < n; i++)
        for (const char *name : {archs[i].activation, archs[i].dense})
            EXPECT_TRUE(name == nullptr || plec_activation_by_name(name) >= 0) << archs[i].name;
}

TEST(Arch, DenseLayersHaveTheActivationOfTheirArchitecture) {
    std::map<std::string, std::string> wanted = {{"llama", "silu"},
                                                 {"qwen2", "silu"},
                                                 {"qwen3", "silu"},
                                                 {"mistral3", "silu"},
                                                 {"deepseek2", "silu"},
                                                 {"command-r", "silu"},
                                                 {"gemma", "gelu_tanh"},
                                                 {"gemma2", "gelu_tanh"},
                                                 {"gemma3", "gelu_tanh"},
                                                 {"gemma4", "gelu_tanh"},
                                                 {"phi2", "gelu_tanh"},
                                                 {"phi3", "silu"},
                                                 {"falcon", "gelu_tanh"},
                                                 {"gpt2", "gelu_tanh"},
                                                 {"bloom", "gelu_tanh"},
                                                 {"starcoder2", "gelu_tanh"},
                                                 {"bert", "gelu_tanh"},
                                                 {"nemotron", "relu_sqr"},
                                                 {"nemotron_h_moe", "relu_sqr"},
                                                 {"arcee", "relu_sqr"},
                                                 {"glm4", "silu"},
                                                 {"grok", "gelu_tanh"},
                                                 {"minimax-m3", "clamped_glu"}};
    for (const auto &[name, activation] : wanted) {
        Ask ask;
        ask.name = name;
        ask.n_experts = 0;
        Resolved r = resolve(ask);
        EXPECT_EQ(r.status, PLEC_OK) << r.error.message;
        EXPECT_STREQ(r.layer.dense.activation.value, activation.c_str()) << name;
    }
    EXPECT_EQ(plec_arch_find("phi3")->dense_gate, PLEC_ARCH_DENSE_FUSED);
    EXPECT_EQ(plec_arch_find("gpt2")->dense_gate, PLEC_ARCH_DENSE_PLAIN);
    EXPECT_EQ(plec_arch_find("llama")->dense_gate, PLEC_ARCH_DENSE_GATED);
}

} // namespace
