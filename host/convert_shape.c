/* Banks as the schemas of a file, each with the place its bytes come from. */
#include <string.h>

#include "host/bank.h"
#include "host/convert_parts.h"

/* -- schemas ---------------------------------------------------------------------------------- */

static void add(struct plec_convert_shape *shape, const struct plec_lyrw_schema *schema,
                const struct plec_convert_stream *stream) {
    uint16_t i = shape->bank.n_schemas++;
    shape->schemas[i] = *schema;
    shape->schemas[i].index = i;
    shape->streams[i] = *stream;
}

static uint16_t packing_of(const struct plec_format *format) {
    if (format->geometry == PLEC_PAIRED) return PLEC_PACKING_BLOCKS_VALUES;
    return format->block_elems == 1 ? PLEC_PACKING_ROW_MAJOR : PLEC_PACKING_BLOCKS_INLINE;
}

static enum plec_repack values_repack(uint16_t from, uint16_t to) {
    if (from == to) return PLEC_REPACK_NONE;
    return to == PLEC_FORMAT_MXFP4 ? PLEC_REPACK_MXFP4_VALUES : PLEC_REPACK_NVFP4;
}

/* An operand of a bank while its schemas are made. */
struct placed {
    enum plec_operand_id id;
    uint16_t role, layout, format; /* format: in the file */
};

static void add_values(struct plec_convert_shape *shape, const struct placed *placed) {
    const struct plec_operand *operand = &shape->source->operands[placed->id];
    const struct plec_format *format = plec_format_find(placed->format);
    bool paired = format->geometry == PLEC_PAIRED;
    const struct plec_lyrw_schema schema = {.role = placed->role,
                                            .format = placed->format,
                                            .packing = packing_of(format),
                                            .pair_id = paired ? (uint16_t)(placed->id + 1)
                                                              : PLEC_LYRW_UNPAIRED,
                                            .layout = placed->layout,
                                            .rows = operand->rows,
                                            .cols = operand->cols};
    const struct plec_convert_stream stream = {.id = placed->id,
                                               .source_format = operand->format,
                                               .how =
                                                   values_repack(operand->format, placed->format)};
    add(shape, &schema, &stream);
}

static void add_scales(struct plec_convert_shape *shape, const struct placed *placed) {
    const struct plec_operand *operand = &shape->source->operands[placed->id];
    if (plec_format_find(placed->format)->geometry != PLEC_PAIRED) return;
    bool repacked = operand->format != placed->format;
    const struct plec_lyrw_schema schema = {.role = PLEC_ROLE_SCALES,
                                            .format = placed->format,
                                            .packing = PLEC_PACKING_BLOCKS_SCALES,
                                            .pair_id = (uint16_t)(placed->id + 1),
                                            .rows = operand->rows,
                                            .cols = operand->cols};
    const struct plec_convert_stream stream = {.id = placed->id,
                                               .scales = !repacked,
                                               .source_format = operand->format,
                                               .how = repacked ? PLEC_REPACK_MXFP4_SCALES
                                                               : PLEC_REPACK_NONE};
    add(shape, &schema, &stream);
}

/* -- banks ------------------------------------------------------------------------------------ */

static bool has(const struct plec_bank *bank, enum plec_operand_id id) {
    return bank->operands[id].rows != 0;
}

static enum plec_status layout_of(uint16_t *out, const struct plec_bank *bank,
                                  struct plec_error *err) {
    switch (bank->fusion) {
    case PLEC_NOT_FUSED: *out = PLEC_LAYOUT_UNSPECIFIED; return PLEC_OK;
    case PLEC_FUSED_GATE_FIRST: *out = PLEC_LAYOUT_CONTIGUOUS_HALVES; return PLEC_OK;
    case PLEC_FUSED_INTERLEAVED: *out = PLEC_LAYOUT_INTERLEAVED; return PLEC_OK;
    case PLEC_FUSED_UP_FIRST: break;
    }
    return plec_fail(err, PLEC_UNSUPPORTED, "FusedUpFirst",
                     "the up rows of a fused matrix stand before its gate rows: no layout of a "
                     "LYRW file says so");
}

/* The matrices there are, values first, then the scales of those that have them apart. */
static void add_matrices(struct plec_convert_shape *shape, uint16_t layout, uint32_t left) {
    const struct plec_bank *bank = shape->source;
    bool fused = bank->fusion != PLEC_NOT_FUSED;
    const struct placed wanted[] = {
        {PLEC_GATE, fused ? PLEC_ROLE_GATE_UP_FUSED : PLEC_ROLE_GATE, layout, 0},
        {PLEC_UP, PLEC_ROLE_UP, PLEC_LAYOUT_UNSPECIFIED, 0},
        {PLEC_DOWN, PLEC_ROLE_DOWN, PLEC_LAYOUT_UNSPECIFIED, 0},
    };
    for (int scales = 0; scales < 2; scales++)
        for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
            struct placed placed = wanted[i];
            uint16_t format = bank->operands[placed.id].format;
            placed.format = left >> placed.id & 1 ? format : plec_repack_target(format);
            if (!has(bank, placed.id)) continue;
            if (scales)
                add_scales(shape, &placed);
            else
                add_values(shape, &placed);
        }
}

/* Biases carry no name in a file: what a reader makes of their sizes must be what they are. */
static enum plec_status add_biases(struct plec_convert_shape *shape, struct plec_error *err) {
    const struct plec_bank *bank = shape->source;
    enum plec_operand_id ids[PLEC_N_MATRICES] = {PLEC_GATE_BIAS},
                         read[PLEC_N_MATRICES] = {PLEC_GATE_BIAS};
    uint64_t sizes[PLEC_N_MATRICES];
    uint32_t n = 0;
    for (int id = PLEC_GATE_BIAS; id <= PLEC_DOWN_BIAS; id++) {
        if (!has(bank, (enum plec_operand_id)id)) continue;
        sizes[n] = (uint64_t)bank->operands[id].rows * bank->operands[id].cols;
        ids[n++] = (enum plec_operand_id)id;
    }
    const struct plec_operand *operands = bank->operands;
    bool told = plec_bank_match_biases(read, sizes, n, operands[PLEC_GATE].rows,
                                       operands[PLEC_UP].rows, operands[PLEC_DOWN].rows);
    if (!told || memcmp(ids, read, n * sizeof *ids) != 0)
        return plec_fail(err, PLEC_UNSUPPORTED, "BiasUnmatched",
                         "%u biases for matrices of %u, %u and %u rows: a file does not say which "
                         "belongs to which",
                         n, operands[PLEC_GATE].rows, operands[PLEC_UP].rows,
                         operands[PLEC_DOWN].rows);
    for (uint32_t i = 0; i < n; i++)
        add_values(shape, &(struct placed){ids[i], PLEC_ROLE_BIAS, PLEC_LAYOUT_UNSPECIFIED,
                                           operands[ids[i]].format});
    return PLEC_OK;
}

enum plec_status plec_convert_shape_bank(struct plec_convert_shape *out,
                                         const struct plec_bank *bank, enum plec_bank_kind kind,
                                         uint32_t left, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->source = bank;
    /* The intermediate width of a bank record is the stored one: with down's padding. */
    out->bank = (struct plec_lyrw_bank){.kind = (uint16_t)kind,
                                        .num_entries = bank->n_entries,
                                        .input_dim = bank->input_dim,
                                        .intermediate_dim = bank->operands[PLEC_DOWN].cols,
                                        .output_dim = bank->output_dim};
    uint16_t layout = PLEC_LAYOUT_UNSPECIFIED;
    enum plec_status status = layout_of(&layout, bank, err);
    if (status != PLEC_OK) return status;
    add_matrices(out, layout, left);
    return add_biases(out, err);
}

uint32_t plec_convert_repackable(const struct plec_bank *bank) {
    uint32_t ids = 0;
    for (int id = 0; id < PLEC_N_MATRICES; id++)
        if (has(bank, (enum plec_operand_id)id) &&
            plec_repack_target(bank->operands[id].format) != bank->operands[id].format)
            ids |= 1u << id;
    return ids;
}

/* -- control files ---------------------------------------------------------------------------- */

static void add_matrix(struct plec_convert_shape *shape, uint16_t role,
                       const struct plec_matrix *matrix) {
    const struct plec_format *format = plec_format_find(matrix->format);
    if (!plec_matrix_present(matrix)) return;
    struct plec_lyrw_schema schema = {.role = role,
                                      .format = matrix->format,
                                      .packing = packing_of(format),
                                      .pair_id = PLEC_LYRW_UNPAIRED,
                                      .rows = matrix->rows,
                                      .cols = matrix->cols};
    if (format->geometry != PLEC_PAIRED) {
        add(shape, &schema, &(struct plec_convert_stream){.bytes = matrix->values});
        return;
    }
    schema.pair_id = (uint16_t)(shape->bank.n_schemas + 1);
    add(shape, &schema, &(struct plec_convert_stream){.bytes = matrix->values});
    schema.role = PLEC_ROLE_SCALES;
    schema.packing = PLEC_PACKING_BLOCKS_SCALES;
    add(shape, &schema, &(struct plec_convert_stream){.bytes = matrix->scales});
}

static void add_vector(struct plec_convert_shape *shape, uint16_t role, const float *values,
                       uint32_t n) {
    const struct plec_matrix matrix = {PLEC_FORMAT_F32, 1, n, (const uint8_t *)values, NULL};
    add_matrix(shape, role, &matrix);
}

/* Factors of gate, up and down; role is the gate's, the others follow it. */
static void add_factors(struct plec_convert_shape *shape, uint16_t role,
                        const struct plec_bank *bank) {
    add_vector(shape, role, bank->gate_scale, bank->n_entries);
    add_vector(shape, (uint16_t)(role + 1), bank->up_scale, bank->n_entries);
    add_vector(shape, (uint16_t)(role + 2), bank->down_scale, bank->n_entries);
}

static void add_table(struct plec_convert_shape *shape, const struct plec_bound_layer *bound) {
    if (bound->token_table == NULL) return;
    const struct plec_lyrw_schema schema = {.role = PLEC_ROLE_TOKEN_TABLE,
                                            .format = PLEC_FORMAT_GGUF_I32,
                                            .packing = PLEC_PACKING_ROW_MAJOR,
                                            .pair_id = PLEC_LYRW_UNPAIRED,
                                            .rows = bound->n_token_ids,
                                            .cols = bound->layer.router.top_k};
    add(shape, &schema,
        &(struct plec_convert_stream){.bytes = (const uint8_t *)bound->token_table});
}

void plec_convert_shape_control(struct plec_convert_shape *out, bool *needed,
                                const struct plec_bound_layer *bound) {
    const struct plec_layer *layer = &bound->layer;
    const struct plec_router *router = &layer->router;
    memset(out, 0, sizeof *out);
    out->bank = (struct plec_lyrw_bank){.kind = PLEC_BANK_DENSE,
                                        .num_entries = 1,
                                        .input_dim = layer->hidden_size,
                                        .intermediate_dim = router->n_experts,
                                        .output_dim = layer->hidden_size};
    add_matrix(out, PLEC_ROLE_ROUTER_WEIGHT, &router->weight);
    add_vector(out, PLEC_ROLE_SELECTION_BIAS, router->selection_bias, router->n_experts);
    add_vector(out, PLEC_ROLE_ROUTER_BIAS, router->bias, router->n_experts);
    add_matrix(out, PLEC_ROLE_INPUT_NORM, &bound->input_norm);
    add_vector(out, PLEC_ROLE_ROUTED_OUTPUT_NORM, layer->routed_norm, layer->routed.output_dim);
    add_matrix(out, PLEC_ROLE_SHARED_GATE, &layer->shared_gate);
    add_vector(out, PLEC_ROLE_EXPERT_SCALE, router->expert_scale, router->n_experts);
    add_factors(out, PLEC_ROLE_GATE_SCALE, &layer->routed);
    add_matrix(out, PLEC_ROLE_LATENT_IN, &layer->latent_in);
    add_matrix(out, PLEC_ROLE_LATENT_OUT, &layer->latent_out);
    add_vector(out, PLEC_ROLE_ROUTER_INPUT_SCALE, router->input_scale, router->input_dim);
    add_table(out, bound);
    add_factors(out, PLEC_ROLE_SHARED_GATE_SCALE, &layer->shared);
    add_factors(out, PLEC_ROLE_BRANCH_GATE_SCALE, &layer->dense);
    *needed = out->bank.n_schemas > 0;
}

/* -- bytes ------------------------------------------------------------------------------------ */

const uint8_t *plec_convert_source_of(const struct plec_convert_shape *shape, uint32_t schema,
                                      uint32_t entry) {
    const struct plec_convert_stream *stream = &shape->streams[schema];
    if (stream->bytes != NULL) return stream->bytes;
    const struct plec_entry *from = &shape->source->entries[entry];
    return stream->scales ? from->scales[stream->id] : from->values[stream->id];
}
