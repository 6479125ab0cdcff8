#include "lyrw/segment_write.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/atomic_file.h"
#include "lyrw/cursor.h"
#include "lyrw/segment_walk.h"

struct plec_segment_writer {
    struct plec_segment_sink sink;
    struct plec_atomic_file file;  /* closed when the sink is the caller's */
    struct plec_segment tables;    /* derived from the plan */
    uint8_t *structure;            /* header, records, entry tables */
    uint64_t *written;             /* [slots] bytes of each region that have come */
    struct plec_segment_walk next; /* stands on the region plec_segment_writer_next gives */
    bool next_stands, ended;
};

static enum plec_status write_to_file(void *user, uint64_t at, const void *bytes, uint64_t n_bytes,
                                      struct plec_error *err) {
    return plec_atomic_file_write(user, at, bytes, n_bytes, err);
}

/* Room for the structure and the counters. The sizes are the plan's: a caller who plans more
 * regions than there is memory for is told so. */
static enum plec_status allocate(struct plec_segment_writer *writer, struct plec_error *err) {
    uint64_t structure = writer->tables.entry_table + writer->tables.entry_table_bytes;
    uint64_t n_slots = writer->tables.entry_table_bytes / PLEC_LYRW_SLOT_BYTES;
    if (structure <= SIZE_MAX) writer->structure = calloc((size_t)structure, 1);
    if (n_slots < SIZE_MAX) writer->written = calloc((size_t)n_slots + 1, sizeof *writer->written);
    if (writer->structure == NULL || writer->written == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "tables of %" PRIu64 " regions",
                         n_slots);
    return PLEC_OK;
}

/* Tables, structure and first region of a checked plan; *file_bytes is where the file ends. */
static enum plec_status prepare(struct plec_segment_writer *writer, uint64_t *file_bytes,
                                struct plec_segment_shape *shape, struct plec_error *err) {
    writer->tables = shape->tables; /* moved */
    enum plec_status status = allocate(writer, err);
    if (status == PLEC_OK)
        status = plec_segment_shape_render(writer->structure, file_bytes, shape, err);
    memset(&shape->tables, 0, sizeof shape->tables);
    writer->next = (struct plec_segment_walk){
        .shape = &writer->tables, .order = shape->plan->order, .extent = shape->plan->extent};
    return status;
}

static enum plec_status begin(struct plec_segment_writer *writer, const char *path,
                              const struct plec_segment_plan *plan, struct plec_error *err) {
    struct plec_segment_shape shape;
    uint64_t file_bytes = 0;
    enum plec_status status = plec_segment_shape_open(&shape, plan, err);
    if (status == PLEC_OK) status = prepare(writer, &file_bytes, &shape, err);
    plec_segment_shape_close(&shape);
    if (status != PLEC_OK) return status;
    if (path != NULL) {
        status = plec_atomic_file_open(&writer->file, path, err);
        if (status == PLEC_OK) status = plec_atomic_file_reserve(&writer->file, file_bytes, err);
        writer->sink = (struct plec_segment_sink){write_to_file, &writer->file};
    }
    if (status != PLEC_OK) return status;
    uint64_t structure = writer->tables.entry_table + writer->tables.entry_table_bytes;
    return writer->sink.write(writer->sink.user, 0, writer->structure, structure, err);
}

static enum plec_status open_writer(struct plec_segment_writer **out, const char *path,
                                    const struct plec_segment_sink *sink,
                                    const struct plec_segment_plan *plan, struct plec_error *err) {
    *out = NULL;
    struct plec_segment_writer *writer = calloc(1, sizeof *writer);
    if (writer == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a segment writer");
    writer->file.fd = -1;
    if (sink != NULL) writer->sink = *sink;
    enum plec_status status = begin(writer, path, plan, err);
    if (status != PLEC_OK) {
        plec_segment_writer_abort(writer);
        return status;
    }
    *out = writer;
    return PLEC_OK;
}

enum plec_status plec_segment_writer_open(struct plec_segment_writer **out, const char *path,
                                          const struct plec_segment_plan *plan,
                                          struct plec_error *err) {
    return open_writer(out, path, NULL, plan, err);
}

enum plec_status plec_segment_writer_open_sink(struct plec_segment_writer **out,
                                               const struct plec_segment_sink *sink,
                                               const struct plec_segment_plan *plan,
                                               struct plec_error *err) {
    return open_writer(out, NULL, sink, plan, err);
}

static const uint8_t *slot_bytes(const struct plec_segment_writer *writer, uint64_t slot) {
    return writer->structure + writer->tables.entry_table + slot * PLEC_LYRW_SLOT_BYTES;
}

static uint64_t slot_length(const struct plec_segment_writer *writer, uint64_t slot) {
    return plec_load_u64(slot_bytes(writer, slot) + 8);
}

bool plec_segment_writer_next(struct plec_region_place *out, struct plec_segment_writer *writer) {
    struct plec_segment_walk *walk = &writer->next;
    while (!writer->next_stands || writer->written[walk->slot] == slot_length(writer, walk->slot)) {
        if (writer->ended) return false;
        writer->next_stands = plec_segment_walk_next(walk);
        writer->ended = !writer->next_stands;
    }
    *out = (struct plec_region_place){.segment = walk->segment,
                                      .entry = writer->tables.segments[walk->segment].first_entry +
                                               walk->local_entry,
                                      .schema = walk->schema,
                                      .offset = plec_load_u64(slot_bytes(writer, walk->slot)),
                                      .length = slot_length(writer, walk->slot),
                                      .written = writer->written[walk->slot]};
    return true;
}

/* The slot of a region, when the plan has it. */
static bool find_slot(uint64_t *slot, const struct plec_segment *tables, uint32_t segment,
                      uint32_t entry, uint32_t schema) {
    if (segment >= tables->header.num_segments) return false;
    const struct plec_lyrw_segment *record = &tables->segments[segment];
    uint32_t n_schemas = tables->banks[record->bank_ordinal].n_schemas;
    if (entry < record->first_entry || entry - record->first_entry >= record->entry_count ||
        schema >= n_schemas)
        return false;
    *slot = (record->entry_table - tables->entry_table) / PLEC_LYRW_SLOT_BYTES +
            (uint64_t)(entry - record->first_entry) * n_schemas + schema;
    return true;
}

enum plec_status plec_segment_writer_append(struct plec_segment_writer *writer, uint32_t segment,
                                            uint32_t entry, uint32_t schema, const void *bytes,
                                            uint64_t n_bytes, struct plec_error *err) {
    uint64_t slot;
    if (!find_slot(&slot, &writer->tables, segment, entry, schema))
        return plec_fail(err, PLEC_BAD_INPUT, "NoSuchRegion", "segment=%u entry=%u schema=%u",
                         segment, entry, schema);
    uint64_t written = writer->written[slot], length = slot_length(writer, slot);
    if (n_bytes > length - written)
        return plec_fail(err, PLEC_BAD_INPUT, "RegionTooLong",
                         "segment=%u entry=%u schema=%u length=%" PRIu64 " written=%" PRIu64
                         " more=%" PRIu64,
                         segment, entry, schema, length, written, n_bytes);
    if (n_bytes == 0) return PLEC_OK;
    uint64_t at = plec_load_u64(slot_bytes(writer, slot)) + written;
    enum plec_status status = writer->sink.write(writer->sink.user, at, bytes, n_bytes, err);
    if (status == PLEC_OK) writer->written[slot] += n_bytes;
    return status;
}

static void free_writer(struct plec_segment_writer *writer) {
    plec_segment_close(&writer->tables);
    free(writer->structure);
    free(writer->written);
    free(writer);
}

enum plec_status plec_segment_writer_commit(struct plec_segment_writer *writer,
                                            struct plec_error *err) {
    struct plec_region_place missing;
    if (plec_segment_writer_next(&missing, writer)) {
        plec_fail(err, PLEC_BAD_INPUT, "RegionsMissing",
                  "segment=%u entry=%u schema=%u: %" PRIu64 " of %" PRIu64 " bytes written",
                  missing.segment, missing.entry, missing.schema, missing.written, missing.length);
        plec_segment_writer_abort(writer);
        return PLEC_BAD_INPUT;
    }
    enum plec_status status =
        writer->file.open ? plec_atomic_file_commit(&writer->file, err) : PLEC_OK;
    free_writer(writer);
    return status;
}

void plec_segment_writer_abort(struct plec_segment_writer *writer) {
    if (writer == NULL) return;
    plec_atomic_file_abort(&writer->file);
    free_writer(writer);
}

/* The region of the source at the same place of its tables, of the same length. */
static enum plec_status region_like(struct plec_region *out, const struct plec_segment *source,
                                    const struct plec_region_place *place, struct plec_error *err) {
    uint64_t slot;
    *out = (struct plec_region){0};
    if (find_slot(&slot, source, place->segment, place->entry, place->schema)) {
        uint32_t local = place->entry - source->segments[place->segment].first_entry;
        enum plec_status status =
            plec_segment_slot(out, source, place->segment, local, place->schema, err);
        if (status != PLEC_OK) return status;
    }
    if (out->present && out->length == place->length) return PLEC_OK;
    return plec_fail(err, PLEC_BAD_INPUT, "NoSuchRegion",
                     "segment=%u entry=%u schema=%u of %" PRIu64 " bytes: not in the source",
                     place->segment, place->entry, place->schema, place->length);
}

enum plec_status plec_segment_writer_copy(struct plec_segment_writer *writer,
                                          const struct plec_segment *source,
                                          struct plec_error *err) {
    struct plec_region_place place;
    while (plec_segment_writer_next(&place, writer)) {
        struct plec_region region;
        enum plec_status status = region_like(&region, source, &place, err);
        if (status == PLEC_OK)
            status = plec_segment_writer_append(writer, place.segment, place.entry, place.schema,
                                                source->data + region.offset + place.written,
                                                place.length - place.written, err);
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

/* Bytes of a file behind its payload start and its last region. Every slot is known to be good. */
static uint64_t trailing_bytes(const struct plec_segment *source) {
    uint64_t end = source->payload_start;
    uint64_t n_slots = source->entry_table_bytes / PLEC_LYRW_SLOT_BYTES;
    for (uint64_t i = 0; i < n_slots; i++) {
        const uint8_t *slot = source->data + source->entry_table + i * PLEC_LYRW_SLOT_BYTES;
        uint64_t region_end = plec_load_u64(slot) + plec_load_u64(slot + 8);
        if (end < region_end) end = region_end;
    }
    return end < source->size ? source->size - end : 0;
}

static enum plec_status rewrite(struct plec_rewrite_report *report, const char *path,
                                const struct plec_segment *source,
                                const struct plec_segment_plan *plan, struct plec_error *err) {
    struct plec_segment_layout layout;
    enum plec_status status = plec_segment_plan_layout(&layout, plan, err);
    if (status != PLEC_OK) return status;
    *report =
        (struct plec_rewrite_report){layout.file_bytes, layout.n_regions, trailing_bytes(source)};
    struct plec_segment_writer *writer;
    status = plec_segment_writer_open(&writer, path, plan, err);
    if (status != PLEC_OK) return status;
    status = plec_segment_writer_copy(writer, source, err);
    if (status == PLEC_OK) return plec_segment_writer_commit(writer, err);
    plec_segment_writer_abort(writer);
    return status;
}

enum plec_status plec_segment_rewrite(const char *path, const struct plec_segment *source,
                                      const struct plec_rewrite_options *options,
                                      struct plec_rewrite_report *report, struct plec_error *err) {
    struct plec_rewrite_report unread;
    struct plec_segment_plan plan;
    enum plec_status status = plec_segment_plan_of(&plan, source, err);
    if (status == PLEC_OK && options != NULL) {
        plan.order = options->order;
        plan.extent = options->extent;
    }
    if (status == PLEC_OK)
        status = rewrite(report != NULL ? report : &unread, path, source, &plan, err);
    if (status != PLEC_OK) plec_error_context(err, "%s", path);
    return status;
}
