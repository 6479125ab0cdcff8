#include "manifests/json_place.h"

#include <stdint.h>
#include <stdio.h>

/* One open bracket and where in it the scan stands. */
struct frame {
    bool array, wants_key;
    uint64_t index;              /* array: the item */
    size_t key_begin, key_bytes; /* object: the latest key, between its quotes */
};

struct place {
    struct frame frames[PLEC_JSON_DEPTH_MAX];
    size_t depth;
};

/* The byte after the string that opens at `at`. */
static size_t skip_string(const char *text, size_t n_bytes, size_t at) {
    for (at++; at < n_bytes && text[at] != '"'; at++)
        if (text[at] == '\\') at++;
    return at < n_bytes ? at + 1 : n_bytes;
}

static size_t take_string(struct place *place, const char *text, size_t n_bytes, size_t at) {
    size_t end = skip_string(text, n_bytes, at);
    if (place->depth > 0) {
        struct frame *top = &place->frames[place->depth - 1];
        if (!top->array && top->wants_key) {
            top->key_begin = at + 1;
            top->key_bytes = end > at + 1 ? end - at - 2 : 0;
        }
    }
    return end;
}

static void take_separator(struct place *place, char byte) {
    if (place->depth == 0) return;
    struct frame *top = &place->frames[place->depth - 1];
    if (byte == ':') top->wants_key = false;
    if (byte != ',') return;
    top->wants_key = true;
    top->index++;
}

/* Scans text up to `end`. Returns the byte it stopped at: end, or the bracket that is too deep. */
static size_t scan(struct place *place, const char *text, size_t end) {
    place->depth = 0;
    for (size_t at = 0; at < end;) {
        switch (text[at]) {
        case '"': at = take_string(place, text, end, at); continue;
        case '{':
        case '[':
            if (place->depth == PLEC_JSON_DEPTH_MAX) return at;
            place->frames[place->depth++] =
                (struct frame){.array = text[at] == '[', .wants_key = true};
            break;
        case '}':
        case ']':
            if (place->depth > 0) place->depth--;
            break;
        default: take_separator(place, text[at]);
        }
        at++;
    }
    return end;
}

bool plec_json_place_depth(size_t *at, const char *text, size_t n_bytes) {
    struct place place;
    *at = scan(&place, text, n_bytes);
    return *at == n_bytes;
}

static size_t append_frame(char *path, size_t used, const struct frame *frame, const char *text) {
    size_t left = PLEC_JSON_PATH_MAX - used;
    int n = 0;
    if (frame->array)
        n = snprintf(path + used, left, "[%llu]", (unsigned long long)frame->index);
    else if (frame->key_bytes > 0)
        n = snprintf(path + used, left, "%s%.*s", used > 0 ? "." : "", (int)frame->key_bytes,
                     text + frame->key_begin);
    if (n < 0) return used;
    return (size_t)n < left ? used + (size_t)n : PLEC_JSON_PATH_MAX - 1;
}

void plec_json_place_path(char *path, const char *text, size_t at) {
    struct place place;
    scan(&place, text, at);
    size_t used = 0;
    for (size_t i = 0; i < place.depth; i++)
        used = append_frame(path, used, &place.frames[i], text);
    if (used == 0) snprintf(path, PLEC_JSON_PATH_MAX, "the document");
}
