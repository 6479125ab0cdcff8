/* down.c: o[pair] = down . h * ds + bd, by rows of an expert; then y[token] = sum over
 * slots of weight * o[pair], always in slot order. */
#include "device/cpu/experts.h"

/* Rows i and on for up to PLEC_CPU_TOKENS pairs of the slice. */
static void down_rows(const struct plec_cpu_experts *run, const struct plec_cpu_slice *slice,
                      const struct plec_cpu_matrix *matrix, struct plec_cpu_bias *bias, uint64_t at,
                      uint32_t i, uint32_t n_rows) {
    struct plec_cpu_vector vectors[PLEC_CPU_TOKENS];
    float sums[PLEC_CPU_ROWS * PLEC_CPU_TOKENS], b[PLEC_CPU_ROWS];
    const uint64_t *pairs = slice->pairs + at;
    uint64_t left = slice->n_pairs - at;
    uint32_t n = left < PLEC_CPU_TOKENS ? (uint32_t)left : PLEC_CPU_TOKENS;
    float scale = run->bank->down_scale != NULL ? run->bank->down_scale[slice->expert] : 1;
    for (uint32_t t = 0; t < n; t++)
        vectors[t] = plec_cpu_vector_at(&run->down_images, pairs[t]);
    plec_cpu_dot(sums, matrix, i, n_rows, vectors, n);
    plec_cpu_bias_read(b, bias, i, 1, n_rows);
    for (uint32_t t = 0; t < n; t++) {
        float *out = run->out + pairs[t] * run->bank->output_dim + i;
        for (uint32_t r = 0; r < n_rows; r++)
            out[r] = sums[r * n + t] * scale + b[r];
    }
}

static void run_slice(const struct plec_cpu_experts *run, const struct plec_cpu_slice *slice) {
    struct plec_cpu_matrix matrix = plec_cpu_operand(run, slice->entry, PLEC_DOWN);
    struct plec_cpu_bias bias;
    plec_cpu_bias_open(&bias, run->bank, slice->entry, PLEC_DOWN_BIAS);
    uint32_t block = plec_cpu_rows_in(PLEC_CPU_BLOCK_BYTES, matrix.row_bytes), n_rows;
    for (uint32_t i = slice->first_row; i < slice->last_row; i += n_rows) {
        n_rows = slice->last_row - i < block ? slice->last_row - i : block;
        for (uint64_t at = 0; at < slice->n_pairs; at += PLEC_CPU_TOKENS)
            down_rows(run, slice, &matrix, &bias, at, i, n_rows);
    }
}

static void down_range(void *context, uint64_t first, uint64_t n) {
    const struct plec_cpu_experts *run = context;
    while (n > 0) {
        struct plec_cpu_slice slice = plec_cpu_slice_at(run, first, run->bank->output_dim, n);
        run_slice(run, &slice);
        first += slice.last_row - slice.first_row, n -= slice.last_row - slice.first_row;
    }
}

void plec_cpu_down(struct plec_cpu_experts *run) {
    struct plec_cpu_matrix matrix =
        plec_cpu_operand(run, &run->bank->entries[run->active[0]], PLEC_DOWN);
    uint32_t grain = plec_cpu_rows_in(PLEC_CPU_GRAIN_BYTES, matrix.row_bytes);
    plec_cpu_pool_run(run->pool, (uint64_t)run->n_active * run->bank->output_dim, grain, down_range,
                      run);
}

enum { FINALIZE_COLS = 1024 };

static void finalize_cols(const struct plec_cpu_experts *run, uint64_t token, uint32_t first,
                          uint32_t n) {
    const struct plec_experts_args *args = run->args;
    uint32_t width = run->bank->output_dim;
    float sums[FINALIZE_COLS] = {0};
    for (uint32_t slot = 0; slot < args->n_slots; slot++) {
        uint64_t pair = token * args->n_slots + slot;
        float weight = args->weight_on_input ? 1 : plec_cpu_pair_weight(run, pair);
        const float *out = run->out + pair * width + first;
        for (uint32_t i = 0; i < n; i++)
            sums[i] += weight * out[i];
    }
    float *y = args->y + token * width + first;
    for (uint32_t i = 0; i < n; i++)
        y[i] = args->accumulate ? y[i] + sums[i] : sums[i];
}

static uint64_t finalize_parts(const struct plec_cpu_experts *run) {
    return ((uint64_t)run->bank->output_dim + FINALIZE_COLS - 1) / FINALIZE_COLS;
}

/* Items: the parts of token 0, of token 1, ... */
static void finalize_range(void *context, uint64_t first_item, uint64_t n) {
    const struct plec_cpu_experts *run = context;
    uint32_t width = run->bank->output_dim;
    uint64_t n_parts = finalize_parts(run);
    for (uint64_t item = first_item; item < first_item + n; item++) {
        uint32_t first = (uint32_t)(item % n_parts) * FINALIZE_COLS;
        uint32_t n_cols = width - first < FINALIZE_COLS ? width - first : FINALIZE_COLS;
        finalize_cols(run, item / n_parts, first, n_cols);
    }
}

void plec_cpu_finalize(struct plec_cpu_experts *run) {
    uint64_t grain = PLEC_CPU_GRAIN / (FINALIZE_COLS * ((uint64_t)run->args->n_slots + 1)) + 1;
    plec_cpu_pool_run(run->pool, run->args->n_tokens * finalize_parts(run), grain, finalize_range,
                      run);
}
