/* json_stream.h: one JSON object on stdout, written member by member, so that long lists need no
 * memory. Members stand in the order of the calls; integers are exact.
 */
#ifndef PLEC_TOOLS_JSON_STREAM_H
#define PLEC_TOOLS_JSON_STREAM_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

/* Zeroed but for `out`: nothing written yet. */
struct plec_json_stream {
    FILE *out;
    bool in_object, list_started;
    bool failed; /* out of memory or a failed write */
};

/* A number; null for what JSON has none for: infinity, NaN. */
json_t *plec_json_real(double value);

/* A whole member. Takes the reference of value; NULL marks the stream failed. */
void plec_json_member(struct plec_json_stream *stream, const char *key, json_t *value);
/* A member that is a list: begin, any number of items, end. */
void plec_json_list_begin(struct plec_json_stream *stream, const char *key);
void plec_json_list_item(struct plec_json_stream *stream, json_t *value);
void plec_json_list_end(struct plec_json_stream *stream);
/* Closes the object and ends the line. Returns false when anything failed. */
bool plec_json_end(struct plec_json_stream *stream);

#endif
