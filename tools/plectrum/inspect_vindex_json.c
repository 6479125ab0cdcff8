/* inspect_vindex_json.c: what a VINDEX3 container holds, as one JSON object. */
#include "tools/plectrum/cli.h"
#include "tools/plectrum/inspect_vindex.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/region_list.h"

static json_t *index_json(const struct plec_index *index) {
    return json_pack("{s:I, s:s, s:s, s:I, s:I, s:s, s:s, s:s?}", "version",
                     (json_int_t)index->version, "model", index->model, "family", index->family,
                     "hidden_size", (json_int_t)index->hidden_size, "num_layers",
                     (json_int_t)index->num_layers, "moe_manifest", index->moe_manifest,
                     "authority", index->derived ? "derived" : "canonical", "derived_from_model",
                     index->derived_from_model);
}

static json_t *router_json(const struct plec_moe_router *router) {
    json_t *scale = router->has_route_scale ? json_real(router->route_scale) : json_null();
    return json_pack(
        "{s:s, s:s, s:s, s:I, s:I, s:I, s:b, s:b, s:b, s:s?, s:o, s:b, s:b}", "scores",
        router->scores, "activation", router->sigmoid ? "sigmoid" : "softmax", "selection",
        router->selection == PLEC_TOP_K ? "top_k" : "grouped_top_k", "k", (json_int_t)router->k,
        "groups", (json_int_t)(router->selection == PLEC_TOP_K ? 1 : router->groups),
        "experts_per_token", (json_int_t)plec_moe_experts_per_token(router), "renormalise",
        router->renormalise, "norm_after_top_k", router->norm_after_top_k, "quantile_balanced",
        router->quantile_balanced, "gate_bias", router->gate_bias, "route_scale", scale,
        "shared_expert_sink", router->shared_expert_sink, "plectrum", router->extra.given);
}

static json_t *schemas_json(const struct plec_bank_view *bank) {
    json_t *list = json_array();
    char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX], packing[PLEC_NAME_MAX], layout[PLEC_NAME_MAX];
    for (uint32_t i = 0; bank->bank != NULL && i < bank->bank->n_schemas; i++) {
        const struct plec_lyrw_schema *schema = &bank->schemas[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "role",
                                              plec_role_name(schema->role, role), "format",
                                              plec_format_name(schema->format, format), "packing",
                                              plec_packing_name(schema->packing, packing), "layout",
                                              plec_layout_name(schema->layout, layout), "rows",
                                              (json_int_t)schema->rows, "cols",
                                              (json_int_t)schema->cols));
    }
    return list;
}

/* A bank of a layer: what the manifest declares, then what its files hold. */
static json_t *bank_json(struct plec_vindex_view *view, const struct plec_moe_bank *bank,
                         const struct plec_moe_expert *expert, enum plec_bank_kind kind) {
    if (!bank->present) return json_null();
    struct plec_bank_view found;
    plec_vindex_view_bank(&found, view, bank->storage, kind);
    json_t *dims = json_null();
    if (bank->has_dims)
        dims = json_pack("{s:I, s:I, s:I}", "input", (json_int_t)bank->input, "intermediate",
                         (json_int_t)bank->intermediate, "output", (json_int_t)bank->output);
    return json_pack("{s:I, s:s?, s:s?, s:s, s:o, s:I, s:I, s:I, s:I, s:o}", "experts",
                     (json_int_t)bank->experts, "programme", bank->programme, "activation",
                     expert->activation, "storage", bank->storage, "expert_dims", dims, "files",
                     (json_int_t)found.n_files, "bytes", (json_int_t)found.bytes, "regions",
                     (json_int_t)found.n_regions, "missing", (json_int_t)found.n_missing, "schemas",
                     schemas_json(&found));
}

static json_t *layer_json(struct plec_vindex_view *view, const struct plec_moe_layer *layer) {
    json_t *transforms = json_null();
    if (layer->routed_input != NULL && layer->routed_output != NULL)
        transforms = json_pack("{s:s, s:s}", "routed_input", layer->routed_input, "routed_output",
                               layer->routed_output);
    return json_pack("{s:I, s:s, s:o, s:o, s:o, s:o, s:s?, s:s?}", "layer",
                     (json_int_t)layer->layer, "input_space",
                     layer->input_space == PLEC_SPACE_LATENT ? "latent" : "residual", "router",
                     router_json(&layer->router), "transforms", transforms, "routed",
                     bank_json(view, &layer->routed, &layer->expert, PLEC_BANK_ROUTED), "shared",
                     bank_json(view, &layer->shared, &layer->shared_expert, PLEC_BANK_SHARED),
                     "routed_output_norm", layer->routed_output_norm, "control", layer->control);
}

static json_t *dense_json(struct plec_vindex_view *view, const struct plec_moe_dense *dense) {
    struct plec_moe_bank bank = {.present = true, .experts = 1, .storage = dense->storage};
    return json_pack("{s:I, s:o}", "layer", (json_int_t)dense->layer, "bank",
                     bank_json(view, &bank, &dense->expert, PLEC_BANK_DENSE));
}

static json_t *profile_json(struct plec_vindex_view *view,
                            const struct plec_index_profile *declared) {
    struct plec_resolved_profile profile = {0};
    if (plec_profile_resolve(&profile, &view->vindex.index, declared->name, NULL) != PLEC_OK)
        return NULL;
    json_t *selections = json_array();
    for (size_t i = 0; i < profile.n_selections; i++) {
        const struct plec_resolved_selection *selection = &profile.selections[i];
        json_array_append_new(
            selections,
            json_pack("{s:s, s:s, s:s, s:s, s:b}", "region_set", selection->region_set, "variant",
                      selection->variant, "storage", selection->storage, "fidelity",
                      plec_fidelity_name(selection->fidelity), "chosen", selection->chosen));
    }
    json_t *json = json_pack("{s:s, s:s, s:o}", "name", declared->name, "authority",
                             plec_fidelity_name(plec_vindex_view_authority(view, &profile)),
                             "selections", selections);
    plec_profile_close(&profile);
    return json;
}

static json_t *region_set_json(const struct plec_index_region_set *set) {
    json_t *variants = json_array();
    for (size_t i = 0; i < set->n_variants; i++)
        json_array_append_new(variants, json_pack("{s:s, s:s, s:s}", "name", set->variants[i].name,
                                                  "storage", set->variants[i].storage, "fidelity",
                                                  plec_fidelity_name(set->variants[i].fidelity)));
    return json_pack("{s:s, s:s, s:o}", "region_set", set->name, "baseline", set->baseline,
                     "variants", variants);
}

static json_t *file_json(const struct plec_vindex_view *view, size_t i) {
    const struct plec_file_view *file = &view->files[i];
    uint32_t extent = plec_index_extent(&view->vindex.index, file->key);
    json_t *error = file->segment == NULL ? json_string(file->error.message) : json_null();
    return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:o, s:o}", "key", file->key, "count",
                     (json_int_t)view->vindex.index.segments[i].count, "bytes",
                     (json_int_t)(file->segment != NULL ? file->segment->size : 0), "regions",
                     (json_int_t)file->survey.n_slots, "missing",
                     (json_int_t)file->survey.n_missing, "overlaps",
                     (json_int_t)file->survey.n_overlaps, "extent",
                     extent != 0 ? json_integer(extent) : json_null(), "error", error);
}

static void list_regions(struct plec_json_stream *json, const struct plec_vindex_view *view,
                         bool hash, struct plec_progress *progress) {
    struct plec_region_list list = {.hash = hash, .json = json, .progress = progress};
    for (size_t i = 0; i < view->vindex.index.n_segments; i++) {
        if (view->files[i].segment == NULL) continue;
        list.segment = view->files[i].segment;
        list.key = view->files[i].key;
        plec_region_list_print(&list);
    }
}

static void tell_unknown(void *user, const char *name) {
    plec_json_list_item(user, json_string(name));
}

static void list_layers(struct plec_json_stream *json, struct plec_vindex_view *view) {
    const struct plec_moe *moe = &view->vindex.moe;
    plec_json_list_begin(json, "layers");
    for (size_t i = 0; i < moe->n_layers; i++)
        plec_json_list_item(json, layer_json(view, &moe->layers[i]));
    plec_json_list_end(json);
    plec_json_list_begin(json, "dense");
    for (size_t i = 0; i < moe->n_dense; i++)
        plec_json_list_item(json, dense_json(view, &moe->dense[i]));
    plec_json_list_end(json);
}

static void list_index(struct plec_json_stream *json, struct plec_vindex_view *view) {
    const struct plec_index *index = &view->vindex.index;
    plec_json_list_begin(json, "profiles");
    for (size_t i = 0; i < index->n_profiles; i++)
        plec_json_list_item(json, profile_json(view, &index->profiles[i]));
    plec_json_list_end(json);
    plec_json_list_begin(json, "variants");
    for (size_t i = 0; i < index->n_region_sets; i++)
        plec_json_list_item(json, region_set_json(&index->region_sets[i]));
    plec_json_list_end(json);
    plec_json_list_begin(json, "segments");
    for (size_t i = 0; i < index->n_segments; i++)
        plec_json_list_item(json, file_json(view, i));
    plec_json_list_end(json);
}

bool plec_vindex_json(struct plec_vindex_view *view, const struct plec_inspect_options *options,
                      struct plec_progress *progress) {
    struct plec_json_stream stream = {.out = stdout}, *json = &stream;
    plec_json_member(json, "kind", json_string("vindex"));
    plec_json_member(json, "bytes", json_integer((json_int_t)plec_vindex_bytes(view)));
    plec_json_member(json, "index", index_json(&view->vindex.index));
    list_layers(json, view);
    list_index(json, view);
    plec_json_list_begin(json, "regions");
    if (options->entries) list_regions(json, view, options->hash, progress);
    plec_json_list_end(json);
    plec_json_list_begin(json, "unknown");
    plec_vindex_unknown_tags(view, tell_unknown, json);
    plec_json_list_end(json);
    plec_json_list_begin(json, "findings");
    for (size_t i = 0; i < view->findings.n_items; i++)
        plec_json_list_item(json, json_pack("{s:s, s:s}", "name", view->findings.items[i].name,
                                            "text", view->findings.items[i].text));
    plec_json_list_end(json);
    return plec_json_end(json);
}
