/* verify.c: `plectrum verify`: prints what host/verify.h finds. */
#include "host/verify.h"

#include "tools/plectrum/cli.h"
#include "tools/plectrum/commands.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/path_kind.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/units.h"
#include "tools/plectrum/verify_model.h"

static const struct plec_cli_command command = {
    .name = "verify",
    .summary = "check everything that can be checked without running",
    .synopsis = "verify [--hash] [--scan] [--json] PATH",
    .description =
        "PATH is a .lyrw file, a VINDEX3 container directory, a GGUF file or any file of a split "
        "set, "
        "or a TEZW file. Checked of every file: tables, "
        "alignment, overlaps, lengths against shape and format, pairs, segments, reserved bits, "
        "bytes that belong to nothing. Of a container also: the manifest against the files (layer "
        "numbers, expert counts, widths, roles of the programme), segments that must tile their "
        "bank, extents as recorded; and every layer is bound as a run would bind it.\n\n"
        "Each finding is a line: `defect` or `note`, a name that scripts can match, and where it "
        "is. Notes are legal: tags without a name here, router features that have no published "
        "executable definition. They do not change the exit status. A check that looked at nothing "
        "is a defect.\n\n"
        "With --json one object is printed: kind, files, layers, records, regions, "
        "scanned, hashed, bytes_read, defects, notes, findings [{severity, name, text}].",
    .exit_status = "0  no defect\n"
                   "1  defects were found, or nothing was there to check\n"
                   "3  PATH is unreadable, or its manifests refuse it as a whole (what could be "
                   "checked\n   was, and is told)",
    .examples = "$ plectrum verify model/\n"
                "$ plectrum verify --hash --scan --json model/ | jq .findings",
    .min_operands = 1,
    .max_operands = 1,
};

struct watch {
    struct plec_progress progress;
    const char *what;
};

static void watch_bytes(void *user, const char *what, uint64_t done, uint64_t total) {
    struct watch *watch = user;
    if (what != watch->what) {
        plec_progress_end(&watch->progress);
        watch->progress = plec_progress_start(what, total, PLEC_PROGRESS_BYTES);
        watch->what = what;
    }
    plec_progress_update(&watch->progress, done);
}

static const char *severity_name(enum plec_severity severity) {
    return severity == PLEC_DEFECT ? "defect" : "note";
}

static bool print_json(const struct plec_container_report *report) {
    const struct plec_findings *findings = &report->findings;
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    const struct {
        const char *key;
        uint64_t value;
    } counts[] = {{"files", report->n_files},
                  {"layers", report->n_layers},
                  {"records", report->counts.n_records},
                  {"regions", report->counts.n_regions},
                  {"scanned", report->counts.n_scanned},
                  {"hashed", report->n_hashed},
                  {"bytes_read", report->counts.scanned_bytes + report->hashed_bytes},
                  {"defects", findings->n_defects},
                  {"notes", findings->n_notes}};
    plec_json_member(json, "kind", json_string("verify"));
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        plec_json_member(json, counts[i].key, json_integer((json_int_t)counts[i].value));
    plec_json_list_begin(json, "findings");
    for (size_t i = 0; i < findings->n_items; i++)
        plec_json_list_item(json,
                            json_pack("{s:s, s:s, s:s}", "severity",
                                      severity_name(findings->items[i].severity), "name",
                                      findings->items[i].name, "text", findings->items[i].text));
    plec_json_list_end(json);
    return plec_json_end(json);
}

static void print_counts(const struct plec_container_report *report) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    printf("checked  %llu files, %llu layers, %s records, %s regions",
           (unsigned long long)report->n_files, (unsigned long long)report->n_layers,
           plec_count_text(a, report->counts.n_records),
           plec_count_text(b, report->counts.n_regions));
    if (report->counts.n_scanned > 0)
        printf(", %s scanned (%s)", plec_count_text(a, report->counts.n_scanned),
               plec_size_text(b, report->counts.scanned_bytes));
    if (report->n_hashed > 0)
        printf(", %llu files hashed (%s)", (unsigned long long)report->n_hashed,
               plec_size_text(a, report->hashed_bytes));
    printf("\n");
}

static void print_text(const struct plec_container_report *report) {
    const struct plec_findings *findings = &report->findings;
    for (size_t i = 0; i < findings->n_items; i++)
        printf("%-7s  %s: %s\n", severity_name(findings->items[i].severity),
               findings->items[i].name, findings->items[i].text);
    uint64_t n_left = findings->n_defects + findings->n_notes - findings->n_items;
    if (n_left > 0) printf("...      and %llu more\n", (unsigned long long)n_left);
    print_counts(report);
    printf("result   %llu defects, %llu notes\n", (unsigned long long)findings->n_defects,
           (unsigned long long)findings->n_notes);
}

static int judge(const struct plec_container_report *report) {
    if (report->refused) return PLEC_EXIT_INPUT;
    return report->findings.n_defects > 0 ? PLEC_EXIT_FOUND : PLEC_EXIT_OK;
}

static enum plec_status verify_path(struct plec_container_report *report, const char *path,
                                    const struct plec_container_verify_options *options,
                                    struct plec_error *err) {
    switch (plec_path_kind_of(path)) {
    case PLEC_PATH_GGUF: return plec_gguf_verify(report, path, options, err);
    case PLEC_PATH_TEZW: return plec_tezw_verify(report, path, options, err);
    default: return plec_container_verify(report, path, options, err);
    }
}

int plec_command_verify(int argc, char **argv) {
    struct plec_container_verify_options o = {0};
    bool as_json = false;
    const struct plec_cli_option options[] = {
        {"hash", PLEC_CLI_FLAG, &o.hash, NULL, NULL,
         "Compare every file with the SHA-256 that the index records for it "
         "(plectrum.integrity)."},
        {"scan", PLEC_CLI_FLAG, &o.scan, NULL, NULL,
         "Look for NaN and infinite scales and values. This reads the weights."},
        {"json", PLEC_CLI_FLAG, &as_json, NULL, NULL, "Print one JSON object."},
    };
    struct plec_cli cli = {
        .command = &command, .options = options, .n_options = sizeof options / sizeof options[0]};
    int leave = plec_cli_parse(&cli, argc, argv);
    if (leave != PLEC_CLI_GO_ON) return leave;

    struct watch watch = {.what = ""};
    o.progress = watch_bytes;
    o.user = &watch;
    struct plec_container_report report;
    struct plec_error err;
    enum plec_status status = verify_path(&report, cli.operands[0], &o, &err);
    plec_progress_end(&watch.progress);
    if (status != PLEC_OK) return plec_cli_error(&err);
    bool written = true;
    if (as_json)
        written = print_json(&report);
    else
        print_text(&report);
    leave = written ? judge(&report) : PLEC_EXIT_MACHINE;
    if (!written) plec_cli_say("cannot write the output");
    plec_container_report_close(&report);
    return leave;
}
