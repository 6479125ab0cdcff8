#include "lyrw/segment_plan.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"
#include "lyrw/segment_tables.h"
#include "lyrw/segment_walk.h"

static uint64_t length_in_source(const void *user, uint64_t slot) {
    const struct plec_segment *source = user;
    return plec_load_u64(source->data + source->entry_table + slot * PLEC_LYRW_SLOT_BYTES + 8);
}

/* Every slot of the file is there and points into it. */
static enum plec_status check_source(const struct plec_segment *source, struct plec_error *err) {
    for (uint32_t i = 0; i < source->header.num_segments; i++) {
        const struct plec_lyrw_segment *record = &source->segments[i];
        uint32_t n_schemas = source->banks[record->bank_ordinal].n_schemas;
        uint64_t n_slots = (uint64_t)record->entry_count * n_schemas;
        for (uint64_t k = 0; k < n_slots; k++) {
            struct plec_region region;
            enum plec_status status = plec_segment_slot(
                &region, source, i, (uint32_t)(k / n_schemas), (uint32_t)(k % n_schemas), err);
            if (status != PLEC_OK) return status;
        }
    }
    return PLEC_OK;
}

enum plec_status plec_segment_plan_of(struct plec_segment_plan *out,
                                      const struct plec_segment *source, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    enum plec_status status = check_source(source, err);
    if (status != PLEC_OK) return status;
    out->header = source->header;
    out->banks = source->banks;
    out->segments = source->segments;
    out->schemas = source->schemas;
    out->n_schemas = source->n_schemas;
    out->rewrite = true;
    out->length = length_in_source;
    out->user = source;
    return PLEC_OK;
}

static enum plec_status check_counts(const struct plec_segment_plan *plan, struct plec_error *err) {
    if (plan->header.format_version != PLEC_LYRW_VERSION)
        return plec_fail(err, PLEC_MALFORMED, "WrongGeneration", "found=%u supported=%u",
                         plan->header.format_version, PLEC_LYRW_VERSION);
    uint64_t declared = 0;
    for (uint32_t b = 0; b < plan->header.num_banks; b++)
        declared += plan->banks[b].n_schemas;
    if (declared != plan->n_schemas)
        return plec_fail(err, PLEC_MALFORMED, "BankSchemaCountMismatch",
                         "bank=0 declared=%" PRIu64 " found=%" PRIu64 " schemas in all banks",
                         declared, plan->n_schemas);
    return PLEC_OK;
}

static void copy(void *to, const void *from, uint64_t n, size_t size) {
    if (n > 0) memcpy(to, from, (size_t)n * size);
}

static enum plec_status copy_tables(struct plec_segment *tables,
                                    const struct plec_segment_plan *plan, struct plec_error *err) {
    tables->header = plan->header;
    enum plec_status status = plec_segment_allocate(tables, plan->n_schemas, err);
    if (status != PLEC_OK) return status;
    copy(tables->banks, plan->banks, plan->header.num_banks, sizeof *plan->banks);
    copy(tables->segments, plan->segments, plan->header.num_segments, sizeof *plan->segments);
    copy(tables->schemas, plan->schemas, plan->n_schemas, sizeof *plan->schemas);
    return plec_segment_derive(tables, err);
}

/* What only a writer refuses: reading legacy files is allowed, making new ones is not. */
static enum plec_status check_fused_layouts(const struct plec_segment *tables,
                                            struct plec_error *err) {
    for (uint32_t b = 0; b < tables->header.num_banks; b++) {
        const struct plec_lyrw_bank *bank = &tables->banks[b];
        for (uint32_t i = 0; i < bank->n_schemas; i++) {
            const struct plec_lyrw_schema *schema = &tables->schemas[bank->first_schema + i];
            if (schema->role == PLEC_ROLE_GATE_UP_FUSED &&
                schema->layout == PLEC_LAYOUT_UNSPECIFIED)
                return plec_fail(err, PLEC_MALFORMED, "UndeclaredFusedLayout", "bank=%u schema=%u",
                                 bank->id, i);
        }
    }
    return PLEC_OK;
}

static enum plec_status check_extents(const struct plec_segment *tables, uint32_t extent,
                                      struct plec_error *err) {
    for (uint32_t i = 0; extent != 0 && i < tables->header.num_segments; i++) {
        const struct plec_lyrw_segment *record = &tables->segments[i];
        uint32_t num_entries = tables->banks[record->bank_ordinal].num_entries;
        bool ends_bank = record->first_entry + record->entry_count == num_entries;
        if (record->first_entry % extent != 0 || (record->entry_count % extent != 0 && !ends_bank))
            return plec_fail(err, PLEC_BAD_INPUT, "ExtentNotWhole",
                             "bank=%u segment=%u first=%u count=%u num_entries=%u: extents of %u "
                             "entries do not meet its ends",
                             record->bank_id, record->index, record->first_entry,
                             record->entry_count, num_entries, extent);
    }
    return PLEC_OK;
}

static enum plec_status size_schemas(struct plec_segment_shape *shape, struct plec_error *err) {
    const struct plec_segment *tables = &shape->tables;
    shape->bytes = calloc(tables->n_schemas == 0 ? 1 : tables->n_schemas, sizeof *shape->bytes);
    if (shape->bytes == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%" PRIu64 " schemas",
                         tables->n_schemas);
    for (uint32_t b = 0; b < tables->header.num_banks; b++) {
        const struct plec_lyrw_bank *bank = &tables->banks[b];
        for (uint32_t i = 0; i < bank->n_schemas; i++) {
            const struct plec_lyrw_schema *schema = &tables->schemas[bank->first_schema + i];
            char role[PLEC_NAME_MAX], format[PLEC_NAME_MAX], packing[PLEC_NAME_MAX];
            if (!plec_lyrw_schema_bytes(&shape->bytes[bank->first_schema + i], schema))
                return plec_fail(
                    err, PLEC_BAD_INPUT, "LengthUndefined",
                    "bank=%u schema=%u role=%s format=%s packing=%s rows=%u cols=%u", bank->id, i,
                    plec_role_name(schema->role, role), plec_format_name(schema->format, format),
                    plec_packing_name(schema->packing, packing), schema->rows, schema->cols);
        }
    }
    return PLEC_OK;
}

enum plec_status plec_segment_shape_open(struct plec_segment_shape *out,
                                         const struct plec_segment_plan *plan,
                                         struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->plan = plan;
    enum plec_status status = check_counts(plan, err);
    if (status == PLEC_OK) status = copy_tables(&out->tables, plan, err);
    if (status == PLEC_OK && !plan->rewrite) status = check_fused_layouts(&out->tables, err);
    if (status == PLEC_OK) status = check_extents(&out->tables, plan->extent, err);
    if (status == PLEC_OK && plan->length == NULL) status = size_schemas(out, err);
    return status;
}

void plec_segment_shape_close(struct plec_segment_shape *shape) {
    plec_segment_close(&shape->tables);
    free(shape->bytes);
    memset(shape, 0, sizeof *shape);
}

enum plec_status plec_segment_plan_check(const struct plec_segment_plan *plan,
                                         struct plec_error *err) {
    struct plec_segment_shape shape;
    enum plec_status status = plec_segment_shape_open(&shape, plan, err);
    plec_segment_shape_close(&shape);
    return status;
}

enum plec_status plec_segment_plan_render(uint8_t *out, const struct plec_segment_plan *plan,
                                          struct plec_error *err) {
    struct plec_segment_shape shape;
    enum plec_status status = plec_segment_shape_open(&shape, plan, err);
    if (status == PLEC_OK) status = plec_segment_shape_render(out, NULL, &shape, err);
    plec_segment_shape_close(&shape);
    return status;
}

/* One segment of equal entries in closed form; *at is the end of what stands before it. False when
 * a sum passes 64 bits. The last region of a file is followed by nothing, so the end leaves out
 * the padding of the last schema. */
static bool lay_out_segment(struct plec_segment_layout *out, uint64_t *at,
                            const struct plec_lyrw_bank *bank, uint32_t count,
                            const uint64_t *bytes, uint32_t extent) {
    if (count == 0 || bank->n_schemas == 0) return true;
    uint64_t entry = 0, exact = 0, padded = 0;
    for (uint32_t i = 0; i < bank->n_schemas; i++)
        if (!plec_round_up_u64(&padded, bytes[i], PLEC_LYRW_ALIGNMENT) ||
            !plec_add_u64(&entry, entry, padded) || !plec_add_u64(&exact, exact, bytes[i]))
            return false;
    uint64_t last_gap = padded - bytes[bank->n_schemas - 1];
    uint32_t width = extent == 0 || extent > count ? count : extent;
    uint64_t n_runs = ((uint64_t)count + width - 1) / width;
    uint64_t alignment = extent == 0 ? PLEC_LYRW_ALIGNMENT : PLEC_EXTENT_ALIGNMENT;
    uint64_t stride, start, runs, last, payload, end;
    if (!plec_mul_u64(&stride, entry, width) || !plec_round_up_u64(&stride, stride, alignment) ||
        !plec_mul_u64(&runs, stride, n_runs - 1) ||
        !plec_mul_u64(&last, entry, count - (n_runs - 1) * width) ||
        !plec_mul_u64(&payload, exact, count) || !plec_round_up_u64(&start, *at, alignment) ||
        !plec_add_u64(&end, start, runs) || !plec_add_u64(&end, end, last))
        return false;
    *at = end - last_gap;
    out->n_regions += (uint64_t)count * bank->n_schemas;
    out->payload_bytes += payload;
    if (extent == 0) return true;
    out->n_extents += n_runs;
    if (out->extent_bytes < stride) out->extent_bytes = stride;
    return true;
}

static enum plec_status lay_out_equal(struct plec_segment_layout *out,
                                      const struct plec_segment_shape *shape,
                                      struct plec_error *err) {
    uint64_t at = shape->tables.payload_start;
    for (uint32_t i = 0; i < shape->tables.header.num_segments; i++) {
        const struct plec_lyrw_segment *record = &shape->tables.segments[i];
        const struct plec_lyrw_bank *bank = &shape->tables.banks[record->bank_ordinal];
        if (!lay_out_segment(out, &at, bank, record->entry_count, shape->bytes + bank->first_schema,
                             shape->plan->extent) ||
            at > INT64_MAX)
            return plec_fail(err, PLEC_BAD_INPUT, "FileTooLarge",
                             "bank=%u segment=%u ends beyond 2^63 - 1", record->bank_id,
                             record->index);
    }
    out->file_bytes = at;
    return PLEC_OK;
}

static void end_extent(struct plec_segment_layout *out, uint64_t start, uint64_t end) {
    uint64_t bytes = end - start;
    plec_round_up_u64(&bytes, bytes, PLEC_EXTENT_ALIGNMENT);
    if (out->extent_bytes < bytes) out->extent_bytes = bytes;
}

static enum plec_status lay_out_given(struct plec_segment_layout *out,
                                      const struct plec_segment_shape *shape,
                                      struct plec_error *err) {
    struct plec_segment_placer placer = plec_segment_placer_at_start(shape);
    uint64_t start = placer.at;
    for (bool more = true; more;) {
        uint64_t end = placer.at;
        enum plec_status status = plec_segment_placer_next(&more, &placer, shape, err);
        if (status != PLEC_OK) return status;
        if (shape->plan->extent != 0 && (!more || placer.walk.run_begins)) {
            if (out->n_extents > 0) end_extent(out, start, end);
            out->n_extents += more;
            start = placer.offset;
        }
        if (!more) break;
        out->n_regions++;
        out->payload_bytes += placer.length;
    }
    out->file_bytes = placer.at;
    return PLEC_OK;
}

enum plec_status plec_segment_plan_layout(struct plec_segment_layout *out,
                                          const struct plec_segment_plan *plan,
                                          struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct plec_segment_shape shape;
    enum plec_status status = plec_segment_shape_open(&shape, plan, err);
    if (status == PLEC_OK) {
        out->structure_bytes = shape.tables.entry_table + shape.tables.entry_table_bytes;
        out->payload_start = shape.tables.payload_start;
        status = plan->length == NULL ? lay_out_equal(out, &shape, err)
                                      : lay_out_given(out, &shape, err);
    }
    plec_segment_shape_close(&shape);
    return status;
}
