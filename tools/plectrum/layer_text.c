#include "tools/plectrum/layer_text.h"

#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/units.h"

static void put_router(FILE *out, const struct plec_moe_router *router) {
    const char *gating = router->sigmoid ? "sigmoid" : "softmax";
    if (router->extra.gating != NULL) gating = router->extra.gating;
    fprintf(out, "top %u of ", router->k);
    plec_cli_put(out, gating);
    if (router->selection == PLEC_GROUPED_TOP_K)
        fprintf(out, " in each of %u groups", router->groups);
    if (router->extra.has_groups)
        fprintf(out, ", %u of %u groups", router->extra.groups_used, router->extra.groups);
    bool normalise = router->extra.has_normalise ? router->extra.normalise : router->renormalise;
    if (normalise) fprintf(out, ", renormalised");
    if (router->gate_bias != NULL) fprintf(out, ", selection bias");
    if (router->extra.has_scale)
        fprintf(out, ", scale %g", router->extra.scale);
    else if (router->has_route_scale)
        fprintf(out, ", scale %g", router->route_scale);
    if (router->norm_after_top_k) fprintf(out, ", norm_after_top_k");
    if (router->quantile_balanced) fprintf(out, ", quantile_balanced");
    if (router->shared_expert_sink) fprintf(out, ", shared_expert_sink");
}

static void put_files(FILE *out, const struct plec_bank_view *bank) {
    char size[PLEC_UNIT_TEXT_MAX];
    if (bank->n_files == 0) {
        fprintf(out, "; no file");
        return;
    }
    if (bank->bank != NULL) {
        char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX];
        fprintf(out, "; %u -> %u -> %u;", bank->bank->input_dim, bank->bank->intermediate_dim,
                bank->bank->output_dim);
        for (uint32_t i = 0; i < bank->bank->n_schemas; i++)
            if (bank->schemas[i].packing != PLEC_PACKING_BLOCKS_SCALES)
                fprintf(out, " %s:%s", plec_role_name(bank->schemas[i].role, role),
                        plec_format_name(bank->schemas[i].format, format));
    }
    fprintf(out, "; %s", plec_size_text(size, bank->bytes));
    if (bank->n_files > 1) fprintf(out, " in %zu files", bank->n_files);
    if (bank->bank == NULL) fprintf(out, ", no bank of this kind");
    if (bank->n_missing > 0)
        fprintf(out, ", %llu regions MISSING", (unsigned long long)bank->n_missing);
}

static void put_activation(FILE *out, const struct plec_moe_expert *expert) {
    if (expert->activation == NULL) return;
    fprintf(out, " (");
    plec_cli_put(out, expert->activation);
    fprintf(out, ")");
}

static void put_bank(FILE *out, struct plec_vindex_view *view, const struct plec_moe_bank *bank,
                     const struct plec_moe_expert *expert, enum plec_bank_kind kind) {
    struct plec_bank_view found;
    plec_vindex_view_bank(&found, view, bank->storage, kind);
    plec_cli_put(out, bank->programme);
    put_activation(out, expert);
    put_files(out, &found);
}

void plec_layer_text(FILE *out, struct plec_vindex_view *view, const struct plec_moe_layer *layer) {
    fprintf(out, "%u routed, ", layer->routed.experts);
    put_router(out, &layer->router);
    fprintf(out, "; ");
    put_bank(out, view, &layer->routed, &layer->expert, PLEC_BANK_ROUTED);
    if (layer->input_space == PLEC_SPACE_LATENT)
        fprintf(out, "; latent%s", layer->routed_output_norm != NULL ? " with a norm" : "");
    if (layer->shared.present) {
        fprintf(out, "; + %u shared, ", layer->shared.experts);
        put_bank(out, view, &layer->shared, &layer->shared_expert, PLEC_BANK_SHARED);
    }
    fprintf(out, "; %s", layer->control != NULL ? "router inside" : "no router tensors");
}

void plec_dense_text(FILE *out, struct plec_vindex_view *view, const struct plec_moe_dense *dense) {
    struct plec_bank_view found;
    plec_vindex_view_bank(&found, view, dense->storage, PLEC_BANK_DENSE);
    fprintf(out, "dense");
    put_activation(out, &dense->expert);
    put_files(out, &found);
}

/* A layer's number, its words, and the storage that names its place. */
struct row {
    uint32_t layer;
    char *words;
    const char *storage;
};

static int by_layer(const void *a, const void *b) {
    const struct row *x = a, *y = b;
    return x->layer < y->layer ? -1 : x->layer > y->layer;
}

static char *words_of(struct plec_vindex_view *view, const struct plec_moe_layer *layer,
                      const struct plec_moe_dense *dense) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    if (layer != NULL)
        plec_layer_text(out, view, layer);
    else
        plec_dense_text(out, view, dense);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static void print_range(uint32_t first, uint32_t last) {
    char text[32];
    if (first == last)
        snprintf(text, sizeof text, "layer %u", first);
    else
        snprintf(text, sizeof text, "layers %u-%u", first, last);
    printf("%-13s ", text);
}

static void print_run(const struct row *first, const struct row *last) {
    print_range(first->layer, last->layer);
    fputs(first->words != NULL ? first->words : "(out of memory)", stdout);
    printf("; ");
    plec_cli_put(stdout, first->storage);
    if (first != last) {
        printf(" .. ");
        plec_cli_put(stdout, last->storage);
        printf(", each");
    }
    printf("\n");
}

static void print_gap(uint64_t first, uint64_t end) {
    if (first >= end) return;
    print_range((uint32_t)first, (uint32_t)(end - 1));
    printf("not in this container\n");
}

static bool same_words(const struct row *a, const struct row *b) {
    return a->words != NULL && b->words != NULL && strcmp(a->words, b->words) == 0;
}

static void print_rows(const struct row *rows, size_t n_rows, uint32_t num_layers) {
    uint64_t next = 0;
    for (size_t i = 0, run; i < n_rows; i += run) {
        print_gap(next, rows[i].layer);
        for (run = 1; i + run < n_rows; run++)
            if (rows[i + run].layer != rows[i + run - 1].layer + 1 ||
                !same_words(&rows[i], &rows[i + run]))
                break;
        print_run(&rows[i], &rows[i + run - 1]);
        next = (uint64_t)rows[i + run - 1].layer + 1;
    }
    print_gap(next, num_layers);
}

void plec_layer_lines(struct plec_vindex_view *view) {
    const struct plec_moe *moe = &view->vindex.moe;
    size_t n_rows = moe->n_layers + moe->n_dense;
    struct row *rows = calloc(n_rows + 1, sizeof *rows);
    if (rows == NULL) {
        plec_cli_say("out of memory: %zu layers", n_rows);
        return;
    }
    for (size_t i = 0; i < n_rows; i++) {
        const struct plec_moe_layer *layer = i < moe->n_layers ? &moe->layers[i] : NULL;
        const struct plec_moe_dense *dense = layer == NULL ? &moe->dense[i - moe->n_layers] : NULL;
        rows[i].layer = layer != NULL ? layer->layer : dense->layer;
        rows[i].storage = layer != NULL ? layer->routed.storage : dense->storage;
        rows[i].words = words_of(view, layer, dense);
    }
    qsort(rows, n_rows, sizeof *rows, by_layer);
    print_rows(rows, n_rows, view->vindex.index.num_layers);
    for (size_t i = 0; i < n_rows; i++)
        free(rows[i].words);
    free(rows);
}
