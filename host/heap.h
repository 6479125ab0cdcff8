/* heap.h: a queue of ids by rank, from which any id can be taken out.
 *
 * A binary heap of ids below its capacity, each in it at most once. The lowest rank comes first,
 * and of equal ranks the one put in first. Its arrays live in the arena given at open; nothing is
 * allocated later. put and remove are O(log n). One caller at a time.
 */
#ifndef PLEC_HOST_HEAP_H
#define PLEC_HOST_HEAP_H

#include <stdbool.h>

#include "host/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_heap_item {
    uint64_t rank, order;
    uint32_t id;
};

struct plec_heap {
    struct plec_heap_item *items; /* [n] of [capacity] */
    uint32_t *place;              /* [capacity] where an id stands in items; PLEC_HEAP_NONE */
    uint32_t n, capacity;
    uint64_t order; /* of the next to come in */
};

enum { PLEC_HEAP_NONE = UINT32_MAX };

/* PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_heap_open(struct plec_heap *out, struct plec_arena *arena,
                                              uint32_t capacity, struct plec_error *err);

static inline bool plec_heap_has(const struct plec_heap *heap, uint32_t id) {
    return heap->place[id] != PLEC_HEAP_NONE;
}
/* Puts id in, or gives it another rank; an equal rank keeps its place among equals. */
void plec_heap_put(struct plec_heap *heap, uint32_t id, uint64_t rank);
/* Takes id out; nothing when it is not in. */
void plec_heap_remove(struct plec_heap *heap, uint32_t id);

#ifdef __cplusplus
}
#endif
#endif
