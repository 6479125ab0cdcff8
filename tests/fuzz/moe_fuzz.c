/* moe_manifest.json from hostile bytes: parsed, read, its defects told. Built anew from what was
 * read, it must read as the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "manifests/index.h"
#include "manifests/moe_build.h"

static void check(int holds) {
    if (!holds) abort();
}

static void same_expert(const struct plec_moe_expert *a, const struct plec_moe_expert *b) {
    check(a->given == b->given && a->activation == b->activation);
    check(a->has_limit == b->has_limit && a->limit == b->limit);
    check(a->has_linear_beta == b->has_linear_beta && a->linear_beta == b->linear_beta);
}

static void same_layer(const struct plec_moe_layer *a, const struct plec_moe_layer *b) {
    check(a->layer == b->layer && a->input_space == b->input_space);
    check(strcmp(a->router.scores, b->router.scores) == 0);
    check(plec_moe_experts_per_token(&a->router) == plec_moe_experts_per_token(&b->router));
    check(a->router.has_route_scale == b->router.has_route_scale);
    check(a->router.route_scale == b->router.route_scale);
    check(a->router.extra.groups_used == b->router.extra.groups_used);
    check(a->router.extra.gating == b->router.extra.gating);
    check(a->routed.experts == b->routed.experts && a->shared.present == b->shared.present);
    check(strcmp(a->routed.storage, b->routed.storage) == 0);
    same_expert(&a->expert, &b->expert);
    same_expert(&a->shared_expert, &b->shared_expert);
}

/* Layers the builder takes; a blank storage is a defect that it refuses to write. */
static void rebuild(const struct plec_moe *moe) {
    enum { LAYERS_MAX = 64 }; /* each append looks at all layers before it */
    json_t *document;
    check(plec_moe_build(&document, NULL) == PLEC_OK);
    for (size_t i = 0; i < moe->n_layers && i < LAYERS_MAX; i++) {
        if (plec_moe_build_layer(document, &moe->layers[i], NULL) != PLEC_OK) continue;
        check(plec_moe_find_layer(moe, moe->layers[i].layer) != NULL);
    }
    for (size_t i = 0; i < moe->n_dense && i < LAYERS_MAX; i++)
        (void)!plec_moe_build_dense(document, &moe->dense[i], NULL);
    struct plec_moe again;
    check(plec_moe_read(&again, document, NULL) == PLEC_OK);
    for (size_t i = 0; i < again.n_layers; i++)
        for (size_t j = 0; j < moe->n_layers; j++)
            if (moe->layers[j].layer == again.layers[i].layer &&
                plec_key_is_safe(moe->layers[j].routed.storage) &&
                (!moe->layers[j].shared.present ||
                 plec_key_is_safe(moe->layers[j].shared.storage))) {
                same_layer(&again.layers[i], &moe->layers[j]);
                break;
            }
    plec_moe_close(&again);
    json_decref(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct plec_error err;
    json_t *document;
    if (plec_json_parse(&document, (const char *)data, size, &err) != PLEC_OK) return 0;
    struct plec_moe moe;
    if (plec_moe_read(&moe, document, &err) == PLEC_OK) {
        struct plec_findings findings = {0};
        plec_moe_defects(&findings, &moe);
        (void)!plec_findings_to_error(&findings, PLEC_MALFORMED, &err);
        plec_findings_clear(&findings);
        rebuild(&moe);
        plec_moe_close(&moe);
    }
    json_decref(document);
    return 0;
}
