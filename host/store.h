/* store.h: the segment files of one container, mapped and parsed when they are first asked for.
 *
 * Owns: mappings and parsed tables, until close. Never: reads a payload. Adding is done by one
 * thread while the container opens; plec_store_get may then be called from any thread.
 */
#ifndef PLEC_HOST_STORE_H
#define PLEC_HOST_STORE_H

#include <pthread.h>

#include "host/file_table.h"
#include "lyrw/mapping.h"
#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_store_file {
    const char *key; /* a view: segment key, or the path of a lone file */
    char *path;
    struct plec_mapping mapping; /* closed until first asked for */
    struct plec_segment segment;
};

/* Opened with plec_store_open. */
struct plec_store {
    pthread_mutex_t lock;
    struct plec_store_file *files; /* [n_files] */
    size_t n_files, capacity;
};

/* A store with room for capacity files. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_store_open(struct plec_store *out, size_t capacity,
                                               struct plec_error *err);
/* Adds <root>/<key>.lyrw, or the file `key` itself when root is NULL. The key must outlive the
 * store. The file must exist and be a regular one: PLEC_MISSING "SegmentMissing" names the key; of
 * a lone file "CannotOpen", "NotAFile". */
PLEC_MUST_USE enum plec_status plec_store_add(struct plec_store *store, const char *root,
                                              const char *key, struct plec_error *err);
/* The parsed file of a key; valid until close. PLEC_MISSING "StorageUndeclared" for a key never
 * added; otherwise the statuses of mapping and parsing, with the key in front. */
PLEC_MUST_USE enum plec_status plec_store_get(const struct plec_segment **out,
                                              struct plec_store *store, const char *key,
                                              struct plec_error *err);
/* File i < n_files by its path, with its bytes once they are mapped. */
void plec_store_file_at(struct plec_open_file *out, struct plec_store *store, size_t i);
/* Accepts a zeroed store. */
void plec_store_close(struct plec_store *store);

#ifdef __cplusplus
}
#endif
#endif
