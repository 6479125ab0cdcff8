#include "host/gguf_view.h"

#include <string.h>

#include "host/gguf_bank.h"
#include "host/gguf_bind.h"

const char *plec_gguf_layout_name(enum plec_gguf_layout layout) {
    switch (layout) {
    case PLEC_GGUF_SEPARATE: return "separate";
    case PLEC_GGUF_FUSED: return "fused";
    case PLEC_GGUF_NO_GATE: return "no gate";
    case PLEC_GGUF_PER_EXPERT: return "a tensor for each expert";
    }
    return "unknown";
}

/* Sums of what a file says stop at the largest number rather than wrap. */
static void add(uint64_t *sum, uint64_t value) {
    if (__builtin_add_overflow(*sum, value, sum)) *sum = UINT64_MAX;
}

/* value / whole * part without overflow. */
static uint64_t share(uint64_t value, uint64_t part, uint64_t whole) {
    if (whole == 0) return 0;
    return value / whole * part + value % whole * part / whole;
}

/* -- types and layout ------------------------------------------------------------------------- */

static int64_t type_of(const struct plec_gguf_layer *layer, enum plec_gguf_family family,
                       enum plec_gguf_part part) {
    const struct plec_gguf_tensor *tensor = layer->mlp[family][part][PLEC_GGUF_WEIGHT];
    return tensor != NULL ? (int64_t)tensor->type : PLEC_GGUF_NO_TYPE;
}

static struct plec_gguf_types types_of(const struct plec_gguf_layer *layer,
                                       enum plec_gguf_family family) {
    struct plec_gguf_types types = {type_of(layer, family, PLEC_GGUF_GATE),
                                    type_of(layer, family, PLEC_GGUF_UP),
                                    type_of(layer, family, PLEC_GGUF_DOWN)};
    if (types.gate == PLEC_GGUF_NO_TYPE) types.gate = type_of(layer, family, PLEC_GGUF_GATE_UP);
    return types;
}

static enum plec_gguf_layout layout_of(const struct plec_gguf_layer *layer,
                                       enum plec_gguf_family family) {
    const struct plec_gguf_tensor *up = layer->mlp[family][PLEC_GGUF_UP][PLEC_GGUF_WEIGHT];
    const struct plec_gguf_tensor *down = layer->mlp[family][PLEC_GGUF_DOWN][PLEC_GGUF_WEIGHT];
    if (family == PLEC_GGUF_ROUTED && layer->n_per_expert > 0) return PLEC_GGUF_PER_EXPERT;
    if (layer->mlp[family][PLEC_GGUF_GATE_UP][PLEC_GGUF_WEIGHT] != NULL) return PLEC_GGUF_FUSED;
    if (layer->mlp[family][PLEC_GGUF_GATE][PLEC_GGUF_WEIGHT] != NULL) return PLEC_GGUF_SEPARATE;
    if (family == PLEC_GGUF_DENSE && up != NULL && down != NULL && up->ne[1] / 2 == down->ne[0] &&
        up->ne[1] % 2 == 0)
        return PLEC_GGUF_FUSED;
    return PLEC_GGUF_NO_GATE;
}

static int64_t join_types(int64_t known, uint32_t type) {
    if (known == PLEC_GGUF_NO_TYPE || known == (int64_t)type) return (int64_t)type;
    return PLEC_GGUF_MIXED_TYPES;
}

/* -- bytes ------------------------------------------------------------------------------------ */

/* What the tensors of one kind of expert come to. */
struct sums {
    uint64_t n_bytes, n_weights;
};

static void add_tensor(struct sums *sums, const struct plec_gguf_tensor *tensor) {
    add(&sums->n_bytes, tensor->n_bytes);
    add(&sums->n_weights, tensor->n_elements);
}

static struct sums sum_family(const struct plec_gguf_layer *layer, enum plec_gguf_family family) {
    struct sums sums = {0, 0};
    for (unsigned part = 0; part < PLEC_GGUF_N_PARTS; part++)
        for (unsigned kind = 0; kind < PLEC_GGUF_N_KINDS; kind++)
            if (layer->mlp[family][part][kind] != NULL)
                add_tensor(&sums, layer->mlp[family][part][kind]);
    return sums;
}

/* The matrices of experts that have tensors of their own: bytes, types, and the width by one. */
static struct sums view_single_experts(struct plec_gguf_layer_view *out,
                                       const struct plec_gguf_layer *layer) {
    struct sums sums = {0, 0};
    struct plec_gguf_single one;
    for (uint32_t i = 0; plec_gguf_layer_single(&one, layer, &i);) {
        int64_t *type = one.part == PLEC_GGUF_GATE ? &out->types.gate
                        : one.part == PLEC_GGUF_UP ? &out->types.up
                                                   : &out->types.down;
        *type = join_types(*type, one.tensor->type);
        if (one.part == PLEC_GGUF_UP) {
            out->inner = one.tensor->ne[1];
            if (out->hidden == 0) out->hidden = one.tensor->ne[0];
        }
        add_tensor(&sums, one.tensor);
    }
    return sums;
}

static struct sums sum_block(const struct plec_gguf_layer *layer) {
    const struct plec_gguf_model *model = layer->model;
    struct sums sums = {0, 0};
    for (uint32_t i = 0; i < layer->block->n_names; i++)
        add_tensor(&sums, model->set->tensors[model->members[layer->block->first + i]]);
    return sums;
}

/* -- a layer ---------------------------------------------------------------------------------- */

static bool has_kind(const struct plec_gguf_layer *layer, enum plec_gguf_family family,
                     enum plec_gguf_kind kind) {
    for (unsigned part = 0; part < PLEC_GGUF_N_PARTS; part++)
        if (layer->mlp[family][part][kind] != NULL) return true;
    return false;
}

static void view_extras(struct plec_gguf_layer_view *out, const struct plec_gguf_layer *layer,
                        enum plec_gguf_family family) {
    out->expert_biases = has_kind(layer, family, PLEC_GGUF_BIAS);
    out->expert_scales = has_kind(layer, family, PLEC_GGUF_SCALE);
    if (out->dense) return;
    out->router = layer->router != NULL;
    out->router_bias = layer->router_bias != NULL;
    out->selection_bias = layer->selection_bias != NULL;
    out->shared_gate = layer->shared_gate != NULL;
    out->token_table = layer->token_table != NULL;
    out->branch = plec_gguf_layer_has(layer, PLEC_GGUF_DENSE);
    if (layer->latent_down != NULL) out->latent = layer->latent_down->ne[1];
    if (plec_gguf_layer_has(layer, PLEC_GGUF_SHARED)) {
        out->shared_inner = plec_gguf_bank_inner(layer, PLEC_GGUF_SHARED);
        out->shared_types = types_of(layer, PLEC_GGUF_SHARED);
    }
}

static void view_bytes(struct plec_gguf_layer_view *out, const struct plec_gguf_layer *layer,
                       struct sums routed) {
    struct sums block = sum_block(layer);
    uint64_t n = out->n_experts, k = out->top_k < n ? out->top_k : n;
    out->layer_bytes = block.n_bytes;
    out->n_weights = block.n_weights;
    out->routed_bytes = out->dense ? 0 : routed.n_bytes;
    out->expert_bytes = n > 0 ? routed.n_bytes / n : 0;
    out->touched_bytes = block.n_bytes - routed.n_bytes + share(routed.n_bytes, k, n);
    out->n_active = block.n_weights - routed.n_weights + share(routed.n_weights, k, n);
    out->routed_weights = out->dense ? 0 : routed.n_weights;
}

/* Binding is the judge; what it says of the layer's number is known already. */
static void judge(struct plec_gguf_layer_view *out, struct plec_gguf_model *model, uint32_t i) {
    struct plec_bound_layer bound;
    memset(&bound, 0, sizeof bound);
    out->converts = plec_gguf_bind(&bound, model, i, &out->why) == PLEC_OK;
    plec_bound_layer_close(&bound);
}

void plec_gguf_view_layer(struct plec_gguf_layer_view *out, struct plec_gguf_model *model,
                          uint32_t i) {
    static const struct plec_gguf_types none = {PLEC_GGUF_NO_TYPE, PLEC_GGUF_NO_TYPE,
                                                PLEC_GGUF_NO_TYPE};
    const struct plec_gguf_block *block = &model->blocks[i];
    enum plec_gguf_family family = block->dense ? PLEC_GGUF_DENSE : PLEC_GGUF_ROUTED;
    struct plec_gguf_layer layer;
    plec_gguf_layer_find(&layer, model, block);
    *out = (struct plec_gguf_layer_view){.number = block->number,
                                         .dense = block->dense,
                                         .n_experts = 1,
                                         .top_k = 1,
                                         .types = types_of(&layer, family),
                                         .shared_types = none,
                                         .layout = layout_of(&layer, family),
                                         .hidden = plec_gguf_layer_hidden_size(&layer),
                                         .inner = plec_gguf_bank_inner(&layer, family)};
    if (!block->dense) out->n_experts = plec_gguf_layer_n_experts(&layer);
    uint32_t n = out->n_experts > PLEC_GGUF_MAX_EXPERTS ? 0 : (uint32_t)out->n_experts;
    (void)!plec_gguf_model_resolve(&out->values, model, block->number, block->dense ? 0 : n, NULL);
    if (!block->dense) out->top_k = out->values.top_k.value;
    view_extras(out, &layer, family);
    struct sums routed = sum_family(&layer, family);
    if (out->layout == PLEC_GGUF_PER_EXPERT) {
        struct sums single = view_single_experts(out, &layer);
        add(&routed.n_bytes, single.n_bytes);
        add(&routed.n_weights, single.n_weights);
    }
    view_bytes(out, &layer, routed);
    judge(out, model, i);
}

/* -- the model -------------------------------------------------------------------------------- */

/* What a token touches of a tensor outside the blocks that are viewed: one row of an embedding. */
static struct sums touched(const struct plec_gguf_model *model,
                           const struct plec_gguf_tensor *tensor) {
    struct sums sums = {tensor->n_bytes, tensor->n_elements};
    bool own_output = plec_gguf_set_find(model->set, plec_view_of("output.weight")) != NULL;
    if (!plec_view_is(tensor->name, "token_embd.weight") || !own_output) return sums;
    sums.n_bytes = tensor->ne[1] > 0 ? tensor->n_bytes / tensor->ne[1] : 0;
    sums.n_weights = tensor->ne[0];
    return sums;
}

static bool in_viewed_block(const struct plec_gguf_model *model, uint32_t number,
                            struct plec_view rest) {
    if (!plec_gguf_is_feed_forward(rest)) return false;
    uint32_t low = 0, high = model->n_blocks;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (model->blocks[middle].number < number)
            low = middle + 1;
        else
            high = middle;
    }
    return low < model->n_blocks && model->blocks[low].number == number;
}

void plec_gguf_totals_add_layer(struct plec_gguf_totals *totals,
                                const struct plec_gguf_layer_view *layer) {
    totals->n_moe += !layer->dense;
    totals->n_dense += layer->dense;
    totals->n_converting += layer->converts;
    add(&totals->routed_bytes, layer->routed_bytes);
    add(&totals->routed_weights, layer->routed_weights);
    add(&totals->touched_bytes, layer->touched_bytes);
    add(&totals->n_active, layer->n_active);
}

void plec_gguf_totals_add_rest(struct plec_gguf_totals *totals,
                               const struct plec_gguf_model *model) {
    for (uint32_t i = 0; i < model->set->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = model->set->tensors[i];
        uint32_t number = 0;
        struct plec_view rest;
        bool of_block = plec_gguf_block_name(&number, &rest, tensor->name);
        add(&totals->n_bytes, tensor->n_bytes);
        add(&totals->n_weights, tensor->n_elements);
        if (of_block && (number >= model->first_head || in_viewed_block(model, number, rest)))
            continue;
        struct sums sums = touched(model, tensor);
        add(&totals->touched_bytes, sums.n_bytes);
        add(&totals->n_active, sums.n_weights);
    }
}
