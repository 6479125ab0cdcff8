/* inspect_gguf.c: what a GGUF model holds: its files, keys, tensors and what they come to. */
#include "tools/plectrum/inspect_gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "lyrw/cursor.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/moe_view.h"
#include "tools/plectrum/say_findings.h"
#include "tools/plectrum/units.h"

enum { SHOWN_STRING_BYTES = 44, SHOWN_ITEM_BYTES = 16, SHOWN_ITEMS = 4 };

/* -- facts ----------------------------------------------------------------------------------- */

uint64_t plec_gguf_view_bytes(const struct plec_gguf_view *view) {
    uint64_t n = 0;
    for (uint32_t i = 0; i < view->set.n_shards; i++)
        n += view->set.shards[i].mapping.size;
    return n;
}

const char *const *plec_gguf_axes(const struct plec_gguf_tensor *tensor) {
    static const char *const none[] = {NULL}, *const vector[] = {"width", NULL},
                             *const matrix[] = {"in", "out", NULL},
                             *const bias[] = {"out", "experts", NULL},
                             *const experts[] = {"in", "out", "experts", NULL},
                             *const four[] = {"in", "out", "experts", "more", NULL};
    bool of_experts = plec_view_ends(tensor->name, "_exps.bias");
    switch (tensor->n_dims) {
    case 0: return none;
    case 1: return vector;
    case 2: return of_experts ? bias : matrix;
    case 3: return experts;
    default: return four;
    }
}

double plec_gguf_bits(uint64_t n_bytes, uint64_t n_elements) {
    return n_elements == 0 ? 0 : (double)n_bytes * 8 / (double)n_elements;
}

void plec_gguf_ends(uint64_t *trailing, uint64_t *missing, const struct plec_gguf *file) {
    uint64_t needed = file->data_at;
    *trailing = *missing = 0;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        uint64_t end;
        const struct plec_gguf_tensor *tensor = &file->tensors[i];
        if (tensor->flags & PLEC_GGUF_NO_ELEMENTS) continue;
        if (!plec_add_u64(&end, tensor->data_at, tensor->n_bytes)) end = UINT64_MAX;
        if (end > needed) needed = end;
    }
    if (!file->complete) return;
    if (needed > file->size) *missing = needed - file->size;
    uint64_t padded;
    if (plec_round_up_u64(&padded, needed, file->alignment) && file->size > padded)
        *trailing = file->size - padded;
}

static int by_size(const void *a, const void *b) {
    const struct plec_type_total *x = a, *y = b;
    if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
    return x->type < y->type ? -1 : x->type > y->type;
}
static int by_type(const void *a, const void *b) {
    const struct plec_type_total *x = a, *y = b;
    return x->type < y->type ? -1 : x->type > y->type;
}

static bool make_totals(struct plec_gguf_view *view) {
    uint32_t n = view->selection.n_tensors;
    view->totals = malloc((n + (size_t)1) * sizeof *view->totals);
    if (view->totals == NULL) return false;
    for (uint32_t i = 0; i < n; i++) {
        const struct plec_gguf_tensor *tensor = view->selection.tensors[i];
        view->totals[i] =
            (struct plec_type_total){tensor->type, 1, tensor->n_elements, tensor->n_bytes};
    }
    qsort(view->totals, n, sizeof *view->totals, by_type);
    for (uint32_t i = 0; i < n; i++) {
        struct plec_type_total *from = &view->totals[i];
        struct plec_type_total *to = view->n_totals > 0 ? &view->totals[view->n_totals - 1] : NULL;
        if (to == NULL || to->type != from->type) {
            view->totals[view->n_totals++] = *from;
            continue;
        }
        to->n_tensors++;
        to->n_elements += from->n_elements;
        to->n_bytes += from->n_bytes;
    }
    qsort(view->totals, view->n_totals, sizeof *view->totals, by_size);
    return true;
}

/* -- text ------------------------------------------------------------------------------------ */

static void print_files(const struct plec_gguf_view *view) {
    const struct plec_gguf_set *set = &view->set;
    char size[PLEC_UNIT_TEXT_MAX];
    for (uint32_t i = 0; i < set->n_shards; i++) {
        const struct plec_gguf_shard *shard = &set->shards[i];
        const struct plec_gguf *file = &shard->file;
        uint64_t trailing, missing;
        plec_cli_put(stdout, shard->path);
        if (!shard->present) {
            printf(": %s\n", shard->unreadable ? "unreadable" : "missing");
            continue;
        }
        plec_gguf_ends(&trailing, &missing, file);
        printf(": GGUF v%u, little-endian, %s\n", file->version, plec_size_text(size, file->size));
        printf("  %u keys, %u tensors, alignment %llu (%s), data from byte %llu", file->n_keys,
               file->n_tensors, (unsigned long long)file->alignment,
               file->alignment_stated ? "stated" : "default", (unsigned long long)file->data_at);
        if (!file->complete)
            printf("; incomplete: %llu keys and %llu tensors are stated",
                   (unsigned long long)file->n_keys_stated,
                   (unsigned long long)file->n_tensors_stated);
        if (trailing > 0) printf("; %llu trailing bytes", (unsigned long long)trailing);
        if (missing > 0) printf("; %llu bytes are missing", (unsigned long long)missing);
        printf("\n");
    }
}

/* The first few of an array. */
static void print_items(const struct plec_gguf *file, const struct plec_gguf_key *key) {
    uint64_t shown = key->count < SHOWN_ITEMS ? key->count : SHOWN_ITEMS, at = key->value_at;
    unsigned each = plec_gguf_value_bytes(key->element_type);
    for (uint64_t i = 0; i < shown; i++) {
        printf("%s", i == 0 ? ": " : ", ");
        if (each == 0)
            plec_put_quoted(stdout, plec_gguf_next_string(file, &at), SHOWN_ITEM_BYTES);
        else
            plec_sheet_put_scalar(stdout, key->element_type, file->data + at + i * each);
    }
    if (key->count > shown) printf(", ...");
}

static void print_key(const struct plec_gguf *file, const struct plec_gguf_key *key) {
    char name[PLEC_VIEW_TEXT_MAX];
    printf("  %-44s %-7s ", plec_view_text(key->name, name), plec_gguf_value_type_name(key->type));
    if (key->type == PLEC_GGUF_ARRAY) {
        printf("%llu of %s", (unsigned long long)key->count,
               plec_gguf_value_type_name(key->element_type));
        print_items(file, key);
    } else if (key->type == PLEC_GGUF_STRING) {
        plec_put_quoted(stdout,
                        (struct plec_view){(const char *)file->data + key->value_at, key->n_bytes},
                        SHOWN_STRING_BYTES);
    } else {
        plec_sheet_put_scalar(stdout, key->type, file->data + key->value_at);
        if (plec_view_is(key->name, "general.file_type")) {
            uint64_t value = UINT64_MAX;
            (void)!plec_gguf_u64(&value, file, key, 0, NULL);
            const char *meaning = plec_gguf_file_type_name(value);
            printf(" (%s)", meaning == NULL ? "unknown" : meaning);
        }
    }
    printf("\n");
}

static void print_keys(const struct plec_gguf_view *view) {
    for (uint32_t i = 0; i < view->set.n_shards; i++) {
        const struct plec_gguf *file = &view->set.shards[i].file;
        if (file->n_keys > 0) printf(view->set.split ? "keys of file %u\n" : "keys\n", i + 1);
        for (uint32_t k = 0; k < file->n_keys; k++)
            print_key(file, &file->keys[k]);
    }
}

static void print_flags(uint32_t flags) {
    if (flags & PLEC_GGUF_OUTSIDE_FILE) printf(" OUTSIDE-FILE");
    if (flags & PLEC_GGUF_NOT_ALIGNED) printf(" NOT-ALIGNED");
    if (flags & PLEC_GGUF_OVERLAPS) printf(" OVERLAPS");
    if (flags & PLEC_GGUF_NO_ELEMENTS) printf(" EMPTY");
}

static void print_tensor(const struct plec_gguf_view *view, const struct plec_gguf_tensor *tensor) {
    char name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX], shape[PLEC_SHAPE_TEXT_MAX];
    char axes[64] = "";
    const char *const *axis = plec_gguf_axes(tensor);
    for (size_t n = 0; *axis != NULL; axis++)
        n += (size_t)snprintf(axes + n, sizeof axes - n, "%s%s", n == 0 ? "" : ", ", *axis);
    printf("  %-34s %-8s %-22s [%s]  %llu bytes", plec_view_text(tensor->name, name),
           plec_gguf_type_text(tensor->type, type),
           plec_shape_text(shape, tensor->ne, tensor->n_dims), axes,
           (unsigned long long)tensor->n_bytes);
    if (!(tensor->flags & PLEC_GGUF_TYPE_UNKNOWN))
        printf(", %.4g bits", plec_gguf_bits(tensor->n_bytes, tensor->n_elements));
    if (tensor->data_at != UINT64_MAX) printf(", at %llu", (unsigned long long)tensor->data_at);
    if (view->set.split) printf(" of file %u", tensor->shard + 1);
    print_flags(tensor->flags);
    printf("\n");
}

static void print_totals(const struct plec_gguf_view *view) {
    char type[PLEC_GGUF_TYPE_TEXT_MAX], a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    const struct plec_selection *selection = &view->selection;
    printf("totals%s%s\n", view->options->filter != NULL ? " of what matches " : "",
           view->options->filter != NULL ? view->options->filter : "");
    for (uint32_t i = 0; i < view->n_totals; i++) {
        const struct plec_type_total *total = &view->totals[i];
        double share = selection->n_bytes > 0
                           ? 100.0 * (double)total->n_bytes / (double)selection->n_bytes
                           : 0;
        printf("  %-20s %6llu tensors %20s weights %12s  %5.1f%%\n",
               plec_gguf_type_text(total->type, type), (unsigned long long)total->n_tensors,
               plec_count_text(a, total->n_elements), plec_size_text(b, total->n_bytes), share);
    }
    printf("  %-20s %6u tensors %20s weights %12s, %llu bytes, %.4g bits a weight\n", "all",
           selection->n_tensors, plec_count_text(a, selection->n_elements),
           plec_size_text(b, selection->n_bytes), (unsigned long long)selection->n_bytes,
           plec_gguf_bits(selection->n_bytes, selection->n_elements));
}

static bool print_view(const struct plec_gguf_view *view) {
    print_files(view);
    if (view->options->filter == NULL) print_keys(view);
    if (view->selection.n_tensors > 0) printf("tensors\n");
    for (uint32_t i = 0; i < view->selection.n_tensors; i++)
        print_tensor(view, view->selection.tensors[i]);
    print_totals(view);
    return view->options->filter != NULL || plec_moe_view_print(stdout, &view->set);
}

/* -- one key --------------------------------------------------------------------------------- */

/* The whole value, raw: a string as its bytes, an array one element a line. */
static void print_raw(const struct plec_gguf *file, const struct plec_gguf_key *key) {
    uint64_t at = key->value_at;
    unsigned each = plec_gguf_value_bytes(key->element_type);
    if (key->type == PLEC_GGUF_STRING) {
        fwrite(file->data + at, 1, (size_t)key->n_bytes, stdout);
        return;
    }
    for (uint64_t i = 0; i < key->count; i++) {
        if (each == 0) {
            struct plec_view text = plec_gguf_next_string(file, &at);
            fwrite(text.data, 1, (size_t)text.size, stdout);
        } else {
            plec_sheet_put_scalar(stdout, key->element_type, file->data + at + i * each);
        }
        fputc('\n', stdout);
    }
}

static int show_key(const struct plec_gguf_view *view) {
    const struct plec_gguf *file = NULL;
    const struct plec_gguf_key *key = NULL;
    for (uint32_t i = 0; i < view->set.n_shards && key == NULL; i++) {
        file = &view->set.shards[i].file;
        if (view->set.shards[i].present) key = plec_gguf_find_key_named(file, view->options->key);
    }
    if (key == NULL) {
        plec_cli_say("%s: NoSuchKey: the file has no key \"%s\"", view->path, view->options->key);
        return PLEC_EXIT_INPUT;
    }
    if (view->options->json)
        return plec_gguf_key_json(file, key) ? PLEC_EXIT_OK : PLEC_EXIT_MACHINE;
    print_raw(file, key);
    return PLEC_EXIT_OK;
}

/* -- a copy without the weights -------------------------------------------------------------- */

/* The file at path up to where its data starts: all that a report of a fault needs. */
static int strip_data(const struct plec_gguf_view *view) {
    const struct plec_gguf *file = NULL;
    for (uint32_t i = 0; i < view->set.n_shards; i++)
        if (strcmp(view->set.shards[i].path, view->path) == 0) file = &view->set.shards[i].file;
    struct plec_atomic_file out;
    struct plec_error err;
    if (file == NULL) file = plec_gguf_set_main(&view->set);
    uint64_t n = file->complete && file->data_at < file->size ? file->data_at : file->size;
    enum plec_status status = plec_atomic_file_open(&out, view->options->strip_data, &err);
    if (status == PLEC_OK) {
        status = plec_atomic_file_write(&out, 0, file->data, n, &err);
        if (status == PLEC_OK)
            status = plec_atomic_file_commit(&out, &err);
        else
            plec_atomic_file_abort(&out);
    }
    if (status != PLEC_OK) return plec_cli_error(&err);
    plec_cli_say("%s: %llu bytes of header", view->options->strip_data, (unsigned long long)n);
    return PLEC_EXIT_OK;
}

/* -- all of it ------------------------------------------------------------------------------- */

static int judge(const struct plec_gguf_view *view) {
    int leave = plec_say_findings(view->path, &view->set.findings);
    if (!view->options->strict) return leave;
    struct plec_findings strict = {0};
    for (uint32_t i = 0; i < view->set.n_shards; i++)
        if (view->set.shards[i].present) plec_gguf_check_strict(&strict, &view->set.shards[i].file);
    int judged = plec_say_findings(view->path, &strict);
    plec_findings_clear(&strict);
    return leave != PLEC_EXIT_OK ? leave : judged;
}

static int show(struct plec_gguf_view *view) {
    struct plec_error err;
    if (view->options->key != NULL) return show_key(view);
    if (view->options->strip_data != NULL) return strip_data(view);
    if (plec_selection_make(&view->selection, &view->set, view->options->filter,
                            view->options->sort, &err) != PLEC_OK)
        return err.code == PLEC_BAD_INPUT ? (plec_cli_say("%s", err.message), PLEC_EXIT_USAGE)
                                          : plec_cli_error(&err);
    bool good = make_totals(view);
    if (good && view->options->json)
        good = plec_gguf_view_json(view);
    else if (good)
        good = print_view(view);
    if (good) return judge(view);
    plec_cli_say("out of memory, or the output cannot be written");
    return PLEC_EXIT_MACHINE;
}

int plec_inspect_gguf(const char *path, const struct plec_inspect_options *options) {
    struct plec_gguf_view view = {.path = path, .options = options};
    struct plec_error err;
    if (plec_gguf_set_open(&view.set, path, PLEC_GGUF_LOOK, &err) != PLEC_OK)
        return plec_cli_error(&err);
    int leave = show(&view);
    plec_selection_free(&view.selection);
    free(view.totals);
    plec_gguf_set_close(&view.set);
    return leave;
}
