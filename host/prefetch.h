/* prefetch.h: what moves next: from files into frames, from frames into device slots.
 *
 * A pure state machine over one or two tiers (residency.h). Callers ask for experts of an extent:
 * a demand, which a layer waits for, or a request for later, in a class and with a deadline. The
 * machine merges what is asked for one key, and tells an engine what to do next: read these experts
 * into that frame, copy these bytes of a frame into that slot. The engine does it, in any order and
 * with any delay, and tells how each job ended. Every demand ends once, ready or with a named
 * error.
 *
 *   demand/request -> [queued by class, deadline] -> READ -> frame -> COPY, by chunks -> slot ->
 * ready
 *
 * Rules. A class starts nothing while a higher class waits to start something; speculation
 * (likely, idle) begins nothing while a demand waits. Bytes being read in a class stay within its
 * budget. Copies go by chunks, and between chunks a higher class goes first. What is already being
 * read or copied is never asked for twice: a demand joins it, and lifts what is left to its class.
 * A request past its deadline, or cancelled, is dropped where it has not started; a started read
 * ends, and its bytes stay in the frame for who comes next. A demand holds its device slot before
 * it takes a frame, so that demands cannot wait for each other in a ring; callers keep to that if
 * those waiting hold no more slots than plec_prefetch_fit allows.
 *
 * Owns: its tables. Never: a thread, a clock (times are arguments in ns that never fall), memory
 * after open. One caller at a time; the tiers belong to the same owner. No call blocks; each is
 * O(log requests + experts), but for expire and dump.
 *
 * The engine's round, whenever a job ended, a slot was released or something was asked:
 *   while (room on the disk && plec_prefetch_next_read(p, now, &job)) start reading;
 *   while (room on the copy streams && plec_prefetch_next_copy(p, now, &job)) start copying;
 *   while (plec_prefetch_next_ended(p, &result)) wake whoever waits for result.ticket;
 */
#ifndef PLEC_HOST_PREFETCH_H
#define PLEC_HOST_PREFETCH_H

#include "host/residency.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_urgency {
    PLEC_DEMAND,  /* a layer waits */
    PLEC_CERTAIN, /* will be used: the next layers of a batch whose routing is known */
    PLEC_LIKELY,  /* predicted */
    PLEC_IDLE,    /* warming up, when nothing else is to do */
    PLEC_N_URGENCIES
};

enum { PLEC_COPY_CHUNK_BYTES = 8 << 20 }; /* unless an option says otherwise */

struct plec_prefetch_options {
    const struct plec_keyspace *keys;
    struct plec_residency *host;   /* frames */
    struct plec_residency *device; /* slots; NULL: experts are used where they stand, in frames */
    uint32_t max_requests;         /* extents asked for and not there yet, but demands; 0: 256 */
    uint32_t max_demands;          /* demands not taken yet; 0: 256 */
    uint32_t max_reads;            /* READ jobs at once, of all classes; 0: 32 */
    uint64_t read_budget[PLEC_N_URGENCIES]; /* bytes being read; one job may always go. 0: no bound
                                             for demand, 256 MiB certain, 1 MiB likely and idle */
    uint64_t read_bytes[PLEC_N_URGENCIES];  /* of one READ job, at least one expert; 0: no bound for
                                             demand, 32 MiB certain, 1 MiB likely and idle */
    uint32_t copies[PLEC_N_URGENCIES];      /* chunks being copied; 0: 4 demand, 2 certain, 1 */
    uint64_t chunk_bytes;                   /* of one COPY job; 0: PLEC_COPY_CHUNK_BYTES */
    double whole_ratio;   /* before it is measured: reading an extent whole costs as much as this
                             share of its experts one by one; 0: 0.5 */
    uint64_t watchdog_ns; /* a demand may wait so long while nothing ends; 0: 5 s */
};

struct plec_prefetch; /* opaque */

/* PLEC_NO_MEMORY. The tiers must outlive it. */
PLEC_MUST_USE enum plec_status plec_prefetch_open(struct plec_prefetch **out,
                                                  const struct plec_prefetch_options *options,
                                                  struct plec_error *err);
/* Gives back every reference it holds. Jobs must have ended, results been taken. NULL is nothing.
 */
void plec_prefetch_close(struct plec_prefetch *prefetch);

/* Moves on to a position, in both tiers too: requests with an earlier deadline are dropped. */
void plec_prefetch_advance(struct plec_prefetch *prefetch, uint64_t position);
/* Sets the bytes a class may have being read; 0 closes the class. The link's share of others
 * (collectives, another runner) is taken off here. */
void plec_prefetch_set_budget(struct plec_prefetch *prefetch, enum plec_urgency urgency,
                              uint64_t n_bytes);

/* --- asking ---------------------------------------------------------------------------------- */

/* How much of a dispatch the tiers can hold: of the needs [n], of different keys, as reordered. */
struct plec_fit {
    uint32_t n_hold;  /* the first so many can be held at once, in the tier that is used from */
    uint32_t n_cache; /* the first so many can be in that tier or in frames; >= n_hold is no rule */
};
/* Puts what is there first, then what is in frames, then the rest, and tells how many fit. Demand
 * them in this order: need i streams through the device when i >= n_hold, and through frames when
 * i >= n_cache; those that stream, only as far as earlier ones were released. */
struct plec_fit plec_prefetch_fit(const struct plec_prefetch *prefetch, struct plec_need *needs,
                                  uint32_t n);

struct plec_demand_args {
    uint32_t key;
    uint64_t mask;        /* experts needed, at least one */
    bool stream;          /* pass through the staging slots of the tier it is used from */
    bool stream_host;     /* ... of the frames before it */
    uint64_t deadline_ns; /* give up then; 0: never */
};

typedef uint64_t plec_ticket; /* of a demand; never 0 */

struct plec_demand_result {
    plec_ticket ticket;
    uint32_t key;
    uint64_t mask;
    enum plec_status status;  /* PLEC_OK, or why not: the failed job's; PLEC_CANCELLED */
    struct plec_slot_ref ref; /* PLEC_OK: retained, of the device tier, or of the host tier where
                                 there is no other; release it when the last use has run */
    uint64_t wait_ns;         /* from asking to the end */
    uint64_t slot_ns, disk_ns, copy_ns; /* parts of it: for a slot, for reads, for copies */
    struct plec_error error;            /* left alone when PLEC_OK; else the job's, "Cancelled",
                                           "DeadlinePast", "DemandStalled", "NoSlotInService" */
};

enum plec_demand_state {
    PLEC_DEMAND_READY,   /* *out is the result, taken already */
    PLEC_DEMAND_WAITING, /* out->ticket will end */
    PLEC_DEMAND_FULL     /* max_demands are waiting or not taken: ask again, refuse load upstream */
};
/* Asks for experts now. What an earlier request has started is joined. */
PLEC_MUST_USE enum plec_demand_state plec_prefetch_demand(struct plec_demand_result *out,
                                                          struct plec_prefetch *prefetch,
                                                          const struct plec_demand_args *args,
                                                          uint64_t now);
/* What a tier had of a key was found spoiled, and its slot taken out of service
 * (plec_residency_check): what is asked for and is gone comes again. Where a tier has no slot left
 * in service, every demand ends, this one and later ones: PLEC_NO_MEMORY "NoSlotInService". */
void plec_prefetch_quarantined(struct plec_prefetch *prefetch, uint32_t key, uint64_t now);
/* Ends a demand with PLEC_CANCELLED; nothing when it has ended. Its result is still to be taken. */
void plec_prefetch_cancel(struct plec_prefetch *prefetch, plec_ticket ticket, uint64_t now);
/* Takes the result of a demand that has ended; false: it waits. */
PLEC_MUST_USE bool plec_prefetch_take(struct plec_demand_result *out,
                                      struct plec_prefetch *prefetch, plec_ticket ticket);
/* Whether there is a result that was not taken yet. */
bool plec_prefetch_has_ended(const struct plec_prefetch *prefetch);
/* Takes the first of the results not taken yet. */
PLEC_MUST_USE bool plec_prefetch_next_ended(struct plec_demand_result *out,
                                            struct plec_prefetch *prefetch);
/* Ends the demands whose deadline is past, and, after watchdog_ns in which a demand waited and no
 * job ended, those too ("DemandStalled"): then a picture of the state is written to dump [size]
 * (NULL: none), and true returned. Call it from time to time. */
bool plec_prefetch_expire(struct plec_prefetch *prefetch, uint64_t now, char *dump, size_t size);

struct plec_request {
    uint32_t key;
    uint64_t mask;             /* 0: all of the extent */
    enum plec_urgency urgency; /* not demand */
    uint64_t deadline;         /* position by which it is used; dropped once past */
    enum plec_origin origin;
    bool host_only; /* into a frame, not on to the device */
};
enum plec_request_state {
    PLEC_REQUEST_TAKEN,  /* new, or more of one that is there */
    PLEC_REQUEST_MERGED, /* all of it is asked for already; a higher class lifts it */
    PLEC_REQUEST_THERE,  /* all of it is in its tier */
    PLEC_REQUEST_LATE,   /* the deadline is past */
    PLEC_REQUEST_FULL    /* max_requests; not taken */
};
/* Asks for experts to be there later; what is certain and there already is kept. Nobody is told
 * when they are. A key has one deadline a class at a time, so plan less than a step ahead. */
enum plec_request_state plec_prefetch_request(struct plec_prefetch *prefetch,
                                              const struct plec_request *request);
/* Drops what an origin asked for, where it has not started; of one key, or of all (PLEC_NO_KEY). */
void plec_prefetch_drop(struct plec_prefetch *prefetch, enum plec_origin origin, uint32_t key);

/* --- doing ----------------------------------------------------------------------------------- */

enum plec_job_kind { PLEC_JOB_READ, PLEC_JOB_COPY };

struct plec_job {
    uint32_t id;
    enum plec_job_kind kind;
    enum plec_urgency urgency;
    uint32_t key;
    uint64_t mask;  /* experts: READ all of them. COPY: they lie end to end, in ascending order, as
                       plec_key_bytes bytes */
    uint32_t frame; /* slot of the host tier, read into or copied from */
    uint32_t slot;  /* COPY: slot of the device tier */
    uint64_t at, n_bytes; /* COPY: bytes [at, at + n_bytes) of them; more than one COPY of one mask
                             is of one expert, from its first byte to its last. READ: 0 and all of
                             them */
};
/* The next job to start, counted as started; false: nothing may start now. */
PLEC_MUST_USE bool plec_prefetch_next_read(struct plec_job *out, struct plec_prefetch *prefetch,
                                           uint64_t now);
PLEC_MUST_USE bool plec_prefetch_next_copy(struct plec_job *out, struct plec_prefetch *prefetch,
                                           uint64_t now);
/* A started job has ended: its bytes are in place and visible (a copy: its event is done), or,
 * with err, they are not. n_bytes: moved, for the counters. Once for every job. */
void plec_prefetch_job_ended(struct plec_prefetch *prefetch, uint32_t id, uint64_t now,
                             uint64_t n_bytes, const struct plec_error *err);
/* Puts back a job that could not be started, as though next_* had not given it. */
void plec_prefetch_job_returned(struct plec_prefetch *prefetch, uint32_t id);

/* --- telling --------------------------------------------------------------------------------- */

struct plec_class_counters {
    uint64_t asked, merged, lifted, there, late, full; /* requests; lifted: by a higher class */
    uint64_t dropped;  /* experts past their deadline, cancelled or displaced before they started */
    uint64_t orphaned; /* reads that ended with nobody asking any more */
    uint64_t reads, read_experts, read_bytes; /* ended well; bytes as the engine said */
    uint64_t copies, copied_bytes;
    uint64_t failed;                   /* jobs */
    uint64_t reading_bytes;            /* now */
    uint32_t reading, copying, queued; /* jobs now; extents with something to start */
};
struct plec_prefetch_counters {
    struct plec_class_counters classes[PLEC_N_URGENCIES];
    uint64_t demands, ready_at_once, ready, failed, cancelled;
    uint64_t wait_ns, slot_ns, disk_ns, copy_ns, longest_wait_ns; /* of demands that got ready */
    uint64_t whole_reads;                      /* demands answered by reading all of the extent */
    uint64_t stalls;                           /* seen by the watchdog */
    uint32_t n_requests, n_waiting, n_untaken; /* now */
};
void plec_prefetch_get_counters(struct plec_prefetch_counters *out,
                                const struct plec_prefetch *prefetch);
/* What reading an extent of a layer whole costs, in experts read one by one over all of them:
 * measured, or whole_ratio. Whole pays where the share used is at least this. */
double plec_prefetch_whole_ratio(const struct plec_prefetch *prefetch, uint32_t layer);
/* Nanoseconds a byte of a read takes, from start to end, lately; 0: none yet. */
double plec_prefetch_read_cost(const struct plec_prefetch *prefetch);
/* Writes the state as text, cut to size, always ended with a 0. */
void plec_prefetch_dump(const struct plec_prefetch *prefetch, uint64_t now, char *text,
                        size_t size);
/* Checks every relation between the tables; for tests. */
bool plec_prefetch_sound(const struct plec_prefetch *prefetch, const char **broken);

#ifdef __cplusplus
}
#endif
#endif
