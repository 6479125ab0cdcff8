#include "tools/plectrum/npy.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lyrw/atomic_file.h"
#include "lyrw/cursor.h"

static const char magic[] = "\x93NUMPY";
enum { MAGIC_BYTES = 6, WRITE_HEADER_BYTES = 128, QUOTED_MAX = 16 };

static const struct {
    const char *name, *descr;
    uint32_t n_bytes;
} types[] = {
    [PLEC_NPY_F32] = {"f32", "<f4", 4},
    [PLEC_NPY_F16] = {"f16", "<f2", 2},
    [PLEC_NPY_I32] = {"i32", "<i4", 4},
};

const char *plec_npy_type_name(enum plec_npy_type type) {
    return types[type].name;
}

uint32_t plec_npy_type_bytes(enum plec_npy_type type) {
    return types[type].n_bytes;
}

/* The header as text, and where reading it stands. */
struct literal {
    const char *text;
    size_t length, at;
    uint64_t start; /* byte of text[0] in the file */
    struct plec_error *err;
};

/* What a header has said so far. */
struct header {
    bool has_descr, has_order, has_shape;
    char descr[QUOTED_MAX];
    bool fortran;
    uint32_t n_dims;
    uint64_t dims[PLEC_NPY_DIMS_MAX];
};

static enum plec_status fail_header(const struct literal *in, const char *wanted) {
    return plec_fail_at(in->err, PLEC_MALFORMED, "NpyHeader", in->start + in->at,
                        "the header wants %s here", wanted);
}

static char peek(struct literal *in) {
    while (in->at < in->length && (in->text[in->at] == ' ' || in->text[in->at] == '\n'))
        in->at++;
    return in->at < in->length ? in->text[in->at] : '\0';
}

static bool accept(struct literal *in, char c) {
    if (peek(in) != c || in->at == in->length) return false;
    in->at++;
    return true;
}

static bool accept_word(struct literal *in, const char *word) {
    size_t n = strlen(word);
    if (peek(in) != word[0] || in->length - in->at < n || memcmp(in->text + in->at, word, n) != 0)
        return false;
    in->at += n;
    return true;
}

/* 'text' or "text", shorter than QUOTED_MAX. */
static enum plec_status read_quoted(char *out, struct literal *in) {
    char quote = peek(in);
    if (quote != '\'' && quote != '"') return fail_header(in, "a quoted word");
    size_t n = 0;
    for (in->at++; in->at < in->length && in->text[in->at] != quote; in->at++) {
        char c = in->text[in->at];
        if (n + 1 == QUOTED_MAX || c < ' ' || c == 0x7F || c == '\\')
            return fail_header(in, "a short word");
        out[n++] = c;
    }
    if (in->at == in->length) return fail_header(in, "a closing quote");
    in->at++;
    out[n] = '\0';
    return PLEC_OK;
}

static enum plec_status read_number(uint64_t *out, struct literal *in) {
    char c = peek(in);
    if (c < '0' || c > '9') return fail_header(in, "a number");
    uint64_t value = 0;
    for (; in->at < in->length && in->text[in->at] >= '0' && in->text[in->at] <= '9'; in->at++) {
        uint64_t digit = (uint64_t)(in->text[in->at] - '0');
        if (!plec_mul_u64(&value, value, 10) || !plec_add_u64(&value, value, digit))
            return fail_header(in, "a number below 2^64");
    }
    *out = value;
    return PLEC_OK;
}

/* (), (3,), (3, 4) */
static enum plec_status read_shape(struct header *header, struct literal *in) {
    if (!accept(in, '(')) return fail_header(in, "a shape");
    while (!accept(in, ')')) {
        if (header->n_dims == PLEC_NPY_DIMS_MAX)
            return plec_fail_at(in->err, PLEC_MALFORMED, "TooManyDimensions", in->start + in->at,
                                "more than %d", PLEC_NPY_DIMS_MAX);
        enum plec_status status = read_number(&header->dims[header->n_dims], in);
        if (status != PLEC_OK) return status;
        header->n_dims++;
        bool comma = accept(in, ',');
        if (!comma && (peek(in) != ')' || header->n_dims == 1)) return fail_header(in, "a comma");
    }
    return PLEC_OK;
}

static enum plec_status read_order(struct header *header, struct literal *in) {
    header->fortran = accept_word(in, "True");
    if (!header->fortran && !accept_word(in, "False")) return fail_header(in, "True or False");
    return PLEC_OK;
}

static enum plec_status read_member(struct header *header, struct literal *in) {
    char key[QUOTED_MAX];
    enum plec_status status = read_quoted(key, in);
    if (status != PLEC_OK) return status;
    bool *seen = strcmp(key, "descr") == 0           ? &header->has_descr
                 : strcmp(key, "fortran_order") == 0 ? &header->has_order
                 : strcmp(key, "shape") == 0         ? &header->has_shape
                                                     : NULL;
    if (seen == NULL || *seen) return fail_header(in, "descr, fortran_order and shape, once each");
    if (!accept(in, ':')) return fail_header(in, "a colon");
    *seen = true;
    if (seen == &header->has_descr && peek(in) == '[')
        return plec_fail_at(in->err, PLEC_UNSUPPORTED, "WrongDtype", in->start + in->at,
                            "a structured type; f32, f16 and i32 are read");
    if (seen == &header->has_descr) return read_quoted(header->descr, in);
    return seen == &header->has_order ? read_order(header, in) : read_shape(header, in);
}

static enum plec_status read_header(struct header *header, struct literal *in) {
    if (!accept(in, '{')) return fail_header(in, "a dictionary");
    while (!accept(in, '}')) {
        enum plec_status status = read_member(header, in);
        if (status != PLEC_OK) return status;
        if (!accept(in, ',') && peek(in) != '}') return fail_header(in, "a comma or a brace");
    }
    if (!header->has_descr || !header->has_order || !header->has_shape)
        return fail_header(in, "descr, fortran_order and shape");
    peek(in);
    return in->at == in->length ? PLEC_OK : fail_header(in, "nothing more");
}

static enum plec_status take_type(struct plec_npy_view *out, const struct header *header,
                                  struct plec_error *err) {
    for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
        if (strcmp(header->descr, types[i].descr) == 0) {
            out->type = (enum plec_npy_type)i;
            return PLEC_OK;
        }
    return plec_fail(err, PLEC_UNSUPPORTED, "WrongDtype",
                     "its type is '%s'; f32 ('<f4'), f16 ('<f2') and i32 ('<i4') are read",
                     header->descr);
}

static enum plec_status take_values(struct plec_npy_view *out, const struct header *header,
                                    struct plec_cursor *cursor, struct plec_error *err) {
    uint64_t n_bytes, n_values = 1;
    out->n_dims = header->n_dims;
    bool fits = true;
    for (uint32_t i = 0; i < header->n_dims; i++) {
        out->dims[i] = header->dims[i];
        fits = fits && plec_mul_u64(&n_values, n_values, header->dims[i]);
    }
    if (!fits || !plec_mul_u64(&n_bytes, n_values, types[out->type].n_bytes))
        return plec_fail(err, PLEC_MALFORMED, "ShapeOverflow", "the shape exceeds 64 bits");
    uint64_t left = plec_cursor_left(cursor);
    if (left != n_bytes)
        return plec_fail_at(err, PLEC_MALFORMED, left < n_bytes ? "ShortArray" : "TrailingBytes",
                            cursor->at, "the shape says %llu bytes, the file has %llu",
                            (unsigned long long)n_bytes, (unsigned long long)left);
    out->n_values = n_values;
    out->values = plec_cursor_bytes(cursor, n_bytes);
    return PLEC_OK;
}

enum plec_status plec_npy_parse(struct plec_npy_view *out, const void *data, uint64_t size,
                                struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct plec_cursor cursor = plec_cursor_at(data, size, 0);
    const uint8_t *start = plec_cursor_bytes(&cursor, MAGIC_BYTES);
    if (start == NULL || memcmp(start, magic, MAGIC_BYTES) != 0)
        return plec_fail_at(err, PLEC_MALFORMED, "NotNpy", 0,
                            "not a .npy file: it does not start with \\x93NUMPY");
    uint8_t major = plec_cursor_u8(&cursor), minor = plec_cursor_u8(&cursor);
    if (!cursor.failed && ((major != 1 && major != 2) || minor != 0))
        return plec_fail_at(err, PLEC_MALFORMED, "NpyVersion", MAGIC_BYTES,
                            "version %u.%u; 1.0 and 2.0 are read", major, minor);
    uint64_t length = major == 1 ? plec_cursor_u16(&cursor) : plec_cursor_u32(&cursor);
    struct literal in = {.length = (size_t)length, .start = cursor.at, .err = err};
    in.text = (const char *)plec_cursor_bytes(&cursor, length);
    enum plec_status status = plec_cursor_status(&cursor, "npy header", err);
    struct header header = {0};
    if (status == PLEC_OK) status = read_header(&header, &in);
    if (status == PLEC_OK) status = take_type(out, &header, err);
    if (status == PLEC_OK && header.fortran)
        status = plec_fail(err, PLEC_UNSUPPORTED, "FortranOrder",
                           "its values are in Fortran order; C order is read");
    if (status == PLEC_OK) status = take_values(out, &header, &cursor, err);
    return status;
}

enum plec_status plec_npy_open(struct plec_npy *out, const char *path, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    enum plec_status status = plec_mapping_open(&out->mapping, path, err);
    if (status != PLEC_OK) return status;
    status = plec_npy_parse(&out->view, out->mapping.data, out->mapping.size, err);
    if (status != PLEC_OK) {
        plec_error_context(err, "%s", path);
        plec_npy_close(out);
    }
    return status;
}

void plec_npy_close(struct plec_npy *npy) {
    plec_mapping_close(&npy->mapping);
    memset(npy, 0, sizeof *npy);
}

/* Magic, version, length and literal, padded so that the values start at a multiple of 64. */
static void make_header(char *out, enum plec_npy_type type, uint64_t rows, uint64_t cols) {
    memset(out, ' ', WRITE_HEADER_BYTES);
    memcpy(out, magic, MAGIC_BYTES);
    out[6] = 1;
    out[7] = 0;
    plec_store_u16(out + 8, WRITE_HEADER_BYTES - 10);
    char literal[WRITE_HEADER_BYTES];
    int n = snprintf(literal, sizeof literal,
                     "{'descr': '%s', 'fortran_order': False, 'shape': (%llu, %llu), }",
                     types[type].descr, (unsigned long long)rows, (unsigned long long)cols);
    assert(n > 0 && n < WRITE_HEADER_BYTES - 11);
    memcpy(out + 10, literal, (size_t)n);
    out[WRITE_HEADER_BYTES - 1] = '\n';
}

/* Header and values through a file that stands open. */
static enum plec_status write_atomic(const char *path, const char *header, const void *values,
                                     uint64_t n_bytes, struct plec_error *err) {
    struct plec_atomic_file file;
    enum plec_status status = plec_atomic_file_open_beside(&file, path, err);
    if (status != PLEC_OK) return status;
    status = plec_atomic_file_write(&file, 0, header, WRITE_HEADER_BYTES, err);
    if (status == PLEC_OK)
        status = plec_atomic_file_write(&file, WRITE_HEADER_BYTES, values, n_bytes, err);
    if (status == PLEC_OK) return plec_atomic_file_commit(&file, err);
    plec_atomic_file_abort(&file);
    return status;
}

/* A device or a pipe is written to, never replaced. */
static enum plec_status write_through(const char *path, const char *header, const void *values,
                                      uint64_t n_bytes, struct plec_error *err) {
    FILE *file = fopen(path, "wb");
    if (file == NULL)
        return plec_fail(err, PLEC_IO, "CannotCreate", "%s: %s", path, strerror(errno));
    bool written = fwrite(header, 1, WRITE_HEADER_BYTES, file) == WRITE_HEADER_BYTES &&
                   fwrite(values, 1, (size_t)n_bytes, file) == n_bytes;
    int reason = errno;
    if (fclose(file) != 0 && written) {
        written = false;
        reason = errno;
    }
    if (written) return PLEC_OK;
    return plec_fail(err, PLEC_IO, "WriteFailed", "%s: %s", path, strerror(reason));
}

enum plec_status plec_npy_write(const char *path, enum plec_npy_type type, const void *values,
                                uint64_t rows, uint64_t cols, struct plec_error *err) {
    char header[WRITE_HEADER_BYTES];
    uint64_t n_bytes = rows * cols * types[type].n_bytes;
    make_header(header, type, rows, cols);
    struct stat info;
    bool special = stat(path, &info) == 0 && !S_ISREG(info.st_mode);
    return special ? write_through(path, header, values, n_bytes, err)
                   : write_atomic(path, header, values, n_bytes, err);
}
