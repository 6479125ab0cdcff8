#include "tools/plectrum/region_list.h"

#include "tools/plectrum/cli.h"
#include "tools/plectrum/region_hash.h"
#include "tools/plectrum/survey.h"

struct hashes {
    char bytes[PLEC_HASH_TEXT_MAX], decoded[PLEC_HASH_TEXT_MAX]; /* decoded "": there is none */
};

static void hash_region(struct hashes *out, struct plec_region_list *list,
                        const struct plec_survey_region *region) {
    uint64_t hash =
        plec_fnv1a64(PLEC_FNV_START, list->segment->data + region->offset, region->length);
    plec_hash_text(out->bytes, hash);
    out->decoded[0] = '\0';
    if (plec_hash_decoded(&hash, list->segment, region->bank->id, region->entry,
                          region->schema->index, region->offset))
        plec_hash_text(out->decoded, hash);
    list->hashed += region->length;
    plec_progress_update(list->progress, list->hashed);
}

static void add_place(json_t *item, struct plec_region_list *list,
                      const struct plec_survey_region *region) {
    json_object_set_new(item, "offset", json_integer((json_int_t)region->offset));
    json_object_set_new(item, "length", json_integer((json_int_t)region->length));
    if (!list->hash) return;
    struct hashes hashes;
    hash_region(&hashes, list, region);
    json_object_set_new(item, "fnv", json_string(hashes.bytes));
    if (hashes.decoded[0] != '\0')
        json_object_set_new(item, "decoded_fnv", json_string(hashes.decoded));
}

static int region_json(void *user, const struct plec_survey_region *region) {
    struct plec_region_list *list = user;
    char role[PLEC_NAME_MAX];
    json_t *item = json_object();
    if (list->key != NULL) json_object_set_new(item, "segment", json_string(list->key));
    json_object_set_new(item, "bank", json_integer(region->bank->id));
    json_object_set_new(item, "entry", json_integer(region->entry));
    json_object_set_new(item, "schema", json_integer(region->schema->index));
    json_object_set_new(item, "role", json_string(plec_role_name(region->schema->role, role)));
    if (region->resolved)
        add_place(item, list, region);
    else
        json_object_set_new(item, "error", json_string(region->error.message));
    plec_json_list_item(list->json, item);
    return list->json->failed;
}

static int region_line(void *user, const struct plec_survey_region *region) {
    struct plec_region_list *list = user;
    char role[PLEC_NAME_MAX];
    printf("%6u %8u %6u  %-18s", region->bank->id, region->entry, region->schema->index,
           plec_role_name(region->schema->role, role));
    if (!region->resolved) {
        printf(" ");
        plec_cli_put(stdout, region->error.message);
    } else {
        printf(" %14llu %14llu", (unsigned long long)region->offset,
               (unsigned long long)region->length);
        if (list->hash) {
            struct hashes hashes;
            hash_region(&hashes, list, region);
            printf("  %s  %s", hashes.bytes, hashes.decoded[0] != '\0' ? hashes.decoded : "-");
        }
    }
    printf("\n");
    return ferror(stdout);
}

void plec_region_list_print(struct plec_region_list *list) {
    if (list->json != NULL) {
        plec_survey_walk(list->segment, region_json, list);
        return;
    }
    printf("  bank    entry schema  role               %14s %14s%s\n", "offset", "length",
           list->hash ? "  fnv               decoded_fnv" : "");
    plec_survey_walk(list->segment, region_line, list);
}
