#include "tools/plectrum/gguf_spans.h"

#include <stdio.h>
#include <stdlib.h>

#include "tools/plectrum/gguf_text.h"

static const char *padding_text(char *buffer, const struct plec_gguf_span *span,
                                const struct plec_gguf *file) {
    if (span->at == file->infos_end && span->at < file->data_at)
        snprintf(buffer, PLEC_SPAN_TEXT_MAX, "padding up to the alignment of %llu",
                 (unsigned long long)file->alignment);
    else
        snprintf(buffer, PLEC_SPAN_TEXT_MAX, "padding behind a tensor");
    return buffer;
}

const char *plec_span_text(char *buffer, const struct plec_gguf_span *span,
                           const struct plec_gguf *file) {
    char name[PLEC_VIEW_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    switch (span->kind) {
    case PLEC_GGUF_SPAN_MAGIC: return "magic: the four bytes GGUF";
    case PLEC_GGUF_SPAN_VERSION: return "version, a u32";
    case PLEC_GGUF_SPAN_N_TENSORS: return "number of tensors, a u64";
    case PLEC_GGUF_SPAN_N_KEYS: return "number of metadata entries, a u64";
    case PLEC_GGUF_SPAN_PADDING: return padding_text(buffer, span, file);
    case PLEC_GGUF_SPAN_KEY: {
        const struct plec_gguf_key *key = &file->keys[span->index];
        snprintf(buffer, PLEC_SPAN_TEXT_MAX, "metadata: %s (%s)", plec_view_text(key->name, name),
                 plec_gguf_value_type_name(key->type));
        return buffer;
    }
    case PLEC_GGUF_SPAN_TENSOR:
        snprintf(buffer, PLEC_SPAN_TEXT_MAX, "info record: %s",
                 plec_view_text(file->tensors[span->index].name, name));
        return buffer;
    case PLEC_GGUF_SPAN_DATA: {
        const struct plec_gguf_tensor *tensor = &file->tensors[span->index];
        snprintf(buffer, PLEC_SPAN_TEXT_MAX, "tensor data: %s, %llu %s weights",
                 plec_view_text(tensor->name, name), (unsigned long long)tensor->n_elements,
                 plec_gguf_type_text(tensor->type, type));
        return buffer;
    }
    }
    return "unknown";
}

static int by_place(const void *a, const void *b) {
    const struct plec_gguf_span *x = a, *y = b;
    if (x->at != y->at) return x->at < y->at ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* Head, keys, records and the padding behind them. */
static size_t header_spans(struct plec_gguf_span *out, const struct plec_gguf *file) {
    size_t n = 0;
    out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_MAGIC, 0, 0, 4};
    out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_VERSION, 0, 4, 4};
    out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_N_TENSORS, 0, 8, 8};
    out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_N_KEYS, 0, 16, 8};
    for (uint32_t i = 0; i < file->n_keys; i++) {
        const struct plec_gguf_key *key = &file->keys[i];
        out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_KEY, i, key->at,
                                           key->value_at + key->n_bytes - key->at};
    }
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = &file->tensors[i];
        uint64_t size = 8 + tensor->name.size + 4 + UINT64_C(8) * tensor->n_dims + 12;
        out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_TENSOR, i, tensor->at, size};
    }
    if (file->data_at > file->infos_end && file->infos_end < file->size) {
        uint64_t end = file->data_at < file->size ? file->data_at : file->size;
        out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_PADDING, 0, file->infos_end,
                                           end - file->infos_end};
    }
    return n;
}

/* The tensors from `first` on by place, then what lies between them as padding. */
static size_t data_spans(struct plec_gguf_span *out, size_t first, const struct plec_gguf *file) {
    size_t n = first;
    for (uint32_t i = 0; i < file->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = &file->tensors[i];
        if (tensor->flags & (PLEC_GGUF_OUTSIDE_FILE | PLEC_GGUF_NO_ELEMENTS)) continue;
        out[n++] =
            (struct plec_gguf_span){PLEC_GGUF_SPAN_DATA, i, tensor->data_at, tensor->n_bytes};
    }
    qsort(out + first, n - first, sizeof *out, by_place);
    uint64_t end = file->data_at;
    size_t n_tensors = n;
    for (size_t i = first; i < n_tensors; i++) {
        if (out[i].at > end)
            out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_PADDING, 0, end, out[i].at - end};
        if (out[i].at + out[i].n_bytes > end) end = out[i].at + out[i].n_bytes;
    }
    if (file->size > end && file->complete)
        out[n++] = (struct plec_gguf_span){PLEC_GGUF_SPAN_PADDING, 0, end, file->size - end};
    qsort(out + first, n - first, sizeof *out, by_place);
    return n;
}

struct plec_gguf_span *plec_spans_of(size_t *n_spans, const struct plec_gguf *file) {
    size_t most = 8 + (size_t)file->n_keys + 3 * (size_t)file->n_tensors;
    struct plec_gguf_span *out = malloc(most * sizeof *out);
    if (out == NULL) return NULL;
    *n_spans = data_spans(out, header_spans(out, file), file);
    return out;
}
