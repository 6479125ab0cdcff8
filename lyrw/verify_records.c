/* verify_records.c: banks, schemas and their pairs, and how segment records tile a bank. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/verify_parts.h"

static enum plec_status allocate_keys(struct plec_verify_key **out, uint64_t n,
                                      struct plec_error *err) {
    *out = calloc(n == 0 ? 1 : (size_t)n, sizeof **out);
    if (*out != NULL) return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "checking %" PRIu64 " records", n);
}

static uint64_t bank_byte(uint32_t ordinal) {
    return PLEC_LYRW_HEADER_BYTES + (uint64_t)ordinal * PLEC_LYRW_BANK_BYTES;
}

static uint64_t segment_byte(const struct plec_verifier *v, uint32_t ordinal) {
    return v->segment->segment_table + (uint64_t)ordinal * PLEC_LYRW_SEGMENT_BYTES;
}

static uint64_t schema_byte(const struct plec_verifier *v, const struct plec_lyrw_bank *bank,
                            uint32_t index) {
    return v->segment->schema_table + (bank->first_schema + index) * PLEC_LYRW_SCHEMA_BYTES;
}

/* A finding about one schema. */
static void tell_schema(struct plec_verifier *v, enum plec_severity severity, const char *name,
                        const struct plec_lyrw_bank *bank, uint32_t index, const char *text) {
    char role[PLEC_NAME_MAX];
    const struct plec_lyrw_schema *schema = &v->segment->schemas[bank->first_schema + index];
    plec_verify_tell(v, severity, name, "bank=%u schema=%u role=%s byte=%" PRIu64 ": %s", bank->id,
                     index, plec_role_name(schema->role, role), schema_byte(v, bank, index), text);
}

static void check_tags(struct plec_verifier *v, const struct plec_lyrw_bank *bank, uint32_t i) {
    const struct plec_lyrw_schema *schema = &v->segment->schemas[bank->first_schema + i];
    char name[PLEC_NAME_MAX];
    bool vendor = schema->role >= PLEC_ROLE_ROUTER_WEIGHT && schema->role <= PLEC_ROLE_DOWN_SCALE;
    if (schema->role > PLEC_ROLE_LATENT_OUT && !vendor)
        tell_schema(v, PLEC_NOTE, "UnknownRole", bank, i, "kept, never used");
    if (plec_format_find(schema->format) == NULL)
        tell_schema(v, PLEC_NOTE, "UnknownFormat", bank, i, plec_format_name(schema->format, name));
    if (schema->packing > PLEC_PACKING_BLOCKS_SCALES)
        tell_schema(v, PLEC_NOTE, "UnknownPacking", bank, i,
                    plec_packing_name(schema->packing, name));
    if (schema->layout > PLEC_LAYOUT_INTERLEAVED)
        tell_schema(v, PLEC_NOTE, "UnknownLayout", bank, i, plec_layout_name(schema->layout, name));
    if (schema->role == PLEC_ROLE_GATE_UP_FUSED && schema->layout == PLEC_LAYOUT_UNSPECIFIED)
        tell_schema(v, PLEC_NOTE, "UndeclaredFusedLayout", bank, i,
                    "which rows are gate and which are up is not said");
    if (schema->rows == 0 || schema->cols == 0)
        tell_schema(v, PLEC_NOTE, "EmptyShape", bank, i, "0 rows or columns");
}

/* The shape has a size, and format and packing together a meaning. */
static void check_geometry(struct plec_verifier *v, const struct plec_lyrw_bank *bank, uint32_t i) {
    const struct plec_lyrw_schema *schema = &v->segment->schemas[bank->first_schema + i];
    const struct plec_format *format = plec_format_find(schema->format);
    if (format == NULL || schema->packing > PLEC_PACKING_BLOCKS_SCALES) return;
    struct plec_error fault = {0};
    if (plec_format_streams(&(struct plec_stream_bytes){0}, schema->format, schema->rows,
                            schema->cols, &fault) != PLEC_OK)
        tell_schema(v, PLEC_DEFECT, fault.name, bank, i, fault.message + strlen(fault.name) + 2);
    bool split = schema->packing >= PLEC_PACKING_BLOCKS_VALUES;
    if (!split && format->geometry == PLEC_PAIRED)
        tell_schema(v, PLEC_NOTE, "StreamsStoredApart", bank, i,
                    "the format keeps its scales in a second region, the schema has one");
    if (split && format->geometry == PLEC_TRAILING)
        tell_schema(v, PLEC_NOTE, "NoTensorScale", bank, i,
                    "split over two regions the format has no place for its tensor scale");
    if (split && format->geometry == PLEC_INLINE)
        tell_schema(v, PLEC_NOTE, "NoScaleStream", bank, i,
                    "the format's scales lie inside its blocks");
}

static void check_browse(struct plec_verifier *v, const struct plec_lyrw_bank *bank,
                         uint32_t ordinal) {
    unsigned mode = bank->flags & 3u;
    if (mode == 3)
        plec_verify_tell(v, PLEC_DEFECT, "UnknownBrowseMode",
                         "bank=%u byte=%" PRIu64 ": browse value 3, read as none", bank->id,
                         bank_byte(ordinal) + 6);
    if (mode == 0 || mode == 3) return;
    uint16_t role = mode == 1 ? PLEC_ROLE_GATE : PLEC_ROLE_GATE_UP_FUSED;
    const struct plec_lyrw_schema *schemas = v->segment->schemas + bank->first_schema;
    for (uint32_t i = 0; i < bank->n_schemas; i++)
        if (schemas[i].role == role && schemas[i].packing == PLEC_PACKING_ROW_MAJOR) return;
    char name[PLEC_NAME_MAX];
    plec_verify_tell(v, PLEC_NOTE, "BrowseNotHonoured",
                     "bank=%u byte=%" PRIu64 ": browse %s wants a row_major %s region", bank->id,
                     bank_byte(ordinal) + 6, plec_browse_name(bank->flags),
                     plec_role_name(role, name));
}

static void check_bank(struct plec_verifier *v, uint32_t ordinal) {
    const struct plec_lyrw_bank *bank = &v->segment->banks[ordinal];
    char name[PLEC_NAME_MAX];
    if (bank->kind > PLEC_BANK_SHARED)
        plec_verify_tell(v, PLEC_NOTE, "UnknownBankKind", "bank=%u byte=%" PRIu64 ": %s", bank->id,
                         bank_byte(ordinal) + 2, plec_bank_kind_name(bank->kind, name));
    if (bank->flags > 3)
        plec_verify_tell(v, PLEC_DEFECT, "ReservedBankFlags",
                         "bank=%u byte=%" PRIu64 ": flags 0x%04x have bits beyond the browse mode",
                         bank->id, bank_byte(ordinal) + 6, bank->flags);
    check_browse(v, bank, ordinal);
    for (uint32_t i = 0; i < bank->n_schemas; i++) {
        check_tags(v, bank, i);
        check_geometry(v, bank, i);
    }
}

/* Two halves of a pair: b is the one partner of a. */
static void compare_halves(struct plec_verifier *v, const struct plec_lyrw_bank *bank, uint32_t a,
                           uint32_t b) {
    const struct plec_lyrw_schema *schemas = v->segment->schemas + bank->first_schema;
    char text[160], one[PLEC_NAME_MAX], two[PLEC_NAME_MAX];
    if (schemas[a].format != schemas[b].format) {
        snprintf(text, sizeof text, "%s, its partner schema %u is %s",
                 plec_format_name(schemas[a].format, one), b,
                 plec_format_name(schemas[b].format, two));
        tell_schema(v, PLEC_DEFECT, "PairFormatDiffers", bank, a, text);
    }
    if (schemas[a].rows != schemas[b].rows || schemas[a].cols != schemas[b].cols) {
        snprintf(text, sizeof text, "%u x %u, its partner schema %u is %u x %u", schemas[a].rows,
                 schemas[a].cols, b, schemas[b].rows, schemas[b].cols);
        tell_schema(v, PLEC_DEFECT, "PairShapeDiffers", bank, a, text);
    }
}

/* Values are found by their role and scales by theirs: a partner of the other packing whose role
 * does not say so is none. */
static bool is_scales(const struct plec_lyrw_schema *schema) {
    return schema->packing == PLEC_PACKING_BLOCKS_SCALES && schema->role == PLEC_ROLE_SCALES;
}
static bool is_values(const struct plec_lyrw_schema *schema) {
    return schema->packing == PLEC_PACKING_BLOCKS_VALUES && schema->role != PLEC_ROLE_SCALES;
}

/* The schemas keys [n] of one pair id. */
static void check_pair(struct plec_verifier *v, const struct plec_lyrw_bank *bank,
                       const struct plec_verify_key *keys, size_t n) {
    const struct plec_lyrw_schema *schemas = v->segment->schemas + bank->first_schema;
    size_t n_values = 0, n_scales = 0, values = 0, scales = 0;
    for (size_t i = 0; i < n; i++) {
        if (is_values(&schemas[keys[i].ordinal])) n_values++, values = keys[i].ordinal;
        if (is_scales(&schemas[keys[i].ordinal])) n_scales++, scales = keys[i].ordinal;
    }
    for (size_t i = 0; i < n; i++) {
        uint32_t index = keys[i].ordinal;
        bool half = schemas[index].packing == PLEC_PACKING_BLOCKS_SCALES;
        size_t partners = half ? n_values : n_scales;
        if (partners == 1) continue;
        char text[96];
        snprintf(text, sizeof text, "pair_id=%u has %zu %s schemas", schemas[index].pair_id,
                 partners, half ? "values" : "scales");
        tell_schema(v, PLEC_DEFECT, partners == 0 ? "MissingPartner" : "AmbiguousPartner", bank,
                    index, text);
    }
    if (n_values == 1 && n_scales == 1) compare_halves(v, bank, (uint32_t)values, (uint32_t)scales);
}

static void check_pairs(struct plec_verifier *v, const struct plec_lyrw_bank *bank,
                        struct plec_verify_key *keys) {
    const struct plec_lyrw_schema *schemas = v->segment->schemas + bank->first_schema;
    size_t n = 0;
    for (uint32_t i = 0; i < bank->n_schemas; i++)
        if (schemas[i].pair_id != PLEC_LYRW_UNPAIRED)
            keys[n++] = (struct plec_verify_key){schemas[i].pair_id, i};
    plec_verify_sort(keys, n);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && keys[end].key == keys[i].key;)
            end++;
        check_pair(v, bank, keys + i, end - i);
    }
}

/* A role twice makes lookups by role fail; scales and biases have other ways to be told apart. */
static void check_roles(struct plec_verifier *v, const struct plec_lyrw_bank *bank,
                        struct plec_verify_key *keys) {
    const struct plec_lyrw_schema *schemas = v->segment->schemas + bank->first_schema;
    size_t n = 0;
    for (uint32_t i = 0; i < bank->n_schemas; i++)
        if (schemas[i].role != PLEC_ROLE_SCALES && schemas[i].role != PLEC_ROLE_BIAS)
            keys[n++] = (struct plec_verify_key){schemas[i].role, i};
    plec_verify_sort(keys, n);
    for (size_t i = 1; i < n; i++)
        if (keys[i].key == keys[i - 1].key)
            tell_schema(v, PLEC_NOTE, "RepeatedRole", bank, keys[i].ordinal,
                        "an earlier schema has this role: no lookup by role finds either");
}

enum plec_status plec_verify_banks(struct plec_verifier *v, struct plec_error *err) {
    const struct plec_segment *segment = v->segment;
    struct plec_verify_key *keys;
    enum plec_status status = allocate_keys(&keys, segment->n_schemas, err);
    if (status != PLEC_OK) return status;
    for (uint32_t i = 0; i < segment->header.num_banks; i++) {
        check_bank(v, i);
        check_pairs(v, &segment->banks[i], keys);
        check_roles(v, &segment->banks[i], keys);
    }
    free(keys);
    for (uint32_t i = 1; i < segment->header.num_banks; i++) {
        uint32_t before = segment->bank_order[i - 1], at = segment->bank_order[i];
        if (before >> 16 != at >> 16) continue;
        plec_verify_tell(v, PLEC_DEFECT, "DuplicateBankId",
                         "bank=%u byte=%" PRIu64 ": record %u repeats an earlier id, no lookup "
                         "finds it",
                         at >> 16, bank_byte(at & 0xFFFFu), at & 0xFFFFu);
    }
    v->report->n_records += segment->header.num_banks + segment->n_schemas;
    return PLEC_OK;
}

static uint32_t end_of(const struct plec_lyrw_segment *record) {
    return record->first_entry + record->entry_count;
}

static void tell_gap(struct plec_verifier *v, const struct plec_lyrw_bank *bank, uint32_t from,
                     uint32_t to) {
    plec_verify_tell(v, PLEC_DEFECT, "SegmentsGapped",
                     "bank=%u: entries %u to %u of %u are in no segment", bank->id, from, to - 1,
                     bank->num_entries);
}

/* The records keys [n] of one bank, by first entry. True when they tile the bank. */
static bool check_tiling(struct plec_verifier *v, const struct plec_lyrw_bank *bank,
                         const struct plec_verify_key *keys, size_t n) {
    const struct plec_lyrw_segment *records = v->segment->segments;
    bool several = (v->segment->header.flags & PLEC_LYRW_FLAG_MULTI_SEGMENT) != 0;
    bool whole = true, begun = false;
    uint32_t next = 0, holder = 0;
    for (size_t i = 0; i < n; i++) {
        const struct plec_lyrw_segment *record = &records[keys[i].ordinal];
        if (record->entry_count == 0) continue;
        if (record->first_entry < next)
            plec_verify_tell(v, PLEC_DEFECT, "SegmentsOverlap",
                             "segment=%u bank=%u byte=%" PRIu64 ": entries %u to %u begin inside "
                             "segment %u, which ends with %u",
                             keys[i].ordinal, bank->id, segment_byte(v, keys[i].ordinal),
                             record->first_entry, end_of(record) - 1, holder, next - 1);
        bool gap = record->first_entry > next;
        if (gap && (begun || !several)) tell_gap(v, bank, next, record->first_entry);
        whole = whole && !gap;
        begun = true;
        if (end_of(record) <= next) continue;
        next = end_of(record);
        holder = keys[i].ordinal;
    }
    if (begun && next < bank->num_entries && !several) tell_gap(v, bank, next, bank->num_entries);
    if (!begun && bank->num_entries > 0)
        plec_verify_tell(v, PLEC_NOTE, "BankWithoutSegment", "bank=%u: no entry of %u in this file",
                         bank->id, bank->num_entries);
    return whole && next == bank->num_entries;
}

static void check_indices(struct plec_verifier *v, struct plec_verify_key *keys) {
    uint32_t n = v->segment->header.num_segments;
    const struct plec_lyrw_segment *records = v->segment->segments;
    for (uint32_t i = 0; i < n; i++)
        keys[i] =
            (struct plec_verify_key){(uint64_t)records[i].bank_id << 16 | records[i].index, i};
    plec_verify_sort(keys, n);
    for (uint32_t i = 1; i < n; i++)
        if (keys[i].key == keys[i - 1].key)
            plec_verify_tell(v, PLEC_DEFECT, "RepeatedSegmentIndex",
                             "segment=%u bank=%u byte=%" PRIu64 ": segment_index %u is that of "
                             "segment %u",
                             keys[i].ordinal, records[keys[i].ordinal].bank_id,
                             segment_byte(v, keys[i].ordinal) + 2, records[keys[i].ordinal].index,
                             keys[i - 1].ordinal);
}

static void note_empty_segments(struct plec_verifier *v) {
    for (uint32_t i = 0; i < v->segment->header.num_segments; i++)
        if (v->segment->segments[i].entry_count == 0)
            plec_verify_tell(v, PLEC_NOTE, "EmptySegment",
                             "segment=%u bank=%u byte=%" PRIu64 ": no entries", i,
                             v->segment->segments[i].bank_id, segment_byte(v, i));
}

enum plec_status plec_verify_segments(struct plec_verifier *v, struct plec_error *err) {
    const struct plec_segment *segment = v->segment;
    uint32_t n = segment->header.num_segments;
    struct plec_verify_key *keys;
    enum plec_status status = allocate_keys(&keys, n, err);
    if (status != PLEC_OK) return status;
    for (uint32_t i = 0; i < n; i++)
        keys[i] = (struct plec_verify_key){(uint64_t)segment->segments[i].bank_ordinal << 32 |
                                               segment->segments[i].first_entry,
                                           i};
    plec_verify_sort(keys, n);
    bool whole = n > 0;
    size_t at = 0;
    for (uint32_t b = 0; b < segment->header.num_banks; b++) {
        size_t end = at;
        while (end < n && keys[end].key >> 32 == b)
            end++;
        whole = check_tiling(v, &segment->banks[b], keys + at, end - at) && whole;
        at = end;
    }
    if (whole && (segment->header.flags & PLEC_LYRW_FLAG_MULTI_SEGMENT) != 0)
        plec_verify_tell(v, PLEC_NOTE, "MultiSegmentFlagOnWholeFile",
                         "byte=16: marked as one of several files, yet it holds every entry");
    check_indices(v, keys);
    note_empty_segments(v);
    free(keys);
    v->report->n_records += n;
    return PLEC_OK;
}
