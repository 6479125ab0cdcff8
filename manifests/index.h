/* index.h: index.json of a VINDEX3 bank container: what files there are, under which keys, in which
 * profiles. Owns the JSON document, which keeps every member that is not known here, in its place.
 */
#ifndef PLEC_MANIFESTS_INDEX_H
#define PLEC_MANIFESTS_INDEX_H

#include "lyrw/findings.h"
#include "manifests/json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Weak to strong. */
enum plec_fidelity {
    PLEC_ANALYSIS_ONLY,
    PLEC_STRUCTURALLY_APPROXIMATE,
    PLEC_NUMERICALLY_APPROXIMATE,
    PLEC_SOURCE_EQUIVALENT,
    PLEC_SOURCE_EXACT
};
const char *plec_fidelity_name(enum plec_fidelity fidelity);

struct plec_index_segment {
    const char *key; /* path stem under the root; the file is <key>.lyrw */
    uint32_t count;  /* recorded, never used */
};

/* One region set -> variant name of a profile. Selections, region sets and variants stand in name
 * order (bytes), whatever the document's. */
struct plec_index_selection {
    const char *region_set, *variant;
};

struct plec_index_profile {
    const char *name;
    struct plec_index_selection *selections; /* [n_selections] */
    size_t n_selections;
};

struct plec_index_variant {
    const char *name, *storage;
    enum plec_fidelity fidelity;
};

struct plec_index_region_set {
    const char *name, *baseline;
    struct plec_index_variant *variants; /* [n_variants] */
    size_t n_variants;
};

/* Zeroed: closed. Every string is a view into `document`. */
struct plec_index {
    json_t *document;
    uint32_t version, hidden_size, num_layers;
    const char *model, *family;
    const char *moe_manifest;       /* NULL: a system container */
    const char *derived_from_model; /* or NULL */
    bool derived;                   /* authority */
    struct plec_index_profile *profiles;
    size_t n_profiles;
    struct plec_index_region_set *region_sets;
    size_t n_region_sets;
    struct plec_index_segment *segments; /* in document order */
    size_t n_segments;
    const struct plec_index_segment **segments_by_key; /* [n_segments] in key order */
    json_t *plectrum; /* our additive object, borrowed; NULL when absent */
};

/* Reads the meaning out of a document (takes a reference). Generation first: PLEC_UNSUPPORTED
 * "UnknownGeneration" or "WrongGeneration" (a version that is no non-negative integer is
 * PLEC_MALFORMED "WrongType"); then PLEC_MALFORMED: MissingField, WrongType, IntegerRange,
 * UnknownVariant, UnsafeKey, NulInString, BadHash, BadExtent. PLEC_NO_MEMORY. On failure *out is
 * closed. Profiles are not resolved here: manifests/profile.h. */
PLEC_MUST_USE enum plec_status plec_index_read(struct plec_index *out, json_t *document,
                                               struct plec_error *err);
void plec_index_close(struct plec_index *index);

/* Whether a storage key or manifest name stays under the root: not empty, no NUL or leading '/', no
 * '.' or '..' part. */
bool plec_key_is_safe(const char *key);

/* Entry of a segment key, or NULL. O(log n). */
const struct plec_index_segment *plec_index_find_segment(const struct plec_index *index,
                                                         const char *key);

/* The keys that hold storage S: S itself when declared, else S.seg00, S.seg01, ... declared without
 * a gap. *n_keys 0: "undeclared" (no error). A gap is PLEC_MALFORMED "SegmentGap". keys: caller's
 * array of capacity index->n_segments, views into the document. Numbers have two digits, or as many
 * as they need; nothing is globbed. */
PLEC_MUST_USE enum plec_status plec_index_resolve_storage(const char **keys, size_t *n_keys,
                                                          const struct plec_index *index,
                                                          const char *storage,
                                                          struct plec_error *err);

/* plectrum.extents: entries an extent of a segment key has; 0 when none is recorded. */
uint32_t plec_index_extent(const struct plec_index *index, const char *key);

enum { PLEC_SHA256_BYTES = 32 };
/* plectrum.integrity: the SHA-256 recorded for a file under the root ("routed/layer_000.lyrw",
 * "moe_manifest.json"). *given false: none is. PLEC_UNSUPPORTED "UnknownHash" for an algorithm
 * other than sha256. digest: [PLEC_SHA256_BYTES]. */
PLEC_MUST_USE enum plec_status plec_index_sha256(uint8_t *digest, bool *given,
                                                 const struct plec_index *index, const char *file,
                                                 struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
