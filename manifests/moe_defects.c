/* What a well-typed manifest can still get wrong: every defect, told at once. */
#include "manifests/moe.h"

#include <stdlib.h>
#include <string.h>

#include "manifests/field.h"

enum { SCHEMA_VERSION = 1 };

/* Reports everything about one layer. */
struct checker {
    struct plec_findings *findings;
    const struct plec_moe_layer *layer;
};

#define DEFECT(checker, name, format, ...)                                                         \
    plec_findings_add((checker)->findings, PLEC_DEFECT, name, "layer=%u" format,                   \
                      (checker)->layer->layer, __VA_ARGS__)

static void check_programme(const struct checker *checker, const struct plec_moe_bank *bank) {
    if (bank->present && plec_programme_find(bank->programme) == NULL)
        DEFECT(checker, "UnknownProgramme", " storage=%.200s programme=%.200s", bank->storage,
               bank->programme);
}

static bool is_latent(const struct plec_moe_bank *bank) {
    const struct plec_programme *programme =
        bank->present ? plec_programme_find(bank->programme) : NULL;
    return programme != NULL && programme->latent;
}

static void check_transforms(const struct checker *checker, const struct plec_moe_bank *bank,
                             const char *which) {
    if (checker->layer->routed_input == NULL && is_latent(bank))
        DEFECT(checker, "LatentBankWithoutTransforms", " which=%s programme=%s", which,
               bank->programme);
}

static void check_input_space(const struct checker *checker) {
    const struct plec_moe_layer *layer = checker->layer;
    if (plec_programme_find(layer->routed.programme) == NULL) return; /* told already */
    bool latent = layer->input_space == PLEC_SPACE_LATENT;
    if (latent != is_latent(&layer->routed))
        DEFECT(checker, "InputSpaceContradictsProgramme", " declared=%s programme=%s",
               latent ? "latent" : "residual", layer->routed.programme);
}

static void check_groups(const struct checker *checker) {
    const struct plec_moe_router_extra *extra = &checker->layer->router.extra;
    uint32_t experts = checker->layer->routed.experts;
    if (!extra->has_groups) return;
    bool divide = extra->groups > 0 && experts % extra->groups == 0;
    if (!divide || extra->groups_used == 0 || extra->groups_used > extra->groups)
        DEFECT(checker, "BadGroups", " groups=%u groups_used=%u experts=%u", extra->groups,
               extra->groups_used, experts);
}

static void check_router(const struct checker *checker) {
    const struct plec_moe_layer *layer = checker->layer;
    const struct plec_moe_router *router = &layer->router;
    bool grouped = router->selection == PLEC_GROUPED_TOP_K;
    uint64_t selected = (uint64_t)router->k * (grouped ? router->groups : 1);
    if (plec_field_is_blank(router->scores)) DEFECT(checker, "RouterHasNoScores", "%s", "");
    if (selected > layer->routed.experts)
        DEFECT(checker, "SelectionExceedsBank", " selected=%llu available=%u",
               (unsigned long long)selected, layer->routed.experts);
    if (router->shared_expert_sink && !layer->shared.present)
        DEFECT(checker, "SinkWithoutSharedBank", "%s", "");
    check_groups(checker);
}

static void check_bank(const struct checker *checker, const struct plec_moe_bank *bank,
                       const char *which) {
    if (!bank->present) return;
    if (plec_field_is_blank(bank->storage)) DEFECT(checker, "BankHasNoStorage", " which=%s", which);
    if (bank->experts == 0) DEFECT(checker, "BankHasNoExperts", " which=%s", which);
    if (bank->has_dims && (bank->input == 0 || bank->intermediate == 0 || bank->output == 0))
        DEFECT(checker, "BankHasZeroDimension", " which=%s input=%u intermediate=%u output=%u",
               which, bank->input, bank->intermediate, bank->output);
}

static void check_branch(const struct checker *checker) {
    const struct plec_moe_layer *layer = checker->layer;
    const char *storage = layer->branch.storage;
    if (!layer->branch.present) return;
    if (plec_field_is_blank(storage)) {
        DEFECT(checker, "BankHasNoStorage", " which=%s", "dense_branch");
        return;
    }
    if (strcmp(storage, layer->routed.storage) == 0 ||
        (layer->shared.present && strcmp(storage, layer->shared.storage) == 0))
        DEFECT(checker, "DuplicateBankStorage", " which=dense_branch storage=%.200s", storage);
}

static void check_layer(const struct checker *checker) {
    const struct plec_moe_bank *routed = &checker->layer->routed, *shared = &checker->layer->shared;
    check_programme(checker, routed);
    check_programme(checker, shared);
    check_transforms(checker, routed, "routed");
    check_transforms(checker, shared, "shared");
    check_input_space(checker);
    check_router(checker);
    check_bank(checker, routed, "routed");
    check_bank(checker, shared, "shared");
    if (shared->present && !plec_field_is_blank(shared->storage) &&
        strcmp(shared->storage, routed->storage) == 0)
        DEFECT(checker, "DuplicateBankStorage", " storage=%.200s", shared->storage);
    check_branch(checker);
}

static int compare_numbers(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static void check_dense(struct plec_findings *findings, const struct plec_moe *moe) {
    uint32_t *numbers = calloc(moe->n_dense + 1, sizeof *numbers);
    if (numbers == NULL) {
        findings->n_defects++; /* not checked is not clean */
        findings->out_of_memory = 1;
        return;
    }
    for (size_t i = 0; i < moe->n_dense; i++) {
        numbers[i] = moe->dense[i].layer;
        if (plec_moe_find_layer(moe, numbers[i]) != NULL)
            plec_findings_add(findings, PLEC_DEFECT, "DuplicateLayer", "layer=%u which=dense",
                              numbers[i]);
        if (plec_field_is_blank(moe->dense[i].storage))
            plec_findings_add(findings, PLEC_DEFECT, "BankHasNoStorage", "layer=%u which=dense",
                              numbers[i]);
    }
    qsort(numbers, moe->n_dense, sizeof *numbers, compare_numbers);
    for (size_t i = 1; i < moe->n_dense; i++)
        if (numbers[i] == numbers[i - 1])
            plec_findings_add(findings, PLEC_DEFECT, "DuplicateLayer", "layer=%u which=dense",
                              numbers[i]);
    free(numbers);
}

void plec_moe_defects(struct plec_findings *findings, const struct plec_moe *moe) {
    if (moe->schema_version != SCHEMA_VERSION) {
        plec_findings_add(findings, PLEC_DEFECT, "UnsupportedSchemaVersion",
                          "found=%u supported=%d", moe->schema_version, SCHEMA_VERSION);
        return;
    }
    for (size_t i = 1; i < moe->n_layers; i++)
        if (moe->layers_by_number[i]->layer == moe->layers_by_number[i - 1]->layer)
            plec_findings_add(findings, PLEC_DEFECT, "DuplicateLayer", "layer=%u",
                              moe->layers_by_number[i]->layer);
    for (size_t i = 0; i < moe->n_layers; i++) {
        struct checker checker = {findings, &moe->layers[i]};
        check_layer(&checker);
    }
    check_dense(findings, moe);
}
