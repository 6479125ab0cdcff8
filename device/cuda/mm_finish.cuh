/* mm_finish.cuh: from a tile's products to what is written: scales, biases, activations. */
#ifndef PLEC_DEVICE_CUDA_MM_FINISH_CUH
#define PLEC_DEVICE_CUDA_MM_FINISH_CUH

#include "device/cuda/mm_shape.cuh"

static __device__ __forceinline__ float plec_mm_input_weight(const struct plec_mm_args &args,
                                                             uint32_t row) {
    float weight = args.input_weights != NULL ? args.input_weights[args.rows.row_pair[row]] : 1.0f;
    return args.token_scale != NULL ? weight * args.token_scale[args.rows.row_token[row]] : weight;
}

static __device__ __forceinline__ void
plec_mm_store_act(const struct plec_mm_args &args, uint32_t row, uint32_t channel, float value) {
    size_t at = plec_cuda_at(row, args.act_cols) + channel;
    if (args.act_f32)
        ((float *)args.act)[at] = value;
    else
        ((uint16_t *)args.act)[at] = plec_f32_bf16(value);
}

/* One output; products: of gate and up, or of the one matrix. */
static __device__ __forceinline__ void plec_mm_finish(const struct plec_mm_args &args,
                                                      const struct plec_mm_work &work, uint32_t row,
                                                      uint32_t channel, float first, float second) {
    const struct plec_cuda_bank &bank = args.bank;
    const struct plec_cuda_entry &entry = bank.table[work.tile.expert];
    if (args.kind == PLEC_MM_DOWN) {
        args.out[plec_cuda_at(row, args.n_channels) +
                 (size_t)work.split * args.rows.n_pairs * args.n_channels + channel] =
            plec_cuda_finish_down(bank, entry, work.split, channel, first);
        return;
    }
    float weight = plec_mm_input_weight(args, row), gate = 0.0f;
    float *product = args.gate_product + plec_cuda_at(row, args.n_channels) + channel;
    bool both = args.kind == PLEC_MM_GATE_AND_UP, has_gate = bank.operands[PLEC_GATE].rows != 0;
    if (both || args.kind == PLEC_MM_GATE) {
        uint32_t at = plec_cuda_gate_row(bank.fusion, args.n_channels, channel);
        gate =
            plec_cuda_finish_product(bank, entry, PLEC_GATE, at, entry.gate_scale, first * weight);
        if (!both) {
            *product = gate;
            return;
        }
    } else if (has_gate) {
        gate = *product;
    }
    uint32_t at = plec_cuda_up_row(bank.fusion, args.n_channels, channel);
    float up = plec_cuda_finish_product(bank, entry, plec_cuda_up_operand(bank.fusion), at,
                                        entry.up_scale, (both ? second : first) * weight);
    plec_mm_store_act(args, row, channel, plec_cuda_combine(bank.maths, has_gate, gate, up));
}

/* What a row was divided by when it was staged. */
static __device__ __forceinline__ float plec_mm_power(const struct plec_mm_args &args,
                                                      uint32_t row) {
    if (args.tokens.powers == NULL) return 1.0f;
    return args.tokens.powers[args.tokens.row != NULL ? args.tokens.row[row] : row];
}

/* A tile's products, in shared memory as [token][S::OUT_PITCH], up's channels behind gate's. */
template <class S>
static __device__ __forceinline__ void plec_mm_finish_products(const struct plec_mm_args &args,
                                                               const struct plec_mm_work &work,
                                                               const float *out) {
    bool both = args.kind == PLEC_MM_GATE_AND_UP;
    uint32_t channels = both ? S::ROWS / 2 : S::ROWS;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < work.tile.n_rows * channels; i += S::THREADS) {
        uint32_t n = i / channels, at = i % channels, channel = work.first_channel + at;
        if (channel >= args.n_channels) continue;
        uint32_t row = work.tile.first_row + n;
        const float *products = out + n * S::OUT_PITCH + at;
        float power = plec_mm_power(args, row);
        plec_mm_finish(args, work, row, channel, products[0] * power,
                       both ? products[S::ROWS / 2] * power : 0.0f);
    }
}

template <class F, int NT>
static __device__ __forceinline__ void plec_mm_finish_tile(const struct plec_mm_args &args,
                                                           const struct plec_mm_work &work,
                                                           const float *out) {
    plec_mm_finish_products<plec_mm_shape<F, NT>>(args, work, out);
}

#endif
