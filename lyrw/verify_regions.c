/* verify_regions.c: where regions lie: slots, bounds, lengths, overlaps, the end of the file. */
#include <inttypes.h>
#include <stdlib.h>

#include "lyrw/verify_parts.h"

/* Bytes a schema's regions must have. */
struct want {
    bool defined;
    uint64_t bytes;
};

/* What one pass over all slots carries. */
struct pass {
    struct plec_verifier *v;
    const struct want *want; /* [n_schemas] */
    uint64_t tables_end;
    uint64_t end;      /* of the region that ends last, empty ones included */
    uint64_t last_end; /* of the regions with bytes so far, while they ascend */
    bool ascending;    /* each region with bytes begins where or after the one before ends */
    uint64_t n_lying;  /* regions with bytes, inside the file */
    uint64_t left;     /* slots that may still be looked at */
    bool cut;          /* slots are missing, or were not looked at */
};

static bool lies(const struct plec_segment *segment, const struct plec_verify_slot *slot) {
    return slot->length > 0 && plec_verify_in_bounds(segment, slot);
}

static void check_slot(struct pass *pass, const struct plec_verify_slot *slot) {
    struct plec_verifier *v = pass->v;
    const struct want *want = &pass->want[slot->bank->first_schema + slot->schema->index];
    if (want->defined && slot->length != want->bytes)
        plec_verify_tell_slot(v, PLEC_DEFECT, "LengthNotShape", slot,
                              "length=%" PRIu64 ", shape and format need %" PRIu64, slot->length,
                              want->bytes);
    if (slot->offset % PLEC_LYRW_ALIGNMENT != 0)
        plec_verify_tell_slot(v, PLEC_DEFECT, "OffsetNotAligned", slot,
                              "offset=%" PRIu64 " is no multiple of 64", slot->offset);
    if (!plec_verify_in_bounds(v->segment, slot)) {
        plec_verify_tell_slot(v, PLEC_DEFECT, "RegionOutOfBounds", slot,
                              "offset=%" PRIu64 " length=%" PRIu64 " file_len=%" PRIu64,
                              slot->offset, slot->length, v->segment->size);
        return;
    }
    uint64_t end = slot->offset + slot->length;
    if (pass->end < end) pass->end = end;
    if (slot->length == 0) return;
    if (slot->offset < pass->tables_end)
        plec_verify_tell_slot(v, PLEC_DEFECT, "RegionInTables", slot,
                              "offset=%" PRIu64 ", the tables end at %" PRIu64, slot->offset,
                              pass->tables_end);
    pass->n_lying++;
    if (slot->offset < pass->last_end) pass->ascending = false;
    if (pass->last_end < end) pass->last_end = end;
}

static void tell_too_many(struct pass *pass, uint32_t ordinal, uint64_t n, uint64_t held) {
    plec_verify_tell(pass->v, PLEC_DEFECT, "TooManySlots",
                     "segment=%u: %" PRIu64 " of its %" PRIu64 " slots are beyond the %d of a file "
                     "that are looked at",
                     ordinal, held - n, held, PLEC_VERIFY_SLOTS_MAX);
    pass->cut = true;
}

static void check_segment(struct pass *pass, uint32_t ordinal) {
    const struct plec_segment *segment = pass->v->segment;
    uint64_t all, held = plec_verify_slots_held(&all, segment, ordinal);
    uint64_t n = held < pass->left ? held : pass->left;
    for (uint64_t k = 0; k < n; k++) {
        struct plec_verify_slot slot = plec_verify_slot_at(segment, ordinal, k);
        check_slot(pass, &slot);
    }
    pass->left -= n;
    pass->v->report->n_regions += n;
    if (n < held) tell_too_many(pass, ordinal, n, held);
    if (held == all) return;
    pass->cut = true;
    const struct plec_lyrw_segment *record = &segment->segments[ordinal];
    uint32_t n_schemas = segment->banks[record->bank_ordinal].n_schemas;
    plec_verify_tell(pass->v, PLEC_DEFECT, "EntryTableTruncated",
                     "segment=%u bank=%u entry=%" PRIu64 " schema=%" PRIu64 " byte=%" PRIu64
                     ": the file ends at %" PRIu64 ", %" PRIu64 " of %" PRIu64 " slots are missing",
                     ordinal, record->bank_id, record->first_entry + held / n_schemas,
                     held % n_schemas, record->entry_table + held * PLEC_LYRW_SLOT_BYTES,
                     segment->size, all - held, all);
}

/* A region in the sort: which slot it is follows from the byte of the slot. */
struct lying {
    uint64_t offset, end, slot_byte;
};

static int compare_lying(const void *a, const void *b) {
    const struct lying *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->end != y->end) return x->end < y->end ? -1 : 1;
    return (x->slot_byte > y->slot_byte) - (x->slot_byte < y->slot_byte);
}

/* The slot that stands at a byte of the entry tables: in the last record that begins there or
 * before; records without slots share their byte with the next one and come before it. */
static struct plec_verify_slot slot_of(const struct plec_segment *segment, uint64_t byte) {
    uint32_t low = 0, high = segment->header.num_segments;
    while (high - low > 1) {
        uint32_t middle = low + (high - low) / 2;
        if (segment->segments[middle].entry_table <= byte)
            low = middle;
        else
            high = middle;
    }
    uint64_t k = (byte - segment->segments[low].entry_table) / PLEC_LYRW_SLOT_BYTES;
    return plec_verify_slot_at(segment, low, k);
}

static void tell_overlap(struct plec_verifier *v, const struct lying *one,
                         const struct lying *other) {
    struct plec_verify_slot a = slot_of(v->segment, one->slot_byte);
    struct plec_verify_slot b = slot_of(v->segment, other->slot_byte);
    char role[PLEC_NAME_MAX];
    plec_verify_tell_slot(v, PLEC_DEFECT, "RegionsOverlap", &a,
                          "bytes %" PRIu64 " to %" PRIu64 " share some with %" PRIu64 " to %" PRIu64
                          " of segment=%u bank=%u entry=%u schema=%u role=%s",
                          one->offset, one->end - 1, other->offset, other->end - 1, b.segment,
                          b.bank->id, b.entry, b.schema->index,
                          plec_role_name(b.schema->role, role));
}

/* The first n regions with bytes, in the order of the tables: those that were counted. */
static void collect(struct lying *out, uint64_t n, const struct plec_segment *segment) {
    uint64_t n_found = 0;
    for (uint32_t i = 0; i < segment->header.num_segments; i++) {
        uint64_t all, held = plec_verify_slots_held(&all, segment, i);
        for (uint64_t k = 0; k < held && n_found < n; k++) {
            struct plec_verify_slot slot = plec_verify_slot_at(segment, i, k);
            if (lies(segment, &slot))
                out[n_found++] = (struct lying){slot.offset, slot.offset + slot.length, slot.byte};
        }
    }
}

static enum plec_status check_overlaps(struct plec_verifier *v, uint64_t n,
                                       struct plec_error *err) {
    struct lying *all = NULL;
    if (n <= SIZE_MAX / sizeof *all) all = malloc((size_t)n * sizeof *all);
    if (all == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory",
                         "checking %" PRIu64 " regions for overlaps", n);
    collect(all, n, v->segment);
    qsort(all, (size_t)n, sizeof *all, compare_lying);
    const struct lying *holder = &all[0]; /* reaches furthest so far */
    for (uint64_t i = 1; i < n; i++) {
        if (all[i].offset < holder->end) tell_overlap(v, &all[i], holder);
        if (all[i].end > holder->end) holder = &all[i];
    }
    free(all);
    return PLEC_OK;
}

static void check_end(const struct pass *pass) {
    const struct plec_segment *segment = pass->v->segment;
    if (pass->cut) return;
    uint64_t end = pass->end < segment->payload_start ? segment->payload_start : pass->end;
    if (segment->size > end)
        plec_verify_tell(pass->v, PLEC_DEFECT, "TrailingBytes",
                         "byte=%" PRIu64 ": %" PRIu64 " bytes behind the last region", end,
                         segment->size - end);
    if (segment->size < segment->payload_start)
        plec_verify_tell(pass->v, PLEC_NOTE, "PaddingMissing",
                         "byte=%" PRIu64 ": the payload would begin at %" PRIu64, segment->size,
                         segment->payload_start);
}

static void work_out(struct want *want, const struct plec_segment *segment) {
    for (uint64_t i = 0; i < segment->n_schemas; i++)
        want[i].defined = plec_lyrw_schema_bytes(&want[i].bytes, &segment->schemas[i]);
}

enum plec_status plec_verify_regions(struct plec_verifier *v, struct plec_error *err) {
    const struct plec_segment *segment = v->segment;
    struct want *want =
        calloc(segment->n_schemas == 0 ? 1 : (size_t)segment->n_schemas, sizeof *want);
    if (want == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "sizes of %" PRIu64 " schemas",
                         segment->n_schemas);
    work_out(want, segment);
    struct pass pass = {.v = v,
                        .want = want,
                        .tables_end = segment->entry_table + segment->entry_table_bytes,
                        .left = PLEC_VERIFY_SLOTS_MAX,
                        .ascending = true};
    for (uint32_t i = 0; i < segment->header.num_segments; i++)
        check_segment(&pass, i);
    free(want);
    enum plec_status status = pass.ascending ? PLEC_OK : check_overlaps(v, pass.n_lying, err);
    check_end(&pass);
    return status;
}
