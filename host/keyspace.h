/* keyspace.h: one number for every extent that can move, and what each of them is.
 *
 * A key is an extent of a layer; keys of a layer are neighbours, layers stand in the order a step
 * runs them. A "layer" here is one bank that streams: a model layer with two such banks has two.
 * The experts of a key are bits of a 64-bit mask, entry first_entry + i is bit i.
 *
 * Owns: the tables. Never: knows files or memory. Read-only after open, from any thread.
 */
#ifndef PLEC_HOST_KEYSPACE_H
#define PLEC_HOST_KEYSPACE_H

#include <stdbool.h>

#include "host/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_EXTENT_MAX = 64, PLEC_NO_KEY = UINT32_MAX };

/* What is said of a layer at open; n_extents, first_entry as in struct plec_extent_map. */
struct plec_keyspace_layer {
    uint32_t n_extents;
    const uint32_t *first_entry;  /* [n_extents + 1], from 0 */
    uint64_t entry_bytes;         /* to move one expert */
    const uint64_t *extent_bytes; /* [n_extents] to move all of one; NULL: entries x entry_bytes */
};

struct plec_key {
    uint32_t layer;
    uint32_t first_entry;  /* in its bank */
    uint32_t n_entries;    /* 1 .. PLEC_EXTENT_MAX */
    uint32_t first_expert; /* among the experts of all layers */
    uint64_t entry_bytes, extent_bytes;
};

/* Zeroed: closed. */
struct plec_keyspace {
    uint32_t n_layers, n_keys, n_experts; /* of all layers */
    struct plec_key *keys;                /* [n_keys] */
    uint32_t *layer_first_key;            /* [n_layers + 1] */
    uint32_t *layer_first_expert;         /* [n_layers + 1] */
    uint32_t *expert_key;                 /* [n_experts] */
    struct plec_arena arena;
};

/* PLEC_BAD_INPUT "ExtentTooWide", "EmptyExtent", "TooManyKeys"; PLEC_NO_MEMORY. *out is closed on
 * failure. */
PLEC_MUST_USE enum plec_status plec_keyspace_open(struct plec_keyspace *out,
                                                  const struct plec_keyspace_layer *layers,
                                                  uint32_t n_layers, struct plec_error *err);
/* Layers of n_experts equal experts cut into extents of `width`. */
PLEC_MUST_USE enum plec_status plec_keyspace_open_uniform(struct plec_keyspace *out,
                                                          uint32_t n_layers, uint32_t n_experts,
                                                          uint32_t width, uint64_t entry_bytes,
                                                          struct plec_error *err);
void plec_keyspace_close(struct plec_keyspace *keys);

/* All experts of a key. */
static inline uint64_t plec_key_full(const struct plec_key *key) {
    return key->n_entries == PLEC_EXTENT_MAX ? UINT64_MAX : (UINT64_C(1) << key->n_entries) - 1;
}
/* Bytes to move these experts of a key, in one go. */
static inline uint64_t plec_key_bytes(const struct plec_key *key, uint64_t mask) {
    if (mask == plec_key_full(key)) return key->extent_bytes;
    return (uint64_t)__builtin_popcountll(mask) * key->entry_bytes;
}
/* The key that holds an expert of a layer, and its bit. */
static inline uint32_t plec_keyspace_find(uint64_t *bit, const struct plec_keyspace *keys,
                                          uint32_t layer, uint32_t expert) {
    uint32_t k = keys->expert_key[keys->layer_first_expert[layer] + expert];
    *bit = UINT64_C(1) << (expert - keys->keys[k].first_entry);
    return k;
}
static inline uint32_t plec_keyspace_experts(const struct plec_keyspace *keys, uint32_t layer) {
    return keys->layer_first_expert[layer + 1] - keys->layer_first_expert[layer];
}

/* Where in a run something is: layers of steps, counted on. */
static inline uint64_t plec_position(const struct plec_keyspace *keys, uint64_t step,
                                     uint32_t layer) {
    return step * keys->n_layers + layer;
}

#ifdef __cplusplus
}
#endif
#endif
