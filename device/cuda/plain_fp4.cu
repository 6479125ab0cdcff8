/* plain_fp4.cu: the plain rung of the 4- and 8-bit float formats. */
#include "device/cuda/plain.cuh"
#include "lyrw/codec/fp4_larql.h"
#include "lyrw/codec/gguf_mxfp4.h"
#include "lyrw/codec/gguf_nvfp4.h"
#include "lyrw/codec/mxfp4.h"
#include "lyrw/codec/mxfp8.h"
#include "lyrw/codec/nvfp4.h"

PLEC_PLAIN_INLINE(fp4_larql, 256, true)
PLEC_PLAIN_PAIRED(mxfp4, 32)
PLEC_PLAIN_PAIRED(mxfp8, 32)
PLEC_PLAIN_TRAILING(nvfp4, 16)
PLEC_PLAIN_INLINE(gguf_mxfp4, 32, true)
PLEC_PLAIN_INLINE(gguf_nvfp4, 64, true)

PLEC_PLAIN_GEMM(fp4_larql, PLEC_FORMAT_FP4_LARQL)
PLEC_PLAIN_GEMM(mxfp4, PLEC_FORMAT_MXFP4)
PLEC_PLAIN_GEMM(mxfp8, PLEC_FORMAT_MXFP8)
PLEC_PLAIN_GEMM(nvfp4, PLEC_FORMAT_NVFP4)
PLEC_PLAIN_GEMM(gguf_mxfp4, PLEC_FORMAT_GGUF_MXFP4)
PLEC_PLAIN_GEMM(gguf_nvfp4, PLEC_FORMAT_GGUF_NVFP4)
