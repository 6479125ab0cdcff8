/* field.h: members of a JSON object read by name and type, each refusal told with its path.
 *
 * Like lyrw/cursor.h: the first fault sticks in the shared report, and later reads return defaults,
 * so a reader fills a whole struct and checks once. Owns nothing: strings are views into the
 * document.
 *
 * Faults are PLEC_MALFORMED: MissingField, WrongType, IntegerRange, UnknownVariant, NulInString,
 * UnsafeKey. "or_none" readers take an absent member and a null alike; the others refuse null.
 */
#ifndef PLEC_MANIFESTS_FIELD_H
#define PLEC_MANIFESTS_FIELD_H

#include "manifests/json.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One for a whole document. */
struct plec_field_report {
    enum plec_status status; /* of the first fault; PLEC_OK until then */
    struct plec_error *err;  /* or NULL */
};

/* An object under reading. object NULL: it is not there, and every read gives its default. */
struct plec_fields {
    const json_t *object;
    const struct plec_fields *parent; /* NULL at the root; must outlive this one */
    const char *name;                 /* in parent */
    bool in_array;                    /* name is an array, and this its item `index` */
    size_t index;
    struct plec_field_report *report;
};

/* The document itself, which must be an object. */
struct plec_fields plec_fields_root(const json_t *document, struct plec_field_report *report);
/* A member that is an object. */
struct plec_fields plec_fields_member(const struct plec_fields *from, const char *name);
struct plec_fields plec_fields_member_or_none(const struct plec_fields *from, const char *name);
/* Item `index` of the array member `name`; it must be an object. */
struct plec_fields plec_fields_item(const struct plec_fields *from, const char *name,
                                    const json_t *array, size_t index);

const char *plec_field_string(const struct plec_fields *from, const char *name);
const char *plec_field_string_or_none(const struct plec_fields *from, const char *name);
/* A string that plec_key_is_safe. */
const char *plec_field_key(const struct plec_fields *from, const char *name);
const char *plec_field_key_or_none(const struct plec_fields *from, const char *name);

uint32_t plec_field_u32(const struct plec_fields *from, const char *name);
bool plec_field_u32_or_none(uint32_t *out, const struct plec_fields *from, const char *name);
/* A non-negative integer of up to 63 bits. */
int64_t plec_field_unsigned(const struct plec_fields *from, const char *name);
/* Absent: the default. */
bool plec_field_bool(const struct plec_fields *from, const char *name, bool absent);
bool plec_field_bool_or_none(bool *out, const struct plec_fields *from, const char *name);
/* Any number. */
bool plec_field_real_or_none(double *out, const struct plec_fields *from, const char *name);
/* Index of the member's string among names, which a NULL ends; -1 when absent or faulty. */
int plec_field_choice(const struct plec_fields *from, const char *name, const char *const *names);
int plec_field_choice_or_none(const struct plec_fields *from, const char *name,
                              const char *const *names);
/* The array, or NULL. */
const json_t *plec_field_array(const struct plec_fields *from, const char *name);
const json_t *plec_field_array_or_none(const struct plec_fields *from, const char *name);

/* n zeroed structs of `size` bytes (at least one); NULL and PLEC_NO_MEMORY in the report. */
void *plec_field_allocate(struct plec_field_report *report, size_t n, size_t size);

/* Empty, or white space (Unicode White_Space, in UTF-8) and nothing else. */
bool plec_field_is_blank(const char *text);

/* Reports a fault of this object; the path of `name` in it stands in the message (NULL: its own).
 */
void plec_field_fault(const struct plec_fields *from, const char *name, const char *error_name,
                      const char *format, ...) PLEC_PRINTF(4, 5);

#ifdef __cplusplus
}
#endif
#endif
