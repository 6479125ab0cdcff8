/* A VINDEX3 bank directory: index.json, moe_manifest.json and segment files. Opening reads the two
 * JSON files and asks the file system for every segment; files are mapped when a layer is bound.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/source.h"
#include "host/vindex.h"

static void close_vindex(void *state) {
    struct plec_vindex *vindex = state;
    plec_store_close(&vindex->store);
    plec_profile_close(&vindex->profile);
    plec_moe_close(&vindex->moe);
    plec_index_close(&vindex->index);
    free(vindex);
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

static const struct plec_source_ops ops = {
    PLEC_CONTAINER_VINDEX, close_vindex, n_layers, layer_info, bind,
};

/* <root>/<name>, malloced; NULL with *err filled. */
static char *join(const char *root, const char *name, struct plec_error *err) {
    size_t n_bytes = strlen(root) + strlen(name) + 2;
    char *path = malloc(n_bytes);
    if (path == NULL)
        plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu bytes", n_bytes);
    else
        snprintf(path, n_bytes, "%s/%s", root, name);
    return path;
}

static enum plec_status load_json(json_t **out, const char *root, const char *name,
                                  struct plec_error *err) {
    char *path = join(root, name, err);
    if (path == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = plec_json_load(out, path, err);
    free(path);
    return status;
}

static enum plec_status read_index(struct plec_vindex *vindex, const char *path,
                                   struct plec_error *err) {
    json_t *document = NULL;
    enum plec_status status = load_json(&document, path, "index.json", err);
    if (status != PLEC_OK) return status;
    status = plec_index_read(&vindex->index, document, err);
    json_decref(document);
    if (status == PLEC_OK && vindex->index.moe_manifest == NULL)
        status = plec_fail(err, PLEC_UNSUPPORTED, "SystemContainer",
                           "it names no moe_manifest: a system container, which holds no banks");
    if (status != PLEC_OK) plec_error_context(err, "index.json");
    return status;
}

/* A layer number stands for one layer, MoE or dense. */
static void add_dense_defects(struct plec_findings *findings, const struct plec_moe *moe) {
    for (size_t i = 0; i < moe->n_dense; i++) {
        uint32_t layer = moe->dense[i].layer;
        bool twice = plec_moe_find_layer(moe, layer) != NULL;
        for (size_t j = 0; j < i; j++)
            twice = twice || moe->dense[j].layer == layer;
        if (twice)
            plec_findings_add(findings, PLEC_DEFECT, "DuplicateLayer", "layer=%u (plectrum.dense)",
                              layer);
    }
}

static enum plec_status read_manifest(struct plec_vindex *vindex, const char *path,
                                      struct plec_error *err) {
    json_t *document = NULL;
    const char *name = vindex->index.moe_manifest;
    enum plec_status status = load_json(&document, path, name, err);
    if (status != PLEC_OK) return status;
    status = plec_moe_read(&vindex->moe, document, err);
    json_decref(document);
    if (status == PLEC_OK) {
        struct plec_findings findings = {0};
        plec_moe_defects(&findings, &vindex->moe);
        add_dense_defects(&findings, &vindex->moe);
        status = plec_findings_to_error(&findings, PLEC_MALFORMED, err);
        plec_findings_clear(&findings);
    }
    if (status != PLEC_OK) plec_error_context(err, "%s", name);
    return status;
}

/* All of them, so that a container with a profile nobody could use is refused as a whole. */
static enum plec_status resolve_profiles(struct plec_vindex *vindex, const char *asked,
                                         struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < vindex->index.n_profiles; i++) {
        struct plec_resolved_profile profile = {0};
        status =
            plec_profile_resolve(&profile, &vindex->index, vindex->index.profiles[i].name, err);
        plec_profile_close(&profile);
    }
    if (status == PLEC_OK)
        status = plec_profile_resolve(&vindex->profile, &vindex->index, asked, err);
    if (status != PLEC_OK) plec_error_context(err, "index.json");
    return status;
}

static enum plec_status add_segments(struct plec_vindex *vindex, const char *path,
                                     struct plec_error *err) {
    size_t n = vindex->index.n_segments;
    enum plec_status status = plec_store_open(&vindex->store, n, err);
    for (size_t i = 0; status == PLEC_OK && i < n; i++)
        status = plec_store_add(&vindex->store, path, vindex->index.segments[i].key, err);
    return status;
}

enum plec_status plec_source_open_vindex(struct plec_source *out, const char *path,
                                         const struct plec_container_options *options,
                                         struct plec_error *err) {
    struct plec_vindex *vindex = calloc(1, sizeof *vindex);
    if (vindex == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%s", path);
    vindex->log = options->log;
    enum plec_status status = read_index(vindex, path, err);
    if (status == PLEC_OK) status = read_manifest(vindex, path, err);
    if (status == PLEC_OK) status = resolve_profiles(vindex, options->profile, err);
    if (status == PLEC_OK) status = add_segments(vindex, path, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", path);
        close_vindex(vindex);
        return status;
    }
    *out = (struct plec_source){&ops, vindex};
    return PLEC_OK;
}
