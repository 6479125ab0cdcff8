#include "tools/plectrum/vindex_view.h"

#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/progress.h"

static enum plec_status survey_files(struct plec_vindex_view *view, struct plec_error *err) {
    const struct plec_index *index = &view->vindex.index;
    view->files = calloc(index->n_segments + 1, sizeof *view->files);
    view->keys = calloc(index->n_segments + 1, sizeof *view->keys);
    if (view->files == NULL || view->keys == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu segments", index->n_segments);
    struct plec_progress progress =
        plec_progress_start("reading tables", index->n_segments, PLEC_PROGRESS_COUNT);
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < index->n_segments; i++) {
        struct plec_file_view *file = &view->files[i];
        file->key = index->segments[i].key;
        if (plec_store_get(&file->segment, &view->vindex.store, file->key, &file->error) == PLEC_OK)
            status = plec_survey_make(&file->survey, file->segment, err);
        plec_progress_update(&progress, i + 1);
    }
    plec_progress_end(&progress);
    return status;
}

static const struct plec_file_view *file_of(const struct plec_vindex_view *view, const char *key) {
    const struct plec_index *index = &view->vindex.index;
    return &view->files[plec_index_find_segment(index, key) - index->segments];
}

static uint64_t entries_held(const struct plec_segment *segment, uint16_t bank_id) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < segment->header.num_segments; i++)
        if (segment->segments[i].bank_id == bank_id) n += segment->segments[i].entry_count;
    return n;
}

void plec_vindex_view_bank(struct plec_bank_view *out, struct plec_vindex_view *view,
                           const char *storage, enum plec_bank_kind kind) {
    memset(out, 0, sizeof *out);
    if (plec_index_resolve_storage(view->keys, &out->n_files, &view->vindex.index, storage, NULL) !=
        PLEC_OK)
        out->n_files = 0;
    uint64_t n_held = 0;
    for (size_t i = 0; i < out->n_files; i++) {
        const struct plec_file_view *file = file_of(view, view->keys[i]);
        if (i == 0) out->first_key = file->key;
        if (file->segment == NULL) continue;
        out->bytes += file->segment->size;
        out->n_regions += file->survey.n_slots;
        out->n_missing += file->survey.n_missing;
        if (out->bank == NULL) {
            int32_t ordinal = plec_segment_bank_of_kind(file->segment, kind);
            if (ordinal < 0) continue;
            out->bank = &file->segment->banks[ordinal];
            out->schemas = file->segment->schemas + out->bank->first_schema;
        }
        n_held += entries_held(file->segment, out->bank->id);
    }
    if (out->bank != NULL && n_held < out->bank->num_entries)
        out->n_missing += (out->bank->num_entries - n_held) * out->bank->n_schemas;
}

static bool bank_complete(struct plec_vindex_view *view, const struct plec_moe_bank *bank,
                          enum plec_bank_kind kind) {
    if (!bank->present) return true;
    struct plec_bank_view found;
    plec_vindex_view_bank(&found, view, bank->storage, kind);
    const struct plec_programme *programme = plec_programme_find(bank->programme);
    struct plec_role_set missing;
    return found.bank != NULL && found.n_missing == 0 && programme != NULL &&
           plec_programme_match(&missing, programme, found.schemas, found.bank->n_schemas) >= 0;
}

static bool all_complete(struct plec_vindex_view *view) {
    const struct plec_moe *moe = &view->vindex.moe;
    for (size_t i = 0; i < moe->n_layers; i++)
        if (!bank_complete(view, &moe->layers[i].routed, PLEC_BANK_ROUTED) ||
            !bank_complete(view, &moe->layers[i].shared, PLEC_BANK_SHARED))
            return false;
    return true;
}

enum plec_status plec_vindex_view_open(struct plec_vindex_view *out, const char *path,
                                       struct plec_error *err) {
    memset(out, 0, sizeof *out);
    enum plec_status status = plec_vindex_open(&out->vindex, path, NULL, &out->findings, err);
    if (status == PLEC_OK) status = survey_files(out, err);
    if (status == PLEC_OK)
        out->complete = all_complete(out);
    else
        plec_vindex_view_close(out);
    return status;
}

void plec_vindex_view_close(struct plec_vindex_view *view) {
    free(view->files);
    free(view->keys);
    plec_findings_clear(&view->findings);
    plec_vindex_close(&view->vindex);
    memset(view, 0, sizeof *view);
}

enum plec_fidelity plec_vindex_view_authority(const struct plec_vindex_view *view,
                                              const struct plec_resolved_profile *profile) {
    return plec_profile_authority(profile, view->complete, false);
}
