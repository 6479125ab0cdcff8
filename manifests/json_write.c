#include "manifests/json.h"

#include <stdio.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "manifests/json_place.h"

/* A growing text. Once an append fails, all later ones do nothing. */
struct text {
    char *bytes; /* [size], of capacity */
    size_t size, capacity;
    bool failed;
};

static void append(struct text *to, const char *bytes, size_t n_bytes) {
    if (to->failed) return;
    if (n_bytes > to->capacity - to->size) {
        size_t capacity = to->capacity;
        while (capacity - to->size < n_bytes)
            capacity = capacity == 0 ? 4096 : capacity * 2;
        char *grown = realloc(to->bytes, capacity);
        if (grown == NULL) {
            to->failed = true;
            return;
        }
        to->bytes = grown;
        to->capacity = capacity;
    }
    memcpy(to->bytes + to->size, bytes, n_bytes);
    to->size += n_bytes;
}

static void append_line(struct text *to, size_t depth) {
    append(to, "\n", 1);
    for (size_t i = 0; i < depth; i++)
        append(to, "  ", 2);
}

/* The fewest digits that read back as the same double: 15 always suffice for what a person wrote
 * with 15, 17 for any double. */
static size_t real_digits(double value) {
    for (int digits = 15; digits < 17; digits++) {
        char spelled[40];
        snprintf(spelled, sizeof spelled, "%.*g", digits, value);
        if (strtod(spelled, NULL) == value) return (size_t)digits;
    }
    return 17;
}

static int take_bytes(const char *bytes, size_t n_bytes, void *to) {
    append(to, bytes, n_bytes);
    return 0;
}

static void append_scalar(struct text *to, const json_t *value) {
    size_t flags = JSON_ENCODE_ANY;
    if (json_is_real(value)) flags |= JSON_REAL_PRECISION(real_digits(json_real_value(value)));
    if (json_dump_callback(value, take_bytes, to, flags) != 0) to->failed = true;
}

static void append_key(struct text *to, const char *key) {
    json_t *name = json_string(key);
    if (name == NULL)
        to->failed = true;
    else
        append_scalar(to, name);
    json_decref(name);
    append(to, ": ", 2);
}

/* Recursion is bounded by PLEC_JSON_DEPTH_MAX: a deeper document could not be read back. */
static void append_value(struct text *to, const json_t *value, size_t depth) {
    bool array = json_is_array(value);
    if (!array && !json_is_object(value)) {
        append_scalar(to, value);
        return;
    }
    if (depth == PLEC_JSON_DEPTH_MAX) {
        to->failed = true;
        return;
    }
    size_t n = array ? json_array_size(value) : json_object_size(value);
    void *member = array ? NULL : json_object_iter((json_t *)(uintptr_t)value);
    append(to, array ? "[" : "{", 1);
    for (size_t i = 0; i < n && !to->failed; i++) {
        if (i > 0) append(to, ",", 1);
        append_line(to, depth + 1);
        if (array) {
            append_value(to, json_array_get(value, i), depth + 1);
        } else {
            append_key(to, json_object_iter_key(member));
            append_value(to, json_object_iter_value(member), depth + 1);
            member = json_object_iter_next((json_t *)(uintptr_t)value, member);
        }
    }
    if (n > 0) append_line(to, depth);
    append(to, array ? "]" : "}", 1);
}

enum plec_status plec_json_format(char **out, size_t *n_bytes, const json_t *document,
                                  struct plec_error *err) {
    struct text text = {0};
    append_value(&text, document, 0);
    append(&text, "", 1);
    if (text.failed) {
        free(text.bytes);
        *out = NULL;
        *n_bytes = 0;
        return plec_fail(err, PLEC_NO_MEMORY, "CannotFormat",
                         "JSON: out of memory or nested deeper than %d", PLEC_JSON_DEPTH_MAX);
    }
    *out = text.bytes;
    *n_bytes = text.size - 1;
    return PLEC_OK;
}

enum plec_status plec_json_store(const char *path, const json_t *document, struct plec_error *err) {
    char *bytes;
    size_t n_bytes;
    enum plec_status status = plec_json_format(&bytes, &n_bytes, document, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", path);
        return status;
    }
    status = plec_atomic_file_store(path, bytes, n_bytes, err);
    free(bytes);
    return status;
}
