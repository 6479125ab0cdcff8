/* inspect_gguf_json.c: the GGUF view as one JSON object, schema 1: keys in a fixed order, all of
 * them always there, 64-bit integers exact (digits in a string above 63 bits), no NaN. */
#include <stdlib.h>

#include "lyrw/cursor.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/inspect_gguf.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/moe_view.h"

enum { SHOWN_STRING_BYTES = 256, SHOWN_ITEMS = 4 };

/* A scalar; reals that are not finite, which JSON has no word for, as "nan", "inf" and "-inf". */
static json_t *scalar_json(const struct plec_gguf *file, const struct plec_gguf_key *key,
                           uint64_t i) {
    uint64_t u;
    int64_t s;
    double f;
    bool b;
    char text[PLEC_REAL_TEXT_MAX];
    if (key->element_type == PLEC_GGUF_BOOL && plec_gguf_bool(&b, file, key, i, NULL) == PLEC_OK)
        return json_boolean(b);
    if (plec_gguf_u64(&u, file, key, i, NULL) == PLEC_OK) return plec_json_of_u64(u);
    if (plec_gguf_i64(&s, file, key, i, NULL) == PLEC_OK) return json_integer(s);
    if (plec_gguf_f64(&f, file, key, i, NULL) != PLEC_OK) return json_null();
    return f - f == 0 ? json_real(f) : json_string(plec_real_text(text, f, false));
}

static json_t *cut_json(struct plec_view text, uint64_t most) {
    if (text.size > most) {
        text.size = most;
        /* Not in the middle of a character. */
        while (text.size > 0 && !plec_view_is_utf8(text) && text.size + 4 > most)
            text.size--;
    }
    return plec_json_of_view(text);
}

/* Up to `most` elements of an array, strings up to most_bytes. */
static json_t *items_json(const struct plec_gguf *file, const struct plec_gguf_key *key,
                          uint64_t most, uint64_t most_bytes) {
    json_t *items = json_array();
    uint64_t at = key->value_at;
    for (uint64_t i = 0; i < key->count && i < most; i++)
        json_array_append_new(items, key->element_type == PLEC_GGUF_STRING
                                         ? cut_json(plec_gguf_next_string(file, &at), most_bytes)
                                         : scalar_json(file, key, i));
    return items;
}

static json_t *value_json(const struct plec_gguf *file, const struct plec_gguf_key *key,
                          uint64_t most_items, uint64_t most_bytes) {
    if (key->type == PLEC_GGUF_ARRAY) return items_json(file, key, most_items, most_bytes);
    if (key->type != PLEC_GGUF_STRING) return scalar_json(file, key, 0);
    struct plec_view text = {(const char *)file->data + key->value_at, key->n_bytes};
    return cut_json(text, most_bytes);
}

/* `bytes` is the length of the value in the file, whatever of it is shown. */
static json_t *key_json(const struct plec_gguf *file, const struct plec_gguf_key *key, uint32_t i) {
    return json_pack("{s:o, s:I, s:s, s:s, s:o, s:o, s:o}", "key", plec_json_of_view(key->name),
                     "file", (json_int_t)i, "type", plec_gguf_value_type_name(key->type),
                     "element_type", plec_gguf_value_type_name(key->element_type), "count",
                     plec_json_of_u64(key->count), "bytes", plec_json_of_u64(key->n_bytes), "value",
                     value_json(file, key, SHOWN_ITEMS, SHOWN_STRING_BYTES));
}

bool plec_gguf_key_json(const struct plec_gguf *file, const struct plec_gguf_key *key) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "key", plec_json_of_view(key->name));
    plec_json_member(&json, "type", json_string(plec_gguf_value_type_name(key->type)));
    plec_json_member(&json, "element_type",
                     json_string(plec_gguf_value_type_name(key->element_type)));
    plec_json_member(&json, "count", plec_json_of_u64(key->count));
    if (key->type == PLEC_GGUF_ARRAY) {
        uint64_t at = key->value_at;
        plec_json_list_begin(&json, "value");
        for (uint64_t i = 0; i < key->count; i++)
            plec_json_list_item(&json, key->element_type == PLEC_GGUF_STRING
                                           ? plec_json_of_view(plec_gguf_next_string(file, &at))
                                           : scalar_json(file, key, i));
        plec_json_list_end(&json);
    } else {
        plec_json_member(&json, "value", value_json(file, key, 1, UINT64_MAX));
    }
    return plec_json_end(&json);
}

static json_t *shard_json(const struct plec_gguf_shard *shard) {
    const struct plec_gguf *file = &shard->file;
    uint64_t trailing = 0, missing = 0;
    if (shard->present) plec_gguf_ends(&trailing, &missing, file);
    return json_pack(
        "{s:o, s:b, s:o, s:I, s:I, s:I, s:o, s:b, s:b, s:o, s:o, s:o, s:o, s:o}", "path",
        plec_json_of_view(plec_view_of(shard->path)), "present", shard->present, "bytes",
        plec_json_of_u64(shard->mapping.size), "version", (json_int_t)file->version, "keys",
        (json_int_t)file->n_keys, "tensors", (json_int_t)file->n_tensors, "alignment",
        plec_json_of_u64(file->alignment), "alignment_stated", file->alignment_stated, "complete",
        file->complete, "keys_end", plec_json_of_u64(file->infos_at), "infos_end",
        plec_json_of_u64(file->infos_end), "data_start", plec_json_of_u64(file->data_at),
        "trailing_bytes", plec_json_of_u64(trailing), "missing_bytes", plec_json_of_u64(missing));
}

static json_t *flags_json(uint32_t flags) {
    static const struct {
        uint32_t flag;
        const char *name;
    } names[] = {{PLEC_GGUF_TYPE_UNKNOWN, "unknown_type"},
                 {PLEC_GGUF_NO_ELEMENTS, "no_elements"},
                 {PLEC_GGUF_OUTSIDE_FILE, "outside_file"},
                 {PLEC_GGUF_NOT_ALIGNED, "not_aligned"},
                 {PLEC_GGUF_OVERLAPS, "overlaps"}};
    json_t *list = json_array();
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (flags & names[i].flag) json_array_append_new(list, json_string(names[i].name));
    return list;
}

static json_t *tensor_json(const struct plec_gguf_tensor *tensor) {
    char type[PLEC_GGUF_TYPE_TEXT_MAX];
    json_t *shape = json_array(), *axes = json_array();
    const char *const *axis = plec_gguf_axes(tensor);
    for (uint32_t i = 0; i < tensor->n_dims; i++) {
        json_array_append_new(shape, plec_json_of_u64(tensor->ne[i]));
        json_array_append_new(axes, json_string(axis[i]));
    }
    bool sized = !(tensor->flags & PLEC_GGUF_TYPE_UNKNOWN) && tensor->n_elements > 0;
    return json_pack("{s:o, s:s, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I, s:o}", "name",
                     plec_json_of_view(tensor->name), "type",
                     plec_gguf_type_text(tensor->type, type), "type_id", (json_int_t)tensor->type,
                     "shape", shape, "axes", axes, "elements", plec_json_of_u64(tensor->n_elements),
                     "bytes", plec_json_of_u64(tensor->n_bytes), "bits_per_weight",
                     sized ? json_real(plec_gguf_bits(tensor->n_bytes, tensor->n_elements))
                           : json_null(),
                     "offset", plec_json_of_u64(tensor->offset), "file_offset",
                     plec_json_of_u64(tensor->data_at), "file", (json_int_t)tensor->shard, "flags",
                     flags_json(tensor->flags));
}

static json_t *total_json(const struct plec_type_total *total) {
    char type[PLEC_GGUF_TYPE_TEXT_MAX];
    return json_pack(
        "{s:s, s:I, s:o, s:o, s:o}", "type", plec_gguf_type_text(total->type, type), "type_id",
        (json_int_t)total->type, "tensors", plec_json_of_u64(total->n_tensors), "elements",
        plec_json_of_u64(total->n_elements), "bytes", plec_json_of_u64(total->n_bytes));
}

static void put_findings(struct plec_json_stream *json, const struct plec_gguf_view *view) {
    const struct plec_findings *findings = &view->set.findings;
    plec_json_list_begin(json, "findings");
    for (size_t i = 0; i < findings->n_items; i++) {
        const struct plec_finding *item = &findings->items[i];
        plec_json_list_item(json, json_pack("{s:s, s:s, s:o}", "severity",
                                            item->severity == PLEC_DEFECT ? "defect" : "note",
                                            "name", item->name, "text",
                                            plec_json_of_view(plec_view_of(item->text))));
    }
    plec_json_list_end(json);
}

bool plec_gguf_view_json(const struct plec_gguf_view *view) {
    struct plec_json_stream json = {.out = stdout};
    const struct plec_gguf_set *set = &view->set;
    const struct plec_gguf *file = plec_gguf_set_main(set);
    struct plec_view name = {"", 0};
    (void)!plec_gguf_string(&name, file, plec_gguf_find_key_named(file, "general.name"), 0, NULL);
    plec_json_member(&json, "kind", json_string("gguf"));
    plec_json_member(&json, "schema", json_integer(1));
    plec_json_member(&json, "bytes", plec_json_of_u64(plec_gguf_view_bytes(view)));
    plec_json_member(&json, "byte_order", json_string("little"));
    plec_json_member(&json, "architecture", plec_json_of_view(plec_gguf_architecture(file)));
    plec_json_member(&json, "name", plec_json_of_view(name));
    plec_json_member(&json, "split", json_boolean(set->split));
    plec_json_list_begin(&json, "files");
    for (uint32_t i = 0; i < set->n_shards; i++)
        plec_json_list_item(&json, shard_json(&set->shards[i]));
    plec_json_list_end(&json);
    plec_json_list_begin(&json, "keys");
    for (uint32_t i = 0; i < set->n_shards; i++)
        for (uint32_t k = 0; k < set->shards[i].file.n_keys; k++)
            plec_json_list_item(&json,
                                key_json(&set->shards[i].file, &set->shards[i].file.keys[k], i));
    plec_json_list_end(&json);
    plec_json_list_begin(&json, "tensors");
    for (uint32_t i = 0; i < view->selection.n_tensors; i++)
        plec_json_list_item(&json, tensor_json(view->selection.tensors[i]));
    plec_json_list_end(&json);
    plec_json_list_begin(&json, "totals");
    for (uint32_t i = 0; i < view->n_totals; i++)
        plec_json_list_item(&json, total_json(&view->totals[i]));
    plec_json_list_end(&json);
    plec_json_member(&json, "selected_tensors", plec_json_of_u64(view->selection.n_tensors));
    plec_json_member(&json, "selected_elements", plec_json_of_u64(view->selection.n_elements));
    plec_json_member(&json, "selected_bytes", plec_json_of_u64(view->selection.n_bytes));
    bool good = plec_moe_view_json(&json, set);
    put_findings(&json, view);
    plec_json_member(&json, "sound", json_boolean(set->findings.n_defects == 0));
    return plec_json_end(&json) && good;
}
