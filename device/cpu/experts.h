/* experts.h: one experts launch of the CPU backend, or a part of one, as its phases see it.
 *
 *   plan      group the (token, slot) pairs by expert, in order of token and slot    [plan.c]
 *   images    of the inputs, one a token                                             [experts.c]
 *   gate_up   h[pair] = act(gate . x, up . x), for each expert over its rows         [gate_up.c]
 *   images    of h, one a pair
 *   down      o[pair] = down . h, for each expert over its rows                      [down.c]
 *   finalize  y[token] = sum over slots of weight * o[pair], in slot order           [down.c]
 *
 * The items of gate_up and down are the rows of all experts with pairs, one expert after the other.
 * A thread takes some rows of one expert and goes over them with all of its pairs: weights come
 * from memory once, and then from the cache. Every row of every pair is a dot product of its own,
 * so that neither the number of threads nor the other pairs change a bit of it.
 */
#ifndef PLEC_DEVICE_CPU_EXPERTS_H
#define PLEC_DEVICE_CPU_EXPERTS_H

#include "device/cpu/activation.h"
#include "device/cpu/cpu.h"
#include "device/cpu/kernel.h"

/* Images of the vectors of one matrix: x [n][width], image i at images + i * floats. */
struct plec_cpu_images {
    const float *x;
    float *images; /* NULL: the vectors serve as they are */
    const struct plec_cpu_kernel *kernel;
    uint64_t n, floats;
    uint32_t width, cols;
};

/* Workspace parts, as bytes from its start. */
struct plec_cpu_layout {
    uint64_t first;       /* [n_entries + 1] u64: where each expert's pairs start in `pairs` */
    uint64_t active;      /* [n_entries] u32: experts with pairs */
    uint64_t left;        /* [n_entries] u8: 1 with pairs and not run yet */
    uint64_t n_left;      /* [1] u32: how many those are */
    uint64_t pairs;       /* [n_pairs] u64: token * n_slots + slot, by expert */
    uint64_t gate_images; /* [n_tokens] images */
    uint64_t up_images;   /* [n_tokens], or gate_images when the two agree */
    uint64_t hidden;      /* [n_pairs, intermediate_dim] f32 */
    uint64_t down_images; /* [n_pairs] */
    uint64_t out;         /* [n_pairs, output_dim] f32 */
    uint64_t n_bytes;
};

struct plec_cpu_experts {
    const struct plec_experts_args *args;
    const struct plec_bank *bank;
    struct plec_cpu_pool *pool;
    const struct plec_device_probe *probe;
    enum plec_cpu_set kernels;
    plec_cpu_sigmoid_function *sigmoid;
    uint64_t n_pairs;
    uint32_t n_active;
    uint64_t *first, *pairs;
    const uint32_t *active; /* [n_active] experts to run */
    uint32_t *all_active;   /* in the workspace */
    uint8_t *left;
    uint32_t *n_left;
    struct plec_cpu_images gate_images, up_images, down_images;
    float *hidden, *out;
};

/* Some rows of one expert. */
struct plec_cpu_slice {
    const struct plec_entry *entry;
    uint32_t expert;
    const uint64_t *pairs; /* [n_pairs] */
    uint64_t n_pairs;
    uint32_t first_row, last_row;
};
/* The slice at item `first` of a phase whose matrices have n_rows: up to most rows, of one expert.
 */
struct plec_cpu_slice plec_cpu_slice_at(const struct plec_cpu_experts *run, uint64_t first,
                                        uint32_t n_rows, uint64_t most);

/* Fills first, active, pairs, n_active, left, n_left. PLEC_BAD_INPUT "BadExpertId". */
PLEC_MUST_USE enum plec_status plec_cpu_plan(struct plec_cpu_experts *run, struct plec_error *err);
/* Takes the experts of a planned run that args->part names. PLEC_BAD_INPUT "BadPart". */
PLEC_MUST_USE enum plec_status plec_cpu_take_part(struct plec_cpu_experts *run,
                                                  struct plec_error *err);

void plec_cpu_gate_up(struct plec_cpu_experts *run);
void plec_cpu_down(struct plec_cpu_experts *run);
void plec_cpu_finalize(struct plec_cpu_experts *run);

/* The weight of a pair, with its token's scale. */
float plec_cpu_pair_weight(const struct plec_cpu_experts *run, uint64_t pair);

/* Operand `id` of an entry, ready for its kernel. */
struct plec_cpu_matrix plec_cpu_operand(const struct plec_cpu_experts *run,
                                        const struct plec_entry *entry, enum plec_operand_id id);
static inline bool plec_cpu_has(const struct plec_bank *bank, enum plec_operand_id id) {
    return bank->operands[id].rows != 0;
}

/* Vector i of images, for a dot product. */
static inline struct plec_cpu_vector plec_cpu_vector_at(const struct plec_cpu_images *images,
                                                        uint64_t i) {
    const float *x = images->x + i * images->width;
    const float *image = images->images == NULL ? x : images->images + i * images->floats;
    return (struct plec_cpu_vector){x, image, images->width};
}

/* A bias: holds the block it decoded last. values NULL: all 0. */
struct plec_cpu_bias {
    const struct plec_format *format;
    const uint8_t *values;
    uint64_t block; /* decoded; UINT64_MAX: none */
    float decoded[PLEC_CPU_CHUNK];
};
void plec_cpu_bias_open(struct plec_cpu_bias *bias, const struct plec_bank *bank,
                        const struct plec_entry *entry, enum plec_operand_id id);
/* out [n] = elements first, first + step, ... */
void plec_cpu_bias_read(float *out, struct plec_cpu_bias *bias, uint32_t first, uint32_t step,
                        uint32_t n);

#endif
