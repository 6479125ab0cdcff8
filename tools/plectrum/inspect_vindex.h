/* inspect_vindex.h: what the two forms of the container view share. */
#ifndef PLEC_TOOLS_INSPECT_VINDEX_H
#define PLEC_TOOLS_INSPECT_VINDEX_H

#include "tools/plectrum/inspect.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/vindex_view.h"

/* Bytes of all segment files that could be read. */
uint64_t plec_vindex_bytes(const struct plec_vindex_view *view);
/* As plec_unknown_tags, over all files. */
void plec_vindex_unknown_tags(const struct plec_vindex_view *view,
                              void (*tell)(void *user, const char *name), void *user);
/* The JSON object on stdout; false when it could not be written. */
bool plec_vindex_json(struct plec_vindex_view *view, const struct plec_inspect_options *options,
                      struct plec_progress *progress);

#endif
