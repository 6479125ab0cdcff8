/* library_rows.cu: what stands between the products of a library: rows of x gathered and rounded,
 * products finished into activations, products finished into outputs.
 *
 * Mapping: blocks of 256 threads. gather strides over elements; the others loop over (tile, 256
 * neighbouring columns), a thread a column of every row of the tile, so that rows are read and
 * written whole sectors at a time.
 */
#include "device/cuda/library_rows.h"
#include "device/cuda/plain.cuh"

enum : unsigned { THREADS = 256, GRID_MAX = 4096 };

static unsigned grid_of(uint64_t n) {
    const uint64_t most = GRID_MAX;
    return (unsigned)(n < 1 ? 1 : n < most ? n : most);
}

static __global__ void __launch_bounds__(THREADS)
    products_gather(uint16_t *to, const float *x, const uint32_t *row_token, uint32_t n_rows,
                    uint32_t n_cols) {
    uint64_t n = (uint64_t)n_rows * n_cols, step = (uint64_t)gridDim.x * THREADS;
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < n; i += step) {
        uint32_t row = (uint32_t)(i / n_cols), col = (uint32_t)(i % n_cols);
        to[i] = plec_f32_bf16(x[plec_cuda_at(row_token[row], n_cols) + col]);
    }
}

static __device__ __forceinline__ float product_at(const struct plec_cuda_product &product,
                                                   uint32_t row, uint32_t col) {
    size_t at = plec_cuda_at(row, product.n_cols) + col;
    return product.bf16 ? plec_bf16_f32(((const uint16_t *)product.values)[at])
                        : ((const float *)product.values)[at];
}

/* One channel of one row: as plec_plain_gate_up_channel ends. */
static __device__ __forceinline__ void finish_channel(const struct plec_cuda_gate_up_args &args,
                                                      const struct plec_cuda_product &product,
                                                      const struct plec_cuda_entry &entry,
                                                      uint32_t row, uint32_t channel) {
    const struct plec_cuda_bank &bank = args.bank;
    bool has_gate = bank.operands[PLEC_GATE].rows != 0;
    float gate = 0, weight = plec_plain_input_weight(args, row);
    float *stored = args.gate_product + plec_cuda_at(row, bank.intermediate_dim) + channel;
    if (args.half == PLEC_CUDA_UP_LAST) {
        gate = *stored;
    } else if (has_gate) {
        uint32_t at = plec_cuda_gate_row(bank.fusion, bank.intermediate_dim, channel);
        gate = plec_cuda_finish_product(bank, entry, PLEC_GATE, at, entry.gate_scale,
                                        product_at(product, row, at) * weight);
    }
    if (args.half == PLEC_CUDA_GATE_ALONE) {
        *stored = gate;
        return;
    }
    uint32_t at = plec_cuda_up_row(bank.fusion, bank.intermediate_dim, channel);
    float up = plec_cuda_finish_product(bank, entry, plec_cuda_up_operand(bank.fusion), at,
                                        entry.up_scale, product_at(product, row, at) * weight);
    plec_plain_store_act(args, row, channel, plec_cuda_combine(bank.maths, has_gate, gate, up));
}

static __global__ void __launch_bounds__(THREADS)
    products_gate_up(struct plec_cuda_gate_up_args args, struct plec_cuda_product product) {
    uint32_t n = args.bank.intermediate_dim, n_blocks = (n + THREADS - 1) / THREADS;
    uint64_t total = (uint64_t)*args.rows.n_tiles * n_blocks;
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_cuda_tile tile = args.rows.tiles[at / n_blocks];
        uint32_t channel = (uint32_t)(at % n_blocks) * THREADS + threadIdx.x;
        if (channel >= n) continue;
        const struct plec_cuda_entry &entry = args.bank.table[tile.expert];
        for (uint32_t row = tile.first_row; row < tile.first_row + tile.n_rows; row++)
            finish_channel(args, product, entry, row, channel);
    }
}

static __global__ void __launch_bounds__(THREADS)
    products_down(struct plec_cuda_down_args args, struct plec_cuda_product product) {
    uint32_t n = args.bank.output_dim, n_blocks = (n + THREADS - 1) / THREADS;
    uint64_t total = (uint64_t)*args.rows.n_tiles * n_blocks;
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_cuda_tile tile = args.rows.tiles[at / n_blocks];
        uint32_t i = (uint32_t)(at % n_blocks) * THREADS + threadIdx.x;
        if (i >= n) continue;
        const struct plec_cuda_entry &entry = args.bank.table[tile.expert];
        for (uint32_t row = tile.first_row; row < tile.first_row + tile.n_rows; row++)
            args.out[plec_cuda_at(row, n) + i] =
                plec_cuda_finish_down(args.bank, entry, 0, i, product_at(product, row, i));
    }
}

int plec_cuda_launch_gather(uint16_t *to, const float *x, const uint32_t *row_token,
                            uint32_t n_rows, uint32_t n_cols, cudaStream_t stream) {
    uint64_t n = ((uint64_t)n_rows * n_cols + THREADS - 1) / THREADS;
    return (int)PLEC_LAUNCH(products_gather, dim3(grid_of(n)), dim3(THREADS), 0, stream, to, x,
                            row_token, n_rows, n_cols);
}

int plec_cuda_launch_products_gate_up(const struct plec_cuda_gate_up_args *args,
                                      const struct plec_cuda_product *product,
                                      cudaStream_t stream) {
    uint64_t n_blocks = ((uint64_t)args->bank.intermediate_dim + THREADS - 1) / THREADS;
    return (int)PLEC_LAUNCH(products_gate_up, dim3(grid_of(args->rows.max_tiles * n_blocks)),
                            dim3(THREADS), 0, stream, *args, *product);
}

int plec_cuda_launch_products_down(const struct plec_cuda_down_args *args,
                                   const struct plec_cuda_product *product, cudaStream_t stream) {
    uint64_t n_blocks = ((uint64_t)args->bank.output_dim + THREADS - 1) / THREADS;
    return (int)PLEC_LAUNCH(products_down, dim3(grid_of(args->rows.max_tiles * n_blocks)),
                            dim3(THREADS), 0, stream, *args, *product);
}
