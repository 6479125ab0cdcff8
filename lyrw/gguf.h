/* gguf.h: a GGUF file of version 2 or 3 as tables of keys and tensors over its mapped bytes.
 *
 * A GGUF file is a fixed head, typed keys and values, one record for each tensor, zeros up to the
 * alignment, then the weights. There are no delimiters: each field is found by having read the one
 * before it. All numbers are little-endian; nothing is aligned before the data.
 *
 *   OFFSET  SIZE  MEANING
 *   0       4     magic 47 47 55 46 ("GGUF"), compared as bytes
 *   4       4     u32 version: 2 or 3
 *   8       8     u64 number of tensors (in front of the number of keys)
 *   16      8     u64 number of keys
 *   24            key records, back to back:
 *                   string key, u32 value type, value; a string is a u64 byte length and its
 *                   bytes, an array is a u32 element type, a u64 count and its elements
 *                 tensor records, back to back:
 *                   string name, u32 n_dims, u64 ne[n_dims], u32 tensor type, u64 offset from D
 *                 zeros up to a multiple of the alignment (none when there are no tensors)
 *   D             the data; ne[0] is the contiguous axis
 *
 *           +------+---------+------------+---------+---------------------------+
 *           | head | keys    | tensors    | padding | data, each tensor aligned |
 *           +------+---------+------------+---------+---------------------------+
 *           0      24        infos_at     infos_end data_at                  size
 *
 * Owns: the two tables and their hash indices. Never: owns the bytes, keeps anything of an array
 * but its type, count and place, allocates by a number that the file states, reads a weight.
 *
 * Two strictnesses. Looking: plec_gguf_parse refuses only what cannot be walked or has no meaning,
 * and gathers the rest as findings: notes (odd, but runs) and defects (does not run). A file that
 * ends inside its header is shown as far as it goes (`complete` is false, a defect). Running:
 * plec_gguf_require_sound refuses on any defect. What only one tensor suffers from and only its
 * user can judge (an unknown type, no elements) is a note, and plec_gguf_use_tensor refuses it.
 */
#ifndef PLEC_LYRW_GGUF_H
#define PLEC_LYRW_GGUF_H

#include "lyrw/findings.h"
#include "lyrw/gguf_type.h"
#include "lyrw/name_index.h"
#include "lyrw/view.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a reader takes at most; each is far above any real file. */
enum {
    PLEC_GGUF_MAX_KEYS = 65536,
    PLEC_GGUF_MAX_TENSORS = 1 << 20,
    PLEC_GGUF_MAX_KEY_BYTES = 65535,
    PLEC_GGUF_MAX_NAME_BYTES = 64,
    PLEC_GGUF_MAX_STRING_BYTES = 64 << 20,
    PLEC_GGUF_MAX_ARRAY_ITEMS = 64 << 20,
    PLEC_GGUF_MAX_ALIGNMENT = 1 << 20,
    PLEC_GGUF_MAX_DIMS = 4,
    PLEC_GGUF_HEAD_BYTES = 24,
    PLEC_GGUF_MIN_KEY_RECORD = 14,    /* one-byte key, one-byte value */
    PLEC_GGUF_MIN_TENSOR_RECORD = 24, /* no name, no dims */
    PLEC_GGUF_DEFAULT_ALIGNMENT = 32
};

struct plec_gguf_key {
    struct plec_view name;
    uint32_t type;         /* enum plec_gguf_value_type */
    uint32_t element_type; /* of an array; else the same as type */
    uint64_t count;        /* elements of an array; else 1 */
    uint64_t at;           /* first byte of the record */
    uint64_t value_at;     /* first byte of the value: of the text, or of the first element */
    uint64_t n_bytes;      /* of the value from value_at: the record ends at value_at + n_bytes */
};

enum plec_gguf_tensor_flag {
    PLEC_GGUF_TYPE_UNKNOWN = 1, /* removed or never heard of: n_bytes is the way to the next one */
    PLEC_GGUF_NO_ELEMENTS = 2,  /* a dim of 0 */
    PLEC_GGUF_OUTSIDE_FILE = 4, /* its bytes do not all lie inside the file */
    PLEC_GGUF_NOT_ALIGNED = 8,  /* offset is no multiple of the alignment */
    PLEC_GGUF_OVERLAPS = 16     /* shares bytes with another tensor */
};

struct plec_gguf_tensor {
    struct plec_view name;
    uint64_t ne[PLEC_GGUF_MAX_DIMS]; /* 1 beyond n_dims; ne[0] is contiguous */
    uint32_t n_dims;
    uint32_t type;  /* as in the file */
    uint32_t flags; /* enum plec_gguf_tensor_flag */
    uint32_t shard; /* position in the split set; 0 in a single file */
    uint64_t n_elements;
    uint64_t n_bytes; /* from shape and type; see PLEC_GGUF_TYPE_UNKNOWN */
    uint64_t at;      /* first byte of the record */
    uint64_t offset;  /* from data_at, as in the file */
    uint64_t data_at; /* from the start of the file; UINT64_MAX when that sum overflows */
};

/* A zeroed struct is closed. Not to be moved while open: the indices point back into it. */
struct plec_gguf {
    const uint8_t *data; /* [size], the caller's */
    uint64_t size;
    uint32_t version;
    uint64_t n_tensors_stated, n_keys_stated; /* what the head says */
    struct plec_gguf_key *keys;               /* [n_keys], in file order */
    uint32_t n_keys;
    struct plec_gguf_tensor *tensors; /* [n_tensors], in file order */
    uint32_t n_tensors;
    uint64_t alignment;
    bool alignment_stated;
    uint64_t infos_at, infos_end, data_at; /* see the drawing; 0 where not reached */
    bool complete;                         /* the header was there to its end */
    struct plec_error cut;                 /* where and inside what it ended, when not complete */
    struct plec_findings findings;

    struct plec_name_index key_index, tensor_index;
    uint32_t keys_room, tensors_room;
};

/* Walks the header of data [size], which must outlive the result. Refuses with PLEC_MALFORMED:
 * "NotGguf", "Truncated" (in the head), "OldVersion", "UnknownVersion", "BigEndian", "TooManyKeys",
 * "TooManyTensors", "EmptyKey", "KeyTooLong", "DuplicateKey", "UnknownValueType", "NestedArray",
 * "UnknownElementType", "ArrayTooLong", "StringTooLong", "BadAlignment", "EmptyName",
 * "NameTooLong", "DuplicateTensor", "TooManyDims", "BadDim", "ElementOverflow", "NotWholeBlocks",
 * "SizeOverflow"; err->byte is where the reader stood. Or PLEC_NO_MEMORY. On refusal *out is
 * closed. Time and memory are linear in the header. */
PLEC_MUST_USE enum plec_status plec_gguf_parse(struct plec_gguf *out, const void *data,
                                               uint64_t size, struct plec_error *err);
void plec_gguf_close(struct plec_gguf *file);

/* PLEC_OK, or PLEC_MALFORMED with all defects: what must hold before anything runs from it. */
PLEC_MUST_USE enum plec_status plec_gguf_require_sound(const struct plec_gguf *file,
                                                       struct plec_error *err);

/* NULL when there is none. */
const struct plec_gguf_key *plec_gguf_find_key(const struct plec_gguf *file, struct plec_view name);
const struct plec_gguf_key *plec_gguf_find_key_named(const struct plec_gguf *file,
                                                     const char *name);
const struct plec_gguf_tensor *plec_gguf_find_tensor(const struct plec_gguf *file,
                                                     struct plec_view name);

/* The bytes of a tensor that may be run: known type, elements, inside the file, aligned, sharing
 * nothing. PLEC_UNSUPPORTED "UnknownType"; PLEC_MALFORMED "ZeroDim", "TensorOutsideFile",
 * "OffsetNotAligned", "TensorsOverlap". */
PLEC_MUST_USE enum plec_status plec_gguf_use_tensor(const uint8_t **bytes,
                                                    const struct plec_gguf *file,
                                                    const struct plec_gguf_tensor *tensor,
                                                    struct plec_error *err);

/* Adds to `findings` what llama.cpp and its tools would refuse though this reader does not: names
 * of 64 bytes, offsets that are not the running sum of the padded sizes in file order, removed and
 * unknown types, and every defect of the file. */
void plec_gguf_check_strict(struct plec_findings *findings, const struct plec_gguf *file);

/* -- values (gguf_value.c) --------------------------------------------------------------------
 * Any integer width is read and range-checked; nothing is narrowed silently and nothing aborts.
 * `key` NULL (not found) is PLEC_MISSING "NoSuchKey" with *out untouched, so a caller can write its
 * default first. PLEC_MALFORMED "WrongType" or "OutOfRange" name key, type and value. Element i of
 * an array, 0 <= i < count; i = 0 reads a scalar, PLEC_BAD_INPUT "NoSuchElement" beyond. */
PLEC_MUST_USE enum plec_status plec_gguf_u64(uint64_t *out, const struct plec_gguf *file,
                                             const struct plec_gguf_key *key, uint64_t i,
                                             struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_gguf_i64(int64_t *out, const struct plec_gguf *file,
                                             const struct plec_gguf_key *key, uint64_t i,
                                             struct plec_error *err);
/* f32 and f64, and integers that a double holds exactly. */
PLEC_MUST_USE enum plec_status plec_gguf_f64(double *out, const struct plec_gguf *file,
                                             const struct plec_gguf_key *key, uint64_t i,
                                             struct plec_error *err);
/* A bool (any byte but 0 is true), or an integer 0 or 1. */
PLEC_MUST_USE enum plec_status plec_gguf_bool(bool *out, const struct plec_gguf *file,
                                              const struct plec_gguf_key *key, uint64_t i,
                                              struct plec_error *err);
/* Of an array of strings: walks from its start, so O(i); plec_gguf_next_string is O(1) a step. */
PLEC_MUST_USE enum plec_status plec_gguf_string(struct plec_view *out, const struct plec_gguf *file,
                                                const struct plec_gguf_key *key, uint64_t i,
                                                struct plec_error *err);
/* The string at *at, moved on to the next; start with key->value_at of an array of strings and
 * call at most count times. */
struct plec_view plec_gguf_next_string(const struct plec_gguf *file, uint64_t *at);

/* The value of general.architecture; empty when absent or no string. */
struct plec_view plec_gguf_architecture(const struct plec_gguf *file);
/* The key "<architecture>.<suffix>"; NULL when there is none. */
const struct plec_gguf_key *plec_gguf_find_arch_key(const struct plec_gguf *file,
                                                    const char *suffix);

#ifdef __cplusplus
}
#endif
#endif
