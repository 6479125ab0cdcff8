/* mm_wg_six.cu: mm_wg of q6_k. */
#include "device/cuda/fragment/six.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_Q6_K, q6_k)
