/* layer.c: a whole layer, token by token, as the formulas of device/layer.h stand. */
#include <assert.h>
#include <math.h>
#include <string.h>

#include "device/reference/parts.h"
#include "device/reference/reference.h"

/* Views of the scratch. */
struct token_run {
    double *x;          /* [hidden] the token in double */
    double *latent;     /* [routed.input_dim] what the experts see */
    double *routed;     /* [routed.output_dim] their weighted sum */
    double *branch;     /* [hidden] one branch's output */
    double *y;          /* [hidden] the sum of the branches */
    double *row;        /* one decoded row of the layer's own matrices */
    double *of_experts; /* scratch of an expert of any bank */
    enum plec_reference_rule rule;
};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

static size_t longest_row(const struct plec_layer *layer) {
    return larger(larger(layer->latent_in.cols, layer->latent_out.cols), layer->shared_gate.cols);
}

static size_t expert_scratch(const struct plec_layer *layer) {
    return larger(larger(plec_reference_expert_scratch(&layer->routed),
                         plec_reference_expert_scratch(&layer->shared)),
                  plec_reference_expert_scratch(&layer->dense));
}

size_t plec_reference_layer_scratch(const struct plec_layer *layer) {
    return 3 * (size_t)layer->hidden_size + layer->routed.input_dim + layer->routed.output_dim +
           longest_row(layer) + expert_scratch(layer);
}

static struct token_run run_in(double *scratch, const struct plec_layer *layer) {
    struct token_run run;
    run.x = scratch;
    run.branch = run.x + layer->hidden_size;
    run.y = run.branch + layer->hidden_size;
    run.latent = run.y + layer->hidden_size;
    run.routed = run.latent + layer->routed.input_dim;
    run.row = run.routed + layer->routed.output_dim;
    run.of_experts = run.row + longest_row(layer);
    run.rule = PLEC_REFERENCE_EXACT;
    return run;
}

/* x *= gain * rsqrt(mean(x^2) + eps). */
static void rms_norm(double *x, const float *gain, uint32_t n, double eps) {
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += x[i] * x[i];
    double scale = 1 / sqrt(sum / n + eps);
    for (uint32_t i = 0; i < n; i++)
        x[i] *= scale * gain[i];
}

static void add(double *y, double factor, const double *x, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        y[i] += factor * x[i];
}

/* y += latent_out . norm( sum over slots of w * expert(latent_in . x) ), in slot order. */
/* y += weight * expert(x). */
static void add_expert(const struct token_run *run, double *y, const struct plec_bank *bank,
                       uint32_t entry, double weight, bool weight_on_input, const double *x) {
    struct plec_reference_expert_args args = {.bank = bank,
                                              .entry = entry,
                                              .rule = run->rule,
                                              .weight = weight,
                                              .weight_on_input = weight_on_input,
                                              .x = x,
                                              .scratch = run->of_experts};
    plec_reference_expert_by_rule(y, &args);
}

static void add_routed(const struct token_run *run, const struct plec_layer *layer,
                       const int32_t *ids, const double *weights, uint32_t n_slots) {
    const struct plec_bank *bank = &layer->routed;
    const double *x = run->x;
    if (plec_matrix_present(&layer->latent_in)) {
        assert(layer->latent_in.rows == bank->input_dim);
        plec_reference_linear(run->latent, &layer->latent_in, run->x, layer->hidden_size, run->row);
        x = run->latent;
    }
    memset(run->routed, 0, bank->output_dim * sizeof *run->routed);
    for (uint32_t j = 0; j < n_slots; j++)
        add_expert(run, run->routed, bank, (uint32_t)ids[j], weights[j],
                   layer->router.weight_on_input, x);
    if (layer->routed_norm != NULL)
        rms_norm(run->routed, layer->routed_norm, bank->output_dim, layer->norm_eps);
    const double *out = run->routed;
    if (plec_matrix_present(&layer->latent_out)) {
        assert(layer->latent_out.rows == layer->hidden_size);
        plec_reference_linear(run->branch, &layer->latent_out, run->routed, bank->output_dim,
                              run->row);
        out = run->branch;
    }
    add(run->y, 1, out, layer->hidden_size);
}

/* branch = the sum of every entry of the bank on x, in entry order. */
static void run_all_entries(const struct token_run *run, const struct plec_bank *bank,
                            uint32_t hidden_size) {
    memset(run->branch, 0, hidden_size * sizeof *run->branch);
    for (uint32_t e = 0; e < bank->n_entries; e++)
        add_expert(run, run->branch, bank, e, 1, false, run->x);
}

static void add_shared(const struct token_run *run, const struct plec_layer *layer) {
    run_all_entries(run, &layer->shared, layer->hidden_size);
    double gate = 1;
    if (plec_matrix_present(&layer->shared_gate)) {
        assert(layer->shared_gate.rows == 1);
        plec_reference_linear(&gate, &layer->shared_gate, run->x, layer->hidden_size, run->row);
        gate = plec_reference_sigmoid(gate);
    }
    add(run->y, gate, run->branch, layer->hidden_size);
}

static void add_dense(const struct token_run *run, const struct plec_layer *layer) {
    run_all_entries(run, &layer->dense, layer->hidden_size);
    add(run->y, 1, run->branch, layer->hidden_size);
}

void plec_reference_layer(const struct plec_reference_args *args) {
    const struct plec_layer *layer = args->layer;
    struct token_run run = run_in(args->scratch, layer);
    run.rule = args->rule;
    uint32_t n = layer->hidden_size;
    for (size_t t = 0; t < args->n_tokens; t++) {
        for (uint32_t i = 0; i < n; i++) {
            run.x[i] = args->x[t * n + i];
            run.y[i] = 0;
        }
        if (layer->routed.n_entries > 0)
            add_routed(&run, layer, args->ids + t * args->n_slots,
                       args->weights + t * args->n_slots, args->n_slots);
        if (layer->shared.n_entries > 0 && !args->routed_only) add_shared(&run, layer);
        if (layer->dense.n_entries > 0 && !args->routed_only) add_dense(&run, layer);
        for (uint32_t i = 0; i < n; i++)
            args->y[t * n + i] = (float)(layer->out_scale * run.y[i]);
    }
}
