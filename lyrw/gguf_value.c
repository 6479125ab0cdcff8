/* Typed reading of metadata: any integer width in, the caller's type out, range-checked. */
#include "lyrw/gguf.h"

#include <string.h>

#include "lyrw/cursor.h"

/* A scalar as it stands in the file, before it becomes what the caller wants. */
struct scalar {
    enum { UNSIGNED, SIGNED, REAL, BOOL } kind;
    uint64_t u;
    int64_t i;
    double f;
};

static struct scalar load_scalar(const uint8_t *p, uint32_t type) {
    struct scalar value = {UNSIGNED, 0, 0, 0};
    struct plec_cursor cursor = plec_cursor_at(p, plec_gguf_value_bytes(type), 0);
    switch (type) {
    case PLEC_GGUF_U8: value.u = *p; break;
    case PLEC_GGUF_U16: value.u = plec_load_u16(p); break;
    case PLEC_GGUF_U32: value.u = plec_load_u32(p); break;
    case PLEC_GGUF_U64: value.u = plec_load_u64(p); break;
    case PLEC_GGUF_I8: value = (struct scalar){SIGNED, 0, (int8_t)*p, 0}; break;
    case PLEC_GGUF_I16: value = (struct scalar){SIGNED, 0, (int16_t)plec_load_u16(p), 0}; break;
    case PLEC_GGUF_I32: value = (struct scalar){SIGNED, 0, (int32_t)plec_load_u32(p), 0}; break;
    case PLEC_GGUF_I64: value = (struct scalar){SIGNED, 0, (int64_t)plec_load_u64(p), 0}; break;
    case PLEC_GGUF_F32: value = (struct scalar){REAL, 0, 0, plec_cursor_f32(&cursor)}; break;
    case PLEC_GGUF_F64: value = (struct scalar){REAL, 0, 0, plec_cursor_f64(&cursor)}; break;
    default: value = (struct scalar){BOOL, *p, 0, 0}; break;
    }
    return value;
}

static enum plec_status fail_value(struct plec_error *err, const struct plec_gguf_key *key,
                                   const char *name, const char *text) {
    char key_text[PLEC_VIEW_TEXT_MAX];
    bool array = key->type == PLEC_GGUF_ARRAY;
    return plec_fail_at(err, PLEC_MALFORMED, name, key->value_at, "key \"%s\" (%s%s): %s",
                        plec_view_text(key->name, key_text), array ? "array of " : "",
                        plec_gguf_value_type_name(key->element_type), text);
}

static enum plec_status check_element(const struct plec_gguf_key *key, uint64_t i,
                                      struct plec_error *err) {
    if (key == NULL) return plec_fail(err, PLEC_MISSING, "NoSuchKey", "the file has no such key");
    if (i < key->count) return PLEC_OK;
    char text[PLEC_VIEW_TEXT_MAX];
    return plec_fail(err, PLEC_BAD_INPUT, "NoSuchElement", "key \"%s\": element %llu of %llu",
                     plec_view_text(key->name, text), (unsigned long long)i,
                     (unsigned long long)key->count);
}

static enum plec_status get_scalar(struct scalar *out, const struct plec_gguf *file,
                                   const struct plec_gguf_key *key, uint64_t i,
                                   struct plec_error *err) {
    enum plec_status status = check_element(key, i, err);
    if (status != PLEC_OK) return status;
    unsigned each = plec_gguf_value_bytes(key->element_type);
    if (each == 0) return fail_value(err, key, "WrongType", "wanted a number");
    *out = load_scalar(file->data + key->value_at + i * each, key->element_type);
    return PLEC_OK;
}

enum plec_status plec_gguf_u64(uint64_t *out, const struct plec_gguf *file,
                               const struct plec_gguf_key *key, uint64_t i,
                               struct plec_error *err) {
    struct scalar value;
    enum plec_status status = get_scalar(&value, file, key, i, err);
    if (status != PLEC_OK) return status;
    if (value.kind == REAL || value.kind == BOOL)
        return fail_value(err, key, "WrongType", "wanted an integer");
    if (value.kind == SIGNED && value.i < 0)
        return fail_value(err, key, "OutOfRange", "a negative number, wanted 0 or more");
    *out = value.kind == SIGNED ? (uint64_t)value.i : value.u;
    return PLEC_OK;
}

enum plec_status plec_gguf_i64(int64_t *out, const struct plec_gguf *file,
                               const struct plec_gguf_key *key, uint64_t i,
                               struct plec_error *err) {
    struct scalar value;
    enum plec_status status = get_scalar(&value, file, key, i, err);
    if (status != PLEC_OK) return status;
    if (value.kind == REAL || value.kind == BOOL)
        return fail_value(err, key, "WrongType", "wanted an integer");
    if (value.kind == UNSIGNED && value.u > INT64_MAX)
        return fail_value(err, key, "OutOfRange", "more than a signed 64-bit integer holds");
    *out = value.kind == UNSIGNED ? (int64_t)value.u : value.i;
    return PLEC_OK;
}

/* Integers up to 2^53 are exact in a double. */
static bool exact_in_double(const struct scalar *value) {
    const uint64_t limit = UINT64_C(1) << 53;
    if (value->kind == UNSIGNED) return value->u <= limit;
    return value->i <= (int64_t)limit && value->i >= -(int64_t)limit;
}

enum plec_status plec_gguf_f64(double *out, const struct plec_gguf *file,
                               const struct plec_gguf_key *key, uint64_t i,
                               struct plec_error *err) {
    struct scalar value;
    enum plec_status status = get_scalar(&value, file, key, i, err);
    if (status != PLEC_OK) return status;
    if (value.kind == BOOL) return fail_value(err, key, "WrongType", "wanted a number");
    if (value.kind != REAL && !exact_in_double(&value))
        return fail_value(err, key, "OutOfRange", "an integer that a double does not hold");
    *out = value.kind == REAL ? value.f : value.kind == SIGNED ? (double)value.i : (double)value.u;
    return PLEC_OK;
}

enum plec_status plec_gguf_bool(bool *out, const struct plec_gguf *file,
                                const struct plec_gguf_key *key, uint64_t i,
                                struct plec_error *err) {
    struct scalar value;
    enum plec_status status = get_scalar(&value, file, key, i, err);
    if (status != PLEC_OK) return status;
    if (value.kind == REAL) return fail_value(err, key, "WrongType", "wanted a bool");
    bool one_or_zero = value.kind == SIGNED ? value.i == 0 || value.i == 1 : value.u <= 1;
    if (value.kind != BOOL && !one_or_zero)
        return fail_value(err, key, "OutOfRange", "an integer other than 0 and 1, wanted a bool");
    *out = value.u != 0 || value.i != 0;
    return PLEC_OK;
}

struct plec_view plec_gguf_next_string(const struct plec_gguf *file, uint64_t *at) {
    /* The walk over the header has checked that this length and its bytes are there. */
    uint64_t size = plec_load_u64(file->data + *at);
    struct plec_view view = {(const char *)file->data + *at + 8, size};
    *at += 8 + size;
    return view;
}

enum plec_status plec_gguf_string(struct plec_view *out, const struct plec_gguf *file,
                                  const struct plec_gguf_key *key, uint64_t i,
                                  struct plec_error *err) {
    enum plec_status status = check_element(key, i, err);
    if (status != PLEC_OK) return status;
    if (key->element_type != PLEC_GGUF_STRING)
        return fail_value(err, key, "WrongType", "wanted a string");
    if (key->type == PLEC_GGUF_STRING) {
        *out = (struct plec_view){(const char *)file->data + key->value_at, key->n_bytes};
        return PLEC_OK;
    }
    uint64_t at = key->value_at;
    for (uint64_t skipped = 0; skipped < i; skipped++)
        plec_gguf_next_string(file, &at);
    *out = plec_gguf_next_string(file, &at);
    return PLEC_OK;
}

struct plec_view plec_gguf_architecture(const struct plec_gguf *file) {
    struct plec_view view = {"", 0};
    const struct plec_gguf_key *key = plec_gguf_find_key_named(file, "general.architecture");
    if (key != NULL && key->type == PLEC_GGUF_STRING)
        (void)!plec_gguf_string(&view, file, key, 0, NULL);
    return view;
}

const struct plec_gguf_key *plec_gguf_find_arch_key(const struct plec_gguf *file,
                                                    const char *suffix) {
    char name[256];
    struct plec_view arch = plec_gguf_architecture(file);
    size_t n_suffix = strlen(suffix);
    if (arch.size + 1 + n_suffix > sizeof name) return NULL;
    memcpy(name, arch.data, (size_t)arch.size);
    name[arch.size] = '.';
    memcpy(name + arch.size + 1, suffix, n_suffix);
    return plec_gguf_find_key(file, (struct plec_view){name, arch.size + 1 + n_suffix});
}
