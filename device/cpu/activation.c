#include "device/cpu/activation.h"

#include <math.h>
#include <string.h>

static void sigmoid_plain(float *z, size_t n) {
    for (size_t i = 0; i < n; i++)
        z[i] = 1.0f / (1.0f + expf(-z[i]));
}

#if defined(__x86_64__)
plec_cpu_sigmoid_function plec_cpu_sigmoid_avx2;

plec_cpu_sigmoid_function *plec_cpu_sigmoid_find(enum plec_cpu_set set) {
    return set == PLEC_CPU_PLAIN_C ? sigmoid_plain : plec_cpu_sigmoid_avx2;
}
#else
plec_cpu_sigmoid_function *plec_cpu_sigmoid_find(enum plec_cpu_set set) {
    (void)set;
    return sigmoid_plain;
}
#endif

/* Comparisons, not fminf and fmaxf: a NaN stays. */
static void cap(float *v, float limit, size_t n) {
    for (size_t i = 0; i < n; i++)
        v[i] = v[i] > limit ? limit : v[i];
}

static void clamp(float *v, float limit, size_t n) {
    for (size_t i = 0; i < n; i++)
        v[i] = v[i] > limit ? limit : v[i] < -limit ? -limit : v[i];
}

static void relu(float *v, size_t n) {
    for (size_t i = 0; i < n; i++)
        v[i] = v[i] < 0 ? 0 : v[i];
}

static void multiply(float *v, const float *by, size_t n) {
    for (size_t i = 0; i < n; i++)
        v[i] *= by[i];
}

/* v *= sigmoid(alpha v); z [n] is scratch. */
static void swish(float *v, float *z, float alpha, size_t n, plec_cpu_sigmoid_function *sigmoid) {
    for (size_t i = 0; i < n; i++)
        z[i] = alpha * v[i];
    sigmoid(z, n);
    multiply(v, z, n);
}

/* 0.5 (1 + tanh z) is the sigmoid of 2z, which loses nothing where tanh is near -1. */
static void gelu_tanh(float *v, float *z, size_t n, plec_cpu_sigmoid_function *sigmoid) {
    const float two_sqrt_2_over_pi = 1.5957691216057308f;
    for (size_t i = 0; i < n; i++)
        z[i] = two_sqrt_2_over_pi * v[i] * (1.0f + 0.044715f * v[i] * v[i]);
    sigmoid(z, n);
    multiply(v, z, n);
}

/* 0.5 (1 + erf z) is 0.5 erfc(-z). */
static void gelu_erf(float *v, size_t n) {
    const float sqrt_half = 0.70710678118654752f;
    for (size_t i = 0; i < n; i++)
        v[i] = 0.5f * v[i] * erfcf(-v[i] * sqrt_half);
}

static void situ(float *v, float *z, float beta, size_t n, plec_cpu_sigmoid_function *sigmoid) {
    memcpy(z, v, n * sizeof *v);
    sigmoid(z, n);
    for (size_t i = 0; i < n; i++)
        v[i] = beta * tanhf(v[i] / beta) * z[i];
}

/* v = the function of the gate, or of u where there is no gate. */
static void activate(float *v, float *z, const struct plec_expert_maths *maths, size_t n,
                     plec_cpu_sigmoid_function *sigmoid) {
    float limit = (float)maths->limit;
    switch (maths->activation) {
    case PLEC_SILU: swish(v, z, 1, n, sigmoid); break;
    case PLEC_GELU_TANH: gelu_tanh(v, z, n, sigmoid); break;
    case PLEC_GELU_ERF: gelu_erf(v, n); break;
    case PLEC_RELU: relu(v, n); break;
    case PLEC_RELU_SQR:
        relu(v, n);
        multiply(v, v, n);
        break;
    case PLEC_CLAMPED_GLU:
        cap(v, limit, n);
        swish(v, z, (float)maths->alpha, n, sigmoid);
        break;
    case PLEC_CLAMPED_GATED:
        cap(v, limit, n);
        swish(v, z, 1, n, sigmoid);
        break;
    case PLEC_SITU_GLU: situ(v, z, maths->beta == 0 ? 1.0f : (float)maths->beta, n, sigmoid); break;
    case PLEC_SILU_STEP:
        swish(v, z, 1, n, sigmoid);
        cap(v, limit, n);
        break;
    case PLEC_N_ACTIVATIONS: break;
    }
}

/* u = what the activated gate multiplies. */
static void shape_up(float *u, const struct plec_expert_maths *maths, size_t n) {
    float limit = (float)maths->limit, beta = (float)maths->linear_beta;
    switch (maths->activation) {
    case PLEC_CLAMPED_GLU:
        clamp(u, limit, n);
        for (size_t i = 0; i < n; i++)
            u[i] += 1.0f;
        break;
    case PLEC_CLAMPED_GATED:
    case PLEC_SILU_STEP: clamp(u, limit, n); break;
    case PLEC_SITU_GLU:
        for (size_t i = 0; i < n && beta != 0; i++)
            u[i] = beta * tanhf(u[i] / beta);
        break;
    default: break;
    }
}

void plec_cpu_activate(float *h, const struct plec_expert_maths *maths, float *g, float *u,
                       size_t n, plec_cpu_sigmoid_function *sigmoid) {
    float *v = g != NULL ? g : u;
    activate(v, h, maths, n, sigmoid);
    if (g != NULL) {
        shape_up(u, maths, n);
        multiply(v, u, n);
    }
    memcpy(h, v, n * sizeof *h);
}
