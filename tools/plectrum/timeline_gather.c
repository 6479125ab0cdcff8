/* Events into boxes: begins and ends matched, cut to the span, sorted into lanes and rows. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/timeline_parts.h"

enum { LAYERS, THREADS, DISK = THREADS + PLEC_TIMELINE_THREADS, LINK };
enum { NOT_SEEN = -1, NO_LANE = -2 }; /* of a thread */
enum { MAX_OPEN = 256, MAX_DEPTH = 16, MAX_ROWS = 8 };

/* A range that has begun. */
struct open_range {
    struct plec_tracer_event begin;
    bool used;
};

struct gathering {
    struct plec_timeline_gathered *out;
    const struct plec_tracer_snapshot *snapshot;
    uint64_t from, to;
    uint32_t capacity;
    struct open_range moving[MAX_OPEN];     /* reads and copies, on no thread */
    struct open_range (*stacks)[MAX_DEPTH]; /* [n_threads] */
    uint32_t *depths;                       /* [n_threads] */
    int32_t *thread_lane;                   /* [n_threads] */
    uint32_t n_thread_lanes;
};

static bool is_moving(uint8_t what) {
    return what == PLEC_TRACE_READ || what == PLEC_TRACE_COPY;
}

/* What stands in no lane: it encloses what does. */
static bool is_frame(uint8_t what) {
    return what == PLEC_TRACE_REQUEST || what == PLEC_TRACE_STEADY || what == PLEC_TRACE_DISPATCH;
}

/* --- boxes ----------------------------------------------------------------------------------- */

static int32_t lane_of_thread(struct gathering *g, uint32_t thread) {
    if (g->thread_lane[thread] != NOT_SEEN) return g->thread_lane[thread];
    if (g->n_thread_lanes == PLEC_TIMELINE_THREADS) {
        g->out->n_threads_left_out++;
        return g->thread_lane[thread] = NO_LANE;
    }
    g->thread_lane[thread] = (int32_t)(THREADS + g->n_thread_lanes++);
    return g->thread_lane[thread];
}

static int32_t lane_of(struct gathering *g, const struct plec_tracer_event *event) {
    if (event->what == PLEC_TRACE_LAYER) return LAYERS;
    if (event->what == PLEC_TRACE_READ) return DISK;
    if (event->what == PLEC_TRACE_COPY) return LINK;
    return lane_of_thread(g, event->thread);
}

static uint8_t colour_of(const struct plec_tracer_event *event) {
    if (event->what == PLEC_TRACE_LAYER) return 0;
    if (event->what == PLEC_TRACE_READ && event->urgency != PLEC_DEMAND) return PLEC_NVTX_PREFETCH;
    return (uint8_t)plec_tracer_category((enum plec_tracer_what)event->what);
}

/* The range [begin, end_ns), as far as the panel shows it. */
static void add_box(struct gathering *g, const struct plec_tracer_event *begin, uint64_t end_ns,
                    uint64_t n_bytes, bool failed) {
    struct plec_timeline_gathered *out = g->out;
    uint64_t from = begin->at_ns > g->from ? begin->at_ns : g->from;
    uint64_t to = end_ns < g->to ? end_ns : g->to;
    if (is_frame(begin->what) || to < from || begin->at_ns > g->to || out->n_boxes == g->capacity)
        return;
    int32_t lane = lane_of(g, begin);
    if (lane == NO_LANE) return;
    out->boxes[out->n_boxes++] = (struct plec_timeline_box){
        .from = from - g->from,
        .to = to - g->from,
        .n_bytes = n_bytes,
        .layer = begin->layer,
        .extent = begin->extent,
        .first_expert = begin->first_expert,
        .value =
            is_moving(begin->what) ? (uint32_t)__builtin_popcountll(begin->mask) : begin->value,
        .lane = (uint32_t)lane,
        .what = begin->what,
        .colour = colour_of(begin),
        .failed = failed};
}

/* --- matching -------------------------------------------------------------------------------- */

static struct open_range *find_moving(struct gathering *g, const struct plec_tracer_event *event,
                                      bool begins) {
    for (int i = 0; i < MAX_OPEN; i++) {
        struct open_range *range = &g->moving[i];
        if (begins
                ? !range->used
                : range->used && range->begin.what == event->what && range->begin.id == event->id)
            return range;
    }
    return NULL;
}

/* An end whose begin was overwritten began before all that is left. */
static struct plec_tracer_event lost_begin(const struct gathering *g,
                                           const struct plec_tracer_event *end) {
    struct plec_tracer_event begin = *end;
    begin.at_ns = g->snapshot->n_events > 0 ? g->snapshot->events[0].at_ns : end->at_ns;
    return begin;
}

static void take_moving(struct gathering *g, const struct plec_tracer_event *event) {
    bool begins = event->phase == PLEC_TRACE_BEGIN;
    struct open_range *range = find_moving(g, event, begins);
    if (begins) {
        if (range != NULL) *range = (struct open_range){*event, true};
        return;
    }
    struct plec_tracer_event begin = range != NULL ? range->begin : lost_begin(g, event);
    if (range != NULL) range->used = false;
    add_box(g, &begin, event->at_ns, event->n_bytes, event->status != PLEC_OK);
    if (event->at_ns < g->from || event->at_ns > g->to) return;
    if (event->what == PLEC_TRACE_READ)
        g->out->read_bytes += event->n_bytes;
    else
        g->out->copied_bytes += event->n_bytes;
}

static void take_nested(struct gathering *g, const struct plec_tracer_event *event) {
    struct open_range *stack = g->stacks[event->thread];
    uint32_t *depth = &g->depths[event->thread];
    if (event->phase == PLEC_TRACE_BEGIN) {
        if (*depth < MAX_DEPTH) stack[*depth].begin = *event;
        ++*depth;
        return;
    }
    uint32_t at = *depth; /* ends that never came are closed by the one around them */
    while (at > 0 && (at > MAX_DEPTH || stack[at - 1].begin.what != event->what))
        at--;
    struct plec_tracer_event begin = at > 0 ? stack[at - 1].begin : lost_begin(g, event);
    if (at > 0) *depth = at - 1;
    add_box(g, &begin, event->at_ns, 0, event->status != PLEC_OK);
}

static void take_hand_out(struct gathering *g, const struct plec_tracer_event *event) {
    if (event->at_ns < g->from || event->at_ns > g->to) return;
    uint64_t in_slot = event->mask & event->in_slot;
    uint64_t in_frame = event->mask & event->in_frame & ~in_slot;
    const uint64_t masks[PLEC_TIMELINE_TIERS] = {in_slot, in_frame,
                                                 event->mask & ~in_slot & ~in_frame};
    uint64_t span = g->out->span_ns;
    uint64_t bin = (uint64_t)((double)(event->at_ns - g->from) / (double)span * PLEC_TIMELINE_BINS);
    if (bin >= PLEC_TIMELINE_BINS) bin = PLEC_TIMELINE_BINS - 1;
    for (int tier = 0; tier < PLEC_TIMELINE_TIERS; tier++) {
        uint32_t n = (uint32_t)__builtin_popcountll(masks[tier]);
        g->out->bins[bin][tier] += n;
        g->out->experts[tier] += n;
    }
}

static void take_event(struct gathering *g, const struct plec_tracer_event *event) {
    if (event->what == PLEC_TRACE_HAND_OUT)
        take_hand_out(g, event);
    else if (event->phase == PLEC_TRACE_MOMENT || event->thread >= g->snapshot->n_threads)
        return;
    else if (is_moving(event->what))
        take_moving(g, event);
    else
        take_nested(g, event);
}

/* What never ended lasts as long as the picture. */
static void close_open(struct gathering *g) {
    for (int i = 0; i < MAX_OPEN; i++)
        if (g->moving[i].used) add_box(g, &g->moving[i].begin, g->to, 0, false);
    for (uint32_t t = 0; t < g->snapshot->n_threads; t++)
        for (uint32_t i = 0; i < g->depths[t] && i < MAX_DEPTH; i++)
            add_box(g, &g->stacks[t][i].begin, g->to, 0, false);
}

/* --- lanes ----------------------------------------------------------------------------------- */

static int by_lane_and_time(const void *a, const void *b) {
    const struct plec_timeline_box *x = a, *y = b;
    if (x->lane != y->lane) return x->lane < y->lane ? -1 : 1;
    if (x->from != y->from) return x->from < y->from ? -1 : 1;
    return (x->to < y->to) - (x->to > y->to); /* what encloses comes first */
}

/* Boxes that overlap stand below each other, as far as there are rows. */
static void assign_rows(struct plec_timeline_lane *lane, struct plec_timeline_box *boxes) {
    uint64_t ends[MAX_ROWS] = {0};
    lane->n_rows = 1;
    for (uint32_t i = 0; i < lane->n; i++) {
        struct plec_timeline_box *box = &boxes[lane->first + i];
        uint32_t row = 0, soonest = 0;
        while (row < MAX_ROWS && ends[row] > box->from) {
            if (ends[row] < ends[soonest]) soonest = row;
            row++;
        }
        if (row == MAX_ROWS) row = soonest;
        ends[row] = box->to;
        box->row = (uint16_t)row;
        if (row + 1 > lane->n_rows) lane->n_rows = row + 1;
    }
}

static void measure_busy(struct plec_timeline_lane *lane, const struct plec_timeline_box *boxes) {
    uint64_t until = 0;
    for (uint32_t i = 0; i < lane->n; i++) {
        const struct plec_timeline_box *box = &boxes[lane->first + i];
        uint64_t from = box->from > until ? box->from : until;
        if (box->to > from) lane->busy_ns += box->to - from;
        if (box->to > until) until = box->to;
    }
}

static void name_lane(struct plec_timeline_lane *lane, const struct gathering *g, uint32_t number) {
    const struct plec_tracer_thread *threads = g->snapshot->threads;
    if (number == LAYERS) snprintf(lane->name, sizeof lane->name, "layers");
    if (number == DISK) snprintf(lane->name, sizeof lane->name, "disk reads");
    if (number == LINK) snprintf(lane->name, sizeof lane->name, "copies to the device");
    for (uint32_t t = 0; t < g->snapshot->n_threads; t++)
        if (g->thread_lane[t] == (int32_t)number)
            snprintf(lane->name, sizeof lane->name, "%.16s %u", threads[t].name, threads[t].tid);
}

static void make_lanes(struct gathering *g) {
    struct plec_timeline_gathered *out = g->out;
    qsort(out->boxes, out->n_boxes, sizeof *out->boxes, by_lane_and_time);
    for (uint32_t i = 0; i < out->n_boxes;) {
        uint32_t number = out->boxes[i].lane;
        struct plec_timeline_lane *lane = &out->lanes[out->n_lanes++];
        *lane = (struct plec_timeline_lane){.first = i, .n_rows = 1};
        for (; i < out->n_boxes && out->boxes[i].lane == number; i++)
            lane->n++;
        name_lane(lane, g, number);
        measure_busy(lane, out->boxes);
        if (number == LAYERS || number == DISK || number == LINK) assign_rows(lane, out->boxes);
    }
}

/* --- waiting --------------------------------------------------------------------------------- */

struct edge {
    uint64_t at;
    int32_t waits, computes; /* begin or end */
};

static int by_time(const void *a, const void *b) {
    const struct edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

/* How long somebody waited for experts, and how long of that nobody computed. */
static enum plec_status measure_waits(struct plec_timeline_gathered *out, struct plec_error *err) {
    struct edge *edges = calloc(2 * (size_t)out->n_boxes + 1, sizeof *edges);
    if (edges == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a picture");
    size_t n = 0;
    for (uint32_t i = 0; i < out->n_boxes; i++) {
        const struct plec_timeline_box *box = &out->boxes[i];
        int32_t waits = box->what == PLEC_TRACE_WAIT, computes = box->colour == PLEC_NVTX_COMPUTE;
        if (waits + computes == 0) continue;
        edges[n++] = (struct edge){box->from, waits, computes};
        edges[n++] = (struct edge){box->to, -waits, -computes};
    }
    qsort(edges, n, sizeof *edges, by_time);
    int32_t waiting = 0, computing = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t since = i > 0 ? edges[i].at - edges[i - 1].at : 0;
        if (waiting > 0) out->wait_ns += since;
        if (waiting > 0 && computing == 0) out->idle_ns += since;
        waiting += edges[i].waits;
        computing += edges[i].computes;
    }
    free(edges);
    return PLEC_OK;
}

/* --- all of it ------------------------------------------------------------------------------- */

static void choose_span(struct gathering *g, const struct plec_timeline_panel *panel) {
    const struct plec_tracer_snapshot *snapshot = panel->snapshot;
    g->from = panel->from_ns;
    g->to = panel->to_ns;
    if (g->from == 0 && g->to == 0 && snapshot->n_events > 0) {
        g->from = snapshot->events[0].at_ns;
        g->to = snapshot->events[snapshot->n_events - 1].at_ns;
    }
    if (g->to <= g->from) g->to = g->from + 1;
    g->out->from_ns = g->from;
    g->out->span_ns = g->to - g->from;
}

static enum plec_status allocate(struct gathering *g, struct plec_error *err) {
    size_t n_threads = g->snapshot->n_threads > 0 ? g->snapshot->n_threads : 1;
    /* An end makes a box, and so does what never ended. */
    uint64_t n_boxes = g->snapshot->n_events + MAX_OPEN + n_threads * MAX_DEPTH;
    g->stacks = calloc(n_threads, sizeof *g->stacks);
    g->depths = calloc(n_threads, sizeof *g->depths);
    g->thread_lane = malloc(n_threads * sizeof *g->thread_lane);
    if (n_boxes <= UINT32_MAX) g->out->boxes = calloc((size_t)n_boxes, sizeof *g->out->boxes);
    if (g->stacks == NULL || g->depths == NULL || g->thread_lane == NULL || g->out->boxes == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a picture of %llu events",
                         (unsigned long long)g->snapshot->n_events);
    memset(g->thread_lane, 0xFF, n_threads * sizeof *g->thread_lane);
    g->capacity = (uint32_t)n_boxes;
    return PLEC_OK;
}

enum plec_status plec_timeline_gather(struct plec_timeline_gathered *out,
                                      const struct plec_timeline_panel *panel,
                                      struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct gathering *g = calloc(1, sizeof *g);
    if (g == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a picture");
    g->out = out;
    g->snapshot = panel->snapshot;
    choose_span(g, panel);
    enum plec_status status = allocate(g, err);
    for (uint64_t i = 0; status == PLEC_OK && i < g->snapshot->n_events; i++)
        take_event(g, &g->snapshot->events[i]);
    if (status == PLEC_OK) {
        close_open(g);
        make_lanes(g);
        status = measure_waits(out, err);
    }
    free(g->thread_lane);
    free(g->depths);
    free(g->stacks);
    free(g);
    return status;
}

void plec_timeline_gathered_close(struct plec_timeline_gathered *gathered) {
    free(gathered->boxes);
    memset(gathered, 0, sizeof *gathered);
}
