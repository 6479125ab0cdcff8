/* tracer.h: what happened when: ranges and moments of the runner and the streamer, recorded by each
 * thread in a ring of its own, shown to profilers as they happen (nvtx.h), read back in time order.
 *
 * Owns: the rings, made at open. A writer takes no lock and never waits; a full ring loses its
 * oldest events, which are counted. Never: prints, formats while recording. One tracer serves one
 * runner or streamer at a time: ids of reads and copies are told apart by nothing else.
 *
 * Recording and reading may go on at once, from any thread. A NULL tracer records nothing.
 */
#ifndef PLEC_HOST_TRACER_H
#define PLEC_HOST_TRACER_H

#include "host/nvtx.h"
#include "host/streamer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_tracer;

enum plec_tracer_what {
    /* Ranges of one thread; they nest. */
    PLEC_TRACE_REQUEST,    /* id: the caller's; value: tokens */
    PLEC_TRACE_STEADY,     /* what is left when the first step is over; for capture ranges */
    PLEC_TRACE_LAYER,      /* a forward of `layer`; value: tokens */
    PLEC_TRACE_ROUTE,      /* its router */
    PLEC_TRACE_LOOK_AHEAD, /* the next layer's router on this layer's hidden state */
    PLEC_TRACE_DISPATCH,   /* experts in use: from asking for them to giving them back; id, value:
                              experts */
    PLEC_TRACE_PLAN,       /* asking for them */
    PLEC_TRACE_WAIT,       /* the layer waits for experts; id: of the dispatch. The time is stall */
    PLEC_TRACE_GATE_UP,    /* matrices at work, on the thread that runs them */
    PLEC_TRACE_DOWN,
    /* Ranges that begin and end on any thread, known by id: id, key, extent, first_expert, mask,
       frame, n_bytes (at the end: moved), urgency, at the end status. */
    PLEC_TRACE_READ, /* from files into a frame */
    PLEC_TRACE_COPY, /* from a frame into a slot: a chunk; and slot */
    /* Moments: key, extent, first_expert, mask. */
    PLEC_TRACE_READY,       /* copied, and usable in slot */
    PLEC_TRACE_CANCEL,      /* read or on their way, and never copied: why in status */
    PLEC_TRACE_HAND_OUT,    /* to a launch, from slot; in_slot, in_frame, n_bytes; id: dispatch */
    PLEC_TRACE_EVICT_SLOT,  /* experts of a slot that was given away */
    PLEC_TRACE_EVICT_FRAME, /* likewise, frame */
    PLEC_TRACE_PINNED,      /* n_bytes of host memory are pinned for frames */
    PLEC_N_TRACES
};
enum plec_tracer_phase { PLEC_TRACE_BEGIN, PLEC_TRACE_END, PLEC_TRACE_MOMENT };

struct plec_tracer_event {
    uint64_t at_ns; /* of the tracer's clock */
    uint64_t id;    /* 0 where there is none */
    uint64_t n_bytes;
    uint64_t mask;              /* experts first_expert + bit */
    uint64_t in_slot, in_frame; /* HAND_OUT: of mask: where they were when asked for */
    uint32_t layer;             /* the container's number; UINT32_MAX: none */
    uint32_t key;               /* PLEC_NO_KEY: none */
    uint32_t extent;            /* the key's number within its layer */
    uint32_t first_expert;
    uint32_t frame, slot;
    uint32_t value;
    uint32_t order;  /* set by the tracer: of events of one at_ns */
    uint8_t what;    /* enum plec_tracer_what */
    uint8_t phase;   /* enum plec_tracer_phase */
    uint8_t urgency; /* enum plec_urgency */
    uint8_t status;  /* enum plec_status */
    uint32_t thread; /* set when read: index in the snapshot's threads */
};

struct plec_tracer_options {
    bool record;                /* in rings; false: for profilers alone */
    uint32_t events_per_thread; /* rounded up to a power of two, 2^24 at most; 0: 65536, 88 bytes
                                   each */
    uint32_t max_threads;       /* that may record; 0: 32. What others tell is lost, and counted */
    enum plec_nvtx_level nvtx;
    const struct plec_stream_clock *clock; /* of a streamer in virtual time, which is then the time
                                              of all events; what a device runs is not told. NULL:
                                              CLOCK_MONOTONIC */
};

/* PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_tracer_open(struct plec_tracer **out,
                                                const struct plec_tracer_options *options,
                                                struct plec_error *err);
/* Nobody may record any more. NULL is nothing. */
void plec_tracer_close(struct plec_tracer *tracer);
bool plec_tracer_records(const struct plec_tracer *tracer);
/* Records, or shows a profiler: it is worth telling anything. */
bool plec_tracer_active(const struct plec_tracer *tracer);
/* Forgets what was recorded so far; not beside a recording thread. */
void plec_tracer_clear(struct plec_tracer *tracer);

/* --- recording ------------------------------------------------------------------------------- */

/* Records; at_ns 0: now. Any thread; takes no lock, allocates nothing. */
void plec_tracer_add(struct plec_tracer *tracer, const struct plec_tracer_event *event);

/* A range of the calling thread. Where nobody listens, begin and end cost a test and no call. */
void plec_tracer_push(struct plec_tracer *tracer, enum plec_tracer_what what, uint32_t layer,
                      uint32_t value);
void plec_tracer_pop(struct plec_tracer *tracer, enum plec_tracer_what what, uint32_t layer,
                     enum plec_status status);
static inline void plec_tracer_begin(struct plec_tracer *tracer, enum plec_tracer_what what,
                                     uint32_t layer, uint32_t value) {
    if (tracer != NULL) plec_tracer_push(tracer, what, layer, value);
}
static inline void plec_tracer_end(struct plec_tracer *tracer, enum plec_tracer_what what,
                                   uint32_t layer, enum plec_status status) {
    if (tracer != NULL) plec_tracer_pop(tracer, what, layer, status);
}

/* For struct plec_stream_options.trace: what a streamer tells. NULL: tells nobody. */
struct plec_stream_trace plec_tracer_of_stream(struct plec_tracer *tracer);
/* For struct plec_device_options.probe: what a device runs, under the layer that began last. */
struct plec_device_probe plec_tracer_of_device(struct plec_tracer *tracer);

/* --- reading --------------------------------------------------------------------------------- */

struct plec_tracer_thread {
    uint32_t tid;  /* of the system */
    char name[16]; /* its name when it first recorded */
    uint64_t n_lost;
};

/* What the rings held: a copy. */
struct plec_tracer_snapshot {
    struct plec_tracer_event *events; /* [n_events] in time order */
    uint64_t n_events;
    struct plec_tracer_thread *threads; /* [n_threads] */
    uint32_t n_threads;
    uint64_t n_lost;            /* overwritten, or of threads without a ring */
    uint64_t start_ns, read_ns; /* when the tracer was opened (or cleared), and read */
    bool virtual_time;
};
/* Copies what is recorded now; close it. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_tracer_read(struct plec_tracer_snapshot *out,
                                                struct plec_tracer *tracer, struct plec_error *err);
void plec_tracer_snapshot_close(struct plec_tracer_snapshot *snapshot);

/* "moe.layer", "extent.read", ... */
const char *plec_tracer_name(enum plec_tracer_what what);
enum plec_nvtx_category plec_tracer_category(enum plec_tracer_what what);

#ifdef __cplusplus
}
#endif
#endif
