/* gguf_view.h: what a GGUF model's layers are, for a person or a program that asks before running:
 * shapes, types, layout, bytes, where each value of the routing comes from, and whether the layer
 * binds.
 *
 * Works on a set opened to look: whatever is wrong is part of the answer. Owns nothing but what a
 * view says it does. Never: prints, reads a weight other than the small vectors that binding
 * checks.
 */
#ifndef PLEC_HOST_GGUF_VIEW_H
#define PLEC_HOST_GGUF_VIEW_H

#include "host/gguf_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How the experts' (or a dense MLP's) gate and up matrices lie. */
enum plec_gguf_layout {
    PLEC_GGUF_SEPARATE,
    PLEC_GGUF_FUSED,
    PLEC_GGUF_NO_GATE,
    PLEC_GGUF_PER_EXPERT /* a tensor for each expert */
};
/* "separate", "fused", "no gate", "a tensor for each expert". */
const char *plec_gguf_layout_name(enum plec_gguf_layout layout);

enum { PLEC_GGUF_NO_TYPE = -1, PLEC_GGUF_MIXED_TYPES = -2 };
/* Types of gate, up and down: ids of GGUF tensor types, PLEC_GGUF_NO_TYPE without the matrix (up,
 * when it is fused), PLEC_GGUF_MIXED_TYPES where single experts differ. */
struct plec_gguf_types {
    int64_t gate, up, down;
};

struct plec_gguf_layer_view {
    uint32_t number;
    bool dense;
    uint64_t n_experts, top_k; /* 1 and 1 of a dense layer */
    uint64_t hidden, inner;    /* D, F */
    uint64_t shared_inner;     /* of the shared expert; 0: none */
    uint64_t latent;           /* 0: the experts read the layer's input */
    enum plec_gguf_layout layout;
    struct plec_gguf_types types, shared_types;
    bool router, router_bias, selection_bias, expert_biases, expert_scales, shared_gate;
    bool token_table;             /* experts by token id */
    bool branch;                  /* a dense MLP beside the experts */
    uint64_t expert_bytes;        /* of one expert: matrices, biases, factors */
    uint64_t routed_bytes;        /* of all of them */
    uint64_t layer_bytes;         /* of every feed-forward tensor of the block */
    uint64_t n_weights, n_active; /* of those tensors; of those a token touches */
    uint64_t routed_weights;
    uint64_t touched_bytes;        /* that a token touches */
    struct plec_arch_layer values; /* as far as they could be settled */
    bool converts;                 /* it binds: it runs, and can become a bank */
    struct plec_error why;         /* else: why not */
};

/* Block i of model, i < n_blocks. */
void plec_gguf_view_layer(struct plec_gguf_layer_view *out, struct plec_gguf_model *model,
                          uint32_t i);

/* The model as a whole. Sums stop at UINT64_MAX. */
struct plec_gguf_totals {
    uint32_t n_moe, n_dense, n_converting; /* layers */
    uint64_t n_bytes, routed_bytes;        /* of all tensors; of routed experts */
    uint64_t n_weights, routed_weights;
    uint64_t touched_bytes, n_active; /* a token's: k experts a layer, one row of the embedding
                                         where the output has a matrix of its own, no prediction
                                         heads, and all of the rest */
};
/* Adds a layer's part to zeroed totals; then, once, that of all other tensors. */
void plec_gguf_totals_add_layer(struct plec_gguf_totals *totals,
                                const struct plec_gguf_layer_view *layer);
void plec_gguf_totals_add_rest(struct plec_gguf_totals *totals,
                               const struct plec_gguf_model *model);

#ifdef __cplusplus
}
#endif
#endif
