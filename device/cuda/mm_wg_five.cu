/* mm_wg_five.cu: mm_wg of q5_0, q5_1 and q5_k. */
#include "device/cuda/fragment/five.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_GGUF_Q5_0, q5_0)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_Q5_1, q5_1)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_Q5_K, q5_k)
