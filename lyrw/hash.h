/* hash.h: SHA-256 of files and bytes, as lower-case hexadecimal. */
#ifndef PLEC_LYRW_HASH_H
#define PLEC_LYRW_HASH_H

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_SHA256_TEXT = 65 }; /* 64 digits and the end */

/* Hashes the file at path in pieces; memory does not grow with it. progress (NULL: none) is called
 * after each piece with the bytes in it. PLEC_MISSING "CannotOpen", "NotAFile"; PLEC_IO
 * "ReadFailed" with path and byte; PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_sha256_file(char out[PLEC_SHA256_TEXT], const char *path,
                                                void (*progress)(void *user, uint64_t n_bytes),
                                                void *user, struct plec_error *err);

/* Of bytes that come one run after another. One thread at a time. PLEC_NO_MEMORY. */
struct plec_sha256_stream;
PLEC_MUST_USE enum plec_status plec_sha256_open(struct plec_sha256_stream **out,
                                                struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_sha256_update(struct plec_sha256_stream *stream,
                                                  const void *bytes, size_t n_bytes,
                                                  struct plec_error *err);
/* The hash of what came; the stream takes no more after it. */
PLEC_MUST_USE enum plec_status plec_sha256_finish(char out[PLEC_SHA256_TEXT],
                                                  struct plec_sha256_stream *stream,
                                                  struct plec_error *err);
/* NULL: nothing. */
void plec_sha256_close(struct plec_sha256_stream *stream);

/* Of bytes in memory. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_sha256(char out[PLEC_SHA256_TEXT], const void *bytes,
                                           size_t n_bytes, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
