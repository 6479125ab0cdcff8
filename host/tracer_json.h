/* tracer_json.h: a trace as a file that Perfetto and chrome://tracing open.
 *
 *   process 1   host      a track a thread: its ranges (X), moments (i); counters (C)
 *   process 10  device    a track a copy stream: chunks (X), one after the other
 *   process 90  disk      a track a read under way (X); the life of each extent (b, e), from the
 *                         first read or copy until all of it is ready or given up
 *
 * Flows (s, t, f) lead from a read by the copy to the first use. ts and dur are microseconds with
 * three decimals, from when the tracer was opened. What the trace saw begin and not end is closed
 * at its end, with "truncated": true; so is, at its start, what it saw only end.
 */
#ifndef PLEC_HOST_TRACER_JSON_H
#define PLEC_HOST_TRACER_JSON_H

#include "host/tracer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* For otherData; NULL: left out. */
struct plec_tracer_about {
    const char *version, *model, *host, *device;
};

/* Writes the file whole, or not at all; its folder must be there. PLEC_NO_MEMORY; PLEC_IO
 * "CannotCreate", "WriteFailed", "SyncFailed", "RenameFailed". */
PLEC_MUST_USE enum plec_status plec_tracer_write_json(const char *path,
                                                      const struct plec_tracer_snapshot *snapshot,
                                                      const struct plec_tracer_about *about,
                                                      struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
