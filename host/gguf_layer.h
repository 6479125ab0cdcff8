/* gguf_layer.h: the feed-forward tensors of one block by what they are, whichever of the naming
 * habits the file has.
 *
 * A view of the model; owns nothing. Never: judges shapes or types.
 */
#ifndef PLEC_HOST_GGUF_LAYER_H
#define PLEC_HOST_GGUF_LAYER_H

#include "host/gguf_model.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Whose matrices: ffn_*_exps, ffn_*_shexp, ffn_* without a suffix. */
enum plec_gguf_family { PLEC_GGUF_ROUTED, PLEC_GGUF_SHARED, PLEC_GGUF_DENSE, PLEC_GGUF_N_FAMILIES };
enum plec_gguf_part {
    PLEC_GGUF_GATE,
    PLEC_GGUF_UP,
    PLEC_GGUF_GATE_UP, /* gate rows, then up rows, of each expert */
    PLEC_GGUF_DOWN,
    PLEC_GGUF_N_PARTS
};
/* ".weight", ".bias", ".scale" (or ".weight.scale"). */
enum plec_gguf_kind { PLEC_GGUF_WEIGHT, PLEC_GGUF_BIAS, PLEC_GGUF_SCALE, PLEC_GGUF_N_KINDS };

/* "ffn_gate_exps". */
const char *plec_gguf_stem(enum plec_gguf_family family, enum plec_gguf_part part);

struct plec_gguf_layer {
    const struct plec_gguf_model *model;
    const struct plec_gguf_block *block;
    const struct plec_gguf_tensor
        *mlp[PLEC_GGUF_N_FAMILIES][PLEC_GGUF_N_PARTS][PLEC_GGUF_N_KINDS]; /* NULL: absent */
    const struct plec_gguf_tensor *router, *router_bias, *router_scale, *selection_bias;
    const struct plec_gguf_tensor *shared_gate, *latent_down, *latent_up, *token_table;
    const struct plec_gguf_tensor *input_norm; /* ffn_norm */
    uint32_t n_per_expert;                     /* ffn_up.7.weight and its like, of all experts */
    /* What keeps the block from running; NULL: nothing. */
    const struct plec_gguf_tensor *chunk;  /* chunk experts */
    const struct plec_gguf_tensor *twice;  /* a second tensor for one place */
    const struct plec_gguf_tensor *unread; /* changes the result, and has no definition here */
};

void plec_gguf_layer_find(struct plec_gguf_layer *out, const struct plec_gguf_model *model,
                          const struct plec_gguf_block *block);

/* Whether the block has experts, or a router that speaks of some. */
bool plec_gguf_layer_has_experts(const struct plec_gguf_layer *layer);
/* Whether a family has any of its matrices. */
bool plec_gguf_layer_has(const struct plec_gguf_layer *layer, enum plec_gguf_family family);

/* Experts by the tensors' shapes or names, unchecked; 0 without any. */
uint64_t plec_gguf_layer_n_experts(const struct plec_gguf_layer *layer);

/* The width of the vectors the layer reads, by the first tensor that reads them, unchecked; 0
 * without one. */
uint64_t plec_gguf_layer_hidden_size(const struct plec_gguf_layer *layer);

/* Tensors of single experts, one a call: *at from 0, moved on. False at the end. */
struct plec_gguf_single {
    const struct plec_gguf_tensor *tensor;
    enum plec_gguf_part part; /* GATE, UP, DOWN */
    uint32_t expert;
};
bool plec_gguf_layer_single(struct plec_gguf_single *out, const struct plec_gguf_layer *layer,
                            uint32_t *at);

/* The matrices of a layer that has a tensor for each expert: each[part] [n_experts], part being
 * GATE, UP or DOWN. Fills them from the block's names; NULL where there is none. PLEC_MALFORMED
 * "ExpertOutOfRange" names the first number that is too large. */
PLEC_MUST_USE enum plec_status
plec_gguf_layer_per_expert(const struct plec_gguf_tensor **each[PLEC_GGUF_N_PARTS],
                           const struct plec_gguf_layer *layer, uint32_t n_experts,
                           struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
