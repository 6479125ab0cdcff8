/* bench_trace.c: what telling costs: nanoseconds an event of a range, with no tracer (the price of
 * every run), with a tracer that nobody listens to, and recording; and a streamer's event. What was
 * recorded is counted. With NVTX_INJECTION64_PATH set the last rows are those of a listener.
 * Usage: bench_trace
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "host/tracer.h"

enum { N_ROUNDS = 9, N_PAIRS = 200000 };

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* The best of some rounds. */
static double best_of(void (*work)(struct plec_tracer *tracer), struct plec_tracer *tracer) {
    double best = 1e18;
    for (int i = 0; i < N_ROUNDS; i++) {
        double start = now_ns();
        work(tracer);
        double took = (now_ns() - start) / (2.0 * N_PAIRS);
        if (took < best) best = took;
    }
    return best;
}

/* The compiler must not see that the tracer is the same each time. */
static void tell_ranges(struct plec_tracer *tracer) {
    struct plec_tracer *volatile hidden = tracer;
    for (uint32_t i = 0; i < N_PAIRS; i++) {
        plec_tracer_begin(hidden, PLEC_TRACE_LAYER, i, 1);
        plec_tracer_end(hidden, PLEC_TRACE_LAYER, i, PLEC_OK);
    }
}

static void tell_reads(struct plec_tracer *tracer) {
    struct plec_stream_trace trace = plec_tracer_of_stream(tracer);
    if (trace.event == NULL) return;
    for (uint32_t i = 0; i < N_PAIRS; i++) {
        struct plec_stream_event event = {.kind = PLEC_STREAM_READ_BEGIN,
                                          .at_ns = i + 1,
                                          .id = i,
                                          .key = i % 100,
                                          .mask = 0xff,
                                          .n_bytes = 1 << 20};
        trace.event(trace.user, &event);
        event.kind = PLEC_STREAM_READ_END;
        trace.event(trace.user, &event);
    }
}

static void read_clock(struct plec_tracer *tracer) {
    (void)tracer;
    double sum = 0;
    for (uint32_t i = 0; i < 2 * N_PAIRS; i++)
        sum += now_ns();
    volatile double kept = sum; /* so that the calls are made */
    (void)kept;
}

static bool open_tracer(struct plec_tracer **out, bool record, enum plec_nvtx_level nvtx) {
    struct plec_error err;
    const struct plec_tracer_options options = {.record = record, .nvtx = nvtx};
    if (plec_tracer_open(out, &options, &err) == PLEC_OK) return true;
    fprintf(stderr, "bench_trace: %s\n", err.message);
    return false;
}

static void print_row(const char *what, double ns) {
    printf("%-44s %7.2f ns an event\n", what, ns);
}

/* What a full ring holds and what it has lost make up all that was told. */
static bool all_counted(struct plec_tracer *tracer, uint64_t told) {
    struct plec_tracer_snapshot seen;
    if (plec_tracer_read(&seen, tracer, NULL) != PLEC_OK) return false;
    bool right = seen.n_events > 0 && seen.n_events + seen.n_lost == told;
    if (!right)
        fprintf(stderr, "bench_trace: %llu events and %llu lost of %llu\n",
                (unsigned long long)seen.n_events, (unsigned long long)seen.n_lost,
                (unsigned long long)told);
    plec_tracer_snapshot_close(&seen);
    return right;
}

int main(void) {
    struct plec_tracer *quiet = NULL, *ring = NULL;
    if (!open_tracer(&quiet, false, PLEC_NVTX_ALL) || !open_tracer(&ring, true, PLEC_NVTX_OFF))
        return 1;
    print_row("the clock alone", best_of(read_clock, NULL));
    print_row("no tracer: a branch", best_of(tell_ranges, NULL));
    print_row(plec_tracer_active(quiet) ? "ranges, a profiler listens" : "ranges, nobody listens",
              best_of(tell_ranges, quiet));
    if (plec_tracer_active(quiet))
        print_row("reads, a profiler listens", best_of(tell_reads, quiet));
    print_row("ranges, recording", best_of(tell_ranges, ring));
    print_row("reads of a streamer, recording", best_of(tell_reads, ring));
    bool right = all_counted(ring, UINT64_C(4) * N_PAIRS * N_ROUNDS);
    plec_tracer_close(quiet);
    plec_tracer_close(ring);
    return right ? 0 : 1;
}
