#include "tools/plectrum/gguf_slab.h"

#include <stdio.h>
#include <string.h>

#include "tools/plectrum/units.h"

uint64_t plec_tensor_experts(const struct plec_gguf_tensor *tensor) {
    return tensor->ne[2] * tensor->ne[3]; /* their product was checked when the file was read */
}

uint64_t plec_tensor_experts_apart(const struct plec_gguf_tensor *tensor) {
    enum { EXPERTS_MAX = 65536, SLAB_BYTES_MIN = 64 };
    uint64_t n = plec_tensor_experts(tensor);
    return n > 1 && n <= EXPERTS_MAX && tensor->n_bytes / n >= SLAB_BYTES_MIN ? n : 1;
}

/* "name:3:7": the numbers behind the name; how many there are, at most two. Cuts `text`. */
static unsigned cut_numbers(char *text, uint64_t numbers[2]) {
    unsigned n = 0;
    uint64_t found[2];
    while (n < 2) {
        char *colon = strrchr(text, ':');
        if (colon == NULL || !plec_count_parse(&found[n], colon + 1, UINT64_MAX)) break;
        *colon = '\0';
        n++;
    }
    for (unsigned i = 0; i < n; i++)
        numbers[i] = found[n - 1 - i];
    return n;
}

static enum plec_status narrow(struct plec_slab *slab, struct plec_error *err) {
    const struct plec_gguf_tensor *tensor = slab->tensor;
    const struct plec_gguf_type *type = plec_gguf_type_find(tensor->type);
    uint64_t n_experts = plec_tensor_experts(tensor), n_rows = tensor->ne[1];
    uint64_t row_bytes = tensor->ne[0] / type->block_elems * type->block_bytes;
    slab->n_bytes = tensor->n_bytes;
    slab->n_elements = tensor->n_elements;
    if (slab->one_expert) {
        if (slab->expert >= n_experts)
            return plec_fail(err, PLEC_MISSING, "NoSuchExpert", "expert %llu of %llu",
                             (unsigned long long)slab->expert, (unsigned long long)n_experts);
        slab->n_bytes = n_rows * row_bytes;
        slab->n_elements = n_rows * tensor->ne[0];
        slab->bytes += slab->expert * slab->n_bytes;
    }
    if (slab->one_row) {
        if (slab->row >= n_rows)
            return plec_fail(err, PLEC_MISSING, "NoSuchRow", "row %llu of %llu",
                             (unsigned long long)slab->row, (unsigned long long)n_rows);
        slab->n_bytes = row_bytes;
        slab->n_elements = tensor->ne[0];
        slab->bytes += slab->row * row_bytes;
    }
    return PLEC_OK;
}

static enum plec_status use(struct plec_slab *slab, const struct plec_gguf_set *set,
                            struct plec_error *err) {
    slab->file = plec_gguf_set_file(set, slab->tensor);
    enum plec_status status = plec_gguf_use_tensor(&slab->bytes, slab->file, slab->tensor, err);
    if (status == PLEC_OK) status = narrow(slab, err);
    if (status == PLEC_OK) return PLEC_OK;
    char name[PLEC_VIEW_TEXT_MAX];
    plec_error_context(err, "%s", plec_view_text(slab->tensor->name, name));
    return status;
}

enum plec_status plec_slab_find(struct plec_slab *out, const struct plec_gguf_set *set,
                                const char *name, struct plec_error *err) {
    *out = (struct plec_slab){.tensor = plec_gguf_set_find(set, plec_view_of(name))};
    if (out->tensor == NULL) {
        char text[4096];
        uint64_t numbers[2] = {0, 0};
        snprintf(text, sizeof text, "%s", name);
        unsigned n = cut_numbers(text, numbers);
        out->tensor = plec_gguf_set_find(set, plec_view_of(text));
        out->one_expert = n > 0;
        out->one_row = n > 1;
        out->expert = numbers[0];
        out->row = numbers[1];
    }
    if (out->tensor == NULL)
        return plec_fail(err, PLEC_MISSING, "NoSuchTensor", "no tensor is named \"%s\"", name);
    return use(out, set, err);
}

enum plec_status plec_slab_expert(struct plec_slab *out, const struct plec_gguf_set *set,
                                  const struct plec_gguf_tensor *tensor, uint64_t expert,
                                  struct plec_error *err) {
    *out = (struct plec_slab){.tensor = tensor, .expert = expert, .one_expert = true};
    return use(out, set, err);
}
