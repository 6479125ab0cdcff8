/* Experts as they were written before they were merged: a tensor for each matrix of each. */
#include <stdio.h>
#include <string.h>

#include "host/gguf_bank.h"
#include "host/gguf_tensor.h"
#include "lyrw/gguf_type.h"

/* Text that is cut where it does not fit. */
struct text {
    char at[400];
    size_t n;
};

static void add(struct text *text, const char *format, unsigned number) {
    if (text->n >= sizeof text->at) return;
    int n = snprintf(text->at + text->n, sizeof text->at - text->n, format, number);
    if (n > 0) text->n += (size_t)n;
}

/* -- all there -------------------------------------------------------------------------------- */

enum { NAMED = 8 };

/* All that are missing: the first few by name, the rest by number. */
static enum plec_status check_complete(const struct plec_gguf_tensor *const *each,
                                       const struct plec_gguf_layer *layer,
                                       enum plec_gguf_part part, uint32_t n_experts,
                                       struct plec_error *err) {
    struct text text = {.n = 0};
    uint32_t n_missing = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        if (each[e] != NULL) continue;
        if (n_missing++ < NAMED) add(&text, n_missing == 1 ? "%u" : ", %u", e);
    }
    if (n_missing == 0) return PLEC_OK;
    return plec_fail(err, PLEC_MISSING, "MissingTensor",
                     "%s.%s.N.weight: %u of %u experts are not in the file: %s%s",
                     layer->block->prefix, plec_gguf_stem(PLEC_GGUF_DENSE, part), n_missing,
                     n_experts, text.at, n_missing > NAMED ? ", ..." : "");
}

/* -- one type --------------------------------------------------------------------------------- */

static uint32_t count_type(const struct plec_gguf_tensor *const *each, uint32_t n_experts,
                           uint32_t type) {
    uint32_t n = 0;
    for (uint32_t e = 0; e < n_experts; e++)
        n += each[e]->type == type;
    return n;
}

/* The first experts whose type is not that of expert 0, and theirs. */
static enum plec_status check_types(const struct plec_gguf_tensor *const *each,
                                    const struct plec_gguf_layer *layer, enum plec_gguf_part part,
                                    uint32_t n_experts, struct plec_error *err) {
    uint32_t usual = each[0]->type, n_usual = count_type(each, n_experts, usual);
    if (n_usual == n_experts) return PLEC_OK;
    if (n_usual * 2 < n_experts) usual = each[1]->type;
    char wanted[PLEC_GGUF_TYPE_TEXT_MAX], found[PLEC_GGUF_TYPE_TEXT_MAX];
    struct text text = {.n = 0};
    uint32_t named = 0;
    for (uint32_t e = 0; e < n_experts; e++) {
        if (each[e]->type == usual || named == NAMED) continue;
        add(&text, named == 0 ? "expert %u" : ", expert %u", e);
        int n = snprintf(text.at + text.n, sizeof text.at - text.n, " is %s",
                         plec_gguf_type_text(each[e]->type, found));
        text.n += n > 0 ? (size_t)n : 0;
        named++;
    }
    uint32_t n_others = n_experts - count_type(each, n_experts, usual);
    return plec_fail(err, PLEC_UNSUPPORTED, "TypesDiffer",
                     "%s.%s.N.weight: types differ among the experts: %s%s; the others are %s; a "
                     "bank has one type for all",
                     layer->block->prefix, plec_gguf_stem(PLEC_GGUF_DENSE, part), text.at,
                     n_others > named ? ", ..." : "", plec_gguf_type_text(usual, wanted));
}

/* -- the matrices ----------------------------------------------------------------------------- */

static enum plec_status put(struct plec_bank *bank, struct plec_entry *entries,
                            enum plec_operand_id id, const struct plec_gguf_layer *layer,
                            const struct plec_gguf_tensor *const *each, struct plec_error *err) {
    bool down = id == PLEC_DOWN;
    uint32_t cols = down ? bank->intermediate_dim : bank->input_dim;
    uint32_t rows = down ? bank->output_dim : bank->intermediate_dim;
    for (uint32_t e = 0; e < bank->n_entries; e++) {
        struct plec_matrix matrix;
        enum plec_status status = plec_gguf_expect_matrix(each[e], cols, rows, 1, err);
        if (status == PLEC_OK) status = plec_gguf_matrix(&matrix, layer->model, each[e], err);
        if (status != PLEC_OK) return status;
        bank->operands[id] = (struct plec_operand){matrix.format, rows, cols};
        entries[e].values[id] = matrix.values;
    }
    return PLEC_OK;
}

static bool has_any(const struct plec_gguf_tensor *const *each, uint32_t n_experts) {
    for (uint32_t e = 0; e < n_experts; e++)
        if (each[e] != NULL) return true;
    return false;
}

static enum plec_status check_alone(const struct plec_gguf_layer *layer, struct plec_error *err) {
    for (unsigned part = 0; part < PLEC_GGUF_N_PARTS; part++)
        for (unsigned kind = 0; kind < PLEC_GGUF_N_KINDS; kind++) {
            const struct plec_gguf_tensor *tensor = layer->mlp[PLEC_GGUF_ROUTED][part][kind];
            char name[PLEC_VIEW_TEXT_MAX];
            if (tensor != NULL)
                return plec_fail(err, PLEC_MALFORMED, "UnexpectedTensor",
                                 "tensor \"%s\": the block has tensors of single experts too",
                                 plec_view_text(tensor->name, name));
        }
    return PLEC_OK;
}

/* What the architecture asks for and this naming habit never has. */
static enum plec_status check_request(const struct plec_gguf_tensor *const *gates,
                                      const struct plec_gguf_layer *layer,
                                      const struct plec_gguf_bank_request *request,
                                      struct plec_error *err) {
    if (request->gate == PLEC_GGUF_GATE_NEVER && has_any(gates, request->n_entries))
        return plec_fail(err, PLEC_MALFORMED, "UnexpectedTensor",
                         "%s.ffn_gate.N.weight: the architecture's MLP has no gate",
                         layer->block->prefix);
    if (request->biases_required)
        return plec_fail(err, PLEC_MISSING, "MissingTensor",
                         "%s.ffn_up_exps.bias is not in the file, and tensors of single experts "
                         "have no biases",
                         layer->block->prefix);
    return PLEC_OK;
}

enum plec_status plec_gguf_bank_per_expert(struct plec_bank *out, struct plec_entry *entries,
                                           struct plec_arena *arena,
                                           const struct plec_gguf_layer *layer,
                                           const struct plec_gguf_bank_request *request,
                                           struct plec_error *err) {
    static const enum plec_operand_id ids[PLEC_GGUF_N_PARTS] = {
        [PLEC_GGUF_GATE] = PLEC_GATE, [PLEC_GGUF_UP] = PLEC_UP, [PLEC_GGUF_DOWN] = PLEC_DOWN};
    const struct plec_gguf_tensor **each[PLEC_GGUF_N_PARTS] = {NULL};
    uint32_t n = request->n_entries;
    enum plec_status status = check_alone(layer, err);
    if (status != PLEC_OK) return status;
    for (unsigned part = 0; part < PLEC_GGUF_N_PARTS; part++) {
        each[part] = plec_arena_alloc(arena, n, sizeof **each, err);
        if (each[part] == NULL) return PLEC_NO_MEMORY;
    }
    status = plec_gguf_layer_per_expert(each, layer, n, err);
    if (status == PLEC_OK) status = check_request(each[PLEC_GGUF_GATE], layer, request, err);
    for (unsigned part = 0; status == PLEC_OK && part < PLEC_GGUF_N_PARTS; part++) {
        if (part == PLEC_GGUF_GATE_UP) continue;
        if (part == PLEC_GGUF_GATE && request->gate != PLEC_GGUF_GATE_ALWAYS &&
            !has_any(each[part], n))
            continue;
        status = check_complete(each[part], layer, (enum plec_gguf_part)part, n, err);
        if (status == PLEC_OK)
            status = check_types(each[part], layer, (enum plec_gguf_part)part, n, err);
        if (status != PLEC_OK) return status;
        if (out->intermediate_dim == 0)
            out->intermediate_dim =
                each[part][0]->ne[1] > INT32_MAX ? INT32_MAX : (uint32_t)each[part][0]->ne[1];
        status = put(out, entries, ids[part], layer, each[part], err);
    }
    return status;
}
