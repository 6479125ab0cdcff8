/* gguf_type.h: the tables of ids that GGUF files use: tensor types, value types, file types.
 *
 * Owns: id -> name and block size; the way between a tensor type and a format tag of this tree.
 * Never: decodes (lyrw/format.h does). Tensor types and `general.file_type` are two enumerations
 * with overlapping numbers, so they are two tables here.
 */
#ifndef PLEC_LYRW_GGUF_TYPE_H
#define PLEC_LYRW_GGUF_TYPE_H

#include <stdbool.h>

#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_gguf_tensor_type {
    PLEC_GGUF_TYPE_F32 = 0,
    PLEC_GGUF_TYPE_F16 = 1,
    PLEC_GGUF_TYPE_Q4_0 = 2,
    PLEC_GGUF_TYPE_Q8_0 = 8,
    PLEC_GGUF_TYPE_Q4_K = 12,
    PLEC_GGUF_TYPE_Q6_K = 14,
    PLEC_GGUF_TYPE_I8 = 24,
    PLEC_GGUF_TYPE_I16 = 25,
    PLEC_GGUF_TYPE_I32 = 26,
    PLEC_GGUF_TYPE_I64 = 27,
    PLEC_GGUF_TYPE_F64 = 28,
    PLEC_GGUF_TYPE_BF16 = 30
};

struct plec_gguf_type {
    uint32_t id;
    const char *name;     /* as ggml spells it: "f32", "q4_K", "iq2_xxs" */
    uint16_t block_elems; /* elements of one row in one block; 0 when removed */
    uint16_t block_bytes; /* 0 when removed */
    bool removed;         /* once had a layout; no reader supports it today */
    bool codebook;        /* needs a table of vectors that is not part of this tree */
    bool activations;     /* made during a dot product; not found in model files */
};

/* The entry of an id, removed ones included; NULL for an id without one. */
const struct plec_gguf_type *plec_gguf_type_find(uint32_t id);
/* The entry of a name, case ignored; NULL. */
const struct plec_gguf_type *plec_gguf_type_by_name(const char *name);

enum { PLEC_GGUF_TYPE_TEXT_MAX = 32 };
/* The name; "type 4 (removed: q4_2)" or "type 139 (unknown)" in buffer [PLEC_GGUF_TYPE_TEXT_MAX]
 * for the others. */
const char *plec_gguf_type_text(uint32_t id, char *buffer);

/* The format tag that bytes of this tensor type travel under: LYRW's own where the bytes are the
 * same (f32 f16 bf16 q4_0 q4_K q6_K q8_0), else 0x4700 | id. False for removed and unknown ids. A
 * tag may still lack a codec: plec_format_find tells. */
bool plec_gguf_type_tag(uint16_t *tag, uint32_t id);
/* The tensor type whose bytes are what a format tag says; false for LYRW's own fp4_larql, mxfp4,
 * nvfp4 and mxfp8, which no GGUF has in that form. */
bool plec_gguf_type_of_tag(uint32_t *id, uint16_t tag);

/* Value types of metadata, 0 to 12. */
enum plec_gguf_value_type {
    PLEC_GGUF_U8 = 0,
    PLEC_GGUF_I8 = 1,
    PLEC_GGUF_U16 = 2,
    PLEC_GGUF_I16 = 3,
    PLEC_GGUF_U32 = 4,
    PLEC_GGUF_I32 = 5,
    PLEC_GGUF_F32 = 6,
    PLEC_GGUF_BOOL = 7,
    PLEC_GGUF_STRING = 8,
    PLEC_GGUF_ARRAY = 9,
    PLEC_GGUF_U64 = 10,
    PLEC_GGUF_I64 = 11,
    PLEC_GGUF_F64 = 12,
    PLEC_GGUF_N_VALUE_TYPES = 13
};
/* "u32", "string", "array"; "unknown" from 13 on. */
const char *plec_gguf_value_type_name(uint32_t type);
/* The value type of a name; PLEC_GGUF_N_VALUE_TYPES when there is none. */
uint32_t plec_gguf_value_type_by_name(const char *name);
/* Bytes of one scalar; 0 for strings, arrays and unknown types. */
unsigned plec_gguf_value_bytes(uint32_t type);

/* What `general.file_type` says: "mostly q4_K, medium"; NULL for a number not assigned. Only a
 * hint: the tensors have their own types. */
const char *plec_gguf_file_type_name(uint64_t value);

#ifdef __cplusplus
}
#endif
#endif
