#include "host/store.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum plec_status plec_store_open(struct plec_store *out, size_t capacity, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->files = calloc(capacity > 0 ? capacity : 1, sizeof *out->files);
    if (out->files == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu segment files", capacity);
    out->capacity = capacity;
    pthread_mutex_init(&out->lock, NULL);
    return PLEC_OK;
}

static char *join(const char *root, const char *key) {
    if (root == NULL) return strdup(key);
    size_t n_bytes = strlen(root) + strlen(key) + sizeof "/.lyrw";
    char *path = malloc(n_bytes);
    if (path != NULL) snprintf(path, n_bytes, "%s/%s.lyrw", root, key);
    return path;
}

enum plec_status plec_store_add(struct plec_store *store, const char *root, const char *key,
                                struct plec_error *err) {
    if (store->n_files == store->capacity)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "more than %zu segment files",
                         store->capacity);
    struct plec_store_file *file = &store->files[store->n_files];
    file->path = join(root, key);
    if (file->path == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "segment %s", key);
    file->key = key;
    store->n_files++;
    struct stat info;
    bool there = stat(file->path, &info) == 0;
    if (there && S_ISREG(info.st_mode)) return PLEC_OK;
    const char *why = there ? "not a regular file" : strerror(errno);
    if (root == NULL)
        return plec_fail(err, PLEC_MISSING, there ? "NotAFile" : "CannotOpen", "%s: %s", key, why);
    return plec_fail(err, PLEC_MISSING, "SegmentMissing", "segment %s: %s: %s", key, file->path,
                     why);
}

static enum plec_status load(struct plec_store_file *file, struct plec_error *err) {
    if (file->mapping.data != NULL) return PLEC_OK;
    enum plec_status status = plec_mapping_open(&file->mapping, file->path, err);
    if (status != PLEC_OK) return status;
    status = plec_segment_parse(&file->segment, file->mapping.data, file->mapping.size, err);
    if (status != PLEC_OK) plec_mapping_close(&file->mapping);
    return status;
}

enum plec_status plec_store_get(const struct plec_segment **out, struct plec_store *store,
                                const char *key, struct plec_error *err) {
    *out = NULL;
    for (size_t i = 0; i < store->n_files; i++) {
        struct plec_store_file *file = &store->files[i];
        if (strcmp(file->key, key) != 0) continue;
        pthread_mutex_lock(&store->lock);
        enum plec_status status = load(file, err);
        pthread_mutex_unlock(&store->lock);
        if (status != PLEC_OK) {
            bool lone = strcmp(file->path, key) == 0;
            plec_error_context(err, lone ? "%s" : "segment %s", key);
            return status;
        }
        *out = &file->segment;
        return PLEC_OK;
    }
    return plec_fail(err, PLEC_MISSING, "StorageUndeclared", "segment key %s is not in the index",
                     key);
}

void plec_store_file_at(struct plec_open_file *out, struct plec_store *store, size_t i) {
    const struct plec_store_file *file = &store->files[i];
    pthread_mutex_lock(&store->lock);
    *out = (struct plec_open_file){file->path, file->mapping.data, file->mapping.size};
    pthread_mutex_unlock(&store->lock);
}

void plec_store_close(struct plec_store *store) {
    if (store->files == NULL) return;
    for (size_t i = 0; i < store->n_files; i++) {
        plec_segment_close(&store->files[i].segment);
        plec_mapping_close(&store->files[i].mapping);
        free(store->files[i].path);
    }
    free(store->files);
    pthread_mutex_destroy(&store->lock);
    memset(store, 0, sizeof *store);
}
