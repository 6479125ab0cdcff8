#include "host/gguf_layer.h"

#include <string.h>

/* -- names ------------------------------------------------------------------------------------ */

static const char *const stems[PLEC_GGUF_N_FAMILIES][PLEC_GGUF_N_PARTS] = {
    {"ffn_gate_exps", "ffn_up_exps", "ffn_gate_up_exps", "ffn_down_exps"},
    {"ffn_gate_shexp", "ffn_up_shexp", "ffn_gate_up_shexp", "ffn_down_shexp"},
    {"ffn_gate", "ffn_up", "ffn_gate_up", "ffn_down"},
};

const char *plec_gguf_stem(enum plec_gguf_family family, enum plec_gguf_part part) {
    return stems[family][part];
}

/* Splits at the first dot; tail is empty without one. */
static struct plec_view take_stem(struct plec_view *tail, struct plec_view rest) {
    const char *dot = rest.size > 0 ? memchr(rest.data, '.', (size_t)rest.size) : NULL;
    uint64_t n = dot != NULL ? (uint64_t)(dot - rest.data) : rest.size;
    uint64_t skip = dot != NULL ? n + 1 : n;
    *tail = (struct plec_view){rest.data + skip, rest.size - skip};
    return (struct plec_view){rest.data, n};
}

/* PLEC_GGUF_N_KINDS for a tail that is none. */
static enum plec_gguf_kind kind_of(struct plec_view tail) {
    if (plec_view_is(tail, "weight")) return PLEC_GGUF_WEIGHT;
    if (plec_view_is(tail, "bias")) return PLEC_GGUF_BIAS;
    if (plec_view_is(tail, "scale") || plec_view_is(tail, "weight.scale")) return PLEC_GGUF_SCALE;
    return PLEC_GGUF_N_KINDS;
}

/* Scales of activations, which are not quantised here. */
static bool is_input_scale(struct plec_view tail) {
    return plec_view_ends(tail, "input_scale");
}

/* The matrix a stem names. */
static bool find_mlp(enum plec_gguf_family *family, enum plec_gguf_part *part,
                     struct plec_view stem) {
    for (unsigned f = 0; f < PLEC_GGUF_N_FAMILIES; f++)
        for (unsigned p = 0; p < PLEC_GGUF_N_PARTS; p++)
            if (plec_view_is(stem, stems[f][p])) {
                *family = (enum plec_gguf_family)f;
                *part = (enum plec_gguf_part)p;
                return true;
            }
    return false;
}

/* -- one tensor ------------------------------------------------------------------------------- */

static void put(const struct plec_gguf_tensor **place, struct plec_gguf_layer *layer,
                const struct plec_gguf_tensor *tensor) {
    if (*place == NULL)
        *place = tensor;
    else if (layer->twice == NULL)
        layer->twice = tensor;
}

static void keep_unread(struct plec_gguf_layer *layer, const struct plec_gguf_tensor *tensor) {
    if (layer->unread == NULL) layer->unread = tensor;
}

static void place_mlp(struct plec_gguf_layer *layer, const struct plec_gguf_tensor *tensor,
                      enum plec_gguf_family family, enum plec_gguf_part part,
                      struct plec_view tail) {
    uint32_t expert;
    enum plec_gguf_kind kind = kind_of(tail);
    if (kind < PLEC_GGUF_N_KINDS) {
        put(&layer->mlp[family][part][kind], layer, tensor);
    } else if (family == PLEC_GGUF_DENSE && part != PLEC_GGUF_GATE_UP &&
               plec_gguf_take_number(&expert, &tail)) {
        if (plec_view_is(tail, "weight"))
            layer->n_per_expert++;
        else if (!is_input_scale(tail))
            keep_unread(layer, tensor);
    }
}

/* Everything of a block that is no matrix of an MLP. */
static void place_other(struct plec_gguf_layer *layer, const struct plec_gguf_tensor *tensor,
                        struct plec_view stem, struct plec_view tail) {
    bool weight = plec_view_is(tail, "weight");
    if (plec_view_is(stem, "ffn_gate_inp")) {
        if (weight) put(&layer->router, layer, tensor);
        if (plec_view_is(tail, "bias")) put(&layer->router_bias, layer, tensor);
        if (kind_of(tail) == PLEC_GGUF_SCALE) put(&layer->router_scale, layer, tensor);
    } else if (plec_view_is(stem, "exp_probs_b")) {
        if (tail.size == 0 || plec_view_is(tail, "bias") || weight)
            put(&layer->selection_bias, layer, tensor);
    } else if (plec_view_is(stem, "ffn_norm") && weight) {
        put(&layer->input_norm, layer, tensor);
    } else if (plec_view_is(stem, "ffn_gate_inp_shexp") && weight) {
        put(&layer->shared_gate, layer, tensor);
    } else if (plec_view_is(stem, "ffn_latent_down") && weight) {
        put(&layer->latent_down, layer, tensor);
    } else if (plec_view_is(stem, "ffn_latent_up") && weight) {
        put(&layer->latent_up, layer, tensor);
    } else if (plec_view_is(stem, "ffn_gate_tid2eid")) {
        put(&layer->token_table, layer, tensor);
    } else if (plec_view_ends(stem, "_chexps")) {
        if (layer->chunk == NULL) layer->chunk = tensor;
    } else if (is_input_scale(tail)) {
        return;
    } else if (plec_view_is(stem, "ffn_gate_inp_shexp") || plec_view_starts(stem, "ffn_latent_") ||
               plec_view_is(stem, "ffn_act") || plec_view_is(stem, "ffn_sub_norm")) {
        keep_unread(layer, tensor);
    }
}

void plec_gguf_layer_find(struct plec_gguf_layer *out, const struct plec_gguf_model *model,
                          const struct plec_gguf_block *block) {
    *out = (struct plec_gguf_layer){.model = model, .block = block};
    for (uint32_t i = 0; i < block->n_names; i++) {
        const struct plec_gguf_tensor *tensor =
            model->set->tensors[model->members[block->first + i]];
        uint32_t number;
        struct plec_view rest, tail;
        enum plec_gguf_family family;
        enum plec_gguf_part part;
        if (!plec_gguf_block_name(&number, &rest, tensor->name)) continue;
        struct plec_view stem = take_stem(&tail, rest);
        if (find_mlp(&family, &part, stem))
            place_mlp(out, tensor, family, part, tail);
        else
            place_other(out, tensor, stem, tail);
    }
}

/* -- what it adds up to ----------------------------------------------------------------------- */

bool plec_gguf_layer_has(const struct plec_gguf_layer *layer, enum plec_gguf_family family) {
    for (unsigned part = 0; part < PLEC_GGUF_N_PARTS; part++)
        if (layer->mlp[family][part][PLEC_GGUF_WEIGHT] != NULL) return true;
    return false;
}

bool plec_gguf_layer_has_experts(const struct plec_gguf_layer *layer) {
    return plec_gguf_layer_has(layer, PLEC_GGUF_ROUTED) || layer->n_per_expert > 0 ||
           layer->router != NULL;
}

bool plec_gguf_layer_single(struct plec_gguf_single *out, const struct plec_gguf_layer *layer,
                            uint32_t *at) {
    const struct plec_gguf_model *model = layer->model;
    while (layer->n_per_expert > 0 && *at < layer->block->n_names) {
        uint32_t number;
        struct plec_view rest, tail;
        enum plec_gguf_family family;
        out->tensor = model->set->tensors[model->members[layer->block->first + (*at)++]];
        if (!plec_gguf_block_name(&number, &rest, out->tensor->name)) continue;
        struct plec_view stem = take_stem(&tail, rest);
        if (find_mlp(&family, &out->part, stem) && family == PLEC_GGUF_DENSE &&
            out->part != PLEC_GGUF_GATE_UP && plec_gguf_take_number(&out->expert, &tail) &&
            plec_view_is(tail, "weight"))
            return true;
    }
    return false;
}

uint64_t plec_gguf_layer_hidden_size(const struct plec_gguf_layer *layer) {
    enum plec_gguf_family family = layer->block->dense ? PLEC_GGUF_DENSE : PLEC_GGUF_ROUTED;
    if (layer->router != NULL) return layer->router->ne[0];
    if (layer->latent_down != NULL) return layer->latent_down->ne[0];
    for (unsigned part = 0; part < PLEC_GGUF_DOWN; part++)
        if (layer->mlp[family][part][PLEC_GGUF_WEIGHT] != NULL)
            return layer->mlp[family][part][PLEC_GGUF_WEIGHT]->ne[0];
    return 0;
}

/* One more than the largest number among the tensors of single experts. */
static uint64_t largest_expert(const struct plec_gguf_layer *layer) {
    struct plec_gguf_single one;
    uint64_t n = 0;
    for (uint32_t i = 0; plec_gguf_layer_single(&one, layer, &i);)
        if ((uint64_t)one.expert + 1 > n) n = (uint64_t)one.expert + 1;
    return n;
}

uint64_t plec_gguf_layer_n_experts(const struct plec_gguf_layer *layer) {
    if (layer->router != NULL) return layer->router->ne[1];
    for (unsigned part = PLEC_GGUF_N_PARTS; part-- > 0;) {
        const struct plec_gguf_tensor *tensor =
            layer->mlp[PLEC_GGUF_ROUTED][part][PLEC_GGUF_WEIGHT];
        if (tensor != NULL) return tensor->ne[2];
    }
    return largest_expert(layer);
}

enum plec_status plec_gguf_layer_per_expert(const struct plec_gguf_tensor **each[PLEC_GGUF_N_PARTS],
                                            const struct plec_gguf_layer *layer, uint32_t n_experts,
                                            struct plec_error *err) {
    struct plec_gguf_single one;
    for (uint32_t i = 0; plec_gguf_layer_single(&one, layer, &i);) {
        char name[PLEC_VIEW_TEXT_MAX];
        if (one.expert >= n_experts)
            return plec_fail(err, PLEC_MALFORMED, "ExpertOutOfRange",
                             "tensor \"%s\": expert %u of %u",
                             plec_view_text(one.tensor->name, name), one.expert, n_experts);
        each[one.part][one.expert] = one.tensor;
    }
    return PLEC_OK;
}
