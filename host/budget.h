/* budget.h: what of the routed experts fits a device, what moves for a token, and what that costs:
 * on paper, from the tables of a container and three measured speeds.
 *
 * The model. Routing is uniform and independent: the hardest case for a cache, so a skewed router
 * does better (replay a recorded routing to know). A layer of E experts, k a token, uses
 * E (1 - (1 - k/E)^T) of them in a step of T tokens. Slots keep what was used last (LRU), by
 * extent, with a bit for each expert. A layer is used once a step, so what it used j steps ago is
 * still there when the slots hold all that j steps use, a number whose mean and variance are known;
 * h is the chance that a touched extent is there, q the share of a touched extent that a step
 * needs. An expert is there when its extent is and it was fetched since the extent came: h q / (1 -
 * h (1 - q)). Frames hold at least what slots hold, when there are as many. An extent is read whole
 * where that costs no more than reading the share that is needed one by one.
 *
 * Owns: nothing; results are values. Never: opens a file, measures. Any thread.
 */
#ifndef PLEC_HOST_BUDGET_H
#define PLEC_HOST_BUDGET_H

#include <stdbool.h>

#include "device/device.h"
#include "host/container.h"

#ifdef __cplusplus
extern "C" {
#endif

/* --- what there is --------------------------------------------------------------------------- */

/* The routed experts of one layer, cut into extents of one width. */
struct plec_budget_layer {
    uint32_t number;           /* the container's */
    uint32_t n_experts, top_k; /* top_k >= 1 */
    uint32_t n_extents;
    uint64_t weight_bytes;              /* of all its experts */
    uint64_t frame_bytes;               /* of its largest frame */
    uint64_t slot_bytes, landing_bytes; /* on the device: of its largest extent; of one landing
                                           (landing.h), 0: its experts arrive as files have them */
    uint64_t entry_reads, extent_reads; /* reads that fetch all experts one by one; all extents */
    uint64_t other_bytes; /* shared and dense experts, latent projections: every step reads them,
                             nothing streams them */
};

/* The bytes of one read are at most this (struct plec_io_options.piece_bytes). */
enum { PLEC_BUDGET_PIECE_BYTES = 2 << 20 };

/* Whether a runner with a device budget streams the layer's routed experts. */
bool plec_budget_streams(const struct plec_bound_layer *bound);
struct plec_budget_of {
    const struct plec_bound_layer *bound;
    uint32_t number, width;
    const struct plec_locator *locator;
    const struct plec_device *device;
};
/* Describes a layer that streams to a device. Statuses of plec_extent_map_open and of
 * plec_device_arrival. */
PLEC_MUST_USE enum plec_status plec_budget_describe(struct plec_budget_layer *out,
                                                    const struct plec_budget_of *of,
                                                    struct plec_error *err);
/* Bytes of what a step of the layer reads beside its routed experts. */
uint64_t plec_budget_other_bytes(const struct plec_bound_layer *bound);
/* Bytes of all entries of a bank. */
uint64_t plec_budget_bank_bytes(const struct plec_bank *bank);

/* --- what fits ------------------------------------------------------------------------------- */

/* How many frames of frame_bytes a budget holds, of n_keys extents in all. */
uint32_t plec_budget_fit(uint64_t budget, uint64_t frame_bytes, uint32_t n_keys);
/* How many slots of slot_bytes, beside landing_bytes of all landings. */
uint32_t plec_budget_slots(uint64_t budget, uint64_t slot_bytes, uint64_t landing_bytes,
                           uint32_t n_keys);
/* How many of a tier's slots only pass through: none when the extents of the largest layer fit, so
 * that no dispatch exceeds the rest; two, so that one is filled while the other is read, when there
 * are three. */
uint32_t plec_budget_staging(uint32_t n_slots, uint32_t max_keys);

struct plec_budget {
    const struct plec_budget_layer *layers; /* [n_layers], a view */
    uint32_t n_layers, width;
    uint32_t n_experts, n_extents, max_extents; /* of all layers; of the largest */
    uint64_t weight_bytes, other_bytes;         /* of all layers */
    uint64_t frame_bytes, slot_bytes;           /* of a frame; of a device slot */
    uint64_t landing_bytes;                     /* of all landings, beside the slots */
    uint32_t n_slots, n_slot_staging, n_frames, n_frame_staging;
    bool resident; /* every extent has a slot */
};
/* PLEC_BAD_INPUT "BudgetTooSmall", when not one extent of one expert fits: names what it takes. */
enum plec_status plec_budget_too_small(const struct plec_budget *budget, uint64_t device_bytes,
                                       uint64_t host_bytes, struct plec_error *err);
/* n_slots or n_frames is 0 when not one frame fits. */
void plec_budget_make(struct plec_budget *out, const struct plec_budget_layer *layers,
                      uint32_t n_layers, uint32_t width, uint64_t device_bytes,
                      uint64_t host_bytes);
/* The fewest devices of this budget that hold everything, each an equal share of every layer's
 * extents; 0: no number does. */
uint32_t plec_budget_ranks(const struct plec_budget *budget);

/* --- what moves ------------------------------------------------------------------------------ */

/* Expected distinct experts, and extents touched, of a layer in a step of n_tokens. */
double plec_budget_distinct(uint32_t n_experts, uint32_t top_k, uint32_t n_tokens);
double plec_budget_touched(const struct plec_budget_layer *layer, uint32_t n_tokens);

/* Of what is measured; all but read_s above 0. */
struct plec_budget_machine {
    double disk_bytes_per_s, read_s; /* a read takes read_s beside its bytes, many in flight */
    double link_bytes_per_s;         /* host to device */
    double memory_bytes_per_s;       /* weights read by the device's kernels */
};

/* Means of one step of n_tokens through all layers, once the caches are warm. */
struct plec_budget_step {
    uint32_t n_tokens;
    double experts, extents;                 /* handed out; touched */
    double device_hits, host_hits, misses;   /* experts, by where they were */
    double device_hit_bytes, host_hit_bytes; /* theirs */
    double active_bytes, other_bytes;        /* read by kernels: routed; beside them */
    double reads, read_bytes, copied_bytes;  /* moved; whole extents hold more than misses */
    double disk_s, link_s, memory_s;         /* what each takes alone */
    double step_s;     /* the three overlapped expert by expert within a layer, not between layers:
                          what comes next is not known before it is routed */
    double resident_s; /* were all experts on the device */
    double streamed_s; /* were none kept, and all three perfectly overlapped */
};
void plec_budget_expect(struct plec_budget_step *out, const struct plec_budget *budget,
                        const struct plec_budget_machine *machine, uint32_t n_tokens);

#ifdef __cplusplus
}
#endif
#endif
