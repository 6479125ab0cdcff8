/* mm_wg_eight.cu: mm_wg of q8_0 and mxfp8. */
#include "device/cuda/fragment/eight.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_Q8_0, q8_0)
PLEC_WG_GEMM(PLEC_FORMAT_MXFP8, mxfp8)
