/* mm_wg_e2m1.cu: mm_wg of mxfp4, nvfp4 and fp4_larql, and of GGUF's own mxfp4 and nvfp4. */
#include "device/cuda/fragment/e2m1.cuh"
#include "device/cuda/mm_wg_launch.cuh"

PLEC_WG_GEMM(PLEC_FORMAT_MXFP4, mxfp4)
PLEC_WG_GEMM(PLEC_FORMAT_NVFP4, nvfp4)
PLEC_WG_GEMM(PLEC_FORMAT_FP4_LARQL, fp4_larql)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_MXFP4, gguf_mxfp4)
PLEC_WG_GEMM(PLEC_FORMAT_GGUF_NVFP4, gguf_nvfp4)
