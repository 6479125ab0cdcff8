/* One .lyrw file: its first routed bank, or its only bank, as one layer. The file names no
 * programme, activation or router: a gated MLP with silu is assumed and said, and the caller
 * routes.
 */
#include <stdlib.h>
#include <string.h>

#include "host/bind.h"
#include "host/selection.h"
#include "host/source.h"

struct lyrw_source {
    char *path;
    struct plec_store store; /* one file */
    const struct plec_segment *segment;
    int32_t bank; /* ordinal of the bank to run; -1: none */
    struct plec_log log;
};

static void close_lyrw(void *state) {
    struct lyrw_source *source = state;
    plec_store_close(&source->store);
    free(source->path);
    free(source);
}

static bool is_dense(const struct plec_lyrw_bank *bank) {
    return bank->kind == PLEC_BANK_DENSE && bank->num_entries == 1;
}

static size_t n_layers(const void *state) {
    const struct lyrw_source *source = state;
    return source->bank >= 0 ? 1 : 0;
}

static void layer_info(struct plec_layer_info *out, const void *state, size_t i) {
    const struct lyrw_source *source = state;
    const struct plec_lyrw_bank *bank = &source->segment->banks[source->bank];
    (void)i;
    out->layer = source->segment->header.logical_layer;
    out->dense = is_dense(bank);
    out->hidden_size = bank->input_dim;
    out->n_experts = bank->num_entries;
    out->top_k = out->dense ? 1 : 0;
    out->storage = source->path;
}

/* What is missing may lie in files that only an index names. */
static enum plec_status check_whole(const struct plec_storage *storage, struct plec_error *err) {
    uint64_t held = 0;
    const struct plec_segment *segment = storage->parts[0].segment;
    for (uint32_t i = 0; i < segment->header.num_segments; i++)
        if (segment->segments[i].bank_id == storage->bank->id)
            held += segment->segments[i].entry_count;
    if (held >= storage->bank->num_entries) return PLEC_OK;
    return plec_fail(err, PLEC_MISSING, "PartialBank",
                     "bank %u: this file holds %llu of %u entries; it is one segment of several: "
                     "open the container that names them all",
                     storage->bank->id, (unsigned long long)held, storage->bank->num_entries);
}

static enum plec_status build(struct plec_bound_layer *out, struct lyrw_source *source,
                              struct plec_error *err) {
    struct plec_layer *layer = &out->layer;
    const struct plec_lyrw_bank *bank = &source->segment->banks[source->bank];
    const struct plec_programme *programme;
    const struct plec_moe_expert nothing_given = {0};
    struct plec_bank_request request = {0};
    struct plec_storage *storage = plec_arena_alloc(&out->owned, 1, sizeof *storage, err);
    if (storage == NULL) return PLEC_NO_MEMORY;
    const char *key = source->path;
    enum plec_status status = plec_storage_open(storage, &out->owned, &source->store, key, &key, 1,
                                                (enum plec_bank_kind)bank->kind, err);
    if (status == PLEC_OK) status = check_whole(storage, err);
    for (int i = 0; i < PLEC_N_BANK_ROLES; i++)
        request.by_role[i] = storage;
    if (status == PLEC_OK)
        status = plec_bank_build(&layer->routed, &programme, &out->owned, &request, err);
    if (status == PLEC_OK)
        status = plec_bind_maths(&layer->routed.maths, &nothing_given, programme, "the file's",
                                 &source->log, err);
    return status;
}

static enum plec_status bind(struct plec_bound_layer *out, void *state, size_t i,
                             struct plec_error *err) {
    struct lyrw_source *source = state;
    struct plec_layer *layer = &out->layer;
    (void)i;
    enum plec_status status = build(out, source, err);
    if (status == PLEC_OK && layer->routed.input_dim != layer->routed.output_dim)
        status = plec_fail(err, PLEC_UNSUPPORTED, "WidthsDiffer",
                           "experts are %u -> %u -> %u: a layer's output has its input's width",
                           layer->routed.input_dim, layer->routed.intermediate_dim,
                           layer->routed.output_dim);
    if (status != PLEC_OK) {
        plec_error_context(err, "layer %u", source->segment->header.logical_layer);
        return status;
    }
    layer->hidden_size = layer->routed.input_dim;
    layer->out_scale = 1.0;
    out->dense = is_dense(&source->segment->banks[source->bank]);
    out->routing_required = !out->dense;
    layer->router = (struct plec_router){.n_experts = layer->routed.n_entries,
                                         .top_k = out->dense ? 1 : 0,
                                         .scale = 1.0,
                                         .input_dim = layer->hidden_size};
    if (layer->routed.operands[PLEC_GATE_BIAS].rows + layer->routed.operands[PLEC_UP_BIAS].rows +
            layer->routed.operands[PLEC_DOWN_BIAS].rows >
        0)
        plec_log_write(&source->log, PLEC_LOG_RUN, "%s: its biases are applied", source->path);
    return PLEC_OK;
}

static size_t n_files(const void *state) {
    (void)state;
    return 1;
}

static void file_view(struct plec_open_file *out, void *state, size_t i) {
    struct lyrw_source *source = state;
    plec_store_file_at(out, &source->store, i);
}

/* The file says nothing but which layer it is. */
static void about(struct plec_container_about *out, const void *state) {
    *out = (struct plec_container_about){.model = "unknown", .family = "unknown"};
    (void)state;
}

static const struct plec_source_ops ops = {
    PLEC_CONTAINER_LYRW, close_lyrw, n_layers, layer_info, bind, n_files, file_view, about,
};

static enum plec_status open_file(struct lyrw_source *source, struct plec_error *err) {
    enum plec_status status = plec_store_open(&source->store, 1, err);
    if (status == PLEC_OK) status = plec_store_add(&source->store, NULL, source->path, err);
    if (status == PLEC_OK)
        status = plec_store_get(&source->segment, &source->store, source->path, err);
    if (status == PLEC_OK)
        source->bank = plec_segment_bank_of_kind(source->segment, PLEC_BANK_ROUTED);
    return status;
}

enum plec_status plec_source_open_lyrw(struct plec_source *out, const char *path,
                                       const struct plec_container_options *options,
                                       struct plec_error *err) {
    if (options->profile != NULL)
        return plec_fail(err, PLEC_MISSING, "UndeclaredProfile",
                         "%s: profile %s: a lone .lyrw file declares no profiles", path,
                         options->profile);
    struct lyrw_source *source = calloc(1, sizeof *source);
    if (source == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    source->log = options->log;
    source->bank = -1;
    source->path = strdup(path);
    enum plec_status status = source->path != NULL
                                  ? open_file(source, err)
                                  : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    if (status != PLEC_OK) {
        close_lyrw(source);
        return status;
    }
    *out = (struct plec_source){&ops, source};
    return PLEC_OK;
}
