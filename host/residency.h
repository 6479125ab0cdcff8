/* residency.h: which extent is in which slot of one tier of memory, and which of its experts.
 *
 * A tier is a number of equal slots: pinned frames, or device slots. A slot holds one extent (a key
 * of the keyspace), with a bit for each expert whose bytes are there. A slot in use has references:
 * of loads that fill it and of kernels or copies that read it. It is emptied for another extent
 * only at zero references; whoever took a reference releases it when the event after its last use
 * is done, never when a call returns. No slot to be had now is an answer, not an error.
 *
 *   free -> placed (1 reference: the load) -> loaded, bit by bit -> handed out <-> at rest -> free
 *
 * Slots at rest leave in the order of the policy, those that nobody used first. What is to be used
 * by a deadline, and has not been, is protected until then: only a demand, or what is certain to be
 * used sooner, takes its slot. The last n_staging slots pass through: they are empty again at the
 * last release, and hold what exceeds the cache.
 *
 * Counters are made in the function that hands a slot out. Bytes are experts x entry_bytes.
 *
 * Owns: its tables. Never: the memory of a slot, a thread, a clock. One caller at a time (the owner
 * holds a lock); nothing is allocated after open. Every call is O(log n_slots + experts) but fit.
 */
#ifndef PLEC_HOST_RESIDENCY_H
#define PLEC_HOST_RESIDENCY_H

#include "host/keyspace.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_residency_policy {
    PLEC_RESIDENCY_LRU,   /* the longest unused leaves first */
    PLEC_RESIDENCY_LFU,   /* the least used, old uses counting less */
    PLEC_RESIDENCY_ORACLE /* the one used again last, from a given future (Belady) */
};

/* Who asked for bytes to be brought. */
enum plec_origin {
    PLEC_FROM_DEMAND,      /* a layer waits for them */
    PLEC_FROM_PLAN,        /* routed already: this batch's next layers */
    PLEC_FROM_NEXT_ROUTER, /* the next layer's router on this layer's hidden state */
    PLEC_FROM_PREVIOUS,    /* what the previous token used in this layer */
    PLEC_FROM_FREQUENCY,   /* often used lately */
    PLEC_FROM_PROFILE,     /* often used in a profile file */
    PLEC_FROM_EXTENT,      /* the rest of an extent whose experts were asked for */
    PLEC_N_ORIGINS
};

/* A slot as it was when the reference was given. */
struct plec_slot_ref {
    uint32_t slot;
    uint64_t generation;
};

/* What left a slot: key PLEC_NO_KEY: nothing did. */
struct plec_eviction {
    uint32_t slot, key;
    uint64_t valid, used; /* experts that were there; those of them ever handed out */
    bool expected;        /* it was certain to be used, by position `until` */
    uint64_t until;
};

struct plec_residency_options {
    const struct plec_keyspace *keys; /* must outlive the tier */
    uint32_t n_slots;                 /* that cache */
    uint32_t n_staging;               /* that pass through; n_slots + n_staging >= 1 */
    enum plec_residency_policy policy;
    uint32_t half_life;      /* LFU: positions after which a use counts half; 0: 32 steps */
    uint32_t protect;        /* speculation spares what was used within so many positions; 0: 2 */
    uint32_t max_unconsumed; /* slots that unused speculation may hold; 0: a quarter of n_slots */
    uint32_t thrash;         /* coming back within so many positions counts; 0: 8 steps */
    const uint32_t *future;  /* [n_future] oracle: keys in the order they will be handed out */
    uint64_t n_future;
    uint64_t identity; /* of the model whose extents these are, e.g. a hash of its manifest */
    bool tags;         /* keep a tag for each expert in a slot */
    /* Called when a slot's content goes, before the slot is used again: debug builds poison. */
    void (*evicted)(void *user, const struct plec_eviction *eviction);
    void *user;
};

struct plec_residency; /* opaque */

/* PLEC_BAD_INPUT "NoSlots"; PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_residency_open(struct plec_residency **out,
                                                   const struct plec_residency_options *options,
                                                   struct plec_error *err);
/* NULL is nothing. */
void plec_residency_close(struct plec_residency *tier);
/* PLEC_BAD_INPUT "OtherModel" when the tier holds another model's extents. */
PLEC_MUST_USE enum plec_status plec_residency_check_identity(const struct plec_residency *tier,
                                                             uint64_t identity,
                                                             struct plec_error *err);

/* Moves on to a position (plec_position), never back: what was to be used before it and was not
 * loses its protection. */
void plec_residency_advance(struct plec_residency *tier, uint64_t position);

/* The experts of a key that are there; 0: none. */
uint64_t plec_residency_valid(const struct plec_residency *tier, uint32_t key);
/* Whether the key has a slot, loaded or not. */
bool plec_residency_has(const struct plec_residency *tier, uint32_t key);

enum plec_place_for {
    PLEC_PLACE_DEMAND,      /* takes any slot at rest; a staging slot where none caches */
    PLEC_PLACE_CERTAIN,     /* spares what is to be used no later than its own deadline */
    PLEC_PLACE_SPECULATION, /* spares all that is to be used, and what was used lately, and keeps
                               within a share of the slots */
    PLEC_PLACE_STREAM       /* takes a staging slot; where none is in service, as demand */
};

struct plec_place_args {
    uint32_t key;
    enum plec_place_for why;
    uint64_t until; /* certain and speculation: the position by which it will be used */
};
/* A slot for a key, retained for loading: its own when it has one. False: no slot now. *evicted
 * tells what had to go. */
bool plec_residency_place(struct plec_slot_ref *out, struct plec_eviction *evicted,
                          struct plec_residency *tier, const struct plec_place_args *args);
/* The bytes of these experts are in the slot, brought for `origin`. The reference stays. */
void plec_residency_loaded(struct plec_residency *tier, struct plec_slot_ref ref, uint64_t mask,
                           enum plec_origin origin);

/* What a key has is certain to be used by a position: protects it until it is used, or until then.
 * Nothing when it has no slot. */
void plec_residency_expect(struct plec_residency *tier, uint32_t key, uint64_t until);

/* Hands out the slot of a key whose experts `mask` are all there, retained. hit and late tell what
 * was there, and what was on its way, when the caller first asked: all else counts as missed. */
struct plec_hand_out {
    uint32_t key;
    uint64_t mask, hit, late;
};
struct plec_slot_ref plec_residency_hand_out(struct plec_residency *tier,
                                             const struct plec_hand_out *args);
/* The same for a move to another tier that nobody waits for: used, but neither hit nor miss. */
struct plec_slot_ref plec_residency_take(struct plec_residency *tier, uint32_t key, uint64_t mask);

/* Retains the slot that a key has, loaded or not; false: it has none. */
bool plec_residency_hold(struct plec_slot_ref *out, struct plec_residency *tier, uint32_t key);
void plec_residency_retain(struct plec_residency *tier, struct plec_slot_ref ref);
/* A stale generation, or more releases than references, is a bug of the caller's: asserted. */
void plec_residency_release(struct plec_residency *tier, struct plec_slot_ref ref);
uint32_t plec_residency_references(const struct plec_residency *tier, uint32_t slot);

/* A pinned key never leaves once it is there. PLEC_BAD_INPUT "TooManyPins" when no slot would be
 * left for the others. */
PLEC_MUST_USE enum plec_status plec_residency_pin(struct plec_residency *tier, uint32_t key,
                                                  struct plec_error *err);
void plec_residency_unpin(struct plec_residency *tier, uint32_t key);
/* Empties the slot of a key at rest; false when it has none or is in use. */
bool plec_residency_evict(struct plec_residency *tier, uint32_t key);

/* Content tags, for debug builds: a hash of an expert's bytes as loaded, checked before use. A tag
 * that differs takes the slot out of service: its content is given to nobody again, the slot is
 * never used again. */
void plec_residency_seal(struct plec_residency *tier, struct plec_slot_ref ref, uint32_t bit,
                         uint64_t tag);
PLEC_MUST_USE bool plec_residency_check(struct plec_residency *tier, struct plec_slot_ref ref,
                                        uint32_t bit, uint64_t tag);
/* What was sealed last. */
uint64_t plec_residency_tag(const struct plec_residency *tier, uint32_t slot, uint32_t bit);
/* Slots, cached and passing, that are not out of service. */
uint32_t plec_residency_in_service(const struct plec_residency *tier);

/* What one dispatch needs. */
struct plec_need {
    uint32_t key;
    uint64_t mask;
};
/* How many of the needs [n], of different keys, can be in slots at once. Puts those that are there
 * first and the rest after them, each group in its order: demand them in this order, hold the first
 * so many to the end, and stream the others (PLEC_PLACE_STREAM). O(n). */
uint32_t plec_residency_fit(const struct plec_residency *tier, struct plec_need *needs, uint32_t n);

struct plec_origin_counters {
    uint64_t fetched, used, wasted; /* bytes: fetched = used + wasted + still there unused */
};
struct plec_residency_counters {
    uint64_t hits, late, misses; /* experts handed out */
    uint64_t hit_bytes, late_bytes, miss_bytes;
    uint64_t full, partial, absent; /* hand-outs by what was there before */
    uint64_t loaded, loaded_bytes;  /* experts */
    uint64_t evictions, evicted_bytes;
    uint64_t wasted, wasted_bytes;  /* experts evicted that were never handed out */
    uint64_t thrash, thrash_bytes;  /* experts loaded again soon after they left */
    uint64_t refused;               /* no slot now */
    uint64_t staged, quarantined;   /* slots */
    uint32_t free, at_rest, in_use; /* slots now; quarantined ones are none of these */
    struct plec_origin_counters origin[PLEC_N_ORIGINS];
};
void plec_residency_get_counters(struct plec_residency_counters *out,
                                 const struct plec_residency *tier);
/* [n_experts of the keyspace] times each expert was handed out; a view. */
const uint64_t *plec_residency_uses(const struct plec_residency *tier);
/* Mean share of an extent's experts that were used while it was there, over the layer's evictions
 * (the last ones count most); negative: nothing left yet. */
double plec_residency_use_share(const struct plec_residency *tier, uint32_t layer);
/* Checks every relation between the tables; false, and the broken one, is a bug. For tests. */
bool plec_residency_sound(const struct plec_residency *tier, const char **broken);

#ifdef __cplusplus
}
#endif
#endif
