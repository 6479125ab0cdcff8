/* experts.h: what experts.c decides for a bank, and how it lays out the workspace. */
#ifndef PLEC_DEVICE_CUDA_EXPERTS_H
#define PLEC_DEVICE_CUDA_EXPERTS_H

#include "device/cuda/cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One launch of an operand: a kernel, and the list of the tiles it takes. */
struct plec_cuda_pass {
    const struct plec_cuda_gemm *gemm;
    uint32_t list;
};

/* The kernels of a bank: of its shape, its formats and the device alone, never of a routing. */
struct plec_cuda_choice {
    struct plec_cuda_bank bank; /* its table: set by each launch */
    struct plec_cuda_class lists[PLEC_CUDA_LISTS];
    uint32_t n_lists;
    /* Of each operand, fewest rows first; neighbouring classes in tiles of one width by one kernel
     * are one. 0: no such operand. */
    struct plec_cuda_pass passes[PLEC_N_MATRICES][PLEC_CUDA_CLASSES];
    uint32_t n_passes[PLEC_N_MATRICES];
    uint32_t n_splits;
    bool act_f32, wants_bf16;
    bool apart;      /* gate and up differ in kernels: one after the other */
    bool by_library; /* products are calls of a library (library.h) */
};
PLEC_MUST_USE enum plec_status plec_cuda_choose(struct plec_cuda_choice *out,
                                                const struct plec_cuda_device *device,
                                                const struct plec_bank *bank,
                                                struct plec_error *err);

struct plec_cuda_bank plec_cuda_bank_of(const struct plec_bank *bank);

/* Workspace parts, as bytes from its start. */
struct plec_cuda_layout {
    uint64_t first, row_pair, row_token, pair_row, left; /* struct plec_cuda_plan */
    uint64_t block_counts;                               /* of the plan */
    uint64_t counts; /* [PLEC_CUDA_LISTS] of the plan, [1] n_left, [PLEC_CUDA_LISTS] of a part */
    uint64_t first_tile[PLEC_CUDA_LISTS], tiles[PLEC_CUDA_LISTS], part_tiles[PLEC_CUDA_LISTS];
    uint32_t max_tiles[PLEC_CUDA_LISTS];
    uint32_t act_cols;
    uint64_t x_bf16;       /* [n_tokens, input_dim] bf16, when a kernel wants it */
    uint64_t gate_product; /* [n_pairs, intermediate_dim] f32, when gate and up are apart */
    uint64_t act;          /* [n_pairs, act_cols] bf16 or f32 */
    uint64_t out;          /* [n_splits, n_pairs, output_dim] f32 */
    uint64_t kernels;      /* what the kernels want for themselves, one launch after another */
    uint64_t n_bytes;
};
/* False when it overflows, or there are 2^31 pairs and more. */
bool plec_cuda_layout_of(struct plec_cuda_layout *out, const struct plec_cuda_choice *choice,
                         uint32_t n_tokens, uint32_t n_slots);

/* One launch under way. */
struct plec_cuda_run {
    const struct plec_experts_args *args;
    struct plec_cuda_launch launch;
    struct plec_cuda_choice choice;
    struct plec_cuda_layout layout;
    struct plec_cuda_plan plan;
    uint16_t *x_bf16;
    float *gate_product, *out;
    void *act, *kernel_space;
};

#ifdef __cplusplus
}
#endif
#endif
