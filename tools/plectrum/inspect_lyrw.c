/* inspect_lyrw.c: what one LYRW file holds, for a person or as JSON. */
#include <stdio.h>
#include <string.h>

#include "lyrw/mapping.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/inspect.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/progress.h"
#include "tools/plectrum/region_list.h"
#include "tools/plectrum/survey.h"
#include "tools/plectrum/units.h"
#include "tools/plectrum/unknown.h"

struct view {
    const char *path;
    const struct plec_inspect_options *options;
    const struct plec_segment *segment;
    struct plec_survey survey;
    struct plec_json_stream json;
    struct plec_progress progress;
};

static json_t *header_json(const struct plec_lyrw_header *h) {
    return json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:b, s:I}", "format_version", (json_int_t)h->format_version,
        "logical_layer", (json_int_t)h->logical_layer, "num_banks", (json_int_t)h->num_banks,
        "num_segments", (json_int_t)h->num_segments, "flags", (json_int_t)h->flags, "multi_segment",
        (int)(h->flags & PLEC_LYRW_FLAG_MULTI_SEGMENT), "reserved", (json_int_t)h->reserved);
}

static json_t *bank_json(const struct plec_lyrw_bank *bank, uint32_t ordinal) {
    char kind[PLEC_NAME_MAX];
    return json_pack(
        "{s:I, s:I, s:s, s:I, s:s, s:I, s:I, s:I, s:I, s:I}", "ordinal", (json_int_t)ordinal, "id",
        (json_int_t)bank->id, "kind", plec_bank_kind_name(bank->kind, kind), "schemas",
        (json_int_t)bank->n_schemas, "browse", plec_browse_name(bank->flags), "flags",
        (json_int_t)bank->flags, "num_entries", (json_int_t)bank->num_entries, "input_dim",
        (json_int_t)bank->input_dim, "intermediate_dim", (json_int_t)bank->intermediate_dim,
        "output_dim", (json_int_t)bank->output_dim);
}

static json_t *schema_json(const struct plec_lyrw_schema *schema, uint32_t bank_ordinal) {
    char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX], packing[PLEC_NAME_MAX], layout[PLEC_NAME_MAX];
    uint64_t bytes;
    json_t *pair_id =
        schema->pair_id == PLEC_LYRW_UNPAIRED ? json_null() : json_integer(schema->pair_id);
    json_t *defined = plec_lyrw_schema_bytes(&bytes, schema) && bytes <= INT64_MAX
                          ? json_integer((json_int_t)bytes)
                          : json_null();
    return json_pack("{s:I, s:I, s:s, s:s, s:s, s:o, s:s, s:I, s:I, s:o}", "bank_ordinal",
                     (json_int_t)bank_ordinal, "index", (json_int_t)schema->index, "role",
                     plec_role_name(schema->role, role), "format",
                     plec_format_name(schema->format, format), "packing",
                     plec_packing_name(schema->packing, packing), "pair_id", pair_id, "layout",
                     plec_layout_name(schema->layout, layout), "rows", (json_int_t)schema->rows,
                     "cols", (json_int_t)schema->cols, "defined_len", defined);
}

static json_t *segment_json(const struct plec_lyrw_segment *record, uint32_t ordinal) {
    return json_pack("{s:I, s:I, s:I, s:I, s:I}", "ordinal", (json_int_t)ordinal, "bank",
                     (json_int_t)record->bank_id, "index", (json_int_t)record->index, "first_entry",
                     (json_int_t)record->first_entry, "entry_count",
                     (json_int_t)record->entry_count);
}

static void unknown_json(void *user, const char *name) {
    plec_json_list_item(user, json_string(name));
}

static void list_regions(struct view *view, struct plec_json_stream *json) {
    struct plec_region_list list = {.segment = view->segment,
                                    .hash = view->options->hash,
                                    .json = json,
                                    .progress = &view->progress};
    plec_region_list_print(&list);
}

static bool print_json(struct view *view) {
    const struct plec_segment *s = view->segment;
    struct plec_json_stream *json = &view->json;
    json->out = stdout;
    plec_json_member(json, "kind", json_string("lyrw"));
    plec_json_member(json, "bytes", json_integer((json_int_t)s->size));
    plec_json_member(json, "header", header_json(&s->header));
    plec_json_member(json, "payload_start", json_integer((json_int_t)s->payload_start));
    plec_json_list_begin(json, "banks");
    for (uint32_t i = 0; i < s->header.num_banks; i++)
        plec_json_list_item(json, bank_json(&s->banks[i], i));
    plec_json_list_end(json);
    plec_json_list_begin(json, "schemas");
    for (uint32_t i = 0; i < s->header.num_banks; i++)
        for (uint32_t j = 0; j < s->banks[i].n_schemas; j++)
            plec_json_list_item(json, schema_json(&s->schemas[s->banks[i].first_schema + j], i));
    plec_json_list_end(json);
    plec_json_list_begin(json, "segments");
    for (uint32_t i = 0; i < s->header.num_segments; i++)
        plec_json_list_item(json, segment_json(&s->segments[i], i));
    plec_json_list_end(json);
    plec_json_list_begin(json, "regions");
    if (view->options->entries) list_regions(view, json);
    plec_json_list_end(json);
    plec_json_list_begin(json, "unknown");
    struct plec_unknown_tags tags = {0};
    plec_unknown_tags(&tags, s, unknown_json, json);
    plec_json_list_end(json);
    return plec_json_end(json);
}

static void print_bank(const struct plec_segment *s, uint32_t ordinal) {
    const struct plec_lyrw_bank *bank = &s->banks[ordinal];
    char a[PLEC_NAME_MAX], b[PLEC_NAME_MAX], c[PLEC_NAME_MAX], d[PLEC_NAME_MAX];
    char size[PLEC_UNIT_TEXT_MAX], shape[32], pair[16];
    printf("bank %u  %s, %u entries, %u -> %u -> %u, browse %s", bank->id,
           plec_bank_kind_name(bank->kind, a), bank->num_entries, bank->input_dim,
           bank->intermediate_dim, bank->output_dim, plec_browse_name(bank->flags));
    if (bank->flags > 3) printf(", flags 0x%04x", bank->flags);
    printf("\n");
    for (uint32_t i = 0; i < bank->n_schemas; i++) {
        const struct plec_lyrw_schema *schema = &s->schemas[bank->first_schema + i];
        uint64_t bytes;
        bool defined = plec_lyrw_schema_bytes(&bytes, schema);
        snprintf(shape, sizeof shape, "%u x %u", schema->rows, schema->cols);
        snprintf(pair, sizeof pair, "pair %u", schema->pair_id);
        printf("  %3u  %-18s %-10s %-26s %-9s %-18s %-16s %s\n", i, plec_role_name(schema->role, a),
               plec_format_name(schema->format, b), plec_packing_name(schema->packing, c),
               schema->pair_id == PLEC_LYRW_UNPAIRED ? "-" : pair,
               schema->layout == 0 ? "-" : plec_layout_name(schema->layout, d), shape,
               defined ? plec_size_text(size, bytes) : "size unknown");
    }
}

static void print_unknown(void *user, const char *name) {
    bool *first = user;
    printf("%s%s", *first ? "unknown  " : ", ", name);
    *first = false;
}

static void print_text(struct view *view) {
    const struct plec_segment *s = view->segment;
    char a[PLEC_UNIT_TEXT_MAX], b[PLEC_UNIT_TEXT_MAX];
    plec_cli_put(stdout, view->path);
    printf(": LYRW v%u, layer %u, %s, payload from byte %llu\n", s->header.format_version,
           s->header.logical_layer, plec_size_text(a, s->size),
           (unsigned long long)s->payload_start);
    if (s->header.flags != 0 || s->header.reserved != 0)
        printf("flags 0x%08x%s, reserved 0x%08x\n", s->header.flags,
               s->header.flags & PLEC_LYRW_FLAG_MULTI_SEGMENT ? " (one of several files)" : "",
               s->header.reserved);
    for (uint32_t i = 0; i < s->header.num_banks; i++)
        print_bank(s, i);
    for (uint32_t i = 0; i < s->header.num_segments; i++) {
        const struct plec_lyrw_segment *record = &s->segments[i];
        printf("segment %u of bank %u  entries [%u, %llu), table at byte %llu\n", record->index,
               record->bank_id, record->first_entry,
               (unsigned long long)record->first_entry + record->entry_count,
               (unsigned long long)record->entry_table);
    }
    printf("regions  %s, %s\n", plec_count_text(a, view->survey.n_slots),
           plec_size_text(b, view->survey.region_bytes));
    bool first = true;
    struct plec_unknown_tags tags = {0};
    plec_unknown_tags(&tags, s, print_unknown, &first);
    if (!first) printf("\n");
    if (!view->options->entries) return;
    printf("\n");
    list_regions(view, NULL);
}

/* Says what is not as it should be; returns the exit status. */
static int judge(const struct view *view) {
    const struct plec_survey *survey = &view->survey;
    const struct plec_segment *s = view->segment;
    int status = plec_survey_judge(view->path, survey);
    if (survey->n_unseen > 0)
        plec_cli_say("%s: remark: %llu regions after the first %d were not looked at", view->path,
                     (unsigned long long)survey->n_unseen, PLEC_SURVEY_MAX);
    if (survey->n_missing == 0 && survey->n_unseen == 0 && s->size > survey->end)
        plec_cli_say("%s: remark: %llu bytes after the last region", view->path,
                     (unsigned long long)(s->size - survey->end));
    return status;
}

static int show(struct view *view) {
    struct plec_error err;
    if (plec_survey_make(&view->survey, view->segment, &err) != PLEC_OK) {
        plec_error_context(&err, "%s", view->path);
        return plec_cli_error(&err);
    }
    view->progress = plec_progress_start("hashing", view->survey.region_bytes, PLEC_PROGRESS_BYTES);
    bool written = true;
    if (view->options->json)
        written = print_json(view);
    else
        print_text(view);
    plec_progress_end(&view->progress);
    if (!written) {
        plec_cli_say("cannot write the output");
        return PLEC_EXIT_MACHINE;
    }
    return judge(view);
}

int plec_inspect_lyrw(const char *path, const struct plec_inspect_options *options) {
    struct plec_mapping mapping;
    struct plec_segment segment = {0};
    struct plec_error err;
    enum plec_status status = plec_mapping_open(&mapping, path, &err);
    if (status != PLEC_OK) return plec_cli_error(&err);
    int leave;
    status = plec_segment_parse(&segment, mapping.data, mapping.size, &err);
    if (status != PLEC_OK) {
        plec_error_context(&err, "%s", path);
        leave = plec_cli_error(&err);
    } else {
        struct view view = {.path = path, .options = options, .segment = &segment};
        leave = show(&view);
    }
    plec_segment_close(&segment);
    plec_mapping_close(&mapping);
    return leave;
}
