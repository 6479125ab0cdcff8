#include "host/routing_trace.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char magic[] = "plectrum-trace,";
enum { VERSION = 1 };

/* --- writing ------------------------------------------------------------------------------- */

size_t plec_trace_write_header(char *text, size_t size, const struct plec_trace_info *info) {
    int n = snprintf(text, size, "%s%d,%" PRIu32 ",%" PRIu32 ",%" PRIu64 ",%016" PRIx64 "\n", magic,
                     VERSION, info->n_layers, info->n_experts, info->entry_bytes, info->identity);
    return n > 0 && (size_t)n < size ? (size_t)n : 0;
}

size_t plec_trace_write_token(char *text, size_t size, uint64_t step, uint32_t layer,
                              uint32_t token, const int32_t *ids, uint32_t n) {
    int length = snprintf(text, size, "%" PRIu64 ",%" PRIu32 ",%" PRIu32, step, layer, token);
    if (length < 0 || (size_t)length >= size) return 0;
    size_t at = (size_t)length;
    for (uint32_t i = 0; i < n; i++) {
        length = snprintf(text + at, size - at, ",%" PRId32, ids[i]);
        if (length < 0 || (size_t)length >= size - at) return 0;
        at += (size_t)length;
    }
    if (at + 1 > size) return 0;
    text[at++] = '\n';
    return at;
}

/* --- reading ------------------------------------------------------------------------------- */

struct reader {
    const char *text;
    uint64_t at, end, line;
    struct plec_error *err;
    bool failed;
};

static enum plec_status fail(struct reader *reader, const char *name, const char *what) {
    reader->failed = true;
    return plec_fail_at(reader->err, PLEC_MALFORMED, name, reader->at, "line %" PRIu64 ": %s",
                        reader->line, what);
}

/* Digits of a base up to most; the first failure sticks. */
static uint64_t number(struct reader *reader, unsigned base, uint64_t most) {
    uint64_t value = 0, start = reader->at;
    while (!reader->failed && reader->at < reader->end) {
        char c = reader->text[reader->at];
        unsigned digit = c >= '0' && c <= '9'   ? (unsigned)(c - '0')
                         : c >= 'a' && c <= 'f' ? (unsigned)(c - 'a') + 10
                                                : 16;
        if (digit >= base) break;
        if (value > (most - digit) / base) fail(reader, "TraceLine", "a number too large");
        value = value * base + digit;
        reader->at++;
    }
    if (!reader->failed && reader->at == start) fail(reader, "TraceLine", "a number is wanted");
    return value;
}

static bool take(struct reader *reader, char c) {
    if (reader->failed || reader->at == reader->end || reader->text[reader->at] != c) return false;
    reader->at++;
    return true;
}

static void want(struct reader *reader, char c) {
    if (take(reader, c) || reader->failed) return;
    fail(reader, "TraceLine", c == ',' ? "a comma is wanted" : "the end of the line is wanted");
}

static void skip_notes(struct reader *reader) {
    while (!reader->failed && reader->at < reader->end && reader->text[reader->at] == '#') {
        const char *end =
            memchr(reader->text + reader->at, '\n', (size_t)(reader->end - reader->at));
        reader->at = end != NULL ? (uint64_t)(end - reader->text) + 1 : reader->end;
        reader->line++;
    }
}

static enum plec_status read_header(struct plec_trace *trace, struct reader *reader) {
    struct plec_trace_info *info = &trace->info;
    if (reader->end < sizeof magic - 1 || memcmp(reader->text, magic, sizeof magic - 1) != 0)
        return fail(reader, "NotATrace", "it does not begin with plectrum-trace");
    reader->at = sizeof magic - 1;
    if (number(reader, 10, UINT32_MAX) != VERSION && !reader->failed)
        return fail(reader, "TraceVersion", "only version 1 is known");
    want(reader, ',');
    info->n_layers = (uint32_t)number(reader, 10, UINT32_MAX);
    want(reader, ',');
    info->n_experts = (uint32_t)number(reader, 10, UINT32_MAX);
    want(reader, ',');
    info->entry_bytes = number(reader, 10, INT64_MAX);
    want(reader, ',');
    info->identity = number(reader, 16, UINT64_MAX);
    want(reader, '\n');
    reader->line++;
    if (reader->failed) return PLEC_MALFORMED;
    uint64_t all = (uint64_t)info->n_layers * info->n_experts;
    if (all > PLEC_TRACE_MAX_EXPERTS || info->n_layers > PLEC_TRACE_MAX_EXPERTS ||
        info->n_experts > PLEC_TRACE_MAX_EXPERTS ||
        (all > 0 && info->entry_bytes > (uint64_t)INT64_MAX / all))
        return plec_fail(
            reader->err, PLEC_UNSUPPORTED, "TraceTooLarge",
            "%u layers of %u experts of %" PRIu64 " bytes; at most %d of each and in all",
            info->n_layers, info->n_experts, info->entry_bytes, PLEC_TRACE_MAX_EXPERTS);
    return PLEC_OK;
}

/* Where each expert was last seen: in which dispatch, counted from 1, and in which line. */
struct seen {
    uint64_t *dispatch, *line; /* [n_experts] */
};

/* Upper bounds, by what the text holds: a line a dispatch, a comma an id. */
static enum plec_status allocate(struct seen *seen, struct plec_trace *trace,
                                 const struct reader *reader) {
    uint64_t n_lines = 0, n_commas = 0;
    for (uint64_t i = reader->at; i < reader->end; i++) {
        n_lines += reader->text[i] == '\n';
        n_commas += reader->text[i] == ',';
    }
    n_lines++; /* the last may lack its end */
    struct plec_arena *arena = &trace->arena;
    uint64_t n_experts = trace->info.n_experts;
    trace->dispatches = plec_arena_alloc(arena, n_lines, sizeof *trace->dispatches, reader->err);
    trace->ids = plec_arena_alloc(arena, n_commas, sizeof *trace->ids, reader->err);
    seen->dispatch = plec_arena_alloc(arena, n_experts, sizeof(uint64_t), reader->err);
    seen->line = plec_arena_alloc(arena, n_experts, sizeof(uint64_t), reader->err);
    bool done = trace->dispatches != NULL && trace->ids != NULL && seen->dispatch != NULL &&
                seen->line != NULL;
    return done ? PLEC_OK : PLEC_NO_MEMORY;
}

static int compare_ids(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

static void sort_last(struct plec_trace *trace) {
    if (trace->n_dispatches == 0) return;
    struct plec_trace_dispatch *last = &trace->dispatches[trace->n_dispatches - 1];
    if (last->n_ids > 1)
        qsort(trace->ids + last->first_id, last->n_ids, sizeof *trace->ids, compare_ids);
}

/* The dispatch that a line belongs to: the last one, or a new one. NULL: out of order. */
static struct plec_trace_dispatch *dispatch_of(struct plec_trace *trace, uint64_t step,
                                               uint32_t layer) {
    struct plec_trace_dispatch *last =
        trace->n_dispatches > 0 ? &trace->dispatches[trace->n_dispatches - 1] : NULL;
    if (last != NULL && last->step == step && last->layer == layer) return last;
    if (last != NULL && (step < last->step || (step == last->step && layer < last->layer)))
        return NULL;
    if (last == NULL || last->step != step) trace->n_steps++;
    sort_last(trace);
    struct plec_trace_dispatch *next = &trace->dispatches[trace->n_dispatches++];
    *next = (struct plec_trace_dispatch){.step = step, .layer = layer, .first_id = trace->n_ids};
    return next;
}

/* Adds a token's ids to the union of its dispatch. */
static void read_ids(struct plec_trace *trace, struct reader *reader,
                     struct plec_trace_dispatch *dispatch, const struct seen *seen) {
    while (take(reader, ',')) {
        uint64_t id = number(reader, 10, UINT32_MAX);
        if (reader->failed) return;
        if (id >= trace->info.n_experts) {
            fail(reader, "BadExpertId", "an expert that no layer has");
            return;
        }
        if (seen->line[id] == reader->line) {
            fail(reader, "RepeatedExpert", "a token has an expert twice");
            return;
        }
        seen->line[id] = reader->line;
        if (seen->dispatch[id] == trace->n_dispatches) continue;
        seen->dispatch[id] = trace->n_dispatches;
        trace->ids[trace->n_ids++] = (uint32_t)id;
        dispatch->n_ids++;
    }
}

static enum plec_status read_line(struct plec_trace *trace, struct reader *reader,
                                  const struct seen *seen) {
    uint64_t step = number(reader, 10, (uint64_t)1 << 40);
    want(reader, ',');
    uint32_t layer = (uint32_t)number(reader, 10, UINT32_MAX);
    want(reader, ',');
    (void)number(reader, 10, UINT32_MAX); /* the token: lines tell tokens apart already */
    if (reader->failed) return PLEC_MALFORMED;
    if (layer >= trace->info.n_layers)
        return fail(reader, "BadLayer", "a layer that the first line does not count");
    struct plec_trace_dispatch *dispatch = dispatch_of(trace, step, layer);
    if (dispatch == NULL) return fail(reader, "TraceOrder", "a step or layer after a later one");
    read_ids(trace, reader, dispatch, seen);
    want(reader, '\n');
    dispatch->n_tokens++;
    trace->n_tokens++;
    reader->line++;
    return reader->failed ? PLEC_MALFORMED : PLEC_OK;
}

enum plec_status plec_trace_parse(struct plec_trace *out, const char *text, uint64_t n_bytes,
                                  struct plec_error *err) {
    *out = (struct plec_trace){0};
    struct reader reader = {.text = text, .end = n_bytes, .line = 1, .err = err};
    struct seen seen;
    enum plec_status status = read_header(out, &reader);
    if (status == PLEC_OK) status = allocate(&seen, out, &reader);
    if (status == PLEC_OK) skip_notes(&reader);
    while (status == PLEC_OK && reader.at < reader.end) {
        status = read_line(out, &reader, &seen);
        skip_notes(&reader);
    }
    if (status == PLEC_OK)
        sort_last(out);
    else
        plec_trace_close(out);
    return status;
}

void plec_trace_close(struct plec_trace *trace) {
    plec_arena_close(&trace->arena);
    *trace = (struct plec_trace){0};
}
