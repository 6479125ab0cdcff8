/* mm_bulk_e2m1.cu: mm_bulk of mxfp4, nvfp4, fp4_larql, and GGUF's own mxfp4 and nvfp4. */
#include "device/cuda/fragment/e2m1.cuh"
#include "device/cuda/mm_bulk_launch.cuh"

PLEC_MM_BULK_GEMM(PLEC_FORMAT_MXFP4, mxfp4)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_NVFP4, nvfp4)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_FP4_LARQL, fp4_larql)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_MXFP4, gguf_mxfp4)
PLEC_MM_BULK_GEMM(PLEC_FORMAT_GGUF_NVFP4, gguf_nvfp4)
