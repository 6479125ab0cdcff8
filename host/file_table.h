/* file_table.h: which open file a byte in memory belongs to.
 *
 * Owns: an index of mappings by address. Never: the mappings or their paths. A file may be listed
 * before it is mapped. Not thread-safe: the owner guards it.
 */
#ifndef PLEC_HOST_FILE_TABLE_H
#define PLEC_HOST_FILE_TABLE_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_open_file {
    const char *path;
    const uint8_t *data; /* [size]; NULL: not mapped yet */
    uint64_t size;
};

struct plec_file_place {
    uintptr_t first, end; /* addresses of its bytes */
    uint32_t file;
};

/* A zeroed table is closed. */
struct plec_file_table {
    struct plec_open_file *files;       /* [n_files], by number; filled by the owner */
    struct plec_file_place *by_address; /* [n_mapped], ascending */
    uint32_t n_files, n_mapped;
};

/* A table of n_files files without views. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_file_table_open(struct plec_file_table *out, size_t n_files,
                                                    struct plec_error *err);
void plec_file_table_close(struct plec_file_table *table);

/* Orders the files by address anew, after views in `files` changed. Mappings never overlap. */
void plec_file_table_sort(struct plec_file_table *table);
/* The file whose mapping, as of the last sort, holds the byte at p, and the byte's offset. */
bool plec_file_table_find(uint32_t *file, uint64_t *offset, const struct plec_file_table *table,
                          const uint8_t *p);

#ifdef __cplusplus
}
#endif
#endif
