#include "host/tracer_json.h"

#include <inttypes.h>
#include <stdlib.h>

#include "host/tracer_text.h"
#include "host/tracer_walk.h"

enum { HOST = 1, DEVICE = 10, DISK = 90 };
/* Rates are means over at least so long, or until nothing is under way. */
static const uint64_t RATE_NS = 1000000;

static const char *const urgencies[PLEC_N_URGENCIES] = {"demand", "certain", "likely", "idle"};

struct writer {
    struct plec_walk walk;
    struct plec_text text;
    uint64_t start_ns;
    uint64_t n_written, n_flows;
};

/* --- pieces of an event ---------------------------------------------------------------------- */

/* A new object: everything but its last members. */
static void begin(struct writer *w, char phase, uint32_t pid, uint32_t tid, uint64_t at_ns) {
    uint64_t ns = at_ns > w->start_ns ? at_ns - w->start_ns : 0;
    plec_text_add(&w->text, "%s{\"ph\":\"%c\",\"pid\":%u,\"tid\":%u,\"ts\":%" PRIu64 ".%03u",
                  w->n_written++ == 0 ? "\n" : ",\n", phase, pid, tid, ns / 1000,
                  (unsigned)(ns % 1000));
}

static void name(struct writer *w, const char *text, const char *category) {
    plec_text_add(&w->text, ",\"name\":\"%s\",\"cat\":\"%s\"", text, category);
}

static void name_what(struct writer *w, uint8_t what) {
    name(w, plec_tracer_name((enum plec_tracer_what)what),
         plec_nvtx_category_name(plec_tracer_category((enum plec_tracer_what)what)));
}

static void duration(struct writer *w, uint64_t from_ns, uint64_t to_ns) {
    uint64_t ns = to_ns - from_ns;
    plec_text_add(&w->text, ",\"dur\":%" PRIu64 ".%03u", ns / 1000, (unsigned)(ns % 1000));
}

static void truncated(struct writer *w, bool cut, const char *separator) {
    if (cut) plec_text_add(&w->text, "%s\"truncated\":true", separator);
}

/* Which experts of which extent: the first members of args. */
static void experts(struct writer *w, const struct plec_tracer_event *event) {
    plec_text_add(
        &w->text,
        ",\"args\":{\"layer\":%u,\"extent\":%u,\"first_expert\":%u,\"experts\":\"0x%" PRIx64 "\"",
        event->layer, event->extent, event->first_expert, event->mask);
}

static uint32_t tid_of(const struct writer *w, const struct plec_tracer_event *event) {
    return w->walk.snapshot->threads[event->thread].tid;
}

/* --- metadata -------------------------------------------------------------------------------- */

static void name_track(struct writer *w, const char *what, uint32_t pid, uint32_t tid,
                       const char *value) {
    begin(w, 'M', pid, tid, w->start_ns);
    plec_text_add(&w->text, ",\"name\":\"%s\",\"args\":{\"name\":", what);
    plec_text_add_string(&w->text, value);
    plec_text_add(&w->text, "}}");
}

static void sort_track(struct writer *w, const char *what, uint32_t pid, uint32_t tid,
                       uint32_t index) {
    begin(w, 'M', pid, tid, w->start_ns);
    plec_text_add(&w->text, ",\"name\":\"%s\",\"args\":{\"sort_index\":%u}}", what, index);
}

static void name_process(struct writer *w, uint32_t pid, const char *value) {
    name_track(w, "process_name", pid, 0, value);
    sort_track(w, "process_sort_index", pid, 0, pid);
}

static void name_threads(struct writer *w) {
    const struct plec_tracer_snapshot *snapshot = w->walk.snapshot;
    for (uint32_t i = 0; i < snapshot->n_threads; i++) {
        name_track(w, "thread_name", HOST, snapshot->threads[i].tid, snapshot->threads[i].name);
        sort_track(w, "thread_sort_index", HOST, snapshot->threads[i].tid, i);
    }
}

/* After the walk: the tracks that were used. */
static void name_tracks(struct writer *w, const struct plec_tracer_about *about) {
    static const char *const streams[PLEC_WALK_STREAMS] = {"copies: demand", "copies: ahead"};
    name_process(w, HOST, "host");
    name_threads(w);
    name_process(w, DEVICE, about->device != NULL ? about->device : "device");
    for (uint32_t i = 0; i < PLEC_WALK_STREAMS; i++) {
        name_track(w, "thread_name", DEVICE, i + 1, streams[i]);
        sort_track(w, "thread_sort_index", DEVICE, i + 1, i);
    }
    name_process(w, DISK, "disk");
    for (uint32_t i = 0; i < PLEC_WALK_LANES; i++) {
        if (!w->walk.lane_used[i]) continue;
        name_track(w, "thread_name", DISK, i + 1, "reads");
        sort_track(w, "thread_sort_index", DISK, i + 1, i);
    }
}

/* --- ranges ---------------------------------------------------------------------------------- */

/* A range of a thread; end NULL: still open at the end of the trace; first NULL: open before it. */
static void write_range(struct writer *w, const struct plec_tracer_event *first,
                        const struct plec_tracer_event *end, uint64_t end_ns, bool cut) {
    const struct plec_tracer_event *some = first != NULL ? first : end;
    uint64_t from = first != NULL ? first->at_ns : w->walk.stacks[some->thread].first_ns;
    begin(w, 'X', HOST, tid_of(w, some), from);
    name_what(w, some->what);
    duration(w, from, end_ns);
    plec_text_add(&w->text, ",\"args\":{\"id\":%" PRIu64 ",\"value\":%u", some->id, some->value);
    if (some->layer != UINT32_MAX) plec_text_add(&w->text, ",\"layer\":%u", some->layer);
    if (end != NULL && end->status != PLEC_OK)
        plec_text_add(&w->text, ",\"status\":\"%s\"",
                      plec_status_name((enum plec_status)end->status));
    truncated(w, cut, ",");
    plec_text_add(&w->text, "}}");
}

static void end_range(struct writer *w, const struct plec_tracer_event *end) {
    const struct plec_tracer_event *first;
    bool cut, any = false;
    while (plec_walk_pop(&first, &cut, &w->walk, end)) {
        any = true;
        write_range(w, first, end, end->at_ns, cut);
        if (!cut) return;
    }
    if (!any && cut && w->walk.stacks[end->thread].depth == 0)
        write_range(w, NULL, end, end->at_ns, true);
}

static void write_move(struct writer *w, const struct plec_walk_open *open,
                       const struct plec_tracer_event *end) {
    const struct plec_tracer_event *first = open->begin;
    begin(w, 'X', first->what == PLEC_TRACE_COPY ? DEVICE : DISK, open->move.lane + 1,
          open->move.begin_ns);
    name_what(w, first->what);
    duration(w, open->move.begin_ns, open->move.end_ns);
    experts(w, first);
    plec_text_add(&w->text, ",\"id\":%" PRIu64 ",\"bytes\":%" PRIu64 ",\"frame\":%u", first->id,
                  end != NULL ? end->n_bytes : 0, first->frame);
    if (first->what == PLEC_TRACE_COPY) plec_text_add(&w->text, ",\"slot\":%u", first->slot);
    plec_text_add(&w->text, ",\"urgency\":\"%s\"", urgencies[first->urgency % PLEC_N_URGENCIES]);
    if (end != NULL)
        plec_text_add(&w->text, ",\"status\":\"%s\"",
                      plec_status_name((enum plec_status)end->status));
    truncated(w, end == NULL, ",");
    plec_text_add(&w->text, "}}");
}

/* The life of an extent begins (b) or ends (e). */
static void write_life(struct writer *w, char phase, uint32_t key, uint64_t at_ns, bool cut) {
    const struct plec_walk_extent *extent = &w->walk.extents[key];
    begin(w, phase, DISK, 0, at_ns);
    name(w, "extent", "extent");
    plec_text_add(&w->text, ",\"id\":\"%u.%u.%u\",\"args\":{\"layer\":%u,\"extent\":%u",
                  extent->layer, extent->extent, extent->n_lives, extent->layer, extent->extent);
    truncated(w, cut, ",");
    plec_text_add(&w->text, "}}");
}

/* --- counters -------------------------------------------------------------------------------- */

static void count_moves(struct writer *w, uint64_t at_ns) {
    const struct plec_walk *walk = &w->walk;
    begin(w, 'C', HOST, 0, at_ns);
    plec_text_add(&w->text,
                  ",\"name\":\"in-flight bytes\",\"args\":{\"read\":%" PRIu64 ",\"copy\":%" PRIu64
                  "}}",
                  walk->reading_bytes, walk->copying_bytes);
    begin(w, 'C', HOST, 0, at_ns);
    plec_text_add(&w->text,
                  ",\"name\":\"queue depth\",\"args\":{\"reads\":%" PRIu64 ",\"copies\":%" PRIu64
                  "}}",
                  walk->reading, walk->copying);
}

static void add_percent(struct writer *w, const char *before, uint64_t part, uint64_t whole) {
    uint64_t hundredths = whole == 0 ? 0 : part * 10000 / whole;
    plec_text_add(&w->text, "%s%" PRIu64 ".%02u", before, hundredths / 100,
                  (unsigned)(hundredths % 100));
}

static void write_rate(struct writer *w, bool copies, uint64_t at_ns, uint64_t n_bytes,
                       uint64_t took_ns) {
    uint64_t millionths = took_ns == 0 ? 0 : (uint64_t)((double)n_bytes * 1e6 / (double)took_ns);
    begin(w, 'C', HOST, 0, at_ns);
    plec_text_add(&w->text, ",\"name\":\"%s GB/s\",\"args\":{\"rate\":%" PRIu64 ".%06u}}",
                  copies ? "copy" : "read", millionths / 1000000, (unsigned)(millionths % 1000000));
}

/* What moved in a stretch that is over, drawn over that stretch. */
static void count_rate(struct writer *w, bool copies, uint64_t at_ns, bool over) {
    struct plec_walk_rate *rate = &w->walk.rates[copies];
    uint64_t took_ns = at_ns - rate->since_ns;
    if (took_ns == 0 || (took_ns < RATE_NS && !over)) return;
    write_rate(w, copies, rate->since_ns, rate->n_bytes, took_ns);
    if (over) write_rate(w, copies, at_ns, 0, 0);
    *rate = (struct plec_walk_rate){.since_ns = at_ns};
}

/* Of all experts handed out so far. */
static void count_hits(struct writer *w, const struct plec_tracer_event *use) {
    struct plec_walk *walk = &w->walk;
    walk->used += (uint64_t)__builtin_popcountll(use->mask);
    walk->device_hits += (uint64_t)__builtin_popcountll(use->in_slot);
    walk->host_hits += (uint64_t)__builtin_popcountll(use->in_frame);
    begin(w, 'C', HOST, 0, use->at_ns);
    plec_text_add(&w->text, ",\"name\":\"hit %%\",\"args\":{");
    add_percent(w, "\"device\":", walk->device_hits, walk->used);
    add_percent(w, ",\"host\":", walk->host_hits, walk->used);
    plec_text_add(&w->text, "}}");
}

static void count_pinned(struct writer *w, const struct plec_tracer_event *event) {
    begin(w, 'C', HOST, 0, event->at_ns);
    plec_text_add(&w->text, ",\"name\":\"pinned bytes\",\"args\":{\"bytes\":%" PRIu64 "}}",
                  event->n_bytes);
}

/* --- moments --------------------------------------------------------------------------------- */

static void write_moment(struct writer *w, const struct plec_tracer_event *event) {
    begin(w, 'i', HOST, tid_of(w, event), event->at_ns);
    name_what(w, event->what);
    plec_text_add(&w->text, ",\"s\":\"t\"");
    experts(w, event);
    if (event->what == PLEC_TRACE_HAND_OUT) {
        uint64_t n = (uint64_t)__builtin_popcountll(event->mask);
        uint64_t each = n == 0 ? 0 : event->n_bytes / n;
        uint64_t device = each * (uint64_t)__builtin_popcountll(event->in_slot);
        uint64_t host = each * (uint64_t)__builtin_popcountll(event->in_frame);
        plec_text_add(&w->text,
                      ",\"slot\":%u,\"device_bytes\":%" PRIu64 ",\"host_bytes\":%" PRIu64
                      ",\"disk_bytes\":%" PRIu64,
                      event->slot, device, host, event->n_bytes - device - host);
    } else if (event->status != PLEC_OK) {
        plec_text_add(&w->text, ",\"status\":\"%s\"",
                      plec_status_name((enum plec_status)event->status));
    }
    plec_text_add(&w->text, "}}");
}

/* One point of a flow: it binds to the slice around it. */
static void write_flow(struct writer *w, char phase, uint32_t pid, uint32_t tid, uint64_t at_ns) {
    begin(w, phase, pid, tid, at_ns);
    name(w, "experts", "extent");
    plec_text_add(&w->text, ",\"id\":\"%" PRIu64 "\",\"bp\":\"e\"}", w->n_flows);
}

/* From what was read, by what was copied, to a use within a range. A copy that the trace knows no
 * read of begins its flow. */
static void write_flows(struct writer *w, const struct plec_tracer_event *use) {
    uint64_t left = plec_walk_fresh(&w->walk, use);
    int32_t read, copy;
    if (w->walk.stacks[use->thread].depth == 0) return;
    while (plec_walk_next_source(&read, &copy, &left, &w->walk, use)) {
        if (copy == PLEC_WALK_NONE) continue;
        const struct plec_walk_move *to = &w->walk.moves[copy];
        w->n_flows++;
        if (read != PLEC_WALK_NONE) {
            const struct plec_walk_move *from = &w->walk.moves[read];
            write_flow(w, 's', DISK, from->lane + 1, from->begin_ns);
        }
        write_flow(w, read != PLEC_WALK_NONE ? 't' : 's', DEVICE, to->lane + 1, to->begin_ns);
        write_flow(w, 'f', HOST, tid_of(w, use), use->at_ns);
    }
}

/* --- all of it ------------------------------------------------------------------------------- */

static void write_transfer(struct writer *w, const struct plec_tracer_event *event) {
    struct plec_walk_open open;
    if (event->phase == PLEC_TRACE_BEGIN) {
        plec_walk_start(&w->walk, event);
        if (plec_walk_enliven(&w->walk, event)) write_life(w, 'b', event->key, event->at_ns, false);
    } else if (plec_walk_end(&open, &w->walk, event)) {
        bool copies = event->what == PLEC_TRACE_COPY;
        write_move(w, &open, event);
        count_rate(w, copies, event->at_ns, (copies ? w->walk.copying : w->walk.reading) == 0);
    }
    count_moves(w, event->at_ns);
}

static void write_event(struct writer *w, const struct plec_tracer_event *event) {
    switch (event->what) {
    case PLEC_TRACE_READ:
    case PLEC_TRACE_COPY: write_transfer(w, event); return;
    case PLEC_TRACE_PINNED: count_pinned(w, event); return;
    case PLEC_TRACE_HAND_OUT:
        write_moment(w, event);
        write_flows(w, event);
        count_hits(w, event);
        return;
    case PLEC_TRACE_READY:
    case PLEC_TRACE_CANCEL:
        write_moment(w, event);
        if (plec_walk_settle(&w->walk, event)) write_life(w, 'e', event->key, event->at_ns, false);
        return;
    case PLEC_TRACE_EVICT_SLOT:
    case PLEC_TRACE_EVICT_FRAME: write_moment(w, event); return;
    default: break;
    }
    if (event->phase == PLEC_TRACE_BEGIN)
        plec_walk_push(&w->walk, event);
    else
        end_range(w, event);
}

/* Closes what is still open. */
static void write_rest(struct writer *w) {
    struct plec_walk *walk = &w->walk;
    if (walk->reading > 0) count_rate(w, false, walk->end_ns, true);
    if (walk->copying > 0) count_rate(w, true, walk->end_ns, true);
    for (uint32_t kind = 0; kind < 2; kind++)
        for (uint32_t i = 0; i < PLEC_WALK_LANES; i++) {
            struct plec_walk_open *open = &walk->open[kind][i];
            if (open->begin == NULL) continue;
            open->move.end_ns = walk->end_ns;
            if (kind == 1 && open->move.begin_ns < walk->stream_free[open->move.lane])
                open->move.begin_ns = walk->stream_free[open->move.lane];
            if (kind == 1) walk->stream_free[open->move.lane] = walk->end_ns;
            write_move(w, open, NULL);
        }
    for (uint32_t i = 0; i < walk->snapshot->n_threads; i++) {
        const struct plec_walk_stack *stack = &walk->stacks[i];
        for (uint32_t d = stack->depth < PLEC_WALK_DEPTH ? stack->depth : PLEC_WALK_DEPTH; d-- > 0;)
            write_range(w, stack->begins[d], NULL, walk->end_ns, true);
    }
    for (uint32_t key = 0; key < walk->n_keys; key++)
        if (walk->extents[key].alive) write_life(w, 'e', key, walk->end_ns, true);
}

static void write_about(struct writer *w, const struct plec_tracer_about *about) {
    const struct plec_tracer_snapshot *snapshot = w->walk.snapshot;
    const struct {
        const char *name, *value;
    } members[] = {{"version", about->version},
                   {"model", about->model},
                   {"host", about->host},
                   {"device", about->device}};
    plec_text_add(&w->text, "\n],\"displayTimeUnit\":\"ns\",\"otherData\":{");
    for (size_t i = 0; i < sizeof members / sizeof members[0]; i++) {
        if (members[i].value == NULL) continue;
        plec_text_add(&w->text, "\"%s\":", members[i].name);
        plec_text_add_string(&w->text, members[i].value);
        plec_text_add(&w->text, ",");
    }
    plec_text_add(&w->text,
                  "\"clock\":\"%s, ts 0 at %" PRIu64 " ns\",\"events\":%" PRIu64
                  ",\"lost\":%" PRIu64 "}}\n",
                  snapshot->virtual_time ? "virtual" : "CLOCK_MONOTONIC", snapshot->start_ns,
                  snapshot->n_events, snapshot->n_lost);
}

static enum plec_status write_all(struct writer *w, const char *path,
                                  const struct plec_tracer_about *about, struct plec_error *err) {
    const struct plec_tracer_snapshot *snapshot = w->walk.snapshot;
    enum plec_status status = plec_text_open(&w->text, path, err);
    if (status != PLEC_OK) return status;
    plec_text_add(&w->text, "{\"traceEvents\":[");
    for (uint64_t i = 0; i < snapshot->n_events; i++)
        write_event(w, &snapshot->events[i]);
    write_rest(w);
    name_tracks(w, about);
    write_about(w, about);
    return plec_text_close(&w->text, err);
}

enum plec_status plec_tracer_write_json(const char *path,
                                        const struct plec_tracer_snapshot *snapshot,
                                        const struct plec_tracer_about *about,
                                        struct plec_error *err) {
    struct writer *w = calloc(1, sizeof *w);
    if (w == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a trace's text");
    w->start_ns = snapshot->start_ns;
    enum plec_status status = plec_walk_open(&w->walk, snapshot, err);
    if (status == PLEC_OK) status = write_all(w, path, about, err);
    plec_walk_close(&w->walk);
    free(w);
    return status;
}
