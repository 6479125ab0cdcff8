/* The mode peek: a few values of a tensor, and what the blocks they come from are made of. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_slab.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/gguf_values.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/say_findings.h"

struct peek {
    struct plec_slab slab;
    const struct plec_gguf_type *type;
    bool decodable;
    uint64_t n; /* values shown */
};

static const uint8_t *block_at(const struct peek *peek, uint64_t i) {
    return peek->slab.bytes + i * peek->type->block_bytes;
}

/* Where a block lies in its file. */
static uint64_t place_of(const struct peek *peek, uint64_t i) {
    return (uint64_t)(block_at(peek, i) - peek->slab.file->data);
}

static void print_block(const struct peek *peek, uint64_t i) {
    const struct plec_block_field *fields;
    size_t n_fields = plec_block_fields(&fields, peek->type->id);
    if (n_fields == 0) return;
    printf("block %llu at byte %llu\n", (unsigned long long)i,
           (unsigned long long)place_of(peek, i));
    for (size_t k = 0; k < n_fields; k++) {
        printf("  ");
        plec_put_field(stdout, &fields[k], block_at(peek, i));
        printf("\n");
    }
}

static void print_peek(const struct peek *peek) {
    const struct plec_gguf_tensor *tensor = peek->slab.tensor;
    char name[PLEC_VIEW_TEXT_MAX], shape[PLEC_SHAPE_TEXT_MAX], text[PLEC_REAL_TEXT_MAX];
    unsigned elems = peek->type->block_elems;
    double values[PLEC_BLOCK_ELEMS_MAX];
    printf("%s: %s, %s", plec_view_text(tensor->name, name), peek->type->name,
           plec_shape_text(shape, tensor->ne, tensor->n_dims));
    if (peek->slab.one_expert) printf(", expert %llu", (unsigned long long)peek->slab.expert);
    if (peek->slab.one_row) printf(", row %llu", (unsigned long long)peek->slab.row);
    printf(", from byte %llu\n", (unsigned long long)place_of(peek, 0));
    if (!peek->decodable) printf("no values: %s needs a codebook\n", peek->type->name);
    for (uint64_t i = 0; i < peek->n && peek->decodable; i++) {
        if (i % elems == 0) plec_gguf_decode(values, peek->type->id, block_at(peek, i / elems));
        printf("%8llu  %s\n", (unsigned long long)i,
               plec_real_text(text, values[i % elems],
                              peek->type->id < PLEC_GGUF_TYPE_I8 ||
                                  peek->type->id > PLEC_GGUF_TYPE_F64));
    }
    for (uint64_t i = 0; i < peek->n; i += elems)
        print_block(peek, i / elems);
}

/* All fields of one block as text, by name. */
static json_t *block_json(const struct peek *peek, uint64_t i) {
    const struct plec_block_field *fields;
    size_t n_fields = plec_block_fields(&fields, peek->type->id);
    json_t *block = json_object();
    json_object_set_new(block, "at", plec_json_of_u64(place_of(peek, i)));
    for (size_t k = 0; k < n_fields; k++) {
        char *text = NULL;
        size_t size = 0;
        FILE *stream = open_memstream(&text, &size);
        if (stream == NULL) continue;
        plec_put_field(stream, &fields[k], block_at(peek, i));
        /* The name stands in front; the member has it already. */
        size_t skip = snprintf(NULL, 0, "%s ", fields[k].name);
        if (fclose(stream) == 0 && size >= skip)
            json_object_set_new(block, fields[k].name, json_stringn(text + skip, size - skip));
        free(text);
    }
    return block;
}

static bool peek_json(const struct peek *peek) {
    struct plec_json_stream json = {.out = stdout};
    const struct plec_gguf_tensor *tensor = peek->slab.tensor;
    unsigned elems = peek->type->block_elems;
    double values[PLEC_BLOCK_ELEMS_MAX];
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        json_array_append_new(shape, plec_json_of_u64(tensor->ne[i]));
    plec_json_member(&json, "mode", json_string("peek"));
    plec_json_member(&json, "tensor", plec_json_of_view(tensor->name));
    plec_json_member(&json, "type", json_string(peek->type->name));
    plec_json_member(&json, "shape", shape);
    plec_json_member(&json, "expert",
                     peek->slab.one_expert ? plec_json_of_u64(peek->slab.expert) : json_null());
    plec_json_member(&json, "row",
                     peek->slab.one_row ? plec_json_of_u64(peek->slab.row) : json_null());
    plec_json_member(&json, "at", plec_json_of_u64(place_of(peek, 0)));
    plec_json_list_begin(&json, "values");
    for (uint64_t i = 0; i < peek->n && peek->decodable; i++) {
        if (i % elems == 0) plec_gguf_decode(values, peek->type->id, block_at(peek, i / elems));
        plec_json_list_item(&json, plec_json_real(values[i % elems]));
    }
    plec_json_list_end(&json);
    plec_json_list_begin(&json, "blocks");
    for (uint64_t i = 0; i < peek->n && elems > 1; i += elems)
        plec_json_list_item(&json, block_json(peek, i / elems));
    plec_json_list_end(&json);
    return plec_json_end(&json);
}

int plec_gguf_peek(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_gguf_set set;
    struct plec_error err;
    if (plec_gguf_set_open(&set, operands[0], PLEC_GGUF_LOOK, &err) != PLEC_OK)
        return plec_cli_error(&err);
    struct peek peek;
    int leave;
    if (plec_slab_find(&peek.slab, &set, operands[1], &err) != PLEC_OK) {
        plec_error_context(&err, "%s", operands[0]);
        leave = plec_cli_error(&err);
    } else {
        peek.type = plec_gguf_type_find(peek.slab.tensor->type);
        peek.decodable = plec_gguf_can_decode(peek.type->id);
        peek.n = options->n < peek.slab.n_elements ? options->n : peek.slab.n_elements;
        bool written = true;
        if (options->json)
            written = peek_json(&peek);
        else
            print_peek(&peek);
        leave = written ? plec_say_findings(operands[0], &set.findings) : PLEC_EXIT_MACHINE;
    }
    plec_gguf_set_close(&set);
    return leave;
}
