/* residency_parts.h: the inside of residency.h, for its own files. */
#ifndef PLEC_HOST_RESIDENCY_PARTS_H
#define PLEC_HOST_RESIDENCY_PARTS_H

#include "host/heap.h"
#include "host/residency.h"

enum { PLEC_NO_SLOT = UINT32_MAX };

struct plec_slot {
    uint32_t key; /* PLEC_NO_KEY: free */
    uint32_t references;
    uint32_t next_free;
    uint64_t generation;  /* counts what the slot held */
    uint64_t valid, used; /* used: within valid */
    uint64_t last_use;    /* position */
    uint64_t touched;     /* LRU: order of the last load or release */
    uint64_t until;       /* while in `unconsumed` */
    bool staging, quarantined;
    bool speculative; /* counted in n_speculative */
};

/* What a key leaves behind when it goes, and what its uses were. */
struct plec_key_memory {
    uint32_t slot;     /* PLEC_NO_SLOT */
    uint64_t left_at;  /* position; with left */
    uint64_t left;     /* experts that were there when it left */
    double score;      /* LFU: uses, each worth 2^((position - base) / half_life) */
    uint32_t next_use; /* oracle: index in the future, UINT32_MAX: never */
    bool pinned;
};

struct plec_residency {
    struct plec_arena arena; /* holds this struct's arrays */
    struct plec_residency_options options;
    uint32_t n_all;                 /* slots, staging ones last */
    struct plec_slot *slots;        /* [n_all] */
    uint8_t *origin;                /* [n_all, PLEC_EXTENT_MAX] who brought the expert */
    uint64_t *tags;                 /* [n_all, PLEC_EXTENT_MAX], or NULL */
    struct plec_key_memory *memory; /* [n_keys] */
    uint32_t *future_next;          /* [n_future] next index of the same key */
    uint64_t *uses;                 /* [n_experts] */
    double *use_share;              /* [n_layers] */
    struct plec_need *scratch;      /* [n_all] */
    struct plec_heap at_rest;       /* slots that may be emptied, by what they are worth */
    struct plec_heap unconsumed;    /* slots nobody used yet, by their deadline */
    uint32_t free_slots[2];         /* heads of the free lists: cached, staging */
    uint32_t n_free[2], in_service[2];
    uint32_t n_speculative, n_pins;
    uint64_t position, touch, base; /* base: LFU's position of score 1 */
    struct plec_residency_counters counters;
};

/* Ranks from here on are out of other prefetch's reach. */
#define PLEC_RANK_PROTECTED (UINT64_C(1) << 63)

static inline const struct plec_key *plec_slot_key(const struct plec_residency *tier,
                                                   const struct plec_slot *slot) {
    return &tier->options.keys->keys[slot->key];
}

#endif
