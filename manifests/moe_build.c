#include "manifests/moe_build.h"

#include <string.h>

#include "manifests/index.h"
#include "manifests/member.h"

static void set_string(struct plec_members *members, json_t *object, const char *name,
                       const char *text) {
    if (text != NULL) plec_member_set(members, object, name, json_string(text));
}

static void set_real(struct plec_members *members, json_t *object, const char *name, bool given,
                     double value) {
    if (given) plec_member_set(members, object, name, json_real(value));
}

static json_t *expert_value(struct plec_members *members, const struct plec_moe_expert *expert) {
    json_t *value = json_object();
    set_string(members, value, "activation", expert->activation);
    set_real(members, value, "limit", expert->has_limit, expert->limit);
    set_real(members, value, "alpha", expert->has_alpha, expert->alpha);
    set_real(members, value, "beta", expert->has_beta, expert->beta);
    set_real(members, value, "linear_beta", expert->has_linear_beta, expert->linear_beta);
    return value;
}

static json_t *router_extra_value(struct plec_members *members,
                                  const struct plec_moe_router_extra *extra) {
    json_t *value = json_object();
    set_string(members, value, "gating", extra->gating);
    set_string(members, value, "select_on", extra->select_on);
    if (extra->has_groups) {
        plec_member_set(members, value, "groups", json_integer(extra->groups));
        plec_member_set(members, value, "groups_used", json_integer(extra->groups_used));
    }
    if (extra->has_normalise)
        plec_member_set(members, value, "normalise", json_boolean(extra->normalise));
    set_real(members, value, "norm_floor", extra->has_norm_floor, extra->norm_floor);
    set_real(members, value, "scale", extra->has_scale, extra->scale);
    set_string(members, value, "weight_on", extra->weight_on);
    set_string(members, value, "ids_from", extra->ids_from);
    set_string(members, value, "input", extra->input);
    set_real(members, value, "input_eps", extra->has_input_eps, extra->input_eps);
    return value;
}

static json_t *branch_value(struct plec_members *members, const struct plec_moe_branch *branch) {
    json_t *value = json_object();
    plec_member_set(members, value, "storage", json_string(branch->storage));
    if (branch->expert.given)
        plec_member_set(members, value, "expert", expert_value(members, &branch->expert));
    return value;
}

static json_t *layer_plectrum_value(struct plec_members *members,
                                    const struct plec_moe_layer *layer) {
    json_t *value = json_object();
    set_string(members, value, "control", layer->control);
    if (layer->expert.given)
        plec_member_set(members, value, "expert", expert_value(members, &layer->expert));
    set_real(members, value, "norm_eps", layer->has_norm_eps, layer->norm_eps);
    if (layer->shared_expert.given)
        plec_member_set(members, value, "shared_expert",
                        expert_value(members, &layer->shared_expert));
    if (layer->branch.present)
        plec_member_set(members, value, "dense_branch", branch_value(members, &layer->branch));
    set_real(members, value, "out_scale", layer->has_out_scale, layer->out_scale);
    set_string(members, value, "left_out", layer->left_out);
    if (layer->router.extra.given)
        plec_member_set(members, value, "router",
                        router_extra_value(members, &layer->router.extra));
    return value;
}

static json_t *router_value(struct plec_members *members, const struct plec_moe_router *router) {
    bool grouped = router->selection == PLEC_GROUPED_TOP_K;
    json_t *selection = json_object(), *post = json_object(), *value = json_object();
    plec_member_set(members, selection, "kind", json_string(grouped ? "grouped_top_k" : "top_k"));
    plec_member_set(members, selection, "k", json_integer(router->k));
    if (grouped) plec_member_set(members, selection, "groups", json_integer(router->groups));

    plec_member_set(members, post, "renormalise", json_boolean(router->renormalise));
    plec_member_set(members, post, "norm_after_top_k", json_boolean(router->norm_after_top_k));
    plec_member_set(members, post, "gate_bias", plec_member_string_or_null(router->gate_bias));
    plec_member_set(members, post, "route_scale",
                    router->has_route_scale ? json_real(router->route_scale) : json_null());
    plec_member_set(members, post, "quantile_balanced", json_boolean(router->quantile_balanced));

    plec_member_set(members, value, "scores", json_string(router->scores));
    plec_member_set(members, value, "activation",
                    json_string(router->sigmoid ? "sigmoid" : "softmax"));
    plec_member_set(members, value, "selection", selection);
    plec_member_set(members, value, "post", post);
    plec_member_set(members, value, "shared_expert_sink", json_boolean(router->shared_expert_sink));
    return value;
}

static json_t *transforms_value(struct plec_members *members, const struct plec_moe_layer *layer) {
    if (layer->routed_input == NULL) return json_null();
    json_t *value = json_object();
    plec_member_set(members, value, "routed_input", json_string(layer->routed_input));
    plec_member_set(members, value, "routed_output", json_string(layer->routed_output));
    return value;
}

static json_t *bank_value(struct plec_members *members, const struct plec_moe_bank *bank) {
    if (!bank->present) return json_null();
    json_t *value = json_object(), *dims = json_null();
    if (bank->has_dims) {
        dims = json_object();
        plec_member_set(members, dims, "input", json_integer(bank->input));
        plec_member_set(members, dims, "intermediate", json_integer(bank->intermediate));
        plec_member_set(members, dims, "output", json_integer(bank->output));
    }
    plec_member_set(members, value, "experts", json_integer(bank->experts));
    plec_member_set(members, value, "programme", json_string(bank->programme));
    plec_member_set(members, value, "storage", json_string(bank->storage));
    plec_member_set(members, value, "expert_dims", dims);
    return value;
}

static json_t *layer_value(struct plec_members *members, const struct plec_moe_layer *layer) {
    bool latent = layer->input_space == PLEC_SPACE_LATENT;
    json_t *value = json_object();
    plec_member_set(members, value, "layer", json_integer(layer->layer));
    plec_member_set(members, value, "input_space", json_string(latent ? "latent" : "residual"));
    plec_member_set(members, value, "router", router_value(members, &layer->router));
    plec_member_set(members, value, "transforms", transforms_value(members, layer));
    plec_member_set(members, value, "routed_bank", bank_value(members, &layer->routed));
    plec_member_set(members, value, "shared_bank", bank_value(members, &layer->shared));
    plec_member_set(members, value, "reduction", json_string("gate_weighted_sum"));
    plec_member_set(members, value, "routed_output_norm",
                    plec_member_string_or_null(layer->routed_output_norm));
    plec_member_set(members, value, "combine", json_string("residual_add"));
    json_t *plectrum = layer_plectrum_value(members, layer);
    if (json_object_size(plectrum) > 0)
        plec_member_set(members, value, "plectrum", plectrum);
    else
        json_decref(plectrum);
    return value;
}

/* Refuses a second item with this layer number, and storages that leave the container. */
static enum plec_status check_new(const json_t *array, uint32_t layer, struct plec_error *err) {
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *number = json_object_get(json_array_get(array, i), "layer");
        if (json_is_integer(number) && json_integer_value(number) == (json_int_t)layer)
            return plec_fail(err, PLEC_BAD_INPUT, "DuplicateLayer", "layer=%u", layer);
    }
    return PLEC_OK;
}

static enum plec_status check_storage(const char *storage, uint32_t layer, struct plec_error *err) {
    if (storage == NULL || plec_key_is_safe(storage)) return PLEC_OK;
    return plec_fail(err, PLEC_BAD_INPUT, "UnsafeKey",
                     "layer %u: \"%.200s\" does not stay under the container", layer, storage);
}

/* Takes item. */
static enum plec_status append(json_t *array, json_t *item, struct plec_members *members,
                               struct plec_error *err) {
    if (members->fault != NULL)
        json_decref(item);
    else if (json_array_append_new(array, item) != 0)
        members->fault = "layers";
    return plec_members_status(members, err);
}

enum plec_status plec_moe_build(json_t **out, struct plec_error *err) {
    struct plec_members members = {0};
    json_t *document = json_object();
    plec_member_set(&members, document, "schema_version", json_integer(1));
    plec_member_set(&members, document, "layers", json_array());
    *out = members.fault == NULL ? document : NULL;
    if (*out != NULL) return PLEC_OK;
    json_decref(document);
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "moe_manifest.json");
}

enum plec_status plec_moe_build_layer(json_t *document, const struct plec_moe_layer *layer,
                                      struct plec_error *err) {
    json_t *layers = json_object_get(document, "layers");
    const char *const storages[] = {layer->routed.storage, layer->shared.storage, layer->control,
                                    layer->branch.storage};
    enum plec_status status = check_new(layers, layer->layer, err);
    for (size_t i = 0; i < sizeof storages / sizeof storages[0] && status == PLEC_OK; i++)
        status = check_storage(storages[i], layer->layer, err);
    if (status != PLEC_OK) return status;
    struct plec_members members = {0};
    return append(layers, layer_value(&members, layer), &members, err);
}

enum plec_status plec_moe_build_dense(json_t *document, const struct plec_moe_dense *dense,
                                      struct plec_error *err) {
    struct plec_members members = {0};
    json_t *plectrum = plec_member_object(&members, document, "plectrum");
    if (json_object_get(plectrum, "dense") == NULL)
        plec_member_set(&members, plectrum, "dense", json_array());
    json_t *array = json_object_get(plectrum, "dense");
    enum plec_status status = check_new(array, dense->layer, err);
    if (status == PLEC_OK) status = check_storage(dense->storage, dense->layer, err);
    if (status == PLEC_OK) status = check_storage(dense->control, dense->layer, err);
    if (status != PLEC_OK) return status;
    json_t *item = json_object();
    plec_member_set(&members, item, "layer", json_integer(dense->layer));
    plec_member_set(&members, item, "storage", json_string(dense->storage));
    set_string(&members, item, "control", dense->control);
    if (dense->expert.given)
        plec_member_set(&members, item, "expert", expert_value(&members, &dense->expert));
    return append(array, item, &members, err);
}
