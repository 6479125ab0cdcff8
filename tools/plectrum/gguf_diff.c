/* The mode diff: what two models do not have in common, by name, in an order that does not depend
 * on theirs: keys, then tensors, then the numbers in those that both have. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_sheet.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/gguf_values.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/parallel.h"

/* Something of one name in either model, or in both. */
struct pair {
    struct plec_view name;
    const struct plec_sheet_key *key_a, *key_b;         /* NULL: not there */
    const struct plec_gguf_tensor *tensor_a, *tensor_b; /* NULL: not there */
    bool same, unusable;
    double nmse; /* of tensors of one shape whose bytes differ; NaN: no common numbers */
    bool has_nmse;
};

struct diff {
    struct plec_sheet a, b;
    struct pair *keys, *tensors; /* [n_keys], [n_tensors], by name */
    size_t n_keys, n_tensors;
    uint64_t n_bytes; /* of the tensors that both have */
};

static int by_name(const void *a, const void *b) {
    return plec_view_compare(((const struct pair *)a)->name, ((const struct pair *)b)->name);
}

/* Sorts and joins neighbours of one name; each side gave a name at most once a file. */
static size_t join(struct pair *pairs, size_t n) {
    size_t to = 0;
    qsort(pairs, n, sizeof *pairs, by_name);
    for (size_t i = 0; i < n; i++) {
        struct pair *last = to > 0 ? &pairs[to - 1] : NULL;
        if (last == NULL || !plec_view_equal(last->name, pairs[i].name)) {
            pairs[to++] = pairs[i];
            continue;
        }
        if (pairs[i].key_a != NULL) last->key_a = pairs[i].key_a;
        if (pairs[i].key_b != NULL) last->key_b = pairs[i].key_b;
        if (pairs[i].tensor_a != NULL) last->tensor_a = pairs[i].tensor_a;
        if (pairs[i].tensor_b != NULL) last->tensor_b = pairs[i].tensor_b;
    }
    return to;
}

/* Keys that say only how a set is cut into files are no part of the model. */
static bool is_model_key(const struct plec_sheet_key *key) {
    return !plec_view_starts(key->name, "split.");
}

static bool list_pairs(struct diff *diff) {
    const struct plec_gguf_set *a = &diff->a.set, *b = &diff->b.set;
    diff->keys = calloc((size_t)diff->a.n_keys + diff->b.n_keys + 1, sizeof *diff->keys);
    diff->tensors = calloc((size_t)a->n_tensors + b->n_tensors + 1, sizeof *diff->tensors);
    if (diff->keys == NULL || diff->tensors == NULL) return false;
    for (uint32_t i = 0; i < diff->a.n_keys; i++)
        if (is_model_key(&diff->a.keys[i]))
            diff->keys[diff->n_keys++] =
                (struct pair){.name = diff->a.keys[i].name, .key_a = &diff->a.keys[i]};
    for (uint32_t i = 0; i < diff->b.n_keys; i++)
        if (is_model_key(&diff->b.keys[i]))
            diff->keys[diff->n_keys++] =
                (struct pair){.name = diff->b.keys[i].name, .key_b = &diff->b.keys[i]};
    for (uint32_t i = 0; i < a->n_tensors; i++)
        diff->tensors[diff->n_tensors++] =
            (struct pair){.name = a->tensors[i]->name, .tensor_a = a->tensors[i]};
    for (uint32_t i = 0; i < b->n_tensors; i++)
        diff->tensors[diff->n_tensors++] =
            (struct pair){.name = b->tensors[i]->name, .tensor_b = b->tensors[i]};
    diff->n_keys = join(diff->keys, diff->n_keys);
    diff->n_tensors = join(diff->tensors, diff->n_tensors);
    for (size_t i = 0; i < diff->n_tensors; i++)
        if (diff->tensors[i].tensor_a != NULL && diff->tensors[i].tensor_b != NULL)
            diff->n_bytes += diff->tensors[i].tensor_a->n_bytes;
    return true;
}

/* -- comparing ------------------------------------------------------------------------------- */

static bool same_key(const struct plec_sheet_key *a, const struct plec_sheet_key *b) {
    return a->type == b->type && a->element_type == b->element_type && a->count == b->count &&
           a->value_bytes == b->value_bytes &&
           memcmp(a->value, b->value, (size_t)a->value_bytes) == 0;
}

static bool same_shape(const struct plec_gguf_tensor *a, const struct plec_gguf_tensor *b) {
    return memcmp(a->ne, b->ne, sizeof a->ne) == 0;
}

/* sum (a-b)^2 / sum a^2. Blocks of all types divide 256, so both are decoded 256 values a step, the
 * last one fewer. */
static double nmse_of(const struct plec_gguf_tensor *a, const uint8_t *bytes_a,
                      const struct plec_gguf_tensor *b, const uint8_t *bytes_b) {
    const struct plec_gguf_type *type_a = plec_gguf_type_find(a->type);
    const struct plec_gguf_type *type_b = plec_gguf_type_find(b->type);
    double x[PLEC_BLOCK_ELEMS_MAX], y[PLEC_BLOCK_ELEMS_MAX], error = 0, norm = 0;
    for (uint64_t at = 0; at < a->n_elements; at += PLEC_BLOCK_ELEMS_MAX) {
        uint64_t left = a->n_elements - at;
        unsigned n = left < PLEC_BLOCK_ELEMS_MAX ? (unsigned)left : PLEC_BLOCK_ELEMS_MAX;
        for (unsigned i = 0; i < n; i += type_a->block_elems)
            plec_gguf_decode(x + i, type_a->id,
                             bytes_a + (at + i) / type_a->block_elems * type_a->block_bytes);
        for (unsigned i = 0; i < n; i += type_b->block_elems)
            plec_gguf_decode(y + i, type_b->id,
                             bytes_b + (at + i) / type_b->block_elems * type_b->block_bytes);
        for (unsigned i = 0; i < n; i++) {
            error += (x[i] - y[i]) * (x[i] - y[i]);
            norm += x[i] * x[i];
        }
    }
    return norm > 0 ? error / norm : error;
}

static uint64_t compare_tensor(void *user, size_t i) {
    struct diff *diff = user;
    struct pair *pair = &diff->tensors[i];
    const struct plec_gguf_tensor *a = pair->tensor_a, *b = pair->tensor_b;
    if (a == NULL || b == NULL) return 0;
    const uint8_t *bytes_a, *bytes_b;
    const struct plec_gguf *file_a = plec_gguf_set_file(&diff->a.set, a);
    const struct plec_gguf *file_b = plec_gguf_set_file(&diff->b.set, b);
    if (plec_gguf_use_tensor(&bytes_a, file_a, a, NULL) != PLEC_OK ||
        plec_gguf_use_tensor(&bytes_b, file_b, b, NULL) != PLEC_OK) {
        pair->unusable = true;
        return 0;
    }
    bool shapes = same_shape(a, b);
    pair->same = shapes && a->type == b->type && memcmp(bytes_a, bytes_b, (size_t)a->n_bytes) == 0;
    pair->has_nmse =
        shapes && !pair->same && plec_gguf_can_decode(a->type) && plec_gguf_can_decode(b->type);
    if (pair->has_nmse) pair->nmse = nmse_of(a, bytes_a, b, bytes_b);
    return a->n_bytes;
}

static void compare_all(struct diff *diff) {
    for (size_t i = 0; i < diff->n_keys; i++) {
        struct pair *pair = &diff->keys[i];
        pair->same =
            pair->key_a != NULL && pair->key_b != NULL && same_key(pair->key_a, pair->key_b);
    }
    struct plec_progress progress =
        plec_progress_start("comparing", diff->n_bytes, PLEC_PROGRESS_BYTES);
    struct plec_parallel job = {diff->n_tensors, compare_tensor, diff, &progress};
    plec_parallel_run(&job);
    plec_progress_end(&progress);
}

static size_t count_same(const struct pair *pairs, size_t n) {
    size_t n_same = 0;
    for (size_t i = 0; i < n; i++)
        n_same += pairs[i].same;
    return n_same;
}

/* -- output ---------------------------------------------------------------------------------- */

static void put_key(const struct plec_sheet_key *key) {
    printf("%s ", plec_gguf_value_type_name(key->type));
    plec_sheet_put_value(stdout, key);
}

static void print_key(const struct pair *pair) {
    char mark = pair->key_b == NULL ? '-' : pair->key_a == NULL ? '+' : '~';
    printf("%c key ", mark);
    plec_put_view(stdout, pair->name);
    printf(": ");
    if (pair->key_a != NULL) put_key(pair->key_a);
    if (mark == '~') printf(" -> ");
    if (pair->key_b != NULL) put_key(pair->key_b);
    printf("\n");
}

static void put_tensor(const struct plec_gguf_tensor *tensor) {
    char shape[PLEC_SHAPE_TEXT_MAX], type[PLEC_GGUF_TYPE_TEXT_MAX];
    printf("%s %s", plec_gguf_type_text(tensor->type, type),
           plec_shape_text(shape, tensor->ne, tensor->n_dims));
}

static void print_tensor(const struct pair *pair) {
    char mark = pair->tensor_b == NULL ? '-' : pair->tensor_a == NULL ? '+' : '~';
    char text[PLEC_REAL_TEXT_MAX];
    printf("%c tensor ", mark);
    plec_put_view(stdout, pair->name);
    printf(": ");
    if (pair->tensor_a != NULL) put_tensor(pair->tensor_a);
    bool both = mark == '~', moved = both && (pair->tensor_a->type != pair->tensor_b->type ||
                                              !same_shape(pair->tensor_a, pair->tensor_b));
    if (moved) printf(" -> ");
    if (pair->tensor_b != NULL && (!both || moved)) put_tensor(pair->tensor_b);
    if (pair->unusable) printf(", not compared");
    if (both && !moved && !pair->unusable) printf(", other bytes");
    if (pair->has_nmse) printf(", nmse %s", plec_real_text(text, (double)(float)pair->nmse, true));
    printf("\n");
}

static void print_diff(const struct diff *diff) {
    for (size_t i = 0; i < diff->n_keys; i++)
        if (!diff->keys[i].same) print_key(&diff->keys[i]);
    for (size_t i = 0; i < diff->n_tensors; i++)
        if (!diff->tensors[i].same) print_tensor(&diff->tensors[i]);
    printf("%zu of %zu keys and %zu of %zu tensors are the same\n",
           count_same(diff->keys, diff->n_keys), diff->n_keys,
           count_same(diff->tensors, diff->n_tensors), diff->n_tensors);
}

static json_t *key_json(const struct plec_sheet_key *key) {
    if (key == NULL) return json_null();
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    if (stream == NULL) return NULL;
    plec_sheet_put_value(stream, key);
    json_t *value = fclose(stream) == 0 ? json_stringn(text, size) : NULL;
    free(text);
    return json_pack("{s:s, s:o}", "type", plec_gguf_value_type_name(key->type), "value", value);
}

static json_t *tensor_json(const struct plec_gguf_tensor *tensor) {
    if (tensor == NULL) return json_null();
    char type[PLEC_GGUF_TYPE_TEXT_MAX];
    json_t *shape = json_array();
    for (uint32_t i = 0; i < tensor->n_dims; i++)
        json_array_append_new(shape, plec_json_of_u64(tensor->ne[i]));
    return json_pack("{s:s, s:o, s:o}", "type", plec_gguf_type_text(tensor->type, type), "shape",
                     shape, "bytes", plec_json_of_u64(tensor->n_bytes));
}

static bool diff_json(const struct diff *diff) {
    struct plec_json_stream json = {.out = stdout};
    plec_json_member(&json, "mode", json_string("diff"));
    plec_json_list_begin(&json, "keys");
    for (size_t i = 0; i < diff->n_keys; i++)
        if (!diff->keys[i].same)
            plec_json_list_item(&json, json_pack("{s:o, s:o, s:o}", "key",
                                                 plec_json_of_view(diff->keys[i].name), "a",
                                                 key_json(diff->keys[i].key_a), "b",
                                                 key_json(diff->keys[i].key_b)));
    plec_json_list_end(&json);
    plec_json_list_begin(&json, "tensors");
    for (size_t i = 0; i < diff->n_tensors; i++) {
        const struct pair *pair = &diff->tensors[i];
        if (pair->same) continue;
        plec_json_list_item(
            &json, json_pack("{s:o, s:o, s:o, s:o}", "tensor", plec_json_of_view(pair->name), "a",
                             tensor_json(pair->tensor_a), "b", tensor_json(pair->tensor_b), "nmse",
                             pair->has_nmse ? plec_json_real(pair->nmse) : json_null()));
    }
    plec_json_list_end(&json);
    plec_json_member(&json, "same_keys",
                     json_integer((json_int_t)count_same(diff->keys, diff->n_keys)));
    plec_json_member(&json, "same_tensors",
                     json_integer((json_int_t)count_same(diff->tensors, diff->n_tensors)));
    return plec_json_end(&json);
}

static int show(struct diff *diff, bool json) {
    if (!list_pairs(diff)) {
        plec_cli_say("out of memory");
        return PLEC_EXIT_MACHINE;
    }
    compare_all(diff);
    if (json) {
        if (!diff_json(diff)) return PLEC_EXIT_MACHINE;
    } else {
        print_diff(diff);
    }
    bool same = count_same(diff->keys, diff->n_keys) == diff->n_keys &&
                count_same(diff->tensors, diff->n_tensors) == diff->n_tensors;
    return same ? PLEC_EXIT_OK : PLEC_EXIT_FOUND;
}

/* A dump has no weights to compare. */
static enum plec_status open_model(struct plec_sheet *out, const char *path,
                                   struct plec_error *err) {
    enum plec_status status = plec_sheet_open(out, path, err);
    if (status != PLEC_OK || out->dump == NULL) return status;
    plec_sheet_close(out);
    return plec_fail(err, PLEC_BAD_INPUT, "DumpHasNoWeights", "%s: wanted a model", path);
}

int plec_gguf_diff(const char *const *operands, const struct plec_gguf_options *options) {
    struct diff diff = {0};
    struct plec_error err;
    enum plec_status status = open_model(&diff.a, operands[0], &err);
    if (status == PLEC_OK) status = open_model(&diff.b, operands[1], &err);
    int leave = status == PLEC_OK ? show(&diff, options->json) : plec_cli_error(&err);
    if (status == PLEC_OK) {
        int judged_a = plec_sheet_judge(&diff.a), judged_b = plec_sheet_judge(&diff.b);
        if (leave == PLEC_EXIT_OK) leave = judged_a != PLEC_EXIT_OK ? judged_a : judged_b;
    }
    free(diff.keys);
    free(diff.tensors);
    plec_sheet_close(&diff.a);
    plec_sheet_close(&diff.b);
    return leave;
}
