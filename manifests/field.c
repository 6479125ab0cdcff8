#include "manifests/field.h"

#include <stdio.h>
#include <string.h>

#include "manifests/index.h"

/* Appends to text [capacity]; returns the new length. What does not fit is cut. */
static size_t append(char *text, size_t capacity, size_t at, const char *part) {
    int n = snprintf(text + at, capacity - at, "%s", part);
    if (n < 0) return at;
    return (size_t)n < capacity - at ? at + (size_t)n : capacity - 1;
}

static size_t append_name(char *path, size_t capacity, size_t at, const char *name) {
    if (at > 0) at = append(path, capacity, at, ".");
    return append(path, capacity, at, name);
}

/* Documents nest at most PLEC_JSON_DEPTH_MAX deep, and so do these. */
static size_t append_path(char *path, size_t capacity, const struct plec_fields *from) {
    if (from->parent == NULL) return 0;
    size_t at = append_path(path, capacity, from->parent);
    at = append_name(path, capacity, at, from->name);
    if (!from->in_array) return at;
    char index[32];
    snprintf(index, sizeof index, "[%zu]", from->index);
    return append(path, capacity, at, index);
}

void plec_field_fault(const struct plec_fields *from, const char *name, const char *error_name,
                      const char *format, ...) {
    if (from->report->status != PLEC_OK) return;
    char path[256] = "", text[PLEC_ERROR_MESSAGE_MAX];
    size_t at = append_path(path, sizeof path, from);
    if (name != NULL) at = append_name(path, sizeof path, at, name);
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    from->report->status =
        at > 0 ? plec_fail(from->report->err, PLEC_MALFORMED, error_name, "`%s`: %s", path, text)
               : plec_fail(from->report->err, PLEC_MALFORMED, error_name, "%s", text);
}

/* "the string \"x\"", "the integer 5", "null", "an object": for messages. */
static const char *describe(char *text, size_t capacity, const json_t *value) {
    switch (json_typeof(value)) {
    case JSON_OBJECT: return "an object";
    case JSON_ARRAY: return "an array";
    case JSON_NULL: return "null";
    case JSON_TRUE: return "true";
    case JSON_FALSE: return "false";
    case JSON_STRING:
        snprintf(text, capacity, "the string \"%.80s\"", json_string_value(value));
        return text;
    case JSON_INTEGER:
        snprintf(text, capacity, "the integer %lld", (long long)json_integer_value(value));
        return text;
    case JSON_REAL:
        snprintf(text, capacity, "the number %.17g", json_real_value(value));
        return text;
    }
    return "nothing";
}

static void wrong_type(const struct plec_fields *from, const char *name, const json_t *value,
                       const char *wanted) {
    char found[128];
    plec_field_fault(from, name, "WrongType", "expected %s, found %s", wanted,
                     describe(found, sizeof found, value));
}

/* The member; NULL when absent. Nothing is read once a fault is reported. */
static const json_t *get(const struct plec_fields *from, const char *name) {
    if (from->object == NULL || from->report->status != PLEC_OK) return NULL;
    return json_object_get(from->object, name);
}

static const json_t *get_required(const struct plec_fields *from, const char *name) {
    const json_t *value = get(from, name);
    if (value == NULL && from->object != NULL)
        plec_field_fault(from, NULL, "MissingField", "missing field `%s`", name);
    return value;
}

static const json_t *get_or_none(const struct plec_fields *from, const char *name) {
    const json_t *value = get(from, name);
    return json_is_null(value) ? NULL : value;
}

struct plec_fields plec_fields_root(const json_t *document, struct plec_field_report *report) {
    struct plec_fields root = {.object = document, .report = report};
    if (!json_is_object(document)) {
        root.object = NULL;
        wrong_type(&root, NULL, document, "an object at the root");
    }
    return root;
}

static struct plec_fields child(const struct plec_fields *from, const char *name,
                                const json_t *value) {
    struct plec_fields fields = {.parent = from, .name = name, .report = from->report};
    if (value == NULL) return fields;
    if (json_is_object(value))
        fields.object = value;
    else
        wrong_type(from, name, value, "an object");
    return fields;
}

struct plec_fields plec_fields_member(const struct plec_fields *from, const char *name) {
    return child(from, name, get_required(from, name));
}

struct plec_fields plec_fields_member_or_none(const struct plec_fields *from, const char *name) {
    return child(from, name, get_or_none(from, name));
}

struct plec_fields plec_fields_item(const struct plec_fields *from, const char *name,
                                    const json_t *array, size_t index) {
    struct plec_fields fields = {
        .parent = from, .name = name, .in_array = true, .index = index, .report = from->report};
    const json_t *value = json_array_get(array, index);
    if (json_is_object(value))
        fields.object = value;
    else
        wrong_type(&fields, NULL, value, "an object");
    return fields;
}

static const char *take_string(const struct plec_fields *from, const char *name,
                               const json_t *value) {
    if (value == NULL) return NULL;
    if (!json_is_string(value)) {
        wrong_type(from, name, value, "a string");
        return NULL;
    }
    const char *text = json_string_value(value);
    if (strlen(text) == json_string_length(value)) return text;
    plec_field_fault(from, name, "NulInString", "a NUL after \"%.80s\"", text);
    return NULL;
}

/* Readers of required strings never return NULL, so that nobody need ask before the report. */
static const char *or_empty(const char *text) {
    return text != NULL ? text : "";
}

const char *plec_field_string(const struct plec_fields *from, const char *name) {
    return or_empty(take_string(from, name, get_required(from, name)));
}

const char *plec_field_string_or_none(const struct plec_fields *from, const char *name) {
    return take_string(from, name, get_or_none(from, name));
}

static const char *take_key(const struct plec_fields *from, const char *name, const json_t *value) {
    if (json_is_string(value) && strlen(json_string_value(value)) != json_string_length(value)) {
        plec_field_fault(from, name, "UnsafeKey", "a NUL after \"%.80s\"",
                         json_string_value(value));
        return NULL;
    }
    const char *key = take_string(from, name, value);
    if (key == NULL || plec_key_is_safe(key)) return key;
    plec_field_fault(from, name, "UnsafeKey", "\"%.200s\" does not stay under the container", key);
    return NULL;
}

const char *plec_field_key(const struct plec_fields *from, const char *name) {
    return or_empty(take_key(from, name, get_required(from, name)));
}

const char *plec_field_key_or_none(const struct plec_fields *from, const char *name) {
    return take_key(from, name, get_or_none(from, name));
}

static int64_t take_unsigned(const struct plec_fields *from, const char *name, const json_t *value,
                             int64_t largest) {
    if (value == NULL) return 0;
    if (!json_is_integer(value) || json_integer_value(value) < 0) {
        wrong_type(from, name, value, "a non-negative integer");
        return 0;
    }
    if (json_integer_value(value) <= largest) return json_integer_value(value);
    plec_field_fault(from, name, "IntegerRange", "%lld is more than %lld",
                     (long long)json_integer_value(value), (long long)largest);
    return 0;
}

uint32_t plec_field_u32(const struct plec_fields *from, const char *name) {
    return (uint32_t)take_unsigned(from, name, get_required(from, name), UINT32_MAX);
}

bool plec_field_u32_or_none(uint32_t *out, const struct plec_fields *from, const char *name) {
    const json_t *value = get_or_none(from, name);
    *out = (uint32_t)take_unsigned(from, name, value, UINT32_MAX);
    return value != NULL;
}

int64_t plec_field_unsigned(const struct plec_fields *from, const char *name) {
    return take_unsigned(from, name, get_required(from, name), INT64_MAX);
}

static bool take_bool(const struct plec_fields *from, const char *name, const json_t *value) {
    if (!json_is_boolean(value)) wrong_type(from, name, value, "true or false");
    return json_is_true(value);
}

bool plec_field_bool(const struct plec_fields *from, const char *name, bool absent) {
    const json_t *value = get(from, name);
    return value == NULL ? absent : take_bool(from, name, value);
}

bool plec_field_bool_or_none(bool *out, const struct plec_fields *from, const char *name) {
    const json_t *value = get_or_none(from, name);
    *out = value != NULL && take_bool(from, name, value);
    return value != NULL;
}

bool plec_field_real_or_none(double *out, const struct plec_fields *from, const char *name) {
    const json_t *value = get_or_none(from, name);
    *out = 0;
    if (value == NULL) return false;
    if (!json_is_number(value)) wrong_type(from, name, value, "a number");
    *out = json_number_value(value);
    return true;
}

static void unknown_variant(const struct plec_fields *from, const char *name, const char *found,
                            const char *const *names) {
    char expected[400] = "";
    size_t at = 0;
    for (size_t i = 0; names[i] != NULL; i++) {
        if (i > 0) at = append(expected, sizeof expected, at, ", ");
        at = append(expected, sizeof expected, at, names[i]);
    }
    plec_field_fault(from, NULL, "UnknownVariant",
                     "unknown variant `%.80s` for `%s`, expected one of [%s]", found, name,
                     expected);
}

static int take_choice(const struct plec_fields *from, const char *name, const json_t *value,
                       const char *const *names) {
    const char *text = take_string(from, name, value);
    if (text == NULL) return -1;
    for (int i = 0; names[i] != NULL; i++)
        if (strcmp(names[i], text) == 0) return i;
    unknown_variant(from, name, text, names);
    return -1;
}

int plec_field_choice(const struct plec_fields *from, const char *name, const char *const *names) {
    return take_choice(from, name, get_required(from, name), names);
}

int plec_field_choice_or_none(const struct plec_fields *from, const char *name,
                              const char *const *names) {
    return take_choice(from, name, get_or_none(from, name), names);
}

static const json_t *take_array(const struct plec_fields *from, const char *name,
                                const json_t *value) {
    if (value == NULL || json_is_array(value)) return value;
    wrong_type(from, name, value, "an array");
    return NULL;
}

const json_t *plec_field_array(const struct plec_fields *from, const char *name) {
    return take_array(from, name, get_required(from, name));
}

const json_t *plec_field_array_or_none(const struct plec_fields *from, const char *name) {
    return take_array(from, name, get_or_none(from, name));
}

void *plec_field_allocate(struct plec_field_report *report, size_t n, size_t size) {
    void *memory = calloc(n > 0 ? n : 1, size);
    if (memory == NULL && report->status == PLEC_OK)
        report->status =
            plec_fail(report->err, PLEC_NO_MEMORY, "OutOfMemory", "%zu x %zu bytes", n, size);
    return memory;
}

/* Bytes of the white space character that text begins with; 0 when it begins with another. */
static size_t white_space(const char *text) {
    static const char *const wide[] = {
        "\xC2\x85",     "\xC2\xA0",     "\xE1\x9A\x80", "\xE2\x80\xA8", /* 85 A0 1680 2028 */
        "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80", /* 2029 202F 205F 3000 */
    };
    unsigned char first = (unsigned char)text[0];
    if (first == ' ' || (first >= '\t' && first <= '\r')) return 1;
    for (size_t i = 0; i < sizeof wide / sizeof wide[0]; i++)
        if (strncmp(text, wide[i], strlen(wide[i])) == 0) return strlen(wide[i]);
    /* 2000 to 200A */
    unsigned char third = text[0] == '\0' || text[1] == '\0' ? 0 : (unsigned char)text[2];
    if (strncmp(text, "\xE2\x80", 2) == 0 && third >= 0x80 && third <= 0x8A) return 3;
    return 0;
}

bool plec_field_is_blank(const char *text) {
    while (*text != '\0') {
        size_t n = white_space(text);
        if (n == 0) return false;
        text += n;
    }
    return true;
}
