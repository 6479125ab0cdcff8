/* table.c: the launch table: which kernels there are, and which of them runs an operand. The one
 * place that knows them all; `plectrum kernels` and the launches ask the same functions. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/experts.h"

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
    X(plec_cuda_mm_fma_f32)                                                                        \
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
    X(plec_cuda_mm_sync_gguf_mxfp4)                                                                \
    X(plec_cuda_mm_sync_gguf_nvfp4)                                                                \
    X(plec_cuda_mm_bulk_f16)                                                                       \
    X(plec_cuda_mm_bulk_bf16)                                                                      \
    X(plec_cuda_mm_bulk_q4_0)                                                                      \
    X(plec_cuda_mm_bulk_q4_1)                                                                      \
    X(plec_cuda_mm_bulk_q5_0)                                                                      \
    X(plec_cuda_mm_bulk_q5_1)                                                                      \
    X(plec_cuda_mm_bulk_q8_0)                                                                      \
    X(plec_cuda_mm_bulk_iq4_nl)                                                                    \
    X(plec_cuda_mm_bulk_q2_k)                                                                      \
    X(plec_cuda_mm_bulk_q3_k)                                                                      \
    X(plec_cuda_mm_bulk_q4_k)                                                                      \
    X(plec_cuda_mm_bulk_q5_k)                                                                      \
    X(plec_cuda_mm_bulk_q6_k)                                                                      \
    X(plec_cuda_mm_bulk_iq4_xs)                                                                    \
    X(plec_cuda_mm_bulk_fp4_larql)                                                                 \
    X(plec_cuda_mm_bulk_mxfp4)                                                                     \
    X(plec_cuda_mm_bulk_mxfp8)                                                                     \
    X(plec_cuda_mm_bulk_nvfp4)                                                                     \
    X(plec_cuda_mm_bulk_gguf_mxfp4)                                                                \
    X(plec_cuda_mm_bulk_gguf_nvfp4)                                                                \
    X(plec_cuda_mm_wg_f16)                                                                         \
    X(plec_cuda_mm_wg_bf16)                                                                        \
    X(plec_cuda_mm_wg_q4_0)                                                                        \
    X(plec_cuda_mm_wg_q4_1)                                                                        \
    X(plec_cuda_mm_wg_q5_0)                                                                        \
    X(plec_cuda_mm_wg_q5_1)                                                                        \
    X(plec_cuda_mm_wg_q8_0)                                                                        \
    X(plec_cuda_mm_wg_iq4_nl)                                                                      \
    X(plec_cuda_mm_wg_q2_k)                                                                        \
    X(plec_cuda_mm_wg_q3_k)                                                                        \
    X(plec_cuda_mm_wg_q4_k)                                                                        \
    X(plec_cuda_mm_wg_q5_k)                                                                        \
    X(plec_cuda_mm_wg_q6_k)                                                                        \
    X(plec_cuda_mm_wg_iq4_xs)                                                                      \
    X(plec_cuda_mm_wg_fp4_larql)                                                                   \
    X(plec_cuda_mm_wg_mxfp4)                                                                       \
    X(plec_cuda_mm_wg_mxfp8)                                                                       \
    X(plec_cuda_mm_wg_nvfp4)                                                                       \
    X(plec_cuda_mm_wg_gguf_mxfp4)                                                                  \
    X(plec_cuda_mm_wg_gguf_nvfp4)                                                                  \
    X(plec_cuda_plain_q2_0)                                                                        \
    X(plec_cuda_cublas_loop_any)                                                                   \
    X(plec_cuda_cublas_grouped_any)

#define DECLARE(name) extern const struct plec_cuda_gemm name;
#define ADDRESS(name) &name,
EACH_GEMM(DECLARE)
#define NAME(name) #name,
static const struct plec_cuda_gemm *const gemms[] = {EACH_GEMM(ADDRESS)};
static const char *const symbols[] = {EACH_GEMM(NAME)};
enum { N_GEMMS = sizeof gemms / sizeof gemms[0] };

/* What a kernel is wanted for. */
static bool serves(const struct plec_cuda_gemm *gemm, enum plec_cuda_use use) {
    return use == PLEC_CUDA_FOR_LINEAR ? gemm->linear != NULL
           : use == PLEC_CUDA_FOR_LOGITS
               ? gemm->logits != NULL
               : gemm->rung < PLEC_CUDA_PLAIN || (gemm->gate_up != NULL && gemm->down != NULL);
}

static bool may_run(const struct plec_cuda_ask *ask, const struct plec_cuda_gemm *gemm,
                    enum plec_cuda_use use) {
    /* A baseline is never chosen but where it is asked for, and of experts alone. */
    int32_t most = ask->most_rung;
    if (use != PLEC_CUDA_FOR_EXPERTS && most < PLEC_CUDA_PLAIN) most = PLEC_CUDA_PLAIN;
    if (gemm->rung < PLEC_CUDA_PLAIN && most >= PLEC_CUDA_PLAIN) return false;
    return (gemm->format == ask->format || gemm->format == PLEC_CUDA_ANY_FORMAT) &&
           gemm->least_arch <= ask->arch &&
           (gemm->most_arch == 0 || ask->arch <= gemm->most_arch) && gemm->rung <= most &&
           serves(gemm, use) &&
           (ask->bank == NULL || gemm->runs == NULL || gemm->runs(ask->bank, ask->id));
}

static bool better(const struct plec_cuda_gemm *gemm, const struct plec_cuda_gemm *best) {
    return best == NULL || gemm->rung > best->rung;
}

const struct plec_cuda_gemm *plec_cuda_kernel_find(const struct plec_cuda_ask *ask,
                                                   enum plec_cuda_use use) {
    const struct plec_cuda_gemm *best = NULL;
    for (size_t i = 0; i < ask->n_gemms; i++)
        if (may_run(ask, ask->gemms[i], use) && better(ask->gemms[i], best)) best = ask->gemms[i];
    return best;
}

enum { ANY_ORDER = -1 };

/* The highest rung of each class among the kernels of one order; false when a class has none. The
 * plain rung runs an operand whole, or not at all. */
static bool choose_in_order(struct plec_cuda_kernels *out, const struct plec_cuda_ask *ask,
                            int32_t order) {
    *out = (struct plec_cuda_kernels){{NULL}};
    for (size_t i = 0; i < ask->n_gemms; i++) {
        const struct plec_cuda_gemm *gemm = ask->gemms[i];
        if (!may_run(ask, gemm, PLEC_CUDA_FOR_EXPERTS) ||
            (order != ANY_ORDER && gemm->order != order))
            continue;
        for (int c = 0; c < PLEC_CUDA_CLASSES; c++)
            if (gemm->widths[c] != 0 && better(gemm, out->of[c])) out->of[c] = gemm;
    }
    const struct plec_cuda_gemm *lowest = out->of[PLEC_CUDA_S];
    for (int c = 0; c < PLEC_CUDA_CLASSES; c++) {
        if (out->of[c] == NULL) return false;
        if (out->of[c]->rung < lowest->rung) lowest = out->of[c];
    }
    for (int c = 0; c < PLEC_CUDA_CLASSES && lowest->rung == PLEC_CUDA_PLAIN; c++)
        out->of[c] = lowest;
    return true;
}

bool plec_cuda_kernels_choose(struct plec_cuda_kernels *out, const struct plec_cuda_ask *ask) {
    struct plec_cuda_kernels kernels;
    bool found = false;
    if (!ask->batch_invariant) return choose_in_order(out, ask, ANY_ORDER);
    for (int32_t order = 0; order < PLEC_CUDA_ORDERS; order++) {
        if (!choose_in_order(&kernels, ask, order)) continue;
        if (!found || better(kernels.of[PLEC_CUDA_S], out->of[PLEC_CUDA_S])) *out = kernels;
        found = true;
    }
    return found;
}

uint32_t plec_cuda_kernels_share(struct plec_cuda_share out[PLEC_CUDA_CLASSES],
                                 const struct plec_cuda_kernels *kernels) {
    static const uint32_t most[PLEC_CUDA_CLASSES] = {PLEC_CUDA_S_ROWS, PLEC_CUDA_M_ROWS,
                                                     UINT32_MAX};
    uint32_t n = 0, least = 1;
    for (int c = 0; c < PLEC_CUDA_CLASSES; c++) {
        const struct plec_cuda_gemm *gemm = kernels->of[c];
        if (c + 1 < PLEC_CUDA_CLASSES && kernels->of[c + 1] == gemm &&
            gemm->widths[c + 1] == gemm->widths[c])
            continue;
        out[n].gemm = gemm;
        out[n++].rows = (struct plec_cuda_class){least, most[c], gemm->widths[c]};
        least = most[c] + 1;
    }
    return n;
}

struct plec_cuda_ask plec_cuda_ask_for(const struct plec_cuda_device *device, uint16_t format) {
    return (struct plec_cuda_ask){.gemms = gemms,
                                  .n_gemms = N_GEMMS,
                                  .arch = device->image_arch,
                                  .most_rung = device->most_rung,
                                  .batch_invariant = device->batch_invariant,
                                  .format = format};
}

void plec_cuda_limit_rung(struct plec_device *device, int32_t most_rung) {
    struct plec_cuda_device *own = (struct plec_cuda_device *)device;
    if (own->most_rung > most_rung) own->most_rung = most_rung;
}

bool plec_cuda_rung_find(int32_t *out, const char *name) {
    for (size_t i = 0; i < N_GEMMS; i++)
        if (strcmp(gemms[i]->name, name) == 0) {
            *out = gemms[i]->rung;
            return true;
        }
    return false;
}

void plec_cuda_rung_list(char *out, size_t size) {
    size_t at = 0;
    out[0] = '\0';
    for (size_t i = 0; i < N_GEMMS && at < size; i++) {
        size_t j = 0;
        while (strcmp(gemms[j]->name, gemms[i]->name) != 0)
            j++;
        if (j < i) continue;
        int n = snprintf(out + at, size - at, "%s%s", at > 0 ? ", " : "", gemms[i]->name);
        at += n > 0 ? (size_t)n : 0;
    }
}

const struct plec_cuda_gemm *plec_cuda_gemm_at(const char **symbol, size_t i) {
    if (i >= N_GEMMS) return NULL;
    *symbol = symbols[i];
    return gemms[i];
}

const char *plec_cuda_kernels_name(const struct plec_cuda_kernels *kernels, char *name) {
    const char *s = kernels->of[PLEC_CUDA_S]->name, *m = kernels->of[PLEC_CUDA_M]->name,
               *l = kernels->of[PLEC_CUDA_L]->name;
    bool same = strcmp(s, m) == 0 && strcmp(m, l) == 0;
    snprintf(name, PLEC_KERNEL_NAME_MAX, same ? "%s" : "S %s, M %s, L %s", s, m, l);
    return name;
}

const char *plec_cuda_kernel_name(const struct plec_device *device, uint16_t format, char *name) {
    struct plec_cuda_kernels kernels;
    struct plec_cuda_ask ask = plec_cuda_ask_for((const struct plec_cuda_device *)device, format);
    return plec_cuda_kernels_choose(&kernels, &ask) ? plec_cuda_kernels_name(&kernels, name) : NULL;
}

const char *plec_cuda_operand_kernel(const struct plec_device *device, const struct plec_bank *bank,
                                     enum plec_operand_id id, char *name) {
    struct plec_cuda_kernels kernels;
    struct plec_cuda_bank own = plec_cuda_bank_of(bank);
    struct plec_cuda_ask ask =
        plec_cuda_ask_for((const struct plec_cuda_device *)device, bank->operands[id].format);
    ask.bank = &own, ask.id = id;
    return plec_cuda_kernels_choose(&kernels, &ask) ? plec_cuda_kernels_name(&kernels, name) : NULL;
}
