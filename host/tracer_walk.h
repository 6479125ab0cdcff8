/* tracer_walk.h: the inside of tracer_json.h: what has begun, where it is drawn, and which reads
 * and copies led to a use, while events go by in time order.
 *
 *   tracer_walk.c   the state below
 *   tracer_json.c   text of it
 */
#ifndef PLEC_HOST_TRACER_WALK_H
#define PLEC_HOST_TRACER_WALK_H

#include "host/tracer.h"

enum { PLEC_WALK_DEPTH = 16, PLEC_WALK_LANES = 64, PLEC_WALK_STREAMS = 2, PLEC_WALK_NONE = -1 };

/* A read or a copy as it is drawn: on a lane of the disk or a stream of the device. */
struct plec_walk_move {
    uint64_t begin_ns, end_ns;
    uint32_t lane;
};

/* One that has begun. */
struct plec_walk_open {
    const struct plec_tracer_event *begin; /* NULL: free */
    struct plec_walk_move move;            /* end_ns not yet */
};

struct plec_walk_stack {
    const struct plec_tracer_event *begins[PLEC_WALK_DEPTH];
    uint32_t depth;
    uint64_t first_ns; /* of the thread's events */
};

/* An extent's life: experts being read, read and not copied, or being copied. */
struct plec_walk_extent {
    uint64_t pending, fresh; /* fresh: ready, and not used since */
    uint32_t n_lives;
    uint32_t layer, extent;
    bool alive;
};

/* What moved since a moment, in the stretches in which something was under way. */
struct plec_walk_rate {
    uint64_t since_ns, n_bytes;
};

struct plec_walk {
    const struct plec_tracer_snapshot *snapshot;
    uint64_t end_ns;                                /* what is open then is cut */
    struct plec_walk_stack *stacks;                 /* [n_threads] */
    struct plec_walk_open open[2][PLEC_WALK_LANES]; /* reads, copies */
    uint64_t stream_free[PLEC_WALK_STREAMS];
    bool lane_used[PLEC_WALK_LANES], lane_busy[PLEC_WALK_LANES];
    uint32_t n_keys;
    struct plec_walk_extent *extents; /* [n_keys] */
    int32_t (*sources)[2]; /* [n_keys * 64] the last read and copy of each expert, in moves */
    struct plec_walk_move *moves; /* [n_moves] that have ended */
    int32_t n_moves;
    uint64_t reading, copying, reading_bytes, copying_bytes;
    struct plec_walk_rate rates[2]; /* reads, copies */
    uint64_t used, device_hits, host_hits;
};

/* PLEC_NO_MEMORY. Close it in any case. */
PLEC_MUST_USE enum plec_status plec_walk_open(struct plec_walk *walk,
                                              const struct plec_tracer_snapshot *snapshot,
                                              struct plec_error *err);
void plec_walk_close(struct plec_walk *walk);

/* A range of a thread ends. Its beginning, for as many ranges as end with it, innermost first:
 * call until it returns false. begin NULL: before the trace; cut: it did not end itself. */
bool plec_walk_pop(const struct plec_tracer_event **begin, bool *cut, struct plec_walk *walk,
                   const struct plec_tracer_event *end);
void plec_walk_push(struct plec_walk *walk, const struct plec_tracer_event *begin);

/* A read or copy begins; and ends: false: the trace did not see it begin. */
void plec_walk_start(struct plec_walk *walk, const struct plec_tracer_event *begin);
bool plec_walk_end(struct plec_walk_open *out, struct plec_walk *walk,
                   const struct plec_tracer_event *end);

/* An extent's experts begin to move, true: its life begins; and are ready or given up, true: its
 * life ends. */
bool plec_walk_enliven(struct plec_walk *walk, const struct plec_tracer_event *event);
bool plec_walk_settle(struct plec_walk *walk, const struct plec_tracer_event *event);

/* The next read and copy that led to experts of a use, each pair once; false: no more. *left: of
 * its mask, at first plec_walk_fresh. PLEC_WALK_NONE: the trace did not see it. */
uint64_t plec_walk_fresh(struct plec_walk *walk, const struct plec_tracer_event *use);
bool plec_walk_next_source(int32_t *read, int32_t *copy, uint64_t *left,
                           const struct plec_walk *walk, const struct plec_tracer_event *use);

#endif
