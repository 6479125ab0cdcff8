#include "lyrw/sizing.h"

#include <assert.h>
#include <string.h>

#include "lyrw/cursor.h"

enum { SEGMENTS_MAX = 65535 };

/* Bytes of header, one bank, one segment record, the schemas and the slots of n entries. */
static uint64_t tables(const struct plec_sizing_args *args, uint64_t n_entries) {
    /* At most 2^32 * 2^16 * 2^4: no overflow. */
    return PLEC_LYRW_HEADER_BYTES + PLEC_LYRW_BANK_BYTES + PLEC_LYRW_SEGMENT_BYTES +
           (uint64_t)PLEC_LYRW_SCHEMA_BYTES * args->n_schemas +
           n_entries * args->n_schemas * PLEC_LYRW_SLOT_BYTES;
}

static uint64_t round_up(uint64_t x, uint64_t alignment) {
    uint64_t out = 0;
    bool fits = plec_round_up_u64(&out, x, alignment);
    assert(fits);
    (void)fits;
    return out;
}

static uint64_t min_u64(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static bool add_up_entry(struct plec_sizing *out) {
    for (uint32_t i = 0; i < out->args.n_schemas; i++) {
        uint64_t bytes = out->args.region_bytes[i], rounded;
        if (!plec_round_up_u64(&rounded, bytes, PLEC_LYRW_ALIGNMENT)) return false;
        if (!plec_add_u64(&out->entry_bytes, out->entry_bytes, bytes)) return false;
        if (!plec_add_u64(&out->entry_stride, out->entry_stride, rounded)) return false;
        out->tail_padding = rounded - bytes;
    }
    return true;
}

/* Whether all of the bank in one file, every extent on its own boundary, stays in 63 bits: then no
 * sum below can overflow. */
static bool fits_64_bits(const struct plec_sizing *s) {
    uint64_t bytes, padding;
    if (!plec_mul_u64(&bytes, s->entry_stride, s->args.n_entries)) return false;
    if (!plec_mul_u64(&padding, s->n_units, 2 * PLEC_EXTENT_ALIGNMENT)) return false;
    if (!plec_add_u64(&bytes, bytes, padding)) return false;
    if (!plec_add_u64(&bytes, bytes, tables(&s->args, s->args.n_entries))) return false;
    return bytes <= INT64_MAX - 2 * PLEC_EXTENT_ALIGNMENT;
}

uint64_t plec_sizing_extent_bytes(const struct plec_sizing *sizing, uint32_t n_entries) {
    if (n_entries == 0 || sizing->args.n_schemas == 0) return 0;
    return n_entries * sizing->entry_stride - sizing->tail_padding;
}

static uint64_t file_bytes(const struct plec_sizing *s, uint32_t n_entries) {
    uint64_t start = round_up(tables(&s->args, n_entries), PLEC_LYRW_ALIGNMENT);
    if (n_entries == 0 || s->args.n_schemas == 0) return start;
    if (s->args.extent_width == 0) return start + plec_sizing_extent_bytes(s, n_entries);
    uint64_t whole = plec_sizing_extent_bytes(s, s->width);
    uint64_t n_before = (n_entries - 1) / s->width;
    uint32_t n_last = (uint32_t)(n_entries - n_before * s->width);
    return round_up(start, PLEC_EXTENT_ALIGNMENT) +
           n_before * round_up(whole, PLEC_EXTENT_ALIGNMENT) + plec_sizing_extent_bytes(s, n_last);
}

/* The most extents (or entries) a file under the cap can hold. */
static uint32_t units_under_cap(const struct plec_sizing *s) {
    uint32_t low = 0, high = s->n_units;
    while (low < high) {
        uint32_t middle = high - (high - low) / 2;
        uint64_t n = min_u64((uint64_t)middle * s->width, s->args.n_entries);
        if (file_bytes(s, (uint32_t)n) <= s->args.segment_cap)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static enum plec_status split(struct plec_sizing *out, struct plec_error *err) {
    out->n_segments = 1;
    if (out->args.segment_cap == 0 || out->n_units == 0) return PLEC_OK;
    uint32_t most = units_under_cap(out);
    if (most == 0)
        return plec_fail(
            err, PLEC_BAD_INPUT, "SegmentCapTooSmall",
            "%u %s in a file need %llu bytes, the cap is %llu", out->width,
            out->width == 1 ? "entry" : "entries",
            (unsigned long long)file_bytes(out, (uint32_t)min_u64(out->width, out->args.n_entries)),
            (unsigned long long)out->args.segment_cap);
    uint64_t n = ((uint64_t)out->n_units + most - 1) / most;
    if (n > SEGMENTS_MAX)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManySegments", "%llu files, the most is %d",
                         (unsigned long long)n, SEGMENTS_MAX);
    out->n_segments = (uint32_t)n;
    return PLEC_OK;
}

enum plec_status plec_sizing_plan(struct plec_sizing *out, const struct plec_sizing_args *args,
                                  struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->args = *args;
    out->width = args->extent_width == 0 ? 1 : args->extent_width;
    out->n_units = (uint32_t)(((uint64_t)args->n_entries + out->width - 1) / out->width);
    /* An extent wider than the bank is the whole bank. */
    if (out->width > args->n_entries && args->n_entries > 0) out->width = args->n_entries;
    if (!add_up_entry(out) || !fits_64_bits(out))
        return plec_fail(err, PLEC_BAD_INPUT, "SizeOverflow", "%u entries of %u regions",
                         args->n_entries, args->n_schemas);
    return split(out, err);
}

void plec_sizing_segment_at(struct plec_sizing_segment *out, const struct plec_sizing *sizing,
                            uint32_t i) {
    assert(i < sizing->n_segments);
    /* The first `more` files hold one extent more than the others. */
    uint32_t base = sizing->n_units / sizing->n_segments;
    uint32_t more = sizing->n_units % sizing->n_segments;
    uint64_t first_unit = (uint64_t)base * i + min_u64(i, more);
    uint64_t n_units = base + (i < more ? 1 : 0);
    uint64_t first = min_u64(first_unit * sizing->width, sizing->args.n_entries);
    uint64_t end = min_u64((first_unit + n_units) * sizing->width, sizing->args.n_entries);
    memset(out, 0, sizeof *out);
    out->first_entry = (uint32_t)first;
    out->n_entries = (uint32_t)(end - first);
    out->n_extents = sizing->args.extent_width == 0 ? 0 : (uint32_t)n_units;
    out->table_bytes = tables(&sizing->args, out->n_entries);
    out->payload_start =
        round_up(out->table_bytes,
                 sizing->args.extent_width == 0 ? PLEC_LYRW_ALIGNMENT : PLEC_EXTENT_ALIGNMENT);
    out->payload_bytes = out->n_entries * sizing->entry_bytes;
    out->file_bytes = file_bytes(sizing, out->n_entries);
}
