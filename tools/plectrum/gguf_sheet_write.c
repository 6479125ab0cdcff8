/* The dump of a header: one JSON object, a record a line, no byte that depends on where it came
 * from. plec_sheet_read takes it back. */
#include <math.h>

#include "lyrw/cursor.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"

/* Text that is no UTF-8 goes as hexadecimal digits, under a member of its own. */
static void put_text(FILE *stream, const char *member, struct plec_view text) {
    if (plec_view_is_utf8(text)) {
        fprintf(stream, "\"%s\": ", member);
        plec_put_json_string(stream, text);
        return;
    }
    fprintf(stream, "\"%s_hex\": \"", member);
    for (uint64_t i = 0; i < text.size; i++)
        fprintf(stream, "%02x", (unsigned)(unsigned char)text.data[i]);
    fputc('"', stream);
}

/* An unsigned number; digits in a string above the 63 bits that JSON readers hold. */
static void put_u64(FILE *stream, const char *before, uint64_t value) {
    const char *quote = value > INT64_MAX ? "\"" : "";
    fprintf(stream, "%s%s%llu%s", before, quote, (unsigned long long)value, quote);
}

/* A number, or a string of digits where a number would not come back: reals that are not finite go
 * as their bits, integers beyond 63 bits as they are. */
static void put_scalar(FILE *stream, const struct plec_sheet_key *key) {
    struct plec_cursor cursor = plec_cursor_at(key->value, key->value_bytes, 0);
    if (key->type == PLEC_GGUF_F32 && !isfinite(plec_cursor_f32(&cursor))) {
        fprintf(stream, "\"0x%08x\"", plec_load_u32(key->value));
        return;
    }
    if (key->type == PLEC_GGUF_F64 && !isfinite(plec_cursor_f64(&cursor))) {
        fprintf(stream, "\"0x%016llx\"", (unsigned long long)plec_load_u64(key->value));
        return;
    }
    if (key->type == PLEC_GGUF_U64)
        put_u64(stream, "", plec_load_u64(key->value));
    else
        plec_sheet_put_scalar(stream, key->type, key->value);
}

static void put_key(FILE *stream, const struct plec_sheet_key *key) {
    fputs("        {", stream);
    put_text(stream, "name", key->name);
    fprintf(stream, ", \"type\": \"%s\", \"bytes\": %llu, ", plec_gguf_value_type_name(key->type),
            (unsigned long long)key->record_bytes);
    if (key->type == PLEC_GGUF_ARRAY)
        fprintf(stream, "\"element_type\": \"%s\", \"count\": %llu",
                plec_gguf_value_type_name(key->element_type), (unsigned long long)key->count);
    else if (key->type == PLEC_GGUF_STRING)
        put_text(stream, "value", plec_sheet_string(key));
    else {
        fputs("\"value\": ", stream);
        put_scalar(stream, key);
    }
    fputc('}', stream);
}

static void put_tensor(FILE *stream, const struct plec_sheet_tensor *tensor) {
    const struct plec_gguf_type *type = plec_gguf_type_find(tensor->type);
    fputs("        {", stream);
    put_text(stream, "name", tensor->name);
    fputs(", \"dims\": [", stream);
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        fprintf(stream, "%s%llu", i > 0 ? ", " : "", (unsigned long long)tensor->ne[i]);
    if (type != NULL && !type->removed)
        fprintf(stream, "], \"type\": \"%s\"", type->name);
    else
        fprintf(stream, "], \"type\": %u", tensor->type);
    put_u64(stream, ", \"offset\": ", tensor->offset);
    put_u64(stream, ", \"bytes\": ", tensor->n_bytes);
    fputc('}', stream);
}

static void put_file(FILE *stream, const struct plec_sheet *sheet,
                     const struct plec_sheet_file *file) {
    fprintf(stream,
            "    {\n      \"version\": %u,\n      \"bytes\": %llu,\n      \"alignment\": %llu,\n"
            "      \"alignment_stated\": %s,\n      \"keys_end\": %llu,\n"
            "      \"infos_end\": %llu,\n      \"data_start\": %llu,\n      \"keys\": [",
            file->version, (unsigned long long)file->n_bytes, (unsigned long long)file->alignment,
            file->alignment_stated ? "true" : "false", (unsigned long long)file->infos_at,
            (unsigned long long)file->infos_end, (unsigned long long)file->data_at);
    for (uint32_t i = 0; i < file->n_keys; i++) {
        fputs(i > 0 ? ",\n" : "\n", stream);
        put_key(stream, &sheet->keys[file->first_key + i]);
    }
    fputs("\n      ],\n      \"tensors\": [", stream);
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        fputs(i > 0 ? ",\n" : "\n", stream);
        put_tensor(stream, &sheet->tensors[file->first_tensor + i]);
    }
    fputs("\n      ]\n    }", stream);
}

void plec_sheet_write(FILE *stream, const struct plec_sheet *sheet) {
    fputs("{\n  \"kind\": \"gguf-header\",\n  \"schema\": 1,\n  \"files\": [", stream);
    for (uint32_t i = 0; i < sheet->n_files; i++) {
        fputs(i > 0 ? ",\n" : "\n", stream);
        put_file(stream, sheet, &sheet->files[i]);
    }
    fputs("\n  ]\n}\n", stream);
}
