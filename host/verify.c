#include "host/verify.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "host/verify_parts.h"

void plec_container_read(void *user, uint64_t n_bytes) {
    struct plec_container_verifier *v = user;
    v->read_bytes += n_bytes;
    if (v->options.progress != NULL)
        v->options.progress(v->options.user, v->reading, v->read_bytes, v->total_bytes);
}

/* Looks at one file alone. */
static enum plec_status verify_file(struct plec_container_verifier *v, const char *where,
                                    const struct plec_segment *segment, struct plec_error *err) {
    struct plec_container_report *report = v->report;
    const struct plec_verify_options options = {where, plec_container_read, v};
    enum plec_status status =
        plec_segment_verify(&report->findings, &report->counts, segment, &options, err);
    if (status == PLEC_OK && v->options.scan)
        plec_segment_scan(&report->findings, &report->counts, segment, &options);
    report->n_files++;
    return status;
}

static uint64_t file_bytes(const struct plec_container_verifier *v, size_t i) {
    struct stat info;
    return stat(v->vindex.store.files[i].path, &info) == 0 ? (uint64_t)info.st_size : 0;
}

static void begin_reading(struct plec_container_verifier *v, const char *what) {
    v->reading = what;
    v->read_bytes = 0;
    v->total_bytes = 0;
    for (size_t i = 0; i < v->vindex.store.n_files; i++)
        v->total_bytes += file_bytes(v, i);
}

static enum plec_status verify_files(struct plec_container_verifier *v, struct plec_error *err) {
    const struct plec_index *index = &v->vindex.index;
    struct plec_findings *findings = &v->report->findings;
    begin_reading(v, "scanning");
    for (size_t i = 0; i < index->n_segments; i++) {
        const char *key = index->segments[i].key;
        const struct plec_segment *segment;
        uint64_t n_before = findings->n_defects;
        enum plec_status status = plec_store_get(&segment, &v->vindex.store, key, err);
        if (status == PLEC_NO_MEMORY) return status;
        if (status != PLEC_OK) {
            /* A file that is not there was found missing when the container was opened. */
            if (status != PLEC_MISSING) plec_findings_add_error(findings, PLEC_DEFECT, err);
            v->unsound[i] = true;
            continue;
        }
        status = verify_file(v, key, segment, err);
        if (status != PLEC_OK) return status;
        plec_verify_extents(v, key, segment);
        v->unsound[i] = findings->n_defects > n_before;
    }
    return PLEC_OK;
}

static enum plec_status verify_layers(struct plec_container_verifier *v, struct plec_error *err) {
    const struct plec_moe *moe = &v->vindex.moe;
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < moe->n_layers; i++)
        status = plec_verify_moe_layer(v, &moe->layers[i], err);
    for (size_t i = 0; status == PLEC_OK && i < moe->n_dense; i++)
        status = plec_verify_dense_layer(v, &moe->dense[i], err);
    v->report->n_layers = moe->n_layers + moe->n_dense;
    return status;
}

static void mark_used(struct plec_container_verifier *v, const char *storage) {
    const struct plec_index *index = &v->vindex.index;
    size_t n_keys;
    if (plec_index_resolve_storage(v->keys, &n_keys, index, storage, NULL) != PLEC_OK) return;
    for (size_t i = 0; i < n_keys; i++)
        v->used[plec_index_find_segment(index, v->keys[i]) - index->segments] = true;
}

/* Variants are catalogued whether or not their files came along. */
static void note_variants(struct plec_container_verifier *v) {
    const struct plec_index *index = &v->vindex.index;
    for (size_t i = 0; i < index->n_region_sets; i++)
        for (size_t j = 0; j < index->region_sets[i].n_variants; j++) {
            const struct plec_index_variant *variant = &index->region_sets[i].variants[j];
            size_t n_keys = 0;
            if (plec_index_resolve_storage(v->keys, &n_keys, index, variant->storage, NULL) ==
                    PLEC_OK &&
                n_keys == 0)
                plec_findings_add(&v->report->findings, PLEC_NOTE, "VariantUndeclared",
                                  "set=%s variant=%s: no segment holds storage %s",
                                  index->region_sets[i].name, variant->name, variant->storage);
            mark_used(v, variant->storage);
        }
}

static void note_unused(struct plec_container_verifier *v) {
    const struct plec_index *index = &v->vindex.index;
    for (size_t i = 0; i < index->n_segments; i++)
        if (!v->used[i])
            plec_findings_add(&v->report->findings, PLEC_NOTE, "SegmentUnused",
                              "segment %s: no layer and no variant reads it",
                              index->segments[i].key);
}

static void mark_layers_used(struct plec_container_verifier *v) {
    const struct plec_moe *moe = &v->vindex.moe;
    for (size_t i = 0; i < moe->n_layers; i++) {
        const struct plec_moe_layer *layer = &moe->layers[i];
        mark_used(v, layer->routed.storage);
        if (layer->shared.present) mark_used(v, layer->shared.storage);
        if (layer->branch.present) mark_used(v, layer->branch.storage);
        if (layer->control != NULL) mark_used(v, layer->control);
    }
    for (size_t i = 0; i < moe->n_dense; i++) {
        mark_used(v, moe->dense[i].storage);
        if (moe->dense[i].control != NULL) mark_used(v, moe->dense[i].control);
    }
}

/* A check that looked at nothing is no success. */
static void refuse_nothing(struct plec_container_verifier *v) {
    struct plec_container_report *report = v->report;
    if (report->counts.n_regions == 0)
        plec_findings_add(&report->findings, PLEC_DEFECT, "NothingChecked",
                          "not one region stands in %llu files",
                          (unsigned long long)report->n_files);
    if (v->options.hash && report->n_hashed == 0)
        plec_findings_add(&report->findings, PLEC_DEFECT, "NothingChecked",
                          "no hash of any file is recorded");
}

static enum plec_status verify_vindex(struct plec_container_verifier *v, struct plec_error *err) {
    struct plec_container_report *report = v->report;
    enum plec_status status = plec_vindex_open(&v->vindex, v->path, NULL, &report->findings, err);
    if (status != PLEC_OK) return status;
    report->refused = report->findings.n_defects > 0;
    size_t n = v->vindex.index.n_segments;
    v->unsound = calloc(n + 1, sizeof *v->unsound);
    v->used = calloc(n + 1, sizeof *v->used);
    v->keys = calloc(n + 1, sizeof *v->keys);
    if (v->unsound == NULL || v->used == NULL || v->keys == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu segments", n);
    status = verify_files(v, err);
    if (status == PLEC_OK) status = verify_layers(v, err);
    if (status != PLEC_OK) return status;
    mark_layers_used(v);
    note_variants(v);
    note_unused(v);
    if (v->options.hash) {
        begin_reading(v, "hashing");
        status = plec_verify_hashes(v, err);
    }
    return status;
}

static enum plec_status verify_lyrw(struct plec_container_verifier *v, struct plec_error *err) {
    struct plec_store *store = &v->vindex.store;
    const struct plec_segment *segment;
    enum plec_status status = plec_store_open(store, 1, err);
    if (status == PLEC_OK) status = plec_store_add(store, NULL, v->path, err);
    if (status == PLEC_OK) status = plec_store_get(&segment, store, v->path, err);
    if (status != PLEC_OK) return status;
    begin_reading(v, "scanning");
    return verify_file(v, NULL, segment, err);
}

enum plec_status plec_container_verify(struct plec_container_report *out, const char *path,
                                       const struct plec_container_verify_options *options,
                                       struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct plec_container_verifier v = {.path = path, .report = out};
    if (options != NULL) v.options = *options;
    struct stat info;
    bool folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    enum plec_status status = folder ? verify_vindex(&v, err) : verify_lyrw(&v, err);
    if (status == PLEC_OK) refuse_nothing(&v);
    free(v.unsound);
    free(v.used);
    free(v.keys);
    plec_vindex_close(&v.vindex);
    if (status != PLEC_OK) plec_container_report_close(out);
    return status;
}

void plec_container_report_close(struct plec_container_report *report) {
    plec_findings_clear(&report->findings);
    memset(report, 0, sizeof *report);
}
