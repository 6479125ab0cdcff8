/* json.h: JSON documents read strictly and written back whole, through jansson.
 *
 * Owns: nothing beyond the json_t a call returns (the caller decrefs). Order and unknown members
 * are kept at every level; integers are exact 64-bit. Refused, with PLEC_MALFORMED: syntax errors,
 * members given twice ("DuplicateKey"), integers outside int64 ("IntegerRange", by name), texts
 * over 64 MiB, nesting deeper than 64.
 */
#ifndef PLEC_MANIFESTS_JSON_H
#define PLEC_MANIFESTS_JSON_H

#include <jansson.h>
#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

PLEC_MUST_USE enum plec_status plec_json_parse(json_t **out, const char *text, size_t n_bytes,
                                               struct plec_error *err);
/* Reads a whole file. PLEC_MISSING when it cannot be opened. */
PLEC_MUST_USE enum plec_status plec_json_load(json_t **out, const char *path,
                                              struct plec_error *err);
/* Writes atomically (temporary name, fsync, rename, directory fsync): 2-space indent, members in
 * order, no final newline. */
PLEC_MUST_USE enum plec_status plec_json_store(const char *path, const json_t *document,
                                               struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
