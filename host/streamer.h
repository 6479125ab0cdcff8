/* streamer.h: routed experts that do not fit the device: files -> pinned frames -> device slots ->
 * the entry table of a launch. Where launches read another form than the file's
 * (plec_device_arrival), slots hold that: copies go from a frame to a landing (landing.h), and
 * experts arrive from there in their slot.
 *
 * Owns: the reads (io.h), the frames (pinned.h), the device slots, the copy streams, the tables
 * that decide (residency.h, prefetch.h, predict.h) under one lock, and one thread that starts what
 * they decide and takes what has ended. Never: routes, computes. Nothing is allocated after open.
 *
 * A dispatch hands out the experts of one layer's step in parts, as they arrive; each part stays
 * where it is until the work that reads it is done:
 *
 *   begin -> next, used, next, used, ... (n_experts 0: all were had) -> end
 *
 * What exceeds the slots passes through staging slots part by part. One dispatch at a time; expect,
 * get_stats and the profile calls may come from any thread.
 */
#ifndef PLEC_HOST_STREAMER_H
#define PLEC_HOST_STREAMER_H

#include "host/container.h"
#include "host/io.h"
#include "host/pinned.h"
#include "host/predict.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_streamer;

enum plec_speculation {
    PLEC_SPECULATE_AUTO, /* each policy when it has shown that it pays, and as long as it does */
    PLEC_SPECULATE_OFF,  /* only what will be used for certain */
    PLEC_SPECULATE_ON    /* each policy from the start, until it loses */
};

/* --- what happens, for traces ---------------------------------------------------------------- */

enum plec_stream_event_kind {
    PLEC_STREAM_READ_BEGIN, /* id, urgency, key, mask, frame, n_bytes: asked for */
    PLEC_STREAM_READ_END,   /* the same; n_bytes: moved; status */
    PLEC_STREAM_COPY_BEGIN, /* a chunk: id, urgency, key, mask, frame, slot, n_bytes */
    PLEC_STREAM_COPY_END,
    PLEC_STREAM_WAIT_BEGIN,  /* a dispatch waits; id: of the dispatch */
    PLEC_STREAM_WAIT_END,    /* status */
    PLEC_STREAM_LAYER_BEGIN, /* id: of the dispatch; mask: how many experts */
    PLEC_STREAM_LAYER_END,
    PLEC_STREAM_PLAN_BEGIN, /* a dispatch asks for its experts; id: of the dispatch */
    PLEC_STREAM_PLAN_END,
    PLEC_STREAM_HAND_OUT,   /* key, mask, slot, id: of the dispatch, n_bytes; in_slot, in_frame */
    PLEC_STREAM_READY,      /* key, mask, slot: copied whole, and usable */
    PLEC_STREAM_CANCEL,     /* key, mask: being read or read, and never to be copied; status: a read
                               that failed. Every expert that a read or copy began for is READY or
                               CANCELled once, when the streamer closes at the latest */
    PLEC_STREAM_EVICT_SLOT, /* key, mask: what was there, slot */
    PLEC_STREAM_EVICT_FRAME, /* likewise, frame */
    PLEC_STREAM_PINNED       /* n_bytes of host memory are pinned; told once, when all is open */
};
struct plec_stream_event {
    enum plec_stream_event_kind kind;
    uint64_t at_ns;  /* plec_streamer_now; events come in this order */
    uint64_t id;     /* of a read, a copy, or a dispatch: each counts on its own */
    uint32_t layer;  /* the container's number */
    uint32_t key;    /* PLEC_NO_KEY where there is none */
    uint32_t extent; /* the key's number within its layer */
    uint32_t first_expert;
    uint64_t mask;              /* experts first_expert + bit */
    uint64_t in_slot, in_frame; /* of mask: where they were when the dispatch asked; others: in
                                   files */
    uint32_t frame, slot;
    uint64_t n_bytes;
    enum plec_urgency urgency;
    enum plec_status status;
};
/* Called from any thread, one call at a time; must be quick and must not call back. */
struct plec_stream_trace {
    void (*event)(void *user, const struct plec_stream_event *event);
    void *user;
};

/* --- virtual time ---------------------------------------------------------------------------- */

/* For tests: a machine that takes the time it is told to, however fast this one is. The streamer
 * then has no thread: where it would wait it ends all work that is under way, and moves the clock
 * on to the next end of a read, a copy or a use. When that is, is settled at the start: behind a
 * latency the bytes have their pipe to themselves, one job after the other; experts compute one
 * part after the other. One thread calls. Zeroed members take no time. */
struct plec_stream_clock {
    uint64_t now_ns; /* moved on by the streamer, and by plec_streamer_pass */
    uint64_t disk_bytes_per_s, disk_latency_ns;
    uint64_t link_bytes_per_s, link_latency_ns;
    uint64_t compute_ns; /* an expert handed out */
    /* Told each read and copy as it starts: ns added to its end; UINT64_MAX: it never ends. NULL:
     * nothing is. */
    uint64_t (*delay)(void *user, const struct plec_job *job);
    void *user;
};

/* --- options --------------------------------------------------------------------------------- */

struct plec_stream_options {
    uint64_t device_budget; /* bytes of device memory for routed experts, in slots and on their way
                               (landing.h); 0: they are not streamed, but used where their files are
                               mapped */
    uint64_t pinned_budget; /* bytes of host memory for frames; 0: as much as device_budget */
    uint32_t extent_width;  /* entries of an extent, 1 to 64; 0: 16. Halved until one fits both
                               budgets, which is said */
    bool bypass;            /* slots and frames keep nothing: every use is read and copied anew */
    enum plec_residency_policy policy; /* LRU or LFU */
    enum plec_speculation speculation;
    enum plec_io_engine io_engine;
    enum plec_io_cache io_cache;
    uint32_t io_depth; /* pieces in flight; 0: the engine's own */
    enum plec_pin_mode pin;
    enum plec_pin_method pin_method;
    uint64_t pin_slab_bytes; /* of one slab of frames, at most; 0: 256 MiB */
    uint64_t wait_limit_ns;  /* a dispatch fails with "DeadlinePast" when an expert takes longer; 0:
                                no limit but the watchdog's */
    uint64_t watchdog_ns;    /* a wait in which nothing ends is "DemandStalled"; 0: 5 s */
    struct plec_stream_trace trace;
    /* For tests and simulated devices. */
    bool poison; /* fill with NaN whatever leaves a frame or a slot, and compare what a slot holds
                    with what was read, before each use */
    void (*spoil)(void *user, void *bytes, uint64_t n_bytes); /* with poison: a fault of memory;
                                                                 called for the bytes of each read
                                                                 when they are in a frame */
    void *spoil_user;
    uint64_t chunk_bytes;                     /* of one copy; 0: PLEC_COPY_CHUNK_BYTES */
    const struct plec_simulation *simulation; /* of the CPU device; copied by open */
    uint64_t disk_bytes_per_s;                /* reads end no faster than this; 0: as they do */
    struct plec_stream_clock *clock;          /* virtual time; NULL: CLOCK_MONOTONIC */
    struct plec_io_fault io_fault;
    bool (*allow_slab)(void *user, uint32_t slab, int step); /* as in struct plec_pinned_options */
    void *allow_user;
};

struct plec_streamer_layer {
    uint32_t number; /* the container's */
    const struct plec_bank *bank;
};
struct plec_streamer_args {
    struct plec_device *device;
    struct plec_container *container; /* that holds the banks' bytes; must outlive the streamer */
    const struct plec_streamer_layer *layers; /* [n_layers] in the order a step runs them */
    uint32_t n_layers;
    const struct plec_stream_options *options;
    struct plec_log log;
};

/* PLEC_BAD_INPUT "BudgetTooSmall" (names the bytes of the smallest extent), "ExtentTooWide";
 * PLEC_UNSUPPORTED "NotInAFile"; PLEC_NO_MEMORY "PinnedMemory", "DeviceMemory"; PLEC_MISSING
 * "CannotOpen"; statuses of plec_device_arrival. */
PLEC_MUST_USE enum plec_status plec_streamer_open(struct plec_streamer **out,
                                                  const struct plec_streamer_args *args,
                                                  struct plec_error *err);
/* Waits for what is being read and copied. No dispatch may be open. NULL is nothing. */
void plec_streamer_close(struct plec_streamer *streamer);

/* --- a dispatch ------------------------------------------------------------------------------ */

struct plec_dispatch_args {
    uint32_t layer;     /* index into the layers given at open */
    const int32_t *ids; /* [n_ids] experts of the layer, in range, may repeat */
    uint64_t n_ids;
    uint64_t deadline_ns; /* plec_streamer_now; 0: none */
    /* Asked while waiting, from the calling thread; true ends the dispatch. NULL: never. */
    bool (*cancelled)(void *user);
    void *user;
};
/* Asks for the experts of a step of one layer. The bank to launch with is *bank: it has the entries
 * of experts that were handed out, until end. */
void plec_streamer_begin(const struct plec_bank **bank, struct plec_streamer *streamer,
                         const struct plec_dispatch_args *args);

struct plec_stream_part {
    const uint32_t *experts; /* [n_experts], valid until end */
    uint32_t n_experts;      /* 0: every expert was handed out */
};
/* The experts that arrived since the last part; waits for one when none did. The work that reads
 * them is to be enqueued, then `used` called. After a failure only end may follow: the status of
 * the read or copy that failed, with layer and expert in front; PLEC_CANCELLED "Cancelled",
 * "DeadlinePast", PLEC_IO "DemandStalled". */
PLEC_MUST_USE enum plec_status plec_streamer_next(struct plec_stream_part *out,
                                                  struct plec_streamer *streamer,
                                                  struct plec_error *err);
/* All work that reads the last part is enqueued on the stream: its slots may be given away when
 * that is done. Statuses of the device. */
PLEC_MUST_USE enum plec_status plec_streamer_used(struct plec_streamer *streamer,
                                                  struct plec_stream *stream,
                                                  struct plec_error *err);
/* Ends the dispatch, whole or failed. Waits for the work of all parts; a part handed out for which
 * `used` was not called must have no work enqueued any more. */
void plec_streamer_end(struct plec_streamer *streamer);

/* --- beside dispatches ----------------------------------------------------------------------- */

/* The time that deadlines and events are given in: CLOCK_MONOTONIC, or the virtual clock. */
uint64_t plec_streamer_now(const struct plec_streamer *streamer);
/* Lets virtual time pass, for what a caller does beside dispatches. With a clock alone. */
void plec_streamer_pass(struct plec_streamer *streamer, uint64_t n_ns);

/* What a layer will use the next time it runs, as far as the caller can tell. */
struct plec_expectation {
    enum plec_origin why; /* PLEC_FROM_PLAN: certain; PLEC_FROM_NEXT_ROUTER: likely */
    uint32_t layer;
    const int32_t *ids; /* [n_ids], in range, may repeat */
    uint32_t n_ids;
};
void plec_streamer_expect(struct plec_streamer *streamer,
                          const struct plec_expectation *expectation);
/* The layer that is likely to run after this one: the one that did last time, else the next in
 * order. UINT32_MAX: none. */
uint32_t plec_streamer_layer_after(struct plec_streamer *streamer, uint32_t layer);

/* How often each expert of a layer was used, counts [n_entries]; and counts of earlier runs, for
 * the profile policy: PLEC_BAD_INPUT "ProfileShape". */
void plec_streamer_get_profile(uint64_t *counts, struct plec_streamer *streamer, uint32_t layer);
PLEC_MUST_USE enum plec_status plec_streamer_set_profile(struct plec_streamer *streamer,
                                                         uint32_t layer, const uint64_t *counts,
                                                         uint32_t n, struct plec_error *err);

struct plec_stream_stats {
    /* what there is */
    uint32_t extent_width, n_keys, n_experts; /* of all layers */
    uint64_t frame_bytes, weight_bytes;       /* of a frame; of all experts, as in files */
    uint64_t slot_bytes;    /* of a device slot: a frame's, or of an extent as it has arrived */
    uint64_t landing_bytes; /* device memory beside the slots, for what is arriving; 0: none */
    uint32_t n_slots, n_slot_staging, n_frames, n_frame_staging;
    struct plec_pinned_info pinned;
    /* what happened. Experts are counted where their entry is written to the table of a launch */
    uint64_t dispatches, failed, parts;
    uint64_t experts, expert_bytes;         /* handed out */
    uint64_t device_hits, device_hit_bytes; /* of those: were in their slots when asked for */
    uint64_t host_hits, host_hit_bytes;     /* were in a frame, or on their way from one */
    uint64_t disk_misses, disk_miss_bytes;  /* had to be read, or were being read */
    uint64_t read_bytes, copied_bytes;      /* moved, for whatever reason */
    uint64_t read_busy_ns, copy_busy_ns;    /* while at least one was under way */
    uint64_t waits, stall_ns;               /* of dispatches for experts: all of these: */
    uint64_t stall_slot_ns, stall_disk_ns, stall_copy_ns, stall_other_ns;
    uint64_t n_reading, n_copying; /* jobs now */
    struct plec_residency_counters device, host;
    struct plec_prefetch_counters prefetch;
    struct plec_io_counters io;
    struct plec_policy_report policies[PLEC_N_ORIGINS]; /* PLEC_FROM_PLAN .. PLEC_FROM_PROFILE */
};
void plec_streamer_get_stats(struct plec_stream_stats *out, struct plec_streamer *streamer);
/* Checks every relation between the tables; false, and the broken one, is a bug. For tests. */
bool plec_streamer_sound(struct plec_streamer *streamer, const char **broken);

#ifdef __cplusplus
}
#endif
#endif
