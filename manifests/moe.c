#include "manifests/moe.h"

#include <stdlib.h>
#include <string.h>

#include "manifests/field.h"

/* Each list in the order of the enum or struct that holds it; the order of activations is free. */
static const char *const input_spaces[] = {"residual", "latent", NULL};
static const char *const router_activations[] = {"softmax", "sigmoid", NULL};
static const char *const selection_kinds[] = {"top_k", "grouped_top_k", NULL};
static const char *const reductions[] = {"gate_weighted_sum", NULL};
static const char *const combines[] = {"residual_add", NULL};
static const char *const gatings[] = {"softmax", "sigmoid", "softmax_selected", "sqrt_softplus",
                                      NULL};
static const char *const select_ons[] = {"scores", "logits", "sigmoid", NULL};
static const char *const weight_ons[] = {"output", "input", NULL};
static const char *const ids_froms[] = {"scores", "tokens", NULL};
static const char *const inputs[] = {"ffn", "attention", "block", NULL};
static const char *const activations[] = {
    "silu",          "gelu_tanh", "gelu_erf", "relu",      "clamped_glu",
    "clamped_gated", "situ_glu",  "relu_sqr", "silu_step", NULL};

/* The member's spelling in one of the lists above; NULL when it is not given. */
static const char *choice(const struct plec_fields *from, const char *name,
                          const char *const *names) {
    int i = plec_field_choice_or_none(from, name, names);
    return i < 0 ? NULL : names[i];
}

static void read_expert(struct plec_moe_expert *out, const struct plec_fields *from,
                        const char *name) {
    struct plec_fields expert = plec_fields_member_or_none(from, name);
    out->given = expert.object != NULL;
    out->activation = choice(&expert, "activation", activations);
    out->has_limit = plec_field_real_or_none(&out->limit, &expert, "limit");
    out->has_alpha = plec_field_real_or_none(&out->alpha, &expert, "alpha");
    out->has_beta = plec_field_real_or_none(&out->beta, &expert, "beta");
    out->has_linear_beta = plec_field_real_or_none(&out->linear_beta, &expert, "linear_beta");
}

static void read_router_extra(struct plec_moe_router_extra *out, const struct plec_fields *from) {
    struct plec_fields router = plec_fields_member_or_none(from, "router");
    out->given = router.object != NULL;
    out->gating = choice(&router, "gating", gatings);
    out->select_on = choice(&router, "select_on", select_ons);
    out->weight_on = choice(&router, "weight_on", weight_ons);
    out->ids_from = choice(&router, "ids_from", ids_froms);
    out->input = choice(&router, "input", inputs);
    out->has_input_eps = plec_field_real_or_none(&out->input_eps, &router, "input_eps");
    out->has_groups = plec_field_u32_or_none(&out->groups, &router, "groups");
    bool used = plec_field_u32_or_none(&out->groups_used, &router, "groups_used");
    if (used && !out->has_groups)
        plec_field_fault(&router, NULL, "MissingField", "`groups_used` without `groups`");
    if (!used) out->groups_used = out->groups;
    out->has_normalise = plec_field_bool_or_none(&out->normalise, &router, "normalise");
    out->has_norm_floor = plec_field_real_or_none(&out->norm_floor, &router, "norm_floor");
    out->has_scale = plec_field_real_or_none(&out->scale, &router, "scale");
}

/* A storage key; a blank one is a defect, told with all others. */
static const char *read_storage(const struct plec_fields *from) {
    const char *text = json_string_value(json_object_get(from->object, "storage"));
    if (text != NULL && plec_field_is_blank(text)) return plec_field_string(from, "storage");
    return plec_field_key(from, "storage");
}

static void read_branch(struct plec_moe_branch *out, const struct plec_fields *plectrum) {
    struct plec_fields branch = plec_fields_member_or_none(plectrum, "dense_branch");
    if (branch.object == NULL) return;
    out->present = true;
    out->storage = read_storage(&branch);
    read_expert(&out->expert, &branch, "expert");
}

static void read_layer_plectrum(struct plec_moe_layer *out, const struct plec_fields *layer) {
    struct plec_fields plectrum = plec_fields_member_or_none(layer, "plectrum");
    out->control = plec_field_key_or_none(&plectrum, "control");
    read_expert(&out->expert, &plectrum, "expert");
    read_expert(&out->shared_expert, &plectrum, "shared_expert");
    read_branch(&out->branch, &plectrum);
    out->has_norm_eps = plec_field_real_or_none(&out->norm_eps, &plectrum, "norm_eps");
    out->left_out = plec_field_string_or_none(&plectrum, "left_out");
    out->has_out_scale = plec_field_real_or_none(&out->out_scale, &plectrum, "out_scale");
    read_router_extra(&out->router.extra, &plectrum);
}

static void read_post(struct plec_moe_router *out, const struct plec_fields *router) {
    if (json_object_get(router->object, "post") == NULL) return;
    struct plec_fields post = plec_fields_member(router, "post");
    out->renormalise = plec_field_bool(&post, "renormalise", false);
    out->norm_after_top_k = plec_field_bool(&post, "norm_after_top_k", false);
    out->quantile_balanced = plec_field_bool(&post, "quantile_balanced", false);
    out->gate_bias = plec_field_string_or_none(&post, "gate_bias");
    out->has_route_scale = plec_field_real_or_none(&out->route_scale, &post, "route_scale");
}

static void read_router(struct plec_moe_router *out, const struct plec_fields *layer) {
    struct plec_fields router = plec_fields_member(layer, "router");
    out->scores = plec_field_string(&router, "scores");
    out->sigmoid = plec_field_choice(&router, "activation", router_activations) == 1;
    struct plec_fields selection = plec_fields_member(&router, "selection");
    bool grouped = plec_field_choice(&selection, "kind", selection_kinds) == PLEC_GROUPED_TOP_K;
    out->selection = grouped ? PLEC_GROUPED_TOP_K : PLEC_TOP_K;
    out->k = plec_field_u32(&selection, "k");
    if (grouped) out->groups = plec_field_u32(&selection, "groups");
    read_post(out, &router);
    out->shared_expert_sink = plec_field_bool(&router, "shared_expert_sink", false);
}

static void read_bank(struct plec_moe_bank *out, const struct plec_fields *bank) {
    if (bank->object == NULL) return;
    out->present = true;
    out->experts = plec_field_u32(bank, "experts");
    out->programme = plec_field_string(bank, "programme");
    out->storage = read_storage(bank);
    struct plec_fields dims = plec_fields_member_or_none(bank, "expert_dims");
    if (dims.object == NULL) return;
    out->has_dims = true;
    out->input = plec_field_u32(&dims, "input");
    out->intermediate = plec_field_u32(&dims, "intermediate");
    out->output = plec_field_u32(&dims, "output");
}

static void read_layer(struct plec_moe_layer *out, const struct plec_fields *layer) {
    out->layer = plec_field_u32(layer, "layer");
    bool latent = plec_field_choice(layer, "input_space", input_spaces) == PLEC_SPACE_LATENT;
    out->input_space = latent ? PLEC_SPACE_LATENT : PLEC_SPACE_RESIDUAL;
    read_router(&out->router, layer);
    struct plec_fields transforms = plec_fields_member_or_none(layer, "transforms");
    if (transforms.object != NULL) {
        out->routed_input = plec_field_string(&transforms, "routed_input");
        out->routed_output = plec_field_string(&transforms, "routed_output");
    }
    struct plec_fields routed = plec_fields_member(layer, "routed_bank");
    read_bank(&out->routed, &routed);
    struct plec_fields shared = plec_fields_member_or_none(layer, "shared_bank");
    read_bank(&out->shared, &shared);
    (void)plec_field_choice(layer, "reduction", reductions);
    out->routed_output_norm = plec_field_string_or_none(layer, "routed_output_norm");
    (void)plec_field_choice(layer, "combine", combines);
    read_layer_plectrum(out, layer);
}

static void read_layers(struct plec_moe *out, const struct plec_fields *root) {
    const json_t *array = plec_field_array(root, "layers");
    size_t n = json_array_size(array);
    out->layers = plec_field_allocate(root->report, n, sizeof *out->layers);
    out->layers_by_number = plec_field_allocate(root->report, n, sizeof *out->layers_by_number);
    if (out->layers == NULL || out->layers_by_number == NULL) return;
    out->n_layers = n;
    for (size_t i = 0; i < n && root->report->status == PLEC_OK; i++) {
        struct plec_fields layer = plec_fields_item(root, "layers", array, i);
        read_layer(&out->layers[i], &layer);
        out->layers_by_number[i] = &out->layers[i];
    }
}

static void read_dense(struct plec_moe *out, const struct plec_fields *root) {
    struct plec_fields plectrum = plec_fields_member_or_none(root, "plectrum");
    const json_t *array = plec_field_array_or_none(&plectrum, "dense");
    size_t n = json_array_size(array);
    out->dense = plec_field_allocate(root->report, n, sizeof *out->dense);
    if (out->dense == NULL) return;
    out->n_dense = n;
    for (size_t i = 0; i < n && root->report->status == PLEC_OK; i++) {
        struct plec_fields dense = plec_fields_item(&plectrum, "dense", array, i);
        out->dense[i].layer = plec_field_u32(&dense, "layer");
        out->dense[i].storage = read_storage(&dense);
        out->dense[i].control = plec_field_key_or_none(&dense, "control");
        read_expert(&out->dense[i].expert, &dense, "expert");
    }
}

static int compare_layers(const void *a, const void *b) {
    const struct plec_moe_layer *x = *(const struct plec_moe_layer *const *)a;
    const struct plec_moe_layer *y = *(const struct plec_moe_layer *const *)b;
    if (x->layer != y->layer) return x->layer < y->layer ? -1 : 1;
    return x < y ? -1 : x > y; /* both point into one array: by place */
}

enum plec_status plec_moe_read(struct plec_moe *out, json_t *document, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct plec_field_report report = {PLEC_OK, err};
    struct plec_fields root = plec_fields_root(document, &report);
    out->document = json_incref(document);
    out->schema_version = plec_field_u32(&root, "schema_version");
    read_layers(out, &root);
    read_dense(out, &root);
    if (report.status != PLEC_OK) {
        plec_moe_close(out);
        return report.status;
    }
    qsort(out->layers_by_number, out->n_layers, sizeof *out->layers_by_number, compare_layers);
    return PLEC_OK;
}

void plec_moe_close(struct plec_moe *moe) {
    free(moe->layers);
    free((void *)moe->layers_by_number);
    free(moe->dense);
    json_decref(moe->document);
    memset(moe, 0, sizeof *moe);
}

static uint64_t experts_per_token(const struct plec_moe_router *router) {
    uint64_t groups = router->selection == PLEC_GROUPED_TOP_K ? router->groups : 1;
    return router->k * groups;
}

uint32_t plec_moe_experts_per_token(const struct plec_moe_router *router) {
    uint64_t experts = experts_per_token(router);
    return experts > UINT32_MAX ? UINT32_MAX : (uint32_t)experts;
}

const struct plec_moe_layer *plec_moe_find_layer(const struct plec_moe *moe, uint32_t layer) {
    size_t low = 0, high = moe->n_layers;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (moe->layers_by_number[middle]->layer < layer)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == moe->n_layers || moe->layers_by_number[low]->layer != layer) return NULL;
    return moe->layers_by_number[low];
}
