/* decoders.c: what decodes each format to bf16 for a library: one line a format. */
#include "device/cuda/kernels.h"

#define EACH_FORMAT(X)                                                                             \
    X(f32)                                                                                         \
    X(f16)                                                                                         \
    X(bf16)                                                                                        \
    X(f64)                                                                                         \
    X(q4_0)                                                                                        \
    X(q4_1)                                                                                        \
    X(q5_0)                                                                                        \
    X(q5_1)                                                                                        \
    X(q8_0)                                                                                        \
    X(iq4_nl)                                                                                      \
    X(q2_k)                                                                                        \
    X(q3_k)                                                                                        \
    X(q4_k)                                                                                        \
    X(q5_k)                                                                                        \
    X(q6_k)                                                                                        \
    X(iq4_xs)                                                                                      \
    X(fp4_larql)                                                                                   \
    X(mxfp4)                                                                                       \
    X(mxfp8)                                                                                       \
    X(nvfp4)                                                                                       \
    X(gguf_mxfp4)                                                                                  \
    X(gguf_nvfp4)                                                                                  \
    X(tq1_0)                                                                                       \
    X(tq2_0)                                                                                       \
    X(q1_0)                                                                                        \
    X(q2_0)

#define DECLARE(format) extern const struct plec_cuda_decoder plec_cuda_decoder_##format;
#define ADDRESS(format) &plec_cuda_decoder_##format,
EACH_FORMAT(DECLARE)
static const struct plec_cuda_decoder *const decoders[] = {EACH_FORMAT(ADDRESS)};

const struct plec_cuda_decoder *plec_cuda_decoder_of(uint16_t format) {
    for (size_t i = 0; i < sizeof decoders / sizeof decoders[0]; i++)
        if (decoders[i]->format == format) return decoders[i];
    return NULL;
}
