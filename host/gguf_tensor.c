#include "host/gguf_tensor.h"

#include <stdio.h>
#include <string.h>

#include "lyrw/gguf_type.h"

/* -- shapes ----------------------------------------------------------------------------------- */

enum { SHAPE_TEXT = 96 };

static const char *shape_text(char *buffer, const uint64_t *ne, uint32_t n) {
    size_t at = 0;
    buffer[0] = '\0';
    for (uint32_t i = 0; i < n && at < SHAPE_TEXT; i++)
        at += (size_t)snprintf(buffer + at, SHAPE_TEXT - at, "%s%llu", i == 0 ? "[" : ", ",
                               (unsigned long long)ne[i]);
    if (at < SHAPE_TEXT) snprintf(buffer + at, SHAPE_TEXT - at, n == 0 ? "[]" : "]");
    return buffer;
}

static enum plec_status disagree(const struct plec_gguf_tensor *tensor, const uint64_t *wanted,
                                 uint32_t n_wanted, const char *axes, struct plec_error *err) {
    char name[PLEC_VIEW_TEXT_MAX], text[SHAPE_TEXT], found[SHAPE_TEXT];
    return plec_fail(err, PLEC_MALFORMED, "ShapesDisagree",
                     "tensor \"%s\": wanted %s (%s), found %s", plec_view_text(tensor->name, name),
                     shape_text(text, wanted, n_wanted), axes,
                     shape_text(found, tensor->ne, tensor->n_dims));
}

enum plec_status plec_gguf_expect_matrix(const struct plec_gguf_tensor *tensor, uint64_t ne0,
                                         uint64_t ne1, uint64_t ne2, struct plec_error *err) {
    const uint64_t wanted[] = {ne0, ne1, ne2};
    const uint64_t *ne = tensor->ne;
    if (ne[0] == ne0 && ne[1] == ne1 && ne[2] == ne2 && ne[3] == 1) return PLEC_OK;
    bool many = ne2 != 1;
    return disagree(tensor, wanted, many ? 3 : 2, many ? "input, output, experts" : "input, output",
                    err);
}

/* The dims that are not 1; returns how many. */
static uint32_t squeeze(uint64_t *out, const uint64_t *ne, uint32_t n) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (ne[i] != 1) out[kept++] = ne[i];
    return kept;
}

enum plec_status plec_gguf_expect_vector(const struct plec_gguf_tensor *tensor, uint64_t n,
                                         uint64_t count, const char *what, struct plec_error *err) {
    const uint64_t wanted[] = {n, count};
    uint64_t a[2], b[PLEC_GGUF_MAX_DIMS];
    uint32_t n_a = squeeze(a, wanted, 2), n_b = squeeze(b, tensor->ne, PLEC_GGUF_MAX_DIMS);
    if (n_a == n_b && memcmp(a, b, n_a * sizeof *a) == 0) return PLEC_OK;
    char axes[64];
    snprintf(axes, sizeof axes, count == 1 ? "%s" : "%s, experts", what);
    return disagree(tensor, wanted, count == 1 ? 1 : 2, axes, err);
}

/* -- types ------------------------------------------------------------------------------------ */

enum plec_status plec_gguf_tensor_format(uint16_t *format, const struct plec_gguf_tensor *tensor,
                                         struct plec_error *err) {
    char name[PLEC_VIEW_TEXT_MAX], text[PLEC_GGUF_TYPE_TEXT_MAX];
    plec_view_text(tensor->name, name);
    const struct plec_gguf_type *type = plec_gguf_type_find(tensor->type);
    if (type == NULL || !plec_gguf_type_tag(format, tensor->type))
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownType", "tensor \"%s\": %s", name,
                         plec_gguf_type_text(tensor->type, text));
    if (plec_format_find(*format) != NULL) return PLEC_OK;
    if (type->codebook)
        return plec_fail(err, PLEC_UNSUPPORTED, "NeedsCodebook",
                         "tensor \"%s\": %s needs a codebook; not supported; re-quantise to q2_K, "
                         "q3_K, iq4_xs or another type without one",
                         name, type->name);
    return plec_fail(err, PLEC_UNSUPPORTED, "NoCodec", "tensor \"%s\": %s is no type of weights",
                     name, type->name);
}

/* -- bytes ------------------------------------------------------------------------------------ */

uint64_t plec_gguf_matrix_bytes(const struct plec_gguf_tensor *tensor) {
    return tensor->n_bytes / (tensor->ne[2] * tensor->ne[3]);
}

static enum plec_status read_matrix(struct plec_matrix *out, const struct plec_gguf_model *model,
                                    const struct plec_gguf_tensor *tensor, struct plec_error *err) {
    const uint8_t *bytes;
    uint64_t size;
    enum plec_status status =
        plec_gguf_use_tensor(&bytes, plec_gguf_set_file(model->set, tensor), tensor, err);
    if (status == PLEC_OK) status = plec_gguf_tensor_format(&out->format, tensor, err);
    if (status != PLEC_OK) return status;
    if (tensor->ne[0] > UINT32_MAX || tensor->ne[1] > UINT32_MAX) {
        char found[SHAPE_TEXT];
        return plec_fail(err, PLEC_MALFORMED, "BadDim", "%s: a side is beyond 32 bits",
                         shape_text(found, tensor->ne, tensor->n_dims));
    }
    out->cols = (uint32_t)tensor->ne[0];
    out->rows = (uint32_t)tensor->ne[1];
    out->values = bytes;
    out->scales = NULL;
    status = plec_format_size(&size, NULL, out->format, out->rows, out->cols, err);
    if (status == PLEC_OK && size != plec_gguf_matrix_bytes(tensor))
        return plec_fail(err, PLEC_MALFORMED, "SizeMismatch",
                         "%llu bytes a matrix by its shape, %llu by the tensor's size",
                         (unsigned long long)size,
                         (unsigned long long)plec_gguf_matrix_bytes(tensor));
    return status;
}

enum plec_status plec_gguf_matrix(struct plec_matrix *out, const struct plec_gguf_model *model,
                                  const struct plec_gguf_tensor *tensor, struct plec_error *err) {
    enum plec_status status = read_matrix(out, model, tensor, err);
    if (status != PLEC_OK && model->set->split)
        plec_error_context(err, "%s", model->set->shards[tensor->shard].path);
    return status;
}

enum plec_status plec_gguf_tensor_f32(const float **out, struct plec_arena *arena,
                                      const struct plec_gguf_model *model,
                                      const struct plec_gguf_tensor *tensor,
                                      struct plec_error *err) {
    struct plec_matrix matrix;
    enum plec_status status = plec_gguf_matrix(&matrix, model, tensor, err);
    if (status != PLEC_OK) return status;
    if (matrix.format == PLEC_FORMAT_F32 && (uintptr_t)matrix.values % _Alignof(float) == 0) {
        *out = (const float *)(const void *)matrix.values;
        return PLEC_OK;
    }
    float *decoded = plec_arena_alloc(arena, tensor->n_elements, sizeof *decoded, err);
    if (decoded == NULL) return PLEC_NO_MEMORY;
    uint64_t n_matrices = tensor->ne[2] * tensor->ne[3];
    for (uint64_t i = 0; i < n_matrices; i++)
        for (uint32_t row = 0; row < matrix.rows; row++) {
            struct plec_matrix one = matrix;
            one.values += i * plec_gguf_matrix_bytes(tensor);
            plec_matrix_row_f32(decoded + (i * matrix.rows + row) * matrix.cols, &one, row);
        }
    *out = decoded;
    return PLEC_OK;
}
