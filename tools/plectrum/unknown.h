/* unknown.h: the tags of a LYRW file that have no name here, each told once. */
#ifndef PLEC_TOOLS_UNKNOWN_H
#define PLEC_TOOLS_UNKNOWN_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Calls tell(user, name) for each unknown bank kind, role, format, packing and layout: "role_300",
 * "format_4242", in the order they first stand in the file. */
void plec_unknown_tags(const struct plec_segment *segment,
                       void (*tell)(void *user, const char *name), void *user);

#ifdef __cplusplus
}
#endif
#endif
