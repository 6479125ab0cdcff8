#include "host/runner.h"

#include <stdlib.h>
#include <string.h>

#include "device/reference/reference.h"
#include "host/router.h"
#include "host/runner_parts.h"
#include "lyrw/cursor.h"

enum { DEFAULT_MAX_TOKENS = 4096 };

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* --- open ------------------------------------------------------------------------------------ */

static enum plec_status bind_one(struct plec_runner *runner, struct plec_container *container,
                                 uint32_t number, struct plec_error *err) {
    struct plec_runner_layer *layer = &runner->layers[runner->n_layers];
    layer->number = number;
    layer->streamed = PLEC_NOT_STREAMED;
    enum plec_status status = plec_container_bind(&layer->bound, container, number, err);
    if (status == PLEC_OK) runner->n_layers++;
    return status;
}

static enum plec_status bind_layers(struct plec_runner *runner, struct plec_container *container,
                                    const struct plec_runner_options *options,
                                    struct plec_error *err) {
    size_t n = options->layers != NULL ? options->n_layers : plec_container_n_layers(container);
    runner->layers = calloc(n > 0 ? n : 1, sizeof *runner->layers);
    if (runner->layers == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu layers", n);
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < n; i++) {
        struct plec_layer_info info;
        if (options->layers == NULL) plec_container_layer_info(&info, container, i);
        status = bind_one(runner, container,
                          options->layers != NULL ? options->layers[i] : info.layer, err);
    }
    return status;
}

/* Decides on graphs: of all layers, while the device can keep their tables. */
static void choose_graphs(struct plec_runner *runner, const struct plec_device_info *info,
                          const struct plec_runner_options *options) {
    uint64_t n_banks = 0, n_entries = 0;
    for (size_t i = 0; i < runner->n_layers; i++) {
        const struct plec_layer *layer = &runner->layers[i].bound.layer;
        const struct plec_bank *const banks[] = {&layer->routed, &layer->shared, &layer->dense};
        for (int b = 0; b < 3; b++) {
            n_banks += banks[b]->n_entries > 0;
            n_entries += banks[b]->n_entries;
        }
    }
    if (options->eager || info->graph_entries == 0) return;
    runner->graphs = n_banks <= info->graph_banks && n_entries <= info->graph_entries;
    if (!runner->graphs)
        plec_log_write(&options->log, PLEC_LOG_RUN,
                       "no graphs: %llu experts in %llu banks, the device keeps tables of %u in %u",
                       (unsigned long long)n_entries, (unsigned long long)n_banks,
                       info->graph_entries, info->graph_banks);
}

static bool asks_for_rung(const struct plec_runner_options *options) {
    return options->rung != NULL && strcmp(options->rung, "auto") != 0;
}

/* For auto: a GPU's, unless it is to be one behind a simulated link, which the CPU device is. No
 * emulated one: it is for tests, and slower than the CPU it runs on. */
static bool tries_cuda(const struct plec_runner_options *options) {
    const char *name = plec_device_backend_name(PLEC_DEVICE_CUDA);
    return options->device == PLEC_RUN_AUTO && options->stream.simulation == NULL && name != NULL &&
           strstr(name, "emulated") == NULL;
}

static enum plec_status open_kind(struct plec_runner *runner,
                                  const struct plec_device_options *device,
                                  const struct plec_runner_options *options,
                                  struct plec_error *err) {
    if (options->device == PLEC_RUN_CUDA || tries_cuda(options)) {
        enum plec_status status = plec_device_open(&runner->device, PLEC_DEVICE_CUDA, device, err);
        bool absent = status == PLEC_NO_DEVICE && strcmp(err->name, "DeviceAbsent") == 0;
        if (options->device == PLEC_RUN_CUDA || !absent) return status;
    }
    return plec_device_open(&runner->device, PLEC_DEVICE_CPU, device, err);
}

static enum plec_status open_device(struct plec_runner *runner,
                                    const struct plec_runner_options *options,
                                    struct plec_error *err) {
    if (options->device == PLEC_RUN_REFERENCE) {
        if (asks_for_rung(options))
            return plec_fail(err, PLEC_UNSUPPORTED, "NoSuchRung",
                             "the reference has no kernels to choose from, %s was asked for",
                             options->rung);
        runner->reference = true;
        runner->bf16_rule = options->bf16_rule;
        strcpy(runner->device_name, "reference");
        return PLEC_OK;
    }
    struct plec_device_options device = {.n_threads = options->n_threads,
                                         .plain_c = options->plain_c,
                                         .rung = options->rung,
                                         .cublas = options->cublas,
                                         .simulation = options->stream.simulation,
                                         .probe = plec_tracer_of_device(runner->tracer)};
    enum plec_status status = open_kind(runner, &device, options, err);
    if (status != PLEC_OK) return status;
    struct plec_device_info info;
    plec_device_get_info(&info, runner->device);
    memcpy(runner->device_name, info.name, sizeof runner->device_name);
    runner->needs_upload = info.needs_upload;
    choose_graphs(runner, &info, options);
    return PLEC_OK;
}

/* Doubles that the host's own arithmetic needs, over all layers. */
static size_t scratch_doubles(const struct plec_runner *runner) {
    size_t n = 1;
    for (size_t i = 0; i < runner->n_layers; i++) {
        const struct plec_layer *layer = &runner->layers[i].bound.layer;
        if (plec_matrix_present(&layer->router.weight))
            n = larger(n, plec_router_scratch(&layer->router));
        if (runner->reference) n = larger(n, plec_reference_layer_scratch(layer));
    }
    return n;
}

/* Memory that steps are copied from: a device would copy pageable memory twice, and wait for it. */
static void *alloc_input(struct plec_runner *runner, uint64_t n, uint64_t size,
                         struct plec_error *err) {
    uint64_t n_bytes;
    void *memory = NULL;
    if (runner->device == NULL) return plec_arena_alloc(&runner->buffers, n, size, err);
    if (!plec_mul_u64(&n_bytes, n, size))
        (void)plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the inputs of a step");
    else if (plec_pinned_alloc(&memory, runner->device, n_bytes, err) != PLEC_OK)
        plec_error_context(err, "the inputs of a step");
    else
        memset(memory, 0, (size_t)n_bytes);
    return memory;
}

static enum plec_status open_inputs(struct plec_runner *runner, struct plec_error *err) {
    size_t hidden = 1;
    for (size_t i = 0; i < runner->n_layers; i++)
        hidden = larger(hidden, runner->layers[i].bound.layer.hidden_size);
    uint64_t tokens = runner->max_tokens, slots = tokens * runner->max_slots;
    runner->x = alloc_input(runner, tokens, hidden * sizeof *runner->x, err);
    if (runner->x == NULL) return PLEC_NO_MEMORY;
    runner->ids = alloc_input(runner, slots, sizeof *runner->ids, err);
    if (runner->ids == NULL) return PLEC_NO_MEMORY;
    runner->weights_f32 = alloc_input(runner, slots, sizeof *runner->weights_f32, err);
    if (runner->weights_f32 == NULL) return PLEC_NO_MEMORY;
    runner->marks = alloc_input(runner, tokens, sizeof *runner->marks, err);
    return runner->marks != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

static void close_inputs(struct plec_runner *runner) {
    if (runner->device == NULL) return;
    plec_pinned_free(runner->device, runner->x);
    plec_pinned_free(runner->device, runner->ids);
    plec_pinned_free(runner->device, runner->weights_f32);
    plec_pinned_free(runner->device, runner->marks);
}

static enum plec_status open_buffers(struct plec_runner *runner, struct plec_error *err) {
    uint64_t tokens = runner->max_tokens, slots = tokens * runner->max_slots;
    struct plec_arena *arena = &runner->buffers;
    runner->weights = plec_arena_alloc(arena, slots, sizeof *runner->weights, err);
    if (runner->weights == NULL) return PLEC_NO_MEMORY;
    runner->unrouted = plec_arena_alloc(arena, tokens, sizeof *runner->unrouted, err);
    if (runner->unrouted == NULL) return PLEC_NO_MEMORY;
    runner->scratch =
        plec_arena_alloc(arena, scratch_doubles(runner), sizeof *runner->scratch, err);
    return runner->scratch != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

/* Layers that stream: routed, with experts to choose from. */
static bool streams(const struct plec_runner_layer *layer,
                    const struct plec_runner_options *options) {
    return options->stream.device_budget != 0 && !layer->bound.dense &&
           layer->bound.layer.routed.n_entries > 1;
}

/* Whether a layer's routing can stay on the device: where experts are streamed the host has to know
 * it, and some routers read what is not there. */
static bool device_routes(const struct plec_runner *runner, const struct plec_runner_layer *layer,
                          const struct plec_runner_options *options) {
    const struct plec_bound_layer *bound = &layer->bound;
    return runner->needs_upload && !options->host_router && !bound->dense &&
           bound->token_table == NULL && !bound->router_input_required &&
           plec_matrix_present(&bound->layer.router.weight) && !streams(layer, options) &&
           plec_device_routes(runner->device, &bound->layer.router);
}

static enum plec_status open_step(struct plec_runner *runner,
                                  const struct plec_runner_options *options,
                                  struct plec_error *err) {
    if (runner->reference) return PLEC_OK;
    struct plec_arena scratch = {NULL};
    const struct plec_layer **layers =
        plec_arena_alloc(&scratch, runner->n_layers, sizeof *layers, err);
    if (layers == NULL) return PLEC_NO_MEMORY;
    struct plec_step_limits limits = {runner->max_tokens, runner->max_slots, false};
    for (size_t i = 0; i < runner->n_layers; i++) {
        struct plec_runner_layer *layer = &runner->layers[i];
        layers[i] = &layer->bound.layer;
        layer->routes = device_routes(runner, layer, options);
        limits.routes = limits.routes || layer->routes;
    }
    enum plec_status status =
        plec_step_open(&runner->step, runner->device, layers, runner->n_layers, &limits, err);
    plec_arena_close(&scratch);
    return status;
}

static uint32_t list_streamed(struct plec_streamer_layer *out, struct plec_runner *runner,
                              const struct plec_runner_options *options) {
    uint32_t n = 0;
    for (size_t i = 0; i < runner->n_layers; i++) {
        struct plec_runner_layer *layer = &runner->layers[i];
        if (!streams(layer, options)) continue;
        layer->streamed = n;
        runner->streamed[n] = (uint32_t)i;
        out[n++] = (struct plec_streamer_layer){layer->number, &layer->bound.layer.routed};
    }
    return n;
}

static enum plec_status open_ahead(struct plec_runner *runner, struct plec_error *err) {
    uint64_t n = (uint64_t)PLEC_AHEAD_TOKENS * runner->max_slots;
    runner->ahead_ids = plec_arena_alloc(&runner->buffers, n, sizeof *runner->ahead_ids, err);
    if (runner->ahead_ids == NULL) return PLEC_NO_MEMORY;
    runner->ahead_weights =
        plec_arena_alloc(&runner->buffers, n, sizeof *runner->ahead_weights, err);
    return runner->ahead_weights != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

static enum plec_status open_streamer(struct plec_runner *runner, struct plec_container *container,
                                      const struct plec_runner_options *options,
                                      struct plec_error *err) {
    if (options->stream.device_budget == 0) return PLEC_OK;
    if (runner->reference)
        return plec_fail(err, PLEC_BAD_INPUT, "NothingToStream",
                         "the reference reads experts where their files are mapped");
    struct plec_streamer_layer *layers =
        plec_arena_alloc(&runner->buffers, runner->n_layers, sizeof *layers, err);
    runner->streamed =
        plec_arena_alloc(&runner->buffers, runner->n_layers, sizeof *runner->streamed, err);
    if (layers == NULL || runner->streamed == NULL) return PLEC_NO_MEMORY;
    uint32_t n = list_streamed(layers, runner, options);
    if (n == 0) {
        plec_log_write(&options->log, PLEC_LOG_RUN, "no layer has routed experts to stream");
        return PLEC_OK;
    }
    struct plec_stream_options stream = options->stream;
    if (stream.trace.event == NULL) stream.trace = plec_tracer_of_stream(runner->tracer);
    struct plec_streamer_args args = {.device = runner->device,
                                      .container = container,
                                      .layers = layers,
                                      .n_layers = n,
                                      .options = &stream,
                                      .log = options->log};
    runner->ahead = options->stream.speculation != PLEC_SPECULATE_OFF;
    enum plec_status status = open_ahead(runner, err);
    if (status == PLEC_OK) status = plec_streamer_open(&runner->streamer, &args, err);
    return status;
}

/* Says so where a layer does not run what was asked for. */
static void say_kernels(const struct plec_runner_layer *layer,
                        const struct plec_runner_options *options) {
    if (!asks_for_rung(options)) return;
    const char *at = layer->kernels;
    bool all = true;
    while (*at != '\0') { /* "gate q8_0 mm_sync, up ...": a part for each operand */
        size_t n = strcspn(at, ","), name = strlen(options->rung);
        all = all && n > name && strncmp(at + n - name, options->rung, name) == 0;
        at += n + (at[n] == ',' ? 2 : 0);
    }
    if (!all)
        plec_log_write(&options->log, PLEC_LOG_RUN, "layer %u: asked for %s, runs %s",
                       layer->number, options->rung, layer->kernels);
}

/* Gives every layer the weights that launches read: the host's own, or copies of them. */
static enum plec_status upload_layers(struct plec_runner *runner,
                                      const struct plec_runner_options *options,
                                      struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < runner->n_layers; i++) {
        struct plec_runner_layer *layer = &runner->layers[i];
        layer->on_device = layer->bound.layer;
        if (runner->device != NULL)
            plec_device_experts_kernels(layer->kernels, runner->device, &layer->on_device.routed);
        if (runner->needs_upload) say_kernels(layer, options);
        if (!runner->needs_upload) continue;
        unsigned parts = (layer->streamed == PLEC_NOT_STREAMED ? PLEC_UPLOAD_ROUTED : 0) |
                         (layer->routes ? PLEC_UPLOAD_ROUTER : 0);
        status = plec_upload_open(&layer->upload, &layer->on_device, runner->device,
                                  &layer->bound.layer, parts, err);
        if (status != PLEC_OK)
            plec_error_context(err, "weights of layer %u on the device", layer->number);
    }
    return status;
}

static void set_limits(struct plec_runner *runner, const struct plec_runner_options *options) {
    runner->max_tokens = options->max_tokens != 0 ? options->max_tokens : DEFAULT_MAX_TOKENS;
    runner->max_slots = options->max_slots;
    for (size_t i = 0; i < runner->n_layers; i++) {
        uint32_t top_k = runner->layers[i].bound.layer.router.top_k;
        if (top_k > runner->max_slots) runner->max_slots = top_k;
    }
}

enum plec_status plec_runner_open(struct plec_runner **out, struct plec_container *container,
                                  const struct plec_runner_options *options,
                                  struct plec_error *err) {
    static const struct plec_runner_options defaults;
    struct plec_error own;
    if (options == NULL) options = &defaults;
    if (err == NULL) err = &own;
    *out = NULL;
    struct plec_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "runner");
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&runner->lock, NULL);
    pthread_cond_init(&runner->idle, &monotonic);
    pthread_condattr_destroy(&monotonic);
    if (plec_tracer_active(options->tracer)) runner->tracer = options->tracer;
    enum plec_status status = bind_layers(runner, container, options, err);
    if (status == PLEC_OK) status = open_device(runner, options, err);
    if (status == PLEC_OK) set_limits(runner, options);
    if (status == PLEC_OK) status = open_inputs(runner, err);
    if (status == PLEC_OK) status = open_buffers(runner, err);
    if (status == PLEC_OK) status = open_step(runner, options, err);
    if (status == PLEC_OK) status = open_streamer(runner, container, options, err);
    if (status == PLEC_OK) status = upload_layers(runner, options, err);
    if (status != PLEC_OK) {
        plec_runner_close(runner);
        return status;
    }
    plec_log_write(&options->log, PLEC_LOG_RUN, "device: %s", runner->device_name);
    *out = runner;
    return PLEC_OK;
}

void plec_runner_close(struct plec_runner *runner) {
    if (runner == NULL) return;
    plec_streamer_close(runner->streamer);
    for (size_t i = 0; i < runner->n_layers; i++)
        plec_step_graphs_close(&runner->layers[i].graphs);
    plec_step_close(&runner->step);
    for (size_t i = 0; i < runner->n_layers; i++)
        plec_upload_close(&runner->layers[i].upload);
    close_inputs(runner);
    plec_device_close(runner->device);
    plec_arena_close(&runner->buffers);
    for (size_t i = 0; i < runner->n_layers; i++)
        plec_bound_layer_close(&runner->layers[i].bound);
    free(runner->layers);
    pthread_cond_destroy(&runner->idle);
    pthread_mutex_destroy(&runner->lock);
    free(runner);
}

/* --- views ----------------------------------------------------------------------------------- */

struct plec_runner_layer *plec_runner_find_layer(const struct plec_runner *runner,
                                                 uint32_t number) {
    for (size_t i = 0; i < runner->n_layers; i++)
        if (runner->layers[i].number == number) return &runner->layers[i];
    return NULL;
}

const struct plec_bound_layer *plec_runner_layer(const struct plec_runner *runner, uint32_t layer) {
    const struct plec_runner_layer *found = plec_runner_find_layer(runner, layer);
    return found != NULL ? &found->bound : NULL;
}

bool plec_runner_stream_stats(struct plec_stream_stats *out, const struct plec_runner *runner) {
    memset(out, 0, sizeof *out);
    if (runner->streamer == NULL) return false;
    plec_streamer_get_stats(out, runner->streamer);
    return true;
}

bool plec_runner_graph_stats(struct plec_graph_stats *out, const struct plec_runner *runner) {
    *out = runner->graphs ? runner->step.stats : (struct plec_graph_stats){0};
    return runner->graphs;
}

struct plec_streamer *plec_runner_streamer(const struct plec_runner *runner) {
    return runner->streamer;
}

uint32_t plec_runner_stream_index(const struct plec_runner *runner, uint32_t layer) {
    const struct plec_runner_layer *found = plec_runner_find_layer(runner, layer);
    return found != NULL ? found->streamed : PLEC_NOT_STREAMED;
}

const char *plec_runner_kernels(const struct plec_runner *runner, uint32_t layer) {
    const struct plec_runner_layer *found = plec_runner_find_layer(runner, layer);
    return found != NULL && found->kernels[0] != '\0' ? found->kernels : NULL;
}

enum plec_run_device plec_runner_device(const struct plec_runner *runner) {
    struct plec_device_info info;
    if (runner->device == NULL) return PLEC_RUN_REFERENCE;
    plec_device_get_info(&info, runner->device);
    return info.kind == PLEC_DEVICE_CUDA ? PLEC_RUN_CUDA : PLEC_RUN_CPU;
}

const char *plec_runner_device_name(const struct plec_runner *runner) {
    return runner->device_name;
}
