/* arrive.c: entries that arrive on the device: matrices that kernels above the plain rung run
 * become planes, all else is copied. */
#include "device/cuda/experts.h"

const struct plec_cuda_form *plec_cuda_gemm_form(const struct plec_cuda_gemm *gemm) {
    return gemm->rung > PLEC_CUDA_PLAIN ? plec_cuda_form_find(gemm->format) : NULL;
}

/* The form in which launches of the device read an operand; NULL: the file's. The plain rung runs
 * an operand whole or not at all: any of its kernels tells. */
static const struct plec_cuda_form *form_of(const struct plec_cuda_device *device,
                                            const struct plec_bank *bank, enum plec_operand_id id) {
    struct plec_cuda_kernels kernels;
    struct plec_cuda_bank own = plec_cuda_bank_of(bank);
    struct plec_cuda_ask ask = plec_cuda_ask_for(device, own.operands[id].format);
    ask.bank = &own, ask.id = id;
    if (own.operands[id].rows == 0 || !plec_cuda_kernels_choose(&kernels, &ask)) return NULL;
    return plec_cuda_gemm_form(kernels.of[0]);
}

enum plec_status plec_cuda_arrival(struct plec_arrival *out, const struct plec_device *device,
                                   const struct plec_bank *bank, struct plec_error *err) {
    uint64_t form_bytes[PLEC_N_MATRICES];
    for (int id = 0; id < PLEC_N_MATRICES; id++) {
        const struct plec_cuda_form *form =
            form_of((const struct plec_cuda_device *)device, bank, (enum plec_operand_id)id);
        form_bytes[id] = form != NULL ? form->bytes(&bank->operands[id]) : 0;
    }
    return plec_arrival_place(out, bank, form_bytes, err);
}

/* Some entries of one launch. */
struct batch {
    const struct plec_arrive_args *args;
    struct plec_arrival arrival;
    struct plec_cuda_launch launch;
    uint32_t first, n; /* n <= PLEC_CUDA_SPLIT_ENTRIES */
};

static void split(struct batch *batch, enum plec_operand_id id, const struct plec_cuda_form *form) {
    const struct plec_bank *bank = batch->args->bank;
    struct plec_cuda_device *device = batch->launch.stream->device;
    struct plec_cuda_split_args split = {
        .n = batch->n,
        .rows = bank->operands[id].rows,
        .cols = bank->operands[id].cols,
        .n_valid = id == PLEC_DOWN ? bank->intermediate_dim : bank->input_dim,
        .n_blocks = device->n_multiprocessors * PLEC_CUDA_BLOCKS_PER_SM};
    for (uint32_t i = 0; i < batch->n; i++) {
        const struct plec_entry *from = &batch->args->from[batch->first + i];
        split.values[i] = from->values[id];
        split.scales[i] = from->scales[id];
        split.to[i] = batch->args->to[batch->first + i] + batch->arrival.values_at[id];
    }
    plec_cuda_launched(&batch->launch, form->split(&split, batch->launch.stream->handle),
                       "split_planes");
}

static void copy(struct batch *batch, uint8_t *to, const uint8_t *from, uint64_t n_bytes) {
    if (batch->launch.status != PLEC_OK || n_bytes == 0) return;
    plec_cuda_launched(&batch->launch,
                       cudaMemcpyAsync(to, from, (size_t)n_bytes, cudaMemcpyDeviceToDevice,
                                       batch->launch.stream->handle),
                       "a copy");
}

/* An operand in the file's form. */
static void copy_operand(struct batch *batch, int id) {
    const struct plec_operand *operand = &batch->args->bank->operands[id];
    uint64_t values = 0, scales = 0;
    if (plec_format_size(&values, &scales, operand->format, operand->rows, operand->cols, NULL) !=
        PLEC_OK)
        return; /* the arrival was refused for it */
    for (uint32_t i = batch->first; i < batch->first + batch->n; i++) {
        const struct plec_entry *from = &batch->args->from[i];
        uint8_t *to = batch->args->to[i];
        copy(batch, to + batch->arrival.values_at[id], from->values[id], values);
        if (id < PLEC_N_MATRICES && scales != 0)
            copy(batch, to + batch->arrival.scales_at[id], from->scales[id], scales);
    }
}

static void run_batch(struct batch *batch) {
    const struct plec_bank *bank = batch->args->bank;
    for (int id = 0; id < PLEC_N_OPERANDS; id++) {
        if (bank->operands[id].rows == 0) continue;
        const struct plec_cuda_form *form =
            id < PLEC_N_MATRICES
                ? form_of(batch->launch.stream->device, bank, (enum plec_operand_id)id)
                : NULL;
        if (form != NULL)
            split(batch, (enum plec_operand_id)id, form);
        else
            copy_operand(batch, id);
    }
}

enum plec_status plec_cuda_arrive(struct plec_stream *base, const struct plec_arrive_args *args,
                                  struct plec_error *err) {
    struct batch batch = {.args = args};
    const struct plec_bank *bank = args->bank;
    const struct plec_cuda_stream *stream = (const struct plec_cuda_stream *)base;
    enum plec_status status = plec_cuda_arrival(&batch.arrival, &stream->device->base, bank, err);
    if (status != PLEC_OK || args->n == 0) return status;
    batch.launch =
        plec_cuda_launch_begin(base, err, "arrival: %u experts, %u -> %u -> %u", args->n,
                               bank->input_dim, bank->intermediate_dim, bank->output_dim);
    for (; !batch.launch.skip && batch.first < args->n; batch.first += batch.n) {
        uint32_t left = args->n - batch.first;
        batch.n = left < PLEC_CUDA_SPLIT_ENTRIES ? left : PLEC_CUDA_SPLIT_ENTRIES;
        run_batch(&batch);
    }
    return plec_cuda_launch_end(&batch.launch);
}
