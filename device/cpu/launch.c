/* launch.c: the launches that are one loop: linear, norm, sigmoid, scale. */
#include <math.h>

#include "device/cpu/activation.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernel.h"

enum plec_status plec_cpu_check_kernel(uint16_t format, const char *operand,
                                       struct plec_error *err) {
    if (plec_format_find(format) != NULL) return PLEC_OK;
    char name[PLEC_NAME_MAX];
    return plec_fail(err, PLEC_UNSUPPORTED, "NoKernel", "%s: no kernel for %s", operand,
                     plec_format_name(format, name));
}

/* Some tokens of a linear; images lie in the stream's scratch. */
struct linear_tile {
    const struct plec_linear_args *args;
    struct plec_cpu_matrix matrix;
    const float *x; /* [n_tokens, cols] */
    float *y;       /* [n_tokens, rows] */
    float *images;  /* [n_tokens, image_floats]; NULL: x serves */
    size_t image_floats;
    uint32_t n_tokens, block_rows;
};

/* Rows i and on for up to PLEC_CPU_TOKENS tokens from `first` on. */
static void linear_rows(const struct linear_tile *tile, uint32_t first, uint32_t i,
                        uint32_t n_rows) {
    uint32_t left = tile->n_tokens - first, n = left < PLEC_CPU_TOKENS ? left : PLEC_CPU_TOKENS;
    struct plec_cpu_vector vectors[PLEC_CPU_TOKENS];
    float sums[PLEC_CPU_ROWS * PLEC_CPU_TOKENS];
    size_t cols = tile->matrix.cols, rows = tile->matrix.rows;
    for (uint32_t t = 0; t < n; t++) {
        const float *x = tile->x + (first + t) * cols;
        const float *image =
            tile->images == NULL ? x : tile->images + (first + t) * tile->image_floats;
        vectors[t] = (struct plec_cpu_vector){x, image, tile->matrix.cols};
    }
    plec_cpu_dot(sums, &tile->matrix, i, n_rows, vectors, n);
    for (uint32_t r = 0; r < n_rows; r++)
        for (uint32_t t = 0; t < n; t++) {
            float *y = tile->y + (first + t) * rows + i + r;
            *y = tile->args->accumulate ? *y + sums[r * n + t] : sums[r * n + t];
        }
}

static void linear_range(void *context, uint64_t first_row, uint64_t n) {
    const struct linear_tile *tile = context;
    uint32_t last_row = (uint32_t)(first_row + n), n_rows;
    for (uint32_t i = (uint32_t)first_row; i < last_row; i += n_rows) {
        n_rows = last_row - i < tile->block_rows ? last_row - i : tile->block_rows;
        for (uint32_t t = 0; t < tile->n_tokens; t += PLEC_CPU_TOKENS)
            linear_rows(tile, t, i, n_rows);
    }
}

static void linear_images(void *context, uint64_t first, uint64_t n) {
    const struct linear_tile *tile = context;
    uint32_t cols = tile->matrix.cols;
    for (uint64_t t = first; t < first + n; t++)
        plec_cpu_image_make(tile->images + t * tile->image_floats, tile->matrix.kernel,
                            tile->x + t * cols, cols, cols);
}

static void run_tile(struct plec_cpu_pool *pool, struct linear_tile *tile) {
    uint64_t token_grain = PLEC_CPU_GRAIN / tile->matrix.cols + 1;
    if (tile->images != NULL)
        plec_cpu_pool_run(pool, tile->n_tokens, token_grain, linear_images, tile);
    uint32_t grain = plec_cpu_rows_in(PLEC_CPU_GRAIN_BYTES, tile->matrix.row_bytes);
    plec_cpu_pool_run(pool, tile->matrix.rows, grain, linear_range, tile);
}

static enum plec_status run_linear(struct plec_cpu_stream *stream, const void *op_args,
                                   struct plec_error *err) {
    const struct plec_linear_args *args = op_args;
    (void)err;
    struct linear_tile tile = {.args = args};
    tile.matrix = plec_cpu_matrix_bind(&args->matrix, stream->device->kernels);
    tile.block_rows = plec_cpu_rows_in(PLEC_CPU_BLOCK_BYTES, tile.matrix.row_bytes);
    uint64_t per_image =
        plec_cpu_image_floats(tile.matrix.kernel, args->matrix.cols, args->matrix.cols);
    uint64_t n_fit =
        per_image == 0 ? args->n_tokens : PLEC_CPU_SCRATCH_BYTES / sizeof(float) / per_image;
    if (n_fit == 0) { /* a vector wider than the scratch: the plain kernel needs no image */
        tile.matrix = plec_cpu_matrix_bind(&args->matrix, PLEC_CPU_PLAIN_C);
        per_image = 0, n_fit = args->n_tokens;
    }
    tile.image_floats = per_image;
    tile.images = per_image == 0 ? NULL : stream->scratch;
    for (uint64_t t = 0; t < args->n_tokens; t += n_fit) {
        tile.x = args->x + t * args->matrix.cols;
        tile.y = args->y + t * args->matrix.rows;
        tile.n_tokens = (uint32_t)(args->n_tokens - t < n_fit ? args->n_tokens - t : n_fit);
        run_tile(&stream->device->pool, &tile);
    }
    return PLEC_OK;
}

_Static_assert(sizeof(struct plec_linear_args) <= PLEC_CPU_OPERATION_BYTES, "fits the ring");

enum plec_status plec_cpu_linear(struct plec_stream *stream, const struct plec_linear_args *args,
                                 struct plec_error *err) {
    enum plec_status status = plec_cpu_check_kernel(args->matrix.format, "linear", err);
    if (status != PLEC_OK || args->n_tokens == 0 || args->matrix.rows == 0) return status;
    return plec_cpu_enqueue(stream, run_linear, args, sizeof *args);
}

static void norm_token(const struct plec_norm_args *args, float *x) {
    double sum = 0;
    for (uint32_t i = 0; i < args->width; i++)
        sum += (double)x[i] * x[i];
    float scale = (float)(1.0 / sqrt(sum / args->width + args->eps));
    for (uint32_t i = 0; i < args->width; i++)
        x[i] = x[i] * scale * args->gain[i];
}

static void norm_range(void *context, uint64_t first, uint64_t n) {
    const struct plec_norm_args *args = context;
    for (uint64_t t = first; t < first + n; t++)
        norm_token(args, args->x + t * args->width);
}

static enum plec_status run_norm(struct plec_cpu_stream *stream, const void *op_args,
                                 struct plec_error *err) {
    struct plec_norm_args args = *(const struct plec_norm_args *)op_args;
    (void)err;
    plec_cpu_pool_run(&stream->device->pool, args.n_tokens, PLEC_CPU_GRAIN / args.width + 1,
                      norm_range, &args);
    return PLEC_OK;
}

enum plec_status plec_cpu_norm(struct plec_stream *stream, const struct plec_norm_args *args,
                               struct plec_error *err) {
    (void)err;
    return plec_cpu_enqueue(stream, run_norm, args, sizeof *args);
}

struct elementwise {
    float *x;
    uint64_t n;
    float factor;
    plec_cpu_sigmoid_function *sigmoid; /* NULL: multiply by factor */
};

static void elementwise_range(void *context, uint64_t first, uint64_t n) {
    const struct elementwise *op = context;
    if (op->sigmoid != NULL) {
        op->sigmoid(op->x + first, n);
        return;
    }
    for (uint64_t i = first; i < first + n; i++)
        op->x[i] *= op->factor;
}

static enum plec_status run_elementwise(struct plec_cpu_stream *stream, const void *op_args,
                                        struct plec_error *err) {
    struct elementwise op = *(const struct elementwise *)op_args;
    (void)err;
    plec_cpu_pool_run(&stream->device->pool, op.n, PLEC_CPU_GRAIN, elementwise_range, &op);
    return PLEC_OK;
}

enum plec_status plec_cpu_sigmoid_launch(struct plec_stream *stream, float *x, uint64_t n,
                                         struct plec_error *err) {
    const struct plec_cpu_device *device = ((struct plec_cpu_stream *)stream)->device;
    struct elementwise op = {x, n, 1, plec_cpu_sigmoid_find(device->kernels)};
    (void)err;
    return plec_cpu_enqueue(stream, run_elementwise, &op, sizeof op);
}

enum plec_status plec_cpu_scale(struct plec_stream *stream, float *x, uint64_t n, float factor,
                                struct plec_error *err) {
    struct elementwise op = {x, n, factor, NULL};
    (void)err;
    return plec_cpu_enqueue(stream, run_elementwise, &op, sizeof op);
}
