#include "host/span.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static int by_place(const void *a, const void *b) {
    const struct plec_span *x = a, *y = b;
    if (x->frame_at != y->frame_at) return x->frame_at < y->frame_at ? -1 : 1;
    return x->bit < y->bit ? -1 : x->bit > y->bit;
}

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* Whole blocks around a span are its own to write unless another span reaches into them. */
static void find_slack(struct plec_span *spans, uint32_t n) {
    uint64_t end = 0; /* of all spans so far */
    for (uint32_t i = 0; i < n; i++) {
        struct plec_span *span = &spans[i];
        struct plec_range range = {span->file, span->offset, span->length, span->frame_at};
        uint64_t next = i + 1 < n ? spans[i + 1].frame_at : UINT64_MAX;
        uint32_t before = plec_range_slack_before(&range), after = plec_range_slack_after(&range);
        span->slack_before = end <= span->frame_at - before ? before : 0;
        end = larger(end, span->frame_at + span->length);
        span->slack_after = span->frame_at + span->length + after <= next ? after : 0;
    }
}

/* Bytes of each stream of one entry; 0: absent. */
static enum plec_status stream_bytes(uint64_t n_bytes[PLEC_N_STREAMS], const struct plec_bank *bank,
                                     struct plec_error *err) {
    memset(n_bytes, 0, PLEC_N_STREAMS * sizeof *n_bytes);
    for (uint32_t i = 0; i < PLEC_N_OPERANDS; i++) {
        const struct plec_operand *operand = &bank->operands[i];
        uint64_t scales = 0;
        if (operand->rows == 0) continue;
        enum plec_status status = plec_format_size(&n_bytes[i], &scales, operand->format,
                                                   operand->rows, operand->cols, err);
        if (status != PLEC_OK) return status;
        if (i < PLEC_N_MATRICES) n_bytes[PLEC_N_OPERANDS + i] = scales;
    }
    return PLEC_OK;
}

/* Where a place in the frame of an entry's extent stands in its file. */
static void locate(struct plec_span *span, const struct plec_extent_map *map, uint32_t entry) {
    for (uint32_t i = map->entry_first[entry]; i < map->entry_first[entry + 1]; i++) {
        const struct plec_range *range = &map->entry_ranges[i];
        if (span->frame_at < range->frame_at || span->frame_at - range->frame_at >= range->length)
            continue;
        span->file = range->file;
        span->offset = range->offset + (span->frame_at - range->frame_at);
        return;
    }
    assert(!"a stream outside its entry's ranges");
}

static uint32_t add_extent(struct plec_span *spans, const struct plec_extent_map *map,
                           uint32_t extent, const uint64_t n_bytes[PLEC_N_STREAMS]) {
    uint32_t n = 0, first = map->first_entry[extent];
    for (uint32_t e = first; e < map->first_entry[extent + 1]; e++)
        for (uint32_t i = 0; i < PLEC_N_STREAMS; i++) {
            uint64_t at = map->stream_at[(size_t)e * PLEC_N_STREAMS + i];
            if (at == UINT64_MAX || n_bytes[i] == 0) continue;
            spans[n] = (struct plec_span){.bit = e - first, .length = n_bytes[i], .frame_at = at};
            locate(&spans[n++], map, e);
        }
    qsort(spans, n, sizeof *spans, by_place);
    find_slack(spans, n);
    return n;
}

static enum plec_status add_source(struct plec_span_table *table, uint32_t *n_keys,
                                   const struct plec_span_source *source, struct plec_error *err) {
    uint64_t n_bytes[PLEC_N_STREAMS];
    enum plec_status status = stream_bytes(n_bytes, source->bank, err);
    if (status != PLEC_OK) return status;
    for (uint32_t e = 0; e < source->map->n_extents; e++, ++*n_keys) {
        uint32_t at = table->first[*n_keys];
        uint32_t n = add_extent(&table->spans[at], source->map, e, n_bytes);
        table->first[*n_keys + 1] = at + n;
        if (n > table->max_spans) table->max_spans = n;
    }
    return PLEC_OK;
}

enum plec_status plec_span_table_open(struct plec_span_table *out,
                                      const struct plec_span_source *sources, uint32_t n_sources,
                                      struct plec_error *err) {
    memset(out, 0, sizeof *out);
    uint64_t n_entries = 0, n_extents = 0;
    for (uint32_t i = 0; i < n_sources; i++) {
        n_entries += sources[i].map->n_entries;
        n_extents += sources[i].map->n_extents;
    }
    if (n_entries > UINT32_MAX / PLEC_N_STREAMS)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "byte ranges of %llu experts",
                         (unsigned long long)n_entries);
    out->spans = plec_arena_alloc(&out->arena, n_entries * PLEC_N_STREAMS, sizeof *out->spans, err);
    out->first = plec_arena_alloc(&out->arena, n_extents + 1, sizeof *out->first, err);
    enum plec_status status = out->spans == NULL || out->first == NULL ? PLEC_NO_MEMORY : PLEC_OK;
    uint32_t n_keys = 0;
    for (uint32_t i = 0; status == PLEC_OK && i < n_sources; i++)
        status = add_source(out, &n_keys, &sources[i], err);
    if (status != PLEC_OK) plec_span_table_close(out);
    return status;
}

void plec_span_table_close(struct plec_span_table *table) {
    plec_arena_close(&table->arena);
    memset(table, 0, sizeof *table);
}

/* Whether a span that follows a piece's last one in the table goes on where it ends. */
static bool joins(const struct plec_piece *piece, const struct plec_span *span) {
    uint64_t end = piece->frame_at + piece->length;
    return span->file == piece->file &&
           span->offset - piece->offset == span->frame_at - piece->frame_at &&
           (span->frame_at <= end || span->frame_at - end < PLEC_RANGE_GAP);
}

/* The next piece at or after span *i; false: there is none. *i moves behind it. */
static bool next_piece(struct plec_piece *out, uint32_t *i, const struct plec_span_table *table,
                       uint32_t end, uint64_t mask) {
    while (*i < end && (mask >> table->spans[*i].bit & 1) == 0)
        ++*i;
    if (*i == end) return false;
    const struct plec_span *span = &table->spans[*i];
    *out = (struct plec_piece){.file = span->file,
                               .slack_before = span->slack_before,
                               .slack_after = span->slack_after,
                               .offset = span->offset,
                               .length = span->length,
                               .frame_at = span->frame_at};
    while (++*i < end) {
        span = &table->spans[*i];
        if ((mask >> span->bit & 1) == 0 || !joins(out, span)) break;
        uint64_t length = span->frame_at + span->length - out->frame_at;
        if (length < out->length) continue; /* within what another expert shares */
        out->length = length;
        out->slack_after = span->slack_after;
    }
    return true;
}

uint32_t plec_span_pieces(struct plec_piece *out, const struct plec_span_table *table, uint32_t key,
                          uint64_t mask) {
    uint32_t n = 0, i = table->first[key];
    while (next_piece(&out[n], &i, table, table->first[key + 1], mask))
        n++;
    return n;
}

uint64_t plec_span_bytes(const struct plec_span_table *table, uint32_t key, uint64_t mask) {
    struct plec_piece piece;
    uint64_t n_bytes = 0;
    for (uint32_t i = table->first[key];
         next_piece(&piece, &i, table, table->first[key + 1], mask);)
        n_bytes += piece.length;
    return n_bytes;
}
