/* mm_wg_float.cu: mm_wg of f16; bf16 has a kernel of its own (mm_wg_bf16.cu). */
#include "device/cuda/fragment/float.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_F16, f16)
