/* gguf_values.h: the numbers in a tensor of any type that has a definition here, and the fields
 * that its blocks are made of.
 */
#ifndef PLEC_TOOLS_GGUF_VALUES_H
#define PLEC_TOOLS_GGUF_VALUES_H

#include <stdbool.h>
#include <stdio.h>

#include "lyrw/gguf_type.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest block of any type. */
enum { PLEC_BLOCK_ELEMS_MAX = 256 };

/* Whether plec_gguf_decode knows the type: integers, floats and all types with a codec. */
bool plec_gguf_can_decode(uint32_t type);

/* One block at p as out [block_elems], exactly as the format defines it. The type must be one that
 * plec_gguf_can_decode says yes to. */
void plec_gguf_decode(double *out, uint32_t type, const uint8_t *p);

enum plec_field_kind {
    PLEC_FIELD_F16,   /* a scale or minimum */
    PLEC_FIELD_F32,   /* a scale */
    PLEC_FIELD_E8M0,  /* a scale: 2^(b-127), 255 is NaN */
    PLEC_FIELD_UE4M3, /* scales of nvfp4; 0x7f is NaN */
    PLEC_FIELD_I8,
    PLEC_FIELD_I16,
    PLEC_FIELD_BYTES, /* packed bits of any kind */
};

/* A field of a block. */
struct plec_block_field {
    const char *name; /* "d", "scales", "qs" */
    uint16_t at;      /* from the start of the block */
    uint16_t count;   /* of values of the kind */
    enum plec_field_kind kind;
};

enum { PLEC_BLOCK_FIELDS_MAX = 5 };
/* The fields of a type, in the order of their place; they cover the block exactly. Returns how
 * many; 0 for types whose block is one number, removed and unknown ones. */
size_t plec_block_fields(const struct plec_block_field **fields, uint32_t type);
unsigned plec_field_bytes(const struct plec_block_field *field);

/* "d 0.5 (0x3800)", "qs 0b 30 55 ...": the field of the block at p. */
void plec_put_field(FILE *stream, const struct plec_block_field *field, const uint8_t *p);

#ifdef __cplusplus
}
#endif
#endif
