#include "lyrw/segment_walk.h"

#include <inttypes.h>
#include <string.h>

#include "lyrw/cursor.h"

/* The next run of entries that has regions. */
static bool begin_run(struct plec_segment_walk *walk) {
    const struct plec_segment *shape = walk->shape;
    uint32_t first = walk->run_first + walk->run_entries;
    for (; walk->segment < shape->header.num_segments; walk->segment++, first = 0) {
        const struct plec_lyrw_segment *record = &shape->segments[walk->segment];
        uint32_t n_schemas = shape->banks[record->bank_ordinal].n_schemas;
        uint32_t left = record->entry_count - first;
        if (left == 0 || n_schemas == 0) continue;
        walk->run_first = first;
        walk->run_entries = walk->extent != 0 && walk->extent < left ? walk->extent : left;
        walk->in_run = (uint64_t)walk->run_entries * n_schemas;
        walk->next_in_run = 0;
        return true;
    }
    walk->run_first = walk->run_entries = 0;
    return false;
}

bool plec_segment_walk_next(struct plec_segment_walk *walk) {
    if (walk->next_in_run == walk->in_run && !begin_run(walk)) return false;
    const struct plec_segment *shape = walk->shape;
    const struct plec_lyrw_segment *record = &shape->segments[walk->segment];
    uint32_t n_schemas = shape->banks[record->bank_ordinal].n_schemas;
    uint64_t i = walk->next_in_run++;
    bool by_entry = walk->order == PLEC_ORDER_ENTRY;
    uint32_t outer = by_entry ? n_schemas : walk->run_entries;
    uint32_t quotient = (uint32_t)(i / outer), remainder = (uint32_t)(i % outer);
    walk->local_entry = walk->run_first + (by_entry ? quotient : remainder);
    walk->schema = by_entry ? remainder : quotient;
    walk->slot = (record->entry_table - shape->entry_table) / PLEC_LYRW_SLOT_BYTES +
                 (uint64_t)walk->local_entry * n_schemas + walk->schema;
    walk->run_begins = i == 0;
    return true;
}

struct plec_segment_placer plec_segment_placer_at_start(const struct plec_segment_shape *shape) {
    return (struct plec_segment_placer){.walk = {.shape = &shape->tables,
                                                 .order = shape->plan->order,
                                                 .extent = shape->plan->extent},
                                        .at = shape->tables.payload_start};
}

static uint64_t length_of(const struct plec_segment_walk *walk,
                          const struct plec_segment_shape *shape) {
    if (shape->bytes == NULL) return shape->plan->length(shape->plan->user, walk->slot);
    const struct plec_lyrw_segment *record = &shape->tables.segments[walk->segment];
    return shape->bytes[shape->tables.banks[record->bank_ordinal].first_schema + walk->schema];
}

enum plec_status plec_segment_placer_next(bool *more, struct plec_segment_placer *placer,
                                          const struct plec_segment_shape *shape,
                                          struct plec_error *err) {
    *more = plec_segment_walk_next(&placer->walk);
    if (!*more) return PLEC_OK;
    bool extent_begins = placer->walk.extent != 0 && placer->walk.run_begins;
    uint64_t alignment = extent_begins ? PLEC_EXTENT_ALIGNMENT : PLEC_LYRW_ALIGNMENT;
    placer->length = length_of(&placer->walk, shape);
    if (!plec_round_up_u64(&placer->offset, placer->at, alignment) ||
        !plec_add_u64(&placer->at, placer->offset, placer->length) || placer->at > INT64_MAX)
        return plec_fail(
            err, PLEC_BAD_INPUT, "FileTooLarge",
            "segment=%u local_entry=%u schema=%u length=%" PRIu64 " ends beyond 2^63 - 1",
            placer->walk.segment, placer->walk.local_entry, placer->walk.schema, placer->length);
    return PLEC_OK;
}

static void store_u16s(uint8_t **at, const uint16_t *values, size_t n) {
    for (size_t i = 0; i < n; i++, *at += 2)
        plec_store_u16(*at, values[i]);
}

static void store_u32s(uint8_t **at, const uint32_t *values, size_t n) {
    for (size_t i = 0; i < n; i++, *at += 4)
        plec_store_u32(*at, values[i]);
}

static void store_header(uint8_t **at, const struct plec_lyrw_header *header) {
    memcpy(*at, "LYRW", 4);
    *at += 4;
    store_u32s(at, (uint32_t[]){header->format_version, header->logical_layer}, 2);
    store_u16s(at, (uint16_t[]){header->num_banks, header->num_segments}, 2);
    store_u32s(at, (uint32_t[]){header->flags, header->reserved}, 2);
}

static void store_records(uint8_t *at, const struct plec_segment *tables) {
    store_header(&at, &tables->header);
    for (uint32_t i = 0; i < tables->header.num_banks; i++) {
        const struct plec_lyrw_bank *b = &tables->banks[i];
        store_u16s(&at, (uint16_t[]){b->id, b->kind, b->n_schemas, b->flags}, 4);
        store_u32s(
            &at, (uint32_t[]){b->num_entries, b->input_dim, b->intermediate_dim, b->output_dim}, 4);
    }
    for (uint32_t i = 0; i < tables->header.num_segments; i++) {
        const struct plec_lyrw_segment *s = &tables->segments[i];
        store_u16s(&at, (uint16_t[]){s->bank_id, s->index}, 2);
        store_u32s(&at, (uint32_t[]){s->first_entry, s->entry_count}, 2);
    }
    for (uint64_t i = 0; i < tables->n_schemas; i++) {
        const struct plec_lyrw_schema *m = &tables->schemas[i];
        store_u16s(
            &at, (uint16_t[]){m->index, m->role, m->format, m->packing, m->pair_id, m->layout}, 6);
        store_u32s(&at, (uint32_t[]){m->rows, m->cols}, 2);
    }
}

enum plec_status plec_segment_shape_render(uint8_t *out, uint64_t *file_bytes,
                                           const struct plec_segment_shape *shape,
                                           struct plec_error *err) {
    store_records(out, &shape->tables);
    uint8_t *slots = out + shape->tables.entry_table;
    struct plec_segment_placer placer = plec_segment_placer_at_start(shape);
    for (bool more = true; more;) {
        enum plec_status status = plec_segment_placer_next(&more, &placer, shape, err);
        if (status != PLEC_OK) return status;
        if (!more) break;
        uint8_t *slot = slots + placer.walk.slot * PLEC_LYRW_SLOT_BYTES;
        plec_store_u64(slot, placer.offset);
        plec_store_u64(slot + 8, placer.length);
    }
    if (file_bytes != NULL) *file_bytes = placer.at;
    return PLEC_OK;
}
