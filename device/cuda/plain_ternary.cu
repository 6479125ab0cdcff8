/* plain_ternary.cu: the plain rung of the one-bit, two-bit and ternary formats. */
#include "device/cuda/plain.cuh"
#include "lyrw/codec/q1_0.h"
#include "lyrw/codec/q2_0.h"
#include "lyrw/codec/tq1_0.h"
#include "lyrw/codec/tq2_0.h"

PLEC_PLAIN_INLINE(tq1_0, 256, true)
PLEC_PLAIN_INLINE(tq2_0, 256, true)
PLEC_PLAIN_INLINE(q1_0, 128, true)
PLEC_PLAIN_INLINE(q2_0, 64, true)

PLEC_PLAIN_GEMM(tq1_0, PLEC_FORMAT_GGUF_TQ1_0)
PLEC_PLAIN_GEMM(tq2_0, PLEC_FORMAT_GGUF_TQ2_0)
PLEC_PLAIN_GEMM(q1_0, PLEC_FORMAT_GGUF_Q1_0)
PLEC_PLAIN_GEMM(q2_0, PLEC_FORMAT_GGUF_Q2_0)
