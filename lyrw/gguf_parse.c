/* The walk over a GGUF header: head, keys, tensor records. Every count and length is compared with
 * what is left of the file before it is used, by division or subtraction, never by a product or sum
 * that could wrap. */
#include "lyrw/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/gguf_parts.h"

/* A header that ends early is the one fault that looking forgives; it travels under this name. */
static const char truncated[] = "Truncated";

static enum plec_status too_few_left(struct plec_error *err, const struct plec_cursor *cursor,
                                     const char *what, uint64_t count, uint64_t each) {
    return plec_fail_at(err, PLEC_MALFORMED, truncated, cursor->at,
                        "%s %llu needs at least %llu bytes each, the file has %llu bytes left",
                        what, (unsigned long long)count, (unsigned long long)each,
                        (unsigned long long)plec_cursor_left(cursor));
}

static enum plec_status out_of_memory(struct plec_error *err, const char *what, uint32_t n) {
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a table of %u %s", n, what);
}

/* -- head ------------------------------------------------------------------------------------ */

static enum plec_status check_version(uint32_t version, struct plec_error *err) {
    if (version == 2 || version == 3) return PLEC_OK;
    if (version == 1)
        return plec_fail_at(err, PLEC_MALFORMED, "OldVersion", 4,
                            "GGUF version 1 (2023) has 32-bit lengths and is read by nobody any "
                            "more: re-convert the model");
    if (version != 0 && (version & 0xFFFFu) == 0)
        return plec_fail_at(err, PLEC_MALFORMED, "BigEndian", 4,
                            "the version reads %u: this is a big-endian GGUF of version %u; only "
                            "little-endian files are supported",
                            version, version >> 24);
    return plec_fail_at(err, PLEC_MALFORMED, "UnknownVersion", 4,
                        "GGUF version %u; versions 2 and 3 are known", version);
}

static enum plec_status check_magic(const struct plec_gguf *file, struct plec_error *err) {
    static const uint8_t magic[4] = {0x47, 0x47, 0x55, 0x46};
    if (file->size == 0)
        return plec_fail_at(err, PLEC_MALFORMED, truncated, 0,
                            "the file is empty; a GGUF file opens with 24 bytes of head");
    uint64_t n = file->size < 4 ? file->size : 4;
    if (memcmp(file->data, magic, (size_t)n) == 0) return PLEC_OK;
    char text[PLEC_VIEW_TEXT_MAX];
    plec_view_text((struct plec_view){(const char *)file->data, n}, text);
    return plec_fail_at(err, PLEC_MALFORMED, "NotGguf", 0,
                        "not a GGUF file: the magic is \"%s\", wanted \"GGUF\"", text);
}

/* Counts against the limits only: fewer bytes left than they need is a header cut short, and how
 * far it goes can still be shown. */
static enum plec_status walk_head(struct plec_gguf *file, struct plec_cursor *cursor,
                                  struct plec_error *err) {
    enum plec_status status = check_magic(file, err);
    if (status != PLEC_OK) return status;
    plec_cursor_bytes(cursor, 4);
    file->version = plec_cursor_u32(cursor);
    if (cursor->failed) return plec_cursor_status(cursor, "the version", err);
    status = check_version(file->version, err);
    if (status != PLEC_OK) return status;
    file->n_tensors_stated = plec_cursor_u64(cursor);
    file->n_keys_stated = plec_cursor_u64(cursor);
    if (cursor->failed) return plec_cursor_status(cursor, "the counts of tensors and keys", err);
    if (file->n_tensors_stated > PLEC_GGUF_MAX_TENSORS)
        return plec_fail_at(err, PLEC_MALFORMED, "TooManyTensors", 8,
                            "the count of tensors is %llu; at most %d are read",
                            (unsigned long long)file->n_tensors_stated, PLEC_GGUF_MAX_TENSORS);
    if (file->n_keys_stated > PLEC_GGUF_MAX_KEYS)
        return plec_fail_at(err, PLEC_MALFORMED, "TooManyKeys", 16,
                            "the count of keys (KV) is %llu; at most %d are read",
                            (unsigned long long)file->n_keys_stated, PLEC_GGUF_MAX_KEYS);
    return PLEC_OK;
}

/* -- keys ------------------------------------------------------------------------------------ */

/* A string of at most `limit` bytes; err->byte is where its length stands. */
static enum plec_status walk_string(struct plec_view *out, struct plec_cursor *cursor,
                                    uint64_t limit, const char *fault, const char *what,
                                    struct plec_error *err) {
    uint64_t at = cursor->at, size = plec_cursor_u64(cursor);
    if (!cursor->failed && size > limit)
        return plec_fail_at(err, PLEC_MALFORMED, fault, at, "%s of %llu bytes; at most %llu", what,
                            (unsigned long long)size, (unsigned long long)limit);
    const uint8_t *bytes = plec_cursor_bytes(cursor, size);
    *out = (struct plec_view){(const char *)bytes, size};
    return plec_cursor_status(cursor, what, err);
}

static enum plec_status walk_array_strings(struct plec_gguf_key *key, struct plec_cursor *cursor,
                                           struct plec_error *err) {
    for (uint64_t i = 0; i < key->count; i++) {
        uint64_t at = cursor->at, size = plec_cursor_u64(cursor);
        if (!cursor->failed && size > PLEC_GGUF_MAX_STRING_BYTES)
            return plec_fail_at(err, PLEC_MALFORMED, "StringTooLong", at,
                                "element %llu of an array is a string of %llu bytes; at most %d",
                                (unsigned long long)i, (unsigned long long)size,
                                PLEC_GGUF_MAX_STRING_BYTES);
        plec_cursor_bytes(cursor, size);
        if (cursor->failed) return plec_cursor_status(cursor, "a string of an array", err);
    }
    return PLEC_OK;
}

static enum plec_status walk_array(struct plec_gguf_key *key, struct plec_cursor *cursor,
                                   struct plec_error *err) {
    key->element_type = plec_cursor_u32(cursor);
    uint64_t count_at = cursor->at;
    if (cursor->failed) return plec_cursor_status(cursor, "an array's element type", err);
    if (key->element_type == PLEC_GGUF_ARRAY)
        return plec_fail_at(err, PLEC_MALFORMED, "NestedArray", count_at,
                            "an array of arrays; only arrays of scalars and strings are read");
    if (key->element_type >= PLEC_GGUF_N_VALUE_TYPES)
        return plec_fail_at(err, PLEC_MALFORMED, "UnknownElementType", count_at,
                            "an array of value type %u, whose size is unknown; 0 to 12 are known",
                            key->element_type);
    key->count = plec_cursor_u64(cursor);
    if (cursor->failed) return plec_cursor_status(cursor, "an array's count", err);
    if (key->count > PLEC_GGUF_MAX_ARRAY_ITEMS)
        return plec_fail_at(err, PLEC_MALFORMED, "ArrayTooLong", count_at,
                            "an array of %llu elements is too large; at most %d are read",
                            (unsigned long long)key->count, PLEC_GGUF_MAX_ARRAY_ITEMS);
    unsigned each = plec_gguf_value_bytes(key->element_type);
    uint64_t least = each == 0 ? 8 : each;
    if (key->count > plec_cursor_left(cursor) / least)
        return too_few_left(err, cursor, "an array's count", key->count, least);
    key->value_at = cursor->at;
    if (key->element_type == PLEC_GGUF_STRING) return walk_array_strings(key, cursor, err);
    plec_cursor_bytes(cursor, key->count * each); /* count <= left / each: no wrap */
    return PLEC_OK;
}

static enum plec_status walk_value(struct plec_gguf_key *key, struct plec_cursor *cursor,
                                   struct plec_error *err) {
    key->element_type = key->type;
    key->count = 1;
    key->value_at = cursor->at;
    if (key->type == PLEC_GGUF_ARRAY) return walk_array(key, cursor, err);
    if (key->type == PLEC_GGUF_STRING) {
        struct plec_view text;
        key->value_at += 8;
        return walk_string(&text, cursor, PLEC_GGUF_MAX_STRING_BYTES, "StringTooLong", "a string",
                           err);
    }
    plec_cursor_bytes(cursor, plec_gguf_value_bytes(key->type));
    return plec_cursor_status(cursor, "a value", err);
}

static enum plec_status walk_key(struct plec_gguf_key *key, struct plec_cursor *cursor,
                                 struct plec_error *err) {
    *key = (struct plec_gguf_key){.at = cursor->at};
    enum plec_status status =
        walk_string(&key->name, cursor, PLEC_GGUF_MAX_KEY_BYTES, "KeyTooLong", "a key", err);
    if (status != PLEC_OK) return status;
    if (key->name.size == 0)
        return plec_fail_at(err, PLEC_MALFORMED, "EmptyKey", key->at, "a key of 0 bytes");
    key->type = plec_cursor_u32(cursor);
    status = plec_cursor_status(cursor, "a value type", err);
    if (status == PLEC_OK && key->type >= PLEC_GGUF_N_VALUE_TYPES)
        status = plec_fail_at(err, PLEC_MALFORMED, "UnknownValueType", cursor->at,
                              "value type %u; 0 to 12 are known", key->type);
    if (status == PLEC_OK) status = walk_value(key, cursor, err);
    if (status != PLEC_OK) {
        char text[PLEC_VIEW_TEXT_MAX];
        plec_error_context(err, "key \"%s\"", plec_view_text(key->name, text));
        return status;
    }
    key->n_bytes = cursor->at - key->value_at;
    return PLEC_OK;
}

static void note_odd_key(struct plec_gguf *file, const struct plec_gguf_key *key) {
    char text[PLEC_VIEW_TEXT_MAX];
    if (!plec_view_is_clean(key->name))
        plec_findings_add(&file->findings, PLEC_NOTE, "UnprintableKey",
                          "key \"%s\" has bytes that are not printable",
                          plec_view_text(key->name, text));
    if (key->element_type != PLEC_GGUF_BOOL) return;
    const uint8_t *values = file->data + key->value_at;
    for (uint64_t i = 0; i < key->count; i++) {
        if (values[i] <= 1) continue;
        plec_findings_add(&file->findings, PLEC_NOTE, "BadBool",
                          "key \"%s\": a bool holds %u, wanted 0 or 1; taken as true",
                          plec_view_text(key->name, text), values[i]);
        return;
    }
}

/* Room for one more, by doubling: memory follows the records read, not the count stated. */
static void *make_room(void *items, uint32_t *room, uint32_t n, size_t each) {
    if (n < *room) return items;
    uint32_t more = *room == 0 ? 64 : *room * 2;
    void *grown = realloc(items, (size_t)more * each);
    if (grown != NULL) *room = more;
    return grown;
}

static enum plec_status add_key(struct plec_gguf *file, struct plec_cursor *cursor,
                                struct plec_error *err) {
    void *room = make_room(file->keys, &file->keys_room, file->n_keys, sizeof *file->keys);
    if (room == NULL) return out_of_memory(err, "keys", file->n_keys);
    file->keys = room;
    struct plec_gguf_key *key = &file->keys[file->n_keys];
    enum plec_status status = walk_key(key, cursor, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "key %u of %llu", file->n_keys,
                           (unsigned long long)file->n_keys_stated);
        return status;
    }
    uint32_t twin;
    status = plec_name_index_add(&file->key_index, &twin, file->n_keys, err);
    if (status != PLEC_OK) return status;
    if (twin != file->n_keys) {
        char text[PLEC_VIEW_TEXT_MAX];
        return plec_fail_at(err, PLEC_MALFORMED, "DuplicateKey", key->at,
                            "duplicate key \"%s\": first at byte %llu, again",
                            plec_view_text(key->name, text),
                            (unsigned long long)file->keys[twin].at);
    }
    file->n_keys++;
    note_odd_key(file, key);
    return PLEC_OK;
}

static enum plec_status walk_keys(struct plec_gguf *file, struct plec_cursor *cursor,
                                  struct plec_error *err) {
    while (file->n_keys < file->n_keys_stated) {
        enum plec_status status = add_key(file, cursor, err);
        if (status != PLEC_OK) return status;
    }
    file->infos_at = cursor->at;
    return PLEC_OK;
}

static enum plec_status read_alignment(struct plec_gguf *file, struct plec_error *err) {
    const struct plec_gguf_key *key = plec_gguf_find_key_named(file, "general.alignment");
    if (key == NULL) return PLEC_OK;
    if (key->type != PLEC_GGUF_U32)
        return plec_fail_at(err, PLEC_MALFORMED, "BadAlignment", key->at,
                            "general.alignment is of type %s, wanted u32",
                            plec_gguf_value_type_name(key->type));
    uint32_t value = plec_load_u32(file->data + key->value_at);
    if (value == 0 || (value & (value - 1)) != 0 || value > PLEC_GGUF_MAX_ALIGNMENT)
        return plec_fail_at(err, PLEC_MALFORMED, "BadAlignment", key->value_at,
                            "general.alignment is %u; alignment must be a power of two, at most %d",
                            value, PLEC_GGUF_MAX_ALIGNMENT);
    if (value < 8)
        plec_findings_add(&file->findings, PLEC_NOTE, "SmallAlignment",
                          "general.alignment is %u; the alignment should be a multiple of 8",
                          value);
    file->alignment = value;
    file->alignment_stated = true;
    return PLEC_OK;
}

/* -- tensor records -------------------------------------------------------------------------- */

static enum plec_status walk_dims(struct plec_gguf_tensor *tensor, struct plec_cursor *cursor,
                                  struct plec_error *err) {
    uint64_t at = cursor->at;
    tensor->n_dims = plec_cursor_u32(cursor);
    if (!cursor->failed && tensor->n_dims > PLEC_GGUF_MAX_DIMS)
        return plec_fail_at(err, PLEC_MALFORMED, "TooManyDims", at, "%u dims; at most %d",
                            tensor->n_dims, PLEC_GGUF_MAX_DIMS);
    for (uint32_t i = 0; i < PLEC_GGUF_MAX_DIMS; i++) {
        at = cursor->at;
        tensor->ne[i] = i < tensor->n_dims ? plec_cursor_u64(cursor) : 1;
        if (tensor->ne[i] > INT64_MAX)
            return plec_fail_at(err, PLEC_MALFORMED, "BadDim", at,
                                "dim %u is %llu: negative or out of range", i,
                                (unsigned long long)tensor->ne[i]);
    }
    tensor->type = plec_cursor_u32(cursor);
    tensor->offset = plec_cursor_u64(cursor);
    return plec_cursor_status(cursor, "a tensor record", err);
}

/* Each dim is asked for 0 on its own: the product of large ones may wrap to it. */
static enum plec_status count_elements(struct plec_gguf_tensor *tensor, struct plec_error *err) {
    const uint64_t *ne = tensor->ne;
    if (ne[0] == 0 || ne[1] == 0 || ne[2] == 0 || ne[3] == 0) {
        tensor->flags |= PLEC_GGUF_NO_ELEMENTS;
        return PLEC_OK;
    }
    uint64_t n = ne[0];
    for (unsigned i = 1; i < PLEC_GGUF_MAX_DIMS; i++)
        if (!plec_mul_u64(&n, n, ne[i])) n = UINT64_MAX;
    if (n > INT64_MAX)
        return plec_fail_at(err, PLEC_MALFORMED, "ElementOverflow", tensor->at,
                            "dims %llu x %llu x %llu x %llu: the number of elements overflows",
                            (unsigned long long)ne[0], (unsigned long long)ne[1],
                            (unsigned long long)ne[2], (unsigned long long)ne[3]);
    tensor->n_elements = n;
    return PLEC_OK;
}

static enum plec_status size_tensor(struct plec_gguf_tensor *tensor, struct plec_error *err) {
    enum plec_status status = count_elements(tensor, err);
    if (status != PLEC_OK) return status;
    const struct plec_gguf_type *type = plec_gguf_type_find(tensor->type);
    if (type == NULL || type->removed) {
        tensor->flags |= PLEC_GGUF_TYPE_UNKNOWN; /* sized by the next offset, in gguf_check.c */
        return PLEC_OK;
    }
    if (tensor->ne[0] % type->block_elems != 0)
        return plec_fail_at(err, PLEC_MALFORMED, "NotWholeBlocks", tensor->at,
                            "rows of %llu elements are no multiple of the %s block of %u",
                            (unsigned long long)tensor->ne[0], type->name, type->block_elems);
    if (!plec_mul_u64(&tensor->n_bytes, tensor->n_elements / type->block_elems, type->block_bytes))
        return plec_fail_at(err, PLEC_MALFORMED, "SizeOverflow", tensor->at,
                            "%llu elements of %s: the size in bytes overflows",
                            (unsigned long long)tensor->n_elements, type->name);
    return PLEC_OK;
}

static enum plec_status walk_tensor(struct plec_gguf_tensor *tensor, struct plec_cursor *cursor,
                                    struct plec_error *err) {
    *tensor = (struct plec_gguf_tensor){.at = cursor->at};
    enum plec_status status = walk_string(&tensor->name, cursor, PLEC_GGUF_MAX_NAME_BYTES,
                                          "NameTooLong", "a tensor name", err);
    if (status != PLEC_OK) return status;
    if (tensor->name.size == 0)
        return plec_fail_at(err, PLEC_MALFORMED, "EmptyName", tensor->at,
                            "a tensor name of 0 bytes");
    status = walk_dims(tensor, cursor, err);
    if (status == PLEC_OK) status = size_tensor(tensor, err);
    if (status == PLEC_OK) return PLEC_OK;
    char text[PLEC_VIEW_TEXT_MAX];
    plec_error_context(err, "tensor \"%s\"", plec_view_text(tensor->name, text));
    return status;
}

static enum plec_status add_tensor(struct plec_gguf *file, struct plec_cursor *cursor,
                                   struct plec_error *err) {
    void *room =
        make_room(file->tensors, &file->tensors_room, file->n_tensors, sizeof *file->tensors);
    if (room == NULL) return out_of_memory(err, "tensors", file->n_tensors);
    file->tensors = room;
    struct plec_gguf_tensor *tensor = &file->tensors[file->n_tensors];
    enum plec_status status = walk_tensor(tensor, cursor, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "tensor %u of %llu", file->n_tensors,
                           (unsigned long long)file->n_tensors_stated);
        return status;
    }
    uint32_t twin;
    status = plec_name_index_add(&file->tensor_index, &twin, file->n_tensors, err);
    if (status != PLEC_OK) return status;
    if (twin != file->n_tensors) {
        char text[PLEC_VIEW_TEXT_MAX];
        return plec_fail_at(err, PLEC_MALFORMED, "DuplicateTensor", tensor->at,
                            "duplicate tensor name \"%s\": first at byte %llu, again",
                            plec_view_text(tensor->name, text),
                            (unsigned long long)file->tensors[twin].at);
    }
    file->n_tensors++;
    return PLEC_OK;
}

static enum plec_status walk_tensors(struct plec_gguf *file, struct plec_cursor *cursor,
                                     struct plec_error *err) {
    while (file->n_tensors < file->n_tensors_stated) {
        enum plec_status status = add_tensor(file, cursor, err);
        if (status != PLEC_OK) return status;
    }
    file->infos_end = cursor->at;
    file->data_at = cursor->at;
    if (file->n_tensors > 0 && !plec_round_up_u64(&file->data_at, file->infos_end, file->alignment))
        return plec_fail_at(err, PLEC_MALFORMED, "SizeOverflow", cursor->at,
                            "the start of the data overflows");
    return PLEC_OK;
}

/* -- all of it ------------------------------------------------------------------------------- */

static enum plec_status walk_body(struct plec_gguf *file, struct plec_cursor *cursor,
                                  struct plec_error *err) {
    if (file->n_keys_stated > 0 && plec_cursor_left(cursor) < PLEC_GGUF_MIN_KEY_RECORD)
        return too_few_left(err, cursor, "the count of keys (KV)", file->n_keys_stated,
                            PLEC_GGUF_MIN_KEY_RECORD);
    enum plec_status status = walk_keys(file, cursor, err);
    if (status == PLEC_OK) status = read_alignment(file, err);
    if (status != PLEC_OK) return status;
    if (file->n_tensors_stated > 0 && plec_cursor_left(cursor) < PLEC_GGUF_MIN_TENSOR_RECORD)
        return too_few_left(err, cursor, "the count of tensors", file->n_tensors_stated,
                            PLEC_GGUF_MIN_TENSOR_RECORD);
    return walk_tensors(file, cursor, err);
}

enum plec_status plec_gguf_walk_header(struct plec_gguf *file, struct plec_error *err) {
    struct plec_cursor cursor = plec_cursor_at(file->data, file->size, 0);
    enum plec_status status = walk_head(file, &cursor, err);
    if (status != PLEC_OK) return status;
    struct plec_error fault;
    status = walk_body(file, &cursor, &fault);
    file->complete = status == PLEC_OK;
    if (file->complete) return PLEC_OK;
    if (strcmp(fault.name, truncated) != 0) {
        if (err != NULL) *err = fault;
        return status;
    }
    file->cut = fault;
    if (file->infos_at == 0) {
        status = read_alignment(file, err);
        if (status != PLEC_OK) return status;
    }
    plec_findings_add(
        &file->findings, PLEC_DEFECT, "HeaderIncomplete",
        "the header is cut short (truncated) at byte %llu, where the file ends: %u of "
        "%llu keys and %u of %llu tensors are there; %s",
        (unsigned long long)file->size, file->n_keys, (unsigned long long)file->n_keys_stated,
        file->n_tensors, (unsigned long long)file->n_tensors_stated, fault.message);
    return PLEC_OK;
}
