#include "host/upload.h"

#include <string.h>

#include "lyrw/cursor.h"

enum { ALIGNMENT = 256 };

/* Goes over everything there is to copy, twice: first to count, then to copy. */
struct walk {
    struct plec_device *device;
    uint8_t *memory;  /* device; NULL: only count */
    uint8_t *landing; /* device: the file's bytes of an entry that arrives in another form */
    uint64_t n_bytes, landing_bytes;
    struct plec_stream *stream;
    enum plec_status status;
    struct plec_error *err;
};

/* Room for n_bytes behind *end; where it starts. */
static uint64_t take(struct walk *walk, uint64_t *end, uint64_t n_bytes) {
    uint64_t at = *end, next;
    if (plec_add_u64(&next, at, n_bytes) && plec_round_up_u64(&next, next, ALIGNMENT))
        *end = next;
    else if (walk->status == PLEC_OK)
        walk->status = plec_fail(walk->err, PLEC_NO_MEMORY, "OutOfMemory",
                                 "the layer's weights overflow 64 bits");
    return at;
}

/* Copies n_bytes from *from to `to`, and points *from there. */
static void copy_to(struct walk *walk, uint8_t *to, const uint8_t **from, uint64_t n_bytes) {
    if (walk->status != PLEC_OK) return;
    walk->status = plec_copy(to, *from, n_bytes, walk->stream, walk->err);
    *from = to;
}

/* Places n_bytes at *from, and *from there when copying. */
static void put(struct walk *walk, const uint8_t **from, uint64_t n_bytes) {
    if (walk->status != PLEC_OK || *from == NULL || n_bytes == 0) return;
    uint64_t at = take(walk, &walk->n_bytes, n_bytes);
    if (walk->memory != NULL) copy_to(walk, walk->memory + at, from, n_bytes);
}

static void put_matrix(struct walk *walk, struct plec_matrix *matrix) {
    uint64_t values, scales;
    if (walk->status != PLEC_OK || !plec_matrix_present(matrix)) return;
    walk->status =
        plec_format_size(&values, &scales, matrix->format, matrix->rows, matrix->cols, walk->err);
    put(walk, &matrix->values, values);
    put(walk, &matrix->scales, scales);
}

static void put_floats(struct walk *walk, const float **values, uint64_t n) {
    const uint8_t *bytes = (const uint8_t *)*values;
    put(walk, &bytes, n * sizeof **values);
    *values = (const float *)bytes;
}

static void put_entry(struct walk *walk, struct plec_entry *entry, const struct plec_bank *bank) {
    for (int id = 0; id < PLEC_N_OPERANDS; id++) {
        const struct plec_operand *operand = &bank->operands[id];
        const uint8_t *scales = id < PLEC_N_MATRICES ? entry->scales[id] : NULL;
        struct plec_matrix matrix = {operand->format, operand->rows, operand->cols,
                                     entry->values[id], scales};
        if (operand->rows == 0) continue;
        put_matrix(walk, &matrix);
        entry->values[id] = matrix.values;
        if (id < PLEC_N_MATRICES) entry->scales[id] = matrix.scales;
    }
}

/* Lands n_bytes at *from at the end of the landing, and *from there when copying. */
static void land(struct walk *walk, uint64_t *end, const uint8_t **from, uint64_t n_bytes) {
    if (walk->status != PLEC_OK || *from == NULL || n_bytes == 0) return;
    uint64_t at = take(walk, end, n_bytes);
    if (walk->memory != NULL) copy_to(walk, walk->landing + at, from, n_bytes);
}

/* The file's bytes of an entry into the landing, behind the arrival of the one before. */
static void land_entry(struct walk *walk, struct plec_entry *entry, const struct plec_bank *bank) {
    uint64_t end = 0;
    for (int id = 0; id < PLEC_N_OPERANDS && walk->status == PLEC_OK; id++) {
        const struct plec_operand *operand = &bank->operands[id];
        uint64_t values, scales;
        if (operand->rows == 0) continue;
        walk->status = plec_format_size(&values, &scales, operand->format, operand->rows,
                                        operand->cols, walk->err);
        land(walk, &end, &entry->values[id], values);
        if (id < PLEC_N_MATRICES) land(walk, &end, &entry->scales[id], scales);
    }
    if (end > walk->landing_bytes) walk->landing_bytes = end;
}

/* An entry that arrives in a form of the device's own. */
static void arrive(struct walk *walk, struct plec_entry *entry, const struct plec_bank *bank,
                   const struct plec_arrival *arrival) {
    land_entry(walk, entry, bank);
    uint64_t at = take(walk, &walk->n_bytes, arrival->n_bytes);
    if (walk->memory == NULL || walk->status != PLEC_OK) return;
    uint8_t *block = walk->memory + at;
    struct plec_arrive_args args = {bank, 1, entry, &block};
    walk->status = plec_launch_arrive(walk->stream, &args, walk->err);
    plec_arrived_entry(entry, arrival, block);
}

/* entries [n_entries]: copies of the bank's; the bank gets them when copying. */
static void put_bank(struct walk *walk, struct plec_bank *bank, struct plec_entry *entries) {
    struct plec_arrival arrival;
    if (bank->n_entries == 0 || walk->status != PLEC_OK) return;
    walk->status = plec_device_arrival(&arrival, walk->device, bank, walk->err);
    for (uint32_t e = 0; e < bank->n_entries && walk->status == PLEC_OK; e++) {
        struct plec_entry entry = bank->entries[e];
        if (arrival.changes)
            arrive(walk, &entry, bank, &arrival);
        else
            put_entry(walk, &entry, bank);
        if (walk->memory != NULL) entries[e] = entry;
    }
    if (walk->memory == NULL) return;
    bank->entries = entries;
    bank->arrived = true;
}

/* The entries of each bank, in one array. */
struct banks {
    struct plec_entry *routed, *shared, *dense;
    unsigned parts; /* enum plec_upload_parts */
};

static void put_router(struct walk *walk, struct plec_router *router) {
    put_matrix(walk, &router->weight);
    put_floats(walk, &router->bias, router->n_experts);
    put_floats(walk, &router->selection_bias, router->n_experts);
    put_floats(walk, &router->expert_scale, router->n_experts);
    put_floats(walk, &router->input_scale, router->input_dim);
}

static void put_layer(struct walk *walk, struct plec_layer *layer, const struct banks *banks) {
    if ((banks->parts & PLEC_UPLOAD_ROUTER) != 0) put_router(walk, &layer->router);
    if ((banks->parts & PLEC_UPLOAD_ROUTED) != 0) put_bank(walk, &layer->routed, banks->routed);
    put_bank(walk, &layer->shared, banks->shared);
    put_bank(walk, &layer->dense, banks->dense);
    put_matrix(walk, &layer->latent_in);
    put_matrix(walk, &layer->latent_out);
    put_matrix(walk, &layer->shared_gate);
    put_floats(walk, &layer->routed_norm, layer->routed.output_dim);
}

static enum plec_status copy_layer(struct plec_upload *out, struct plec_layer *layer,
                                   const struct banks *banks, uint8_t *landing,
                                   struct plec_error *err) {
    struct walk copy = {
        .device = out->device, .memory = out->memory, .landing = landing, .err = err};
    enum plec_status status = plec_stream_open(&copy.stream, out->device, err);
    if (status != PLEC_OK) return status;
    plec_stream_set_name(copy.stream, "plec-upload");
    put_layer(&copy, layer, banks);
    status = plec_stream_sync(copy.stream, copy.status == PLEC_OK ? err : NULL);
    plec_stream_close(copy.stream);
    return copy.status != PLEC_OK ? copy.status : status;
}

static enum plec_status upload(struct plec_upload *out, struct plec_layer *layer, unsigned parts,
                               struct plec_error *err) {
    uint64_t n =
        (uint64_t)layer->routed.n_entries + layer->shared.n_entries + layer->dense.n_entries;
    struct banks banks = {.parts = parts};
    banks.routed = plec_arena_alloc(&out->entries, n, sizeof *banks.routed, err);
    if (banks.routed == NULL) return PLEC_NO_MEMORY;
    banks.shared = banks.routed + layer->routed.n_entries;
    banks.dense = banks.shared + layer->shared.n_entries;
    struct walk count = {.device = out->device, .err = err};
    put_layer(&count, layer, &banks);
    if (count.status != PLEC_OK || count.n_bytes == 0) return count.status;
    void *landing = NULL;
    enum plec_status status = plec_device_alloc(&out->memory, out->device, count.n_bytes, err);
    if (status == PLEC_OK && count.landing_bytes > 0)
        status = plec_device_alloc(&landing, out->device, count.landing_bytes, err);
    if (status == PLEC_OK) status = copy_layer(out, layer, &banks, landing, err);
    plec_device_free(out->device, landing);
    return status;
}

enum plec_status plec_upload_open(struct plec_upload *out, struct plec_layer *layer,
                                  struct plec_device *device, const struct plec_layer *from,
                                  unsigned parts, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->device = device;
    *layer = *from;
    enum plec_status status = upload(out, layer, parts, err);
    if (status != PLEC_OK) plec_upload_close(out);
    return status;
}

void plec_upload_close(struct plec_upload *upload) {
    if (upload->memory != NULL) plec_device_free(upload->device, upload->memory);
    plec_arena_close(&upload->entries);
    memset(upload, 0, sizeof *upload);
}
