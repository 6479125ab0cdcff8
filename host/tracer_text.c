#include "host/tracer_text.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "lyrw/view.h"

enum plec_status plec_text_open(struct plec_text *text, const char *path, struct plec_error *err) {
    text->n = 0;
    text->written = 0;
    text->status = PLEC_OK;
    return plec_atomic_file_open_beside(&text->file, path, err);
}

static void flush(struct plec_text *text) {
    if (text->status == PLEC_OK)
        text->status =
            plec_atomic_file_write(&text->file, text->written, text->buffer, text->n, &text->error);
    text->written += text->n;
    text->n = 0;
}

static void add_bytes(struct plec_text *text, const char *bytes, size_t n) {
    if (text->n + n > sizeof text->buffer) flush(text);
    memcpy(text->buffer + text->n, bytes, n);
    text->n += n;
}

void plec_text_add(struct plec_text *text, const char *format, ...) {
    char line[PLEC_TEXT_LINE];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, sizeof line, format, args);
    va_end(args);
    assert(n >= 0 && n < PLEC_TEXT_LINE);
    add_bytes(text, line, (size_t)n);
}

void plec_text_add_string(struct plec_text *text, const char *value) {
    size_t size = strlen(value), length;
    add_bytes(text, "\"", 1);
    for (size_t i = 0; i < size; i += length) {
        length = plec_view_clean_length(value + i, size - i);
        if (length == 0) {
            add_bytes(text, "?", 1);
            length = 1;
            continue;
        }
        if (value[i] == '"' || value[i] == '\\') add_bytes(text, "\\", 1);
        add_bytes(text, value + i, length);
    }
    add_bytes(text, "\"", 1);
}

enum plec_status plec_text_close(struct plec_text *text, struct plec_error *err) {
    flush(text);
    if (text->status == PLEC_OK) return plec_atomic_file_commit(&text->file, err);
    plec_atomic_file_abort(&text->file);
    if (err != NULL) *err = text->error;
    return text->status;
}
