/* prefetch_parts.h: the inside of prefetch.h, for its own files.
 *
 * A `load` is all that is asked for one key and not there yet. A bit of want[c] is an expert wanted
 * in class c, of the highest class that wants it. Where it stands follows from the tiers:
 *
 *   readable   wanted, not in the frame, not being read
 *   copyable   wanted on the device, in the frame, not being copied
 *
 * refresh() derives from this which queues the load stands in, and ends it when nothing is left. It
 * runs after every change: no queue is kept up by hand.
 */
#ifndef PLEC_HOST_PREFETCH_PARTS_H
#define PLEC_HOST_PREFETCH_PARTS_H

#include "host/heap.h"
#include "host/prefetch.h"

enum { PLEC_NONE = UINT32_MAX };

/* Queues of loads with something to start; placed: it has its slot already and cannot be refused.
 */
enum plec_queue {
    PLEC_TO_READ,
    PLEC_TO_READ_PLACED,
    PLEC_TO_COPY,
    PLEC_TO_COPY_PLACED,
    PLEC_N_QUEUES
};

struct plec_load {
    uint32_t key; /* PLEC_NO_KEY: free */
    uint32_t next_free;
    uint64_t want[PLEC_N_URGENCIES];
    uint64_t first_deadline[PLEC_N_URGENCIES]; /* orders; demand: the time asked */
    uint64_t last_deadline[PLEC_N_URGENCIES];  /* drops */
    uint8_t origin[PLEC_N_URGENCIES];
    uint64_t host_only;
    uint64_t reading, copying;
    uint64_t host_hit, host_late; /* demanded experts: were in the frame, were being read */
    uint32_t demands;             /* first waiting demand, PLEC_NONE */
    uint32_t n_reads, n_moves;
    uint64_t slot_at, read_at; /* when the slot used from was had, when a read last ended */
    struct plec_slot_ref frame, slot;
    bool holds_frame, holds_slot; /* only while demands wait */
    bool stream, stream_host;
    bool counted;    /* in n_requests */
    uint16_t queued; /* bit queue * PLEC_N_URGENCIES + class: it stands there */
    uint64_t queued_at[PLEC_N_URGENCIES]; /* by that deadline */
};

enum plec_demand_phase { PLEC_DEMAND_FREE, PLEC_DEMAND_WAITS, PLEC_DEMAND_ENDED };

struct plec_demand {
    struct plec_demand_result result; /* ticket, key and mask from the start */
    uint64_t asked_at, deadline;
    uint64_t hit, late;
    uint32_t load;
    uint32_t next, previous; /* in its load's list, or in the list of the ended; free: next */
    uint32_t generation;
    enum plec_demand_phase phase;
};

/* A copy of some experts, as one or several chunks. */
struct plec_move {
    uint32_t load; /* PLEC_NONE: free */
    uint32_t next_free;
    uint64_t mask, n_bytes, issued;
    uint32_t flying; /* chunks */
    enum plec_urgency urgency;
    uint8_t origin;
    bool broken; /* a chunk failed, or nobody wants it any more: starts no other */
    bool failed;
    struct plec_slot_ref frame, slot;
};

struct plec_started {
    uint32_t id; /* 0: free */
    uint32_t next_free;
    enum plec_job_kind kind;
    enum plec_urgency urgency;
    uint32_t load, move;
    uint64_t mask, asked; /* READ: asked: without the rest of the extent */
    uint64_t n_bytes, at, started_at;
    uint8_t origin;
    struct plec_slot_ref frame;
};

/* What reads of a layer took. */
struct plec_read_times {
    double whole_ns, one_ns; /* an expert, by whole extents and by single reads */
    uint32_t n_whole, n_one;
};

struct plec_prefetch {
    struct plec_arena arena;
    struct plec_prefetch_options options;
    uint32_t n_loads, n_moves, n_started; /* capacities */
    struct plec_load *loads;
    struct plec_demand *demands;
    struct plec_move *moves;
    struct plec_started *started;
    uint32_t *key_load;            /* [n_keys] */
    struct plec_read_times *times; /* [n_layers] */
    struct plec_heap queues[PLEC_N_QUEUES][PLEC_N_URGENCIES];
    uint16_t filled; /* bit as in plec_load.queued: that queue is not empty */
    struct plec_heap open_moves[PLEC_N_URGENCIES]; /* with chunks to issue */
    uint32_t free_load, free_demand, free_move, free_started;
    uint32_t first_ended, last_ended;
    uint32_t n_requests, n_waiting, n_untaken, n_reading;
    uint32_t job_generation;
    uint64_t position;
    uint64_t now;          /* of the last call that gave it */
    uint64_t last_sign_ns; /* when a job last ended, or demands began to wait */
    double ns_per_byte;
    struct plec_prefetch_counters counters;
};

static inline uint16_t plec_queue_bit(enum plec_queue queue, int urgency) {
    return (uint16_t)(1u << (queue * PLEC_N_URGENCIES + urgency));
}
/* The tier that experts are used from. */
static inline struct plec_residency *plec_final_tier(const struct plec_prefetch *prefetch) {
    return prefetch->options.device != NULL ? prefetch->options.device : prefetch->options.host;
}
static inline const struct plec_key *plec_load_key(const struct plec_prefetch *prefetch,
                                                   const struct plec_load *load) {
    return &prefetch->options.keys->keys[load->key];
}
static inline uint64_t plec_load_wanted(const struct plec_load *load) {
    return load->want[PLEC_DEMAND] | load->want[PLEC_CERTAIN] | load->want[PLEC_LIKELY] |
           load->want[PLEC_IDLE];
}
static inline uint32_t plec_count_bits(uint64_t mask) {
    return (uint32_t)__builtin_popcountll(mask);
}

/* The key's load; a new one when it has none. There is always one to be had (prefetch.c, open). */
uint32_t plec_load_get(struct plec_prefetch *prefetch, uint32_t key);
/* Brings queues, holds, moves and demands of a load up to date; may end it. */
void plec_load_refresh(struct plec_prefetch *prefetch, uint32_t load);
/* Gives back what a load holds for its demands. */
void plec_load_let_go(struct plec_prefetch *prefetch, struct plec_load *load);
/* Nobody wants these experts in a class any more. */
void plec_load_drop(struct plec_prefetch *prefetch, uint32_t load, enum plec_urgency urgency,
                    uint64_t mask);
/* A slot of the host tier or the device tier was emptied for another key. */
void plec_load_evicted(struct plec_prefetch *prefetch, const struct plec_eviction *eviction,
                       bool host);
/* What may be started of a load in a class. */
uint64_t plec_load_readable(const struct plec_prefetch *prefetch, const struct plec_load *load,
                            enum plec_urgency urgency);
uint64_t plec_load_copyable(const struct plec_prefetch *prefetch, const struct plec_load *load,
                            enum plec_urgency urgency);
/* Ends every waiting demand of a load that needs one of these experts. */
void plec_demands_fail(struct plec_prefetch *prefetch, uint32_t load, uint64_t mask,
                       const struct plec_error *err);
/* Ends a waiting demand; PLEC_OK: its experts are there; else its error is filled already. The load
 * is to be refreshed after. */
void plec_demand_end(struct plec_prefetch *prefetch, uint32_t demand, enum plec_status status);
/* Ends a move none of whose chunks fly. The load is to be refreshed after. */
void plec_move_end(struct plec_prefetch *prefetch, uint32_t move);

#endif
