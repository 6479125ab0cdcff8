/* profile.h: profiles resolved against the variants an index catalogues: which storage each region
 * set reads, at what fidelity, and the authority that follows.
 */
#ifndef PLEC_MANIFESTS_PROFILE_H
#define PLEC_MANIFESTS_PROFILE_H

#include "manifests/index.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_resolved_selection {
    const char *region_set, *variant, *storage; /* views into the index document */
    enum plec_fidelity fidelity;
    bool chosen; /* named by the profile; else the set's baseline */
};

/* Zeroed: closed. Every catalogued set has one selection, sets in name order. */
struct plec_resolved_profile {
    const char *name;
    struct plec_resolved_selection *selections; /* [n_selections] */
    size_t n_selections;
};

/* Adds every defect of one profile: UnknownRegionSet, AbsentVariant, then a set NoVariants or
 * BaselineAbsent. */
void plec_profile_defects(struct plec_findings *findings, const struct plec_index *index,
                          const struct plec_index_profile *profile);

/* Whether every declared profile resolves, as a container must before a segment is opened.
 * PLEC_MALFORMED "Unsatisfiable" with every defect of the first profile that does not. */
PLEC_MUST_USE enum plec_status plec_profile_check_all(const struct plec_index *index,
                                                      struct plec_error *err);

/* Resolves a profile by name; NULL: "exact", else the first, else none (PLEC_OK with no selection
 * and name NULL). PLEC_MISSING "UndeclaredProfile" listing the declared names; PLEC_MALFORMED
 * "Unsatisfiable" with every defect. */
PLEC_MUST_USE enum plec_status plec_profile_resolve(struct plec_resolved_profile *out,
                                                    const struct plec_index *index,
                                                    const char *name, struct plec_error *err);
void plec_profile_close(struct plec_resolved_profile *profile);

/* The authority a profile earns: its weakest selected fidelity (analysis-only when it selects
 * nothing); capped to analysis-only when required operands are missing, to
 * structurally-approximate when something was omitted or replaced by declaration. */
enum plec_fidelity plec_profile_authority(const struct plec_resolved_profile *profile,
                                          bool complete, bool structural_change);

#ifdef __cplusplus
}
#endif
#endif
