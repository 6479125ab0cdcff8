/* run.c: `plectrum run`: one layer on arrays, or on random values, and its check against the
 * reference. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "host/runner.h"
#include "tools/plectrum/arrays.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/device_option.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/stream_options.h"
#include "tools/plectrum/tracing.h"

static const struct plec_cli_command command = {
    .name = "run",
    .summary = "run one MoE layer",
    .synopsis = "run PATH --layer N (--input x.npy | --random T [--seed S])\n"
                "    [--output y.npy] [--ids i.npy --weights w.npy] [--routing-out PREFIX]\n"
                "    [--profile NAME] [--router-input r.npy] [--tokens t.npy]\n"
                "    [--as ARCH] [--set KEY=VALUE,...] [--device NAME] [--threads N]\n"
                "    [--check] [--tolerance X] [--step N] [--json]\n"
                "    [--device-budget BYTES [--pinned-budget BYTES] [--extent N] [--io ENGINE]\n"
                "     [--io-cache MODE] [--pin MODE] [--policy NAME] [--speculate MODE]]\n"
                "    [--trace FILE] [--plot FILE] [--nvtx LEVEL]",
    .description =
        "Opens a container (a bank directory, a .lyrw, GGUF or TEZW file; any shard of a split "
        "GGUF), binds layer N, routes the tokens and runs their experts. The input is the hidden "
        "state after the norm that precedes the feed-forward part, [tokens, hidden size]; the "
        "output is the sum of the routed and shared "
        "experts, without the residual.\n\n"
        "Arrays are .npy files in C order: f32 or f16 for --input and --router-input, i32 for "
        "--ids and --tokens, f32 for --weights; results are f32 and i32.\n\n"
        "The container's router chooses the experts unless --ids and --weights do: arrays "
        "[tokens, slots], each slot a term of the sum. A layer whose container holds no router "
        "needs them. Some routers of GGUF files read another vector than the experts "
        "(--router-input: for gemma4 the attention output before its norm, for smallthinker the "
        "block's input), and some layers of deepseek4 choose by token id (--tokens).\n\n"
        "A token with a NaN in its hidden state or its scores is named, its row of the output is "
        "NaN, the other rows are right, and the exit status is 3.\n\n"
        "With --device-budget the routed experts do not stay where the file is mapped, but are "
        "read "
        "into host memory and copied to the device in extents, as steps need them; the output is "
        "the "
        "same, bit for bit.\n\n"
        "With --trace the file holds, in the end, what each thread did when, every read and copy, "
        "and how they led to a use: open it in Perfetto (ui.perfetto.dev) or chrome://tracing. It "
        "is also written at SIGUSR2, and before SIGINT or SIGTERM ends the run. With --plot a "
        "picture shows the same: "
        "a lane for each thread, the disk and the link. A profiler that "
        "listens to NVTX sees the same as ranges of the domain `plectrum`.\n\n"
        "The JSON object has path, kind, profile, layer, device, kernels (of the routed experts; "
        "null "
        "on the reference), tokens, hidden_size, experts, slots, shared_experts, routing (router, "
        "caller or dense), programme, activation, output, "
        "output_norm, and of --check nmse, tolerance and within, null without it; and stream, "
        "null without --device-budget: experts handed out, by where they were, bytes moved, "
        "stalls.",
    .exit_status = "0  done\n"
                   "1  --check found the output further from the reference than the tolerance\n"
                   "3  the container or an array cannot be read or is refused; no such layer, "
                   "wrong input\n   width, bad ids, NaN",
    .examples = "$ plectrum run model.vindex --layer 3 --input x.npy --output y.npy --check\n"
                "$ plectrum run layer.lyrw --random 4 --ids i.npy --weights w.npy --json",
    .min_operands = 1,
    .max_operands = 1,
};

/* How far from the exact reference a path may be: in f32, and with x and the activation rounded to
 * bf16. */
static const double f32_tolerance = 1e-9, bf16_tolerance = 4e-5;

/* Most tokens of one forward: what a person waits for between two looks at the progress line, and
 * what bounds the buffers of a step. */
enum { STEP_TOKENS = 512, REFERENCE_STEP_TOKENS = 4 };

struct options {
    const char *path;
    uint32_t layer;
    const char *input, *output, *ids, *weights, *routing_out, *router_input, *tokens;
    uint32_t random;
    uint64_t seed;
    const char *profile, *architecture, *set, *device_name;
    enum plec_run_device device;
    uint32_t n_threads;
    double tolerance;
    uint32_t step;
    struct plec_stream_words words;
    struct plec_stream_options stream;
    struct plec_tracing_words tracing_words;
    struct plec_tracing_options tracing;
    bool layer_given, random_given, seed_given, step_given, tolerance_given, check, json;
};

/* One run: what was read, what came out. */
struct run {
    struct options o;
    struct plec_tracing *tracing;
    struct plec_container *container;
    struct plec_runner *runner;
    const struct plec_bound_layer *bound;
    struct plec_layer_info info;
    struct plec_array x, router_input, tokens, ids, weights; /* given */
    struct plec_array y, ids_out, weights_out, y_reference;  /* made */
    uint32_t n_slots;
    bool checked;
    double nmse;
};

/* --- the command line ------------------------------------------------------------------------- */

static int check_options(struct options *o) {
    if ((o->input != NULL) == o->random_given)
        return plec_cli_usage(&command, "give --input or --random, one of them");
    if (o->seed_given && !o->random_given)
        return plec_cli_usage(&command, "--seed goes with --random");
    if ((o->ids == NULL) != (o->weights == NULL))
        return plec_cli_usage(&command, "--ids and --weights go together");
    if (o->tolerance < 0) return plec_cli_usage(&command, "--tolerance wants a number from 0 up");
    if (o->step_given && o->step == 0)
        return plec_cli_usage(&command, "--step wants at least one token");
    int leave = plec_stream_cli_read(&o->stream, &command, &o->words);
    if (leave == PLEC_CLI_GO_ON)
        leave = plec_tracing_cli_read(&o->tracing, &command, &o->tracing_words);
    if (leave == PLEC_CLI_GO_ON) leave = plec_cli_device(&o->device, &command, o->device_name);
    if (!o->tolerance_given)
        o->tolerance = o->device == PLEC_RUN_CUDA ? bf16_tolerance : f32_tolerance;
    return leave;
}

static int read_options(struct options *o, int argc, char **argv) {
    *o = (struct options){.device_name = "auto"};
    const struct plec_cli_option own[] = {
        {"layer", PLEC_CLI_U32, &o->layer, &o->layer_given, "N",
         "The layer to run; may be left out where the container has one."},
        {"input", PLEC_CLI_TEXT, &o->input, NULL, "FILE", "Hidden states [tokens, hidden size]."},
        {"random", PLEC_CLI_U32, &o->random, &o->random_given, "T",
         "Run T tokens of normally distributed values instead."},
        {"seed", PLEC_CLI_U64, &o->seed, &o->seed_given, "S", "Which random values; 0."},
        {"output", PLEC_CLI_TEXT, &o->output, NULL, "FILE", "Write the output here."},
        {"ids", PLEC_CLI_TEXT, &o->ids, NULL, "FILE", "Experts of each token [tokens, slots]."},
        {"weights", PLEC_CLI_TEXT, &o->weights, NULL, "FILE", "Their weights [tokens, slots]."},
        {"routing-out", PLEC_CLI_TEXT, &o->routing_out, NULL, "PREFIX",
         "Write the routing used to PREFIX.ids.npy and PREFIX.weights.npy."},
        {"profile", PLEC_CLI_TEXT, &o->profile, NULL, "NAME",
         "The profile of the container's index that says which variants to read."},
        {"router-input", PLEC_CLI_TEXT, &o->router_input, NULL, "FILE",
         "What the router reads [tokens, hidden size], where that is another vector."},
        {"tokens", PLEC_CLI_TEXT, &o->tokens, NULL, "FILE",
         "Token ids [tokens], for layers that route by them."},
        {"as", PLEC_CLI_TEXT, &o->architecture, NULL, "ARCH",
         "Read a GGUF file as this architecture."},
        {"set", PLEC_CLI_TEXT, &o->set, NULL, "KEY=VALUE,...",
         "Values a GGUF file does not say: gating=sigmoid,norm=1."},
        {"device", PLEC_CLI_TEXT, &o->device_name, NULL, "NAME",
         "auto, cpu, cuda or reference (double precision, one thread)."},
        {"threads", PLEC_CLI_U32, &o->n_threads, NULL, "N", "CPU threads; all there are."},
        {"check", PLEC_CLI_FLAG, &o->check, NULL, NULL,
         "Run the reference too and print the normalised mean squared error."},
        {"tolerance", PLEC_CLI_REAL, &o->tolerance, &o->tolerance_given, "X",
         "The error --check allows; 1e-9, on cuda 4e-5."},
        {"step", PLEC_CLI_U32, &o->step, &o->step_given, "N", "Tokens of one step; 512."},
        {"json", PLEC_CLI_FLAG, &o->json, NULL, NULL, "Print one JSON object."},
    };
    enum { N_OWN = sizeof own / sizeof own[0] };
    struct plec_cli_option options[N_OWN + PLEC_STREAM_CLI_OPTIONS + PLEC_TRACING_CLI_OPTIONS];
    memcpy(options, own, sizeof own);
    plec_stream_cli_options(options + N_OWN, &o->words);
    plec_tracing_cli_options(options + N_OWN + PLEC_STREAM_CLI_OPTIONS, &o->tracing_words);
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    o->path = cli.operands[0];
    return check_options(o);
}

/* --- what the run reads ------------------------------------------------------------------------
 */

static enum plec_status choose_layer(struct run *run, struct plec_error *err) {
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
static enum plec_status load_tokens(struct run *run, struct plec_error *err) {
    const unsigned f32 = 1u << PLEC_NPY_F32, f16 = 1u << PLEC_NPY_F16, i32 = 1u << PLEC_NPY_I32;
    const struct options *o = &run->o;
    enum plec_status status = load_optional(&run->x, o->input, f32 | f16, UINT32_MAX, 0, err);
    if (o->input == NULL) run->x.rows = o->random;
    uint32_t rows = run->x.rows;
    if (status == PLEC_OK) status = load_optional(&run->tokens, o->tokens, i32, rows, 1, err);
    if (status == PLEC_OK) status = load_optional(&run->ids, o->ids, i32, rows, 0, err);
    if (status == PLEC_OK)
        status = load_optional(&run->weights, o->weights, f32, rows, run->ids.cols, err);
    return status;
}

/* What has the layer's width: that is the bound layer's, not yet what a manifest says it will be.
 */
static enum plec_status load_vectors(struct run *run, struct plec_error *err) {
    const unsigned f32 = 1u << PLEC_NPY_F32, f16 = 1u << PLEC_NPY_F16;
    const struct options *o = &run->o;
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

static uint32_t step_tokens(const struct run *run, enum plec_run_device device) {
    uint32_t most = device == PLEC_RUN_REFERENCE ? REFERENCE_STEP_TOKENS : STEP_TOKENS;
    if (run->o.step_given && run->o.step < most) most = run->o.step;
    return run->x.rows == 0 ? 1 : run->x.rows < most ? run->x.rows : most;
}

static enum plec_status open_runner(struct plec_runner **out, const struct run *run,
                                    enum plec_run_device device, struct plec_error *err) {
    /* The reference that checks reads experts where they are mapped, and has nothing to say. */
    bool checks = device == PLEC_RUN_REFERENCE && run->o.device != PLEC_RUN_REFERENCE;
    bool streams = run->o.stream.device_budget != 0 && !checks;
    const struct plec_runner_options options = {
        .device = device,
        .max_tokens = step_tokens(run, device),
        .max_slots = run->ids.cols,
        .n_threads = run->o.n_threads,
        .layers = &run->o.layer,
        .n_layers = 1,
        .stream = streams ? run->o.stream : (struct plec_stream_options){0},
        .tracer = run->runner == NULL ? plec_tracing_tracer(run->tracing) : NULL, /* no check */
        .log = streams ? plec_cli_log() : (struct plec_log){0}};
    return plec_runner_open(out, run->container, &options, err);
}

static enum plec_status make_results(struct run *run, struct plec_error *err) {
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
static struct plec_forward_args forward_args(const struct run *run, const struct plec_array *y,
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
static enum plec_status run_steps(const struct run *run, struct plec_runner *runner,
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
static enum plec_status forward(const struct run *run, struct plec_runner *runner,
                                enum plec_run_device device, const struct plec_array *y,
                                bool keep_routing, struct plec_error *err) {
    struct plec_tracer *tracer = keep_routing ? plec_tracing_tracer(run->tracing) : NULL;
    plec_tracer_begin(tracer, PLEC_TRACE_REQUEST, UINT32_MAX, run->x.rows);
    enum plec_status status = run_steps(run, runner, device, y, keep_routing, err);
    plec_tracer_end(tracer, PLEC_TRACE_REQUEST, UINT32_MAX, status);
    return status;
}

static enum plec_status write_routing(const struct run *run, const char *suffix,
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

static enum plec_status write_results(const struct run *run, struct plec_error *err) {
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

/* The same input through a runner of its own on the reference. */
static enum plec_status check_against_reference(struct run *run, struct plec_error *err) {
    struct plec_runner *reference = NULL;
    enum plec_status status =
        plec_array_make(&run->y_reference, PLEC_NPY_F32, run->y.rows, run->y.cols, err);
    if (status == PLEC_OK) status = open_runner(&reference, run, PLEC_RUN_REFERENCE, err);
    if (status == PLEC_OK)
        status = forward(run, reference, PLEC_RUN_REFERENCE, &run->y_reference, false, err);
    plec_runner_close(reference);
    if (status != PLEC_OK) return status;
    run->checked = true;
    run->nmse = plec_array_nmse(&run->y, &run->y_reference);
    return PLEC_OK;
}

/* Binding is told once; the second runner of --check binds the same layer again. */
static void say_while_unbound(void *user, enum plec_log_level level, const char *message) {
    const struct run *run = user;
    if (run->bound == NULL && level == PLEC_LOG_RUN) plec_cli_say("%s", message);
}

static enum plec_status prepare(struct run *run, struct plec_error *err) {
    struct plec_container_options options = {.profile = run->o.profile,
                                             .architecture = run->o.architecture,
                                             .set = run->o.set,
                                             .log = {say_while_unbound, run}};
    enum plec_status status = plec_container_open(&run->container, run->o.path, &options, err);
    if (status == PLEC_OK) status = choose_layer(run, err);
    if (status == PLEC_OK) status = load_tokens(run, err);
    if (status != PLEC_OK) return status;
    status = open_runner(&run->runner, run, run->o.device, err);
    if (status != PLEC_OK) {
        if (status != PLEC_NO_DEVICE) plec_error_context(err, "%s", run->o.path);
        return status;
    }
    run->bound = plec_runner_layer(run->runner, run->o.layer);
    plec_tracing_name_device(run->tracing, plec_runner_device_name(run->runner));
    status = load_vectors(run, err);
    return status == PLEC_OK ? make_results(run, err) : status;
}

/* A token that could not be routed is an error, and the rows of the others are still written. */
static enum plec_status execute(struct run *run, struct plec_error *err) {
    enum plec_status status = prepare(run, err);
    if (status != PLEC_OK) return status;
    status = forward(run, run->runner, run->o.device, &run->y, true, err);
    if (status != PLEC_OK && strcmp(err->name, "NanScores") != 0) return status;
    struct plec_error write_error;
    enum plec_status written = write_results(run, &write_error);
    if (written != PLEC_OK) {
        *err = write_error;
        return written;
    }
    if (status == PLEC_OK && run->o.check) status = check_against_reference(run, err);
    return status;
}

/* --- what it says ------------------------------------------------------------------------------
 */

static bool within(const struct run *run) {
    return run->nmse <= run->o.tolerance;
}

static const char *routing_name(const struct run *run) {
    if (run->ids.values != NULL) return "caller";
    return run->bound->dense ? "dense" : "router";
}

/* A path that is no UTF-8 cannot stand in JSON. */
static json_t *text_or_null(const char *text) {
    json_t *value = text != NULL ? json_string(text) : NULL;
    return value != NULL ? value : json_null();
}

/* JSON has no infinity and no NaN. */
static json_t *real_or_null(bool given, double value) {
    return given && isfinite(value) ? json_real(value) : json_null();
}

static json_t *stream_or_null(const struct run *run) {
    struct plec_stream_stats stats;
    return plec_runner_stream_stats(&stats, run->runner) ? plec_stream_json(&stats) : json_null();
}

static int print_json(const struct run *run) {
    const struct plec_layer *layer = &run->bound->layer;
    return plec_cli_print_json(json_pack(
        "{s:o, s:s, s:o, s:I, s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:s, s:o, s:s, s:o, s:o, s:o, "
        "s:o, s:o, s:o}",
        "path", text_or_null(run->o.path), "kind",
        plec_container_kind_name(plec_container_get_kind(run->container)), "profile",
        text_or_null(run->o.profile), "layer", (json_int_t)run->o.layer, "device",
        plec_runner_device_name(run->runner), "kernels",
        text_or_null(plec_runner_kernels(run->runner, run->o.layer)), "tokens",
        (json_int_t)run->x.rows, "hidden_size", (json_int_t)layer->hidden_size, "experts",
        (json_int_t)layer->routed.n_entries, "slots", (json_int_t)run->n_slots, "shared_experts",
        (json_int_t)layer->shared.n_entries, "routing", routing_name(run), "programme",
        text_or_null(run->info.programme), "activation",
        plec_activation_name(layer->routed.maths.activation), "output", text_or_null(run->o.output),
        "output_norm", real_or_null(true, plec_array_norm(&run->y)), "nmse",
        real_or_null(run->checked, run->nmse), "tolerance",
        real_or_null(run->checked, run->o.tolerance), "within",
        run->checked ? json_boolean(within(run)) : json_null(), "stream", stream_or_null(run)));
}

static void print_text(const struct run *run) {
    const struct plec_layer *layer = &run->bound->layer;
    printf("layer        %u, on %s\n", run->o.layer, plec_runner_device_name(run->runner));
    const char *kernels = plec_runner_kernels(run->runner, run->o.layer);
    if (kernels != NULL) printf("kernels      %s\n", kernels);
    printf("tokens       %u of width %u\n", run->x.rows, layer->hidden_size);
    printf("experts      %u, %u a token (%s), %u shared, %s\n", layer->routed.n_entries,
           run->n_slots, routing_name(run), layer->shared.n_entries,
           plec_activation_name(layer->routed.maths.activation));
    printf("output norm  %.9g\n", plec_array_norm(&run->y));
    struct plec_stream_stats stats;
    if (plec_runner_stream_stats(&stats, run->runner)) plec_stream_print(&stats);
    if (!run->checked) return;
    printf("NMSE         %.3g against the reference%s: %s the tolerance of %g\n", run->nmse,
           run->o.device == PLEC_RUN_REFERENCE ? ", which is this device itself" : "",
           within(run) ? "within" : "above", run->o.tolerance);
}

static void close_run(struct run *run) {
    struct plec_array *arrays[] = {&run->x,       &run->router_input, &run->tokens,
                                   &run->ids,     &run->weights,      &run->y,
                                   &run->ids_out, &run->weights_out,  &run->y_reference};
    for (size_t i = 0; i < sizeof arrays / sizeof arrays[0]; i++)
        plec_array_free(arrays[i]);
    plec_runner_close(run->runner);
    plec_container_close(run->container);
}

static int report(const struct run *run) {
    int failed = PLEC_EXIT_OK;
    if (run->o.json)
        failed = print_json(run);
    else
        print_text(run);
    if (failed != PLEC_EXIT_OK) return failed;
    return run->checked && !within(run) ? PLEC_EXIT_FOUND : PLEC_EXIT_OK;
}

int plec_command_run(int argc, char **argv) {
    struct run run = {0};
    struct plec_error err;
    int leave = read_options(&run.o, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (plec_tracing_open(&run.tracing, &run.o.tracing, run.o.path, &err) != PLEC_OK)
        return plec_cli_error(&err);
    leave = execute(&run, &err) == PLEC_OK ? report(&run) : plec_cli_error(&err);
    close_run(&run);
    /* After the runner: what it had begun has ended. */
    if (plec_tracing_close(run.tracing, &err) != PLEC_OK) {
        int failed = plec_cli_error(&err);
        if (leave == PLEC_EXIT_OK) leave = failed;
    }
    return leave;
}
