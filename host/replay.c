#include "host/replay.h"

#include <assert.h>

struct replay {
    const struct plec_replay_args *args;
    struct plec_keyspace keys;
    struct plec_residency *tier;
    struct plec_arena arena;
    struct plec_need *needs;    /* [most extents of a layer] */
    struct plec_slot_ref *held; /* likewise */
    uint32_t *future;           /* oracle: keys in order of use */
    struct plec_replay_result *result;
};

/* The extents a dispatch needs, in ascending order; returns how many. */
static uint32_t read_needs(struct plec_need *needs, const struct plec_keyspace *keys,
                           const struct plec_trace *trace,
                           const struct plec_trace_dispatch *dispatch) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < dispatch->n_ids; i++) {
        uint64_t bit;
        uint32_t key =
            plec_keyspace_find(&bit, keys, dispatch->layer, trace->ids[dispatch->first_id + i]);
        if (n == 0 || needs[n - 1].key != key) needs[n++] = (struct plec_need){key, 0};
        needs[n - 1].mask |= bit;
    }
    return n;
}

static uint64_t read_future(struct replay *replay) {
    const struct plec_trace *trace = replay->args->trace;
    uint64_t n = 0;
    for (uint64_t i = 0; i < trace->n_dispatches; i++) {
        uint32_t n_needs = read_needs(replay->needs, &replay->keys, trace, &trace->dispatches[i]);
        for (uint32_t j = 0; j < n_needs; j++)
            replay->future[n++] = replay->needs[j].key;
    }
    return n;
}

static enum plec_status open_replay(struct replay *replay, struct plec_error *err) {
    const struct plec_replay_args *args = replay->args;
    const struct plec_trace *trace = args->trace;
    enum plec_status status =
        plec_keyspace_open_uniform(&replay->keys, trace->info.n_layers, trace->info.n_experts,
                                   args->width, trace->info.entry_bytes, err);
    if (status != PLEC_OK) return status;
    uint64_t most = trace->info.n_experts / args->width + 1;
    bool oracle = args->policy == PLEC_RESIDENCY_ORACLE;
    replay->needs = plec_arena_alloc(&replay->arena, most, sizeof *replay->needs, err);
    replay->held = plec_arena_alloc(&replay->arena, most, sizeof *replay->held, err);
    replay->future =
        plec_arena_alloc(&replay->arena, oracle ? trace->n_ids : 0, sizeof(uint32_t), err);
    if (replay->needs == NULL || replay->held == NULL || replay->future == NULL)
        return PLEC_NO_MEMORY;
    uint64_t n_slots = args->n_experts / args->width;
    if (n_slots > replay->keys.n_keys) n_slots = replay->keys.n_keys; /* more hold nothing */
    replay->result->n_slots = (uint32_t)n_slots;
    struct plec_residency_options options = {.keys = &replay->keys,
                                             .n_slots = (uint32_t)n_slots,
                                             .n_staging = 1,
                                             .policy = args->policy,
                                             .future = replay->future};
    options.n_future = oracle ? read_future(replay) : 0;
    return plec_residency_open(&replay->tier, &options, err);
}

/* Reads what is missing of an extent the cheaper way; returns the experts that come. */
static uint64_t read_missing(struct replay *replay, uint32_t key_id, uint64_t missing,
                             uint64_t valid) {
    const struct plec_key *key = &replay->keys.keys[key_id];
    const struct plec_replay_args *args = replay->args;
    uint32_t n = (uint32_t)__builtin_popcountll(missing);
    double one = args->latency_ns + (double)key->entry_bytes * args->ns_per_byte;
    double whole = args->latency_ns + (double)key->extent_bytes * args->ns_per_byte;
    bool all = valid == 0 && n > 1 && whole < n * one;
    replay->result->reads += all ? 1 : n;
    replay->result->bytes += all ? key->extent_bytes : n * key->entry_bytes;
    replay->result->read_ns += all ? whole : n * one;
    return all ? plec_key_full(key) : missing;
}

static void use(struct replay *replay, uint32_t i, bool stream) {
    const struct plec_need *need = &replay->needs[i];
    uint64_t valid = plec_residency_valid(replay->tier, need->key);
    uint64_t missing = need->mask & ~valid;
    struct plec_slot_ref load;
    if (missing != 0) {
        struct plec_place_args place = {need->key, stream ? PLEC_PLACE_STREAM : PLEC_PLACE_DEMAND,
                                        0};
        bool placed = plec_residency_place(&load, NULL, replay->tier, &place);
        assert(placed); /* what fits was counted, and staging is free between uses */
        (void)placed;
        plec_residency_loaded(replay->tier, load, read_missing(replay, need->key, missing, valid),
                              PLEC_FROM_DEMAND);
    }
    struct plec_hand_out hand_out = {need->key, need->mask, valid, 0};
    replay->held[i] = plec_residency_hand_out(replay->tier, &hand_out);
    if (missing != 0) plec_residency_release(replay->tier, load);
    if (stream) plec_residency_release(replay->tier, replay->held[i]);
}

static void run_dispatch(struct replay *replay, const struct plec_trace_dispatch *dispatch) {
    uint32_t n = read_needs(replay->needs, &replay->keys, replay->args->trace, dispatch);
    plec_residency_advance(replay->tier,
                           plec_position(&replay->keys, dispatch->step, dispatch->layer));
    uint32_t n_hold = plec_residency_fit(replay->tier, replay->needs, n);
    for (uint32_t i = 0; i < n; i++)
        use(replay, i, i >= n_hold);
    for (uint32_t i = 0; i < n_hold; i++)
        plec_residency_release(replay->tier, replay->held[i]);
    replay->result->extents += n;
    replay->result->uses += dispatch->n_ids;
}

enum plec_status plec_replay_run(struct plec_replay_result *out,
                                 const struct plec_replay_args *args, struct plec_error *err) {
    *out = (struct plec_replay_result){0};
    struct replay replay = {.args = args, .result = out};
    enum plec_status status = open_replay(&replay, err);
    if (status == PLEC_OK) {
        for (uint64_t i = 0; i < args->trace->n_dispatches; i++)
            run_dispatch(&replay, &args->trace->dispatches[i]);
        struct plec_residency_counters counters;
        plec_residency_get_counters(&counters, replay.tier);
        out->hits = counters.hits;
        out->thrash = counters.thrash;
        out->evictions = counters.evictions;
    }
    plec_residency_close(replay.tier);
    plec_keyspace_close(&replay.keys);
    plec_arena_close(&replay.arena);
    return status;
}
