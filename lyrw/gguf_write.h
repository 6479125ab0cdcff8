/* gguf_write.h: writes a GGUF version 3 file: header from memory, weights as a stream.
 *
 * Owns: the header bytes until the writer is freed, and, between begin and finish, a temporary file
 * beside the target. Never: a half-written target: the name appears when all is on disk.
 *
 * Calls in this order: init, keys, tensors, then either plec_gguf_writer_header for the bytes, or
 * begin, data (once a tensor, in order, in as many pieces as one likes), finish. A call that fails
 * makes all later ones fail with the same error, so it is enough to look at the last.
 */
#ifndef PLEC_LYRW_GGUF_WRITE_H
#define PLEC_LYRW_GGUF_WRITE_H

#include "lyrw/gguf.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What the bytes of a file mean, field by field, as the writer put them down. */
enum plec_gguf_span_kind {
    PLEC_GGUF_SPAN_MAGIC,
    PLEC_GGUF_SPAN_VERSION,
    PLEC_GGUF_SPAN_N_TENSORS,
    PLEC_GGUF_SPAN_N_KEYS,
    PLEC_GGUF_SPAN_KEY,     /* index: which */
    PLEC_GGUF_SPAN_TENSOR,  /* index: which record */
    PLEC_GGUF_SPAN_PADDING, /* in front of the data, or behind a tensor */
    PLEC_GGUF_SPAN_DATA     /* index: which tensor */
};
struct plec_gguf_span {
    enum plec_gguf_span_kind kind;
    uint32_t index;
    uint64_t at, n_bytes;
};

struct plec_gguf_writer;

/* alignment: a power of two from 1 to PLEC_GGUF_MAX_ALIGNMENT; when it is not the default the
 * caller also puts the key general.alignment. NULL when out of memory. */
struct plec_gguf_writer *plec_gguf_writer_new(uint32_t alignment);
/* Drops everything, an unfinished temporary file included. NULL: nothing. */
void plec_gguf_writer_free(struct plec_gguf_writer *writer);

/* Keys, in the order they shall stand. Names are copied. */
void plec_gguf_put_u32(struct plec_gguf_writer *writer, const char *name, uint32_t value);
void plec_gguf_put_u64(struct plec_gguf_writer *writer, const char *name, uint64_t value);
void plec_gguf_put_f32(struct plec_gguf_writer *writer, const char *name, float value);
void plec_gguf_put_bool(struct plec_gguf_writer *writer, const char *name, bool value);
void plec_gguf_put_string(struct plec_gguf_writer *writer, const char *name, const char *value);
/* An array of n scalars, values as they stand in the file (little-endian). */
void plec_gguf_put_array(struct plec_gguf_writer *writer, const char *name, uint32_t element_type,
                         const void *values, uint64_t n);
void plec_gguf_put_strings(struct plec_gguf_writer *writer, const char *name,
                           const char *const *values, uint64_t n);
/* A record whose value is given as file bytes: whatever stands behind the value type. */
void plec_gguf_put_raw(struct plec_gguf_writer *writer, struct plec_view name, uint32_t type,
                       const void *value, uint64_t n_bytes);

/* A tensor record. Its offset is where the padded one before it ends. A type whose size is not
 * known takes n_bytes as given; for all others n_bytes must be 0 or what shape and type say. */
void plec_gguf_put_tensor(struct plec_gguf_writer *writer, struct plec_view name, uint32_t type,
                          uint32_t n_dims, const uint64_t *ne, uint64_t n_bytes);

/* The header with its padding, complete; valid until the writer is freed or given another record.
 * Also how to learn whether a call before failed. */
PLEC_MUST_USE enum plec_status plec_gguf_writer_header(const uint8_t **bytes, uint64_t *n_bytes,
                                                       struct plec_gguf_writer *writer,
                                                       struct plec_error *err);
/* Spans in file order, of the header and of the data to come. */
PLEC_MUST_USE enum plec_status plec_gguf_writer_spans(const struct plec_gguf_span **spans,
                                                      size_t *n_spans,
                                                      struct plec_gguf_writer *writer,
                                                      struct plec_error *err);

/* Writes the header to a temporary name beside path (lyrw/atomic_file.h). PLEC_IO. */
PLEC_MUST_USE enum plec_status plec_gguf_writer_begin(struct plec_gguf_writer *writer,
                                                      const char *path, struct plec_error *err);
/* The next n bytes of weights: pieces fill tensor after tensor; padding is put between them. A
 * piece may not reach beyond the tensor it starts in: PLEC_BAD_INPUT "TooMuchData". */
PLEC_MUST_USE enum plec_status plec_gguf_writer_data(struct plec_gguf_writer *writer,
                                                     const void *bytes, uint64_t n_bytes,
                                                     struct plec_error *err);
/* Syncs, renames to path, syncs the folder. PLEC_BAD_INPUT "TooLittleData" when a tensor is not
 * full. With `header_only` the data is left out and none may have been given. */
PLEC_MUST_USE enum plec_status plec_gguf_writer_finish(struct plec_gguf_writer *writer,
                                                       bool header_only, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
