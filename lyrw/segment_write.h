/* segment_write.h: writes LYRW v2 files, new ones and ones already read.
 *
 * A writer knows every offset from its plan, so regions may come in any order and in pieces; what
 * it holds is the record and entry tables (24 bytes a region while writing), never the payload. A
 * file appears under its name whole or not at all (lyrw/atomic_file.h).
 *
 * Rewriting keeps every field of header, banks, segments and schemas, unknown tags and reserved
 * bits included, and every region's bytes and length. Offsets are worked out anew: a file the
 * reference writer made comes back byte for byte; where regions lay permuted, unaligned, shared or
 * with holes, each slot gets its own place in the plan's order. Bytes that belong to no table and
 * no region are not carried over; how many stood behind the last region is reported.
 *
 * A writer belongs to one thread at a time.
 */
#ifndef PLEC_LYRW_SEGMENT_WRITE_H
#define PLEC_LYRW_SEGMENT_WRITE_H

#include "lyrw/segment_plan.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Where the bytes of a file go when it is no file. write is handed ranges that never overlap, in
 * any order; what it is not handed is zero. */
struct plec_segment_sink {
    enum plec_status (*write)(void *user, uint64_t at, const void *bytes, uint64_t n_bytes,
                              struct plec_error *err);
    void *user;
};

struct plec_segment_writer;

/* Checks the plan and begins the file: temporary name, space reserved, structure written. The plan
 * and all it points to may go afterwards. Statuses of plec_segment_plan_layout; PLEC_IO. */
PLEC_MUST_USE enum plec_status plec_segment_writer_open(struct plec_segment_writer **out,
                                                        const char *path,
                                                        const struct plec_segment_plan *plan,
                                                        struct plec_error *err);
/* The same into a sink, which must outlive the writer. */
PLEC_MUST_USE enum plec_status plec_segment_writer_open_sink(struct plec_segment_writer **out,
                                                             const struct plec_segment_sink *sink,
                                                             const struct plec_segment_plan *plan,
                                                             struct plec_error *err);

/* A region of the file being written. */
struct plec_region_place {
    uint32_t segment; /* ordinal of the segment record */
    uint32_t entry;   /* logical: counted in the bank */
    uint32_t schema;
    uint64_t offset, length;
    uint64_t written; /* bytes of it that have come */
};

/* The first region in file order that is not whole yet; false when all are. Regions of length 0
 * are whole from the start. */
bool plec_segment_writer_next(struct plec_region_place *out, struct plec_segment_writer *writer);

/* Appends n_bytes to a region. PLEC_BAD_INPUT "NoSuchRegion", "RegionTooLong" when more comes than
 * the plan gave it; PLEC_IO. */
PLEC_MUST_USE enum plec_status plec_segment_writer_append(struct plec_segment_writer *writer,
                                                          uint32_t segment, uint32_t entry,
                                                          uint32_t schema, const void *bytes,
                                                          uint64_t n_bytes, struct plec_error *err);

/* Ends the writer, whatever it returns. PLEC_OK: the file is durable under its path, replacing what
 * was there. PLEC_BAD_INPUT "RegionsMissing" names the first region that is not whole; then, and on
 * PLEC_IO, nothing is left behind. */
PLEC_MUST_USE enum plec_status plec_segment_writer_commit(struct plec_segment_writer *writer,
                                                          struct plec_error *err);
/* Ends the writer and leaves nothing behind. NULL: nothing. */
void plec_segment_writer_abort(struct plec_segment_writer *writer);

/* Hands every region of `source` to a writer whose plan is plec_segment_plan_of(source), in
 * whatever order and extent. */
PLEC_MUST_USE enum plec_status plec_segment_writer_copy(struct plec_segment_writer *writer,
                                                        const struct plec_segment *source,
                                                        struct plec_error *err);

struct plec_rewrite_options {
    enum plec_order order; /* zeroed: the reference writer's order */
    uint32_t extent;
};
struct plec_rewrite_report {
    uint64_t file_bytes;       /* of the new file */
    uint64_t n_regions;        /* copied */
    uint64_t trailing_dropped; /* bytes of the source behind its last region */
};

/* Writes what `source` holds to `path` (which may be the file it views). options NULL: the
 * reference writer's order. report may be NULL. */
PLEC_MUST_USE enum plec_status plec_segment_rewrite(const char *path,
                                                    const struct plec_segment *source,
                                                    const struct plec_rewrite_options *options,
                                                    struct plec_rewrite_report *report,
                                                    struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
