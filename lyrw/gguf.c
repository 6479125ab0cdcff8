#include "lyrw/gguf.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/gguf_parts.h"

static struct plec_view key_name(const void *user, uint32_t index) {
    return ((const struct plec_gguf *)user)->keys[index].name;
}
static struct plec_view tensor_name(const void *user, uint32_t index) {
    return ((const struct plec_gguf *)user)->tensors[index].name;
}

static enum plec_status parse_and_check(struct plec_gguf *file, struct plec_error *err) {
    enum plec_status status = plec_gguf_walk_header(file, err);
    return status != PLEC_OK ? status : plec_gguf_check_layout(file, err);
}

enum plec_status plec_gguf_parse(struct plec_gguf *out, const void *data, uint64_t size,
                                 struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->data = data;
    out->size = size;
    out->alignment = PLEC_GGUF_DEFAULT_ALIGNMENT;
    plec_name_index_init(&out->key_index, key_name, out);
    plec_name_index_init(&out->tensor_index, tensor_name, out);
    enum plec_status status = parse_and_check(out, err);
    if (status != PLEC_OK) plec_gguf_close(out);
    return status;
}

void plec_gguf_close(struct plec_gguf *file) {
    plec_name_index_free(&file->key_index);
    plec_name_index_free(&file->tensor_index);
    plec_findings_clear(&file->findings);
    free(file->keys);
    free(file->tensors);
    memset(file, 0, sizeof *file);
}

enum plec_status plec_gguf_require_sound(const struct plec_gguf *file, struct plec_error *err) {
    return plec_findings_to_error(&file->findings, PLEC_MALFORMED, err);
}

const struct plec_gguf_key *plec_gguf_find_key(const struct plec_gguf *file,
                                               struct plec_view name) {
    uint32_t index = plec_name_index_find(&file->key_index, name);
    return index == UINT32_MAX ? NULL : &file->keys[index];
}

const struct plec_gguf_key *plec_gguf_find_key_named(const struct plec_gguf *file,
                                                     const char *name) {
    return plec_gguf_find_key(file, plec_view_of(name));
}

const struct plec_gguf_tensor *plec_gguf_find_tensor(const struct plec_gguf *file,
                                                     struct plec_view name) {
    uint32_t index = plec_name_index_find(&file->tensor_index, name);
    return index == UINT32_MAX ? NULL : &file->tensors[index];
}

enum plec_status plec_gguf_use_tensor(const uint8_t **bytes, const struct plec_gguf *file,
                                      const struct plec_gguf_tensor *tensor,
                                      struct plec_error *err) {
    char name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    plec_view_text(tensor->name, name);
    if (tensor->flags & PLEC_GGUF_TYPE_UNKNOWN)
        return plec_fail_at(err, PLEC_UNSUPPORTED, "UnknownType", tensor->at, "tensor \"%s\": %s",
                            name, plec_gguf_type_text(tensor->type, type));
    if (tensor->flags & PLEC_GGUF_NO_ELEMENTS)
        return plec_fail_at(err, PLEC_MALFORMED, "ZeroDim", tensor->at,
                            "tensor \"%s\": a dim is 0, so it has no elements", name);
    if (tensor->flags & PLEC_GGUF_OUTSIDE_FILE)
        return plec_fail_at(err, PLEC_MALFORMED, "TensorOutsideFile", tensor->data_at,
                            "tensor \"%s\": needs %llu bytes, the file ends at %llu (truncated)",
                            name, (unsigned long long)tensor->n_bytes,
                            (unsigned long long)file->size);
    if (tensor->flags & PLEC_GGUF_NOT_ALIGNED)
        return plec_fail_at(err, PLEC_MALFORMED, "OffsetNotAligned", tensor->at,
                            "tensor \"%s\": offset %llu is no multiple of the alignment %llu", name,
                            (unsigned long long)tensor->offset,
                            (unsigned long long)file->alignment);
    if (tensor->flags & PLEC_GGUF_OVERLAPS)
        return plec_fail_at(err, PLEC_MALFORMED, "TensorsOverlap", tensor->data_at,
                            "tensor \"%s\" shares bytes with another", name);
    *bytes = file->data + tensor->data_at;
    return PLEC_OK;
}
