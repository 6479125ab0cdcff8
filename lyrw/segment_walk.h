/* segment_walk.h: the regions of a plan in the order they lie in the file, with their places.
 * Internal to lyrw/.
 */
#ifndef PLEC_LYRW_SEGMENT_WALK_H
#define PLEC_LYRW_SEGMENT_WALK_H

#include "lyrw/segment_plan.h"

/* Stands before the first region when only the first three fields are set. */
struct plec_segment_walk {
    const struct plec_segment *shape; /* tables of a plan, derived; no bytes behind them */
    enum plec_order order;
    uint32_t extent;

    /* the region the last next gave */
    uint32_t segment, local_entry, schema;
    uint64_t slot;   /* counted in entry-table order */
    bool run_begins; /* first region of an extent, or of a segment without extents */

    uint32_t run_first, run_entries; /* local entries of the run */
    uint64_t in_run, next_in_run;    /* regions of the run; of those, how many are behind */
};

/* Steps to the next region; false behind the last. */
bool plec_segment_walk_next(struct plec_segment_walk *walk);

/* The tables of a plan, checked and derived, and what each of its regions measures. */
struct plec_segment_shape {
    struct plec_segment tables;
    uint64_t *bytes; /* [n_schemas] when lengths follow from the schemas, else NULL */
    const struct plec_segment_plan *plan;
};

/* Errors as plec_segment_plan_check. Close in any case. */
PLEC_MUST_USE enum plec_status plec_segment_shape_open(struct plec_segment_shape *out,
                                                       const struct plec_segment_plan *plan,
                                                       struct plec_error *err);
void plec_segment_shape_close(struct plec_segment_shape *shape);

/* A walk that places each region. Zeroed but for the walk's first fields and at = payload start. */
struct plec_segment_placer {
    struct plec_segment_walk walk;
    uint64_t at;             /* end of what is placed */
    uint64_t offset, length; /* of the last region */
};

struct plec_segment_placer plec_segment_placer_at_start(const struct plec_segment_shape *shape);

/* PLEC_BAD_INPUT "FileTooLarge" when the region would end beyond 2^63 - 1. */
PLEC_MUST_USE enum plec_status plec_segment_placer_next(bool *more,
                                                        struct plec_segment_placer *placer,
                                                        const struct plec_segment_shape *shape,
                                                        struct plec_error *err);

/* plec_segment_plan_render for a plan already checked; *file_bytes (or NULL): where it ends. */
PLEC_MUST_USE enum plec_status plec_segment_shape_render(uint8_t *out, uint64_t *file_bytes,
                                                         const struct plec_segment_shape *shape,
                                                         struct plec_error *err);

#endif
