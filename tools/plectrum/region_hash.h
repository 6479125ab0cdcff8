/* region_hash.h: FNV-1a64 of a region's bytes, and of the values they decode to. */
#ifndef PLEC_TOOLS_REGION_HASH_H
#define PLEC_TOOLS_REGION_HASH_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_HASH_TEXT_MAX = 17 };

/* Columns of the widest matrix that is decoded: no expert comes near it. */
enum { PLEC_HASH_COLS_MAX = 1 << 24 };

/* Continues an FNV-1a64; begin with PLEC_FNV_START. */
#define PLEC_FNV_START UINT64_C(0xcbf29ce484222325)
uint64_t plec_fnv1a64(uint64_t hash, const void *bytes, uint64_t n_bytes);

/* Of the little-endian f32 values of one entry's schema, row after row, into *out. False where
 * there are none: no codec, scales, a length that is not the shape's, or a lookup that leads to
 * other bytes than [offset, offset + length). */
bool plec_hash_decoded(uint64_t *out, const struct plec_segment *segment, uint16_t bank_id,
                       uint32_t entry, uint32_t schema, uint64_t offset);

/* 16 hexadecimal digits into buffer [PLEC_HASH_TEXT_MAX]. */
const char *plec_hash_text(char *buffer, uint64_t hash);

#ifdef __cplusplus
}
#endif
#endif
