#include "device/cpu/activation.h"

#include <math.h>

float plec_cpu_sigmoid(float z) {
    return 1.0f / (1.0f + expf(-z));
}

/* Comparisons, not fminf and fmaxf: a NaN stays. */
static float at_most(float v, float limit) {
    return v > limit ? limit : v;
}

static float clamp(float v, float limit) {
    return v > limit ? limit : v < -limit ? -limit : v;
}

static float relu(float v) {
    return v < 0 ? 0 : v;
}

static float silu(float v) {
    return v * plec_cpu_sigmoid(v);
}

/* 0.5 (1 + tanh z) is the sigmoid of 2z, which loses nothing where tanh is near -1. */
static float gelu_tanh(float v) {
    const float two_sqrt_2_over_pi = 1.5957691216057308f;
    return v * plec_cpu_sigmoid(two_sqrt_2_over_pi * v * (1.0f + 0.044715f * v * v));
}

/* 0.5 (1 + erf z) is 0.5 erfc(-z). */
static float gelu_erf(float v) {
    const float sqrt_half = 0.70710678118654752f;
    return 0.5f * v * erfcf(-v * sqrt_half);
}

static float situ(const struct plec_expert_maths *maths, float v) {
    float beta = maths->beta == 0 ? 1.0f : (float)maths->beta;
    return beta * tanhf(v / beta) * plec_cpu_sigmoid(v);
}

static float situ_up(const struct plec_expert_maths *maths, float u) {
    float beta = (float)maths->linear_beta;
    return maths->linear_beta == 0 ? u : beta * tanhf(u / beta);
}

/* What the gate becomes, or u where there is no gate. */
static float activate(const struct plec_expert_maths *maths, float v) {
    float limit = (float)maths->limit;
    switch (maths->activation) {
    case PLEC_SILU: return silu(v);
    case PLEC_GELU_TANH: return gelu_tanh(v);
    case PLEC_GELU_ERF: return gelu_erf(v);
    case PLEC_RELU: return relu(v);
    case PLEC_RELU_SQR: return relu(v) * relu(v);
    case PLEC_CLAMPED_GLU:
        v = at_most(v, limit);
        return v * plec_cpu_sigmoid((float)maths->alpha * v);
    case PLEC_CLAMPED_GATED: return silu(at_most(v, limit));
    case PLEC_SITU_GLU: return situ(maths, v);
    case PLEC_SILU_STEP: return at_most(silu(v), limit);
    case PLEC_N_ACTIVATIONS: break;
    }
    return NAN;
}

/* What the activated gate multiplies. */
static float factor(const struct plec_expert_maths *maths, float u) {
    float limit = (float)maths->limit;
    switch (maths->activation) {
    case PLEC_CLAMPED_GLU: return clamp(u, limit) + 1.0f;
    case PLEC_CLAMPED_GATED:
    case PLEC_SILU_STEP: return clamp(u, limit);
    case PLEC_SITU_GLU: return situ_up(maths, u);
    default: return u;
    }
}

void plec_cpu_activate(float *h, const struct plec_expert_maths *maths, const float *g,
                       const float *u, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        h[i] = g != NULL ? activate(maths, g[i]) * factor(maths, u[i]) : activate(maths, u[i]);
}
