/* json.h: JSON documents read strictly and written back whole, through jansson.
 *
 * Owns: nothing beyond the json_t a call returns (the caller decrefs). Order and unknown members
 * are kept at every level; integers are exact 64-bit; a real is written with the fewest digits that
 * read back as the same double. Refused, with PLEC_MALFORMED: syntax errors ("JsonSyntax"), members
 * given twice ("DuplicateKey"), integers outside int64 ("IntegerRange") and reals beyond double
 * ("RealRange"), each with the member's path, a NUL in a member's name ("NulInKey"), texts over
 * 64 MiB ("TooLarge"), nesting deeper than 64 ("TooDeep"). A NUL inside a string value is kept;
 * whoever needs that value as a C string refuses it.
 */
#ifndef PLEC_MANIFESTS_JSON_H
#define PLEC_MANIFESTS_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_JSON_BYTES_MAX = 64 << 20 };

PLEC_MUST_USE enum plec_status plec_json_parse(json_t **out, const char *text, size_t n_bytes,
                                               struct plec_error *err);
/* Reads a whole file. PLEC_MISSING when it cannot be opened or is no regular file. */
PLEC_MUST_USE enum plec_status plec_json_load(json_t **out, const char *path,
                                              struct plec_error *err);
/* The text a store would write, NUL-terminated; the caller frees it. 2-space indent, members in
 * order, no final newline. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_json_format(char **out, size_t *n_bytes, const json_t *document,
                                                struct plec_error *err);
/* Writes a file that stands whole under its name or not at all (lyrw/atomic_file.h), in a folder
 * that is there. PLEC_IO; the path then holds what it held before. */
PLEC_MUST_USE enum plec_status plec_json_store(const char *path, const json_t *document,
                                               struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
