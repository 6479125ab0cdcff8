#include "manifests/index.h"

#include <stdlib.h>
#include <string.h>

#include "manifests/field.h"

/* Versions of index.json by generation. */
enum { V2_FIRST = 1, V2_LAST = 2, V3_FIRST = 3, V3_LAST = 4 };

/* In the order of enum plec_fidelity. */
static const char *const fidelity_names[] = {
    "analysis-only",
    "structurally-approximate",
    "numerically-approximate",
    "source-equivalent",
    "source-exact",
    NULL,
};
static const char *const authority_names[] = {"canonical", "derived", NULL};

const char *plec_fidelity_name(enum plec_fidelity fidelity) {
    return fidelity <= PLEC_SOURCE_EXACT ? fidelity_names[fidelity] : "unknown";
}

bool plec_key_is_safe(const char *key) {
    if (key[0] == '\0' || key[0] == '/') return false;
    for (const char *part = key; part != NULL;) {
        const char *slash = strchr(part, '/');
        size_t length = slash != NULL ? (size_t)(slash - part) : strlen(part);
        if (length == 1 && part[0] == '.') return false;
        if (length == 2 && part[0] == '.' && part[1] == '.') return false;
        part = slash != NULL ? slash + 1 : NULL;
    }
    return true;
}

/* Every struct sorted here begins with its name. */
static int compare_names(const void *a, const void *b) {
    return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static enum plec_status check_generation(const json_t *document, struct plec_error *err) {
    const json_t *version = json_object_get(document, "version");
    bool given = version != NULL && !json_is_null(version);
    struct plec_field_report report = {PLEC_OK, err};
    struct plec_fields root = plec_fields_root(document, &report);
    int64_t found = given ? plec_field_unsigned(&root, "version") : 0;
    if (report.status != PLEC_OK) return report.status;
    if (found >= V3_FIRST && found <= V3_LAST) return PLEC_OK;
    if (found >= V2_FIRST && found <= V2_LAST)
        return plec_fail(err, PLEC_UNSUPPORTED, "WrongGeneration",
                         "index.json version %lld is VINDEX2; what is read here is VINDEX3 "
                         "(versions 3-4)",
                         (long long)found);
    return plec_fail(err, PLEC_UNSUPPORTED, "UnknownGeneration",
                     "index.json version %lld; supported: 1-2 (VINDEX2), 3-4 (VINDEX3)%s",
                     (long long)found, given ? "" : "; no version field");
}

/* The name of the member under an iterator and the next iterator, as json_object_iter wants them:
 * without const, though nothing is changed. */
static void *first_member(const struct plec_fields *map) {
    return map->object == NULL ? NULL : json_object_iter((json_t *)(uintptr_t)map->object);
}

static void *next_member(const struct plec_fields *map, void *member) {
    return json_object_iter_next((json_t *)(uintptr_t)map->object, member);
}

static void check_key(const struct plec_fields *map, const char *key) {
    if (!plec_key_is_safe(key))
        plec_field_fault(map, NULL, "UnsafeKey", "\"%.200s\" does not stay under the container",
                         key);
}

static void read_segments(struct plec_index *out, const struct plec_fields *root) {
    struct plec_fields map = plec_fields_member(root, "segments");
    size_t n = json_object_size(map.object);
    out->segments = plec_field_allocate(root->report, n, sizeof *out->segments);
    out->segments_by_key = plec_field_allocate(root->report, n, sizeof *out->segments_by_key);
    if (out->segments == NULL || out->segments_by_key == NULL) return;
    out->n_segments = n;
    void *member = first_member(&map);
    for (size_t i = 0; i < n; i++, member = next_member(&map, member)) {
        struct plec_index_segment *segment = &out->segments[i];
        segment->key = json_object_iter_key(member);
        segment->count = plec_field_u32(&map, segment->key);
        check_key(&map, segment->key);
        out->segments_by_key[i] = segment;
    }
}

static int compare_segment_pointers(const void *a, const void *b) {
    return compare_names(*(const void *const *)a, *(const void *const *)b);
}

static void read_selections(struct plec_index_profile *profile, const struct plec_fields *from) {
    if (json_object_get(from->object, "selects") == NULL) return;
    struct plec_fields map = plec_fields_member(from, "selects");
    size_t n = json_object_size(map.object);
    profile->selections = plec_field_allocate(from->report, n, sizeof *profile->selections);
    if (profile->selections == NULL) return;
    profile->n_selections = n;
    void *member = first_member(&map);
    for (size_t i = 0; i < n; i++, member = next_member(&map, member)) {
        profile->selections[i].region_set = json_object_iter_key(member);
        profile->selections[i].variant = plec_field_string(&map, json_object_iter_key(member));
    }
    qsort(profile->selections, n, sizeof *profile->selections, compare_names);
}

static void read_profiles(struct plec_index *out, const struct plec_fields *root) {
    const json_t *array = plec_field_array(root, "profiles");
    size_t n = json_array_size(array);
    out->profiles = plec_field_allocate(root->report, n, sizeof *out->profiles);
    if (out->profiles == NULL) return;
    out->n_profiles = n;
    for (size_t i = 0; i < n; i++) {
        struct plec_fields profile = plec_fields_item(root, "profiles", array, i);
        out->profiles[i].name = plec_field_string(&profile, "name");
        read_selections(&out->profiles[i], &profile);
    }
}

static void read_region_set(struct plec_index_region_set *set, const struct plec_fields *from) {
    set->baseline = plec_field_string(from, "baseline");
    struct plec_fields map = plec_fields_member(from, "variants");
    size_t n = json_object_size(map.object);
    set->variants = plec_field_allocate(from->report, n, sizeof *set->variants);
    if (set->variants == NULL) return;
    set->n_variants = n;
    void *member = first_member(&map);
    for (size_t i = 0; i < n; i++, member = next_member(&map, member)) {
        struct plec_index_variant *variant = &set->variants[i];
        variant->name = json_object_iter_key(member);
        struct plec_fields fields = plec_fields_member(&map, variant->name);
        variant->storage = plec_field_key(&fields, "storage");
        int fidelity = plec_field_choice(&fields, "fidelity", fidelity_names);
        variant->fidelity = fidelity < 0 ? PLEC_ANALYSIS_ONLY : (enum plec_fidelity)fidelity;
    }
    qsort(set->variants, n, sizeof *set->variants, compare_names);
}

static void read_variants(struct plec_index *out, const struct plec_fields *root) {
    if (json_object_get(root->object, "variants") == NULL) return;
    struct plec_fields map = plec_fields_member(root, "variants");
    size_t n = json_object_size(map.object);
    out->region_sets = plec_field_allocate(root->report, n, sizeof *out->region_sets);
    if (out->region_sets == NULL) return;
    out->n_region_sets = n;
    void *member = first_member(&map);
    for (size_t i = 0; i < n; i++, member = next_member(&map, member)) {
        out->region_sets[i].name = json_object_iter_key(member);
        struct plec_fields set = plec_fields_member(&map, out->region_sets[i].name);
        read_region_set(&out->region_sets[i], &set);
    }
    qsort(out->region_sets, n, sizeof *out->region_sets, compare_names);
}

/* Members of graph containers: nothing here reads them, but what is declared must be well typed. */
static void check_representations(const struct plec_fields *root) {
    static const char *const strings[] = {"object", "encoding", "segment", "payload_sha256",
                                          "segment_sha256"};
    if (json_object_get(root->object, "representations") == NULL) return;
    struct plec_fields map = plec_fields_member(root, "representations");
    for (void *member = first_member(&map); member != NULL; member = next_member(&map, member)) {
        struct plec_fields entry = plec_fields_member(&map, json_object_iter_key(member));
        for (size_t i = 0; i < sizeof strings / sizeof strings[0]; i++)
            (void)plec_field_string(&entry, strings[i]);
        (void)plec_field_unsigned(&entry, "tensor_count");
        (void)plec_field_unsigned(&entry, "payload_bytes");
        (void)plec_fields_member_or_none(&entry, "codec");
        (void)plec_fields_member_or_none(&entry, "encoder");
    }
}

static void read_scalars(struct plec_index *out, const struct plec_fields *root) {
    out->version = plec_field_u32(root, "version");
    out->model = plec_field_string(root, "model");
    out->family = plec_field_string(root, "family");
    out->hidden_size = plec_field_u32(root, "hidden_size");
    out->num_layers = plec_field_u32(root, "num_layers");
    out->moe_manifest = plec_field_key_or_none(root, "moe_manifest");
    (void)plec_field_string_or_none(root, "system_graph");
    (void)plec_field_string_or_none(root, "auxiliary_references");
    (void)plec_field_string_or_none(root, "representation_attestations");
    out->derived_from_model = plec_field_string_or_none(root, "derived_from_model");
    if (json_object_get(root->object, "authority") != NULL)
        out->derived = plec_field_choice(root, "authority", authority_names) == 1;
    (void)plec_fields_member_or_none(root, "precision_map");
}

/* The value of a hexadecimal digit, or -1. */
static int hex_digit(char digit) {
    if (digit >= '0' && digit <= '9') return digit - '0';
    if (digit >= 'a' && digit <= 'f') return digit - 'a' + 10;
    if (digit >= 'A' && digit <= 'F') return digit - 'A' + 10;
    return -1;
}

static bool parse_sha256(uint8_t *digest, const char *hex) {
    if (strlen(hex) != 2 * PLEC_SHA256_BYTES) return false;
    for (size_t i = 0; i < PLEC_SHA256_BYTES; i++) {
        int high = hex_digit(hex[2 * i]), low = hex_digit(hex[2 * i + 1]);
        if (high < 0 || low < 0) return false;
        digest[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}

static void check_integrity(const struct plec_fields *plectrum) {
    struct plec_fields integrity = plec_fields_member_or_none(plectrum, "integrity");
    if (integrity.object == NULL) return;
    bool sha256 = strcmp(plec_field_string(&integrity, "algorithm"), "sha256") == 0;
    struct plec_fields files = plec_fields_member(&integrity, "files");
    for (void *file = first_member(&files); file != NULL; file = next_member(&files, file)) {
        const char *name = json_object_iter_key(file);
        const char *hex = plec_field_string(&files, name);
        uint8_t digest[PLEC_SHA256_BYTES];
        check_key(&files, name);
        if (sha256 && !parse_sha256(digest, hex))
            plec_field_fault(&files, name, "BadHash",
                             "expected 64 hexadecimal digits, found \"%s\"", hex);
    }
}

static void check_extents(const struct plec_fields *plectrum) {
    struct plec_fields extents = plec_fields_member_or_none(plectrum, "extents");
    for (void *key = first_member(&extents); key != NULL; key = next_member(&extents, key)) {
        const char *name = json_object_iter_key(key);
        uint32_t width = plec_field_u32(&extents, name);
        check_key(&extents, name);
        if (width == 0) plec_field_fault(&extents, name, "BadExtent", "an extent of 0 entries");
    }
}

static void read_plectrum(struct plec_index *out, const struct plec_fields *root) {
    struct plec_fields plectrum = plec_fields_member_or_none(root, "plectrum");
    if (plectrum.object == NULL) return;
    check_integrity(&plectrum);
    check_extents(&plectrum);
    out->plectrum = json_object_get(out->document, "plectrum");
}

enum plec_status plec_index_read(struct plec_index *out, json_t *document, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    enum plec_status status = check_generation(document, err);
    if (status != PLEC_OK) return status;
    struct plec_field_report report = {PLEC_OK, err};
    struct plec_fields root = plec_fields_root(document, &report);
    out->document = json_incref(document);
    read_scalars(out, &root);
    read_profiles(out, &root);
    read_variants(out, &root);
    read_segments(out, &root);
    check_representations(&root);
    read_plectrum(out, &root);
    if (report.status != PLEC_OK) {
        plec_index_close(out);
        return report.status;
    }
    qsort(out->segments_by_key, out->n_segments, sizeof *out->segments_by_key,
          compare_segment_pointers);
    return PLEC_OK;
}

void plec_index_close(struct plec_index *index) {
    for (size_t i = 0; i < index->n_profiles; i++)
        free(index->profiles[i].selections);
    for (size_t i = 0; i < index->n_region_sets; i++)
        free(index->region_sets[i].variants);
    free(index->profiles);
    free(index->region_sets);
    free(index->segments);
    free((void *)index->segments_by_key);
    json_decref(index->document);
    memset(index, 0, sizeof *index);
}

uint32_t plec_index_extent(const struct plec_index *index, const char *key) {
    const json_t *extents = json_object_get(index->plectrum, "extents");
    return (uint32_t)json_integer_value(json_object_get(extents, key));
}

enum plec_status plec_index_sha256(uint8_t *digest, bool *given, const struct plec_index *index,
                                   const char *file, struct plec_error *err) {
    const json_t *integrity = json_object_get(index->plectrum, "integrity");
    const json_t *hex = json_object_get(json_object_get(integrity, "files"), file);
    *given = hex != NULL;
    if (hex == NULL) return PLEC_OK;
    const char *algorithm = json_string_value(json_object_get(integrity, "algorithm"));
    if (strcmp(algorithm, "sha256") != 0 || !parse_sha256(digest, json_string_value(hex)))
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownHash",
                         "%s: algorithm \"%.80s\", not sha256", file, algorithm);
    return PLEC_OK;
}
