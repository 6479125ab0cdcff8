/* mm_bulk_five.cu: mm_bulk of q5_0, q5_1 and q5_k. */
#include "device/cuda/fragment/five.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_Q5_0, q5_0)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_Q5_1, q5_1)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_Q5_K, q5_k)
