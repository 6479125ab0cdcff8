/* mm_wg_codebook.cu: mm_wg of iq4_nl and iq4_xs. */
#include "device/cuda/fragment/codebook.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_GGUF_IQ4_NL, iq4_nl)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_IQ4_XS, iq4_xs)
