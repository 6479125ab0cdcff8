/* The router of a GGUF block: its tensors, and the values that say how they choose. */
#include <math.h>
#include <string.h>

#include "host/gguf_bind.h"
#include "host/gguf_tensor.h"
#include "lyrw/gguf_type.h"

/* gemma's own, in a file that does not say it. */
static const double default_router_eps = 1e-6;

static enum plec_status missing(const struct plec_gguf_layer *layer, const char *name,
                                const char *why, struct plec_error *err) {
    return plec_fail(err, PLEC_MISSING, "MissingTensor", "%s.%s is not in the file: %s",
                     layer->block->prefix, name, why);
}

static enum plec_status unexpected(const struct plec_gguf_tensor *tensor, const char *why,
                                   struct plec_error *err) {
    char name[PLEC_VIEW_TEXT_MAX];
    return plec_fail(err, PLEC_MALFORMED, "UnexpectedTensor", "tensor \"%s\": %s",
                     plec_view_text(tensor->name, name), why);
}

/* -- values ----------------------------------------------------------------------------------- */

static enum plec_gating gating_of(uint32_t gating) {
    switch (gating) {
    case PLEC_ARCH_SIGMOID: return PLEC_GATING_SIGMOID;
    case PLEC_ARCH_SOFTMAX_SELECTED: return PLEC_GATING_SOFTMAX_SELECTED;
    case PLEC_ARCH_SQRT_SOFTPLUS: return PLEC_GATING_SQRT_SOFTPLUS;
    default: return PLEC_GATING_SOFTMAX;
    }
}

static enum plec_select_on select_of(uint32_t select) {
    switch (select) {
    case PLEC_ARCH_ON_LOGITS: return PLEC_SELECT_ON_LOGITS;
    case PLEC_ARCH_ON_SIGMOID: return PLEC_SELECT_ON_SIGMOID;
    default: return PLEC_SELECT_ON_SCORES;
    }
}

static void take_values(struct plec_router *router, const struct plec_arch_layer *values) {
    router->n_experts = values->n_experts.value;
    router->top_k = values->top_k.value;
    router->gating = gating_of(values->gating.value);
    router->select_on = select_of(values->select_on.value);
    router->n_groups = values->groups.value > 1 ? values->groups.value : 0;
    router->n_groups_used = router->n_groups > 0 ? values->groups_used.value : 0;
    router->normalise = values->norm.value != 0;
    router->norm_floor = values->norm_floor.value;
    router->scale = values->scale.value;
    router->weight_on_input = values->weight_on_input.value != 0;
}

/* A key that the architecture reads and the file lacks: what is taken instead. */
static void tell_defaults(struct plec_gguf_model *model, const struct plec_arch_layer *values) {
    const struct plec_arch *arch = values->arch;
    if (arch == NULL) return;
    if (arch->gating.from == PLEC_ARCH_KEY && values->gating.origin == PLEC_ARCH_BY_DEFAULT)
        plec_gguf_tell(model, PLEC_GGUF_TOLD_GATING,
                       "gating: no key expert_gating_func: %s, the default of architecture %s",
                       plec_arch_gating_name((enum plec_arch_gating)values->gating.value),
                       arch->name);
    if (arch->norm.from == PLEC_ARCH_KEY && values->norm.origin == PLEC_ARCH_BY_DEFAULT)
        plec_gguf_tell(model, PLEC_GGUF_TOLD_NORM,
                       "normalise: no key expert_weights_norm: %s, the default of architecture %s",
                       values->norm.value ? "yes" : "no", arch->name);
    if (arch->scale == PLEC_ARCH_KEY && values->scale.origin == PLEC_ARCH_BY_DEFAULT)
        plec_gguf_tell(model, PLEC_GGUF_TOLD_SCALE,
                       "scale: no key expert_weights_scale: 1, the default of architecture %s",
                       arch->name);
}

/* -- tensors ---------------------------------------------------------------------------------- */

static enum plec_status bind_weight(struct plec_bound_layer *out, struct plec_gguf_model *model,
                                    const struct plec_gguf_layer *layer, struct plec_error *err) {
    struct plec_router *router = &out->layer.router;
    router->input_dim = out->layer.hidden_size;
    if (layer->router == NULL) {
        out->routing_required = true;
        plec_gguf_tell(model, PLEC_GGUF_TOLD_NO_ROUTER,
                       "%s.ffn_gate_inp.weight is not in the file: the routing must be given",
                       layer->block->prefix);
        return PLEC_OK;
    }
    enum plec_status status =
        plec_gguf_expect_matrix(layer->router, out->layer.hidden_size, router->n_experts, 1, err);
    if (status != PLEC_OK) return status;
    return plec_gguf_matrix(&router->weight, model, layer->router, err);
}

/* A vector of one number an expert. */
static enum plec_status bind_per_expert(const float **out, struct plec_bound_layer *bound,
                                        const struct plec_gguf_model *model,
                                        const struct plec_gguf_tensor *tensor,
                                        struct plec_error *err) {
    if (tensor == NULL) return PLEC_OK;
    enum plec_status status =
        plec_gguf_expect_vector(tensor, bound->layer.router.n_experts, 1, "experts", err);
    return status == PLEC_OK ? plec_gguf_tensor_f32(out, &bound->owned, model, tensor, err)
                             : status;
}

static enum plec_status check_biases(const struct plec_gguf_layer *layer,
                                     const struct plec_arch_layer *values, struct plec_error *err) {
    const struct plec_arch *arch = values->arch;
    if (arch != NULL && arch->biases && layer->router != NULL && layer->router_bias == NULL)
        return missing(layer, "ffn_gate_inp.bias", "the architecture's router has one", err);
    if (layer->router_bias != NULL && layer->router == NULL)
        return unexpected(layer->router_bias, "a bias without its matrix", err);
    if (values->selection_bias == PLEC_ARCH_YES && layer->router != NULL &&
        layer->selection_bias == NULL)
        return missing(layer, "exp_probs_b.bias", "the architecture selects with it", err);
    if (values->hash_routed && layer->selection_bias != NULL)
        return unexpected(layer->selection_bias, "this layer's experts are chosen by token id",
                          err);
    return PLEC_OK;
}

/* -- what the router reads -------------------------------------------------------------------- */

static void read_eps(struct plec_router *router, struct plec_gguf_model *model) {
    struct plec_arch_key key =
        model->keys.find(model->keys.user, "attention.layer_norm_rms_epsilon", 0);
    if (key.kind == PLEC_KEY_REAL && isfinite(key.real) && key.real >= 0) {
        router->input_eps = key.real;
        return;
    }
    router->input_eps = default_router_eps;
    plec_gguf_tell(model, PLEC_GGUF_TOLD_ROUTER_EPS,
                   "no key attention.layer_norm_rms_epsilon: the router's input norm takes %g",
                   default_router_eps);
}

static enum plec_status bind_input(struct plec_bound_layer *out, struct plec_gguf_model *model,
                                   const struct plec_gguf_layer *layer,
                                   const struct plec_arch_layer *values, struct plec_error *err) {
    struct plec_router *router = &out->layer.router;
    bool attention = values->router_input.value == PLEC_ARCH_ATTENTION_OUTPUT;
    if (layer->router_scale != NULL && !attention)
        return unexpected(layer->router_scale, "the architecture's router does not scale its input",
                          err);
    if (layer->router == NULL || values->router_input.value == PLEC_ARCH_FFN_INPUT) return PLEC_OK;
    out->router_input_required = true;
    plec_gguf_tell(model, PLEC_GGUF_TOLD_ROUTER_INPUT,
                   "the router reads %s, not the layer's input: it must be given",
                   attention ? "the attention output before its norm"
                             : "the block's input, before attention and norm");
    if (!attention) return PLEC_OK;
    router->input_norm = true;
    read_eps(router, model);
    if (layer->router_scale == NULL)
        return missing(layer, "ffn_gate_inp.scale", "the router's input is multiplied by it", err);
    enum plec_status status =
        plec_gguf_expect_vector(layer->router_scale, router->input_dim, 1, "input", err);
    if (status != PLEC_OK) return status;
    return plec_gguf_tensor_f32(&router->input_scale, &out->owned, model, layer->router_scale, err);
}

/* -- experts by token id ---------------------------------------------------------------------- */

static enum plec_status check_table(const struct plec_bound_layer *out,
                                    const struct plec_gguf_tensor *tensor, struct plec_error *err) {
    uint32_t k = out->layer.router.top_k, n_experts = out->layer.router.n_experts;
    for (uint32_t token = 0; token < out->n_token_ids; token++)
        for (uint32_t j = 0; j < k; j++) {
            int32_t id = out->token_table[(size_t)token * k + j];
            char name[PLEC_VIEW_TEXT_MAX];
            if (id >= 0 && (uint32_t)id < n_experts) continue;
            return plec_fail(err, PLEC_MALFORMED, "BadTokenTable",
                             "tensor \"%s\": token id %u slot %u: expert %d, wanted 0 to %u",
                             plec_view_text(tensor->name, name), token, j, id, n_experts - 1);
        }
    return PLEC_OK;
}

/* The table in memory; copied only where the file's alignment does not suit an int32. */
static enum plec_status read_table(const int32_t **out, struct plec_arena *arena,
                                   const struct plec_gguf_model *model,
                                   const struct plec_gguf_tensor *tensor, struct plec_error *err) {
    const uint8_t *bytes;
    enum plec_status status =
        plec_gguf_use_tensor(&bytes, plec_gguf_set_file(model->set, tensor), tensor, err);
    if (status != PLEC_OK) return status;
    if ((uintptr_t)bytes % _Alignof(int32_t) == 0) {
        *out = (const int32_t *)(const void *)bytes;
        return PLEC_OK;
    }
    int32_t *copy = plec_arena_alloc(arena, tensor->n_elements, sizeof *copy, err);
    if (copy == NULL) return PLEC_NO_MEMORY;
    memcpy(copy, bytes, (size_t)tensor->n_bytes);
    *out = copy;
    return PLEC_OK;
}

static enum plec_status bind_table(struct plec_bound_layer *out,
                                   const struct plec_gguf_model *model,
                                   const struct plec_gguf_layer *layer,
                                   const struct plec_arch_layer *values, struct plec_error *err) {
    const struct plec_gguf_tensor *tensor = layer->token_table;
    char name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    if (tensor == NULL && values->hash_routed)
        return missing(layer, "ffn_gate_tid2eid.weight",
                       "this layer's experts are chosen by token id", err);
    if (tensor == NULL) return PLEC_OK;
    if (!values->hash_routed)
        return unexpected(tensor, "this layer's experts are not chosen by token id", err);
    if (tensor->type != PLEC_GGUF_TYPE_I32)
        return plec_fail(err, PLEC_UNSUPPORTED, "TokenTableType",
                         "tensor \"%s\": wanted i32, found %s", plec_view_text(tensor->name, name),
                         plec_gguf_type_text(tensor->type, type));
    if (tensor->ne[1] == 0 || tensor->ne[1] > INT32_MAX)
        return plec_fail(err, PLEC_MALFORMED, "BadDim", "tensor \"%s\": %llu tokens",
                         plec_view_text(tensor->name, name), (unsigned long long)tensor->ne[1]);
    enum plec_status status =
        plec_gguf_expect_matrix(tensor, out->layer.router.top_k, tensor->ne[1], 1, err);
    if (status == PLEC_OK) status = read_table(&out->token_table, &out->owned, model, tensor, err);
    if (status != PLEC_OK) return status;
    out->n_token_ids = (uint32_t)tensor->ne[1];
    return check_table(out, tensor, err);
}

enum plec_status plec_gguf_bind_router(struct plec_bound_layer *out, struct plec_gguf_model *model,
                                       const struct plec_gguf_layer *layer,
                                       const struct plec_arch_layer *values,
                                       struct plec_error *err) {
    struct plec_router *router = &out->layer.router;
    take_values(router, values);
    tell_defaults(model, values);
    enum plec_status status = bind_weight(out, model, layer, err);
    if (status == PLEC_OK) status = check_biases(layer, values, err);
    if (status == PLEC_OK)
        status = bind_per_expert(&router->bias, out, model, layer->router_bias, err);
    if (status == PLEC_OK)
        status = bind_per_expert(&router->selection_bias, out, model, layer->selection_bias, err);
    if (status == PLEC_OK) status = bind_input(out, model, layer, values, err);
    if (status == PLEC_OK) status = bind_table(out, model, layer, values, err);
    return status;
}
