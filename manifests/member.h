/* member.h: members put into JSON objects under construction, in the order a format writes them.
 *
 * Faults stick: the first value that could not be made or set is remembered by name, and the
 * builder asks once, at its end. Owns nothing.
 */
#ifndef PLEC_MANIFESTS_MEMBER_H
#define PLEC_MANIFESTS_MEMBER_H

#include "manifests/json.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_members {
    const char *fault; /* name of the first member that failed; NULL: none */
};

/* Sets a member at the end (or in place, where it stands already). Takes the value; a NULL value is
 * the fault of whoever made it: no memory, not UTF-8, not finite. */
void plec_member_set(struct plec_members *members, json_t *object, const char *name, json_t *value);
/* The same, but a new member goes behind the last one that `order` (NULL ends it) lists before it;
 * all others keep their order. */
void plec_member_place(struct plec_members *members, json_t *object, const char *name,
                       json_t *value, const char *const *order);
/* The member `name`, made an empty object at the end when there is none; borrowed. NULL is a fault.
 */
json_t *plec_member_object(struct plec_members *members, json_t *object, const char *name);

/* A string, or JSON null for NULL. */
json_t *plec_member_string_or_null(const char *text);

/* PLEC_OK, or PLEC_BAD_INPUT "BadValue" naming the member. */
PLEC_MUST_USE enum plec_status plec_members_status(const struct plec_members *members,
                                                   struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
