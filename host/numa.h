/* numa.h: binds memory to a NUMA node, through hwloc where it is built in. */
#ifndef PLEC_HOST_NUMA_H
#define PLEC_HOST_NUMA_H

#include <stdbool.h>

#include "lyrw/status.h"

struct plec_numa; /* what is known of the machine */

/* NULL: nothing can be bound; *reason says why. */
struct plec_numa *plec_numa_open(const char **reason);
/* Pages of [memory, memory + n_bytes) that are not there yet will come from the node as long as it
 * has any: a full node is not a reason to end the process. On failure *reason says why. */
bool plec_numa_bind(struct plec_numa *numa, void *memory, uint64_t n_bytes, int32_t node,
                    const char **reason);
/* NULL is nothing. */
void plec_numa_close(struct plec_numa *numa);

#endif
