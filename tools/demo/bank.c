#include "tools/demo/bank.h"

#include <math.h>
#include <stdlib.h>

#include "lyrw/encode.h"
#include "lyrw/segment_write.h"

enum { SCHEMAS_MAX = 8 };

static uint64_t next_bits(struct plec_demo_random *random) {
    uint64_t z = random->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

/* Box and Muller's transform, one of its two values. */
float plec_demo_normal(struct plec_demo_random *random) {
    uint64_t bits = next_bits(random);
    float u = ((float)(bits >> 40) + 1) * 0x1p-24f, v = (float)(bits & 0xFFFFFF) * 0x1p-24f;
    return sqrtf(-2 * logf(u)) * cosf(6.2831853f * v);
}

/* The schemas of a bank, in file order. */
struct shape {
    struct plec_lyrw_schema schemas[SCHEMAS_MAX];
    uint32_t n_schemas;
};

static struct plec_lyrw_schema *add_schema(struct shape *shape, uint16_t role, uint16_t format,
                                           uint32_t rows, uint32_t cols) {
    struct plec_lyrw_schema *schema = &shape->schemas[shape->n_schemas];
    bool plain = plec_format_find(format)->block_elems == 1;
    *schema = (struct plec_lyrw_schema){.index = (uint16_t)shape->n_schemas,
                                        .role = role,
                                        .format = format,
                                        .packing = plain ? PLEC_PACKING_ROW_MAJOR
                                                         : PLEC_PACKING_BLOCKS_INLINE,
                                        .pair_id = PLEC_LYRW_UNPAIRED,
                                        .rows = rows,
                                        .cols = cols};
    shape->n_schemas++;
    return schema;
}

/* Formats that keep their scales apart get a scales region a matrix, after all values. */
static void add_scales(struct shape *shape) {
    uint32_t n_values = shape->n_schemas;
    for (uint32_t i = 0; i < n_values; i++) {
        struct plec_lyrw_schema *values = &shape->schemas[i];
        if (plec_format_find(values->format)->geometry != PLEC_PAIRED) continue;
        values->packing = PLEC_PACKING_BLOCKS_VALUES;
        values->pair_id = (uint16_t)(i + 1);
        struct plec_lyrw_schema *scales =
            add_schema(shape, PLEC_ROLE_SCALES, values->format, values->rows, values->cols);
        scales->packing = PLEC_PACKING_BLOCKS_SCALES;
        scales->pair_id = values->pair_id;
    }
}

static struct shape shape_of(const struct plec_demo_bank *bank) {
    struct shape shape = {.n_schemas = 0};
    if (bank->form == PLEC_DEMO_SEPARATE) {
        add_schema(&shape, PLEC_ROLE_GATE, bank->format, bank->intermediate, bank->input);
        add_schema(&shape, PLEC_ROLE_UP, bank->format, bank->intermediate, bank->input);
    } else {
        add_schema(&shape, PLEC_ROLE_GATE_UP_FUSED, bank->format, 2 * bank->intermediate,
                   bank->input)
            ->layout =
            bank->form == PLEC_DEMO_FUSED ? PLEC_LAYOUT_CONTIGUOUS_HALVES : PLEC_LAYOUT_INTERLEAVED;
    }
    add_schema(&shape, PLEC_ROLE_DOWN, bank->format, bank->output, bank->intermediate);
    add_scales(&shape);
    if (bank->form == PLEC_DEMO_FUSED_BIASED) {
        add_schema(&shape, PLEC_ROLE_BIAS, PLEC_FORMAT_BF16, 1, 2 * bank->intermediate);
        add_schema(&shape, PLEC_ROLE_BIAS, PLEC_FORMAT_BF16, 1, bank->output);
    }
    return shape;
}

/* A matrix on its way into a file. */
struct stage {
    float *matrix;
    uint8_t *values, *scales;
    uint64_t n_values, n_scales;
};

static void close_stage(struct stage *stage) {
    free(stage->matrix);
    free(stage->values);
    free(stage->scales);
}

/* Draws a matrix whose products keep the size of their input, and encodes it. */
static enum plec_status fill_stage(struct stage *stage, const struct plec_lyrw_schema *schema,
                                   float mean, struct plec_demo_random *random,
                                   struct plec_error *err) {
    enum plec_status status = plec_format_size(&stage->n_values, &stage->n_scales, schema->format,
                                               schema->rows, schema->cols, err);
    if (status != PLEC_OK) return status;
    size_t n = (size_t)schema->rows * schema->cols;
    stage->matrix = malloc(n * sizeof *stage->matrix);
    stage->values = malloc((size_t)stage->n_values);
    stage->scales = malloc((size_t)stage->n_scales + 1);
    if (stage->matrix == NULL || stage->values == NULL || stage->scales == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a matrix of %zu values", n);
    float deviation = 1 / sqrtf((float)schema->cols);
    for (size_t i = 0; i < n; i++)
        stage->matrix[i] = mean + deviation * plec_demo_normal(random);
    const struct plec_encode_args args = {.format = schema->format,
                                          .rows = schema->rows,
                                          .cols = schema->cols,
                                          .matrix = stage->matrix,
                                          .values = stage->values,
                                          .scales = stage->n_scales > 0 ? stage->scales : NULL};
    return plec_matrix_encode(&args, err);
}

/* Index of the scales that belong to a schema, or -1. */
static int partner_of(const struct shape *shape, uint32_t schema) {
    const struct plec_lyrw_schema *values = &shape->schemas[schema];
    if (values->pair_id == PLEC_LYRW_UNPAIRED) return -1;
    for (uint32_t i = 0; i < shape->n_schemas; i++)
        if (shape->schemas[i].role == PLEC_ROLE_SCALES &&
            shape->schemas[i].pair_id == values->pair_id)
            return (int)i;
    return -1;
}

static enum plec_status write_matrix(struct plec_segment_writer *writer, const struct shape *shape,
                                     uint32_t entry, uint32_t schema, float mean,
                                     struct plec_demo_random *random, struct plec_error *err) {
    struct stage stage = {0};
    enum plec_status status = fill_stage(&stage, &shape->schemas[schema], mean, random, err);
    if (status == PLEC_OK)
        status =
            plec_segment_writer_append(writer, 0, entry, schema, stage.values, stage.n_values, err);
    int partner = partner_of(shape, schema);
    if (status == PLEC_OK && partner >= 0)
        status = plec_segment_writer_append(writer, 0, entry, (uint32_t)partner, stage.scales,
                                            stage.n_scales, err);
    close_stage(&stage);
    return status;
}

enum plec_status plec_demo_write_bank(const char *path, const struct plec_demo_bank *bank,
                                      struct plec_demo_random *random, void (*wrote)(void *user),
                                      void *user, struct plec_error *err) {
    struct shape shape = shape_of(bank);
    const struct plec_lyrw_bank record = {.kind = (uint16_t)bank->kind,
                                          .n_schemas = (uint16_t)shape.n_schemas,
                                          .num_entries = bank->n_entries,
                                          .input_dim = bank->input,
                                          .intermediate_dim = bank->intermediate,
                                          .output_dim = bank->output};
    const struct plec_lyrw_segment segment = {.index = (uint16_t)bank->segment,
                                              .first_entry = bank->first_entry,
                                              .entry_count = bank->n_held};
    const struct plec_segment_plan plan = {
        .header = {.format_version = PLEC_LYRW_VERSION,
                   .logical_layer = bank->layer,
                   .num_banks = 1,
                   .num_segments = 1,
                   .flags = bank->n_held < bank->n_entries ? PLEC_LYRW_FLAG_MULTI_SEGMENT : 0},
        .banks = &record,
        .segments = &segment,
        .schemas = shape.schemas,
        .n_schemas = shape.n_schemas,
        .extent = bank->extent};
    struct plec_segment_writer *writer;
    enum plec_status status = plec_segment_writer_open(&writer, path, &plan, err);
    if (status != PLEC_OK) return status;
    for (uint32_t i = 0; i < bank->n_held; i++)
        for (uint32_t j = 0; status == PLEC_OK && j < shape.n_schemas; j++) {
            if (shape.schemas[j].role == PLEC_ROLE_SCALES) continue;
            status = write_matrix(writer, &shape, bank->first_entry + i, j, 0, random, err);
            if (shape.schemas[j].role != PLEC_ROLE_BIAS) wrote(user);
        }
    if (status == PLEC_OK) return plec_segment_writer_commit(writer, err);
    plec_segment_writer_abort(writer);
    return status;
}

enum plec_status plec_demo_write_control(const char *path, uint32_t layer,
                                         const struct plec_demo_tensor *tensors, size_t n_tensors,
                                         struct plec_demo_random *random, struct plec_error *err) {
    struct shape shape = {.n_schemas = 0};
    for (size_t i = 0; i < n_tensors; i++)
        add_schema(&shape, tensors[i].role, PLEC_FORMAT_F32, tensors[i].rows, tensors[i].cols);
    const struct plec_lyrw_bank record = {
        .kind = PLEC_BANK_DENSE, .n_schemas = (uint16_t)shape.n_schemas, .num_entries = 1};
    const struct plec_lyrw_segment segment = {.entry_count = 1};
    const struct plec_segment_plan plan = {.header = {.format_version = PLEC_LYRW_VERSION,
                                                      .logical_layer = layer,
                                                      .num_banks = 1,
                                                      .num_segments = 1},
                                           .banks = &record,
                                           .segments = &segment,
                                           .schemas = shape.schemas,
                                           .n_schemas = shape.n_schemas};
    struct plec_segment_writer *writer;
    enum plec_status status = plec_segment_writer_open(&writer, path, &plan, err);
    if (status != PLEC_OK) return status;
    for (uint32_t i = 0; status == PLEC_OK && i < shape.n_schemas; i++)
        status = write_matrix(writer, &shape, 0, i, tensors[i].mean, random, err);
    if (status == PLEC_OK) return plec_segment_writer_commit(writer, err);
    plec_segment_writer_abort(writer);
    return status;
}
