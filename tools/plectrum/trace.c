/* trace.c: `plectrum trace replay`: what caches of each policy and extent width would have done
 * with a recorded routing. */
#include <stdlib.h>
#include <string.h>

#include "host/replay.h"
#include "lyrw/mapping.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/units.h"

static const struct plec_cli_command command = {
    .name = "trace",
    .summary = "replay a recorded routing through caches of every policy",
    .synopsis = "trace replay TRACE [--slots N] [--width 8,16,32] [--bandwidth GB/s]\n"
                "    [--latency US] [--json]",
    .description =
        "Replays a routing trace through the cache that a run uses, once for each extent width and "
        "policy: lru (the longest unused leaves), lfu (the least used leaves, old uses counting "
        "less) and oracle (the one used again last leaves: what no policy can beat, for it knows "
        "the "
        "future). It prints hits, extents and bytes read, and the time the reads take on a disk of "
        "the given bandwidth and latency, an extent being read whole where that is faster.\n\n"
        "The best width and policy are those whose reads take least; the oracle does not stand for "
        "election. Where even the oracle of width 1 hits little, more memory helps and no policy "
        "does.\n\n"
        "A trace is text: a line plectrum-trace,1,LAYERS,EXPERTS,ENTRY_BYTES,IDENTITY, then a line "
        "STEP,LAYER,TOKEN,ID,ID,... for each token.",
    .exit_status = "0  done\n3  the trace is unreadable or refused",
    .examples = "$ plectrum trace replay decode.csv --slots 2000\n"
                "$ plectrum trace replay decode.csv --width 1,4,8 --json | jq .best",
    .min_operands = 2,
    .max_operands = 2,
};

enum { MAX_WIDTHS = 16, N_POLICIES = 3 };
static const char *const policy_names[N_POLICIES] = {"lru", "lfu", "oracle"};

struct replay_table {
    struct plec_trace trace;
    uint64_t n_slots; /* memory, in experts */
    uint32_t widths[MAX_WIDTHS], n_widths;
    double bandwidth, latency_us; /* GB/s */
    struct plec_replay_result results[MAX_WIDTHS][N_POLICIES];
    uint32_t best_width, best_policy; /* places in the table */
};

static bool parse_widths(struct replay_table *table, const char *text) {
    table->n_widths = 0;
    while (table->n_widths < MAX_WIDTHS) {
        size_t n = strcspn(text, ",");
        char word[8];
        uint64_t width;
        if (n == 0 || n >= sizeof word) return false;
        memcpy(word, text, n);
        word[n] = 0;
        if (!plec_count_parse(&width, word, PLEC_EXTENT_MAX) || width == 0) return false;
        table->widths[table->n_widths++] = (uint32_t)width;
        if (text[n] == 0) return true;
        text += n + 1;
    }
    return false;
}

static enum plec_status replay_all(struct replay_table *table, struct plec_error *err) {
    for (uint32_t w = 0; w < table->n_widths; w++)
        for (uint32_t p = 0; p < N_POLICIES; p++) {
            struct plec_replay_args args = {.trace = &table->trace,
                                            .width = table->widths[w],
                                            .n_experts = table->n_slots,
                                            .policy = (enum plec_residency_policy)p,
                                            .ns_per_byte = 1 / table->bandwidth,
                                            .latency_ns = table->latency_us * 1000};
            enum plec_status status = plec_replay_run(&table->results[w][p], &args, err);
            if (status != PLEC_OK) return status;
            const struct plec_replay_result *best =
                &table->results[table->best_width][table->best_policy];
            if (p != PLEC_RESIDENCY_ORACLE && table->results[w][p].read_ns < best->read_ns) {
                table->best_width = w;
                table->best_policy = p;
            }
        }
    return PLEC_OK;
}

/* --- text ---------------------------------------------------------------------------------- */

static double share(uint64_t part, uint64_t whole) {
    return whole > 0 ? (double)part / (double)whole : 0;
}

static void print_row(const struct replay_table *table, uint32_t w, uint32_t p) {
    const struct plec_replay_result *result = &table->results[w][p];
    char size[PLEC_UNIT_TEXT_MAX];
    uint64_t n_steps = table->trace.n_steps > 0 ? table->trace.n_steps : 1;
    printf("  %5u %7u  %-7s %6.1f%% %10.1f %10.1f  %-12s %9.3f\n", table->widths[w],
           result->n_slots, policy_names[p], 100 * share(result->hits, result->uses),
           (double)result->extents / (double)n_steps, (double)result->reads / (double)n_steps,
           plec_size_text(size, result->bytes / n_steps), result->read_ns / 1e6 / (double)n_steps);
}

static void print_advice(const struct replay_table *table) {
    const struct plec_replay_result *best = &table->results[table->best_width][table->best_policy];
    const struct plec_replay_result *oracle =
        &table->results[table->best_width][PLEC_RESIDENCY_ORACLE];
    printf("\nbest: width %u with %s", table->widths[table->best_width],
           policy_names[table->best_policy]);
    if (oracle->read_ns < best->read_ns)
        printf("; the oracle of this width takes %.0f%% of its time",
               100 * oracle->read_ns / best->read_ns);
    printf("\n");
}

static void print_text(const struct replay_table *table, const char *path) {
    const struct plec_trace *trace = &table->trace;
    char size[PLEC_UNIT_TEXT_MAX], memory[PLEC_UNIT_TEXT_MAX], uses[PLEC_UNIT_TEXT_MAX];
    plec_cli_put(stdout, path);
    printf(": %u layers of %u experts of %s\n", trace->info.n_layers, trace->info.n_experts,
           plec_size_text(size, trace->info.entry_bytes));
    printf("%llu steps, %llu dispatches, %s expert uses; memory for %llu experts, %s\n\n",
           (unsigned long long)trace->n_steps, (unsigned long long)trace->n_dispatches,
           plec_count_text(uses, trace->n_ids), (unsigned long long)table->n_slots,
           plec_size_text(memory, table->n_slots * trace->info.entry_bytes));
    printf("  %5s %7s  %-7s %7s %10s %10s  %-12s %9s\n", "width", "slots", "policy", "hits",
           "extents", "reads", "read", "ms");
    for (uint32_t w = 0; w < table->n_widths; w++)
        for (uint32_t p = 0; p < N_POLICIES; p++)
            print_row(table, w, p);
    printf("  (extents, reads, bytes read and the reads' time are per step)\n");
    print_advice(table);
}

/* --- JSON ---------------------------------------------------------------------------------- */

static json_t *integer(uint64_t value) {
    return json_integer((json_int_t)value);
}

static json_t *row_json(const struct replay_table *table, uint32_t w, uint32_t p) {
    const struct plec_replay_result *result = &table->results[w][p];
    return json_pack("{s:I, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "width",
                     (json_int_t)table->widths[w], "slots", (json_int_t)result->n_slots, "policy",
                     policy_names[p], "uses", integer(result->uses), "hits", integer(result->hits),
                     "extents", integer(result->extents), "reads", integer(result->reads), "bytes",
                     integer(result->bytes), "evictions", integer(result->evictions), "thrash",
                     integer(result->thrash), "read_ms", plec_json_real(result->read_ns / 1e6));
}

static int print_json(const struct replay_table *table) {
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    const struct plec_trace *trace = &table->trace;
    plec_json_member(json, "kind", json_string("trace_replay"));
    plec_json_member(json, "layers", integer(trace->info.n_layers));
    plec_json_member(json, "experts", integer(trace->info.n_experts));
    plec_json_member(json, "entry_bytes", integer(trace->info.entry_bytes));
    plec_json_member(json, "steps", integer(trace->n_steps));
    plec_json_member(json, "dispatches", integer(trace->n_dispatches));
    plec_json_member(json, "memory_experts", integer(table->n_slots));
    plec_json_member(json, "bandwidth_gb_s", plec_json_real(table->bandwidth));
    plec_json_member(json, "latency_us", plec_json_real(table->latency_us));
    plec_json_list_begin(json, "rows");
    for (uint32_t w = 0; w < table->n_widths; w++)
        for (uint32_t p = 0; p < N_POLICIES; p++)
            plec_json_list_item(json, row_json(table, w, p));
    plec_json_list_end(json);
    plec_json_member(json, "best", row_json(table, table->best_width, table->best_policy));
    if (plec_json_end(json)) return PLEC_EXIT_OK;
    plec_cli_say("cannot write the output");
    return PLEC_EXIT_MACHINE;
}

/* --- the command --------------------------------------------------------------------------- */

static enum plec_status read_trace(struct plec_trace *trace, const char *path,
                                   struct plec_error *err) {
    struct plec_mapping file;
    enum plec_status status = plec_mapping_open(&file, path, err);
    if (status != PLEC_OK) return status;
    status = plec_trace_parse(trace, (const char *)file.data, file.size, err);
    if (status != PLEC_OK) plec_error_context(err, "%s", path);
    plec_mapping_close(&file);
    return status;
}

static int replay(struct replay_table *table, const char *path, bool as_json, bool slots_given) {
    struct plec_error err;
    enum plec_status status = read_trace(&table->trace, path, &err);
    uint64_t all = (uint64_t)table->trace.info.n_layers * table->trace.info.n_experts;
    if (!slots_given) table->n_slots = all / 4;
    if (status == PLEC_OK && table->n_slots > all) {
        plec_cli_say("--slots %llu: the trace has %llu experts, memory for all of them",
                     (unsigned long long)table->n_slots, (unsigned long long)all);
        table->n_slots = all;
    }
    if (status == PLEC_OK) status = replay_all(table, &err);
    int leave = status == PLEC_OK ? PLEC_EXIT_OK : plec_cli_error(&err);
    if (status == PLEC_OK && as_json) leave = print_json(table);
    if (status == PLEC_OK && !as_json) print_text(table, path);
    plec_trace_close(&table->trace);
    return leave;
}

int plec_command_trace(int argc, char **argv) {
    bool as_json = false, slots_given = false;
    const char *widths = "8,16,32";
    struct replay_table table = {.bandwidth = 5, .latency_us = 100};
    const struct plec_cli_option options[] = {
        {"slots", PLEC_CLI_U64, &table.n_slots, &slots_given, "N",
         "Memory for N experts: an extent of width w takes w of them; 0: nothing is kept. A "
         "quarter "
         "of all experts if not given."},
        {"width", PLEC_CLI_TEXT, &widths, NULL, "LIST",
         "Extent widths to try, 1 to 64, divided by commas."},
        {"bandwidth", PLEC_CLI_SPEED, &table.bandwidth, NULL, "GB/s", "Of the disk. 5 by default."},
        {"latency", PLEC_CLI_MICROSECONDS, &table.latency_us, NULL, "US",
         "Of a read, in microseconds. 100 by default."},
        {"json", PLEC_CLI_FLAG, &as_json, NULL, NULL,
         "Print one JSON object: a row for each width and policy, sums over the trace, and the "
         "best row."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (strcmp(cli.operands[0], "replay") != 0)
        return plec_cli_usage(&command, "'%s' is not something to do with a trace: replay is",
                              cli.operands[0]);
    if (!parse_widths(&table, widths))
        return plec_cli_usage(&command, "--width %s: up to %d widths from 1 to %d", widths,
                              MAX_WIDTHS, PLEC_EXTENT_MAX);
    return replay(&table, cli.operands[1], as_json, slots_given);
}
