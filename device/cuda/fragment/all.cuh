/* all.cuh: every fragment, and the list of them by format. */
#ifndef PLEC_DEVICE_CUDA_FRAGMENT_ALL_H
#define PLEC_DEVICE_CUDA_FRAGMENT_ALL_H

#include "device/cuda/fragment/codebook.cuh"
#include "device/cuda/fragment/e2m1.cuh"
#include "device/cuda/fragment/eight.cuh"
#include "device/cuda/fragment/few.cuh"
#include "device/cuda/fragment/five.cuh"
#include "device/cuda/fragment/float.cuh"
#include "device/cuda/fragment/nibble.cuh"
#include "device/cuda/fragment/six.cuh"

/* do(tag, fragment), a line a format that mm_sync runs. */
/* clang-format off */
#define PLEC_FOR_EACH_FRAGMENT(do) \
    do(PLEC_FORMAT_F16, f16)               do(PLEC_FORMAT_BF16, bf16) \
    do(PLEC_FORMAT_Q4_0, q4_0)             do(PLEC_FORMAT_Q4_K, q4_k) \
    do(PLEC_FORMAT_Q6_K, q6_k)             do(PLEC_FORMAT_Q8_0, q8_0) \
    do(PLEC_FORMAT_FP4_LARQL, fp4_larql)   do(PLEC_FORMAT_MXFP4, mxfp4) \
    do(PLEC_FORMAT_NVFP4, nvfp4)           do(PLEC_FORMAT_MXFP8, mxfp8) \
    do(PLEC_FORMAT_GGUF_Q4_1, q4_1)        do(PLEC_FORMAT_GGUF_Q5_0, q5_0) \
    do(PLEC_FORMAT_GGUF_Q5_1, q5_1)        do(PLEC_FORMAT_GGUF_Q2_K, q2_k) \
    do(PLEC_FORMAT_GGUF_Q3_K, q3_k)        do(PLEC_FORMAT_GGUF_Q5_K, q5_k) \
    do(PLEC_FORMAT_GGUF_IQ4_NL, iq4_nl)    do(PLEC_FORMAT_GGUF_IQ4_XS, iq4_xs) \
    do(PLEC_FORMAT_GGUF_MXFP4, gguf_mxfp4) do(PLEC_FORMAT_GGUF_NVFP4, gguf_nvfp4)
/* clang-format on */

#endif
