/* reference.h: the double-precision executor: slow, single-threaded and plainly right. The oracle
 * of every kernel: no blocking, no tricks, loops in the order of the formulas.
 *
 * Owns nothing, keeps no state; safe from any thread. Weights are decoded exactly as their format
 * says, everything after is double, outputs are rounded to f32 once. A second mode rounds where the
 * kernels with bf16 operands do, so that these can be held to their own rule closely.
 */
#ifndef PLEC_DEVICE_REFERENCE_H
#define PLEC_DEVICE_REFERENCE_H

#include "device/layer.h"
#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The activation of one pair; has_gate false: g is ignored and the function acts on u. */
double plec_reference_combine(const struct plec_expert_maths *maths, bool has_gate, double g,
                              double u);

/* Logits of one token: z [n_experts] f64 = weight . r + bias, r made of x [input_dim] f32 as
 * struct plec_router says. row [weight.cols] f64: scratch. */
void plec_reference_logits(double *z, const struct plec_router *router, const float *x,
                           double *row);

/* The two halves of that, for callers that decode a row once for many tokens: the row of an expert
 * with the input's scale in it, and what a token's product with it is multiplied by. */
void plec_reference_router_row(double *row, const struct plec_router *router, uint32_t expert);
double plec_reference_input_factor(const struct plec_router *router, const float *x);

/* Routes one token from its logits. ids [top_k] best key first, weights [top_k] f64, scratch
 * [plec_reference_route_scratch] f64. Softmax without a selection bias orders by logit, which is
 * the order of the scores before they round. PLEC_BAD_INPUT "NanScores" when a logit is NaN, or an
 * infinite one leaves a score NaN or a weight not finite (softmax over +Inf, or over -Inf alone):
 * ids and weights are then untouched; the caller adds the token. The router was checked at bind: k
 * and groups fit. */
PLEC_MUST_USE enum plec_status plec_reference_route(int32_t *ids, double *weights,
                                                    const struct plec_router *router,
                                                    const double *z, double *scratch,
                                                    struct plec_error *err);
size_t plec_reference_route_scratch(const struct plec_router *router);

/* Weights of ids chosen elsewhere (hash layers), from the same logits: p, normalise, scale,
 * expert_scale. ids are in range; a NaN logit gives NaN weights. scratch as for route. */
void plec_reference_weigh(double *weights, const int32_t *ids, const struct plec_router *router,
                          const double *z, double *scratch);

/* Where numbers are rounded besides the output. */
enum plec_reference_rule {
    PLEC_REFERENCE_EXACT,
    /* What enters a matrix whose format says plec_format_rounds_inputs (the expert's input, and
     * what the activation made) is rounded to bf16 once, to nearest, ties to even. A weight on the
     * input multiplies after that. Weights stay exact, in every format. */
    PLEC_REFERENCE_BF16
};

/* One expert on one token: y [output_dim] f64 += weight * expert(x), x [input_dim] f64. scratch:
 * plec_reference_expert_scratch doubles. */
void plec_reference_expert(double *y, const struct plec_bank *bank, uint32_t entry, double weight,
                           bool weight_on_input, const double *x, double *scratch);
/* The same by a rule. */
struct plec_reference_expert_args {
    const struct plec_bank *bank;
    uint32_t entry;
    enum plec_reference_rule rule;
    double weight;
    bool weight_on_input;
    const double *x; /* [input_dim] */
    double *scratch; /* plec_reference_expert_scratch doubles */
};
void plec_reference_expert_by_rule(double *y, const struct plec_reference_expert_args *args);
size_t plec_reference_expert_scratch(const struct plec_bank *bank);

/* A whole layer. */
struct plec_reference_args {
    const struct plec_layer *layer;
    uint32_t n_tokens, n_slots;
    const float *x;                /* [n_tokens, hidden] f32 */
    const int32_t *ids;            /* [n_tokens, n_slots], in range */
    const double *weights;         /* [n_tokens, n_slots] */
    bool routed_only;              /* leave shared and dense banks out: y = out_scale * routed(x) */
    float *y;                      /* [n_tokens, hidden] f32 */
    double *scratch;               /* plec_reference_layer_scratch doubles */
    enum plec_reference_rule rule; /* of the experts; the layer's other matrices are exact */
};
size_t plec_reference_layer_scratch(const struct plec_layer *layer);
void plec_reference_layer(const struct plec_reference_args *args);

#ifdef __cplusplus
}
#endif
#endif
