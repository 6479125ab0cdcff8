/* models.h: the shapes of the routed layers that people run, for the benchmarks that sweep them.
 */
#ifndef PLEC_BENCH_MODELS_H
#define PLEC_BENCH_MODELS_H

#include <stddef.h>
#include <stdint.h>

#include "device/layer.h"

struct plec_bench_model {
    const char *name;
    uint32_t hidden, intermediate, n_experts, top_k; /* hidden: the width experts work at */
    enum plec_activation activation;
};

/* The published shapes; source: the models' own configuration files. */
extern const struct plec_bench_model plec_bench_models[];
extern const size_t plec_bench_n_models;

/* NULL for an unknown name. */
const struct plec_bench_model *plec_bench_model_by_name(const char *name);

#endif
