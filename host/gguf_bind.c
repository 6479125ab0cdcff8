#include "host/gguf_bind.h"

#include <string.h>

#include "host/gguf_bank.h"
#include "host/gguf_tensor.h"
#include "lyrw/gguf_type.h"

/* A block being bound. */
struct binding {
    struct plec_bound_layer *out;
    struct plec_gguf_model *model;
    struct plec_gguf_layer layer;
    struct plec_arch_layer values;
    struct plec_error *err;
};

static enum plec_status unexpected(const struct binding *b, const struct plec_gguf_tensor *tensor,
                                   const char *why) {
    char name[PLEC_VIEW_TEXT_MAX];
    return plec_fail(b->err, PLEC_MALFORMED, "UnexpectedTensor", "tensor \"%s\": %s",
                     plec_view_text(tensor->name, name), why);
}

static enum plec_status missing(const struct binding *b, const char *name, const char *why) {
    return plec_fail(b->err, PLEC_MISSING, "MissingTensor", "%s.%s is not in the file: %s",
                     b->layer.block->prefix, name, why);
}

/* -- what no layer may have ------------------------------------------------------------------- */

static enum plec_status check_names(const struct binding *b) {
    const struct plec_gguf_layer *layer = &b->layer;
    char name[PLEC_VIEW_TEXT_MAX];
    if (layer->chunk != NULL)
        return plec_fail(b->err, PLEC_UNSUPPORTED, "ChunkExperts",
                         "tensor \"%s\": chunk experts have no definition here",
                         plec_view_text(layer->chunk->name, name));
    if (layer->twice != NULL)
        return plec_fail(b->err, PLEC_MALFORMED, "DuplicateTensor",
                         "tensor \"%s\": a second tensor for the same place",
                         plec_view_text(layer->twice->name, name));
    if (layer->unread != NULL)
        return plec_fail(b->err, PLEC_UNSUPPORTED, "NoDefinition",
                         "tensor \"%s\" changes the result, and has no definition here",
                         plec_view_text(layer->unread->name, name));
    return PLEC_OK;
}

/* -- shapes and keys -------------------------------------------------------------------------- */

/* The first matrix of a family that reads its input; NULL. */
static const struct plec_gguf_tensor *first_of(const struct plec_gguf_layer *layer,
                                               enum plec_gguf_family family) {
    static const enum plec_gguf_part parts[] = {PLEC_GGUF_UP, PLEC_GGUF_GATE_UP, PLEC_GGUF_GATE};
    for (unsigned i = 0; i < sizeof parts / sizeof parts[0]; i++) {
        const struct plec_gguf_tensor *tensor = layer->mlp[family][parts[i]][PLEC_GGUF_WEIGHT];
        if (tensor != NULL) return tensor;
    }
    return NULL;
}

/* The first tensor that reads the layer's input. NULL without any. */
static const struct plec_gguf_tensor *find_reader(const struct plec_gguf_layer *layer) {
    if (layer->router != NULL) return layer->router;
    if (layer->latent_down != NULL) return layer->latent_down;
    return first_of(layer, layer->block->dense ? PLEC_GGUF_DENSE : PLEC_GGUF_ROUTED);
}

static enum plec_status contradicted(const struct binding *b, const char *key, uint64_t stated,
                                     uint64_t found, const char *what) {
    return plec_fail(b->err, PLEC_MALFORMED, "DimensionContradicted",
                     "key %s: %llu, but the tensors' %s is %llu", key, (unsigned long long)stated,
                     what, (unsigned long long)found);
}

static enum plec_status settle_hidden_size(const struct binding *b) {
    const struct plec_gguf_tensor *reader = find_reader(&b->layer);
    uint32_t stated = 0;
    bool said = plec_gguf_model_count(&stated, b->model, "embedding_length", 0) && stated != 0;
    if (reader == NULL && !said)
        return missing(b, b->layer.block->dense ? "ffn_up.weight" : "ffn_up_exps.weight",
                       "nothing reads the layer's input");
    uint64_t found = reader != NULL ? reader->ne[0] : stated;
    if (found == 0 || found > INT32_MAX)
        return plec_fail(b->err, PLEC_MALFORMED, "BadDim", "a hidden size of %llu",
                         (unsigned long long)found);
    if (said && stated != found) return contradicted(b, "embedding_length", stated, found, "input");
    b->out->layer.hidden_size = (uint32_t)found;
    return PLEC_OK;
}

/* Where no key names the experts' width it is feed_forward_length, or that shared out among the k
 * experts of a token. */
static enum plec_status check_width(const struct binding *b) {
    const struct plec_arch_layer *values = &b->values;
    uint64_t found = b->out->layer.routed.intermediate_dim, dense = values->dense_width.value;
    if (values->width.value != 0 && values->width.value != found)
        return contradicted(b, "expert_feed_forward_length", values->width.value, found,
                            "width of an expert");
    if (values->width.value != 0 || values->arch == NULL || dense == 0) return PLEC_OK;
    if (found != dense && found * values->top_k.value != dense)
        return contradicted(b, "feed_forward_length", dense, found, "width of an expert");
    return PLEC_OK;
}

static enum plec_status check_shared_width(const struct binding *b) {
    const struct plec_arch_layer *values = &b->values;
    uint64_t found = b->out->layer.shared.intermediate_dim, n = values->n_shared.value;
    uint64_t stated = values->shared_width.value;
    if (stated != 0 && stated != found && stated * n != found)
        return contradicted(b, "expert_shared_feed_forward_length", stated, found,
                            "width of the shared expert");
    if (stated != 0 || n == 0 || values->arch == NULL) return PLEC_OK;
    if (found != n * b->out->layer.routed.intermediate_dim && found != values->dense_width.value)
        return plec_fail(b->err, PLEC_MALFORMED, "DimensionContradicted",
                         "key expert_shared_count: %llu, but the shared expert is %llu wide, an "
                         "expert %u",
                         (unsigned long long)n, (unsigned long long)found,
                         b->out->layer.routed.intermediate_dim);
    return PLEC_OK;
}

/* -- arithmetic ------------------------------------------------------------------------------- */

enum plec_status plec_gguf_maths(struct plec_expert_maths *out, const struct plec_arch_maths *maths,
                                 struct plec_error *err) {
    const char *name = maths->activation.value;
    int activation = name != NULL ? plec_activation_by_name(name) : -1;
    if (activation < 0)
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownActivation", "activation %s",
                         name != NULL ? name : "not known");
    *out = (struct plec_expert_maths){.activation = (enum plec_activation)activation,
                                      .limit = maths->limit.value,
                                      .alpha = maths->alpha.value};
    return PLEC_OK;
}

static void tell_unscaled(const struct binding *b, const struct plec_bank *bank) {
    const float *scales[] = {bank->gate_scale, bank->up_scale, bank->down_scale};
    for (int id = 0; id < PLEC_N_MATRICES; id++)
        if (bank->operands[id].rows != 0 && bank->operands[id].format == PLEC_FORMAT_GGUF_NVFP4 &&
            scales[id] == NULL)
            plec_gguf_tell(b->model, PLEC_GGUF_TOLD_NO_SCALE,
                           "%s: nvfp4 without a .scale tensor: the factor is 1",
                           b->layer.block->prefix);
}

static enum plec_status build_bank(struct plec_bank *bank, const struct binding *b,
                                   const struct plec_gguf_bank_request *request,
                                   const struct plec_arch_maths *maths) {
    enum plec_status status =
        plec_gguf_bank_build(bank, &b->out->owned, &b->layer, request, b->err);
    if (status == PLEC_OK) status = plec_gguf_maths(&bank->maths, maths, b->err);
    if (status == PLEC_OK) tell_unscaled(b, bank);
    return status;
}

/* -- routed experts --------------------------------------------------------------------------- */

static enum plec_gguf_gate expert_gate(const struct plec_arch *arch) {
    if (arch == NULL) return PLEC_GGUF_GATE_AS_FOUND;
    return arch->no_gate ? PLEC_GGUF_GATE_NEVER : PLEC_GGUF_GATE_ALWAYS;
}

static enum plec_status bind_latent(const struct binding *b) {
    struct plec_layer *layer = &b->out->layer;
    const struct plec_gguf_tensor *down = b->layer.latent_down, *up = b->layer.latent_up;
    uint32_t stated = b->values.latent.value, hidden = layer->hidden_size;
    layer->routed.input_dim = hidden;
    if (down == NULL && up == NULL && stated == 0) return PLEC_OK;
    if (down == NULL) return missing(b, "ffn_latent_down.weight", "the experts' space is latent");
    if (up == NULL) return missing(b, "ffn_latent_up.weight", "the experts' space is latent");
    enum plec_status status = plec_gguf_expect_matrix(down, hidden, down->ne[1], 1, b->err);
    if (status == PLEC_OK) status = plec_gguf_matrix(&layer->latent_in, b->model, down, b->err);
    if (status != PLEC_OK) return status;
    if (stated != 0 && stated != layer->latent_in.rows)
        return contradicted(b, "moe_latent_size", stated, layer->latent_in.rows, "latent width");
    status = plec_gguf_expect_matrix(up, layer->latent_in.rows, hidden, 1, b->err);
    if (status == PLEC_OK) status = plec_gguf_matrix(&layer->latent_out, b->model, up, b->err);
    layer->routed.input_dim = layer->latent_in.rows;
    return status;
}

static enum plec_status bind_routed(const struct binding *b) {
    struct plec_layer *layer = &b->out->layer;
    enum plec_status status = bind_latent(b);
    if (status != PLEC_OK) return status;
    struct plec_gguf_bank_request request = {
        .family = PLEC_GGUF_ROUTED,
        .n_entries = b->values.n_experts.value,
        .input = layer->routed.input_dim,
        .output = layer->routed.input_dim,
        .gate = expert_gate(b->values.arch),
        .biases_required = b->values.arch != NULL && b->values.arch->biases,
    };
    status = build_bank(&layer->routed, b, &request, &b->values.expert);
    return status == PLEC_OK ? check_width(b) : status;
}

/* -- the shared expert ------------------------------------------------------------------------ */

static enum plec_status bind_shared_gate(const struct binding *b) {
    const struct plec_arch *arch = b->values.arch;
    struct plec_layer *layer = &b->out->layer;
    const struct plec_gguf_tensor *gate = b->layer.shared_gate;
    if (gate == NULL)
        return arch != NULL && arch->shared_gated
                   ? missing(b, "ffn_gate_inp_shexp.weight", "the shared expert is weighted by it")
                   : PLEC_OK;
    if (arch != NULL && !arch->shared_gated)
        return unexpected(b, gate, "the architecture's shared expert has no gate");
    enum plec_status status = plec_gguf_expect_vector(gate, layer->hidden_size, 1, "input", b->err);
    if (status == PLEC_OK) status = plec_gguf_matrix(&layer->shared_gate, b->model, gate, b->err);
    layer->shared_gate.rows = 1;
    layer->shared_gate.cols = layer->hidden_size;
    return status;
}

static enum plec_status check_shared(const struct binding *b, bool found) {
    const struct plec_arch_layer *values = &b->values;
    if (!found && values->shared == PLEC_ARCH_YES)
        return missing(b, "ffn_up_shexp.weight", "the architecture has a shared expert");
    if (!found && b->layer.shared_gate != NULL)
        return unexpected(b, b->layer.shared_gate, "a gate without a shared expert");
    if (!found) return PLEC_OK;
    const struct plec_gguf_tensor *tensor = first_of(&b->layer, PLEC_GGUF_SHARED);
    if (tensor == NULL) return PLEC_OK; /* the bank tells what is missing */
    if (values->shared == PLEC_ARCH_NO)
        return unexpected(b, tensor, "the architecture has no shared expert");
    if (values->n_shared.origin == PLEC_ARCH_IN_FILE && values->n_shared.value == 0 &&
        values->shared_width.value == 0)
        return unexpected(b, tensor, "key expert_shared_count says there is none");
    return PLEC_OK;
}

static enum plec_status bind_shared(const struct binding *b) {
    struct plec_layer *layer = &b->out->layer;
    bool found = plec_gguf_layer_has(&b->layer, PLEC_GGUF_SHARED);
    enum plec_status status = check_shared(b, found);
    if (status != PLEC_OK || !found) return status;
    struct plec_gguf_bank_request request = {.family = PLEC_GGUF_SHARED,
                                             .n_entries = 1,
                                             .input = layer->hidden_size,
                                             .output = layer->hidden_size,
                                             .gate = expert_gate(b->values.arch)};
    status = build_bank(&layer->shared, b, &request, &b->values.shared_expert);
    if (status == PLEC_OK) status = check_shared_width(b);
    return status == PLEC_OK ? bind_shared_gate(b) : status;
}

/* -- a dense MLP: a layer of its own, or a branch beside the experts --------------------------- */

static enum plec_gguf_gate dense_gate(const struct plec_arch *arch) {
    return arch != NULL && arch->dense_gate == PLEC_ARCH_DENSE_PLAIN ? PLEC_GGUF_GATE_NEVER
                                                                     : PLEC_GGUF_GATE_OR_DOUBLE;
}

static enum plec_status build_dense(struct plec_bank *bank, const struct binding *b) {
    uint32_t hidden = b->out->layer.hidden_size;
    struct plec_gguf_bank_request request = {.family = PLEC_GGUF_DENSE,
                                             .n_entries = 1,
                                             .input = hidden,
                                             .output = hidden,
                                             .gate = dense_gate(b->values.arch)};
    return build_bank(bank, b, &request, &b->values.dense);
}

static enum plec_status bind_branch(const struct binding *b) {
    const struct plec_arch *arch = b->values.arch;
    if (!plec_gguf_layer_has(&b->layer, PLEC_GGUF_DENSE)) return PLEC_OK;
    if (arch != NULL && arch->parallel == PLEC_ARCH_PARALLEL)
        return build_dense(&b->out->layer.dense, b);
    const struct plec_gguf_tensor *tensor = first_of(&b->layer, PLEC_GGUF_DENSE);
    if (tensor == NULL) tensor = b->layer.mlp[PLEC_GGUF_DENSE][PLEC_GGUF_DOWN][PLEC_GGUF_WEIGHT];
    if (arch != NULL && arch->parallel == PLEC_ARCH_NOT_PARALLEL)
        return unexpected(b, tensor, "the architecture has no dense branch beside the experts");
    char name[PLEC_VIEW_TEXT_MAX];
    plec_gguf_tell(b->model, PLEC_GGUF_TOLD_BRANCH,
                   "tensor \"%s\": a dense branch %s is left out; the output is the experts' alone",
                   plec_view_text(tensor->name, name),
                   arch != NULL ? "that reads another vector" : "of an unknown architecture");
    b->out->left_out = plec_arena_text(&b->out->owned, name, b->err);
    return b->out->left_out != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

static enum plec_status settle_factor(const struct binding *b) {
    struct plec_layer *layer = &b->out->layer;
    bool branch = layer->shared.n_entries > 0 || layer->dense.n_entries > 0;
    if (branch) {
        layer->out_scale = b->values.branch_factor.value;
    } else if (b->values.branch_factor.origin == PLEC_ARCH_BY_USER) {
        return plec_fail(b->err, PLEC_BAD_INPUT, "SettingUnused",
                         "factor: nothing runs beside the experts");
    }
    return PLEC_OK;
}

/* -- layers ----------------------------------------------------------------------------------- */

static void tell_architecture(const struct binding *b) {
    const struct plec_gguf_model *model = b->model;
    if (b->values.arch == NULL)
        plec_gguf_tell(b->model, PLEC_GGUF_TOLD_ARCHITECTURE,
                       "architecture \"%s\" is unknown: its keys and --set alone say what it "
                       "computes",
                       model->rules);
    else if (strcmp(model->rules, model->architecture) != 0)
        plec_gguf_tell(b->model, PLEC_GGUF_TOLD_ARCHITECTURE,
                       "taken as architecture %s (--as); the file says \"%s\"", model->rules,
                       model->architecture);
}

/* The tensors rule; keys that say otherwise are worth a word. */
static void tell_kind(const struct binding *b) {
    enum plec_arch_presence by_keys = b->values.experts;
    bool dense = b->layer.block->dense;
    if (b->values.arch == NULL || by_keys == PLEC_ARCH_OPTIONAL) return;
    if (dense == (by_keys == PLEC_ARCH_NO)) return;
    plec_gguf_tell(b->model, PLEC_GGUF_TOLD_KIND, "%s: %s by its tensors, though the keys say %s",
                   b->layer.block->prefix, dense ? "dense" : "has experts",
                   dense ? "experts" : "dense");
}

static enum plec_status bind_moe(const struct binding *b) {
    enum plec_status status = settle_hidden_size(b);
    if (status == PLEC_OK)
        status = plec_gguf_bind_router(b->out, b->model, &b->layer, &b->values, b->err);
    if (status == PLEC_OK) status = bind_routed(b);
    if (status == PLEC_OK) status = bind_shared(b);
    if (status == PLEC_OK) status = bind_branch(b);
    return status == PLEC_OK ? settle_factor(b) : status;
}

static enum plec_status bind_dense(const struct binding *b) {
    struct plec_bound_layer *out = b->out;
    enum plec_status status = settle_hidden_size(b);
    if (status == PLEC_OK) status = build_dense(&out->layer.routed, b);
    out->dense = true;
    out->layer.router = (struct plec_router){
        .n_experts = 1, .top_k = 1, .scale = 1.0, .input_dim = out->layer.hidden_size};
    return status;
}

static enum plec_status count_experts(uint32_t *out, const struct binding *b) {
    uint64_t n = b->layer.block->dense ? 0 : plec_gguf_layer_n_experts(&b->layer);
    *out = (uint32_t)n;
    if (n > PLEC_GGUF_MAX_EXPERTS || (n == 0 && !b->layer.block->dense))
        return plec_fail(b->err, PLEC_MALFORMED, "TooManyExperts",
                         "layer %u: %llu experts by its tensors, wanted 1 to %d",
                         b->layer.block->number, (unsigned long long)n, PLEC_GGUF_MAX_EXPERTS);
    return PLEC_OK;
}

/* Carried as it is; what cannot be read refuses nothing. */
static void carry_norm(const struct binding *b) {
    struct plec_matrix *norm = &b->out->input_norm;
    const struct plec_gguf_tensor *tensor = b->layer.input_norm;
    if (tensor == NULL || plec_gguf_matrix(norm, b->model, tensor, NULL) == PLEC_OK) return;
    memset(norm, 0, sizeof *norm);
}

enum plec_status plec_gguf_bind(struct plec_bound_layer *out, struct plec_gguf_model *model,
                                uint32_t i, struct plec_error *err) {
    struct binding b = {.out = out, .model = model, .err = err};
    uint32_t n_experts;
    plec_gguf_layer_find(&b.layer, model, &model->blocks[i]);
    enum plec_status status = count_experts(&n_experts, &b);
    if (status == PLEC_OK)
        status = plec_gguf_model_resolve(&b.values, model, b.layer.block->number, n_experts, err);
    if (status != PLEC_OK) return status;
    out->layer.out_scale = 1.0;
    tell_architecture(&b);
    tell_kind(&b);
    carry_norm(&b);
    status = check_names(&b);
    if (status == PLEC_OK) status = b.layer.block->dense ? bind_dense(&b) : bind_moe(&b);
    if (status != PLEC_OK) plec_error_context(err, "layer %u", b.layer.block->number);
    return status;
}

const char *plec_gguf_programme(const struct plec_gguf_layer *layer) {
    enum plec_gguf_family family = layer->block->dense ? PLEC_GGUF_DENSE : PLEC_GGUF_ROUTED;
    const struct plec_gguf_tensor *const(*mlp)[PLEC_GGUF_N_KINDS] = layer->mlp[family];
    bool latent = layer->latent_down != NULL && !layer->block->dense;
    bool gated = mlp[PLEC_GGUF_GATE][PLEC_GGUF_WEIGHT] != NULL ||
                 mlp[PLEC_GGUF_GATE_UP][PLEC_GGUF_WEIGHT] != NULL || layer->n_per_expert > 0;
    if (latent) return gated ? "latent-moe-v1" : "plectrum-latent-mlp-v1";
    return gated ? "gated-mlp-v1" : "plectrum-mlp-v1";
}
