/* down.c: o[pair] = down . h * ds + bd, some rows of one expert a chunk; then y[token] = sum over
 * slots of weight * o[pair], always in slot order. */
#include "device/cpu/experts.h"

static void down_rows(const struct plec_cpu_experts *run, const struct plec_cpu_chunk_view *chunk,
                      const struct plec_cpu_matrix *matrix, struct plec_cpu_bias *bias,
                      uint64_t at) {
    struct plec_cpu_vector vectors[PLEC_CPU_TOKENS];
    float sums[PLEC_CPU_TOKENS];
    const uint64_t *pairs = chunk->pairs + at;
    uint64_t left = chunk->n_pairs - at;
    uint32_t n = left < PLEC_CPU_TOKENS ? (uint32_t)left : PLEC_CPU_TOKENS;
    float scale = run->bank->down_scale != NULL ? run->bank->down_scale[chunk->expert] : 1;
    for (uint32_t t = 0; t < n; t++)
        vectors[t] = plec_cpu_vector_at(&run->down_images, pairs[t]);
    for (uint32_t row = chunk->first_row; row < chunk->last_row; row++) {
        float b = plec_cpu_bias_at(bias, row);
        plec_cpu_dot(sums, matrix, row, vectors, n);
        for (uint32_t t = 0; t < n; t++)
            run->out[pairs[t] * run->bank->output_dim + row] = sums[t] * scale + b;
    }
}

static void down_chunk(void *context, uint64_t i_chunk) {
    const struct plec_cpu_experts *run = context;
    struct plec_cpu_chunk_view chunk = plec_cpu_chunk_at(run, i_chunk, run->bank->output_dim);
    struct plec_cpu_matrix matrix = plec_cpu_operand(run, chunk.entry, PLEC_DOWN);
    struct plec_cpu_bias bias;
    plec_cpu_bias_open(&bias, run->bank, chunk.entry, PLEC_DOWN_BIAS);
    for (uint64_t at = 0; at < chunk.n_pairs; at += PLEC_CPU_TOKENS)
        down_rows(run, &chunk, &matrix, &bias, at);
}

void plec_cpu_down(struct plec_cpu_experts *run) {
    uint32_t rows = run->bank->output_dim;
    struct plec_cpu_matrix matrix = plec_cpu_operand(run, &run->bank->entries[0], PLEC_DOWN);
    run->chunk_rows = plec_cpu_chunk_rows(matrix.row_bytes);
    run->expert_chunks = ((uint64_t)rows + run->chunk_rows - 1) / run->chunk_rows;
    plec_cpu_pool_run(run->pool, run->n_active * run->expert_chunks, down_chunk, run);
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

static void finalize_chunk(void *context, uint64_t i_chunk) {
    const struct plec_cpu_experts *run = context;
    uint32_t width = run->bank->output_dim;
    uint64_t token = i_chunk / run->expert_chunks;
    uint32_t first = (uint32_t)(i_chunk % run->expert_chunks) * FINALIZE_COLS;
    finalize_cols(run, token, first, width - first < FINALIZE_COLS ? width - first : FINALIZE_COLS);
}

void plec_cpu_finalize(struct plec_cpu_experts *run) {
    run->expert_chunks = ((uint64_t)run->bank->output_dim + FINALIZE_COLS - 1) / FINALIZE_COLS;
    plec_cpu_pool_run(run->pool, run->args->n_tokens * run->expert_chunks, finalize_chunk, run);
}
