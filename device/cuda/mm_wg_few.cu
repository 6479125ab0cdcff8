/* mm_wg_few.cu: mm_wg of q2_k and q3_k. */
#include "device/cuda/fragment/few.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_GGUF_Q2_K, q2_k)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_Q3_K, q3_k)
