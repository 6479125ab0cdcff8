/* The mode stack: every tensor of a model with the block number taken out of its name, so that what
 * repeats once a block is one line. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"

/* Types told apart in one line; a model has about ten in all. */
enum { TYPES_MAX = 48 };

/* Tensors of one name and shape: a chain through stack.next. */
struct row {
    uint32_t first, last;
    bool in_block;
    uint64_t n_tensors, n_bytes;
};

/* How often each type stands in a row, by type number. */
struct type_count {
    uint32_t type;
    uint64_t n;
};
struct types {
    uint32_t n;
    struct type_count items[TYPES_MAX]; /* [n] */
};

/* Bytes of one block. */
struct block {
    uint32_t number;
    uint64_t n_bytes;
};

struct stack {
    const struct plec_sheet *sheet;
    struct row *rows; /* [n_rows], as they were first seen */
    uint32_t n_rows;
    uint32_t *next; /* [n_tensors]: the next tensor of the same row; UINT32_MAX ends */
    struct plec_name_index index; /* of the rows by collapsed name and shape */
    char *names;                  /* [n_rows][NAME_ROOM] */
    struct block *blocks;         /* [n_blocks], by number */
    uint32_t n_blocks, n_repeating;
    uint64_t front, middle, behind; /* bytes */
    uint64_t smallest, largest;
    bool overflow;
};

/* A collapsed name with its shape: at most 64 bytes of name, four dims of 20 digits. */
enum { NAME_ROOM = 160 };

static char *name_at(const struct stack *stack, uint32_t i) {
    return stack->names + (size_t)i * NAME_ROOM;
}
static struct plec_view row_name(const void *user, uint32_t i) {
    const struct stack *stack = user;
    const char *name = name_at(stack, i);
    return (struct plec_view){name + 1, (uint64_t)(uint8_t)name[0]};
}

/* One byte of length, then "blk.N.ffn_up.weight" and the dims as bytes: equal exactly when name and
 * shape are. */
static void write_name(char *out, const struct plec_sheet_tensor *tensor, bool in_block,
                       struct plec_view rest) {
    struct plec_view text = in_block ? rest : tensor->name;
    size_t n = 1;
    if (in_block) {
        memcpy(out + n, "blk.N.", 6);
        n += 6;
    }
    size_t room =
        text.size > PLEC_GGUF_MAX_NAME_BYTES ? PLEC_GGUF_MAX_NAME_BYTES : (size_t)text.size;
    if (room > 0) memcpy(out + n, text.data, room);
    n += room;
    for (uint32_t i = 0; i < PLEC_GGUF_MAX_DIMS; i++, n += 8)
        plec_store_u64(out + n, tensor->ne[i]);
    out[0] = (char)(n - 1);
}

static void count_type(struct types *types, uint32_t type) {
    uint32_t i = 0;
    while (i < types->n && types->items[i].type != type)
        i++;
    if (i == TYPES_MAX) i--; /* the last one takes all further ones */
    if (i == types->n) {
        types->items[i].type = type;
        types->items[i].n = 0;
        types->n++;
    }
    types->items[i].n++;
}

static int by_type(const void *a, const void *b) {
    const struct type_count *x = a, *y = b;
    return x->type < y->type ? -1 : x->type > y->type;
}

static void count_types(struct types *out, const struct stack *stack, const struct row *row) {
    out->n = 0;
    for (uint32_t i = row->first; i != UINT32_MAX; i = stack->next[i])
        count_type(out, stack->sheet->tensors[i].type);
    qsort(out->items, out->n, sizeof out->items[0], by_type);
}

static enum plec_status add_tensor(struct stack *stack, uint32_t i, struct plec_error *err) {
    const struct plec_sheet_tensor *tensor = &stack->sheet->tensors[i];
    uint32_t block = 0, twin;
    struct plec_view rest;
    bool in_block = plec_sheet_block(&block, &rest, tensor->name);
    write_name(name_at(stack, stack->n_rows), tensor, in_block, rest);
    enum plec_status status = plec_name_index_add(&stack->index, &twin, stack->n_rows, err);
    if (status != PLEC_OK) return status;
    struct row *row = &stack->rows[twin];
    if (twin == stack->n_rows) {
        *row = (struct row){.first = i, .last = i, .in_block = in_block};
        stack->n_rows++;
    }
    stack->next[row->last] = i;
    stack->next[i] = UINT32_MAX;
    row->last = i;
    row->n_tensors++;
    stack->overflow |= !plec_add_u64(&row->n_bytes, row->n_bytes, tensor->n_bytes);
    if (in_block) stack->blocks[stack->n_blocks++] = (struct block){block, tensor->n_bytes};
    uint64_t *part = in_block               ? &stack->middle
                     : stack->n_blocks == 0 ? &stack->front
                                            : &stack->behind;
    stack->overflow |= !plec_add_u64(part, *part, tensor->n_bytes);
    return PLEC_OK;
}

static int by_number(const void *a, const void *b) {
    const struct block *x = a, *y = b;
    return x->number < y->number ? -1 : x->number > y->number;
}

/* One entry a tensor becomes one entry a block. */
static void merge_blocks(struct stack *stack) {
    uint32_t n = 0;
    qsort(stack->blocks, stack->n_blocks, sizeof *stack->blocks, by_number);
    for (uint32_t i = 0; i < stack->n_blocks; i++) {
        if (n > 0 && stack->blocks[n - 1].number == stack->blocks[i].number)
            stack->overflow |=
                !plec_add_u64(&stack->blocks[n - 1].n_bytes, stack->blocks[n - 1].n_bytes,
                              stack->blocks[i].n_bytes);
        else
            stack->blocks[n++] = stack->blocks[i];
    }
    stack->n_blocks = n;
    stack->smallest = n > 0 ? UINT64_MAX : 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t bytes = stack->blocks[i].n_bytes;
        if (bytes < stack->smallest) stack->smallest = bytes;
        if (bytes > stack->largest) stack->largest = bytes;
    }
    for (uint32_t i = 0; i < stack->n_rows; i++)
        stack->n_repeating += stack->rows[i].in_block;
}

static enum plec_status make_stack(struct stack *stack, const struct plec_sheet *sheet,
                                   struct plec_error *err) {
    size_t n = sheet->n_tensors + (size_t)1;
    *stack = (struct stack){.sheet = sheet};
    plec_name_index_init(&stack->index, row_name, stack);
    stack->rows = malloc(n * sizeof *stack->rows);
    stack->names = malloc(n * NAME_ROOM);
    stack->blocks = malloc(n * sizeof *stack->blocks);
    stack->next = malloc(n * sizeof *stack->next);
    if (stack->rows == NULL || stack->next == NULL || stack->names == NULL || stack->blocks == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a table of %zu names", n);
    for (uint32_t i = 0; i < sheet->n_tensors; i++) {
        enum plec_status status = add_tensor(stack, i, err);
        if (status != PLEC_OK) return status;
    }
    merge_blocks(stack);
    return PLEC_OK;
}

static void free_stack(struct stack *stack) {
    plec_name_index_free(&stack->index);
    free(stack->rows);
    free(stack->names);
    free(stack->next);
    free(stack->blocks);
}

/* -- output ---------------------------------------------------------------------------------- */

/* "blk.N.ffn_up.weight", without the shape behind it. */
static struct plec_view shown_name(const struct stack *stack, uint32_t i) {
    struct plec_view name = row_name(stack, i);
    return (struct plec_view){name.data, name.size - 8 * PLEC_GGUF_MAX_DIMS};
}

/* "q4_K", or "q4_K x14 q6_K x14". */
static void print_types(FILE *out, const struct types *types) {
    char text[PLEC_GGUF_TYPE_TEXT_MAX];
    for (uint32_t i = 0; i < types->n; i++) {
        fprintf(out, "%s%s", i > 0 ? " " : "", plec_gguf_type_text(types->items[i].type, text));
        if (types->n > 1) fprintf(out, " x%llu", (unsigned long long)types->items[i].n);
    }
}

static void print_row(const struct stack *stack, uint32_t i) {
    const struct row *row = &stack->rows[i];
    const struct plec_sheet_tensor *first = &stack->sheet->tensors[row->first];
    char name[PLEC_VIEW_TEXT_MAX], shape[PLEC_SHAPE_TEXT_MAX];
    printf("%5llu  %-34s %-22s ", (unsigned long long)row->n_tensors,
           plec_view_text(shown_name(stack, i), name),
           plec_shape_text(shape, first->ne, first->n_dims));
    struct types types;
    count_types(&types, stack, row);
    print_types(stdout, &types);
    printf("  %llu\n", (unsigned long long)row->n_bytes);
}

static void print_bytes(const char *what, uint64_t n_bytes, const char *more) {
    printf("%-26s %llu bytes%s\n", what, (unsigned long long)n_bytes, more);
}

static void print_stack(const struct stack *stack) {
    char over[48];
    struct plec_view arch =
        plec_sheet_string(plec_sheet_find(stack->sheet, "general.architecture"));
    printf("architecture ");
    plec_put_view(stdout, arch);
    printf(", %u blocks, %u tensors\n", stack->n_blocks, stack->sheet->n_tensors);
    printf("%5s  %-34s %-22s %s\n", "count", "name", "shape", "type  bytes");
    for (uint32_t i = 0; i < stack->n_rows; i++)
        print_row(stack, i);
    printf("%u names, %u of them repeat\n", stack->n_rows, stack->n_repeating);
    snprintf(over, sizeof over, ", over %u blocks", stack->n_blocks);
    print_bytes("in front of the stack", stack->front, "");
    print_bytes("the stack itself", stack->middle, over);
    print_bytes("behind it", stack->behind, "");
    print_bytes("the three together", stack->front + stack->middle + stack->behind, "");
    print_bytes("the smallest block", stack->smallest, "");
    print_bytes("the largest block", stack->largest, "");
    if (stack->n_blocks > 1)
        printf("the blocks %s the same number of bytes\n",
               stack->smallest == stack->largest ? "have" : "do not have");
}

static json_t *row_json(const struct stack *stack, uint32_t i) {
    const struct row *row = &stack->rows[i];
    const struct plec_sheet_tensor *first = &stack->sheet->tensors[row->first];
    json_t *shape = json_array(), *counts = json_object();
    struct types types;
    count_types(&types, stack, row);
    char text[PLEC_GGUF_TYPE_TEXT_MAX];
    for (uint32_t k = 0; k < first->n_dims; k++)
        json_array_append_new(shape, plec_json_of_u64(first->ne[k]));
    for (uint32_t k = 0; k < types.n; k++)
        json_object_set_new(counts, plec_gguf_type_text(types.items[k].type, text),
                            plec_json_of_u64(types.items[k].n));
    return json_pack("{s:o, s:o, s:o, s:o, s:b, s:o}", "name",
                     plec_json_of_view(shown_name(stack, i)), "count",
                     plec_json_of_u64(row->n_tensors), "shape", shape, "types", counts, "in_block",
                     row->in_block, "bytes", plec_json_of_u64(row->n_bytes));
}

static bool stack_json(const struct stack *stack) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "mode", json_string("stack"));
    plec_json_member(&json, "blocks", plec_json_of_u64(stack->n_blocks));
    plec_json_member(&json, "tensors", plec_json_of_u64(stack->sheet->n_tensors));
    plec_json_list_begin(&json, "names");
    for (uint32_t i = 0; i < stack->n_rows; i++)
        plec_json_list_item(&json, row_json(stack, i));
    plec_json_list_end(&json);
    plec_json_member(&json, "repeating_names", plec_json_of_u64(stack->n_repeating));
    plec_json_member(&json, "front_bytes", plec_json_of_u64(stack->front));
    plec_json_member(&json, "stack_bytes", plec_json_of_u64(stack->middle));
    plec_json_member(&json, "behind_bytes", plec_json_of_u64(stack->behind));
    plec_json_member(&json, "smallest_block", plec_json_of_u64(stack->smallest));
    plec_json_member(&json, "largest_block", plec_json_of_u64(stack->largest));
    return plec_json_end(&json);
}

static int show(const struct plec_sheet *sheet, bool json) {
    struct stack stack;
    struct plec_error err;
    int leave;
    if (make_stack(&stack, sheet, &err) != PLEC_OK) {
        leave = plec_cli_error(&err);
    } else if (stack.overflow) {
        plec_cli_say("%s: the tensors together are more bytes than 64 bits count", sheet->path);
        leave = PLEC_EXIT_FOUND;
    } else {
        bool written = true;
        if (json)
            written = stack_json(&stack);
        else
            print_stack(&stack);
        leave = written ? PLEC_EXIT_OK : PLEC_EXIT_MACHINE;
    }
    free_stack(&stack);
    return leave;
}

int plec_gguf_stack(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_sheet sheet;
    struct plec_error err;
    if (plec_sheet_open(&sheet, operands[0], &err) != PLEC_OK) return plec_cli_error(&err);
    int leave = show(&sheet, options->json), judged = plec_sheet_judge(&sheet);
    plec_sheet_close(&sheet);
    return leave != PLEC_EXIT_OK ? leave : judged;
}
