#include "host/bank.h"

#include <stdio.h>
#include <string.h>

static const uint16_t role_tags[PLEC_N_BANK_ROLES] = {
    [PLEC_BANK_GATE] = PLEC_ROLE_GATE,           [PLEC_BANK_UP] = PLEC_ROLE_UP,
    [PLEC_BANK_FUSED] = PLEC_ROLE_GATE_UP_FUSED, [PLEC_BANK_DOWN] = PLEC_ROLE_DOWN,
    [PLEC_BANK_BIAS] = PLEC_ROLE_BIAS,
};

/* Most bias schemas an expert can have: one a matrix. */
enum { BIASES_MAX = PLEC_N_MATRICES };

/* A bank while it is built. */
struct builder {
    const struct plec_bank_request *request;
    struct plec_arena *arena;
    struct plec_bank *bank;
    struct plec_bank_operand operands[PLEC_N_OPERANDS];
    struct plec_storage *storages[PLEC_N_BANK_ROLES]; /* [n_storages] distinct ones in use */
    size_t n_storages;
};

uint16_t plec_bank_role_tag(enum plec_bank_role role) {
    return role_tags[role];
}

/* Which roles have a schema, as schemas: what a programme is matched against. */
static uint32_t present_roles(struct plec_lyrw_schema *out,
                              const struct plec_bank_request *request) {
    uint32_t n = 0;
    for (int i = 0; i < PLEC_N_BANK_ROLES; i++)
        if (request->by_role[i] != NULL && plec_storage_has_role(request->by_role[i], role_tags[i]))
            out[n++] = (struct plec_lyrw_schema){.role = role_tags[i]};
    return n;
}

static const char *any_key(const struct plec_bank_request *request) {
    for (int i = PLEC_N_BANK_ROLES - 1; i >= 0; i--)
        if (request->by_role[i] != NULL) return request->by_role[i]->parts[0].key;
    return "none";
}

static enum plec_status fail_unsatisfied(const struct plec_programme *programme,
                                         const struct plec_role_set *missing,
                                         const struct plec_bank_request *request,
                                         struct plec_error *err) {
    char list[PLEC_ROLE_SET_MAX * (PLEC_NAME_MAX + 2)] = "", name[PLEC_NAME_MAX];
    size_t at = 0;
    for (uint32_t i = 0; i < missing->n_roles; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s%s", i > 0 ? ", " : "",
                               plec_role_name(missing->roles[i], name));
    return plec_fail(err, PLEC_MISSING, "UnsatisfiedProgramme",
                     "programme %s: no region has role %s (segment %s)", programme->name, list,
                     any_key(request));
}

/* The acceptable set the roles satisfy, of the programme asked for or the first that fits. */
static enum plec_status match_programme(const struct plec_role_set **out,
                                        const struct plec_programme **programme,
                                        const struct plec_bank_request *request,
                                        struct plec_error *err) {
    static const char *const inferred[] = {"gated-mlp-v1", "plectrum-mlp-v1"};
    struct plec_lyrw_schema roles[PLEC_N_BANK_ROLES];
    uint32_t n_roles = present_roles(roles, request);
    struct plec_role_set missing, first_missing = {{0}, 0};
    const struct plec_programme *first = request->programme;
    for (size_t i = 0; i < sizeof inferred / sizeof inferred[0]; i++) {
        const struct plec_programme *tried =
            request->programme != NULL ? request->programme : plec_programme_find(inferred[i]);
        int set = plec_programme_match(&missing, tried, roles, n_roles);
        if (set >= 0) {
            *programme = tried;
            *out = &tried->sets[set];
            return PLEC_OK;
        }
        if (i == 0) {
            first = tried;
            first_missing = missing;
        }
        if (request->programme != NULL) break;
    }
    return fail_unsatisfied(first, &first_missing, request, err);
}

static bool set_has(const struct plec_role_set *set, uint16_t role) {
    for (uint32_t i = 0; i < set->n_roles; i++)
        if (set->roles[i] == role) return true;
    return false;
}

static void use_storage(struct builder *b, struct plec_storage *storage) {
    for (size_t i = 0; i < b->n_storages; i++)
        if (b->storages[i] == storage) return;
    b->storages[b->n_storages++] = storage;
}

static enum plec_status take_matrix(struct builder *b, enum plec_operand_id id,
                                    enum plec_bank_role role, struct plec_error *err) {
    struct plec_storage *storage = b->request->by_role[role];
    int32_t schema;
    enum plec_status status = plec_storage_schema(&schema, storage, role_tags[role], err);
    if (status != PLEC_OK) return status;
    use_storage(b, storage);
    status = plec_operand_from_schema(&b->operands[id], storage, (uint32_t)schema, err);
    if (status == PLEC_OK) b->bank->operands[id] = b->operands[id].shape;
    return status;
}

static enum plec_status take_fusion(struct builder *b, struct plec_error *err) {
    const struct plec_bank_operand *fused = &b->operands[PLEC_GATE];
    const char *key = fused->storage->parts[0].key;
    uint16_t id = fused->storage->bank->id;
    char name[PLEC_NAME_MAX];
    switch (fused->layout) {
    case PLEC_LAYOUT_CONTIGUOUS_HALVES: b->bank->fusion = PLEC_FUSED_GATE_FIRST; break;
    case PLEC_LAYOUT_INTERLEAVED: b->bank->fusion = PLEC_FUSED_INTERLEAVED; break;
    case PLEC_LAYOUT_UNSPECIFIED:
        return plec_fail(err, PLEC_MALFORMED, "UndeclaredFusedLayout",
                         "bank %u role gate_up_fused segment %s: layout is unspecified; its gate "
                         "and up rows cannot be told apart",
                         id, key);
    default:
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownLayout",
                         "bank %u role gate_up_fused segment %s: %s", id, key,
                         plec_layout_name(fused->layout, name));
    }
    if (fused->shape.rows % 2 != 0)
        return plec_fail(err, PLEC_MALFORMED, "ShapesDisagree",
                         "bank %u role gate_up_fused segment %s: %u rows are no two halves", id,
                         key, fused->shape.rows);
    return PLEC_OK;
}

static enum plec_status take_matrices(struct builder *b, const struct plec_role_set *set,
                                      struct plec_error *err) {
    enum plec_status status;
    if (set_has(set, PLEC_ROLE_GATE_UP_FUSED)) {
        status = take_matrix(b, PLEC_GATE, PLEC_BANK_FUSED, err);
        if (status == PLEC_OK) status = take_fusion(b, err);
    } else {
        status =
            set_has(set, PLEC_ROLE_GATE) ? take_matrix(b, PLEC_GATE, PLEC_BANK_GATE, err) : PLEC_OK;
        if (status == PLEC_OK) status = take_matrix(b, PLEC_UP, PLEC_BANK_UP, err);
    }
    return status == PLEC_OK ? take_matrix(b, PLEC_DOWN, PLEC_BANK_DOWN, err) : status;
}

static enum plec_status check_shapes(struct builder *b, struct plec_error *err) {
    struct plec_bank *bank = b->bank;
    bool fused = bank->fusion != PLEC_NOT_FUSED;
    const struct plec_operand *gate = &bank->operands[PLEC_GATE],
                              *down = &bank->operands[PLEC_DOWN];
    const struct plec_operand *up = &bank->operands[fused ? PLEC_GATE : PLEC_UP];
    const struct plec_storage *storage = b->operands[PLEC_DOWN].storage;
    if (!fused && gate->rows > 0 && (gate->rows != up->rows || gate->cols != up->cols))
        return plec_fail(err, PLEC_MALFORMED, "ShapesDisagree",
                         "bank %u segment %s: gate is %u x %u, up is %u x %u", storage->bank->id,
                         storage->parts[0].key, gate->rows, gate->cols, up->rows, up->cols);
    bank->input_dim = up->cols;
    bank->intermediate_dim = fused ? up->rows / 2 : up->rows;
    bank->output_dim = down->rows;
    uint32_t block = plec_format_find(down->format)->block_elems;
    if (down->cols < bank->intermediate_dim || down->cols - bank->intermediate_dim >= block)
        return plec_fail(err, PLEC_MALFORMED, "ShapesDisagree",
                         "bank %u segment %s: down has %u columns, gate and up give %u values",
                         storage->bank->id, storage->parts[0].key, down->cols,
                         bank->intermediate_dim);
    return PLEC_OK;
}

bool plec_bank_match_biases(enum plec_operand_id *places, const uint64_t *sizes, uint32_t n_biases,
                            uint64_t gate_size, uint64_t up_size, uint64_t down_size) {
    static const enum plec_operand_id order[] = {PLEC_GATE_BIAS, PLEC_UP_BIAS, PLEC_DOWN_BIAS};
    const uint64_t wanted[] = {gate_size, up_size, down_size};
    /* Among the places of one size there must be a bias for each, or which ones lack theirs could
     * not be told. They are filled in schema order. */
    for (uint32_t i = 0; i < n_biases; i++) {
        uint32_t n_before = 0, n_same = 0, n_places = 0;
        for (uint32_t j = 0; j < n_biases; j++) {
            n_same += sizes[j] == sizes[i];
            n_before += j < i && sizes[j] == sizes[i];
        }
        for (uint32_t j = 0; j < PLEC_N_MATRICES; j++) {
            if (wanted[j] != sizes[i] || wanted[j] == 0) continue;
            if (n_places++ == n_before) places[i] = order[j];
        }
        if (n_places != n_same) return false;
    }
    return true;
}

static enum plec_status fail_biases(const struct builder *b, const struct plec_storage *storage,
                                    uint32_t n_biases, struct plec_error *err) {
    return plec_fail(err, PLEC_MALFORMED, "BiasUnmatched",
                     "bank %u role bias segment %s: %u biases; their sizes do not say which of "
                     "gate_up (%u values) and down (%u) each belongs to",
                     storage->bank->id, storage->parts[0].key, n_biases,
                     b->bank->fusion != PLEC_NOT_FUSED ? 2 * b->bank->intermediate_dim
                                                       : b->bank->intermediate_dim,
                     b->bank->output_dim);
}

/* A bias as a vector: its shape in the file says only how many values it has. */
static enum plec_status take_bias(struct builder *b, enum plec_operand_id id,
                                  struct plec_storage *storage, uint32_t schema,
                                  struct plec_error *err) {
    struct plec_bank_operand *operand = &b->operands[id];
    enum plec_status status = plec_operand_from_schema(operand, storage, schema, err);
    if (status != PLEC_OK) return status;
    if (operand->scales.schema != PLEC_NO_SCHEMA)
        return plec_fail(err, PLEC_UNSUPPORTED, "PairedBias",
                         "bank %u role bias segment %s: a bias has no scales of its own",
                         storage->bank->id, storage->parts[0].key);
    operand->shape.cols *= operand->shape.rows;
    operand->shape.rows = 1;
    b->bank->operands[id] = operand->shape;
    return PLEC_OK;
}

static enum plec_status take_biases(struct builder *b, struct plec_error *err) {
    struct plec_storage *storage = b->request->by_role[PLEC_BANK_BIAS];
    if (storage == NULL || !plec_storage_has_role(storage, PLEC_ROLE_BIAS)) return PLEC_OK;
    uint32_t schemas[BIASES_MAX], n = 0;
    uint64_t sizes[BIASES_MAX];
    for (uint32_t i = 0; i < storage->bank->n_schemas; i++) {
        const struct plec_lyrw_schema *schema = &storage->schemas[i];
        if (schema->role != PLEC_ROLE_BIAS) continue;
        if (n == BIASES_MAX) return fail_biases(b, storage, n + 1, err);
        schemas[n] = i;
        sizes[n++] = (uint64_t)schema->rows * schema->cols;
    }
    enum plec_operand_id places[BIASES_MAX] = {PLEC_GATE_BIAS};
    const struct plec_operand *operands = b->bank->operands;
    if (!plec_bank_match_biases(places, sizes, n, operands[PLEC_GATE].rows, operands[PLEC_UP].rows,
                                operands[PLEC_DOWN].rows))
        return fail_biases(b, storage, n, err);
    use_storage(b, storage);
    for (uint32_t i = 0; i < n; i++) {
        enum plec_status status = take_bias(b, places[i], storage, schemas[i], err);
        if (status != PLEC_OK) return status;
    }
    return PLEC_OK;
}

/* What a bank record says, against the operands read from it. */
static enum plec_status check_record(const struct builder *b, const struct plec_storage *storage,
                                     struct plec_error *err) {
    const struct plec_lyrw_bank *record = storage->bank;
    const struct plec_bank *bank = b->bank;
    uint32_t stored = bank->operands[PLEC_DOWN].cols;
    if (record->input_dim != bank->input_dim || record->output_dim != bank->output_dim ||
        (record->intermediate_dim != bank->intermediate_dim && record->intermediate_dim != stored))
        return plec_fail(err, PLEC_MALFORMED, "DimensionContradicted",
                         "bank %u segment %s: the bank record says %u -> %u -> %u, its matrices "
                         "are %u -> %u -> %u",
                         record->id, storage->parts[0].key, record->input_dim,
                         record->intermediate_dim, record->output_dim, bank->input_dim,
                         bank->intermediate_dim, bank->output_dim);
    return PLEC_OK;
}

static enum plec_status check_manifest(const struct builder *b, const struct plec_storage *storage,
                                       struct plec_error *err) {
    const struct plec_bank_request *request = b->request;
    const struct plec_bank *bank = b->bank;
    if (request->n_entries != 0 && request->n_entries != storage->bank->num_entries)
        return plec_fail(err, PLEC_MALFORMED, "ExpertsContradicted",
                         "bank %u segment %s: the manifest says %u experts, the file %u",
                         storage->bank->id, storage->parts[0].key, request->n_entries,
                         storage->bank->num_entries);
    if (request->has_dims &&
        (request->input != bank->input_dim || request->intermediate != bank->intermediate_dim ||
         request->output != bank->output_dim))
        return plec_fail(err, PLEC_MALFORMED, "DimensionContradicted",
                         "bank %u segment %s: the manifest says %u -> %u -> %u, the matrices are "
                         "%u -> %u -> %u",
                         storage->bank->id, storage->parts[0].key, request->input,
                         request->intermediate, request->output, bank->input_dim,
                         bank->intermediate_dim, bank->output_dim);
    return PLEC_OK;
}

static enum plec_status check_storages(struct builder *b, struct plec_error *err) {
    const struct plec_storage *first = b->storages[0];
    enum plec_status status = PLEC_OK;
    if (first->bank->num_entries == 0)
        return plec_fail(err, PLEC_MALFORMED, "BankHasNoExperts", "bank %u segment %s",
                         first->bank->id, first->parts[0].key);
    for (size_t i = 0; status == PLEC_OK && i < b->n_storages; i++) {
        struct plec_storage *storage = b->storages[i];
        if (storage->bank->num_entries != first->bank->num_entries)
            return plec_fail(err, PLEC_MALFORMED, "ExpertsContradicted",
                             "segment %s has %u experts, segment %s has %u", first->parts[0].key,
                             first->bank->num_entries, storage->parts[0].key,
                             storage->bank->num_entries);
        status = check_manifest(b, storage, err);
        if (status == PLEC_OK) status = check_record(b, storage, err);
        if (status == PLEC_OK) status = plec_storage_tile(storage, b->arena, err);
    }
    return status;
}

/* Finds one operand of all entries that `run` holds, and notes what that touches. entries NULL:
 * only looks whether each is as it must be. */
static enum plec_status fill_run(struct plec_entry *entries, struct plec_touched *touched,
                                 size_t *n_touched, const struct plec_bank_operand *operand,
                                 enum plec_operand_id id, const struct plec_storage_run *run,
                                 struct plec_error *err) {
    bool paired = operand->scales.schema != PLEC_NO_SCHEMA;
    for (uint32_t entry = run->first; entry - run->first < run->count; entry++) {
        struct plec_entry unkept;
        struct plec_touched unnoted[2], *noted = entries != NULL ? touched + *n_touched : unnoted;
        struct plec_entry *to = entries != NULL ? &entries[entry] : &unkept;
        enum plec_status status = plec_operand_bytes(&to->values[id], &noted[0], operand,
                                                     &operand->values, run, entry, err);
        if (status == PLEC_OK && paired)
            status = plec_operand_bytes(&to->scales[id], &noted[1], operand, &operand->scales, run,
                                        entry, err);
        if (status != PLEC_OK) return status;
        *n_touched += paired ? 2 : 1;
    }
    return PLEC_OK;
}

/* Everything one storage gives, entry by entry. */
static enum plec_status fill_runs(struct builder *b, struct plec_entry *entries,
                                  struct plec_touched *touched, size_t *n_touched,
                                  const struct plec_storage *storage, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < storage->n_runs; i++)
        for (int id = 0; status == PLEC_OK && id < PLEC_N_OPERANDS; id++)
            if (b->operands[id].storage == storage)
                status = fill_run(entries, touched, n_touched, &b->operands[id],
                                  (enum plec_operand_id)id, &storage->runs[i], err);
    return status;
}

/* Fills the entries from one storage; no two regions it touches may share a byte. */
static enum plec_status fill_storage(struct builder *b, struct plec_entry *entries,
                                     size_t n_streams, const struct plec_storage *storage,
                                     struct plec_error *err) {
    struct plec_arena scratch = {NULL};
    struct plec_touched *touched = plec_arena_alloc(&scratch, n_streams, sizeof *touched, err);
    if (touched == NULL) return PLEC_NO_MEMORY;
    size_t n_touched = 0;
    enum plec_status status = fill_runs(b, entries, touched, &n_touched, storage, err);
    if (status == PLEC_OK) status = plec_operand_check_overlaps(touched, n_touched, storage, err);
    plec_arena_close(&scratch);
    return status;
}

/* Every slot is looked at before room is made for what it points to: a file full of holes may
 * promise more entries than there is memory, but not with slots that are right. */
static enum plec_status fill_entries(struct builder *b, struct plec_error *err) {
    size_t n_streams[PLEC_N_BANK_ROLES] = {0};
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; status == PLEC_OK && i < b->n_storages; i++)
        status = fill_runs(b, NULL, NULL, &n_streams[i], b->storages[i], err);
    if (status != PLEC_OK) return status;
    b->bank->n_entries = b->storages[0]->bank->num_entries;
    struct plec_entry *entries =
        plec_arena_alloc(b->arena, b->bank->n_entries, sizeof *entries, err);
    if (entries == NULL) return PLEC_NO_MEMORY;
    b->bank->entries = entries;
    for (size_t i = 0; status == PLEC_OK && i < b->n_storages; i++)
        status = fill_storage(b, entries, n_streams[i], b->storages[i], err);
    return status;
}

enum plec_status plec_bank_build(struct plec_bank *out, const struct plec_programme **programme,
                                 struct plec_arena *arena, const struct plec_bank_request *request,
                                 struct plec_error *err) {
    memset(out, 0, sizeof *out);
    struct builder b = {.request = request, .arena = arena, .bank = out};
    const struct plec_role_set *set = NULL;
    enum plec_status status = match_programme(&set, programme, request, err);
    if (status == PLEC_OK) status = take_matrices(&b, set, err);
    if (status == PLEC_OK) status = check_shapes(&b, err);
    if (status == PLEC_OK) status = take_biases(&b, err);
    if (status == PLEC_OK) status = check_storages(&b, err);
    if (status == PLEC_OK) status = fill_entries(&b, err);
    return status;
}
