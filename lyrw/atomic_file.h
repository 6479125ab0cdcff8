/* atomic_file.h: a new file that stands under its name whole, or not at all.
 *
 * Bytes go to a temporary name in the same folder, "<path>.part-<process>-<n>"; commit syncs them,
 * renames over the path and syncs the folder. After a crash the path holds what it held before.
 * Owns: the descriptor and the temporary file. Never: more than the bytes it is handed in memory.
 */
#ifndef PLEC_LYRW_ATOMIC_FILE_H
#define PLEC_LYRW_ATOMIC_FILE_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Zeroed: closed. */
struct plec_atomic_file {
    bool open;
    int fd;
    char *path, *temporary; /* owned */
};

/* Creates the temporary file, and the folders of the path that are missing. A link, device,
 * pipe or socket under the path is left alone: the file would replace it. PLEC_IO "CannotCreate",
 * PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_atomic_file_open(struct plec_atomic_file *out, const char *path,
                                                     struct plec_error *err);
/* The same in a folder that must be there already: a mistyped path makes no folders. */
PLEC_MUST_USE enum plec_status plec_atomic_file_open_beside(struct plec_atomic_file *out,
                                                            const char *path,
                                                            struct plec_error *err);

/* Sets the size, and where the file system can reserves the space, so that a full disk is told
 * before hours of writing. Bytes never written are zeros. PLEC_IO "CannotReserve". */
PLEC_MUST_USE enum plec_status plec_atomic_file_reserve(struct plec_atomic_file *file,
                                                        uint64_t size, struct plec_error *err);

/* Writes all n_bytes at `at`, whatever lies there. PLEC_IO "WriteFailed" names path, byte, how many
 * bytes were wanted and how many were taken: a full disk, a limit, a device error. */
PLEC_MUST_USE enum plec_status plec_atomic_file_write(struct plec_atomic_file *file, uint64_t at,
                                                      const void *bytes, uint64_t n_bytes,
                                                      struct plec_error *err);

/* Makes the file stand under its path, replacing what was there. Always closes; when it fails
 * before the rename, the temporary file is gone and the path as it was. PLEC_IO "SyncFailed",
 * "RenameFailed". */
PLEC_MUST_USE enum plec_status plec_atomic_file_commit(struct plec_atomic_file *file,
                                                       struct plec_error *err);

/* Closes and removes the temporary file; nothing on a closed one. */
void plec_atomic_file_abort(struct plec_atomic_file *file);

/* All of that for a file that is in memory whole: opens beside, writes, commits. */
PLEC_MUST_USE enum plec_status plec_atomic_file_store(const char *path, const void *bytes,
                                                      uint64_t n_bytes, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
