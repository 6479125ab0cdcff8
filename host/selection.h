/* selection.h: which storage each role of a bank is read from: the manifest's, or a variant's that
 * the profile selects.
 *
 * A region set means something to a run when its name is layer.N.routed.ROLE or
 * layer.N.shared.ROLE; ROLE is gate, up, gate_up_fused, down, bias, or gate_up (the fused matrix,
 * or gate and up, whichever the variant's storage has). Other names are kept, and refused when the
 * profile selects them.
 */
#ifndef PLEC_HOST_SELECTION_H
#define PLEC_HOST_SELECTION_H

#include "host/bank.h"
#include "manifests/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a region set's name says. */
struct plec_region_set {
    uint32_t layer;
    bool shared;              /* else routed */
    bool gate_up;             /* gate_up: whatever of the three the storage has */
    bool known_role;          /* false: a role no run reads */
    enum plec_bank_role role; /* when known_role and not gate_up */
};
/* False when the name has another shape. */
bool plec_region_set_parse(struct plec_region_set *out, const char *name);

struct plec_selection_args {
    const struct plec_index *index;
    const struct plec_resolved_profile *profile;
    struct plec_store *store;
    uint32_t layer;
    bool shared;
    const char *storage; /* the manifest's */
    enum plec_bank_kind kind;
};

/* Opens every storage one bank of a layer reads and fills by_role. PLEC_MISSING
 * "StorageUndeclared", "SelectedRoleMissing"; PLEC_MALFORMED "ConflictingSelections",
 * "LayerContradicted" and storage.h's; PLEC_UNSUPPORTED "RegionSetWithoutMeaning". */
PLEC_MUST_USE enum plec_status plec_selection_open(struct plec_storage **by_role,
                                                   struct plec_arena *arena,
                                                   const struct plec_selection_args *args,
                                                   struct plec_error *err);

/* Refuses a profile that selects a set no run can read. */
PLEC_MUST_USE enum plec_status
plec_selection_check_profile(const struct plec_resolved_profile *profile, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
