/* part.cu: a launch in parts: takes named experts out of a plan, and sees at the end that none was
 * left out.
 *
 * Mapping: one block of 256 threads, a thread a named expert at a time. An expert's tiles are
 * neighbours in the plan, so a part's lists are copies of runs. Which place a run has in them
 * depends on the order of the names, which no result depends on.
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"

enum { THREADS = 256 };

template <class Args> static __device__ void fault(const Args &args, uint32_t code, uint32_t a) {
    if (atomicCAS(&args.fault->code, PLEC_CUDA_NO_FAULT, code) != PLEC_CUDA_NO_FAULT) return;
    args.fault->a = a;
    args.fault->launch = args.launch;
}

/* Marks the expert as run; what is wrong with naming it, or no fault. Two threads that name one
 * expert: the second to come sees 2. */
static __device__ uint32_t take(const struct plec_cuda_part_args &args, uint32_t expert) {
    if (expert >= args.n_entries) return PLEC_CUDA_PART_OUT_OF_BANK;
    uint32_t was = atomicCAS(&args.plan.left[expert], 1u, 2u);
    if (was == 1) return PLEC_CUDA_NO_FAULT;
    return was == 0 ? PLEC_CUDA_PART_WITHOUT : PLEC_CUDA_PART_TWICE;
}

static __device__ void copy_tiles(const struct plec_cuda_part_args &args, uint32_t c,
                                  uint32_t expert) {
    uint32_t first = args.plan.first_tile[c][expert];
    uint32_t n = args.plan.first_tile[c][expert + 1] - first;
    if (n == 0) return;
    uint32_t to = atomicAdd(&args.counts[c], n);
    for (uint32_t i = 0; i < n; i++)
        args.tiles[c][to + i] = args.plan.tiles[c][first + i];
}

static __global__ void __launch_bounds__(THREADS) part_kernel(struct plec_cuda_part_args args) {
    bool failed = args.fault->code != PLEC_CUDA_NO_FAULT;
    if (threadIdx.x < args.n_lists) args.counts[threadIdx.x] = 0;
    __syncthreads();
    if (failed) return;
    uint32_t n_taken = 0;
    int bad = 0;
    for (uint32_t i = threadIdx.x; i < args.n_part; i += THREADS) {
        uint32_t expert = args.part[i], what = take(args, expert);
        if (what == PLEC_CUDA_NO_FAULT) {
            n_taken++;
            for (uint32_t c = 0; c < args.n_lists; c++)
                copy_tiles(args, c, expert);
        } else {
            fault(args, what, expert);
            bad = 1;
        }
    }
    if (n_taken > 0) atomicSub(args.plan.n_left, n_taken);
    if (__syncthreads_or(bad) && threadIdx.x < args.n_lists) args.counts[threadIdx.x] = 0;
}

static __global__ void __launch_bounds__(1) finish_kernel(struct plec_cuda_finish_args args) {
    if (*args.n_left > 0) fault(args, PLEC_CUDA_EXPERTS_LEFT_OUT, *args.n_left);
}

int plec_cuda_launch_part(const struct plec_cuda_part_args *args, cudaStream_t stream) {
    return (int)PLEC_LAUNCH(part_kernel, dim3(1), dim3(THREADS), 0, stream, *args);
}

int plec_cuda_launch_finish(const struct plec_cuda_finish_args *args, cudaStream_t stream) {
    return (int)PLEC_LAUNCH(finish_kernel, dim3(1), dim3(1), 0, stream, *args);
}
