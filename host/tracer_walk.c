#include "host/tracer_walk.h"

#include <stdlib.h>
#include <string.h>

static void scan(struct plec_walk *walk) {
    const struct plec_tracer_snapshot *snapshot = walk->snapshot;
    walk->end_ns = snapshot->read_ns;
    for (uint64_t i = snapshot->n_events; i-- > 0;) {
        const struct plec_tracer_event *event = &snapshot->events[i];
        if (event->at_ns > walk->end_ns) walk->end_ns = event->at_ns;
        if (event->key != PLEC_NO_KEY && event->key >= walk->n_keys) walk->n_keys = event->key + 1;
    }
}

enum plec_status plec_walk_open(struct plec_walk *walk, const struct plec_tracer_snapshot *snapshot,
                                struct plec_error *err) {
    memset(walk, 0, sizeof *walk);
    walk->snapshot = snapshot;
    scan(walk);
    size_t n_sources = (size_t)walk->n_keys * 64;
    walk->stacks = calloc(snapshot->n_threads + (size_t)1, sizeof *walk->stacks);
    walk->extents = calloc(walk->n_keys + (size_t)1, sizeof *walk->extents);
    walk->sources = malloc((n_sources + 1) * sizeof *walk->sources);
    walk->moves = calloc(snapshot->n_events + 1, sizeof *walk->moves);
    if (walk->stacks == NULL || walk->extents == NULL || walk->sources == NULL ||
        walk->moves == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a trace of %llu events",
                         (unsigned long long)snapshot->n_events);
    for (size_t i = 0; i < n_sources; i++)
        walk->sources[i][0] = walk->sources[i][1] = PLEC_WALK_NONE;
    for (uint64_t i = snapshot->n_events; i-- > 0;)
        walk->stacks[snapshot->events[i].thread].first_ns = snapshot->events[i].at_ns;
    return PLEC_OK;
}

void plec_walk_close(struct plec_walk *walk) {
    free(walk->stacks);
    free(walk->extents);
    free(walk->sources);
    free(walk->moves);
    memset(walk, 0, sizeof *walk);
}

/* --- ranges of a thread ---------------------------------------------------------------------- */

void plec_walk_push(struct plec_walk *walk, const struct plec_tracer_event *begin) {
    struct plec_walk_stack *stack = &walk->stacks[begin->thread];
    if (stack->depth < PLEC_WALK_DEPTH) stack->begins[stack->depth] = begin;
    stack->depth++;
}

static bool is_open(const struct plec_walk_stack *stack, uint8_t what) {
    for (uint32_t i = 0; i < stack->depth && i < PLEC_WALK_DEPTH; i++)
        if (stack->begins[i]->what == what) return true;
    return false;
}

bool plec_walk_pop(const struct plec_tracer_event **begin, bool *cut, struct plec_walk *walk,
                   const struct plec_tracer_event *end) {
    struct plec_walk_stack *stack = &walk->stacks[end->thread];
    *begin = NULL;
    *cut = true;
    if (stack->depth > PLEC_WALK_DEPTH) { /* deeper than anything of ours nests: not drawn */
        stack->depth--;
        return false;
    }
    if (!is_open(stack, end->what)) return false;
    *begin = stack->begins[--stack->depth];
    *cut = (*begin)->what != end->what;
    return true;
}

/* --- reads and copies ------------------------------------------------------------------------ */

static struct plec_walk_open *find_open(struct plec_walk *walk, uint8_t what, uint64_t id) {
    struct plec_walk_open *open = walk->open[what == PLEC_TRACE_COPY];
    for (uint32_t i = 0; i < PLEC_WALK_LANES; i++)
        if (id == UINT64_MAX ? open[i].begin == NULL
                             : open[i].begin != NULL && open[i].begin->id == id)
            return &open[i];
    return NULL;
}

/* A lane that is free, the lowest; the last one when there is none. */
static uint32_t take_lane(struct plec_walk *walk) {
    uint32_t lane = 0;
    while (lane + 1 < PLEC_WALK_LANES && walk->lane_busy[lane])
        lane++;
    walk->lane_busy[lane] = walk->lane_used[lane] = true;
    return lane;
}

/* Copies of a stream run one after the other: each begins when the one before has ended. */
static void start_copy(struct plec_walk_open *open, const struct plec_tracer_event *begin) {
    open->move.lane = begin->urgency == PLEC_DEMAND ? 0 : 1;
    open->move.begin_ns = begin->at_ns;
}

void plec_walk_start(struct plec_walk *walk, const struct plec_tracer_event *begin) {
    struct plec_walk_open *open = find_open(walk, begin->what, UINT64_MAX);
    if (open == NULL) return;
    *open = (struct plec_walk_open){.begin = begin, .move = {.begin_ns = begin->at_ns}};
    bool copies = begin->what == PLEC_TRACE_COPY;
    if ((copies ? walk->copying : walk->reading) == 0)
        walk->rates[copies] = (struct plec_walk_rate){.since_ns = begin->at_ns};
    if (begin->what == PLEC_TRACE_COPY) {
        start_copy(open, begin);
        walk->copying++;
        walk->copying_bytes += begin->n_bytes;
        return;
    }
    open->move.lane = take_lane(walk);
    walk->reading++;
    walk->reading_bytes += begin->n_bytes;
}

static void end_copy(struct plec_walk *walk, struct plec_walk_move *move) {
    uint64_t *free_ns = &walk->stream_free[move->lane];
    if (move->begin_ns < *free_ns) move->begin_ns = *free_ns;
    if (move->begin_ns > move->end_ns) move->begin_ns = move->end_ns;
    *free_ns = move->end_ns;
}

/* The last move of each expert is the one that its use comes from. A new read makes an older copy
 * history; a copy that began before the read had ended is of one before it. */
static void remember(struct plec_walk *walk, const struct plec_tracer_event *event,
                     const struct plec_walk_open *open) {
    if (event->key == PLEC_NO_KEY) return;
    walk->moves[walk->n_moves] = open->move;
    for (uint64_t left = event->mask; left != 0; left &= left - 1) {
        int32_t *source = walk->sources[(size_t)event->key * 64 + (size_t)__builtin_ctzll(left)];
        bool copies = event->what == PLEC_TRACE_COPY;
        bool of_another = copies && source[0] != PLEC_WALK_NONE &&
                          walk->moves[source[0]].end_ns > open->begin->at_ns;
        if (of_another) source[0] = PLEC_WALK_NONE;
        source[copies] = walk->n_moves;
        if (!copies) source[1] = PLEC_WALK_NONE;
    }
    walk->n_moves++;
}

bool plec_walk_end(struct plec_walk_open *out, struct plec_walk *walk,
                   const struct plec_tracer_event *end) {
    struct plec_walk_open *open = find_open(walk, end->what, end->id);
    if (open == NULL || end->id == UINT64_MAX) return false;
    open->move.end_ns = end->at_ns;
    walk->rates[end->what == PLEC_TRACE_COPY].n_bytes += end->n_bytes;
    if (end->what == PLEC_TRACE_COPY) {
        end_copy(walk, &open->move);
        walk->copying--;
        walk->copying_bytes -= open->begin->n_bytes;
    } else {
        walk->lane_busy[open->move.lane] = false;
        walk->reading--;
        walk->reading_bytes -= open->begin->n_bytes;
    }
    if (end->status == PLEC_OK) remember(walk, end, open);
    *out = *open;
    open->begin = NULL;
    return true;
}

/* --- lives ----------------------------------------------------------------------------------- */

bool plec_walk_enliven(struct plec_walk *walk, const struct plec_tracer_event *event) {
    if (event->key == PLEC_NO_KEY) return false;
    struct plec_walk_extent *extent = &walk->extents[event->key];
    bool begins = !extent->alive;
    extent->layer = event->layer;
    extent->extent = event->extent;
    extent->pending |= event->mask;
    extent->alive = true;
    extent->n_lives += begins;
    return begins;
}

bool plec_walk_settle(struct plec_walk *walk, const struct plec_tracer_event *event) {
    if (event->key == PLEC_NO_KEY) return false;
    struct plec_walk_extent *extent = &walk->extents[event->key];
    extent->pending &= ~event->mask;
    if (event->what == PLEC_TRACE_READY) extent->fresh |= event->mask;
    bool ends = extent->alive && extent->pending == 0;
    if (ends) extent->alive = false;
    return ends;
}

/* --- uses ------------------------------------------------------------------------------------ */

uint64_t plec_walk_fresh(struct plec_walk *walk, const struct plec_tracer_event *use) {
    if (use->key == PLEC_NO_KEY) return 0;
    struct plec_walk_extent *extent = &walk->extents[use->key];
    uint64_t fresh = extent->fresh & use->mask;
    extent->fresh &= ~use->mask;
    return fresh;
}

bool plec_walk_next_source(int32_t *read, int32_t *copy, uint64_t *left,
                           const struct plec_walk *walk, const struct plec_tracer_event *use) {
    if (*left == 0) return false;
    const int32_t(*sources)[2] = (const int32_t(*)[2])walk->sources + (size_t)use->key * 64;
    uint32_t first = (uint32_t)__builtin_ctzll(*left);
    *read = sources[first][0];
    *copy = sources[first][1];
    for (uint64_t bits = *left; bits != 0; bits &= bits - 1) {
        uint32_t i = (uint32_t)__builtin_ctzll(bits);
        if (sources[i][0] == *read && sources[i][1] == *copy) *left &= ~(UINT64_C(1) << i);
    }
    return true;
}
