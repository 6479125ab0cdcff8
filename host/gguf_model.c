#include "host/gguf_model.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "host/gguf_layer.h"

/* -- names ------------------------------------------------------------------------------------ */

bool plec_gguf_take_number(uint32_t *out, struct plec_view *text) {
    uint64_t value = 0, i = 0;
    for (; i < text->size && text->data[i] >= '0' && text->data[i] <= '9'; i++) {
        value = value * 10 + (uint64_t)(text->data[i] - '0');
        if (value >= UINT32_MAX || (i > 0 && text->data[0] == '0')) return false;
    }
    if (i == 0 || i == text->size || text->data[i] != '.') return false;
    *out = (uint32_t)value;
    text->data += i + 1;
    text->size -= i + 1;
    return true;
}

bool plec_gguf_block_name(uint32_t *number, struct plec_view *rest, struct plec_view name) {
    if (!plec_view_starts(name, "blk.")) return false;
    *rest = (struct plec_view){name.data + 4, name.size - 4};
    return plec_gguf_take_number(number, rest);
}

bool plec_gguf_is_feed_forward(struct plec_view rest) {
    return plec_view_starts(rest, "ffn_") || plec_view_starts(rest, "exp_probs_b");
}

/* -- keys ------------------------------------------------------------------------------------- */

static struct plec_arch_key find_key(const void *user, const char *suffix, uint64_t i) {
    const struct plec_gguf *file = ((const struct plec_gguf_model *)user)->main;
    const struct plec_gguf_key *key = plec_gguf_find_arch_key(file, suffix);
    struct plec_arch_key out = {PLEC_KEY_ABSENT, false, 0, 0};
    if (key == NULL) return out;
    out.is_array = key->type == PLEC_GGUF_ARRAY;
    if (!out.is_array) i = 0;
    bool flag = false;
    if (key->element_type == PLEC_GGUF_BOOL) {
        if (plec_gguf_bool(&flag, file, key, i, NULL) == PLEC_OK) out.kind = PLEC_KEY_BOOL;
        out.integer = flag;
    } else if (key->element_type == PLEC_GGUF_F32 || key->element_type == PLEC_GGUF_F64) {
        if (plec_gguf_f64(&out.real, file, key, i, NULL) == PLEC_OK) out.kind = PLEC_KEY_REAL;
    } else if (plec_gguf_i64(&out.integer, file, key, i, NULL) == PLEC_OK) {
        out.kind = PLEC_KEY_INTEGER;
    }
    if (out.kind == PLEC_KEY_ABSENT) out.kind = PLEC_KEY_OTHER;
    return out;
}

bool plec_gguf_model_count(uint32_t *out, const struct plec_gguf_model *model, const char *suffix,
                           uint32_t number) {
    struct plec_arch_key key = find_key(model, suffix, number);
    if (key.kind != PLEC_KEY_INTEGER || key.integer < 0 || key.integer > UINT32_MAX) return false;
    *out = (uint32_t)key.integer;
    return true;
}

/* Tokens, by the first of the places that tell. */
static uint64_t count_tokens(const struct plec_gguf_model *model) {
    const struct plec_gguf_key *tokens =
        plec_gguf_find_key_named(model->main, "tokenizer.ggml.tokens");
    uint32_t count = 0;
    if (tokens != NULL && tokens->type == PLEC_GGUF_ARRAY) return tokens->count;
    if (plec_gguf_model_count(&count, model, "vocab_size", 0)) return count;
    const struct plec_gguf_tensor *embedding =
        plec_gguf_set_find(model->set, plec_view_of("token_embd.weight"));
    return embedding != NULL ? embedding->ne[1] : 0;
}

/* The first block that is a prediction head. Keys that contradict each other are told at bind. */
static uint32_t first_head(const struct plec_gguf_model *model) {
    uint32_t heads = 0, blocks = 0;
    if (!plec_gguf_model_count(&heads, model, "nextn_predict_layers", 0) || heads == 0)
        return UINT32_MAX;
    if (!plec_gguf_model_count(&blocks, model, "block_count", 0) || heads > blocks)
        return UINT32_MAX;
    return blocks - heads;
}

/* -- blocks ----------------------------------------------------------------------------------- */

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

/* (block << 32 | index) of every feed-forward tensor of a block, sorted; returns how many. */
static uint32_t sort_names(uint64_t *out, const struct plec_gguf_set *set) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < set->n_tensors; i++) {
        uint32_t number;
        struct plec_view rest;
        if (plec_gguf_block_name(&number, &rest, set->tensors[i]->name) &&
            plec_gguf_is_feed_forward(rest))
            out[n++] = (uint64_t)number << 32 | i;
    }
    qsort(out, n, sizeof *out, compare);
    return n;
}

/* Appends a block when it has something to run. */
static void add_block(struct plec_gguf_model *model, uint32_t number, uint32_t first, uint32_t n) {
    struct plec_gguf_block *block = &model->blocks[model->n_blocks];
    *block = (struct plec_gguf_block){.number = number, .first = first, .n_names = n};
    snprintf(block->prefix, sizeof block->prefix, "blk.%u", number);
    struct plec_gguf_layer layer;
    plec_gguf_layer_find(&layer, model, block);
    block->dense = !plec_gguf_layer_has_experts(&layer);
    if (!block->dense || plec_gguf_layer_has(&layer, PLEC_GGUF_DENSE)) model->n_blocks++;
}

static void add_blocks(struct plec_gguf_model *model, const uint64_t *names, uint32_t n) {
    for (uint32_t i = 0; i < n; i++)
        model->members[i] = (uint32_t)names[i];
    for (uint32_t first = 0, next; first < n; first = next) {
        uint32_t number = (uint32_t)(names[first] >> 32);
        for (next = first; next < n && (uint32_t)(names[next] >> 32) == number; next++)
            continue;
        if (number < model->first_head) add_block(model, number, first, next - first);
    }
}

static uint32_t count_blocks(const uint64_t *names, uint32_t n) {
    uint32_t blocks = 0;
    for (uint32_t i = 0; i < n; i++)
        blocks += i == 0 || names[i] >> 32 != names[i - 1] >> 32;
    return blocks;
}

static enum plec_status find_blocks(struct plec_gguf_model *model, struct plec_error *err) {
    size_t n_tensors = model->set->n_tensors;
    uint64_t *names = malloc((n_tensors + 1) * sizeof *names);
    if (names == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "the names of %zu tensors", n_tensors);
    uint32_t n = sort_names(names, model->set);
    model->members = malloc((n + (size_t)1) * sizeof *model->members);
    model->blocks = malloc((count_blocks(names, n) + (size_t)1) * sizeof *model->blocks);
    bool good = model->members != NULL && model->blocks != NULL;
    if (good) add_blocks(model, names, n);
    free(names);
    return good ? PLEC_OK
                : plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a list of %u tensors", n);
}

/* -- open and close --------------------------------------------------------------------------- */

static enum plec_status take_options(struct plec_gguf_model *model,
                                     const struct plec_gguf_model_options *options,
                                     struct plec_error *err) {
    const char *as = options->architecture;
    plec_view_text(plec_gguf_architecture(model->main), model->architecture);
    plec_view_text(as != NULL ? plec_view_of(as) : plec_gguf_architecture(model->main),
                   model->rules);
    model->log = options->log;
    if (as != NULL && plec_arch_find(as) == NULL)
        return plec_fail(err, PLEC_BAD_INPUT, "UnknownArchitecture",
                         "--as \"%s\" is none of the known architectures", model->rules);
    if (options->settings == NULL) return PLEC_OK;
    return plec_arch_set_parse(&model->settings, options->settings, err);
}

enum plec_status plec_gguf_model_open(struct plec_gguf_model *out, const struct plec_gguf_set *set,
                                      const struct plec_gguf_model_options *options,
                                      struct plec_error *err) {
    static const struct plec_gguf_model_options defaults;
    memset(out, 0, sizeof *out);
    out->set = set;
    out->main = plec_gguf_set_main(set);
    out->keys = (struct plec_arch_keys){find_key, out};
    enum plec_status status = take_options(out, options == NULL ? &defaults : options, err);
    if (status == PLEC_OK) {
        out->vocabulary = count_tokens(out);
        out->first_head = first_head(out);
        status = find_blocks(out, err);
    }
    if (status != PLEC_OK) plec_gguf_model_close(out);
    return status;
}

void plec_gguf_model_close(struct plec_gguf_model *model) {
    free(model->blocks);
    free(model->members);
    memset(model, 0, sizeof *model);
}

enum plec_status plec_gguf_model_resolve(struct plec_arch_layer *out,
                                         const struct plec_gguf_model *model, uint32_t number,
                                         uint32_t n_experts, struct plec_error *err) {
    struct plec_arch_args args = {
        .name = model->rules,
        .set = model->settings.given != 0 ? &model->settings : NULL,
        .keys = &model->keys,
        .vocabulary = model->vocabulary,
        .layer = number,
        .n_experts = n_experts,
    };
    return plec_arch_resolve(out, &args, err);
}

void plec_gguf_tell(struct plec_gguf_model *model, enum plec_gguf_news which, const char *format,
                    ...) {
    uint32_t bit = 1u << which;
    if (__atomic_fetch_or(&model->told, bit, __ATOMIC_RELAXED) & bit) return;
    char text[PLEC_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    plec_log_write(&model->log, PLEC_LOG_RUN, "%s", text);
}
