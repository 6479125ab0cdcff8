#include "host/step.h"

#include <string.h>

#include "lyrw/cursor.h"

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* The widest row of each buffer over all layers. */
struct widths {
    uint64_t hidden, latent, routed, workspace;
};

static bool add_bank(struct widths *widths, const struct plec_device *device,
                     const struct plec_bank *bank, uint32_t max_tokens, uint32_t n_slots) {
    uint64_t n_bytes = 0;
    if (bank->n_entries == 0 || n_slots == 0) return true;
    if (!plec_experts_workspace(&n_bytes, device, bank, max_tokens, n_slots)) return false;
    widths->workspace = larger(widths->workspace, n_bytes);
    return true;
}

static bool add_layer(struct widths *widths, const struct plec_device *device,
                      const struct plec_layer *layer, const struct plec_step_limits *limits) {
    uint64_t route = 0;
    if (limits->routes && plec_matrix_present(&layer->router.weight) &&
        !plec_route_workspace(&route, device, &layer->router, limits->max_tokens))
        return false;
    widths->workspace = larger(widths->workspace, route);
    widths->hidden = larger(widths->hidden, layer->hidden_size);
    widths->latent = larger(widths->latent, layer->latent_in.rows);
    if (plec_matrix_present(&layer->latent_out))
        widths->routed = larger(widths->routed, layer->routed.output_dim);
    return add_bank(widths, device, &layer->routed, limits->max_tokens, limits->max_slots) &&
           add_bank(widths, device, &layer->shared, limits->max_tokens, layer->shared.n_entries) &&
           add_bank(widths, device, &layer->dense, limits->max_tokens, layer->dense.n_entries);
}

/* One buffer of n * width elements of 4 bytes; none when that is 0. */
static enum plec_status alloc_rows(void *out, struct plec_step *step, uint64_t width,
                                   struct plec_error *err) {
    uint64_t n_bytes;
    void *memory = NULL;
    if (!plec_mul_u64(&n_bytes, width, step->max_tokens) || !plec_mul_u64(&n_bytes, n_bytes, 4))
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u rows of %llu values overflow",
                         step->max_tokens, (unsigned long long)width);
    if (n_bytes > 0) {
        enum plec_status status = plec_device_alloc(&memory, step->device, n_bytes, err);
        if (status != PLEC_OK) return status;
    }
    memcpy(out, &memory, sizeof memory);
    return PLEC_OK;
}

static enum plec_status alloc_all(struct plec_step *step, const struct widths *widths,
                                  const struct plec_step_limits *limits, struct plec_error *err) {
    void *unrouted = NULL;
    const struct {
        void *to;
        uint64_t width;
    } rows[] = {
        {&step->x, widths->hidden},
        {&step->y, widths->hidden},
        {&step->ids, limits->max_slots},
        {&step->weights, limits->max_slots},
        {&step->latent, widths->latent},
        {&step->routed, widths->routed},
        {&step->gate, 1},
    };
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < sizeof rows / sizeof rows[0]; i++)
        status = alloc_rows(rows[i].to, step, rows[i].width, err);
    if (status == PLEC_OK && widths->workspace > 0)
        status = plec_device_alloc(&step->workspace, step->device, widths->workspace, err);
    if (status == PLEC_OK && limits->routes)
        status = plec_device_alloc(&unrouted, step->device, limits->max_tokens, err);
    step->unrouted = unrouted;
    return status;
}

enum plec_status plec_step_open(struct plec_step *out, struct plec_device *device,
                                const struct plec_layer *const *layers, size_t n_layers,
                                const struct plec_step_limits *limits, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->device = device;
    out->max_tokens = limits->max_tokens;
    struct widths widths = {0};
    for (size_t i = 0; i < n_layers; i++)
        if (!add_layer(&widths, device, layers[i], limits))
            return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory",
                             "the workspace of %u tokens overflows", limits->max_tokens);
    enum plec_status status = plec_stream_open(&out->stream, device, err);
    if (status == PLEC_OK) plec_stream_set_name(out->stream, "plec-compute");
    if (status == PLEC_OK) status = alloc_all(out, &widths, limits, err);
    if (status != PLEC_OK) plec_step_close(out);
    return status;
}

void plec_step_close(struct plec_step *step) {
    if (step->stream != NULL) plec_stream_close(step->stream);
    void *const memory[] = {step->x,      step->y,    step->ids,       step->weights, step->latent,
                            step->routed, step->gate, step->workspace, step->unrouted};
    for (size_t i = 0; i < sizeof memory / sizeof memory[0]; i++)
        if (memory[i] != NULL) plec_device_free(step->device, memory[i]);
    memset(step, 0, sizeof *step);
}

static enum plec_status launch_linear(struct plec_step *step, const struct plec_matrix *matrix,
                                      const float *x, float *y, uint32_t n_tokens,
                                      struct plec_error *err) {
    struct plec_linear_args linear = {.matrix = *matrix, .x = x, .y = y, .n_tokens = n_tokens};
    return plec_launch_linear(step->stream, &linear, err);
}

static enum plec_status may_go_on(const struct plec_step_args *args, struct plec_error *err) {
    return args->may_go_on != NULL ? args->may_go_on(args->user, err) : PLEC_OK;
}

/* The experts of each part as it arrives; every one of them, or no sum. */
static enum plec_status launch_parts(struct plec_step *step, const struct plec_step_args *args,
                                     struct plec_experts_args *experts, struct plec_error *err) {
    const struct plec_step_source *source = args->source;
    struct plec_stream_part part;
    experts->phase = PLEC_EXPERTS_BEGIN;
    enum plec_status status = plec_launch_experts(step->stream, experts, err);
    for (; status == PLEC_OK; status = plec_streamer_used(source->streamer, step->stream, err)) {
        status = may_go_on(args, err);
        if (status == PLEC_OK) status = plec_streamer_next(&part, source->streamer, err);
        if (status != PLEC_OK || part.n_experts == 0) break;
        experts->phase = PLEC_EXPERTS_PART;
        experts->part = part.experts;
        experts->n_part = part.n_experts;
        status = plec_launch_experts(step->stream, experts, err);
        if (status != PLEC_OK) break;
    }
    if (status != PLEC_OK) return status;
    experts->phase = PLEC_EXPERTS_FINISH;
    return plec_launch_experts(step->stream, experts, err);
}

static enum plec_status launch_streamed(struct plec_step *step, const struct plec_step_args *args,
                                        struct plec_experts_args *experts, struct plec_error *err) {
    const struct plec_step_source *source = args->source;
    struct plec_dispatch_args dispatch = source->dispatch;
    dispatch.ids = args->ids;
    dispatch.n_ids = (uint64_t)args->n_tokens * args->n_slots;
    plec_streamer_begin(&experts->bank, source->streamer, &dispatch);
    step->dispatching = true;
    if (source->meanwhile != NULL) source->meanwhile(source->user);
    return launch_parts(step, args, experts, err);
}

/* y = the routed part. */
static enum plec_status launch_routed(struct plec_step *step, const struct plec_step_args *args,
                                      struct plec_error *err) {
    const struct plec_layer *layer = args->layer;
    bool latent_in = plec_matrix_present(&layer->latent_in);
    bool latent_out = plec_matrix_present(&layer->latent_out);
    float *routed = latent_out ? step->routed : step->y;
    struct plec_experts_args experts = {.bank = &layer->routed,
                                        .ids = step->ids,
                                        .weights = step->weights,
                                        .n_tokens = args->n_tokens,
                                        .n_slots = args->n_slots,
                                        .weight_on_input = layer->router.weight_on_input,
                                        .x = latent_in ? step->latent : step->x,
                                        .y = routed,
                                        .workspace = step->workspace};
    struct plec_norm_args norm = {.x = routed,
                                  .gain = layer->routed_norm,
                                  .n_tokens = args->n_tokens,
                                  .width = layer->routed.output_dim,
                                  .eps = layer->norm_eps};
    enum plec_status status = PLEC_OK;
    if (latent_in)
        status = launch_linear(step, &layer->latent_in, step->x, step->latent, args->n_tokens, err);
    if (status == PLEC_OK)
        status = args->source != NULL ? launch_streamed(step, args, &experts, err)
                                      : plec_launch_experts(step->stream, &experts, err);
    if (status == PLEC_OK && layer->routed_norm != NULL)
        status = plec_launch_norm(step->stream, &norm, err);
    if (status == PLEC_OK && latent_out)
        status = launch_linear(step, &layer->latent_out, routed, step->y, args->n_tokens, err);
    return status;
}

/* y += every entry of a bank on x, times token_scale when there is one. */
static enum plec_status launch_all_entries(struct plec_step *step, const struct plec_bank *bank,
                                           const float *token_scale, uint32_t n_tokens,
                                           struct plec_error *err) {
    struct plec_experts_args experts = {.bank = bank,
                                        .token_scale = token_scale,
                                        .n_tokens = n_tokens,
                                        .n_slots = bank->n_entries,
                                        .accumulate = true,
                                        .x = step->x,
                                        .y = step->y,
                                        .workspace = step->workspace};
    return plec_launch_experts(step->stream, &experts, err);
}

static enum plec_status launch_shared(struct plec_step *step, const struct plec_step_args *args,
                                      struct plec_error *err) {
    const struct plec_layer *layer = args->layer;
    const float *scale = NULL;
    enum plec_status status = PLEC_OK;
    if (plec_matrix_present(&layer->shared_gate)) {
        scale = step->gate;
        status = launch_linear(step, &layer->shared_gate, step->x, step->gate, args->n_tokens, err);
        if (status == PLEC_OK)
            status = plec_launch_sigmoid(step->stream, step->gate, args->n_tokens, err);
    }
    if (status != PLEC_OK) return status;
    return launch_all_entries(step, &layer->shared, scale, args->n_tokens, err);
}

static enum plec_status launch_layer(struct plec_step *step, const struct plec_step_args *args,
                                     struct plec_error *err) {
    const struct plec_layer *layer = args->layer;
    uint64_t n_values = (uint64_t)args->n_tokens * layer->hidden_size;
    bool shared = layer->shared.n_entries > 0 && !args->routed_only;
    bool dense = layer->dense.n_entries > 0 && !args->routed_only;
    enum plec_status status = may_go_on(args, err);
    if (status != PLEC_OK) return status;
    status = layer->routed.n_entries > 0
                 ? launch_routed(step, args, err)
                 : plec_fill(step->y, 0, n_values * sizeof *step->y, step->stream, err);
    if (status == PLEC_OK && (shared || dense)) status = may_go_on(args, err);
    if (status == PLEC_OK && shared) status = launch_shared(step, args, err);
    if (status == PLEC_OK && dense)
        status = launch_all_entries(step, &layer->dense, NULL, args->n_tokens, err);
    if (status == PLEC_OK && layer->out_scale != 1.0)
        status = plec_launch_scale(step->stream, step->y, n_values, (float)layer->out_scale, err);
    return status;
}

/* The step's kernels, one after the other. */
static enum plec_status launch_kernels(struct plec_step *step, const struct plec_step_args *args,
                                       struct plec_error *err) {
    const struct plec_route_args route = {.router = &args->layer->router,
                                          .n_tokens = args->n_tokens,
                                          .x = step->x,
                                          .ids = step->ids,
                                          .weights = step->weights,
                                          .unrouted = step->unrouted,
                                          .workspace = step->workspace};
    enum plec_status status =
        args->routing != NULL ? plec_launch_route(step->stream, &route, err) : PLEC_OK;
    return status == PLEC_OK ? launch_layer(step, args, err) : status;
}

/* Captures the kernels of a step. The entries of its banks are made those of now first: other
 * layers may have had the device's tables since the step was launched. */
static enum plec_status capture(struct plec_step_graph *out, struct plec_step *step,
                                const struct plec_step_args *args, struct plec_error *err) {
    const struct plec_layer *layer = args->layer;
    const struct plec_bank *const banks[] = {&layer->routed, &layer->shared, &layer->dense};
    struct plec_step_args unasked = *args;
    unasked.may_go_on = NULL;
    enum plec_status status = PLEC_OK;
    for (int i = 0; i < 3 && status == PLEC_OK; i++)
        if (banks[i]->n_entries > 0) status = plec_graph_refresh(step->stream, banks[i], err);
    if (status == PLEC_OK) status = plec_graph_begin(step->stream, err);
    if (status != PLEC_OK) return status;
    status = launch_kernels(step, &unasked, err);
    enum plec_status ended =
        plec_graph_end(&out->graph, step->stream, status == PLEC_OK ? err : NULL);
    if (status != PLEC_OK) {
        plec_graph_close(out->graph);
        out->graph = NULL;
        return status;
    }
    if (ended == PLEC_OK) step->stats.captured++;
    return ended;
}

static enum plec_status launch(struct plec_step *step, const struct plec_step_args *args,
                               struct plec_error *err) {
    const struct plec_step_size size = {args->n_tokens, args->n_slots, args->routed_only,
                                        args->routing != NULL};
    bool fit = args->graphs != NULL && args->source == NULL && args->layer->routed.n_entries > 0;
    bool is_new = false;
    struct plec_step_graph *place =
        fit ? plec_step_graphs_find(&is_new, args->graphs, &size) : NULL;
    if (place == NULL || is_new) {
        step->stats.launched++;
        return launch_kernels(step, args, err);
    }
    enum plec_status status = may_go_on(args, err);
    if (status == PLEC_OK && place->graph == NULL) status = capture(place, step, args, err);
    if (status != PLEC_OK) return status;
    step->stats.replayed++;
    return plec_graph_launch(place->graph, err);
}

static enum plec_status copy_routing(struct plec_step *step, const struct plec_step_args *args,
                                     struct plec_error *err) {
    uint64_t slots = (uint64_t)args->n_tokens * args->n_slots;
    const struct plec_step_routing *to = args->routing;
    enum plec_status status =
        plec_copy(to->ids, step->ids, slots * sizeof *to->ids, step->stream, err);
    if (status == PLEC_OK)
        status =
            plec_copy(to->weights, step->weights, slots * sizeof *to->weights, step->stream, err);
    if (status == PLEC_OK)
        status = plec_copy(to->unrouted, step->unrouted, args->n_tokens, step->stream, err);
    return status;
}

static enum plec_status enqueue(struct plec_step *step, const struct plec_step_args *args,
                                struct plec_error *err) {
    uint64_t hidden_bytes = (uint64_t)args->n_tokens * args->layer->hidden_size * sizeof *args->x;
    uint64_t slots = args->routing == NULL ? (uint64_t)args->n_tokens * args->n_slots : 0;
    enum plec_status status = plec_copy(step->x, args->x, hidden_bytes, step->stream, err);
    if (status == PLEC_OK && slots > 0)
        status = plec_copy(step->ids, args->ids, slots * sizeof *args->ids, step->stream, err);
    if (status == PLEC_OK && slots > 0)
        status = plec_copy(step->weights, args->weights, slots * sizeof *args->weights,
                           step->stream, err);
    if (status == PLEC_OK) status = launch(step, args, err);
    if (status == PLEC_OK && args->routing != NULL) status = copy_routing(step, args, err);
    if (status == PLEC_OK) status = plec_copy(args->y, step->y, hidden_bytes, step->stream, err);
    return status;
}

enum plec_status plec_step_run(struct plec_step *step, const struct plec_step_args *args,
                               struct plec_error *err) {
    enum plec_status status = enqueue(step, args, err);
    /* What was enqueued before a failure still reads the caller's arrays: always wait. */
    struct plec_error *sync_error = status == PLEC_OK ? err : NULL;
    enum plec_status waited = plec_stream_sync(step->stream, sync_error);
    if (step->dispatching) plec_streamer_end(args->source->streamer);
    step->dispatching = false;
    return status == PLEC_OK ? waited : status;
}
