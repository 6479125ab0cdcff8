/* verify_layer.c: one layer's banks held against its manifest. */
#include <stdlib.h>
#include <string.h>

#include "host/selection.h"
#include "host/storage.h"
#include "host/verify_parts.h"

/* One bank that a manifest declares. */
struct claim {
    uint32_t layer;
    const char *which; /* "routed", "shared", "dense" */
    const char *storage, *programme;
    uint32_t experts;
    enum plec_bank_kind kind;
};

/* Entries of the bank that one segment record holds. */
struct held {
    uint64_t first, end;
};

static int by_first(const void *a, const void *b) {
    const struct held *x = a, *y = b;
    return x->first < y->first ? -1 : x->first > y->first;
}

/* One finding a region, as many as are kept; the rest is counted. */
static void tell_missing(struct plec_container_verifier *v, const struct claim *claim,
                         const struct plec_storage *storage, uint64_t first, uint64_t end) {
    struct plec_findings *findings = &v->report->findings;
    uint64_t n_schemas = storage->bank->n_schemas, n = (end - first) * n_schemas, told = 0;
    for (; told < n && findings->n_items < PLEC_FINDINGS_MAX; told++) {
        char role[PLEC_NAME_MAX];
        plec_findings_add(findings, PLEC_DEFECT, "MissingRegion",
                          "layer=%u bank=%u entry=%llu role=%s segment=%s", claim->layer,
                          storage->bank->id, (unsigned long long)(first + told / n_schemas),
                          plec_role_name(storage->schemas[told % n_schemas].role, role),
                          storage->parts[0].key);
    }
    findings->n_defects += n - told;
}

static enum plec_status tell_gaps(struct plec_container_verifier *v, const struct claim *claim,
                                  const struct plec_storage *storage, struct plec_error *err) {
    size_t n_records = 0, n = 0;
    for (size_t i = 0; i < storage->n_parts; i++)
        n_records += storage->parts[i].segment->header.num_segments;
    struct held *held = calloc(n_records + 1, sizeof *held);
    if (held == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu records", n_records);
    for (size_t i = 0; i < storage->n_parts; i++) {
        const struct plec_segment *segment = storage->parts[i].segment;
        for (uint32_t j = 0; j < segment->header.num_segments; j++) {
            const struct plec_lyrw_segment *record = &segment->segments[j];
            uint64_t end = (uint64_t)record->first_entry + record->entry_count;
            if (record->bank_id == storage->bank->id && record->entry_count > 0)
                held[n++] = (struct held){record->first_entry, end};
        }
    }
    qsort(held, n, sizeof *held, by_first);
    uint64_t next = 0;
    for (size_t i = 0; i < n; i++) {
        if (held[i].first > next) tell_missing(v, claim, storage, next, held[i].first);
        if (held[i].end > next) next = held[i].end;
    }
    if (storage->bank->num_entries > next)
        tell_missing(v, claim, storage, next, storage->bank->num_entries);
    free(held);
    return PLEC_OK;
}

static void check_counts(struct plec_container_verifier *v, const struct claim *claim,
                         const struct plec_storage *storage) {
    struct plec_findings *findings = &v->report->findings;
    const char *key = storage->parts[0].key;
    if (storage->logical_layer != claim->layer)
        plec_findings_add(findings, PLEC_DEFECT, "LayerContradicted",
                          "layer=%u %s segment=%s: the file says layer %u", claim->layer,
                          claim->which, key, storage->logical_layer);
    if (storage->bank->num_entries != claim->experts)
        plec_findings_add(findings, PLEC_DEFECT, "ExpertsContradicted",
                          "layer=%u %s bank=%u segment=%s: the manifest says %u experts, the file "
                          "%u",
                          claim->layer, claim->which, storage->bank->id, key, claim->experts,
                          storage->bank->num_entries);
}

static void check_roles(struct plec_container_verifier *v, const struct claim *claim,
                        const struct plec_storage *storage) {
    const struct plec_programme *programme =
        claim->programme == NULL ? NULL : plec_programme_find(claim->programme);
    struct plec_role_set missing;
    if (programme == NULL ||
        plec_programme_match(&missing, programme, storage->schemas, storage->bank->n_schemas) >= 0)
        return;
    char list[PLEC_ROLE_SET_MAX * (PLEC_NAME_MAX + 2)] = "", name[PLEC_NAME_MAX];
    for (uint32_t i = 0; i < missing.n_roles; i++) {
        if (i > 0) strcat(list, ", ");
        strcat(list, plec_role_name(missing.roles[i], name));
    }
    plec_findings_add(&v->report->findings, PLEC_DEFECT, "UnsatisfiedProgramme",
                      "layer=%u %s bank=%u segment=%s: programme %s lacks role %s", claim->layer,
                      claim->which, storage->bank->id, storage->parts[0].key, programme->name,
                      list);
}

/* Whether the default profile reads some role of this bank from a variant. */
static bool has_selection(const struct plec_container_verifier *v, const struct claim *claim) {
    const struct plec_resolved_profile *profile = &v->vindex.profile;
    for (size_t i = 0; i < profile->n_selections; i++) {
        struct plec_region_set set;
        if (plec_region_set_parse(&set, profile->selections[i].region_set) &&
            set.layer == claim->layer && set.shared == (claim->kind == PLEC_BANK_SHARED))
            return true;
    }
    return false;
}

/* What a storage's segments say together. */
static enum plec_status check_segments(struct plec_container_verifier *v, const struct claim *claim,
                                       size_t n_keys, struct plec_error *err) {
    struct plec_arena arena = {0};
    struct plec_storage storage;
    enum plec_status status = plec_storage_open(&storage, &arena, &v->vindex.store, claim->storage,
                                                v->keys, n_keys, claim->kind, err);
    if (status == PLEC_OK) {
        check_counts(v, claim, &storage);
        if (!has_selection(v, claim)) check_roles(v, claim, &storage);
        status = plec_storage_tile(&storage, &arena, err);
        if (status != PLEC_OK && strcmp(err->name, "MissingRegion") == 0)
            status = tell_gaps(v, claim, &storage, err);
    }
    if (status == PLEC_MALFORMED) {
        plec_error_context(err, "layer %u %s", claim->layer, claim->which);
        plec_findings_add_error(&v->report->findings, PLEC_DEFECT, err);
        status = PLEC_OK;
    }
    plec_arena_close(&arena);
    return status;
}

/* Checks one bank; *sound false: something was found, here or in its files. */
static enum plec_status check_bank(struct plec_container_verifier *v, const struct claim *claim,
                                   bool *sound, struct plec_error *err) {
    struct plec_findings *findings = &v->report->findings;
    const struct plec_index *index = &v->vindex.index;
    uint64_t n_before = findings->n_defects;
    size_t n_keys = 0;
    enum plec_status status =
        plec_index_resolve_storage(v->keys, &n_keys, index, claim->storage, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "layer %u %s", claim->layer, claim->which);
        plec_findings_add_error(&v->report->findings, PLEC_DEFECT, err);
    } else if (n_keys == 0) {
        plec_findings_add(findings, PLEC_DEFECT, "StorageUndeclared",
                          "layer=%u %s: no segment of the index holds storage \"%s\"", claim->layer,
                          claim->which, claim->storage);
    }
    bool readable = n_keys > 0;
    for (size_t i = 0; i < n_keys; i++) {
        size_t file = (size_t)(plec_index_find_segment(index, v->keys[i]) - index->segments);
        if (v->unsound[file]) *sound = false;
        readable = readable && v->vindex.store.files[file].mapping.data != NULL;
    }
    status = readable ? check_segments(v, claim, n_keys, err) : PLEC_OK;
    if (!readable || findings->n_defects > n_before) *sound = false;
    return status;
}

static void note_router(struct plec_container_verifier *v, const struct plec_moe_layer *layer) {
    const struct plec_moe_router *router = &layer->router;
    const struct {
        bool there;
        const char *name, *what;
    } features[] = {
        {router->shared_expert_sink, "SharedExpertSink", "shared_expert_sink"},
        {router->norm_after_top_k, "NormAfterTopK", "norm_after_top_k"},
        {router->quantile_balanced, "QuantileBalanced", "quantile_balanced"},
    };
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (features[i].there)
            plec_findings_add(&v->report->findings, PLEC_NOTE, features[i].name,
                              "layer=%u: %s has no published executable definition; a run "
                              "refuses it, whoever routes",
                              layer->layer, features[i].what);
    if (router->k == 0)
        plec_findings_add(&v->report->findings, PLEC_NOTE, "SelectsNothing",
                          "layer=%u: k is 0; a run refuses it", layer->layer);
}

static bool control_sound(const struct plec_container_verifier *v, const char *key) {
    const struct plec_index *index = &v->vindex.index;
    const struct plec_index_segment *found =
        key == NULL ? NULL : plec_index_find_segment(index, key);
    return found == NULL || !v->unsound[found - index->segments];
}

/* Files that binding would read beyond the banks' own. */
static bool extras_sound(struct plec_container_verifier *v, const struct plec_moe_layer *layer) {
    const struct plec_index *index = &v->vindex.index;
    const struct plec_resolved_profile *profile = &v->vindex.profile;
    if (!control_sound(v, layer->control)) return false;
    /* A variant whose files did not come along is noted, and no defect. */
    for (size_t i = 0; i < profile->n_selections; i++) {
        size_t n_keys = 0;
        if (plec_index_resolve_storage(v->keys, &n_keys, index, profile->selections[i].storage,
                                       NULL) != PLEC_OK ||
            n_keys == 0)
            return false;
    }
    return true;
}

/* What binding refuses: a note where nothing here could run it, else a defect. */
static enum plec_status judge_binding(struct plec_container_verifier *v, enum plec_status status,
                                      const struct plec_error *err) {
    static const char *const noted[] = {"SharedExpertSink", "NormAfterTopK", "QuantileBalanced",
                                        "SelectsNothing"};
    if (status == PLEC_OK || status == PLEC_NO_MEMORY || status == PLEC_IO) return status;
    for (size_t i = 0; i < sizeof noted / sizeof noted[0]; i++)
        if (strcmp(err->name, noted[i]) == 0) return PLEC_OK;
    plec_findings_add_error(&v->report->findings,
                            status == PLEC_UNSUPPORTED ? PLEC_NOTE : PLEC_DEFECT, err);
    return PLEC_OK;
}

enum plec_status plec_verify_moe_layer(struct plec_container_verifier *v,
                                       const struct plec_moe_layer *layer, struct plec_error *err) {
    const struct claim routed = {layer->layer,          "routed",
                                 layer->routed.storage, layer->routed.programme,
                                 layer->routed.experts, PLEC_BANK_ROUTED};
    const struct claim shared = {layer->layer,          "shared",
                                 layer->shared.storage, layer->shared.programme,
                                 layer->shared.experts, PLEC_BANK_SHARED};
    const struct claim branch = {layer->layer,   "dense branch", layer->branch.storage, NULL, 1,
                                 PLEC_BANK_DENSE};
    bool sound = true;
    note_router(v, layer);
    enum plec_status status = check_bank(v, &routed, &sound, err);
    if (status == PLEC_OK && layer->shared.present) status = check_bank(v, &shared, &sound, err);
    if (status == PLEC_OK && layer->branch.present) status = check_bank(v, &branch, &sound, err);
    if (status != PLEC_OK || !sound || v->report->refused || !extras_sound(v, layer)) return status;
    struct plec_bound_layer bound;
    memset(&bound, 0, sizeof bound);
    status = judge_binding(v, plec_vindex_bind_moe(&bound, &v->vindex, layer, err), err);
    plec_bound_layer_close(&bound);
    return status;
}

enum plec_status plec_verify_dense_layer(struct plec_container_verifier *v,
                                         const struct plec_moe_dense *dense,
                                         struct plec_error *err) {
    const struct claim claim = {dense->layer, "dense", dense->storage, NULL, 1, PLEC_BANK_DENSE};
    bool sound = true;
    enum plec_status status = check_bank(v, &claim, &sound, err);
    if (status != PLEC_OK || !sound || v->report->refused || !control_sound(v, dense->control))
        return status;
    struct plec_bound_layer bound;
    memset(&bound, 0, sizeof bound);
    status = judge_binding(v, plec_vindex_bind_dense(&bound, &v->vindex, dense, err), err);
    plec_bound_layer_close(&bound);
    return status;
}
