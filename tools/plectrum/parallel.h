/* parallel.h: the same work on many items, by all cores, while the caller's thread draws progress.
 *
 * Owns the threads for the time of one call. Items are taken in order, one at a time; results
 * belong in slots of the caller's, one an item, so that output does not depend on who was faster.
 */
#ifndef PLEC_TOOLS_PARALLEL_H
#define PLEC_TOOLS_PARALLEL_H

#include <stddef.h>
#include <stdint.h>

#include "tools/plectrum/progress.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_parallel {
    size_t n_items;
    /* Called from several threads at once, once an item; returns the bytes it went through. */
    uint64_t (*work)(void *user, size_t item);
    void *user;
    struct plec_progress *progress; /* NULL: none; updated from the calling thread */
};

/* Returns when every item is done. Falls back to the calling thread where no thread can be made. */
void plec_parallel_run(const struct plec_parallel *job);

#ifdef __cplusplus
}
#endif
#endif
