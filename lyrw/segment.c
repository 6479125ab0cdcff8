#include "lyrw/segment.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/segment_tables.h"

/* "LYRW" read as a little-endian word. */
static const uint32_t magic = 0x5752594C;

/* Whether n records of `record` bytes stand at `at` (which is within the file); names the first
 * that does not. */
static enum plec_status table_fits(const struct plec_segment *segment, const char *what,
                                   uint64_t at, uint64_t record, uint64_t n,
                                   struct plec_error *err) {
    uint64_t whole = (segment->size - at) / record;
    if (whole >= n) return PLEC_OK;
    uint64_t cut = at + whole * record;
    return plec_segment_truncated(err, what, cut, record, segment->size - cut);
}

static enum plec_status parse_header(struct plec_segment *segment, struct plec_error *err) {
    struct plec_lyrw_header *header = &segment->header;
    struct plec_cursor cursor = plec_cursor_at(segment->data, segment->size, 0);
    if (segment->size < PLEC_LYRW_HEADER_BYTES)
        return plec_segment_truncated(err, "header", 0, PLEC_LYRW_HEADER_BYTES, segment->size);
    uint32_t found = plec_cursor_u32(&cursor);
    if (found != magic)
        return plec_fail_at(err, PLEC_MALFORMED, "NotLyrw", 0, "found=0x%08x expected=0x%08x",
                            found, magic);
    header->format_version = plec_cursor_u32(&cursor);
    if (header->format_version != PLEC_LYRW_VERSION)
        return plec_fail_at(err, PLEC_MALFORMED, "WrongGeneration", 4,
                            "found=%u supported=%u required_generation=%" PRIu64,
                            header->format_version, PLEC_LYRW_VERSION,
                            (uint64_t)header->format_version + 1);
    header->logical_layer = plec_cursor_u32(&cursor);
    header->num_banks = plec_cursor_u16(&cursor);
    header->num_segments = plec_cursor_u16(&cursor);
    header->flags = plec_cursor_u32(&cursor);
    header->reserved = plec_cursor_u32(&cursor);
    return PLEC_OK;
}

/* All three record tables lie within the file; the number of schemas is the banks' sum. */
static enum plec_status check_tables_fit(uint64_t *n_schemas, const struct plec_segment *segment,
                                         struct plec_error *err) {
    uint64_t at = PLEC_LYRW_HEADER_BYTES, n = 0;
    enum plec_status status = table_fits(segment, "bank descriptor table", at, PLEC_LYRW_BANK_BYTES,
                                         segment->header.num_banks, err);
    if (status != PLEC_OK) return status;
    for (uint32_t b = 0; b < segment->header.num_banks; b++, at += PLEC_LYRW_BANK_BYTES)
        n += plec_load_u16(segment->data + at + 4);
    status = table_fits(segment, "segment descriptor table", at, PLEC_LYRW_SEGMENT_BYTES,
                        segment->header.num_segments, err);
    if (status != PLEC_OK) return status;
    at += (uint64_t)segment->header.num_segments * PLEC_LYRW_SEGMENT_BYTES;
    *n_schemas = n;
    return table_fits(segment, "region schema table", at, PLEC_LYRW_SCHEMA_BYTES, n, err);
}

static void decode_bank(struct plec_lyrw_bank *bank, struct plec_cursor *cursor) {
    bank->id = plec_cursor_u16(cursor);
    bank->kind = plec_cursor_u16(cursor);
    bank->n_schemas = plec_cursor_u16(cursor);
    bank->flags = plec_cursor_u16(cursor);
    bank->num_entries = plec_cursor_u32(cursor);
    bank->input_dim = plec_cursor_u32(cursor);
    bank->intermediate_dim = plec_cursor_u32(cursor);
    bank->output_dim = plec_cursor_u32(cursor);
}

static void decode_segment(struct plec_lyrw_segment *segment, struct plec_cursor *cursor) {
    segment->bank_id = plec_cursor_u16(cursor);
    segment->index = plec_cursor_u16(cursor);
    segment->first_entry = plec_cursor_u32(cursor);
    segment->entry_count = plec_cursor_u32(cursor);
}

static void decode_schema(struct plec_lyrw_schema *schema, struct plec_cursor *cursor) {
    schema->index = plec_cursor_u16(cursor);
    schema->role = plec_cursor_u16(cursor);
    schema->format = plec_cursor_u16(cursor);
    schema->packing = plec_cursor_u16(cursor);
    schema->pair_id = plec_cursor_u16(cursor);
    schema->layout = plec_cursor_u16(cursor);
    schema->rows = plec_cursor_u32(cursor);
    schema->cols = plec_cursor_u32(cursor);
}

static void decode_tables(struct plec_segment *segment) {
    struct plec_cursor cursor =
        plec_cursor_at(segment->data, segment->size, PLEC_LYRW_HEADER_BYTES);
    for (uint32_t b = 0; b < segment->header.num_banks; b++)
        decode_bank(&segment->banks[b], &cursor);
    for (uint32_t i = 0; i < segment->header.num_segments; i++)
        decode_segment(&segment->segments[i], &cursor);
    for (uint64_t i = 0; i < segment->n_schemas; i++)
        decode_schema(&segment->schemas[i], &cursor);
    assert(!cursor.failed);
}

static enum plec_status parse(struct plec_segment *segment, struct plec_error *err) {
    uint64_t n_schemas = 0;
    enum plec_status status = parse_header(segment, err);
    if (status == PLEC_OK) status = check_tables_fit(&n_schemas, segment, err);
    if (status == PLEC_OK) status = plec_segment_allocate(segment, n_schemas, err);
    if (status != PLEC_OK) return status;
    decode_tables(segment);
    return plec_segment_derive(segment, err);
}

enum plec_status plec_segment_parse(struct plec_segment *out, const void *data, uint64_t size,
                                    struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->data = data;
    out->size = size;
    enum plec_status status = parse(out, err);
    if (status != PLEC_OK) plec_segment_close(out);
    return status;
}

void plec_segment_close(struct plec_segment *segment) {
    free(segment->banks);
    free(segment->bank_order);
    free(segment->segments);
    free(segment->schemas);
    memset(segment, 0, sizeof *segment);
}

int32_t plec_segment_find_bank(const struct plec_segment *segment, uint16_t bank_id) {
    uint32_t low = 0, high = segment->header.num_banks, wanted = (uint32_t)bank_id << 16;
    while (low < high) {
        uint32_t middle = low + (high - low) / 2;
        if (segment->bank_order[middle] < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    if (low == segment->header.num_banks || segment->bank_order[low] >> 16 != bank_id) return -1;
    return (int32_t)(segment->bank_order[low] & 0xFFFFu);
}

int32_t plec_segment_bank_of_kind(const struct plec_segment *segment, enum plec_bank_kind kind) {
    for (int32_t i = 0; i < segment->header.num_banks; i++)
        if (segment->banks[i].kind == kind) return i;
    return segment->header.num_banks == 1 ? 0 : -1;
}

/* Reads a slot. The reader of the format takes its two words one after the other, and so does the
 * refusal: a slot cut in the middle lacks 8 bytes at its second word. */
static enum plec_status read_slot(struct plec_region *out, const struct plec_segment *segment,
                                  uint64_t at, struct plec_error *err) {
    uint64_t have = at > segment->size ? 0 : segment->size - at;
    if (have < 8) return plec_segment_truncated(err, "entry table", at, PLEC_LYRW_SLOT_BYTES, have);
    if (have < PLEC_LYRW_SLOT_BYTES)
        return plec_segment_truncated(err, "entry table", at + 8, 8, have - 8);
    out->offset = plec_load_u64(segment->data + at);
    out->length = plec_load_u64(segment->data + at + 8);
    return PLEC_OK;
}

static enum plec_status out_of_bounds(const struct plec_segment *segment,
                                      const struct plec_region *region,
                                      const struct plec_lyrw_bank *bank, uint32_t entry,
                                      uint64_t at, struct plec_error *err) {
    uint64_t end;
    if (!plec_add_u64(&end, region->offset, region->length)) end = UINT64_MAX;
    char role[PLEC_NAME_MAX];
    return plec_fail_at(
        err, PLEC_MALFORMED, "RegionOutOfBounds", at,
        "bank=%u entry=%u role=%s offset=%" PRIu64 " end=%" PRIu64 " file_len=%" PRIu64, bank->id,
        entry, plec_role_name(segment->schemas[bank->first_schema + region->schema].role, role),
        region->offset, end, segment->size);
}

enum plec_status plec_segment_slot(struct plec_region *out, const struct plec_segment *segment,
                                   uint32_t ordinal, uint32_t local_entry, uint32_t schema,
                                   struct plec_error *err) {
    assert(ordinal < segment->header.num_segments);
    const struct plec_lyrw_segment *record = &segment->segments[ordinal];
    const struct plec_lyrw_bank *bank = &segment->banks[record->bank_ordinal];
    assert(local_entry < record->entry_count && schema < bank->n_schemas);
    *out = (struct plec_region){.schema = schema};
    uint64_t slot = (uint64_t)local_entry * bank->n_schemas + schema;
    uint64_t at = record->entry_table + slot * PLEC_LYRW_SLOT_BYTES;
    enum plec_status status = read_slot(out, segment, at, err);
    if (status != PLEC_OK) return status;
    if (out->offset > segment->size || out->length > segment->size - out->offset)
        return out_of_bounds(segment, out, bank, record->first_entry + local_entry, at, err);
    out->present = true;
    return PLEC_OK;
}

/* The first segment record that covers the entry decides. */
static enum plec_status resolve(struct plec_region *out, const struct plec_segment *segment,
                                uint16_t bank_id, uint32_t entry, uint32_t schema,
                                struct plec_error *err) {
    for (uint32_t i = 0; i < segment->header.num_segments; i++) {
        const struct plec_lyrw_segment *record = &segment->segments[i];
        if (record->bank_id == bank_id && entry >= record->first_entry &&
            entry - record->first_entry < record->entry_count)
            return plec_segment_slot(out, segment, i, entry - record->first_entry, schema, err);
    }
    return PLEC_OK;
}

enum plec_status plec_segment_region(struct plec_region *out, const struct plec_segment *segment,
                                     uint16_t bank_id, uint32_t entry, uint32_t schema,
                                     struct plec_error *err) {
    *out = (struct plec_region){.schema = schema};
    int32_t bank = plec_segment_find_bank(segment, bank_id);
    if (bank < 0 || schema >= segment->banks[bank].n_schemas) return PLEC_OK;
    return resolve(out, segment, bank_id, entry, schema, err);
}

/* The one schema of a bank with this role; *found is false when there is none. */
static enum plec_status find_role(bool *found, uint32_t *schema, const struct plec_segment *segment,
                                  const struct plec_lyrw_bank *bank, uint16_t role,
                                  struct plec_error *err) {
    const struct plec_lyrw_schema *schemas = segment->schemas + bank->first_schema;
    uint32_t count = 0;
    for (uint32_t i = bank->n_schemas; i-- > 0;) {
        if (schemas[i].role != role) continue;
        *schema = i;
        count++;
    }
    *found = count > 0;
    if (count <= 1) return PLEC_OK;
    char name[PLEC_NAME_MAX];
    return plec_fail(err, PLEC_MALFORMED, "AmbiguousRole", "bank=%u role=%s count=%u", bank->id,
                     plec_role_name(role, name), count);
}

enum plec_status plec_segment_region_by_role(struct plec_region *out,
                                             const struct plec_segment *segment, uint16_t bank_id,
                                             uint32_t entry, uint16_t role,
                                             struct plec_error *err) {
    *out = (struct plec_region){0};
    int32_t bank = plec_segment_find_bank(segment, bank_id);
    if (bank < 0) return PLEC_OK;
    bool found;
    enum plec_status status =
        find_role(&found, &out->schema, segment, &segment->banks[bank], role, err);
    if (status != PLEC_OK || !found) return status;
    return resolve(out, segment, bank_id, entry, out->schema, err);
}

/* One schema with the partner's role and the source's pair id. */
enum plec_status plec_segment_partner_schema(uint32_t *out, const struct plec_segment *segment,
                                             const struct plec_lyrw_bank *bank, uint32_t schema,
                                             uint16_t partner_role, struct plec_error *err) {
    const struct plec_lyrw_schema *schemas = segment->schemas + bank->first_schema;
    const struct plec_lyrw_schema *source = &schemas[schema];
    char role[PLEC_NAME_MAX], partner[PLEC_NAME_MAX];
    const char *source_name = plec_role_name(source->role, role);
    const char *partner_name = plec_role_name(partner_role, partner);
    if (source->pair_id == PLEC_LYRW_UNPAIRED)
        return plec_fail(err, PLEC_MALFORMED, "NotPaired", "bank=%u role=%s partner_role=%s",
                         bank->id, source_name, partner_name);
    uint32_t count = 0;
    for (uint32_t i = 0; i < bank->n_schemas; i++) {
        if (schemas[i].role != partner_role || schemas[i].pair_id != source->pair_id) continue;
        *out = i;
        count++;
    }
    if (count == 1) return PLEC_OK;
    if (count == 0)
        return plec_fail(err, PLEC_MALFORMED, "MissingPartner",
                         "bank=%u role=%s pair_id=%u partner_role=%s", bank->id, source_name,
                         source->pair_id, partner_name);
    return plec_fail(err, PLEC_MALFORMED, "AmbiguousPartner",
                     "bank=%u role=%s pair_id=%u partner_role=%s count=%u", bank->id, source_name,
                     source->pair_id, partner_name, count);
}

enum plec_status plec_segment_partner(struct plec_region *out, const struct plec_segment *segment,
                                      uint16_t bank_id, uint32_t entry, uint16_t role,
                                      uint16_t partner_role, struct plec_error *err) {
    *out = (struct plec_region){0};
    int32_t ordinal = plec_segment_find_bank(segment, bank_id);
    if (ordinal < 0) return PLEC_OK;
    const struct plec_lyrw_bank *bank = &segment->banks[ordinal];
    bool found;
    uint32_t source;
    enum plec_status status = find_role(&found, &source, segment, bank, role, err);
    if (status != PLEC_OK || !found) return status;
    status = plec_segment_partner_schema(&out->schema, segment, bank, source, partner_role, err);
    if (status != PLEC_OK) return status;
    return resolve(out, segment, bank_id, entry, out->schema, err);
}

bool plec_lyrw_schema_bytes(uint64_t *out, const struct plec_lyrw_schema *schema) {
    struct plec_stream_bytes bytes;
    if (plec_format_streams(&bytes, schema->format, schema->rows, schema->cols, NULL) != PLEC_OK)
        return false;
    bool apart = plec_format_find(schema->format)->geometry != PLEC_INLINE;
    if (schema->packing <= PLEC_PACKING_BLOCKS_INLINE)
        *out = bytes.total;
    else if (schema->packing == PLEC_PACKING_BLOCKS_VALUES && apart)
        *out = bytes.codes;
    else if (schema->packing == PLEC_PACKING_BLOCKS_SCALES && apart)
        *out = bytes.scales;
    else
        return false;
    return true;
}
