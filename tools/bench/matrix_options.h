/* matrix_options.h: the command line of bench_matrix. */
#ifndef PLEC_BENCH_MATRIX_OPTIONS_H
#define PLEC_BENCH_MATRIX_OPTIONS_H

#include "device/device.h"
#include "tools/bench/models.h"

enum { PLEC_MATRIX_TOKENS_MAX = 4096, PLEC_MATRIX_LIST_MAX = 32 };

struct plec_matrix_options {
    enum plec_device_kind device;
    const struct plec_bench_model *models[PLEC_MATRIX_LIST_MAX];
    const struct plec_format *formats[PLEC_MATRIX_LIST_MAX];
    uint32_t tokens[PLEC_MATRIX_LIST_MAX];
    uint32_t n_models, n_formats, n_tokens, shrink;
    double limit, gbs, tflops; /* 0: not given */
    double batch;              /* seconds of what is timed at once */
    uint64_t memory;
    const char *rung, *cublas; /* or NULL */
    bool eager;                /* launches, no graphs */
    bool shapes;               /* say what the models are, no more */
};

/* False: a usage message is due. Views into argv. */
bool plec_matrix_options_read(struct plec_matrix_options *out, int argc, char **argv);

#endif
