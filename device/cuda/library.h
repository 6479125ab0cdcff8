/* library.h: cuBLAS as two baselines of the launch table, cublas_loop and cublas_grouped.
 *
 * An expert's matrices are decoded to bf16, rounded once to nearest where they were not, and
 * multiplied by rows of x or act in bf16 with f32 sums. cublas_loop: a cublasGemmEx an expert,
 * products in f32. cublas_grouped: one cublasGemmGroupedBatchedEx for all, products in bf16, which
 * is all that it writes from bf16 operands. Never chosen but when asked for: the weights are not
 * exact, cuBLAS decides in what order sums are made, and the host has to know how many rows each
 * expert has, so that a launch waits for its plan and cannot be captured.
 *
 * The library is opened when a device is that asks for it; nothing links it. Its calls are made one
 * launch at a time.
 */
#ifndef PLEC_DEVICE_CUDA_LIBRARY_H
#define PLEC_DEVICE_CUDA_LIBRARY_H

#include "device/cuda/experts.h"
#include "device/cuda/library_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Opens cuBLAS: the file `path`, NULL: libcublas.so.13, .12. `grouped`: with the grouped
 * product. PLEC_NO_DEVICE "NoCublas" with what the loader says, or what the library lacks. */
PLEC_MUST_USE enum plec_status plec_cuda_library_open(struct plec_cuda_library **out,
                                                      const char *path, bool grouped,
                                                      struct plec_error *err);
/* NULL is nothing. */
void plec_cuda_library_close(struct plec_cuda_library *library);

/* What the plan found: pinned memory. */
struct plec_cuda_found {
    uint32_t first[PLEC_CUDA_EXPERTS_MAX + 1]; /* row of each expert */
    struct plec_cuda_fault fault;
};
/* The experts of a launch that have rows, while it holds the library. */
struct plec_cuda_library_rows {
    pthread_mutex_t mutex; /* over the library, too */
    struct plec_cuda_found *found;
    uint32_t n;
    uint32_t expert[PLEC_CUDA_EXPERTS_MAX], first[PLEC_CUDA_EXPERTS_MAX];
    uint32_t n_rows[PLEC_CUDA_EXPERTS_MAX];
    const void *matrices[PLEC_CUDA_EXPERTS_MAX]; /* bf16, device */
};
struct plec_cuda_library_rows *plec_cuda_library_get_rows(struct plec_cuda_library *library);

/* One product for each of n experts: c = b . transposed a, all row by row. */
struct plec_cuda_products {
    uint32_t n, rows, cols; /* a: [rows, lda] bf16, of which cols count */
    uint32_t lda, ldb;      /* values from a row to the next */
    const void *const *a;   /* [n] host array of device memory */
    const uint16_t *b;      /* [all rows, ldb] bf16, device */
    void *c;                /* [all rows, rows] f32, or bf16 of a grouped product, device */
    const uint32_t *first;  /* [n] first row of b and c of each */
    const uint32_t *n_rows; /* [n] at least 1 */
    const void **pointers;  /* [3, PLEC_CUDA_EXPERTS_MAX] device, for a grouped product */
};
/* The library is held. PLEC_NO_DEVICE "CublasFailed" with its status. */
enum plec_status plec_cuda_library_loop(struct plec_cuda_library *library,
                                        const struct plec_cuda_products *products,
                                        cudaStream_t stream, struct plec_error *err);
enum plec_status plec_cuda_library_grouped(struct plec_cuda_library *library,
                                           const struct plec_cuda_products *products,
                                           cudaStream_t stream, struct plec_error *err);

/* The tiles of a launch by the library, in place of kernels. Begin waits for the plan, and holds
 * the library until end; false: nothing is to be run, launch.status or a fault says why. */
bool plec_cuda_library_begin(struct plec_cuda_run *run);
void plec_cuda_library_gate_up(struct plec_cuda_run *run, const struct plec_cuda_rows *rows);
void plec_cuda_library_down(struct plec_cuda_run *run, const struct plec_cuda_rows *rows);
void plec_cuda_library_end(struct plec_cuda_run *run);

#ifdef __cplusplus
}
#endif
#endif
