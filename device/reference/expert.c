/* expert.c: one expert on one token: down . combine(gate . x, up . x), with every optional operand.
 */
#include <assert.h>
#include <string.h>

#include "device/reference/parts.h"
#include "device/reference/reference.h"
#include "lyrw/codec/round.h"

/* Views of the scratch. n is the intermediate size. */
struct expert_run {
    double *input;   /* [max(input_dim, n)] what enters a matrix, rounded where the rule says so */
    double *product; /* [max(2n, output_dim)] rows of gate and up in their stored order, then of
                        down */
    double *bias;    /* the same rows' biases, 0 where there are none */
    double *hidden;  /* [n] */
    double *row;     /* one decoded row of any matrix */
    enum plec_reference_rule rule;
};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t products(const struct plec_bank *bank) {
    return larger(2 * (size_t)bank->intermediate_dim, bank->output_dim);
}

static size_t inputs(const struct plec_bank *bank) {
    return larger(bank->input_dim, bank->intermediate_dim);
}

static size_t longest_row(const struct plec_bank *bank) {
    size_t longest = 0;
    for (int i = 0; i < PLEC_N_MATRICES; i++)
        longest = larger(longest, bank->operands[i].cols);
    return longest;
}

size_t plec_reference_expert_scratch(const struct plec_bank *bank) {
    return inputs(bank) + 2 * products(bank) + bank->intermediate_dim + longest_row(bank);
}

static struct expert_run run_in(double *scratch, const struct plec_bank *bank) {
    struct expert_run run;
    run.input = scratch;
    run.product = run.input + inputs(bank);
    run.bias = run.product + products(bank);
    run.hidden = run.bias + products(bank);
    run.row = run.hidden + bank->intermediate_dim;
    run.rule = PLEC_REFERENCE_EXACT;
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

/* What a matrix of this format is given of x [n]: x itself or x rounded. */
static void enter(const struct expert_run *run, uint16_t format, const double *x, size_t n) {
    bool rounded = run->rule == PLEC_REFERENCE_BF16 && plec_format_rounds_inputs(format);
    for (size_t i = 0; i < n; i++)
        run->input[i] = rounded ? plec_bf16_f32(plec_f32_bf16((float)x[i])) : x[i];
}

/* Fills product and bias from row `at` on with the rows of one matrix and their biases. x: what
 * enters the matrix; its length is bank->intermediate_dim or input_dim. */
static void project(const struct expert_run *run, const struct plec_bank *bank, uint32_t entry,
                    enum plec_operand_id id, const double *x, double weight, size_t at) {
    struct plec_matrix matrix = operand(bank, entry, id);
    assert(at + matrix.rows <= products(bank));
    /* Padded columns of down are never read: hidden ends before them. */
    uint32_t n = id == PLEC_DOWN ? bank->intermediate_dim : bank->input_dim;
    enter(run, matrix.format, x, n);
    for (size_t i = 0; i < n && weight != 1; i++)
        run->input[i] *= weight;
    plec_reference_linear(run->product + at, &matrix, run->input, n, run->row);
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
static void gate_and_up(const struct expert_run *run, const struct plec_bank *bank, uint32_t entry,
                        const double *x, double weight) {
    uint32_t n = bank->intermediate_dim;
    bool fused = bank->fusion != PLEC_NOT_FUSED, has_gate = present(bank, PLEC_GATE);
    if (has_gate) project(run, bank, entry, PLEC_GATE, x, weight, 0);
    if (!fused) project(run, bank, entry, PLEC_UP, x, weight, n);
    double gate_scale = factor(bank->gate_scale, entry), up_scale = factor(bank->up_scale, entry);
    for (uint32_t i = 0; i < n; i++) {
        size_t at_gate = gate_row(bank, i), at_up = up_row(bank, i);
        double g = has_gate ? run->product[at_gate] * gate_scale + run->bias[at_gate] : 0;
        double u = run->product[at_up] * up_scale + run->bias[at_up];
        run->hidden[i] = plec_reference_combine(&bank->maths, has_gate, g, u);
    }
}

void plec_reference_expert_by_rule(double *y, const struct plec_reference_expert_args *args) {
    const struct plec_bank *bank = args->bank;
    assert(args->entry < bank->n_entries);
    struct expert_run run = run_in(args->scratch, bank);
    run.rule = args->rule;
    double input_weight = args->weight_on_input ? args->weight : 1;
    double output_weight = args->weight_on_input ? 1 : args->weight;
    gate_and_up(&run, bank, args->entry, args->x, input_weight);
    project(&run, bank, args->entry, PLEC_DOWN, run.hidden, 1, 0);
    double down_scale = factor(bank->down_scale, args->entry);
    for (uint32_t i = 0; i < bank->output_dim; i++)
        y[i] += output_weight * (run.product[i] * down_scale + run.bias[i]);
}

void plec_reference_expert(double *y, const struct plec_bank *bank, uint32_t entry, double weight,
                           bool weight_on_input, const double *x, double *scratch) {
    struct plec_reference_expert_args args = {.bank = bank,
                                              .entry = entry,
                                              .rule = PLEC_REFERENCE_EXACT,
                                              .weight = weight,
                                              .weight_on_input = weight_on_input,
                                              .x = x,
                                              .scratch = scratch};
    plec_reference_expert_by_rule(y, &args);
}
