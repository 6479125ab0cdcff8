/* unknown.h: the tags of a LYRW file that have no name here, each told once. */
#ifndef PLEC_TOOLS_UNKNOWN_H
#define PLEC_TOOLS_UNKNOWN_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_TAG_KINDS = 5 };

/* Which tags were told already: one bit each, whatever the number of schemas. Zeroed: none. */
struct plec_unknown_tags {
    uint8_t told[PLEC_TAG_KINDS][65536 / 8];
};

/* Calls tell(user, name) for each unknown bank kind, role, format, packing and layout not told
 * before: "role_300", "format_4242", in the order they first stand in the file. */
void plec_unknown_tags(struct plec_unknown_tags *tags, const struct plec_segment *segment,
                       void (*tell)(void *user, const char *name), void *user);

#ifdef __cplusplus
}
#endif
#endif
