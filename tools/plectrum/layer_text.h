/* layer_text.h: a manifest's layers in words, for the MoE view: what is equal reads equal. */
#ifndef PLEC_TOOLS_LAYER_TEXT_H
#define PLEC_TOOLS_LAYER_TEXT_H

#include <stdio.h>

#include "tools/plectrum/vindex_view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* "128 routed, top 8 of sigmoid, renormalised; gated-mlp-v1; ..." on a stream, without the layer's
 * number and storage names. */
void plec_layer_text(FILE *out, struct plec_vindex_view *view, const struct plec_moe_layer *layer);
void plec_dense_text(FILE *out, struct plec_vindex_view *view, const struct plec_moe_dense *dense);

/* One line a layer, equal neighbours in one line, what is not in the container named. */
void plec_layer_lines(struct plec_vindex_view *view);

#ifdef __cplusplus
}
#endif
#endif
