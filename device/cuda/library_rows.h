/* library_rows.h: the kernels that stand between the products of a library: rows of x gathered, and
 * products finished. Rows as the plan has them. */
#ifndef PLEC_DEVICE_CUDA_LIBRARY_ROWS_H
#define PLEC_DEVICE_CUDA_LIBRARY_ROWS_H

#include "device/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* to [n_rows, n_cols] bf16 = rows of x, rounded once to nearest. */
int plec_cuda_launch_gather(uint16_t *to, const float *x, const uint32_t *row_token,
                            uint32_t n_rows, uint32_t n_cols, cudaStream_t stream);
/* product [all rows, cols of the operand's rows] f32 or bf16. */
struct plec_cuda_product {
    const void *values;
    uint32_t n_cols;
    bool bf16;
};
int plec_cuda_launch_products_gate_up(const struct plec_cuda_gate_up_args *args,
                                      const struct plec_cuda_product *product, cudaStream_t stream);
int plec_cuda_launch_products_down(const struct plec_cuda_down_args *args,
                                   const struct plec_cuda_product *product, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
