#include "tools/bench/random_bank.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "lyrw/encode.h"

enum {
    SAMPLE_ROWS = 32, /* rows encoded a matrix; experts are made of them */
    SAMPLES = 3,      /* different experts; the rest are copies of them */
    ALIGNMENT = 256   /* of an operand */
};

static const enum plec_operand_id ids[2] = {PLEC_GATE, PLEC_DOWN}; /* of a bank's matrices */

uint32_t plec_bench_draw(struct plec_bench_random *random, uint32_t below) {
    random->state ^= random->state >> 12;
    random->state ^= random->state << 25;
    random->state ^= random->state >> 27;
    return (uint32_t)((random->state * UINT64_C(0x2545F4914F6CDD1D)) >> 32) % below;
}

float plec_bench_draw_normal(struct plec_bench_random *random) {
    float sum = -6;
    for (int i = 0; i < 12; i++)
        sum += (float)plec_bench_draw(random, 1 << 24) / (float)(1 << 24);
    return sum;
}

/* Where one matrix lies in the bytes of an expert. */
struct place {
    struct plec_operand operand;
    uint64_t at, row_bytes, row_scales; /* scales follow the values */
};

static enum plec_status place_matrix(struct place *out, const struct plec_operand *operand,
                                     uint64_t *at, struct plec_error *err) {
    *out = (struct place){.operand = *operand, .at = *at};
    if (!plec_format_encodable(operand->format))
        return plec_fail(err, PLEC_UNSUPPORTED, "NoEncoder", "format %u", operand->format);
    enum plec_status status =
        plec_format_size(&out->row_bytes, &out->row_scales, operand->format, 1, operand->cols, err);
    uint64_t n_bytes = operand->rows * (out->row_bytes + out->row_scales);
    *at += (n_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return status;
}

/* Encodes SAMPLE_ROWS rows of normal values into values and scales. */
static enum plec_status encode_rows(uint8_t *values, uint8_t *scales, const struct place *place,
                                    struct plec_bench_random *random, struct plec_error *err) {
    uint32_t cols = place->operand.cols;
    size_t n = (size_t)SAMPLE_ROWS * cols;
    float *source = malloc(n * sizeof *source);
    if (source == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "sample rows");
    for (size_t i = 0; i < n; i++)
        source[i] = plec_bench_draw_normal(random) / sqrtf((float)cols);
    struct plec_encode_args encode = {place->operand.format,
                                      SAMPLE_ROWS,
                                      cols,
                                      source,
                                      values,
                                      place->row_scales != 0 ? scales : NULL};
    enum plec_status status = plec_matrix_encode(&encode, err);
    free(source);
    return status;
}

/* One matrix of one expert on the host, of sample rows in random order. */
static enum plec_status fill_matrix(uint8_t *expert, const struct place *place,
                                    struct plec_bench_random *random, struct plec_error *err) {
    uint8_t *values = malloc(SAMPLE_ROWS * place->row_bytes);
    uint8_t *scales = malloc(SAMPLE_ROWS * place->row_scales + 1);
    enum plec_status status = values != NULL && scales != NULL
                                  ? encode_rows(values, scales, place, random, err)
                                  : plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "sample rows");
    uint8_t *to = expert + place->at, *to_scales = to + place->operand.rows * place->row_bytes;
    for (uint32_t row = 0; status == PLEC_OK && row < place->operand.rows; row++) {
        uint32_t sample = plec_bench_draw(random, SAMPLE_ROWS);
        memcpy(to + row * place->row_bytes, values + sample * place->row_bytes, place->row_bytes);
        memcpy(to_scales + row * place->row_scales, scales + sample * place->row_scales,
               place->row_scales);
    }
    free(scales), free(values);
    return status;
}

static uint8_t *block_of(const struct plec_bench_bank *bank, uint32_t entry) {
    return bank->bytes + entry % bank->n_stored * bank->block_bytes;
}

/* Sends an expert to the device, where it arrives as entry e. staging: device, its bytes. */
static enum plec_status send(struct plec_bench_bank *bank, uint32_t e, const uint8_t *expert,
                             uint8_t *staging, const struct place places[2],
                             struct plec_stream *stream, struct plec_error *err) {
    struct plec_entry from = {{NULL}, {NULL}};
    uint8_t *to = block_of(bank, e);
    for (int i = 0; i < 2; i++) {
        from.values[ids[i]] = staging + places[i].at;
        if (places[i].row_scales != 0)
            from.scales[ids[i]] =
                staging + places[i].at + places[i].operand.rows * places[i].row_bytes;
    }
    struct plec_arrive_args arrive = {&bank->bank, 1, &from, &to};
    enum plec_status status = plec_copy(staging, expert, bank->entry_bytes, stream, err);
    return status == PLEC_OK ? plec_launch_arrive(stream, &arrive, err) : status;
}

/* Makes the sample experts and copies them over all that are stored. */
static enum plec_status fill_bank(struct plec_bench_bank *bank,
                                  const struct plec_bench_bank_args *args,
                                  const struct place places[2], struct plec_error *err) {
    struct plec_bench_random random = {args->seed | 1};
    void *staging = NULL;
    uint8_t *expert = calloc(1, bank->entry_bytes);
    enum plec_status status =
        expert != NULL ? plec_device_alloc(&staging, args->device, bank->entry_bytes, err)
                       : plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a sample expert");
    for (uint32_t sample = 0; sample < SAMPLES && status == PLEC_OK; sample++) {
        for (int i = 0; i < 2 && status == PLEC_OK; i++)
            status = fill_matrix(expert, &places[i], &random, err);
        if (status == PLEC_OK && sample < bank->n_stored)
            status = send(bank, sample, expert, staging, places, args->stream, err);
        for (uint32_t e = sample + SAMPLES; e < bank->n_stored && status == PLEC_OK; e += SAMPLES)
            status = plec_copy(block_of(bank, e), block_of(bank, sample), bank->block_bytes,
                               args->stream, err);
        enum plec_status synced = plec_stream_sync(args->stream, status == PLEC_OK ? err : NULL);
        if (status == PLEC_OK) status = synced;
    }
    plec_device_free(args->device, staging);
    free(expert);
    return status;
}

static enum plec_status allocate(struct plec_bench_bank *bank,
                                 const struct plec_bench_bank_args *args, struct plec_error *err) {
    uint64_t fit = args->most_bytes / bank->block_bytes;
    bank->n_stored = fit < args->n_entries ? (uint32_t)fit : args->n_entries;
    if (bank->n_stored == 0)
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "an expert has %llu bytes",
                         (unsigned long long)bank->block_bytes);
    bank->n_bytes = bank->n_stored * bank->block_bytes;
    bank->entries = calloc(args->n_entries, sizeof *bank->entries);
    if (bank->entries == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "entries");
    void *bytes;
    enum plec_status status = plec_device_alloc(&bytes, args->device, bank->n_bytes, err);
    if (status == PLEC_OK) bank->bytes = bytes;
    return status;
}

static void point_entries(struct plec_bench_bank *bank, const struct plec_arrival *arrival) {
    for (uint32_t e = 0; e < bank->bank.n_entries; e++)
        plec_arrived_entry(&bank->entries[e], arrival, block_of(bank, e));
    bank->bank.entries = bank->entries;
    bank->bank.arrived = true;
}

enum plec_status plec_bench_bank_open(struct plec_bench_bank *out,
                                      const struct plec_bench_bank_args *args,
                                      struct plec_error *err) {
    *out = (struct plec_bench_bank){.device = args->device};
    struct plec_bank *bank = &out->bank;
    bank->n_entries = args->n_entries;
    bank->input_dim = bank->output_dim = args->input_dim;
    bank->intermediate_dim = args->intermediate_dim;
    bank->fusion = PLEC_FUSED_GATE_FIRST;
    bank->maths =
        (struct plec_expert_maths){.activation = args->activation, .limit = 7, .alpha = 1.702};
    bank->operands[PLEC_GATE] =
        (struct plec_operand){args->gate_format, 2 * args->intermediate_dim, args->input_dim};
    bank->operands[PLEC_DOWN] =
        (struct plec_operand){args->down_format, args->input_dim, args->intermediate_dim};
    struct place places[2];
    enum plec_status status =
        place_matrix(&places[0], &bank->operands[PLEC_GATE], &out->entry_bytes, err);
    if (status == PLEC_OK)
        status = place_matrix(&places[1], &bank->operands[PLEC_DOWN], &out->entry_bytes, err);
    struct plec_arrival arrival;
    if (status == PLEC_OK) status = plec_device_arrival(&arrival, args->device, bank, err);
    if (status == PLEC_OK) {
        out->block_bytes = arrival.n_bytes;
        status = allocate(out, args, err);
    }
    if (status == PLEC_OK) {
        point_entries(out, &arrival);
        status = fill_bank(out, args, places, err);
    }
    if (status != PLEC_OK) plec_bench_bank_close(out);
    return status;
}

void plec_bench_bank_close(struct plec_bench_bank *bank) {
    if (bank->device != NULL) plec_device_free(bank->device, bank->bytes);
    free(bank->entries);
    *bank = (struct plec_bench_bank){0};
}
