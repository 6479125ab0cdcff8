/* Loads, and the demands and moves that hang on them. */
#include <assert.h>

#include "host/prefetch_parts.h"

static uint64_t most(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}
static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

/* --- demands ------------------------------------------------------------------------------- */

static void unlink_from_load(struct plec_prefetch *prefetch, struct plec_demand *demand) {
    if (demand->previous != PLEC_NONE)
        prefetch->demands[demand->previous].next = demand->next;
    else
        prefetch->loads[demand->load].demands = demand->next;
    if (demand->next != PLEC_NONE) prefetch->demands[demand->next].previous = demand->previous;
}

static void link_ended(struct plec_prefetch *prefetch, uint32_t d) {
    struct plec_demand *demand = &prefetch->demands[d];
    demand->next = PLEC_NONE;
    demand->previous = prefetch->last_ended;
    if (prefetch->last_ended != PLEC_NONE)
        prefetch->demands[prefetch->last_ended].next = d;
    else
        prefetch->first_ended = d;
    prefetch->last_ended = d;
}

/* Divides the wait: for a slot, then for the last read, then for copies. */
static void time_wait(struct plec_demand *demand, const struct plec_load *load, uint64_t now) {
    struct plec_demand_result *result = &demand->result;
    uint64_t slot_at = least(most(load->slot_at, demand->asked_at), now);
    uint64_t read_at = least(most(load->read_at, slot_at), now);
    result->wait_ns = now - demand->asked_at;
    result->slot_ns = slot_at - demand->asked_at;
    result->disk_ns = read_at - slot_at;
    result->copy_ns = now - read_at;
}

static void count_ready(struct plec_prefetch_counters *counters,
                        const struct plec_demand_result *result) {
    counters->ready++;
    counters->wait_ns += result->wait_ns;
    counters->slot_ns += result->slot_ns;
    counters->disk_ns += result->disk_ns;
    counters->copy_ns += result->copy_ns;
    counters->longest_wait_ns = most(counters->longest_wait_ns, result->wait_ns);
}

void plec_demand_end(struct plec_prefetch *prefetch, uint32_t d, enum plec_status status) {
    struct plec_demand *demand = &prefetch->demands[d];
    struct plec_demand_result *result = &demand->result;
    assert(demand->phase == PLEC_DEMAND_WAITS);
    result->status = status;
    time_wait(demand, &prefetch->loads[demand->load], prefetch->now);
    if (status == PLEC_OK) {
        result->ref = plec_residency_hand_out(
            plec_final_tier(prefetch),
            &(struct plec_hand_out){result->key, result->mask, demand->hit, demand->late});
        count_ready(&prefetch->counters, result);
    } else if (status == PLEC_CANCELLED) {
        prefetch->counters.cancelled++;
    } else {
        prefetch->counters.failed++;
    }
    unlink_from_load(prefetch, demand);
    link_ended(prefetch, d);
    demand->phase = PLEC_DEMAND_ENDED;
    prefetch->n_waiting--;
    prefetch->n_untaken++;
}

void plec_demands_fail(struct plec_prefetch *prefetch, uint32_t l, uint64_t mask,
                       const struct plec_error *err) {
    uint32_t next;
    for (uint32_t d = prefetch->loads[l].demands; d != PLEC_NONE; d = next) {
        struct plec_demand *demand = &prefetch->demands[d];
        next = demand->next;
        if ((demand->result.mask & mask) == 0) continue;
        demand->result.error = *err;
        plec_demand_end(prefetch, d, err->code != PLEC_OK ? err->code : PLEC_IO);
    }
}

/* Ends the demands whose experts are all there; returns what the others want. */
static uint64_t answer_demands(struct plec_prefetch *prefetch, uint32_t l, uint64_t there) {
    uint64_t wanted = 0;
    uint32_t next;
    for (uint32_t d = prefetch->loads[l].demands; d != PLEC_NONE; d = next) {
        next = prefetch->demands[d].next;
        uint64_t missing = prefetch->demands[d].result.mask & ~there;
        if (missing == 0)
            plec_demand_end(prefetch, d, PLEC_OK);
        else
            wanted |= missing;
    }
    return wanted;
}

/* --- holds --------------------------------------------------------------------------------- */

void plec_load_let_go(struct plec_prefetch *prefetch, struct plec_load *load) {
    if (load->holds_frame) plec_residency_release(prefetch->options.host, load->frame);
    if (load->holds_slot) plec_residency_release(prefetch->options.device, load->slot);
    load->holds_frame = load->holds_slot = false;
}

/* What demands wait for does not leave before they had it. The device slot comes first: whoever
 * keeps a frame can move on without waiting for another who does. */
static void hold(struct plec_prefetch *prefetch, struct plec_load *load) {
    struct plec_residency *device = prefetch->options.device;
    bool had = device != NULL ? load->holds_slot : load->holds_frame;
    if (device != NULL && !load->holds_slot)
        load->holds_slot = plec_residency_hold(&load->slot, device, load->key);
    if (!load->holds_frame && (device == NULL || load->holds_slot))
        load->holds_frame = plec_residency_hold(&load->frame, prefetch->options.host, load->key);
    bool has = device != NULL ? load->holds_slot : load->holds_frame;
    if (has && !had) load->slot_at = prefetch->now;
}

/* --- moves --------------------------------------------------------------------------------- */

void plec_move_end(struct plec_prefetch *prefetch, uint32_t m) {
    struct plec_move *move = &prefetch->moves[m];
    struct plec_load *load = &prefetch->loads[move->load];
    assert(move->flying == 0);
    if (!move->broken)
        plec_residency_loaded(prefetch->options.device, move->slot, move->mask,
                              (enum plec_origin)move->origin);
    plec_residency_release(prefetch->options.host, move->frame);
    plec_residency_release(prefetch->options.device, move->slot);
    plec_heap_remove(&prefetch->open_moves[move->urgency], m);
    load->copying &= ~move->mask;
    load->n_moves--;
    move->load = PLEC_NONE;
    move->next_free = prefetch->free_move;
    prefetch->free_move = m;
}

/* Gives a move with chunks to issue the class of its most urgent expert, or breaks it off when
 * nobody wants any. */
static void tend_move(struct plec_prefetch *prefetch, const struct plec_load *load, uint32_t m) {
    struct plec_move *move = &prefetch->moves[m];
    int urgency = PLEC_DEMAND;
    while (urgency < PLEC_N_URGENCIES && (load->want[urgency] & move->mask) == 0)
        urgency++;
    if (urgency == (int)move->urgency) return;
    plec_heap_remove(&prefetch->open_moves[move->urgency], m);
    if (urgency == PLEC_N_URGENCIES) {
        move->broken = true;
        if (move->flying == 0) plec_move_end(prefetch, m);
        return;
    }
    move->urgency = (enum plec_urgency)urgency;
    plec_heap_put(&prefetch->open_moves[urgency], m, load->first_deadline[urgency]);
}

static void tend_moves(struct plec_prefetch *prefetch, uint32_t l) {
    const struct plec_load *load = &prefetch->loads[l];
    uint32_t n_left = load->n_moves;
    for (uint32_t m = 0; n_left > 0; m++) {
        struct plec_move *move = &prefetch->moves[m];
        if (move->load != l) continue;
        n_left--;
        if (!move->broken && move->issued < move->n_bytes) tend_move(prefetch, load, m);
    }
}

/* --- loads --------------------------------------------------------------------------------- */

uint32_t plec_load_get(struct plec_prefetch *prefetch, uint32_t key) {
    uint32_t l = prefetch->key_load[key];
    if (l != PLEC_NONE) return l;
    l = prefetch->free_load;
    assert(l != PLEC_NONE);
    prefetch->free_load = prefetch->loads[l].next_free;
    prefetch->loads[l] = (struct plec_load){.key = key, .demands = PLEC_NONE};
    prefetch->key_load[key] = l;
    return l;
}

static void end_load(struct plec_prefetch *prefetch, uint32_t l) {
    struct plec_load *load = &prefetch->loads[l];
    assert(load->queued == 0);
    plec_load_let_go(prefetch, load);
    if (load->counted) prefetch->n_requests--;
    prefetch->key_load[load->key] = PLEC_NONE;
    load->key = PLEC_NO_KEY;
    load->next_free = prefetch->free_load;
    prefetch->free_load = l;
}

uint64_t plec_load_readable(const struct plec_prefetch *prefetch, const struct plec_load *load,
                            enum plec_urgency urgency) {
    return load->want[urgency] & ~load->reading & ~load->copying &
           ~plec_residency_valid(prefetch->options.host, load->key);
}

uint64_t plec_load_copyable(const struct plec_prefetch *prefetch, const struct plec_load *load,
                            enum plec_urgency urgency) {
    if (prefetch->options.device == NULL) return 0;
    return load->want[urgency] & ~load->host_only & ~load->copying &
           plec_residency_valid(prefetch->options.host, load->key);
}

/* The queues a load is to stand in. */
static uint16_t choose_queues(const struct plec_prefetch *prefetch, const struct plec_load *load) {
    struct plec_residency *device = prefetch->options.device;
    bool has_frame = plec_residency_has(prefetch->options.host, load->key);
    bool has_slot = device != NULL && plec_residency_has(device, load->key);
    uint16_t queues = 0;
    for (int c = 0; c < PLEC_N_URGENCIES; c++) {
        if (load->want[c] == 0) continue;
        bool placed = has_frame && (c != PLEC_DEMAND || device == NULL || load->holds_slot);
        if (plec_load_readable(prefetch, load, c) != 0)
            queues |= plec_queue_bit(placed ? PLEC_TO_READ_PLACED : PLEC_TO_READ, c);
        if (plec_load_copyable(prefetch, load, c) != 0)
            queues |= plec_queue_bit(has_slot ? PLEC_TO_COPY_PLACED : PLEC_TO_COPY, c);
    }
    return queues;
}

/* Touches only the queues in which something changes. */
static void enqueue(struct plec_prefetch *prefetch, uint32_t l) {
    struct plec_load *load = &prefetch->loads[l];
    uint16_t in = choose_queues(prefetch, load), changed = in ^ load->queued;
    for (int c = 0; c < PLEC_N_URGENCIES; c++) {
        if (load->first_deadline[c] == load->queued_at[c]) continue;
        load->queued_at[c] = load->first_deadline[c];
        for (int q = 0; q < PLEC_N_QUEUES; q++)
            changed |= in & plec_queue_bit(q, c);
    }
    for (uint32_t left = changed; left != 0; left &= left - 1) {
        uint32_t bit = (uint32_t)__builtin_ctz(left), c = bit % PLEC_N_URGENCIES;
        struct plec_heap *queue = &prefetch->queues[bit / PLEC_N_URGENCIES][c];
        if ((in >> bit & 1) != 0)
            plec_heap_put(queue, l, load->first_deadline[c]);
        else
            plec_heap_remove(queue, l);
        prefetch->filled &= (uint16_t) ~(1u << bit);
        prefetch->filled |= (uint16_t)((queue->n > 0) << bit);
    }
    load->queued = in;
}

void plec_load_refresh(struct plec_prefetch *prefetch, uint32_t l) {
    struct plec_load *load = &prefetch->loads[l];
    uint64_t there = plec_residency_valid(plec_final_tier(prefetch), load->key);
    uint64_t in_host = plec_residency_valid(prefetch->options.host, load->key);
    load->want[PLEC_DEMAND] = answer_demands(prefetch, l, there);
    uint64_t settled = there | (load->host_only & in_host) | load->want[PLEC_DEMAND];
    for (int c = PLEC_CERTAIN; c < PLEC_N_URGENCIES; c++)
        load->want[c] &= ~settled;
    load->host_only &= plec_load_wanted(load) & ~load->want[PLEC_DEMAND];
    load->host_hit &= load->want[PLEC_DEMAND];
    load->host_late &= load->want[PLEC_DEMAND];
    tend_moves(prefetch, l);
    if (load->demands != PLEC_NONE)
        hold(prefetch, load);
    else
        plec_load_let_go(prefetch, load);
    enqueue(prefetch, l);
    if (plec_load_wanted(load) == 0 && load->n_reads == 0 && load->n_moves == 0) {
        assert(load->demands == PLEC_NONE);
        end_load(prefetch, l);
    }
}

void plec_load_drop(struct plec_prefetch *prefetch, uint32_t l, enum plec_urgency urgency,
                    uint64_t mask) {
    struct plec_load *load = &prefetch->loads[l];
    uint64_t gone = load->want[urgency] & mask;
    prefetch->counters.classes[urgency].dropped +=
        plec_count_bits(gone & ~load->reading & ~load->copying);
    load->want[urgency] &= ~mask;
    plec_load_refresh(prefetch, l);
}

/* Asks again for what was certain to be used and had to go. A full queue lets it be. */
static void ask_again(struct plec_prefetch *prefetch, const struct plec_eviction *eviction,
                      bool host) {
    struct plec_request request = {
        .key = eviction->key,
        .mask = eviction->valid,
        .urgency = PLEC_CERTAIN,
        .deadline = eviction->until,
        .origin = PLEC_FROM_PLAN,
        .host_only = host && prefetch->options.device != NULL,
    };
    if (eviction->valid != 0) (void)plec_prefetch_request(prefetch, &request);
}

void plec_load_evicted(struct plec_prefetch *prefetch, const struct plec_eviction *eviction,
                       bool host) {
    if (eviction->key == PLEC_NO_KEY) return;
    uint32_t l = prefetch->key_load[eviction->key];
    /* Speculation that was read and lost its frame is not read again: that would be thrashing. */
    for (int c = PLEC_LIKELY; host && l != PLEC_NONE && c < PLEC_N_URGENCIES; c++) {
        struct plec_load *load = &prefetch->loads[l];
        uint64_t lost = load->want[c] & eviction->valid;
        prefetch->counters.classes[c].dropped += plec_count_bits(lost);
        load->want[c] &= ~lost;
    }
    if (l != PLEC_NONE) plec_load_refresh(prefetch, l);
    if (eviction->expected) ask_again(prefetch, eviction, host);
}
