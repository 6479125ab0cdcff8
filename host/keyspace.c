#include "host/keyspace.h"

#include <stdlib.h>

static enum plec_status count_layer(uint64_t *n_keys, uint64_t *n_experts,
                                    const struct plec_keyspace_layer *layer, uint32_t i,
                                    struct plec_error *err) {
    if (layer->first_entry[0] != 0)
        return plec_fail(err, PLEC_BAD_INPUT, "EmptyExtent", "layer %u starts at entry %u, not 0",
                         i, layer->first_entry[0]);
    for (uint32_t e = 0; e < layer->n_extents; e++) {
        uint32_t first = layer->first_entry[e], end = layer->first_entry[e + 1];
        if (end <= first)
            return plec_fail(err, PLEC_BAD_INPUT, "EmptyExtent", "layer %u, extent %u: no entries",
                             i, e);
        if (end - first > PLEC_EXTENT_MAX)
            return plec_fail(err, PLEC_BAD_INPUT, "ExtentTooWide",
                             "layer %u, extent %u: %u entries, at most %d have bits", i, e,
                             end - first, PLEC_EXTENT_MAX);
    }
    *n_keys += layer->n_extents;
    *n_experts += layer->first_entry[layer->n_extents];
    if (*n_keys >= PLEC_NO_KEY || *n_experts >= PLEC_NO_KEY)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManyKeys",
                         "more than 2^32 - 2 extents or experts");
    return PLEC_OK;
}

static enum plec_status count(uint64_t *n_keys, uint64_t *n_experts,
                              const struct plec_keyspace_layer *layers, uint32_t n_layers,
                              struct plec_error *err) {
    *n_keys = *n_experts = 0;
    for (uint32_t i = 0; i < n_layers; i++) {
        enum plec_status status = count_layer(n_keys, n_experts, &layers[i], i, err);
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

static void fill_key(struct plec_keyspace *keys, uint32_t layer, uint32_t extent,
                     const struct plec_keyspace_layer *from) {
    uint32_t k = keys->layer_first_key[layer] + extent;
    struct plec_key *key = &keys->keys[k];
    *key = (struct plec_key){
        .layer = layer,
        .first_entry = from->first_entry[extent],
        .n_entries = from->first_entry[extent + 1] - from->first_entry[extent],
        .first_expert = keys->layer_first_expert[layer] + from->first_entry[extent],
        .entry_bytes = from->entry_bytes,
    };
    key->extent_bytes = from->extent_bytes != NULL ? from->extent_bytes[extent]
                                                   : key->n_entries * from->entry_bytes;
    for (uint32_t i = 0; i < key->n_entries; i++)
        keys->expert_key[key->first_expert + i] = k;
}

static enum plec_status allocate(struct plec_keyspace *keys, uint64_t n_keys, uint64_t n_experts,
                                 struct plec_error *err) {
    struct plec_arena *arena = &keys->arena;
    keys->keys = plec_arena_alloc(arena, n_keys, sizeof *keys->keys, err);
    keys->expert_key = plec_arena_alloc(arena, n_experts, sizeof *keys->expert_key, err);
    uint64_t n_ends = (uint64_t)keys->n_layers + 1;
    keys->layer_first_key = plec_arena_alloc(arena, n_ends, sizeof(uint32_t), err);
    keys->layer_first_expert = plec_arena_alloc(arena, n_ends, sizeof(uint32_t), err);
    bool done = keys->keys != NULL && keys->expert_key != NULL && keys->layer_first_key != NULL &&
                keys->layer_first_expert != NULL;
    return done ? PLEC_OK : PLEC_NO_MEMORY;
}

enum plec_status plec_keyspace_open(struct plec_keyspace *out,
                                    const struct plec_keyspace_layer *layers, uint32_t n_layers,
                                    struct plec_error *err) {
    *out = (struct plec_keyspace){.n_layers = n_layers};
    uint64_t n_keys, n_experts;
    enum plec_status status = count(&n_keys, &n_experts, layers, n_layers, err);
    if (status != PLEC_OK) return status;
    status = allocate(out, n_keys, n_experts, err);
    if (status != PLEC_OK) {
        plec_keyspace_close(out);
        return status;
    }
    out->n_keys = (uint32_t)n_keys;
    out->n_experts = (uint32_t)n_experts;
    for (uint32_t i = 0; i < n_layers; i++) {
        out->layer_first_key[i + 1] = out->layer_first_key[i] + layers[i].n_extents;
        out->layer_first_expert[i + 1] =
            out->layer_first_expert[i] + layers[i].first_entry[layers[i].n_extents];
        for (uint32_t e = 0; e < layers[i].n_extents; e++)
            fill_key(out, i, e, &layers[i]);
    }
    return PLEC_OK;
}

enum plec_status plec_keyspace_open_uniform(struct plec_keyspace *out, uint32_t n_layers,
                                            uint32_t n_experts, uint32_t width,
                                            uint64_t entry_bytes, struct plec_error *err) {
    *out = (struct plec_keyspace){0};
    if (width == 0) return plec_fail(err, PLEC_BAD_INPUT, "EmptyExtent", "a width of 0");
    uint32_t n_extents = n_experts / width + (n_experts % width != 0);
    uint32_t *first = calloc((size_t)n_extents + 1, sizeof *first);
    struct plec_keyspace_layer *layers = calloc(n_layers > 0 ? n_layers : 1, sizeof *layers);
    enum plec_status status;
    if (first == NULL || layers == NULL) {
        status = plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a table of %u layers", n_layers);
    } else {
        for (uint32_t e = 0; e <= n_extents; e++)
            first[e] = e < n_extents ? e * width : n_experts;
        for (uint32_t i = 0; i < n_layers; i++)
            layers[i] = (struct plec_keyspace_layer){n_extents, first, entry_bytes, NULL};
        status = plec_keyspace_open(out, layers, n_layers, err);
    }
    free(first);
    free(layers);
    return status;
}

void plec_keyspace_close(struct plec_keyspace *keys) {
    plec_arena_close(&keys->arena);
    *keys = (struct plec_keyspace){0};
}
