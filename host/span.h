/* span.h: the bytes of every expert as they stand in the frame of its extent, and the pieces that
 * move some experts of it.
 *
 * A span is one operand of one expert. A piece is one read of a file, or one copy between frames of
 * two tiers: neighbouring spans of the experts asked for, joined across padding, so that a piece
 * holds no byte of an expert that was not asked for.
 *
 * Owns: the tables. Never: reads or copies. Read-only after open, from any thread.
 */
#ifndef PLEC_HOST_SPAN_H
#define PLEC_HOST_SPAN_H

#include "host/arena.h"
#include "host/extent.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_span {
    uint32_t file;
    uint32_t bit; /* of the expert in its key's mask */
    uint64_t offset, length, frame_at;
    uint32_t slack_before, slack_after; /* bytes around it in the frame that are nobody's */
};

struct plec_piece {
    uint32_t file;
    uint32_t slack_before, slack_after; /* as in struct plec_io_read */
    uint64_t offset, length, frame_at;
};

/* A bank and its extents, at most 64 entries wide. */
struct plec_span_source {
    const struct plec_bank *bank;
    const struct plec_extent_map *map;
};

/* Zeroed: closed. */
struct plec_span_table {
    struct plec_span *spans; /* of a key in order of frame_at */
    uint32_t *first;         /* [n_keys + 1] */
    uint32_t max_spans;      /* of one key: as many pieces at most */
    struct plec_arena arena;
};

/* Spans of the extents of all sources, which are numbered on as keys are (host/keyspace.h).
 * PLEC_NO_MEMORY; statuses of plec_format_size. */
PLEC_MUST_USE enum plec_status plec_span_table_open(struct plec_span_table *out,
                                                    const struct plec_span_source *sources,
                                                    uint32_t n_sources, struct plec_error *err);
void plec_span_table_close(struct plec_span_table *table);

/* The pieces of some experts of a key, in order of frame_at, into out [max_spans]; returns how
 * many. */
uint32_t plec_span_pieces(struct plec_piece *out, const struct plec_span_table *table, uint32_t key,
                          uint64_t mask);
/* Their bytes. */
uint64_t plec_span_bytes(const struct plec_span_table *table, uint32_t key, uint64_t mask);

#ifdef __cplusplus
}
#endif
#endif
