#include "host/vindex.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static enum plec_status load_json(json_t **out, const char *root, const char *name,
                                  struct plec_error *err) {
    size_t n_bytes = strlen(root) + strlen(name) + 2;
    char *path = malloc(n_bytes);
    if (path == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu bytes", n_bytes);
    snprintf(path, n_bytes, "%s/%s", root, name);
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

static enum plec_status read_manifest(struct plec_vindex *vindex, const char *path,
                                      struct plec_findings *findings, struct plec_error *err) {
    json_t *document = NULL;
    const char *name = vindex->index.moe_manifest;
    enum plec_status status = load_json(&document, path, name, err);
    if (status != PLEC_OK) return status;
    status = plec_moe_read(&vindex->moe, document, err);
    json_decref(document);
    if (status == PLEC_OK && findings != NULL) {
        plec_moe_defects(findings, &vindex->moe);
    } else if (status == PLEC_OK) {
        struct plec_findings defects = {0};
        plec_moe_defects(&defects, &vindex->moe);
        status = plec_findings_to_error(&defects, PLEC_MALFORMED, err);
        plec_findings_clear(&defects);
    }
    if (status != PLEC_OK) plec_error_context(err, "%s", name);
    return status;
}

/* All of them, so that a container with a profile nobody could use is refused as a whole. */
static enum plec_status resolve_profiles(struct plec_vindex *vindex, const char *asked,
                                         struct plec_error *err) {
    enum plec_status status = plec_profile_check_all(&vindex->index, err);
    if (status == PLEC_OK)
        status = plec_profile_resolve(&vindex->profile, &vindex->index, asked, err);
    if (status != PLEC_OK) plec_error_context(err, "index.json");
    return status;
}

static enum plec_status add_segments(struct plec_vindex *vindex, const char *path,
                                     struct plec_findings *findings, struct plec_error *err) {
    size_t n = vindex->index.n_segments;
    enum plec_status status = plec_store_open(&vindex->store, n, err);
    for (size_t i = 0; status == PLEC_OK && i < n; i++) {
        status = plec_store_add(&vindex->store, path, vindex->index.segments[i].key, err);
        if (status == PLEC_MISSING && findings != NULL) {
            plec_findings_add_error(findings, PLEC_DEFECT, err);
            status = PLEC_OK;
        }
    }
    return status;
}

enum plec_status plec_vindex_open(struct plec_vindex *out, const char *path, const char *profile,
                                  struct plec_findings *findings, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    enum plec_status status = read_index(out, path, err);
    if (status == PLEC_OK) status = read_manifest(out, path, findings, err);
    if (status == PLEC_OK) status = resolve_profiles(out, profile, err);
    if (status == PLEC_OK) status = add_segments(out, path, findings, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", path);
        plec_vindex_close(out);
    }
    return status;
}

void plec_vindex_close(struct plec_vindex *vindex) {
    plec_store_close(&vindex->store);
    plec_profile_close(&vindex->profile);
    plec_moe_close(&vindex->moe);
    plec_index_close(&vindex->index);
    memset(vindex, 0, sizeof *vindex);
}
