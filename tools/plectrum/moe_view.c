#include "tools/plectrum/moe_view.h"

#include <stdlib.h>
#include <string.h>

#include "host/gguf_view.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/units.h"

/* -- a layer in words ------------------------------------------------------------------------- */

static void put_type(FILE *out, int64_t type) {
    char text[PLEC_GGUF_TYPE_TEXT_MAX];
    fputs(type == PLEC_GGUF_MIXED_TYPES ? "several types"
          : type == PLEC_GGUF_NO_TYPE   ? "none"
                                        : plec_gguf_type_text((uint32_t)type, text),
          out);
}

static void put_types(FILE *out, enum plec_gguf_layout layout, struct plec_gguf_types types) {
    bool fused = layout == PLEC_GGUF_FUSED;
    if (types.gate != PLEC_GGUF_NO_TYPE || fused) {
        fputs(fused ? "gate and up " : "gate ", out);
        put_type(out, types.gate != PLEC_GGUF_NO_TYPE ? types.gate : types.up);
        fputs(", ", out);
    }
    if (!fused) {
        fputs("up ", out);
        put_type(out, types.up);
        fputs(", ", out);
    }
    fputs("down ", out);
    put_type(out, types.down);
}

static void put_shared(FILE *out, const struct plec_gguf_layer_view *view) {
    if (view->shared_inner == 0) return;
    fprintf(out, "; + shared, %llu wide%s, ", (unsigned long long)view->shared_inner,
            view->shared_gate ? ", gated" : "");
    put_types(out,
              view->shared_types.gate != PLEC_GGUF_NO_TYPE ? PLEC_GGUF_SEPARATE : PLEC_GGUF_NO_GATE,
              view->shared_types);
}

static void put_extras(FILE *out, const struct plec_gguf_layer_view *view) {
    if (view->expert_biases) fputs("; biases", out);
    if (view->expert_scales) fputs("; a factor for each expert", out);
    if (view->router_bias) fputs("; router bias", out);
    if (view->selection_bias) fputs("; selection bias", out);
    if (view->token_table) fputs("; ids by token id", out);
    if (view->latent > 0) fprintf(out, "; latent %llu", (unsigned long long)view->latent);
    const struct plec_arch *arch = view->values.arch;
    if (view->branch)
        fputs(arch != NULL && arch->parallel == PLEC_ARCH_PARALLEL
                  ? "; + a dense branch"
                  : "; a dense branch is there and NOT RUN",
              out);
    if (!view->dense && !view->router) fputs("; NO ROUTER", out);
}

/* A reason without what differs from layer to layer, so that equal ones read equal: the layer's
 * number, and the block's. */
static void put_reason(FILE *out, const struct plec_gguf_layer_view *view) {
    char block[24], layer[24];
    const char *text = view->why.message;
    snprintf(block, sizeof block, "blk.%u.", view->number);
    snprintf(layer, sizeof layer, "layer %u: ", view->number);
    if (strncmp(text, layer, strlen(layer)) == 0) text += strlen(layer);
    for (const char *at; (at = strstr(text, block)) != NULL; text = at + strlen(block)) {
        fwrite(text, 1, (size_t)(at - text), out);
        fputs("blk.N.", out);
    }
    fputs(text, out);
}

static void put_layer(FILE *out, const struct plec_gguf_layer_view *view) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    if (view->dense)
        fputs("dense", out);
    else
        fprintf(out, "%llu experts, top %llu", (unsigned long long)view->n_experts,
                (unsigned long long)view->top_k);
    uint64_t in = view->latent > 0 ? view->latent : view->hidden;
    fprintf(out, "; %llu -> %llu -> %llu, %s: ", (unsigned long long)in,
            (unsigned long long)view->inner, (unsigned long long)in,
            plec_gguf_layout_name(view->layout));
    put_types(out, view->layout, view->types);
    put_extras(out, view);
    put_shared(out, view);
    if (!view->dense) fprintf(out, "; %s an expert", plec_size_text(a, view->expert_bytes));
    fprintf(out, "; %s a layer; ", plec_size_text(b, view->layer_bytes));
    if (view->converts) {
        fputs("converts", out);
        return;
    }
    fputs("DOES NOT CONVERT: ", out);
    put_reason(out, view);
}

/* The values of the routing and the arithmetic, one a line, with their origins. */
static void put_values(FILE *out, const struct plec_gguf_layer_view *view) {
    struct plec_arch_line lines[PLEC_ARCH_LINES_MAX];
    size_t n = plec_arch_describe(lines, &view->values, !view->dense);
    for (size_t i = 0; i < n; i++) {
        const char *of = lines[i].origin == PLEC_ARCH_BY_DEFAULT && view->values.arch != NULL
                             ? view->values.arch->name
                             : "";
        fprintf(out, "  %-20s %-20s %s%s%s\n", lines[i].name, lines[i].text,
                plec_arch_origin_name(lines[i].origin), of[0] != '\0' ? " " : "", of);
    }
}

/* -- runs of equal layers --------------------------------------------------------------------- */

typedef void put_fn(FILE *out, const struct plec_gguf_layer_view *view);

static char *words_of(put_fn *put, const struct plec_gguf_layer_view *view) {
    char *text = NULL;
    size_t size = 0;
    FILE *out = open_memstream(&text, &size);
    if (out == NULL) return NULL;
    put(out, view);
    if (fclose(out) == 0) return text;
    free(text);
    return NULL;
}

static void print_run(FILE *out, const char *format, uint32_t first, uint32_t last,
                      const char *words) {
    char range[40];
    if (first == last)
        snprintf(range, sizeof range, "layer %u", first);
    else
        snprintf(range, sizeof range, "layers %u-%u", first, last);
    fprintf(out, format, range, words);
}

/* Every layer through `put`, neighbours with the same words under one range. */
static bool print_runs(FILE *out, struct plec_gguf_model *model, put_fn *put, const char *format,
                       struct plec_gguf_totals *totals) {
    char *words = NULL;
    uint32_t first = 0, last = 0;
    for (uint32_t i = 0; i < model->n_blocks; i++) {
        struct plec_gguf_layer_view view;
        plec_gguf_view_layer(&view, model, i);
        if (totals != NULL) plec_gguf_totals_add_layer(totals, &view);
        char *more = words_of(put, &view);
        if (more == NULL) break;
        if (words != NULL && strcmp(words, more) == 0 && view.number == last + 1) {
            last = view.number;
            free(more);
            continue;
        }
        if (words != NULL) print_run(out, format, first, last, words);
        free(words);
        words = more;
        first = last = view.number;
    }
    if (words != NULL) print_run(out, format, first, last, words);
    free(words);
    return words != NULL || model->n_blocks == 0;
}

/* -- the whole -------------------------------------------------------------------------------- */

static double bits(uint64_t n_bytes, uint64_t n_weights) {
    return n_weights == 0 ? 0 : (double)n_bytes * 8 / (double)n_weights;
}

static double percent(uint64_t part, uint64_t whole) {
    return whole == 0 ? 0 : 100.0 * (double)part / (double)whole;
}

static void print_totals(FILE *out, const struct plec_gguf_model *model,
                         const struct plec_gguf_totals *totals) {
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    uint32_t n = totals->n_moe + totals->n_dense;
    if (totals->n_moe > 0) {
        fprintf(out, "experts   %s of %s (%.1f%%), %.4g bits a weight; the rest %.4g\n",
                plec_size_text(a, totals->routed_bytes), plec_size_text(b, totals->n_bytes),
                percent(totals->routed_bytes, totals->n_bytes),
                bits(totals->routed_bytes, totals->routed_weights),
                bits(totals->n_bytes - totals->routed_bytes,
                     totals->n_weights - totals->routed_weights));
    }
    fprintf(out, "weights   %s in all, %s active a token\n", plec_count_text(a, totals->n_weights),
            plec_count_text(b, totals->n_active));
    fprintf(out, "touched   %s a token (%.1f%%)\n", plec_size_text(a, totals->touched_bytes),
            percent(totals->touched_bytes, totals->n_bytes));
    fprintf(out, "converts  %u of %u layers (%u with experts, %u dense)", totals->n_converting, n,
            totals->n_moe, totals->n_dense);
    if (model->first_head != UINT32_MAX)
        fprintf(out, "; prediction heads from block %u on are left out", model->first_head);
    fputs("\n", out);
}

bool plec_moe_view_print(FILE *out, const struct plec_gguf_set *set) {
    struct plec_gguf_model model;
    struct plec_gguf_totals totals = {0};
    if (plec_gguf_model_open(&model, set, NULL, NULL) != PLEC_OK) return false;
    bool good = true;
    if (model.n_blocks > 0) {
        fputs("layers\n", out);
        good = print_runs(out, &model, put_layer, "  %-13s %s\n", &totals) &&
               print_runs(out, &model, put_values, "values of %s\n%s", NULL);
        plec_gguf_totals_add_rest(&totals, &model);
        print_totals(out, &model, &totals);
    }
    plec_gguf_model_close(&model);
    return good;
}

/* -- JSON ------------------------------------------------------------------------------------- */

static json_t *type_json(int64_t type) {
    char text[PLEC_GGUF_TYPE_TEXT_MAX];
    if (type == PLEC_GGUF_NO_TYPE) return json_null();
    if (type == PLEC_GGUF_MIXED_TYPES) return json_string("mixed");
    return json_string(plec_gguf_type_text((uint32_t)type, text));
}

static json_t *types_json(struct plec_gguf_types types) {
    return json_pack("{s:o, s:o, s:o}", "gate", type_json(types.gate), "up", type_json(types.up),
                     "down", type_json(types.down));
}

static json_t *values_json(const struct plec_gguf_layer_view *view) {
    struct plec_arch_line lines[PLEC_ARCH_LINES_MAX];
    size_t n = plec_arch_describe(lines, &view->values, !view->dense);
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:s}", "name", lines[i].name, "value",
                                              lines[i].text, "origin",
                                              plec_arch_origin_name(lines[i].origin)));
    return list;
}

static json_t *layer_json(const struct plec_gguf_layer_view *view) {
    json_t *reason =
        view->converts ? json_null() : plec_json_of_view(plec_view_of(view->why.message));
    return json_pack(
        "{s:I, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:b, s:b, s:b, s:b, s:b, s:b, "
        "s:b, s:b, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:b, s:o}",
        "layer", (json_int_t)view->number, "dense", view->dense, "experts",
        plec_json_of_u64(view->n_experts), "top_k", plec_json_of_u64(view->top_k), "hidden",
        plec_json_of_u64(view->hidden), "inner", plec_json_of_u64(view->inner), "shared_inner",
        plec_json_of_u64(view->shared_inner), "latent", plec_json_of_u64(view->latent), "layout",
        plec_gguf_layout_name(view->layout), "types", types_json(view->types), "shared_types",
        types_json(view->shared_types), "router", view->router, "router_bias", view->router_bias,
        "selection_bias", view->selection_bias, "expert_biases", view->expert_biases,
        "expert_scales", view->expert_scales, "shared_gate", view->shared_gate, "token_table",
        view->token_table, "branch", view->branch, "expert_bytes",
        plec_json_of_u64(view->expert_bytes), "routed_bytes", plec_json_of_u64(view->routed_bytes),
        "layer_bytes", plec_json_of_u64(view->layer_bytes), "touched_bytes",
        plec_json_of_u64(view->touched_bytes), "weights", plec_json_of_u64(view->n_weights),
        "active_weights", plec_json_of_u64(view->n_active), "values", values_json(view), "converts",
        view->converts, "reason", reason != NULL ? reason : json_null());
}

static json_t *totals_json(const struct plec_gguf_model *model,
                           const struct plec_gguf_totals *totals) {
    return json_pack(
        "{s:I, s:I, s:I, s:o, s:o, s:o, s:f, s:o, s:o, s:f, s:o, s:o}", "moe_layers",
        (json_int_t)totals->n_moe, "dense_layers", (json_int_t)totals->n_dense, "converting_layers",
        (json_int_t)totals->n_converting, "heads_from_block",
        model->first_head != UINT32_MAX ? json_integer(model->first_head) : json_null(), "bytes",
        plec_json_of_u64(totals->n_bytes), "weights", plec_json_of_u64(totals->n_weights),
        "bits_per_weight", bits(totals->n_bytes, totals->n_weights), "routed_bytes",
        plec_json_of_u64(totals->routed_bytes), "routed_weights",
        plec_json_of_u64(totals->routed_weights), "routed_bits_per_weight",
        bits(totals->routed_bytes, totals->routed_weights), "touched_bytes",
        plec_json_of_u64(totals->touched_bytes), "active_weights",
        plec_json_of_u64(totals->n_active));
}

bool plec_moe_view_json(struct plec_json_stream *json, const struct plec_gguf_set *set) {
    struct plec_gguf_model model;
    struct plec_gguf_totals totals = {0};
    if (plec_gguf_model_open(&model, set, NULL, NULL) != PLEC_OK) return false;
    plec_json_list_begin(json, "layers");
    for (uint32_t i = 0; i < model.n_blocks; i++) {
        struct plec_gguf_layer_view view;
        plec_gguf_view_layer(&view, &model, i);
        plec_gguf_totals_add_layer(&totals, &view);
        plec_json_list_item(json, layer_json(&view));
    }
    plec_json_list_end(json);
    plec_gguf_totals_add_rest(&totals, &model);
    plec_json_member(json, "experts", totals_json(&model, &totals));
    plec_gguf_model_close(&model);
    return true;
}
