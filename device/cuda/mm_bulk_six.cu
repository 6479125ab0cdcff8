/* mm_bulk_six.cu: mm_bulk of q6_k. */
#include "device/cuda/fragment/six.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_Q6_K, q6_k)
