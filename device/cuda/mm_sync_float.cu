/* mm_sync_float.cu: mm_sync of bf16 and f16. */
#include "device/cuda/fragment/float.cuh"
#include "device/cuda/mm_launch.cuh"

PLEC_MM_GEMM(PLEC_FORMAT_BF16, bf16)
PLEC_MM_GEMM(PLEC_FORMAT_F16, f16)
