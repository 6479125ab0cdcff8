/* mm_bulk_few.cu: mm_bulk of q2_k and q3_k. */
#include "device/cuda/fragment/few.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_Q2_K, q2_k)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_Q3_K, q3_k)
