/* moe_build.h: moe_manifest.json documents made or added to, for whoever writes a container.
 *
 * The structs are the ones a manifest is read into, so that reading what was built gives them back.
 * Every standard member is written, nulls included, in the order of docs/format.md; our `plectrum`
 * objects hold what is given and are left out when that is nothing. The caller owns the document.
 */
#ifndef PLEC_MANIFESTS_MOE_BUILD_H
#define PLEC_MANIFESTS_MOE_BUILD_H

#include "manifests/moe.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A schema 1 manifest without layers; the caller decrefs it. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_moe_build(json_t **out, struct plec_error *err);
/* Appends a layer. PLEC_BAD_INPUT: "DuplicateLayer", "UnsafeKey", "BadValue" (text that is not
 * UTF-8, a number that is not finite, no memory). The document is unchanged on failure. */
PLEC_MUST_USE enum plec_status
plec_moe_build_layer(json_t *document, const struct plec_moe_layer *layer, struct plec_error *err);
/* Appends to plectrum.dense; the same statuses. */
PLEC_MUST_USE enum plec_status
plec_moe_build_dense(json_t *document, const struct plec_moe_dense *dense, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
