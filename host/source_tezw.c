/* A TEZW file: the SwiGLU of each layer is a dense layer, its f64 weights read where they lie.
 * wgate goes through silu, wval is what it multiplies. Source: docs/gguf.md "TEZW". */
#include <stdlib.h>
#include <string.h>

#include "host/source.h"
#include "lyrw/mapping.h"
#include "lyrw/tezw.h"

struct tezw_source {
    char *path;
    struct plec_mapping mapping;
    struct plec_tezw file;
};

static void close_tezw(void *state) {
    struct tezw_source *source = state;
    plec_mapping_close(&source->mapping);
    free(source->path);
    free(source);
}

static size_t n_layers(const void *state) {
    return ((const struct tezw_source *)state)->file.n_layer;
}

static void layer_info(struct plec_layer_info *out, const void *state, size_t i) {
    const struct tezw_source *source = state;
    out->layer = (uint32_t)i;
    out->dense = true;
    out->hidden_size = source->file.dim;
    out->n_experts = 1;
    out->top_k = 1;
    out->programme = "gated-mlp-v1";
    out->storage = "wgate, wval, wproj";
}

static void put(struct plec_bank *bank, struct plec_entry *entry, const struct plec_tezw *file,
                uint32_t layer, enum plec_operand_id id, enum plec_tezw_tensor_kind kind) {
    struct plec_tezw_tensor tensor = plec_tezw_tensor_at(file, layer, kind);
    bank->operands[id] = (struct plec_operand){PLEC_FORMAT_GGUF_F64, tensor.rows, tensor.cols};
    entry->values[id] = file->data + tensor.at;
}

static enum plec_status bind(struct plec_bound_layer *out, void *state, size_t i,
                             struct plec_error *err) {
    const struct plec_tezw *file = &((struct tezw_source *)state)->file;
    struct plec_entry *entry = plec_arena_alloc(&out->owned, 1, sizeof *entry, err);
    if (entry == NULL) return PLEC_NO_MEMORY;
    struct plec_layer *layer = &out->layer;
    struct plec_bank *bank = &layer->routed;
    *bank = (struct plec_bank){.n_entries = 1,
                               .input_dim = file->dim,
                               .intermediate_dim = file->ffn_dim,
                               .output_dim = file->dim,
                               .maths = {.activation = PLEC_SILU},
                               .entries = entry};
    put(bank, entry, file, (uint32_t)i, PLEC_GATE, PLEC_TEZW_WGATE);
    put(bank, entry, file, (uint32_t)i, PLEC_UP, PLEC_TEZW_WVAL);
    put(bank, entry, file, (uint32_t)i, PLEC_DOWN, PLEC_TEZW_WPROJ);
    layer->hidden_size = file->dim;
    layer->out_scale = 1.0;
    layer->router =
        (struct plec_router){.n_experts = 1, .top_k = 1, .scale = 1.0, .input_dim = file->dim};
    out->dense = true;
    return PLEC_OK;
}

static size_t n_files(const void *state) {
    (void)state;
    return 1;
}

static void file_view(struct plec_open_file *out, void *state, size_t i) {
    const struct tezw_source *source = state;
    (void)i;
    *out = (struct plec_open_file){source->path, source->mapping.data, source->mapping.size};
}

static void about(struct plec_container_about *out, const void *state) {
    *out =
        (struct plec_container_about){.model = "unknown",
                                      .family = "tezw",
                                      .n_layers = ((const struct tezw_source *)state)->file.n_layer,
                                      .derived = true};
}

static const struct plec_source_ops ops = {
    PLEC_CONTAINER_TEZW, close_tezw, n_layers, layer_info, bind, n_files, file_view, about,
};

static enum plec_status open_file(struct tezw_source *source, struct plec_error *err) {
    enum plec_status status = plec_mapping_open(&source->mapping, source->path, err);
    if (status != PLEC_OK) return status;
    status = plec_tezw_parse(&source->file, source->mapping.data, source->mapping.size, err);
    if (status != PLEC_OK) plec_error_context(err, "%s", source->path);
    return status;
}

enum plec_status plec_source_open_tezw(struct plec_source *out, const char *path,
                                       const struct plec_container_options *options,
                                       struct plec_error *err) {
    if (options->profile != NULL || options->architecture != NULL || options->set != NULL)
        return plec_fail(err, PLEC_BAD_INPUT, "OptionUnused",
                         "%s: a TEZW file has neither profiles nor an architecture to choose",
                         path);
    struct tezw_source *source = calloc(1, sizeof *source);
    if (source == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    source->path = strdup(path);
    enum plec_status status = source->path != NULL
                                  ? open_file(source, err)
                                  : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    if (status != PLEC_OK) {
        close_tezw(source);
        return status;
    }
    *out = (struct plec_source){&ops, source};
    return PLEC_OK;
}
