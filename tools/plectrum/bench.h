/* bench.h: the inside of `plectrum bench`: its options (bench_options.c), the work it gives a
 * runner (bench_work.c), what it measured (bench_print.c). */
#ifndef PLEC_TOOLS_BENCH_H
#define PLEC_TOOLS_BENCH_H

#include "host/budget.h"
#include "host/routing_trace.h"
#include "host/runner.h"
#include "tools/plectrum/execution.h"

enum { PLEC_BENCH_LIST_MAX = 16, PLEC_BENCH_STEPS_MAX = 4096 };
/* Experts a token where neither the container nor the caller says how many. */
enum { PLEC_BENCH_SLOTS = 8 };

enum plec_bench_routing {
    PLEC_BENCH_RANDOM,  /* uniform: the hardest case for a cache */
    PLEC_BENCH_ROUTER,  /* the container's, on random hidden states */
    PLEC_BENCH_RECORDED /* a routing trace */
};

struct plec_bench_options {
    const char *path, *profile, *architecture, *set, *routing_word;
    uint32_t layer, n_warmup, n_steps, n_slots; /* n_slots 0: as the layer says */
    uint64_t seed;
    double limit_gbs;
    const char *decode_text, *prefill_text;
    uint32_t decode[PLEC_BENCH_LIST_MAX], n_decode, prefill[PLEC_BENCH_LIST_MAX], n_prefill;
    enum plec_bench_routing routing;
    const char *csv, *record;
    struct plec_execution how;
    bool layer_given, steps_given, limit_given, slots_given, json;
};

/* PLEC_CLI_GO_ON, or the exit status to leave with. */
int plec_bench_options_read(struct plec_bench_options *o, int argc, char **argv);

enum plec_bench_phase { PLEC_BENCH_FIRST, PLEC_BENCH_DECODE, PLEC_BENCH_PREFILL };

/* Steps of one kind. Sums are over the measured steps. */
struct plec_bench_row {
    enum plec_bench_phase phase;
    uint32_t n_tokens; /* of a step; of a recorded routing the mean */
    uint32_t n_steps;
    double *seconds; /* [n_steps], sorted when done */
    uint64_t tokens, active_bytes;
    double median_s, total_s, norm;
    double limit_bytes_per_s; /* 0: not measured */
    uint64_t set_bytes;       /* different weights read over all steps */
    struct plec_stream_stats stream;
};

/* The chosen layers and what goes into them. */
struct plec_bench_layer {
    uint32_t number;
    const struct plec_bound_layer *bound;
    uint32_t n_experts, n_slots;
    uint64_t entry_bytes, other_bytes;
    uint32_t *deck; /* [n_experts] for drawing */
    uint8_t *used;  /* [n_experts] in this step: 1; in this row: 2 */
};

struct plec_bench_work {
    const struct plec_bench_options *options;
    struct plec_container *container;
    struct plec_cli_said said; /* of the container */
    struct plec_runner *runner;
    struct plec_tracer *tracer; /* or NULL */
    struct plec_bench_layer *layers;
    uint32_t *numbers; /* [n_layers] of the layers */
    uint32_t n_layers, max_tokens, max_slots, max_hidden;
    uint64_t weight_bytes, other_bytes; /* of all layers: routed, and beside them */
    uint64_t random;
    float *x;           /* [max_tokens, max_hidden] and a little more: each layer its own window */
    float *y;           /* [max_tokens, max_hidden] */
    int32_t *ids;       /* [max_tokens, max_slots] asked for */
    float *weights;     /* likewise */
    int32_t *ids_used;  /* likewise, what the runner used */
    int32_t *token_ids; /* [max_tokens] */
    struct plec_trace recorded; /* with PLEC_BENCH_RECORDED */
    uint64_t next_dispatch;
    char *record; /* text of the routing that is recorded, [record_size] */
    size_t record_size, record_room;
    uint64_t n_steps; /* run so far */
};

/* Opens container, runner and buffers for steps of up to max_tokens. *err says what is wrong. */
PLEC_MUST_USE enum plec_status plec_bench_work_open(struct plec_bench_work *out,
                                                    const struct plec_bench_options *options,
                                                    struct plec_tracer *tracer,
                                                    struct plec_error *err);
void plec_bench_work_close(struct plec_bench_work *work);
/* Reads every weight once, so that the first use of a page is not timed. */
void plec_bench_work_touch(const struct plec_bench_work *work);
/* Tokens of the next step of a recorded routing; 0: there is none. */
uint32_t plec_bench_work_next(const struct plec_bench_work *work);

struct plec_bench_step {
    double seconds, norm; /* norm: of the last layer's output */
    uint64_t active_bytes;
};
/* One step of n_tokens through all layers. PLEC_BAD_INPUT "ZeroNorm" when an output is all
 * zeros, "OutputNotFinite"; statuses of plec_runner_forward. */
PLEC_MUST_USE enum plec_status plec_bench_work_step(struct plec_bench_step *out,
                                                    struct plec_bench_work *work, uint32_t n_tokens,
                                                    struct plec_error *err);
/* Bytes of the different weights used since the last call. */
uint64_t plec_bench_work_set(struct plec_bench_work *work);
/* Writes the routing that was recorded. */
PLEC_MUST_USE enum plec_status plec_bench_work_save(const struct plec_bench_work *work,
                                                    const char *path, struct plec_error *err);

struct plec_bench_report {
    const struct plec_bench_options *options;
    const struct plec_bench_work *work;
    const struct plec_bench_row *rows; /* [n_rows] */
    uint32_t n_rows;
    uint64_t cache_bytes; /* of the last-level cache; 0: not known */
    bool touched;
};
void plec_bench_print(const struct plec_bench_report *report);
int plec_bench_print_json(const struct plec_bench_report *report);
PLEC_MUST_USE enum plec_status plec_bench_write_csv(const char *path,
                                                    const struct plec_bench_report *report,
                                                    struct plec_error *err);

#endif
