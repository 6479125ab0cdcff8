/* gguf_parts.h: what the files of the GGUF reader share with each other and with nobody else. */
#ifndef PLEC_LYRW_GGUF_PARTS_H
#define PLEC_LYRW_GGUF_PARTS_H

#include "lyrw/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* gguf_parse.c: head, keys and tensor records of an initialised file. A header that ends early but
 * after its head is PLEC_OK with complete = false. */
PLEC_MUST_USE enum plec_status plec_gguf_walk_header(struct plec_gguf *file,
                                                     struct plec_error *err);

/* gguf_check.c: sizes of tensors of unknown type, flags, and the findings about the data section.
 * PLEC_NO_MEMORY only. */
PLEC_MUST_USE enum plec_status plec_gguf_check_layout(struct plec_gguf *file,
                                                      struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
