/* extent.h: entries -> extents -> byte ranges of files -> places in a frame.
 *
 * An extent is `width` neighbouring entries of one bank inside one segment. Its frame is the memory
 * it occupies in every tier (pinned, device): the ranges of its files, each standing at a position
 * congruent to its file offset modulo PLEC_FRAME_ALIGNMENT, so that direct reads need no bounce and
 * a copy between tiers is a copy of the same spans. No two ranges of a frame touch the same
 * PLEC_FRAME_ALIGNMENT bytes: a direct read may be rounded outwards to whole blocks. An entry's own
 * ranges are sub-ranges of its extent's: one expert can be read alone into its place.
 *
 *   file    ....|..gate 8|gate 9|gate 10|..      offset 0x2140, 3 entries: one range
 *   frame   |..gate 8|gate 9|gate 10|..|..up 8|up 9|up 10|..|...
 *            ^ frame_at 0x140           ^ the next whole block, then as its own offset stands
 *
 * Owns: the tables. Never: opens a file, reads a byte. Pure arithmetic, made once a bank; after
 * that only read, by any thread.
 */
#ifndef PLEC_HOST_EXTENT_H
#define PLEC_HOST_EXTENT_H

#include "device/layer.h"
#include "lyrw/status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { PLEC_FRAME_ALIGNMENT = 4096 };

/* Regions with fewer bytes than this between them are one range. */
enum { PLEC_RANGE_GAP = 64 };

/* Bytes [offset, offset + length) of a file, standing at frame_at of the frame. */
struct plec_range {
    uint32_t file;
    uint64_t offset, length;
    uint64_t frame_at; /* congruent to offset modulo PLEC_FRAME_ALIGNMENT */
};

/* Bytes of the frame in front of and behind an extent's range that belong to no range: a read of
 * the whole range may overwrite them (struct plec_io_read). For an entry's range the same bytes may
 * be its neighbours' weights, which such a read would write again, unchanged. */
static inline uint32_t plec_range_slack_before(const struct plec_range *range) {
    return (uint32_t)(range->frame_at % PLEC_FRAME_ALIGNMENT);
}
static inline uint32_t plec_range_slack_after(const struct plec_range *range) {
    return (uint32_t)(-(range->frame_at + range->length) % PLEC_FRAME_ALIGNMENT);
}

/* Tells which file holds the byte at p, and where. False: none does. */
struct plec_locator {
    bool (*locate)(void *user, const uint8_t *p, uint32_t *file, uint64_t *offset);
    void *user;
};

/* Values of every operand, then scales of every matrix. */
enum { PLEC_N_STREAMS = PLEC_N_OPERANDS + PLEC_N_MATRICES };

/* Zeroed: closed. */
struct plec_extent_map {
    uint32_t width, n_entries, n_extents;
    uint64_t frame_bytes;   /* of the largest frame, a multiple of PLEC_FRAME_ALIGNMENT */
    uint64_t payload_bytes; /* of all regions, without padding; what entries of one extent share
                               counts once */
    uint32_t
        *first_entry; /* [n_extents + 1]: extent e holds entries first_entry[e] up to the next */
    uint32_t *entry_extent;           /* [n_entries] */
    struct plec_range *extent_ranges; /* the fewest that cover extent e, in file order:
                                         [extent_first[e], extent_first[e + 1]) */
    uint32_t *extent_first;           /* [n_extents + 1] */
    struct plec_range *entry_ranges;  /* likewise for one entry alone */
    uint32_t *entry_first;            /* [n_entries + 1] */
    uint64_t *stream_at; /* [n_entries, PLEC_N_STREAMS] place in the extent's frame; UINT64_MAX: the
                            operand is absent */
};

/* Maps a bank whose entries are views into located files. Regions are joined across less than
 * PLEC_RANGE_GAP bytes of padding. An extent never crosses a file boundary between its entries'
 * segments: where it would, it is cut short. width >= 1. PLEC_UNSUPPORTED "NotInAFile" names the
 * first entry and operand that the locator does not know, or that leaves its file: such a bank
 * cannot be streamed; PLEC_MALFORMED "SizeOverflow"; PLEC_NO_MEMORY. *out is closed on failure. */
PLEC_MUST_USE enum plec_status plec_extent_map_open(struct plec_extent_map *out,
                                                    const struct plec_bank *bank, uint32_t width,
                                                    const struct plec_locator *locator,
                                                    struct plec_error *err);
void plec_extent_map_close(struct plec_extent_map *map);

/* Bytes to read for one entry alone, and for its whole extent. */
uint64_t plec_extent_entry_bytes(const struct plec_extent_map *map, uint32_t entry);
uint64_t plec_extent_bytes(const struct plec_extent_map *map, uint32_t extent);
/* The entry's operands as they stand in a frame at `frame`. */
void plec_extent_entry_at(struct plec_entry *out, const struct plec_extent_map *map, uint32_t entry,
                          const uint8_t *frame);

static inline uint32_t plec_extent_of_entry(const struct plec_extent_map *map, uint32_t entry) {
    return map->entry_extent[entry];
}

#ifdef __cplusplus
}
#endif
#endif
