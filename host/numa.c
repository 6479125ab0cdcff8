#include "host/numa.h"

#if defined(PLEC_HAVE_HWLOC)

#include <errno.h>
#include <hwloc.h>
#include <stdlib.h>
#include <string.h>

struct plec_numa {
    hwloc_topology_t topology;
};

struct plec_numa *plec_numa_open(const char **reason) {
    struct plec_numa *numa = calloc(1, sizeof *numa);
    *reason = "the machine's topology cannot be read";
    if (numa == NULL) return NULL;
    if (hwloc_topology_init(&numa->topology) == 0) {
        if (hwloc_topology_load(numa->topology) == 0) return numa;
        hwloc_topology_destroy(numa->topology);
    }
    free(numa);
    return NULL;
}

bool plec_numa_bind(struct plec_numa *numa, void *memory, uint64_t n_bytes, int32_t node,
                    const char **reason) {
    hwloc_obj_t found = hwloc_get_numanode_obj_by_os_index(numa->topology, (unsigned)node);
    if (found == NULL) {
        *reason = "there is no such node";
        return false;
    }
    if (hwloc_set_area_membind(numa->topology, memory, (size_t)n_bytes, found->nodeset,
                               HWLOC_MEMBIND_BIND, HWLOC_MEMBIND_BYNODESET) == 0)
        return true;
    *reason = strerror(errno);
    return false;
}

void plec_numa_close(struct plec_numa *numa) {
    if (numa == NULL) return;
    hwloc_topology_destroy(numa->topology);
    free(numa);
}

#else

struct plec_numa *plec_numa_open(const char **reason) {
    *reason = "built without hwloc";
    return NULL;
}

bool plec_numa_bind(struct plec_numa *numa, void *memory, uint64_t n_bytes, int32_t node,
                    const char **reason) {
    (void)numa, (void)memory, (void)n_bytes, (void)node;
    *reason = "built without hwloc";
    return false;
}

void plec_numa_close(struct plec_numa *numa) {
    (void)numa;
}

#endif
