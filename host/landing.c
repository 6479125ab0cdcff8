#include "host/landing.h"

static uint64_t larger(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* An expert alone: its ranges are its pieces. */
static uint64_t landed_entry(const struct plec_extent_map *map, uint32_t entry) {
    uint64_t n_bytes = 0;
    for (uint32_t i = map->entry_first[entry]; i < map->entry_first[entry + 1]; i++)
        n_bytes += plec_landed_bytes(map->entry_ranges[i].length);
    return n_bytes;
}

/* Several experts of an extent move in one chunk: no more bytes than that, and at each of their
 * ranges less than PLEC_RANGE_GAP between joined ones, or less than an alignment behind. */
static uint64_t landed_chunk(const struct plec_extent_map *map, uint32_t extent,
                             uint64_t chunk_bytes) {
    enum { BESIDE = PLEC_RANGE_GAP + PLEC_LANDING_ALIGNMENT };
    uint32_t first = map->first_entry[extent], end = map->first_entry[extent + 1];
    uint64_t n_ranges = map->entry_first[end] - map->entry_first[first], n_bytes = 0;
    for (uint32_t e = first; e < end; e++)
        n_bytes += plec_extent_entry_bytes(map, e);
    return plec_landed_bytes((n_bytes < chunk_bytes ? n_bytes : chunk_bytes) + n_ranges * BESIDE);
}

struct plec_device_extents plec_device_extents_of(const struct plec_arrival *arrival,
                                                  const struct plec_extent_map *map,
                                                  uint64_t chunk_bytes) {
    struct plec_device_extents out = {.slot_bytes = map->frame_bytes};
    uint32_t widest = 0;
    if (!arrival->changes) return out;
    for (uint32_t e = 0; e < map->n_entries; e++)
        out.landing_bytes = larger(out.landing_bytes, landed_entry(map, e));
    for (uint32_t x = 0; x < map->n_extents; x++) {
        uint32_t n = map->first_entry[x + 1] - map->first_entry[x];
        if (n > widest) widest = n;
        if (n > 1) out.landing_bytes = larger(out.landing_bytes, landed_chunk(map, x, chunk_bytes));
    }
    out.slot_bytes = widest * arrival->n_bytes;
    return out;
}
