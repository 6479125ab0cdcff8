/* mm_split.cuh: the experts of a launch's tiles from file layout to planes.
 *
 * A warp a row: each lane makes one step's codes for one of the four lanes that will read them, and
 * the warp votes on NaN. Only an expert's first tile does it. The slot of an expert is the place of
 * that tile in the list, or the expert's number where the list may be longer than the bank. Reads
 * the matrix once, by bytes through L1, and writes it once.
 */
#ifndef PLEC_DEVICE_CUDA_MM_SPLIT_CUH
#define PLEC_DEVICE_CUDA_MM_SPLIT_CUH

#include "device/cuda/launch.cuh"
#include "device/cuda/mm_args.h"
#include "device/cuda/planes.cuh"

enum { PLEC_MM_SPLIT_THREADS = 128, PLEC_MM_SPLIT_WARPS = PLEC_MM_SPLIT_THREADS / 32 };

template <class F>
static __device__ __forceinline__ void
plec_mm_split_row(const struct plec_mm_weights &w, const struct plec_cuda_entry &entry,
                  uint32_t slot, uint32_t matrix, uint32_t r, uint32_t *scratch) {
    uint32_t lane = threadIdx.x % 32;
    plec_planes planes = plec_planes_of<F>(w.rows, w.cols);
    uint8_t *out = w.planes + slot * w.slot_bytes + matrix * w.matrix_bytes;
    int id = matrix == 0 ? w.operands[0] : w.operands[1];
    plec_fragment_row row = F::file::row(entry.values[id], entry.scales[id], w.rows, w.cols, r);
    for (uint32_t i = lane; i < planes.n_steps * 4; i += 32)
        plec_planes_fill<F>(out, planes, r, row, w.n_valid, i / 4, i % 4, scratch);
    bool has_nan = __any_sync(0xFFFFFFFFu, F::has_nan(row, lane, 32)) != 0;
    if (lane == 0) ((float *)(out + planes.factors))[r] = plec_planes_factor<F>(row, has_nan);
}

template <class F>
static __global__ void __launch_bounds__(PLEC_MM_SPLIT_THREADS, 4)
    mm_split(struct plec_mm_split_args args) {
    PLEC_SHARED_STATIC(uint32_t[PLEC_MM_SPLIT_THREADS * PLEC_PLANE_SCRATCH], scratch);
    const struct plec_mm_weights &w = args.weights;
    uint64_t rows = (uint64_t)w.rows * w.n_matrices, n_items = *args.rows.n_tiles * rows;
    uint64_t first = (uint64_t)blockIdx.x * PLEC_MM_SPLIT_WARPS + threadIdx.x / 32;
    for (uint64_t i = first; i < n_items; i += (uint64_t)gridDim.x * PLEC_MM_SPLIT_WARPS) {
        uint32_t t = (uint32_t)(i / rows), r = (uint32_t)(i % rows);
        uint32_t expert = args.rows.tiles[t].expert;
        if (t > 0 && args.rows.tiles[t - 1].expert == expert) continue;
        uint32_t slot = args.rows.max_tiles > w.n_slots ? expert : t;
        if (r == 0 && threadIdx.x % 32 == 0) w.slots[expert] = slot;
        plec_mm_split_row<F>(w, args.table[expert], slot, r / w.rows, r % w.rows,
                             scratch + threadIdx.x * PLEC_PLANE_SCRATCH);
    }
}

template <class F>
static int plec_mm_launch_split(const struct plec_mm_split_args *args, cudaStream_t stream) {
    uint64_t rows = (uint64_t)args->weights.rows * args->weights.n_matrices;
    uint64_t n_blocks =
        (args->rows.max_tiles * rows + PLEC_MM_SPLIT_WARPS - 1) / PLEC_MM_SPLIT_WARPS;
    if (n_blocks > args->rows.n_blocks) n_blocks = args->rows.n_blocks;
    return (int)PLEC_LAUNCH((mm_split<F>), dim3((unsigned)(n_blocks < 1 ? 1 : n_blocks)),
                            dim3(PLEC_MM_SPLIT_THREADS), 0, stream, *args);
}

#endif
