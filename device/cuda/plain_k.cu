/* plain_k.cu: the plain rung of the formats with blocks of 256. */
#include "device/cuda/plain.cuh"
#include "lyrw/codec/iq4_xs.h"
#include "lyrw/codec/q2_k.h"
#include "lyrw/codec/q3_k.h"
#include "lyrw/codec/q4_k.h"
#include "lyrw/codec/q5_k.h"
#include "lyrw/codec/q6_k.h"

PLEC_PLAIN_INLINE(q2_k, 256, true)
PLEC_PLAIN_INLINE(q3_k, 256, true)
PLEC_PLAIN_INLINE(q4_k, 256, true)
PLEC_PLAIN_INLINE(q5_k, 256, true)
PLEC_PLAIN_INLINE(q6_k, 256, true)
PLEC_PLAIN_INLINE(iq4_xs, 256, true)

PLEC_PLAIN_GEMM(q2_k, PLEC_FORMAT_GGUF_Q2_K)
PLEC_PLAIN_GEMM(q3_k, PLEC_FORMAT_GGUF_Q3_K)
PLEC_PLAIN_GEMM(q4_k, PLEC_FORMAT_Q4_K)
PLEC_PLAIN_GEMM(q5_k, PLEC_FORMAT_GGUF_Q5_K)
PLEC_PLAIN_GEMM(q6_k, PLEC_FORMAT_Q6_K)
PLEC_PLAIN_GEMM(iq4_xs, PLEC_FORMAT_GGUF_IQ4_XS)
