/* What can be said of the data section without reading it: bounds, alignment, overlaps, gaps,
 * order. One sort by offset, then one pass. */
#include "lyrw/gguf.h"

#include <stdio.h>
#include <stdlib.h>

#include "lyrw/cursor.h"
#include "lyrw/gguf_parts.h"

/* So many findings of a kind are told one by one; the others are counted in a last one. */
enum { TOLD_EACH = 16 };

enum kind { UNKNOWN, ZERO, MISALIGNED, OVERLAP, GAP, UNPRINTABLE, N_KINDS };
static const struct {
    const char *name;
    enum plec_severity severity;
} kinds[N_KINDS] = {
    [UNKNOWN] = {"UnknownType", PLEC_NOTE},
    [ZERO] = {"ZeroDim", PLEC_NOTE},
    [MISALIGNED] = {"OffsetNotAligned", PLEC_DEFECT},
    [OVERLAP] = {"TensorsOverlap", PLEC_DEFECT},
    [GAP] = {"Gap", PLEC_NOTE},
    [UNPRINTABLE] = {"UnprintableName", PLEC_NOTE},
};

/* A tensor's place, for sorting. */
struct place {
    uint64_t start;
    uint32_t index;
};

struct check {
    struct plec_gguf *file;
    struct place *places; /* [file->n_tensors], by start */
    uint64_t told[N_KINDS];
};

static void tell_tensor(struct check *check, enum kind kind, const struct plec_gguf_tensor *tensor,
                        const char *text) {
    if (check->told[kind]++ >= TOLD_EACH) return;
    char name[PLEC_VIEW_TEXT_MAX];
    plec_findings_add(&check->file->findings, kinds[kind].severity, kinds[kind].name,
                      "tensor \"%s\": %s", plec_view_text(tensor->name, name), text);
}

static void tell_the_rest(struct check *check) {
    for (enum kind kind = 0; kind < N_KINDS; kind++)
        if (check->told[kind] > TOLD_EACH)
            plec_findings_add(&check->file->findings, kinds[kind].severity, kinds[kind].name,
                              "and %llu more tensors",
                              (unsigned long long)(check->told[kind] - TOLD_EACH));
}

static int by_start(const void *a, const void *b) {
    const struct place *x = a, *y = b;
    if (x->start != y->start) return x->start < y->start ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

static void place_tensors(struct check *check) {
    struct plec_gguf *file = check->file;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        struct plec_gguf_tensor *tensor = &file->tensors[i];
        if (!file->complete || !plec_add_u64(&tensor->data_at, file->data_at, tensor->offset))
            tensor->data_at = UINT64_MAX;
        check->places[i] = (struct place){tensor->data_at, i};
    }
    qsort(check->places, file->n_tensors, sizeof *check->places, by_start);
}

/* A type without a known size takes what lies up to the next tensor, or to the end of the file. */
static void size_unknown_types(struct check *check) {
    struct plec_gguf *file = check->file;
    uint64_t next = file->size;
    for (uint32_t i = file->n_tensors; i-- > 0;) {
        const struct place *place = &check->places[i];
        if (i + 1 < file->n_tensors && place->start != check->places[i + 1].start)
            next = check->places[i + 1].start;
        struct plec_gguf_tensor *tensor = &file->tensors[place->index];
        if (tensor->flags & PLEC_GGUF_TYPE_UNKNOWN)
            tensor->n_bytes = next > tensor->data_at ? next - tensor->data_at : 0;
    }
}

static bool lies_outside(const struct plec_gguf *file, const struct plec_gguf_tensor *tensor) {
    if (tensor->flags & PLEC_GGUF_NO_ELEMENTS) return false;
    return tensor->data_at > file->size || tensor->n_bytes > file->size - tensor->data_at;
}

static void check_tensor(struct check *check, struct plec_gguf_tensor *tensor) {
    const struct plec_gguf *file = check->file;
    char text[160], type[PLEC_GGUF_TYPE_TEXT_MAX];
    if (!plec_view_is_clean(tensor->name))
        tell_tensor(check, UNPRINTABLE, tensor, "its name has bytes that are not printable");
    if (tensor->flags & PLEC_GGUF_NO_ELEMENTS)
        tell_tensor(check, ZERO, tensor, "a dim is zero: it is empty");
    if (tensor->flags & PLEC_GGUF_TYPE_UNKNOWN) {
        snprintf(text, sizeof text, "%s; %llu bytes up to the next tensor",
                 plec_gguf_type_text(tensor->type, type), (unsigned long long)tensor->n_bytes);
        tell_tensor(check, UNKNOWN, tensor, text);
    }
    if (lies_outside(file, tensor)) tensor->flags |= PLEC_GGUF_OUTSIDE_FILE;
    if ((tensor->offset & (file->alignment - 1)) == 0) return;
    tensor->flags |= PLEC_GGUF_NOT_ALIGNED;
    snprintf(text, sizeof text, "offset %llu is no multiple of the alignment %llu",
             (unsigned long long)tensor->offset, (unsigned long long)file->alignment);
    tell_tensor(check, MISALIGNED, tensor, text);
}

static uint64_t end_of(const struct plec_gguf_tensor *tensor) {
    uint64_t end;
    return plec_add_u64(&end, tensor->data_at, tensor->n_bytes) ? end : UINT64_MAX;
}

static void tell_overlap(struct check *check, struct plec_gguf_tensor *first,
                         struct plec_gguf_tensor *second) {
    char text[160], name[PLEC_VIEW_TEXT_MAX];
    first->flags |= PLEC_GGUF_OVERLAPS;
    second->flags |= PLEC_GGUF_OVERLAPS;
    snprintf(text, sizeof text, "starts at byte %llu, inside \"%.40s\" (overlap)",
             (unsigned long long)second->data_at, plec_view_text(first->name, name));
    tell_tensor(check, OVERLAP, second, text);
}

/* In order of place: each against the one that reaches furthest so far. Returns that end. */
static uint64_t check_neighbours(struct check *check) {
    struct plec_gguf *file = check->file;
    struct plec_gguf_tensor *furthest = NULL;
    uint64_t end = file->data_at, padded = end;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        struct plec_gguf_tensor *tensor = &file->tensors[check->places[i].index];
        if (tensor->n_bytes == 0 || tensor->data_at > file->size) continue;
        if (tensor->data_at < end && furthest != NULL) tell_overlap(check, furthest, tensor);
        if (tensor->data_at > padded) {
            char text[96];
            snprintf(text, sizeof text, "%llu unused bytes in front of it (a gap)",
                     (unsigned long long)(tensor->data_at - padded));
            tell_tensor(check, GAP, tensor, text);
        }
        if (end_of(tensor) <= end) continue;
        end = end_of(tensor);
        furthest = tensor;
        if (!plec_round_up_u64(&padded, end, file->alignment)) padded = UINT64_MAX;
    }
    return end;
}

static void check_order(struct plec_gguf *file) {
    uint64_t n_back = 0;
    for (uint32_t i = 1; i < file->n_tensors; i++)
        n_back += file->tensors[i].offset < file->tensors[i - 1].offset;
    if (n_back > 0)
        plec_findings_add(&file->findings, PLEC_NOTE, "OutOfOrder",
                          "%llu tensors lie in front of the one listed before them",
                          (unsigned long long)n_back);
}

/* One finding for all tensors that the file is too short for: which first, how much is missing. */
static void check_bounds(struct plec_gguf *file) {
    const struct plec_gguf_tensor *first = NULL;
    uint64_t n_outside = 0, needed = 0;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = &file->tensors[i];
        if (!(tensor->flags & PLEC_GGUF_OUTSIDE_FILE)) continue;
        if (first == NULL) first = tensor;
        if (end_of(tensor) > needed) needed = end_of(tensor);
        n_outside++;
    }
    if (first == NULL) return;
    char name[PLEC_VIEW_TEXT_MAX];
    plec_findings_add(
        &file->findings, PLEC_DEFECT, "TensorOutsideFile",
        "tensor \"%s\" needs %llu bytes from byte %llu (offset %llu), past the end of "
        "the file (truncated); %llu of %u tensors lie outside: the file is %llu bytes, "
        "needs %llu",
        plec_view_text(first->name, name), (unsigned long long)first->n_bytes,
        (unsigned long long)first->data_at, (unsigned long long)first->offset,
        (unsigned long long)n_outside, file->n_tensors, (unsigned long long)file->size,
        (unsigned long long)needed);
}

static void check_trailing(struct plec_gguf *file, uint64_t end) {
    uint64_t padded;
    if (!plec_round_up_u64(&padded, end, file->alignment) || file->size <= padded) return;
    plec_findings_add(&file->findings, PLEC_NOTE, "TrailingBytes",
                      "%llu bytes after the last tensor belong to nothing (unused)",
                      (unsigned long long)(file->size - padded));
}

enum plec_status plec_gguf_check_layout(struct plec_gguf *file, struct plec_error *err) {
    struct check check = {.file = file};
    check.places = malloc((file->n_tensors + (size_t)1) * sizeof *check.places);
    if (check.places == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "places of %u tensors",
                         file->n_tensors);
    place_tensors(&check);
    size_unknown_types(&check);
    for (uint32_t i = 0; i < file->n_tensors; i++)
        check_tensor(&check, &file->tensors[i]);
    /* A header cut short has no data section to speak of, and one finding says so already. */
    if (file->complete) {
        uint64_t end = check_neighbours(&check);
        check_order(file);
        check_bounds(file);
        check_trailing(file, end);
    }
    tell_the_rest(&check);
    free(check.places);
    return PLEC_OK;
}

/* -- what llama.cpp would refuse -------------------------------------------------------------- */

static void check_strict_tensor(struct plec_findings *findings,
                                const struct plec_gguf_tensor *tensor) {
    char name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    plec_view_text(tensor->name, name);
    if (tensor->name.size >= PLEC_GGUF_MAX_NAME_BYTES)
        plec_findings_add(findings, PLEC_DEFECT, "StrictNameTooLong",
                          "tensor \"%s\": a name of %llu bytes; llama.cpp takes at most 63", name,
                          (unsigned long long)tensor->name.size);
    if (tensor->flags & PLEC_GGUF_TYPE_UNKNOWN)
        plec_findings_add(findings, PLEC_DEFECT, "StrictUnknownType", "tensor \"%s\": %s", name,
                          plec_gguf_type_text(tensor->type, type));
}

static void check_strict_offsets(struct plec_findings *findings, const struct plec_gguf *file) {
    uint64_t wanted = 0;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = &file->tensors[i];
        char name[PLEC_VIEW_TEXT_MAX];
        plec_view_text(tensor->name, name);
        if (tensor->offset != wanted) {
            plec_findings_add(findings, PLEC_DEFECT, "StrictOffset",
                              "tensor \"%s\": offset %llu, wanted %llu, where the padded tensors "
                              "before it end",
                              name, (unsigned long long)tensor->offset, (unsigned long long)wanted);
            return; /* all later ones would be told for the same reason */
        }
        if (!plec_add_u64(&wanted, wanted, tensor->n_bytes) ||
            !plec_round_up_u64(&wanted, wanted, file->alignment)) {
            plec_findings_add(findings, PLEC_DEFECT, "StrictSizeOverflow",
                              "tensor \"%s\": the sum of the padded sizes overflows", name);
            return;
        }
    }
}

void plec_gguf_check_strict(struct plec_findings *findings, const struct plec_gguf *file) {
    for (size_t i = 0; i < file->findings.n_items; i++) {
        const struct plec_finding *item = &file->findings.items[i];
        if (item->severity == PLEC_DEFECT)
            plec_findings_add(findings, PLEC_DEFECT, item->name, "%s", item->text);
    }
    for (uint32_t i = 0; i < file->n_tensors; i++)
        check_strict_tensor(findings, &file->tensors[i]);
    check_strict_offsets(findings, file);
}
