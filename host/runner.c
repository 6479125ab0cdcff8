#include "host/runner.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "device/reference/reference.h"
#include "host/router.h"
#include "host/step.h"
#include "lyrw/codec/bits.h"
#include "lyrw/cursor.h"

enum { DEFAULT_MAX_TOKENS = 4096 };

struct runner_layer {
    uint32_t number;
    struct plec_bound_layer bound;
};

struct plec_runner {
    pthread_mutex_t lock; /* one forward at a time: the buffers below are its own */
    bool reference;
    struct plec_device *device; /* NULL on the reference */
    char device_name[128];
    struct runner_layer *layers; /* [n_layers] */
    size_t n_layers;
    uint32_t max_tokens, max_slots;

    struct plec_arena buffers; /* holds all of these */
    float *x;                  /* [max_tokens, widest hidden] */
    int32_t *ids;              /* [max_tokens, max_slots] */
    double *weights;           /* [max_tokens, max_slots] */
    float *weights_f32;        /* [max_tokens, max_slots] */
    bool *unrouted;            /* [max_tokens] */
    double *scratch;           /* of the router or the reference executor, never both at once */
    struct plec_step step;     /* closed on the reference */
};

static size_t larger(size_t a, size_t b) {
    return a > b ? a : b;
}

/* --- open ------------------------------------------------------------------------------------ */

static enum plec_status bind_one(struct plec_runner *runner, struct plec_container *container,
                                 uint32_t number, struct plec_error *err) {
    struct runner_layer *layer = &runner->layers[runner->n_layers];
    layer->number = number;
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

static enum plec_status open_device(struct plec_runner *runner,
                                    const struct plec_runner_options *options,
                                    struct plec_error *err) {
    if (options->device == PLEC_RUN_REFERENCE) {
        runner->reference = true;
        strcpy(runner->device_name, "reference");
        return PLEC_OK;
    }
    enum plec_device_kind kind =
        options->device == PLEC_RUN_CUDA ? PLEC_DEVICE_CUDA : PLEC_DEVICE_CPU;
    struct plec_device_options device = {.n_threads = options->n_threads,
                                         .plain_c = options->plain_c};
    enum plec_status status = plec_device_open(&runner->device, kind, &device, err);
    if (status != PLEC_OK) return status;
    struct plec_device_info info;
    plec_device_get_info(&info, runner->device);
    memcpy(runner->device_name, info.name, sizeof runner->device_name);
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

static enum plec_status open_buffers(struct plec_runner *runner, struct plec_error *err) {
    size_t hidden = 1;
    for (size_t i = 0; i < runner->n_layers; i++)
        hidden = larger(hidden, runner->layers[i].bound.layer.hidden_size);
    uint64_t tokens = runner->max_tokens, slots = tokens * runner->max_slots;
    struct plec_arena *arena = &runner->buffers;
    runner->x = plec_arena_alloc(arena, tokens, hidden * sizeof *runner->x, err);
    if (runner->x == NULL) return PLEC_NO_MEMORY;
    runner->ids = plec_arena_alloc(arena, slots, sizeof *runner->ids, err);
    if (runner->ids == NULL) return PLEC_NO_MEMORY;
    runner->weights = plec_arena_alloc(arena, slots, sizeof *runner->weights, err);
    if (runner->weights == NULL) return PLEC_NO_MEMORY;
    runner->weights_f32 = plec_arena_alloc(arena, slots, sizeof *runner->weights_f32, err);
    if (runner->weights_f32 == NULL) return PLEC_NO_MEMORY;
    runner->unrouted = plec_arena_alloc(arena, tokens, sizeof *runner->unrouted, err);
    if (runner->unrouted == NULL) return PLEC_NO_MEMORY;
    runner->scratch =
        plec_arena_alloc(arena, scratch_doubles(runner), sizeof *runner->scratch, err);
    return runner->scratch != NULL ? PLEC_OK : PLEC_NO_MEMORY;
}

static enum plec_status open_step(struct plec_runner *runner, struct plec_error *err) {
    if (runner->reference) return PLEC_OK;
    struct plec_arena scratch = {NULL};
    const struct plec_layer **layers =
        plec_arena_alloc(&scratch, runner->n_layers, sizeof *layers, err);
    if (layers == NULL) return PLEC_NO_MEMORY;
    for (size_t i = 0; i < runner->n_layers; i++)
        layers[i] = &runner->layers[i].bound.layer;
    struct plec_step_limits limits = {runner->max_tokens, runner->max_slots};
    enum plec_status status =
        plec_step_open(&runner->step, runner->device, layers, runner->n_layers, &limits, err);
    plec_arena_close(&scratch);
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
    if (options == NULL) options = &defaults;
    *out = NULL;
    struct plec_runner *runner = calloc(1, sizeof *runner);
    if (runner == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "runner");
    pthread_mutex_init(&runner->lock, NULL);
    enum plec_status status = bind_layers(runner, container, options, err);
    if (status == PLEC_OK) status = open_device(runner, options, err);
    if (status == PLEC_OK) set_limits(runner, options);
    if (status == PLEC_OK) status = open_buffers(runner, err);
    if (status == PLEC_OK) status = open_step(runner, err);
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
    plec_step_close(&runner->step);
    plec_device_close(runner->device);
    plec_arena_close(&runner->buffers);
    for (size_t i = 0; i < runner->n_layers; i++)
        plec_bound_layer_close(&runner->layers[i].bound);
    free(runner->layers);
    pthread_mutex_destroy(&runner->lock);
    free(runner);
}

/* --- forward --------------------------------------------------------------------------------- */

static const struct plec_bound_layer *find_layer(const struct plec_runner *runner,
                                                 uint32_t number) {
    for (size_t i = 0; i < runner->n_layers; i++)
        if (runner->layers[i].number == number) return &runner->layers[i].bound;
    return NULL;
}

static enum plec_status check_routing(const struct plec_runner *runner,
                                      const struct plec_bound_layer *layer,
                                      const struct plec_forward_args *args,
                                      struct plec_error *err) {
    if ((args->ids == NULL) != (args->weights == NULL))
        return plec_fail(err, PLEC_BAD_INPUT, "RoutingIncomplete",
                         "ids and weights are given together or not at all");
    if (args->ids != NULL && (args->n_slots == 0 || args->n_slots > runner->max_slots))
        return plec_fail(err, PLEC_BAD_INPUT, "TooManySlots",
                         "the routing has %u slots a token, the runner takes 1 to %u",
                         args->n_slots, runner->max_slots);
    if (args->ids != NULL)
        return plec_router_check_ids(
            &(struct plec_router_given){.ids = args->ids,
                                        .n_tokens = args->n_tokens,
                                        .n_slots = args->n_slots,
                                        .n_experts = layer->layer.router.n_experts,
                                        .first_token = args->first_token},
            err);
    if (layer->routing_required)
        return plec_fail(err, PLEC_BAD_INPUT, "RoutingRequired",
                         "the container holds no router weights: give ids and weights");
    if (layer->router_input_required && args->router_input == NULL)
        return plec_fail(err, PLEC_BAD_INPUT, "RouterInputRequired",
                         "the router reads another vector than the experts: give it");
    if (layer->token_table != NULL && args->token_ids == NULL)
        return plec_fail(err, PLEC_BAD_INPUT, "TokenIdsRequired",
                         "the experts are chosen by token id: give the token ids");
    return PLEC_OK;
}

static enum plec_status check_args(const struct plec_runner *runner,
                                   const struct plec_bound_layer *layer,
                                   const struct plec_forward_args *args, struct plec_error *err) {
    if (args->n_tokens > runner->max_tokens)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManyTokens", "%u tokens, the runner takes %u",
                         args->n_tokens, runner->max_tokens);
    if (args->hidden == NULL || args->out == NULL)
        return plec_fail(err, PLEC_BAD_INPUT, "NoArray", "%s is NULL",
                         args->hidden == NULL ? "hidden" : "out");
    return check_routing(runner, layer, args, err);
}

static void widen(float *to, const void *from, enum plec_element type, size_t n) {
    const uint16_t *halves = from;
    switch (type) {
    case PLEC_ELEMENT_F32: memcpy(to, from, n * sizeof *to); return;
    case PLEC_ELEMENT_F16:
        for (size_t i = 0; i < n; i++)
            to[i] = plec_f16_f32(halves[i]);
        return;
    case PLEC_ELEMENT_BF16:
        for (size_t i = 0; i < n; i++)
            to[i] = plec_bf16_f32(halves[i]);
        return;
    }
}

/* The caller's routing, slot by slot. A weight that is no finite number leaves its token unrouted,
 * as a score would. */
static enum plec_status take_routing(struct plec_runner *runner,
                                     const struct plec_forward_args *args, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (size_t t = 0; t < args->n_tokens; t++) {
        runner->unrouted[t] = false;
        for (size_t i = t * args->n_slots; i < (t + 1) * args->n_slots; i++) {
            runner->ids[i] = args->ids[i];
            runner->weights[i] = args->weights[i];
            if (isfinite(args->weights[i])) continue;
            runner->unrouted[t] = true;
            if (status == PLEC_OK)
                status = plec_fail(err, PLEC_BAD_INPUT, "NanScores",
                                   "token %zu: the caller's weight of slot %zu is %g",
                                   args->first_token + t, i - t * args->n_slots,
                                   (double)args->weights[i]);
        }
    }
    return status;
}

static void route_to_the_only_one(struct plec_runner *runner, uint32_t n_tokens) {
    for (uint32_t t = 0; t < n_tokens; t++) {
        runner->ids[t] = 0;
        runner->weights[t] = 1;
        runner->unrouted[t] = false;
    }
}

/* Fills ids, weights and unrouted. *n_slots is set unless nothing could be routed. */
static enum plec_status route(struct plec_runner *runner, uint32_t *n_slots,
                              const struct plec_bound_layer *layer,
                              const struct plec_forward_args *args, struct plec_error *err) {
    if (args->ids != NULL) {
        *n_slots = args->n_slots;
        return take_routing(runner, args, err);
    }
    if (layer->dense) {
        *n_slots = 1;
        route_to_the_only_one(runner, args->n_tokens);
        return PLEC_OK;
    }
    *n_slots = layer->layer.router.top_k;
    struct plec_routing_args routing = {.layer = layer,
                                        .n_tokens = args->n_tokens,
                                        .first_token = args->first_token,
                                        .x = args->router_input != NULL ? args->router_input
                                                                        : runner->x,
                                        .token_ids = args->token_ids,
                                        .ids = runner->ids,
                                        .weights = runner->weights,
                                        .unrouted = runner->unrouted,
                                        .scratch = runner->scratch};
    return plec_router_route(&routing, err);
}

static enum plec_status compute(struct plec_runner *runner, const struct plec_layer *layer,
                                const struct plec_forward_args *args, uint32_t n_slots,
                                struct plec_error *err) {
    if (runner->reference) {
        struct plec_reference_args reference = {.layer = layer,
                                                .n_tokens = args->n_tokens,
                                                .n_slots = n_slots,
                                                .x = runner->x,
                                                .ids = runner->ids,
                                                .weights = runner->weights,
                                                .routed_only = args->routed_only,
                                                .y = args->out,
                                                .scratch = runner->scratch};
        plec_reference_layer(&reference);
        return PLEC_OK;
    }
    struct plec_step_args step = {.layer = layer,
                                  .n_tokens = args->n_tokens,
                                  .n_slots = n_slots,
                                  .x = runner->x,
                                  .ids = runner->ids,
                                  .weights = runner->weights_f32,
                                  .routed_only = args->routed_only,
                                  .y = args->out};
    return plec_step_run(&runner->step, &step, err);
}

static size_t find_nan(const float *values, size_t n) {
    size_t i = 0;
    while (i < n && !isnan(values[i]))
        i++;
    return i;
}

/* A NaN in a token's hidden state leaves it unrouted whoever routes: an activation that clamps
 * would hide it. What unrouted tokens are computed from is set to 0. *err names the first of all
 * unrouted tokens; `routed` is the status so far. */
static enum plec_status settle_unrouted(struct plec_runner *runner,
                                        const struct plec_forward_args *args, uint32_t hidden_size,
                                        uint32_t n_slots, enum plec_status routed,
                                        struct plec_error *err) {
    bool told = false;
    for (size_t t = 0; t < args->n_tokens; t++) {
        float *x = runner->x + t * hidden_size;
        size_t i = find_nan(x, hidden_size);
        if (!runner->unrouted[t] && i == hidden_size) continue;
        if (!told && !runner->unrouted[t])
            routed = plec_fail(err, PLEC_BAD_INPUT, "NanScores",
                               "token %zu: value %zu of its hidden state is NaN",
                               args->first_token + t, i);
        told = true;
        runner->unrouted[t] = true;
        memset(x, 0, hidden_size * sizeof *x);
        for (size_t j = t * n_slots; j < (t + 1) * n_slots; j++) {
            runner->ids[j] = 0;
            runner->weights[j] = 0;
        }
    }
    return routed;
}

/* A token that could not be routed has a NaN row and no experts. */
static void blank_unrouted(struct plec_runner *runner, const struct plec_forward_args *args,
                           uint32_t hidden_size, uint32_t n_slots) {
    for (size_t t = 0; t < args->n_tokens; t++) {
        if (!runner->unrouted[t]) continue;
        for (size_t i = 0; i < hidden_size; i++)
            args->out[t * hidden_size + i] = NAN;
        for (size_t i = t * n_slots; i < (t + 1) * n_slots; i++) {
            runner->ids[i] = -1;
            runner->weights_f32[i] = NAN;
        }
    }
}

static enum plec_status forward(struct plec_runner *runner, const struct plec_bound_layer *layer,
                                const struct plec_forward_args *args, struct plec_error *err) {
    uint32_t hidden_size = layer->layer.hidden_size, n_slots = 0;
    widen(runner->x, args->hidden, args->hidden_type, (size_t)args->n_tokens * hidden_size);
    enum plec_status routed = route(runner, &n_slots, layer, args, err);
    bool some_unrouted = routed == PLEC_BAD_INPUT && strcmp(err->name, "NanScores") == 0;
    if (routed != PLEC_OK && !some_unrouted) return routed;
    routed = settle_unrouted(runner, args, hidden_size, n_slots, routed, err);
    size_t n = (size_t)args->n_tokens * n_slots;
    for (size_t i = 0; i < n; i++)
        runner->weights_f32[i] = (float)runner->weights[i];
    struct plec_error compute_error;
    enum plec_status status = compute(runner, &layer->layer, args, n_slots, &compute_error);
    if (status != PLEC_OK) {
        *err = compute_error;
        return status;
    }
    blank_unrouted(runner, args, hidden_size, n_slots);
    if (args->ids_out != NULL) memcpy(args->ids_out, runner->ids, n * sizeof *args->ids_out);
    if (args->weights_out != NULL)
        memcpy(args->weights_out, runner->weights_f32, n * sizeof *args->weights_out);
    return routed;
}

enum plec_status plec_runner_forward(struct plec_runner *runner,
                                     const struct plec_forward_args *args, struct plec_error *err) {
    struct plec_error own;
    if (err == NULL) err = &own;
    const struct plec_bound_layer *layer = find_layer(runner, args->layer);
    if (layer == NULL)
        return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "layer %u is not open in this runner",
                         args->layer);
    if (args->n_tokens == 0) return PLEC_OK;
    enum plec_status status = check_args(runner, layer, args, err);
    if (status == PLEC_OK) {
        pthread_mutex_lock(&runner->lock);
        status = forward(runner, layer, args, err);
        pthread_mutex_unlock(&runner->lock);
    }
    if (status != PLEC_OK) plec_error_context(err, "layer %u", args->layer);
    return status;
}

const struct plec_bound_layer *plec_runner_layer(const struct plec_runner *runner, uint32_t layer) {
    return find_layer(runner, layer);
}

const char *plec_runner_device_name(const struct plec_runner *runner) {
    return runner->device_name;
}
