/* The mode layer: one block of a model, tensor by tensor, and how the other blocks compare. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/units.h"

/* A tensor of some block, for sorting by block and then by name. */
struct member {
    uint32_t block;
    struct plec_view rest; /* of the name, behind "blk.12." */
    const struct plec_sheet_tensor *tensor;
};

struct comparison {
    uint64_t n_others, n_same_shapes, n_same_types; /* same_types: also the same shapes */
};

static int by_block_and_name(const void *a, const void *b) {
    const struct member *x = a, *y = b;
    if (x->block != y->block) return x->block < y->block ? -1 : 1;
    return plec_view_compare(x->rest, y->rest);
}

static size_t gather(struct member *members, const struct plec_sheet *sheet) {
    size_t n = 0;
    for (uint32_t i = 0; i < sheet->n_tensors; i++) {
        struct member member = {.tensor = &sheet->tensors[i]};
        if (plec_sheet_block(&member.block, &member.rest, sheet->tensors[i].name))
            members[n++] = member;
    }
    qsort(members, n, sizeof *members, by_block_and_name);
    return n;
}

static bool same_shape(const struct member *a, const struct member *b) {
    return plec_view_equal(a->rest, b->rest) &&
           memcmp(a->tensor->ne, b->tensor->ne, sizeof a->tensor->ne) == 0;
}

/* Compares the run of one block with the run [n] that was asked for. */
static void compare(struct comparison *out, const struct member *wanted, size_t n,
                    const struct member *other, size_t n_other) {
    out->n_others++;
    bool shapes = n == n_other, types = true;
    for (size_t i = 0; i < n && shapes; i++) {
        shapes = same_shape(&wanted[i], &other[i]);
        types = types && wanted[i].tensor->type == other[i].tensor->type;
    }
    out->n_same_shapes += shapes;
    out->n_same_types += shapes && types;
}

/* The members of block `number` among all [n], and how the others compare with them. */
static size_t find_block(const struct member **out, struct comparison *comparison,
                         const struct member *all, size_t n, uint32_t number) {
    size_t n_wanted = 0;
    *out = NULL;
    for (size_t i = 0; i < n; i++)
        if (all[i].block == number && n_wanted++ == 0) *out = &all[i];
    if (n_wanted == 0) return 0;
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i; end < n && all[end].block == all[i].block;)
            end++;
        if (all[i].block != number) compare(comparison, *out, n_wanted, &all[i], end - i);
    }
    return n_wanted;
}

static uint64_t bytes_of(const struct member *members, size_t n) {
    uint64_t sum = 0;
    for (size_t i = 0; i < n; i++)
        if (!plec_add_u64(&sum, sum, members[i].tensor->n_bytes)) return UINT64_MAX;
    return sum;
}

static void print_layer(const struct member *members, size_t n, const struct comparison *other) {
    char name[PLEC_VIEW_TEXT_MAX], shape[PLEC_SHAPE_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    printf("%-30s %-24s %-8s %14s %14s\n", "name", "shape", "type", "offset", "bytes");
    for (size_t i = 0; i < n; i++) {
        const struct plec_sheet_tensor *tensor = members[i].tensor;
        printf("%-30s %-24s %-8s %14llu %14llu\n", plec_view_text(members[i].rest, name),
               plec_shape_text(shape, tensor->ne, tensor->n_dims),
               plec_gguf_type_text(tensor->type, type), (unsigned long long)tensor->offset,
               (unsigned long long)tensor->n_bytes);
    }
    printf("%zu tensors, %llu bytes\n", n, (unsigned long long)bytes_of(members, n));
    if (other->n_others == 0) return;
    printf("against the other %llu blocks\n", (unsigned long long)other->n_others);
    printf("  %-34s %llu\n", "same names and shapes", (unsigned long long)other->n_same_shapes);
    printf("  %-34s %llu\n", "and the same element types too",
           (unsigned long long)other->n_same_types);
    printf("  %-34s %llu\n", "same shapes, some type elsewhere",
           (unsigned long long)(other->n_same_shapes - other->n_same_types));
    printf("  %-34s %llu\n", "other names or shapes",
           (unsigned long long)(other->n_others - other->n_same_shapes));
}

static bool layer_json(uint32_t number, const struct member *members, size_t n,
                       const struct comparison *other) {
    struct plec_json_stream json = {.out = stdout};
    char type[PLEC_GGUF_TYPE_TEXT_MAX];
    plec_json_member(&json, "mode", json_string("layer"));
    plec_json_member(&json, "layer", plec_json_of_u64(number));
    plec_json_list_begin(&json, "tensors");
    for (size_t i = 0; i < n; i++) {
        const struct plec_sheet_tensor *tensor = members[i].tensor;
        json_t *shape = json_array();
        for (uint32_t k = 0; k < tensor->n_dims; k++)
            json_array_append_new(shape, plec_json_of_u64(tensor->ne[k]));
        plec_json_list_item(&json, json_pack("{s:o, s:o, s:s, s:o, s:o, s:I}", "name",
                                             plec_json_of_view(members[i].rest), "shape", shape,
                                             "type", plec_gguf_type_text(tensor->type, type),
                                             "offset", plec_json_of_u64(tensor->offset), "bytes",
                                             plec_json_of_u64(tensor->n_bytes), "file",
                                             (json_int_t)tensor->file));
    }
    plec_json_list_end(&json);
    plec_json_member(&json, "bytes", plec_json_of_u64(bytes_of(members, n)));
    plec_json_member(&json, "other_blocks", plec_json_of_u64(other->n_others));
    plec_json_member(&json, "same_shapes", plec_json_of_u64(other->n_same_shapes));
    plec_json_member(&json, "same_types", plec_json_of_u64(other->n_same_types));
    return plec_json_end(&json);
}

static int show(const struct plec_sheet *sheet, uint32_t number, bool json) {
    struct member *all = malloc((sheet->n_tensors + (size_t)1) * sizeof *all);
    if (all == NULL) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    const struct member *members;
    struct comparison comparison = {0};
    size_t n = find_block(&members, &comparison, all, gather(all, sheet), number);
    int leave = PLEC_EXIT_OK;
    if (n == 0) {
        plec_cli_say("%s: NoSuchLayer: no tensor is named blk.%u.*", sheet->path, number);
        leave = PLEC_EXIT_INPUT;
    } else if (json) {
        if (!layer_json(number, members, n, &comparison)) leave = PLEC_EXIT_MACHINE;
    } else {
        print_layer(members, n, &comparison);
    }
    free(all);
    return leave;
}

int plec_gguf_layer(const char *const *operands, const struct plec_gguf_options *options) {
    uint64_t number;
    if (!plec_count_parse(&number, operands[1], UINT32_MAX)) {
        plec_cli_say("gguf layer: '%s' is no block number", operands[1]);
        return PLEC_EXIT_USAGE;
    }
    struct plec_sheet sheet;
    struct plec_error err;
    if (plec_sheet_open(&sheet, operands[0], &err) != PLEC_OK) return plec_cli_error(&err);
    int leave = show(&sheet, (uint32_t)number, options->json), judged = plec_sheet_judge(&sheet);
    plec_sheet_close(&sheet);
    return leave != PLEC_EXIT_OK ? leave : judged;
}
