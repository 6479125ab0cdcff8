#include "host/control.h"

#include <string.h>

/* A control file while it is read. */
struct reader {
    struct plec_storage storage;
    struct plec_arena *arena;
    struct plec_touched touched[48]; /* two streams for each role there is, at most */
    size_t n_touched;
};

static enum plec_status check_file(const struct reader *r, const struct plec_control_shape *shape,
                                   struct plec_error *err) {
    const struct plec_storage *storage = &r->storage;
    const struct plec_segment *segment = storage->parts[0].segment;
    if (segment->header.num_banks != 1 || storage->bank->num_entries != 1)
        return plec_fail(err, PLEC_MALFORMED, "NotAControlFile",
                         "segment %s: a control file has one bank of one entry, this one has %u "
                         "banks, the first of %u entries",
                         storage->parts[0].key, segment->header.num_banks,
                         storage->bank->num_entries);
    if (storage->logical_layer != shape->layer)
        return plec_fail(err, PLEC_MALFORMED, "LayerContradicted",
                         "segment %s: the manifest says layer %u, the file's header %u",
                         storage->parts[0].key, shape->layer, storage->logical_layer);
    return PLEC_OK;
}

static enum plec_status check_shape(const struct plec_bank_operand *operand, uint32_t rows,
                                    uint32_t cols, struct plec_error *err) {
    if (operand->shape.rows == rows && operand->shape.cols == cols) return PLEC_OK;
    char name[PLEC_NAME_MAX];
    return plec_fail(err, PLEC_MALFORMED, "ControlShape",
                     "role %s segment %s: is %u x %u, this layer needs %u x %u",
                     plec_role_name(operand->role, name), operand->storage->parts[0].key,
                     operand->shape.rows, operand->shape.cols, rows, cols);
}

/* The matrix of a role, which must be rows x cols; left without values when the file has none. */
static enum plec_status read_matrix(struct plec_matrix *out, struct reader *r, uint16_t role,
                                    uint32_t rows, uint32_t cols, struct plec_error *err) {
    int32_t schema;
    struct plec_bank_operand operand;
    enum plec_status status = plec_storage_schema(&schema, &r->storage, role, err);
    if (status != PLEC_OK || schema == PLEC_NO_SCHEMA) return status;
    status = plec_operand_from_schema(&operand, &r->storage, (uint32_t)schema, err);
    if (status == PLEC_OK) status = check_shape(&operand, rows, cols, err);
    if (status != PLEC_OK) return status;
    const struct plec_storage_run *run = &r->storage.runs[0];
    *out = (struct plec_matrix){.format = operand.shape.format, .rows = rows, .cols = cols};
    status = plec_operand_bytes(&out->values, &r->touched[r->n_touched++], &operand,
                                &operand.values, run, 0, err);
    if (status == PLEC_OK && operand.scales.schema != PLEC_NO_SCHEMA)
        status = plec_operand_bytes(&out->scales, &r->touched[r->n_touched++], &operand,
                                    &operand.scales, run, 0, err);
    return status;
}

/* A vector [1, n] as f32; NULL when the file has none. */
static enum plec_status read_vector(const float **out, struct reader *r, uint16_t role, uint32_t n,
                                    struct plec_error *err) {
    struct plec_matrix matrix = {0};
    enum plec_status status = read_matrix(&matrix, r, role, 1, n, err);
    if (status != PLEC_OK || !plec_matrix_present(&matrix)) return status;
    float *values = plec_arena_alloc(r->arena, n, sizeof *values, err);
    if (values == NULL) return PLEC_NO_MEMORY;
    plec_matrix_row_f32(values, &matrix, 0);
    *out = values;
    return PLEC_OK;
}

/* What is only carried is taken as it is, and refuses nothing. */
static void read_carried(struct plec_matrix *out, struct reader *r, uint16_t role) {
    int32_t schema;
    if (plec_storage_schema(&schema, &r->storage, role, NULL) != PLEC_OK ||
        schema == PLEC_NO_SCHEMA)
        return;
    const struct plec_lyrw_schema *s = &r->storage.schemas[schema];
    size_t n_touched = r->n_touched;
    if (read_matrix(out, r, role, s->rows, s->cols, NULL) == PLEC_OK) return;
    memset(out, 0, sizeof *out);
    r->n_touched = n_touched;
}

static enum plec_status read_matrices(struct plec_control *out, struct reader *r,
                                      const struct plec_control_shape *shape,
                                      struct plec_error *err) {
    const struct {
        struct plec_matrix *to;
        uint16_t role;
        uint32_t rows, cols;
    } wanted[] = {
        {&out->router_weight, PLEC_ROLE_ROUTER_WEIGHT, shape->experts, shape->hidden},
        {&out->shared_gate, PLEC_ROLE_SHARED_GATE, 1, shape->hidden},
        {&out->latent_in, PLEC_ROLE_LATENT_IN, shape->expert_input, shape->hidden},
        {&out->latent_out, PLEC_ROLE_LATENT_OUT, shape->hidden, shape->routed_width},
    };
    size_t n = shape->latent ? 4 : 2;
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < n; i++)
        status = read_matrix(wanted[i].to, r, wanted[i].role, wanted[i].rows, wanted[i].cols, err);
    if (status == PLEC_OK) read_carried(&out->input_norm, r, PLEC_ROLE_INPUT_NORM);
    return status;
}

static enum plec_status read_vectors(struct plec_control *out, struct reader *r,
                                     const struct plec_control_shape *shape,
                                     struct plec_error *err) {
    const struct {
        const float **to;
        uint16_t role;
        uint32_t n;
    } wanted[] = {
        {&out->selection_bias, PLEC_ROLE_SELECTION_BIAS, shape->experts},
        {&out->router_bias, PLEC_ROLE_ROUTER_BIAS, shape->experts},
        {&out->routed_output_norm, PLEC_ROLE_ROUTED_OUTPUT_NORM, shape->routed_width},
        {&out->expert_scale, PLEC_ROLE_EXPERT_SCALE, shape->experts},
        {&out->gate_scale, PLEC_ROLE_GATE_SCALE, shape->experts},
        {&out->up_scale, PLEC_ROLE_UP_SCALE, shape->experts},
        {&out->down_scale, PLEC_ROLE_DOWN_SCALE, shape->experts},
        {&out->router_input_scale, PLEC_ROLE_ROUTER_INPUT_SCALE, shape->hidden},
        {&out->shared_scales[PLEC_GATE], PLEC_ROLE_SHARED_GATE_SCALE, shape->shared},
        {&out->shared_scales[PLEC_UP], PLEC_ROLE_SHARED_UP_SCALE, shape->shared},
        {&out->shared_scales[PLEC_DOWN], PLEC_ROLE_SHARED_DOWN_SCALE, shape->shared},
        {&out->branch_scales[PLEC_GATE], PLEC_ROLE_BRANCH_GATE_SCALE, shape->branch},
        {&out->branch_scales[PLEC_UP], PLEC_ROLE_BRANCH_UP_SCALE, shape->branch},
        {&out->branch_scales[PLEC_DOWN], PLEC_ROLE_BRANCH_DOWN_SCALE, shape->branch},
    };
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < sizeof wanted / sizeof wanted[0]; i++)
        status = read_vector(wanted[i].to, r, wanted[i].role, wanted[i].n, err);
    return status;
}

/* The table's schema, as an operand of int32 values; rows 0: the file has none. */
static enum plec_status find_table(struct plec_bank_operand *out, const struct reader *r,
                                   const struct plec_control_shape *shape, struct plec_error *err) {
    int32_t schema;
    char name[PLEC_NAME_MAX];
    *out = (struct plec_bank_operand){.storage = &r->storage, .role = PLEC_ROLE_TOKEN_TABLE};
    enum plec_status status = plec_storage_schema(&schema, &r->storage, PLEC_ROLE_TOKEN_TABLE, err);
    if (status != PLEC_OK || schema == PLEC_NO_SCHEMA) return status;
    const struct plec_lyrw_schema *s = &r->storage.schemas[schema];
    if (s->format != PLEC_FORMAT_GGUF_I32 || s->packing != PLEC_PACKING_ROW_MAJOR)
        return plec_fail(err, PLEC_MALFORMED, "BadTokenTable",
                         "role token_table segment %s: wanted i32 (%#x) in row_major, found %s in "
                         "packing %u",
                         r->storage.parts[0].key, PLEC_FORMAT_GGUF_I32,
                         plec_format_name(s->format, name), s->packing);
    if (s->rows == 0 || s->rows > INT32_MAX || s->cols != shape->top_k)
        return plec_fail(err, PLEC_MALFORMED, "ControlShape",
                         "role token_table segment %s: is %u x %u, this layer needs token ids x %u",
                         r->storage.parts[0].key, s->rows, s->cols, shape->top_k);
    out->shape = (struct plec_operand){s->format, s->rows, s->cols};
    out->values = (struct plec_stream_schema){schema, (uint64_t)s->rows * s->cols * 4};
    return PLEC_OK;
}

static enum plec_status check_ids(const struct plec_control *control,
                                  const struct plec_control_shape *shape, struct plec_error *err) {
    for (uint32_t token = 0; token < control->n_token_ids; token++)
        for (uint32_t j = 0; j < shape->top_k; j++) {
            int32_t id = control->token_table[(size_t)token * shape->top_k + j];
            if (id >= 0 && (uint32_t)id < shape->experts) continue;
            return plec_fail(err, PLEC_MALFORMED, "BadTokenTable",
                             "role token_table: token id %u slot %u: expert %d of %u", token, j, id,
                             shape->experts);
        }
    return PLEC_OK;
}

static enum plec_status read_table(struct plec_control *out, struct reader *r,
                                   const struct plec_control_shape *shape, struct plec_error *err) {
    struct plec_bank_operand operand;
    const uint8_t *bytes = NULL;
    enum plec_status status = find_table(&operand, r, shape, err);
    if (status != PLEC_OK || operand.shape.rows == 0) return status;
    status = plec_operand_bytes(&bytes, &r->touched[r->n_touched++], &operand, &operand.values,
                                &r->storage.runs[0], 0, err);
    if (status != PLEC_OK) return status;
    out->token_table = (const int32_t *)(const void *)bytes; /* regions start at 64 bytes */
    out->n_token_ids = operand.shape.rows;
    return check_ids(out, shape, err);
}

enum plec_status plec_control_read(struct plec_control *out, struct plec_arena *arena,
                                   struct plec_store *store, const char *key,
                                   const struct plec_control_shape *shape, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct reader r = {.arena = arena};
    enum plec_status status =
        plec_storage_open(&r.storage, arena, store, key, &key, 1, PLEC_BANK_DENSE, err);
    if (status == PLEC_OK) status = check_file(&r, shape, err);
    if (status == PLEC_OK) status = plec_storage_tile(&r.storage, arena, err);
    if (status == PLEC_OK) status = read_matrices(out, &r, shape, err);
    if (status == PLEC_OK) status = read_vectors(out, &r, shape, err);
    if (status == PLEC_OK) status = read_table(out, &r, shape, err);
    if (status == PLEC_OK)
        status = plec_operand_check_overlaps(r.touched, r.n_touched, &r.storage, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "control %s", key);
        return status;
    }
    out->key = key;
    return PLEC_OK;
}
