/* index.json from hostile bytes: parsed, read, its profiles and storages resolved, written and read
 * again. What is written must be what was read. */
#include <stdint.h>
#include <stdlib.h>

#include "manifests/profile.h"

static void check(int holds) {
    if (!holds) abort();
}

/* A document that was read can be written, and reads back equal. */
static void rewrite(const json_t *document) {
    char *text;
    size_t n_bytes;
    json_t *again;
    check(plec_json_format(&text, &n_bytes, document, NULL) == PLEC_OK);
    check(plec_json_parse(&again, text, n_bytes, NULL) == PLEC_OK);
    check(json_equal(document, again));
    free(text);
    json_decref(again);
}

static void resolve_storage(const struct plec_index *index, const char *storage) {
    const char **keys = calloc(index->n_segments + 1, sizeof *keys);
    size_t n_keys = 0;
    check(keys != NULL);
    if (plec_index_resolve_storage(keys, &n_keys, index, storage, NULL) == PLEC_OK)
        for (size_t i = 0; i < n_keys; i++)
            check(plec_index_find_segment(index, keys[i]) != NULL);
    free(keys);
}

static void resolve_profiles(const struct plec_index *index) {
    for (size_t i = 0; i < index->n_profiles; i++) {
        struct plec_resolved_profile profile;
        if (plec_profile_resolve(&profile, index, index->profiles[i].name, NULL) != PLEC_OK)
            continue;
        for (size_t j = 0; j < profile.n_selections; j++)
            resolve_storage(index, profile.selections[j].storage);
        (void)plec_profile_authority(&profile, true, false);
        plec_profile_close(&profile);
    }
}

static void use(const struct plec_index *index) {
    struct plec_error err;
    if (plec_profile_check_all(index, &err) == PLEC_OK) resolve_profiles(index);
    for (size_t i = 0; i < index->n_segments; i++) {
        uint8_t digest[PLEC_SHA256_BYTES];
        bool given;
        resolve_storage(index, index->segments[i].key);
        (void)plec_index_extent(index, index->segments[i].key);
        if (plec_index_sha256(digest, &given, index, index->segments[i].key, &err) != PLEC_OK)
            check(given);
    }
    resolve_storage(index, "routed/layer_000");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct plec_error err;
    json_t *document;
    if (plec_json_parse(&document, (const char *)data, size, &err) != PLEC_OK) return 0;
    rewrite(document);
    struct plec_index index;
    if (plec_index_read(&index, document, &err) == PLEC_OK) {
        use(&index);
        plec_index_close(&index);
    }
    json_decref(document);
    return 0;
}
