/* plain_legacy.cu: the plain rung of the formats with one scale, or scale and minimum, a block. */
#include "device/cuda/plain.cuh"
#include "lyrw/codec/iq4_nl.h"
#include "lyrw/codec/q4_0.h"
#include "lyrw/codec/q4_1.h"
#include "lyrw/codec/q5_0.h"
#include "lyrw/codec/q5_1.h"
#include "lyrw/codec/q8_0.h"

PLEC_PLAIN_INLINE(q4_0, 32, true)
PLEC_PLAIN_INLINE(q4_1, 32, true)
PLEC_PLAIN_INLINE(q5_0, 32, true)
PLEC_PLAIN_INLINE(q5_1, 32, true)
PLEC_PLAIN_INLINE(q8_0, 32, true)
PLEC_PLAIN_INLINE(iq4_nl, 32, true)

PLEC_PLAIN_GEMM(q4_0, PLEC_FORMAT_Q4_0)
PLEC_PLAIN_GEMM(q4_1, PLEC_FORMAT_GGUF_Q4_1)
PLEC_PLAIN_GEMM(q5_0, PLEC_FORMAT_GGUF_Q5_0)
PLEC_PLAIN_GEMM(q5_1, PLEC_FORMAT_GGUF_Q5_1)
PLEC_PLAIN_GEMM(q8_0, PLEC_FORMAT_Q8_0)
PLEC_PLAIN_GEMM(iq4_nl, PLEC_FORMAT_GGUF_IQ4_NL)
