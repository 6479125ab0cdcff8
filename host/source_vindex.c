/* A VINDEX3 bank directory: index.json, moe_manifest.json and segment files. Opening reads the two
 * JSON files and asks the file system for every segment; files are mapped when a layer is bound.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/source.h"
#include "host/vindex.h"

static void close_vindex(void *state) {
    plec_vindex_close(state);
    free(state);
}

static size_t n_layers(const void *state) {
    const struct plec_vindex *vindex = state;
    return vindex->moe.n_layers + vindex->moe.n_dense;
}

static void layer_info(struct plec_layer_info *out, const void *state, size_t i) {
    const struct plec_vindex *vindex = state;
    out->hidden_size = vindex->index.hidden_size;
    if (i >= vindex->moe.n_layers) {
        const struct plec_moe_dense *dense = &vindex->moe.dense[i - vindex->moe.n_layers];
        out->layer = dense->layer;
        out->dense = true;
        out->n_experts = 1;
        out->top_k = 1;
        out->storage = dense->storage;
        return;
    }
    const struct plec_moe_layer *layer = &vindex->moe.layers[i];
    out->layer = layer->layer;
    out->n_experts = layer->routed.experts;
    out->top_k = plec_moe_experts_per_token(&layer->router);
    out->n_shared = layer->shared.present ? layer->shared.experts : 0;
    out->programme = layer->routed.programme;
    out->storage = layer->routed.storage;
}

static enum plec_status bind(struct plec_bound_layer *out, void *state, size_t i,
                             struct plec_error *err) {
    struct plec_vindex *vindex = state;
    size_t n_moe = vindex->moe.n_layers;
    if (i < n_moe) return plec_vindex_bind_moe(out, vindex, &vindex->moe.layers[i], err);
    return plec_vindex_bind_dense(out, vindex, &vindex->moe.dense[i - n_moe], err);
}

static size_t n_files(const void *state) {
    const struct plec_vindex *vindex = state;
    return vindex->store.n_files;
}

static void file_view(struct plec_open_file *out, void *state, size_t i) {
    struct plec_vindex *vindex = state;
    plec_store_file_at(out, &vindex->store, i);
}

static void about(struct plec_container_about *out, const void *state) {
    const struct plec_index *index = &((const struct plec_vindex *)state)->index;
    *out = (struct plec_container_about){index->model, index->family, index->derived_from_model,
                                         index->num_layers, index->derived};
}

static const struct plec_source_ops ops = {
    PLEC_CONTAINER_VINDEX, close_vindex, n_layers, layer_info, bind, n_files, file_view, about,
};

enum plec_status plec_source_open_vindex(struct plec_source *out, const char *path,
                                         const struct plec_container_options *options,
                                         struct plec_error *err) {
    struct plec_vindex *vindex = calloc(1, sizeof *vindex);
    if (vindex == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    enum plec_status status = plec_vindex_open(vindex, path, options->profile, NULL, err);
    if (status != PLEC_OK) {
        free(vindex);
        return status;
    }
    vindex->log = options->log;
    *out = (struct plec_source){&ops, vindex};
    return PLEC_OK;
}
