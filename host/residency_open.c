/* Opening and closing a tier, and what it tells about itself. */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "host/residency_parts.h"

enum { DEFAULT_HALF_LIFE_STEPS = 32, DEFAULT_THRASH_STEPS = 8, DEFAULT_PROTECT = 2 };

static enum plec_status allocate(struct plec_residency *tier, struct plec_error *err) {
    const struct plec_keyspace *keys = tier->options.keys;
    struct plec_arena *arena = &tier->arena;
    tier->slots = plec_arena_alloc(arena, tier->n_all, sizeof *tier->slots, err);
    tier->origin = plec_arena_alloc(arena, tier->n_all, PLEC_EXTENT_MAX, err);
    tier->memory = plec_arena_alloc(arena, keys->n_keys, sizeof *tier->memory, err);
    tier->future_next = plec_arena_alloc(arena, tier->options.n_future, sizeof(uint32_t), err);
    tier->uses = plec_arena_alloc(arena, keys->n_experts, sizeof *tier->uses, err);
    tier->use_share = plec_arena_alloc(arena, keys->n_layers, sizeof *tier->use_share, err);
    tier->scratch = plec_arena_alloc(arena, tier->n_all, sizeof *tier->scratch, err);
    uint64_t n_tags = tier->options.tags ? (uint64_t)tier->n_all * PLEC_EXTENT_MAX : 0;
    tier->tags = plec_arena_alloc(arena, n_tags, sizeof *tier->tags, err);
    if (tier->slots == NULL || tier->origin == NULL || tier->memory == NULL ||
        tier->future_next == NULL || tier->uses == NULL || tier->use_share == NULL ||
        tier->scratch == NULL || tier->tags == NULL)
        return PLEC_NO_MEMORY;
    enum plec_status status = plec_heap_open(&tier->at_rest, arena, tier->n_all, err);
    if (status != PLEC_OK) return status;
    return plec_heap_open(&tier->unconsumed, arena, tier->n_all, err);
}

/* For each use of the future, the next one of the same key; for each key, its first. */
static void read_future(struct plec_residency *tier) {
    const struct plec_residency_options *options = &tier->options;
    for (uint64_t i = options->n_future; i-- > 0;) {
        assert(options->future[i] < options->keys->n_keys);
        struct plec_key_memory *memory = &tier->memory[options->future[i]];
        tier->future_next[i] = memory->next_use;
        memory->next_use = (uint32_t)i;
    }
}

static void set_defaults(struct plec_residency_options *options) {
    uint32_t n_layers = options->keys->n_layers;
    if (options->half_life == 0) options->half_life = DEFAULT_HALF_LIFE_STEPS * n_layers;
    if (options->half_life == 0) options->half_life = 1;
    if (options->protect == 0) options->protect = DEFAULT_PROTECT;
    if (options->thrash == 0) options->thrash = DEFAULT_THRASH_STEPS * n_layers;
    if (options->max_unconsumed == 0) options->max_unconsumed = (options->n_slots + 3) / 4;
}

enum plec_status plec_residency_open(struct plec_residency **out,
                                     const struct plec_residency_options *options,
                                     struct plec_error *err) {
    *out = NULL;
    uint64_t n_all = (uint64_t)options->n_slots + options->n_staging;
    if (n_all == 0 || n_all >= PLEC_NO_SLOT || options->n_future >= UINT32_MAX)
        return plec_fail(err, PLEC_BAD_INPUT, "NoSlots", "%u slots and %u for staging",
                         options->n_slots, options->n_staging);
    struct plec_residency *tier = calloc(1, sizeof *tier);
    if (tier == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a tier");
    tier->options = *options;
    tier->n_all = (uint32_t)n_all;
    set_defaults(&tier->options);
    enum plec_status status = allocate(tier, err);
    if (status != PLEC_OK) {
        plec_residency_close(tier);
        return status;
    }
    for (uint32_t k = 0; k < options->keys->n_keys; k++)
        tier->memory[k] = (struct plec_key_memory){.slot = PLEC_NO_SLOT, .next_use = UINT32_MAX};
    for (uint32_t i = 0; i < options->keys->n_layers; i++)
        tier->use_share[i] = -1;
    tier->free_slots[0] = tier->free_slots[1] = PLEC_NO_SLOT;
    for (uint32_t s = tier->n_all; s-- > 0;) {
        bool staging = s >= options->n_slots;
        tier->slots[s] = (struct plec_slot){
            .key = PLEC_NO_KEY, .staging = staging, .next_free = tier->free_slots[staging]};
        tier->free_slots[staging] = s;
        tier->n_free[staging]++;
        tier->in_service[staging]++;
    }
    read_future(tier);
    *out = tier;
    return PLEC_OK;
}

void plec_residency_close(struct plec_residency *tier) {
    if (tier == NULL) return;
    plec_arena_close(&tier->arena);
    free(tier);
}

enum plec_status plec_residency_check_identity(const struct plec_residency *tier, uint64_t identity,
                                               struct plec_error *err) {
    if (tier->options.identity == identity) return PLEC_OK;
    return plec_fail(err, PLEC_BAD_INPUT, "OtherModel",
                     "the slots hold extents of model %016llx, not of %016llx",
                     (unsigned long long)tier->options.identity, (unsigned long long)identity);
}

uint64_t plec_residency_valid(const struct plec_residency *tier, uint32_t key) {
    uint32_t s = tier->memory[key].slot;
    return s != PLEC_NO_SLOT ? tier->slots[s].valid : 0;
}

bool plec_residency_has(const struct plec_residency *tier, uint32_t key) {
    return tier->memory[key].slot != PLEC_NO_SLOT;
}

uint32_t plec_residency_in_service(const struct plec_residency *tier) {
    return tier->in_service[0] + tier->in_service[1];
}

uint32_t plec_residency_references(const struct plec_residency *tier, uint32_t slot) {
    return tier->slots[slot].references;
}

uint32_t plec_residency_fit(const struct plec_residency *tier, struct plec_need *needs,
                            uint32_t n) {
    uint32_t n_there = 0, n_at_rest = 0, kept = n;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t s = tier->memory[needs[i].key].slot;
        if (s == PLEC_NO_SLOT) continue;
        tier->scratch[n_there++] = needs[i];
        n_at_rest += plec_heap_has(&tier->at_rest, s);
    }
    for (uint32_t i = n; i-- > 0;) /* the absent ones to the end, in their order */
        if (tier->memory[needs[i].key].slot == PLEC_NO_SLOT) needs[--kept] = needs[i];
    if (n_there > 0) memcpy(needs, tier->scratch, n_there * sizeof *needs);
    uint32_t room = tier->n_free[0] + tier->at_rest.n - n_at_rest;
    return n_there + (n - n_there < room ? n - n_there : room);
}

void plec_residency_get_counters(struct plec_residency_counters *out,
                                 const struct plec_residency *tier) {
    *out = tier->counters;
    out->free = tier->n_free[0] + tier->n_free[1];
    out->at_rest = out->in_use = 0;
    for (uint32_t s = 0; s < tier->n_all; s++) {
        const struct plec_slot *slot = &tier->slots[s];
        if (slot->quarantined || slot->key == PLEC_NO_KEY) continue;
        out->in_use += slot->references > 0;
        out->at_rest += slot->references == 0;
    }
}

const uint64_t *plec_residency_uses(const struct plec_residency *tier) {
    return tier->uses;
}

double plec_residency_use_share(const struct plec_residency *tier, uint32_t layer) {
    return tier->use_share[layer];
}

static const char *slot_fault(const struct plec_residency *tier, uint32_t s) {
    const struct plec_slot *slot = &tier->slots[s];
    bool resting = plec_heap_has(&tier->at_rest, s);
    if ((slot->used & ~slot->valid) != 0) return "used experts that are not valid";
    if (slot->key == PLEC_NO_KEY) {
        if (slot->references > 0) return "a free slot has references";
        if (slot->valid != 0) return "a free slot holds experts";
        return resting ? "a free slot may be evicted" : NULL;
    }
    if ((slot->valid & ~plec_key_full(plec_slot_key(tier, slot))) != 0) return "too many experts";
    if (!slot->quarantined && tier->memory[slot->key].slot != s) return "a slot no key leads to";
    if (slot->references > 0) return resting ? "a slot in use may be evicted" : NULL;
    if (slot->quarantined || slot->staging) return "a passing slot is kept";
    if (slot->valid == 0) return "an empty slot is kept";
    return resting == !tier->memory[slot->key].pinned ? NULL : "a slot at rest is not in its queue";
}

bool plec_residency_sound(const struct plec_residency *tier, const char **broken) {
    uint32_t n_used = 0, n_speculative = 0, n_quarantined = 0, n_leaving = 0;
    *broken = NULL;
    for (uint32_t s = 0; s < tier->n_all && *broken == NULL; s++) {
        *broken = slot_fault(tier, s);
        n_used += tier->slots[s].key != PLEC_NO_KEY;
        n_quarantined += tier->slots[s].key == PLEC_NO_KEY && tier->slots[s].quarantined;
        n_leaving += tier->slots[s].key != PLEC_NO_KEY && tier->slots[s].quarantined;
        n_speculative += tier->slots[s].speculative;
    }
    if (*broken == NULL && n_speculative != tier->n_speculative) *broken = "speculation miscounted";
    uint32_t n_free = 0;
    for (int staging = 0; staging < 2; staging++)
        for (uint32_t s = tier->free_slots[staging]; s != PLEC_NO_SLOT && n_free <= tier->n_all;
             s = tier->slots[s].next_free)
            n_free++;
    if (*broken == NULL && (n_used + n_free + n_quarantined != tier->n_all ||
                            n_free != tier->n_free[0] + tier->n_free[1]))
        *broken = "a slot is lost";
    uint32_t n_led = 0; /* keys that have a slot */
    for (uint32_t k = 0; k < tier->options.keys->n_keys && *broken == NULL; k++) {
        uint32_t s = tier->memory[k].slot;
        n_led += s != PLEC_NO_SLOT;
        if (s != PLEC_NO_SLOT && tier->slots[s].key != k) *broken = "a key leads to another's slot";
    }
    if (*broken == NULL && n_led != n_used - n_leaving)
        *broken = "a slot's key does not lead to it";
    return *broken == NULL;
}
