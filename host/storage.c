#include "host/storage.h"

#include <stdlib.h>
#include <string.h>

#include "lyrw/cursor.h"

static enum plec_status check_unique_id(const struct plec_storage_part *part, int32_t ordinal,
                                        struct plec_error *err) {
    const struct plec_segment *segment = part->segment;
    uint16_t id = segment->banks[ordinal].id;
    for (int32_t i = 0; i < segment->header.num_banks; i++)
        if (i != ordinal && segment->banks[i].id == id)
            return plec_fail(err, PLEC_MALFORMED, "DuplicateBankId",
                             "segment %s: banks %d and %d both have id %u", part->key,
                             i < ordinal ? i : ordinal, i < ordinal ? ordinal : i, id);
    return PLEC_OK;
}

/* One field that all segments of a bank must agree in. */
struct shared_field {
    const char *name;
    uint64_t first, other;
};

static enum plec_status check_fields(const struct plec_storage *storage,
                                     const struct plec_storage_part *part,
                                     const struct shared_field *fields, size_t n_fields,
                                     const char *what, struct plec_error *err) {
    for (size_t i = 0; i < n_fields; i++)
        if (fields[i].first != fields[i].other)
            return plec_fail(err, PLEC_MALFORMED, "SegmentsDisagree",
                             "bank %u: %s %s is %llu in segment %s, %llu in segment %s",
                             storage->bank->id, what, fields[i].name,
                             (unsigned long long)fields[i].first, storage->parts[0].key,
                             (unsigned long long)fields[i].other, part->key);
    return PLEC_OK;
}

static enum plec_status check_same_bank(const struct plec_storage *storage,
                                        const struct plec_storage_part *part,
                                        const struct plec_lyrw_bank *other,
                                        struct plec_error *err) {
    const struct plec_lyrw_bank *bank = storage->bank;
    const struct shared_field fields[] = {
        {"logical_layer", storage->logical_layer, part->segment->header.logical_layer},
        {"kind", bank->kind, other->kind},
        {"region_schema_count", bank->n_schemas, other->n_schemas},
        {"flags", bank->flags, other->flags},
        {"num_entries", bank->num_entries, other->num_entries},
        {"input_dim", bank->input_dim, other->input_dim},
        {"intermediate_dim", bank->intermediate_dim, other->intermediate_dim},
        {"output_dim", bank->output_dim, other->output_dim},
    };
    return check_fields(storage, part, fields, sizeof fields / sizeof fields[0], "field", err);
}

static enum plec_status check_same_schema(const struct plec_storage *storage,
                                          const struct plec_storage_part *part,
                                          const struct plec_lyrw_schema *a,
                                          const struct plec_lyrw_schema *b,
                                          struct plec_error *err) {
    const struct shared_field fields[] = {
        {"role", a->role, b->role},          {"format", a->format, b->format},
        {"packing", a->packing, b->packing}, {"pair_id", a->pair_id, b->pair_id},
        {"layout", a->layout, b->layout},    {"rows", a->rows, b->rows},
        {"cols", a->cols, b->cols},
    };
    enum plec_status status =
        check_fields(storage, part, fields, sizeof fields / sizeof fields[0], "schema", err);
    if (status != PLEC_OK) plec_error_context(err, "schema %u", a->index);
    return status;
}

static enum plec_status add_part(struct plec_storage *storage, struct plec_storage_part *part,
                                 enum plec_bank_kind kind, struct plec_error *err) {
    const struct plec_segment *segment = part->segment;
    int32_t ordinal = storage->bank == NULL ? plec_segment_bank_of_kind(segment, kind)
                                            : plec_segment_find_bank(segment, storage->bank->id);
    char name[PLEC_NAME_MAX];
    if (ordinal < 0 && storage->bank != NULL)
        return plec_fail(err, PLEC_MALFORMED, "SegmentsDisagree",
                         "segment %s holds bank %u, segment %s does not", storage->parts[0].key,
                         storage->bank->id, part->key);
    if (ordinal < 0)
        return plec_fail(err, PLEC_MALFORMED, "NoSuchBank",
                         "segment %s: none of its %u banks is %s, and it is not the only one",
                         part->key, segment->header.num_banks,
                         plec_bank_kind_name((uint16_t)kind, name));
    enum plec_status status = check_unique_id(part, ordinal, err);
    if (status != PLEC_OK) return status;
    const struct plec_lyrw_bank *bank = &segment->banks[ordinal];
    const struct plec_lyrw_schema *schemas = segment->schemas + bank->first_schema;
    if (storage->bank == NULL) {
        storage->bank = bank;
        storage->schemas = schemas;
        storage->logical_layer = segment->header.logical_layer;
        return PLEC_OK;
    }
    status = check_same_bank(storage, part, bank, err);
    for (uint32_t i = 0; status == PLEC_OK && i < bank->n_schemas; i++)
        status = check_same_schema(storage, part, &storage->schemas[i], &schemas[i], err);
    return status;
}

enum plec_status plec_storage_open(struct plec_storage *out, struct plec_arena *arena,
                                   struct plec_store *store, const char *name,
                                   const char *const *keys, size_t n_keys, enum plec_bank_kind kind,
                                   struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->name = name;
    out->parts = plec_arena_alloc(arena, n_keys, sizeof *out->parts, err);
    if (out->parts == NULL) return PLEC_NO_MEMORY;
    for (size_t i = 0; i < n_keys; i++) {
        struct plec_storage_part *part = &out->parts[i];
        part->key = keys[i];
        enum plec_status status = plec_store_get(&part->segment, store, keys[i], err);
        if (status == PLEC_OK) status = add_part(out, part, kind, err);
        if (status != PLEC_OK) return status;
        out->n_parts++;
    }
    return PLEC_OK;
}

static size_t count_runs(const struct plec_storage *storage) {
    size_t n_runs = 0;
    for (size_t i = 0; i < storage->n_parts; i++)
        n_runs += storage->parts[i].segment->header.num_segments;
    return n_runs;
}

/* A run's entry table must lie inside its file before anything is sized by its entry count. */
static enum plec_status add_run(struct plec_storage *storage, uint32_t part,
                                const struct plec_lyrw_segment *record, struct plec_error *err) {
    if (record->bank_id != storage->bank->id || record->entry_count == 0) return PLEC_OK;
    const struct plec_segment *segment = storage->parts[part].segment;
    uint64_t n_bytes =
        (uint64_t)record->entry_count * storage->bank->n_schemas * PLEC_LYRW_SLOT_BYTES;
    if (record->entry_table > segment->size || n_bytes > segment->size - record->entry_table)
        return plec_fail_at(err, PLEC_MALFORMED, "Truncated", record->entry_table,
                            "segment %s: bank %u entry table: need %llu bytes, have %llu",
                            storage->parts[part].key, storage->bank->id,
                            (unsigned long long)n_bytes,
                            (unsigned long long)(record->entry_table > segment->size
                                                     ? 0
                                                     : segment->size - record->entry_table));
    storage->runs[storage->n_runs++] =
        (struct plec_storage_run){.part = part,
                                  .first = record->first_entry,
                                  .count = record->entry_count,
                                  .entry_table = record->entry_table};
    return PLEC_OK;
}

static int by_first(const void *a, const void *b) {
    const struct plec_storage_run *x = a, *y = b;
    if (x->first != y->first) return x->first < y->first ? -1 : 1;
    return x->part < y->part ? -1 : x->part > y->part;
}

static enum plec_status fail_gap(const struct plec_storage *storage, uint64_t entry, size_t i_run,
                                 struct plec_error *err) {
    char name[PLEC_NAME_MAX];
    uint32_t part =
        i_run < storage->n_runs ? storage->runs[i_run].part : (uint32_t)(storage->n_parts - 1);
    return plec_fail(err, PLEC_MISSING, "MissingRegion",
                     "bank %u entry %llu role %s segment %s: no segment record holds the entry "
                     "(the bank has %u entries)",
                     storage->bank->id, (unsigned long long)entry,
                     storage->bank->n_schemas > 0 ? plec_role_name(storage->schemas[0].role, name)
                                                  : "none",
                     storage->parts[part].key, storage->bank->num_entries);
}

static enum plec_status check_tiling(const struct plec_storage *storage, struct plec_error *err) {
    uint64_t next = 0;
    for (size_t i = 0; i < storage->n_runs; i++) {
        const struct plec_storage_run *run = &storage->runs[i];
        if (run->first > next) return fail_gap(storage, next, i, err);
        if (run->first < next)
            return plec_fail(err, PLEC_MALFORMED, "SegmentsOverlap",
                             "bank %u entry %u is held by segment %s and by segment %s",
                             storage->bank->id, run->first,
                             storage->parts[storage->runs[i - 1].part].key,
                             storage->parts[run->part].key);
        next += run->count;
    }
    return next < storage->bank->num_entries ? fail_gap(storage, next, storage->n_runs, err)
                                             : PLEC_OK;
}

static int by_value(const void *a, const void *b) {
    uint16_t x = *(const uint16_t *)a, y = *(const uint16_t *)b;
    return x < y ? -1 : x > y;
}

/* segment_index values of the bank's records, sorted, must all differ. */
static enum plec_status check_indices(const struct plec_storage *storage, uint16_t *indices,
                                      size_t n_indices, struct plec_error *err) {
    qsort(indices, n_indices, sizeof *indices, by_value);
    for (size_t i = 1; i < n_indices; i++)
        if (indices[i] == indices[i - 1])
            return plec_fail(err, PLEC_MALFORMED, "RepeatedSegmentIndex",
                             "bank %u of storage %s: two segment records have index %u",
                             storage->bank->id, storage->name, indices[i]);
    return PLEC_OK;
}

enum plec_status plec_storage_tile(struct plec_storage *storage, struct plec_arena *arena,
                                   struct plec_error *err) {
    size_t n_runs = count_runs(storage), n_indices = 0;
    storage->runs = plec_arena_alloc(arena, n_runs, sizeof *storage->runs, err);
    uint16_t *indices = plec_arena_alloc(arena, n_runs, sizeof *indices, err);
    if (storage->runs == NULL || indices == NULL) return PLEC_NO_MEMORY;
    enum plec_status status = PLEC_OK;
    for (uint32_t part = 0; part < storage->n_parts; part++) {
        const struct plec_segment *segment = storage->parts[part].segment;
        for (uint32_t i = 0; status == PLEC_OK && i < segment->header.num_segments; i++) {
            if (segment->segments[i].bank_id == storage->bank->id)
                indices[n_indices++] = segment->segments[i].index;
            status = add_run(storage, part, &segment->segments[i], err);
        }
    }
    qsort(storage->runs, storage->n_runs, sizeof *storage->runs, by_first);
    if (status == PLEC_OK) status = check_indices(storage, indices, n_indices, err);
    if (status == PLEC_OK) status = check_tiling(storage, err);
    return status;
}

bool plec_storage_has_role(const struct plec_storage *storage, uint16_t role) {
    for (uint32_t i = 0; i < storage->bank->n_schemas; i++)
        if (storage->schemas[i].role == role) return true;
    return false;
}

enum plec_status plec_storage_schema(int32_t *out, const struct plec_storage *storage,
                                     uint16_t role, struct plec_error *err) {
    uint32_t n_found = 0;
    *out = -1;
    for (uint32_t i = 0; i < storage->bank->n_schemas; i++)
        if (storage->schemas[i].role == role && n_found++ == 0) *out = (int32_t)i;
    char name[PLEC_NAME_MAX];
    if (n_found > 1)
        return plec_fail(err, PLEC_MALFORMED, "AmbiguousRole",
                         "bank %u role %s segment %s: %u schemas have it", storage->bank->id,
                         plec_role_name(role, name), storage->parts[0].key, n_found);
    return PLEC_OK;
}
