/* vindex.h: an opened VINDEX3 bank directory: its manifests and its segment files. What runs,
 * binds, verifies and describes a directory starts here.
 */
#ifndef PLEC_HOST_VINDEX_H
#define PLEC_HOST_VINDEX_H

#include "host/container.h"
#include "host/store.h"
#include "manifests/moe.h"
#include "manifests/profile.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_vindex {
    struct plec_index index;
    struct plec_moe moe;
    struct plec_resolved_profile profile; /* the one this container was opened with */
    struct plec_store store;              /* one file a segment key */
    struct plec_log log;
};

/* Opens a directory: index.json, its manifest, every profile, and whether every segment file is
 * there. No segment is read. findings NULL: whatever refuses the container is the error. Else what
 * a description can live with, defects of the manifest and absent segment files, is added there and
 * the opening goes on; err must then not be NULL. Every status of the readers, with the path in
 * front. On failure *out is closed. */
PLEC_MUST_USE enum plec_status plec_vindex_open(struct plec_vindex *out, const char *path,
                                                const char *profile, struct plec_findings *findings,
                                                struct plec_error *err);
/* Accepts a zeroed one. */
void plec_vindex_close(struct plec_vindex *vindex);

/* Binds a MoE layer, or a dense one; see plec_container_bind. out is zeroed. Thread-safe. */
PLEC_MUST_USE enum plec_status plec_vindex_bind_moe(struct plec_bound_layer *out,
                                                    struct plec_vindex *vindex,
                                                    const struct plec_moe_layer *layer,
                                                    struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_vindex_bind_dense(struct plec_bound_layer *out,
                                                      struct plec_vindex *vindex,
                                                      const struct plec_moe_dense *dense,
                                                      struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
