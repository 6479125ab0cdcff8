/* segment.h: LYRW v2 files, as read. One file holds one layer's weights, or one segment of them.
 *
 * All integers little-endian; parts follow each other with no gap until the payload:
 *
 *   PART             SIZE                                     START
 *   header           24                                       0
 *   bank records     24 * num_banks                           24
 *   segment records  12 * num_segments                        after the banks
 *   schema records   20 * (sum of the banks' schema counts)   after the segments, bank by bank
 *   entry tables     16 * entry_count * schemas of its bank   one a segment record, in their order
 *   zero padding     to the next multiple of 64
 *   payload          the regions
 *
 *   HEADER                          BANK                               SEGMENT
 *   OFFSET SIZE MEANING             OFFSET SIZE MEANING                OFFSET SIZE MEANING
 *    0     4    'L' 'Y' 'R' 'W'      0     2    bank id                 0     2    bank id
 *    4     4    format version, 2    2     2    kind: 0 dense,          2     2    segment index
 *    8     4    logical layer                   1 routed, 2 shared      4     4    first entry
 *   12     2    num_banks            4     2    schemas                 8     4    entry count
 *   14     2    num_segments         6     2    flags, bits 0-1 browse
 *   16     4    flags, bit 0: one    8     4    num_entries (of the whole bank)
 *               of several files    12     4    input dim
 *   20     4    reserved            16     4    intermediate dim
 *                                   20     4    output dim
 *   SCHEMA
 *   OFFSET SIZE MEANING                               ENTRY SLOT
 *    0     2    index, its place within the bank      OFFSET SIZE MEANING
 *    2     2    role                                   0     8    offset from the file's start
 *    4     2    format                                 8     8    length
 *    6     2    packing
 *    8     2    pair id, 0xFFFF: unpaired              slot = entry_table(segment)
 *   10     2    layout (gate_up_fused only)                 + ((entry - first) * schemas + schema)
 *   12     4    rows (out)                                    * 16
 *   16     4    cols (in)
 *
 * The entry tables are not aligned (records before them are 24, 12 and 20 bytes). Parsing reads the
 * header and the three record tables only: its cost is O(banks + segments + schemas), whatever the
 * number of entries; slots are read when a region is asked for. Unknown tags are kept. What is
 * refused is listed at plec_segment_parse; deeper checks are lyrw/verify.h's.
 *
 * Owns: decoded copies of the record tables. The bytes stay the caller's and must outlive it.
 */
#ifndef PLEC_LYRW_SEGMENT_H
#define PLEC_LYRW_SEGMENT_H

#include <stdbool.h>

#include "lyrw/format.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
    PLEC_LYRW_VERSION = 2,
    PLEC_LYRW_HEADER_BYTES = 24,
    PLEC_LYRW_BANK_BYTES = 24,
    PLEC_LYRW_SEGMENT_BYTES = 12,
    PLEC_LYRW_SCHEMA_BYTES = 20,
    PLEC_LYRW_SLOT_BYTES = 16,
    PLEC_LYRW_ALIGNMENT = 64,
    PLEC_LYRW_UNPAIRED = 0xFFFF,
    PLEC_LYRW_FLAG_MULTI_SEGMENT = 1
};

enum plec_bank_kind { PLEC_BANK_DENSE = 0, PLEC_BANK_ROUTED = 1, PLEC_BANK_SHARED = 2 };

enum plec_role {
    PLEC_ROLE_GATE = 0,
    PLEC_ROLE_UP = 1,
    PLEC_ROLE_GATE_UP_FUSED = 2,
    PLEC_ROLE_DOWN = 3,
    PLEC_ROLE_BIAS = 4,
    PLEC_ROLE_SCALES = 5,
    PLEC_ROLE_LATENT_IN = 6,
    PLEC_ROLE_LATENT_OUT = 7,
    /* vendor roles of Plectrum's control files (docs/format.md) */
    PLEC_ROLE_ROUTER_WEIGHT = 256,      /* [experts, hidden] */
    PLEC_ROLE_SELECTION_BIAS = 257,     /* [1, experts] */
    PLEC_ROLE_ROUTER_BIAS = 258,        /* [1, experts] */
    PLEC_ROLE_INPUT_NORM = 259,         /* carried, never applied */
    PLEC_ROLE_ROUTED_OUTPUT_NORM = 260, /* [1, latent] */
    PLEC_ROLE_SHARED_GATE = 261,        /* [1, hidden] */
    PLEC_ROLE_EXPERT_SCALE = 262,       /* [1, experts] */
    PLEC_ROLE_GATE_SCALE = 263,         /* [1, experts] */
    PLEC_ROLE_UP_SCALE = 264,           /* [1, experts] */
    PLEC_ROLE_DOWN_SCALE = 265,         /* [1, experts] */
    PLEC_ROLE_ROUTER_INPUT_SCALE = 266, /* [1, hidden] */
    PLEC_ROLE_TOKEN_TABLE = 267,        /* [token ids, experts a token], i32 */
    PLEC_ROLE_SHARED_GATE_SCALE = 268,  /* [1, shared experts] */
    PLEC_ROLE_SHARED_UP_SCALE = 269,
    PLEC_ROLE_SHARED_DOWN_SCALE = 270,
    PLEC_ROLE_BRANCH_GATE_SCALE = 271, /* [1, 1]: of the dense branch */
    PLEC_ROLE_BRANCH_UP_SCALE = 272,
    PLEC_ROLE_BRANCH_DOWN_SCALE = 273
};

enum plec_packing {
    PLEC_PACKING_ROW_MAJOR = 0,
    PLEC_PACKING_BLOCKS_INLINE = 1,
    PLEC_PACKING_BLOCKS_VALUES = 2,
    PLEC_PACKING_BLOCKS_SCALES = 3
};

enum plec_layout {
    PLEC_LAYOUT_UNSPECIFIED = 0,
    PLEC_LAYOUT_CONTIGUOUS_HALVES = 1, /* gate rows, then up rows */
    PLEC_LAYOUT_INTERLEAVED = 2        /* row 2i gate, row 2i+1 up */
};

struct plec_lyrw_header {
    uint32_t format_version, logical_layer;
    uint16_t num_banks, num_segments;
    uint32_t flags, reserved;
};

struct plec_lyrw_bank {
    uint16_t id, kind, n_schemas, flags;
    uint32_t num_entries, input_dim, intermediate_dim, output_dim;
    uint64_t first_schema; /* index into plec_segment.schemas */
};

struct plec_lyrw_segment {
    uint16_t bank_id, index;
    uint32_t first_entry, entry_count;
    uint32_t bank_ordinal; /* the first bank record with that id */
    uint64_t entry_table;  /* byte of its first slot */
};

struct plec_lyrw_schema {
    uint16_t index, role, format, packing, pair_id, layout;
    uint32_t rows, cols;
};

/* A parsed file. Zeroed: closed. */
struct plec_segment {
    const uint8_t *data; /* [size], the caller's */
    uint64_t size;
    struct plec_lyrw_header header;
    struct plec_lyrw_bank *banks;       /* [header.num_banks] */
    struct plec_lyrw_segment *segments; /* [header.num_segments] */
    struct plec_lyrw_schema *schemas;   /* [n_schemas], bank by bank */
    uint64_t n_schemas;
    uint32_t *bank_order; /* [header.num_banks] id << 16 | ordinal, ascending */
    uint64_t segment_table, schema_table, entry_table; /* bytes where each table starts */
    uint64_t entry_table_bytes;                        /* of all segments together */
    uint64_t payload_start;
};

/* Parses header and record tables of data [size]. Allocates only what the bytes present can fill.
 * PLEC_MALFORMED with name: Truncated, NotLyrw, WrongGeneration, InconsistentPairing,
 * LayoutOnNonFusedRegion, BankSchemaCountMismatch, SegmentNamesUnknownBank, SegmentOutOfBounds,
 * EntryTableOverflow; PLEC_NO_MEMORY. Source: docs/format.md "What is refused". */
PLEC_MUST_USE enum plec_status plec_segment_parse(struct plec_segment *out, const void *data,
                                                  uint64_t size, struct plec_error *err);
void plec_segment_close(struct plec_segment *segment);

/* Ordinal of the first bank record with this id, or -1. */
int32_t plec_segment_find_bank(const struct plec_segment *segment, uint16_t bank_id);

/* Ordinal of the bank that is meant by a kind: the first of it, else the only bank; -1: neither. */
int32_t plec_segment_bank_of_kind(const struct plec_segment *segment, enum plec_bank_kind kind);

/* The bytes of one region of one entry. */
struct plec_region {
    bool present; /* false: the file does not hold it, which is no error */
    uint64_t offset, length;
    uint32_t schema; /* index within its bank */
};

/* Where a region lies, by schema index, by role, or as the partner of a paired role. PLEC_OK with
 * out->present false when bank, schema, role or entry is not in this file. Faults of the role come
 * before the search for the entry. Cost: the bank's schemas and the segment records.
 * PLEC_MALFORMED: Truncated "entry table", RegionOutOfBounds, AmbiguousRole, NotPaired,
 * MissingPartner, AmbiguousPartner. */
PLEC_MUST_USE enum plec_status plec_segment_region(struct plec_region *out,
                                                   const struct plec_segment *segment,
                                                   uint16_t bank_id, uint32_t entry,
                                                   uint32_t schema, struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_segment_region_by_role(struct plec_region *out,
                                                           const struct plec_segment *segment,
                                                           uint16_t bank_id, uint32_t entry,
                                                           uint16_t role, struct plec_error *err);
PLEC_MUST_USE enum plec_status plec_segment_partner(struct plec_region *out,
                                                    const struct plec_segment *segment,
                                                    uint16_t bank_id, uint32_t entry, uint16_t role,
                                                    uint16_t partner_role, struct plec_error *err);

/* Where the slot of one entry of one segment record points, whichever record lookups by entry would
 * take first: for walks of the file itself, in time independent of its counts. ordinal <
 * header.num_segments, local_entry < its entry_count, schema < its bank's n_schemas: asserted.
 * PLEC_MALFORMED: Truncated "entry table", RegionOutOfBounds. */
PLEC_MUST_USE enum plec_status plec_segment_slot(struct plec_region *out,
                                                 const struct plec_segment *segment,
                                                 uint32_t ordinal, uint32_t local_entry,
                                                 uint32_t schema, struct plec_error *err);

/* Bytes a region of this schema has by its shape and format: values of a paired format in packing
 * 2, its scales in packing 3, all of it in packing 0 or 1. False when format or packing is unknown,
 * cols are not whole blocks, or the size overflows. */
bool plec_lyrw_schema_bytes(uint64_t *out, const struct plec_lyrw_schema *schema);

/* Names for printing; unknown values are written into buffer [PLEC_NAME_MAX] as role_N, packing_N,
 * layout_N, bank_kind_N. */
const char *plec_role_name(uint16_t role, char *buffer);
const char *plec_packing_name(uint16_t packing, char *buffer);
const char *plec_layout_name(uint16_t layout, char *buffer);
const char *plec_bank_kind_name(uint16_t kind, char *buffer);
const char *plec_browse_name(uint16_t bank_flags);

#ifdef __cplusplus
}
#endif
#endif
