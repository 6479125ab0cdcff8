#include "tools/plectrum/gguf_text.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The decimal exponent that %e printed. */
static int exponent_of(const char *text) {
    const char *e = strchr(text, 'e');
    return e == NULL ? 0 : atoi(e + 1);
}

const char *plec_real_text(char *buffer, double value, bool single) {
    if (isnan(value)) return strcpy(buffer, "nan");
    if (isinf(value)) return strcpy(buffer, value < 0 ? "-inf" : "inf");
    if (value == 0) return strcpy(buffer, signbit(value) ? "-0.0" : "0");
    int digits = 1;
    for (; digits < 17; digits++) {
        snprintf(buffer, PLEC_REAL_TEXT_MAX, "%.*e", digits - 1, value);
        double back = strtod(buffer, NULL);
        if (single ? (float)back == (float)value : back == value) break;
    }
    snprintf(buffer, PLEC_REAL_TEXT_MAX, "%.*e", digits - 1, value);
    int exponent = exponent_of(buffer);
    if (exponent >= -4 && exponent < 21 && (exponent < 6 || digits > exponent))
        snprintf(buffer, PLEC_REAL_TEXT_MAX, "%.*f",
                 digits - 1 > exponent ? digits - 1 - exponent : 0, value);
    return buffer;
}

const char *plec_shape_text(char *buffer, const uint64_t *ne, uint32_t n_dims) {
    size_t at = 0;
    strcpy(buffer, "scalar");
    for (uint32_t i = 0; i < n_dims; i++)
        at += (size_t)snprintf(buffer + at, PLEC_SHAPE_TEXT_MAX - at, "%s%llu", i > 0 ? " x " : "",
                               (unsigned long long)ne[i]);
    return buffer;
}

/* Bytes of the clean character at the front; 0 when it must be escaped. */
static unsigned clean_front(struct plec_view text) {
    unsigned n = plec_utf8_length(text.data, text.size);
    return n > 0 && plec_view_is_clean((struct plec_view){text.data, n}) ? n : 0;
}

static struct plec_view after(struct plec_view text, uint64_t n) {
    return (struct plec_view){text.data + n, text.size - n};
}

void plec_put_view(FILE *stream, struct plec_view text) {
    while (text.size > 0) {
        unsigned n = clean_front(text);
        if (n == 0)
            fprintf(stream, "\\x%02x", (unsigned)(unsigned char)text.data[0]);
        else
            fwrite(text.data, 1, n, stream);
        text = after(text, n == 0 ? 1 : n);
    }
}

void plec_put_quoted(FILE *stream, struct plec_view text, uint64_t most) {
    uint64_t left_out = 0;
    if (text.size > most) {
        uint64_t keep = 0; /* whole characters only */
        for (unsigned n; keep < most; keep += n == 0 ? 1 : n) {
            n = clean_front(after(text, keep));
            if (n > most - keep) break;
        }
        left_out = text.size - keep;
        text.size = keep;
    }
    fputc('"', stream);
    while (text.size > 0) {
        unsigned n = clean_front(text);
        char c = text.data[0];
        if (c == '\n' || c == '\t' || c == '\r')
            fprintf(stream, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else if (c == '"' || c == '\\')
            fprintf(stream, "\\%c", c);
        else
            plec_put_view(stream, (struct plec_view){text.data, n == 0 ? 1 : n});
        text = after(text, n == 0 ? 1 : n);
    }
    fputc('"', stream);
    if (left_out > 0) fprintf(stream, " ... and %llu more bytes", (unsigned long long)left_out);
}

void plec_put_json_string(FILE *stream, struct plec_view text) {
    fputc('"', stream);
    for (uint64_t i = 0; i < text.size; i++) {
        unsigned char c = (unsigned char)text.data[i];
        if (c == '"' || c == '\\')
            fprintf(stream, "\\%c", c);
        else if (c == '\n' || c == '\t' || c == '\r')
            fprintf(stream, "\\%c", c == '\n' ? 'n' : c == '\t' ? 't' : 'r');
        else if (c < 0x20 || c == 0x7F)
            fprintf(stream, "\\u%04x", c);
        else
            fputc(c, stream);
    }
    fputc('"', stream);
}

bool plec_view_is_utf8(struct plec_view text) {
    while (text.size > 0) {
        unsigned n = plec_utf8_length(text.data, text.size);
        if (n == 0) return false;
        text = after(text, n);
    }
    return true;
}

json_t *plec_json_of_view(struct plec_view text) {
    if (plec_view_is_utf8(text)) return json_stringn(text.data, (size_t)text.size);
    char *made = NULL;
    size_t n = 0;
    FILE *stream = open_memstream(&made, &n);
    if (stream == NULL) return NULL;
    plec_put_view(stream, text);
    json_t *json = fclose(stream) == 0 ? json_stringn(made, n) : NULL;
    free(made);
    return json;
}

json_t *plec_json_of_u64(uint64_t value) {
    if (value <= INT64_MAX) return json_integer((json_int_t)value);
    char digits[24];
    snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    return json_string(digits);
}
