/* inspect_vindex.c: what a VINDEX3 container holds, for a person; JSON is inspect_vindex_json.c. */
#include <stdio.h>
#include <string.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/inspect.h"
#include "tools/plectrum/inspect_vindex.h"
#include "tools/plectrum/layer_text.h"
#include "tools/plectrum/region_list.h"
#include "tools/plectrum/units.h"
#include "tools/plectrum/unknown.h"

uint64_t plec_vindex_bytes(const struct plec_vindex_view *view) {
    uint64_t bytes = 0;
    for (size_t i = 0; i < view->vindex.index.n_segments; i++)
        if (view->files[i].segment != NULL) bytes += view->files[i].segment->size;
    return bytes;
}

void plec_vindex_unknown_tags(const struct plec_vindex_view *view,
                              void (*tell)(void *user, const char *name), void *user) {
    struct plec_unknown_tags tags = {0};
    for (size_t i = 0; i < view->vindex.index.n_segments; i++)
        if (view->files[i].segment != NULL)
            plec_unknown_tags(&tags, view->files[i].segment, tell, user);
}

static void print_head(const char *path, const struct plec_vindex_view *view) {
    const struct plec_index *index = &view->vindex.index;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    uint64_t n_regions = 0;
    for (size_t i = 0; i < index->n_segments; i++)
        n_regions += view->files[i].survey.n_slots;
    plec_cli_put(stdout, path);
    printf(": VINDEX3 container, index version %u, %s\nmodel    ", index->version,
           index->derived ? "derived" : "canonical");
    plec_cli_put(stdout, index->model);
    printf(", family ");
    plec_cli_put(stdout, index->family);
    printf(", hidden size %u, %u layers", index->hidden_size, index->num_layers);
    if (index->derived_from_model != NULL) {
        printf(", derived from ");
        plec_cli_put(stdout, index->derived_from_model);
    }
    printf("\nfiles    %zu, %s, %s regions\n", index->n_segments,
           plec_size_text(a, plec_vindex_bytes(view)), plec_count_text(b, n_regions));
}

static void print_profile(struct plec_vindex_view *view,
                          const struct plec_index_profile *declared) {
    struct plec_resolved_profile profile = {0};
    struct plec_error err;
    printf("profile  ");
    plec_cli_put(stdout, declared->name);
    if (plec_profile_resolve(&profile, &view->vindex.index, declared->name, &err) != PLEC_OK) {
        printf(": %s\n", err.message);
        return;
    }
    printf(", authority %s\n", plec_fidelity_name(plec_vindex_view_authority(view, &profile)));
    for (size_t i = 0; i < profile.n_selections; i++) {
        const struct plec_resolved_selection *selection = &profile.selections[i];
        printf("         ");
        plec_cli_put(stdout, selection->region_set);
        printf(" = ");
        plec_cli_put(stdout, selection->variant);
        printf(" from ");
        plec_cli_put(stdout, selection->storage);
        printf(", %s%s\n", plec_fidelity_name(selection->fidelity),
               selection->chosen ? "" : " (baseline)");
    }
    plec_profile_close(&profile);
}

static void print_variants(const struct plec_index *index) {
    for (size_t i = 0; i < index->n_region_sets; i++) {
        const struct plec_index_region_set *set = &index->region_sets[i];
        printf("variants ");
        plec_cli_put(stdout, set->name);
        for (size_t j = 0; j < set->n_variants; j++) {
            printf("%s ", j == 0 ? ":" : ",");
            plec_cli_put(stdout, set->variants[j].name);
            if (strcmp(set->variants[j].name, set->baseline) == 0) printf(" (baseline)");
        }
        printf("\n");
    }
}

static void print_unknown(void *user, const char *name) {
    bool *first = user;
    printf("%s%s", *first ? "unknown  " : ", ", name);
    *first = false;
}

static void print_entries(const struct plec_vindex_view *view, bool hash,
                          struct plec_progress *progress) {
    struct plec_region_list list = {.hash = hash, .progress = progress};
    for (size_t i = 0; i < view->vindex.index.n_segments; i++) {
        if (view->files[i].segment == NULL) continue;
        printf("\n");
        plec_cli_put(stdout, view->files[i].key);
        printf(".lyrw\n");
        list.segment = view->files[i].segment;
        plec_region_list_print(&list);
    }
}

static void print_text(const char *path, struct plec_vindex_view *view,
                       const struct plec_inspect_options *options, struct plec_progress *progress) {
    const struct plec_index *index = &view->vindex.index;
    print_head(path, view);
    plec_layer_lines(view);
    for (size_t i = 0; i < index->n_profiles; i++)
        print_profile(view, &index->profiles[i]);
    print_variants(index);
    bool first = true;
    plec_vindex_unknown_tags(view, print_unknown, &first);
    if (!first) printf("\n");
    if (options->entries) print_entries(view, options->hash, progress);
}

/* What one file has to say against itself; returns the exit status it earns. */
static int judge_file(const char *path, const struct plec_file_view *file) {
    if (file->segment == NULL) {
        /* An absent file is among the findings already. */
        if (file->error.code != PLEC_MISSING) plec_cli_say("%s: %s", path, file->error.message);
        return plec_cli_exit_status(file->error.code);
    }
    char where[PLEC_ERROR_MESSAGE_MAX];
    snprintf(where, sizeof where, "%s: segment %s", path, file->key);
    return plec_survey_judge(where, &file->survey);
}

static int judge_bank(const char *path, struct plec_vindex_view *view, uint32_t layer,
                      const char *storage, enum plec_bank_kind kind) {
    struct plec_bank_view bank;
    plec_vindex_view_bank(&bank, view, storage, kind);
    if (bank.n_files == 0) {
        plec_cli_say(
            "%s: layer %u: StorageUndeclared: no segment of the index holds storage \"%s\"", path,
            layer, storage);
        return PLEC_EXIT_FOUND;
    }
    if (bank.n_missing == 0) return PLEC_EXIT_OK;
    plec_cli_say("%s: layer %u: %llu regions of %s are in no file", path, layer,
                 (unsigned long long)bank.n_missing, storage);
    return PLEC_EXIT_FOUND;
}

static int worse(int a, int b) {
    return a > b ? a : b;
}

static int judge(const char *path, struct plec_vindex_view *view) {
    const struct plec_moe *moe = &view->vindex.moe;
    int status = PLEC_EXIT_OK;
    for (size_t i = 0; i < view->findings.n_items; i++)
        plec_cli_say("%s: %s: %s", path, view->findings.items[i].name,
                     view->findings.items[i].text);
    if (view->findings.n_defects > 0) status = PLEC_EXIT_INPUT;
    for (size_t i = 0; i < view->vindex.index.n_segments; i++)
        status = worse(status, judge_file(path, &view->files[i]));
    for (size_t i = 0; i < moe->n_layers; i++) {
        const struct plec_moe_layer *layer = &moe->layers[i];
        status = worse(
            status, judge_bank(path, view, layer->layer, layer->routed.storage, PLEC_BANK_ROUTED));
        if (layer->shared.present)
            status = worse(status, judge_bank(path, view, layer->layer, layer->shared.storage,
                                              PLEC_BANK_SHARED));
    }
    for (size_t i = 0; i < moe->n_dense; i++)
        status = worse(status, judge_bank(path, view, moe->dense[i].layer, moe->dense[i].storage,
                                          PLEC_BANK_DENSE));
    return status;
}

int plec_inspect_vindex(const char *path, const struct plec_inspect_options *options) {
    struct plec_vindex_view view;
    struct plec_error err;
    if (plec_vindex_view_open(&view, path, &err) != PLEC_OK) return plec_cli_error(&err);
    struct plec_progress progress =
        plec_progress_start("hashing", plec_vindex_bytes(&view), PLEC_PROGRESS_BYTES);
    bool written = true;
    if (options->json)
        written = plec_vindex_json(&view, options, &progress);
    else
        print_text(path, &view, options, &progress);
    plec_progress_end(&progress);
    int status = PLEC_EXIT_MACHINE;
    if (written)
        status = judge(path, &view);
    else
        plec_cli_say("cannot write the output");
    plec_vindex_view_close(&view);
    return status;
}
