/* source.h: what a container is made of: one kind of source behind eight functions. A new kind adds
 * a file source_<kind>.c with an open function declared here and a line in container.c.
 *
 * The container owns the state an open returned and closes it once. Layer numbers are the source's
 * own; container.c has checked that i is in range. bind may be called from any thread.
 */
#ifndef PLEC_HOST_SOURCE_H
#define PLEC_HOST_SOURCE_H

#include "host/container.h"
#include "host/file_table.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_source_ops {
    enum plec_container_kind kind;
    void (*close)(void *state);
    size_t (*n_layers)(const void *state);
    void (*layer_info)(struct plec_layer_info *out, const void *state, size_t i);
    /* Fills *out (zeroed by the caller) for layer i of the source. On failure the caller closes
     * *out, so what was put into out->owned may stay there. */
    enum plec_status (*bind)(struct plec_bound_layer *out, void *state, size_t i,
                             struct plec_error *err);
    /* The files whose bytes bound layers view, numbered from 0 for the life of the state. A file is
     * unmapped or mapped for good. May be called beside bind. */
    size_t (*n_files)(const void *state);
    void (*file)(struct plec_open_file *out, void *state, size_t i);
    void (*about)(struct plec_container_about *out, const void *state);
};

struct plec_source {
    const struct plec_source_ops *ops;
    void *state;
};

/* path as plec_container_open got it; options never NULL. */
PLEC_MUST_USE enum plec_status plec_source_open_vindex(struct plec_source *out, const char *path,
                                                       const struct plec_container_options *options,
                                                       struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_source_open_lyrw(struct plec_source *out, const char *path,
                                                     const struct plec_container_options *options,
                                                     struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_source_open_gguf(struct plec_source *out, const char *path,
                                                     const struct plec_container_options *options,
                                                     struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_source_open_tezw(struct plec_source *out, const char *path,
                                                     const struct plec_container_options *options,
                                                     struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
