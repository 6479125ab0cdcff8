/* convert.c: `plectrum convert`: any container into a bank directory. */
#include "host/convert.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/units.h"

static const struct plec_cli_command command = {
    .name = "convert",
    .summary = "make a bank container of a GGUF, TEZW or other container",
    .synopsis = "convert [--layers A-B] [--extent N] [--segment-cap BYTES] [--order entry|role]\n"
                "    [--as ARCH] [--set NAME=VALUE,...] [--profile NAME] [--threads N]\n"
                "    [--dry-run] [--json] SRC DST",
    .description =
        "SRC is a GGUF file or any shard of a split set, a TEZW file, a .lyrw file or a VINDEX3 "
        "container directory. DST is a folder that is empty or not there yet; it becomes a VINDEX3 "
        "container: the experts in extents, the small tensors in control files, a SHA-256 of every "
        "file in the index. Its layers run to the same results as SRC's.\n\n"
        "No weight changes its value. Formats stay as they are; GGUF mxfp4 and nvfp4 move into "
        "LYRW's own layout, except a matrix whose scales the two would read differently. Of a "
        "container directory the chosen profile's variants are converted, the others are not.\n\n"
        "A conversion that was interrupted goes on where it was when the same command is given "
        "again; with other options or a changed SRC it clears DST and begins anew. DST opens as a "
        "container only once all of it is there.\n\n"
        "With --dry-run nothing is written: the files are listed with their sizes.\n\n"
        "With --json one object is printed: kind, dry_run, layers, files, kept, bytes, bytes_kept, "
        "repacked, left, seconds, items [{file, layer, first_entry, entries, extent, bytes}] "
        "(items is empty without --dry-run).",
    .exit_status = "0  DST is complete\n"
                   "3  SRC is unreadable or refused, or DST holds something else\n"
                   "4  reading or writing failed, or it was interrupted: give the command again to "
                   "go on",
    .examples = "$ plectrum convert mixtral.gguf mixtral/\n"
                "$ plectrum convert --dry-run --segment-cap 20GiB kimi-00001-of-00046.gguf kimi/\n"
                "$ plectrum convert --layers 3-10 --extent 32 --order role model.gguf part/",
    .min_operands = 2,
    .max_operands = 2,
};

/* Set by a signal: the conversion stops at the next piece and keeps what is whole. */
static volatile sig_atomic_t interrupted;

static void interrupt(int signal_number) {
    (void)signal_number;
    interrupted = 1;
}

static void catch_signals(void) {
    struct sigaction action = {.sa_handler = interrupt, .sa_flags = (int)SA_RESETHAND};
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    signal(SIGXFSZ, SIG_IGN); /* a limit on file sizes is an error of a write */
}

static bool watch(void *user, uint64_t done, uint64_t total) {
    (void)total;
    plec_progress_update(user, done);
    return !interrupted;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* "A-B" or "A". */
static bool parse_layers(struct plec_convert_options *out, const char *text) {
    char first[16];
    uint64_t a, b;
    const char *dash = strchr(text, '-');
    size_t n = dash != NULL ? (size_t)(dash - text) : strlen(text);
    if (n >= sizeof first) return false;
    memcpy(first, text, n);
    first[n] = '\0';
    if (!plec_count_parse(&a, first, UINT32_MAX)) return false;
    b = a;
    if (dash != NULL && !plec_count_parse(&b, dash + 1, UINT32_MAX)) return false;
    out->some_layers = true;
    out->first_layer = (uint32_t)a;
    out->last_layer = (uint32_t)b;
    return a <= b;
}

static bool parse_order(struct plec_convert_options *out, const char *text) {
    out->order = strcmp(text, "role") == 0 ? PLEC_ORDER_ROLE : PLEC_ORDER_ENTRY;
    return out->order == PLEC_ORDER_ROLE || strcmp(text, "entry") == 0;
}

/* -- telling ---------------------------------------------------------------------------------- */

struct outcome {
    const struct plec_convert *convert;
    struct plec_convert_report report;
    bool dry_run;
    double seconds;
};

static json_t *item_value(const struct plec_convert_file *file) {
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}", "file", file->name, "layer",
                     (json_int_t)file->layer, "first_entry", (json_int_t)file->first_entry,
                     "entries", (json_int_t)file->n_entries, "extent", (json_int_t)file->extent,
                     "bytes", (json_int_t)file->n_bytes);
}

static int print_json(const struct outcome *outcome) {
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    const struct plec_convert_report *report = &outcome->report;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"layers", report->n_layers},
                  {"files", report->n_files},
                  {"kept", report->n_kept},
                  {"bytes", report->bytes},
                  {"bytes_kept", report->bytes_kept},
                  {"repacked", report->n_repacked},
                  {"left", report->n_left}};
    plec_json_member(json, "kind", json_string("convert"));
    plec_json_member(json, "dry_run", json_boolean(outcome->dry_run));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        plec_json_member(json, counts[i].key, json_integer((json_int_t)counts[i].value));
    plec_json_member(json, "seconds", json_real(outcome->seconds));
    plec_json_list_begin(json, "items");
    size_t n = outcome->dry_run ? plec_convert_n_files(outcome->convert) : 0;
    for (size_t i = 0; i < n; i++) {
        struct plec_convert_file file = plec_convert_file_at(outcome->convert, i);
        plec_json_list_item(json, item_value(&file));
    }
    plec_json_list_end(json);
    if (plec_json_end(json)) return PLEC_EXIT_OK;
    plec_cli_say("cannot write the output");
    return PLEC_EXIT_MACHINE;
}

static void print_file(const struct plec_convert_file *file) {
    char size[PLEC_UNIT_TEXT_MAX];
    printf("%-34s %12s  ", file->name, plec_size_text(size, file->n_bytes));
    if (file->extent == 0)
        printf("control");
    else
        printf("entries %u-%u, extents of %u", file->first_entry,
               file->first_entry + file->n_entries - 1, file->extent);
    printf("%s\n", file->repacks ? ", repacked where scales allow it" : "");
}

static void print_plan(const struct outcome *outcome) {
    char size[PLEC_UNIT_TEXT_MAX];
    size_t n = plec_convert_n_files(outcome->convert);
    for (size_t i = 0; i < n; i++) {
        struct plec_convert_file file = plec_convert_file_at(outcome->convert, i);
        print_file(&file);
    }
    printf("would write %" PRIu64 " layers, %zu file%s, %s\n", outcome->report.n_layers, n,
           n == 1 ? "" : "s", plec_size_text(size, outcome->report.bytes));
}

static void print_text(const struct outcome *outcome) {
    const struct plec_convert_report *report = &outcome->report;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    uint64_t made = report->bytes - report->bytes_kept;
    printf("wrote %" PRIu64 " layers, %" PRIu64 " files, %s in %.1f s", report->n_layers,
           report->n_files, plec_size_text(a, report->bytes), outcome->seconds);
    if (outcome->seconds > 0)
        printf(", %s/s", plec_size_text(b, (uint64_t)((double)made / outcome->seconds)));
    printf("\n");
    if (report->n_kept > 0)
        printf("kept %" PRIu64 " files (%s) of the interrupted conversion\n", report->n_kept,
               plec_size_text(a, report->bytes_kept));
    if (report->n_repacked + report->n_left > 0)
        printf("repacked %s matrices, %s keep their GGUF layout\n",
               plec_count_text(a, report->n_repacked), plec_count_text(b, report->n_left));
}

/* -- the command ------------------------------------------------------------------------------ */

static int convert(const char *source, const char *destination,
                   struct plec_convert_options *options, bool dry_run, bool as_json) {
    struct plec_progress progress = {0};
    struct plec_convert *opened;
    struct plec_error err;
    options->progress = watch;
    options->user = &progress;
    enum plec_status status = plec_convert_open(&opened, source, options, &err);
    if (status != PLEC_OK) return plec_cli_error(&err);
    struct outcome outcome = {.convert = opened,
                              .report = {.n_layers = plec_convert_n_layers(opened),
                                         .n_files = plec_convert_n_files(opened),
                                         .bytes = plec_convert_bytes(opened)},
                              .dry_run = dry_run};
    double started = now();
    if (!dry_run) {
        progress = plec_progress_start("converting", outcome.report.bytes, PLEC_PROGRESS_BYTES);
        status = plec_convert_run(&outcome.report, opened, destination, &err);
        plec_progress_end(&progress);
    }
    outcome.seconds = now() - started;
    int leave = PLEC_EXIT_OK;
    if (status != PLEC_OK)
        leave = plec_cli_error(&err);
    else if (as_json)
        leave = print_json(&outcome);
    else if (dry_run)
        print_plan(&outcome);
    else
        print_text(&outcome);
    plec_convert_close(opened);
    return leave;
}

int plec_command_convert(int argc, char **argv) {
    struct plec_convert_options o = {.source = {.log = plec_cli_log()}};
    const char *layers = NULL, *order = NULL;
    bool dry_run = false, as_json = false;
    bool extent_given = false, cap_given = false, threads_given = false;
    const struct plec_cli_option options[] = {
        {"layers", PLEC_CLI_TEXT, &layers, NULL, "A-B",
         "Only these layers, both included; or one. The others are left out of DST."},
        {"extent", PLEC_CLI_U32, &o.extent, &extent_given, "N",
         "Experts an extent has: what is read, moved and planned at once. 16 unless given; 8, 16 "
         "and 32 are usual."},
        {"segment-cap", PLEC_CLI_SIZE, &o.segment_cap, &cap_given, "BYTES",
         "The most a file may have; a bank is divided into the fewest, equal segments."},
        {"order", PLEC_CLI_TEXT, &order, NULL, "ORDER",
         "Inside an extent: entry (an expert's regions side by side, the default) or role (all "
         "experts' gates, then all ups, ...)."},
        {"as", PLEC_CLI_TEXT, &o.source.architecture, NULL, "ARCH",
         "Take a GGUF for this architecture."},
        {"set", PLEC_CLI_TEXT, &o.source.set, NULL, "NAME=VALUE,...",
         "Values that a GGUF does not say: gating=sigmoid,norm=1,..."},
        {"profile", PLEC_CLI_TEXT, &o.source.profile, NULL, "NAME",
         "The profile of a container directory."},
        {"threads", PLEC_CLI_U32, &o.n_threads, &threads_given, "N",
         "Threads that read and write; by the processors unless given."},
        {"dry-run", PLEC_CLI_FLAG, &dry_run, NULL, NULL, "Only tell what would be written."},
        {"json", PLEC_CLI_FLAG, &as_json, NULL, NULL, "Print one JSON object."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;
    if (layers != NULL && !parse_layers(&o, layers))
        return plec_cli_usage(&command, "--layers wants A-B with A not above B, found '%s'",
                              layers);
    if (order != NULL && !parse_order(&o, order))
        return plec_cli_usage(&command, "--order wants entry or role, found '%s'", order);
    if (extent_given && o.extent == 0) return plec_cli_usage(&command, "--extent wants at least 1");
    if (cap_given && o.segment_cap == 0)
        return plec_cli_usage(&command, "--segment-cap 0 holds no file");
    if (threads_given && o.n_threads == 0)
        return plec_cli_usage(&command, "--threads wants at least 1");
    catch_signals();
    return convert(cli.operands[0], cli.operands[1], &o, dry_run, as_json);
}
