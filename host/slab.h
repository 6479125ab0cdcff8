/* slab.h: one large block of host memory, page by page there, on huge pages where it can be. */
#ifndef PLEC_HOST_SLAB_H
#define PLEC_HOST_SLAB_H

#include <stdbool.h>

#include "lyrw/status.h"

/* Maps n_bytes (whole 4096) that start on a huge page when there is room for one; untouched. NULL:
 * errno says why. */
void *plec_slab_map(uint64_t n_bytes);
void plec_slab_unmap(void *memory, uint64_t n_bytes);
/* Makes every page present, split over up to n_threads threads. False: the system did not give them
 * all; errno says why. */
bool plec_slab_fault(void *memory, uint64_t n_bytes, uint32_t n_threads);

struct plec_slab_range {
    const void *memory;
    uint64_t n_bytes;
};
/* Bytes of the ranges that are on huge pages now; 0 when the system does not tell. */
uint64_t plec_slab_huge_bytes(const struct plec_slab_range *ranges, uint32_t n_ranges);

#endif
