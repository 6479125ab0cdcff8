#include "host/container.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "host/extent.h"
#include "host/source.h"
#include "lyrw/view.h"

enum { MAGIC_BYTES = 4 };

struct plec_container {
    struct plec_source source;
    pthread_mutex_t lock; /* over files */
    struct plec_file_table files;
};

typedef enum plec_status open_fn(struct plec_source *out, const char *path,
                                 const struct plec_container_options *options,
                                 struct plec_error *err);

/* First bytes -> source. */
static const struct {
    const char *magic;
    open_fn *open;
} by_magic[] = {
    {"LYRW", plec_source_open_lyrw},
    {"GGUF", plec_source_open_gguf},
    {"TZ2W", plec_source_open_tezw},
};

const char *plec_container_kind_name(enum plec_container_kind kind) {
    switch (kind) {
    case PLEC_CONTAINER_VINDEX: return "vindex";
    case PLEC_CONTAINER_LYRW: return "lyrw";
    case PLEC_CONTAINER_GGUF: return "gguf";
    case PLEC_CONTAINER_TEZW: return "tezw";
    }
    return "unknown";
}

/* File names that say what a cut or overwritten header no longer does. */
static const struct {
    const char *suffix;
    open_fn *open;
} by_name[] = {
    {".lyrw", plec_source_open_lyrw},
    {".gguf", plec_source_open_gguf},
    {".tezw", plec_source_open_tezw},
};

/* The source of a file by its first bytes, else by its name. */
static enum plec_status choose_by_magic(open_fn **out, const char *path, struct plec_error *err) {
    char magic[MAGIC_BYTES + 1] = "";
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", path, strerror(errno));
    ssize_t n = read(fd, magic, MAGIC_BYTES);
    int reason = errno;
    close(fd);
    if (n < 0) return plec_fail(err, PLEC_IO, "ReadFailed", "%s: %s", path, strerror(reason));
    for (size_t i = 0; i < sizeof by_magic / sizeof by_magic[0]; i++)
        if (n == MAGIC_BYTES && memcmp(magic, by_magic[i].magic, MAGIC_BYTES) == 0) {
            *out = by_magic[i].open;
            return PLEC_OK;
        }
    for (size_t i = 0; i < sizeof by_name / sizeof by_name[0]; i++)
        if (plec_view_ends(plec_view_of(path), by_name[i].suffix)) {
            *out = by_name[i].open;
            return PLEC_OK;
        }
    char found[MAGIC_BYTES * 3 + 1] = " nothing";
    for (ssize_t i = 0; i < n; i++)
        snprintf(found + 3 * i, sizeof found - 3 * (size_t)i, " %02x", (unsigned char)magic[i]);
    return plec_fail_at(err, PLEC_MALFORMED, "UnknownContainer", 0,
                        "%s: neither a folder with index.json nor a file that starts with a known "
                        "magic (LYRW, GGUF, TZ2W); it starts with%s",
                        path, found);
}

static enum plec_status choose(open_fn **out, const char *path, struct plec_error *err) {
    struct stat info;
    if (stat(path, &info) != 0)
        return plec_fail(err, PLEC_MISSING, "CannotOpen", "%s: %s", path, strerror(errno));
    if (S_ISDIR(info.st_mode)) {
        *out = plec_source_open_vindex;
        return PLEC_OK;
    }
    if (!S_ISREG(info.st_mode))
        return plec_fail(err, PLEC_MISSING, "NotAFile", "%s: not a regular file or a folder", path);
    return choose_by_magic(out, path, err);
}

/* Paths are known from the start and read without the lock; the bytes follow as layers are bound.
 */
static void refresh_files(struct plec_container *container) {
    for (uint32_t i = 0; i < container->files.n_files; i++) {
        struct plec_open_file view;
        container->source.ops->file(&view, container->source.state, i);
        container->files.files[i].data = view.data;
        container->files.files[i].size = view.size;
    }
    plec_file_table_sort(&container->files);
}

static enum plec_status list_files(struct plec_container *container, struct plec_error *err) {
    size_t n_files = container->source.ops->n_files(container->source.state);
    enum plec_status status = plec_file_table_open(&container->files, n_files, err);
    for (uint32_t i = 0; i < container->files.n_files; i++)
        container->source.ops->file(&container->files.files[i], container->source.state, i);
    plec_file_table_sort(&container->files);
    return status;
}

enum plec_status plec_container_open(struct plec_container **out, const char *path,
                                     const struct plec_container_options *options,
                                     struct plec_error *err) {
    static const struct plec_container_options defaults;
    *out = NULL;
    open_fn *open_source = NULL;
    if (options == NULL) options = &defaults;
    enum plec_status status = choose(&open_source, path, err);
    if (status != PLEC_OK) return status;
    if (open_source != plec_source_open_gguf &&
        (options->architecture != NULL || options->set != NULL))
        return plec_fail(err, PLEC_BAD_INPUT, "OptionUnused",
                         "%s: it says itself what it is: an architecture and settings are given "
                         "to GGUF files",
                         path);
    struct plec_container *container = calloc(1, sizeof *container);
    if (container == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    status = open_source(&container->source, path, options, err);
    if (status != PLEC_OK) {
        free(container);
        return status;
    }
    pthread_mutex_init(&container->lock, NULL);
    status = list_files(container, err);
    if (status != PLEC_OK) {
        plec_container_close(container);
        return status;
    }
    *out = container;
    return PLEC_OK;
}

enum plec_container_kind plec_container_get_kind(const struct plec_container *container) {
    return container->source.ops->kind;
}

void plec_container_close(struct plec_container *container) {
    if (container == NULL) return;
    plec_file_table_close(&container->files);
    pthread_mutex_destroy(&container->lock);
    container->source.ops->close(container->source.state);
    free(container);
}

size_t plec_container_n_layers(const struct plec_container *container) {
    return container->source.ops->n_layers(container->source.state);
}

void plec_container_layer_info(struct plec_layer_info *out, const struct plec_container *container,
                               size_t i) {
    memset(out, 0, sizeof *out);
    container->source.ops->layer_info(out, container->source.state, i);
}

void plec_container_get_about(struct plec_container_about *out,
                              const struct plec_container *container) {
    memset(out, 0, sizeof *out);
    container->source.ops->about(out, container->source.state);
}

enum plec_status plec_container_bind(struct plec_bound_layer *out, struct plec_container *container,
                                     uint32_t layer, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    size_t n_layers = plec_container_n_layers(container);
    for (size_t i = 0; i < n_layers; i++) {
        struct plec_layer_info info;
        plec_container_layer_info(&info, container, i);
        if (info.layer != layer) continue;
        enum plec_status status = container->source.ops->bind(out, container->source.state, i, err);
        if (status != PLEC_OK) plec_bound_layer_close(out);
        return status;
    }
    return plec_fail(err, PLEC_MISSING, "NoSuchLayer", "layer %u: the container has %zu layers%s",
                     layer, n_layers, n_layers == 0 ? " with something to run" : "");
}

void plec_bound_layer_close(struct plec_bound_layer *bound) {
    plec_arena_close(&bound->owned);
    memset(bound, 0, sizeof *bound);
}

uint32_t plec_container_n_files(const struct plec_container *container) {
    return container->files.n_files;
}

const char *plec_container_file_path(const struct plec_container *container, uint32_t file) {
    return container->files.files[file].path;
}

bool plec_container_locate(uint32_t *file, uint64_t *offset, struct plec_container *container,
                           const uint8_t *p) {
    pthread_mutex_lock(&container->lock);
    bool found = plec_file_table_find(file, offset, &container->files, p);
    if (!found) { /* a file may have been mapped since */
        refresh_files(container);
        found = plec_file_table_find(file, offset, &container->files, p);
    }
    pthread_mutex_unlock(&container->lock);
    return found;
}

static bool locate(void *user, const uint8_t *p, uint32_t *file, uint64_t *offset) {
    return plec_container_locate(file, offset, user, p);
}

void plec_container_locator(struct plec_locator *out, struct plec_container *container) {
    *out = (struct plec_locator){locate, container};
}
