/* inspect_tezw.c: what a TEZW file holds. */
#include <stdio.h>

#include "lyrw/mapping.h"
#include "lyrw/tezw.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/inspect.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/units.h"

static const struct {
    const char *name;
    size_t offset;
} fields[] = {
    {"n_layer", offsetof(struct plec_tezw, n_layer)},
    {"n_head", offsetof(struct plec_tezw, n_head)},
    {"dim", offsetof(struct plec_tezw, dim)},
    {"vocab_sz", offsetof(struct plec_tezw, vocab_sz)},
    {"max_seq", offsetof(struct plec_tezw, max_seq)},
    {"ffn_dim", offsetof(struct plec_tezw, ffn_dim)},
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static uint32_t field(const struct plec_tezw *file, unsigned i) {
    return *(const uint32_t *)(const void *)((const char *)file + fields[i].offset);
}

/* Calls see for every matrix: with the two of the model, then layer after layer, as they lie. */
static void each_tensor(const struct plec_tezw *file,
                        void (*see)(void *user, uint32_t layer, bool of_layer,
                                    const struct plec_tezw_tensor *tensor),
                        void *user) {
    for (uint32_t layer = 0; layer < file->n_layer; layer++)
        for (unsigned kind = layer == 0 ? 0 : PLEC_TEZW_RMS1; kind < PLEC_TEZW_N_KINDS; kind++) {
            struct plec_tezw_tensor tensor = plec_tezw_tensor_at(file, layer, kind);
            see(user, layer, kind >= PLEC_TEZW_RMS1, &tensor);
        }
}

static void print_tensor(void *user, uint32_t layer, bool of_layer,
                         const struct plec_tezw_tensor *tensor) {
    char name[48];
    (void)user;
    if (of_layer)
        snprintf(name, sizeof name, "layer %u %s", layer, tensor->name);
    else
        snprintf(name, sizeof name, "%s", tensor->name);
    printf("  %-24s %u x %u f64, %llu bytes, at %llu\n", name, tensor->rows, tensor->cols,
           (unsigned long long)tensor->n_bytes, (unsigned long long)tensor->at);
}

static void tensor_json(void *user, uint32_t layer, bool of_layer,
                        const struct plec_tezw_tensor *tensor) {
    plec_json_list_item(
        user, json_pack("{s:s, s:o, s:I, s:I, s:o, s:o}", "name", tensor->name, "layer",
                        of_layer ? json_integer(layer) : json_null(), "rows",
                        (json_int_t)tensor->rows, "cols", (json_int_t)tensor->cols, "offset",
                        plec_json_of_u64(tensor->at), "bytes", plec_json_of_u64(tensor->n_bytes)));
}

static bool print_json(const struct plec_tezw *file, bool entries) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "kind", json_string("tezw"));
    plec_json_member(&json, "bytes", plec_json_of_u64(file->size));
    plec_json_member(&json, "version", json_integer(2));
    for (unsigned i = 0; i < N_FIELDS; i++)
        plec_json_member(&json, fields[i].name, json_integer(field(file, i)));
    plec_json_member(&json, "weights", plec_json_of_u64(plec_tezw_n_weights(file)));
    plec_json_list_begin(&json, "tensors");
    if (entries) each_tensor(file, tensor_json, &json);
    plec_json_list_end(&json);
    return plec_json_end(&json);
}

static void print_text(const char *path, const struct plec_tezw *file, bool entries) {
    char size[PLEC_UNIT_TEXT_MAX], count[PLEC_UNIT_TEXT_MAX];
    plec_cli_put(stdout, path);
    printf(": TEZW v2, %s, %s weights of f64\n", plec_size_text(size, file->size),
           plec_count_text(count, plec_tezw_n_weights(file)));
    for (unsigned i = 0; i < N_FIELDS; i++)
        printf("  %-10s %u\n", fields[i].name, field(file, i));
    printf(
        "%u dense layers of one expert: %u -> %u -> %u, gate and value %u x %u, output %u x %u\n",
        file->n_layer, file->dim, file->ffn_dim, file->dim, file->ffn_dim, file->dim, file->dim,
        file->ffn_dim);
    if (entries) each_tensor(file, print_tensor, NULL);
}

int plec_inspect_tezw(const char *path, const struct plec_inspect_options *options) {
    struct plec_mapping mapping;
    struct plec_tezw file;
    struct plec_error err;
    if (plec_mapping_open(&mapping, path, &err) != PLEC_OK) return plec_cli_error(&err);
    int leave = PLEC_EXIT_OK;
    if (plec_tezw_parse(&file, mapping.data, mapping.size, &err) != PLEC_OK) {
        plec_error_context(&err, "%s", path);
        leave = plec_cli_error(&err);
    } else if (options->json) {
        if (!print_json(&file, options->entries)) leave = PLEC_EXIT_MACHINE;
    } else {
        print_text(path, &file, options->entries);
    }
    plec_mapping_close(&mapping);
    return leave;
}
