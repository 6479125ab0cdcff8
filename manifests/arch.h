/* arch.h: what a GGUF architecture name says about its feed-forward layers: how the router weighs
 * and selects, what an expert computes, which branches run beside the experts.
 *
 * Owns: one static table, a row an architecture. Never: reads a file. Where a value comes from (the
 * file's keys, the row, the user) is settled layer by layer in manifests/arch_layer.h.
 */
#ifndef PLEC_MANIFESTS_ARCH_H
#define PLEC_MANIFESTS_ARCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GGUF's own numbers of the key expert_gating_func. */
enum plec_arch_gating {
    PLEC_ARCH_NO_GATING = 0, /* not known */
    PLEC_ARCH_SOFTMAX = 1,
    PLEC_ARCH_SIGMOID = 2,
    PLEC_ARCH_SOFTMAX_SELECTED = 3,
    PLEC_ARCH_SQRT_SOFTPLUS = 4,
    PLEC_ARCH_N_GATINGS
};
/* "softmax", "sigmoid", "softmax_selected", "sqrt_softplus"; "none" for 0. */
const char *plec_arch_gating_name(enum plec_arch_gating gating);

/* What the selection key of an expert starts from. */
enum plec_arch_select { PLEC_ARCH_ON_SCORES, PLEC_ARCH_ON_LOGITS, PLEC_ARCH_ON_SIGMOID };
/* "scores", "logits", "sigmoid". */
const char *plec_arch_select_name(enum plec_arch_select select);

/* The vector the router multiplies. */
enum plec_arch_router_input {
    PLEC_ARCH_FFN_INPUT,        /* the layer's input, as the experts */
    PLEC_ARCH_ATTENTION_OUTPUT, /* rmsnorm(attention output) / sqrt(hidden) * ffn_gate_inp.scale */
    PLEC_ARCH_BLOCK_INPUT       /* the block's input, before attention and norm */
};
/* "ffn", "attention", "block". */
const char *plec_arch_router_input_name(enum plec_arch_router_input input);

/* Whether an operand belongs to a layer. */
enum plec_arch_presence { PLEC_ARCH_NO, PLEC_ARCH_OPTIONAL, PLEC_ARCH_YES };

/* How a trained limit clamps silu; the value stands in the file. */
enum plec_arch_limit {
    PLEC_ARCH_NO_LIMIT,
    PLEC_ARCH_LIMIT_GATED, /* silu(min(g, L)) clamp(u, -L, L): clamped_gated */
    PLEC_ARCH_LIMIT_STEP   /* min(silu(g), L) clamp(u, -L, L): silu_step */
};

/* The dense branch that runs beside the experts of a layer. */
enum plec_arch_parallel {
    PLEC_ARCH_NOT_PARALLEL,
    PLEC_ARCH_PARALLEL,      /* where ffn_up exists: reads the layer's input, and is added */
    PLEC_ARCH_PARALLEL_APART /* reads another vector: no part of the layer here */
};

/* Where a value comes from. */
enum plec_arch_from {
    PLEC_ARCH_FIXED,       /* the row's value, whatever the file says */
    PLEC_ARCH_KEY,         /* the file's key; the row's value when it is absent */
    PLEC_ARCH_KEY_REQUIRED /* the file's key, without which a layer does not run */
};
struct plec_arch_rule {
    enum plec_arch_from from;
    uint32_t value; /* an enum plec_arch_gating, or 0 or 1 for norm */
};

/* The MLP of layers without experts. */
enum plec_arch_dense_gate {
    PLEC_ARCH_DENSE_GATED, /* ffn_gate, ffn_up, ffn_down; without ffn_gate as PLAIN */
    PLEC_ARCH_DENSE_PLAIN, /* ffn_up, ffn_down */
    PLEC_ARCH_DENSE_FUSED  /* ffn_up holds the gate's rows, then up's */
};

struct plec_arch {
    const char *name;           /* general.architecture */
    const char *activation;     /* of the experts, named as in device/layer.h; NULL: no experts */
    const char *dense;          /* activation of a dense MLP; NULL: the architecture has none */
    struct plec_arch_rule norm; /* the k weights are divided by their sum */
    struct plec_arch_rule gating;
    uint32_t gatings;          /* bit g: gating g may stand in the key; 0: all */
    enum plec_arch_from scale; /* FIXED: 1; else the key, absent or 0 meaning 1 */
    enum plec_arch_select select_on;
    enum plec_arch_presence selection_bias;
    enum plec_arch_presence shared; /* OPTIONAL: where a key or the tensors say so */
    bool shared_gated;              /* times sigmoid(ffn_gate_inp_shexp . x) */
    bool weight_on_input;
    bool no_gate;       /* experts are up and down alone; so is the shared one */
    bool biases;        /* router bias and every expert bias are required */
    bool hash_layers;   /* the first hash_layer_count layers are routed by token id */
    bool chunk_experts; /* ffn_*_chexps: a layer that has them has no definition here */
    bool by_tensors;    /* no key says which layers have experts */
    enum plec_arch_limit limit;
    enum plec_arch_router_input router_input;
    enum plec_arch_parallel parallel;
    double branch_factor; /* multiplies the sum where the parallel branch or the shared expert is
                             there; 0: 1 */
    enum plec_arch_dense_gate dense_gate;
};

/* The row of a name; NULL when there is none. */
const struct plec_arch *plec_arch_find(const char *name);
const struct plec_arch *plec_arch_all(size_t *n_archs);

/* The name itself, static, where it is an activation of device/layer.h; else NULL. */
const char *plec_arch_activation(const char *name);

#ifdef __cplusplus
}
#endif
#endif
