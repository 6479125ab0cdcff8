/* control.h: control files: the small tensors a bank container names but does not hold (router
 * weights, biases, norms, latent projections, per-expert scales, experts by token id).
 *
 * A control file is LYRW v2: one dense bank of one entry, with Plectrum's vendor roles
 * (docs/format.md "Control files"). Matrices stay views into the store; vectors are decoded to f32
 * into the caller's arena. Absent tensors are NULL or a matrix without values.
 */
#ifndef PLEC_HOST_CONTROL_H
#define PLEC_HOST_CONTROL_H

#include "host/operand.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_control {
    const char *key;
    struct plec_matrix router_weight;                /* [experts, hidden] */
    struct plec_matrix latent_in, latent_out;        /* [latent, hidden], [hidden, latent] */
    struct plec_matrix shared_gate;                  /* [1, hidden] */
    struct plec_matrix input_norm;                   /* of any shape */
    const float *selection_bias, *router_bias;       /* [experts] */
    const float *routed_output_norm;                 /* [latent] */
    const float *expert_scale;                       /* [experts] */
    const float *gate_scale, *up_scale, *down_scale; /* [experts] */
    const float *router_input_scale;                 /* [hidden] */
    const float *shared_scales[PLEC_N_MATRICES];     /* [shared experts] by gate, up, down */
    const float *branch_scales[PLEC_N_MATRICES];     /* [1] */
    const int32_t *token_table;                      /* [n_token_ids, top_k], ids below experts */
    uint32_t n_token_ids;
};

/* The shapes the tensors of a layer must have. */
struct plec_control_shape {
    uint32_t layer, experts, hidden;
    uint32_t routed_width; /* outputs of a routed expert: the latent width, or hidden */
    uint32_t expert_input; /* inputs of a routed expert: the latent width, or hidden */
    bool latent;           /* else latent_in and latent_out are left alone */
    uint32_t shared;       /* shared experts; 0: none */
    uint32_t branch;       /* experts of the dense branch: 1, or 0 for none */
    uint32_t top_k;        /* experts a token */
};

/* Reads the control file `key`. PLEC_MALFORMED: "ControlShape" (role, shape wanted and found),
 * "NotAControlFile" (more than one bank or entry), "LayerContradicted", "AmbiguousRole",
 * "BadTokenTable" (not i32, or an id outside the experts: token, slot, id); and what storage.h and
 * operand.h list. */
PLEC_MUST_USE enum plec_status plec_control_read(struct plec_control *out, struct plec_arena *arena,
                                                 struct plec_store *store, const char *key,
                                                 const struct plec_control_shape *shape,
                                                 struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
