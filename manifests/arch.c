/* arch.c: the table of architectures. Groups of experts are not in it: their keys are read for
 * every architecture. Source: docs/architectures.md. */
#include "manifests/arch.h"

#include <string.h>

#define FIXED(v)                                                                                   \
    { PLEC_ARCH_FIXED, v }
#define KEY(v)                                                                                     \
    { PLEC_ARCH_KEY, v }
#define REQUIRED                                                                                   \
    { PLEC_ARCH_KEY_REQUIRED, 0 }

/* How the weights are made. */
#define SOFTMAX(normalised) .gating = FIXED(PLEC_ARCH_SOFTMAX), .norm = FIXED(normalised)
#define GATING_KEY(absent)  .gating = KEY(absent), .norm = KEY(0), .scale = PLEC_ARCH_KEY
#define GATING_REQUIRED     .gating = REQUIRED, .norm = KEY(0), .scale = PLEC_ARCH_KEY
/* What an expert and a dense MLP compute. */
#define SILU .activation = "silu", .dense = "silu"
#define GELU .activation = "gelu_tanh", .dense = "gelu_tanh"
/* Operands. */
#define BIAS_YES        .selection_bias = PLEC_ARCH_YES
#define BIAS_OPTIONAL   .selection_bias = PLEC_ARCH_OPTIONAL
#define SHARED          .shared = PLEC_ARCH_YES
#define SHARED_OPTIONAL .shared = PLEC_ARCH_OPTIONAL
#define SHARED_GATED    .shared = PLEC_ARCH_YES, .shared_gated = true
/* Architectures without experts. */
#define DENSE(name, act)                                                                           \
    { name, .dense = act }
#define DENSE_PLAIN(name, act)                                                                     \
    { name, .dense = act, .dense_gate = PLEC_ARCH_DENSE_PLAIN }
#define DENSE_FUSED(name, act)                                                                     \
    { name, .dense = act, .dense_gate = PLEC_ARCH_DENSE_FUSED }

static const struct plec_arch archs[] = {
    /* Softmax over all experts. */
    {"llama", SILU, SOFTMAX(1)},
    {"mistral3", SILU, SOFTMAX(1)},
    {"qwen2moe", SILU, SOFTMAX(0), SHARED_GATED},
    {"qwen3moe", SILU, SOFTMAX(1)},
    {"qwen3vlmoe", SILU, SOFTMAX(1)},
    {"rnd1", SILU, SOFTMAX(1)},
    {"mellum", SILU, SOFTMAX(1)},
    {"qwen3next", SILU, SOFTMAX(1), SHARED_GATED},
    {"qwen35moe", SILU, SOFTMAX(1), SHARED_GATED},
    {"deepseek", SILU, SOFTMAX(0), SHARED, .scale = PLEC_ARCH_KEY},
    {"bailingmoe", SILU, .gating = FIXED(PLEC_ARCH_SOFTMAX), .norm = KEY(0), .scale = PLEC_ARCH_KEY,
     SHARED},
    {"hunyuan-moe", SILU, SOFTMAX(1), SHARED},
    {"ernie4_5-moe", SILU, SOFTMAX(1), BIAS_OPTIONAL, SHARED_OPTIONAL},
    {"olmoe", SILU, SOFTMAX(0)},
    {"llada-moe", SILU, SOFTMAX(0)},
    {"granitemoe", SILU, SOFTMAX(1), SHARED_OPTIONAL},
    {"granitehybrid", SILU, SOFTMAX(1), SHARED_OPTIONAL},
    {"grok", GELU, SOFTMAX(1), .parallel = PLEC_ARCH_PARALLEL,
     .branch_factor = 0.70710678118654752440},
    {"dbrx", SILU, SOFTMAX(1)},
    {"arctic", SILU, SOFTMAX(1), .parallel = PLEC_ARCH_PARALLEL_APART},
    {"jamba", SILU, SOFTMAX(0), .by_tensors = true},
    {"phimoe", SILU, SOFTMAX(1)},
    {"gemma4", GELU, SOFTMAX(1), .router_input = PLEC_ARCH_ATTENTION_OUTPUT,
     .parallel = PLEC_ARCH_PARALLEL_APART},
    {"grovemoe", SILU, SOFTMAX(1), .select_on = PLEC_ARCH_ON_SIGMOID, .chunk_experts = true},
    {"nomic-bert-moe", GELU, SOFTMAX(0), .no_gate = true, .dense_gate = PLEC_ARCH_DENSE_PLAIN},

    /* Other fixed gatings. */
    {"gpt-oss", .activation = "clamped_glu", .gating = FIXED(PLEC_ARCH_SOFTMAX_SELECTED),
     .biases = true},
    {"llama4", SILU, .gating = FIXED(PLEC_ARCH_SIGMOID), .select_on = PLEC_ARCH_ON_LOGITS, SHARED,
     .weight_on_input = true},
    {"mimo2", SILU, .gating = FIXED(PLEC_ARCH_SIGMOID), .norm = FIXED(1), BIAS_OPTIONAL,
     .by_tensors = true},
    {"nemotron_h_moe", .activation = "relu_sqr", .dense = "relu_sqr",
     .gating = FIXED(PLEC_ARCH_SIGMOID), .norm = KEY(0), .scale = PLEC_ARCH_KEY, BIAS_YES, SHARED,
     .no_gate = true, .by_tensors = true, .dense_gate = PLEC_ARCH_DENSE_PLAIN},

    /* The gating's key, with a default. */
    {"deepseek2", SILU, GATING_KEY(PLEC_ARCH_SOFTMAX), BIAS_OPTIONAL, SHARED},
    {"deepseek2-ocr", SILU, GATING_KEY(PLEC_ARCH_SOFTMAX), BIAS_OPTIONAL, SHARED},
    {"mistral4", SILU, GATING_KEY(PLEC_ARCH_SOFTMAX), BIAS_OPTIONAL, SHARED},
    {"glm-dsa", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_OPTIONAL, SHARED},
    {"glm4moe", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_YES, SHARED_OPTIONAL},
    {"hy-v3", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_YES, SHARED},
    {"hy_v3", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_YES, SHARED},
    {"afmoe", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_YES, SHARED_OPTIONAL},
    {"step35", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_OPTIONAL, SHARED,
     .limit = PLEC_ARCH_LIMIT_STEP},
    {"laguna", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), BIAS_YES, SHARED},
    {"cohere2moe", SILU, GATING_KEY(PLEC_ARCH_SIGMOID), SHARED_OPTIONAL, .branch_factor = 0.5},

    /* The gating's key, which must be there. */
    {"deepseek32", SILU, GATING_REQUIRED, BIAS_OPTIONAL, SHARED},
    {"deepseek4", .activation = "silu", .gating = KEY(PLEC_ARCH_SQRT_SOFTPLUS),
     .gatings = 1u << PLEC_ARCH_SQRT_SOFTPLUS, .norm = REQUIRED, .scale = PLEC_ARCH_KEY_REQUIRED,
     BIAS_YES, SHARED, .limit = PLEC_ARCH_LIMIT_GATED, .hash_layers = true},
    {"dots1", SILU, GATING_REQUIRED, BIAS_OPTIONAL, SHARED},
    {"bailingmoe2", SILU, GATING_REQUIRED, BIAS_OPTIONAL, SHARED},
    {"minimax-m2", SILU, .gating = REQUIRED, .norm = FIXED(1), BIAS_YES},
    {"minimax-m3", .activation = "clamped_glu", .dense = "clamped_glu", GATING_REQUIRED, BIAS_YES,
     SHARED},
    {"lfm2moe", SILU, .gating = REQUIRED, .norm = FIXED(1), BIAS_YES},
    {"exaone-moe", SILU, GATING_REQUIRED, BIAS_OPTIONAL, SHARED},
    {"kimi-linear", SILU, .gating = REQUIRED, .norm = FIXED(1), .scale = PLEC_ARCH_KEY, BIAS_YES,
     SHARED},
    {"smallthinker", .activation = "relu", .gating = REQUIRED,
     .gatings = 1u << PLEC_ARCH_SOFTMAX | 1u << PLEC_ARCH_SIGMOID, .norm = FIXED(1),
     .router_input = PLEC_ARCH_BLOCK_INPUT},

    /* Without experts: a gated MLP, ... */
    DENSE("baichuan", "silu"),
    DENSE("barbet", "silu"),
    DENSE("chameleon", "silu"),
    DENSE("cogvlm", "silu"),
    DENSE("cohere2", "silu"),
    DENSE("command-r", "silu"),
    DENSE("deci", "silu"),
    DENSE("dream", "silu"),
    DENSE("ernie4_5", "silu"),
    DENSE("eurobert", "silu"),
    DENSE("exaone", "silu"),
    DENSE("exaone4", "silu"),
    DENSE("falcon-h1", "silu"),
    DENSE("granite", "silu"),
    DENSE("hunyuan-dense", "silu"),
    DENSE("hunyuan_vl", "silu"),
    DENSE("internlm2", "silu"),
    DENSE("jais", "silu"),
    DENSE("lfm2", "silu"),
    DENSE("llada", "silu"),
    DENSE("llama-embed", "silu"),
    DENSE("maincoder", "silu"),
    DENSE("minicpm", "silu"),
    DENSE("minicpm3", "silu"),
    DENSE("nanbeige", "silu"),
    DENSE("nomic-bert", "silu"),
    DENSE("olmo", "silu"),
    DENSE("olmo2", "silu"),
    DENSE("openelm", "silu"),
    DENSE("orion", "silu"),
    DENSE("paddleocr", "silu"),
    DENSE("pangu-embedded", "silu"),
    DENSE("plamo", "silu"),
    DENSE("qwen", "silu"),
    DENSE("qwen2", "silu"),
    DENSE("qwen2vl", "silu"),
    DENSE("qwen3", "silu"),
    DENSE("qwen3vl", "silu"),
    DENSE("qwen35", "silu"),
    DENSE("refact", "silu"),
    DENSE("seed_oss", "silu"),
    DENSE("smollm3", "silu"),
    DENSE("stablelm", "silu"),
    DENSE("xverse", "silu"),
    DENSE("gemma", "gelu_tanh"),
    DENSE("gemma2", "gelu_tanh"),
    DENSE("gemma3", "gelu_tanh"),
    DENSE("gemma4-assistant", "gelu_tanh"),
    DENSE("gemma-embedding", "gelu_tanh"),
    DENSE("jina-bert-v2", "gelu_tanh"),

    /* ... an MLP without a gate, ... */
    DENSE_PLAIN("bert", "gelu_tanh"),
    DENSE_PLAIN("bloom", "gelu_tanh"),
    DENSE_PLAIN("codeshell", "gelu_tanh"),
    DENSE_PLAIN("falcon", "gelu_tanh"),
    DENSE_PLAIN("gpt2", "gelu_tanh"),
    DENSE_PLAIN("gptneox", "gelu_tanh"),
    DENSE_PLAIN("jina-bert-v3", "gelu_tanh"),
    DENSE_PLAIN("mpt", "gelu_tanh"),
    DENSE_PLAIN("phi2", "gelu_tanh"),
    DENSE_PLAIN("starcoder", "gelu_tanh"),
    DENSE_PLAIN("starcoder2", "gelu_tanh"),
    DENSE_PLAIN("arcee", "relu_sqr"),
    DENSE_PLAIN("jais2", "relu_sqr"),
    DENSE_PLAIN("nemotron", "relu_sqr"),
    DENSE_PLAIN("nemotron_h", "relu_sqr"),
    DENSE_PLAIN("plm", "relu_sqr"),

    /* ... and one whose ffn_up holds both. */
    DENSE_FUSED("chatglm", "silu"),
    DENSE_FUSED("glm4", "silu"),
    DENSE_FUSED("neo-bert", "silu"),
    DENSE_FUSED("phi3", "silu"),
    DENSE_FUSED("plamo2", "silu"),
    DENSE_FUSED("plamo3", "silu"),
};

const struct plec_arch *plec_arch_all(size_t *n_archs) {
    *n_archs = sizeof archs / sizeof archs[0];
    return archs;
}

const struct plec_arch *plec_arch_find(const char *name) {
    for (size_t i = 0; i < sizeof archs / sizeof archs[0]; i++)
        if (strcmp(archs[i].name, name) == 0) return &archs[i];
    return NULL;
}

const char *plec_arch_gating_name(enum plec_arch_gating gating) {
    static const char *const names[PLEC_ARCH_N_GATINGS] = {"none", "softmax", "sigmoid",
                                                           "softmax_selected", "sqrt_softplus"};
    return gating < PLEC_ARCH_N_GATINGS ? names[gating] : "unknown";
}

const char *plec_arch_select_name(enum plec_arch_select select) {
    switch (select) {
    case PLEC_ARCH_ON_SCORES: return "scores";
    case PLEC_ARCH_ON_LOGITS: return "logits";
    case PLEC_ARCH_ON_SIGMOID: return "sigmoid";
    }
    return "unknown";
}

const char *plec_arch_router_input_name(enum plec_arch_router_input input) {
    switch (input) {
    case PLEC_ARCH_FFN_INPUT: return "ffn";
    case PLEC_ARCH_ATTENTION_OUTPUT: return "attention";
    case PLEC_ARCH_BLOCK_INPUT: return "block";
    }
    return "unknown";
}

const char *plec_arch_activation(const char *name) {
    static const char *const names[] = {"silu",          "gelu_tanh", "gelu_erf",
                                        "relu",          "relu_sqr",  "clamped_glu",
                                        "clamped_gated", "situ_glu",  "silu_step"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(names[i], name) == 0) return names[i];
    return NULL;
}
