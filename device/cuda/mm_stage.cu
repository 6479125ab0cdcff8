/* mm_stage.cu: tokens as mm_sync and mm_wg read them: rounded once to bf16, in the order of the
 * fragments, with the sum of each block of columns.
 *
 * A warp a row, a lane a column; 32 columns at a time. Reads 4 (or 2) bytes and writes 2 a column,
 * and 4 a block. No shared memory.
 */
#include "device/cuda/fragment/fragment.cuh"
#include "device/cuda/launch.cuh"
#include "device/cuda/mm_args.h"
#include "device/cuda/ptx.cuh"
#include "lyrw/codec/round.h"

enum { STAGE_THREADS = 128, STAGE_WARPS = STAGE_THREADS / 32 };

static __device__ __forceinline__ uint16_t stage_load(const struct plec_mm_stage_args &args,
                                                      uint32_t row, uint32_t k) {
    size_t at = plec_cuda_at(row, args.from_pitch) + k;
    if (args.from_bf16) return ((const uint16_t *)args.from)[at];
    return plec_f32_bf16(((const float *)args.from)[at]);
}

/* The sum over the lanes of a block: the same pairs of numbers, whatever the row. */
static __device__ __forceinline__ float stage_sum(float value, uint32_t block) {
    for (uint32_t step = 1; step < block; step *= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, step);
    return value;
}

static __device__ void stage_row(const struct plec_mm_stage_args &args, uint32_t row) {
    const struct plec_mm_tokens &to = args.to;
    const struct plec_mm_staging &how = args.how;
    uint32_t lane = threadIdx.x % 32, place = plec_fragment_place(how.block, lane);
    uint32_t pair = place % 8 / 2;
    if (how.by_step) place = 8 * pair + place / 8 * 2 + place % 2;
    float factor = how.spread && pair % 2 == 1 ? how.token_factor * 0.0625f : how.token_factor;
    for (uint32_t k = 0; k < to.pitch; k += 32) {
        float x = k + lane < to.n_cols ? plec_bf16_f32(stage_load(args, row, k + lane)) : 0.0f;
        uint32_t bits = plec_f32_bits(x * factor); /* a power of two: exact */
        to.x[plec_cuda_at(row, to.pitch) + k + place] = (uint16_t)(bits >> 16);
        if (how.sum_factor == 0.0f) continue;
        float sum = stage_sum(x, how.block) * how.sum_factor;
        if (lane % how.block == 0)
            to.sums[plec_cuda_at(row, to.pitch / how.block) + (k + lane) / how.block] = sum;
    }
}

static __global__ void __launch_bounds__(STAGE_THREADS) mm_stage(struct plec_mm_stage_args args) {
    plec_chain_wait();
    uint32_t first = blockIdx.x * STAGE_WARPS + threadIdx.x / 32;
    uint32_t stride = gridDim.x * STAGE_WARPS;
    if (args.rows.tiles == NULL) {
        for (uint32_t row = first; row < args.n_rows; row += stride)
            stage_row(args, row);
        return;
    }
    uint64_t n_items = (uint64_t)*args.rows.n_tiles * args.rows.width;
    for (uint64_t i = first; i < n_items; i += stride) {
        const struct plec_cuda_tile &tile = args.rows.tiles[i / args.rows.width];
        uint32_t row = (uint32_t)(i % args.rows.width);
        if (row < tile.n_rows) stage_row(args, tile.first_row + row);
    }
}

int plec_mm_launch_stage(const struct plec_mm_stage_args *args, cudaStream_t stream) {
    uint64_t n_rows =
        args->rows.tiles == NULL ? args->n_rows : (uint64_t)args->rows.max_tiles * args->rows.width;
    uint64_t n_blocks = (n_rows + STAGE_WARPS - 1) / STAGE_WARPS;
    if (n_blocks > args->rows.n_blocks) n_blocks = args->rows.n_blocks;
    return (int)PLEC_LAUNCH_AS(plec_launch_next(args->rows.chained), mm_stage,
                               dim3((unsigned)(n_blocks < 1 ? 1 : n_blocks)), dim3(STAGE_THREADS),
                               0, stream, *args);
}
