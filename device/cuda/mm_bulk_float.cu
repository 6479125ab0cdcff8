/* mm_bulk_float.cu: mm_bulk of bf16 and f16. */
#include "device/cuda/fragment/float.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_BF16, bf16)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_F16, f16)
