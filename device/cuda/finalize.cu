/* finalize.cu: the sum over a token's slots, in slot order: deterministic without an atomic.
 *
 * Mapping: a block of 256 threads a token and 256 neighbouring outputs, in grid.x; a thread an
 * output. One rounding a product and a sum, so that the bits do not hang on what a compiler fuses.
 * Reads n_slots * n_splits * 4 bytes an output, in whole sectors; writes 4. No shared
 * memory.
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"
#include "lyrw/codec/bits.h"

enum { THREADS = 256 };

/* The expert's output for one row: its parts in order of split. */
static __device__ __forceinline__ float row_value(const struct plec_cuda_finalize_args &args,
                                                  uint32_t row, uint32_t i) {
    uint32_t n_pairs = args.n_tokens * args.n_slots;
    float sum = 0;
    for (uint32_t split = 0; split < args.n_splits; split++) {
        size_t part = plec_cuda_at(split, plec_cuda_at(n_pairs, args.output_dim));
        sum += args.out[part + plec_cuda_at(row, args.output_dim) + i];
    }
    return sum;
}

static __device__ __forceinline__ float pair_weight(const struct plec_cuda_finalize_args &args,
                                                    uint32_t token, uint32_t pair) {
    float weight = args.weights != NULL ? args.weights[pair] : 1.0f;
    return args.token_scale != NULL ? weight * args.token_scale[token] : weight;
}

static __global__ void __launch_bounds__(THREADS)
    finalize_kernel(struct plec_cuda_finalize_args args) {
    plec_chain_wait();
    if (args.fault->code != PLEC_CUDA_NO_FAULT) return;
    uint32_t n_blocks = (args.output_dim + THREADS - 1) / THREADS;
    uint32_t token = blockIdx.x / n_blocks;
    uint32_t i = blockIdx.x % n_blocks * THREADS + threadIdx.x;
    if (i >= args.output_dim) return;
    float sum = 0;
    for (uint32_t slot = 0; slot < args.n_slots; slot++) {
        uint32_t pair = token * args.n_slots + slot;
        int32_t row = args.pair_row[pair];
        if (row < 0) continue;
        float value = row_value(args, (uint32_t)row, i);
        sum = plec_add(sum, plec_mul(pair_weight(args, token, pair), value));
    }
    float *y = args.y + plec_cuda_at(token, args.output_dim) + i;
    *y = args.accumulate ? *y + sum : sum;
}

int plec_cuda_launch_finalize(const struct plec_cuda_finalize_args *args, cudaStream_t stream) {
    uint32_t n_blocks = (args->output_dim + THREADS - 1) / THREADS;
    uint64_t grid = (uint64_t)args->n_tokens * n_blocks;
    if (grid > INT32_MAX) return (int)cudaErrorInvalidConfiguration;
    return (int)PLEC_LAUNCH_AS(plec_launch_next(args->chained), finalize_kernel,
                               dim3((unsigned)grid), dim3(THREADS), 0, stream, *args);
}
