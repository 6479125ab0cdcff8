/* gate_up.c: h[pair] = act(gate . x * gs + bg, up . x * us + bu), some rows of one expert a chunk.
 *
 * Row i of gate and row i of up are taken together whatever the layout, so that the activation
 * needs no second pass. A weight on the input multiplies the products: w(x) . gate is w times
 * gate . x. */
#include <string.h>

#include "device/cpu/activation.h"
#include "device/cpu/experts.h"

/* One of the two matrices and where its row i lies. */
struct side {
    bool present;
    struct plec_cpu_matrix matrix;
    uint32_t first, step;
    float scale;
    struct plec_cpu_bias bias;
};

static void open_side(struct side *side, const struct plec_cpu_experts *run,
                      const struct plec_cpu_chunk_view *chunk, bool is_up) {
    const struct plec_bank *bank = run->bank;
    bool fused = bank->fusion != PLEC_NOT_FUSED;
    enum plec_operand_id id = is_up && !fused ? PLEC_UP : PLEC_GATE;
    const float *scales = is_up ? bank->up_scale : bank->gate_scale;
    side->present = plec_cpu_has(bank, id);
    if (!side->present) return;
    side->matrix = plec_cpu_operand(run, chunk->entry, id);
    side->scale = scales != NULL ? scales[chunk->expert] : 1;
    plec_cpu_bias_open(&side->bias, bank, chunk->entry,
                       id == PLEC_UP ? PLEC_UP_BIAS : PLEC_GATE_BIAS);
    side->first = 0, side->step = 1;
    if (bank->fusion == PLEC_FUSED_INTERLEAVED)
        side->first = is_up ? 1 : 0, side->step = 2;
    else if (fused && is_up == (bank->fusion == PLEC_FUSED_GATE_FIRST))
        side->first = bank->intermediate_dim;
}

/* Up to PLEC_CPU_TOKENS pairs of the chunk. */
struct batch {
    uint32_t n;
    uint64_t pairs[PLEC_CPU_TOKENS];
    float input_weights[PLEC_CPU_TOKENS]; /* 1 unless the weight is on the input */
    struct plec_cpu_vector gate[PLEC_CPU_TOKENS], up[PLEC_CPU_TOKENS];
};

static void open_batch(struct batch *batch, const struct plec_cpu_experts *run,
                       const struct plec_cpu_chunk_view *chunk, uint64_t at) {
    uint64_t left = chunk->n_pairs - at;
    batch->n = left < PLEC_CPU_TOKENS ? (uint32_t)left : PLEC_CPU_TOKENS;
    for (uint32_t t = 0; t < batch->n; t++) {
        uint64_t pair = chunk->pairs[at + t], token = pair / run->args->n_slots;
        batch->pairs[t] = pair;
        batch->input_weights[t] = run->args->weight_on_input ? plec_cpu_pair_weight(run, pair) : 1;
        batch->gate[t] = plec_cpu_vector_at(&run->gate_images, token);
        batch->up[t] = plec_cpu_vector_at(&run->up_images, token);
    }
}

static void project(float *out, struct side *side, const struct batch *batch,
                    const struct plec_cpu_vector *vectors, uint32_t i) {
    uint32_t row = side->first + i * side->step;
    float bias = plec_cpu_bias_at(&side->bias, row);
    plec_cpu_dot(out, &side->matrix, row, vectors, batch->n);
    for (uint32_t t = 0; t < batch->n; t++)
        out[t] = out[t] * batch->input_weights[t] * side->scale + bias;
}

static void run_batch(const struct plec_cpu_experts *run, struct side *gate, struct side *up,
                      const struct batch *batch, const struct plec_cpu_chunk_view *chunk) {
    float g[PLEC_CPU_TOKENS], u[PLEC_CPU_TOKENS], h[PLEC_CPU_TOKENS];
    size_t width = run->bank->intermediate_dim;
    for (uint32_t i = chunk->first_row; i < chunk->last_row; i++) {
        if (gate->present) project(g, gate, batch, batch->gate, i);
        project(u, up, batch, batch->up, i);
        plec_cpu_activate(h, &run->bank->maths, gate->present ? g : NULL, u, batch->n);
        for (uint32_t t = 0; t < batch->n; t++)
            run->hidden[batch->pairs[t] * width + i] = h[t];
    }
}

static void gate_up_chunk(void *context, uint64_t i_chunk) {
    const struct plec_cpu_experts *run = context;
    struct plec_cpu_chunk_view chunk = plec_cpu_chunk_at(run, i_chunk, run->bank->intermediate_dim);
    struct side gate, up;
    struct batch batch;
    open_side(&gate, run, &chunk, false);
    open_side(&up, run, &chunk, true);
    for (uint64_t at = 0; at < chunk.n_pairs; at += PLEC_CPU_TOKENS) {
        open_batch(&batch, run, &chunk, at);
        run_batch(run, &gate, &up, &batch, &chunk);
    }
}

static uint64_t row_bytes(const struct plec_cpu_experts *run, enum plec_operand_id id) {
    return plec_cpu_has(run->bank, id) ? plec_cpu_operand(run, &run->bank->entries[0], id).row_bytes
                                       : 0;
}

void plec_cpu_gate_up(struct plec_cpu_experts *run) {
    uint32_t rows = run->bank->intermediate_dim;
    bool fused = run->bank->fusion != PLEC_NOT_FUSED;
    uint64_t gate = row_bytes(run, PLEC_GATE);
    run->chunk_rows = plec_cpu_chunk_rows(fused ? 2 * gate : gate + row_bytes(run, PLEC_UP));
    run->expert_chunks = ((uint64_t)rows + run->chunk_rows - 1) / run->chunk_rows;
    plec_cpu_pool_run(run->pool, run->n_active * run->expert_chunks, gate_up_chunk, run);
}
