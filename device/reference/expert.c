/* expert.c: one expert on one token: down . combine(gate . x, up . x), with every optional operand.
 */
#include <assert.h>
#include <string.h>

#include "device/reference/parts.h"
#include "device/reference/reference.h"

/* Views of the scratch. n is the intermediate size. */
struct expert_run {
    double *x;       /* [input_dim] the input, weighted where the weight belongs there */
    double *product; /* [max(2n, output_dim)] rows of gate and up in their stored order, then of
                        down */
    double *bias;    /* the same rows' biases, 0 where there are none */
    double *hidden;  /* [n] */
    double *row;     /* one decoded row of any matrix */
};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t products(const struct plec_bank *bank) {
    return larger(2 * (size_t)bank->intermediate_dim, bank->output_dim);
}

static size_t longest_row(const struct plec_bank *bank) {
    size_t longest = 0;
    for (int i = 0; i < PLEC_N_MATRICES; i++)
        longest = larger(longest, bank->operands[i].cols);
    return longest;
}

size_t plec_reference_expert_scratch(const struct plec_bank *bank) {
    return bank->input_dim + 2 * products(bank) + bank->intermediate_dim + longest_row(bank);
}

static struct expert_run run_in(double *scratch, const struct plec_bank *bank) {
    struct expert_run run;
    run.x = scratch;
    run.product = run.x + bank->input_dim;
    run.bias = run.product + products(bank);
    run.hidden = run.bias + products(bank);
    run.row = run.hidden + bank->intermediate_dim;
    return run;
}

static bool present(const struct plec_bank *bank, enum plec_operand_id id) {
    return bank->operands[id].rows != 0;
}

static struct plec_matrix operand(const struct plec_bank *bank, uint32_t entry,
                                  enum plec_operand_id id) {
    struct plec_matrix m;
    m.format = bank->operands[id].format;
    m.rows = bank->operands[id].rows;
    m.cols = bank->operands[id].cols;
    m.values = bank->entries[entry].values[id];
    m.scales = (int)id < PLEC_N_MATRICES ? bank->entries[entry].scales[id] : NULL;
    return m;
}

/* Fills product and bias from row `at` on with the rows of one matrix and their biases. */
static void project(const struct expert_run *run, const struct plec_bank *bank, uint32_t entry,
                    enum plec_operand_id id, size_t at) {
    struct plec_matrix matrix = operand(bank, entry, id);
    assert(at + matrix.rows <= products(bank));
    /* Padded columns of down are never read: hidden ends before them. */
    if (id == PLEC_DOWN)
        plec_reference_linear(run->product, &matrix, run->hidden, bank->intermediate_dim, run->row);
    else
        plec_reference_linear(run->product + at, &matrix, run->x, bank->input_dim, run->row);
    enum plec_operand_id bias_id = (enum plec_operand_id)(id + PLEC_GATE_BIAS);
    memset(run->bias + at, 0, matrix.rows * sizeof *run->bias);
    if (!present(bank, bias_id)) return;
    struct plec_matrix vector = operand(bank, entry, bias_id);
    assert(vector.rows == 1 && vector.cols == matrix.rows);
    plec_matrix_row_f64(run->bias + at, &vector, 0);
}

static double factor(const float *scales, uint32_t entry) {
    return scales != NULL ? scales[entry] : 1;
}

/* Where gate i and up i stand among the 2n products. Separate matrices fill the two halves. */
static size_t gate_row(const struct plec_bank *bank, size_t i) {
    switch (bank->fusion) {
    case PLEC_FUSED_UP_FIRST: return bank->intermediate_dim + i;
    case PLEC_FUSED_INTERLEAVED: return 2 * i;
    default: return i;
    }
}

static size_t up_row(const struct plec_bank *bank, size_t i) {
    switch (bank->fusion) {
    case PLEC_FUSED_UP_FIRST: return i;
    case PLEC_FUSED_INTERLEAVED: return 2 * i + 1;
    default: return bank->intermediate_dim + i;
    }
}

/* hidden [n] = act(gate . x * gs + bg, up . x * us + bu). */
static void gate_and_up(const struct expert_run *run, const struct plec_bank *bank,
                        uint32_t entry) {
    uint32_t n = bank->intermediate_dim;
    bool fused = bank->fusion != PLEC_NOT_FUSED, has_gate = present(bank, PLEC_GATE);
    if (has_gate) project(run, bank, entry, PLEC_GATE, 0);
    if (!fused) project(run, bank, entry, PLEC_UP, n);
    double gate_scale = factor(bank->gate_scale, entry), up_scale = factor(bank->up_scale, entry);
    for (uint32_t i = 0; i < n; i++) {
        size_t at_gate = gate_row(bank, i), at_up = up_row(bank, i);
        double g = has_gate ? run->product[at_gate] * gate_scale + run->bias[at_gate] : 0;
        double u = run->product[at_up] * up_scale + run->bias[at_up];
        run->hidden[i] = plec_reference_combine(&bank->maths, has_gate, g, u);
    }
}

void plec_reference_expert(double *y, const struct plec_bank *bank, uint32_t entry, double weight,
                           bool weight_on_input, const double *x, double *scratch) {
    assert(entry < bank->n_entries);
    struct expert_run run = run_in(scratch, bank);
    for (uint32_t i = 0; i < bank->input_dim; i++)
        run.x[i] = weight_on_input ? weight * x[i] : x[i];
    gate_and_up(&run, bank, entry);
    project(&run, bank, entry, PLEC_DOWN, 0);
    double down_scale = factor(bank->down_scale, entry);
    double output_weight = weight_on_input ? 1 : weight;
    for (uint32_t i = 0; i < bank->output_dim; i++)
        y[i] += output_weight * (run.product[i] * down_scale + run.bias[i]);
}
