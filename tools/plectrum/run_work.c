/* run_work.c: what `plectrum run` does: reads a container and arrays, runs a layer, and writes what
 * came out. */
#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/progress.h"
#include "tools/plectrum/run.h"

/* --- the command line ------------------------------------------------------------------------- */

/* Most tokens of one forward: what a person waits for between two looks at the progress line, and
 * what bounds the buffers of a step. */
enum { STEP_TOKENS = 512, REFERENCE_STEP_TOKENS = 4 };

/* --- what the run reads ------------------------------------------------------------------------
 */

static enum plec_status choose_layer(struct plec_run *run, struct plec_error *err) {
    size_t n = plec_container_n_layers(run->container);
    for (size_t i = 0; i < n; i++) {
        plec_container_layer_info(&run->info, run->container, i);
        if (run->o.layer_given ? run->info.layer == run->o.layer : n == 1) {
            run->o.layer = run->info.layer;
            return PLEC_OK;
        }
    }
    if (!run->o.layer_given)
        return plec_fail(err, PLEC_BAD_INPUT, "LayerRequired",
                         "%s has %zu layers: say which with --layer", run->o.path, n);
    return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "%s: layer %u is none of its %zu layers",
                     run->o.path, run->o.layer, n);
}

static enum plec_status load_optional(struct plec_array *out, const char *path, unsigned types,
                                      uint32_t rows, uint32_t cols, struct plec_error *err) {
    return path != NULL ? plec_array_load(out, path, types, rows, cols, err) : PLEC_OK;
}

/* What must be known before the layer is bound: how many tokens, and the caller's routing. */
static enum plec_status load_tokens(struct plec_run *run, struct plec_error *err) {
    const unsigned f32 = 1u << PLEC_NPY_F32, f16 = 1u << PLEC_NPY_F16, i32 = 1u << PLEC_NPY_I32;
    const struct plec_run_options *o = &run->o;
    enum plec_status status = load_optional(&run->x, o->input, f32 | f16, UINT32_MAX, 0, err);
    if (o->input == NULL) run->x.rows = o->random;
    uint32_t rows = run->x.rows;
    if (status == PLEC_OK) status = load_optional(&run->tokens, o->tokens, i32, rows, 1, err);
    if (status == PLEC_OK) status = load_optional(&run->ids, o->ids, i32, rows, 0, err);
    if (status == PLEC_OK && o->ids != NULL && run->ids.cols == 0)
        return plec_fail(err, PLEC_BAD_INPUT, "NoSlots",
                         "%s: it has no columns: a token has no expert", o->ids);
    if (status == PLEC_OK)
        status = load_optional(&run->weights, o->weights, f32, rows, run->ids.cols, err);
    return status;
}

/* What has the layer's width: that is the bound layer's, not yet what a manifest says it will be.
 */
static enum plec_status load_vectors(struct plec_run *run, struct plec_error *err) {
    const unsigned f32 = 1u << PLEC_NPY_F32, f16 = 1u << PLEC_NPY_F16;
    const struct plec_run_options *o = &run->o;
    uint32_t rows = run->x.rows, width = run->bound->layer.hidden_size;
    if (o->input != NULL && run->x.cols != width)
        return plec_fail(err, PLEC_BAD_INPUT, "WrongWidth", "%s: it has %u columns, wanted %u",
                         o->input, run->x.cols, width);
    enum plec_status status =
        o->input != NULL ? PLEC_OK : plec_array_random(&run->x, rows, width, o->seed, err);
    if (status == PLEC_OK)
        status = load_optional(&run->router_input, o->router_input, f32 | f16, rows, width, err);
    return status == PLEC_OK ? plec_array_widen(&run->router_input, err) : status;
}

/* --- the run -----------------------------------------------------------------------------------
 */

static uint32_t step_tokens(const struct plec_run *run, enum plec_run_device device) {
    uint32_t most = device == PLEC_RUN_REFERENCE ? REFERENCE_STEP_TOKENS : STEP_TOKENS;
    if (run->o.step_given && run->o.step < most) most = run->o.step;
    return run->x.rows == 0 ? 1 : run->x.rows < most ? run->x.rows : most;
}

static enum plec_status open_runner(struct plec_runner **out, const struct plec_run *run,
                                    enum plec_run_device device, bool bf16_rule,
                                    struct plec_error *err) {
    /* The reference that checks reads experts where they are mapped, and has nothing to say. */
    bool checks = device == PLEC_RUN_REFERENCE && run->o.how.device.device != PLEC_RUN_REFERENCE;
    bool streams = run->o.how.stream.device_budget != 0 && !checks;
    struct plec_runner_options options = {
        .max_tokens = step_tokens(run, device),
        .max_slots = run->ids.cols,
        .layers = &run->o.layer,
        .n_layers = 1,
        .bf16_rule = bf16_rule,
        .stream = streams ? run->o.how.stream : (struct plec_stream_options){0},
        .tracer = run->runner == NULL ? plec_tracing_tracer(run->tracing) : NULL, /* no check */
        .log = streams || run->o.how.device.rung != NULL ? plec_cli_log() : (struct plec_log){0}};
    plec_device_choose(&options, &run->o.how.device);
    options.device = device;
    if (checks) options.rung = options.cublas = NULL, options.log = (struct plec_log){0};
    return plec_runner_open(out, run->container, &options, err);
}

static enum plec_status make_results(struct plec_run *run, struct plec_error *err) {
    uint32_t rows = run->x.rows;
    run->n_slots = run->ids.values != NULL ? run->ids.cols : run->bound->layer.router.top_k;
    enum plec_status status =
        plec_array_make(&run->y, PLEC_NPY_F32, rows, run->bound->layer.hidden_size, err);
    if (status == PLEC_OK)
        status = plec_array_make(&run->ids_out, PLEC_NPY_I32, rows, run->n_slots, err);
    if (status == PLEC_OK)
        status = plec_array_make(&run->weights_out, PLEC_NPY_F32, rows, run->n_slots, err);
    return status;
}

/* Row `row` of an array; NULL when there is none. */
static void *row_at(const struct plec_array *array, uint32_t row) {
    if (array->values == NULL) return NULL;
    return (uint8_t *)array->values + (size_t)row * array->cols * plec_npy_type_bytes(array->type);
}

/* Tokens [first, first + n) of the run, the output into y. */
static struct plec_forward_args forward_args(const struct plec_run *run, const struct plec_array *y,
                                             uint32_t first, uint32_t n) {
    return (struct plec_forward_args){.layer = run->o.layer,
                                      .n_tokens = n,
                                      .first_token = first,
                                      .hidden_type = run->x.type == PLEC_NPY_F16 ? PLEC_ELEMENT_F16
                                                                                 : PLEC_ELEMENT_F32,
                                      .hidden = row_at(&run->x, first),
                                      .router_input = row_at(&run->router_input, first),
                                      .token_ids = row_at(&run->tokens, first),
                                      .ids = row_at(&run->ids, first),
                                      .weights = row_at(&run->weights, first),
                                      .n_slots = run->n_slots,
                                      .out = row_at(y, first)};
}

/* All tokens, a step at a time. Tokens that cannot be routed stop nothing: *err names the first. */
static enum plec_status run_steps(const struct plec_run *run, struct plec_runner *runner,
                                  enum plec_run_device device, const struct plec_array *y,
                                  bool keep_routing, struct plec_error *err) {
    struct plec_progress progress =
        plec_progress_start(device == PLEC_RUN_REFERENCE ? "running the reference" : "running",
                            run->x.rows, PLEC_PROGRESS_COUNT);
    struct plec_tracer *tracer = keep_routing ? plec_tracing_tracer(run->tracing) : NULL;
    bool steady = false;
    enum plec_status status = PLEC_OK;
    uint32_t step = step_tokens(run, device);
    for (uint32_t first = 0; first < run->x.rows; first += step) {
        uint32_t left = run->x.rows - first;
        struct plec_forward_args args = forward_args(run, y, first, left < step ? left : step);
        if (keep_routing) args.ids_out = row_at(&run->ids_out, first);
        if (keep_routing) args.weights_out = row_at(&run->weights_out, first);
        struct plec_error step_error;
        enum plec_status stepped = plec_runner_forward(runner, &args, &step_error);
        if (stepped != PLEC_OK) plec_error_context(&step_error, "%s", run->o.path);
        if (stepped != PLEC_OK && status == PLEC_OK) {
            status = stepped;
            *err = step_error;
        }
        if (stepped != PLEC_OK && strcmp(step_error.name, "NanScores") != 0) {
            status = stepped;
            *err = step_error;
            break;
        }
        plec_progress_update(&progress, first + args.n_tokens);
        if (first == 0)
            plec_tracer_begin(tracer, PLEC_TRACE_STEADY, run->o.layer, left - args.n_tokens);
        steady = true;
    }
    if (steady) plec_tracer_end(tracer, PLEC_TRACE_STEADY, run->o.layer, status);
    plec_progress_end(&progress);
    return status;
}

/* The same, as one request of a trace. */
static enum plec_status forward(const struct plec_run *run, struct plec_runner *runner,
                                enum plec_run_device device, const struct plec_array *y,
                                bool keep_routing, struct plec_error *err) {
    struct plec_tracer *tracer = keep_routing ? plec_tracing_tracer(run->tracing) : NULL;
    plec_tracer_begin(tracer, PLEC_TRACE_REQUEST, UINT32_MAX, run->x.rows);
    enum plec_status status = run_steps(run, runner, device, y, keep_routing, err);
    plec_tracer_end(tracer, PLEC_TRACE_REQUEST, UINT32_MAX, status);
    return status;
}

static enum plec_status write_routing(const struct plec_run *run, const char *suffix,
                                      const struct plec_array *array, struct plec_error *err) {
    size_t n_bytes = strlen(run->o.routing_out) + strlen(suffix) + 1;
    char *path = malloc(n_bytes);
    if (path == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a file name");
    snprintf(path, n_bytes, "%s%s", run->o.routing_out, suffix);
    enum plec_status status =
        plec_npy_write(path, array->type, array->values, array->rows, array->cols, err);
    free(path);
    return status;
}

static enum plec_status write_results(const struct plec_run *run, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    if (run->o.output != NULL)
        status = plec_npy_write(run->o.output, PLEC_NPY_F32, run->y.values, run->y.rows,
                                run->y.cols, err);
    if (status == PLEC_OK && run->o.routing_out != NULL)
        status = write_routing(run, ".ids.npy", &run->ids_out, err);
    if (status == PLEC_OK && run->o.routing_out != NULL)
        status = write_routing(run, ".weights.npy", &run->weights_out, err);
    return status;
}

enum plec_status plec_run_reference(struct plec_array *y, const struct plec_run *run,
                                    bool bf16_rule, struct plec_error *err) {
    struct plec_runner *reference = NULL;
    enum plec_status status = plec_array_make(y, PLEC_NPY_F32, run->y.rows, run->y.cols, err);
    if (status == PLEC_OK)
        status = open_runner(&reference, run, PLEC_RUN_REFERENCE, bf16_rule, err);
    if (status == PLEC_OK) status = forward(run, reference, PLEC_RUN_REFERENCE, y, false, err);
    plec_runner_close(reference);
    return status;
}

/* Binding is told once; the runners of --check bind the same layer again. */
static void say_while_unbound(void *user, enum plec_log_level level, const char *message) {
    const struct plec_run *run = user;
    if (run->bound == NULL && level == PLEC_LOG_RUN) plec_cli_say("%s", message);
}

static enum plec_status prepare(struct plec_run *run, struct plec_error *err) {
    struct plec_container_options options = {.profile = run->o.profile,
                                             .architecture = run->o.architecture,
                                             .set = run->o.set,
                                             .log = {say_while_unbound, run}};
    enum plec_status status = plec_container_open(&run->container, run->o.path, &options, err);
    if (status == PLEC_OK) status = choose_layer(run, err);
    if (status == PLEC_OK) status = load_tokens(run, err);
    if (status != PLEC_OK) return status;
    status = open_runner(&run->runner, run, run->o.how.device.device, false, err);
    if (status != PLEC_OK) {
        plec_execution_blame(err, run->o.path);
        return status;
    }
    plec_execution_say_unused(&run->o.how, run->runner);
    run->bound = plec_runner_layer(run->runner, run->o.layer);
    plec_tracing_name_device(run->tracing, plec_runner_device_name(run->runner));
    status = load_vectors(run, err);
    return status == PLEC_OK ? make_results(run, err) : status;
}

enum plec_status plec_run_execute(struct plec_run *run, struct plec_error *err) {
    enum plec_status status = prepare(run, err);
    if (status != PLEC_OK) return status;
    status = forward(run, run->runner, run->o.how.device.device, &run->y, true, err);
    if (status != PLEC_OK && strcmp(err->name, "NanScores") != 0) return status;
    plec_run_find_not_finite(run);
    struct plec_error write_error;
    enum plec_status written = write_results(run, &write_error);
    if (written != PLEC_OK) {
        *err = write_error;
        return written;
    }
    return status == PLEC_OK && run->o.check ? plec_run_check(run, err) : status;
}

void plec_run_close(struct plec_run *run) {
    struct plec_array *arrays[] = {&run->x,       &run->router_input, &run->tokens,
                                   &run->ids,     &run->weights,      &run->y,
                                   &run->ids_out, &run->weights_out};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        plec_array_free(arrays[i]);
    plec_runner_close(run->runner);
    plec_container_close(run->container);
}
