/* gate_up.c: h[pair] = act(gate . x * gs + bg, up . x * us + bu), by rows of an expert.
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
    uint32_t first, step; /* row i is first + i * step; step 2: gate and up rows alternate */
    float scale;
    struct plec_cpu_bias bias;
};

static void open_side(struct side *side, const struct plec_cpu_experts *run,
                      const struct plec_cpu_slice *slice, bool is_up) {
    const struct plec_bank *bank = run->bank;
    bool fused = bank->fusion != PLEC_NOT_FUSED;
    enum plec_operand_id id = is_up && !fused ? PLEC_UP : PLEC_GATE;
    const float *scales = is_up ? bank->up_scale : bank->gate_scale;
    side->present = plec_cpu_has(bank, id);
    if (!side->present) return;
    side->matrix = plec_cpu_operand(run, slice->entry, id);
    side->scale = scales != NULL ? scales[slice->expert] : 1;
    plec_cpu_bias_open(&side->bias, bank, slice->entry,
                       id == PLEC_UP ? PLEC_UP_BIAS : PLEC_GATE_BIAS);
    side->first = 0, side->step = 1;
    if (bank->fusion == PLEC_FUSED_INTERLEAVED)
        side->first = is_up ? 1 : 0, side->step = 2;
    else if (fused && is_up == (bank->fusion == PLEC_FUSED_GATE_FIRST))
        side->first = bank->intermediate_dim;
}

/* Up to PLEC_CPU_TOKENS pairs of the slice. */
struct batch {
    uint32_t n;
    uint64_t pairs[PLEC_CPU_TOKENS];
    float input_weights[PLEC_CPU_TOKENS]; /* 1 unless the weight is on the input */
    struct plec_cpu_vector gate[PLEC_CPU_TOKENS], up[PLEC_CPU_TOKENS];
};

static void open_batch(struct batch *batch, const struct plec_cpu_experts *run,
                       const struct plec_cpu_slice *slice, uint64_t at) {
    uint64_t left = slice->n_pairs - at;
    batch->n = left < PLEC_CPU_TOKENS ? (uint32_t)left : PLEC_CPU_TOKENS;
    for (uint32_t t = 0; t < batch->n; t++) {
        uint64_t pair = slice->pairs[at + t], token = pair / run->args->n_slots;
        batch->pairs[t] = pair;
        batch->input_weights[t] = run->args->weight_on_input ? plec_cpu_pair_weight(run, pair) : 1;
        batch->gate[t] = plec_cpu_vector_at(&run->gate_images, token);
        batch->up[t] = plec_cpu_vector_at(&run->up_images, token);
    }
}

enum { VALUES = PLEC_CPU_ROWS * PLEC_CPU_TOKENS };

/* g and u [n_rows, batch->n] = the bare products of rows i and on. Alternating rows are read in one
 * run and then parted. */
static void multiply(float *g, float *u, const struct side *gate, const struct side *up,
                     const struct batch *batch, uint32_t i, uint32_t n_rows) {
    uint32_t n = batch->n;
    if (up->step == 1) {
        if (gate->present) plec_cpu_dot(g, &gate->matrix, gate->first + i, n_rows, batch->gate, n);
        plec_cpu_dot(u, &up->matrix, up->first + i, n_rows, batch->up, n);
        return;
    }
    float both[2 * VALUES];
    plec_cpu_dot(both, &up->matrix, 2 * i, 2 * n_rows, batch->up, n);
    for (uint32_t r = 0; r < n_rows; r++) {
        memcpy(g + r * n, both + 2 * r * n, n * sizeof *g);
        memcpy(u + r * n, both + (2 * r + 1) * n, n * sizeof *u);
    }
}

/* values = values * input weight * scale + bias. */
static void finish(float *values, struct side *side, const struct batch *batch, uint32_t i,
                   uint32_t n_rows) {
    float bias[PLEC_CPU_ROWS];
    plec_cpu_bias_read(bias, &side->bias, side->first + i * side->step, side->step, n_rows);
    for (uint32_t t = 0; t < batch->n; t++) {
        float factor = batch->input_weights[t] * side->scale;
        for (uint32_t r = 0; r < n_rows; r++)
            values[r * batch->n + t] = values[r * batch->n + t] * factor + bias[r];
    }
}

static void run_rows(const struct plec_cpu_experts *run, struct side *gate, struct side *up,
                     const struct batch *batch, uint32_t i, uint32_t n_rows) {
    float g[VALUES], u[VALUES], h[VALUES];
    uint32_t n = batch->n;
    multiply(g, u, gate, up, batch, i, n_rows);
    if (gate->present) finish(g, gate, batch, i, n_rows);
    finish(u, up, batch, i, n_rows);
    plec_cpu_activate(h, &run->bank->maths, gate->present ? g : NULL, u, (size_t)n_rows * n,
                      run->sigmoid);
    for (uint32_t t = 0; t < n; t++) {
        float *to = run->hidden + batch->pairs[t] * run->bank->intermediate_dim + i;
        for (uint32_t r = 0; r < n_rows; r++)
            to[r] = h[r * n + t];
    }
}

static void run_slice(const struct plec_cpu_experts *run, const struct plec_cpu_slice *slice) {
    struct side gate, up;
    struct batch batch;
    open_side(&gate, run, slice, false);
    open_side(&up, run, slice, true);
    uint64_t row_bytes = up.matrix.row_bytes + (gate.present ? gate.matrix.row_bytes : 0);
    uint32_t block = plec_cpu_rows_in(PLEC_CPU_BLOCK_BYTES, row_bytes), n_rows;
    for (uint32_t i = slice->first_row; i < slice->last_row; i += n_rows) {
        n_rows = slice->last_row - i < block ? slice->last_row - i : block;
        for (uint64_t at = 0; at < slice->n_pairs; at += PLEC_CPU_TOKENS) {
            open_batch(&batch, run, slice, at);
            run_rows(run, &gate, &up, &batch, i, n_rows);
        }
    }
}

static void gate_up_range(void *context, uint64_t first, uint64_t n) {
    const struct plec_cpu_experts *run = context;
    while (n > 0) {
        struct plec_cpu_slice slice = plec_cpu_slice_at(run, first, run->bank->intermediate_dim, n);
        run_slice(run, &slice);
        first += slice.last_row - slice.first_row, n -= slice.last_row - slice.first_row;
    }
}

void plec_cpu_gate_up(struct plec_cpu_experts *run) {
    enum plec_operand_id id = run->bank->fusion != PLEC_NOT_FUSED ? PLEC_GATE : PLEC_UP;
    struct plec_cpu_matrix matrix = plec_cpu_operand(run, &run->bank->entries[run->active[0]], id);
    uint32_t grain = plec_cpu_rows_in(PLEC_CPU_GRAIN_BYTES, matrix.row_bytes);
    plec_cpu_pool_run(run->pool, (uint64_t)run->n_active * run->bank->intermediate_dim, grain,
                      gate_up_range, run);
}
