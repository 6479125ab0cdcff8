/* streamer_parts.h: the inside of streamer.h, for its own files.
 *
 *   streamer_open.c    opens and closes everything
 *   streamer_layout.c  how wide the extents are, how many fit, what lies where
 *   streamer_jobs.c    the engine: reads and copies begin and end
 *   streamer_copy.c    the bytes of a copy: into a slot, or by a landing
 *   streamer_time.c    the clock, the thread that takes what has ended, virtual time
 *   streamer.c         dispatches: begin, next, used, end
 *   streamer_ahead.c   what will be used next
 *   streamer_tags.c    content tags: what is handed out is what was read
 *   streamer_stats.c   counters, traces
 *
 * One lock guards all that changes. Callers and the engine's thread hold it while they ask, start
 * and take; nobody holds it while waiting. A device's own thread takes the wake lock alone: it must
 * go on while the lock's holder waits for room in a stream's queue.
 *
 * Waking a thread costs more than all there is to decide, so an end wakes one thread at most, and
 * none while copies are queued behind it: a copy or a use, the dispatch that waits, which then does
 * what the engine's thread would; a read, the engine's thread. Whoever starts something calls that
 * thread only if it sleeps elsewhere, or for longer than it now may.
 */
#ifndef PLEC_HOST_STREAMER_PARTS_H
#define PLEC_HOST_STREAMER_PARTS_H

#include <pthread.h>
#include <stdatomic.h>

#include "host/landing.h"
#include "host/span.h"
#include "host/streamer.h"

enum { PLEC_MAX_READS = 32, PLEC_MAX_COPIES = 8, PLEC_REAP = 16 };
/* Nobody need look while so many copies are queued: what has been read could only queue behind
 * them, and what has been copied is handed out with the next. */
enum { PLEC_COPIES_AHEAD = 2 };
enum { PLEC_DEMAND_STREAM, PLEC_OTHER_STREAM, PLEC_N_COPY_STREAMS = PLEC_N_LANDINGS };

struct plec_streamer;

struct plec_stream_layer {
    uint32_t number;
    struct plec_bank bank; /* entries: the table */
    struct plec_arrival arrival;
    struct plec_entry *table; /* [n_entries] of experts handed out */
    uint32_t *order;          /* [n_entries] experts in the order they were handed out */
    uint32_t after;           /* the layer that ran after it; UINT32_MAX: not known */
};

struct plec_read_job {
    struct plec_job job;
    uint32_t n_pieces, n_done;
    uint64_t n_bytes; /* read so far */
    uint64_t due_ns;  /* ends no sooner */
    bool failed;
    struct plec_error error;
};

struct plec_copy_job {
    struct plec_job job;
    struct plec_streamer *streamer;
    struct plec_event *event; /* after the last piece */
    _Atomic bool arrived;     /* its pieces ran; not set when they were skipped */
    uint32_t stream;
    uint64_t order; /* of its stream's copies */
    uint64_t
        from; /* of its experts' bytes: the job's, or 0 where the landing lost the first ones */
    uint64_t n_bytes;
    uint64_t due_ns; /* ends no sooner */
};

/* Where the moves of one copy stream land, one after the other. */
struct plec_landing {
    uint8_t *memory; /* [landing_bytes] device */
    uint32_t slot;
    uint64_t mask; /* with the slot: of the move whose bytes so far are there; 0: nobody's */
};

/* What a dispatch needs of one key, and where that was when it asked. */
struct plec_stream_need {
    uint32_t key;
    uint64_t mask, in_slot, in_frame;
    bool stream, stream_host; /* through staging */
    plec_ticket ticket;       /* 0: taken */
};

/* A part's last event and the references it guards: held [first, end). */
struct plec_stream_use {
    struct plec_event *event;
    struct plec_event *called; /* after the call that wakes the engine when the event is done */
    bool calls;
    uint32_t first, end;
    uint64_t due_ns; /* ends no sooner */
};

struct plec_stream_dispatch {
    bool open;
    uint64_t id;
    uint32_t layer;
    struct plec_dispatch_args args;
    uint64_t deadline_ns;           /* 0: none */
    struct plec_need *fit;          /* [max_keys] */
    struct plec_stream_need *needs; /* [n_needs] <= max_keys */
    uint32_t *need_at;              /* [max_keys] where a key of the layer stands in needs */
    uint32_t n_needs, n_waiting;
    bool streams;               /* some of them wait for slots that others of them have */
    struct plec_slot_ref *held; /* [n_held] <= max_keys */
    uint32_t n_held;
    struct plec_stream_use *uses; /* [n_uses] <= max_keys; [0, first_use) are released */
    uint32_t n_uses, first_use;
    uint32_t n_ordered, part_first, used_first; /* of the layer's order */
    uint32_t n_experts;
    enum plec_status status;
    struct plec_error error;
    uint64_t last_slot_ns, last_disk_ns, last_copy_ns; /* of the demand that ended a wait */
};

struct plec_stream_counts {
    uint64_t dispatches, failed, parts, experts, expert_bytes;
    uint64_t device_hits, device_hit_bytes, host_hits, host_hit_bytes;
    uint64_t disk_misses, disk_miss_bytes;
    uint64_t read_bytes, copied_bytes, read_busy_ns, copy_busy_ns;
    uint64_t waits, stall_ns, stall_slot_ns, stall_disk_ns, stall_copy_ns, stall_other_ns;
};

struct plec_streamer {
    /* set at open */
    struct plec_arena arena; /* holds the arrays */
    struct plec_stream_options options;
    struct plec_log log;
    struct plec_device *device;
    struct plec_stream_layer *layers; /* [n_layers] */
    struct plec_extent_map *maps;     /* [n_layers] */
    uint32_t n_layers, width, max_keys, max_entries;
    struct plec_keyspace keys;
    struct plec_span_table spans;
    struct plec_io *io;
    uint32_t *io_files; /* [n_files of the container]; UINT32_MAX: none of its bytes stream */
    struct plec_pinned *pinned;
    struct plec_pinned_info pinned_info;
    uint8_t *slots; /* [n_slots, slot_bytes] device */
    uint64_t frame_bytes, slot_bytes;
    uint64_t landing_bytes; /* of each; 0: no layer arrives in another form */
    uint32_t max_copies;    /* at once */
    uint32_t n_slots, n_slot_staging, n_frames, n_frame_staging;
    struct plec_stream *copy_streams[PLEC_N_COPY_STREAMS];
    struct plec_stream *fill_stream; /* poison and inspection; NULL without */
    uint8_t *looked_at;              /* of a slot or a landing, likewise; as large as a frame and
                                        a slot */
    int32_t *all_ids;                /* [max_entries] 0, 1, ... */

    pthread_mutex_t lock;                   /* over all below but the wake lock's */
    struct plec_residency *host, *resident; /* frames, slots */
    struct plec_prefetch *prefetch;
    struct plec_predict *predict;
    struct plec_request *requests;  /* [plec_predict_max_requests] */
    struct plec_piece *pieces;      /* [max_spans] scratch */
    uint64_t *landed_at;            /* [max_spans] scratch: of each piece in a landing */
    struct plec_io_read *to_submit; /* [PLEC_MAX_READS * max_spans] of the reads of a round */
    uint32_t n_to_submit;
    struct plec_landing landings[PLEC_N_LANDINGS];
    struct plec_entry landed[PLEC_EXTENT_MAX]; /* scratch: of the experts that arrive */
    uint8_t *blocks[PLEC_EXTENT_MAX];          /* likewise */
    struct plec_read_job reads[PLEC_MAX_READS];
    struct plec_copy_job copies[PLEC_MAX_COPIES];
    uint32_t reading, copying; /* bit i: reads[i], copies[i] is under way */
    uint32_t read_whole;       /* likewise: no piece of reads[i] is under way any more */
    uint32_t n_pieces;         /* that the disk has not given back yet */
    uint64_t round_ns;         /* when the last round began */
    uint64_t reading_since, copying_since;
    _Atomic uint64_t n_copies[PLEC_N_COPY_STREAMS]; /* ever enqueued */
    uint64_t disk_free_ns;                          /* of a slowed disk, or a virtual one */
    uint64_t link_free_ns, compute_free_ns;         /* virtual */
    struct plec_stream_dispatch dispatch;
    uint64_t *arriving; /* [n_keys] experts read or copied for and not told READY or CANCEL; NULL:
                           nobody is told */
    const struct plec_job *ending; /* told to the scheduler just now, when anybody is told */
    uint64_t *masks;               /* [max_keys] scratch */
    int32_t *active_ids;           /* [max_entries] scratch */
    uint64_t step;
    uint32_t last_layer; /* UINT32_MAX: none ran yet */
    bool has_profile, closing;
    struct plec_stream_counts counts;

    pthread_mutex_t wake_lock; /* over those that sleep: */
    pthread_cond_t engine_wake, dispatch_wake;
    bool engine_called, dispatch_called; /* and have not looked since */
    /* These change with both locks: */
    bool dispatch_waits;        /* from its first sleep until it has news */
    bool reaping, engine_polls; /* how the engine's thread sleeps: for completions; for a short time
                                   at most */
    uint64_t engine_until_ns;   /* it sleeps no longer; 0: it is awake */
    bool thread_started;
    pthread_t thread;
    struct plec_io_completion completions[PLEC_REAP]; /* of the thread while it reaps */
};

/* --- what experts take (streamer_layout.c), before anything runs ------------------------------ */

/* Layers, maps, spans and keys, in the widest extents of which both budgets hold one; n_frames and
 * n_slots are what they hold. Statuses of plec_streamer_open. */
PLEC_MUST_USE enum plec_status plec_streamer_lay_out(struct plec_streamer *streamer,
                                                     const struct plec_streamer_args *args,
                                                     struct plec_error *err);
/* Half of it, or nothing, too; arrays are the arena's. */
void plec_streamer_close_layout(struct plec_streamer *streamer);

/* --- the engine (streamer_jobs.c); the lock is held ------------------------------------------ */

/* Takes what has ended, starts what may start. False: there was nothing of either. */
bool plec_streamer_round(struct plec_streamer *streamer);
/* A piece of a read has come back. */
void plec_streamer_completed(struct plec_streamer *streamer,
                             const struct plec_io_completion *completion);
/* When the next read that is in the frame, but not due, ends; UINT64_MAX: there is none. */
uint64_t plec_streamer_next_due(const struct plec_streamer *streamer);
/* Releases the references of parts whose work is done (streamer.c). */
bool plec_streamer_release_uses(struct plec_streamer *streamer, uint64_t now);
/* Writes NaN over a slot or frame that was given up. */
void plec_streamer_poison_slot(struct plec_streamer *streamer, uint32_t slot);
void plec_streamer_poison_frame(struct plec_streamer *streamer, uint32_t frame);

/* --- the bytes of a copy (streamer_copy.c); the lock is held ---------------------------------- */

static inline const struct plec_arrival *plec_streamer_arrival(const struct plec_streamer *streamer,
                                                               uint32_t key) {
    return &streamer->layers[streamer->keys.keys[key].layer].arrival;
}
/* Where an expert of a key that has arrived stands in a slot. */
static inline uint64_t plec_streamer_block_at(const struct plec_streamer *streamer, uint32_t key,
                                              uint32_t bit) {
    return bit * plec_streamer_arrival(streamer, key)->n_bytes;
}
static inline uint8_t *plec_streamer_slot(const struct plec_streamer *streamer, uint32_t slot) {
    return streamer->slots + slot * streamer->slot_bytes;
}
/* Chooses the stream of a copy that starts, and which bytes it moves. */
void plec_streamer_aim(struct plec_streamer *streamer, struct plec_copy_job *copy);
/* Whether it brings the last bytes of its experts. */
bool plec_streamer_is_last(const struct plec_streamer *streamer, const struct plec_copy_job *copy);
/* Enqueues them, and behind the last ones the arrival; counts them in copy->n_bytes. */
PLEC_MUST_USE enum plec_status plec_streamer_enqueue_bytes(struct plec_streamer *streamer,
                                                           struct plec_copy_job *copy,
                                                           struct plec_error *err);
/* The pieces of some experts of a key, and where they land; returns how many. */
uint32_t plec_streamer_land(struct plec_streamer *streamer, uint32_t key, uint64_t mask);

/* --- what will be used next (streamer_ahead.c); the lock is held ----------------------------- */

/* What the layer after the dispatch's will use, by every policy that needs no more than the past.
 */
void plec_streamer_look_ahead(struct plec_streamer *streamer, uint64_t now);

/* --- content tags (streamer_tags.c); the lock is held. Nothing happens without options.poison - */

/* A read's experts are in their frame. */
void plec_streamer_seal_frame(struct plec_streamer *streamer, const struct plec_job *read);
/* A copy begins: its experts in the slot will be what was read into the frame. */
void plec_streamer_seal_slot(struct plec_streamer *streamer, const struct plec_job *copy);
/* The same for experts that have arrived in another form, when the copy has ended: if what landed
 * is what was read, what the slot holds now is theirs. Statuses of the device: nobody knows. */
PLEC_MUST_USE enum plec_status plec_streamer_seal_arrived(struct plec_streamer *streamer,
                                                          const struct plec_copy_job *copy,
                                                          struct plec_error *err);
/* PLEC_OK: experts of a slot are what was read. PLEC_MALFORMED: they are not, the slot is out of
 * service, and a frame of its key likewise; the caller still has its reference. Statuses of the
 * device: nobody knows. */
PLEC_MUST_USE enum plec_status plec_streamer_inspect_slot(struct plec_streamer *streamer,
                                                          struct plec_slot_ref ref, uint32_t key,
                                                          uint64_t mask, struct plec_error *err);
/* The same of what is in a key's slot of a mask, before it is asked for. */
void plec_streamer_inspect_key(struct plec_streamer *streamer, uint32_t key, uint64_t mask);

/* --- time (streamer_time.c) ------------------------------------------------------------------- */

/* Lets the lock go, and wakes the dispatch that waits if one of its demands has ended: not before,
 * it would only wait for the lock. */
void plec_streamer_unlock(struct plec_streamer *streamer);
/* A copy or a use is done, or may be: makes the dispatch that waits look, else the engine's thread.
 * Any thread, with or without the lock. */
void plec_streamer_kick(struct plec_streamer *streamer);
/* Only the dispatch that waits, if one does. */
void plec_streamer_kick_dispatch(struct plec_streamer *streamer);
/* After a round: calls the engine's thread where it would look too late for what is under way now.
 * The lock is held. */
void plec_streamer_keep_up(struct plec_streamer *streamer);
/* Lets the lock go until a kick or until_ns. From here to end_wait kicks are for the dispatch that
 * waits. The lock is held. */
void plec_streamer_sleep(struct plec_streamer *streamer, uint64_t until_ns);
void plec_streamer_end_wait(struct plec_streamer *streamer);
/* Starts the thread, where time is not virtual; PLEC_NO_MEMORY "ThreadNotStarted". */
PLEC_MUST_USE enum plec_status plec_streamer_start(struct plec_streamer *streamer,
                                                   struct plec_error *err);
/* Ends all that is under way, and the thread. Called without the lock. */
void plec_streamer_stop(struct plec_streamer *streamer);

static inline bool plec_streamer_virtual(const struct plec_streamer *streamer) {
    return streamer->options.clock != NULL;
}
/* When what starts now ends in virtual time; 0 where time is not virtual. The lock is held. */
uint64_t plec_streamer_job_due(struct plec_streamer *streamer, const struct plec_job *job);
uint64_t plec_streamer_use_due(struct plec_streamer *streamer, uint32_t n_experts);
/* Ends all work that is under way and moves the virtual clock to the next end, at most to until_ns.
 * The lock is held. */
void plec_streamer_move_on(struct plec_streamer *streamer, uint64_t until_ns);

/* --- traces (streamer_stats.c); the lock is held --------------------------------------------- */

static inline bool plec_streamer_traced(const struct plec_streamer *streamer) {
    return streamer->options.trace.event != NULL;
}
/* Fills what follows from the key, and the time, and tells the trace, which there is. */
void plec_streamer_tell_trace(struct plec_streamer *streamer, struct plec_stream_event *event);
/* Where nobody is told, the event is not made either. */
static inline void plec_streamer_tell(struct plec_streamer *streamer,
                                      struct plec_stream_event event) {
    if (plec_streamer_traced(streamer)) plec_streamer_tell_trace(streamer, &event);
}
void plec_streamer_tell_job(struct plec_streamer *streamer, enum plec_stream_event_kind kind,
                            const struct plec_job *job, uint64_t n_bytes, enum plec_status status);
/* Tells that these experts will not be copied, those of them that were to be. */
void plec_streamer_tell_cancel(struct plec_streamer *streamer, uint32_t key, uint64_t mask,
                               enum plec_status status);
/* Tells which experts of a slot the copy that is ending made usable. */
void plec_streamer_tell_ready(struct plec_streamer *streamer, uint32_t key, uint64_t mask,
                              uint32_t slot);
/* Ends a job for the scheduler; tells which experts it made usable. */
void plec_streamer_job_ended(struct plec_streamer *streamer, const struct plec_job *job,
                             uint64_t now, uint64_t n_bytes, const struct plec_error *err);

#endif
