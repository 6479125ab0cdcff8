/* mm_bulk_eight.cu: mm_bulk of q8_0 and mxfp8. */
#include "device/cuda/fragment/eight.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_Q8_0, q8_0)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_MXFP8, mxfp8)
