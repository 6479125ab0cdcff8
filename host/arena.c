#include "host/arena.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"

enum { ARENA_ALIGNMENT = 64 };

/* One alignment unit in front of the bytes it carries. */
struct plec_arena_block {
    struct plec_arena_block *next;
};

void *plec_arena_alloc(struct plec_arena *arena, uint64_t n, uint64_t size,
                       struct plec_error *err) {
    uint64_t n_bytes, total;
    if (!plec_mul_u64(&n_bytes, n, size) || !plec_add_u64(&total, n_bytes, ARENA_ALIGNMENT) ||
        !plec_round_up_u64(&total, total, ARENA_ALIGNMENT) || total > SIZE_MAX) {
        plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%llu x %llu bytes overflow",
                  (unsigned long long)n, (unsigned long long)size);
        return NULL;
    }
    void *memory = NULL;
    if (posix_memalign(&memory, ARENA_ALIGNMENT, (size_t)total) != 0) {
        plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%llu bytes", (unsigned long long)total);
        return NULL;
    }
    struct plec_arena_block *block = memory;
    block->next = arena->blocks;
    arena->blocks = block;
    uint8_t *bytes = (uint8_t *)memory + ARENA_ALIGNMENT;
    memset(bytes, 0, (size_t)n_bytes);
    return bytes;
}

char *plec_arena_text(struct plec_arena *arena, const char *text, struct plec_error *err) {
    size_t n_bytes = strlen(text) + 1;
    char *copy = plec_arena_alloc(arena, n_bytes, 1, err);
    if (copy != NULL) memcpy(copy, text, n_bytes);
    return copy;
}

void plec_arena_close(struct plec_arena *arena) {
    while (arena->blocks != NULL) {
        struct plec_arena_block *block = arena->blocks;
        arena->blocks = block->next;
        free(block);
    }
}
