/* mm_args.h: what the kernels of mm_sync are given, beside what every GEMM is (kernels.h): weights
 * as planes (planes.cuh), which the table of entries leads to, and tokens as they are staged for a
 * format.
 *
 * A launch makes two kernels: stage (tokens -> bf16 in the order of the fragments, with the sums
 * that offsets and minima need) and the product. Both are of one stream and share the launch's
 * workspace:
 *
 *   x       [n_rows][pitch] bf16       staged
 *   sums    [n_rows][pitch / block]    f32
 *   powers  [n_rows]                   f32   what a row's products are multiplied by
 */
#ifndef PLEC_DEVICE_CUDA_MM_ARGS_H
#define PLEC_DEVICE_CUDA_MM_ARGS_H

#include "device/cuda/kernels.h"

enum plec_mm_kind {
    PLEC_MM_GATE_AND_UP, /* a slab of 16 rows is 8 gate rows and the 8 up rows of the channels */
    PLEC_MM_GATE,        /* one matrix; writes gate_product */
    PLEC_MM_UP,          /* one matrix; reads gate_product where there is a gate; writes act */
    PLEC_MM_DOWN         /* one matrix; writes a split's share of out */
};

/* What a gate_up launch makes; a half that stands alone is of a bank whose gate and up are apart.
 */
static inline enum plec_mm_kind plec_mm_kind_of(const struct plec_cuda_gate_up_args *args) {
    if (args->half == PLEC_CUDA_GATE_ALONE) return PLEC_MM_GATE;
    return args->half == PLEC_CUDA_UP_LAST || args->bank.operands[PLEC_GATE].rows == 0
               ? PLEC_MM_UP
               : PLEC_MM_GATE_AND_UP;
}

/* How a format wants its tokens: see fragment.cuh. */
struct plec_mm_staging {
    uint32_t block;     /* columns a sum is of: 16 or 32 */
    bool spread;        /* odd pairs 16 times smaller */
    bool by_step;       /* the order of mm_wg: 16 columns of an MMA step side by side, first pairs
                           of the four lanes, then second ones; else lane by lane */
    float token_factor; /* 2^token_shift */
    float sum_factor;   /* what the sums are multiplied by; 0: no sums */
};

struct plec_mm_tokens {
    uint16_t *x;
    float *sums;
    float *powers;  /* what a row was divided by: 1, or a power of two where its largest number is
                       far from 1; NULL: 1 */
    uint32_t pitch; /* columns staged: n_cols up to a multiple of 32, zeros behind n_cols */
    uint32_t n_cols;
    const uint32_t *row; /* row of a tile -> staged row; NULL: the same */
};

struct plec_mm_stage_args {
    struct plec_mm_tokens to;
    struct plec_mm_staging how;
    const void *from; /* [.., from_pitch] f32, or bf16 */
    bool from_bf16;
    uint32_t from_pitch;
    uint32_t n_rows;            /* rows to stage ... */
    struct plec_cuda_rows rows; /* ... or, with tiles, the rows of the tiles */
};
int plec_mm_launch_stage(const struct plec_mm_stage_args *args, cudaStream_t stream);

struct plec_mm_weights {
    uint32_t rows, cols; /* of one matrix */
    uint64_t factors;    /* of its planes: byte offset */
    int32_t operands[2]; /* enum plec_operand_id: of all rows but up's, and of up's, where they are
                            in a matrix of their own or not */
};

struct plec_mm_args {
    struct plec_cuda_bank bank;
    struct plec_cuda_rows rows;
    struct plec_mm_weights weights;
    struct plec_mm_tokens tokens;
    int32_t kind; /* enum plec_mm_kind */
    uint32_t n_channels, n_splits;
    const float *input_weights, *token_scale;
    float *gate_product;
    void *act;
    bool act_f32;
    uint32_t act_cols;
    float *out;
};

#endif
