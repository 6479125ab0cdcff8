/* Dispatches: what one step of a layer needs, handed out as it arrives. */
#include "host/streamer.h"

#include <assert.h>
#include <string.h>

#include "host/streamer_parts.h"

/* How long a wait goes on before it looks at its deadline and the watchdog. */
static const uint64_t LOOK_NS = 50000000;

/* --- what a dispatch needs ------------------------------------------------------------------- */

/* Masks of the layer's keys, and its experts without repeats. */
static void collect_ids(struct plec_streamer *streamer, const struct plec_dispatch_args *args) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    const struct plec_keyspace *keys = &streamer->keys;
    uint32_t first = keys->layer_first_key[args->layer];
    uint32_t n_keys = keys->layer_first_key[args->layer + 1] - first;
    memset(streamer->masks, 0, n_keys * sizeof *streamer->masks);
    dispatch->n_experts = 0;
    for (uint64_t i = 0; i < args->n_ids; i++) {
        uint64_t bit;
        uint32_t k = plec_keyspace_find(&bit, keys, args->layer, (uint32_t)args->ids[i]) - first;
        if ((streamer->masks[k] & bit) != 0) continue;
        streamer->masks[k] |= bit;
        streamer->active_ids[dispatch->n_experts++] = args->ids[i];
    }
    dispatch->n_needs = 0;
    for (uint32_t k = 0; k < n_keys; k++)
        if (streamer->masks[k] != 0)
            dispatch->fit[dispatch->n_needs++] = (struct plec_need){first + k, streamer->masks[k]};
}

/* The position moves on to the layer: a step ends where the layers do not go up. */
static void advance(struct plec_streamer *streamer, uint32_t layer) {
    uint32_t last = streamer->last_layer;
    if (last != UINT32_MAX) {
        streamer->layers[last].after = layer;
        if (layer <= last) streamer->step++;
    }
    streamer->last_layer = layer;
    plec_prefetch_advance(streamer->prefetch,
                          plec_position(&streamer->keys, streamer->step, layer));
}

/* --- handing out ----------------------------------------------------------------------------- */

static struct plec_stream_need *need_of(struct plec_streamer *streamer, uint32_t key) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    uint32_t first = streamer->keys.layer_first_key[dispatch->layer];
    return &dispatch->needs[dispatch->need_at[key - first]];
}

static uint64_t count_tier(uint64_t *n, uint64_t *n_bytes, uint64_t mask, uint64_t entry_bytes) {
    uint64_t experts = (uint64_t)__builtin_popcountll(mask);
    *n += experts;
    *n_bytes += experts * entry_bytes;
    return experts;
}

/* Counts what is handed out by where it was when the dispatch asked for it. */
static void count_handed_out(struct plec_streamer *streamer, const struct plec_stream_need *need) {
    struct plec_stream_counts *counts = &streamer->counts;
    uint64_t bytes = streamer->keys.keys[need->key].entry_bytes;
    uint64_t from_disk = need->mask & ~need->in_slot & ~need->in_frame, n = 0;
    n += count_tier(&counts->device_hits, &counts->device_hit_bytes, need->in_slot, bytes);
    n += count_tier(&counts->host_hits, &counts->host_hit_bytes, need->in_frame, bytes);
    n += count_tier(&counts->disk_misses, &counts->disk_miss_bytes, from_disk, bytes);
    counts->experts += n;
    counts->expert_bytes += n * bytes;
}

/* Writes the entries of a need whose slot is retained, and appends its experts to the part.
 * Otherwise, and nothing: the slot's reference is given back; PLEC_MALFORMED: it does not hold what
 * was read; statuses of the device. */
static enum plec_status hand_out(struct plec_streamer *streamer, struct plec_stream_need *need,
                                 struct plec_slot_ref ref, struct plec_error *err) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    enum plec_status status = plec_streamer_inspect_slot(streamer, ref, need->key, need->mask, err);
    if (status != PLEC_OK) {
        plec_residency_release(streamer->resident, ref);
        return status;
    }
    struct plec_stream_layer *layer = &streamer->layers[dispatch->layer];
    const struct plec_key *key = &streamer->keys.keys[need->key];
    const uint8_t *slot = plec_streamer_slot(streamer, ref.slot);
    for (uint64_t left = need->mask; left != 0; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctzll(left), e = key->first_entry + bit;
        if (layer->arrival.changes)
            plec_arrived_entry(&layer->table[e], &layer->arrival,
                               slot + plec_streamer_block_at(streamer, need->key, bit));
        else
            plec_extent_entry_at(&layer->table[e], &streamer->maps[dispatch->layer], e, slot);
        layer->order[dispatch->n_ordered++] = e;
    }
    dispatch->held[dispatch->n_held++] = ref;
    count_handed_out(streamer, need);
    plec_streamer_tell(
        streamer, (struct plec_stream_event){.kind = PLEC_STREAM_HAND_OUT,
                                             .id = dispatch->id,
                                             .key = need->key,
                                             .mask = need->mask,
                                             .slot = ref.slot,
                                             .in_slot = need->in_slot,
                                             .in_frame = need->in_frame,
                                             .n_bytes = (uint64_t)__builtin_popcountll(need->mask) *
                                                        key->entry_bytes});
    return PLEC_OK;
}

static void fail_dispatch(struct plec_streamer *streamer, const struct plec_error *err,
                          enum plec_status status) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    if (dispatch->status != PLEC_OK) return;
    dispatch->status = status;
    dispatch->error = *err;
    dispatch->error.code = status;
}

/* --- asking ---------------------------------------------------------------------------------- */

/* Asks for what a need has not got. */
static void demand(struct plec_streamer *streamer, struct plec_stream_need *need, uint64_t now) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    struct plec_demand_args args = {.key = need->key,
                                    .mask = need->mask,
                                    .stream = need->stream,
                                    .stream_host = need->stream_host,
                                    .deadline_ns = dispatch->deadline_ns};
    struct plec_demand_result result;
    enum plec_demand_state state;
    enum plec_status status = PLEC_OK;
    do { /* again when what is there is spoiled: its slot is out of service, so not for ever */
        state = plec_prefetch_demand(&result, streamer->prefetch, &args, now);
        if (state == PLEC_DEMAND_READY)
            status = hand_out(streamer, need, result.ref, &result.error);
    } while (state == PLEC_DEMAND_READY && status == PLEC_MALFORMED);
    if (state == PLEC_DEMAND_READY && status != PLEC_OK)
        fail_dispatch(streamer, &result.error, status);
    assert(state != PLEC_DEMAND_FULL); /* max_demands are as many as a layer has extents */
    if (state == PLEC_DEMAND_READY) return;
    need->ticket = result.ticket;
    dispatch->n_waiting++;
}

/* Takes the demands that have ended. */
static void take_ended(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    struct plec_demand_result result;
    while (plec_prefetch_next_ended(&result, streamer->prefetch)) {
        struct plec_stream_need *need = need_of(streamer, result.key);
        need->ticket = 0;
        dispatch->n_waiting--;
        dispatch->last_slot_ns = result.slot_ns;
        dispatch->last_disk_ns = result.disk_ns;
        dispatch->last_copy_ns = result.copy_ns;
        enum plec_status status = result.status;
        if (status == PLEC_OK) status = hand_out(streamer, need, result.ref, &result.error);
        if (status == PLEC_MALFORMED && result.status == PLEC_OK)
            demand(streamer, need, plec_streamer_now(streamer));
        else if (status != PLEC_OK)
            fail_dispatch(streamer, &result.error, status);
    }
}

/* --- begin ----------------------------------------------------------------------------------- */

/* A need as it stands now: what is where, and how it is to come. */
static void describe_need(struct plec_streamer *streamer, uint32_t i, const struct plec_fit *fit) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    struct plec_need asked = dispatch->fit[i];
    bool bypass = streamer->options.bypass; /* even what is there now is gone when it is released */
    plec_streamer_inspect_key(streamer, asked.key, asked.mask);
    uint64_t in_slot = asked.mask & plec_residency_valid(streamer->resident, asked.key);
    uint64_t in_frame = asked.mask & ~in_slot & plec_residency_valid(streamer->host, asked.key);
    dispatch->need_at[asked.key - streamer->keys.layer_first_key[dispatch->layer]] = i;
    dispatch->needs[i] = (struct plec_stream_need){.key = asked.key,
                                                   .mask = asked.mask,
                                                   .in_slot = in_slot,
                                                   .in_frame = in_frame,
                                                   .stream = bypass || i >= fit->n_hold,
                                                   .stream_host = bypass || i >= fit->n_cache};
}

/* The caller's deadline, or the end of what a wait may take. */
static uint64_t deadline_of(const struct plec_streamer *streamer,
                            const struct plec_dispatch_args *args) {
    uint64_t limit = streamer->options.wait_limit_ns;
    if (limit == 0) return args->deadline_ns;
    uint64_t now = plec_streamer_now(streamer);
    uint64_t end = limit < UINT64_MAX - now ? now + limit : UINT64_MAX;
    return args->deadline_ns != 0 && args->deadline_ns < end ? args->deadline_ns : end;
}

static void open_dispatch(struct plec_streamer *streamer, const struct plec_dispatch_args *args) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    assert(!dispatch->open && args->layer < streamer->n_layers);
    dispatch->open = true;
    dispatch->id = streamer->counts.dispatches++;
    dispatch->layer = args->layer;
    dispatch->args = *args;
    dispatch->deadline_ns = deadline_of(streamer, args);
    dispatch->n_needs = dispatch->n_waiting = dispatch->n_held = 0;
    dispatch->n_uses = dispatch->first_use = 0;
    dispatch->streams = false;
    dispatch->n_ordered = dispatch->part_first = dispatch->used_first = 0;
    dispatch->status = PLEC_OK;
    collect_ids(streamer, args);
    plec_streamer_tell(streamer, (struct plec_stream_event){.kind = PLEC_STREAM_LAYER_BEGIN,
                                                            .id = dispatch->id,
                                                            .key = PLEC_NO_KEY,
                                                            .mask = dispatch->n_experts});
}

void plec_streamer_begin(const struct plec_bank **bank, struct plec_streamer *streamer,
                         const struct plec_dispatch_args *args) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    pthread_mutex_lock(&streamer->lock);
    uint64_t now = plec_streamer_now(streamer);
    advance(streamer, args->layer);
    open_dispatch(streamer, args);
    struct plec_stream_event plan = {
        .kind = PLEC_STREAM_PLAN_BEGIN, .id = dispatch->id, .key = PLEC_NO_KEY};
    plec_streamer_tell(streamer, plan);
    plec_predict_set_cost(streamer->predict, plec_prefetch_read_cost(streamer->prefetch), 0);
    plec_predict_routed(streamer->predict, streamer->step, args->layer, streamer->active_ids,
                        dispatch->n_experts, now);
    struct plec_fit fit = plec_prefetch_fit(streamer->prefetch, dispatch->fit, dispatch->n_needs);
    for (uint32_t i = 0; i < dispatch->n_needs; i++) {
        describe_need(streamer, i, &fit);
        dispatch->streams = dispatch->streams || dispatch->needs[i].stream;
        demand(streamer, &dispatch->needs[i], now);
    }
    plec_streamer_look_ahead(streamer, now);
    plec_streamer_round(streamer);
    plan.kind = PLEC_STREAM_PLAN_END;
    plec_streamer_tell(streamer, plan);
    plec_streamer_keep_up(streamer);
    pthread_mutex_unlock(&streamer->lock);
    *bank = &streamer->layers[args->layer].bank;
}

/* --- waiting --------------------------------------------------------------------------------- */

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* Divides a wait by what the demand that ended it went through, the last first: copies, reads, a
 * slot; what is left went by before the engine was looked at, or after. */
static void divide_stall(struct plec_streamer *streamer, uint64_t stall_ns) {
    const struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    struct plec_stream_counts *counts = &streamer->counts;
    uint64_t copy = least(stall_ns, dispatch->last_copy_ns), left = stall_ns - copy;
    uint64_t disk = least(left, dispatch->last_disk_ns);
    uint64_t slot = least(left - disk, dispatch->last_slot_ns);
    counts->waits++;
    counts->stall_ns += stall_ns;
    counts->stall_copy_ns += copy;
    counts->stall_disk_ns += disk;
    counts->stall_slot_ns += slot;
    counts->stall_other_ns += left - disk - slot;
}

static void end_past_demands(struct plec_streamer *streamer, uint64_t now) {
    char state[2048], *rest = state;
    if (!plec_prefetch_expire(streamer->prefetch, now, state, sizeof state)) return;
    plec_log_write(&streamer->log, PLEC_LOG_RUN, "no read or copy ends:");
    for (char *line; (line = strsep(&rest, "\n")) != NULL;)
        if (line[0] != 0) plec_log_write(&streamer->log, PLEC_LOG_RUN, "  %s", line);
}

static void ask_caller(struct plec_streamer *streamer) {
    const struct plec_dispatch_args *args = &streamer->dispatch.args;
    if (args->cancelled == NULL || !args->cancelled(args->user)) return;
    struct plec_error err;
    enum plec_status status =
        plec_fail(&err, PLEC_CANCELLED, "Cancelled", "by the caller, while experts were awaited");
    fail_dispatch(streamer, &err, status);
}

static bool has_news(const struct plec_streamer *streamer) {
    const struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    return dispatch->status != PLEC_OK || dispatch->n_ordered > dispatch->part_first ||
           dispatch->n_waiting == 0;
}

/* When a wait looks at its deadline and the watchdog. */
static uint64_t next_look(const struct plec_streamer *streamer, uint64_t now) {
    uint64_t deadline = streamer->dispatch.deadline_ns;
    return deadline != 0 ? least(deadline, now + LOOK_NS) : now + LOOK_NS;
}

/* Waits for an end, and does what follows from it. */
static void await_end(struct plec_streamer *streamer, uint64_t until_ns) {
    if (plec_streamer_virtual(streamer)) {
        plec_streamer_move_on(streamer, until_ns);
        return;
    }
    plec_streamer_keep_up(streamer);
    plec_streamer_sleep(streamer, until_ns);
    plec_streamer_round(streamer);
}

/* Waits for the first demand to end, for as long as anything allows. */
static void wait_for_news(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    struct plec_stream_event event = {.kind = PLEC_STREAM_WAIT_BEGIN,
                                      .id = dispatch->id,
                                      .key = PLEC_NO_KEY,
                                      .at_ns = plec_streamer_now(streamer)};
    uint64_t start = event.at_ns, look_ns = next_look(streamer, start);
    /* None may end: the caller may. */
    dispatch->last_slot_ns = dispatch->last_disk_ns = dispatch->last_copy_ns = 0;
    plec_streamer_tell(streamer, event);
    while (!has_news(streamer)) {
        await_end(streamer, look_ns);
        if (streamer->round_ns >= look_ns) {
            end_past_demands(streamer, streamer->round_ns);
            look_ns = next_look(streamer, streamer->round_ns);
        }
        take_ended(streamer);
        if (!has_news(streamer)) ask_caller(streamer);
    }
    plec_streamer_end_wait(streamer);
    event.kind = PLEC_STREAM_WAIT_END;
    event.at_ns = plec_streamer_now(streamer);
    event.status = dispatch->status;
    divide_stall(streamer, event.at_ns - start);
    plec_streamer_tell(streamer, event);
}

enum plec_status plec_streamer_next(struct plec_stream_part *out, struct plec_streamer *streamer,
                                    struct plec_error *err) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    *out = (struct plec_stream_part){0};
    pthread_mutex_lock(&streamer->lock);
    assert(dispatch->open);
    plec_streamer_round(streamer);
    take_ended(streamer);
    if (!has_news(streamer)) wait_for_news(streamer);
    plec_streamer_keep_up(streamer);
    enum plec_status status = dispatch->status;
    if (status != PLEC_OK) {
        if (err != NULL) *err = dispatch->error;
    } else {
        out->experts = streamer->layers[dispatch->layer].order + dispatch->part_first;
        out->n_experts = dispatch->n_ordered - dispatch->part_first;
        dispatch->part_first = dispatch->n_ordered;
        streamer->counts.parts += out->n_experts > 0;
    }
    pthread_mutex_unlock(&streamer->lock);
    return status;
}

/* --- used and end ---------------------------------------------------------------------------- */

static enum plec_status work_done(void *user, struct plec_error *err) {
    (void)err;
    plec_streamer_kick(user);
    return PLEC_OK;
}

/* Records the end of the work on a stream. Where that fails nothing would ever tell of it, so it is
 * waited for. */
static enum plec_status record(struct plec_event *event, struct plec_stream *stream,
                               struct plec_error *err) {
    enum plec_status status = plec_event_record(event, stream, err);
    if (status != PLEC_OK) (void)!plec_stream_sync(stream, NULL);
    return status;
}

/* Calls when a use is done that is not yet: somebody waits for its slots. */
static enum plec_status call_when_done(struct plec_streamer *streamer, struct plec_stream_use *use,
                                       struct plec_stream *stream, struct plec_error *err) {
    if (plec_event_done(use->event)) return PLEC_OK;
    enum plec_status status = plec_stream_call(stream, work_done, streamer, err);
    if (status == PLEC_OK) status = record(use->called, stream, err);
    use->calls = status == PLEC_OK;
    return status;
}

enum plec_status plec_streamer_used(struct plec_streamer *streamer, struct plec_stream *stream,
                                    struct plec_error *err) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    pthread_mutex_lock(&streamer->lock);
    uint32_t n = dispatch->n_uses, first = n > 0 ? dispatch->uses[n - 1].end : 0;
    struct plec_stream_use *use = first < dispatch->n_held ? &dispatch->uses[n] : NULL;
    enum plec_status status = PLEC_OK;
    if (use != NULL) {
        use->first = first;
        use->end = dispatch->n_held;
        use->calls = false;
        use->due_ns = plec_streamer_use_due(streamer, dispatch->n_ordered - dispatch->used_first);
        status = record(use->event, stream, err);
        dispatch->n_uses += status == PLEC_OK;
        dispatch->used_first = dispatch->n_ordered;
    }
    bool waits = dispatch->n_waiting > 0 && dispatch->streams;
    pthread_mutex_unlock(&streamer->lock);
    if (status != PLEC_OK || use == NULL || !waits) return status;
    return call_when_done(streamer, use, stream, err);
}

bool plec_streamer_release_uses(struct plec_streamer *streamer, uint64_t now) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    bool released = false;
    while (dispatch->first_use < dispatch->n_uses) {
        const struct plec_stream_use *use = &dispatch->uses[dispatch->first_use];
        if (use->due_ns > now || !plec_event_done(use->event)) break;
        for (uint32_t i = use->first; i < use->end; i++)
            plec_residency_release(streamer->resident, dispatch->held[i]);
        dispatch->first_use++;
        released = true;
    }
    return released;
}

/* Ends the demands that still wait; what had arrived and was never handed to a launch goes back. */
static void drop_demands(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    uint64_t now = plec_streamer_now(streamer);
    for (uint32_t i = 0; i < dispatch->n_needs; i++)
        if (dispatch->needs[i].ticket != 0)
            plec_prefetch_cancel(streamer->prefetch, dispatch->needs[i].ticket, now);
    struct plec_demand_result result;
    while (plec_prefetch_next_ended(&result, streamer->prefetch))
        if (result.status == PLEC_OK) plec_residency_release(streamer->resident, result.ref);
    dispatch->n_waiting = 0;
}

/* Waits for the work of every part, and gives its slots back. */
static void wait_for_uses(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    plec_streamer_release_uses(streamer, plec_streamer_now(streamer));
    while (dispatch->first_use < dispatch->n_uses) {
        if (plec_streamer_virtual(streamer)) {
            plec_streamer_move_on(streamer, UINT64_MAX);
            continue;
        }
        struct plec_event *event = dispatch->uses[dispatch->n_uses - 1].event;
        pthread_mutex_unlock(&streamer->lock);
        plec_event_sync(event);
        pthread_mutex_lock(&streamer->lock);
        plec_streamer_release_uses(streamer, plec_streamer_now(streamer));
    }
    for (uint32_t i = 0; i < dispatch->n_uses; i++) /* no call may come when all is closed */
        if (dispatch->uses[i].calls) plec_event_sync(dispatch->uses[i].called);
}

void plec_streamer_end(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    pthread_mutex_lock(&streamer->lock);
    assert(dispatch->open);
    drop_demands(streamer);
    wait_for_uses(streamer);
    uint32_t n = dispatch->n_uses, first = n > 0 ? dispatch->uses[n - 1].end : 0;
    for (uint32_t i = first; i < dispatch->n_held; i++)
        plec_residency_release(streamer->resident, dispatch->held[i]);
    dispatch->n_uses = dispatch->first_use = dispatch->n_held = 0;
    dispatch->open = false;
    streamer->counts.failed += dispatch->status != PLEC_OK;
    plec_streamer_tell(streamer, (struct plec_stream_event){.kind = PLEC_STREAM_LAYER_END,
                                                            .id = dispatch->id,
                                                            .key = PLEC_NO_KEY,
                                                            .mask = dispatch->n_experts,
                                                            .status = dispatch->status});
    plec_streamer_round(streamer);
    plec_streamer_keep_up(streamer);
    pthread_mutex_unlock(&streamer->lock);
}
