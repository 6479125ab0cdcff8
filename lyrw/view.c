#include "lyrw/view.h"

#include <stdio.h>
#include <string.h>

struct plec_view plec_view_of(const char *text) {
    return (struct plec_view){text, strlen(text)};
}

int plec_view_compare(struct plec_view a, struct plec_view b) {
    size_t shorter = (size_t)(a.size < b.size ? a.size : b.size);
    int order = shorter == 0 ? 0 : memcmp(a.data, b.data, shorter);
    if (order != 0) return order;
    return a.size < b.size ? -1 : a.size > b.size;
}

bool plec_view_equal(struct plec_view a, struct plec_view b) {
    return a.size == b.size && (a.size == 0 || memcmp(a.data, b.data, (size_t)a.size) == 0);
}

bool plec_view_is(struct plec_view a, const char *text) {
    return plec_view_equal(a, plec_view_of(text));
}

bool plec_view_starts(struct plec_view a, const char *prefix) {
    size_t n = strlen(prefix);
    return a.size >= n && (n == 0 || memcmp(a.data, prefix, n) == 0);
}

bool plec_view_ends(struct plec_view a, const char *suffix) {
    size_t n = strlen(suffix);
    return a.size >= n && (n == 0 || memcmp(a.data + a.size - n, suffix, n) == 0);
}

static bool continues(const char *data, unsigned i) {
    return ((unsigned char)data[i] & 0xC0u) == 0x80u;
}

unsigned plec_utf8_length(const char *data, uint64_t size) {
    if (size == 0) return 0;
    unsigned char first = (unsigned char)data[0];
    if (first < 0x80u) return 1;
    if (first < 0xC2u || first > 0xF4u) return 0;
    unsigned n = first < 0xE0u ? 2 : first < 0xF0u ? 3 : 4;
    if (size < n) return 0;
    for (unsigned i = 1; i < n; i++)
        if (!continues(data, i)) return 0;
    unsigned char second = (unsigned char)data[1];
    if (first == 0xE0u && second < 0xA0u) return 0; /* overlong */
    if (first == 0xEDu && second > 0x9Fu) return 0; /* surrogate */
    if (first == 0xF0u && second < 0x90u) return 0; /* overlong */
    if (first == 0xF4u && second > 0x8Fu) return 0; /* beyond U+10FFFF */
    return n;
}

unsigned plec_view_clean_length(const char *data, uint64_t size) {
    unsigned n = plec_utf8_length(data, size);
    unsigned char first = n == 0 ? 0 : (unsigned char)data[0];
    if (n == 1 && (first < 0x20u || first == 0x7Fu)) return 0;
    if (n == 2 && first == 0xC2u && (unsigned char)data[1] < 0xA0u) return 0;
    return n;
}

bool plec_view_is_clean(struct plec_view view) {
    for (uint64_t at = 0; at < view.size;) {
        unsigned n = plec_view_clean_length(view.data + at, view.size - at);
        if (n == 0) return false;
        at += n;
    }
    return true;
}

const char *plec_view_text(struct plec_view view, char *buffer) {
    enum { ROOM_FOR_CUT = 4 };
    size_t to = 0;
    for (uint64_t at = 0; at < view.size;) {
        unsigned n = plec_view_clean_length(view.data + at, view.size - at);
        unsigned width = n == 0 ? 4 : n;
        if (to + width > PLEC_VIEW_TEXT_MAX - ROOM_FOR_CUT) {
            memcpy(buffer + to, "...", 4);
            return buffer;
        }
        if (n == 0) {
            snprintf(buffer + to, 5, "\\x%02x", (unsigned)(unsigned char)view.data[at]);
            at++;
        } else {
            memcpy(buffer + to, view.data + at, n);
            at += n;
        }
        to += width;
    }
    buffer[to] = '\0';
    return buffer;
}
