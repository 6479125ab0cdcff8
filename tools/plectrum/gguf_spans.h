/* gguf_spans.h: the fields of a GGUF file in words, as they lie. */
#ifndef PLEC_TOOLS_GGUF_SPANS_H
#define PLEC_TOOLS_GGUF_SPANS_H

#include "lyrw/gguf_write.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_SPAN_TEXT_MAX = 192 };
/* "metadata: general.name (string)" into buffer [PLEC_SPAN_TEXT_MAX]. `file` is the parsed file
 * that the span belongs to. */
const char *plec_span_text(char *buffer, const struct plec_gguf_span *span,
                           const struct plec_gguf *file);

/* The spans of a parsed file, in file order; the caller frees. Bytes between tensors and behind the
 * last are PLEC_GGUF_SPAN_PADDING. Tensors that lie outside the file are left out. NULL when out of
 * memory. */
struct plec_gguf_span *plec_spans_of(size_t *n_spans, const struct plec_gguf *file);

#ifdef __cplusplus
}
#endif
#endif
