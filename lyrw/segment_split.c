#include <inttypes.h>
#include <string.h>

#include "lyrw/segment_plan.h"

/* What a file of the first n_extents of the bank comes to. */
static enum plec_status size_of(uint64_t *file_bytes, const struct plec_segment_plan *plan,
                                const struct plec_segment_split *split, uint32_t n_extents,
                                struct plec_error *err) {
    struct plec_lyrw_segment record = plan->segments[0];
    uint64_t entries = (uint64_t)n_extents * split->extent;
    record.entry_count = entries < split->num_entries ? (uint32_t)entries : split->num_entries;
    struct plec_segment_plan part = *plan;
    part.segments = &record;
    struct plec_segment_layout layout;
    enum plec_status status = plec_segment_plan_layout(&layout, &part, err);
    *file_bytes = layout.file_bytes;
    return status;
}

static enum plec_status check_plan(const struct plec_segment_plan *plan, struct plec_error *err) {
    if (plan->header.num_banks != 1 || plan->header.num_segments != 1 || plan->length != NULL ||
        plan->segments[0].first_entry != 0 ||
        plan->segments[0].entry_count != plan->banks[0].num_entries)
        return plec_fail(err, PLEC_BAD_INPUT, "NotOneBank",
                         "only one bank of equal entries, in one segment, can be split");
    return PLEC_OK;
}

/* The most extents a file can have under the cap; at least one, at most all. */
static enum plec_status extents_that_fit(uint32_t *out, const struct plec_segment_plan *plan,
                                         const struct plec_segment_split *split, uint64_t cap,
                                         struct plec_error *err) {
    uint64_t bytes;
    enum plec_status status = size_of(&bytes, plan, split, 1, err);
    if (status != PLEC_OK) return status;
    if (bytes > cap)
        return plec_fail(err, PLEC_BAD_INPUT, "CapTooSmall",
                         "one extent of %u entries makes a file of %" PRIu64
                         " bytes, the cap is %" PRIu64,
                         split->extent, bytes, cap);
    uint32_t fits = 1, most = split->n_extents;
    while (fits < most) {
        uint32_t middle = fits + (most - fits + 1) / 2;
        if (size_of(&bytes, plan, split, middle, NULL) == PLEC_OK && bytes <= cap)
            fits = middle;
        else
            most = middle - 1;
    }
    *out = fits;
    return PLEC_OK;
}

enum plec_status plec_segment_plan_split(struct plec_segment_split *out,
                                         const struct plec_segment_plan *plan, uint64_t cap,
                                         struct plec_error *err) {
    memset(out, 0, sizeof *out);
    enum plec_status status = check_plan(plan, err);
    if (status != PLEC_OK) return status;
    out->num_entries = plan->banks[0].num_entries;
    out->extent = plan->extent == 0 ? 1 : plan->extent;
    out->n_extents = (uint32_t)(((uint64_t)out->num_entries + out->extent - 1) / out->extent);
    uint32_t fits = 1;
    status = extents_that_fit(&fits, plan, out, cap == 0 ? UINT64_MAX : cap, err);
    if (status != PLEC_OK) return status;
    out->n_segments = (uint32_t)(((uint64_t)out->n_extents + fits - 1) / fits);
    if (out->n_segments == 0) out->n_segments = 1;
    if (out->n_segments > UINT16_MAX)
        return plec_fail(err, PLEC_BAD_INPUT, "TooManySegments",
                         "%u under a cap of %" PRIu64 " bytes, a segment's index goes to 65535",
                         out->n_segments, cap);
    return PLEC_OK;
}

static uint64_t first_of(const struct plec_segment_split *split, uint32_t i) {
    uint32_t each = split->n_extents / split->n_segments;
    uint32_t larger = split->n_extents % split->n_segments;
    uint64_t extents = (uint64_t)each * i + (i < larger ? i : larger);
    uint64_t entries = extents * split->extent;
    return entries < split->num_entries ? entries : split->num_entries;
}

void plec_segment_split_range(uint32_t *first_entry, uint32_t *entry_count,
                              const struct plec_segment_split *split, uint32_t i) {
    *first_entry = (uint32_t)first_of(split, i);
    *entry_count = (uint32_t)first_of(split, i + 1) - *first_entry;
}
