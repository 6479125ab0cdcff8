#include "lyrw/segment_tables.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"

enum plec_status plec_segment_truncated(struct plec_error *err, const char *what, uint64_t at,
                                        uint64_t need, uint64_t have) {
    plec_fail(err, PLEC_MALFORMED, "Truncated", "%s at=%" PRIu64 " need=%" PRIu64 " have=%" PRIu64,
              what, at, need, have);
    if (err != NULL) err->byte = at;
    return PLEC_MALFORMED;
}

/* calloc that gives a pointer for nothing too, so that NULL only ever means no memory. */
static void *zeroed(uint64_t n, size_t size) {
    if (n > SIZE_MAX) return NULL;
    return calloc(n == 0 ? 1 : (size_t)n, size);
}

enum plec_status plec_segment_allocate(struct plec_segment *segment, uint64_t n_schemas,
                                       struct plec_error *err) {
    segment->n_schemas = n_schemas;
    segment->banks = zeroed(segment->header.num_banks, sizeof *segment->banks);
    segment->bank_order = zeroed(segment->header.num_banks, sizeof *segment->bank_order);
    segment->segments = zeroed(segment->header.num_segments, sizeof *segment->segments);
    segment->schemas = zeroed(n_schemas, sizeof *segment->schemas);
    if (segment->banks == NULL || segment->bank_order == NULL || segment->segments == NULL ||
        segment->schemas == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "record tables of %" PRIu64 " schemas",
                         n_schemas);
    return PLEC_OK;
}

static enum plec_status check_pairing(const struct plec_lyrw_bank *bank, uint32_t i,
                                      const struct plec_lyrw_schema *schema, uint64_t byte,
                                      struct plec_error *err) {
    bool half = schema->packing == PLEC_PACKING_BLOCKS_VALUES ||
                schema->packing == PLEC_PACKING_BLOCKS_SCALES;
    if (half == (schema->pair_id != PLEC_LYRW_UNPAIRED)) return PLEC_OK;
    char name[PLEC_NAME_MAX];
    return plec_fail_at(err, PLEC_MALFORMED, "InconsistentPairing", byte,
                        "bank=%u schema=%u packing=%s pair_id=%u", bank->id, i,
                        plec_packing_name(schema->packing, name), schema->pair_id);
}

static enum plec_status check_schema(const struct plec_lyrw_bank *bank, uint32_t i,
                                     const struct plec_lyrw_schema *schema, uint64_t byte,
                                     struct plec_error *err) {
    enum plec_status status = check_pairing(bank, i, schema, byte, err);
    if (status != PLEC_OK) return status;
    char role[PLEC_NAME_MAX], layout[PLEC_NAME_MAX];
    if (schema->layout != PLEC_LAYOUT_UNSPECIFIED && schema->role != PLEC_ROLE_GATE_UP_FUSED)
        return plec_fail_at(err, PLEC_MALFORMED, "LayoutOnNonFusedRegion", byte,
                            "bank=%u schema=%u role=%s layout=%s", bank->id, i,
                            plec_role_name(schema->role, role),
                            plec_layout_name(schema->layout, layout));
    if (schema->index != i)
        return plec_fail_at(err, PLEC_MALFORMED, "BankSchemaCountMismatch", byte,
                            "bank=%u declared=%u found=%u", bank->id, i, schema->index);
    return PLEC_OK;
}

static enum plec_status check_banks(struct plec_segment *segment, struct plec_error *err) {
    uint64_t next = 0;
    for (uint32_t b = 0; b < segment->header.num_banks; b++) {
        struct plec_lyrw_bank *bank = &segment->banks[b];
        bank->first_schema = next;
        for (uint32_t i = 0; i < bank->n_schemas; i++, next++) {
            uint64_t byte = segment->schema_table + next * PLEC_LYRW_SCHEMA_BYTES;
            enum plec_status status = check_schema(bank, i, &segment->schemas[next], byte, err);
            if (status != PLEC_OK) return status;
        }
    }
    return PLEC_OK;
}

static int compare_u32(const void *a, const void *b) {
    uint32_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return (x > y) - (x < y);
}

static void order_banks(struct plec_segment *segment) {
    uint32_t n = segment->header.num_banks;
    for (uint32_t b = 0; b < n; b++)
        segment->bank_order[b] = (uint32_t)segment->banks[b].id << 16 | b;
    qsort(segment->bank_order, n, sizeof *segment->bank_order, compare_u32);
}

static enum plec_status check_segment(struct plec_segment *segment,
                                      struct plec_lyrw_segment *record, uint64_t byte,
                                      struct plec_error *err) {
    int32_t ordinal = plec_segment_find_bank(segment, record->bank_id);
    if (ordinal < 0)
        return plec_fail_at(err, PLEC_MALFORMED, "SegmentNamesUnknownBank", byte,
                            "segment=%u bank=%u", record->index, record->bank_id);
    record->bank_ordinal = (uint32_t)ordinal;
    uint32_t num_entries = segment->banks[ordinal].num_entries;
    uint64_t end = (uint64_t)record->first_entry + record->entry_count;
    if (end > num_entries)
        return plec_fail_at(err, PLEC_MALFORMED, "SegmentOutOfBounds", byte,
                            "bank=%u segment=%u first=%u end=%" PRIu64 " num_entries=%u",
                            record->bank_id, record->index, record->first_entry, end, num_entries);
    return PLEC_OK;
}

/* The 64-bit sum is the only limit: slots beyond the file are found missing when they are read. */
static enum plec_status place_entry_tables(struct plec_segment *segment, struct plec_error *err) {
    uint64_t at = segment->entry_table;
    for (uint32_t i = 0; i < segment->header.num_segments; i++) {
        struct plec_lyrw_segment *record = &segment->segments[i];
        uint64_t bytes = (uint64_t)record->entry_count * PLEC_LYRW_SLOT_BYTES *
                         segment->banks[record->bank_ordinal].n_schemas; /* below 2^52 */
        record->entry_table = at;
        if (!plec_add_u64(&at, at, bytes))
            return plec_fail(err, PLEC_MALFORMED, "EntryTableOverflow",
                             "segment=%u bank=%u entries=%u", record->index, record->bank_id,
                             record->entry_count);
    }
    segment->entry_table_bytes = at - segment->entry_table;
    if (!plec_round_up_u64(&segment->payload_start, at, PLEC_LYRW_ALIGNMENT))
        return plec_fail(err, PLEC_MALFORMED, "EntryTableOverflow", "tables end at %" PRIu64, at);
    return PLEC_OK;
}

enum plec_status plec_segment_derive(struct plec_segment *segment, struct plec_error *err) {
    segment->segment_table =
        PLEC_LYRW_HEADER_BYTES + (uint64_t)segment->header.num_banks * PLEC_LYRW_BANK_BYTES;
    segment->schema_table =
        segment->segment_table + (uint64_t)segment->header.num_segments * PLEC_LYRW_SEGMENT_BYTES;
    segment->entry_table = segment->schema_table + segment->n_schemas * PLEC_LYRW_SCHEMA_BYTES;
    enum plec_status status = check_banks(segment, err);
    if (status != PLEC_OK) return status;
    order_banks(segment);
    for (uint32_t i = 0; i < segment->header.num_segments; i++) {
        uint64_t byte = segment->segment_table + (uint64_t)i * PLEC_LYRW_SEGMENT_BYTES;
        status = check_segment(segment, &segment->segments[i], byte, err);
        if (status != PLEC_OK) return status;
    }
    return place_entry_tables(segment, err);
}
