/* mm_wg_nibble.cu: mm_wg of q4_0, q4_1 and q4_k. */
#include "device/cuda/fragment/nibble.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_Q4_0, q4_0)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_Q4_1, q4_1)
PLEC_WG_GEMM(PLEC_FORMAT_Q4_K, q4_k)
