#include "lyrw/tezw.h"

#include <assert.h>
#include <string.h>

#include "lyrw/cursor.h"

static const char *const names[PLEC_TEZW_N_KINDS] = {
    "wte", "rms_f", "rms1", "wq", "wk", "wv", "wo", "rms2", "wgate", "wval", "wproj",
};

static uint32_t rows_of(const struct plec_tezw *file, enum plec_tezw_tensor_kind kind) {
    switch (kind) {
    case PLEC_TEZW_WTE: return file->vocab_sz;
    case PLEC_TEZW_RMS_F:
    case PLEC_TEZW_RMS1:
    case PLEC_TEZW_RMS2: return 1;
    case PLEC_TEZW_WGATE:
    case PLEC_TEZW_WVAL: return file->ffn_dim;
    default: return file->dim;
    }
}
static uint32_t cols_of(const struct plec_tezw *file, enum plec_tezw_tensor_kind kind) {
    return kind == PLEC_TEZW_WPROJ ? file->ffn_dim : file->dim;
}

/* Weights of the kinds from `first` up to `end`, as many times as they repeat; false on overflow.
 * A product of two dims is below 2^62, a sum of nine of them below 2^66: hence the checks. */
static bool count_weights(uint64_t *out, const struct plec_tezw *file,
                          enum plec_tezw_tensor_kind first, enum plec_tezw_tensor_kind end) {
    uint64_t n = 0;
    for (enum plec_tezw_tensor_kind kind = first; kind < end; kind++)
        if (!plec_add_u64(&n, n, (uint64_t)rows_of(file, kind) * cols_of(file, kind))) return false;
    *out = n;
    return true;
}

static bool file_bytes(uint64_t *out, const struct plec_tezw *file) {
    uint64_t once, layer, all;
    return count_weights(&once, file, PLEC_TEZW_WTE, PLEC_TEZW_RMS1) &&
           count_weights(&layer, file, PLEC_TEZW_RMS1, PLEC_TEZW_N_KINDS) &&
           plec_mul_u64(&all, layer, file->n_layer) && plec_add_u64(&all, all, once) &&
           plec_mul_u64(&all, all, 8) && plec_add_u64(out, all, PLEC_TEZW_HEADER_BYTES);
}

static enum plec_status check_head(const uint8_t *data, uint64_t size, struct plec_error *err) {
    if (size == 0)
        return plec_fail_at(err, PLEC_MALFORMED, "Truncated", 0,
                            "the file is empty; a TEZW header is %d bytes", PLEC_TEZW_HEADER_BYTES);
    uint64_t n = size < 4 ? size : 4;
    if (memcmp(data, "TZ2W", (size_t)n) != 0)
        return plec_fail_at(err, PLEC_MALFORMED, "NotTezw", 0,
                            "the magic is %02x %02x %02x %02x, wanted 54 5a 32 57 (TZ2W)", data[0],
                            size > 1 ? data[1] : 0, size > 2 ? data[2] : 0, size > 3 ? data[3] : 0);
    if (size < PLEC_TEZW_HEADER_BYTES)
        return plec_fail_at(err, PLEC_MALFORMED, "Truncated", size,
                            "the header is %d bytes, the file has %llu", PLEC_TEZW_HEADER_BYTES,
                            (unsigned long long)size);
    uint32_t version = plec_load_u32(data + 4);
    if (version != 2)
        return plec_fail_at(err, PLEC_MALFORMED, "UnknownVersion", 4,
                            "TEZW version %d; version 2 is known", (int)(int32_t)version);
    return PLEC_OK;
}

static enum plec_status read_dims(struct plec_tezw *file, struct plec_error *err) {
    static const char *const fields[] = {"n_layer",  "n_head",  "dim",
                                         "vocab_sz", "max_seq", "ffn_dim"};
    uint32_t *const to[] = {&file->n_layer,  &file->n_head,  &file->dim,
                            &file->vocab_sz, &file->max_seq, &file->ffn_dim};
    for (unsigned i = 0; i < 6; i++) {
        uint32_t value = plec_load_u32(file->data + 8 + 4 * i);
        if (value == 0 || value > INT32_MAX)
            return plec_fail_at(err, PLEC_MALFORMED, "BadDim", 8 + 4 * i,
                                "%s is %d, wanted 1 or more", fields[i], (int)(int32_t)value);
        *to[i] = value;
    }
    return PLEC_OK;
}

static enum plec_status check_size(const struct plec_tezw *file, struct plec_error *err) {
    uint64_t needed;
    if (!file_bytes(&needed, file))
        return plec_fail_at(err, PLEC_MALFORMED, "SizeOverflow", 8,
                            "the size that the dims ask for overflows 64 bits");
    if (file->size < needed)
        return plec_fail_at(err, PLEC_MALFORMED, "Truncated", file->size,
                            "the dims ask for %llu bytes, the file has %llu: %llu bytes short",
                            (unsigned long long)needed, (unsigned long long)file->size,
                            (unsigned long long)(needed - file->size));
    if (file->size > needed)
        return plec_fail_at(err, PLEC_MALFORMED, "TrailingBytes", needed,
                            "%llu extra bytes: the dims ask for %llu, the file has %llu",
                            (unsigned long long)(file->size - needed), (unsigned long long)needed,
                            (unsigned long long)file->size);
    return PLEC_OK;
}

enum plec_status plec_tezw_parse(struct plec_tezw *out, const void *data, uint64_t size,
                                 struct plec_error *err) {
    *out = (struct plec_tezw){.data = data, .size = size};
    enum plec_status status = check_head(data, size, err);
    if (status == PLEC_OK) status = read_dims(out, err);
    if (status == PLEC_OK) status = check_size(out, err);
    return status;
}

struct plec_tezw_tensor plec_tezw_tensor_at(const struct plec_tezw *file, uint32_t layer,
                                            enum plec_tezw_tensor_kind kind) {
    assert(layer < file->n_layer && kind < PLEC_TEZW_N_KINDS);
    uint64_t before = 0, skipped = 0, once = 0, each = 0;
    /* None of these overflows: the sum over the whole file was checked against its size. */
    bool fits = count_weights(&once, file, PLEC_TEZW_WTE, PLEC_TEZW_RMS1) &&
                count_weights(&each, file, PLEC_TEZW_RMS1, PLEC_TEZW_N_KINDS);
    if (kind < PLEC_TEZW_RMS1)
        fits = fits && count_weights(&before, file, PLEC_TEZW_WTE, kind);
    else
        fits = fits && count_weights(&skipped, file, PLEC_TEZW_RMS1, kind);
    assert(fits);
    (void)fits;
    if (kind >= PLEC_TEZW_RMS1) before = once + each * layer + skipped;
    uint32_t rows = rows_of(file, kind), cols = cols_of(file, kind);
    return (struct plec_tezw_tensor){names[kind], rows, cols, PLEC_TEZW_HEADER_BYTES + before * 8,
                                     (uint64_t)rows * cols * 8};
}

uint64_t plec_tezw_n_weights(const struct plec_tezw *file) {
    return (file->size - PLEC_TEZW_HEADER_BYTES) / 8;
}
