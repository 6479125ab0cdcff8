/* The modes head and meta: the fixed numbers of a header, what the keys say the model is, and every
 * key in file order. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"

/* What a model is, out of keys named after its architecture. */
static const struct {
    const char *suffix, *text, *member;
} facts[] = {
    {"block_count", "blocks in the stack", "blocks"},
    {"embedding_length", "embedding width", "embedding_width"},
    {"attention.head_count", "attention heads", "attention_heads"},
    {"attention.head_count_kv", "key and value heads", "kv_heads"},
    {"feed_forward_length", "feed-forward width", "feed_forward_width"},
    {"expert_count", "experts", "experts"},
    {"expert_used_count", "experts used", "experts_used"},
    {"expert_feed_forward_length", "expert width", "expert_width"},
    {"context_length", "trained context", "trained_context"},
};
enum { N_FACTS = sizeof facts / sizeof facts[0] };

static uint64_t array_count(const struct plec_sheet *sheet, const char *name) {
    const struct plec_sheet_key *key = plec_sheet_find(sheet, name);
    return key != NULL && key->type == PLEC_GGUF_ARRAY ? key->count : 0;
}

/* Width of one attention head, where it comes out whole. */
static uint64_t head_width(const struct plec_sheet *sheet) {
    uint64_t width = 0, heads = 0;
    if (!plec_sheet_u64(&width, plec_sheet_find_arch(sheet, "embedding_length")) ||
        !plec_sheet_u64(&heads, plec_sheet_find_arch(sheet, "attention.head_count")))
        return 0;
    return heads > 0 && width % heads == 0 ? width / heads : 0;
}

/* -- head ------------------------------------------------------------------------------------ */

static void print_line(const char *name, uint64_t value) {
    printf("  %-24s %llu\n", name, (unsigned long long)value);
}

static void print_file(const struct plec_sheet *sheet, uint32_t i) {
    const struct plec_sheet_file *file = &sheet->files[i];
    if (sheet->n_files > 1) {
        printf("file %u of %u%s\n", i + 1, sheet->n_files, file->present ? "" : ": not there");
        if (!file->present) return;
    }
    printf("the fixed numbers\n  %-24s GGUF\n", "magic");
    print_line("version", file->version);
    print_line("tensors", file->n_tensors);
    print_line("metadata entries", file->n_keys);
    print_line("bytes", file->n_bytes);
    printf("where the header stops\n  %-24s %llu, %s\n", "alignment",
           (unsigned long long)file->alignment,
           file->alignment_stated ? "out of the metadata" : "the default: the file states none");
    if (file->infos_at > 0) print_line("metadata ends at", file->infos_at);
    if (file->infos_end == 0) {
        printf("  the file ends before its header does\n");
        return;
    }
    print_line("last info record ends at", file->infos_end);
    print_line("padding", file->data_at - file->infos_end);
    print_line("tensor data starts at", file->data_at);
}

static void print_model(const struct plec_sheet *sheet) {
    struct plec_view arch = plec_sheet_string(plec_sheet_find(sheet, "general.architecture"));
    struct plec_view name = plec_sheet_string(plec_sheet_find(sheet, "general.name"));
    uint64_t value;
    printf("what the metadata says the model is\n  %-24s ", "architecture");
    plec_put_view(stdout, arch);
    printf("\n  %-24s ", "name");
    plec_put_view(stdout, name);
    printf("\n");
    for (unsigned i = 0; i < N_FACTS; i++)
        if (plec_sheet_u64(&value, plec_sheet_find_arch(sheet, facts[i].suffix)))
            print_line(facts[i].text, value);
    uint64_t tokens = array_count(sheet, "tokenizer.ggml.tokens");
    if (tokens > 0) printf("  %-24s %llu tokens\n", "vocabulary", (unsigned long long)tokens);
    uint64_t merges = array_count(sheet, "tokenizer.ggml.merges");
    if (merges > 0) print_line("merges", merges);
    if (plec_sheet_u64(&value, plec_sheet_find(sheet, "general.file_type")))
        printf("  %-24s %llu (%s)\n", "file type", (unsigned long long)value,
               plec_gguf_file_type_name(value) != NULL ? plec_gguf_file_type_name(value)
                                                       : "unknown");
    if (head_width(sheet) > 0) print_line("width of one head", head_width(sheet));
}

static json_t *file_json(const struct plec_sheet_file *file) {
    return json_pack(
        "{s:b, s:I, s:o, s:I, s:I, s:o, s:b, s:o, s:o, s:o, s:o}", "present", file->present,
        "version", (json_int_t)file->version, "bytes", plec_json_of_u64(file->n_bytes), "tensors",
        (json_int_t)file->n_tensors, "keys", (json_int_t)file->n_keys, "alignment",
        plec_json_of_u64(file->alignment), "alignment_stated", file->alignment_stated, "keys_end",
        plec_json_of_u64(file->infos_at), "infos_end", plec_json_of_u64(file->infos_end), "padding",
        plec_json_of_u64(file->data_at - file->infos_end), "data_start",
        plec_json_of_u64(file->data_at));
}

static json_t *model_json(const struct plec_sheet *sheet) {
    json_t *model = json_object();
    uint64_t value;
    json_object_set_new(
        model, "architecture",
        plec_json_of_view(plec_sheet_string(plec_sheet_find(sheet, "general.architecture"))));
    json_object_set_new(
        model, "name",
        plec_json_of_view(plec_sheet_string(plec_sheet_find(sheet, "general.name"))));
    for (unsigned i = 0; i < N_FACTS; i++) {
        bool found = plec_sheet_u64(&value, plec_sheet_find_arch(sheet, facts[i].suffix));
        json_object_set_new(model, facts[i].member, found ? plec_json_of_u64(value) : json_null());
    }
    json_object_set_new(model, "tokens",
                        plec_json_of_u64(array_count(sheet, "tokenizer.ggml.tokens")));
    json_object_set_new(model, "merges",
                        plec_json_of_u64(array_count(sheet, "tokenizer.ggml.merges")));
    bool typed = plec_sheet_u64(&value, plec_sheet_find(sheet, "general.file_type"));
    json_object_set_new(model, "file_type", typed ? plec_json_of_u64(value) : json_null());
    json_object_set_new(model, "head_width", plec_json_of_u64(head_width(sheet)));
    return model;
}

static bool head_json(const struct plec_sheet *sheet) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "mode", json_string("head"));
    plec_json_member(&json, "model", model_json(sheet));
    plec_json_list_begin(&json, "files");
    for (uint32_t i = 0; i < sheet->n_files; i++)
        plec_json_list_item(&json, file_json(&sheet->files[i]));
    plec_json_list_end(&json);
    return plec_json_end(&json);
}

int plec_gguf_head(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_sheet sheet;
    struct plec_error err;
    if (plec_sheet_open(&sheet, operands[0], &err) != PLEC_OK) return plec_cli_error(&err);
    bool written = true;
    if (options->json) {
        written = head_json(&sheet);
    } else {
        print_model(&sheet);
        for (uint32_t i = 0; i < sheet.n_files; i++)
            print_file(&sheet, i);
    }
    int leave = written ? plec_sheet_judge(&sheet) : PLEC_EXIT_MACHINE;
    plec_sheet_close(&sheet);
    return leave;
}

/* -- meta ------------------------------------------------------------------------------------ */

static void print_keys(const struct plec_sheet *sheet, const struct plec_sheet_file *file) {
    printf("%5s  %-44s %-7s %s\n", "n", "key", "type", "value");
    for (uint32_t i = 0; i < file->n_keys; i++) {
        const struct plec_sheet_key *key = &sheet->keys[file->first_key + i];
        char name[PLEC_VIEW_TEXT_MAX];
        printf("%5u  %-44s %-7s ", i, plec_view_text(key->name, name),
               plec_gguf_value_type_name(key->type));
        plec_sheet_put_value(stdout, key);
        printf("\n");
    }
}

/* The value as a person reads it: JSON has no way to hold every float and string of a file. */
static json_t *value_json(const struct plec_sheet_key *key) {
    char *text = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&text, &n);
    if (stream == NULL) return NULL;
    plec_sheet_put_value(stream, key);
    json_t *json = fclose(stream) == 0 ? json_stringn(text, n) : NULL;
    free(text);
    return json;
}

static bool meta_json(const struct plec_sheet *sheet) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "mode", json_string("meta"));
    plec_json_list_begin(&json, "keys");
    for (uint32_t i = 0; i < sheet->n_files; i++)
        for (uint32_t k = 0; k < sheet->files[i].n_keys; k++) {
            const struct plec_sheet_key *key = &sheet->keys[sheet->files[i].first_key + k];
            plec_json_list_item(
                &json, json_pack("{s:I, s:I, s:o, s:s, s:s, s:o, s:o}", "file", (json_int_t)i, "n",
                                 (json_int_t)k, "key", plec_json_of_view(key->name), "type",
                                 plec_gguf_value_type_name(key->type), "element_type",
                                 plec_gguf_value_type_name(key->element_type), "count",
                                 plec_json_of_u64(key->count), "value", value_json(key)));
        }
    plec_json_list_end(&json);
    return plec_json_end(&json);
}

int plec_gguf_meta(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_sheet sheet;
    struct plec_error err;
    if (plec_sheet_open(&sheet, operands[0], &err) != PLEC_OK) return plec_cli_error(&err);
    bool written = true;
    if (options->json)
        written = meta_json(&sheet);
    else
        for (uint32_t i = 0; i < sheet.n_files; i++) {
            if (sheet.n_files > 1) printf("file %u of %u\n", i + 1, sheet.n_files);
            print_keys(&sheet, &sheet.files[i]);
        }
    int leave = written ? plec_sheet_judge(&sheet) : PLEC_EXIT_MACHINE;
    plec_sheet_close(&sheet);
    return leave;
}
