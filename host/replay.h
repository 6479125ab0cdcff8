/* replay.h: what a cache would have done with a recorded routing.
 *
 * Drives residency.h itself, dispatch by dispatch as an engine does: what is there is held, what
 * fits is loaded, the rest streams. Reads and their time follow from a disk that serves one after
 * the other; an extent is read whole where that takes less time than its missing experts one by
 * one.
 *
 * Owns nothing after a call; allocates while it runs.
 */
#ifndef PLEC_HOST_REPLAY_H
#define PLEC_HOST_REPLAY_H

#include "host/residency.h"
#include "host/routing_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_replay_args {
    const struct plec_trace *trace;
    uint32_t width;     /* experts of an extent, 1 .. PLEC_EXTENT_MAX */
    uint64_t n_experts; /* memory, in experts: n_experts / width slots */
    enum plec_residency_policy policy;
    double ns_per_byte, latency_ns; /* of a read */
};

struct plec_replay_result {
    uint32_t n_slots;
    uint64_t uses, hits;   /* experts, over all dispatches */
    uint64_t extents;      /* extents used, over all dispatches */
    uint64_t reads, bytes; /* from disk */
    uint64_t thrash, evictions;
    double read_ns;
};

/* PLEC_BAD_INPUT "ExtentTooWide", "EmptyExtent"; PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_replay_run(struct plec_replay_result *out,
                                               const struct plec_replay_args *args,
                                               struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
