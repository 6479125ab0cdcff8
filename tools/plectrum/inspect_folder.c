/* inspect_folder.c: one line for every model in a folder; what is wrong with one does not keep the
 * others from being shown. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/gguf_split.h"
#include "lyrw/tezw.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/inspect.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/path_kind.h"
#include "tools/plectrum/units.h"

/* What is told of one file. */
struct summary {
    enum plec_status status;
    struct plec_error err;
    const char *kind; /* "gguf", "tezw" */
    uint64_t n_bytes, n_tensors;
    uint32_t n_files;
    uint64_t n_defects, n_notes;
    char architecture[PLEC_VIEW_TEXT_MAX];
};

static void summarise_gguf(struct summary *out, const char *path) {
    struct plec_gguf_set set;
    out->kind = "gguf";
    out->status = plec_gguf_set_open(&set, path, PLEC_GGUF_LOOK, &out->err);
    if (out->status != PLEC_OK) return;
    for (uint32_t i = 0; i < set.n_shards; i++)
        out->n_bytes += set.shards[i].mapping.size;
    out->n_files = set.n_shards;
    out->n_tensors = set.n_tensors;
    out->n_defects = set.findings.n_defects;
    out->n_notes = set.findings.n_notes;
    plec_view_text(plec_gguf_architecture(plec_gguf_set_main(&set)), out->architecture);
    if (out->n_defects > 0) (void)!plec_findings_to_error(&set.findings, PLEC_MALFORMED, &out->err);
    plec_gguf_set_close(&set);
}

static void summarise_tezw(struct summary *out, const char *path) {
    struct plec_mapping mapping;
    struct plec_tezw file;
    out->kind = "tezw";
    out->status = plec_mapping_open(&mapping, path, &out->err);
    if (out->status != PLEC_OK) return;
    out->status = plec_tezw_parse(&file, mapping.data, mapping.size, &out->err);
    if (out->status != PLEC_OK) plec_error_context(&out->err, "%s", path);
    out->n_files = 1;
    out->n_bytes = mapping.size;
    out->n_tensors = out->status == PLEC_OK ? 2 + UINT64_C(9) * file.n_layer : 0;
    snprintf(out->architecture, sizeof out->architecture, "tezzllm");
    plec_mapping_close(&mapping);
}

/* A shard but the first, when the first stands beside it: shown with the set. */
static bool shown_with_the_first(const char *path) {
    struct plec_gguf_shard_name name;
    if (!plec_gguf_shard_name_parse(&name, path) || name.number <= 1) return false;
    char *first = strdup(path);
    if (first == NULL) return false;
    memcpy(first + name.prefix_size, "-00001", 6);
    struct plec_mapping mapping;
    bool there = plec_mapping_open(&mapping, first, NULL) == PLEC_OK;
    if (there) plec_mapping_close(&mapping);
    free(first);
    return there;
}

static int status_of(const struct summary *summary) {
    if (summary->status != PLEC_OK) return plec_cli_exit_status(summary->status);
    return summary->n_defects > 0 ? PLEC_EXIT_FOUND : PLEC_EXIT_OK;
}

static void print_summary(const char *name, const struct summary *summary) {
    char size[PLEC_UNIT_TEXT_MAX];
    plec_cli_put(stdout, name);
    if (summary->status != PLEC_OK) {
        printf(": refused\n");
        plec_cli_say("%s", summary->err.message);
        return;
    }
    printf(": %s, %s, %s, %llu tensors", summary->kind, summary->architecture,
           plec_size_text(size, summary->n_bytes), (unsigned long long)summary->n_tensors);
    if (summary->n_files > 1) printf(", %u files", summary->n_files);
    if (summary->n_defects > 0) printf(", %llu defects", (unsigned long long)summary->n_defects);
    if (summary->n_notes > 0) printf(", %llu remarks", (unsigned long long)summary->n_notes);
    printf("\n");
    if (summary->n_defects > 0) plec_cli_say("%s: %s", name, summary->err.message);
}

static json_t *summary_json(const char *name, const struct summary *summary) {
    bool told = summary->status != PLEC_OK || summary->n_defects > 0;
    return json_pack("{s:o, s:s, s:b, s:o, s:I, s:o, s:o, s:I, s:I, s:o}", "file",
                     plec_json_of_view(plec_view_of(name)), "kind", summary->kind, "readable",
                     summary->status == PLEC_OK, "bytes", plec_json_of_u64(summary->n_bytes),
                     "files", (json_int_t)summary->n_files, "tensors",
                     plec_json_of_u64(summary->n_tensors), "architecture",
                     plec_json_of_view(plec_view_of(summary->architecture)), "defects",
                     (json_int_t)summary->n_defects, "notes", (json_int_t)summary->n_notes, "error",
                     told ? plec_json_of_view(plec_view_of(summary->err.message)) : json_null());
}

/* Shows one entry of the folder; returns its exit status, or that of before when it is the worse.
 */
static int show_entry(const char *folder, const char *name, struct plec_json_stream *json,
                      int before) {
    size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path == NULL) return PLEC_EXIT_MACHINE;
    snprintf(path, room, "%s/%s", folder, name);
    enum plec_path_kind kind = plec_path_kind_of(path);
    struct summary summary = {.kind = "gguf"};
    int leave = before;
    if ((kind == PLEC_PATH_GGUF && !shown_with_the_first(path)) || kind == PLEC_PATH_TEZW) {
        if (kind == PLEC_PATH_GGUF)
            summarise_gguf(&summary, path);
        else
            summarise_tezw(&summary, path);
        if (json != NULL)
            plec_json_list_item(json, summary_json(name, &summary));
        else
            print_summary(name, &summary);
        if (status_of(&summary) > before) leave = status_of(&summary);
    }
    free(path);
    return leave;
}

int plec_inspect_folder(const char *path, const struct plec_inspect_options *options) {
    struct dirent **entries;
    int n = scandir(path, &entries, NULL, alphasort);
    if (n < 0) {
        plec_cli_say("%s: %s", path, strerror(errno));
        return PLEC_EXIT_INPUT;
    }
    struct plec_json_stream stream = {.out = stdout}, *json = options->json ? &stream : NULL;
    int leave = PLEC_EXIT_OK;
    if (json != NULL) {
        plec_json_member(json, "kind", json_string("folder"));
        plec_json_list_begin(json, "files");
    }
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') leave = show_entry(path, entries[i]->d_name, json, leave);
        free(entries[i]);
    }
    free(entries);
    if (json != NULL) {
        plec_json_list_end(json);
        if (!plec_json_end(json)) leave = PLEC_EXIT_MACHINE;
    }
    return leave;
}
