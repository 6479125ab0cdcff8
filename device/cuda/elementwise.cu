/* elementwise.cu: what is one pass over an array: rounding, norm, sigmoid, scale.
 *
 * Mapping: blocks of 256 threads. Elementwise kernels stride over the array with at most
 * GRID_MAX blocks; norm has a block a token and sums in double, so that the order of the sum does
 * not show. Bytes moved: each element read and written once (norm: read twice).
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/maths.cuh"

enum : unsigned { THREADS = 256, WARPS = THREADS / 32, GRID_MAX = 4096 };

static unsigned grid_for(uint64_t n) {
    uint64_t blocks = (n + THREADS - 1) / THREADS;
    return blocks < 1 ? 1u : blocks < GRID_MAX ? (unsigned)blocks : GRID_MAX;
}

static __device__ __forceinline__ uint64_t first_element(void) {
    return (uint64_t)blockIdx.x * THREADS + threadIdx.x;
}
static __device__ __forceinline__ uint64_t stride(void) {
    return (uint64_t)gridDim.x * THREADS;
}

static __global__ void __launch_bounds__(THREADS)
    round_kernel(uint16_t *to, const float *from, uint64_t n) {
    for (uint64_t i = first_element(); i < n; i += stride())
        to[i] = plec_f32_bf16(from[i]);
}

static __global__ void __launch_bounds__(THREADS)
    sigmoid_kernel(float *x, uint64_t n, const struct plec_cuda_fault *fault) {
    if (fault->code != PLEC_CUDA_NO_FAULT) return;
    for (uint64_t i = first_element(); i < n; i += stride())
        x[i] = plec_cuda_logistic(x[i]);
}

static __global__ void __launch_bounds__(THREADS)
    scale_kernel(float *x, uint64_t n, float factor, const struct plec_cuda_fault *fault) {
    if (fault->code != PLEC_CUDA_NO_FAULT) return;
    for (uint64_t i = first_element(); i < n; i += stride())
        x[i] *= factor;
}

/* The sum of the values of all threads, the same for each of them. */
static __device__ double block_sum(double value) {
    PLEC_SHARED_STATIC(double[WARPS], of_warp);
    for (int d = 16; d > 0; d /= 2)
        value += __shfl_xor_sync(0xFFFFFFFFu, value, d);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    for (unsigned warp = 0; warp < WARPS; warp++)
        sum += of_warp[warp];
    return sum;
}

static __global__ void __launch_bounds__(THREADS)
    norm_kernel(struct plec_norm_args args, const struct plec_cuda_fault *fault) {
    if (fault->code != PLEC_CUDA_NO_FAULT) return;
    float *x = args.x + plec_cuda_at(blockIdx.x, args.width);
    double sum = 0;
    for (uint32_t i = threadIdx.x; i < args.width; i += THREADS)
        sum += (double)x[i] * x[i];
    float factor = (float)(1.0 / sqrt(block_sum(sum) / args.width + args.eps));
    for (uint32_t i = threadIdx.x; i < args.width; i += THREADS)
        x[i] = x[i] * factor * args.gain[i];
}

int plec_cuda_launch_round(uint16_t *to, const float *from, uint64_t n, cudaStream_t stream) {
    return (int)PLEC_LAUNCH(round_kernel, dim3(grid_for(n)), dim3(THREADS), 0, stream, to, from, n);
}

int plec_cuda_launch_norm(const struct plec_norm_args *args, const struct plec_cuda_fault *fault,
                          cudaStream_t stream) {
    return (int)PLEC_LAUNCH(norm_kernel, dim3(args->n_tokens), dim3(THREADS), 0, stream, *args,
                            fault);
}

int plec_cuda_launch_sigmoid(float *x, uint64_t n, const struct plec_cuda_fault *fault,
                             cudaStream_t stream) {
    return (int)PLEC_LAUNCH(sigmoid_kernel, dim3(grid_for(n)), dim3(THREADS), 0, stream, x, n,
                            fault);
}

int plec_cuda_launch_scale(float *x, uint64_t n, float factor, const struct plec_cuda_fault *fault,
                           cudaStream_t stream) {
    return (int)PLEC_LAUNCH(scale_kernel, dim3(grid_for(n)), dim3(THREADS), 0, stream, x, n, factor,
                            fault);
}
