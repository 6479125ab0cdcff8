/* Jobs: which one starts next, and what its end means. */
#include <assert.h>

#include "host/prefetch_parts.h"

/* Weight of the newest read in the mean times. */
static const double TIME_WEIGHT = 1.0 / 8;
/* Reads of a kind before their mean time is trusted, and bounds on what it may say. */
enum { MIN_SAMPLES = 4 };
static const double LEAST_RATIO = 0.05, MOST_RATIO = 1;

/* --- the table of started jobs ------------------------------------------------------------- */

static struct plec_started *new_job(struct plec_prefetch *prefetch, enum plec_job_kind kind,
                                    enum plec_urgency urgency, uint32_t load) {
    uint32_t i = prefetch->free_started;
    assert(i != PLEC_NONE);
    struct plec_started *job = &prefetch->started[i];
    prefetch->free_started = job->next_free;
    prefetch->job_generation = prefetch->job_generation % 0xffff + 1;
    *job = (struct plec_started){.id = prefetch->job_generation << 16 | i,
                                 .kind = kind,
                                 .urgency = urgency,
                                 .load = load,
                                 .move = PLEC_NONE,
                                 .started_at = prefetch->now};
    return job;
}

static struct plec_started *find_job(struct plec_prefetch *prefetch, uint32_t id) {
    uint32_t i = id & 0xffff;
    assert(id != 0 && i < prefetch->n_started && prefetch->started[i].id == id);
    return &prefetch->started[i];
}

static void free_job(struct plec_prefetch *prefetch, struct plec_started *job) {
    job->id = 0;
    job->next_free = prefetch->free_started;
    prefetch->free_started = (uint32_t)(job - prefetch->started);
}

/* --- choosing a load ----------------------------------------------------------------------- */

/* Takes what is past its deadline out of a queue's front; its first load, PLEC_NONE: empty. */
static uint32_t front(struct plec_prefetch *prefetch, enum plec_queue queue, int urgency) {
    const struct plec_heap *heap = &prefetch->queues[queue][urgency];
    while (heap->n > 0) {
        uint32_t l = heap->items[0].id;
        if (urgency == PLEC_DEMAND ||
            prefetch->loads[l].last_deadline[urgency] >= prefetch->position)
            return l;
        plec_load_drop(prefetch, l, urgency, UINT64_MAX);
    }
    return PLEC_NONE;
}

struct fronts {
    uint32_t first, other; /* by deadline; PLEC_NONE */
};

/* The first load that needs a slot and the first that has one. */
static struct fronts fronts(struct plec_prefetch *prefetch, enum plec_queue unplaced, int urgency) {
    uint16_t both = plec_queue_bit(unplaced, urgency) | plec_queue_bit(unplaced + 1, urgency);
    if ((prefetch->filled & both) == 0) return (struct fronts){PLEC_NONE, PLEC_NONE};
    uint32_t a = front(prefetch, unplaced, urgency);
    uint32_t b = front(prefetch, unplaced + 1, urgency);
    if (a == PLEC_NONE || b == PLEC_NONE) return (struct fronts){a != PLEC_NONE ? a : b, PLEC_NONE};
    bool b_first =
        prefetch->loads[b].first_deadline[urgency] < prefetch->loads[a].first_deadline[urgency];
    return b_first ? (struct fronts){b, PLEC_NONE} : (struct fronts){a, b};
}

/* The first experts of a mask that have at most n_bytes, at least one. */
static uint64_t cut(const struct plec_key *key, uint64_t mask, uint64_t n_bytes) {
    if (plec_key_bytes(key, mask) <= n_bytes) return mask;
    uint64_t some = mask & -mask;
    for (mask &= mask - 1; mask != 0; mask &= mask - 1) {
        uint64_t more = some | (mask & -mask);
        if (plec_key_bytes(key, more) > n_bytes) break;
        some = more;
    }
    return some;
}

/* --- reads --------------------------------------------------------------------------------- */

double plec_prefetch_whole_ratio(const struct plec_prefetch *prefetch, uint32_t layer) {
    const struct plec_read_times *times = &prefetch->times[layer];
    if (times->n_whole < MIN_SAMPLES || times->n_one < MIN_SAMPLES)
        return prefetch->options.whole_ratio;
    double ratio = times->whole_ns / times->one_ns;
    return ratio < LEAST_RATIO ? LEAST_RATIO : ratio > MOST_RATIO ? MOST_RATIO : ratio;
}

static bool whole_pays(const struct plec_prefetch *prefetch, const struct plec_key *key,
                       double n_used) {
    return key->n_entries > 1 &&
           n_used / key->n_entries >= plec_prefetch_whole_ratio(prefetch, key->layer);
}

/* What a read of this load in this class would read: what is asked for, or all of the extent. */
static uint64_t choose_read(uint64_t *asked, const struct plec_prefetch *prefetch,
                            const struct plec_load *load, enum plec_urgency urgency) {
    const struct plec_key *key = plec_load_key(prefetch, load);
    uint64_t readable = plec_load_readable(prefetch, load, urgency);
    *asked = readable;
    bool untouched = load->reading == 0 && load->copying == 0 &&
                     plec_residency_valid(prefetch->options.host, load->key) == 0;
    if (urgency == PLEC_DEMAND && untouched && whole_pays(prefetch, key, plec_count_bits(readable)))
        return plec_key_full(key);
    return *asked = cut(key, readable, prefetch->options.read_bytes[urgency]);
}

/* After single reads of an extent: the rest of it, if enough of the rest will be used, judged by
 * what was used of the layer's extents before. Not taken when the queue is full. */
static void request_rest(struct plec_prefetch *prefetch, uint32_t key_id, uint64_t read) {
    const struct plec_key *key = &prefetch->options.keys->keys[key_id];
    uint32_t n = plec_count_bits(read);
    double share = plec_residency_use_share(prefetch->options.host, key->layer);
    uint32_t rest = key->n_entries - n;
    if (rest == 0 || share < 0) return;
    double used_of_rest = (share * key->n_entries - n) / rest;
    if (used_of_rest < plec_prefetch_whole_ratio(prefetch, key->layer)) return;
    struct plec_request request = {
        .key = key_id,
        .urgency = PLEC_LIKELY,
        .deadline = prefetch->position + prefetch->options.keys->n_layers,
        .origin = PLEC_FROM_EXTENT,
        .host_only = true,
    };
    (void)plec_prefetch_request(prefetch, &request); /* full: not worth displacing anything */
}

static enum plec_place_for place_why(enum plec_urgency urgency, bool stream) {
    if (urgency == PLEC_DEMAND) return stream ? PLEC_PLACE_STREAM : PLEC_PLACE_DEMAND;
    return urgency == PLEC_CERTAIN ? PLEC_PLACE_CERTAIN : PLEC_PLACE_SPECULATION;
}

/* A slot of a tier for a load, retained; false: none now. */
static bool place(struct plec_slot_ref *out, struct plec_prefetch *prefetch,
                  struct plec_residency *tier, const struct plec_load *load,
                  enum plec_urgency urgency) {
    bool stream = tier == plec_final_tier(prefetch) ? load->stream : load->stream_host;
    struct plec_place_args args = {load->key, place_why(urgency, stream),
                                   load->last_deadline[urgency]};
    struct plec_eviction evicted;
    bool placed = plec_residency_place(out, &evicted, tier, &args);
    plec_load_evicted(prefetch, &evicted, tier == prefetch->options.host);
    return placed;
}

/* A demand has its device slot before it takes a frame. */
static bool place_slot_first(struct plec_prefetch *prefetch, struct plec_load *load,
                             enum plec_urgency urgency) {
    struct plec_residency *device = prefetch->options.device;
    if (urgency != PLEC_DEMAND || device == NULL || load->holds_slot) return true;
    load->holds_slot = place(&load->slot, prefetch, device, load, urgency);
    if (load->holds_slot) load->slot_at = prefetch->now;
    return load->holds_slot;
}

static void tell_read(struct plec_job *out, const struct plec_prefetch *prefetch,
                      const struct plec_started *job) {
    *out = (struct plec_job){.id = job->id,
                             .kind = PLEC_JOB_READ,
                             .urgency = job->urgency,
                             .key = prefetch->loads[job->load].key,
                             .mask = job->mask,
                             .frame = job->frame.slot,
                             .n_bytes = job->n_bytes};
}

static bool start_read(struct plec_job *out, struct plec_prefetch *prefetch, uint32_t l,
                       enum plec_urgency urgency) {
    struct plec_load *load = &prefetch->loads[l];
    struct plec_slot_ref frame;
    if (!place_slot_first(prefetch, load, urgency) ||
        !place(&frame, prefetch, prefetch->options.host, load, urgency)) {
        plec_load_refresh(prefetch, l); /* it may have got its device slot */
        return false;
    }
    struct plec_started *job = new_job(prefetch, PLEC_JOB_READ, urgency, l);
    const struct plec_key *key = plec_load_key(prefetch, load);
    job->mask = choose_read(&job->asked, prefetch, load, urgency);
    job->n_bytes = plec_key_bytes(key, job->mask);
    job->frame = frame;
    job->origin = load->origin[urgency];
    load->reading |= job->mask;
    load->n_reads++;
    prefetch->n_reading++;
    prefetch->counters.classes[urgency].reading++;
    prefetch->counters.classes[urgency].reading_bytes += job->n_bytes;
    prefetch->counters.whole_reads += job->mask != job->asked;
    tell_read(out, prefetch, job);
    uint64_t asked = job->asked;
    bool single = urgency == PLEC_DEMAND && job->mask == asked;
    plec_load_refresh(prefetch, l);
    if (single) request_rest(prefetch, out->key, asked);
    return true;
}

static bool fits_budget(const struct plec_prefetch *prefetch, const struct plec_load *load,
                        enum plec_urgency urgency) {
    uint64_t under_way = prefetch->counters.classes[urgency].reading_bytes, asked;
    uint64_t budget = prefetch->options.read_budget[urgency];
    uint64_t mask = choose_read(&asked, prefetch, load, urgency);
    uint64_t n_bytes = plec_key_bytes(plec_load_key(prefetch, load), mask);
    return under_way == 0 || (under_way <= budget && n_bytes <= budget - under_way);
}

bool plec_prefetch_next_read(struct plec_job *out, struct plec_prefetch *prefetch, uint64_t now) {
    prefetch->now = now;
    if (prefetch->n_reading >= prefetch->options.max_reads) return false;
    for (int c = PLEC_DEMAND; c < PLEC_N_URGENCIES; c++) {
        if (c >= PLEC_LIKELY && prefetch->n_waiting > 0) return false;
        if (prefetch->options.read_budget[c] == 0) continue;
        struct fronts next = fronts(prefetch, PLEC_TO_READ, c);
        if (next.first == PLEC_NONE) continue;
        if (!fits_budget(prefetch, &prefetch->loads[next.first], c)) return false;
        if (start_read(out, prefetch, next.first, c)) return true;
        return next.other != PLEC_NONE && fits_budget(prefetch, &prefetch->loads[next.other], c) &&
               start_read(out, prefetch, next.other, c);
    }
    return false;
}

static void learn_times(struct plec_prefetch *prefetch, const struct plec_started *job,
                        uint64_t n_bytes) {
    const struct plec_key *key = plec_load_key(prefetch, &prefetch->loads[job->load]);
    struct plec_read_times *times = &prefetch->times[key->layer];
    double took = (double)(prefetch->now - job->started_at);
    double cost = n_bytes > 0 ? took / (double)n_bytes : 0;
    prefetch->ns_per_byte +=
        prefetch->ns_per_byte > 0 ? TIME_WEIGHT * (cost - prefetch->ns_per_byte) : cost;
    bool whole = job->mask == plec_key_full(key);
    if (!whole && plec_count_bits(job->mask) != 1) return;
    double *mean = whole ? &times->whole_ns : &times->one_ns;
    uint32_t *n = whole ? &times->n_whole : &times->n_one;
    double each = took / plec_count_bits(job->mask);
    *mean += *n > 0 ? TIME_WEIGHT * (each - *mean) : each;
    *n += *n < MIN_SAMPLES;
}

double plec_prefetch_read_cost(const struct plec_prefetch *prefetch) {
    return prefetch->ns_per_byte;
}

static void read_arrived(struct plec_prefetch *prefetch, struct plec_started *job,
                         uint64_t n_bytes) {
    struct plec_load *load = &prefetch->loads[job->load];
    struct plec_class_counters *counters = &prefetch->counters.classes[job->urgency];
    struct plec_residency *host = prefetch->options.host;
    plec_residency_loaded(host, job->frame, job->asked, (enum plec_origin)job->origin);
    if (job->mask != job->asked)
        plec_residency_loaded(host, job->frame, job->mask & ~job->asked, PLEC_FROM_EXTENT);
    load->read_at = prefetch->now;
    counters->reads++;
    counters->read_experts += plec_count_bits(job->mask);
    counters->read_bytes += n_bytes;
    counters->orphaned += (plec_load_wanted(load) & job->mask) == 0;
    learn_times(prefetch, job, n_bytes);
}

/* Nobody is to wait for, or be served later, what a failed job was to bring. */
static void give_up(struct plec_prefetch *prefetch, const struct plec_started *job, uint64_t mask,
                    const struct plec_error *err) {
    struct plec_load *load = &prefetch->loads[job->load];
    prefetch->counters.classes[job->urgency].failed++;
    plec_demands_fail(prefetch, job->load, mask, err);
    for (int c = PLEC_CERTAIN; c < PLEC_N_URGENCIES; c++)
        load->want[c] &= ~mask;
}

static void forget_read(struct plec_prefetch *prefetch, const struct plec_started *job) {
    struct plec_load *load = &prefetch->loads[job->load];
    struct plec_class_counters *counters = &prefetch->counters.classes[job->urgency];
    load->reading &= ~job->mask;
    load->n_reads--;
    prefetch->n_reading--;
    counters->reading--;
    counters->reading_bytes -= job->n_bytes;
}

/* Gives back a read's reference, after the load has taken its own; a frame that nobody keeps and
 * that does not cache is empty from then on. */
static void release_frame(struct plec_prefetch *prefetch, const struct plec_started *job) {
    uint32_t key = prefetch->loads[job->load].key;
    struct plec_residency *host = prefetch->options.host;
    plec_load_refresh(prefetch, job->load);
    plec_residency_release(host, job->frame);
    if (plec_residency_has(host, key) || prefetch->key_load[key] == PLEC_NONE) return;
    plec_load_refresh(prefetch, prefetch->key_load[key]);
}

static void read_ended(struct plec_prefetch *prefetch, struct plec_started *job, uint64_t n_bytes,
                       const struct plec_error *err) {
    forget_read(prefetch, job);
    if (err == NULL)
        read_arrived(prefetch, job, n_bytes);
    else
        give_up(prefetch, job, job->mask, err);
    release_frame(prefetch, job);
}

/* --- copies -------------------------------------------------------------------------------- */

/* Retains the frame of a load for copying, counting the use. */
static struct plec_slot_ref take_frame(struct plec_prefetch *prefetch, const struct plec_load *load,
                                       uint64_t mask, enum plec_urgency urgency) {
    if (urgency != PLEC_DEMAND) return plec_residency_take(prefetch->options.host, load->key, mask);
    return plec_residency_hand_out(
        prefetch->options.host,
        &(struct plec_hand_out){load->key, mask, load->host_hit, load->host_late});
}

/* Begins to copy experts of a load. PLEC_NONE: no device slot now. */
static uint32_t start_move(struct plec_prefetch *prefetch, uint32_t l, enum plec_urgency urgency) {
    struct plec_load *load = &prefetch->loads[l];
    struct plec_slot_ref slot;
    if (!place(&slot, prefetch, prefetch->options.device, load, urgency)) return PLEC_NONE;
    const struct plec_key *key = plec_load_key(prefetch, load);
    uint64_t mask =
        cut(key, plec_load_copyable(prefetch, load, urgency), prefetch->options.chunk_bytes);
    uint32_t m = prefetch->free_move;
    struct plec_move *move = &prefetch->moves[m];
    prefetch->free_move = move->next_free;
    *move = (struct plec_move){.load = l,
                               .mask = mask,
                               .n_bytes = plec_key_bytes(key, mask),
                               .urgency = urgency,
                               .origin = load->origin[urgency],
                               .slot = slot};
    move->frame = take_frame(prefetch, load, mask, urgency);
    load->copying |= mask;
    load->n_moves++;
    plec_heap_put(&prefetch->open_moves[urgency], m, load->first_deadline[urgency]);
    plec_load_refresh(prefetch, l);
    return m;
}

/* Issues the next chunk of a move. */
static void start_chunk(struct plec_job *out, struct plec_prefetch *prefetch, uint32_t m) {
    struct plec_move *move = &prefetch->moves[m];
    struct plec_started *job = new_job(prefetch, PLEC_JOB_COPY, move->urgency, move->load);
    uint64_t left = move->n_bytes - move->issued, chunk = prefetch->options.chunk_bytes;
    job->move = m;
    job->mask = move->mask;
    job->at = move->issued;
    job->n_bytes = left < chunk ? left : chunk;
    move->issued += job->n_bytes;
    move->flying++;
    prefetch->counters.classes[move->urgency].copying++;
    if (move->issued == move->n_bytes) plec_heap_remove(&prefetch->open_moves[move->urgency], m);
    *out = (struct plec_job){.id = job->id,
                             .kind = PLEC_JOB_COPY,
                             .urgency = job->urgency,
                             .key = prefetch->loads[move->load].key,
                             .mask = move->mask,
                             .frame = move->frame.slot,
                             .slot = move->slot.slot,
                             .at = job->at,
                             .n_bytes = job->n_bytes};
}

bool plec_prefetch_next_copy(struct plec_job *out, struct plec_prefetch *prefetch, uint64_t now) {
    prefetch->now = now;
    bool blocked =
        false; /* a class waits for a device slot: lower ones only finish what they hold */
    for (int c = PLEC_DEMAND; prefetch->options.device != NULL && c < PLEC_N_URGENCIES; c++) {
        blocked = blocked || (c >= PLEC_LIKELY && prefetch->n_waiting > 0);
        const struct plec_heap *open = &prefetch->open_moves[c];
        bool at_most = prefetch->counters.classes[c].copying >= prefetch->options.copies[c];
        uint32_t m = open->n > 0 ? open->items[0].id : PLEC_NONE;
        struct fronts next = {PLEC_NONE, PLEC_NONE};
        if (!blocked && prefetch->free_move != PLEC_NONE) next = fronts(prefetch, PLEC_TO_COPY, c);
        if (at_most && (m != PLEC_NONE || next.first != PLEC_NONE)) return false;
        if (m == PLEC_NONE && next.first != PLEC_NONE) m = start_move(prefetch, next.first, c);
        if (m == PLEC_NONE && next.other != PLEC_NONE) m = start_move(prefetch, next.other, c);
        if (m != PLEC_NONE) {
            start_chunk(out, prefetch, m);
            return true;
        }
        blocked = blocked || next.first != PLEC_NONE;
    }
    return false;
}

static void copy_ended(struct plec_prefetch *prefetch, struct plec_started *job, uint64_t n_bytes,
                       const struct plec_error *err) {
    struct plec_move *move = &prefetch->moves[job->move];
    struct plec_class_counters *counters = &prefetch->counters.classes[job->urgency];
    counters->copying--;
    move->flying--;
    if (err == NULL) {
        counters->copies++;
        counters->copied_bytes += n_bytes;
    } else {
        plec_heap_remove(&prefetch->open_moves[move->urgency], job->move);
        move->broken = true;
        give_up(prefetch, job, move->mask, err);
    }
    if (move->flying == 0 && (move->broken || move->issued == move->n_bytes))
        plec_move_end(prefetch, job->move);
    plec_load_refresh(prefetch, job->load);
}

/* --- ends ---------------------------------------------------------------------------------- */

void plec_prefetch_job_ended(struct plec_prefetch *prefetch, uint32_t id, uint64_t now,
                             uint64_t n_bytes, const struct plec_error *err) {
    struct plec_started *job = find_job(prefetch, id);
    prefetch->now = prefetch->last_sign_ns = now;
    if (job->kind == PLEC_JOB_READ)
        read_ended(prefetch, job, n_bytes, err);
    else
        copy_ended(prefetch, job, n_bytes, err);
    free_job(prefetch, job);
}

void plec_prefetch_job_returned(struct plec_prefetch *prefetch, uint32_t id) {
    struct plec_started *job = find_job(prefetch, id);
    if (job->kind == PLEC_JOB_READ) {
        forget_read(prefetch, job);
        prefetch->counters.whole_reads -= job->mask != job->asked;
        release_frame(prefetch, job);
    } else {
        struct plec_move *move = &prefetch->moves[job->move];
        assert(job->at + job->n_bytes == move->issued); /* the last one given */
        prefetch->counters.classes[job->urgency].copying--;
        move->flying--;
        move->issued = job->at;
        plec_heap_put(&prefetch->open_moves[move->urgency], job->move,
                      prefetch->loads[job->load].first_deadline[move->urgency]);
        plec_load_refresh(prefetch, job->load);
    }
    free_job(prefetch, job);
}
