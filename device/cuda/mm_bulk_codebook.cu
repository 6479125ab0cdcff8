/* mm_bulk_codebook.cu: mm_bulk of iq4_nl and iq4_xs. */
#include "device/cuda/fragment/codebook.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_IQ4_NL, iq4_nl)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_IQ4_XS, iq4_xs)
