/* moe.h: moe_manifest.json: which layers have experts, how their router selects, which banks hold
 * them. Schema 1, with our additive `plectrum` objects (docs/format.md). Owns the JSON document.
 */
#ifndef PLEC_MANIFESTS_MOE_H
#define PLEC_MANIFESTS_MOE_H

#include "lyrw/findings.h"
#include "manifests/json.h"
#include "manifests/programme.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_input_space { PLEC_SPACE_RESIDUAL, PLEC_SPACE_LATENT };
enum plec_selection_kind { PLEC_TOP_K, PLEC_GROUPED_TOP_K };

/* plectrum.expert or plectrum.shared_expert: each member only if given. */
struct plec_moe_expert {
    bool given;
    const char *activation; /* NULL: the programme's default */
    bool has_limit, has_alpha, has_beta, has_linear_beta;
    double limit, alpha, beta, linear_beta;
};

/* plectrum.router: richer than the standard fields, and ruling where given. groups_used is groups
 * unless given. */
struct plec_moe_router_extra {
    bool given;
    const char *gating, *select_on, *weight_on; /* NULL: not given */
    const char *ids_from;                       /* "scores", "tokens" or NULL */
    const char *input;                          /* "ffn", "attention", "block" or NULL */
    bool has_groups, has_normalise, has_norm_floor, has_scale, has_input_eps, normalise;
    uint32_t groups, groups_used;
    double norm_floor, scale, input_eps;
};

struct plec_moe_router {
    const char *scores;
    bool sigmoid; /* activation; else softmax */
    enum plec_selection_kind selection;
    uint32_t k, groups;
    bool renormalise, norm_after_top_k, quantile_balanced;
    const char *gate_bias; /* or NULL */
    bool has_route_scale;
    double route_scale;
    bool shared_expert_sink;
    struct plec_moe_router_extra extra;
};

struct plec_moe_bank {
    bool present;
    uint32_t experts;
    const char *programme, *storage;
    bool has_dims;
    uint32_t input, intermediate, output;
};

/* plectrum.dense_branch: one expert beside the routed ones, which every token reads. */
struct plec_moe_branch {
    bool present;
    const char *storage;
    struct plec_moe_expert expert;
};

struct plec_moe_layer {
    uint32_t layer;
    enum plec_input_space input_space;
    struct plec_moe_router router;
    const char *routed_input, *routed_output; /* transforms; NULL when absent */
    struct plec_moe_bank routed, shared;
    const char *routed_output_norm; /* or NULL */
    const char *control;            /* plectrum.control: a segment key, or NULL */
    struct plec_moe_expert expert, shared_expert;
    struct plec_moe_branch branch;
    bool has_norm_eps, has_out_scale;
    double norm_eps, out_scale; /* out_scale multiplies the sum of all branches */
    const char *left_out;       /* a tensor of the model that is no part of this layer, or NULL */
};

/* plectrum.dense: a dense layer as a bank of one entry. */
struct plec_moe_dense {
    uint32_t layer;
    const char *storage;
    const char *control; /* a segment key, or NULL */
    struct plec_moe_expert expert;
};

/* Zeroed: closed. Strings are views into `document`. */
struct plec_moe {
    json_t *document;
    uint32_t schema_version;
    struct plec_moe_layer *layers; /* [n_layers] */
    size_t n_layers;
    const struct plec_moe_layer **layers_by_number; /* [n_layers] by number, then by place */
    struct plec_moe_dense *dense;                   /* [n_dense] */
    size_t n_dense;
};

/* Reads the document (takes a reference). PLEC_MALFORMED: MissingField, WrongType, UnknownVariant,
 * IntegerRange, UnsafeKey, NulInString; PLEC_NO_MEMORY. On failure *out is closed. Storages may be
 * blank; that and every other defect of meaning is plec_moe_defects'. */
PLEC_MUST_USE enum plec_status plec_moe_read(struct plec_moe *out, json_t *document,
                                             struct plec_error *err);
/* Adds every defect: UnsupportedSchemaVersion (alone), DuplicateLayer, UnknownProgramme,
 * LatentBankWithoutTransforms, InputSpaceContradictsProgramme, RouterHasNoScores,
 * SelectionExceedsBank, SinkWithoutSharedBank, BankHasNoStorage, BankHasNoExperts,
 * BankHasZeroDimension, DuplicateBankStorage; of our additions, BadGroups (plectrum.router: groups
 * that do not divide the experts, more used than there are), BankHasNoStorage and DuplicateLayer
 * with which=dense, BankHasNoStorage and DuplicateBankStorage with which=dense_branch. */
void plec_moe_defects(struct plec_findings *findings, const struct plec_moe *moe);
void plec_moe_close(struct plec_moe *moe);

/* Experts a token: k, or k a group times groups; saturates at UINT32_MAX. */
uint32_t plec_moe_experts_per_token(const struct plec_moe_router *router);
/* The layer, or NULL; the first where two have one number. */
const struct plec_moe_layer *plec_moe_find_layer(const struct plec_moe *moe, uint32_t layer);

#ifdef __cplusplus
}
#endif
#endif
