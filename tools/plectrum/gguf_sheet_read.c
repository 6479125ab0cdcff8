/* Reads a dump back, strictly: no member unknown, none left out, every value in its range. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "manifests/json.h"
#include "tools/plectrum/gguf_sheet.h"

/* Where the reader stands, for messages, and the one fault. */
struct reading {
    struct plec_sheet *sheet;
    struct plec_error *err;
    enum plec_status status;
    const char *what; /* "file", "key", "tensor" */
    uint64_t index;
    size_t scratch_used, scratch_room;
};

static void fault(struct reading *r, const char *member, const char *text) {
    if (r->status != PLEC_OK) return;
    r->status = plec_fail(r->err, PLEC_MALFORMED, "BadDump", "%s %llu: member \"%s\": %s", r->what,
                          (unsigned long long)r->index, member, text);
}

/* Every member of the object stands in the list, which a NULL ends. */
static void only(struct reading *r, const json_t *object, const char *const *members) {
    const char *name;
    json_t *value;
    if (!json_is_object(object)) {
        fault(r, "", "not an object");
        return;
    }
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        const char *const *known = members;
        while (*known != NULL && strcmp(*known, name) != 0)
            known++;
        if (*known == NULL) fault(r, name, "an unknown field");
    }
}

/* An integer of up to 64 bits: a number, or a string of digits above 63. */
static uint64_t get_u64(struct reading *r, const json_t *object, const char *member) {
    const json_t *value = json_object_get(object, member);
    if (json_is_integer(value) && json_integer_value(value) >= 0)
        return (uint64_t)json_integer_value(value);
    if (json_is_string(value) && json_string_value(value)[0] >= '1') {
        char *end;
        errno = 0;
        unsigned long long number = strtoull(json_string_value(value), &end, 10);
        if (*end == '\0' && errno == 0 && number > INT64_MAX) return number;
    }
    fault(r, member, "wanted an integer of 0 or more");
    return 0;
}

static bool get_bool(struct reading *r, const json_t *object, const char *member) {
    const json_t *value = json_object_get(object, member);
    if (!json_is_boolean(value)) fault(r, member, "wanted true or false");
    return json_is_true(value);
}

/* Room in the scratch that views and values point into; it was sized for the whole document. */
static uint8_t *take_room(struct reading *r, size_t n) {
    if (n > r->scratch_room - r->scratch_used) {
        fault(r, "", "more text than the document has");
        return r->sheet->scratch;
    }
    uint8_t *room = r->sheet->scratch + r->scratch_used;
    r->scratch_used += n;
    return room;
}

static unsigned hex_digit(char c) {
    if (c >= '0' && c <= '9') return (unsigned)(c - '0');
    return c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10 : 16;
}

static struct plec_view unhex(struct reading *r, const char *member, const char *digits, size_t n) {
    uint8_t *bytes = take_room(r, n / 2);
    for (size_t i = 0; i + 1 < n && r->status == PLEC_OK; i += 2) {
        unsigned high = hex_digit(digits[i]), low = hex_digit(digits[i + 1]);
        if (high > 15 || low > 15) fault(r, member, "wanted hexadecimal digits");
        bytes[i / 2] = (uint8_t)(high << 4 | (low & 15));
    }
    if (n % 2 != 0) fault(r, member, "an odd number of hexadecimal digits");
    return (struct plec_view){(const char *)bytes, n / 2};
}

/* `member` as text, or `member_hex` as bytes; exactly one of them. */
static struct plec_view get_text(struct reading *r, const json_t *object, const char *member) {
    char hex_member[32];
    snprintf(hex_member, sizeof hex_member, "%s_hex", member);
    const json_t *text = json_object_get(object, member),
                 *hex = json_object_get(object, hex_member);
    if (json_is_string(text) && hex == NULL)
        return (struct plec_view){json_string_value(text), json_string_length(text)};
    if (json_is_string(hex) && text == NULL)
        return unhex(r, hex_member, json_string_value(hex), json_string_length(hex));
    fault(r, member, "wanted a string");
    return (struct plec_view){"", 0};
}

static const json_t *get_array(struct reading *r, const json_t *object, const char *member,
                               size_t most) {
    const json_t *value = json_object_get(object, member);
    if (!json_is_array(value)) fault(r, member, "wanted an array");
    if (json_array_size(value) > most) fault(r, member, "too many elements");
    return json_is_array(value) && json_array_size(value) <= most ? value : NULL;
}

static uint32_t get_value_type(struct reading *r, const json_t *object, const char *member) {
    const json_t *value = json_object_get(object, member);
    uint32_t type = json_is_string(value) ? plec_gguf_value_type_by_name(json_string_value(value))
                                          : PLEC_GGUF_N_VALUE_TYPES;
    if (type == PLEC_GGUF_N_VALUE_TYPES) fault(r, member, "wanted the name of a value type");
    return type;
}

/* -- keys ------------------------------------------------------------------------------------ */

static uint64_t real_bits(struct reading *r, const json_t *value, bool single) {
    if (json_is_string(value)) {
        char *end;
        const char *text = json_string_value(value);
        uint64_t bits = strtoull(text, &end, 16);
        if (strncmp(text, "0x", 2) != 0 || *end != '\0') fault(r, "value", "wanted a number");
        return bits;
    }
    if (!json_is_number(value)) fault(r, "value", "wanted a number");
    double real = json_number_value(value);
    float narrow = (float)real;
    uint32_t bits32;
    uint64_t bits64;
    memcpy(&bits32, &narrow, sizeof bits32);
    memcpy(&bits64, &real, sizeof bits64);
    return single ? bits32 : bits64;
}

/* The value's bytes as they stand in a file. */
static void read_scalar(struct reading *r, struct plec_sheet_key *key, const json_t *object) {
    const json_t *value = json_object_get(object, "value");
    unsigned n = plec_gguf_value_bytes(key->type);
    uint8_t bytes[8];
    if (key->type == PLEC_GGUF_F32 || key->type == PLEC_GGUF_F64)
        plec_store_u64(bytes, real_bits(r, value, key->type == PLEC_GGUF_F32));
    else if (key->type == PLEC_GGUF_U64)
        plec_store_u64(bytes, get_u64(r, object, "value"));
    else if (json_is_integer(value))
        plec_store_u64(bytes, (uint64_t)json_integer_value(value));
    else
        fault(r, "value", "wanted an integer");
    if (r->status != PLEC_OK) return;
    uint8_t *room = take_room(r, n);
    memcpy(room, bytes, n);
    key->value = room;
    key->value_bytes = n;
}

static void read_key(struct reading *r, struct plec_sheet_key *key, const json_t *object) {
    static const char *const of_array[] = {"name",         "name_hex", "type", "bytes",
                                           "element_type", "count",    NULL};
    static const char *const of_scalar[] = {"name",  "name_hex",  "type", "bytes",
                                            "value", "value_hex", NULL};
    key->name = get_text(r, object, "name");
    key->type = key->element_type = get_value_type(r, object, "type");
    key->record_bytes = get_u64(r, object, "bytes");
    key->count = 1;
    only(r, object, key->type == PLEC_GGUF_ARRAY ? of_array : of_scalar);
    if (key->type == PLEC_GGUF_ARRAY) {
        key->element_type = get_value_type(r, object, "element_type");
        key->count = get_u64(r, object, "count");
    } else if (key->type == PLEC_GGUF_STRING) {
        struct plec_view text = get_text(r, object, "value");
        key->value = (const uint8_t *)text.data;
        key->value_bytes = text.size;
    } else if (r->status == PLEC_OK) {
        read_scalar(r, key, object);
    }
}

/* -- tensors --------------------------------------------------------------------------------- */

static void read_type(struct reading *r, struct plec_sheet_tensor *tensor, const json_t *object) {
    const json_t *value = json_object_get(object, "type");
    const struct plec_gguf_type *type =
        json_is_string(value) ? plec_gguf_type_by_name(json_string_value(value)) : NULL;
    if (type != NULL && !type->removed)
        tensor->type = type->id;
    else if (json_is_integer(value) && json_integer_value(value) >= 0 &&
             json_integer_value(value) <= UINT32_MAX)
        tensor->type = (uint32_t)json_integer_value(value);
    else
        fault(r, "type", "wanted a tensor type");
}

/* Elements and bytes from shape and type alone; bytes as told where the type has no size. */
static void size_tensor(struct reading *r, struct plec_sheet_tensor *tensor) {
    const struct plec_gguf_type *type = plec_gguf_type_find(tensor->type);
    const uint64_t *ne = tensor->ne;
    uint64_t n = ne[0] != 0 && ne[1] != 0 && ne[2] != 0 && ne[3] != 0, bytes = tensor->n_bytes;
    for (uint32_t i = 0; i < PLEC_GGUF_MAX_DIMS && n != 0; i++)
        if (!plec_mul_u64(&n, n, ne[i])) fault(r, "dims", "the product overflows");
    tensor->n_elements = n;
    if (type == NULL || type->removed || r->status != PLEC_OK) return;
    if (tensor->ne[0] % type->block_elems != 0) fault(r, "dims", "rows are no whole blocks");
    if (!plec_mul_u64(&bytes, n / type->block_elems, type->block_bytes) || bytes != tensor->n_bytes)
        fault(r, "bytes", "not what shape and type say");
}

static void read_tensor(struct reading *r, struct plec_sheet_tensor *tensor, const json_t *object,
                        uint32_t file) {
    static const char *const members[] = {"name",   "name_hex", "dims", "type",
                                          "offset", "bytes",    NULL};
    only(r, object, members);
    tensor->name = get_text(r, object, "name");
    tensor->file = file;
    const json_t *dims = get_array(r, object, "dims", PLEC_GGUF_MAX_DIMS);
    tensor->n_dims = (uint32_t)json_array_size(dims);
    for (uint32_t i = 0; i < PLEC_GGUF_MAX_DIMS; i++) {
        const json_t *dim = json_array_get(dims, i);
        if (i < tensor->n_dims && !(json_is_integer(dim) && json_integer_value(dim) >= 0))
            fault(r, "dims", "wanted integers of 0 or more");
        tensor->ne[i] = i < tensor->n_dims ? (uint64_t)json_integer_value(dim) : 1;
    }
    read_type(r, tensor, object);
    tensor->offset = get_u64(r, object, "offset");
    tensor->n_bytes = get_u64(r, object, "bytes");
    size_tensor(r, tensor);
}

/* -- files ----------------------------------------------------------------------------------- */

static void read_file(struct reading *r, uint32_t i, const json_t *object) {
    static const char *const members[] = {"version",  "bytes",     "alignment",  "alignment_stated",
                                          "keys_end", "infos_end", "data_start", "keys",
                                          "tensors",  NULL};
    struct plec_sheet *sheet = r->sheet;
    struct plec_sheet_file *file = &sheet->files[i];
    only(r, object, members);
    file->version = (uint32_t)get_u64(r, object, "version");
    file->present = file->version != 0;
    file->n_bytes = get_u64(r, object, "bytes");
    file->alignment = get_u64(r, object, "alignment");
    file->alignment_stated = get_bool(r, object, "alignment_stated");
    file->infos_at = get_u64(r, object, "keys_end");
    file->infos_end = get_u64(r, object, "infos_end");
    file->data_at = get_u64(r, object, "data_start");
    if (file->present && (file->alignment == 0 || file->alignment > PLEC_GGUF_MAX_ALIGNMENT ||
                          (file->alignment & (file->alignment - 1)) != 0))
        fault(r, "alignment", "wanted a power of two");
    const json_t *keys = get_array(r, object, "keys", PLEC_GGUF_MAX_KEYS);
    const json_t *tensors = get_array(r, object, "tensors", PLEC_GGUF_MAX_TENSORS);
    file->first_key = sheet->n_keys;
    file->first_tensor = sheet->n_tensors;
    uint64_t at = PLEC_GGUF_HEAD_BYTES;
    for (r->index = 0, r->what = "key"; r->index < json_array_size(keys); r->index++) {
        struct plec_sheet_key *key = &sheet->keys[sheet->n_keys++];
        read_key(r, key, json_array_get(keys, r->index));
        key->at = at;
        at += key->record_bytes;
        file->n_keys++;
    }
    for (r->index = 0, r->what = "tensor"; r->index < json_array_size(tensors); r->index++) {
        read_tensor(r, &sheet->tensors[sheet->n_tensors++], json_array_get(tensors, r->index), i);
        file->n_tensors++;
    }
}

/* Records of all files together: what the tables must hold. */
static size_t count_records(const json_t *files, const char *member) {
    size_t n = 0;
    for (size_t i = 0; i < json_array_size(files); i++)
        n += json_array_size(json_object_get(json_array_get(files, i), member));
    return n;
}

static void read_document(struct reading *r, size_t n_bytes) {
    static const char *const members[] = {"kind", "schema", "files", NULL};
    struct plec_sheet *sheet = r->sheet;
    const json_t *root = sheet->dump, *kind = json_object_get(root, "kind");
    only(r, root, members);
    if (!json_is_string(kind) || strcmp(json_string_value(kind), "gguf-header") != 0)
        fault(r, "kind", "wanted \"gguf-header\"");
    if (get_u64(r, root, "schema") != 1) fault(r, "schema", "wanted 1");
    const json_t *files = get_array(r, root, "files", PLEC_GGUF_MAX_SHARDS);
    if (json_array_size(files) == 0) fault(r, "files", "empty");
    if (r->status != PLEC_OK) return;
    sheet->n_files = (uint32_t)json_array_size(files);
    sheet->files = calloc(sheet->n_files, sizeof *sheet->files);
    sheet->keys = calloc(count_records(files, "keys") + 1, sizeof *sheet->keys);
    sheet->tensors = calloc(count_records(files, "tensors") + 1, sizeof *sheet->tensors);
    r->scratch_room = n_bytes + 8; /* no value has more bytes than its text */
    sheet->scratch = malloc(r->scratch_room);
    if (!sheet->files || !sheet->keys || !sheet->tensors || !sheet->scratch) {
        r->status = plec_fail(r->err, PLEC_NO_MEMORY, "OutOfMemory", "the tables of a dump");
        return;
    }
    for (uint32_t i = 0; i < sheet->n_files && r->status == PLEC_OK; i++) {
        r->what = "file";
        r->index = i;
        read_file(r, i, json_array_get(files, i));
    }
}

enum plec_status plec_sheet_read(struct plec_sheet *out, const char *path, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->path = path;
    struct plec_mapping mapping;
    enum plec_status status = plec_mapping_open(&mapping, path, err);
    if (status != PLEC_OK) return status;
    status = plec_json_parse(&out->dump, (const char *)mapping.data, (size_t)mapping.size, err);
    if (status == PLEC_OK) {
        struct reading reading = {.sheet = out, .err = err, .what = "document"};
        read_document(&reading, (size_t)mapping.size);
        status = reading.status;
    }
    plec_mapping_close(&mapping);
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", path);
        plec_sheet_close(out);
    }
    return status;
}
