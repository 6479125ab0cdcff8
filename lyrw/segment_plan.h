/* segment_plan.h: a LYRW v2 file on paper, before a byte of it exists.
 *
 * A plan says what a file holds and how its regions are to lie; from it follow the size of every
 * part, the offset of every region, and the bytes in front of the payload. Regions start on 64-byte
 * boundaries and follow each other in one of these orders:
 *
 *   EXTENT  ORDER   WHERE
 *   0       entry   the reference writer's: segment by segment, entry by entry, regions by schema
 *   W       entry   the same, but entries 0, W, 2W, ... of a segment start on a 4096-byte boundary
 *   any     role    within an extent (without: a segment) all regions of schema 0, then of 1, ...
 *
 * Gaps are zeros. Plans never copy the reference writer's habit of giving a segment without entries
 * a slot: such a segment has none. Nothing here touches a file.
 */
#ifndef PLEC_LYRW_SEGMENT_PLAN_H
#define PLEC_LYRW_SEGMENT_PLAN_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_EXTENT_ALIGNMENT = 4096 };

enum plec_order { PLEC_ORDER_ENTRY, PLEC_ORDER_ROLE };

struct plec_segment_plan {
    struct plec_lyrw_header header; /* written whole; its counts are the lengths of the arrays */
    /* first_schema, bank_ordinal and entry_table of the records are worked out, never read. */
    const struct plec_lyrw_bank *banks;       /* [header.num_banks] */
    const struct plec_lyrw_segment *segments; /* [header.num_segments] */
    const struct plec_lyrw_schema *schemas;   /* [n_schemas], bank by bank */
    uint64_t n_schemas;
    enum plec_order order;
    uint32_t extent; /* entries an extent has; 0: no extents */
    bool rewrite;    /* accept gate_up_fused without a layout, as files before it was declared */
    /* Length of the region of a slot, slots counted in entry-table order; NULL: every region has
     * the bytes its schema implies. Called only inside the functions below and writer_open. */
    uint64_t (*length)(const void *user, uint64_t slot);
    const void *user;
};

/* The plan that writes again what a parsed file holds, in the reference writer's order; every field
 * of every record is kept, known or not. It views source. PLEC_MALFORMED: Truncated "entry table",
 * RegionOutOfBounds: what is not there cannot be written again. Cost: one look at every slot. */
PLEC_MUST_USE enum plec_status plec_segment_plan_of(struct plec_segment_plan *out,
                                                    const struct plec_segment *source,
                                                    struct plec_error *err);

/* Refuses what the format refuses (the names of plec_segment_parse) and, on writing only,
 * UndeclaredFusedLayout. PLEC_MALFORMED "BankSchemaCountMismatch" when the banks' schema counts do
 * not add up to n_schemas. PLEC_BAD_INPUT "ExtentNotWhole" when a segment does not begin on an
 * extent, or ends inside one before the bank ends; "LengthUndefined" when a length is to follow
 * from the schema and format, packing or shape give none. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_segment_plan_check(const struct plec_segment_plan *plan,
                                                       struct plec_error *err);

struct plec_segment_layout {
    uint64_t structure_bytes; /* header, records and entry tables */
    uint64_t payload_start;   /* the next multiple of 64: where a reader's payload begins */
    uint64_t payload_bytes;   /* of all regions, without gaps */
    uint64_t file_bytes;
    uint64_t n_regions;
    uint64_t n_extents;    /* 0 without extents */
    uint64_t extent_bytes; /* of the largest extent, to the boundary after it; 0 without extents */
};

/* Checks the plan and says what it comes to. Cost: O(records) when lengths follow from the schemas,
 * else one look at every slot. Also PLEC_BAD_INPUT "FileTooLarge" beyond 2^63 - 1 bytes. */
PLEC_MUST_USE enum plec_status plec_segment_plan_layout(struct plec_segment_layout *out,
                                                        const struct plec_segment_plan *plan,
                                                        struct plec_error *err);

/* Writes header, records and entry tables of a plan into out [structure_bytes of its layout]. */
PLEC_MUST_USE enum plec_status plec_segment_plan_render(uint8_t *out,
                                                        const struct plec_segment_plan *plan,
                                                        struct plec_error *err);

/* One bank over several files: the fewest that keep each within a cap, as equal as whole extents
 * allow, larger ones first. */
struct plec_segment_split {
    uint32_t n_segments;
    uint32_t num_entries, extent; /* of the bank; extent at least 1 */
    uint32_t n_extents;           /* of the bank */
};

/* Splits the bank of a plan that has one bank, one segment over all its entries, and lengths that
 * follow from the schemas. cap: bytes a file may have, its structure included; 0: no cap.
 * PLEC_BAD_INPUT "NotOneBank", "CapTooSmall" when not even one extent fits, "TooManySegments" (more
 * than 65535), and what plec_segment_plan_layout says. */
PLEC_MUST_USE enum plec_status plec_segment_plan_split(struct plec_segment_split *out,
                                                       const struct plec_segment_plan *plan,
                                                       uint64_t cap, struct plec_error *err);

/* Entries of segment i < n_segments. */
void plec_segment_split_range(uint32_t *first_entry, uint32_t *entry_count,
                              const struct plec_segment_split *split, uint32_t i);

#ifdef __cplusplus
}
#endif
#endif
