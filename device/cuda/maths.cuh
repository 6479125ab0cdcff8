/* maths.cuh: what every GEMM's epilogue needs: biases read by format, and the activations of
 * device/layer.h in f32. Comparisons, not fminf and fmaxf: a NaN stays a NaN. */
#ifndef PLEC_DEVICE_CUDA_MATHS_CUH
#define PLEC_DEVICE_CUDA_MATHS_CUH

#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "lyrw/codec/bits.h"
#include "lyrw/codec/round.h"

#define PLEC_DEVICE static __device__ __forceinline__

/* Element i of a vector in a float format: what plec_cuda_bias_format lets through. */
PLEC_DEVICE float plec_cuda_bias_at(uint16_t format, const uint8_t *values, uint32_t i) {
    switch (format) {
    case PLEC_FORMAT_F32: return plec_bits_f32(plec_le32(values + plec_cuda_at(i, 4)));
    case PLEC_FORMAT_F16: return plec_f16_f32(plec_le16(values + plec_cuda_at(i, 2)));
    default: return plec_bf16_f32(plec_le16(values + plec_cuda_at(i, 2)));
    }
}

PLEC_DEVICE float plec_cuda_logistic(float z) {
    return 1.0f / (1.0f + expf(-z));
}
PLEC_DEVICE float plec_cuda_at_most(float v, float limit) {
    return v > limit ? limit : v;
}
PLEC_DEVICE float plec_cuda_clamp(float v, float limit) {
    return v > limit ? limit : v < -limit ? -limit : v;
}

/* 0.5 (1 + tanh z) is the logistic function of 2z, which loses nothing where tanh is near -1. */
PLEC_DEVICE float plec_cuda_gelu_tanh(float v) {
    const float two_sqrt_2_over_pi = 1.5957691216057308f;
    return v * plec_cuda_logistic(two_sqrt_2_over_pi * v * (1.0f + 0.044715f * v * v));
}

/* The function of the gate, or of u where there is no gate. */
PLEC_DEVICE float plec_cuda_activate(const struct plec_cuda_maths &maths, float v) {
    switch (maths.activation) {
    case PLEC_SILU: return v * plec_cuda_logistic(v);
    case PLEC_GELU_TANH: return plec_cuda_gelu_tanh(v);
    case PLEC_GELU_ERF: return 0.5f * v * erfcf(-v * 0.70710678118654752f);
    case PLEC_RELU: return v < 0 ? 0.0f : v;
    case PLEC_RELU_SQR: return v < 0 ? 0.0f : v * v;
    case PLEC_CLAMPED_GLU:
        v = plec_cuda_at_most(v, maths.limit);
        return v * plec_cuda_logistic(maths.alpha * v);
    case PLEC_CLAMPED_GATED:
        v = plec_cuda_at_most(v, maths.limit);
        return v * plec_cuda_logistic(v);
    case PLEC_SITU_GLU: return maths.beta * tanhf(v / maths.beta) * plec_cuda_logistic(v);
    default: return plec_cuda_at_most(v * plec_cuda_logistic(v), maths.limit); /* silu_step */
    }
}

/* What the activated gate multiplies. */
PLEC_DEVICE float plec_cuda_shape_up(const struct plec_cuda_maths &maths, float u) {
    switch (maths.activation) {
    case PLEC_CLAMPED_GLU: return plec_cuda_clamp(u, maths.limit) + 1.0f;
    case PLEC_CLAMPED_GATED:
    case PLEC_SILU_STEP: return plec_cuda_clamp(u, maths.limit);
    case PLEC_SITU_GLU:
        return maths.linear_beta == 0 ? u : maths.linear_beta * tanhf(u / maths.linear_beta);
    default: return u;
    }
}

PLEC_DEVICE float plec_cuda_combine(const struct plec_cuda_maths &maths, bool has_gate, float g,
                                    float u) {
    return has_gate ? plec_cuda_activate(maths, g) * plec_cuda_shape_up(maths, u)
                    : plec_cuda_activate(maths, u);
}

/* The rows of a matrix that make gate and up of channel i, n channels. */
PLEC_DEVICE uint32_t plec_cuda_gate_row(int32_t fusion, uint32_t n, uint32_t i) {
    return fusion == PLEC_FUSED_UP_FIRST ? n + i : fusion == PLEC_FUSED_INTERLEAVED ? 2 * i : i;
}
PLEC_DEVICE uint32_t plec_cuda_up_row(int32_t fusion, uint32_t n, uint32_t i) {
    return fusion == PLEC_FUSED_GATE_FIRST    ? n + i
           : fusion == PLEC_FUSED_INTERLEAVED ? 2 * i + 1
                                              : i;
}
/* The operand that holds the up rows. */
PLEC_DEVICE int plec_cuda_up_operand(int32_t fusion) {
    return fusion == PLEC_NOT_FUSED ? PLEC_UP : PLEC_GATE;
}

/* value * w * scale + bias of row `row` of operand `id`, as the formulas of device/layer.h say. */
PLEC_DEVICE float plec_cuda_finish_product(const struct plec_cuda_bank &bank,
                                           const struct plec_cuda_entry &entry, int id,
                                           uint32_t row, float scale, float value) {
    const struct plec_operand &bias = bank.operands[id + PLEC_GATE_BIAS];
    value *= scale;
    if (bias.rows == 0) return value;
    return value + plec_cuda_bias_at(bias.format, entry.values[id + PLEC_GATE_BIAS], row);
}

/* What down writes for output `row` of a split. */
PLEC_DEVICE float plec_cuda_finish_down(const struct plec_cuda_bank &bank,
                                        const struct plec_cuda_entry &entry, uint32_t split,
                                        uint32_t row, float value) {
    return split == 0
               ? plec_cuda_finish_product(bank, entry, PLEC_DOWN, row, entry.down_scale, value)
               : value * entry.down_scale;
}

#endif
