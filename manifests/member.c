#include "manifests/member.h"

#include <string.h>

void plec_member_set(struct plec_members *members, json_t *object, const char *name,
                     json_t *value) {
    /* json_object_set_new refuses NULLs itself. */
    if (json_object_set_new(object, name, value) != 0 && members->fault == NULL)
        members->fault = name;
}

/* Place of a name in the list; a large number for one that is not in it. */
static size_t rank(const char *name, const char *const *order) {
    for (size_t i = 0; order[i] != NULL; i++)
        if (strcmp(order[i], name) == 0) return i;
    return SIZE_MAX;
}

/* How many members stand up to the last one that is listed before `name`. */
static size_t members_before(json_t *object, const char *name, const char *const *order) {
    size_t before = 0, at = 0, wanted = rank(name, order);
    for (void *i = json_object_iter(object); i != NULL; i = json_object_iter_next(object, i)) {
        at++;
        if (rank(json_object_iter_key(i), order) < wanted) before = at;
    }
    return before;
}

/* Moves the members from the nth on into a new object. */
static json_t *cut_tail(struct plec_members *members, json_t *object, size_t n) {
    json_t *tail = json_object();
    void *i = json_object_iter(object);
    for (size_t at = 0; at < n; at++)
        i = json_object_iter_next(object, i);
    while (i != NULL) {
        const char *key = json_object_iter_key(i);
        void *next = json_object_iter_next(object, i);
        plec_member_set(members, tail, key, json_incref(json_object_iter_value(i)));
        i = next;
    }
    const char *key;
    json_t *value;
    json_object_foreach(tail, key, value) json_object_del(object, key);
    return tail;
}

void plec_member_place(struct plec_members *members, json_t *object, const char *name,
                       json_t *value, const char *const *order) {
    if (json_object_get(object, name) != NULL || rank(name, order) == SIZE_MAX) {
        plec_member_set(members, object, name, value);
        return;
    }
    json_t *tail = cut_tail(members, object, members_before(object, name, order));
    plec_member_set(members, object, name, value);
    if (json_object_update(object, tail) != 0 && members->fault == NULL) members->fault = name;
    json_decref(tail);
}

json_t *plec_member_object(struct plec_members *members, json_t *object, const char *name) {
    json_t *member = json_object_get(object, name);
    if (member == NULL) {
        plec_member_set(members, object, name, json_object());
        member = json_object_get(object, name);
    }
    if (!json_is_object(member) && members->fault == NULL) members->fault = name;
    return json_is_object(member) ? member : NULL;
}

json_t *plec_member_string_or_null(const char *text) {
    return text != NULL ? json_string(text) : json_null();
}

enum plec_status plec_members_status(const struct plec_members *members, struct plec_error *err) {
    if (members->fault == NULL) return PLEC_OK;
    return plec_fail(err, PLEC_BAD_INPUT, "BadValue",
                     "`%.120s`: not UTF-8, not finite, of another type, or out of memory",
                     members->fault);
}
