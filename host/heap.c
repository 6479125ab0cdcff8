#include "host/heap.h"

#include <assert.h>

enum plec_status plec_heap_open(struct plec_heap *out, struct plec_arena *arena, uint32_t capacity,
                                struct plec_error *err) {
    *out = (struct plec_heap){.capacity = capacity};
    out->items = plec_arena_alloc(arena, capacity, sizeof *out->items, err);
    out->place = plec_arena_alloc(arena, capacity, sizeof *out->place, err);
    if (out->items == NULL || out->place == NULL) return PLEC_NO_MEMORY;
    for (uint32_t i = 0; i < capacity; i++)
        out->place[i] = PLEC_HEAP_NONE;
    return PLEC_OK;
}

static bool before(const struct plec_heap_item *a, const struct plec_heap_item *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->order < b->order;
}

static void set(struct plec_heap *heap, uint32_t at, struct plec_heap_item item) {
    heap->items[at] = item;
    heap->place[item.id] = at;
}

static uint32_t rise(struct plec_heap *heap, uint32_t at, const struct plec_heap_item *item) {
    while (at > 0 && before(item, &heap->items[(at - 1) / 2])) {
        set(heap, at, heap->items[(at - 1) / 2]);
        at = (at - 1) / 2;
    }
    return at;
}

static uint32_t sink(struct plec_heap *heap, uint32_t at, const struct plec_heap_item *item) {
    for (;;) {
        uint32_t child = 2 * at + 1;
        if (child >= heap->n) return at;
        if (child + 1 < heap->n && before(&heap->items[child + 1], &heap->items[child])) child++;
        if (!before(&heap->items[child], item)) return at;
        set(heap, at, heap->items[child]);
        at = child;
    }
}

/* Finds the place of an item that may stand wrong at `at`. */
static void settle(struct plec_heap *heap, uint32_t at, struct plec_heap_item item) {
    at = rise(heap, at, &item);
    set(heap, sink(heap, at, &item), item);
}

void plec_heap_put(struct plec_heap *heap, uint32_t id, uint64_t rank) {
    assert(id < heap->capacity);
    uint32_t at = heap->place[id];
    if (at != PLEC_HEAP_NONE) {
        struct plec_heap_item item = heap->items[at];
        if (item.rank == rank) return;
        item.rank = rank;
        settle(heap, at, item);
        return;
    }
    settle(heap, heap->n++, (struct plec_heap_item){rank, heap->order++, id});
}

void plec_heap_remove(struct plec_heap *heap, uint32_t id) {
    assert(id < heap->capacity);
    uint32_t at = heap->place[id];
    if (at == PLEC_HEAP_NONE) return;
    heap->place[id] = PLEC_HEAP_NONE;
    struct plec_heap_item last = heap->items[--heap->n];
    if (at < heap->n) settle(heap, at, last);
}
