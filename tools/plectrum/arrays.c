#include "tools/plectrum/arrays.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/codec/bits.h"

static enum plec_status allocate(struct plec_array *out, struct plec_error *err) {
    size_t n = (size_t)out->rows * out->cols;
    out->values = calloc(n > 0 ? n : 1, plec_npy_type_bytes(out->type));
    if (out->values != NULL) return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "an array of %u x %u", out->rows,
                     out->cols);
}

enum plec_status plec_array_make(struct plec_array *out, enum plec_npy_type type, uint32_t rows,
                                 uint32_t cols, struct plec_error *err) {
    *out = (struct plec_array){.type = type, .rows = rows, .cols = cols};
    return allocate(out, err);
}

/* Rows and columns of a view: two dimensions, or one that is a row, or a column when cols is 1. */
static enum plec_status take_shape(struct plec_array *out, const struct plec_npy_view *view,
                                   uint32_t cols, struct plec_error *err) {
    uint64_t shape[2] = {1, 1};
    if (view->n_dims == 0 || view->n_dims > 2)
        return plec_fail(err, PLEC_BAD_INPUT, "WrongShape", "it has %u dimensions, 1 or 2 are read",
                         view->n_dims);
    if (view->n_dims == 2) shape[0] = view->dims[0];
    shape[1] = view->dims[view->n_dims - 1];
    if (view->n_dims == 1 && cols == 1) {
        shape[0] = view->dims[0];
        shape[1] = 1;
    }
    if (shape[0] >= UINT32_MAX || shape[1] >= UINT32_MAX)
        return plec_fail(err, PLEC_BAD_INPUT, "WrongShape", "it is %llu x %llu",
                         (unsigned long long)shape[0], (unsigned long long)shape[1]);
    out->rows = (uint32_t)shape[0];
    out->cols = (uint32_t)shape[1];
    return PLEC_OK;
}

static enum plec_status check(struct plec_array *out, const struct plec_npy_view *view,
                              unsigned types, uint32_t rows, uint32_t cols,
                              struct plec_error *err) {
    out->type = view->type;
    enum plec_status status = take_shape(out, view, cols, err);
    if (status != PLEC_OK) return status;
    if ((types & 1u << view->type) == 0)
        return plec_fail(err, PLEC_BAD_INPUT, "WrongDtype", "%s is not read here",
                         plec_npy_type_name(view->type));
    if (cols != 0 && out->cols != cols)
        return plec_fail(err, PLEC_BAD_INPUT, "WrongWidth", "it has %u columns, wanted %u",
                         out->cols, cols);
    if (rows != UINT32_MAX && out->rows != rows)
        return plec_fail(err, PLEC_BAD_INPUT, "WrongRows", "it has %u rows, wanted %u", out->rows,
                         rows);
    return PLEC_OK;
}

enum plec_status plec_array_load(struct plec_array *out, const char *path, unsigned types,
                                 uint32_t rows, uint32_t cols, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct plec_npy npy;
    enum plec_status status = plec_npy_open(&npy, path, err);
    if (status != PLEC_OK) return status;
    status = check(out, &npy.view, types, rows, cols, err);
    if (status == PLEC_OK) status = allocate(out, err);
    if (status == PLEC_OK)
        memcpy(out->values, npy.view.values, npy.view.n_values * plec_npy_type_bytes(out->type));
    plec_npy_close(&npy);
    if (status != PLEC_OK) plec_error_context(err, "%s", path);
    return status;
}

/* splitmix64: one 64-bit state, a value a step. */
uint64_t plec_random_next(uint64_t *state) {
    uint64_t z = *state += 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    return z ^ z >> 31;
}

/* Uniform in (0, 1]. */
static double next_unit(uint64_t *state) {
    return (double)((plec_random_next(state) >> 11) + 1) * 0x1p-53;
}

void plec_random_normals(float *out, size_t n, uint64_t *state) {
    for (size_t i = 0; i < n; i++) {
        /* Box and Muller's method, one value a pair. */
        double radius = sqrt(-2 * log(next_unit(state)));
        out[i] = (float)(radius * cos(6.283185307179586 * next_unit(state)));
    }
}

enum plec_status plec_array_random(struct plec_array *out, uint32_t rows, uint32_t cols,
                                   uint64_t seed, struct plec_error *err) {
    enum plec_status status = plec_array_make(out, PLEC_NPY_F32, rows, cols, err);
    if (status != PLEC_OK) return status;
    plec_random_normals(out->values, (size_t)rows * cols, &seed);
    return PLEC_OK;
}

enum plec_status plec_array_widen(struct plec_array *array, struct plec_error *err) {
    if (array->type != PLEC_NPY_F16) return PLEC_OK;
    struct plec_array wide;
    enum plec_status status = plec_array_make(&wide, PLEC_NPY_F32, array->rows, array->cols, err);
    if (status != PLEC_OK) return status;
    const uint16_t *halves = array->values;
    float *floats = wide.values;
    for (size_t i = 0; i < (size_t)array->rows * array->cols; i++)
        floats[i] = plec_f16_f32(halves[i]);
    plec_array_free(array);
    *array = wide;
    return PLEC_OK;
}

void plec_array_free(struct plec_array *array) {
    free(array->values);
    memset(array, 0, sizeof *array);
}

static bool is_finite_at(const struct plec_array *array, size_t i) {
    if (array->type == PLEC_NPY_F16)
        return (((const uint16_t *)array->values)[i] & 0x7C00) != 0x7C00;
    return isfinite(((const float *)array->values)[i]);
}

uint32_t plec_array_not_finite(uint32_t *first, const struct plec_array *array, uint32_t row) {
    uint32_t n = 0;
    for (uint32_t col = array->cols; col-- > 0;) {
        if (is_finite_at(array, (size_t)row * array->cols + col)) continue;
        *first = col;
        n++;
    }
    return n;
}

double plec_array_norm(const struct plec_array *array) {
    const float *values = array->values;
    double sum = 0;
    for (size_t i = 0; i < (size_t)array->rows * array->cols; i++)
        sum += (double)values[i] * values[i];
    return sqrt(sum);
}

double plec_array_nmse(const struct plec_array *a, const struct plec_array *b) {
    const float *x = a->values, *y = b->values;
    double error = 0, norm = 0;
    for (size_t i = 0; i < (size_t)a->rows * a->cols; i++) {
        double difference = (double)x[i] - y[i];
        error += difference * difference;
        norm += (double)y[i] * y[i];
    }
    double ratio = norm > 0 ? error / norm : error;
    return isnan(ratio) ? INFINITY : ratio;
}
