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
#include "device/cuda/ptx_wgmma.cuh"
#include "lyrw/codec/bits.h"

static __global__ void __launch_bounds__(32) subnormals_kernel(uint32_t *kept) {
    const uint32_t two_to_64 = 0x5F805F80u; /* a pair of bf16 */
    uint32_t lane = threadIdx.x, code = (1 + lane) * 0x00010001u;
    unsigned a[4] = {code, code, code, code};
    float d[4] = {0, 0, 0, 0};
    plec_mma_bf16(d, a, two_to_64, two_to_64);
    float wanted = ldexpf((float)(4 * (4 * (lane & ~3u) + 10)), 64 - 133);
    kept[lane] = d[0] == wanted && d[1] == wanted && d[2] == wanted && d[3] == wanted;
}

/* The same of mm_wg: wgmma, the sums of pairs that take an offset off codes, and the products that
 * raise them out of the subnormals. An image for another architecture than sm_90a has none of them.
 * One warpgroup; thread t holds code 1 + t, less 64, and the code itself times 2^127.
 */
static __global__ void __launch_bounds__(128) wgmma_kernel(uint32_t *kept) {
    uint32_t t = threadIdx.x;
#ifdef PLEC_HAS_SM90A
    const uint32_t two_to_64 = 0x5F805F80u;
    PLEC_SHARED_STATIC(uint4[16], tokens); /* [8][16] bf16 in parts of 8 x 8 */
    if (t < 16) tokens[t] = make_uint4(two_to_64, two_to_64, two_to_64, two_to_64);
    plec_fence_proxy_async();
    __syncthreads();
    uint32_t code = plec_add_bf16x2((1 + t) * 0x00010001u, 0x80408040u);
    unsigned a[4] = {code, code, code, code};
    float d[4] = {0, 0, 0, 0};
    uint64_t b = plec_wgmma_descriptor_plain(plec_shared_address(tokens), 128, 256);
    plec_wgmma_hold(a);
    plec_wgmma_hold(d);
    plec_wgmma_fence();
    plec_wgmma_bf16(d, a, b, 1);
    plec_wgmma_commit();
    plec_wgmma_wait<0>();
    plec_wgmma_hold(d);
    int quad = 4 * (int)(t & ~3u) + 10 - 4 * 64;
    float wanted = ldexpf((float)(4 * quad), 64 - 133);
    uint32_t raised = plec_mul_bf16x2((1 + t) * 0x00010001u, 0x7F007F00u);
    uint32_t wanted_raised = plec_f32_bits(ldexpf((float)(1 + t), 127 - 133)) >> 16;
    kept[t] = d[0] == wanted && d[1] == wanted && d[2] == wanted && d[3] == wanted &&
              raised == wanted_raised * 0x00010001u;
#else
    kept[t] = 0;
#endif
}

int plec_cuda_wgmma_subnormals(uint32_t *kept, cudaStream_t stream) {
    return PLEC_LAUNCH(wgmma_kernel, dim3(1), dim3(128), 0, stream, kept);
}

int plec_cuda_subnormals(uint32_t *kept, cudaStream_t stream) {
    return PLEC_LAUNCH(subnormals_kernel, dim3(1), dim3(32), 0, stream, kept);
}
