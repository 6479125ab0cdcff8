/* subnormals.cu: do this device's tensor cores take subnormal bf16 operands as they are?
 *
 * mm_sync feeds codes to them as the bits of bf16, where 1 to 127 are subnormal (docs/mm_sync.md),
 * and PTX does not promise that they are not flushed to 0. One warp asks, once a device is opened.
 *
 * Mapping: one warp; lane 4 g + c holds code 1 + lane in all its elements of rows g and g + 8, and
 * the tokens are 2^64 everywhere, so that row g sums to 4 * (codes of its four lanes) * 2^-69.
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"

static __global__ void __launch_bounds__(32) subnormals_kernel(uint32_t *kept) {
    const uint32_t two_to_64 = 0x5F805F80u; /* a pair of bf16 */
    uint32_t lane = threadIdx.x, code = (1 + lane) * 0x00010001u;
    unsigned a[4] = {code, code, code, code};
    float d[4] = {0, 0, 0, 0};
    plec_mma_bf16(d, a, two_to_64, two_to_64);
    float wanted = ldexpf((float)(4 * (4 * (lane & ~3u) + 10)), 64 - 133);
    kept[lane] = d[0] == wanted && d[1] == wanted && d[2] == wanted && d[3] == wanted;
}

int plec_cuda_subnormals(uint32_t *kept, cudaStream_t stream) {
    return PLEC_LAUNCH(subnormals_kernel, dim3(1), dim3(32), 0, stream, kept);
}
