/* What a bound layer is, as an entry of a manifest; then read back and compared, so that nothing is
 * lost between the two. */
#include <stdio.h>
#include <string.h>

#include "host/bind.h"
#include "host/convert_parts.h"
#include "manifests/moe_build.h"

void plec_convert_keys(struct plec_convert_names *out, uint32_t layer) {
    static const char *const folders[PLEC_CONVERT_N_PARTS] = {"routed", "shared", "dense",
                                                              "control"};
    for (int part = 0; part < PLEC_CONVERT_N_PARTS; part++)
        snprintf(out->keys[part], sizeof out->keys[part], "%s/layer_%03u", folders[part], layer);
}

/* -- expert maths ----------------------------------------------------------------------------- */

static bool uses_limit(enum plec_activation activation) {
    return activation == PLEC_CLAMPED_GLU || activation == PLEC_CLAMPED_GATED ||
           activation == PLEC_SILU_STEP;
}

static struct plec_moe_expert expert_of(const struct plec_expert_maths *maths) {
    bool situ = maths->activation == PLEC_SITU_GLU;
    return (struct plec_moe_expert){.given = true,
                                    .activation = plec_activation_name(maths->activation),
                                    .has_limit = uses_limit(maths->activation),
                                    .limit = maths->limit,
                                    .has_alpha = maths->activation == PLEC_CLAMPED_GLU,
                                    .alpha = maths->alpha,
                                    .has_beta = situ,
                                    .beta = maths->beta,
                                    .has_linear_beta = situ,
                                    .linear_beta = maths->linear_beta};
}

static const char *programme_of(const struct plec_bank *bank, bool latent) {
    bool gated = bank->operands[PLEC_GATE].rows != 0;
    bool biased = bank->operands[PLEC_GATE_BIAS].rows + bank->operands[PLEC_UP_BIAS].rows +
                      bank->operands[PLEC_DOWN_BIAS].rows >
                  0;
    if (latent) return gated ? "latent-moe-v1" : "plectrum-latent-mlp-v1";
    if (!gated) return "plectrum-mlp-v1";
    return biased && bank->maths.activation == PLEC_CLAMPED_GLU ? "gpt-oss-expert-v1"
                                                                : "gated-mlp-v1";
}

static struct plec_moe_bank bank_of(const struct plec_bank *bank, const char *storage,
                                    bool latent) {
    return (struct plec_moe_bank){.present = true,
                                  .experts = bank->n_entries,
                                  .programme = programme_of(bank, latent),
                                  .storage = storage,
                                  .has_dims = true,
                                  .input = bank->input_dim,
                                  .intermediate = bank->intermediate_dim,
                                  .output = bank->output_dim};
}

/* -- the router ------------------------------------------------------------------------------- */

static const char *gating_name(enum plec_gating gating) {
    switch (gating) {
    case PLEC_GATING_SOFTMAX: return "softmax";
    case PLEC_GATING_SIGMOID: return "sigmoid";
    case PLEC_GATING_SOFTMAX_SELECTED: return "softmax_selected";
    case PLEC_GATING_SQRT_SOFTPLUS: return "sqrt_softplus";
    }
    return NULL;
}

static const char *select_name(enum plec_select_on select_on) {
    switch (select_on) {
    case PLEC_SELECT_ON_SCORES: return "scores";
    case PLEC_SELECT_ON_LOGITS: return "logits";
    case PLEC_SELECT_ON_SIGMOID: return "sigmoid";
    }
    return NULL;
}

static struct plec_moe_router_extra extra_of(const struct plec_bound_layer *bound) {
    const struct plec_router *router = &bound->layer.router;
    bool grouped = router->n_groups > 1 && router->k_per_group == 0;
    bool floor = router->norm_floor != 0 ||
                 (router->gating == PLEC_GATING_SIGMOID && router->norm_epsilon == 0);
    struct plec_moe_router_extra extra = {.given = true,
                                          .gating = gating_name(router->gating),
                                          .select_on = select_name(router->select_on),
                                          .weight_on = router->weight_on_input ? "input" : "output",
                                          .has_groups = grouped,
                                          .groups = router->n_groups,
                                          .groups_used = router->n_groups_used,
                                          .has_normalise = true,
                                          .normalise = router->normalise,
                                          .has_norm_floor = floor,
                                          .norm_floor = router->norm_floor,
                                          .has_scale = true,
                                          .scale = router->scale,
                                          .has_input_eps = router->input_norm,
                                          .input_eps = router->input_eps};
    if (bound->token_table != NULL) extra.ids_from = "tokens";
    if (bound->router_input_required) extra.input = router->input_norm ? "attention" : "block";
    return extra;
}

/* The standard fields say the nearest thing to what our own, which rule, say exactly. */
static struct plec_moe_router router_of(const struct plec_bound_layer *bound,
                                        const struct plec_convert_names *names) {
    const struct plec_router *router = &bound->layer.router;
    bool per_group = router->k_per_group > 0;
    return (struct plec_moe_router){
        .scores = names->scores,
        .sigmoid =
            router->gating == PLEC_GATING_SIGMOID || router->gating == PLEC_GATING_SQRT_SOFTPLUS,
        .selection = per_group ? PLEC_GROUPED_TOP_K : PLEC_TOP_K,
        .k = per_group ? router->k_per_group : router->top_k,
        .groups = per_group ? router->n_groups : 0,
        .renormalise = router->normalise || router->gating == PLEC_GATING_SOFTMAX_SELECTED,
        .gate_bias = router->selection_bias != NULL ? names->gate_bias : NULL,
        .has_route_scale = router->scale != 1,
        .route_scale = router->scale,
        .extra = extra_of(bound)};
}

/* -- read back -------------------------------------------------------------------------------- */

static enum plec_status lost(const char *what, struct plec_error *err) {
    return plec_fail(err, PLEC_UNSUPPORTED, "NoManifestField",
                     "%s: no field of the manifest says it", what);
}

static uint32_t groups_of(const struct plec_router *router) {
    return router->n_groups > 1 ? router->n_groups : 0;
}

static uint32_t groups_used_of(const struct plec_router *router) {
    return router->n_groups > 1 ? router->n_groups_used : 0;
}

/* Compares what the manifest's router binds to with the router it was made from. */
static enum plec_status check_router(const struct plec_moe_router *manifest,
                                     const struct plec_router *router, struct plec_error *err) {
    struct plec_router read;
    enum plec_status status = plec_bind_router(
        &read, manifest, router->n_experts, router->input_dim, router->selection_bias != NULL, err);
    if (status != PLEC_OK) return status;
    const struct {
        bool same;
        const char *what;
    } fields[] = {
        {read.top_k == router->top_k, "experts a token"},
        {read.gating == router->gating, "gating"},
        {read.select_on == router->select_on, "select_on"},
        {groups_of(&read) == groups_of(router), "groups"},
        {groups_used_of(&read) == groups_used_of(router), "groups_used"},
        {read.k_per_group == router->k_per_group, "experts of each group"},
        {read.normalise == router->normalise, "normalise"},
        {read.norm_epsilon == router->norm_epsilon, "norm_epsilon"},
        {read.norm_floor == router->norm_floor, "norm_floor"},
        {read.scale == router->scale, "scale"},
        {read.weight_on_input == router->weight_on_input, "weight_on"},
    };
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        if (!fields[i].same) return lost(fields[i].what, err);
    return PLEC_OK;
}

static enum plec_status check_maths(const struct plec_moe_expert *manifest,
                                    const struct plec_bank *bank, const char *which,
                                    struct plec_error *err) {
    const struct plec_programme *programme = plec_programme_find(programme_of(bank, false));
    const struct plec_expert_maths *maths = &bank->maths;
    struct plec_expert_maths read;
    enum plec_status status = plec_bind_maths(&read, manifest, programme, which, NULL, err);
    if (status != PLEC_OK) return status;
    bool situ = maths->activation == PLEC_SITU_GLU;
    if (read.activation != maths->activation) return lost("activation", err);
    if (uses_limit(maths->activation) && read.limit != maths->limit) return lost("limit", err);
    if (maths->activation == PLEC_CLAMPED_GLU && read.alpha != maths->alpha)
        return lost("alpha", err);
    if (situ && (read.beta != maths->beta || read.linear_beta != maths->linear_beta))
        return lost("beta", err);
    return PLEC_OK;
}

/* What struct plec_layer can say and this manifest has no place for. */
static enum plec_status check_layer(const struct plec_bound_layer *bound, struct plec_error *err) {
    const struct plec_layer *layer = &bound->layer;
    const struct plec_router *router = &layer->router;
    bool table = bound->token_table != NULL;
    if (layer->dense.n_entries > 1) return lost("several experts in the dense branch", err);
    if (router->input_dim != layer->hidden_size) return lost("a router of another width", err);
    if (router->input_norm && !bound->router_input_required)
        return lost("a norm of the router on the layer's own input", err);
    if (router->input_scale != NULL && !router->input_norm)
        return lost("a scaled router input without a norm", err);
    if (router->input_norm && router->input_scale == NULL && plec_matrix_present(&router->weight))
        return lost("a normed router input without a scale", err);
    if (plec_matrix_present(&layer->latent_in) != plec_matrix_present(&layer->latent_out))
        return lost("one latent projection without the other", err);
    if (plec_matrix_present(&layer->shared_gate) && layer->shared.n_entries == 0)
        return lost("a gate without a shared expert", err);
    if (bound->routing_required && table) return lost("a token table without a router", err);
    return PLEC_OK;
}

/* -- entries ---------------------------------------------------------------------------------- */

static enum plec_status describe_dense(json_t *manifest, const struct plec_convert_names *names,
                                       const struct plec_bound_layer *bound, uint32_t number,
                                       bool control, struct plec_error *err) {
    const struct plec_layer *layer = &bound->layer;
    const struct plec_moe_dense dense = {.layer = number,
                                         .storage = names->keys[PLEC_CONVERT_DENSE],
                                         .control =
                                             control ? names->keys[PLEC_CONVERT_CONTROL] : NULL,
                                         .expert = expert_of(&layer->routed.maths)};
    if (layer->shared.n_entries + layer->dense.n_entries > 0 || layer->out_scale != 1 ||
        layer->routed.n_entries != 1 || plec_matrix_present(&layer->router.weight))
        return lost("a dense layer with branches, a factor or a router", err);
    enum plec_status status = check_maths(&dense.expert, &layer->routed, "dense", err);
    return status == PLEC_OK ? plec_moe_build_dense(manifest, &dense, err) : status;
}

static void take_branches(struct plec_moe_layer *out, const struct plec_layer *layer,
                          const struct plec_convert_names *names) {
    if (layer->shared.n_entries > 0) {
        out->shared = bank_of(&layer->shared, names->keys[PLEC_CONVERT_SHARED], false);
        out->shared_expert = expert_of(&layer->shared.maths);
    }
    if (layer->dense.n_entries > 0)
        out->branch = (struct plec_moe_branch){.present = true,
                                               .storage = names->keys[PLEC_CONVERT_DENSE],
                                               .expert = expert_of(&layer->dense.maths)};
    out->has_out_scale = layer->out_scale != 1;
    out->out_scale = layer->out_scale;
}

static void take_latent(struct plec_moe_layer *out, const struct plec_layer *layer,
                        const struct plec_convert_names *names) {
    if (plec_matrix_present(&layer->latent_in)) {
        out->input_space = PLEC_SPACE_LATENT;
        out->routed_input = names->latent_in;
        out->routed_output = names->latent_out;
    }
    if (layer->routed_norm == NULL) return;
    out->routed_output_norm = names->norm;
    out->has_norm_eps = true;
    out->norm_eps = layer->norm_eps;
}

static enum plec_status describe_moe(json_t *manifest, const struct plec_convert_names *names,
                                     const struct plec_bound_layer *bound, uint32_t number,
                                     bool control, struct plec_error *err) {
    const struct plec_layer *layer = &bound->layer;
    bool latent = plec_matrix_present(&layer->latent_in);
    struct plec_moe_layer out = {
        .layer = number,
        .router = router_of(bound, names),
        .routed = bank_of(&layer->routed, names->keys[PLEC_CONVERT_ROUTED], latent),
        .control = control ? names->keys[PLEC_CONVERT_CONTROL] : NULL,
        .expert = expert_of(&layer->routed.maths),
        .left_out = bound->left_out};
    take_branches(&out, layer, names);
    take_latent(&out, layer, names);
    enum plec_status status = check_layer(bound, err);
    if (status == PLEC_OK) status = check_router(&out.router, &layer->router, err);
    if (status == PLEC_OK) status = check_maths(&out.expert, &layer->routed, "routed", err);
    if (status == PLEC_OK && out.shared.present)
        status = check_maths(&out.shared_expert, &layer->shared, "shared", err);
    if (status == PLEC_OK && out.branch.present)
        status = check_maths(&out.branch.expert, &layer->dense, "dense branch", err);
    return status == PLEC_OK ? plec_moe_build_layer(manifest, &out, err) : status;
}

enum plec_status plec_convert_describe(json_t *manifest, struct plec_convert_names *names,
                                       const struct plec_bound_layer *bound, uint32_t layer,
                                       bool control, struct plec_error *err) {
    enum plec_status status = bound->dense
                                  ? describe_dense(manifest, names, bound, layer, control, err)
                                  : describe_moe(manifest, names, bound, layer, control, err);
    if (status != PLEC_OK) plec_error_context(err, "layer %u", layer);
    return status;
}
