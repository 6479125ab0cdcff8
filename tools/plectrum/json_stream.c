#include "tools/plectrum/json_stream.h"

#include <math.h>

json_t *plec_json_real(double value) {
    return isfinite(value) ? json_real(value) : json_null();
}

/* What cannot be made is null, so that the object is whole; the end tells of it. */
static void dump(struct plec_json_stream *stream, json_t *value) {
    if (value == NULL) {
        stream->failed = true;
        fputs("null", stream->out);
    } else if (json_dumpf(value, stream->out, JSON_ENCODE_ANY) != 0) {
        stream->failed = true;
    }
    json_decref(value);
}

static void begin_member(struct plec_json_stream *stream, const char *key) {
    fputs(stream->in_object ? ", " : "{", stream->out);
    stream->in_object = true;
    fprintf(stream->out, "\"%s\": ", key);
}

void plec_json_member(struct plec_json_stream *stream, const char *key, json_t *value) {
    begin_member(stream, key);
    dump(stream, value);
}

void plec_json_list_begin(struct plec_json_stream *stream, const char *key) {
    begin_member(stream, key);
    fputc('[', stream->out);
    stream->list_started = false;
}

void plec_json_list_item(struct plec_json_stream *stream, json_t *value) {
    if (stream->list_started) fputs(", ", stream->out);
    stream->list_started = true;
    dump(stream, value);
}

void plec_json_list_end(struct plec_json_stream *stream) {
    fputc(']', stream->out);
}

bool plec_json_end(struct plec_json_stream *stream) {
    fputs(stream->in_object ? "}\n" : "{}\n", stream->out);
    return !stream->failed && !ferror(stream->out);
}
