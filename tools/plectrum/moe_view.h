/* moe_view.h: the layers of a GGUF model for `inspect`: one line a layer, equal runs together; what
 * the routing is and who says so; what experts and the rest come to; what converts.
 */
#ifndef PLEC_TOOLS_MOE_VIEW_H
#define PLEC_TOOLS_MOE_VIEW_H

#include "lyrw/gguf_split.h"
#include "tools/plectrum/json_stream.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Prints the view of a set opened to look; nothing for a model without such layers. False when out
 * of memory. */
bool plec_moe_view_print(FILE *out, const struct plec_gguf_set *set);

/* The members "layers" and "experts" of an open object, every key present. False when out of
 * memory. */
bool plec_moe_view_json(struct plec_json_stream *json, const struct plec_gguf_set *set);

#ifdef __cplusplus
}
#endif
#endif
