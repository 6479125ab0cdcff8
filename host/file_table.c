#include "host/file_table.h"

#include <stdlib.h>
#include <string.h>

enum plec_status plec_file_table_open(struct plec_file_table *out, size_t n_files,
                                      struct plec_error *err) {
    memset(out, 0, sizeof *out);
    if (n_files < UINT32_MAX) {
        out->n_files = (uint32_t)n_files;
        out->files = calloc(n_files + 1, sizeof *out->files);
        out->by_address = calloc(n_files + 1, sizeof *out->by_address);
    }
    if (out->files != NULL && out->by_address != NULL) return PLEC_OK;
    plec_file_table_close(out);
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a table of %zu files", n_files);
}

void plec_file_table_close(struct plec_file_table *table) {
    free(table->files);
    free(table->by_address);
    memset(table, 0, sizeof *table);
}

static int by_first(const void *a, const void *b) {
    const struct plec_file_place *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

void plec_file_table_sort(struct plec_file_table *table) {
    table->n_mapped = 0;
    for (uint32_t i = 0; i < table->n_files; i++) {
        const struct plec_open_file *view = &table->files[i];
        uintptr_t first = (uintptr_t)view->data;
        if (view->data != NULL && view->size > 0)
            table->by_address[table->n_mapped++] =
                (struct plec_file_place){first, first + (uintptr_t)view->size, i};
    }
    qsort(table->by_address, table->n_mapped, sizeof *table->by_address, by_first);
}

bool plec_file_table_find(uint32_t *file, uint64_t *offset, const struct plec_file_table *table,
                          const uint8_t *p) {
    uintptr_t at = (uintptr_t)p;
    uint32_t low = 0, high = table->n_mapped;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (table->by_address[middle].end <= at)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == table->n_mapped || at < table->by_address[low].first) return false;
    *file = table->by_address[low].file;
    *offset = at - table->by_address[low].first;
    return true;
}
