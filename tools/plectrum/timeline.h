/* timeline.h: recorded events as a picture: an SVG file that needs nothing else to be looked at.
 *
 * One panel a span of time, one lane a thread, the disk, the link, and what experts were found
 * where. Boxes that would be thinner than a pixel are painted together, a column of pixels at a
 * time, as dense as they were: however many events there are, the file stays small.
 */
#ifndef PLEC_TOOLS_TIMELINE_H
#define PLEC_TOOLS_TIMELINE_H

#include "host/tracer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_timeline_panel {
    const char *title; /* any text */
    const struct plec_tracer_snapshot *snapshot;
    uint64_t from_ns, to_ns; /* what is shown of it; both 0: all of it */
};

struct plec_timeline_args {
    const char *title;
    const struct plec_timeline_panel *panels; /* [n_panels] */
    size_t n_panels;
};

/* Writes the picture, whole under its name or not at all. PLEC_IO, PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_timeline_write(const char *path,
                                                   const struct plec_timeline_args *args,
                                                   struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
