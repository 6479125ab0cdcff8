/* mm_wg_launch.cuh: a format's mm_wg as launches, and its place in the launch table. */
#ifndef PLEC_DEVICE_CUDA_MM_WG_LAUNCH_CUH
#define PLEC_DEVICE_CUDA_MM_WG_LAUNCH_CUH

#include "device/cuda/mm_launch.cuh"
#include "device/cuda/mm_wg.cuh"

template <class F> struct plec_mm_wg_kernel {
    /* Offsets are taken off the codes: only minima need sums. */
    static struct plec_mm_staging staging(void) {
        struct plec_mm_staging how = plec_mm_sync_kernel<F>::staging();
        how.by_step = true;
        how.token_factor = plec_bits_f32((uint32_t)(127 + plec_wg_rule<F>::token_shift) << 23);
        if (!F::has_minimum) how.sum_factor = 0.0f;
        return how;
    }

    static int launch(const struct plec_mm_args *mm, cudaStream_t stream) {
        typedef plec_wg_shape<F> S;
        const int exponent = plec_wg_exponent<F>();
        float unit = plec_bits_f32((uint32_t)(127 + exponent) << 23);
        cudaError_t status =
            cudaFuncSetAttribute((const void *)mm_wg<F, PLEC_WG_WIDTH>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
        if (status != cudaSuccess) return (int)status;
        return (int)PLEC_LAUNCH((mm_wg<F, PLEC_WG_WIDTH>), dim3(plec_mm_grid(mm, S::ROWS)),
                                dim3(S::THREADS), S::BYTES, stream, *mm, unit);
    }
};

#define PLEC_WG_GEMM(tag, name)                                                                    \
    extern "C" const struct plec_cuda_gemm plec_cuda_mm_wg_##name = {                              \
        "mm_wg",                                                                                   \
        tag,                                                                                       \
        PLEC_CUDA_WGMMA,                                                                           \
        90,                                                                                        \
        90,                                                                                        \
        false,                                                                                     \
        PLEC_CUDA_ORDER_WGMMA,                                                                     \
        {0, 0, PLEC_WG_WIDTH},                                                                     \
        plec_mm_gate_up<plec_fragment_##name, plec_mm_wg_kernel<plec_fragment_##name>>,            \
        plec_mm_down<plec_fragment_##name, plec_mm_wg_kernel<plec_fragment_##name>>,               \
        NULL,                                                                                      \
        NULL,                                                                                      \
        plec_mm_down_splits<plec_fragment_##name>,                                                 \
        NULL,                                                                                      \
        plec_mm_workspace,                                                                         \
        {0, 0, plec_wg_shape<plec_fragment_##name>::BYTES}};

#endif
