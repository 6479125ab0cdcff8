/* launch.cuh: the few things in which nvcc and the emulation (tests/emu) differ in a kernel's text:
 * how a kernel is launched and how shared memory is declared. Kernels use these and never `<<<>>>`
 * or a raw __shared__, so that one text compiles both ways.
 *
 * PLEC_LAUNCH(kernel, grid, block, shared_bytes, stream, args...) gives a cudaError_t. A kernel
 * that is an instance of a template stands in parentheses: PLEC_LAUNCH((kernel<32, true>), ...).
 *
 * PLEC_SHARED_DYNAMIC(raw) declares `unsigned char *raw`, the dynamic shared memory of the block,
 * aligned to 1024 bytes.
 *
 * PLEC_SHARED_STATIC(float[32], partial) declares `float (&partial)[32]`.
 */
#ifndef PLEC_DEVICE_CUDA_LAUNCH_CUH
#define PLEC_DEVICE_CUDA_LAUNCH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>
#include <stdint.h>
#include <string.h>
#include <utility>

/* How a grid starts beside what is already in its stream. */
enum plec_launch_kind {
    PLEC_LAUNCH_PLAIN,
    PLEC_LAUNCH_COOPERATIVE, /* all blocks resident at once: they may wait for each other */
    PLEC_LAUNCH_DEPENDENT    /* may start before the kernel ahead of it has ended: it calls
                                plec_grid_wait() before it touches what that kernel reads or writes */
};

/* How a kernel behind others of a chain starts: see plec_chain_wait (ptx.cuh). */
static inline enum plec_launch_kind plec_launch_next(bool chained) {
    return chained ? PLEC_LAUNCH_DEPENDENT : PLEC_LAUNCH_PLAIN;
}

#ifdef PLEC_CUDA_EMULATED

#define PLEC_LAUNCH_AS(kind, kernel, grid, block, shared_bytes, stream, ...)                       \
    plec_emu::launch(#kernel, kernel,                                                              \
                     plec_emu::LaunchShape(grid, block, shared_bytes, stream, kind) __VA_OPT__(, ) \
                         __VA_ARGS__)

#else

template <class... P, class... A>
inline cudaError_t plec_launch_kernel(enum plec_launch_kind kind, void (*kernel)(P...), dim3 grid,
                                      dim3 block, size_t shared_bytes, cudaStream_t stream,
                                      A &&...args) {
    cudaLaunchConfig_t config = {};
    cudaLaunchAttribute attribute[1] = {};
    config.gridDim = grid;
    config.blockDim = block;
    config.dynamicSmemBytes = shared_bytes;
    config.stream = stream;
    config.attrs = attribute;
    config.numAttrs = kind == PLEC_LAUNCH_PLAIN ? 0 : 1;
    if (kind == PLEC_LAUNCH_COOPERATIVE) {
        attribute[0].id = cudaLaunchAttributeCooperative;
        attribute[0].val.cooperative = 1;
    } else if (kind == PLEC_LAUNCH_DEPENDENT) {
        attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attribute[0].val.programmaticStreamSerializationAllowed = 1;
        /* A multiprocessor divides its memory between L1 and shared anew only when it is empty:
         * kernels that are to overlap there want it alike. */
        cudaError_t status = cudaFuncSetAttribute((const void *)kernel,
                                                  cudaFuncAttributePreferredSharedMemoryCarveout,
                                                  cudaSharedmemCarveoutMaxShared);
        if (status != cudaSuccess) return status;
    }
    return cudaLaunchKernelEx(&config, kernel, std::forward<A>(args)...);
}

#define PLEC_LAUNCH_AS(kind, kernel, grid, block, shared_bytes, stream, ...)                       \
    plec_launch_kernel(kind, kernel, grid, block, shared_bytes, stream __VA_OPT__(, ) __VA_ARGS__)

template <class T> using plec_shared_type = T;
#define PLEC_SHARED_DYNAMIC(name)      extern __shared__ __align__(1024) unsigned char name[]
#define PLEC_SHARED_STATIC(type, name) __shared__ plec_shared_type<type> name

#endif

/* Enqueue a kernel and return; the status is cudaGetLastError's for this launch. */
#define PLEC_LAUNCH(...) PLEC_LAUNCH_AS(PLEC_LAUNCH_PLAIN, __VA_ARGS__)

#endif
