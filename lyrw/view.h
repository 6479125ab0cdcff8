/* view.h: a run of bytes inside a file that is text by convention only.
 *
 * Owns nothing: the bytes belong to a mapping and must outlive the view. Never: assumes a
 * terminator, UTF-8, or that the bytes are printable; what goes to a person is escaped first.
 */
#ifndef PLEC_LYRW_VIEW_H
#define PLEC_LYRW_VIEW_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_view {
    const char *data; /* [size], not terminated, may hold NUL bytes */
    uint64_t size;
};

/* A view of a C string. */
struct plec_view plec_view_of(const char *text);

bool plec_view_equal(struct plec_view a, struct plec_view b);
bool plec_view_is(struct plec_view a, const char *text);
bool plec_view_starts(struct plec_view a, const char *prefix);
bool plec_view_ends(struct plec_view a, const char *suffix);
/* Order of memcmp, then of length. */
int plec_view_compare(struct plec_view a, struct plec_view b);

/* Bytes that a terminal or a JSON text must not see raw: control bytes, DEL, and bytes that do not
 * belong to a well-formed UTF-8 sequence. */
bool plec_view_is_clean(struct plec_view view);

enum { PLEC_VIEW_TEXT_MAX = 96 };
/* The view as printable text in buffer [PLEC_VIEW_TEXT_MAX]: bytes that are not clean as \xNN, cut
 * with "..." when it does not fit. Returns buffer. */
const char *plec_view_text(struct plec_view view, char *buffer);

/* Length of the well-formed UTF-8 sequence that starts at data [size]; 0 when there is none. */
unsigned plec_utf8_length(const char *data, uint64_t size);
/* The same, but 0 for control characters too: what a terminal or a JSON text must not see raw. The
 * C1 controls U+0080 to U+009F, which drive some terminals, count as such. */
unsigned plec_view_clean_length(const char *data, uint64_t size);

#ifdef __cplusplus
}
#endif
#endif
