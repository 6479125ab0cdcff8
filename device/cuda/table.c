/* table.c: the launch table: which kernels there are, and which of them runs an operand. The one
 * place that knows them all; `plectrum kernels` and the launches ask the same functions. */
#include "device/cuda/cuda.h"

/* One line a format and rung. */
#define EACH_GEMM(X)                                                                               \
    X(plec_cuda_plain_f32)                                                                         \
    X(plec_cuda_plain_f16)                                                                         \
    X(plec_cuda_plain_bf16)                                                                        \
    X(plec_cuda_plain_f64)                                                                         \
    X(plec_cuda_plain_q4_0)                                                                        \
    X(plec_cuda_plain_q4_1)                                                                        \
    X(plec_cuda_plain_q5_0)                                                                        \
    X(plec_cuda_plain_q5_1)                                                                        \
    X(plec_cuda_plain_q8_0)                                                                        \
    X(plec_cuda_plain_iq4_nl)                                                                      \
    X(plec_cuda_plain_q2_k)                                                                        \
    X(plec_cuda_plain_q3_k)                                                                        \
    X(plec_cuda_plain_q4_k)                                                                        \
    X(plec_cuda_plain_q5_k)                                                                        \
    X(plec_cuda_plain_q6_k)                                                                        \
    X(plec_cuda_plain_iq4_xs)                                                                      \
    X(plec_cuda_plain_fp4_larql)                                                                   \
    X(plec_cuda_plain_mxfp4)                                                                       \
    X(plec_cuda_plain_mxfp8)                                                                       \
    X(plec_cuda_plain_nvfp4)                                                                       \
    X(plec_cuda_plain_gguf_mxfp4)                                                                  \
    X(plec_cuda_plain_gguf_nvfp4)                                                                  \
    X(plec_cuda_plain_tq1_0)                                                                       \
    X(plec_cuda_plain_tq2_0)                                                                       \
    X(plec_cuda_plain_q1_0)                                                                        \
    X(plec_cuda_mm_sync_f16)                                                                       \
    X(plec_cuda_mm_sync_bf16)                                                                      \
    X(plec_cuda_mm_sync_q4_0)                                                                      \
    X(plec_cuda_mm_sync_q4_1)                                                                      \
    X(plec_cuda_mm_sync_q5_0)                                                                      \
    X(plec_cuda_mm_sync_q5_1)                                                                      \
    X(plec_cuda_mm_sync_q8_0)                                                                      \
    X(plec_cuda_mm_sync_iq4_nl)                                                                    \
    X(plec_cuda_mm_sync_q2_k)                                                                      \
    X(plec_cuda_mm_sync_q3_k)                                                                      \
    X(plec_cuda_mm_sync_q4_k)                                                                      \
    X(plec_cuda_mm_sync_q5_k)                                                                      \
    X(plec_cuda_mm_sync_q6_k)                                                                      \
    X(plec_cuda_mm_sync_iq4_xs)                                                                    \
    X(plec_cuda_mm_sync_fp4_larql)                                                                 \
    X(plec_cuda_mm_sync_mxfp4)                                                                     \
    X(plec_cuda_mm_sync_mxfp8)                                                                     \
    X(plec_cuda_mm_sync_nvfp4)                                                                     \
    X(plec_cuda_plain_q2_0)

#define DECLARE(name) extern const struct plec_cuda_gemm name;
#define ADDRESS(name) &name,
EACH_GEMM(DECLARE)
#define NAME(name) #name,
static const struct plec_cuda_gemm *const gemms[] = {EACH_GEMM(ADDRESS)};
static const char *const symbols[] = {EACH_GEMM(NAME)};
enum { N_GEMMS = sizeof gemms / sizeof gemms[0] };

/* What a kernel is wanted for. */
static bool serves(const struct plec_cuda_gemm *gemm, enum plec_cuda_use use) {
    return use == PLEC_CUDA_FOR_LINEAR   ? gemm->linear != NULL
           : use == PLEC_CUDA_FOR_LOGITS ? gemm->logits != NULL
                                         : gemm->gate_up != NULL && gemm->down != NULL;
}

static bool may_run(const struct plec_cuda_device *device, const struct plec_cuda_gemm *gemm,
                    uint16_t format) {
    return gemm->format == format && gemm->least_arch <= device->arch &&
           gemm->rung <= device->most_rung;
}

static bool better(const struct plec_cuda_gemm *gemm, const struct plec_cuda_gemm *best) {
    return best == NULL || gemm->rung > best->rung;
}

const struct plec_cuda_gemm *plec_cuda_gemm_find(const struct plec_cuda_device *device,
                                                 uint16_t format, enum plec_cuda_use use) {
    const struct plec_cuda_gemm *best = NULL;
    for (size_t i = 0; i < N_GEMMS; i++)
        if (may_run(device, gemms[i], format) && serves(gemms[i], use) && better(gemms[i], best))
            best = gemms[i];
    return best;
}

const struct plec_cuda_gemm *plec_cuda_gemm_choose(const struct plec_cuda_device *device,
                                                   const struct plec_cuda_bank *bank,
                                                   enum plec_operand_id id) {
    const struct plec_cuda_gemm *best = NULL;
    for (size_t i = 0; i < N_GEMMS; i++)
        if (may_run(device, gemms[i], bank->operands[id].format) &&
            serves(gemms[i], PLEC_CUDA_FOR_EXPERTS) &&
            (gemms[i]->runs == NULL || gemms[i]->runs(bank, id)) && better(gemms[i], best))
            best = gemms[i];
    return best;
}

const struct plec_cuda_gemm *plec_cuda_gemm_at(const char **symbol, size_t i) {
    if (i >= N_GEMMS) return NULL;
    *symbol = symbols[i];
    return gemms[i];
}

const char *plec_cuda_kernel_name(const struct plec_device *device, uint16_t format) {
    const struct plec_cuda_gemm *gemm =
        plec_cuda_gemm_find((const struct plec_cuda_device *)device, format, PLEC_CUDA_FOR_EXPERTS);
    return gemm != NULL ? gemm->name : NULL;
}
