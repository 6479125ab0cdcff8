/* table.cu: writes rows of a bank's device table from its own parameters: ordered by the stream,
 * and no host memory has to outlive the call. One block, a thread a row. */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"

static __global__ void __launch_bounds__(PLEC_CUDA_TABLE_ROWS)
    table_kernel(struct plec_cuda_table_args args) {
    if (threadIdx.x >= args.n_rows) return;
    struct plec_cuda_entry row = args.rows[threadIdx.x];
    args.table[args.at[threadIdx.x]] = row;
}

int plec_cuda_launch_table(const struct plec_cuda_table_args *args, cudaStream_t stream) {
    return (int)PLEC_LAUNCH(table_kernel, dim3(1), dim3(PLEC_CUDA_TABLE_ROWS), 0, stream, *args);
}
