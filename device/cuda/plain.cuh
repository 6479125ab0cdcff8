/* plain.cuh: the slow rung of every format, named "plain": one warp an output row, weights decoded
 * by the codec headers that everything else decodes with, products and sums in f32. Plainly right;
 * a format whose fast kernel is missing or refuses an operand runs here.
 *
 * Mapping: blocks of 8 warps loop over (tile, 8 output rows); a tile is up to 8 tokens. A warp
 * decodes 1024 weights of its row at a time into its own 4 to 8 KB of shared memory, a lane a block
 * of the format, then each lane multiplies every 32nd weight with all tokens of the tile. Weights
 * are read once a tile. The order of a sum depends on the column alone, so a token's output does
 * not depend on its batch mates.
 *
 * Numbers: weights exactly as decoded. x and act are rounded once to bf16, but for f32 and f64
 * weights, where nothing is rounded.
 */
#ifndef PLEC_DEVICE_CUDA_PLAIN_CUH
#define PLEC_DEVICE_CUDA_PLAIN_CUH

#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/maths.cuh"

enum {
    PLEC_PLAIN_WARPS = 8,
    PLEC_PLAIN_THREADS = 32 * PLEC_PLAIN_WARPS,
    PLEC_PLAIN_WIDTH = 8,   /* tokens of a tile */
    PLEC_PLAIN_CHUNK = 1024 /* weights decoded at a time: whole blocks of any format */
};
#define PLEC_ALL_LANES 0xFFFFFFFFu

/* One expert's matrix in format F, as its bytes lie. */
struct plec_plain_matrix {
    const uint8_t *values, *scales; /* scales: paired, or the ones behind trailing values */
    size_t row_bytes, row_scales;
    float tensor_scale;
    uint32_t cols;
};

template <class F>
PLEC_DEVICE struct plec_plain_matrix plec_plain_bind(const uint8_t *values, const uint8_t *scales,
                                                     uint32_t rows, uint32_t cols) {
    struct plec_plain_matrix m = {values, scales, 0, 0, 1.0f, cols};
    m.row_scales = F::SCALED ? cols / F::ELEMS : 0;
    m.row_bytes = plec_cuda_at(cols / F::ELEMS, F::BYTES);
    if (F::TRAILING) {
        m.scales = values + plec_cuda_at(rows, m.row_bytes);
        m.tensor_scale = plec_bits_f32(plec_le32(m.scales + plec_cuda_at(rows, m.row_scales)));
    }
    return m;
}

/* The vectors of a tile, one a token. */
struct plec_plain_vectors {
    const void *x;
    bool bf16;    /* x is bf16, else f32 ... */
    bool rounded; /* ... to be rounded to bf16 */
    size_t pitch;
    uint32_t n;                     /* 1 to PLEC_PLAIN_WIDTH */
    uint32_t row[PLEC_PLAIN_WIDTH]; /* of x */
};

PLEC_DEVICE float plec_plain_x(const struct plec_plain_vectors &v, int t, uint32_t i) {
    size_t at = plec_cuda_at(v.row[t], v.pitch) + i;
    if (v.bf16) return plec_bf16_f32(((const uint16_t *)v.x)[at]);
    float x = ((const float *)v.x)[at];
    return v.rounded ? plec_bf16_f32(plec_f32_bf16(x)) : x;
}

/* Where weight i of a chunk lies: blocks are a word apart, so that lanes that write theirs side by
 * side do not meet in one bank. */
template <class F> PLEC_DEVICE uint32_t plec_plain_place(uint32_t i) {
    return F::ELEMS == 1 ? i : i + i / F::ELEMS;
}
template <class F> struct plec_plain_chunk {
    enum { FLOATS = PLEC_PLAIN_CHUNK + (F::ELEMS == 1 ? 0 : PLEC_PLAIN_CHUNK / F::ELEMS) };
    typedef float type[PLEC_PLAIN_WARPS][FLOATS];
};

/* Decodes the blocks of columns [first, first + n) of a row; n of whole blocks. */
template <class F>
PLEC_DEVICE void plec_plain_decode(float *chunk, const struct plec_plain_matrix &m, uint32_t row,
                                   uint32_t first, uint32_t n) {
    const uint8_t *values = m.values + plec_cuda_at(row, m.row_bytes);
    for (uint32_t block = threadIdx.x % 32; block < n / F::ELEMS; block += 32) {
        uint32_t at = first / F::ELEMS + block;
        uint8_t scale = F::SCALED ? m.scales[plec_cuda_at(row, m.row_scales) + at] : 0;
        F::decode(chunk + plec_plain_place<F>(block * F::ELEMS),
                  values + plec_cuda_at(at, F::BYTES), scale, m.tensor_scale);
    }
}

/* Every lane gets the sums over all lanes, of the first n tokens. */
template <class T> PLEC_DEVICE void plec_plain_sum_lanes(T (&sums)[PLEC_PLAIN_WIDTH], uint32_t n) {
#pragma unroll
    for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
        if ((uint32_t)t < n)
            for (int d = 16; d > 0; d /= 2)
                sums[t] += __shfl_xor_sync(PLEC_ALL_LANES, sums[t], d);
}

/* sums[t] = the first n columns of row . vector t, the same in every lane. */
template <class F>
PLEC_DEVICE void plec_plain_dot(float (&sums)[PLEC_PLAIN_WIDTH], const struct plec_plain_matrix &m,
                                uint32_t row, uint32_t n, const struct plec_plain_vectors &v,
                                float *chunk) {
    for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
        sums[t] = 0;
    for (uint32_t first = 0; first < n; first += PLEC_PLAIN_CHUNK) {
        uint32_t here = min(m.cols - first, (uint32_t)PLEC_PLAIN_CHUNK);
        __syncwarp(); /* the last chunk was used */
        plec_plain_decode<F>(chunk, m, row, first, here);
        __syncwarp();
        for (uint32_t i = threadIdx.x % 32; i < min(n - first, (uint32_t)PLEC_PLAIN_CHUNK);
             i += 32) {
            float weight = chunk[plec_plain_place<F>(i)];
#pragma unroll
            for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
                if ((uint32_t)t < v.n) sums[t] += weight * plec_plain_x(v, t, first + i);
        }
    }
    plec_plain_sum_lanes(sums, v.n);
}

/* The lane's own of the sums: lane t has token t. */
template <class T> PLEC_DEVICE T plec_plain_own(const T (&sums)[PLEC_PLAIN_WIDTH]) {
    T own = 0;
#pragma unroll
    for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
        if (threadIdx.x % 32 == (unsigned)t) own = sums[t];
    return own;
}

/* ---- experts ------------------------------------------------------------------------------------
 */

template <class F>
PLEC_DEVICE struct plec_plain_matrix
plec_plain_operand(const struct plec_cuda_bank &bank, const struct plec_cuda_entry &entry, int id) {
    const struct plec_operand &operand = bank.operands[id];
    return plec_plain_bind<F>(entry.values[id], entry.scales[id], operand.rows, operand.cols);
}

/* What the products of a row are multiplied by. */
PLEC_DEVICE float plec_plain_input_weight(const struct plec_cuda_gate_up_args &args, uint32_t row) {
    if (args.input_weights == NULL) return 1.0f;
    float weight = args.input_weights[args.rows.row_pair[row]];
    return args.token_scale != NULL ? weight * args.token_scale[args.rows.row_token[row]] : weight;
}

PLEC_DEVICE void plec_plain_store_act(const struct plec_cuda_gate_up_args &args, uint32_t row,
                                      uint32_t channel, float value) {
    size_t at = plec_cuda_at(row, args.act_cols) + channel;
    if (args.act_f32)
        ((float *)args.act)[at] = value;
    else
        ((uint16_t *)args.act)[at] = plec_f32_bf16(value);
}

/* One channel of a tile, in every lane; lane t ends with token t's. */
template <class F>
PLEC_DEVICE void plec_plain_gate_up_channel(const struct plec_cuda_gate_up_args &args,
                                            const struct plec_cuda_tile &tile, uint32_t channel,
                                            const struct plec_plain_vectors &v, float *chunk) {
    const struct plec_cuda_bank &bank = args.bank;
    const struct plec_cuda_entry &entry = bank.table[tile.expert];
    bool has_gate = bank.operands[PLEC_GATE].rows != 0;
    uint32_t lane = threadIdx.x % 32, row = tile.first_row + lane;
    bool mine = lane < tile.n_rows;
    float sums[PLEC_PLAIN_WIDTH], gate = 0, weight = mine ? plec_plain_input_weight(args, row) : 0;
    float *product = args.gate_product + plec_cuda_at(row, bank.intermediate_dim) + channel;
    if (args.half == PLEC_CUDA_UP_LAST) {
        if (mine) gate = *product;
    } else if (has_gate) {
        uint32_t at = plec_cuda_gate_row(bank.fusion, bank.intermediate_dim, channel);
        plec_plain_dot<F>(sums, plec_plain_operand<F>(bank, entry, PLEC_GATE), at, bank.input_dim,
                          v, chunk);
        if (mine)
            gate = plec_cuda_finish_product(bank, entry, PLEC_GATE, at, entry.gate_scale,
                                            plec_plain_own(sums) * weight);
    }
    if (args.half == PLEC_CUDA_GATE_ALONE) {
        if (mine) *product = gate;
        return;
    }
    int up = plec_cuda_up_operand(bank.fusion);
    uint32_t at = plec_cuda_up_row(bank.fusion, bank.intermediate_dim, channel);
    plec_plain_dot<F>(sums, plec_plain_operand<F>(bank, entry, up), at, bank.input_dim, v, chunk);
    if (!mine) return;
    float value = plec_cuda_finish_product(bank, entry, up, at, entry.up_scale,
                                           plec_plain_own(sums) * weight);
    plec_plain_store_act(args, row, channel, plec_cuda_combine(bank.maths, has_gate, gate, value));
}

template <class F>
static __global__ void __launch_bounds__(PLEC_PLAIN_THREADS, 2)
    plain_gate_up(struct plec_cuda_gate_up_args args) {
    PLEC_SHARED_STATIC(typename plec_plain_chunk<F>::type, chunks);
    uint32_t warp = threadIdx.x / 32, n = args.bank.intermediate_dim;
    uint32_t n_blocks = (n + PLEC_PLAIN_WARPS - 1) / PLEC_PLAIN_WARPS;
    uint64_t total = (uint64_t)*args.rows.n_tiles * n_blocks;
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_cuda_tile tile = args.rows.tiles[at / n_blocks];
        uint32_t channel = (uint32_t)(at % n_blocks) * PLEC_PLAIN_WARPS + warp;
        if (channel >= n) continue;
        struct plec_plain_vectors v = {args.x,      false, F::ROUNDS, args.bank.input_dim,
                                       tile.n_rows, {}};
#pragma unroll
        for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
            v.row[t] =
                (uint32_t)t < tile.n_rows ? args.rows.row_token[tile.first_row + (uint32_t)t] : 0;
        plec_plain_gate_up_channel<F>(args, tile, channel, v, chunks[warp]);
    }
}

template <class F>
static __global__ void __launch_bounds__(PLEC_PLAIN_THREADS, 2)
    plain_down(struct plec_cuda_down_args args) {
    PLEC_SHARED_STATIC(typename plec_plain_chunk<F>::type, chunks);
    const struct plec_cuda_bank &bank = args.bank;
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t n_blocks = (bank.output_dim + PLEC_PLAIN_WARPS - 1) / PLEC_PLAIN_WARPS;
    uint64_t total = (uint64_t)*args.rows.n_tiles * n_blocks;
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_cuda_tile tile = args.rows.tiles[at / n_blocks];
        uint32_t i = (uint32_t)(at % n_blocks) * PLEC_PLAIN_WARPS + warp;
        if (i >= bank.output_dim) continue;
        struct plec_plain_vectors v = {args.act,      !args.act_f32, false,
                                       args.act_cols, tile.n_rows,   {}};
#pragma unroll
        for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
            v.row[t] = tile.first_row + ((uint32_t)t < tile.n_rows ? (uint32_t)t : 0);
        float sums[PLEC_PLAIN_WIDTH];
        const struct plec_cuda_entry &entry = bank.table[tile.expert];
        plec_plain_dot<F>(sums, plec_plain_operand<F>(bank, entry, PLEC_DOWN), i,
                          bank.intermediate_dim, v, chunks[warp]);
        float own = plec_cuda_finish_down(bank, entry, 0, i, plec_plain_own(sums));
        if (lane < tile.n_rows)
            args.out[plec_cuda_at(tile.first_row + lane, bank.output_dim) + i] = own;
    }
}

/* ---- linear -------------------------------------------------------------------------------------
 */

template <class F>
static __global__ void __launch_bounds__(PLEC_PLAIN_THREADS, 2)
    plain_linear(struct plec_linear_args args, const struct plec_cuda_fault *fault) {
    PLEC_SHARED_STATIC(typename plec_plain_chunk<F>::type, chunks);
    if (fault->code != PLEC_CUDA_NO_FAULT) return;
    const struct plec_matrix &matrix = args.matrix;
    struct plec_plain_matrix m =
        plec_plain_bind<F>(matrix.values, matrix.scales, matrix.rows, matrix.cols);
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t n_blocks = (matrix.rows + PLEC_PLAIN_WARPS - 1) / PLEC_PLAIN_WARPS;
    uint32_t n_tiles = (args.n_tokens + PLEC_PLAIN_WIDTH - 1) / PLEC_PLAIN_WIDTH;
    for (uint64_t at = blockIdx.x; at < (uint64_t)n_tiles * n_blocks; at += gridDim.x) {
        uint32_t i = (uint32_t)(at % n_blocks) * PLEC_PLAIN_WARPS + warp;
        uint32_t token = (uint32_t)(at / n_blocks) * PLEC_PLAIN_WIDTH;
        if (i >= matrix.rows) continue;
        uint32_t n = min(args.n_tokens - token, (uint32_t)PLEC_PLAIN_WIDTH);
        struct plec_plain_vectors v = {args.x, false, false, matrix.cols, n, {}};
#pragma unroll
        for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
            v.row[t] = token + ((uint32_t)t < n ? (uint32_t)t : 0);
        float sums[PLEC_PLAIN_WIDTH];
        plec_plain_dot<F>(sums, m, i, matrix.cols, v, chunks[warp]);
        float *y = args.y + plec_cuda_at(token + lane, matrix.rows) + i, own = plec_plain_own(sums);
        if (lane < n) *y = args.accumulate ? *y + own : own;
    }
}

/* ---- logits -------------------------------------------------------------------------------------
 * As linear, in double: which experts are the largest must not hang on a rounding. */

template <class F>
PLEC_DEVICE void plec_plain_logits_dot(double (&sums)[PLEC_PLAIN_WIDTH],
                                       const struct plec_cuda_logits_args &args,
                                       const struct plec_plain_matrix &m, uint32_t row,
                                       const struct plec_plain_vectors &v, float *chunk) {
    uint32_t n = args.input_dim;
    for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
        sums[t] = 0;
    for (uint32_t first = 0; first < n; first += PLEC_PLAIN_CHUNK) {
        __syncwarp();
        plec_plain_decode<F>(chunk, m, row, first, min(m.cols - first, (uint32_t)PLEC_PLAIN_CHUNK));
        __syncwarp();
        for (uint32_t i = threadIdx.x % 32; i < min(n - first, (uint32_t)PLEC_PLAIN_CHUNK);
             i += 32) {
            double weight = chunk[plec_plain_place<F>(i)];
            if (args.input_scale != NULL) weight *= args.input_scale[first + i];
#pragma unroll
            for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
                if ((uint32_t)t < v.n) sums[t] += weight * plec_plain_x(v, t, first + i);
        }
    }
    plec_plain_sum_lanes(sums, v.n);
}

template <class F>
static __global__ void __launch_bounds__(PLEC_PLAIN_THREADS, 2)
    plain_logits(struct plec_cuda_logits_args args) {
    PLEC_SHARED_STATIC(typename plec_plain_chunk<F>::type, chunks);
    if (args.fault->code != PLEC_CUDA_NO_FAULT) return;
    const struct plec_matrix &weight = args.weight;
    struct plec_plain_matrix m =
        plec_plain_bind<F>(weight.values, weight.scales, weight.rows, weight.cols);
    uint32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    uint32_t n_blocks = (weight.rows + PLEC_PLAIN_WARPS - 1) / PLEC_PLAIN_WARPS;
    uint32_t n_tiles = (args.n_tokens + PLEC_PLAIN_WIDTH - 1) / PLEC_PLAIN_WIDTH;
    for (uint64_t at = blockIdx.x; at < (uint64_t)n_tiles * n_blocks; at += gridDim.x) {
        uint32_t expert = (uint32_t)(at % n_blocks) * PLEC_PLAIN_WARPS + warp;
        uint32_t token = (uint32_t)(at / n_blocks) * PLEC_PLAIN_WIDTH;
        if (expert >= weight.rows) continue;
        uint32_t n = min(args.n_tokens - token, (uint32_t)PLEC_PLAIN_WIDTH);
        struct plec_plain_vectors v = {args.x, false, false, args.input_dim, n, {}};
#pragma unroll
        for (int t = 0; t < PLEC_PLAIN_WIDTH; t++)
            v.row[t] = token + ((uint32_t)t < n ? (uint32_t)t : 0);
        double sums[PLEC_PLAIN_WIDTH];
        plec_plain_logits_dot<F>(sums, args, m, expert, v, chunks[warp]);
        double own = plec_plain_own(sums);
        if (lane < n) args.logits[plec_cuda_at(token + lane, weight.rows) + expert] = own;
    }
}

/* ---- to bf16 ------------------------------------------------------------------------------------
 * Matrices as a library takes them. A warp a row, 1024 weights at a time. */

template <class F>
static __global__ void __launch_bounds__(PLEC_PLAIN_THREADS, 2)
    plain_to_bf16(struct plec_cuda_to_bf16_args args) {
    PLEC_SHARED_STATIC(typename plec_plain_chunk<F>::type, chunks);
    uint32_t warp = threadIdx.x / 32;
    uint64_t n_rows = (uint64_t)args.n * args.rows;
    uint64_t step = (uint64_t)gridDim.x * PLEC_PLAIN_WARPS;
    for (uint64_t at = (uint64_t)blockIdx.x * PLEC_PLAIN_WARPS + warp; at < n_rows; at += step) {
        uint32_t which = (uint32_t)(at / args.rows), row = (uint32_t)(at % args.rows);
        struct plec_plain_matrix m =
            plec_plain_bind<F>(args.values[which], args.scales[which], args.rows, args.cols);
        uint16_t *to = args.to[which] + plec_cuda_at(row, args.cols);
        for (uint32_t first = 0; first < args.cols; first += PLEC_PLAIN_CHUNK) {
            uint32_t n = min(args.cols - first, (uint32_t)PLEC_PLAIN_CHUNK);
            __syncwarp(); /* the last chunk was written */
            plec_plain_decode<F>(chunks[warp], m, row, first, n);
            __syncwarp();
            for (uint32_t i = threadIdx.x % 32; i < n; i += 32)
                to[first + i] = plec_f32_bf16(chunks[warp][plec_plain_place<F>(i)]);
        }
    }
}

/* ---- launchers ----------------------------------------------------------------------------------
 */

/* Blocks for n items: every block has work, and no more than are worth launching. */
static inline unsigned plec_plain_grid(uint64_t n, uint32_t most) {
    return (unsigned)(n < 1 ? 1 : n < most ? n : most);
}
static inline uint64_t plec_plain_items(uint64_t n_tiles, uint32_t n_rows) {
    return n_tiles * ((n_rows + PLEC_PLAIN_WARPS - 1) / PLEC_PLAIN_WARPS);
}

template <class F>
static int plec_plain_launch_gate_up(const struct plec_cuda_gate_up_args *args,
                                     cudaStream_t stream) {
    uint64_t n = plec_plain_items(args->rows.max_tiles, args->bank.intermediate_dim);
    return (int)PLEC_LAUNCH((plain_gate_up<F>), dim3(plec_plain_grid(n, args->rows.n_blocks)),
                            dim3(PLEC_PLAIN_THREADS), 0, stream, *args);
}

template <class F>
static int plec_plain_launch_down(const struct plec_cuda_down_args *args, cudaStream_t stream) {
    uint64_t n = plec_plain_items(args->rows.max_tiles, args->bank.output_dim);
    return (int)PLEC_LAUNCH((plain_down<F>), dim3(plec_plain_grid(n, args->rows.n_blocks)),
                            dim3(PLEC_PLAIN_THREADS), 0, stream, *args);
}

enum { PLEC_PLAIN_LINEAR_BLOCKS = 1024 };

template <class F>
static int plec_plain_launch_linear(const struct plec_linear_args *args,
                                    const struct plec_cuda_fault *fault, cudaStream_t stream) {
    uint64_t n_tiles = ((uint64_t)args->n_tokens + PLEC_PLAIN_WIDTH - 1) / PLEC_PLAIN_WIDTH;
    uint64_t n = plec_plain_items(n_tiles, args->matrix.rows);
    return (int)PLEC_LAUNCH((plain_linear<F>), dim3(plec_plain_grid(n, PLEC_PLAIN_LINEAR_BLOCKS)),
                            dim3(PLEC_PLAIN_THREADS), 0, stream, *args, fault);
}

template <class F>
static int plec_plain_launch_logits(const struct plec_cuda_logits_args *args, cudaStream_t stream) {
    uint64_t n_tiles = ((uint64_t)args->n_tokens + PLEC_PLAIN_WIDTH - 1) / PLEC_PLAIN_WIDTH;
    uint64_t n = plec_plain_items(n_tiles, args->weight.rows);
    return (int)PLEC_LAUNCH((plain_logits<F>), dim3(plec_plain_grid(n, PLEC_PLAIN_LINEAR_BLOCKS)),
                            dim3(PLEC_PLAIN_THREADS), 0, stream, *args);
}

enum { PLEC_PLAIN_TO_BF16_BLOCKS = 2048 };

template <class F>
static int plec_plain_launch_to_bf16(const struct plec_cuda_to_bf16_args *args,
                                     cudaStream_t stream) {
    uint64_t n = plec_plain_items(args->n, args->rows);
    return (int)PLEC_LAUNCH((plain_to_bf16<F>), dim3(plec_plain_grid(n, PLEC_PLAIN_TO_BF16_BLOCKS)),
                            dim3(PLEC_PLAIN_THREADS), 0, stream, *args);
}

/* ---- formats as types ---------------------------------------------------------------------------
 * The three geometries of lyrw/format.h; ROUNDS: x and act are rounded to bf16. */
#define PLEC_PLAIN_TYPE(format, elems, scaled, trailing, rounds, ...)                              \
    struct plec_plain_##format {                                                                   \
        enum { ELEMS = elems, BYTES = sizeof(struct plec_##format##_block) };                      \
        enum : bool { SCALED = scaled, TRAILING = trailing, ROUNDS = rounds };                     \
        static __device__ __forceinline__ void decode(float *out, const uint8_t *block,            \
                                                      uint8_t scale, float tensor_scale) {         \
            (void)scale, (void)tensor_scale;                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    };
#define PLEC_PLAIN_INLINE(format, elems, rounds)                                                   \
    PLEC_PLAIN_TYPE(format, elems, false, false, rounds, plec_##format##_decode(out, block))
#define PLEC_PLAIN_PAIRED(format, elems)                                                           \
    PLEC_PLAIN_TYPE(format, elems, true, false, true, plec_##format##_decode(out, block, scale))
#define PLEC_PLAIN_TRAILING(format, elems)                                                         \
    PLEC_PLAIN_TYPE(format, elems, true, true, true,                                               \
                    plec_##format##_decode(out, block, scale, tensor_scale))

/* The place of a format's plain kernels in the launch table, and what decodes it for a library. */
#define PLEC_PLAIN_GEMM(format, tag)                                                               \
    extern "C" const struct plec_cuda_gemm plec_cuda_plain_##format = {                            \
        "plain",                                                                                   \
        tag,                                                                                       \
        PLEC_CUDA_PLAIN,                                                                           \
        80,                                                                                        \
        0,                                                                                         \
        false,                                                                                     \
        PLEC_CUDA_ORDER_PLAIN,                                                                     \
        {PLEC_PLAIN_WIDTH, PLEC_PLAIN_WIDTH, PLEC_PLAIN_WIDTH},                                    \
        plec_plain_launch_gate_up<plec_plain_##format>,                                            \
        plec_plain_launch_down<plec_plain_##format>,                                               \
        plec_plain_launch_linear<plec_plain_##format>,                                             \
        plec_plain_launch_logits<plec_plain_##format>,                                             \
        NULL,                                                                                      \
        NULL,                                                                                      \
        NULL,                                                                                      \
        {0, 0, 0}};                                                                                \
    extern "C" const struct plec_cuda_decoder plec_cuda_decoder_##format = {                       \
        tag, plec_plain_launch_to_bf16<plec_plain_##format>};

#endif
