/* verify_extents.c: files laid out in extents, held against the width the index records. */
#include "host/verify_parts.h"
#include "lyrw/segment_plan.h"

/* Bytes that the regions of some entries cover, from the first to the last. */
struct range {
    uint64_t first, end; /* first UINT64_MAX: no bytes */
};

/* Local entries [from, to) of one segment record; false when a region does not resolve, which is
 * told elsewhere. */
static bool cover(struct range *out, const struct plec_segment *segment, uint32_t ordinal,
                  uint32_t from, uint32_t to) {
    uint32_t n_schemas = segment->banks[segment->segments[ordinal].bank_ordinal].n_schemas;
    *out = (struct range){UINT64_MAX, 0};
    for (uint32_t entry = from; entry < to; entry++)
        for (uint32_t schema = 0; schema < n_schemas; schema++) {
            struct plec_region region;
            if (plec_segment_slot(&region, segment, ordinal, entry, schema, NULL) != PLEC_OK)
                return false;
            if (region.length == 0) continue;
            if (region.offset < out->first) out->first = region.offset;
            if (region.offset + region.length > out->end) out->end = region.offset + region.length;
        }
    return true;
}

static void tell(struct plec_container_verifier *v, enum plec_severity severity, const char *name,
                 const char *key, uint64_t entry, uint32_t width, uint64_t byte) {
    plec_findings_add(&v->report->findings, severity, name,
                      "segment %s: extent of %u entries at entry %llu, byte %llu", key, width,
                      (unsigned long long)entry, (unsigned long long)byte);
}

static void verify_record(struct plec_container_verifier *v, const char *key,
                          const struct plec_segment *segment, uint32_t ordinal, uint32_t width) {
    const struct plec_lyrw_segment *record = &segment->segments[ordinal];
    const struct plec_lyrw_bank *bank = &segment->banks[record->bank_ordinal];
    uint64_t end = (uint64_t)record->first_entry + record->entry_count, taken_until = 0;
    uint64_t n_slots = (uint64_t)record->entry_count * bank->n_schemas;
    if (n_slots == 0 || n_slots > PLEC_VERIFY_SLOTS_MAX) return; /* the latter is told elsewhere */
    if (record->first_entry % width != 0 || (end % width != 0 && end != bank->num_entries))
        tell(v, PLEC_DEFECT, "ExtentNotWhole", key, record->first_entry, width,
             record->entry_table);
    for (uint64_t at = 0; at < record->entry_count; at += width) {
        struct range range;
        uint64_t to = at + width < record->entry_count ? at + width : record->entry_count;
        if (!cover(&range, segment, ordinal, (uint32_t)at, (uint32_t)to)) return;
        if (range.first == UINT64_MAX) continue;
        /* Legal, and slower: direct reads of such an extent need a second buffer. */
        if (range.first % PLEC_EXTENT_ALIGNMENT != 0)
            tell(v, PLEC_NOTE, "ExtentNotAligned", key, record->first_entry + at, width,
                 range.first);
        if (range.first < taken_until)
            tell(v, PLEC_DEFECT, "ExtentsInterleave", key, record->first_entry + at, width,
                 range.first);
        taken_until = range.end;
    }
}

void plec_verify_extents(struct plec_container_verifier *v, const char *key,
                         const struct plec_segment *segment) {
    uint32_t width = plec_index_extent(&v->vindex.index, key);
    if (width == 0) return;
    for (uint32_t i = 0; i < segment->header.num_segments; i++)
        verify_record(v, key, segment, i, width);
}
