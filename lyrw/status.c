#include "lyrw/status.h"

#include <stdio.h>
#include <string.h>

static int is_continuation(unsigned char byte) {
    return (byte & 0xC0) == 0x80;
}

/* Bytes of the UTF-8 character text begins with, 1 to 4; 0 when they are none. Reads no byte past
 * the NUL. */
static size_t character_bytes(const unsigned char *text) {
    if (text[0] < 0x80) return 1;
    if (text[0] < 0xC2 || text[0] > 0xF4 || !is_continuation(text[1])) return 0;
    if (text[0] < 0xE0) return 2;
    /* Overlong spellings, surrogates, and what lies beyond U+10FFFF. */
    if ((text[0] == 0xE0 && text[1] < 0xA0) || (text[0] == 0xED && text[1] > 0x9F) ||
        (text[0] == 0xF0 && text[1] < 0x90) || (text[0] == 0xF4 && text[1] > 0x8F) ||
        !is_continuation(text[2]))
        return 0;
    if (text[0] < 0xF0) return 3;
    return is_continuation(text[3]) ? 4 : 0;
}

/* Control characters, U+0080 to U+009F among them: terminals obey those too. */
static int is_control(const unsigned char *text) {
    return text[0] < 0x20 || text[0] == 0x7F || (text[0] == 0xC2 && text[1] < 0xA0);
}

/* Copies text with control characters and bytes that are not UTF-8 as \xNN, so that what comes out
 * is always UTF-8; stops whole at the capacity. */
static size_t append_escaped(char *to, size_t at, size_t capacity, const char *from) {
    static const char hex[] = "0123456789abcdef";
    const unsigned char *text = (const unsigned char *)from;
    while (*text != '\0') {
        size_t n = character_bytes(text);
        int escape = n == 0 || is_control(text);
        if (n == 0) n = 1;
        if (at + (escape ? 4 * n : n) >= capacity) break;
        for (; n > 0; n--, text++) {
            if (escape) {
                to[at++] = '\\';
                to[at++] = 'x';
                to[at++] = hex[*text >> 4];
                to[at++] = hex[*text & 15];
            } else {
                to[at++] = (char)*text;
            }
        }
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
