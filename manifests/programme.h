/* programme.h: the registry of programmes: an expert's arithmetic by name, and which region roles
 * it needs. Regions give bytes, the programme gives meaning.
 */
#ifndef PLEC_MANIFESTS_PROGRAMME_H
#define PLEC_MANIFESTS_PROGRAMME_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_ROLE_SETS_MAX = 2, PLEC_ROLE_SET_MAX = 4 };

struct plec_role_set {
    uint16_t roles[PLEC_ROLE_SET_MAX];
    uint32_t n_roles;
};

struct plec_programme {
    const char *name;               /* "gated-mlp-v1" */
    bool latent;                    /* experts work in a latent space */
    const char *default_activation; /* "silu", "clamped_glu"; a name of device/layer.h */
    struct plec_role_set sets[PLEC_ROLE_SETS_MAX]; /* acceptable sets, in order */
    uint32_t n_sets;
};

/* By name; NULL when unknown. */
const struct plec_programme *plec_programme_find(const char *name);
const struct plec_programme *plec_programme_all(size_t *n_programmes);

/* The first acceptable set whose roles all stand in schemas [n_schemas], or -1; then *missing holds
 * the roles wanting in the closest set (fewest additions, ties to the first). Extra roles never
 * hurt. */
int plec_programme_match(struct plec_role_set *missing, const struct plec_programme *programme,
                         const struct plec_lyrw_schema *schemas, uint32_t n_schemas);

#ifdef __cplusplus
}
#endif
#endif
