/* The mode bytes: every field of a file, where it stands and the bytes it begins with. */
#include "tools/plectrum/gguf_modes.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/gguf_split.h"
#include "tools/plectrum/cli.h"
#include "tools/plectrum/gguf_spans.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/json_stream.h"
#include "tools/plectrum/say_findings.h"

enum { SHOWN_BYTES = 12 };

static void hex_text(char *out, const uint8_t *bytes, uint64_t n) {
    uint64_t shown = n < SHOWN_BYTES ? n : SHOWN_BYTES;
    out[0] = '\0';
    for (uint64_t i = 0; i < shown; i++)
        out += sprintf(out, "%s%02x", i > 0 ? " " : "", bytes[i]);
    if (n > shown) strcpy(out, " ...");
}

static void print_span(const struct plec_gguf_span *span, const struct plec_gguf *file) {
    char hex[3 * SHOWN_BYTES + 8], text[PLEC_SPAN_TEXT_MAX];
    hex_text(hex, file->data + span->at, span->n_bytes);
    printf("%14llu %14llu  %-40s %s\n", (unsigned long long)span->at,
           (unsigned long long)span->n_bytes, hex, plec_span_text(text, span, file));
}

static json_t *span_json(const struct plec_gguf_span *span, uint32_t i,
                         const struct plec_gguf *file) {
    char hex[3 * SHOWN_BYTES + 8], text[PLEC_SPAN_TEXT_MAX];
    hex_text(hex, file->data + span->at, span->n_bytes);
    return json_pack("{s:I, s:o, s:o, s:s, s:s}", "file", (json_int_t)i, "at",
                     plec_json_of_u64(span->at), "bytes", plec_json_of_u64(span->n_bytes), "hex",
                     hex, "field", plec_span_text(text, span, file));
}

/* False when out of memory. */
static bool show_file(const struct plec_gguf *file, uint32_t i, struct plec_json_stream *json) {
    size_t n_spans;
    struct plec_gguf_span *spans = plec_spans_of(&n_spans, file);
    if (spans == NULL) return false;
    for (size_t k = 0; k < n_spans; k++)
        if (json != NULL)
            plec_json_list_item(json, span_json(&spans[k], i, file));
        else
            print_span(&spans[k], file);
    free(spans);
    return true;
}

static bool show(const struct plec_gguf_set *set, struct plec_json_stream *json) {
    bool good = true;
    if (json == NULL) printf("%14s %14s  %-40s %s\n", "at", "bytes", "begins with", "field");
    for (uint32_t i = 0; i < set->n_shards && good; i++) {
        if (!set->shards[i].present) continue;
        if (json == NULL && set->n_shards > 1) printf("file %u of %u\n", i + 1, set->n_shards);
        good = show_file(&set->shards[i].file, i, json);
        if (good && json == NULL)
            printf("%llu bytes in the file\n", (unsigned long long)set->shards[i].file.size);
    }
    return good;
}

int plec_gguf_bytes(const char *const *operands, const struct plec_gguf_options *options) {
    struct plec_gguf_set set;
    struct plec_error err;
    if (plec_gguf_set_open(&set, operands[0], PLEC_GGUF_LOOK, &err) != PLEC_OK)
        return plec_cli_error(&err);
    bool good;
    if (options->json) {
        struct plec_json_stream json = {.out = stdout};
        plec_json_member(&json, "mode", json_string("bytes"));
        plec_json_list_begin(&json, "spans");
        good = show(&set, &json);
        plec_json_list_end(&json);
        good = plec_json_end(&json) && good;
    } else {
        good = show(&set, NULL);
    }
    if (!good) plec_cli_say("out of memory");
    int leave = plec_say_findings(operands[0], &set.findings);
    plec_gguf_set_close(&set);
    return good ? leave : PLEC_EXIT_MACHINE;
}
