#include "tools/bench/sparse.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lyrw/segment_plan.h"
#include "manifests/index_build.h"
#include "manifests/moe_build.h"

enum { PATH_MAX_BYTES = 4096, KEY_MAX = 64 };

static enum plec_status io_failure(const char *path, struct plec_error *err) {
    return plec_fail(err, PLEC_IO, "WriteFailed", "%s: %s", path, strerror(errno));
}

/* Writes the structure of a plan and leaves a hole for the rest. */
static enum plec_status write_hollow(const char *path, const struct plec_segment_plan *plan,
                                     struct plec_error *err) {
    struct plec_segment_layout layout;
    enum plec_status status = plec_segment_plan_layout(&layout, plan, err);
    if (status != PLEC_OK) return status;
    uint8_t *structure = malloc((size_t)layout.structure_bytes);
    if (structure == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    int fd = -1;
    status = plec_segment_plan_render(structure, plan, err);
    if (status == PLEC_OK) {
        fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
        if (fd < 0 ||
            write(fd, structure, (size_t)layout.structure_bytes) !=
                (ssize_t)layout.structure_bytes ||
            ftruncate(fd, (off_t)layout.file_bytes) != 0)
            status = io_failure(path, err);
    }
    if (fd >= 0) close(fd);
    free(structure);
    return status;
}

static enum plec_status write_segment(const char *root, const char *key, uint32_t layer,
                                      uint32_t segment, const struct plec_sparse_args *args,
                                      struct plec_error *err) {
    const struct plec_lyrw_schema schemas[] = {
        {0, PLEC_ROLE_GATE_UP_FUSED, args->format, PLEC_PACKING_BLOCKS_INLINE, PLEC_LYRW_UNPAIRED,
         PLEC_LAYOUT_CONTIGUOUS_HALVES, 2 * args->intermediate, args->hidden},
        {1, PLEC_ROLE_DOWN, args->format, PLEC_PACKING_BLOCKS_INLINE, PLEC_LYRW_UNPAIRED,
         PLEC_LAYOUT_UNSPECIFIED, args->hidden, args->intermediate},
    };
    const struct plec_lyrw_bank bank = {.kind = PLEC_BANK_ROUTED,
                                        .n_schemas = 2,
                                        .num_entries = args->n_experts,
                                        .input_dim = args->hidden,
                                        .intermediate_dim = args->intermediate,
                                        .output_dim = args->hidden};
    uint32_t n_entries = args->n_experts / args->n_segments;
    const struct plec_lyrw_segment record = {
        .index = (uint16_t)segment, .first_entry = segment * n_entries, .entry_count = n_entries};
    const struct plec_segment_plan plan = {
        .header = {.format_version = PLEC_LYRW_VERSION,
                   .logical_layer = layer,
                   .num_banks = 1,
                   .num_segments = 1,
                   .flags = args->n_segments > 1 ? PLEC_LYRW_FLAG_MULTI_SEGMENT : 0},
        .banks = &bank,
        .segments = &record,
        .schemas = schemas,
        .n_schemas = 2,
        .extent = args->extent};
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof path, "%s/%s.lyrw", root, key);
    return write_hollow(path, &plan, err);
}

static enum plec_status add_layer(json_t *index, json_t *manifest, const char *root,
                                  uint32_t number, const struct plec_sparse_args *args,
                                  struct plec_error *err) {
    char storage[KEY_MAX], key[KEY_MAX + 16];
    snprintf(storage, sizeof storage, "routed/layer_%03u", number);
    const struct plec_moe_layer layer = {
        .layer = number,
        .router = {.scores = "router.weight", .sigmoid = true, .k = 16, .renormalise = true},
        .routed = {.present = true,
                   .experts = args->n_experts,
                   .programme = "gated-mlp-v1",
                   .storage = storage}};
    enum plec_status status = plec_moe_build_layer(manifest, &layer, err);
    for (uint32_t i = 0; status == PLEC_OK && i < args->n_segments; i++) {
        if (args->n_segments == 1)
            snprintf(key, sizeof key, "%s", storage);
        else
            snprintf(key, sizeof key, "%s.seg%02u", storage, i);
        status = write_segment(root, key, number, i, args, err);
        if (status == PLEC_OK) status = plec_index_build_segment(index, key, err);
        if (status == PLEC_OK) status = plec_index_build_extent(index, key, args->extent, err);
    }
    return status;
}

static enum plec_status store(const char *root, const char *name, const json_t *document,
                              struct plec_error *err) {
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof path, "%s/%s", root, name);
    return plec_json_store(path, document, err);
}

enum plec_status plec_sparse_make(const char *root, const struct plec_sparse_args *args,
                                  struct plec_error *err) {
    if (args->n_segments == 0 || args->n_experts % args->n_segments != 0)
        return plec_fail(err, PLEC_BAD_INPUT, "UnequalSegments", "%u experts in %u files",
                         args->n_experts, args->n_segments);
    char path[PATH_MAX_BYTES];
    snprintf(path, sizeof path, "%s/routed", root);
    if (mkdir(path, 0755) != 0) return io_failure(path, err);
    const struct plec_index_build_args about = {.model = "sparse",
                                                .family = "none",
                                                .hidden_size = args->hidden,
                                                .num_layers = args->n_layers,
                                                .moe_manifest = "moe_manifest.json"};
    json_t *index = NULL, *manifest = NULL;
    enum plec_status status = plec_index_build(&index, &about, err);
    if (status == PLEC_OK) status = plec_moe_build(&manifest, err);
    for (uint32_t i = 0; status == PLEC_OK && i < args->n_layers; i++)
        status = add_layer(index, manifest, root, i, args, err);
    if (status == PLEC_OK) status = store(root, "moe_manifest.json", manifest, err);
    if (status == PLEC_OK) status = store(root, "index.json", index, err);
    json_decref(index);
    json_decref(manifest);
    return status;
}
