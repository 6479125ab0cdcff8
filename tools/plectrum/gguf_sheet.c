#include "tools/plectrum/gguf_sheet.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/say_findings.h"

enum { SHOWN_STRING_BYTES = 44 };

/* -- from a model ---------------------------------------------------------------------------- */

static struct plec_sheet_key key_of(const struct plec_gguf *file, const struct plec_gguf_key *key) {
    return (struct plec_sheet_key){
        .name = key->name,
        .type = key->type,
        .element_type = key->element_type,
        .count = key->count,
        .at = key->at,
        .record_bytes = key->value_at + key->n_bytes - key->at,
        .value = file->data + key->value_at,
        .value_bytes = key->n_bytes,
    };
}

static struct plec_sheet_tensor tensor_of(const struct plec_gguf_tensor *tensor) {
    struct plec_sheet_tensor out = {
        .name = tensor->name,
        .n_dims = tensor->n_dims,
        .type = tensor->type,
        .file = tensor->shard,
        .n_elements = tensor->n_elements,
        .n_bytes = tensor->n_bytes,
        .offset = tensor->offset,
    };
    memcpy(out.ne, tensor->ne, sizeof out.ne);
    return out;
}

static void take_file(struct plec_sheet *sheet, uint32_t i) {
    const struct plec_gguf_shard *shard = &sheet->set.shards[i];
    const struct plec_gguf *file = &shard->file;
    sheet->files[i] = (struct plec_sheet_file){
        .present = shard->present,
        .version = file->version,
        .n_bytes = file->size,
        .alignment = file->alignment,
        .alignment_stated = file->alignment_stated,
        .infos_at = file->infos_at,
        .infos_end = file->infos_end,
        .data_at = file->data_at,
        .first_key = sheet->n_keys,
        .n_keys = file->n_keys,
        .first_tensor = sheet->n_tensors,
        .n_tensors = file->n_tensors,
    };
    for (uint32_t k = 0; k < file->n_keys; k++)
        sheet->keys[sheet->n_keys++] = key_of(file, &file->keys[k]);
    for (uint32_t k = 0; k < file->n_tensors; k++)
        sheet->tensors[sheet->n_tensors++] = tensor_of(&file->tensors[k]);
}

static enum plec_status take_set(struct plec_sheet *sheet, struct plec_error *err) {
    const struct plec_gguf_set *set = &sheet->set;
    size_t n_keys = 0;
    for (uint32_t i = 0; i < set->n_shards; i++)
        n_keys += set->shards[i].file.n_keys;
    sheet->files = calloc(set->n_shards, sizeof *sheet->files);
    sheet->keys = calloc(n_keys + 1, sizeof *sheet->keys);
    sheet->tensors = calloc(set->n_tensors + (size_t)1, sizeof *sheet->tensors);
    if (sheet->files == NULL || sheet->keys == NULL || sheet->tensors == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the tables of %s", sheet->path);
    sheet->n_files = set->n_shards;
    for (uint32_t i = 0; i < set->n_shards; i++)
        take_file(sheet, i);
    return PLEC_OK;
}

static bool is_dump(const char *path) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return false;
    int first = fgetc(file);
    fclose(file);
    return first == '{';
}

enum plec_status plec_sheet_open(struct plec_sheet *out, const char *path, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct plec_mapping probe;
    enum plec_status status = plec_mapping_open(&probe, path, err);
    if (status != PLEC_OK) return status; /* a folder or a pipe is not even looked into */
    plec_mapping_close(&probe);
    if (is_dump(path)) return plec_sheet_read(out, path, err);
    status = plec_gguf_set_open(&out->set, path, PLEC_GGUF_LOOK, err);
    out->path = path;
    if (status == PLEC_OK) status = take_set(out, err);
    if (status != PLEC_OK) plec_sheet_close(out);
    return status;
}

void plec_sheet_close(struct plec_sheet *sheet) {
    plec_gguf_set_close(&sheet->set);
    json_decref(sheet->dump);
    free(sheet->scratch);
    free(sheet->files);
    free(sheet->keys);
    free(sheet->tensors);
    memset(sheet, 0, sizeof *sheet);
}

int plec_sheet_judge(const struct plec_sheet *sheet) {
    return plec_say_findings(sheet->path, &sheet->set.findings);
}

/* -- keys ------------------------------------------------------------------------------------ */

static const struct plec_sheet_key *find_view(const struct plec_sheet *sheet,
                                              struct plec_view name) {
    for (uint32_t i = 0; i < sheet->n_keys; i++)
        if (plec_view_equal(sheet->keys[i].name, name)) return &sheet->keys[i];
    return NULL;
}

const struct plec_sheet_key *plec_sheet_find(const struct plec_sheet *sheet, const char *name) {
    return find_view(sheet, plec_view_of(name));
}

struct plec_view plec_sheet_string(const struct plec_sheet_key *key) {
    if (key == NULL || key->type != PLEC_GGUF_STRING) return (struct plec_view){"", 0};
    return (struct plec_view){(const char *)key->value, key->value_bytes};
}

const struct plec_sheet_key *plec_sheet_find_arch(const struct plec_sheet *sheet,
                                                  const char *suffix) {
    struct plec_view arch = plec_sheet_string(plec_sheet_find(sheet, "general.architecture"));
    char name[256];
    size_t n = strlen(suffix);
    if (arch.size + 1 + n > sizeof name) return NULL;
    memcpy(name, arch.data, (size_t)arch.size);
    name[arch.size] = '.';
    memcpy(name + arch.size + 1, suffix, n);
    return find_view(sheet, (struct plec_view){name, arch.size + 1 + n});
}

/* The integer at value, sign-extended to 64 bits; false for other types. */
static bool integer_of(int64_t *out, bool *is_signed, uint32_t type, const uint8_t *value) {
    *is_signed = true;
    switch (type) {
    case PLEC_GGUF_U8:
    case PLEC_GGUF_BOOL: *out = *value; break;
    case PLEC_GGUF_U16: *out = plec_load_u16(value); break;
    case PLEC_GGUF_U32: *out = plec_load_u32(value); break;
    case PLEC_GGUF_I8: *out = (int8_t)*value; break;
    case PLEC_GGUF_I16: *out = (int16_t)plec_load_u16(value); break;
    case PLEC_GGUF_I32: *out = (int32_t)plec_load_u32(value); break;
    case PLEC_GGUF_I64: *out = (int64_t)plec_load_u64(value); break;
    case PLEC_GGUF_U64:
        *out = (int64_t)plec_load_u64(value);
        *is_signed = false;
        break;
    default: return false;
    }
    return true;
}

bool plec_sheet_u64(uint64_t *out, const struct plec_sheet_key *key) {
    int64_t value;
    bool is_signed;
    if (key == NULL || key->type == PLEC_GGUF_ARRAY || key->type == PLEC_GGUF_BOOL ||
        !integer_of(&value, &is_signed, key->type, key->value) || (is_signed && value < 0))
        return false;
    *out = (uint64_t)value;
    return true;
}

void plec_sheet_put_scalar(FILE *stream, uint32_t type, const uint8_t *value) {
    int64_t i;
    bool is_signed;
    if (integer_of(&i, &is_signed, type, value)) {
        if (is_signed)
            fprintf(stream, "%lld", (long long)i);
        else
            fprintf(stream, "%llu", (unsigned long long)i);
        return;
    }
    char text[PLEC_REAL_TEXT_MAX];
    struct plec_cursor cursor = plec_cursor_at(value, plec_gguf_value_bytes(type), 0);
    double real =
        type == PLEC_GGUF_F32 ? (double)plec_cursor_f32(&cursor) : plec_cursor_f64(&cursor);
    fputs(plec_real_text(text, real, false), stream);
}

void plec_sheet_put_value(FILE *stream, const struct plec_sheet_key *key) {
    if (key->type == PLEC_GGUF_ARRAY)
        fprintf(stream, "%llu of %s", (unsigned long long)key->count,
                plec_gguf_value_type_name(key->element_type));
    else if (key->type == PLEC_GGUF_STRING)
        plec_put_quoted(stream, plec_sheet_string(key), SHOWN_STRING_BYTES);
    else
        plec_sheet_put_scalar(stream, key->type, key->value);
}

/* -- tensors --------------------------------------------------------------------------------- */

bool plec_sheet_block(uint32_t *block, struct plec_view *rest, struct plec_view name) {
    if (!plec_view_starts(name, "blk.")) return false;
    uint64_t at = 4, number = 0;
    for (; at < name.size && name.data[at] >= '0' && name.data[at] <= '9'; at++) {
        number = number * 10 + (uint64_t)(name.data[at] - '0');
        if (number > UINT32_MAX) return false;
    }
    if (at == 4 || at >= name.size || name.data[at] != '.') return false;
    *block = (uint32_t)number;
    *rest = (struct plec_view){name.data + at + 1, name.size - at - 1};
    return true;
}
