#include "manifests/programme.h"

#include <string.h>

#define FUSED                                                                                      \
    { {PLEC_ROLE_GATE_UP_FUSED, PLEC_ROLE_DOWN}, 2 }
#define SEPARATE                                                                                   \
    { {PLEC_ROLE_GATE, PLEC_ROLE_UP, PLEC_ROLE_DOWN}, 3 }
#define FUSED_BIAS                                                                                 \
    { {PLEC_ROLE_GATE_UP_FUSED, PLEC_ROLE_DOWN, PLEC_ROLE_BIAS}, 3 }
#define SEPARATE_BIAS                                                                              \
    { {PLEC_ROLE_GATE, PLEC_ROLE_UP, PLEC_ROLE_DOWN, PLEC_ROLE_BIAS}, 4 }
#define NO_GATE                                                                                    \
    { {PLEC_ROLE_UP, PLEC_ROLE_DOWN}, 2 }

static const struct plec_programme programmes[] = {
    {"gated-mlp-v1", false, "silu", {FUSED, SEPARATE}, 2},
    {"gated-mlp-fused-fc1-v1", false, "silu", {FUSED}, 1},
    {"gpt-oss-expert-v1", false, "clamped_glu", {FUSED_BIAS, SEPARATE_BIAS}, 2},
    {"shared-routed-mlp-v1", false, "silu", {FUSED, SEPARATE}, 2},
    {"latent-moe-v1", true, "silu", {FUSED, SEPARATE}, 2},
    {"plectrum-mlp-v1", false, "silu", {NO_GATE}, 1},
    {"plectrum-latent-mlp-v1", true, "silu", {NO_GATE}, 1},
};

const struct plec_programme *plec_programme_all(size_t *n_programmes) {
    *n_programmes = sizeof programmes / sizeof programmes[0];
    return programmes;
}

const struct plec_programme *plec_programme_find(const char *name) {
    for (size_t i = 0; i < sizeof programmes / sizeof programmes[0]; i++)
        if (strcmp(programmes[i].name, name) == 0) return &programmes[i];
    return NULL;
}

static bool has_role(const struct plec_lyrw_schema *schemas, uint32_t n_schemas, uint16_t role) {
    for (uint32_t i = 0; i < n_schemas; i++)
        if (schemas[i].role == role) return true;
    return false;
}

int plec_programme_match(struct plec_role_set *missing, const struct plec_programme *programme,
                         const struct plec_lyrw_schema *schemas, uint32_t n_schemas) {
    uint32_t fewest = UINT32_MAX;
    for (uint32_t i = 0; i < programme->n_sets; i++) {
        struct plec_role_set wanting = {{0}, 0};
        for (uint32_t j = 0; j < programme->sets[i].n_roles; j++)
            if (!has_role(schemas, n_schemas, programme->sets[i].roles[j]))
                wanting.roles[wanting.n_roles++] = programme->sets[i].roles[j];
        if (wanting.n_roles == 0) return (int)i;
        if (wanting.n_roles < fewest) {
            fewest = wanting.n_roles;
            *missing = wanting;
        }
    }
    return -1;
}
