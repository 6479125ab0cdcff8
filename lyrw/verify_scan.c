/* verify_scan.c: looks for values and scales that are not finite. */
#include <inttypes.h>

#include "lyrw/codec/bf16.h"
#include "lyrw/codec/f16.h"
#include "lyrw/codec/f32.h"
#include "lyrw/codec/f64.h"
#include "lyrw/codec/fp4_larql.h"
#include "lyrw/codec/iq4_nl.h"
#include "lyrw/codec/iq4_xs.h"
#include "lyrw/codec/mxfp8.h"
#include "lyrw/codec/q1_0.h"
#include "lyrw/codec/q2_0.h"
#include "lyrw/codec/q2_k.h"
#include "lyrw/codec/q3_k.h"
#include "lyrw/codec/q4_0.h"
#include "lyrw/codec/q4_1.h"
#include "lyrw/codec/q4_k.h"
#include "lyrw/codec/q5_0.h"
#include "lyrw/codec/q5_1.h"
#include "lyrw/codec/q5_k.h"
#include "lyrw/codec/q6_k.h"
#include "lyrw/codec/q8_0.h"
#include "lyrw/codec/tq1_0.h"
#include "lyrw/codec/tq2_0.h"
#include "lyrw/cursor.h"
#include "lyrw/verify_parts.h"

/* Small number formats that can hold NaN or infinity. */
enum number { F16, BF16, F32, F64, E4M3, E8M0, N_NUMBERS };

static const uint8_t number_bytes[N_NUMBERS] = {2, 2, 4, 8, 1, 1};

/* Neighbouring numbers of one kind inside each block of a format. */
struct numbers {
    uint16_t format;
    enum number kind;
    uint16_t offset, count; /* in the block; how many */
    bool values;            /* elements themselves, not scales of them */
};

#define SCALES(tag, codec, kind, first, count)                                                     \
    { PLEC_FORMAT_##tag, kind, offsetof(struct plec_##codec##_block, first), count, false }
#define VALUES(tag, codec, kind, count)                                                            \
    { PLEC_FORMAT_##tag, kind, 0, count, true }

/* Where the numbers of each format are, from the codecs' own blocks. gguf_mxfp4 and gguf_nvfp4 have
 * none: every byte of their scales is finite. */
static const struct numbers table[] = {
    VALUES(F32, f32, F32, 1),
    VALUES(F16, f16, F16, 1),
    VALUES(BF16, bf16, BF16, 1),
    SCALES(Q4_0, q4_0, F16, d, 1),
    SCALES(Q4_K, q4_k, F16, d, 2), /* and dmin */
    SCALES(Q6_K, q6_k, F16, d, 1),
    SCALES(Q8_0, q8_0, F16, d, 1),
    SCALES(FP4_LARQL, fp4_larql, E4M3, sub_scales, 9), /* and the block's scale */
    VALUES(MXFP8, mxfp8, E4M3, 32),
    SCALES(GGUF_Q4_1, q4_1, F16, d, 2), /* and m */
    SCALES(GGUF_Q5_0, q5_0, F16, d, 1),
    SCALES(GGUF_Q5_1, q5_1, F16, d, 2), /* and m */
    SCALES(GGUF_Q2_K, q2_k, F16, d, 2), /* and dmin */
    SCALES(GGUF_Q3_K, q3_k, F16, d, 1),
    SCALES(GGUF_Q5_K, q5_k, F16, d, 2), /* and dmin */
    SCALES(GGUF_IQ4_NL, iq4_nl, F16, d, 1),
    SCALES(GGUF_IQ4_XS, iq4_xs, F16, d, 1),
    VALUES(GGUF_F64, f64, F64, 1),
    SCALES(GGUF_TQ1_0, tq1_0, F16, d, 1),
    SCALES(GGUF_TQ2_0, tq2_0, F16, d, 1),
    SCALES(GGUF_Q1_0, q1_0, F16, d, 1),
    SCALES(GGUF_Q2_0, q2_0, F16, d, 1),
};

static bool not_finite(enum number kind, const uint8_t *p) {
    switch (kind) {
    case F16: return (plec_le16(p) & 0x7C00u) == 0x7C00u;
    case BF16: return (plec_le16(p) & 0x7F80u) == 0x7F80u;
    case F32: return (plec_le32(p) & 0x7F800000u) == 0x7F800000u;
    case F64: return (plec_le32(p + 4) & 0x7FF00000u) == 0x7FF00000u;
    case E4M3: return (p[0] & 0x7Fu) == 0x7Fu;
    case E8M0: return p[0] == 0xFFu;
    case N_NUMBERS: break;
    }
    return false;
}

/* What a scan of one stream of blocks found. */
struct tally {
    uint64_t n_bad, first; /* byte of the first, from the region's start */
    enum number kind;
};

/* count numbers at `offset` of each of n_blocks blocks of `stride` bytes; `from` is where the
 * blocks begin in their region. */
static inline void scan_kind(struct tally *tally, enum number kind, const uint8_t *region,
                             uint64_t from, uint64_t stride, uint64_t n_blocks, uint32_t offset,
                             uint32_t count) {
    for (uint64_t b = 0; b < n_blocks; b++) {
        const uint8_t *p = region + from + b * stride + offset;
        for (uint32_t i = 0; i < count; i++, p += number_bytes[kind]) {
            if (!not_finite(kind, p)) continue;
            if (tally->n_bad++ == 0) tally->first = (uint64_t)(p - region);
        }
    }
}

/* One loop a kind, so that each is compiled for its own test. */
static void scan(struct tally *tally, enum number kind, const uint8_t *region, uint64_t from,
                 uint64_t stride, uint64_t n_blocks, uint32_t offset, uint32_t count) {
#define SCAN(kind) scan_kind(tally, kind, region, from, stride, n_blocks, offset, count)
    uint64_t before = tally->n_bad;
    switch (kind) {
    case F16: SCAN(F16); break;
    case BF16: SCAN(BF16); break;
    case F32: SCAN(F32); break;
    case F64: SCAN(F64); break;
    case E4M3: SCAN(E4M3); break;
    case E8M0: SCAN(E8M0); break;
    case N_NUMBERS: break;
    }
    if (before == 0 && tally->n_bad > 0) tally->kind = kind;
#undef SCAN
}

static const char *kind_name(enum number kind) {
    static const char *const names[N_NUMBERS] = {"f16", "bf16", "f32", "f64", "E4M3", "E8M0"};
    return names[kind];
}

static void tell_tally(struct plec_verifier *v, const struct plec_verify_slot *slot, bool values,
                       const struct tally *tally) {
    if (tally->n_bad == 0) return;
    plec_verify_tell_slot(v, PLEC_DEFECT, values ? "NonFiniteValue" : "NonFiniteScale", slot,
                          "offset=%" PRIu64 ": %" PRIu64 " %s that are NaN or infinite, the "
                          "first at byte %" PRIu64,
                          slot->offset, tally->n_bad, kind_name(tally->kind),
                          slot->offset + tally->first);
}

/* The blocks themselves: a whole inline matrix, or the values of a paired one. False when there is
 * nothing in them to look at. */
static bool scan_blocks(struct plec_verifier *v, const struct plec_verify_slot *slot,
                        const struct plec_format *format, uint64_t n_blocks) {
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++) {
        if (table[i].format != format->tag) continue;
        struct tally tally = {0};
        scan(&tally, table[i].kind, v->segment->data + slot->offset, 0, format->block_bytes,
             n_blocks, table[i].offset, table[i].count);
        tell_tally(v, slot, table[i].values, &tally);
        return true;
    }
    return false;
}

/* Scales apart from their blocks: one byte a block from `from` on, and for nvfp4 in one region the
 * tensor scale behind them. */
static void scan_scales(struct plec_verifier *v, const struct plec_verify_slot *slot,
                        const struct plec_format *format, uint64_t from, uint64_t n_blocks,
                        bool tensor_scale) {
    const uint8_t *region = v->segment->data + slot->offset;
    struct tally tally = {0};
    enum number kind = format->geometry == PLEC_TRAILING ? E4M3 : E8M0;
    scan(&tally, kind, region, from, 1, n_blocks, 0, 1);
    if (tensor_scale) scan(&tally, F32, region, from + n_blocks, 4, 1, 0, 1);
    tell_tally(v, slot, false, &tally);
}

/* True when the region was looked at. */
static bool scan_region(struct plec_verifier *v, const struct plec_verify_slot *slot) {
    const struct plec_lyrw_schema *schema = slot->schema;
    const struct plec_format *format = plec_format_find(schema->format);
    uint64_t want;
    if (format == NULL || !plec_lyrw_schema_bytes(&want, schema) || want != slot->length ||
        !plec_verify_in_bounds(v->segment, slot))
        return false;
    uint64_t n_blocks = (uint64_t)schema->rows * (schema->cols / format->block_elems);
    bool whole = schema->packing <= PLEC_PACKING_BLOCKS_INLINE;
    if (schema->packing == PLEC_PACKING_BLOCKS_SCALES) {
        scan_scales(v, slot, format, 0, n_blocks, false);
        return true;
    }
    /* How a paired format would lie in one region is not defined. */
    if (whole && format->geometry == PLEC_PAIRED) return false;
    if (whole && format->geometry == PLEC_TRAILING) {
        scan_scales(v, slot, format, n_blocks * format->block_bytes, n_blocks, true);
        return true;
    }
    return scan_blocks(v, slot, format, n_blocks);
}

/* What a scan may still cost. */
struct budget {
    uint64_t n_bytes; /* a file has no more to give than it has */
    uint64_t n_slots;
};

/* False when the budget is used up. */
static bool scan_segment(struct plec_verifier *v, uint32_t ordinal, struct budget *budget) {
    uint64_t all, held = plec_verify_slots_held(&all, v->segment, ordinal);
    for (uint64_t k = 0; k < held; k++) {
        if (budget->n_slots-- == 0) return false; /* plec_segment_verify tells that */
        struct plec_verify_slot slot = plec_verify_slot_at(v->segment, ordinal, k);
        if (plec_verify_in_bounds(v->segment, &slot) && slot.length > budget->n_bytes) {
            plec_verify_tell_slot(v, PLEC_NOTE, "ScanStopped", &slot,
                                  "regions overlap: as many bytes were read as the file has");
            return false;
        }
        if (!scan_region(v, &slot)) continue;
        budget->n_bytes -= slot.length;
        v->report->n_scanned++;
        v->report->scanned_bytes += slot.length;
        if (v->options.progress != NULL) v->options.progress(v->options.user, slot.length);
    }
    return true;
}

void plec_segment_scan(struct plec_findings *findings, struct plec_verify_report *report,
                       const struct plec_segment *segment,
                       const struct plec_verify_options *options) {
    struct plec_verifier v = {.findings = findings, .report = report, .segment = segment};
    if (options != NULL) v.options = *options;
    struct budget budget = {segment->size, PLEC_VERIFY_SLOTS_MAX};
    for (uint32_t i = 0; i < segment->header.num_segments; i++)
        if (!scan_segment(&v, i, &budget)) return;
}
