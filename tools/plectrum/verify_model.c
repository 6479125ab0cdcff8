#include "tools/plectrum/verify_model.h"

#include <math.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/tezw.h"
#include "tools/plectrum/gguf_scan.h"
#include "tools/plectrum/gguf_sheet.h"

static void note_no_hashes(struct plec_container_report *out,
                           const struct plec_container_verify_options *options) {
    if (options->hash)
        plec_findings_add(
            &out->findings, PLEC_NOTE, "NotHashed",
            "the file records no hash of itself; `plectrum gguf hash` makes and checks "
            "a manifest");
}

/* -- GGUF ------------------------------------------------------------------------------------ */

static void take_findings(struct plec_findings *to, const struct plec_findings *from) {
    for (size_t i = 0; i < from->n_items; i++)
        plec_findings_add(to, from->items[i].severity, from->items[i].name, "%s",
                          from->items[i].text);
}

/* Blocks numbered in the names of tensors. */
static uint64_t count_blocks(const struct plec_gguf_set *set) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < set->n_tensors; i++) {
        uint32_t block;
        struct plec_view rest;
        if (plec_sheet_block(&block, &rest, set->tensors[i]->name) && (uint64_t)block + 1 > n)
            n = (uint64_t)block + 1;
    }
    return n;
}

static void count_set(struct plec_container_report *out, const struct plec_gguf_set *set) {
    for (uint32_t i = 0; i < set->n_shards; i++) {
        out->n_files += set->shards[i].present;
        out->counts.n_records +=
            set->shards[i].file.n_keys + (uint64_t)set->shards[i].file.n_tensors;
    }
    out->n_layers = count_blocks(set);
    for (uint32_t i = 0; i < set->n_tensors; i++)
        out->counts.n_regions += !(set->tensors[i]->flags & PLEC_GGUF_OUTSIDE_FILE);
}

static enum plec_status scan_set(struct plec_container_report *out, const struct plec_gguf_set *set,
                                 struct plec_error *err) {
    uint64_t n_bytes = 0;
    for (uint32_t i = 0; i < set->n_tensors; i++)
        if (set->tensors[i]->flags == 0) n_bytes += set->tensors[i]->n_bytes;
    struct plec_progress progress = plec_progress_start("scanning", n_bytes, PLEC_PROGRESS_BYTES);
    struct plec_scan_counts counts = {0, 0};
    enum plec_status status = plec_gguf_scan(&out->findings, &counts, set, &progress, err);
    plec_progress_end(&progress);
    out->counts.n_scanned = counts.n_tensors;
    out->counts.scanned_bytes = counts.n_bytes;
    return status;
}

enum plec_status plec_gguf_verify(struct plec_container_report *out, const char *path,
                                  const struct plec_container_verify_options *options,
                                  struct plec_error *err) {
    struct plec_gguf_set set;
    *out = (struct plec_container_report){0};
    enum plec_status status = plec_gguf_set_open(&set, path, PLEC_GGUF_LOOK, err);
    if (status != PLEC_OK) return status;
    take_findings(&out->findings, &set.findings);
    count_set(out, &set);
    note_no_hashes(out, options);
    if (options->scan) status = scan_set(out, &set, err);
    bool scanned_nothing = options->scan && out->counts.n_scanned == 0;
    if (out->counts.n_regions == 0 || scanned_nothing)
        plec_findings_add(&out->findings, PLEC_DEFECT, "NothingChecked",
                          "%u tensors are listed, none of them could be looked at", set.n_tensors);
    plec_gguf_set_close(&set);
    if (status != PLEC_OK) plec_container_report_close(out);
    return status;
}

/* -- TEZW ------------------------------------------------------------------------------------ */

static void scan_matrix(struct plec_container_report *out, const struct plec_tezw *file,
                        uint32_t layer, const struct plec_tezw_tensor *tensor) {
    uint64_t n_bad = 0, first = 0;
    struct plec_cursor cursor = plec_cursor_at(file->data, file->size, tensor->at);
    for (uint64_t i = 0; i < tensor->n_bytes / 8; i++)
        if (!isfinite(plec_cursor_f64(&cursor)) && n_bad++ == 0) first = cursor.at - 8;
    out->counts.n_scanned++;
    out->counts.scanned_bytes += tensor->n_bytes;
    if (n_bad > 0)
        plec_findings_add(&out->findings, PLEC_DEFECT, "NonFiniteValue",
                          "layer %u, %s: %llu NaN or infinite weights; the first at byte %llu",
                          layer, tensor->name, (unsigned long long)n_bad,
                          (unsigned long long)first);
}

enum plec_status plec_tezw_verify(struct plec_container_report *out, const char *path,
                                  const struct plec_container_verify_options *options,
                                  struct plec_error *err) {
    struct plec_mapping mapping;
    struct plec_tezw file;
    *out = (struct plec_container_report){0};
    enum plec_status status = plec_mapping_open(&mapping, path, err);
    if (status != PLEC_OK) return status;
    status = plec_tezw_parse(&file, mapping.data, mapping.size, err);
    if (status != PLEC_OK) plec_error_context(err, "%s", path);
    if (status == PLEC_OK) {
        out->n_files = 1;
        out->n_layers = file.n_layer;
        out->counts.n_records = 1;
        out->counts.n_regions = 2 + UINT64_C(9) * file.n_layer;
        note_no_hashes(out, options);
        for (uint32_t layer = 0; layer < file.n_layer && options->scan; layer++)
            for (unsigned kind = layer == 0 ? 0 : PLEC_TEZW_RMS1; kind < PLEC_TEZW_N_KINDS;
                 kind++) {
                struct plec_tezw_tensor tensor = plec_tezw_tensor_at(&file, layer, kind);
                scan_matrix(out, &file, layer, &tensor);
            }
    }
    plec_mapping_close(&mapping);
    return status;
}
