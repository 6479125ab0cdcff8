#include "host/extent.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* The bytes of one stream of one entry in its file. */
struct region {
    uint32_t file;
    uint64_t offset, end;
};

struct builder {
    struct plec_extent_map *map;
    const struct plec_bank *bank;
    uint32_t streams[PLEC_N_STREAMS]; /* that the bank has */
    uint64_t n_bytes[PLEC_N_STREAMS]; /* of one entry, likewise */
    uint32_t n_streams;
    struct region *regions; /* [n_entries, n_streams] */
    struct region *sorted;  /* [width, n_streams], of the extent at hand */
};

static const char *const stream_names[PLEC_N_STREAMS] = {"gate",        "up",        "down",
                                                         "gate_bias",   "up_bias",   "down_bias",
                                                         "gate_scales", "up_scales", "down_scales"};

static const uint8_t *stream_of(const struct plec_entry *entry, uint32_t stream) {
    return stream < PLEC_N_OPERANDS ? entry->values[stream]
                                    : entry->scales[stream - PLEC_N_OPERANDS];
}

static void add_stream(struct builder *b, uint32_t stream, uint64_t n_bytes) {
    if (n_bytes == 0) return;
    b->streams[b->n_streams] = stream;
    b->n_bytes[b->n_streams++] = n_bytes;
}

static enum plec_status list_streams(struct builder *b, struct plec_error *err) {
    uint64_t scales[PLEC_N_OPERANDS] = {0};
    for (uint32_t i = 0; i < PLEC_N_OPERANDS; i++) {
        const struct plec_operand *operand = &b->bank->operands[i];
        if (operand->rows == 0) continue;
        uint64_t values;
        enum plec_status status = plec_format_size(&values, &scales[i], operand->format,
                                                   operand->rows, operand->cols, err);
        if (status != PLEC_OK) {
            plec_error_context(err, "operand %s", stream_names[i]);
            return status;
        }
        add_stream(b, i, values);
    }
    for (uint32_t i = 0; i < PLEC_N_MATRICES; i++)
        add_stream(b, PLEC_N_OPERANDS + i, scales[i]);
    return PLEC_OK;
}

static enum plec_status overflow(const char *what, struct plec_error *err) {
    return plec_fail(err, PLEC_MALFORMED, "SizeOverflow", "%s exceed 64 bits", what);
}

/* Both ends of the bytes must lie in one file, as far apart there as in memory. */
static enum plec_status locate(struct region *out, const uint8_t *p, uint64_t n_bytes,
                               const struct plec_locator *locator, struct plec_error *err) {
    uint32_t last_file;
    uint64_t last;
    if (p == NULL || !locator->locate(locator->user, p, &out->file, &out->offset))
        return plec_fail(err, PLEC_UNSUPPORTED, "NotInAFile", "its bytes stand in no open file");
    if (out->offset > UINT64_MAX - n_bytes) return overflow("offset and length", err);
    out->end = out->offset + n_bytes;
    if (!locator->locate(locator->user, p + (n_bytes - 1), &last_file, &last) ||
        last_file != out->file || last != out->end - 1)
        return plec_fail_at(err, PLEC_UNSUPPORTED, "NotInAFile", out->offset,
                            "its %llu bytes leave their file", (unsigned long long)n_bytes);
    return PLEC_OK;
}

static enum plec_status locate_all(struct builder *b, const struct plec_locator *locator,
                                   struct plec_error *err) {
    struct region *region = b->regions;
    for (uint32_t e = 0; e < b->bank->n_entries; e++)
        for (uint32_t i = 0; i < b->n_streams; i++, region++) {
            const uint8_t *p = stream_of(&b->bank->entries[e], b->streams[i]);
            enum plec_status status = locate(region, p, b->n_bytes[i], locator, err);
            if (status == PLEC_OK) continue;
            plec_error_context(err, "entry %u operand %s", e, stream_names[b->streams[i]]);
            return status;
        }
    return PLEC_OK;
}

static bool in_same_files(const struct builder *b, uint32_t entry, uint32_t other) {
    const struct region *x = &b->regions[(size_t)entry * b->n_streams];
    const struct region *y = &b->regions[(size_t)other * b->n_streams];
    for (uint32_t i = 0; i < b->n_streams; i++)
        if (x[i].file != y[i].file) return false;
    return true;
}

static void cut_into_extents(struct builder *b) {
    struct plec_extent_map *map = b->map;
    uint32_t n = 0;
    for (uint32_t e = 0; e < map->n_entries; e++) {
        bool starts =
            e == 0 || e - map->first_entry[n - 1] == map->width || !in_same_files(b, e - 1, e);
        if (starts) map->first_entry[n++] = e;
        map->entry_extent[e] = n - 1;
    }
    map->n_extents = n;
    map->first_entry[n] = map->n_entries;
}

static int by_place(const void *a, const void *b) {
    const struct region *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->end < y->end ? -1 : x->end > y->end;
}

/* Writes the ranges that cover the regions of entries [first, first + count); returns how many, at
 * most one a region. *payload, if given: the bytes of the regions without what lies between. */
static uint32_t join(struct plec_range *out, uint64_t *payload, struct builder *b, uint32_t first,
                     uint32_t count) {
    size_t n_regions = (size_t)count * b->n_streams;
    memcpy(b->sorted, &b->regions[(size_t)first * b->n_streams], n_regions * sizeof *b->sorted);
    qsort(b->sorted, n_regions, sizeof *b->sorted, by_place);
    uint32_t n = 0;
    for (size_t i = 0; i < n_regions; i++) {
        const struct region *region = &b->sorted[i];
        uint64_t end = n > 0 ? out[n - 1].offset + out[n - 1].length : 0;
        bool near = n > 0 && out[n - 1].file == region->file &&
                    (region->offset <= end || region->offset - end < PLEC_RANGE_GAP);
        uint64_t from = near && region->offset < end ? end : region->offset;
        if (payload != NULL && region->end > from) *payload += region->end - from;
        if (!near)
            out[n++] =
                (struct plec_range){region->file, region->offset, region->end - region->offset, 0};
        else if (region->end > end)
            out[n - 1].length = region->end - out[n - 1].offset;
    }
    return n;
}

/* Gives every range whole blocks of its own, in order. */
static enum plec_status place(uint64_t *frame_bytes, struct plec_range *ranges, uint32_t n,
                              struct plec_error *err) {
    const uint64_t block = PLEC_FRAME_ALIGNMENT;
    uint64_t at = 0;
    for (uint32_t i = 0; i < n; i++) {
        struct plec_range *range = &ranges[i];
        uint64_t before = range->offset % block;
        if (range->length > UINT64_MAX - 2 * block - at)
            return overflow("the ranges of one frame", err);
        range->frame_at = at + before;
        at = (range->frame_at + range->length + block - 1) / block * block;
    }
    *frame_bytes = at;
    return PLEC_OK;
}

/* Where a byte of a file stands in an extent's frame; some range of it holds the byte. */
static uint64_t in_frame(const struct plec_extent_map *map, uint32_t extent, uint32_t file,
                         uint64_t offset) {
    for (uint32_t i = map->extent_first[extent]; i < map->extent_first[extent + 1]; i++) {
        const struct plec_range *range = &map->extent_ranges[i];
        if (range->file == file && offset >= range->offset &&
            offset - range->offset < range->length)
            return range->frame_at + (offset - range->offset);
    }
    assert(!"a region outside its extent's ranges");
    return 0;
}

static enum plec_status build_extents(struct builder *b, struct plec_error *err) {
    struct plec_extent_map *map = b->map;
    uint32_t n = 0;
    for (uint32_t x = 0; x < map->n_extents; x++) {
        uint32_t first = map->first_entry[x], count = map->first_entry[x + 1] - first;
        struct plec_range *ranges = &map->extent_ranges[n];
        uint64_t payload = 0, frame_bytes = 0;
        map->extent_first[x] = n;
        n += join(ranges, &payload, b, first, count);
        enum plec_status status = place(&frame_bytes, ranges, n - map->extent_first[x], err);
        if (status == PLEC_OK && payload > UINT64_MAX - map->payload_bytes)
            status = overflow("the regions of the bank", err);
        if (status != PLEC_OK) return status;
        map->payload_bytes += payload;
        if (frame_bytes > map->frame_bytes) map->frame_bytes = frame_bytes;
    }
    map->extent_first[map->n_extents] = n;
    return PLEC_OK;
}

static void build_entries(struct builder *b) {
    struct plec_extent_map *map = b->map;
    uint32_t n = 0;
    for (uint32_t e = 0; e < map->n_entries; e++) {
        const struct region *regions = &b->regions[(size_t)e * b->n_streams];
        uint32_t extent = map->entry_extent[e];
        uint64_t *at = &map->stream_at[(size_t)e * PLEC_N_STREAMS];
        for (uint32_t i = 0; i < PLEC_N_STREAMS; i++)
            at[i] = UINT64_MAX;
        for (uint32_t i = 0; i < b->n_streams; i++)
            at[b->streams[i]] = in_frame(map, extent, regions[i].file, regions[i].offset);
        map->entry_first[e] = n;
        n += join(&map->entry_ranges[n], NULL, b, e, 1);
        for (uint32_t i = map->entry_first[e]; i < n; i++) {
            struct plec_range *range = &map->entry_ranges[i];
            range->frame_at = in_frame(map, extent, range->file, range->offset);
        }
    }
    map->entry_first[map->n_entries] = n;
}

/* Ranges of both kinds are at most the regions; their ordinals have 32 bits. */
static enum plec_status reserve(struct builder *b, struct plec_error *err) {
    struct plec_extent_map *map = b->map;
    size_t n = map->n_entries, n_regions = n * b->n_streams;
    uint32_t widest = map->width < map->n_entries ? map->width : map->n_entries;
    if (n_regions >= UINT32_MAX) return overflow("the regions of the bank, in 32 bits: they", err);
    map->first_entry = calloc(n + 1, sizeof *map->first_entry);
    map->entry_extent = calloc(n + 1, sizeof *map->entry_extent);
    map->extent_first = calloc(n + 1, sizeof *map->extent_first);
    map->entry_first = calloc(n + 1, sizeof *map->entry_first);
    map->stream_at = calloc(n + 1, PLEC_N_STREAMS * sizeof *map->stream_at);
    map->extent_ranges = calloc(n_regions + 1, sizeof *map->extent_ranges);
    map->entry_ranges = calloc(n_regions + 1, sizeof *map->entry_ranges);
    b->regions = calloc(n_regions + 1, sizeof *b->regions);
    b->sorted = calloc((size_t)widest * b->n_streams + 1, sizeof *b->sorted);
    if (map->first_entry != NULL && map->entry_extent != NULL && map->extent_first != NULL &&
        map->entry_first != NULL && map->stream_at != NULL && map->extent_ranges != NULL &&
        map->entry_ranges != NULL && b->regions != NULL && b->sorted != NULL)
        return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "extents of %u entries", map->n_entries);
}

enum plec_status plec_extent_map_open(struct plec_extent_map *out, const struct plec_bank *bank,
                                      uint32_t width, const struct plec_locator *locator,
                                      struct plec_error *err) {
    assert(width >= 1);
    memset(out, 0, sizeof *out);
    out->width = width;
    out->n_entries = bank->n_entries;
    struct builder b = {.map = out, .bank = bank};
    enum plec_status status = list_streams(&b, err);
    if (status == PLEC_OK) status = reserve(&b, err);
    if (status == PLEC_OK) status = locate_all(&b, locator, err);
    if (status == PLEC_OK) {
        cut_into_extents(&b);
        status = build_extents(&b, err);
    }
    if (status == PLEC_OK) build_entries(&b);
    free(b.regions);
    free(b.sorted);
    if (status != PLEC_OK) plec_extent_map_close(out);
    return status;
}

void plec_extent_map_close(struct plec_extent_map *map) {
    free(map->first_entry);
    free(map->entry_extent);
    free(map->extent_first);
    free(map->entry_first);
    free(map->stream_at);
    free(map->extent_ranges);
    free(map->entry_ranges);
    memset(map, 0, sizeof *map);
}

static uint64_t sum(const struct plec_range *ranges, uint32_t first, uint32_t end) {
    uint64_t n_bytes = 0;
    for (uint32_t i = first; i < end; i++)
        n_bytes += ranges[i].length;
    return n_bytes;
}

uint64_t plec_extent_entry_bytes(const struct plec_extent_map *map, uint32_t entry) {
    return sum(map->entry_ranges, map->entry_first[entry], map->entry_first[entry + 1]);
}

uint64_t plec_extent_bytes(const struct plec_extent_map *map, uint32_t extent) {
    return sum(map->extent_ranges, map->extent_first[extent], map->extent_first[extent + 1]);
}

void plec_extent_entry_at(struct plec_entry *out, const struct plec_extent_map *map, uint32_t entry,
                          const uint8_t *frame) {
    const uint64_t *at = &map->stream_at[(size_t)entry * PLEC_N_STREAMS];
    for (uint32_t i = 0; i < PLEC_N_OPERANDS; i++)
        out->values[i] = at[i] == UINT64_MAX ? NULL : frame + at[i];
    for (uint32_t i = 0; i < PLEC_N_MATRICES; i++)
        out->scales[i] =
            at[PLEC_N_OPERANDS + i] == UINT64_MAX ? NULL : frame + at[PLEC_N_OPERANDS + i];
}
