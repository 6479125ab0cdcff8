/* mapping.h: a file's bytes, read-only, in the address space.
 *
 * Owns: the mapping. Never: writes, caches, or reads ahead on its own. A mapping costs address
 * space, not memory: only the pages that are touched become resident.
 */
#ifndef PLEC_LYRW_MAPPING_H
#define PLEC_LYRW_MAPPING_H

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A zeroed mapping is closed. */
struct plec_mapping {
    const uint8_t *data; /* [size]; a valid non-NULL pointer even when size is 0 */
    uint64_t size;
};

/* Maps a regular file. PLEC_MISSING: cannot be opened or is not a regular file (path and reason
 * named). PLEC_IO: opened, but cannot be mapped. The descriptor is closed before return. */
PLEC_MUST_USE enum plec_status plec_mapping_open(struct plec_mapping *out, const char *path,
                                                 struct plec_error *err);
void plec_mapping_close(struct plec_mapping *mapping);

#ifdef __cplusplus
}
#endif
#endif
