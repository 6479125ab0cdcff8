#include "host/prefetch.h"

#include <assert.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "host/prefetch_parts.h"

enum { DEFAULT_REQUESTS = 256, DEFAULT_DEMANDS = 256, DEFAULT_READS = 32 };
enum { MAX_STARTED = 1 << 16 }; /* a job's id has 16 bits of place */
static const uint64_t MIB = UINT64_C(1) << 20;
static const uint64_t DEFAULT_WATCHDOG_NS = UINT64_C(5000000000);

/* --- opening ------------------------------------------------------------------------------- */

static void default_u64(uint64_t *value, uint64_t otherwise) {
    if (*value == 0) *value = otherwise;
}
static void default_u32(uint32_t *value, uint32_t otherwise) {
    if (*value == 0) *value = otherwise;
}

static void set_defaults(struct plec_prefetch_options *options) {
    const uint64_t budget[] = {UINT64_MAX, 256 * MIB, MIB, MIB};
    const uint64_t read[] = {UINT64_MAX, 32 * MIB, MIB, MIB};
    const uint32_t copies[] = {4, 2, 1, 1};
    for (int c = 0; c < PLEC_N_URGENCIES; c++) {
        default_u64(&options->read_budget[c], budget[c]);
        default_u64(&options->read_bytes[c], read[c]);
        default_u32(&options->copies[c], copies[c]);
    }
    default_u32(&options->max_requests, DEFAULT_REQUESTS);
    default_u32(&options->max_demands, DEFAULT_DEMANDS);
    default_u32(&options->max_reads, DEFAULT_READS);
    default_u64(&options->chunk_bytes, PLEC_COPY_CHUNK_BYTES);
    default_u64(&options->watchdog_ns, DEFAULT_WATCHDOG_NS);
    if (!(options->whole_ratio > 0)) options->whole_ratio = 0.5;
}

/* A load is counted as a request (max_requests), or a demand waits on it (max_demands), or a job of
 * it is under way (n_started, n_moves): so there is one for every ask that is taken. */
static enum plec_status allocate(struct plec_prefetch *prefetch, struct plec_error *err) {
    const struct plec_prefetch_options *options = &prefetch->options;
    struct plec_arena *arena = &prefetch->arena;
    uint64_t n_copies = 0;
    for (int c = 0; c < PLEC_N_URGENCIES; c++)
        n_copies += options->copies[c];
    uint64_t n_moves =
        n_copies + 2 * PLEC_N_URGENCIES; /* flying, and broken off for a higher one */
    uint64_t n_started = options->max_reads + n_copies;
    uint64_t n_loads = (uint64_t)options->max_requests + options->max_demands + n_started + n_moves;
    if (n_started >= MAX_STARTED || n_loads >= PLEC_NONE)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManyJobs", "%llu reads and copies at once",
                         (unsigned long long)n_started);
    prefetch->n_loads = (uint32_t)n_loads;
    prefetch->n_moves = (uint32_t)n_moves;
    prefetch->n_started = (uint32_t)n_started;
    const struct plec_keyspace *keys = options->keys;
    prefetch->loads = plec_arena_alloc(arena, n_loads, sizeof *prefetch->loads, err);
    prefetch->demands =
        plec_arena_alloc(arena, options->max_demands, sizeof *prefetch->demands, err);
    prefetch->moves = plec_arena_alloc(arena, n_moves, sizeof *prefetch->moves, err);
    prefetch->started = plec_arena_alloc(arena, n_started, sizeof *prefetch->started, err);
    prefetch->key_load = plec_arena_alloc(arena, keys->n_keys, sizeof *prefetch->key_load, err);
    prefetch->times = plec_arena_alloc(arena, keys->n_layers, sizeof *prefetch->times, err);
    if (prefetch->loads == NULL || prefetch->demands == NULL || prefetch->moves == NULL ||
        prefetch->started == NULL || prefetch->key_load == NULL || prefetch->times == NULL)
        return PLEC_NO_MEMORY;
    enum plec_status status = PLEC_OK;
    for (int c = 0; c < PLEC_N_URGENCIES && status == PLEC_OK; c++) {
        for (int q = 0; q < PLEC_N_QUEUES && status == PLEC_OK; q++)
            status = plec_heap_open(&prefetch->queues[q][c], arena, prefetch->n_loads, err);
        if (status == PLEC_OK)
            status = plec_heap_open(&prefetch->open_moves[c], arena, prefetch->n_moves, err);
    }
    return status;
}

static void link_free(struct plec_prefetch *prefetch) {
    for (uint32_t i = 0; i < prefetch->options.keys->n_keys; i++)
        prefetch->key_load[i] = PLEC_NONE;
    prefetch->free_load = prefetch->free_demand = PLEC_NONE;
    prefetch->free_move = prefetch->free_started = PLEC_NONE;
    for (uint32_t i = prefetch->n_loads; i-- > 0; prefetch->free_load = i)
        prefetch->loads[i] =
            (struct plec_load){.key = PLEC_NO_KEY, .next_free = prefetch->free_load};
    for (uint32_t i = prefetch->options.max_demands; i-- > 0; prefetch->free_demand = i)
        prefetch->demands[i].next = prefetch->free_demand;
    for (uint32_t i = prefetch->n_moves; i-- > 0; prefetch->free_move = i)
        prefetch->moves[i] =
            (struct plec_move){.load = PLEC_NONE, .next_free = prefetch->free_move};
    for (uint32_t i = prefetch->n_started; i-- > 0; prefetch->free_started = i)
        prefetch->started[i].next_free = prefetch->free_started;
    prefetch->first_ended = prefetch->last_ended = PLEC_NONE;
}

enum plec_status plec_prefetch_open(struct plec_prefetch **out,
                                    const struct plec_prefetch_options *options,
                                    struct plec_error *err) {
    *out = NULL;
    struct plec_prefetch *prefetch = calloc(1, sizeof *prefetch);
    if (prefetch == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a scheduler");
    prefetch->options = *options;
    set_defaults(&prefetch->options);
    enum plec_status status = allocate(prefetch, err);
    if (status != PLEC_OK) {
        plec_prefetch_close(prefetch);
        return status;
    }
    link_free(prefetch);
    *out = prefetch;
    return PLEC_OK;
}

void plec_prefetch_close(struct plec_prefetch *prefetch) {
    if (prefetch == NULL) return;
    plec_arena_close(&prefetch->arena);
    free(prefetch);
}

/* --- time and budgets ---------------------------------------------------------------------- */

static void drop_stale(struct plec_prefetch *prefetch, struct plec_heap *heap, int urgency) {
    while (heap->n > 0 && heap->items[0].rank < prefetch->position) {
        uint32_t l = heap->items[0].id;
        struct plec_load *load = &prefetch->loads[l];
        if (load->last_deadline[urgency] >= prefetch->position) {
            load->first_deadline[urgency] = load->last_deadline[urgency];
            plec_load_refresh(prefetch, l);
        } else {
            plec_load_drop(prefetch, l, urgency, UINT64_MAX);
        }
    }
}

void plec_prefetch_advance(struct plec_prefetch *prefetch, uint64_t position) {
    prefetch->position = position;
    plec_residency_advance(prefetch->options.host, position);
    if (prefetch->options.device != NULL)
        plec_residency_advance(prefetch->options.device, position);
    for (int c = PLEC_CERTAIN; c < PLEC_N_URGENCIES; c++)
        for (int q = 0; q < PLEC_N_QUEUES; q++)
            drop_stale(prefetch, &prefetch->queues[q][c], c);
}

void plec_prefetch_set_budget(struct plec_prefetch *prefetch, enum plec_urgency urgency,
                              uint64_t n_bytes) {
    prefetch->options.read_budget[urgency] = n_bytes;
}

struct plec_fit plec_prefetch_fit(const struct plec_prefetch *prefetch, struct plec_need *needs,
                                  uint32_t n) {
    struct plec_residency *final = plec_final_tier(prefetch);
    struct plec_fit fit = {.n_hold = plec_residency_fit(final, needs, n)};
    fit.n_cache = fit.n_hold;
    if (final == prefetch->options.host) return fit;
    uint32_t n_there = 0;
    while (n_there < n && plec_residency_has(final, needs[n_there].key))
        n_there++;
    fit.n_cache =
        n_there + plec_residency_fit(prefetch->options.host, needs + n_there, n - n_there);
    return fit;
}

/* --- demands ------------------------------------------------------------------------------- */

/* Without the error where there is none: it is most of a result's bytes. */
static void copy_result(struct plec_demand_result *out, const struct plec_demand_result *from) {
    bool good = from->status == PLEC_OK;
    memcpy(out, from, good ? offsetof(struct plec_demand_result, error) : sizeof *out);
}

/* Hands out what is all there; false: something is missing. */
static bool answer_at_once(struct plec_demand_result *out, struct plec_prefetch *prefetch,
                           const struct plec_demand_args *args) {
    struct plec_residency *tier = plec_final_tier(prefetch);
    if ((args->mask & ~plec_residency_valid(tier, args->key)) != 0) return false;
    memset(out, 0, offsetof(struct plec_demand_result, error));
    out->key = args->key;
    out->mask = args->mask;
    out->ref = plec_residency_hand_out(
        tier, &(struct plec_hand_out){args->key, args->mask, args->mask, 0});
    prefetch->counters.demands++;
    prefetch->counters.ready_at_once++;
    return true;
}

static uint32_t new_demand(struct plec_prefetch *prefetch, const struct plec_demand_args *args) {
    uint32_t d = prefetch->free_demand;
    struct plec_demand *demand = &prefetch->demands[d];
    prefetch->free_demand = demand->next;
    memset(&demand->result, 0, offsetof(struct plec_demand_result, error));
    demand->result.ticket = (uint64_t)++demand->generation << 32 | (d + 1);
    demand->result.key = args->key;
    demand->result.mask = args->mask;
    demand->asked_at = prefetch->now;
    demand->deadline = args->deadline_ns;
    demand->phase = PLEC_DEMAND_WAITS;
    demand->previous = PLEC_NONE;
    if (prefetch->n_waiting++ == 0) prefetch->last_sign_ns = prefetch->now;
    prefetch->counters.demands++;
    return d;
}

static void lift_wants(struct plec_prefetch *prefetch, struct plec_load *load, int to,
                       uint64_t mask) {
    for (int c = to + 1; c < PLEC_N_URGENCIES; c++) {
        if ((load->want[c] & mask) == 0) continue;
        prefetch->counters.classes[c].lifted++;
        load->want[c] &= ~mask;
    }
}

/* Puts a demand on its key's load, noting what is there and what is under way. */
static uint32_t join_load(struct plec_prefetch *prefetch, uint32_t d,
                          const struct plec_demand_args *args) {
    struct plec_demand *demand = &prefetch->demands[d];
    uint32_t l = plec_load_get(prefetch, args->key);
    struct plec_load *load = &prefetch->loads[l];
    uint64_t there = plec_residency_valid(plec_final_tier(prefetch), args->key);
    uint64_t in_host = plec_residency_valid(prefetch->options.host, args->key);
    bool first = load->demands == PLEC_NONE;
    demand->load = l;
    demand->hit = args->mask & there;
    demand->late = args->mask & ~there & (load->reading | load->copying);
    demand->next = load->demands;
    if (!first) prefetch->demands[load->demands].previous = d;
    load->demands = d;
    uint64_t fresh = args->mask & ~there & ~load->want[PLEC_DEMAND];
    load->want[PLEC_DEMAND] |= fresh;
    load->host_hit |= fresh & in_host;
    load->host_late |= fresh & ~in_host & load->reading;
    lift_wants(prefetch, load, PLEC_DEMAND, args->mask);
    if (first) load->first_deadline[PLEC_DEMAND] = prefetch->now;
    load->origin[PLEC_DEMAND] = PLEC_FROM_DEMAND;
    load->stream = args->stream && (first || load->stream);
    load->stream_host = args->stream_host && (first || load->stream_host);
    return l;
}

/* Whether a demand can never be served; fills *err. */
static bool out_of_service(struct plec_error *err, const struct plec_prefetch *prefetch) {
    const struct plec_residency *device = prefetch->options.device;
    bool host = plec_residency_in_service(prefetch->options.host) == 0;
    if (!host && (device == NULL || plec_residency_in_service(device) > 0)) return false;
    plec_fail(err, PLEC_NO_MEMORY, "NoSlotInService", "every %s held what was not read into it",
              host ? "frame" : "slot");
    return true;
}

static void end_all_demands(struct plec_prefetch *prefetch, const struct plec_error *err) {
    for (uint32_t l = 0; l < prefetch->n_loads; l++)
        if (prefetch->loads[l].key != PLEC_NO_KEY && prefetch->loads[l].demands != PLEC_NONE) {
            plec_demands_fail(prefetch, l, UINT64_MAX, err);
            plec_load_refresh(prefetch, l);
        }
}

void plec_prefetch_quarantined(struct plec_prefetch *prefetch, uint32_t key, uint64_t now) {
    struct plec_error err;
    uint32_t l = prefetch->key_load[key];
    prefetch->now = now;
    if (l != PLEC_NONE) {
        plec_load_let_go(prefetch, &prefetch->loads[l]);
        plec_load_refresh(prefetch, l);
    }
    if (out_of_service(&err, prefetch)) end_all_demands(prefetch, &err);
}

enum plec_demand_state plec_prefetch_demand(struct plec_demand_result *out,
                                            struct plec_prefetch *prefetch,
                                            const struct plec_demand_args *args, uint64_t now) {
    assert(args->mask != 0 && args->key < prefetch->options.keys->n_keys &&
           (args->mask & ~plec_key_full(&prefetch->options.keys->keys[args->key])) == 0);
    prefetch->now = now;
    if (answer_at_once(out, prefetch, args)) return PLEC_DEMAND_READY;
    if (prefetch->free_demand == PLEC_NONE) return PLEC_DEMAND_FULL;
    uint32_t d = new_demand(prefetch, args);
    copy_result(out, &prefetch->demands[d].result);
    uint32_t l = join_load(prefetch, d, args);
    struct plec_error err;
    if (out_of_service(&err, prefetch)) plec_demands_fail(prefetch, l, UINT64_MAX, &err);
    plec_load_refresh(prefetch, l);
    return PLEC_DEMAND_WAITING;
}

static struct plec_demand *find_demand(struct plec_prefetch *prefetch, plec_ticket ticket) {
    uint32_t d = (uint32_t)ticket - 1;
    if (d >= prefetch->options.max_demands) return NULL;
    struct plec_demand *demand = &prefetch->demands[d];
    return demand->phase != PLEC_DEMAND_FREE && demand->result.ticket == ticket ? demand : NULL;
}

void plec_prefetch_cancel(struct plec_prefetch *prefetch, plec_ticket ticket, uint64_t now) {
    struct plec_demand *demand = find_demand(prefetch, ticket);
    if (demand == NULL || demand->phase != PLEC_DEMAND_WAITS) return;
    prefetch->now = now;
    plec_fail(&demand->result.error, PLEC_CANCELLED, "Cancelled", "extent %u is no longer needed",
              demand->result.key);
    uint32_t l = demand->load;
    plec_demand_end(prefetch, (uint32_t)(demand - prefetch->demands), PLEC_CANCELLED);
    plec_load_refresh(prefetch, l);
}

static void take(struct plec_demand_result *out, struct plec_prefetch *prefetch, uint32_t d) {
    struct plec_demand *demand = &prefetch->demands[d];
    copy_result(out, &demand->result);
    if (demand->previous != PLEC_NONE)
        prefetch->demands[demand->previous].next = demand->next;
    else
        prefetch->first_ended = demand->next;
    if (demand->next != PLEC_NONE)
        prefetch->demands[demand->next].previous = demand->previous;
    else
        prefetch->last_ended = demand->previous;
    demand->phase = PLEC_DEMAND_FREE;
    demand->next = prefetch->free_demand;
    prefetch->free_demand = d;
    prefetch->n_untaken--;
}

bool plec_prefetch_take(struct plec_demand_result *out, struct plec_prefetch *prefetch,
                        plec_ticket ticket) {
    struct plec_demand *demand = find_demand(prefetch, ticket);
    assert(demand != NULL);
    if (demand->phase != PLEC_DEMAND_ENDED) return false;
    take(out, prefetch, (uint32_t)(demand - prefetch->demands));
    return true;
}

bool plec_prefetch_has_ended(const struct plec_prefetch *prefetch) {
    return prefetch->first_ended != PLEC_NONE;
}

bool plec_prefetch_next_ended(struct plec_demand_result *out, struct plec_prefetch *prefetch) {
    if (prefetch->first_ended == PLEC_NONE) return false;
    take(out, prefetch, prefetch->first_ended);
    return true;
}

/* --- requests ------------------------------------------------------------------------------ */

/* Gives up a request of a lower class that has nothing under way. False: there is none. */
static bool displace(struct plec_prefetch *prefetch, int urgency) {
    for (int c = PLEC_IDLE; c > urgency; c--) {
        const struct plec_heap *heap = &prefetch->queues[PLEC_TO_READ][c];
        if (heap->n == 0) continue;
        uint32_t l = heap->items[heap->n - 1].id; /* among the latest deadlines */
        struct plec_load *load = &prefetch->loads[l];
        bool alone = plec_load_wanted(load) == load->want[c] && load->n_reads == 0 &&
                     load->n_moves == 0 && load->counted;
        if (!alone) continue;
        plec_load_drop(prefetch, l, c, UINT64_MAX);
        return true;
    }
    return false;
}

/* Whether a load of this key may be counted as a request. */
static bool has_room(struct plec_prefetch *prefetch, uint32_t key, int urgency) {
    uint32_t l = prefetch->key_load[key];
    if (l != PLEC_NONE && prefetch->loads[l].counted) return true;
    return prefetch->n_requests < prefetch->options.max_requests || displace(prefetch, urgency);
}

static void set_deadline(struct plec_load *load, const struct plec_request *request) {
    int c = request->urgency;
    bool fresh = load->want[c] == 0;
    if (fresh || request->deadline < load->first_deadline[c])
        load->first_deadline[c] = request->deadline;
    if (fresh || request->deadline > load->last_deadline[c])
        load->last_deadline[c] = request->deadline;
    if (fresh) load->origin[c] = (uint8_t)request->origin;
}

static enum plec_request_state merge(struct plec_prefetch *prefetch,
                                     const struct plec_request *request, uint64_t bits) {
    uint32_t l = prefetch->key_load[request->key];
    struct plec_load *load = l != PLEC_NONE ? &prefetch->loads[l] : NULL;
    uint64_t asked = 0;
    for (int c = PLEC_DEMAND; load != NULL && c <= (int)request->urgency; c++)
        asked |= load->want[c];
    uint64_t fresh = bits & ~asked;
    if (fresh == 0) {
        if (!request->host_only) load->host_only &= ~bits;
        if ((load->want[request->urgency] & bits) != 0) set_deadline(load, request);
        plec_load_refresh(prefetch, l);
        return PLEC_REQUEST_MERGED;
    }
    if (!has_room(prefetch, request->key, request->urgency)) return PLEC_REQUEST_FULL;
    l = plec_load_get(prefetch, request->key);
    load = &prefetch->loads[l];
    uint64_t known = plec_load_wanted(load);
    lift_wants(prefetch, load, request->urgency, fresh);
    set_deadline(load, request);
    load->want[request->urgency] |= fresh;
    if (request->host_only)
        load->host_only |= fresh & ~known;
    else
        load->host_only &= ~bits;
    prefetch->n_requests += !load->counted;
    load->counted = true;
    plec_load_refresh(prefetch, l);
    return (fresh & ~known) != 0 ? PLEC_REQUEST_TAKEN : PLEC_REQUEST_MERGED;
}

/* What is certain and there already shall stay: on the device, or in its frame until it is copied.
 */
static void expect(struct plec_prefetch *prefetch, const struct plec_request *request,
                   uint64_t mask) {
    struct plec_residency *final = plec_final_tier(prefetch);
    if ((plec_residency_valid(final, request->key) & mask) != 0)
        plec_residency_expect(final, request->key, request->deadline);
    uint64_t to_copy = mask & ~plec_residency_valid(final, request->key);
    if ((plec_residency_valid(prefetch->options.host, request->key) & to_copy) != 0)
        plec_residency_expect(prefetch->options.host, request->key, request->deadline);
}

static enum plec_request_state ask(struct plec_prefetch *prefetch,
                                   const struct plec_request *request) {
    const struct plec_key *key = &prefetch->options.keys->keys[request->key];
    uint64_t mask = request->mask != 0 ? request->mask : plec_key_full(key);
    if (request->deadline < prefetch->position) return PLEC_REQUEST_LATE;
    if (request->urgency == PLEC_CERTAIN) expect(prefetch, request, mask);
    uint64_t there = plec_residency_valid(plec_final_tier(prefetch), request->key);
    if (request->host_only) there |= plec_residency_valid(prefetch->options.host, request->key);
    if ((mask & ~there) == 0) return PLEC_REQUEST_THERE;
    return merge(prefetch, request, mask & ~there);
}

enum plec_request_state plec_prefetch_request(struct plec_prefetch *prefetch,
                                              const struct plec_request *request) {
    assert(request->urgency > PLEC_DEMAND && request->urgency < PLEC_N_URGENCIES);
    assert(request->key < prefetch->options.keys->n_keys);
    enum plec_request_state state = ask(prefetch, request);
    struct plec_class_counters *counters = &prefetch->counters.classes[request->urgency];
    counters->asked++;
    counters->merged += state == PLEC_REQUEST_MERGED;
    counters->there += state == PLEC_REQUEST_THERE;
    counters->late += state == PLEC_REQUEST_LATE;
    counters->full += state == PLEC_REQUEST_FULL;
    return state;
}

void plec_prefetch_drop(struct plec_prefetch *prefetch, enum plec_origin origin, uint32_t key) {
    for (uint32_t l = 0; l < prefetch->n_loads; l++)
        for (int c = PLEC_CERTAIN; c < PLEC_N_URGENCIES; c++) {
            struct plec_load *load = &prefetch->loads[l];
            if (load->key == PLEC_NO_KEY) break;
            if (key != PLEC_NO_KEY && load->key != key) break;
            if (load->want[c] != 0 && load->origin[c] == (uint8_t)origin)
                plec_load_drop(prefetch, l, c, UINT64_MAX);
        }
}
