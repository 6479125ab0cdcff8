#include "host/gguf_bank.h"

#include <math.h>
#include <string.h>

#include "host/gguf_tensor.h"

/* A bank being built. */
struct building {
    struct plec_bank *bank;
    struct plec_entry *entries; /* [n_entries] */
    struct plec_arena *arena;
    const struct plec_gguf_layer *layer;
    const struct plec_gguf_bank_request *request;
    const struct plec_gguf_tensor *const (*tensors)[PLEC_GGUF_N_KINDS]; /* [PLEC_GGUF_N_PARTS] */
    const struct plec_gguf_tensor *fused; /* NULL: gate and up are tensors of their own */
    const struct plec_gguf_tensor *fused_bias, *fused_scale;
    struct plec_error *err;
};

static const struct plec_gguf_tensor *tensor_of(const struct building *b, enum plec_gguf_part part,
                                                enum plec_gguf_kind kind) {
    return b->tensors[part][kind];
}

static enum plec_status missing(const struct building *b, enum plec_gguf_part part,
                                const char *tail) {
    return plec_fail(b->err, PLEC_MISSING, "MissingTensor", "%s.%s.%s is not in the file",
                     b->layer->block->prefix, plec_gguf_stem(b->request->family, part), tail);
}

static enum plec_status unexpected(const struct building *b, const struct plec_gguf_tensor *tensor,
                                   const char *why) {
    char name[PLEC_VIEW_TEXT_MAX];
    return plec_fail(b->err, PLEC_MALFORMED, "UnexpectedTensor", "tensor \"%s\": %s",
                     plec_view_text(tensor->name, name), why);
}

/* -- which tensors make the bank -------------------------------------------------------------- */

/* Whether the up tensor holds the gate's rows as well. */
static bool up_is_double(const struct building *b) {
    const struct plec_gguf_tensor *up = tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_WEIGHT);
    const struct plec_gguf_tensor *down = tensor_of(b, PLEC_GGUF_DOWN, PLEC_GGUF_WEIGHT);
    return b->request->gate == PLEC_GGUF_GATE_OR_DOUBLE && up != NULL && down != NULL &&
           tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_WEIGHT) == NULL && up->ne[1] % 2 == 0 &&
           up->ne[1] / 2 == down->ne[0];
}

static enum plec_status choose_fused(struct building *b) {
    enum plec_gguf_part part = up_is_double(b) ? PLEC_GGUF_UP : PLEC_GGUF_GATE_UP;
    b->fused = tensor_of(b, part, PLEC_GGUF_WEIGHT);
    if (b->fused == NULL) return PLEC_OK;
    b->fused_bias = tensor_of(b, part, PLEC_GGUF_BIAS);
    b->fused_scale = tensor_of(b, part, PLEC_GGUF_SCALE);
    if (part == PLEC_GGUF_UP) return PLEC_OK;
    const struct plec_gguf_tensor *other = tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_WEIGHT);
    if (other == NULL) other = tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_WEIGHT);
    if (other != NULL) return unexpected(b, other, "the block has a fused gate-and-up tensor too");
    return PLEC_OK;
}

static enum plec_status check_gate(const struct building *b) {
    const struct plec_gguf_tensor *gate =
        b->fused != NULL ? b->fused : tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_WEIGHT);
    if (b->request->gate == PLEC_GGUF_GATE_NEVER && gate != NULL)
        return unexpected(b, gate, "the architecture's MLP has no gate");
    if (b->request->gate == PLEC_GGUF_GATE_ALWAYS && gate == NULL)
        return missing(b, PLEC_GGUF_GATE, "weight");
    return PLEC_OK;
}

static enum plec_status choose_tensors(struct building *b) {
    enum plec_status status = choose_fused(b);
    if (status == PLEC_OK) status = check_gate(b);
    if (status != PLEC_OK) return status;
    if (b->fused == NULL && tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_WEIGHT) == NULL)
        return missing(b, PLEC_GGUF_UP, "weight");
    if (tensor_of(b, PLEC_GGUF_DOWN, PLEC_GGUF_WEIGHT) == NULL)
        return missing(b, PLEC_GGUF_DOWN, "weight");
    return PLEC_OK;
}

/* -- matrices --------------------------------------------------------------------------------- */

/* Rows [first, first + rows) of each expert's matrix as an operand. */
static enum plec_status put_rows(const struct building *b, enum plec_operand_id id,
                                 const struct plec_gguf_tensor *tensor, uint32_t first,
                                 uint32_t rows) {
    struct plec_matrix matrix;
    enum plec_status status = plec_gguf_matrix(&matrix, b->layer->model, tensor, b->err);
    if (status != PLEC_OK) return status;
    uint64_t stride = plec_gguf_matrix_bytes(tensor), row_bytes = stride / matrix.rows;
    b->bank->operands[id] = (struct plec_operand){matrix.format, rows, matrix.cols};
    for (uint32_t e = 0; e < b->bank->n_entries; e++)
        b->entries[e].values[id] = matrix.values + e * stride + first * row_bytes;
    return PLEC_OK;
}

static enum plec_status put_matrix(const struct building *b, enum plec_operand_id id,
                                   const struct plec_gguf_tensor *tensor, uint32_t cols,
                                   uint32_t rows) {
    enum plec_status status =
        plec_gguf_expect_matrix(tensor, cols, rows, b->bank->n_entries, b->err);
    return status == PLEC_OK ? put_rows(b, id, tensor, 0, rows) : status;
}

/* Biases of its own for either half of a fused matrix. */
static bool comes_apart(const struct building *b) {
    return b->fused != NULL && tensor_of(b, PLEC_GGUF_GATE_UP, PLEC_GGUF_WEIGHT) == b->fused &&
           (tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_BIAS) != NULL ||
            tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_BIAS) != NULL);
}

static enum plec_status put_fused(const struct building *b) {
    uint32_t inner = b->bank->intermediate_dim;
    enum plec_status status = plec_gguf_expect_matrix(
        b->fused, b->bank->input_dim, 2 * (uint64_t)inner, b->bank->n_entries, b->err);
    if (status != PLEC_OK) return status;
    if (!comes_apart(b)) {
        b->bank->fusion = PLEC_FUSED_GATE_FIRST;
        return put_rows(b, PLEC_GATE, b->fused, 0, 2 * inner);
    }
    if (b->fused_bias != NULL)
        return unexpected(b, b->fused_bias, "gate or up have biases of their own too");
    status = put_rows(b, PLEC_GATE, b->fused, 0, inner);
    return status == PLEC_OK ? put_rows(b, PLEC_UP, b->fused, inner, inner) : status;
}

static enum plec_status put_matrices(const struct building *b) {
    const struct plec_gguf_tensor *gate = tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_WEIGHT);
    uint32_t input = b->bank->input_dim, inner = b->bank->intermediate_dim;
    enum plec_status status = PLEC_OK;
    if (b->fused != NULL) {
        status = put_fused(b);
    } else {
        if (gate != NULL) status = put_matrix(b, PLEC_GATE, gate, input, inner);
        if (status == PLEC_OK)
            status =
                put_matrix(b, PLEC_UP, tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_WEIGHT), input, inner);
    }
    if (status != PLEC_OK) return status;
    return put_matrix(b, PLEC_DOWN, tensor_of(b, PLEC_GGUF_DOWN, PLEC_GGUF_WEIGHT), inner,
                      b->bank->output_dim);
}

/* -- biases ----------------------------------------------------------------------------------- */

/* A bias is [n] for each expert, whatever dims of 1 stand between. */
static enum plec_status put_bias(const struct building *b, enum plec_operand_id id,
                                 const struct plec_gguf_tensor *tensor, uint32_t n) {
    struct plec_matrix matrix;
    uint64_t n_bytes;
    uint16_t format;
    if (tensor == NULL) return PLEC_OK;
    enum plec_status status =
        plec_gguf_expect_vector(tensor, n, b->bank->n_entries, "output", b->err);
    if (status == PLEC_OK) status = plec_gguf_matrix(&matrix, b->layer->model, tensor, b->err);
    if (status != PLEC_OK) return status;
    format = matrix.format;
    status = plec_format_size(&n_bytes, NULL, format, 1, n, b->err);
    if (status != PLEC_OK) return status;
    b->bank->operands[id] = (struct plec_operand){format, 1, n};
    for (uint32_t e = 0; e < b->bank->n_entries; e++)
        b->entries[e].values[id] = matrix.values + e * n_bytes;
    return PLEC_OK;
}

static enum plec_status put_biases(const struct building *b) {
    uint32_t inner = b->bank->intermediate_dim;
    enum plec_status status = PLEC_OK;
    if (b->fused_bias != NULL) {
        status = put_bias(b, PLEC_GATE_BIAS, b->fused_bias, 2 * inner);
    } else {
        status = put_bias(b, PLEC_GATE_BIAS, tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_BIAS), inner);
        if (status == PLEC_OK)
            status = put_bias(b, PLEC_UP_BIAS, tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_BIAS), inner);
    }
    if (status != PLEC_OK) return status;
    return put_bias(b, PLEC_DOWN_BIAS, tensor_of(b, PLEC_GGUF_DOWN, PLEC_GGUF_BIAS),
                    b->bank->output_dim);
}

static enum plec_status check_biases(const struct building *b) {
    const struct plec_operand *operands = b->bank->operands;
    bool gate = operands[PLEC_GATE].rows != 0, fused = b->bank->fusion != PLEC_NOT_FUSED;
    if (operands[PLEC_GATE_BIAS].rows != 0 && !gate)
        return unexpected(b, tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_BIAS),
                          "a bias without its matrix");
    if (fused && operands[PLEC_GATE_BIAS].rows != 0 && b->fused_bias == NULL)
        return unexpected(b, tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_BIAS),
                          "a bias of the gate alone, whose rows stand in the up tensor");
    if (!b->request->biases_required) return PLEC_OK;
    if (operands[PLEC_GATE_BIAS].rows == 0 && gate)
        return missing(b, fused ? PLEC_GGUF_GATE_UP : PLEC_GGUF_GATE, "bias");
    if (operands[PLEC_UP_BIAS].rows == 0 && !fused) return missing(b, PLEC_GGUF_UP, "bias");
    if (operands[PLEC_DOWN_BIAS].rows == 0) return missing(b, PLEC_GGUF_DOWN, "bias");
    return PLEC_OK;
}

/* -- factors ---------------------------------------------------------------------------------- */

static enum plec_status read_scale(const float **out, const struct building *b,
                                   const struct plec_gguf_tensor *tensor) {
    if (tensor == NULL) return PLEC_OK;
    enum plec_status status =
        plec_gguf_expect_vector(tensor, b->bank->n_entries, 1, "experts", b->err);
    if (status == PLEC_OK)
        status = plec_gguf_tensor_f32(out, b->arena, b->layer->model, tensor, b->err);
    for (uint32_t e = 0; status == PLEC_OK && e < b->bank->n_entries; e++)
        if ((*out)[e] == 0 || !isfinite((*out)[e])) {
            char name[PLEC_VIEW_TEXT_MAX];
            return plec_fail(b->err, PLEC_MALFORMED, "BadScale",
                             "tensor \"%s\": expert %u: the factor is %g; wanted a finite number "
                             "other than 0",
                             plec_view_text(tensor->name, name), e, (double)(*out)[e]);
        }
    return status;
}

/* One factor for both halves of a fused matrix stands with it or, as llama.cpp reads it, with up.
 * Two that differ leave open which half is whose. */
static enum plec_status read_fused_scales(const struct building *b) {
    struct plec_bank *bank = b->bank;
    const struct plec_gguf_tensor *gate = tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_SCALE);
    const struct plec_gguf_tensor *up = tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_SCALE);
    const struct plec_gguf_tensor *both = b->fused_scale != NULL ? b->fused_scale : up;
    if (both == NULL && gate != NULL)
        return unexpected(b, gate, "a factor for the gate half of a fused tensor alone");
    enum plec_status status = read_scale(&bank->up_scale, b, both);
    bank->gate_scale = bank->up_scale;
    const struct plec_gguf_tensor *others[] = {gate, both != up ? up : NULL};
    for (unsigned i = 0; status == PLEC_OK && i < 2; i++) {
        const float *again = NULL;
        status = read_scale(&again, b, others[i]);
        if (status == PLEC_OK && again != NULL &&
            memcmp(again, bank->up_scale, bank->n_entries * sizeof *again) != 0)
            return unexpected(b, others[i], "its factors differ from the fused tensor's");
    }
    return status;
}

static enum plec_status read_scales(const struct building *b) {
    struct plec_bank *bank = b->bank;
    const struct plec_gguf_tensor *gate = tensor_of(b, PLEC_GGUF_GATE, PLEC_GGUF_SCALE);
    enum plec_status status;
    if (b->fused != NULL) {
        status = read_fused_scales(b);
    } else {
        if (gate != NULL && bank->operands[PLEC_GATE].rows == 0)
            return unexpected(b, gate, "a factor without its matrix");
        status = read_scale(&bank->gate_scale, b, gate);
        if (status == PLEC_OK)
            status = read_scale(&bank->up_scale, b, tensor_of(b, PLEC_GGUF_UP, PLEC_GGUF_SCALE));
    }
    if (status != PLEC_OK) return status;
    return read_scale(&bank->down_scale, b, tensor_of(b, PLEC_GGUF_DOWN, PLEC_GGUF_SCALE));
}

/* -- the bank --------------------------------------------------------------------------------- */

uint64_t plec_gguf_bank_inner(const struct plec_gguf_layer *layer, enum plec_gguf_family family) {
    const struct plec_gguf_tensor *const(*tensors)[PLEC_GGUF_N_KINDS] = layer->mlp[family];
    if (tensors[PLEC_GGUF_GATE][PLEC_GGUF_WEIGHT] != NULL)
        return tensors[PLEC_GGUF_GATE][PLEC_GGUF_WEIGHT]->ne[1];
    if (tensors[PLEC_GGUF_GATE_UP][PLEC_GGUF_WEIGHT] != NULL)
        return tensors[PLEC_GGUF_GATE_UP][PLEC_GGUF_WEIGHT]->ne[1] / 2;
    if (family == PLEC_GGUF_DENSE && tensors[PLEC_GGUF_DOWN][PLEC_GGUF_WEIGHT] != NULL)
        return tensors[PLEC_GGUF_DOWN][PLEC_GGUF_WEIGHT]->ne[0];
    if (tensors[PLEC_GGUF_UP][PLEC_GGUF_WEIGHT] != NULL)
        return tensors[PLEC_GGUF_UP][PLEC_GGUF_WEIGHT]->ne[1];
    return 0;
}

static enum plec_status build_merged(struct building *b) {
    enum plec_status status = choose_tensors(b);
    if (status != PLEC_OK) return status;
    uint64_t inner = plec_gguf_bank_inner(b->layer, b->request->family);
    /* A side beyond this is told by the shape or the bytes of the tensor that has it. */
    b->bank->intermediate_dim = inner > INT32_MAX ? INT32_MAX : (uint32_t)inner;
    status = put_matrices(b);
    if (status == PLEC_OK) status = put_biases(b);
    if (status == PLEC_OK) status = check_biases(b);
    return status == PLEC_OK ? read_scales(b) : status;
}

enum plec_status plec_gguf_bank_build(struct plec_bank *out, struct plec_arena *arena,
                                      const struct plec_gguf_layer *layer,
                                      const struct plec_gguf_bank_request *request,
                                      struct plec_error *err) {
    struct building b = {.bank = out,
                         .arena = arena,
                         .layer = layer,
                         .request = request,
                         .tensors = layer->mlp[request->family],
                         .err = err};
    *out = (struct plec_bank){.n_entries = request->n_entries,
                              .input_dim = request->input,
                              .output_dim = request->output};
    b.entries = plec_arena_alloc(arena, request->n_entries, sizeof *b.entries, err);
    if (b.entries == NULL) return PLEC_NO_MEMORY;
    out->entries = b.entries;
    if (request->family == PLEC_GGUF_ROUTED && layer->n_per_expert > 0)
        return plec_gguf_bank_per_expert(out, b.entries, arena, layer, request, err);
    return build_merged(&b);
}
