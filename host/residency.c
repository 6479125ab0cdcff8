#include "host/residency.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "host/residency_parts.h"

/* Weight of the newest eviction in a layer's mean share of use. */
static const double SHARE_WEIGHT = 1.0 / 16;
/* LFU: scores are scaled down before a use weighs more than 2^this. */
enum { MAX_EXPONENT = 512 };

static uint64_t count_bits(uint64_t mask) {
    return (uint64_t)__builtin_popcountll(mask);
}

/* --- what a slot is worth ------------------------------------------------------------------ */

/* Order of leaving among slots at rest: always below 2^62. What was brought and never used goes
 * first, so that wrong guesses take each other's slots. */
static uint64_t worth(const struct plec_residency *tier, const struct plec_slot *slot) {
    const struct plec_key_memory *memory = &tier->memory[slot->key];
    uint64_t bits;
    if (slot->used == 0 && tier->options.policy != PLEC_RESIDENCY_ORACLE) return 0;
    switch (tier->options.policy) {
    case PLEC_RESIDENCY_LFU:
        memcpy(&bits, &memory->score, sizeof bits); /* of a double >= 0: ordered as it is */
        return bits >> 2;
    case PLEC_RESIDENCY_ORACLE: return (uint64_t)UINT32_MAX - memory->next_use;
    case PLEC_RESIDENCY_LRU: break;
    }
    return slot->touched;
}

static uint64_t rank(const struct plec_residency *tier, uint32_t s) {
    const struct plec_slot *slot = &tier->slots[s];
    if (!plec_heap_has(&tier->unconsumed, s)) return worth(tier, slot);
    uint64_t farthest_first = (PLEC_RANK_PROTECTED >> 1) - 1;
    return PLEC_RANK_PROTECTED + (slot->until < farthest_first ? farthest_first - slot->until : 0);
}

static void scale_scores(struct plec_residency *tier) {
    tier->base = tier->position;
    double factor = ldexp(1, -MAX_EXPONENT);
    for (uint32_t k = 0; k < tier->options.keys->n_keys; k++)
        tier->memory[k].score *= factor;
    for (uint32_t i = 0; i < tier->at_rest.n; i++) {
        struct plec_heap_item *item = &tier->at_rest.items[i]; /* the order stays as it is */
        if (item->rank < PLEC_RANK_PROTECTED) item->rank = worth(tier, &tier->slots[item->id]);
    }
}

static void learn_use(struct plec_residency *tier, uint32_t key) {
    struct plec_key_memory *memory = &tier->memory[key];
    if (tier->options.policy == PLEC_RESIDENCY_LFU) {
        double age = (double)(tier->position - tier->base) / tier->options.half_life;
        if (age > MAX_EXPONENT) {
            scale_scores(tier);
            age = 0;
        }
        memory->score += exp2(age);
    }
    if (memory->next_use != UINT32_MAX) memory->next_use = tier->future_next[memory->next_use];
}

/* --- slots come and go --------------------------------------------------------------------- */

static void consume(struct plec_residency *tier, uint32_t s) {
    plec_heap_remove(&tier->unconsumed, s);
    if (tier->slots[s].speculative) tier->n_speculative--;
    tier->slots[s].speculative = false;
}

static void put_free(struct plec_residency *tier, uint32_t s) {
    struct plec_slot *slot = &tier->slots[s];
    slot->next_free = tier->free_slots[slot->staging];
    tier->free_slots[slot->staging] = s;
    tier->n_free[slot->staging]++;
}

static void count_eviction(struct plec_residency *tier, uint32_t s) {
    struct plec_slot *slot = &tier->slots[s];
    const struct plec_key *key = plec_slot_key(tier, slot);
    struct plec_residency_counters *counters = &tier->counters;
    uint64_t unused = slot->valid & ~slot->used;
    counters->evictions++;
    counters->evicted_bytes += count_bits(slot->valid) * key->entry_bytes;
    counters->wasted += count_bits(unused);
    counters->wasted_bytes += count_bits(unused) * key->entry_bytes;
    for (uint64_t left = unused; left != 0; left &= left - 1)
        counters->origin[tier->origin[s * (size_t)PLEC_EXTENT_MAX + __builtin_ctzll(left)]]
            .wasted += key->entry_bytes;
    double share = (double)count_bits(slot->used) / key->n_entries;
    double *mean = &tier->use_share[key->layer];
    *mean = *mean < 0 ? share : *mean + SHARE_WEIGHT * (share - *mean);
}

/* Empties a slot without references. */
static void vacate(struct plec_eviction *out, struct plec_residency *tier, uint32_t s) {
    struct plec_slot *slot = &tier->slots[s];
    assert(slot->references == 0);
    bool expected = plec_heap_has(&tier->unconsumed, s) && !slot->speculative;
    *out = (struct plec_eviction){s, slot->key, slot->valid, slot->used, expected, slot->until};
    plec_heap_remove(&tier->at_rest, s);
    consume(tier, s);
    struct plec_key_memory *memory = &tier->memory[slot->key];
    if (slot->valid != 0) {
        count_eviction(tier, s);
        memory->left = slot->valid;
        memory->left_at = tier->position;
    }
    if (memory->slot == s) memory->slot = PLEC_NO_SLOT;
    slot->key = PLEC_NO_KEY;
    slot->valid = slot->used = 0;
    slot->generation++;
    if (!slot->quarantined) put_free(tier, s);
    if (tier->options.evicted != NULL) tier->options.evicted(tier->options.user, out);
}

/* Puts a slot where its state says: in use, at rest, or free. */
static void settle(struct plec_residency *tier, uint32_t s) {
    struct plec_slot *slot = &tier->slots[s];
    struct plec_eviction ignored;
    if (slot->references > 0 || slot->key == PLEC_NO_KEY)
        plec_heap_remove(&tier->at_rest, s);
    else if (slot->valid == 0 || slot->staging || slot->quarantined)
        vacate(&ignored, tier, s);
    else if (tier->memory[slot->key].pinned)
        plec_heap_remove(&tier->at_rest, s);
    else
        plec_heap_put(&tier->at_rest, s, rank(tier, s));
}

static struct plec_slot_ref retain(struct plec_residency *tier, uint32_t s) {
    tier->slots[s].references++;
    plec_heap_remove(&tier->at_rest, s);
    return (struct plec_slot_ref){s, tier->slots[s].generation};
}

static uint32_t slot_of(const struct plec_residency *tier, struct plec_slot_ref ref) {
    assert(ref.slot < tier->n_all && tier->slots[ref.slot].generation == ref.generation);
    assert(tier->slots[ref.slot].references > 0);
    return ref.slot;
}

bool plec_residency_hold(struct plec_slot_ref *out, struct plec_residency *tier, uint32_t key) {
    uint32_t s = tier->memory[key].slot;
    if (s != PLEC_NO_SLOT) *out = retain(tier, s);
    return s != PLEC_NO_SLOT;
}

void plec_residency_retain(struct plec_residency *tier, struct plec_slot_ref ref) {
    retain(tier, slot_of(tier, ref));
}

void plec_residency_release(struct plec_residency *tier, struct plec_slot_ref ref) {
    uint32_t s = slot_of(tier, ref);
    tier->slots[s].touched = tier->touch++;
    if (--tier->slots[s].references == 0) settle(tier, s);
}

/* --- placing ------------------------------------------------------------------------------- */

static uint32_t take_free(struct plec_residency *tier, bool staging) {
    uint32_t s = tier->free_slots[staging];
    if (s == PLEC_NO_SLOT) return s;
    tier->free_slots[staging] = tier->slots[s].next_free;
    tier->n_free[staging]--;
    return s;
}

/* Whether the slot that would leave first may leave for this. */
static bool may_leave(const struct plec_residency *tier, const struct plec_place_args *args) {
    if (tier->at_rest.n == 0) return false;
    const struct plec_heap_item *first = &tier->at_rest.items[0];
    const struct plec_slot *slot = &tier->slots[first->id];
    bool protected = first->rank >= PLEC_RANK_PROTECTED;
    switch (args->why) {
    case PLEC_PLACE_CERTAIN: return !protected || slot->until > args->until;
    case PLEC_PLACE_SPECULATION:
        return !protected &&
               (slot->used == 0 || slot->last_use + tier->options.protect <= tier->position);
    case PLEC_PLACE_DEMAND:
    case PLEC_PLACE_STREAM: break;
    }
    return true;
}

/* An empty slot, or PLEC_NO_SLOT. */
static uint32_t find_room(struct plec_eviction *evicted, struct plec_residency *tier,
                          const struct plec_place_args *args) {
    enum plec_place_for why = args->why;
    bool passes =
        why == PLEC_PLACE_STREAM || (why == PLEC_PLACE_DEMAND && tier->in_service[0] == 0);
    if (passes && tier->in_service[1] > 0) return take_free(tier, true);
    if (why == PLEC_PLACE_SPECULATION && tier->n_speculative >= tier->options.max_unconsumed)
        return PLEC_NO_SLOT;
    uint32_t s = take_free(tier, false);
    if (s != PLEC_NO_SLOT || !may_leave(tier, args)) return s;
    vacate(evicted, tier, tier->at_rest.items[0].id);
    return take_free(tier, false);
}

static void protect(struct plec_residency *tier, uint32_t s, uint64_t until) {
    tier->slots[s].until = until;
    plec_heap_put(&tier->unconsumed, s, until);
}

static void occupy(struct plec_residency *tier, uint32_t s, const struct plec_place_args *args) {
    struct plec_slot *slot = &tier->slots[s];
    slot->key = args->key;
    slot->last_use = 0;
    slot->touched = tier->touch++;
    tier->memory[args->key].slot = s;
    if (slot->staging) tier->counters.staged++;
    if (args->why != PLEC_PLACE_CERTAIN && args->why != PLEC_PLACE_SPECULATION) return;
    protect(tier, s, args->until);
    slot->speculative = args->why == PLEC_PLACE_SPECULATION;
    tier->n_speculative += slot->speculative;
}

void plec_residency_expect(struct plec_residency *tier, uint32_t key, uint64_t until) {
    uint32_t s = tier->memory[key].slot;
    if (s == PLEC_NO_SLOT || until < tier->position) return;
    struct plec_slot *slot = &tier->slots[s];
    bool sooner = plec_heap_has(&tier->unconsumed, s) && !slot->speculative && slot->until <= until;
    if (sooner) return;
    consume(tier, s); /* as speculation, if it was */
    protect(tier, s, until);
    settle(tier, s);
}

bool plec_residency_place(struct plec_slot_ref *out, struct plec_eviction *evicted,
                          struct plec_residency *tier, const struct plec_place_args *args) {
    struct plec_eviction gone = {.slot = PLEC_NO_SLOT, .key = PLEC_NO_KEY};
    uint32_t s = tier->memory[args->key].slot;
    if (s == PLEC_NO_SLOT) {
        s = find_room(&gone, tier, args);
        if (s != PLEC_NO_SLOT) occupy(tier, s, args);
    }
    if (evicted != NULL) *evicted = gone;
    if (s == PLEC_NO_SLOT) {
        tier->counters.refused++;
        return false;
    }
    *out = retain(tier, s);
    return true;
}

void plec_residency_loaded(struct plec_residency *tier, struct plec_slot_ref ref, uint64_t mask,
                           enum plec_origin origin) {
    uint32_t s = slot_of(tier, ref);
    struct plec_slot *slot = &tier->slots[s];
    const struct plec_key *key = plec_slot_key(tier, slot);
    struct plec_key_memory *memory = &tier->memory[slot->key];
    assert((mask & ~plec_key_full(key)) == 0 && (mask & slot->valid) == 0);
    slot->valid |= mask;
    for (uint64_t left = mask; left != 0; left &= left - 1)
        tier->origin[s * (size_t)PLEC_EXTENT_MAX + __builtin_ctzll(left)] = (uint8_t)origin;
    struct plec_residency_counters *counters = &tier->counters;
    uint64_t n = count_bits(mask);
    counters->loaded += n;
    counters->loaded_bytes += n * key->entry_bytes;
    counters->origin[origin].fetched += n * key->entry_bytes;
    if (memory->left != 0 && tier->position - memory->left_at <= tier->options.thrash) {
        uint64_t back = count_bits(mask & memory->left);
        counters->thrash += back;
        counters->thrash_bytes += back * key->entry_bytes;
    }
    memory->left &= ~mask;
}

/* --- handing out --------------------------------------------------------------------------- */

static void mark_used(struct plec_residency *tier, uint32_t s, uint64_t mask) {
    struct plec_slot *slot = &tier->slots[s];
    const struct plec_key *key = plec_slot_key(tier, slot);
    for (uint64_t left = mask & ~slot->used; left != 0; left &= left - 1)
        tier->counters.origin[tier->origin[s * (size_t)PLEC_EXTENT_MAX + __builtin_ctzll(left)]]
            .used += key->entry_bytes;
    slot->used |= mask;
    slot->last_use = tier->position;
    consume(tier, s);
}

struct plec_slot_ref plec_residency_take(struct plec_residency *tier, uint32_t key, uint64_t mask) {
    uint32_t s = tier->memory[key].slot;
    assert(s != PLEC_NO_SLOT && (mask & ~tier->slots[s].valid) == 0);
    struct plec_slot_ref ref = retain(tier, s);
    mark_used(tier, s, mask);
    return ref;
}

static void count_hand_out(struct plec_residency *tier, const struct plec_hand_out *args) {
    const struct plec_key *key = &tier->options.keys->keys[args->key];
    struct plec_residency_counters *counters = &tier->counters;
    uint64_t hits = count_bits(args->mask & args->hit);
    uint64_t late = count_bits(args->mask & args->late & ~args->hit);
    uint64_t misses = count_bits(args->mask) - hits - late;
    counters->hits += hits;
    counters->late += late;
    counters->misses += misses;
    counters->hit_bytes += hits * key->entry_bytes;
    counters->late_bytes += late * key->entry_bytes;
    counters->miss_bytes += misses * key->entry_bytes;
    counters->full += late + misses == 0;
    counters->partial += hits > 0 && late + misses > 0;
    counters->absent += hits == 0 && late + misses > 0;
    for (uint64_t left = args->mask; left != 0; left &= left - 1)
        tier->uses[key->first_expert + __builtin_ctzll(left)]++;
}

struct plec_slot_ref plec_residency_hand_out(struct plec_residency *tier,
                                             const struct plec_hand_out *args) {
    struct plec_slot_ref ref = plec_residency_take(tier, args->key, args->mask);
    learn_use(tier, args->key);
    count_hand_out(tier, args);
    return ref;
}

/* --- time, pins, tags ---------------------------------------------------------------------- */

void plec_residency_advance(struct plec_residency *tier, uint64_t position) {
    assert(position >= tier->position);
    tier->position = position;
    while (tier->unconsumed.n > 0 && tier->unconsumed.items[0].rank < position) {
        uint32_t s = tier->unconsumed.items[0].id;
        consume(tier, s);
        settle(tier, s);
    }
}

enum plec_status plec_residency_pin(struct plec_residency *tier, uint32_t key,
                                    struct plec_error *err) {
    struct plec_key_memory *memory = &tier->memory[key];
    if (memory->pinned) return PLEC_OK;
    uint32_t spare = tier->options.n_staging > 0 ? 0 : 1;
    if (tier->n_pins + spare >= tier->options.n_slots)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManyPins",
                         "%u of %u slots are pinned, key %u would leave none for the others",
                         tier->n_pins, tier->options.n_slots, key);
    memory->pinned = true;
    tier->n_pins++;
    if (memory->slot != PLEC_NO_SLOT) settle(tier, memory->slot);
    return PLEC_OK;
}

void plec_residency_unpin(struct plec_residency *tier, uint32_t key) {
    struct plec_key_memory *memory = &tier->memory[key];
    if (!memory->pinned) return;
    memory->pinned = false;
    tier->n_pins--;
    if (memory->slot != PLEC_NO_SLOT) settle(tier, memory->slot);
}

bool plec_residency_evict(struct plec_residency *tier, uint32_t key) {
    uint32_t s = tier->memory[key].slot;
    if (s == PLEC_NO_SLOT || tier->slots[s].references > 0) return false;
    struct plec_eviction ignored;
    vacate(&ignored, tier, s);
    return true;
}

void plec_residency_seal(struct plec_residency *tier, struct plec_slot_ref ref, uint32_t bit,
                         uint64_t tag) {
    assert(tier->tags != NULL && bit < PLEC_EXTENT_MAX);
    tier->tags[slot_of(tier, ref) * (size_t)PLEC_EXTENT_MAX + bit] = tag;
}

bool plec_residency_check(struct plec_residency *tier, struct plec_slot_ref ref, uint32_t bit,
                          uint64_t tag) {
    assert(tier->tags != NULL && bit < PLEC_EXTENT_MAX);
    uint32_t s = slot_of(tier, ref);
    struct plec_slot *slot = &tier->slots[s];
    if (tier->tags[s * (size_t)PLEC_EXTENT_MAX + bit] == tag) return true;
    if (!slot->quarantined) {
        tier->counters.quarantined++;
        tier->in_service[slot->staging]--;
    }
    slot->quarantined = true;
    if (tier->memory[slot->key].slot == s) tier->memory[slot->key].slot = PLEC_NO_SLOT;
    return false;
}

uint64_t plec_residency_tag(const struct plec_residency *tier, uint32_t slot, uint32_t bit) {
    assert(tier->tags != NULL && slot < tier->n_all && bit < PLEC_EXTENT_MAX);
    return tier->tags[slot * (size_t)PLEC_EXTENT_MAX + bit];
}
