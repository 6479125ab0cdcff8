#include "manifests/profile.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Both structs begin with their name and stand in name order. */
static int compare_name(const void *key, const void *element) {
    return strcmp(key, *(const char *const *)element);
}

/* bsearch, which may not be given the NULL that an absent array is. */
static const void *find(const char *name, const void *elements, size_t n, size_t size) {
    return n == 0 ? NULL : bsearch(name, elements, n, size, compare_name);
}

static const struct plec_index_region_set *find_set(const struct plec_index *index,
                                                    const char *name) {
    return find(name, index->region_sets, index->n_region_sets, sizeof *index->region_sets);
}

static const struct plec_index_variant *find_variant(const struct plec_index_region_set *set,
                                                     const char *name) {
    return find(name, set->variants, set->n_variants, sizeof *set->variants);
}

/* What a profile selects for a set; NULL: its baseline. */
static const char *selected(const struct plec_index_profile *profile, const char *set) {
    const struct plec_index_selection *selection =
        find(set, profile->selections, profile->n_selections, sizeof *profile->selections);
    return selection != NULL ? selection->variant : NULL;
}

/* A list of names for a message, cut where it would fill the message alone. names: n structs of
 * `stride` bytes that each begin with their name. */
struct name_list {
    char text[360];
};

static struct name_list list_names(const void *names, size_t n, size_t stride) {
    struct name_list list = {"["};
    size_t at = 1;
    for (size_t i = 0; i < n; i++) {
        const char *name = *(const char *const *)((const char *)names + i * stride);
        bool fits = at + 2 + strlen(name) + sizeof ", ...]" <= sizeof list.text;
        at += (size_t)snprintf(list.text + at, sizeof list.text - at, "%s%s", i > 0 ? ", " : "",
                               fits ? name : "...");
        if (!fits) break;
    }
    snprintf(list.text + at, sizeof list.text - at, "]");
    return list;
}

static void selection_defects(struct plec_findings *findings, const struct plec_index *index,
                              const struct plec_index_profile *profile) {
    for (size_t i = 0; i < profile->n_selections; i++) {
        const struct plec_index_selection *selection = &profile->selections[i];
        const struct plec_index_region_set *set = find_set(index, selection->region_set);
        if (set == NULL) {
            plec_findings_add(
                findings, PLEC_DEFECT, "UnknownRegionSet", "set=%.120s catalogued=%s",
                selection->region_set,
                list_names(index->region_sets, index->n_region_sets, sizeof *index->region_sets)
                    .text);
        } else if (find_variant(set, selection->variant) == NULL) {
            plec_findings_add(
                findings, PLEC_DEFECT, "AbsentVariant", "set=%.120s requested=%.120s present=%s",
                set->name, selection->variant,
                list_names(set->variants, set->n_variants, sizeof *set->variants).text);
        }
    }
}

static void catalogue_defects(struct plec_findings *findings, const struct plec_index *index) {
    for (size_t i = 0; i < index->n_region_sets; i++) {
        const struct plec_index_region_set *set = &index->region_sets[i];
        if (set->n_variants == 0)
            plec_findings_add(findings, PLEC_DEFECT, "NoVariants", "set=%.120s", set->name);
        else if (find_variant(set, set->baseline) == NULL)
            plec_findings_add(
                findings, PLEC_DEFECT, "BaselineAbsent", "set=%.120s baseline=%.120s present=%s",
                set->name, set->baseline,
                list_names(set->variants, set->n_variants, sizeof *set->variants).text);
    }
}

void plec_profile_defects(struct plec_findings *findings, const struct plec_index *index,
                          const struct plec_index_profile *profile) {
    selection_defects(findings, index, profile);
    catalogue_defects(findings, index);
}

static enum plec_status unsatisfiable(const struct plec_findings *findings, const char *profile,
                                      struct plec_error *err) {
    struct plec_error defects;
    enum plec_status status = plec_findings_to_error(findings, PLEC_MALFORMED, &defects);
    if (status != PLEC_OK)
        status = plec_fail(err, PLEC_MALFORMED, "Unsatisfiable", "profile=%.120s: %s", profile,
                           defects.message);
    return status;
}

static enum plec_status check(const struct plec_index *index,
                              const struct plec_index_profile *profile, struct plec_error *err) {
    struct plec_findings findings = {0};
    plec_profile_defects(&findings, index, profile);
    enum plec_status status = unsatisfiable(&findings, profile->name, err);
    plec_findings_clear(&findings);
    return status;
}

enum plec_status plec_profile_check_all(const struct plec_index *index, struct plec_error *err) {
    if (index->n_profiles == 0) return PLEC_OK;
    /* A catalogue defect fails the first profile as it fails all; past it only selections differ,
     * so that the work stays linear in the document. */
    enum plec_status status = check(index, &index->profiles[0], err);
    for (size_t i = 1; i < index->n_profiles && status == PLEC_OK; i++) {
        struct plec_findings findings = {0};
        selection_defects(&findings, index, &index->profiles[i]);
        status = unsatisfiable(&findings, index->profiles[i].name, err);
        plec_findings_clear(&findings);
    }
    return status;
}

static const struct plec_index_profile *find_profile(const struct plec_index *index,
                                                     const char *name) {
    for (size_t i = 0; i < index->n_profiles; i++)
        if (strcmp(index->profiles[i].name, name) == 0) return &index->profiles[i];
    return NULL;
}

static const struct plec_index_profile *default_profile(const struct plec_index *index) {
    const struct plec_index_profile *exact = find_profile(index, "exact");
    if (exact != NULL) return exact;
    return index->n_profiles > 0 ? &index->profiles[0] : NULL;
}

static enum plec_status select_variants(struct plec_resolved_profile *out,
                                        const struct plec_index *index,
                                        const struct plec_index_profile *profile,
                                        struct plec_error *err) {
    out->selections = calloc(index->n_region_sets + 1, sizeof *out->selections);
    if (out->selections == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu region sets",
                         index->n_region_sets);
    out->name = profile->name;
    out->n_selections = index->n_region_sets;
    for (size_t i = 0; i < index->n_region_sets; i++) {
        const struct plec_index_region_set *set = &index->region_sets[i];
        const char *chosen = selected(profile, set->name);
        const struct plec_index_variant *variant =
            find_variant(set, chosen != NULL ? chosen : set->baseline);
        out->selections[i] = (struct plec_resolved_selection){
            set->name, variant->name, variant->storage, variant->fidelity, chosen != NULL};
    }
    return PLEC_OK;
}

enum plec_status plec_profile_resolve(struct plec_resolved_profile *out,
                                      const struct plec_index *index, const char *name,
                                      struct plec_error *err) {
    memset(out, 0, sizeof *out);
    const struct plec_index_profile *profile =
        name != NULL ? find_profile(index, name) : default_profile(index);
    if (profile == NULL && name == NULL) return PLEC_OK;
    if (profile == NULL)
        return plec_fail(
            err, PLEC_MISSING, "UndeclaredProfile", "profile=%.120s declared=%s", name,
            list_names(index->profiles, index->n_profiles, sizeof *index->profiles).text);
    enum plec_status status = check(index, profile, err);
    return status == PLEC_OK ? select_variants(out, index, profile, err) : status;
}

void plec_profile_close(struct plec_resolved_profile *profile) {
    free(profile->selections);
    memset(profile, 0, sizeof *profile);
}

static enum plec_fidelity weaker(enum plec_fidelity a, enum plec_fidelity b) {
    return a < b ? a : b;
}

enum plec_fidelity plec_profile_authority(const struct plec_resolved_profile *profile,
                                          bool complete, bool structural_change) {
    if (profile->n_selections == 0 || !complete) return PLEC_ANALYSIS_ONLY;
    enum plec_fidelity authority = PLEC_SOURCE_EXACT;
    for (size_t i = 0; i < profile->n_selections; i++)
        authority = weaker(authority, profile->selections[i].fidelity);
    return structural_change ? weaker(authority, PLEC_STRUCTURALLY_APPROXIMATE) : authority;
}
