/* split_planes.cu: matrices from the file's layout to planes (planes.cuh): what an expert's arrival
 * on the device is.
 *
 * Mapping: a warp a row of one entry's matrix; each lane makes one step's codes for one of the four
 * lanes that will read them, and the warp votes on NaN. Reads the matrix once, by bytes through L1,
 * and writes it once.
 */
#include "device/cuda/fragment/all.cuh"
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/planes.cuh"

enum { PLEC_SPLIT_THREADS = 128, PLEC_SPLIT_WARPS = PLEC_SPLIT_THREADS / 32 };

template <class F>
static __device__ __forceinline__ void plec_split_row(const struct plec_cuda_split_args &args,
                                                      uint32_t entry, uint32_t r,
                                                      uint32_t *scratch) {
    uint32_t lane = threadIdx.x % 32;
    plec_planes planes = plec_planes_of<F>(args.rows, args.cols);
    uint8_t *out = args.to[entry];
    plec_fragment_row row =
        F::file::row(args.values[entry], args.scales[entry], args.rows, args.cols, r);
    for (uint32_t i = lane; i < planes.n_steps * 4; i += 32)
        plec_planes_fill<F>(out, planes, r, row, args.n_valid, i / 4, i % 4, scratch);
    bool has_nan = __any_sync(0xFFFFFFFFu, F::has_nan(row, lane, 32)) != 0;
    if (lane == 0) ((float *)(out + planes.factors))[r] = plec_planes_factor<F>(row, has_nan);
}

template <class F>
static __global__ void __launch_bounds__(PLEC_SPLIT_THREADS, 4)
    split_planes(struct plec_cuda_split_args args) {
    PLEC_SHARED_STATIC(uint32_t[PLEC_SPLIT_THREADS * PLEC_PLANE_SCRATCH], scratch);
    uint64_t n_items = (uint64_t)args.rows * args.n;
    uint64_t first = (uint64_t)blockIdx.x * PLEC_SPLIT_WARPS + threadIdx.x / 32;
    for (uint64_t i = first; i < n_items; i += (uint64_t)gridDim.x * PLEC_SPLIT_WARPS)
        plec_split_row<F>(args, (uint32_t)(i / args.rows), (uint32_t)(i % args.rows),
                          scratch + threadIdx.x * PLEC_PLANE_SCRATCH);
}

template <class F>
static int plec_split_launch(const struct plec_cuda_split_args *args, cudaStream_t stream) {
    uint64_t rows = (uint64_t)args->rows * args->n;
    uint64_t n_blocks = (rows + PLEC_SPLIT_WARPS - 1) / PLEC_SPLIT_WARPS;
    if (n_blocks > args->n_blocks) n_blocks = args->n_blocks;
    return (int)PLEC_LAUNCH((split_planes<F>), dim3((unsigned)(n_blocks < 1 ? 1 : n_blocks)),
                            dim3(PLEC_SPLIT_THREADS), 0, stream, *args);
}

template <class F> static uint64_t plec_split_bytes(const struct plec_operand *operand) {
    return plec_planes_of<F>(operand->rows, operand->cols).n_bytes;
}

#define FORM(tag, name)                                                                            \
    {tag, plec_split_bytes<plec_fragment_##name>, plec_split_launch<plec_fragment_##name>},
static const struct plec_cuda_form forms[] = {PLEC_FOR_EACH_FRAGMENT(FORM)};

const struct plec_cuda_form *plec_cuda_form_find(uint16_t format) {
    for (size_t i = 0; i < sizeof forms / sizeof forms[0]; i++)
        if (forms[i].format == format) return &forms[i];
    return NULL;
}
