#include "lyrw/status.h"

#include <stdio.h>
#include <string.h>

#include "lyrw/view.h"

/* Copies text with what is not clean as \xNN, so that what comes out is always UTF-8; stops whole
 * at the capacity. */
static size_t append_escaped(char *to, size_t at, size_t capacity, const char *from) {
    static const char hex[] = "0123456789abcdef";
    for (size_t left = strlen(from); left > 0;) {
        size_t n = plec_view_clean_length(from, left);
        if (at + (n == 0 ? 4 : n) >= capacity) break;
        if (n > 0) {
            memcpy(to + at, from, n);
            at += n;
        } else {
            unsigned char byte = (unsigned char)*from;
            const char escaped[4] = {'\\', 'x', hex[byte >> 4], hex[byte & 15]};
            memcpy(to + at, escaped, 4);
            at += 4;
            n = 1;
        }
        from += n;
        left -= n;
    }
    to[at] = '\0';
    return at;
}

static enum plec_status fill(struct plec_error *err, enum plec_status code, const char *name,
                             uint64_t byte, const char *suffix, const char *format, va_list args) {
    if (err == NULL) return code;
    char text[PLEC_ERROR_MESSAGE_MAX];
    vsnprintf(text, sizeof text, format, args);
    err->code = code;
    err->name = name;
    err->byte = byte;
    size_t at = append_escaped(err->message, 0, sizeof err->message, name);
    at = append_escaped(err->message, at, sizeof err->message, ": ");
    at = append_escaped(err->message, at, sizeof err->message, text);
    append_escaped(err->message, at, sizeof err->message, suffix);
    return code;
}

enum plec_status plec_fail(struct plec_error *err, enum plec_status code, const char *name,
                           const char *format, ...) {
    va_list args;
    va_start(args, format);
    fill(err, code, name, 0, "", format, args);
    va_end(args);
    return code;
}

enum plec_status plec_fail_at(struct plec_error *err, enum plec_status code, const char *name,
                              uint64_t byte, const char *format, ...) {
    char suffix[40];
    snprintf(suffix, sizeof suffix, " at byte %llu", (unsigned long long)byte);
    va_list args;
    va_start(args, format);
    fill(err, code, name, byte, suffix, format, args);
    va_end(args);
    return code;
}

void plec_error_context(struct plec_error *err, const char *format, ...) {
    if (err == NULL) return;
    char text[PLEC_ERROR_MESSAGE_MAX], old[PLEC_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    memcpy(old, err->message, sizeof old);
    size_t at = append_escaped(err->message, 0, sizeof err->message, text);
    at = append_escaped(err->message, at, sizeof err->message, ": ");
    append_escaped(err->message, at, sizeof err->message, old);
}

const char *plec_status_name(enum plec_status status) {
    switch (status) {
    case PLEC_OK: return "ok";
    case PLEC_MALFORMED: return "malformed";
    case PLEC_UNSUPPORTED: return "unsupported";
    case PLEC_MISSING: return "missing";
    case PLEC_BAD_INPUT: return "bad input";
    case PLEC_NO_MEMORY: return "no memory";
    case PLEC_IO: return "input/output";
    case PLEC_NO_DEVICE: return "no device";
    case PLEC_CANCELLED: return "cancelled";
    }
    return "unknown";
}

void plec_log_write(const struct plec_log *log, enum plec_log_level level, const char *format,
                    ...) {
    if (log == NULL || log->write == NULL) return;
    char text[PLEC_ERROR_MESSAGE_MAX], escaped[PLEC_ERROR_MESSAGE_MAX];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    append_escaped(escaped, 0, sizeof escaped, text);
    log->write(log->user, level, escaped);
}
