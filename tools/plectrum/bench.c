/* bench.c: `plectrum bench`: decode and prefill through layers of a container, timed. */
#include "tools/plectrum/bench.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "host/memory_limits.h"
#include "tools/measure/read_bandwidth.h"
#include "tools/measure/speeds.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/files.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/timeline.h"
#include "tools/plectrum/units.h"

enum { STEPS_LEAST = 5, STEPS_MOST = 200 };
static const double row_seconds = 2;

enum { PANELS = 3 };

/* Everything of one run. */
struct bench {
    struct plec_bench_options o;
    struct plec_tracing *tracing;
    struct plec_tracer *tracer; /* its; or NULL */
    struct plec_bench_work work;
    struct plec_bench_row rows[1 + 2 * PLEC_BENCH_LIST_MAX];
    uint32_t n_rows;
    struct plec_device *gauge; /* a device of its own, to measure the memory's speed with */
    struct plec_progress progress;
    struct plec_tracer_snapshot snapshots[PANELS];
    struct plec_timeline_panel panels[PANELS];
    char titles[PANELS][64];
    size_t n_panels;
    bool touched;
};

/* --- the memory's speed ---------------------------------------------------------------------- */

static void open_gauge(struct bench *bench) {
    const struct plec_device_options options = {.n_threads = bench->o.how.device.n_threads};
    enum plec_run_device device = plec_runner_device(bench->work.runner);
    if (bench->o.limit_given || device == PLEC_RUN_REFERENCE) return;
    enum plec_device_kind kind = device == PLEC_RUN_CUDA ? PLEC_DEVICE_CUDA : PLEC_DEVICE_CPU;
    if (plec_device_open(&bench->gauge, kind, &options, NULL) != PLEC_OK) bench->gauge = NULL;
}

/* Bytes a second; 0 when it cannot be measured, which is not the run's failure. */
static double measure_limit(const struct bench *bench) {
    double bytes_per_s = 0;
    if (bench->o.limit_given) return bench->o.limit_gbs * 1e9;
    if (bench->gauge == NULL || plec_measure_memory(&bytes_per_s, bench->gauge, NULL) != PLEC_OK)
        return 0;
    return bytes_per_s;
}

/* --- pictures -------------------------------------------------------------------------------- */

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* Keeps what happened since from_ns for the picture, in place of an earlier panel of the phase. */
static enum plec_status keep_panel(struct bench *bench, const struct plec_bench_row *row,
                                   uint64_t from_ns, uint32_t n_steps, struct plec_error *err) {
    if (bench->o.how.tracing.plot == NULL) return PLEC_OK;
    int i = (int)row->phase;
    char steps[32] = "";
    if (n_steps > 1) snprintf(steps, sizeof steps, "the last %u steps of ", n_steps);
    snprintf(bench->titles[i], sizeof bench->titles[i], "%s%s, %u token%s a step",
             row->phase == PLEC_BENCH_FIRST    ? "first token"
             : row->phase == PLEC_BENCH_DECODE ? steps
                                               : "a step of ",
             row->phase == PLEC_BENCH_FIRST    ? ""
             : row->phase == PLEC_BENCH_DECODE ? "decode"
                                               : "prefill",
             row->n_tokens, row->n_tokens == 1 ? "" : "s");
    plec_tracer_snapshot_close(&bench->snapshots[i]);
    bench->panels[i] = (struct plec_timeline_panel){.title = bench->titles[i],
                                                    .snapshot = &bench->snapshots[i],
                                                    .from_ns = from_ns,
                                                    .to_ns = now_ns()};
    return plec_tracer_read(&bench->snapshots[i], bench->tracer, err);
}

static enum plec_status draw(struct bench *bench, struct plec_error *err) {
    if (bench->o.how.tracing.plot == NULL) return PLEC_OK;
    struct plec_timeline_panel panels[PANELS];
    size_t n = 0;
    for (int i = 0; i < PANELS; i++)
        if (bench->panels[i].title != NULL) panels[n++] = bench->panels[i];
    char title[512];
    snprintf(title, sizeof title, "%s on %s", bench->o.path,
             plec_runner_device_name(bench->work.runner));
    const struct plec_timeline_args args = {title, panels, n};
    return plec_timeline_write(bench->o.how.tracing.plot, &args, err);
}

/* --- rows ------------------------------------------------------------------------------------ */

/* What streaming did between two looks is added, what there is is as it is now. */
static void add_stream(struct plec_stream_stats *sum, const struct plec_stream_stats *before,
                       const struct plec_stream_stats *after) {
#define AT(member) offsetof(struct plec_stream_stats, member)
    static const size_t counted[] = {
        AT(dispatches),     AT(parts),         AT(experts),         AT(expert_bytes),
        AT(device_hits),    AT(host_hits),     AT(disk_misses),     AT(device_hit_bytes),
        AT(host_hit_bytes), AT(read_bytes),    AT(disk_miss_bytes), AT(copied_bytes),
        AT(read_busy_ns),   AT(copy_busy_ns),  AT(waits),           AT(stall_ns),
        AT(stall_slot_ns),  AT(stall_disk_ns), AT(stall_copy_ns),   AT(stall_other_ns)};
#undef AT
    struct plec_stream_stats now = *after;
    for (size_t i = 0; i < sizeof counted / sizeof counted[0]; i++) {
        uint64_t a, b, c;
        memcpy(&a, (const char *)sum + counted[i], sizeof a);
        memcpy(&b, (const char *)before + counted[i], sizeof b);
        memcpy(&c, (const char *)after + counted[i], sizeof c);
        a += c - b;
        memcpy((char *)&now + counted[i], &a, sizeof a);
    }
    *sum = now;
}

static enum plec_status open_row(struct plec_bench_row **out, struct bench *bench,
                                 enum plec_bench_phase phase, uint32_t n_tokens,
                                 struct plec_error *err) {
    struct plec_bench_row *row = &bench->rows[bench->n_rows];
    *row = (struct plec_bench_row){.phase = phase, .n_tokens = n_tokens};
    uint64_t n = PLEC_BENCH_STEPS_MAX, n_recorded = bench->work.recorded.n_dispatches;
    row->seconds = calloc(n_recorded > n ? n_recorded : n, sizeof *row->seconds);
    if (row->seconds == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a row");
    bench->n_rows++;
    *out = row;
    return PLEC_OK;
}

/* A timed step, counted in the row. */
static enum plec_status timed_step(struct bench *bench, struct plec_bench_row *row,
                                   uint32_t n_tokens, struct plec_error *err) {
    struct plec_stream_stats before, after;
    struct plec_bench_step step;
    bool streamed = plec_runner_stream_stats(&before, bench->work.runner);
    enum plec_status status = plec_bench_work_step(&step, &bench->work, n_tokens, err);
    if (status != PLEC_OK) return status;
    if (streamed && plec_runner_stream_stats(&after, bench->work.runner))
        add_stream(&row->stream, &before, &after);
    row->seconds[row->n_steps++] = step.seconds;
    row->tokens += n_tokens;
    row->active_bytes += step.active_bytes;
    row->total_s += step.seconds;
    row->norm = step.norm;
    return PLEC_OK;
}

static void close_row(struct bench *bench, struct plec_bench_row *row, double limit_before) {
    row->median_s = plec_bench_median(row->seconds, row->n_steps);
    if (row->n_steps > 0) row->n_tokens = (uint32_t)(row->tokens / row->n_steps);
    double limit_after = measure_limit(bench);
    row->limit_bytes_per_s = (limit_before + limit_after) / 2;
}

static enum plec_status warm_up(struct bench *bench, uint32_t n_tokens, struct plec_error *err) {
    struct plec_bench_step step;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < bench->o.n_warmup; i++)
        status = plec_bench_work_step(&step, &bench->work, n_tokens, err);
    (void)plec_bench_work_set(&bench->work);
    return status;
}

static bool wants_more(const struct bench *bench, const struct plec_bench_row *row) {
    if (bench->o.steps_given) return row->n_steps < bench->o.n_steps;
    if (row->n_steps < STEPS_LEAST) return true;
    return row->n_steps < STEPS_MOST && row->total_s < row_seconds;
}

/* Steps of one number of tokens. The last ones are drawn: as many of decoding as are no longer than
 * a screen's worth, one of prefill. */
static enum plec_status run_row(struct bench *bench, enum plec_bench_phase phase, uint32_t n_tokens,
                                struct plec_error *err) {
    enum { DRAWN = 4 };
    uint64_t began[DRAWN] = {0};
    struct plec_bench_row *row = NULL;
    enum plec_status status = open_row(&row, bench, phase, n_tokens, err);
    if (status == PLEC_OK) status = warm_up(bench, n_tokens, err);
    double limit = status == PLEC_OK ? measure_limit(bench) : 0;
    bench->progress = plec_progress_start(phase == PLEC_BENCH_DECODE ? "decoding" : "prefilling", 0,
                                          PLEC_PROGRESS_COUNT);
    while (status == PLEC_OK && wants_more(bench, row)) {
        began[row->n_steps % DRAWN] = now_ns();
        status = timed_step(bench, row, n_tokens, err);
        plec_progress_update(&bench->progress, row->n_steps);
    }
    plec_progress_end(&bench->progress);
    if (status != PLEC_OK) return status;
    uint32_t drawn = phase == PLEC_BENCH_PREFILL ? 1 : row->n_steps < DRAWN ? row->n_steps : DRAWN;
    status = keep_panel(bench, row, began[(row->n_steps - drawn) % DRAWN], drawn, err);
    row->set_bytes = plec_bench_work_set(&bench->work);
    close_row(bench, row, limit);
    return status;
}

/* One token, with nothing cached: the runner was just opened. */
static enum plec_status run_first(struct bench *bench, uint32_t n_tokens, struct plec_error *err) {
    struct plec_bench_row *row = NULL;
    enum plec_status status = open_row(&row, bench, PLEC_BENCH_FIRST, n_tokens, err);
    uint64_t began = now_ns();
    if (status == PLEC_OK) status = timed_step(bench, row, n_tokens, err);
    if (status != PLEC_OK) return status;
    status = keep_panel(bench, row, began, 1, err);
    row->set_bytes = plec_bench_work_set(&bench->work);
    close_row(bench, row, measure_limit(bench));
    return status;
}

/* Rows of which a trace has no step say nothing. */
static void drop_empty_rows(struct bench *bench) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < bench->n_rows; i++)
        if (bench->rows[i].n_steps > 0)
            bench->rows[kept++] = bench->rows[i];
        else
            free(bench->rows[i].seconds);
    bench->n_rows = kept;
}

/* The steps of a recorded routing after its first, those of one token apart from the others. */
static enum plec_status run_recorded(struct bench *bench, struct plec_error *err) {
    struct plec_bench_row *decode = NULL, *prefill = NULL;
    enum plec_status status = open_row(&decode, bench, PLEC_BENCH_DECODE, 1, err);
    if (status == PLEC_OK) status = open_row(&prefill, bench, PLEC_BENCH_PREFILL, 1, err);
    double limit = measure_limit(bench);
    bench->progress =
        plec_progress_start("replaying", bench->work.recorded.n_steps, PLEC_PROGRESS_COUNT);
    for (uint32_t n; status == PLEC_OK && (n = plec_bench_work_next(&bench->work)) > 0;) {
        struct plec_bench_row *row = n == 1 ? decode : prefill;
        uint64_t began = now_ns();
        status = timed_step(bench, row, n, err);
        if (status == PLEC_OK && plec_bench_work_next(&bench->work) != n)
            status = keep_panel(bench, row, began, 1, err);
        plec_progress_update(&bench->progress, bench->work.n_steps);
    }
    plec_progress_end(&bench->progress);
    if (status != PLEC_OK) return status;
    decode->set_bytes = prefill->set_bytes = plec_bench_work_set(&bench->work);
    close_row(bench, decode, limit);
    close_row(bench, prefill, limit);
    drop_empty_rows(bench);
    return PLEC_OK;
}

static void touch_weights(struct bench *bench) {
    struct plec_memory_limits limits;
    plec_memory_limits_read(&limits, "");
    uint64_t n_bytes = bench->work.weight_bytes + bench->work.other_bytes;
    if (bench->o.how.stream.device_budget != 0) return;
    if (n_bytes > plec_memory_limits_left(&limits) / 10 * 9) return;
    plec_bench_work_touch(&bench->work);
    bench->touched = true;
}

static enum plec_status run_all(struct bench *bench, struct plec_error *err) {
    bool recorded = bench->o.routing == PLEC_BENCH_RECORDED;
    uint32_t first = recorded ? plec_bench_work_next(&bench->work) : 1;
    if (first == 0)
        return plec_fail(err, PLEC_BAD_INPUT, "EmptyTrace", "%s holds no step",
                         bench->o.routing_word);
    enum plec_status status = run_first(bench, first, err);
    if (status != PLEC_OK) return status;
    touch_weights(bench);
    plec_tracer_begin(bench->tracer, PLEC_TRACE_STEADY, UINT32_MAX, 0);
    if (recorded) status = run_recorded(bench, err);
    for (uint32_t i = 0; status == PLEC_OK && i < bench->o.n_decode; i++)
        status = run_row(bench, PLEC_BENCH_DECODE, bench->o.decode[i], err);
    for (uint32_t i = 0; status == PLEC_OK && i < bench->o.n_prefill; i++)
        status = run_row(bench, PLEC_BENCH_PREFILL, bench->o.prefill[i], err);
    plec_tracer_end(bench->tracer, PLEC_TRACE_STEADY, UINT32_MAX, status);
    return status;
}

/* --- the command ----------------------------------------------------------------------------- */

static enum plec_status execute(struct bench *bench, struct plec_error *err) {
    const struct plec_cli_file files[] = {{"--csv", bench->o.csv, PLEC_FILE_REPLACED},
                                          {"--record", bench->o.record, PLEC_FILE_REPLACED}};
    enum plec_status status = plec_cli_try_files(files, sizeof files / sizeof files[0], err);
    if (status == PLEC_OK)
        status = plec_tracing_open(&bench->tracing, &bench->o.how.tracing, bench->o.path, err);
    if (status != PLEC_OK) return status;
    bench->tracer = plec_tracing_tracer(bench->tracing);
    status = plec_bench_work_open(&bench->work, &bench->o, bench->tracer, err);
    if (status != PLEC_OK) return status;
    plec_tracing_name_device(bench->tracing, plec_runner_device_name(bench->work.runner));
    open_gauge(bench);
    status = run_all(bench, err);
    if (status == PLEC_OK && bench->o.record != NULL)
        status = plec_bench_work_save(&bench->work, bench->o.record, err);
    return status == PLEC_OK ? draw(bench, err) : status;
}

static int report(const struct bench *bench) {
    const struct plec_bench_report report = {.options = &bench->o,
                                             .work = &bench->work,
                                             .rows = bench->rows,
                                             .n_rows = bench->n_rows,
                                             .cache_bytes = plec_measure_cache_bytes(),
                                             .touched = bench->touched};
    struct plec_error err;
    if (bench->o.csv != NULL && plec_bench_write_csv(bench->o.csv, &report, &err) != PLEC_OK)
        return plec_cli_error(&err);
    if (bench->o.json) return plec_bench_print_json(&report);
    plec_bench_print(&report);
    return PLEC_EXIT_OK;
}

/* The trace is closed after the runner: what that had begun has ended. */
static enum plec_status close_bench(struct bench *bench, struct plec_error *err) {
    for (uint32_t i = 0; i < bench->n_rows; i++)
        free(bench->rows[i].seconds);
    for (int i = 0; i < PANELS; i++)
        plec_tracer_snapshot_close(&bench->snapshots[i]);
    plec_bench_work_close(&bench->work);
    plec_device_close(bench->gauge);
    return plec_tracing_close(bench->tracing, err);
}

int plec_command_bench(int argc, char **argv) {
    struct bench *bench = calloc(1, sizeof *bench);
    struct plec_error err;
    if (bench == NULL) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    int leave = plec_bench_options_read(&bench->o, argc, argv);
    if (leave == PLEC_CLI_GO_ON) {
        if (execute(bench, &err) == PLEC_OK) {
            leave = report(bench);
        } else {
            leave = plec_execution_error(&bench->o.how, &err);
            bool wrong =
                strcmp(err.name, "ZeroNorm") == 0 || strcmp(err.name, "OutputNotFinite") == 0;
            if (wrong) leave = PLEC_EXIT_FOUND;
        }
        if (close_bench(bench, &err) != PLEC_OK) {
            int failed = plec_cli_error(&err);
            if (leave == PLEC_EXIT_OK) leave = failed;
        }
    }
    free(bench);
    return leave;
}
