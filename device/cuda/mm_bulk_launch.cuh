/* mm_bulk_launch.cuh: a format's mm_bulk as launches, and its place in the launch table. */
#ifndef PLEC_DEVICE_CUDA_MM_BULK_LAUNCH_CUH
#define PLEC_DEVICE_CUDA_MM_BULK_LAUNCH_CUH

#include "device/cuda/mm_bulk.cuh"
#include "device/cuda/mm_launch.cuh"

template <class F> struct plec_mm_bulk_kernel {
    static struct plec_mm_staging staging(void) { return plec_mm_staging_of<F>(); }

    static int launch(const struct plec_mm_args *mm, cudaStream_t stream) {
        static_assert(plec_mm_bulk_depth_of<F, PLEC_MM_NARROW>(PLEC_SM90_SHARED).n_resident ==
                          plec_mm_bulk_shape<F, PLEC_MM_NARROW>::RESIDENT,
                      "48 KB of weights are in flight on an SM of sm_90 and sm_100");
        static_assert(plec_mm_bulk_depth_of<F, PLEC_MM_NARROW>(PLEC_SM120_SHARED).n_resident > 0,
                      "48 KB of weights are in flight on an SM of sm_120");
        typedef plec_mm_bulk_shape<F, PLEC_MM_NARROW> S;
        struct plec_mm_bulk_depth depth =
            plec_mm_bulk_depth_of<F, PLEC_MM_NARROW>(mm->rows.shared_bytes);
        if (depth.n_resident == 0) return (int)cudaErrorInvalidConfiguration;
        uint32_t n_bytes = plec_mm_bulk_bytes<F, PLEC_MM_NARROW>(depth.n_stages);
        struct plec_mm_args own = *mm;
        own.rows.n_blocks = mm->rows.n_processors * depth.n_resident;
        cudaError_t status =
            cudaFuncSetAttribute((const void *)mm_bulk<F, PLEC_MM_NARROW>,
                                 cudaFuncAttributeMaxDynamicSharedMemorySize, (int)n_bytes);
        if (status != cudaSuccess) return (int)status;
        return (int)PLEC_LAUNCH_AS(plec_launch_next(mm->rows.chained), (mm_bulk<F, PLEC_MM_NARROW>),
                                   dim3(plec_mm_grid(&own, S::ROWS)), dim3(S::BLOCK_THREADS),
                                   n_bytes, stream, own, depth.n_stages);
    }
};

#define PLEC_MM_BULK_GEMM(tag, name)                                                               \
    extern "C" const struct plec_cuda_gemm plec_cuda_mm_bulk_##name = {                            \
        "mm_bulk",                                                                                 \
        tag,                                                                                       \
        PLEC_CUDA_MM_BULK,                                                                         \
        90,                                                                                        \
        0,                                                                                         \
        false,                                                                                     \
        PLEC_CUDA_ORDER_MMA,                                                                       \
        {PLEC_MM_NARROW, 0, 0},                                                                    \
        plec_mm_gate_up<plec_fragment_##name, plec_mm_bulk_kernel<plec_fragment_##name>>,          \
        plec_mm_down<plec_fragment_##name, plec_mm_bulk_kernel<plec_fragment_##name>>,             \
        NULL,                                                                                      \
        NULL,                                                                                      \
        plec_mm_down_splits<plec_fragment_##name>,                                                 \
        plec_mm_rows_in_groups,                                                                    \
        plec_mm_workspace,                                                                         \
        {plec_mm_bulk_bytes<plec_fragment_##name, PLEC_MM_NARROW>(                                 \
             plec_mm_bulk_depth_of<plec_fragment_##name, PLEC_MM_NARROW>(PLEC_SM90_SHARED)         \
                 .n_stages),                                                                       \
         0, 0}};

#endif
