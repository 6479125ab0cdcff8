#include "manifests/index_build.h"

#include <string.h>

#include "manifests/member.h"

enum { INDEX_VERSION = 4 };

static const char *const member_order[] = {
    "version",
    "model",
    "family",
    "hidden_size",
    "num_layers",
    "moe_manifest",
    "system_graph",
    "auxiliary_references",
    "representation_attestations",
    "representations",
    "profiles",
    "variants",
    "segments",
    "authority",
    "precision_map",
    "derived_from_model",
    NULL,
};

static enum plec_status check_key(const char *key, struct plec_error *err) {
    if (plec_key_is_safe(key)) return PLEC_OK;
    return plec_fail(err, PLEC_BAD_INPUT, "UnsafeKey",
                     "\"%.200s\" does not stay under the container", key);
}

static json_t *new_profile(struct plec_members *members, const char *name) {
    json_t *profile = json_object();
    plec_member_set(members, profile, "name", json_string(name));
    return profile;
}

enum plec_status plec_index_build(json_t **out, const struct plec_index_build_args *args,
                                  struct plec_error *err) {
    *out = NULL;
    if (args->moe_manifest != NULL) {
        enum plec_status status = check_key(args->moe_manifest, err);
        if (status != PLEC_OK) return status;
    }
    struct plec_members members = {0};
    json_t *document = json_object(), *profiles = json_array();
    plec_member_set(&members, document, "version", json_integer(INDEX_VERSION));
    plec_member_set(&members, document, "model", json_string(args->model));
    plec_member_set(&members, document, "family", json_string(args->family));
    plec_member_set(&members, document, "hidden_size", json_integer(args->hidden_size));
    plec_member_set(&members, document, "num_layers", json_integer(args->num_layers));
    if (args->moe_manifest != NULL)
        plec_member_set(&members, document, "moe_manifest", json_string(args->moe_manifest));
    if (json_array_append_new(profiles, new_profile(&members, "exact")) != 0)
        members.fault = "profiles";
    plec_member_set(&members, document, "profiles", profiles);
    plec_member_set(&members, document, "segments", json_object());
    if (args->derived) plec_member_set(&members, document, "authority", json_string("derived"));
    if (args->derived_from_model != NULL)
        plec_member_set(&members, document, "derived_from_model",
                        json_string(args->derived_from_model));
    enum plec_status status = plec_members_status(&members, err);
    if (status == PLEC_OK)
        *out = document;
    else
        json_decref(document);
    return status;
}

enum plec_status plec_index_build_segment(json_t *document, const char *key,
                                          struct plec_error *err) {
    enum plec_status status = check_key(key, err);
    if (status != PLEC_OK) return status;
    struct plec_members members = {0};
    if (json_object_get(document, "segments") == NULL)
        plec_member_place(&members, document, "segments", json_object(), member_order);
    json_t *segments = plec_member_object(&members, document, "segments");
    json_int_t count = json_integer_value(json_object_get(segments, key)) + 1;
    plec_member_set(&members, segments, key, json_integer(count));
    return plec_members_status(&members, err);
}

enum plec_status plec_index_build_extent(json_t *document, const char *key, uint32_t width,
                                         struct plec_error *err) {
    enum plec_status status = check_key(key, err);
    if (status != PLEC_OK) return status;
    if (width == 0)
        return plec_fail(err, PLEC_BAD_INPUT, "BadExtent", "%.200s: an extent of 0 entries", key);
    struct plec_members members = {0};
    json_t *plectrum = plec_member_object(&members, document, "plectrum");
    json_t *extents = plec_member_object(&members, plectrum, "extents");
    plec_member_set(&members, extents, key, json_integer(width));
    return plec_members_status(&members, err);
}

enum plec_status plec_index_build_sha256(json_t *document, const char *file, const uint8_t *digest,
                                         struct plec_error *err) {
    static const char digits[] = "0123456789abcdef";
    enum plec_status status = check_key(file, err);
    if (status != PLEC_OK) return status;
    char hex[2 * PLEC_SHA256_BYTES + 1] = "";
    for (size_t i = 0; i < PLEC_SHA256_BYTES; i++) {
        hex[2 * i] = digits[digest[i] >> 4];
        hex[2 * i + 1] = digits[digest[i] & 15];
    }
    struct plec_members members = {0};
    json_t *plectrum = plec_member_object(&members, document, "plectrum");
    json_t *integrity = plec_member_object(&members, plectrum, "integrity");
    plec_member_set(&members, integrity, "algorithm", json_string("sha256"));
    json_t *files = plec_member_object(&members, integrity, "files");
    plec_member_set(&members, files, file, json_string(hex));
    return plec_members_status(&members, err);
}

enum plec_status plec_index_build_variant(json_t *document,
                                          const struct plec_index_build_variant_args *args,
                                          struct plec_error *err) {
    enum plec_status status = check_key(args->storage, err);
    if (status != PLEC_OK) return status;
    struct plec_members members = {0};
    if (json_object_get(document, "variants") == NULL)
        plec_member_place(&members, document, "variants", json_object(), member_order);
    json_t *sets = plec_member_object(&members, document, "variants");
    json_t *set = plec_member_object(&members, sets, args->region_set);
    if (json_object_get(set, "baseline") == NULL)
        plec_member_set(&members, set, "baseline", json_string(args->variant));
    json_t *variants = plec_member_object(&members, set, "variants");
    json_t *variant = json_object();
    plec_member_set(&members, variant, "storage", json_string(args->storage));
    plec_member_set(&members, variant, "fidelity", json_string(plec_fidelity_name(args->fidelity)));
    plec_member_set(&members, variants, args->variant, variant);
    return plec_members_status(&members, err);
}

static json_t *find_profile(json_t *profiles, const char *name) {
    for (size_t i = 0; i < json_array_size(profiles); i++) {
        json_t *profile = json_array_get(profiles, i);
        const char *found = json_string_value(json_object_get(profile, "name"));
        if (found != NULL && strcmp(found, name) == 0) return profile;
    }
    return NULL;
}

enum plec_status plec_index_build_selection(json_t *document,
                                            const struct plec_index_build_selection_args *args,
                                            struct plec_error *err) {
    struct plec_members members = {0};
    if (json_object_get(document, "profiles") == NULL)
        plec_member_place(&members, document, "profiles", json_array(), member_order);
    json_t *profiles = json_object_get(document, "profiles");
    json_t *profile = find_profile(profiles, args->profile);
    if (profile == NULL) {
        profile = new_profile(&members, args->profile);
        if (json_array_append_new(profiles, profile) != 0) {
            members.fault = "profiles";
            return plec_members_status(&members, err);
        }
    }
    if (args->region_set == NULL) return plec_members_status(&members, err);
    json_t *selects = plec_member_object(&members, profile, "selects");
    plec_member_set(&members, selects, args->region_set, json_string(args->variant));
    return plec_members_status(&members, err);
}
