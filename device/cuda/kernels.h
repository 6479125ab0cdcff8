/* kernels.h: what the host side of the CUDA backend and its kernels know of each other: one launch
 * function a kernel, its arguments as a plain struct, and the table entry that offers a GEMM.
 *
 * A launch function enqueues on the stream and returns the cudaError_t of its launch as an int; it
 * allocates nothing, synchronises nothing, and asks the device nothing, so that every one of them
 * can be captured. Structs are passed to kernels by value. Expert pointers never travel in them:
 * kernels read them from the device table (struct plec_cuda_entry). All other pointers are device
 * memory. Row, tile and token numbers are 32 bits, every byte or element offset made of them 64:
 * plec_cuda_at.
 *
 * Words: a pair is a (token, slot), pair = token * n_slots + slot. A row is a pair's place after
 * the plan has sorted them by expert, stable in pair order. A tile is up to `width` neighbouring
 * rows of one expert.
 */
#ifndef PLEC_DEVICE_CUDA_KERNELS_H
#define PLEC_DEVICE_CUDA_KERNELS_H

#include <cuda_runtime_api.h>

#include "device/device.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLEC_CUDA_EXPERTS_MAX = 1024,
    PLEC_CUDA_SLOTS_MAX = 64, /* of the router: top_k */
    PLEC_CUDA_LISTS = 9,      /* tile lists of one plan: a class of rows of an operand, each once */
    PLEC_CUDA_NO_ROW = -1
};

/* Element (or byte) offset of a row: the one place where 32-bit numbers become 64-bit offsets. */
#if defined(__CUDACC__)
__host__ __device__
#endif
    static inline size_t
    plec_cuda_at(uint32_t row, size_t row_elems) {
    return (size_t)row * row_elems;
}

/* ---- the device table of a bank ----------------------------------------------------------------
 * One row an expert, written by plec_cuda_launch_table in stream order, never by a copy from host
 * memory that would have to outlive its call. */
struct plec_cuda_entry {
    const uint8_t *values[PLEC_N_OPERANDS]; /* as struct plec_entry, device memory */
    const uint8_t *scales[PLEC_N_MATRICES];
    float gate_scale, up_scale, down_scale; /* 1 where the bank has none */
    uint32_t generation;                    /* counts the writes of this row */
};

enum { PLEC_CUDA_TABLE_ROWS = 32 }; /* rows one launch carries in its parameters */
struct plec_cuda_table_args {
    struct plec_cuda_entry *table;
    uint32_t n_rows;
    uint32_t at[PLEC_CUDA_TABLE_ROWS]; /* which rows of the table */
    struct plec_cuda_entry rows[PLEC_CUDA_TABLE_ROWS];
};
int plec_cuda_launch_table(const struct plec_cuda_table_args *args, cudaStream_t stream);

/* ---- what kernels know of a bank ---------------------------------------------------------------
 */

struct plec_cuda_maths {
    int32_t activation; /* enum plec_activation */
    float limit, alpha, beta, linear_beta;
};

struct plec_cuda_bank {
    const struct plec_cuda_entry *table; /* [n_entries] */
    uint32_t n_entries, input_dim, intermediate_dim, output_dim;
    int32_t fusion; /* enum plec_fusion */
    struct plec_operand operands[PLEC_N_OPERANDS];
    struct plec_cuda_maths maths;
};

/* ---- faults -------------------------------------------------------------------------------------
 * A stream's own record in device memory; the first fault stays until the host has read it. Kernels
 * of later launches on the stream see it and do nothing. */
enum plec_cuda_fault_code {
    PLEC_CUDA_NO_FAULT,
    PLEC_CUDA_BAD_EXPERT_ID,    /* a: pair, b: the id */
    PLEC_CUDA_PART_WITHOUT,     /* a: an expert named that has no pairs */
    PLEC_CUDA_PART_TWICE,       /* a: an expert named before */
    PLEC_CUDA_PART_OUT_OF_BANK, /* a: the expert */
    PLEC_CUDA_EXPERTS_LEFT_OUT  /* a: how many */
};
struct plec_cuda_fault {
    uint32_t code; /* enum plec_cuda_fault_code */
    uint32_t a;
    int32_t b;
    uint32_t launch; /* number of the launch on its stream, as its arguments say */
};

/* ---- classes of rows ----------------------------------------------------------------------------
 * Experts by how many rows they have. An operand has a kernel for each class, and all of a launch's
 * kernels run: the host knows no routing. One whose class has no tiles ends at once. */
enum plec_cuda_rows_class { PLEC_CUDA_S, PLEC_CUDA_M, PLEC_CUDA_L, PLEC_CUDA_CLASSES };
enum { PLEC_CUDA_S_ROWS = 8, PLEC_CUDA_M_ROWS = 64 }; /* at most; L: any more */

/* ---- planes -------------------------------------------------------------------------------------
 * What kernels above the plain rung read of a matrix in a format that has them: its bytes in an
 * order of the device's own, made when an entry arrives (planes.cuh). values[id] of the entry is
 * then where they begin, and scales[id] is NULL. */
enum { PLEC_CUDA_SPLIT_ENTRIES = 32 }; /* that one launch carries in its parameters */
struct plec_cuda_split_args {
    uint32_t n; /* entries */
    uint32_t rows, cols;
    uint32_t n_valid;  /* columns in front of any padding, which becomes zero codes */
    uint32_t n_blocks; /* blocks worth launching */
    const uint8_t *values[PLEC_CUDA_SPLIT_ENTRIES]; /* the file's */
    const uint8_t *scales[PLEC_CUDA_SPLIT_ENTRIES]; /* of paired formats */
    uint8_t *to[PLEC_CUDA_SPLIT_ENTRIES];           /* aligned to PLEC_ARRIVAL_ALIGNMENT */
};
struct plec_cuda_form {
    uint16_t format;
    uint64_t (*bytes)(const struct plec_operand *operand);
    int (*split)(const struct plec_cuda_split_args *args, cudaStream_t stream);
};
/* The planes of a format; NULL: it has none. */
const struct plec_cuda_form *plec_cuda_form_find(uint16_t format);

/* ---- plan ---------------------------------------------------------------------------------------
 */
struct plec_cuda_tile {
    uint32_t expert, first_row, n_rows;
    uint32_t _pad;
};

/* Experts with least_rows to most_rows rows are cut into tiles of width rows; the last tile of an
 * expert has what is left. */
struct plec_cuda_class {
    uint32_t least_rows, most_rows, width;
};

/* Arrays that the plan writes, in the workspace. */
struct plec_cuda_plan {
    uint32_t *first;                       /* [n_entries + 1] first row of each expert */
    uint32_t *row_pair;                    /* [n_pairs] row -> pair */
    uint32_t *row_token;                   /* [n_pairs] row -> token */
    int32_t *pair_row;                     /* [n_pairs] pair -> row; PLEC_CUDA_NO_ROW: dropped */
    uint32_t *left;                        /* [n_entries] 1: has rows and was not run yet */
    uint32_t *counts;                      /* [PLEC_CUDA_LISTS] tiles of each list */
    uint32_t *n_left;                      /* [1] experts left */
    uint32_t *first_tile[PLEC_CUDA_LISTS]; /* [n_entries + 1] */
    struct plec_cuda_tile *tiles[PLEC_CUDA_LISTS]; /* [max_tiles] by expert, then row */
};

struct plec_cuda_plan_args {
    const int32_t *ids; /* [n_pairs]; NULL: slot j is entry j */
    uint32_t n_tokens, n_slots, n_entries;
    uint32_t n_lists;
    struct plec_cuda_class lists[PLEC_CUDA_LISTS];
    uint32_t *block_counts; /* [plec_cuda_plan_blocks, n_entries]; unused by one block */
    bool drop_bad_ids; /* ids outside [0, n_entries) have no row (shards); else they are a fault */
    struct plec_cuda_plan plan;
    struct plec_cuda_fault *fault;
    uint32_t launch;
};
int plec_cuda_launch_plan(const struct plec_cuda_plan_args *args, cudaStream_t stream);
/* Blocks that a plan of so many pairs is made by. */
#if defined(__CUDACC__)
__host__ __device__
#endif
    uint32_t
    plec_cuda_plan_blocks(uint64_t n_pairs);
/* Its dynamic shared memory. */
size_t plec_cuda_plan_shared(uint32_t n_entries);
/* Most tiles of a list, whatever the routing. */
uint32_t plec_cuda_max_tiles(uint64_t n_pairs, uint32_t n_entries, uint32_t width);

/* Takes the named experts out of a plan: their tiles, list by list, into lists of their own. Of
 * more names than experts one is there twice, which the first PLEC_CUDA_PART_MAX show. */
enum { PLEC_CUDA_PART_MAX = PLEC_CUDA_EXPERTS_MAX + 1 };
struct plec_cuda_part_args {
    struct plec_cuda_plan plan;
    uint32_t n_lists, n_entries, n_part;
    uint16_t part[PLEC_CUDA_PART_MAX];
    struct plec_cuda_tile *tiles[PLEC_CUDA_LISTS]; /* [max_tiles] */
    uint32_t *counts;                              /* [PLEC_CUDA_LISTS] */
    struct plec_cuda_fault *fault;
    uint32_t launch;
};
int plec_cuda_launch_part(const struct plec_cuda_part_args *args, cudaStream_t stream);
/* Faults when experts with rows were not run. */
struct plec_cuda_finish_args {
    const uint32_t *n_left;
    struct plec_cuda_fault *fault;
    uint32_t launch;
};
int plec_cuda_launch_finish(const struct plec_cuda_finish_args *args, cudaStream_t stream);

/* ---- the two products of an experts launch ------------------------------------------------------
 */
/* The tiles one launch works through: of one class, all of them or a part's. */
struct plec_cuda_rows {
    const struct plec_cuda_tile *tiles; /* [max_tiles], *n_tiles of them are there */
    const uint32_t *n_tiles;            /* device */
    uint32_t max_tiles, width;
    const uint32_t *row_pair, *row_token; /* [n_pairs] */
    uint32_t n_pairs, n_slots;
    uint32_t n_blocks; /* blocks worth launching: more than the device can hold at once is waste */
    uint32_t n_processors, shared_bytes; /* of the device; shared memory of each */
    bool chained; /* kernels that can are launched as dependent on the one ahead (sm_90) */
};

enum plec_cuda_half {
    PLEC_CUDA_GATE_AND_UP, /* both in one format, or no gate: writes act */
    PLEC_CUDA_GATE_ALONE,  /* writes gate_product, bias and scale in it */
    PLEC_CUDA_UP_LAST      /* reads gate_product, writes act */
};

/* act[row] = activation(gate . x[token] * w * gate_scale + bias, up . x[token] * w * up_scale +
 * bias), w the pair's weight where it is on the input, else 1. */
struct plec_cuda_gate_up_args {
    struct plec_cuda_bank bank;
    struct plec_cuda_rows rows;
    enum plec_cuda_half half;
    const float *x;             /* [n_tokens, input_dim] f32 */
    const uint16_t *x_bf16;     /* the same rounded once; NULL unless the kernel wants it */
    const float *input_weights; /* [n_pairs] multiplied into the products; NULL: 1 */
    const float *token_scale;   /* [n_tokens] multiplied into input_weights; NULL: 1 */
    float *gate_product;        /* [n_pairs, intermediate_dim] */
    void *act;                  /* [n_pairs, act_cols] bf16, or f32 with act_f32 */
    bool act_f32;               /* the down matrix is f32 or f64: nothing is rounded */
    uint32_t act_cols;          /* row pitch of act >= intermediate_dim; the rest is never read */
    void *workspace;            /* of the kernel's own, plec_cuda_gemm.workspace bytes */
};

/* out[split][row] = (down . act[row] over the split's share of the columns) * down_scale, and +
 * bias in split 0: nothing of an entry is read after this (plec_cuda_finish_down). */
struct plec_cuda_down_args {
    struct plec_cuda_bank bank;
    struct plec_cuda_rows rows;
    const void *act; /* as gate_up wrote it */
    bool act_f32;
    uint32_t act_cols;
    float *out; /* [n_splits, n_pairs, output_dim] f32 */
    uint32_t n_splits;
    void *workspace; /* as in plec_cuda_gate_up_args */
};

/* logits[token, expert] = (weight * input_scale) . x in double: no factor, no bias. */
struct plec_cuda_logits_args {
    struct plec_matrix weight; /* [n_experts, >= input_dim] */
    uint32_t input_dim, n_tokens;
    const float *x;           /* [n_tokens, input_dim] */
    const float *input_scale; /* [input_dim] or NULL: 1 */
    double *logits;           /* [n_tokens, n_experts] */
    const struct plec_cuda_fault *fault;
};

/* Kernels of one order sum the products of a row in the same order, so that its bits do not depend
 * on which of them ran: of the bits that rounding decides, not of the shape of tiles. */
enum plec_cuda_order {
    PLEC_CUDA_ORDER_PLAIN,
    PLEC_CUDA_ORDER_FMA,
    PLEC_CUDA_ORDER_MMA,
    PLEC_CUDA_ORDER_WGMMA,
    PLEC_CUDA_ORDERS
};

/* Matrices of one format decoded to bf16, rounded once to nearest. */
enum { PLEC_CUDA_TO_BF16_MATRICES = 32 }; /* of one launch */
struct plec_cuda_to_bf16_args {
    uint32_t n, rows, cols;
    const uint8_t *values[PLEC_CUDA_TO_BF16_MATRICES], *scales[PLEC_CUDA_TO_BF16_MATRICES];
    uint16_t *to[PLEC_CUDA_TO_BF16_MATRICES]; /* [rows, cols] each */
};
struct plec_cuda_decoder {
    uint16_t format;
    int (*to_bf16)(const struct plec_cuda_to_bf16_args *args, cudaStream_t stream);
};
/* Of every format that a kernel runs; NULL for others. */
const struct plec_cuda_decoder *plec_cuda_decoder_of(uint16_t format);

/* One rung for one format: a place in the launch table (table.c). A gate_up whose gate and up
 * differ in kernels is two passes, GATE_ALONE by gate's kernels, then UP_LAST by up's. Kernels of
 * one format that are no plain ones share out among the classes of rows what an operand has:
 * down_splits of all of them agree, and each writes every split of its rows. */
struct plec_cuda_gemm {
    const char *name; /* "mm_sync", "mm_fma", "plain" */
    uint16_t format;
    int32_t rung;                       /* enum plec_cuda_rung */
    uint32_t least_arch;                /* 80, 90, ...: of the loaded image */
    uint32_t most_arch;                 /* 0: any later one too */
    bool wants_bf16;                    /* gate_up reads x_bf16 */
    int32_t order;                      /* enum plec_cuda_order */
    uint32_t widths[PLEC_CUDA_CLASSES]; /* rows of a tile; 0: it does not run the class */
    int (*gate_up)(const struct plec_cuda_gate_up_args *args, cudaStream_t stream);
    int (*down)(const struct plec_cuda_down_args *args, cudaStream_t stream);
    int (*linear)(const struct plec_linear_args *args, const struct plec_cuda_fault *fault,
                  cudaStream_t stream); /* y = (y +) matrix . x, x not rounded; or NULL */
    int (*logits)(const struct plec_cuda_logits_args *args, cudaStream_t stream); /* or NULL */
    /* Splits of down for a rows x cols matrix: of the shape alone, so that a token's output does
     * not depend on its batch mates. NULL: 1. */
    uint32_t (*down_splits)(uint32_t rows, uint32_t cols);
    /* Whether it runs the operand of this bank in this place (PLEC_GATE, PLEC_UP or PLEC_DOWN):
     * alignment, shapes, fusion. NULL: it runs every one in its format. */
    bool (*runs)(const struct plec_cuda_bank *bank, enum plec_operand_id id);
    /* Bytes, aligned to 256, that each of its launches may use as it likes while it runs, for up to
     * n_pairs pairs of n_tokens tokens. NULL: none. */
    uint64_t (*workspace)(const struct plec_cuda_bank *bank, enum plec_operand_id id,
                          uint32_t n_tokens, uint32_t n_pairs);
    uint32_t shared_bytes[PLEC_CUDA_CLASSES]; /* dynamic shared memory of a block, by class */
};
/* Higher is faster; of the rungs that run a class of an operand's rows the highest is taken. Those
 * below the plain one are baselines, for experts alone and when one of them is asked for: their
 * products are calls of a library (library.h), gate_up and down NULL. */
enum plec_cuda_rung {
    PLEC_CUDA_CUBLAS_LOOP = -2,
    PLEC_CUDA_CUBLAS_GROUPED = -1,
    PLEC_CUDA_PLAIN = 0,
    PLEC_CUDA_MM_FMA,
    PLEC_CUDA_MM_SYNC,
    PLEC_CUDA_MM_BULK,
    PLEC_CUDA_WGMMA
};
enum { PLEC_CUDA_ANY_FORMAT = UINT16_MAX }; /* of a place in the table that has every format */

/* Place i of the launch table and its symbol, "plec_cuda_mm_sync_q4_0"; NULL behind the last. */
const struct plec_cuda_gemm *plec_cuda_gemm_at(const char **symbol, size_t i);

/* ---- finalize -----------------------------------------------------------------------------------
 * y[token] = (y +) sum over slots in order of weight * ((sum over splits in order of
 * out[split][row])
 * * down_scale + bias). */
struct plec_cuda_finalize_args {
    struct plec_cuda_bank bank;
    const int32_t *ids;       /* [n_tokens, n_slots] or NULL */
    const float *weights;     /* [n_tokens, n_slots]; NULL: 1 (also: weight on input) */
    const float *token_scale; /* [n_tokens]; NULL: 1 (also: weight on input) */
    const int32_t *pair_row;
    const float *out; /* [n_splits, n_pairs, output_dim] */
    uint32_t n_splits, n_tokens, n_slots, output_dim;
    bool accumulate;
    float *y; /* [n_tokens, output_dim] */
    const struct plec_cuda_fault *fault;
    bool chained; /* as in plec_cuda_rows */
};
int plec_cuda_launch_finalize(const struct plec_cuda_finalize_args *args, cudaStream_t stream);

/* ---- what was loaded ----------------------------------------------------------------------------
 * arch [1] device: of the image, 90. */
int plec_cuda_image_arch(uint32_t *arch, cudaStream_t stream);

/* ---- what the device's tensor cores do ----------------------------------------------------------
 * kept [32] device: 1 from each lane that found subnormal bf16 operands multiplied as they are. */
int plec_cuda_subnormals(uint32_t *kept, cudaStream_t stream);
/* kept [128] device: likewise from each thread of wgmma; 0 where the image has none. */
int plec_cuda_wgmma_subnormals(uint32_t *kept, cudaStream_t stream);

/* ---- elementwise --------------------------------------------------------------------------------
 */
int plec_cuda_launch_round(uint16_t *to, const float *from, uint64_t n, cudaStream_t stream);
int plec_cuda_launch_norm(const struct plec_norm_args *args, const struct plec_cuda_fault *fault,
                          cudaStream_t stream);
int plec_cuda_launch_sigmoid(float *x, uint64_t n, const struct plec_cuda_fault *fault,
                             cudaStream_t stream);
int plec_cuda_launch_scale(float *x, uint64_t n, float factor, const struct plec_cuda_fault *fault,
                           cudaStream_t stream);

/* ---- route --------------------------------------------------------------------------------------
 * struct plec_router as kernels have it; its pointers are device memory. */
struct plec_cuda_router {
    uint32_t n_experts, top_k; /* at most PLEC_CUDA_EXPERTS_MAX, PLEC_CUDA_SLOTS_MAX */
    int32_t gating, select_on; /* enum plec_gating, plec_select_on */
    uint32_t n_groups;         /* at least 1 */
    uint32_t n_groups_used, k_per_group;
    bool normalise, input_norm;
    double norm_epsilon, norm_floor, scale, input_eps;
    uint32_t input_dim;
    const float *bias, *selection_bias, *expert_scale, *input_scale;
};

struct plec_cuda_route_args {
    struct plec_cuda_router router;
    uint32_t n_tokens;
    const float *x;       /* [n_tokens, input_dim]: for input_norm */
    const double *logits; /* as above */
    int32_t *ids;         /* [n_tokens, top_k] out, best first */
    float *weights;       /* [n_tokens, top_k] out */
    uint8_t *unrouted;    /* [n_tokens] out */
    const struct plec_cuda_fault *fault;
};
/* Its dynamic shared memory. */
size_t plec_cuda_route_shared(uint32_t n_experts, uint32_t n_groups);
int plec_cuda_launch_route(const struct plec_cuda_route_args *args, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif
