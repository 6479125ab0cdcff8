#include "tools/plectrum/gguf_select.h"

#include <fnmatch.h>
#include <regex.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"

typedef int order(const void *a, const void *b);

static const struct plec_gguf_tensor *at(const void *p) {
    return *(const struct plec_gguf_tensor *const *)p;
}

static int by_place(const void *a, const void *b) {
    const struct plec_gguf_tensor *x = at(a), *y = at(b);
    if (x->shard != y->shard) return x->shard < y->shard ? -1 : 1;
    if (x->data_at != y->data_at) return x->data_at < y->data_at ? -1 : 1;
    return x->at < y->at ? -1 : x->at > y->at;
}
static int by_name(const void *a, const void *b) {
    return plec_view_compare(at(a)->name, at(b)->name);
}
static int by_bytes(const void *a, const void *b) {
    const struct plec_gguf_tensor *x = at(a), *y = at(b);
    if (x->n_bytes != y->n_bytes) return x->n_bytes > y->n_bytes ? -1 : 1;
    return by_name(a, b);
}
static int by_type(const void *a, const void *b) {
    const struct plec_gguf_tensor *x = at(a), *y = at(b);
    if (x->type != y->type) return x->type < y->type ? -1 : 1;
    return by_place(a, b);
}

static order *order_of(const char *sort) {
    static const struct {
        const char *name;
        order *compare;
    } orders[] = {{"name", by_name}, {"bytes", by_bytes}, {"offset", by_place}, {"type", by_type}};
    for (size_t i = 0; i < sizeof orders / sizeof orders[0]; i++)
        if (strcmp(orders[i].name, sort) == 0) return orders[i].compare;
    return NULL;
}

bool plec_sort_is_known(const char *sort) {
    return order_of(sort) != NULL;
}

/* A name as a C string; one with a NUL in it is cut there, and so matches less. */
static bool fits(struct plec_view name, const char *filter, const regex_t *expression) {
    char text[PLEC_GGUF_MAX_NAME_BYTES + 1];
    size_t n = name.size < sizeof text ? (size_t)name.size : sizeof text - 1;
    memcpy(text, name.data, n);
    text[n] = '\0';
    return fnmatch(filter, text, 0) == 0 ||
           (expression != NULL && regexec(expression, text, 0, NULL, 0) == 0);
}

static void take(struct plec_selection *out, const struct plec_gguf_set *set, const char *filter,
                 const regex_t *expression) {
    for (uint32_t i = 0; i < set->n_tensors; i++) {
        const struct plec_gguf_tensor *tensor = set->tensors[i];
        if (filter != NULL && !fits(tensor->name, filter, expression)) continue;
        out->tensors[out->n_tensors++] = tensor;
        if (!plec_add_u64(&out->n_bytes, out->n_bytes, tensor->n_bytes)) out->n_bytes = UINT64_MAX;
        if (!plec_add_u64(&out->n_elements, out->n_elements, tensor->n_elements))
            out->n_elements = UINT64_MAX;
    }
}

enum plec_status plec_selection_make(struct plec_selection *out, const struct plec_gguf_set *set,
                                     const char *filter, const char *sort, struct plec_error *err) {
    *out = (struct plec_selection){0};
    regex_t expression;
    /* A glob is seldom a regular expression too; what is neither fits nothing and is told. */
    bool compiled = filter != NULL && regcomp(&expression, filter, REG_EXTENDED | REG_NOSUB) == 0;
    if (filter != NULL && !compiled && strpbrk(filter, "*?[") == NULL)
        return plec_fail(err, PLEC_BAD_INPUT, "BadPattern",
                         "'%s' is neither a glob nor an extended regular expression", filter);
    out->tensors = malloc((set->n_tensors + (size_t)1) * sizeof(*out->tensors));
    if (out->tensors != NULL) take(out, set, filter, compiled ? &expression : NULL);
    if (compiled) regfree(&expression);
    if (out->tensors == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a list of tensors");
    if (sort != NULL) qsort(out->tensors, out->n_tensors, sizeof(*out->tensors), order_of(sort));
    return PLEC_OK;
}

void plec_selection_free(struct plec_selection *selection) {
    free(selection->tensors);
    *selection = (struct plec_selection){0};
}
