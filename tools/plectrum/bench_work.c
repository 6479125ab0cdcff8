/* bench_work.c: what a benchmark gives a runner: hidden states, a routing, and an eye on what comes
 * out. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "lyrw/atomic_file.h"
#include "lyrw/mapping.h"
#include "tools/plectrum/arrays.h"
#include "tools/plectrum/bench.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/region_hash.h"

/* Values by which the hidden states of one layer are shifted against those of the one before: other
 * vectors, without making as many. */
enum { WINDOW = 61 };

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* --- layers ---------------------------------------------------------------------------------- */

/* Before anything is made room for. */
static enum plec_status choose_layer(struct plec_bench_work *work,
                                     const struct plec_layer_info *info, struct plec_error *err) {
    const struct plec_bench_options *o = work->options;
    work->numbers[work->n_layers++] = info->layer;
    if (!o->slots_given || info->dense) return PLEC_OK;
    if (o->n_slots > info->n_experts)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManySlots",
                         "%s: layer %u has %u experts, --slots wants %u a token", o->path,
                         info->layer, info->n_experts, o->n_slots);
    if (o->n_slots > work->max_slots) work->max_slots = o->n_slots;
    return PLEC_OK;
}

/* All layers with experts to choose from, or the one that was asked for. */
static enum plec_status choose_layers(struct plec_bench_work *work, struct plec_error *err) {
    const struct plec_bench_options *o = work->options;
    size_t n = plec_container_n_layers(work->container);
    work->numbers = calloc(n > 0 ? n : 1, sizeof *work->numbers);
    if (work->numbers == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu layers", n);
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; i < n && status == PLEC_OK; i++) {
        struct plec_layer_info info;
        plec_container_layer_info(&info, work->container, i);
        if (o->layer_given ? info.layer == o->layer : !info.dense && info.n_experts > 1)
            status = choose_layer(work, &info, err);
    }
    if (work->n_layers > 0) return status;
    if (o->layer_given)
        return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "%s: layer %u is none of its %zu layers",
                         o->path, o->layer, n);
    return plec_fail(err, PLEC_BAD_INPUT, "NothingToRun",
                     "%s: none of its layers has experts to choose from: name one with --layer",
                     o->path);
}

/* Experts a token of drawn routing. */
static uint32_t slots_of(const struct plec_bench_options *o, const struct plec_bound_layer *bound) {
    uint32_t top_k = bound->layer.router.top_k, n = bound->layer.routed.n_entries;
    if (bound->dense) return 1;
    if (o->routing == PLEC_BENCH_RANDOM && o->n_slots != 0) top_k = o->n_slots;
    if (top_k == 0) top_k = PLEC_BENCH_SLOTS;
    return top_k < n ? top_k : n;
}

static enum plec_status describe_layer(struct plec_bench_layer *out, struct plec_bench_work *work,
                                       uint32_t number, struct plec_error *err) {
    const struct plec_bound_layer *bound = plec_runner_layer(work->runner, number);
    const struct plec_bank *bank = &bound->layer.routed;
    uint32_t n = bank->n_entries;
    *out = (struct plec_bench_layer){.number = number,
                                     .bound = bound,
                                     .n_experts = n,
                                     .n_slots = slots_of(work->options, bound),
                                     .entry_bytes = n > 0 ? plec_budget_bank_bytes(bank) / n : 0,
                                     .other_bytes = plec_budget_other_bytes(bound)};
    out->deck = calloc(n > 0 ? n : 1, sizeof *out->deck);
    out->used = calloc(n > 0 ? n : 1, sizeof *out->used);
    if (out->deck == NULL || out->used == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u experts", n);
    for (uint32_t e = 0; e < n; e++)
        out->deck[e] = e;
    work->weight_bytes += n * out->entry_bytes;
    work->other_bytes += out->other_bytes;
    if (out->n_slots > work->max_slots) work->max_slots = out->n_slots;
    if (bound->layer.hidden_size > work->max_hidden) work->max_hidden = bound->layer.hidden_size;
    return PLEC_OK;
}

static enum plec_status describe_layers(struct plec_bench_work *work, struct plec_error *err) {
    work->layers = calloc(work->n_layers, sizeof *work->layers);
    if (work->layers == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%u layers", work->n_layers);
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < work->n_layers; i++)
        status = describe_layer(&work->layers[i], work, work->numbers[i], err);
    return status;
}

/* --- a recorded routing ---------------------------------------------------------------------- */

static enum plec_status read_recorded(struct plec_bench_work *work, struct plec_error *err) {
    const char *path = work->options->routing_word;
    struct plec_mapping file;
    enum plec_status status = plec_mapping_open(&file, path, err);
    if (status != PLEC_OK) return status;
    status = plec_trace_parse(&work->recorded, (const char *)file.data, file.size, err);
    if (status != PLEC_OK) plec_error_context(err, "%s", path);
    plec_mapping_close(&file);
    for (uint64_t i = 0; status == PLEC_OK && i < work->recorded.n_dispatches; i++)
        if (work->recorded.dispatches[i].n_tokens > work->max_tokens)
            work->max_tokens = work->recorded.dispatches[i].n_tokens;
    return status;
}

static enum plec_status check_recorded(struct plec_bench_work *work, struct plec_error *err) {
    const struct plec_trace_info *info = &work->recorded.info;
    if (info->n_layers != work->n_layers)
        return plec_fail(err, PLEC_BAD_INPUT, "TraceShape", "%s: routes %u layers, %s has %u",
                         work->options->routing_word, info->n_layers, work->options->path,
                         work->n_layers);
    for (uint32_t i = 0; i < work->n_layers; i++)
        if (work->layers[i].n_experts != info->n_experts)
            return plec_fail(err, PLEC_BAD_INPUT, "TraceShape",
                             "%s: routes among %u experts, layer %u has %u",
                             work->options->routing_word, info->n_experts, work->layers[i].number,
                             work->layers[i].n_experts);
    return PLEC_OK;
}

uint32_t plec_bench_work_next(const struct plec_bench_work *work) {
    const struct plec_trace *trace = &work->recorded;
    return work->next_dispatch < trace->n_dispatches
               ? trace->dispatches[work->next_dispatch].n_tokens
               : 0;
}

/* The routing of one layer of the step that `first` begins: the experts it used, dealt to its
 * tokens in turn, each token as many; NULL: the step leaves the layer out. */
static const struct plec_trace_dispatch *deal_recorded(struct plec_bench_work *work,
                                                       const struct plec_trace_dispatch *first,
                                                       uint32_t layer, uint32_t n_slots) {
    const struct plec_trace *trace = &work->recorded;
    const struct plec_trace_dispatch *at =
        work->next_dispatch < trace->n_dispatches ? &trace->dispatches[work->next_dispatch] : NULL;
    if (at == NULL || at->step != first->step || at->layer != layer) return NULL;
    work->next_dispatch++;
    for (uint32_t i = 0; at->n_ids > 0 && i < at->n_tokens * n_slots; i++)
        work->ids[i] = (int32_t)trace->ids[at->first_id + i % at->n_ids];
    return at;
}

/* Slots a token: as many as the layer's router gives, and enough that all experts of the dispatch
 * are dealt. */
static uint32_t recorded_slots(const struct plec_trace_dispatch *dispatch, uint32_t top_k) {
    if (dispatch->n_tokens == 0) return 0;
    uint32_t n = (dispatch->n_ids + dispatch->n_tokens - 1) / dispatch->n_tokens;
    if (n < top_k) n = top_k;
    return n < dispatch->n_ids ? n : dispatch->n_ids;
}

static uint32_t most_recorded_slots(const struct plec_trace *trace) {
    uint32_t most = 0;
    for (uint64_t i = 0; i < trace->n_dispatches; i++)
        if (recorded_slots(&trace->dispatches[i], 0) > most)
            most = recorded_slots(&trace->dispatches[i], 0);
    return most;
}

/* --- open ------------------------------------------------------------------------------------ */

static enum plec_status open_runner(struct plec_bench_work *work, struct plec_error *err) {
    const struct plec_bench_options *o = work->options;
    struct plec_runner_options options = {.max_tokens = work->max_tokens,
                                          .max_slots = work->max_slots,
                                          .layers = work->numbers,
                                          .n_layers = work->n_layers,
                                          .stream = o->how.stream,
                                          .tracer = work->tracer,
                                          .log = plec_cli_log()};
    plec_device_choose(&options, &o->how.device);
    enum plec_status status = plec_runner_open(&work->runner, work->container, &options, err);
    if (status == PLEC_OK)
        plec_execution_say_unused(&o->how, work->runner);
    else
        plec_execution_blame(err, o->path);
    return status;
}

static enum plec_status open_buffers(struct plec_bench_work *work, struct plec_error *err) {
    size_t tokens = work->max_tokens, hidden = work->max_hidden, slots = tokens * work->max_slots;
    work->x = calloc(tokens * hidden + (size_t)work->n_layers * WINDOW, sizeof *work->x);
    work->y = calloc(tokens * hidden, sizeof *work->y);
    work->ids = calloc(slots, sizeof *work->ids);
    work->ids_used = calloc(slots, sizeof *work->ids_used);
    work->weights = calloc(slots, sizeof *work->weights);
    work->token_ids = calloc(tokens, sizeof *work->token_ids);
    if (work->x == NULL || work->y == NULL || work->ids == NULL || work->ids_used == NULL ||
        work->weights == NULL || work->token_ids == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu tokens of width %zu", tokens,
                         hidden);
    return PLEC_OK;
}

static uint64_t identity(const struct plec_bench_work *work) {
    struct plec_container_about about;
    plec_container_get_about(&about, work->container);
    uint64_t hash = plec_fnv1a64(UINT64_C(0xcbf29ce484222325), about.model, strlen(about.model));
    return plec_fnv1a64(hash, &work->weight_bytes, sizeof work->weight_bytes);
}

static enum plec_status record_text(struct plec_bench_work *work, const char *text, size_t n,
                                    struct plec_error *err) {
    if (work->record_size + n > work->record_room) {
        size_t room = 2 * work->record_room + n + 4096;
        char *more = realloc(work->record, room);
        if (more == NULL)
            return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the recorded routing");
        work->record = more;
        work->record_room = room;
    }
    memcpy(work->record + work->record_size, text, n);
    work->record_size += n;
    return PLEC_OK;
}

static enum plec_status begin_record(struct plec_bench_work *work, struct plec_error *err) {
    if (work->options->record == NULL) return PLEC_OK;
    for (uint32_t i = 1; i < work->n_layers; i++)
        if (work->layers[i].n_experts != work->layers[0].n_experts)
            return plec_fail(err, PLEC_BAD_INPUT, "TraceShape",
                             "%s: a routing trace is of layers with equally many experts; layer %u "
                             "has %u, layer %u %u",
                             work->options->path, work->layers[0].number, work->layers[0].n_experts,
                             work->layers[i].number, work->layers[i].n_experts);
    const struct plec_trace_info info = {.n_layers = work->n_layers,
                                         .n_experts = work->layers[0].n_experts,
                                         .entry_bytes = work->layers[0].entry_bytes,
                                         .identity = identity(work)};
    char text[256];
    return record_text(work, text, plec_trace_write_header(text, sizeof text, &info), err);
}

enum plec_status plec_bench_work_open(struct plec_bench_work *out,
                                      const struct plec_bench_options *options,
                                      struct plec_tracer *tracer, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->options = options;
    out->tracer = tracer;
    out->random = options->seed;
    out->max_tokens = 1;
    out->max_slots = PLEC_BENCH_SLOTS;
    for (uint32_t i = 0; i < options->n_decode; i++)
        if (options->decode[i] > out->max_tokens) out->max_tokens = options->decode[i];
    for (uint32_t i = 0; i < options->n_prefill; i++)
        if (options->prefill[i] > out->max_tokens) out->max_tokens = options->prefill[i];
    struct plec_container_options open = {.profile = options->profile,
                                          .architecture = options->architecture,
                                          .set = options->set,
                                          .log = plec_cli_log_once(&out->said)};
    enum plec_status status = plec_container_open(&out->container, options->path, &open, err);
    if (status == PLEC_OK) status = choose_layers(out, err);
    if (status == PLEC_OK && options->routing == PLEC_BENCH_RECORDED) {
        status = read_recorded(out, err);
        uint32_t most = status == PLEC_OK ? most_recorded_slots(&out->recorded) : 0;
        if (most > out->max_slots) out->max_slots = most;
    }
    if (status == PLEC_OK) status = open_runner(out, err);
    if (status == PLEC_OK) status = describe_layers(out, err);
    if (status == PLEC_OK && options->routing == PLEC_BENCH_RECORDED)
        status = check_recorded(out, err);
    if (status == PLEC_OK) status = open_buffers(out, err);
    return status == PLEC_OK ? begin_record(out, err) : status;
}

void plec_bench_work_close(struct plec_bench_work *work) {
    plec_runner_close(work->runner);
    for (uint32_t i = 0; work->layers != NULL && i < work->n_layers; i++) {
        free(work->layers[i].deck);
        free(work->layers[i].used);
    }
    free(work->layers);
    free(work->numbers);
    plec_trace_close(&work->recorded);
    free(work->record);
    free(work->x);
    free(work->y);
    free(work->ids);
    free(work->ids_used);
    free(work->weights);
    free(work->token_ids);
    plec_container_close(work->container);
    memset(work, 0, sizeof *work);
}

/* --- touching -------------------------------------------------------------------------------- */

static uint64_t touch(const uint8_t *bytes, uint64_t n) {
    uint64_t sum = 0;
    for (uint64_t at = 0; bytes != NULL && at < n; at += 4096)
        sum += *(const volatile uint8_t *)(bytes + at);
    return sum;
}

static void touch_bank(const struct plec_bank *bank, uint64_t *done,
                       struct plec_progress *progress) {
    for (uint32_t e = 0; e < bank->n_entries; e++)
        for (int id = 0; id < PLEC_N_OPERANDS; id++) {
            const struct plec_operand *operand = &bank->operands[id];
            uint64_t values = 0, scales = 0;
            if (operand->rows == 0 ||
                plec_format_size(&values, &scales, operand->format, operand->rows, operand->cols,
                                 NULL) != PLEC_OK)
                continue;
            touch(bank->entries[e].values[id], values);
            if (id < PLEC_N_MATRICES) touch(bank->entries[e].scales[id], scales);
            *done += values + scales;
            plec_progress_update(progress, *done);
        }
}

void plec_bench_work_touch(const struct plec_bench_work *work) {
    struct plec_progress progress = plec_progress_start(
        "reading the weights", work->weight_bytes + work->other_bytes, PLEC_PROGRESS_BYTES);
    uint64_t done = 0;
    for (uint32_t i = 0; i < work->n_layers; i++) {
        const struct plec_layer *layer = &work->layers[i].bound->layer;
        touch_bank(&layer->routed, &done, &progress);
        touch_bank(&layer->shared, &done, &progress);
        touch_bank(&layer->dense, &done, &progress);
    }
    plec_progress_end(&progress);
}

/* --- a step ---------------------------------------------------------------------------------- */

static uint32_t below(struct plec_bench_work *work, uint32_t n) {
    return (uint32_t)(((plec_random_next(&work->random) >> 32) * n) >> 32);
}

/* Different experts for each token, all equally likely. */
static void deal_random(struct plec_bench_work *work, struct plec_bench_layer *layer,
                        uint32_t n_tokens) {
    for (uint32_t t = 0; t < n_tokens; t++)
        for (uint32_t j = 0; j < layer->n_slots; j++) {
            uint32_t other = j + below(work, layer->n_experts - j), drawn = layer->deck[other];
            layer->deck[other] = layer->deck[j];
            layer->deck[j] = drawn;
            work->ids[(size_t)t * layer->n_slots + j] = (int32_t)drawn;
        }
}

/* Hidden states for this step, for all layers. */
static void draw_states(struct plec_bench_work *work, uint32_t n_tokens) {
    size_t n = (size_t)n_tokens * work->max_hidden + (size_t)work->n_layers * WINDOW;
    plec_random_normals(work->x, n, &work->random);
}

static void draw_token_ids(struct plec_bench_work *work, const struct plec_bench_layer *layer,
                           uint32_t n_tokens) {
    for (uint32_t t = 0; t < n_tokens && layer->bound->n_token_ids > 0; t++)
        work->token_ids[t] = (int32_t)below(work, layer->bound->n_token_ids);
}

static struct plec_forward_args forward_args(struct plec_bench_work *work, uint32_t i,
                                             uint32_t n_tokens, uint32_t n_slots, bool routed) {
    const struct plec_bench_layer *layer = &work->layers[i];
    const float *x = work->x + (size_t)i * WINDOW;
    if (routed)
        for (size_t j = 0; j < (size_t)n_tokens * n_slots; j++)
            work->weights[j] = 1.0f / (float)n_slots;
    return (struct plec_forward_args){
        .layer = layer->number,
        .n_tokens = n_tokens,
        .hidden_type = PLEC_ELEMENT_F32,
        .hidden = x,
        .router_input = layer->bound->router_input_required ? x : NULL,
        .token_ids = layer->bound->token_table != NULL ? work->token_ids : NULL,
        .ids = routed ? work->ids : NULL,
        .weights = routed ? work->weights : NULL,
        .n_slots = n_slots,
        .out = work->y,
        .ids_out = work->ids_used};
}

/* Weight bytes that the step read in this layer, each expert's once. */
static uint64_t count_used(struct plec_bench_work *work, struct plec_bench_layer *layer,
                           uint32_t n_tokens, uint32_t n_slots) {
    uint64_t n = 0;
    for (size_t i = 0; i < (size_t)n_tokens * n_slots; i++) {
        int32_t id = work->ids_used[i];
        if (id < 0 || (layer->used[id] & 1) != 0) continue;
        layer->used[id] = 3;
        n++;
    }
    for (size_t i = 0; i < (size_t)n_tokens * n_slots; i++)
        if (work->ids_used[i] >= 0) layer->used[work->ids_used[i]] &= 2;
    return n * layer->entry_bytes + layer->other_bytes;
}

static enum plec_status record_step(struct plec_bench_work *work, uint32_t i, uint32_t n_tokens,
                                    uint32_t n_slots, struct plec_error *err) {
    if (work->options->record == NULL) return PLEC_OK;
    enum plec_status status = PLEC_OK;
    size_t room = 64 + (size_t)n_slots * 12;
    char *line = malloc(room);
    if (line == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a line of the routing");
    for (uint32_t t = 0; status == PLEC_OK && t < n_tokens; t++) {
        size_t n = plec_trace_write_token(line, room, work->n_steps, i, t,
                                          work->ids_used + (size_t)t * n_slots, n_slots);
        status = record_text(work, line, n, err);
    }
    free(line);
    return status;
}

/* The output of a layer is all finite, and not all zeros. */
static enum plec_status check_output(struct plec_bench_step *out,
                                     const struct plec_bench_work *work,
                                     const struct plec_bench_layer *layer, uint32_t n_tokens,
                                     struct plec_error *err) {
    struct plec_array y = {.type = PLEC_NPY_F32,
                           .rows = n_tokens,
                           .cols = layer->bound->layer.hidden_size,
                           .values = work->y};
    uint64_t n_bad = 0;
    uint32_t token = 0, column = 0;
    for (uint32_t t = n_tokens; t-- > 0;) {
        uint32_t n = plec_array_not_finite(&column, &y, t);
        if (n > 0) token = t;
        n_bad += n;
    }
    out->norm = plec_array_norm(&y);
    if (n_bad == 0 && out->norm > 0) return PLEC_OK;
    if (n_bad == 0)
        (void)plec_fail(err, PLEC_BAD_INPUT, "ZeroNorm", "all values of the output are 0");
    else
        (void)plec_fail(err, PLEC_BAD_INPUT, "OutputNotFinite",
                        "%llu of %llu values, the first in column %u of token %u",
                        (unsigned long long)n_bad, (unsigned long long)y.rows * y.cols, column,
                        token);
    plec_error_context(err, "%s: layer %u in step %llu of %u token%s", work->options->path,
                       layer->number, (unsigned long long)work->n_steps, n_tokens,
                       n_tokens == 1 ? "" : "s");
    return PLEC_BAD_INPUT;
}

/* One layer of the step. Only the forward is timed. */
static enum plec_status step_layer(struct plec_bench_step *out, struct plec_bench_work *work,
                                   const struct plec_trace_dispatch *first, uint32_t i,
                                   uint32_t n_tokens, struct plec_error *err) {
    struct plec_bench_layer *layer = &work->layers[i];
    uint32_t n_slots = layer->n_slots;
    bool routed = work->options->routing != PLEC_BENCH_ROUTER && !layer->bound->dense;
    if (first != NULL) {
        const struct plec_trace_dispatch *dispatch =
            &work->recorded.dispatches[work->next_dispatch];
        n_slots = work->next_dispatch < work->recorded.n_dispatches
                      ? recorded_slots(dispatch, layer->n_slots)
                      : 0;
        if (deal_recorded(work, first, i, n_slots) == NULL || n_slots == 0) return PLEC_OK;
        n_tokens = dispatch->n_tokens;
    } else if (routed) {
        deal_random(work, layer, n_tokens);
    }
    draw_token_ids(work, layer, n_tokens);
    struct plec_forward_args args = forward_args(work, i, n_tokens, n_slots, routed);
    double started = now_s();
    enum plec_status status = plec_runner_forward(work->runner, &args, err);
    out->seconds += now_s() - started;
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", work->options->path);
        return status;
    }
    out->active_bytes += count_used(work, layer, n_tokens, n_slots);
    status = check_output(out, work, layer, n_tokens, err);
    return status == PLEC_OK ? record_step(work, i, n_tokens, n_slots, err) : status;
}

enum plec_status plec_bench_work_step(struct plec_bench_step *out, struct plec_bench_work *work,
                                      uint32_t n_tokens, struct plec_error *err) {
    *out = (struct plec_bench_step){0};
    const struct plec_trace_dispatch *first = NULL;
    if (work->options->routing == PLEC_BENCH_RECORDED)
        first = &work->recorded.dispatches[work->next_dispatch];
    draw_states(work, n_tokens);
    enum plec_status status = PLEC_OK;
    plec_tracer_begin(work->tracer, PLEC_TRACE_REQUEST, UINT32_MAX, n_tokens);
    for (uint32_t i = 0; status == PLEC_OK && i < work->n_layers; i++)
        status = step_layer(out, work, first, i, n_tokens, err);
    plec_tracer_end(work->tracer, PLEC_TRACE_REQUEST, UINT32_MAX, status);
    work->n_steps++;
    return status;
}

uint64_t plec_bench_work_set(struct plec_bench_work *work) {
    uint64_t n_bytes = work->other_bytes;
    for (uint32_t i = 0; i < work->n_layers; i++)
        for (uint32_t e = 0; e < work->layers[i].n_experts; e++) {
            if (work->layers[i].used[e] != 0) n_bytes += work->layers[i].entry_bytes;
            work->layers[i].used[e] = 0;
        }
    return n_bytes;
}

enum plec_status plec_bench_work_save(const struct plec_bench_work *work, const char *path,
                                      struct plec_error *err) {
    return plec_atomic_file_store(path, work->record, work->record_size, err);
}
