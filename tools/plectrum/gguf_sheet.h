/* gguf_sheet.h: the header of a GGUF model as one table, from the model or from a dump of it.
 *
 * The modes of `plectrum gguf` that only do arithmetic on a header work on this: with the model at
 * hand, or with the few kilobytes that `gguf dump` wrote. A dump keeps of an array only its type
 * and count. Owns the open files or the JSON document that the views point into.
 */
#ifndef PLEC_TOOLS_GGUF_SHEET_H
#define PLEC_TOOLS_GGUF_SHEET_H

#include <jansson.h>
#include <stdio.h>

#include "lyrw/gguf_split.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_sheet_key {
    struct plec_view name;
    uint32_t type, element_type;
    uint64_t count;
    uint64_t at, record_bytes; /* of the whole record in the file */
    const uint8_t *value;      /* [value_bytes]; NULL for an array of a dump */
    uint64_t value_bytes;
};

struct plec_sheet_tensor {
    struct plec_view name;
    uint64_t ne[PLEC_GGUF_MAX_DIMS];
    uint32_t n_dims, type, file;
    uint64_t n_elements, n_bytes;
    uint64_t offset; /* from the file's data start */
};

/* One file of the set. */
struct plec_sheet_file {
    bool present; /* false: a shard that is not there; all else is 0 */
    uint32_t version;
    uint64_t n_bytes, alignment;
    bool alignment_stated;
    uint64_t infos_at, infos_end, data_at;
    uint32_t first_key, n_keys, first_tensor, n_tensors;
};

/* A zeroed sheet is closed. */
struct plec_sheet {
    const char *path;
    struct plec_sheet_file *files; /* [n_files] */
    uint32_t n_files;
    struct plec_sheet_key *keys; /* [n_keys], file after file */
    uint32_t n_keys;
    struct plec_sheet_tensor *tensors; /* [n_tensors], file after file */
    uint32_t n_tensors;
    struct plec_gguf_set set; /* of a model; closed for a dump */
    json_t *dump;             /* of a dump; else NULL */
    uint8_t *scratch;         /* values of a dump's keys, names and texts */
};

/* Opens path: a dump when its first byte is '{', else a GGUF model for looking. The statuses of
 * plec_gguf_set_open and plec_sheet_read. path must outlive the sheet. */
PLEC_MUST_USE enum plec_status plec_sheet_open(struct plec_sheet *out, const char *path,
                                               struct plec_error *err);
void plec_sheet_close(struct plec_sheet *sheet);

/* Reads a dump strictly: every member known and there, every size what it must be. The statuses of
 * plec_json_load; PLEC_MALFORMED "BadDump" names member and place. (gguf_sheet_read.c) */
PLEC_MUST_USE enum plec_status plec_sheet_read(struct plec_sheet *out, const char *path,
                                               struct plec_error *err);
/* Writes the dump of a sheet: the same bytes for the same header, wherever it came from. */
void plec_sheet_write(FILE *stream, const struct plec_sheet *sheet);

/* Says the findings of the model on stderr; returns the exit status they ask for: 1 with defects,
 * else 0. */
int plec_sheet_judge(const struct plec_sheet *sheet);

/* The first key of that name, in file order; NULL. */
const struct plec_sheet_key *plec_sheet_find(const struct plec_sheet *sheet, const char *name);
/* The key "<architecture>.<suffix>"; NULL. */
const struct plec_sheet_key *plec_sheet_find_arch(const struct plec_sheet *sheet,
                                                  const char *suffix);
/* The value of a string key; empty for NULL and other types. */
struct plec_view plec_sheet_string(const struct plec_sheet_key *key);
/* False for NULL and for what is no integer of 0 or more. */
bool plec_sheet_u64(uint64_t *out, const struct plec_sheet_key *key);

/* "array" and "152064 of string", or the scalar's type and value, strings cut after 44 bytes. */
void plec_sheet_put_value(FILE *stream, const struct plec_sheet_key *key);
/* The bytes of a scalar as a number or string: for JSON texts, exact. */
void plec_sheet_put_scalar(FILE *stream, uint32_t type, const uint8_t *value);

/* "blk.12.ffn_up.weight" is block 12 and "ffn_up.weight"; false for other names. */
bool plec_sheet_block(uint32_t *block, struct plec_view *rest, struct plec_view name);

#ifdef __cplusplus
}
#endif
#endif
