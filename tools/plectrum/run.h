/* run.h: the inside of `plectrum run`: its options, the run itself (run_work.c), and what is said
 * of it (run_print.c). */
#ifndef PLEC_TOOLS_RUN_H
#define PLEC_TOOLS_RUN_H

#include "host/runner.h"
#include "tools/plectrum/arrays.h"
#include "tools/plectrum/execution.h"

struct plec_run_options {
    const char *path;
    uint32_t layer;
    const char *input, *output, *ids, *weights, *routing_out, *router_input, *tokens;
    uint32_t random;
    uint64_t seed;
    const char *profile, *architecture, *set;
    double tolerance;
    uint32_t step;
    struct plec_execution how;
    bool layer_given, random_given, seed_given, step_given, tolerance_given, check, json;
};

/* Values of the output that are not finite, in rows of tokens that could be routed. */
struct plec_run_not_finite {
    uint64_t n;
    uint32_t token, column; /* of the first */
    bool given;             /* what every such token was given is not finite either */
};

/* How far an output is from the reference. A device may round what enters experts to bf16: where
 * that alone can have led further off than is allowed, the reference is asked once more, rounding
 * as the device does. */
struct plec_run_check {
    bool done, rounded;        /* done: nmse is set; rounded: nmse_rounded is too */
    double nmse, nmse_rounded; /* infinity: some value is not finite */
};
/* What an output may be off the reference that rounds as its device does. */
#define PLEC_RUN_ROUNDED_TOLERANCE 1e-7

/* One run: what was read, what came out. */
struct plec_run {
    struct plec_run_options o;
    struct plec_tracing *tracing;
    struct plec_container *container;
    struct plec_runner *runner;
    const struct plec_bound_layer *bound;
    struct plec_layer_info info;
    struct plec_array x, router_input, tokens, ids, weights; /* given */
    struct plec_array y, ids_out, weights_out;               /* made */
    uint32_t n_slots;
    struct plec_run_not_finite not_finite;
    struct plec_run_check check;
};

/* Opens the container, reads the arrays, runs the layer, writes the results, and checks them when
 * asked. A token that could not be routed is an error, and all else is done. */
PLEC_MUST_USE enum plec_status plec_run_execute(struct plec_run *run, struct plec_error *err);
void plec_run_close(struct plec_run *run);

/* Runs all tokens through a runner of its own on the reference, into y, which it makes. bf16_rule:
 * rounding as struct plec_runner_options says. */
PLEC_MUST_USE enum plec_status plec_run_reference(struct plec_array *y, const struct plec_run *run,
                                                  bool bf16_rule, struct plec_error *err);
/* Fills run->not_finite. */
void plec_run_find_not_finite(struct plec_run *run);
/* Fills run->check; the tolerance is the default's where none was given, and so set. */
PLEC_MUST_USE enum plec_status plec_run_check(struct plec_run *run, struct plec_error *err);
/* Whether the output of a run that was checked is right, and in words what rounding has to do with
 * it; NULL: nothing. */
bool plec_run_within(const struct plec_run *run);
const char *plec_run_note(const struct plec_run *run);

/* What of the output is not finite, on stderr; nothing where all is. */
void plec_run_say_not_finite(const struct plec_run *run);
void plec_run_print(const struct plec_run *run);
int plec_run_print_json(const struct plec_run *run);

#endif
