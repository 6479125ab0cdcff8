/* mm_wg_float.cu: mm_wg of bf16 and f16. */
#include "device/cuda/fragment/float.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_BF16, bf16)
PLEC_WG_GEMM(PLEC_FORMAT_F16, f16)
