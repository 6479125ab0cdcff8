/* mm_sync_codebook.cu: mm_sync of iq4_nl and iq4_xs. */
#include "device/cuda/fragment/codebook.cuh"
#include "device/cuda/mm_launch.cuh"

PLEC_MM_GEMM(PLEC_FORMAT_GGUF_IQ4_NL, iq4_nl)
PLEC_MM_GEMM(PLEC_FORMAT_GGUF_IQ4_XS, iq4_xs)
