/* bench_print.c: what a benchmark measured, for a person, as JSON and as CSV. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "tools/plectrum/bench.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/stream_options.h"
#include "tools/plectrum/units.h"

static const char *const phase_names[] = {"first", "decode", "prefill"};

/* --- numbers of a row ------------------------------------------------------------------------ */

/* The columns of CSV and JSON, in their order. */
struct column {
    const char *name;
    enum { COUNT, REAL, FLAG } kind;
    double real;
    uint64_t count;
};
enum { COLUMNS = 32 };

static double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}

static double active_rate(const struct plec_bench_row *row) {
    return row->n_steps > 0 ? ratio((double)row->active_bytes / row->n_steps, row->median_s) : 0;
}

/* What waits are told beside: they are means, for their parts to add up. */
static double mean_s(const struct plec_bench_row *row) {
    return row->n_steps > 0 ? row->total_s / row->n_steps : 0;
}

/* What was in use fits the last-level cache. */
static bool is_cached(const struct plec_bench_report *report, const struct plec_bench_row *row) {
    return report->cache_bytes > 0 && row->set_bytes <= report->cache_bytes;
}

static size_t list_columns(struct column *out, const struct plec_bench_report *report,
                           const struct plec_bench_row *row) {
    const struct plec_stream_stats *s = &row->stream;
    double steps = row->n_steps > 0 ? row->n_steps : 1, tokens = row->tokens > 0 ? row->tokens : 1;
    double fastest = row->n_steps > 0 ? row->seconds[0] : 0;
    double slowest = row->n_steps > 0 ? row->seconds[row->n_steps - 1] : 0;
    const struct column columns[] = {
        {"tokens", COUNT, 0, row->n_tokens},
        {"steps", COUNT, 0, row->n_steps},
        {"median_ms", REAL, 1e3 * row->median_s, 0},
        {"mean_ms", REAL, 1e3 * mean_s(row), 0},
        {"fastest_ms", REAL, 1e3 * fastest, 0},
        {"slowest_ms", REAL, 1e3 * slowest, 0},
        {"tokens_s", REAL, ratio((double)row->tokens / steps, row->median_s), 0},
        {"active_bytes_a_step", REAL, (double)row->active_bytes / steps, 0},
        {"gb_s", REAL, active_rate(row) / 1e9, 0},
        {"limit_gb_s", REAL, row->limit_bytes_per_s / 1e9, 0},
        {"share", REAL, ratio(active_rate(row), row->limit_bytes_per_s), 0},
        {"set_bytes", COUNT, 0, row->set_bytes},
        {"cached", FLAG, 0, is_cached(report, row)},
        {"norm", REAL, row->norm, 0},
        {"experts", COUNT, 0, s->experts},
        {"device_hits", COUNT, 0, s->device_hits},
        {"host_hits", COUNT, 0, s->host_hits},
        {"disk_misses", COUNT, 0, s->disk_misses},
        {"device_bytes_a_token", REAL, (double)s->device_hit_bytes / tokens, 0},
        {"host_bytes_a_token", REAL, (double)s->host_hit_bytes / tokens, 0},
        {"disk_bytes_a_token", REAL, (double)s->disk_miss_bytes / tokens, 0},
        {"read_bytes_a_token", REAL, (double)s->read_bytes / tokens, 0},
        {"copied_bytes_a_token", REAL, (double)s->copied_bytes / tokens, 0},
        {"waits", COUNT, 0, s->waits},
        {"stall_ms_a_step", REAL, (double)s->stall_ns / 1e6 / steps, 0},
        {"stall_disk_ms_a_step", REAL, (double)s->stall_disk_ns / 1e6 / steps, 0},
        {"stall_copy_ms_a_step", REAL, (double)s->stall_copy_ns / 1e6 / steps, 0},
        {"stall_slot_ms_a_step", REAL, (double)s->stall_slot_ns / 1e6 / steps, 0},
        {"stall_other_ms_a_step", REAL, (double)s->stall_other_ns / 1e6 / steps, 0}};
    _Static_assert(sizeof columns / sizeof columns[0] <= COLUMNS, "room for the columns");
    memcpy(out, columns, sizeof columns);
    return sizeof columns / sizeof columns[0];
}

/* --- text ------------------------------------------------------------------------------------ */

static const char *routing_name(const struct plec_bench_options *o) {
    return o->routing == PLEC_BENCH_RANDOM   ? "experts drawn uniformly"
           : o->routing == PLEC_BENCH_ROUTER ? "experts chosen by the router"
                                             : "experts of a recorded routing";
}

static bool is_streamed(const struct plec_bench_report *report) {
    return report->n_rows > 0 && report->rows[0].stream.n_slots > 0;
}

/* What the layer's experts run with, where the layer before has other kernels; else NULL. */
static const char *new_kernels(const struct plec_bench_work *work, uint32_t i) {
    const char *kernels = plec_runner_kernels(work->runner, work->layers[i].number);
    const char *before =
        i > 0 ? plec_runner_kernels(work->runner, work->layers[i - 1].number) : NULL;
    bool same = kernels != NULL && before != NULL && strcmp(kernels, before) == 0;
    return same ? NULL : kernels;
}

static void print_kernels(const struct plec_bench_work *work) {
    for (uint32_t i = 0; i < work->n_layers; i++)
        if (new_kernels(work, i) != NULL)
            printf("kernels   %s, from layer %u on\n", new_kernels(work, i),
                   work->layers[i].number);
}

static void print_graphs(const struct plec_bench_work *work) {
    struct plec_graph_stats graphs;
    if (!plec_runner_graph_stats(&graphs, work->runner)) return;
    printf("graphs    %llu captured; of %llu steps of layers %llu replayed one, the others were "
           "launched kernel by kernel\n",
           (unsigned long long)graphs.captured,
           (unsigned long long)(graphs.replayed + graphs.launched),
           (unsigned long long)graphs.replayed);
}

static void print_head(const struct plec_bench_report *report) {
    const struct plec_bench_work *work = report->work;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    plec_cli_put(stdout, report->options->path);
    printf(": %u layer%s on %s\n", work->n_layers, work->n_layers == 1 ? "" : "s",
           plec_runner_device_name(work->runner));
    printf("weights   %s routed, %s beside them; %s\n", plec_size_text(a, work->weight_bytes),
           plec_size_text(b, work->other_bytes), routing_name(report->options));
    print_kernels(work);
    print_graphs(work);
    if (!is_streamed(report)) return;
    const struct plec_stream_stats *s = &report->rows[0].stream;
    char tiers[PLEC_STREAM_TEXT_MAX];
    plec_stream_text_tiers(tiers, s);
    printf("streamed  extents of %u: %s, %.0f%% of the weights have a slot; %s %s\n",
           s->extent_width, tiers, 100 * fmin(1, ratio(s->n_slots, s->n_keys)), s->io.engine,
           s->io.cache);
}

static void print_speeds(const struct plec_bench_report *report) {
    printf("\n%-8s %6s %6s %11s %11s %11s %8s %8s %6s %10s\n", "", "tokens", "steps", "ms/step",
           "tokens/s", "used/step", "GB/s", "of GB/s", "share", "norm");
    for (uint32_t i = 0; i < report->n_rows; i++) {
        const struct plec_bench_row *row = &report->rows[i];
        char a[PLEC_UNIT_TEXT_MAX];
        uint64_t steps = row->n_steps > 0 ? row->n_steps : 1;
        printf("%-8s %6u %6u %11.3f %11.1f %11s %8.2f ", phase_names[row->phase], row->n_tokens,
               row->n_steps, 1e3 * row->median_s,
               ratio((double)row->tokens / (double)steps, row->median_s),
               plec_size_text(a, row->active_bytes / steps), active_rate(row) / 1e9);
        if (row->limit_bytes_per_s > 0)
            printf("%8.2f %5.1f%%", row->limit_bytes_per_s / 1e9,
                   100 * ratio(active_rate(row), row->limit_bytes_per_s));
        else
            printf("%8s %6s", "-", "-");
        printf(" %10.4g\n", row->norm);
    }
}

static void print_tiers(const struct plec_bench_report *report) {
    printf("\n%-8s %6s %8s %8s %8s %11s %11s %11s\n", "", "tokens", "slots", "frames", "files",
           "read/token", "copied", "in slots");
    for (uint32_t i = 0; i < report->n_rows; i++) {
        const struct plec_bench_row *row = &report->rows[i];
        const struct plec_stream_stats *s = &row->stream;
        uint64_t tokens = row->tokens > 0 ? row->tokens : 1;
        double all = (double)s->experts;
        char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX], c[PLEC_UNIT_TEXT_MAX];
        printf("%-8s %6u %7.1f%% %7.1f%% %7.1f%% %11s %11s %11s\n", phase_names[row->phase],
               row->n_tokens, 100 * ratio((double)s->device_hits, all),
               100 * ratio((double)s->host_hits, all), 100 * ratio((double)s->disk_misses, all),
               plec_size_text(a, s->read_bytes / tokens),
               plec_size_text(b, s->copied_bytes / tokens),
               plec_size_text(c, s->device_hit_bytes / tokens));
    }
}

static void print_stalls(const struct plec_bench_report *report) {
    printf("\n%-8s %6s %13s %13s %7s %10s %10s %10s %10s\n", "", "tokens", "mean ms/step",
           "stall ms/step", "share", "disk", "copies", "slots", "other");
    for (uint32_t i = 0; i < report->n_rows; i++) {
        const struct plec_bench_row *row = &report->rows[i];
        const struct plec_stream_stats *s = &row->stream;
        double steps = row->n_steps > 0 ? row->n_steps : 1;
        printf("%-8s %6u %13.3f %13.3f %6.1f%% %10.3f %10.3f %10.3f %10.3f\n",
               phase_names[row->phase], row->n_tokens, 1e3 * mean_s(row),
               (double)s->stall_ns / 1e6 / steps,
               100 * ratio((double)s->stall_ns / 1e9, row->total_s),
               (double)s->stall_disk_ns / 1e6 / steps, (double)s->stall_copy_ns / 1e6 / steps,
               (double)s->stall_slot_ns / 1e6 / steps, (double)s->stall_other_ns / 1e6 / steps);
    }
}

static void print_cached(const struct plec_bench_report *report) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    const char *before = "\nnote: ";
    for (uint32_t i = 0; i < report->n_rows; i++) {
        const struct plec_bench_row *row = &report->rows[i];
        if (!is_cached(report, row) || row->phase == PLEC_BENCH_FIRST) continue;
        printf("%s%s of %u (%s)", before, phase_names[row->phase], row->n_tokens,
               plec_size_text(a, row->set_bytes));
        before = ", ";
    }
    if (before[0] == ',')
        printf(" used weights that fit the last-level cache of %s:\n      their GB/s may be the "
               "cache's\n",
               plec_size_text(b, report->cache_bytes));
}

static void print_notes(const struct plec_bench_report *report) {
    print_cached(report);
    if (report->cache_bytes == 0)
        printf("\nnote: the size of the last-level cache is not known: GB/s may be the cache's\n");
    if (!is_streamed(report) && !report->touched)
        printf("\nnote: the weights do not fit the memory that is left: reading files is timed "
               "too\n");
    const struct {
        const char *name, *path;
    } files[] = {{"rows", report->options->csv},
                 {"picture", report->options->how.tracing.plot},
                 {"trace", report->options->how.tracing.path},
                 {"routing", report->options->record}};
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i].path == NULL) continue;
        printf("%s%-9s ", i == 0 ? "\n" : "", files[i].name);
        plec_cli_put(stdout, files[i].path);
        printf("\n");
    }
}

void plec_bench_print(const struct plec_bench_report *report) {
    print_head(report);
    print_speeds(report);
    if (is_streamed(report)) {
        print_tiers(report);
        print_stalls(report);
    }
    print_notes(report);
}

/* --- JSON ------------------------------------------------------------------------------------ */

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *text_or_null(const char *text) {
    json_t *value = text != NULL ? json_string(text) : NULL;
    return value != NULL ? value : json_null();
}

static json_t *kernels_json(const struct plec_bench_work *work) {
    json_t *list = json_array();
    for (uint32_t i = 0; i < work->n_layers; i++)
        json_array_append_new(
            list, text_or_null(plec_runner_kernels(work->runner, work->layers[i].number)));
    return list;
}

static json_t *row_json(const struct plec_bench_report *report, const struct plec_bench_row *row) {
    struct column columns[COLUMNS];
    size_t n = list_columns(columns, report, row);
    json_t *object = json_object();
    json_object_set_new(object, "phase", json_string(phase_names[row->phase]));
    for (size_t i = 0; i < n; i++) {
        const struct column *c = &columns[i];
        json_object_set_new(object, c->name,
                            c->kind == REAL   ? plec_json_real(c->real)
                            : c->kind == FLAG ? json_boolean(c->count != 0)
                                              : integer(c->count));
    }
    return object;
}

int plec_bench_print_json(const struct plec_bench_report *report) {
    static const char *const routings[] = {"random", "router", "recorded"};
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    const struct plec_bench_options *o = report->options;
    const struct plec_bench_work *work = report->work;
    plec_json_member(json, "kind", json_string("bench"));
    plec_json_member(json, "path", text_or_null(o->path));
    plec_json_member(
        json, "container",
        json_string(plec_container_kind_name(plec_container_get_kind(work->container))));
    plec_json_member(json, "device", json_string(plec_runner_device_name(work->runner)));
    plec_json_member(json, "kernels", kernels_json(work));
    plec_json_member(json, "layers", integer(work->n_layers));
    plec_json_member(json, "weight_bytes", integer(work->weight_bytes));
    plec_json_member(json, "other_bytes", integer(work->other_bytes));
    plec_json_member(json, "routing", json_string(routings[o->routing]));
    plec_json_member(json, "seed", integer(o->seed));
    plec_json_member(json, "warmup", integer(o->n_warmup));
    plec_json_member(json, "cache_bytes",
                     report->cache_bytes > 0 ? integer(report->cache_bytes) : json_null());
    plec_json_member(json, "weights_read_before", json_boolean(report->touched));
    plec_json_member(json, "stream",
                     is_streamed(report)
                         ? plec_stream_json(&report->rows[report->n_rows - 1].stream)
                         : json_null());
    plec_json_member(json, "graphs", plec_graphs_json(work->runner));
    plec_json_list_begin(json, "rows");
    for (uint32_t i = 0; i < report->n_rows; i++)
        plec_json_list_item(json, row_json(report, &report->rows[i]));
    plec_json_list_end(json);
    if (plec_json_end(json)) return PLEC_EXIT_OK;
    plec_cli_say("cannot write the output");
    return PLEC_EXIT_MACHINE;
}

/* --- CSV ------------------------------------------------------------------------------------- */

static void write_rows(FILE *out, const struct plec_bench_report *report) {
    struct column columns[COLUMNS];
    for (uint32_t i = 0; i < report->n_rows; i++) {
        size_t n = list_columns(columns, report, &report->rows[i]);
        if (i == 0) {
            fputs("phase", out);
            for (size_t c = 0; c < n; c++)
                fprintf(out, ",%s", columns[c].name);
            fputc('\n', out);
        }
        fputs(phase_names[report->rows[i].phase], out);
        for (size_t c = 0; c < n; c++)
            if (columns[c].kind == REAL)
                fprintf(out, ",%.9g", columns[c].real);
            else
                fprintf(out, ",%llu", (unsigned long long)columns[c].count);
        fputc('\n', out);
    }
}

enum plec_status plec_bench_write_csv(const char *path, const struct plec_bench_report *report,
                                      struct plec_error *err) {
    char *text = NULL;
    size_t n_bytes = 0;
    FILE *out = open_memstream(&text, &n_bytes);
    if (out == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the rows");
    write_rows(out, report);
    enum plec_status status = PLEC_OK;
    if (fclose(out) != 0) status = plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the rows");
    if (status == PLEC_OK) status = plec_atomic_file_store(path, text, n_bytes, err);
    free(text);
    return status;
}
