/* mm_sync_few.cu: mm_sync of q2_k and q3_k. */
#include "device/cuda/fragment/few.cuh"
#include "device/cuda/mm_launch.cuh"

PLEC_MM_GEMM(PLEC_FORMAT_GGUF_Q2_K, q2_k)
PLEC_MM_GEMM(PLEC_FORMAT_GGUF_Q3_K, q3_k)
