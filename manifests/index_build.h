/* index_build.h: index.json documents made or added to, for whoever writes a container.
 *
 * Members stand in the written order of docs/format.md; whatever else a document read from a file
 * holds keeps its place. The caller owns the document and stores it last, after every file it
 * names. Every call can return PLEC_BAD_INPUT "BadValue" (text that is not UTF-8, no memory).
 */
#ifndef PLEC_MANIFESTS_INDEX_BUILD_H
#define PLEC_MANIFESTS_INDEX_BUILD_H

#include "manifests/index.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_index_build_args {
    const char *model, *family;
    uint32_t hidden_size, num_layers; /* num_layers: the model's */
    const char *moe_manifest;         /* file name under the root; NULL: none */
    const char *derived_from_model;   /* NULL: none */
    bool derived;                     /* authority "derived"; canonical is not written */
};

/* A version 4 index with the profile "exact" and no segments; the caller decrefs it. */
PLEC_MUST_USE enum plec_status
plec_index_build(json_t **out, const struct plec_index_build_args *args, struct plec_error *err);
/* Declares a segment key with count 1; again, with one more. PLEC_BAD_INPUT "UnsafeKey". */
PLEC_MUST_USE enum plec_status plec_index_build_segment(json_t *document, const char *key,
                                                        struct plec_error *err);
/* Records a key's extent width, at least 1, in plectrum.extents. */
PLEC_MUST_USE enum plec_status plec_index_build_extent(json_t *document, const char *key,
                                                       uint32_t width, struct plec_error *err);
/* Records the SHA-256 [PLEC_SHA256_BYTES] of a file under the root in plectrum.integrity. */
PLEC_MUST_USE enum plec_status plec_index_build_sha256(json_t *document, const char *file,
                                                       const uint8_t *digest,
                                                       struct plec_error *err);

struct plec_index_build_variant_args {
    const char *region_set, *variant, *storage;
    enum plec_fidelity fidelity;
};
/* Adds a variant to a region set; the first one of a set becomes its baseline. */
PLEC_MUST_USE enum plec_status
plec_index_build_variant(json_t *document, const struct plec_index_build_variant_args *args,
                         struct plec_error *err);

struct plec_index_build_selection_args {
    const char *profile, *region_set, *variant; /* region_set NULL: only declares the profile */
};
/* Makes a profile select a variant, declaring the profile where there is none of that name. */
PLEC_MUST_USE enum plec_status
plec_index_build_selection(json_t *document, const struct plec_index_build_selection_args *args,
                           struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
