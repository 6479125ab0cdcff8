/* region_list.h: every region of a LYRW file as lines or JSON objects, with hashes when asked. */
#ifndef PLEC_TOOLS_REGION_LIST_H
#define PLEC_TOOLS_REGION_LIST_H

#include "lyrw/segment.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/progress.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_region_list {
    const struct plec_segment *segment;
    const char *key;                /* JSON: a first member "segment"; NULL: none */
    bool hash;                      /* with fnv and decoded_fnv */
    struct plec_json_stream *json;  /* a list has begun in it; NULL: lines on stdout */
    struct plec_progress *progress; /* of hashing */
    uint64_t hashed;                /* bytes so far, carried from file to file */
};

void plec_region_list_print(struct plec_region_list *list);

#ifdef __cplusplus
}
#endif
#endif
