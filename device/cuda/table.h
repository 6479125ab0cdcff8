/* table.h: which kernels of the launch table run an operand: one for each class of rows, chosen by
 * format, shape and architecture, never by a routing. */
#ifndef PLEC_DEVICE_CUDA_TABLE_H
#define PLEC_DEVICE_CUDA_TABLE_H

#include "device/cuda/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a kernel is wanted for beside experts. */
enum plec_cuda_use { PLEC_CUDA_FOR_EXPERTS, PLEC_CUDA_FOR_LINEAR, PLEC_CUDA_FOR_LOGITS };

/* What is asked of a table: kernels of a format, and of an operand where a bank is given. */
struct plec_cuda_ask {
    const struct plec_cuda_gemm *const *gemms; /* [n_gemms] */
    size_t n_gemms;
    uint32_t arch;        /* 90: of the image that the device runs */
    int32_t most_rung;    /* none above */
    bool batch_invariant; /* kernels of one order of sums for all classes */
    uint16_t format;
    const struct plec_cuda_bank *bank; /* or NULL */
    enum plec_operand_id id;
};

/* The kernels of an operand, the same for several classes or not. */
struct plec_cuda_kernels {
    const struct plec_cuda_gemm *of[PLEC_CUDA_CLASSES];
};

/* For each class the highest rung. False: no kernels. */
bool plec_cuda_kernels_choose(struct plec_cuda_kernels *out, const struct plec_cuda_ask *ask);
/* The highest rung of the format for another use; NULL: none. */
const struct plec_cuda_gemm *plec_cuda_kernel_find(const struct plec_cuda_ask *ask,
                                                   enum plec_cuda_use use);
/* name [PLEC_KERNEL_NAME_MAX], as plec_device_kernel_name has it. */
const char *plec_cuda_kernels_name(const struct plec_cuda_kernels *kernels, char *name);

/* The launches of an operand: a kernel and the rows it takes. */
struct plec_cuda_share {
    const struct plec_cuda_gemm *gemm;
    struct plec_cuda_class rows;
};
/* Fewest rows first, without a gap; neighbouring classes in tiles of one width by one kernel are
 * one launch. How many there are. */
uint32_t plec_cuda_kernels_share(struct plec_cuda_share out[PLEC_CUDA_CLASSES],
                                 const struct plec_cuda_kernels *kernels);

/* The rung of a name, "mm_sync"; false: no kernel has it. */
bool plec_cuda_rung_find(int32_t *out, const char *name);
/* All of those names, each once: "plain, mm_sync, ..."; cut at size. */
void plec_cuda_rung_list(char *out, size_t size);

/* For tests: an open device runs no rung above. */
void plec_cuda_limit_rung(struct plec_device *device, int32_t most_rung);

#ifdef __cplusplus
}
#endif
#endif
