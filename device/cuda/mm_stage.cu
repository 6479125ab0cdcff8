/* mm_stage.cu: tokens as mm_sync and mm_wg read them: rounded once to bf16, in the order of the
 * fragments, with the sum of each block of columns.
 *
 * A warp a row, a lane a column; 32 columns at a time. Reads 4 (or 2) bytes and writes 2 a column,
 * 4 a block and 4 a row. No shared memory. A row whose largest number is far from 1 is staged once
 * more, divided by a power of two, which its products are multiplied by: so that neither tokens
 * nor sums leave the range of f32 where the outputs do not.
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

/* The power of two that a row is divided by, from the bf16 of its largest finite magnitude: 1 where
 * that is 0, or from 2^-16 to 2^32. */
static __device__ __forceinline__ float stage_power(uint32_t most) {
    uint32_t exponent = most >> 7;
    if (most == 0 || (exponent >= 127 - 16 && exponent < 127 + 32)) return 1.0f;
    /* one whose reciprocal is normal, too */
    return plec_bits_f32((exponent < 1 ? 1u : exponent > 253 ? 253u : exponent) << 23);
}

static __device__ __forceinline__ uint32_t stage_larger(uint32_t most, uint16_t bits) {
    uint32_t size = bits & 0x7FFFu;
    return size > most && size < 0x7F80u ? size : most;
}

/* The row divided by a power of two. Returns the largest finite magnitude of the lane's columns, as
 * bf16. */
static __device__ uint32_t stage_columns(const struct plec_mm_stage_args &args, uint32_t row,
                                         float power) {
    const struct plec_mm_tokens &to = args.to;
    const struct plec_mm_staging &how = args.how;
    uint32_t lane = threadIdx.x % 32, place = plec_fragment_place(how.block, lane);
    uint32_t pair = place % 8 / 2;
    if (how.by_step) place = 8 * pair + place / 8 * 2 + place % 2;
    float factor = how.spread && pair % 2 == 1 ? how.token_factor * 0.0625f : how.token_factor;
    float inverse = 1.0f / power;
    uint32_t most = 0;
    for (uint32_t k = 0; k < to.pitch; k += 32) {
        uint16_t from = k + lane < to.n_cols ? stage_load(args, row, k + lane) : 0;
        most = stage_larger(most, from);
        float x = plec_bf16_f32(from) * inverse;
        uint32_t bits = plec_f32_bits(x * factor); /* a power of two: exact */
        to.x[plec_cuda_at(row, to.pitch) + k + place] = (uint16_t)(bits >> 16);
        if (how.sum_factor == 0.0f) continue;
        float sum = stage_sum(x, how.block) * how.sum_factor;
        if (lane % how.block == 0)
            to.sums[plec_cuda_at(row, to.pitch / how.block) + (k + lane) / how.block] = sum;
    }
    return most;
}

static __device__ void stage_row(const struct plec_mm_stage_args &args, uint32_t row) {
    uint32_t most = stage_columns(args, row, 1.0f);
    for (uint32_t step = 1; step < 32; step *= 2) {
        uint32_t other = __shfl_xor_sync(0xFFFFFFFFu, most, step);
        most = other > most ? other : most;
    }
    float power = stage_power(most);
    if (power != 1.0f) stage_columns(args, row, power);
    if (threadIdx.x % 32 == 0) args.to.powers[row] = power;
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
