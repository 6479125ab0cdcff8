#include "host/operand.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"

/* "bank 0 role down segment routed/layer_000" in front of a schema's fault. */
static enum plec_status at_schema(enum plec_status status, const struct plec_storage *storage,
                                  const struct plec_lyrw_schema *schema, struct plec_error *err) {
    char name[PLEC_NAME_MAX];
    if (status != PLEC_OK)
        plec_error_context(err, "bank %u role %s segment %s", storage->bank->id,
                           plec_role_name(schema->role, name), storage->parts[0].key);
    return status;
}

/* The scales schema that goes with values schema `values`: both carry one pair id, and no other
 * schema does. */
static enum plec_status find_partner(int32_t *out, const struct plec_storage *storage,
                                     const struct plec_lyrw_schema *values,
                                     struct plec_error *err) {
    uint32_t n_scales = 0, n_others = 0;
    for (uint32_t i = 0; i < storage->bank->n_schemas; i++) {
        const struct plec_lyrw_schema *schema = &storage->schemas[i];
        if (schema->pair_id != values->pair_id || schema == values) continue;
        if (schema->role == PLEC_ROLE_SCALES) {
            *out = (int32_t)i;
            n_scales++;
        } else {
            n_others++;
        }
    }
    if (n_scales == 0)
        return plec_fail(err, PLEC_MALFORMED, "MissingPartner", "no scales have pair id %u",
                         values->pair_id);
    if (n_scales > 1 || n_others > 0)
        return plec_fail(err, PLEC_MALFORMED, "AmbiguousPartner",
                         "%u scales and %u other schemas have pair id %u", n_scales, n_others,
                         values->pair_id);
    return PLEC_OK;
}

static enum plec_status check_partner(const struct plec_lyrw_schema *values,
                                      const struct plec_lyrw_schema *scales,
                                      struct plec_error *err) {
    char packing[PLEC_NAME_MAX], a[PLEC_NAME_MAX], b[PLEC_NAME_MAX];
    if (scales->packing != PLEC_PACKING_BLOCKS_SCALES)
        return plec_fail(err, PLEC_MALFORMED, "PartnerMismatch",
                         "its scales have packing %s, not blocks_scales",
                         plec_packing_name(scales->packing, packing));
    if (scales->format != values->format || scales->rows != values->rows ||
        scales->cols != values->cols)
        return plec_fail(err, PLEC_MALFORMED, "PartnerMismatch",
                         "values are %s %u x %u, their scales say %s %u x %u",
                         plec_format_name(values->format, a), values->rows, values->cols,
                         plec_format_name(scales->format, b), scales->rows, scales->cols);
    return PLEC_OK;
}

/* Whether the packing is the one in which the format can be read. */
static enum plec_status check_packing(const struct plec_lyrw_schema *schema,
                                      const struct plec_format *format, struct plec_error *err) {
    char name[PLEC_NAME_MAX];
    bool paired = format->geometry == PLEC_PAIRED;
    switch (schema->packing) {
    case PLEC_PACKING_ROW_MAJOR:
    case PLEC_PACKING_BLOCKS_INLINE:
        if (!paired) return PLEC_OK;
        return plec_fail(err, PLEC_UNSUPPORTED, "ScalesStoredApart",
                         "%s has its scales in a region of their own; one region in packing %s "
                         "does not hold them",
                         format->name, plec_packing_name(schema->packing, name));
    case PLEC_PACKING_BLOCKS_VALUES:
        if (paired) return PLEC_OK;
        return plec_fail(err, PLEC_UNSUPPORTED, "NoScaleStream",
                         "%s cannot be read as values and scales apart%s", format->name,
                         format->geometry == PLEC_TRAILING ? ": its tensor scale has no place"
                                                           : "");
    case PLEC_PACKING_BLOCKS_SCALES:
        return plec_fail(err, PLEC_UNSUPPORTED, "NoScaleStream",
                         "its packing is blocks_scales, which holds no values");
    default:
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownPacking", "%s",
                         plec_packing_name(schema->packing, name));
    }
}

static enum plec_status from_schema(struct plec_bank_operand *out,
                                    const struct plec_storage *storage,
                                    const struct plec_lyrw_schema *schema, struct plec_error *err) {
    char name[PLEC_NAME_MAX];
    const struct plec_format *format = plec_format_find(schema->format);
    if (format == NULL)
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownFormat", "no codec for %s",
                         plec_format_name(schema->format, name));
    if (schema->rows == 0 || schema->cols == 0)
        return plec_fail(err, PLEC_MALFORMED, "ZeroDimension", "%u x %u", schema->rows,
                         schema->cols);
    enum plec_status status = check_packing(schema, format, err);
    if (status == PLEC_OK)
        status = plec_format_size(&out->values.n_bytes, &out->scales.n_bytes, schema->format,
                                  schema->rows, schema->cols, err);
    if (status != PLEC_OK || format->geometry != PLEC_PAIRED) return status;
    status = find_partner(&out->scales.schema, storage, schema, err);
    if (status != PLEC_OK) return status;
    return check_partner(schema, &storage->schemas[out->scales.schema], err);
}

enum plec_status plec_operand_from_schema(struct plec_bank_operand *out,
                                          const struct plec_storage *storage, uint32_t schema,
                                          struct plec_error *err) {
    const struct plec_lyrw_schema *s = &storage->schemas[schema];
    *out = (struct plec_bank_operand){.storage = storage,
                                      .role = s->role,
                                      .layout = s->layout,
                                      .shape = {s->format, s->rows, s->cols},
                                      .values = {(int32_t)schema, 0},
                                      .scales = {PLEC_NO_SCHEMA, 0}};
    return at_schema(from_schema(out, storage, s, err), storage, s, err);
}

/* Reads the slot of one schema of one entry; plec_storage_tile has seen that it lies in the file.
 */
static struct plec_touched read_slot(const struct plec_storage *storage,
                                     const struct plec_storage_run *run, uint32_t entry,
                                     int32_t schema) {
    uint64_t slot = (uint64_t)(entry - run->first) * storage->bank->n_schemas + (uint64_t)schema;
    const uint8_t *p =
        storage->parts[run->part].segment->data + run->entry_table + slot * PLEC_LYRW_SLOT_BYTES;
    return (struct plec_touched){.offset = plec_load_u64(p),
                                 .length = plec_load_u64(p + 8),
                                 .part = run->part,
                                 .entry = entry,
                                 .role = storage->schemas[schema].role};
}

static enum plec_status check_region(const struct plec_touched *region,
                                     const struct plec_segment *segment, uint64_t n_bytes,
                                     struct plec_error *err) {
    if (region->offset > segment->size || region->length > segment->size - region->offset)
        return plec_fail_at(err, PLEC_MALFORMED, "RegionOutOfBounds", region->offset,
                            "%llu bytes, the file has %llu", (unsigned long long)region->length,
                            (unsigned long long)segment->size);
    if (region->length != n_bytes)
        return plec_fail_at(err, PLEC_MALFORMED, "LengthNotShape", region->offset,
                            "length is %llu, shape and format say %llu",
                            (unsigned long long)region->length, (unsigned long long)n_bytes);
    if (region->offset < segment->payload_start)
        return plec_fail_at(err, PLEC_MALFORMED, "RegionInTables", region->offset,
                            "the payload starts at %llu",
                            (unsigned long long)segment->payload_start);
    if (region->offset % PLEC_LYRW_ALIGNMENT != 0)
        return plec_fail_at(err, PLEC_MALFORMED, "OffsetNotAligned", region->offset,
                            "not a multiple of %d", PLEC_LYRW_ALIGNMENT);
    return PLEC_OK;
}

enum plec_status plec_operand_bytes(const uint8_t **out, struct plec_touched *touched,
                                    const struct plec_bank_operand *operand,
                                    const struct plec_stream_schema *stream,
                                    const struct plec_storage_run *run, uint32_t entry,
                                    struct plec_error *err) {
    const struct plec_storage *storage = operand->storage;
    const struct plec_storage_part *part = &storage->parts[run->part];
    *touched = read_slot(storage, run, entry, stream->schema);
    enum plec_status status = check_region(touched, part->segment, stream->n_bytes, err);
    if (status != PLEC_OK) {
        char name[PLEC_NAME_MAX];
        plec_error_context(err, "bank %u entry %u role %s segment %s", storage->bank->id, entry,
                           plec_role_name(touched->role, name), part->key);
        return status;
    }
    *out = part->segment->data + touched->offset;
    return PLEC_OK;
}

static int by_place(const void *a, const void *b) {
    const struct plec_touched *x = a, *y = b;
    if (x->part != y->part) return x->part < y->part ? -1 : 1;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return x->entry < y->entry ? -1 : x->entry > y->entry;
}

enum plec_status plec_operand_check_overlaps(struct plec_touched *touched, size_t n_touched,
                                             const struct plec_storage *storage,
                                             struct plec_error *err) {
    qsort(touched, n_touched, sizeof *touched, by_place);
    for (size_t i = 1; i < n_touched; i++) {
        const struct plec_touched *a = &touched[i - 1], *b = &touched[i];
        if (a->part != b->part || a->offset + a->length <= b->offset) continue;
        char name_a[PLEC_NAME_MAX], name_b[PLEC_NAME_MAX];
        return plec_fail_at(err, PLEC_MALFORMED, "RegionsOverlap", b->offset,
                            "bank %u segment %s: entry %u role %s ends at %llu, entry %u role %s "
                            "starts before",
                            storage->bank->id, storage->parts[a->part].key, a->entry,
                            plec_role_name(a->role, name_a),
                            (unsigned long long)(a->offset + a->length), b->entry,
                            plec_role_name(b->role, name_b));
    }
    return PLEC_OK;
}
