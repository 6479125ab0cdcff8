/* One step of one layer: checks, routing, the experts, and what cannot be routed. */
#include <math.h>
#include <string.h>
#include <time.h>

#include "device/reference/reference.h"
#include "host/router.h"
#include "host/runner_parts.h"
#include "lyrw/codec/bits.h"

/* How long a forward that can be ended waits for its turn before it looks again. */
static const uint64_t LOOK_NS = 50000000;

static enum plec_status check_routing(const struct plec_runner *runner,
                                      const struct plec_bound_layer *layer,
                                      const struct plec_forward_args *args,
                                      struct plec_error *err) {
    if ((args->ids == NULL) != (args->weights == NULL))
        return plec_fail(err, PLEC_BAD_INPUT, "RoutingIncomplete",
                         "ids and weights are given together or not at all");
    if (args->ids != NULL && args->n_slots == 0)
        return plec_fail(err, PLEC_BAD_INPUT, "NoSlots",
                         "the routing has no slots: a token has no expert");
    if (args->ids != NULL && args->n_slots > runner->max_slots)
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

/* Whether this layer's hidden states may be shown to another layer's router. */
static bool can_try_router(const struct plec_bound_layer *next, uint32_t hidden_size) {
    const struct plec_router *router = &next->layer.router;
    return !next->routing_required && !next->router_input_required && next->token_table == NULL &&
           plec_matrix_present(&router->weight) && router->input_dim == hidden_size;
}

/* A forward whose experts were asked for. */
struct awaited {
    struct plec_runner *runner;
    const struct plec_runner_layer *layer;
    uint32_t n_tokens;
};

/* Shows the hidden states to the router of the layer that is likely to run next: what it chooses is
 * a guess. Experts of this layer are on their way meanwhile. */
static void try_next_router(void *user) {
    const struct awaited *awaited = user;
    struct plec_runner *runner = awaited->runner;
    uint32_t next = plec_streamer_layer_after(runner->streamer, awaited->layer->streamed);
    if (next == PLEC_NOT_STREAMED) return;
    const struct plec_bound_layer *bound = &runner->layers[runner->streamed[next]].bound;
    if (!can_try_router(bound, awaited->layer->bound.layer.hidden_size)) return;
    bool unrouted[PLEC_AHEAD_TOKENS];
    struct plec_routing_args routing = {.layer = bound,
                                        .n_tokens = awaited->n_tokens,
                                        .x = runner->x,
                                        .ids = runner->ahead_ids,
                                        .weights = runner->ahead_weights,
                                        .unrouted = unrouted,
                                        .scratch = runner->scratch};
    uint32_t number = runner->layers[runner->streamed[next]].number;
    plec_tracer_begin(runner->tracer, PLEC_TRACE_LOOK_AHEAD, number, awaited->n_tokens);
    enum plec_status status = plec_router_route(&routing, NULL);
    plec_tracer_end(runner->tracer, PLEC_TRACE_LOOK_AHEAD, number, status);
    if (status != PLEC_OK) return;
    struct plec_expectation expectation = {.why = PLEC_FROM_NEXT_ROUTER,
                                           .layer = next,
                                           .ids = runner->ahead_ids,
                                           .n_ids = awaited->n_tokens * bound->layer.router.top_k};
    plec_streamer_expect(runner->streamer, &expectation);
}

/* When a forward is to end before it is whole. */
struct stop {
    const struct plec_runner *runner;
    const struct plec_forward_args *args;
    uint64_t deadline_ns; /* of the streamer's clock, or CLOCK_MONOTONIC; 0: none */
};

static uint64_t now_ns(const struct plec_runner *runner) {
    if (runner->streamer != NULL) return plec_streamer_now(runner->streamer);
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static uint64_t deadline_of(const struct plec_runner *runner,
                            const struct plec_forward_args *args) {
    if (args->timeout_ns == 0) return 0;
    uint64_t now = now_ns(runner);
    return args->timeout_ns < UINT64_MAX - now ? now + args->timeout_ns : UINT64_MAX;
}

static enum plec_status may_go_on(void *user, struct plec_error *err) {
    const struct stop *stop = user;
    const struct plec_forward_args *args = stop->args;
    if (args->cancelled != NULL && args->cancelled(args->cancelled_user))
        return plec_fail(err, PLEC_CANCELLED, "Cancelled", "by the caller");
    if (stop->deadline_ns != 0 && now_ns(stop->runner) >= stop->deadline_ns)
        return plec_fail(err, PLEC_CANCELLED, "DeadlinePast", "not done after %llu us",
                         (unsigned long long)args->timeout_ns / 1000);
    return PLEC_OK;
}

/* Until the runner is idle, or it is time to look at the stop again. The lock is held. */
static void wait_a_while(struct plec_runner *runner, const struct stop *stop) {
    struct timespec until;
    uint64_t left = LOOK_NS, now = now_ns(runner);
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (stop->deadline_ns > now && stop->deadline_ns - now < left) left = stop->deadline_ns - now;
    uint64_t ns = (uint64_t)until.tv_nsec + left;
    until.tv_sec += (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait(&runner->idle, &runner->lock, &until);
}

/* Takes the runner, unless the forward is to end before its turn comes. */
static enum plec_status take_turn(struct plec_runner *runner, struct stop *stop,
                                  struct plec_error *err) {
    bool stops = stop->deadline_ns != 0 || stop->args->cancelled != NULL;
    enum plec_status status = may_go_on(stop, err);
    pthread_mutex_lock(&runner->lock);
    while (status == PLEC_OK && runner->busy) {
        if (stops)
            wait_a_while(runner, stop);
        else
            pthread_cond_wait(&runner->idle, &runner->lock);
        if (runner->busy) status = may_go_on(stop, err);
    }
    if (status == PLEC_OK) runner->busy = true;
    pthread_mutex_unlock(&runner->lock);
    return status;
}

static void give_turn(struct plec_runner *runner) {
    pthread_mutex_lock(&runner->lock);
    runner->busy = false;
    pthread_cond_signal(&runner->idle);
    pthread_mutex_unlock(&runner->lock);
}

/* routing: NULL, or where the device that routes puts it. */
static enum plec_status compute(struct plec_runner *runner, struct plec_runner_layer *from,
                                struct stop *stop, uint32_t n_slots,
                                const struct plec_step_routing *routing, struct plec_error *err) {
    const struct plec_forward_args *args = stop->args;
    const struct plec_layer *layer = &from->bound.layer;
    if (runner->reference) {
        enum plec_status status = may_go_on(stop, err);
        if (status != PLEC_OK) return status;
        struct plec_reference_args reference = {.layer = layer,
                                                .n_tokens = args->n_tokens,
                                                .n_slots = n_slots,
                                                .x = runner->x,
                                                .ids = runner->ids,
                                                .weights = runner->weights,
                                                .routed_only = args->routed_only,
                                                .y = args->out,
                                                .scratch = runner->scratch,
                                                .rule = runner->bf16_rule ? PLEC_REFERENCE_BF16
                                                                          : PLEC_REFERENCE_EXACT};
        plec_reference_layer(&reference);
        return PLEC_OK;
    }
    struct awaited awaited = {runner, from, args->n_tokens};
    struct plec_step_source source = {
        .streamer = runner->streamer,
        .dispatch = {.layer = from->streamed,
                     .deadline_ns = stop->deadline_ns,
                     .cancelled = args->cancelled,
                     .user = args->cancelled_user},
        .meanwhile = runner->ahead && args->n_tokens <= PLEC_AHEAD_TOKENS ? try_next_router : NULL,
        .user = &awaited};
    struct plec_step_args step = {.layer = &from->on_device,
                                  .n_tokens = args->n_tokens,
                                  .n_slots = n_slots,
                                  .x = runner->x,
                                  .ids = runner->ids,
                                  .weights = runner->weights_f32,
                                  .routing = routing,
                                  .routed_only = args->routed_only,
                                  .graphs = runner->graphs ? &from->graphs : NULL,
                                  .source = from->streamed != PLEC_NOT_STREAMED ? &source : NULL,
                                  .may_go_on = may_go_on,
                                  .user = stop,
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

static void give_routing(const struct plec_runner *runner, const struct plec_forward_args *args,
                         uint32_t n_slots) {
    size_t n = (size_t)args->n_tokens * n_slots;
    if (args->ids_out != NULL) memcpy(args->ids_out, runner->ids, n * sizeof *args->ids_out);
    if (args->weights_out != NULL)
        memcpy(args->weights_out, runner->weights_f32, n * sizeof *args->weights_out);
}

/* Widened hidden states are in runner->x. */
static enum plec_status forward_routed_here(struct plec_runner *runner,
                                            struct plec_runner_layer *from, struct stop *stop,
                                            struct plec_error *err) {
    const struct plec_forward_args *args = stop->args;
    const struct plec_bound_layer *layer = &from->bound;
    uint32_t hidden_size = layer->layer.hidden_size, n_slots = 0;
    enum plec_status routed = route(runner, &n_slots, layer, args, err);
    plec_tracer_end(runner->tracer, PLEC_TRACE_ROUTE, from->number, routed);
    bool some_unrouted = routed == PLEC_BAD_INPUT && strcmp(err->name, "NanScores") == 0;
    if (routed != PLEC_OK && !some_unrouted) return routed;
    routed = settle_unrouted(runner, args, hidden_size, n_slots, routed, err);
    size_t n = (size_t)args->n_tokens * n_slots;
    for (size_t i = 0; i < n; i++)
        runner->weights_f32[i] = (float)runner->weights[i];
    struct plec_error compute_error;
    enum plec_status status = compute(runner, from, stop, n_slots, NULL, &compute_error);
    if (status != PLEC_OK) {
        *err = compute_error;
        return status;
    }
    blank_unrouted(runner, args, hidden_size, n_slots);
    give_routing(runner, args, n_slots);
    return routed;
}

/* What is wrong with a token that the device could not route, in the words of the host's router. */
static enum plec_status explain_unrouted(struct plec_runner *runner,
                                         const struct plec_bound_layer *layer, uint32_t first_token,
                                         uint32_t token, struct plec_error *err) {
    uint32_t top_k = layer->layer.router.top_k;
    struct plec_routing_args routing = {.layer = layer,
                                        .n_tokens = 1,
                                        .first_token = first_token + token,
                                        .x = runner->x + (size_t)token * layer->layer.hidden_size,
                                        .ids = runner->ids + (size_t)token * top_k,
                                        .weights = runner->weights,
                                        .unrouted = runner->unrouted + token,
                                        .scratch = runner->scratch};
    if (plec_router_route(&routing, err) == PLEC_BAD_INPUT) return PLEC_BAD_INPUT;
    runner->unrouted[token] = true;
    return plec_fail(err, PLEC_BAD_INPUT, "NanScores",
                     "token %u: its scores are no numbers on the device", first_token + token);
}

/* The same with the router's work among the device's: nothing comes back before the output. */
static enum plec_status forward_routed_there(struct plec_runner *runner,
                                             struct plec_runner_layer *from, struct stop *stop,
                                             struct plec_error *err) {
    const struct plec_forward_args *args = stop->args;
    const struct plec_router *router = &from->bound.layer.router;
    struct plec_step_routing routing = {runner->ids, runner->weights_f32, runner->marks};
    plec_tracer_end(runner->tracer, PLEC_TRACE_ROUTE, from->number, PLEC_OK);
    enum plec_status status = compute(runner, from, stop, router->top_k, &routing, err);
    if (status != PLEC_OK) return status;
    enum plec_status routed = PLEC_OK;
    for (uint32_t t = 0; t < args->n_tokens; t++) {
        runner->unrouted[t] = runner->marks[t] != 0;
        if (runner->unrouted[t] && routed == PLEC_OK)
            routed = explain_unrouted(runner, &from->bound, args->first_token, t, err);
    }
    blank_unrouted(runner, args, from->bound.layer.hidden_size, router->top_k);
    give_routing(runner, args, router->top_k);
    return routed;
}

/* A token with a NaN is the host's to tell of; another vector to route by is there alone. */
static enum plec_status forward(struct plec_runner *runner, struct plec_runner_layer *from,
                                struct stop *stop, struct plec_error *err) {
    const struct plec_forward_args *args = stop->args;
    size_t n = (size_t)args->n_tokens * from->bound.layer.hidden_size;
    plec_tracer_begin(runner->tracer, PLEC_TRACE_ROUTE, from->number, args->n_tokens);
    widen(runner->x, args->hidden, args->hidden_type, n);
    bool by_hidden = args->ids == NULL && args->router_input == NULL;
    if (from->routes && by_hidden && find_nan(runner->x, n) == n)
        return forward_routed_there(runner, from, stop, err);
    return forward_routed_here(runner, from, stop, err);
}

enum plec_status plec_runner_forward(struct plec_runner *runner,
                                     const struct plec_forward_args *args, struct plec_error *err) {
    struct plec_error own;
    if (err == NULL) err = &own;
    struct plec_runner_layer *layer = plec_runner_find_layer(runner, args->layer);
    if (layer == NULL)
        return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "layer %u is not open in this runner",
                         args->layer);
    if (args->n_tokens == 0) return PLEC_OK;
    struct stop stop = {runner, args, deadline_of(runner, args)};
    enum plec_status status = check_args(runner, &layer->bound, args, err);
    if (status == PLEC_OK) {
        status = take_turn(runner, &stop, err);
        if (status == PLEC_OK) {
            plec_tracer_begin(runner->tracer, PLEC_TRACE_LAYER, args->layer, args->n_tokens);
            status = forward(runner, layer, &stop, err);
            plec_tracer_end(runner->tracer, PLEC_TRACE_LAYER, args->layer, status);
            give_turn(runner);
        }
    }
    if (status != PLEC_OK) plec_error_context(err, "layer %u", args->layer);
    return status;
}
