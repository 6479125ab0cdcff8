/* sizing.h: a bank laid out on paper: bytes of tables, payload, extents and files, before anything
 * is written.
 *
 * Owns: nothing; pure arithmetic in checked 64 bits. What it says is what lyrw/segment_write.h
 * writes for one bank: regions at 64-byte boundaries in entry order, no padding after the last;
 * with extents, each extent at a 4096-byte boundary.
 */
#ifndef PLEC_LYRW_SIZING_H
#define PLEC_LYRW_SIZING_H

#include "lyrw/segment.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_EXTENT_ALIGNMENT = 4096 };

struct plec_sizing_args {
    uint32_t n_entries;
    const uint64_t *region_bytes; /* [n_schemas] of every entry; read by the plan only */
    uint32_t n_schemas;           /* at most 65535 */
    uint32_t extent_width;        /* entries an extent; 0: no extents */
    uint64_t segment_cap;         /* most bytes of a file; 0: one file */
};

/* How the bank falls into files. */
struct plec_sizing {
    struct plec_sizing_args args;
    uint64_t entry_bytes;  /* of all regions of one entry, without padding */
    uint64_t entry_stride; /* the same with every region rounded up to 64 bytes */
    uint64_t tail_padding; /* bytes of the stride after an entry's last region */
    uint32_t width;        /* entries a unit of splitting: extent_width, or 1 */
    uint32_t n_units;      /* extents, or entries */
    uint32_t n_segments;   /* files; 0 entries make one */
};

/* One file. */
struct plec_sizing_segment {
    uint32_t first_entry, n_entries, n_extents; /* n_extents: 0 without extents */
    uint64_t table_bytes;                       /* header, records and entry table */
    uint64_t payload_start;
    uint64_t payload_bytes; /* of the regions, without padding */
    uint64_t file_bytes;
};

/* Splits the bank: the fewest files that the cap allows, then as equal as whole extents make them.
 * PLEC_BAD_INPUT: "SegmentCapTooSmall" (one extent does not fit: says how much it needs),
 * "TooManySegments" (over 65,535), "SizeOverflow". */
PLEC_MUST_USE enum plec_status plec_sizing_plan(struct plec_sizing *out,
                                                const struct plec_sizing_args *args,
                                                struct plec_error *err);
/* File i < n_segments. */
void plec_sizing_segment_at(struct plec_sizing_segment *out, const struct plec_sizing *sizing,
                            uint32_t i);
/* Bytes from an extent's first to its last region, padding between regions included. */
uint64_t plec_sizing_extent_bytes(const struct plec_sizing *sizing, uint32_t n_entries);

#ifdef __cplusplus
}
#endif
#endif
