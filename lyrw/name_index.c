#include "lyrw/name_index.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "lyrw/cursor.h"

static uint64_t rotate(uint64_t x, unsigned by) {
    return x << by | x >> (64 - by);
}

static void sip_round(uint64_t v[4]) {
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

/* SipHash-1-3 (Aumasson and Bernstein, 2012): a keyed hash that is quick on short names. */
static uint64_t hash(const uint64_t key[2], struct plec_view name) {
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    uint64_t at = 0;
    for (; name.size - at >= 8; at += 8) {
        uint64_t word = plec_load_u64(name.data + at);
        v[3] ^= word;
        sip_round(v);
        v[0] ^= word;
    }
    uint64_t last = name.size << 56;
    for (unsigned shift = 0; at < name.size; at++, shift += 8)
        last |= (uint64_t)(uint8_t)name.data[at] << shift;
    v[3] ^= last;
    sip_round(v);
    v[0] ^= last;
    v[2] ^= 0xFF;
    sip_round(v);
    sip_round(v);
    sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

void plec_name_index_init(struct plec_name_index *out,
                          struct plec_view (*name)(const void *user, uint32_t index),
                          const void *user) {
    memset(out, 0, sizeof *out);
    out->name = name;
    out->user = user;
    /* Without randomness the index still answers rightly; only its bound on time is weaker. */
    if (getrandom(out->key, sizeof out->key, GRND_NONBLOCK) != (ssize_t)sizeof out->key)
        out->key[0] = (uint64_t)(uintptr_t)out;
}

static uint64_t slot_value(uint64_t h, uint32_t index) {
    return (h & UINT64_C(0xFFFFFFFF00000000)) | ((uint64_t)index + 1);
}
static uint32_t slot_index(uint64_t slot) {
    return (uint32_t)slot - 1;
}

/* The slot that holds the name, or the free one where it would stand. n_slots > names held. */
static uint64_t probe(const struct plec_name_index *names, uint64_t h, struct plec_view name) {
    uint64_t mask = names->n_slots - 1, at = h & mask;
    for (;; at = (at + 1) & mask) {
        uint64_t slot = names->slots[at];
        if (slot == 0) return at;
        if (slot >> 32 != h >> 32) continue;
        if (plec_view_equal(names->name(names->user, slot_index(slot)), name)) return at;
    }
}

static enum plec_status grow(struct plec_name_index *names, struct plec_error *err) {
    uint64_t n_slots = names->n_slots == 0 ? 64 : names->n_slots * 2;
    uint64_t *slots = calloc((size_t)n_slots, sizeof *slots);
    if (slots == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "an index of %llu names",
                         (unsigned long long)names->n_names);
    uint64_t *old = names->slots, n_old = names->n_slots, mask = n_slots - 1;
    for (uint64_t i = 0; i < n_old; i++) {
        if (old[i] == 0) continue;
        uint64_t h = hash(names->key, names->name(names->user, slot_index(old[i])));
        uint64_t at = h & mask;
        while (slots[at] != 0)
            at = (at + 1) & mask;
        slots[at] = old[i];
    }
    free(old);
    names->slots = slots;
    names->n_slots = n_slots;
    return PLEC_OK;
}

enum plec_status plec_name_index_add(struct plec_name_index *names, uint32_t *twin, uint32_t index,
                                     struct plec_error *err) {
    if (names->n_names * 2 >= names->n_slots) {
        enum plec_status status = grow(names, err);
        if (status != PLEC_OK) return status;
    }
    struct plec_view name = names->name(names->user, index);
    uint64_t h = hash(names->key, name), at = probe(names, h, name);
    if (names->slots[at] != 0) {
        *twin = slot_index(names->slots[at]);
        return PLEC_OK;
    }
    names->slots[at] = slot_value(h, index);
    names->n_names++;
    *twin = index;
    return PLEC_OK;
}

uint32_t plec_name_index_find(const struct plec_name_index *names, struct plec_view name) {
    if (names->n_names == 0) return UINT32_MAX;
    uint64_t slot = names->slots[probe(names, hash(names->key, name), name)];
    return slot == 0 ? UINT32_MAX : slot_index(slot);
}

void plec_name_index_free(struct plec_name_index *names) {
    free(names->slots);
    memset(names, 0, sizeof *names);
}
