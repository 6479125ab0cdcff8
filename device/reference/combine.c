/* combine.c: the activations, each as its formula. Clamps are written as comparisons so that a NaN
 * stays a NaN. */
#include <assert.h>
#include <math.h>

#include "device/reference/parts.h"
#include "device/reference/reference.h"

static const double sqrt_2_over_pi = 0.79788456080286535588;
static const double sqrt_half = 0.70710678118654752440;

double plec_reference_sigmoid(double z) {
    return 1 / (1 + exp(-z));
}

static double at_most(double v, double limit) {
    return v > limit ? limit : v;
}

static double clamp(double v, double limit) {
    return v > limit ? limit : v < -limit ? -limit : v;
}

static double silu(double v) {
    return v * plec_reference_sigmoid(v);
}

static double gelu_tanh(double v) {
    return 0.5 * v * (1 + tanh(sqrt_2_over_pi * v * (1 + 0.044715 * v * v)));
}

/* 0.5 v (1 + erf(v / sqrt 2)), without the cancellation for negative v. */
static double gelu_erf(double v) {
    return 0.5 * v * erfc(-v * sqrt_half);
}

static double relu(double v) {
    return v < 0 ? 0 : v;
}

static double situ(const struct plec_expert_maths *maths, double v) {
    double beta = maths->beta == 0 ? 1 : maths->beta;
    return beta * tanh(v / beta) * plec_reference_sigmoid(v);
}

/* The function of the gate value alone: what an expert without a gate applies to u. */
static double activate(const struct plec_expert_maths *maths, double v) {
    switch (maths->activation) {
    case PLEC_SILU: return silu(v);
    case PLEC_GELU_TANH: return gelu_tanh(v);
    case PLEC_GELU_ERF: return gelu_erf(v);
    case PLEC_RELU: return relu(v);
    case PLEC_RELU_SQR: return relu(v) * relu(v);
    case PLEC_CLAMPED_GLU:
        v = at_most(v, maths->limit);
        return v * plec_reference_sigmoid(maths->alpha * v);
    case PLEC_CLAMPED_GATED: return silu(at_most(v, maths->limit));
    case PLEC_SITU_GLU: return situ(maths, v);
    case PLEC_SILU_STEP: return at_most(silu(v), maths->limit);
    case PLEC_N_ACTIVATIONS: break;
    }
    assert(!"an activation of enum plec_activation");
    return NAN;
}

/* What the activated gate multiplies. */
static double up_value(const struct plec_expert_maths *maths, double u) {
    switch (maths->activation) {
    case PLEC_CLAMPED_GLU: return clamp(u, maths->limit) + 1;
    case PLEC_CLAMPED_GATED:
    case PLEC_SILU_STEP: return clamp(u, maths->limit);
    case PLEC_SITU_GLU:
        return maths->linear_beta == 0 ? u : maths->linear_beta * tanh(u / maths->linear_beta);
    default: return u;
    }
}

double plec_reference_combine(const struct plec_expert_maths *maths, bool has_gate, double g,
                              double u) {
    return has_gate ? activate(maths, g) * up_value(maths, u) : activate(maths, u);
}
