/* A GGUF file or split set: every block with experts or a dense MLP is a layer. */
#include <stdlib.h>
#include <string.h>

#include "host/gguf_bind.h"
#include "host/source.h"

struct gguf_source {
    struct plec_gguf_set set;
    struct plec_gguf_model model;
    char name[PLEC_VIEW_TEXT_MAX]; /* general.name */
};

static void close_gguf(void *state) {
    struct gguf_source *source = state;
    plec_gguf_model_close(&source->model);
    plec_gguf_set_close(&source->set);
    free(source);
}

static size_t n_layers(const void *state) {
    return ((const struct gguf_source *)state)->model.n_blocks;
}

static uint32_t clip(uint64_t value) {
    return value > UINT32_MAX ? UINT32_MAX : (uint32_t)value;
}

static void layer_info(struct plec_layer_info *out, const void *state, size_t i) {
    const struct plec_gguf_model *model = &((const struct gguf_source *)state)->model;
    const struct plec_gguf_block *block = &model->blocks[i];
    struct plec_gguf_layer layer;
    plec_gguf_layer_find(&layer, model, block);
    out->layer = block->number;
    out->dense = block->dense;
    out->hidden_size = clip(plec_gguf_layer_hidden_size(&layer));
    out->n_experts = block->dense ? 1 : clip(plec_gguf_layer_n_experts(&layer));
    out->top_k = block->dense ? 1 : 0;
    if (!block->dense) {
        if (model->settings.given >> PLEC_SET_TOP_K & 1)
            out->top_k = model->settings.top_k;
        else
            (void)plec_gguf_model_count(&out->top_k, model, "expert_used_count", block->number);
        out->n_shared = plec_gguf_layer_has(&layer, PLEC_GGUF_SHARED) ? 1 : 0;
    }
    out->programme = plec_gguf_programme(&layer);
    out->storage = block->prefix;
}

static enum plec_status bind(struct plec_bound_layer *out, void *state, size_t i,
                             struct plec_error *err) {
    struct gguf_source *source = state;
    return plec_gguf_bind(out, &source->model, (uint32_t)i, err);
}

static size_t n_files(const void *state) {
    return ((const struct gguf_source *)state)->set.n_shards;
}

static void file_view(struct plec_open_file *out, void *state, size_t i) {
    const struct plec_gguf_shard *shard = &((const struct gguf_source *)state)->set.shards[i];
    *out = (struct plec_open_file){shard->path, shard->mapping.data, shard->mapping.size};
}

static void about(struct plec_container_about *out, const void *state) {
    const struct gguf_source *source = state;
    const char *family = source->model.architecture;
    *out = (struct plec_container_about){.model = source->name,
                                         .family = family[0] != '\0' ? family : "unknown",
                                         .derived_from = source->name,
                                         .derived = true};
    (void)plec_gguf_model_count(&out->n_layers, &source->model, "block_count", 0);
}

/* The model's name, printable; "unknown" where the file gives none. */
static void read_name(struct gguf_source *source) {
    struct plec_view name = plec_view_of("unknown");
    const struct plec_gguf_key *key = plec_gguf_find_key_named(source->model.main, "general.name");
    if (plec_gguf_string(&name, source->model.main, key, 0, NULL) != PLEC_OK || name.size == 0)
        name = plec_view_of("unknown");
    plec_view_text(name, source->name);
}

static const struct plec_source_ops ops = {
    PLEC_CONTAINER_GGUF, close_gguf, n_layers, layer_info, bind, n_files, file_view, about,
};

enum plec_status plec_source_open_gguf(struct plec_source *out, const char *path,
                                       const struct plec_container_options *options,
                                       struct plec_error *err) {
    if (options->profile != NULL)
        return plec_fail(err, PLEC_MISSING, "UndeclaredProfile",
                         "%s: profile %s: a GGUF file declares no profiles", path,
                         options->profile);
    struct gguf_source *source = calloc(1, sizeof *source);
    if (source == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    struct plec_gguf_model_options model = {options->architecture, options->set, options->log};
    enum plec_status status = plec_gguf_set_open(&source->set, path, PLEC_GGUF_RUN, err);
    if (status == PLEC_OK) status = plec_gguf_model_open(&source->model, &source->set, &model, err);
    if (status != PLEC_OK) {
        close_gguf(source);
        return status;
    }
    read_name(source);
    *out = (struct plec_source){&ops, source};
    return PLEC_OK;
}
