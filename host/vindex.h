/* vindex.h: an opened VINDEX3 bank directory, between the file that opens it (source_vindex.c) and
 * the one that binds its layers (bind_layer.c). Not part of the library's face.
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
