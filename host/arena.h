/* arena.h: memory that lives and dies together: the tables and small vectors made by one bind.
 *
 * Owns: every block handed out, until close. Never: frees a single block, grows one. Not
 * thread-safe: one thread builds, after that the blocks are only read.
 */
#ifndef PLEC_HOST_ARENA_H
#define PLEC_HOST_ARENA_H

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_arena_block;

/* A zeroed arena is empty. */
struct plec_arena {
    struct plec_arena_block *blocks;
};

/* n * size zeroed bytes, aligned to 64; a valid pointer when that is 0. NULL and PLEC_NO_MEMORY in
 * *err when the machine cannot, or the product overflows. */
void *plec_arena_alloc(struct plec_arena *arena, uint64_t n, uint64_t size, struct plec_error *err);
/* A copy of text. */
char *plec_arena_text(struct plec_arena *arena, const char *text, struct plec_error *err);
void plec_arena_close(struct plec_arena *arena);

#ifdef __cplusplus
}
#endif
#endif
