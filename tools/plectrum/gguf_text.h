/* gguf_text.h: values and shapes of GGUF files as text, for people and for JSON. What a file says
 * is escaped: no key, name or string can drive a terminal or break a JSON text.
 */
#ifndef PLEC_TOOLS_GGUF_TEXT_H
#define PLEC_TOOLS_GGUF_TEXT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "lyrw/view.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_REAL_TEXT_MAX = 32, PLEC_SHAPE_TEXT_MAX = 96 };

/* The fewest digits that read back as the same double, or as the same float when `single`, into
 * buffer [PLEC_REAL_TEXT_MAX]: "0.5", "1e+06", "-0.0", "nan", "inf", "-inf". */
const char *plec_real_text(char *buffer, double value, bool single);

/* "3584 x 152064", "scalar" without dims, into buffer [PLEC_SHAPE_TEXT_MAX]. */
const char *plec_shape_text(char *buffer, const uint64_t *ne, uint32_t n_dims);

/* The text in quotes, at most `most` bytes of it, then how many were left out:
 * "https://..." ... and 21 more bytes */
void plec_put_quoted(FILE *stream, struct plec_view text, uint64_t most);
/* The text with bytes that are not printable as \xNN; whole. */
void plec_put_view(FILE *stream, struct plec_view text);
/* A JSON string. Bytes that are no UTF-8 must have been looked for before. */
void plec_put_json_string(FILE *stream, struct plec_view text);

/* For reports: the string, bytes that are no UTF-8 written as \xNN. */
json_t *plec_json_of_view(struct plec_view text);
/* An integer; as a string of digits where it does not fit JSON readers' 63 bits. */
json_t *plec_json_of_u64(uint64_t value);

/* Whether all bytes belong to well-formed UTF-8 sequences. */
bool plec_view_is_utf8(struct plec_view text);

#ifdef __cplusplus
}
#endif
#endif
