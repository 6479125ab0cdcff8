/* plain_float.cu: the plain rung of the float formats. */
#include "device/cuda/plain.cuh"
#include "lyrw/codec/bf16.h"
#include "lyrw/codec/f16.h"
#include "lyrw/codec/f32.h"
#include "lyrw/codec/f64.h"

static __device__ __forceinline__ void decode_f64(float *out, const uint8_t *block) {
    double value;
    plec_f64_decode(&value, block);
    *out = (float)value;
}

PLEC_PLAIN_INLINE(f32, 1, false)
PLEC_PLAIN_INLINE(f16, 1, true)
PLEC_PLAIN_INLINE(bf16, 1, true)
PLEC_PLAIN_TYPE(f64, 1, false, false, false, decode_f64(out, block))

PLEC_PLAIN_GEMM(f32, PLEC_FORMAT_F32)
PLEC_PLAIN_GEMM(f16, PLEC_FORMAT_F16)
PLEC_PLAIN_GEMM(bf16, PLEC_FORMAT_BF16)
PLEC_PLAIN_GEMM(f64, PLEC_FORMAT_GGUF_F64)
