/* timeline_parts.h: the inside of timeline.h: timeline_gather.c makes boxes in lanes of events,
 * timeline.c draws them. */
#ifndef PLEC_TOOLS_TIMELINE_PARTS_H
#define PLEC_TOOLS_TIMELINE_PARTS_H

#include "tools/plectrum/timeline.h"

/* A range, cut to the panel's span. */
struct plec_timeline_box {
    uint64_t from, to; /* nanoseconds from the panel's start */
    uint64_t n_bytes;
    uint32_t layer, extent, first_expert, value;
    uint32_t lane;
    uint16_t row;
    uint8_t what;   /* enum plec_tracer_what */
    uint8_t colour; /* enum plec_nvtx_category; 0: a layer */
    uint8_t failed;
};

struct plec_timeline_lane {
    char name[40];
    uint32_t first, n; /* of the panel's boxes, in order of time */
    uint32_t n_rows;
    uint64_t busy_ns; /* while at least one box lasted */
};

/* Experts handed out within a bin, by where they were. */
enum { PLEC_TIMELINE_SLOT, PLEC_TIMELINE_FRAME, PLEC_TIMELINE_FILE, PLEC_TIMELINE_TIERS };
enum { PLEC_TIMELINE_BINS = 255 };

enum { PLEC_TIMELINE_LANES = 36 }; /* layers, threads, disk, link */
enum { PLEC_TIMELINE_THREADS = PLEC_TIMELINE_LANES - 3 };

/* Zeroed: closed. */
struct plec_timeline_gathered {
    uint64_t from_ns, span_ns;
    struct plec_timeline_box *boxes; /* [n_boxes] by lane, then time */
    uint32_t n_boxes;
    struct plec_timeline_lane lanes[PLEC_TIMELINE_LANES];
    uint32_t n_lanes; /* those with boxes */
    uint32_t bins[PLEC_TIMELINE_BINS][PLEC_TIMELINE_TIERS];
    uint64_t experts[PLEC_TIMELINE_TIERS];
    uint64_t read_bytes, copied_bytes;
    uint64_t wait_ns, idle_ns; /* waited for experts; and nothing was computed meanwhile */
    uint32_t n_threads_left_out;
};

/* PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_timeline_gather(struct plec_timeline_gathered *out,
                                                    const struct plec_timeline_panel *panel,
                                                    struct plec_error *err);
void plec_timeline_gathered_close(struct plec_timeline_gathered *gathered);

#endif
