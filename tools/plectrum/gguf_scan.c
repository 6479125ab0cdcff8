#include "tools/plectrum/gguf_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/codec/bits.h"
#include "lyrw/cursor.h"
#include "tools/plectrum/gguf_slab.h"
#include "tools/plectrum/gguf_values.h"
#include "tools/plectrum/parallel.h"
#include "tools/plectrum/region_hash.h"

static const double extreme = 1024;

/* What is counted. */
enum count { BAD_VALUES, BAD_SCALES, ZERO_VALUES, NAN_BYTES, EXTREME_SCALES, N_COUNTS };

/* One expert of a tensor, or a whole tensor that has only one. */
struct item {
    const struct plec_gguf_tensor *tensor;
    uint64_t expert, n_experts;
    const uint8_t *bytes; /* [n_bytes] */
    uint64_t n_bytes;
    uint64_t counts[N_COUNTS];
    uint64_t first[N_COUNTS]; /* offset in bytes of the first one */
    bool scanned, all_zero;
    uint64_t hash; /* of the bytes */
};

struct scan {
    const struct plec_gguf_set *set;
    struct item *items; /* [n_items], experts of one tensor side by side */
    size_t n_items;
};

/* -- one item -------------------------------------------------------------------------------- */

static void count(struct item *item, enum count what, uint64_t at) {
    if (item->counts[what]++ == 0) item->first[what] = at;
}

static void judge_scale(struct item *item, double scale, uint64_t at) {
    if (!isfinite(scale))
        count(item, BAD_SCALES, at);
    else if (fabs(scale) >= extreme)
        count(item, EXTREME_SCALES, at);
}

static void judge_field(struct item *item, const struct plec_block_field *field, uint64_t block) {
    for (unsigned i = 0; i < field->count; i++) {
        unsigned each = plec_field_bytes(field) / field->count;
        uint64_t at = block + field->at + (uint64_t)i * each;
        const uint8_t *p = item->bytes + at;
        if (field->kind == PLEC_FIELD_F16)
            judge_scale(item, (double)plec_f16_f32(plec_load_u16(p)), at);
        else if (field->kind == PLEC_FIELD_F32)
            judge_scale(item, (double)plec_bits_f32(plec_load_u32(p)), at);
        else if ((field->kind == PLEC_FIELD_E8M0 && *p == 255) ||
                 (field->kind == PLEC_FIELD_UE4M3 && (*p & 0x7F) == 0x7F))
            count(item, NAN_BYTES, at);
    }
}

static bool is_scale(enum plec_field_kind kind) {
    return kind == PLEC_FIELD_F16 || kind == PLEC_FIELD_F32 || kind == PLEC_FIELD_E8M0 ||
           kind == PLEC_FIELD_UE4M3;
}

static void scan_scales(struct item *item, const struct plec_gguf_type *type) {
    const struct plec_block_field *fields;
    size_t n_fields = plec_block_fields(&fields, type->id);
    for (size_t k = 0; k < n_fields; k++) {
        if (!is_scale(fields[k].kind)) continue;
        for (uint64_t block = 0; block < item->n_bytes; block += type->block_bytes)
            judge_field(item, &fields[k], block);
    }
}

static bool is_float(uint32_t type) {
    return type == PLEC_GGUF_TYPE_F32 || type == PLEC_GGUF_TYPE_F16 ||
           type == PLEC_GGUF_TYPE_BF16 || type == PLEC_GGUF_TYPE_F64;
}

/* Values of floats one by one; of blocks only as far as the first that is not 0. */
static void scan_values(struct item *item, const struct plec_gguf_type *type) {
    double values[PLEC_BLOCK_ELEMS_MAX];
    bool floats = is_float(type->id);
    item->all_zero = true;
    for (uint64_t at = 0; at < item->n_bytes; at += type->block_bytes) {
        plec_gguf_decode(values, type->id, item->bytes + at);
        for (unsigned i = 0; i < type->block_elems; i++) {
            if (values[i] != 0) item->all_zero = false;
            if (floats && !isfinite(values[i])) count(item, BAD_VALUES, at);
            if (floats && values[i] == 0) count(item, ZERO_VALUES, at);
        }
        if (!floats && !item->all_zero) return;
    }
}

static uint64_t scan_item(void *user, size_t i) {
    struct item *item = &((struct scan *)user)->items[i];
    const struct plec_gguf_type *type = plec_gguf_type_find(item->tensor->type);
    if (item->bytes == NULL) return 0;
    if (plec_gguf_can_decode(type->id)) scan_values(item, type);
    scan_scales(item, type);
    if (item->n_experts > 1) item->hash = plec_fnv1a64(PLEC_FNV_START, item->bytes, item->n_bytes);
    item->scanned = true;
    return item->n_bytes;
}

/* -- the list -------------------------------------------------------------------------------- */

static void add_tensor(struct scan *scan, const struct plec_gguf_tensor *tensor) {
    const struct plec_gguf *file = plec_gguf_set_file(scan->set, tensor);
    const uint8_t *bytes;
    if (plec_gguf_use_tensor(&bytes, file, tensor, NULL) != PLEC_OK) {
        scan->items[scan->n_items++] = (struct item){.tensor = tensor, .n_experts = 1};
        return;
    }
    uint64_t n = plec_tensor_experts_apart(tensor), each = tensor->n_bytes / n;
    for (uint64_t e = 0; e < n; e++)
        scan->items[scan->n_items++] = (struct item){.tensor = tensor,
                                                     .expert = e,
                                                     .n_experts = n,
                                                     .bytes = bytes + e * each,
                                                     .n_bytes = each};
}

/* Experts are at most the bytes of a tensor that lies inside the file, so the list is bounded by
 * the files' sizes. */
static bool list_items(struct scan *scan) {
    size_t n = 0;
    for (uint32_t i = 0; i < scan->set->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = scan->set->tensors[i];
        const uint8_t *bytes;
        const struct plec_gguf *file = plec_gguf_set_file(scan->set, tensor);
        bool usable = plec_gguf_use_tensor(&bytes, file, tensor, NULL) == PLEC_OK;
        n += usable ? (size_t)plec_tensor_experts_apart(tensor) : 1;
    }
    scan->items = malloc((n + 1) * sizeof *scan->items);
    if (scan->items == NULL) return false;
    for (uint32_t i = 0; i < scan->set->n_tensors; i++)
        add_tensor(scan, scan->set->tensors[i]);
    return true;
}

/* -- findings -------------------------------------------------------------------------------- */

enum { WHERE_MAX = 192 };

/* `tensor "blk.3.ffn_up_exps.weight", expert 97` */
static const char *where(char *buffer, const struct item *item) {
    char name[PLEC_VIEW_TEXT_MAX];
    int n = snprintf(buffer, WHERE_MAX, "tensor \"%s\"", plec_view_text(item->tensor->name, name));
    if (item->n_experts > 1 && n > 0 && n < WHERE_MAX)
        snprintf(buffer + n, WHERE_MAX - (size_t)n, ", expert %llu",
                 (unsigned long long)item->expert);
    return buffer;
}

static void tell(struct plec_findings *findings, const struct item *item, enum count what,
                 enum plec_severity severity, const char *name, const char *text) {
    char place[WHERE_MAX];
    if (item->counts[what] == 0) return;
    uint64_t n_blocks = item->n_bytes / plec_gguf_type_find(item->tensor->type)->block_bytes;
    uint64_t at = item->tensor->data_at + item->expert * item->n_bytes + item->first[what];
    plec_findings_add(findings, severity, name,
                      "%s: %llu %s in %llu blocks of %s; the first at "
                      "byte %llu",
                      where(place, item), (unsigned long long)item->counts[what], text,
                      (unsigned long long)n_blocks, plec_gguf_type_find(item->tensor->type)->name,
                      (unsigned long long)at);
}

static void tell_item(struct plec_findings *findings, const struct item *item) {
    char place[WHERE_MAX];
    if (!item->scanned) return;
    tell(findings, item, BAD_VALUES, PLEC_DEFECT, "NonFiniteValue", "NaN or infinite values");
    tell(findings, item, BAD_SCALES, PLEC_DEFECT, "NonFiniteScale", "NaN or infinite scales");
    tell(findings, item, NAN_BYTES, PLEC_NOTE, "NanScaleByte",
         "scale bytes that some definitions read as NaN");
    tell(findings, item, EXTREME_SCALES, PLEC_NOTE, "ExtremeScale", "scales of 1024 or more");
    bool factor = plec_view_ends(item->tensor->name, "_exps.scale") ||
                  plec_view_ends(item->tensor->name, "_exps.input_scale");
    if (factor) tell(findings, item, ZERO_VALUES, PLEC_DEFECT, "ZeroScale", "factors of 0");
    if (item->all_zero && item->n_experts > 1)
        plec_findings_add(findings, PLEC_NOTE, "ZeroExpert", "%s: every weight is 0",
                          where(place, item));
}

static int by_hash(const void *a, const void *b) {
    const struct item *x = *(const struct item *const *)a, *y = *(const struct item *const *)b;
    if (x->hash != y->hash) return x->hash < y->hash ? -1 : 1;
    return x->expert < y->expert ? -1 : x->expert > y->expert;
}

/* Among the experts [n] of one tensor. Equal hashes are only a hint: bytes decide. */
static void tell_identical(struct plec_findings *findings, const struct item *items, size_t n,
                           const struct item **sorted) {
    char place[WHERE_MAX];
    for (size_t i = 0; i < n; i++)
        sorted[i] = &items[i];
    qsort(sorted, n, sizeof(*sorted), by_hash);
    for (size_t i = 1; i < n; i++) {
        const struct item *a = sorted[i - 1], *b = sorted[i];
        if (a->hash != b->hash || a->all_zero || !a->scanned ||
            memcmp(a->bytes, b->bytes, (size_t)a->n_bytes) != 0)
            continue;
        plec_findings_add(findings, PLEC_NOTE, "IdenticalExperts",
                          "%s: the same bytes as expert %llu", where(place, b),
                          (unsigned long long)a->expert);
    }
}

static bool tell_all(struct plec_findings *findings, const struct scan *scan) {
    const struct item **sorted = malloc((scan->n_items + 1) * sizeof(*sorted));
    if (sorted == NULL) return false;
    for (size_t i = 0, end; i < scan->n_items; i = end) {
        end = i + (size_t)scan->items[i].n_experts;
        for (size_t k = i; k < end; k++)
            tell_item(findings, &scan->items[k]);
        if (end - i > 1) tell_identical(findings, &scan->items[i], end - i, sorted);
        const struct plec_gguf_tensor *tensor = scan->items[i].tensor;
        char place[WHERE_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
        if (!plec_gguf_can_decode(tensor->type))
            plec_findings_add(findings, PLEC_NOTE, "NotScanned", "%s: %s has no definition here",
                              where(place, &scan->items[i]),
                              plec_gguf_type_text(tensor->type, type));
    }
    free(sorted);
    return true;
}

static void add_counts(struct plec_scan_counts *counts, const struct scan *scan) {
    for (size_t i = 0; i < scan->n_items; i++) {
        if (!scan->items[i].scanned) continue;
        counts->n_tensors += scan->items[i].expert == 0;
        counts->n_bytes += scan->items[i].n_bytes;
    }
}

enum plec_status plec_gguf_scan(struct plec_findings *findings, struct plec_scan_counts *counts,
                                const struct plec_gguf_set *set, struct plec_progress *progress,
                                struct plec_error *err) {
    struct scan scan = {.set = set};
    bool good = list_items(&scan);
    if (good) {
        struct plec_parallel job = {scan.n_items, scan_item, &scan, progress};
        plec_parallel_run(&job);
        good = tell_all(findings, &scan);
        add_counts(counts, &scan);
    }
    free(scan.items);
    return good ? PLEC_OK : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the experts of a scan");
}
