/* bank.h: LYRW files of normally distributed weights in any format that has an encoder. */
#ifndef PLEC_DEMO_BANK_H
#define PLEC_DEMO_BANK_H

#include "lyrw/segment.h"

/* A stream of numbers; the same seed gives the same container. */
struct plec_demo_random {
    uint64_t state;
};
/* Normally distributed, mean 0, deviation 1. */
float plec_demo_normal(struct plec_demo_random *random);

/* Which regions an expert has. */
enum plec_demo_form {
    PLEC_DEMO_SEPARATE,    /* gate, up, down */
    PLEC_DEMO_FUSED,       /* gate_up_fused in halves, down */
    PLEC_DEMO_FUSED_BIASED /* gate_up_fused interleaved, down, a bf16 bias each */
};

/* One file of a bank. */
struct plec_demo_bank {
    uint32_t layer;
    enum plec_bank_kind kind;
    uint16_t format;
    enum plec_demo_form form;
    uint32_t n_entries;                    /* of the bank */
    uint32_t segment, first_entry, n_held; /* of them in this file */
    uint32_t input, intermediate, output;
    uint32_t extent; /* entries an extent; 0: none */
};

/* Writes it. wrote(user) is called after each matrix. Every status of the encoder and writer. */
PLEC_MUST_USE enum plec_status plec_demo_write_bank(const char *path,
                                                    const struct plec_demo_bank *bank,
                                                    struct plec_demo_random *random,
                                                    void (*wrote)(void *user), void *user,
                                                    struct plec_error *err);

/* A tensor of a control file: f32, values mean + normal / sqrt(cols). */
struct plec_demo_tensor {
    uint16_t role;
    uint32_t rows, cols;
    float mean;
};
PLEC_MUST_USE enum plec_status
plec_demo_write_control(const char *path, uint32_t layer, const struct plec_demo_tensor *tensors,
                        size_t n_tensors, struct plec_demo_random *random, struct plec_error *err);

#endif
