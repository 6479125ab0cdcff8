#include "lyrw/gguf_write.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "lyrw/cursor.h"

/* Bytes that grow; `failed` sticks. */
struct buffer {
    uint8_t *data;
    size_t size, room;
    bool failed;
};

/* What a tensor needs after its record is written. */
struct extent {
    uint64_t offset, n_bytes;
};

struct plec_gguf_writer {
    uint32_t alignment;
    struct buffer keys, infos, header, spans, extents;
    uint32_t n_keys, n_tensors;
    uint64_t data_end; /* where the next tensor starts, from the data start */
    struct plec_error fault;
    bool faulty;

    struct plec_atomic_file file;
    uint64_t header_bytes;
    uint32_t current;       /* the tensor being filled */
    uint64_t current_bytes; /* of it so far */
};

/* -- buffers and errors ---------------------------------------------------------------------- */

static void *reserve(struct buffer *buffer, size_t n) {
    if (buffer->failed) return NULL;
    if (n > buffer->room - buffer->size) {
        size_t room = buffer->room == 0 ? 256 : buffer->room;
        while (room - buffer->size < n) {
            if (room > SIZE_MAX / 2) goto fail;
            room *= 2;
        }
        uint8_t *data = realloc(buffer->data, room);
        if (data == NULL) goto fail;
        buffer->data = data;
        buffer->room = room;
    }
    void *place = buffer->data + buffer->size;
    buffer->size += n;
    return place;
fail:
    buffer->failed = true;
    return NULL;
}

static void append(struct buffer *buffer, const void *bytes, uint64_t n) {
    void *place = reserve(buffer, (size_t)n);
    if (place != NULL && n > 0) memcpy(place, bytes, (size_t)n);
}
static void append_u32(struct buffer *buffer, uint32_t value) {
    void *place = reserve(buffer, 4);
    if (place != NULL) plec_store_u32(place, value);
}
static void append_u64(struct buffer *buffer, uint64_t value) {
    void *place = reserve(buffer, 8);
    if (place != NULL) plec_store_u64(place, value);
}
static void append_view(struct buffer *buffer, struct plec_view view) {
    append_u64(buffer, view.size);
    append(buffer, view.data, view.size);
}

static enum plec_status report(struct plec_gguf_writer *writer, struct plec_error *err) {
    const struct buffer *all[] = {&writer->keys, &writer->infos, &writer->header, &writer->spans,
                                  &writer->extents};
    for (unsigned i = 0; i < sizeof all / sizeof all[0] && !writer->faulty; i++)
        if (all[i]->failed) {
            plec_fail(&writer->fault, PLEC_NO_MEMORY, "OutOfMemory", "a GGUF header");
            writer->faulty = true;
        }
    if (!writer->faulty) return PLEC_OK;
    if (err != NULL) *err = writer->fault;
    return writer->fault.code;
}

/* Keeps a fault that has been told elsewhere. */
static enum plec_status fail_with(struct plec_gguf_writer *writer, const struct plec_error *fault,
                                  struct plec_error *err) {
    if (!writer->faulty) writer->fault = *fault;
    writer->faulty = true;
    return report(writer, err);
}

/* A fault to keep, unless one is kept already. */
static struct plec_error *fault_of(struct plec_gguf_writer *writer) {
    if (writer->faulty) return NULL;
    writer->faulty = true;
    return &writer->fault;
}

/* -- keys and tensors ------------------------------------------------------------------------ */

struct plec_gguf_writer *plec_gguf_writer_new(uint32_t alignment) {
    struct plec_gguf_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return NULL;
    writer->alignment = alignment;
    if (alignment == 0 || (alignment & (alignment - 1)) != 0 || alignment > PLEC_GGUF_MAX_ALIGNMENT)
        plec_fail(fault_of(writer), PLEC_BAD_INPUT, "BadAlignment",
                  "alignment %u; wanted a power of two, at most %d", alignment,
                  PLEC_GGUF_MAX_ALIGNMENT);
    return writer;
}

static void add_span(struct buffer *spans, enum plec_gguf_span_kind kind, uint32_t index,
                     uint64_t at, uint64_t n_bytes) {
    struct plec_gguf_span span = {kind, index, at, n_bytes};
    append(spans, &span, sizeof span);
}

/* Every key: name, type, then `n` bytes of value that the caller appends to the returned place. */
static struct buffer *open_key(struct plec_gguf_writer *writer, struct plec_view name,
                               uint32_t type) {
    append_view(&writer->keys, name);
    append_u32(&writer->keys, type);
    writer->n_keys++;
    return &writer->keys;
}

void plec_gguf_put_raw(struct plec_gguf_writer *writer, struct plec_view name, uint32_t type,
                       const void *value, uint64_t n_bytes) {
    append(open_key(writer, name, type), value, n_bytes);
}

void plec_gguf_put_u32(struct plec_gguf_writer *writer, const char *name, uint32_t value) {
    append_u32(open_key(writer, plec_view_of(name), PLEC_GGUF_U32), value);
}
void plec_gguf_put_u64(struct plec_gguf_writer *writer, const char *name, uint64_t value) {
    append_u64(open_key(writer, plec_view_of(name), PLEC_GGUF_U64), value);
}
void plec_gguf_put_f32(struct plec_gguf_writer *writer, const char *name, float value) {
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    append_u32(open_key(writer, plec_view_of(name), PLEC_GGUF_F32), bits);
}
void plec_gguf_put_bool(struct plec_gguf_writer *writer, const char *name, bool value) {
    uint8_t byte = value;
    append(open_key(writer, plec_view_of(name), PLEC_GGUF_BOOL), &byte, 1);
}
void plec_gguf_put_string(struct plec_gguf_writer *writer, const char *name, const char *value) {
    append_view(open_key(writer, plec_view_of(name), PLEC_GGUF_STRING), plec_view_of(value));
}

static struct buffer *open_array(struct plec_gguf_writer *writer, const char *name,
                                 uint32_t element_type, uint64_t n) {
    struct buffer *keys = open_key(writer, plec_view_of(name), PLEC_GGUF_ARRAY);
    append_u32(keys, element_type);
    append_u64(keys, n);
    return keys;
}

void plec_gguf_put_array(struct plec_gguf_writer *writer, const char *name, uint32_t element_type,
                         const void *values, uint64_t n) {
    uint64_t n_bytes;
    unsigned each = plec_gguf_value_bytes(element_type);
    if (each == 0 || !plec_mul_u64(&n_bytes, n, each)) {
        plec_fail(fault_of(writer), PLEC_BAD_INPUT, "BadArray", "key \"%s\": %llu of %s", name,
                  (unsigned long long)n, plec_gguf_value_type_name(element_type));
        return;
    }
    append(open_array(writer, name, element_type, n), values, n_bytes);
}

void plec_gguf_put_strings(struct plec_gguf_writer *writer, const char *name,
                           const char *const *values, uint64_t n) {
    struct buffer *keys = open_array(writer, name, PLEC_GGUF_STRING, n);
    for (uint64_t i = 0; i < n; i++)
        append_view(keys, plec_view_of(values[i]));
}

/* Bytes of a tensor by shape and type; the caller's word where the type has no size. */
static bool tensor_bytes(uint64_t *out, uint32_t type_id, uint32_t n_dims, const uint64_t *ne,
                         uint64_t stated) {
    const struct plec_gguf_type *type = plec_gguf_type_find(type_id);
    *out = stated;
    if (type == NULL || type->removed) return true;
    uint64_t n = 1;
    for (uint32_t i = 0; i < n_dims; i++)
        if (!plec_mul_u64(&n, n, ne[i])) return false;
    if ((n_dims == 0 ? 1 : ne[0]) % type->block_elems != 0) return false;
    if (!plec_mul_u64(out, n / type->block_elems, type->block_bytes)) return false;
    return stated == 0 || stated == *out;
}

void plec_gguf_put_tensor(struct plec_gguf_writer *writer, struct plec_view name, uint32_t type,
                          uint32_t n_dims, const uint64_t *ne, uint64_t n_bytes) {
    struct extent extent = {writer->data_end, 0};
    uint64_t end;
    if (n_dims > PLEC_GGUF_MAX_DIMS || !tensor_bytes(&extent.n_bytes, type, n_dims, ne, n_bytes) ||
        !plec_add_u64(&end, extent.offset, extent.n_bytes) ||
        !plec_round_up_u64(&writer->data_end, end, writer->alignment)) {
        char text[PLEC_VIEW_TEXT_MAX];
        plec_fail(fault_of(writer), PLEC_BAD_INPUT, "BadTensor",
                  "tensor \"%s\": shape, type and size do not fit", plec_view_text(name, text));
        return;
    }
    append_view(&writer->infos, name);
    append_u32(&writer->infos, n_dims);
    for (uint32_t i = 0; i < n_dims; i++)
        append_u64(&writer->infos, ne[i]);
    append_u32(&writer->infos, type);
    append_u64(&writer->infos, extent.offset);
    append(&writer->extents, &extent, sizeof extent);
    writer->n_tensors++;
}

/* -- the header ------------------------------------------------------------------------------ */

/* Bytes of one value that stands at p, by its type: the records were made here and are whole. */
static uint64_t value_size(const uint8_t *p, uint32_t type) {
    if (type == PLEC_GGUF_STRING) return 8 + plec_load_u64(p);
    if (type != PLEC_GGUF_ARRAY) return plec_gguf_value_bytes(type);
    uint32_t element = plec_load_u32(p);
    uint64_t n = plec_load_u64(p + 4), size = 12;
    if (element != PLEC_GGUF_STRING) return size + n * plec_gguf_value_bytes(element);
    for (uint64_t i = 0; i < n; i++)
        size += 8 + plec_load_u64(p + size);
    return size;
}

static uint64_t key_size(const uint8_t *p) {
    uint64_t name = plec_load_u64(p);
    return 8 + name + 4 + value_size(p + 8 + name + 4, plec_load_u32(p + 8 + name));
}
static uint64_t info_size(const uint8_t *p) {
    uint64_t name = plec_load_u64(p);
    return 8 + name + 4 + UINT64_C(8) * plec_load_u32(p + 8 + name) + 4 + 8;
}

static const struct extent *extent_of(const struct plec_gguf_writer *writer, uint32_t i) {
    return (const struct extent *)(const void *)writer->extents.data + i;
}

static void make_spans(struct plec_gguf_writer *writer, uint64_t infos_end, uint64_t data_at) {
    struct buffer *spans = &writer->spans;
    spans->size = 0;
    add_span(spans, PLEC_GGUF_SPAN_MAGIC, 0, 0, 4);
    add_span(spans, PLEC_GGUF_SPAN_VERSION, 0, 4, 4);
    add_span(spans, PLEC_GGUF_SPAN_N_TENSORS, 0, 8, 8);
    add_span(spans, PLEC_GGUF_SPAN_N_KEYS, 0, 16, 8);
    uint64_t at = PLEC_GGUF_HEAD_BYTES;
    for (uint32_t i = 0; i < writer->n_keys; i++) {
        uint64_t n = key_size(writer->header.data + at);
        add_span(spans, PLEC_GGUF_SPAN_KEY, i, at, n);
        at += n;
    }
    for (uint32_t i = 0; i < writer->n_tensors; i++) {
        uint64_t n = info_size(writer->header.data + at);
        add_span(spans, PLEC_GGUF_SPAN_TENSOR, i, at, n);
        at += n;
    }
    if (data_at > infos_end)
        add_span(spans, PLEC_GGUF_SPAN_PADDING, 0, infos_end, data_at - infos_end);
    for (uint32_t i = 0; i < writer->n_tensors; i++) {
        const struct extent *extent = extent_of(writer, i);
        uint64_t end = extent->offset + extent->n_bytes;
        uint64_t next = i + 1 < writer->n_tensors ? extent_of(writer, i + 1)->offset : end;
        add_span(spans, PLEC_GGUF_SPAN_DATA, i, data_at + extent->offset, extent->n_bytes);
        if (next > end) add_span(spans, PLEC_GGUF_SPAN_PADDING, i, data_at + end, next - end);
    }
}

static enum plec_status make_header(struct plec_gguf_writer *writer, struct plec_error *err) {
    enum plec_status status = report(writer, err);
    if (status != PLEC_OK) return status;
    struct buffer *header = &writer->header;
    header->size = 0;
    append(header, "GGUF", 4);
    append_u32(header, 3);
    append_u64(header, writer->n_tensors);
    append_u64(header, writer->n_keys);
    append(header, writer->keys.data, writer->keys.size);
    append(header, writer->infos.data, writer->infos.size);
    uint64_t infos_end = header->size, data_at = infos_end;
    if (writer->n_tensors > 0 && plec_round_up_u64(&data_at, infos_end, writer->alignment)) {
        uint8_t *zeros = reserve(header, (size_t)(data_at - infos_end));
        if (zeros != NULL) memset(zeros, 0, (size_t)(data_at - infos_end));
    }
    if (!header->failed) make_spans(writer, infos_end, data_at);
    writer->header_bytes = data_at;
    return report(writer, err);
}

enum plec_status plec_gguf_writer_header(const uint8_t **bytes, uint64_t *n_bytes,
                                         struct plec_gguf_writer *writer, struct plec_error *err) {
    enum plec_status status = make_header(writer, err);
    if (status != PLEC_OK) return status;
    *bytes = writer->header.data;
    *n_bytes = writer->header.size;
    return PLEC_OK;
}

enum plec_status plec_gguf_writer_spans(const struct plec_gguf_span **spans, size_t *n_spans,
                                        struct plec_gguf_writer *writer, struct plec_error *err) {
    enum plec_status status = make_header(writer, err);
    if (status != PLEC_OK) return status;
    *spans = (const struct plec_gguf_span *)(const void *)writer->spans.data;
    *n_spans = writer->spans.size / sizeof **spans;
    return PLEC_OK;
}

/* -- the file -------------------------------------------------------------------------------- */

/* Writes at a place; a failure sticks. */
static enum plec_status write_at(struct plec_gguf_writer *writer, uint64_t at, const void *bytes,
                                 uint64_t n_bytes, struct plec_error *err) {
    struct plec_error fault;
    enum plec_status status = plec_atomic_file_write(&writer->file, at, bytes, n_bytes, &fault);
    return status == PLEC_OK ? PLEC_OK : fail_with(writer, &fault, err);
}

enum plec_status plec_gguf_writer_begin(struct plec_gguf_writer *writer, const char *path,
                                        struct plec_error *err) {
    enum plec_status status = make_header(writer, err);
    if (status != PLEC_OK) return status;
    struct plec_error fault;
    status = plec_atomic_file_open(&writer->file, path, &fault);
    if (status != PLEC_OK) return fail_with(writer, &fault, err);
    return write_at(writer, 0, writer->header.data, writer->header.size, err);
}

/* Moves past tensors that are full, or empty from the start. What is never written between two of
 * them are the zeros of the padding. */
static void move_on(struct plec_gguf_writer *writer) {
    while (writer->current < writer->n_tensors &&
           writer->current_bytes == extent_of(writer, writer->current)->n_bytes) {
        writer->current++;
        writer->current_bytes = 0;
    }
}

enum plec_status plec_gguf_writer_data(struct plec_gguf_writer *writer, const void *bytes,
                                       uint64_t n_bytes, struct plec_error *err) {
    enum plec_status status = report(writer, err);
    if (status != PLEC_OK) return status;
    move_on(writer);
    bool full = writer->current == writer->n_tensors;
    uint64_t left = full ? 0 : extent_of(writer, writer->current)->n_bytes - writer->current_bytes;
    if (n_bytes > left) {
        plec_fail(fault_of(writer), PLEC_BAD_INPUT, "TooMuchData",
                  "tensor %u takes %llu more bytes, given %llu", writer->current,
                  (unsigned long long)left, (unsigned long long)n_bytes);
        return report(writer, err);
    }
    if (n_bytes == 0) return PLEC_OK;
    uint64_t at = writer->header_bytes + extent_of(writer, writer->current)->offset;
    at += writer->current_bytes;
    writer->current_bytes += n_bytes;
    return write_at(writer, at, bytes, n_bytes, err);
}

enum plec_status plec_gguf_writer_finish(struct plec_gguf_writer *writer, bool header_only,
                                         struct plec_error *err) {
    enum plec_status status = report(writer, err);
    if (status != PLEC_OK) return status;
    bool untouched = writer->current == 0 && writer->current_bytes == 0;
    move_on(writer);
    if (header_only ? !untouched : writer->current != writer->n_tensors) {
        plec_fail(fault_of(writer), PLEC_BAD_INPUT, header_only ? "TooMuchData" : "TooLittleData",
                  "tensor %u has %llu bytes", writer->current,
                  (unsigned long long)writer->current_bytes);
        return report(writer, err);
    }
    struct plec_error fault;
    status = plec_atomic_file_commit(&writer->file, &fault);
    return status == PLEC_OK ? PLEC_OK : fail_with(writer, &fault, err);
}

void plec_gguf_writer_free(struct plec_gguf_writer *writer) {
    if (writer == NULL) return;
    if (writer->file.open) plec_atomic_file_abort(&writer->file);
    free(writer->keys.data);
    free(writer->infos.data);
    free(writer->header.data);
    free(writer->spans.data);
    free(writer->extents.data);
    free(writer);
}
