/* mm_sync_six.cu: mm_sync of q6_k. */
#include "device/cuda/fragment/six.cuh"
#include "device/cuda/mm_launch.cuh"

PLEC_MM_GEMM(PLEC_FORMAT_Q6_K, q6_k)
