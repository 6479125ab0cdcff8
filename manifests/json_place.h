/* json_place.h: where a byte of a JSON text lies, told as a member path, and how deep the text
 * nests. Used by json.c for its messages; it reads brackets, strings and commas, and no more.
 */
#ifndef PLEC_MANIFESTS_JSON_PLACE_H
#define PLEC_MANIFESTS_JSON_PLACE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_JSON_DEPTH_MAX = 64, PLEC_JSON_PATH_MAX = 256 };

/* False when text [n_bytes] opens more than PLEC_JSON_DEPTH_MAX brackets; *at is then the byte of
 * the one too many. */
bool plec_json_place_depth(size_t *at, const char *text, size_t n_bytes);

/* Writes the path of the value that ends at byte `at` ("layers[2].router.k"; "the document" at the
 * root) into path [PLEC_JSON_PATH_MAX], cut where it is longer. */
void plec_json_place_path(char *path, const char *text, size_t at);

#ifdef __cplusplus
}
#endif
#endif
