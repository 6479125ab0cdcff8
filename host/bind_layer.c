/* Binds the layers of a bank directory: banks through the selected profile, control tensors, the
 * router's rules and the experts' maths become one struct plec_layer.
 */
#include <math.h>
#include <string.h>

#include "host/bind.h"
#include "host/control.h"
#include "host/selection.h"
#include "host/vindex.h"

static const double default_norm_eps = 1e-6;

/* A layer while it is bound. */
struct binder {
    struct plec_bound_layer *out;
    struct plec_vindex *vindex;
    const struct plec_moe_layer *manifest;
    const struct plec_programme *routed, *shared;
    struct plec_control control;
};

/* What fills a place of a layer. */
struct dense_args {
    struct plec_vindex *vindex;
    uint32_t layer;
    const char *storage;
    const struct plec_moe_expert *expert;
    const char *which; /* "dense", "dense branch" */
};

static enum plec_status open_bank(struct plec_bank *out, const struct plec_programme **programme,
                                  struct binder *b, const struct plec_moe_bank *declared,
                                  bool shared, struct plec_error *err) {
    struct plec_bank_request request = {.programme = *programme,
                                        .n_entries = declared->experts,
                                        .has_dims = declared->has_dims,
                                        .input = declared->input,
                                        .intermediate = declared->intermediate,
                                        .output = declared->output};
    struct plec_selection_args selection = {.index = &b->vindex->index,
                                            .profile = &b->vindex->profile,
                                            .store = &b->vindex->store,
                                            .layer = b->manifest->layer,
                                            .shared = shared,
                                            .storage = declared->storage,
                                            .kind = shared ? PLEC_BANK_SHARED : PLEC_BANK_ROUTED};
    enum plec_status status = plec_selection_open(request.by_role, &b->out->owned, &selection, err);
    if (status == PLEC_OK) status = plec_bank_build(out, programme, &b->out->owned, &request, err);
    if (status != PLEC_OK) plec_error_context(err, shared ? "shared experts" : "routed experts");
    return status;
}

/* Experts that read and write the hidden state must have its width. */
static enum plec_status check_width(const struct plec_bank *bank, const char *which,
                                    uint32_t hidden_size, struct plec_error *err) {
    if (bank->input_dim == hidden_size && bank->output_dim == hidden_size) return PLEC_OK;
    return plec_fail(err, PLEC_MALFORMED, "DimensionContradicted",
                     "%s experts are %u -> %u -> %u, the hidden size is %u", which, bank->input_dim,
                     bank->intermediate_dim, bank->output_dim, hidden_size);
}

static enum plec_status find_programme(const struct plec_programme **out,
                                       const struct plec_moe_bank *bank, struct plec_error *err) {
    *out = plec_programme_find(bank->programme);
    if (*out != NULL) return PLEC_OK;
    return plec_fail(err, PLEC_UNSUPPORTED, "UnknownProgramme", "storage=%s programme=%s",
                     bank->storage, bank->programme);
}

static enum plec_status bind_routed(struct binder *b, struct plec_error *err) {
    struct plec_layer *layer = &b->out->layer;
    enum plec_status status = find_programme(&b->routed, &b->manifest->routed, err);
    if (status == PLEC_OK)
        status = open_bank(&layer->routed, &b->routed, b, &b->manifest->routed, false, err);
    if (status == PLEC_OK && !b->routed->latent)
        status = check_width(&layer->routed, "routed", layer->hidden_size, err);
    if (status == PLEC_OK)
        status = plec_bind_maths(&layer->routed.maths, &b->manifest->expert, b->routed, "routed",
                                 &b->vindex->log, err);
    return status;
}

static enum plec_status bind_shared(struct binder *b, struct plec_error *err) {
    const struct plec_moe_layer *manifest = b->manifest;
    struct plec_layer *layer = &b->out->layer;
    if (!manifest->shared.present) return PLEC_OK;
    enum plec_status status = find_programme(&b->shared, &manifest->shared, err);
    if (status == PLEC_OK && b->shared->latent)
        status = plec_fail(err, PLEC_UNSUPPORTED, "LatentSharedBank",
                           "storage=%s programme=%s: shared experts run on the full width",
                           manifest->shared.storage, manifest->shared.programme);
    if (status == PLEC_OK)
        status = open_bank(&layer->shared, &b->shared, b, &manifest->shared, true, err);
    if (status == PLEC_OK) status = check_width(&layer->shared, "shared", layer->hidden_size, err);
    if (status != PLEC_OK) return status;
    const struct plec_moe_expert *expert =
        manifest->shared_expert.given ? &manifest->shared_expert : &manifest->expert;
    return plec_bind_maths(&layer->shared.maths, expert, b->shared, "shared", &b->vindex->log, err);
}

static enum plec_status read_control(struct binder *b, struct plec_error *err) {
    const struct plec_layer *layer = &b->out->layer;
    if (b->manifest->control == NULL) return PLEC_OK;
    const struct plec_control_shape shape = {.layer = b->manifest->layer,
                                             .experts = layer->routed.n_entries,
                                             .hidden = layer->hidden_size,
                                             .routed_width = layer->routed.output_dim,
                                             .expert_input = layer->routed.input_dim,
                                             .latent = b->routed->latent,
                                             .shared = layer->shared.n_entries,
                                             .branch = layer->dense.n_entries,
                                             .top_k =
                                                 plec_moe_experts_per_token(&b->manifest->router)};
    return plec_control_read(&b->control, &b->out->owned, &b->vindex->store, b->manifest->control,
                             &shape, err);
}

static enum plec_status fail_no_tensor(const struct binder *b, uint16_t role, const char *tensor,
                                       struct plec_error *err) {
    char name[PLEC_NAME_MAX];
    return plec_fail(
        err, PLEC_MISSING, "MissingRegion", "the manifest names %s, and %s%s has no role %s",
        tensor, b->control.key != NULL ? "control " : "no control file",
        b->control.key != NULL ? b->control.key : " is declared: it", plec_role_name(role, name));
}

static enum plec_status bind_latent(struct binder *b, struct plec_error *err) {
    struct plec_layer *layer = &b->out->layer;
    if (!b->routed->latent) return PLEC_OK;
    if (!plec_matrix_present(&b->control.latent_in))
        return fail_no_tensor(b, PLEC_ROLE_LATENT_IN, b->manifest->routed_input, err);
    if (!plec_matrix_present(&b->control.latent_out))
        return fail_no_tensor(b, PLEC_ROLE_LATENT_OUT, b->manifest->routed_output, err);
    layer->latent_in = b->control.latent_in;
    layer->latent_out = b->control.latent_out;
    return PLEC_OK;
}

static enum plec_status bind_norm(struct binder *b, struct plec_error *err) {
    struct plec_layer *layer = &b->out->layer;
    const char *name = b->manifest->routed_output_norm;
    if (name == NULL && b->control.routed_output_norm != NULL)
        return plec_fail(err, PLEC_MALFORMED, "NormNotNamed",
                         "control %s holds a routed_output_norm, the manifest names none",
                         b->control.key);
    if (name == NULL) return PLEC_OK;
    if (b->control.routed_output_norm == NULL)
        return fail_no_tensor(b, PLEC_ROLE_ROUTED_OUTPUT_NORM, name, err);
    layer->routed_norm = b->control.routed_output_norm;
    layer->norm_eps = b->manifest->has_norm_eps ? b->manifest->norm_eps : default_norm_eps;
    if (!b->manifest->has_norm_eps)
        plec_log_write(&b->vindex->log, PLEC_LOG_RUN,
                       "layer %u: no norm_eps is given; the routed output norm uses %g",
                       b->manifest->layer, default_norm_eps);
    return PLEC_OK;
}

/* The manifest says that token ids choose the experts; the table is in the control file. */
static enum plec_status bind_table(struct binder *b, struct plec_error *err) {
    const char *from = b->manifest->router.extra.ids_from;
    bool by_token = from != NULL && strcmp(from, "tokens") == 0;
    bool there = b->control.token_table != NULL;
    if (by_token && !there) return fail_no_tensor(b, PLEC_ROLE_TOKEN_TABLE, "ids_from tokens", err);
    if (there && !by_token)
        return plec_fail(err, PLEC_MALFORMED, "TableNotNamed",
                         "control %s holds a token_table, the manifest does not say ids_from "
                         "tokens",
                         b->control.key);
    b->out->token_table = b->control.token_table;
    b->out->n_token_ids = b->control.n_token_ids;
    return PLEC_OK;
}

/* What the router reads, where that is not the layer's input. */
static enum plec_status bind_router_input(struct binder *b, struct plec_error *err) {
    const struct plec_moe_router_extra *extra = &b->manifest->router.extra;
    struct plec_router *router = &b->out->layer.router;
    bool attention = extra->input != NULL && strcmp(extra->input, "attention") == 0;
    bool block = extra->input != NULL && strcmp(extra->input, "block") == 0;
    const float *scale = b->control.router_input_scale;
    if (attention && scale == NULL && plec_matrix_present(&router->weight))
        return fail_no_tensor(b, PLEC_ROLE_ROUTER_INPUT_SCALE, "router input attention", err);
    if (scale != NULL && !attention)
        return plec_fail(err, PLEC_MALFORMED, "InputScaleNotNamed",
                         "control %s holds a router_input_scale, the manifest does not say input "
                         "attention",
                         b->control.key);
    b->out->router_input_required = attention || block;
    if (!attention) return PLEC_OK;
    router->input_norm = true;
    router->input_eps = extra->has_input_eps ? extra->input_eps : default_norm_eps;
    router->input_scale = scale;
    if (router->input_eps >= 0 && isfinite(router->input_eps)) return PLEC_OK;
    return plec_fail(err, PLEC_MALFORMED, "BadInputEps", "input_eps is %g", router->input_eps);
}

static enum plec_status bind_router(struct binder *b, struct plec_error *err) {
    struct plec_router *router = &b->out->layer.router;
    const struct plec_moe_router *manifest = &b->manifest->router;
    enum plec_status status =
        plec_bind_router(router, manifest, b->out->layer.routed.n_entries,
                         b->out->layer.hidden_size, b->control.selection_bias != NULL, err);
    if (status != PLEC_OK) return status;
    router->weight = b->control.router_weight;
    router->bias = b->control.router_bias;
    router->selection_bias = b->control.selection_bias;
    router->expert_scale = b->control.expert_scale;
    b->out->routing_required = !plec_matrix_present(&router->weight);
    if (!b->out->routing_required && manifest->gate_bias != NULL && router->selection_bias == NULL)
        return fail_no_tensor(b, PLEC_ROLE_SELECTION_BIAS, manifest->gate_bias, err);
    status = bind_router_input(b, err);
    return status == PLEC_OK ? bind_table(b, err) : status;
}

static void take_scales(struct plec_bank *bank, const float *const *scales) {
    bank->gate_scale = scales[PLEC_GATE];
    bank->up_scale = scales[PLEC_UP];
    bank->down_scale = scales[PLEC_DOWN];
}

/* One expert under a storage of its own. */
static enum plec_status open_dense(struct plec_bank *out, struct plec_bound_layer *bound,
                                   const struct dense_args *args, struct plec_error *err) {
    struct plec_bank_request request = {.n_entries = 1};
    const struct plec_programme *programme = NULL;
    struct plec_selection_args selection = {.index = &args->vindex->index,
                                            .profile = &(struct plec_resolved_profile){0},
                                            .store = &args->vindex->store,
                                            .layer = args->layer,
                                            .storage = args->storage,
                                            .kind = PLEC_BANK_DENSE};
    enum plec_status status = plec_selection_open(request.by_role, &bound->owned, &selection, err);
    if (status == PLEC_OK) status = plec_bank_build(out, &programme, &bound->owned, &request, err);
    if (status == PLEC_OK) status = check_width(out, args->which, bound->layer.hidden_size, err);
    if (status != PLEC_OK) return status;
    return plec_bind_maths(&out->maths, args->expert, programme, args->which, &args->vindex->log,
                           err);
}

static enum plec_status bind_branch(struct binder *b, struct plec_error *err) {
    const struct plec_moe_branch *branch = &b->manifest->branch;
    if (!branch->present) return PLEC_OK;
    const struct dense_args args = {b->vindex, b->manifest->layer, branch->storage, &branch->expert,
                                    "dense branch"};
    return open_dense(&b->out->layer.dense, b->out, &args, err);
}

static void take_left_out(struct binder *b) {
    b->out->left_out = b->manifest->left_out;
    if (b->out->left_out != NULL)
        plec_log_write(&b->vindex->log, PLEC_LOG_RUN,
                       "layer %u: tensor \"%s\": a branch beside the experts is left out; the "
                       "output is the experts' alone",
                       b->manifest->layer, b->out->left_out);
}

static enum plec_status bind_out_scale(struct binder *b, struct plec_error *err) {
    double scale = b->manifest->has_out_scale ? b->manifest->out_scale : 1.0;
    b->out->layer.out_scale = scale;
    if (isfinite(scale)) return PLEC_OK;
    return plec_fail(err, PLEC_MALFORMED, "BadOutScale", "out_scale is %g", scale);
}

static enum plec_status bind_moe(struct binder *b, struct plec_error *err) {
    struct plec_layer *layer = &b->out->layer;
    layer->hidden_size = b->vindex->index.hidden_size;
    enum plec_status status = plec_selection_check_profile(&b->vindex->profile, err);
    if (status == PLEC_OK) status = bind_out_scale(b, err);
    if (status == PLEC_OK) status = bind_routed(b, err);
    if (status == PLEC_OK) status = bind_shared(b, err);
    if (status == PLEC_OK) status = bind_branch(b, err);
    if (status == PLEC_OK) status = read_control(b, err);
    if (status == PLEC_OK) status = bind_latent(b, err);
    if (status == PLEC_OK) status = bind_norm(b, err);
    if (status == PLEC_OK) status = bind_router(b, err);
    if (status != PLEC_OK) return status;
    if (layer->shared.n_entries > 0) layer->shared_gate = b->control.shared_gate;
    b->out->input_norm = b->control.input_norm;
    take_left_out(b);
    layer->routed.gate_scale = b->control.gate_scale;
    layer->routed.up_scale = b->control.up_scale;
    layer->routed.down_scale = b->control.down_scale;
    take_scales(&layer->shared, b->control.shared_scales);
    take_scales(&layer->dense, b->control.branch_scales);
    return PLEC_OK;
}

enum plec_status plec_vindex_bind_moe(struct plec_bound_layer *out, struct plec_vindex *vindex,
                                      const struct plec_moe_layer *layer, struct plec_error *err) {
    struct binder b = {.out = out, .vindex = vindex, .manifest = layer};
    enum plec_status status = bind_moe(&b, err);
    if (status != PLEC_OK) plec_error_context(err, "layer %u", layer->layer);
    return status;
}

/* One expert, which every token reads. */
static void route_to_the_only_one(struct plec_bound_layer *out) {
    out->dense = true;
    out->layer.router = (struct plec_router){
        .n_experts = 1, .top_k = 1, .scale = 1.0, .input_dim = out->layer.hidden_size};
}

/* Factors of the only expert's products. */
static enum plec_status read_dense_control(struct plec_bound_layer *out, struct plec_vindex *vindex,
                                           const struct plec_moe_dense *dense,
                                           struct plec_error *err) {
    struct plec_bank *bank = &out->layer.routed;
    struct plec_control control;
    if (dense->control == NULL) return PLEC_OK;
    const struct plec_control_shape shape = {.layer = dense->layer,
                                             .experts = 1,
                                             .hidden = out->layer.hidden_size,
                                             .routed_width = bank->output_dim,
                                             .expert_input = bank->input_dim,
                                             .top_k = 1};
    enum plec_status status =
        plec_control_read(&control, &out->owned, &vindex->store, dense->control, &shape, err);
    if (status != PLEC_OK) return status;
    out->input_norm = control.input_norm;
    bank->gate_scale = control.gate_scale;
    bank->up_scale = control.up_scale;
    bank->down_scale = control.down_scale;
    return PLEC_OK;
}

static enum plec_status bind_dense(struct plec_bound_layer *out, struct plec_vindex *vindex,
                                   const struct plec_moe_dense *dense, struct plec_error *err) {
    struct plec_layer *layer = &out->layer;
    const struct dense_args args = {vindex, dense->layer, dense->storage, &dense->expert, "dense"};
    layer->hidden_size = vindex->index.hidden_size;
    layer->out_scale = 1.0;
    enum plec_status status = open_dense(&layer->routed, out, &args, err);
    if (status == PLEC_OK) status = read_dense_control(out, vindex, dense, err);
    if (status == PLEC_OK) route_to_the_only_one(out);
    return status;
}

enum plec_status plec_vindex_bind_dense(struct plec_bound_layer *out, struct plec_vindex *vindex,
                                        const struct plec_moe_dense *dense,
                                        struct plec_error *err) {
    enum plec_status status = bind_dense(out, vindex, dense, err);
    if (status != PLEC_OK) plec_error_context(err, "layer %u dense", dense->layer);
    return status;
}
