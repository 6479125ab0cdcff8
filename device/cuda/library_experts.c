/* library_experts.c: the tiles of an experts launch as products of cuBLAS. */
#include <stdlib.h>
#include <string.h>

#include "device/cuda/library.h"

enum { ALIGNMENT = 256 };

static uint64_t aligned(uint64_t n) {
    return (n + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

/* --- the launch table ------------------------------------------------------------------------ */

static bool is_bf16(const struct plec_operand *operand) {
    return operand->format == PLEC_FORMAT_BF16;
}

static uint64_t matrix_bytes(const struct plec_operand *operand) {
    return is_bf16(operand) ? 0 : aligned((uint64_t)operand->rows * operand->cols * 2);
}

/* A launch's own memory: pointers of a grouped product, gathered rows of x, decoded matrices, and
 * products; those of cublas_loop's down are its output. */
struct space {
    uint64_t x, matrices, products, n_bytes;
};
static struct space space_of(const struct plec_cuda_bank *bank, enum plec_operand_id id,
                             uint32_t n_pairs, bool grouped) {
    const struct plec_operand *operand = &bank->operands[id];
    uint64_t n_matrices = !grouped ? 1 : n_pairs < bank->n_entries ? n_pairs : bank->n_entries;
    uint64_t product_bytes = grouped ? 2 : id != PLEC_DOWN ? 4 : 0;
    struct space space;
    space.x = grouped ? aligned(3 * PLEC_CUDA_EXPERTS_MAX * sizeof(void *)) : 0;
    space.matrices =
        space.x + (id != PLEC_DOWN ? aligned((uint64_t)n_pairs * bank->input_dim * 2) : 0);
    space.products = space.matrices + n_matrices * matrix_bytes(operand);
    space.n_bytes = space.products + aligned((uint64_t)n_pairs * operand->rows * product_bytes);
    return space;
}

static uint64_t workspace_of_loop(const struct plec_cuda_bank *bank, enum plec_operand_id id,
                                  uint32_t n_tokens, uint32_t n_pairs) {
    (void)n_tokens;
    return space_of(bank, id, n_pairs, false).n_bytes;
}
static uint64_t workspace_of_grouped(const struct plec_cuda_bank *bank, enum plec_operand_id id,
                                     uint32_t n_tokens, uint32_t n_pairs) {
    (void)n_tokens;
    return space_of(bank, id, n_pairs, true).n_bytes;
}

/* Rows, columns and tokens are ints to cuBLAS; pairs are below 2^31 anyway. */
static bool runs(const struct plec_cuda_bank *bank, enum plec_operand_id id) {
    const struct plec_operand *operand = &bank->operands[id];
    return operand->rows <= INT32_MAX && operand->cols <= INT32_MAX &&
           plec_cuda_decoder_of(operand->format) != NULL;
}

enum { LIBRARY_WIDTH = 64 };
const struct plec_cuda_gemm plec_cuda_cublas_loop_any = {
    .name = "cublas_loop",
    .format = PLEC_CUDA_ANY_FORMAT,
    .rung = PLEC_CUDA_CUBLAS_LOOP,
    .least_arch = PLEC_CUDA_LEAST_ARCH,
    .widths = {LIBRARY_WIDTH, LIBRARY_WIDTH, LIBRARY_WIDTH},
    .runs = runs,
    .workspace = workspace_of_loop};
const struct plec_cuda_gemm plec_cuda_cublas_grouped_any = {
    .name = "cublas_grouped",
    .format = PLEC_CUDA_ANY_FORMAT,
    .rung = PLEC_CUDA_CUBLAS_GROUPED,
    .least_arch = PLEC_CUDA_LEAST_ARCH,
    .widths = {LIBRARY_WIDTH, LIBRARY_WIDTH, LIBRARY_WIDTH},
    .runs = runs,
    .workspace = workspace_of_grouped};

/* --- which experts have rows ------------------------------------------------------------------ */

static struct plec_cuda_library_rows *rows_held(const struct plec_cuda_run *run) {
    return plec_cuda_library_get_rows(run->launch.stream->device->library);
}

static bool fetch(struct plec_cuda_run *run, struct plec_cuda_library_rows *held) {
    cudaStream_t stream = run->launch.stream->handle;
    uint32_t n = run->choice.bank.n_entries + 1;
    plec_cuda_launched(&run->launch,
                       (int)cudaMemcpyAsync(held->found->first, run->plan.first, n * 4,
                                            cudaMemcpyDeviceToHost, stream),
                       "rows of each expert");
    plec_cuda_launched(&run->launch,
                       (int)cudaMemcpyAsync(&held->found->fault, run->launch.stream->fault,
                                            sizeof held->found->fault, cudaMemcpyDeviceToHost,
                                            stream),
                       "faults");
    plec_cuda_launched(&run->launch, (int)cudaStreamSynchronize(stream), "waiting for the plan");
    return run->launch.status == PLEC_OK && held->found->fault.code == PLEC_CUDA_NO_FAULT;
}

static void add_expert(struct plec_cuda_library_rows *held, uint32_t expert) {
    const uint32_t *first = held->found->first;
    if (first[expert + 1] == first[expert]) return;
    held->expert[held->n] = expert;
    held->first[held->n] = first[expert];
    held->n_rows[held->n++] = first[expert + 1] - first[expert];
}

bool plec_cuda_library_begin(struct plec_cuda_run *run) {
    const struct plec_experts_args *args = run->args;
    struct plec_cuda_library_rows *held = rows_held(run);
    pthread_mutex_lock(&held->mutex);
    held->n = 0;
    if (run->launch.status != PLEC_OK) return false;
    if (run->launch.stream->capturing) {
        run->launch.status =
            plec_fail(run->launch.err, PLEC_UNSUPPORTED, "NoGraphs",
                      "%s cannot be captured: the host has to know the rows of each expert",
                      run->choice.passes[PLEC_DOWN][0].gemm->name);
        return false;
    }
    if (!fetch(run, held)) return false;
    bool part = args->phase == PLEC_EXPERTS_PART;
    /* No expert twice: a part that names one so is a fault. */
    for (uint32_t i = 0; i < (part ? args->n_part : run->choice.bank.n_entries); i++)
        add_expert(held, part ? args->part[i] : i);
    return held->n > 0;
}

void plec_cuda_library_end(struct plec_cuda_run *run) {
    pthread_mutex_unlock(&rows_held(run)->mutex);
}

/* --- products --------------------------------------------------------------------------------- */

/* What the products of one operand work on. */
struct work {
    struct plec_cuda_library_rows *held;
    struct space space;
    unsigned char *base; /* the launch's own memory */
    struct plec_cuda_products products;
    enum plec_operand_id id;
    bool grouped;
};

static struct work work_of(const struct plec_cuda_run *run, enum plec_operand_id id) {
    const struct plec_cuda_bank *bank = &run->choice.bank;
    const struct plec_operand *operand = &bank->operands[id];
    struct work work = {.held = rows_held(run), .base = run->kernel_space, .id = id};
    work.grouped = run->choice.passes[id][0].gemm->rung == PLEC_CUDA_CUBLAS_GROUPED;
    work.space = space_of(bank, id, run->args->n_tokens * run->args->n_slots, work.grouped);
    work.products = (struct plec_cuda_products){
        .rows = operand->rows,
        .cols = id == PLEC_DOWN ? bank->intermediate_dim : bank->input_dim,
        .lda = operand->cols,
        .ldb = id == PLEC_DOWN ? run->layout.act_cols : bank->input_dim,
        .b = id == PLEC_DOWN ? run->act : (uint16_t *)(work.base + work.space.x),
        .c = id == PLEC_DOWN && !work.grouped ? (void *)run->out
                                              : (void *)(work.base + work.space.products),
        .first = work.held->first,
        .n_rows = work.held->n_rows,
        .a = work.held->matrices,
        .pointers = (const void **)work.base};
    return work;
}

/* Decodes the matrices of experts [from, from + n) of those with rows; of bf16 they are as they
 * lie. */
static void decode(struct plec_cuda_run *run, const struct work *work, uint32_t from, uint32_t n) {
    const struct plec_operand *operand = &run->choice.bank.operands[work->id];
    struct plec_cuda_to_bf16_args args = {.rows = operand->rows, .cols = operand->cols, .n = n};
    const struct plec_cuda_decoder *decoder = plec_cuda_decoder_of(operand->format);
    for (uint32_t i = 0; i < n; i++) {
        const struct plec_entry *entry = &run->args->bank->entries[work->held->expert[from + i]];
        uint64_t at = work->space.matrices + (work->grouped ? from + i : 0) * matrix_bytes(operand);
        args.values[i] = entry->values[work->id];
        args.scales[i] = entry->scales[work->id];
        args.to[i] = (uint16_t *)(work->base + at);
        work->held->matrices[from + i] =
            is_bf16(operand) ? (const void *)args.values[i] : (const void *)args.to[i];
    }
    if (!is_bf16(operand))
        plec_cuda_launched(&run->launch, decoder->to_bf16(&args, run->launch.stream->handle),
                           "to_bf16");
}

static void multiply_one_by_one(struct plec_cuda_run *run, const struct work *work) {
    struct plec_cuda_library *library = run->launch.stream->device->library;
    for (uint32_t i = 0; i < work->held->n && run->launch.status == PLEC_OK; i++) {
        struct plec_cuda_products one = work->products;
        decode(run, work, i, 1);
        if (run->launch.status != PLEC_OK) return;
        one.n = 1, one.a += i, one.first += i, one.n_rows += i;
        run->launch.status =
            plec_cuda_library_loop(library, &one, run->launch.stream->handle, run->launch.err);
    }
}

static void multiply_grouped(struct plec_cuda_run *run, const struct work *work) {
    struct plec_cuda_products all = work->products;
    all.n = work->held->n;
    for (uint32_t from = 0; from < all.n; from += PLEC_CUDA_TO_BF16_MATRICES) {
        uint32_t left = all.n - from;
        decode(run, work, from,
               left < PLEC_CUDA_TO_BF16_MATRICES ? left : PLEC_CUDA_TO_BF16_MATRICES);
    }
    if (run->launch.status == PLEC_OK)
        run->launch.status = plec_cuda_library_grouped(run->launch.stream->device->library, &all,
                                                       run->launch.stream->handle, run->launch.err);
}

static struct plec_cuda_product multiply(struct plec_cuda_run *run, const struct work *work) {
    if (work->grouped)
        multiply_grouped(run, work);
    else
        multiply_one_by_one(run, work);
    return (struct plec_cuda_product){work->products.c, work->products.rows, work->grouped};
}

static void gate_up(struct plec_cuda_run *run, const struct plec_cuda_rows *rows,
                    enum plec_operand_id id, enum plec_cuda_half half) {
    const struct plec_experts_args *args = run->args;
    struct work work = work_of(run, id);
    struct plec_cuda_product product = multiply(run, &work);
    struct plec_cuda_gate_up_args finish = {
        .bank = run->choice.bank,
        .rows = *rows,
        .half = half,
        .input_weights = args->weight_on_input ? args->weights : NULL,
        .token_scale = args->weight_on_input ? args->token_scale : NULL,
        .gate_product = run->gate_product,
        .act = run->act,
        .act_cols = run->layout.act_cols};
    if (run->launch.status == PLEC_OK)
        plec_cuda_launched(
            &run->launch,
            plec_cuda_launch_products_gate_up(&finish, &product, run->launch.stream->handle),
            "products_gate_up");
}

void plec_cuda_library_gate_up(struct plec_cuda_run *run, const struct plec_cuda_rows *rows) {
    const struct plec_cuda_bank *bank = &run->choice.bank;
    bool has_gate = bank->operands[PLEC_GATE].rows != 0, has_up = bank->operands[PLEC_UP].rows != 0;
    struct work work = work_of(run, has_gate ? PLEC_GATE : PLEC_UP);
    uint32_t n_rows = work.held->found->first[bank->n_entries];
    plec_cuda_launched(&run->launch,
                       plec_cuda_launch_gather((uint16_t *)(work.base + work.space.x), run->args->x,
                                               rows->row_token, n_rows, bank->input_dim,
                                               run->launch.stream->handle),
                       "products_gather");
    if (has_gate)
        gate_up(run, rows, PLEC_GATE, has_up ? PLEC_CUDA_GATE_ALONE : PLEC_CUDA_GATE_AND_UP);
    if (has_up) gate_up(run, rows, PLEC_UP, has_gate ? PLEC_CUDA_UP_LAST : PLEC_CUDA_GATE_AND_UP);
}

void plec_cuda_library_down(struct plec_cuda_run *run, const struct plec_cuda_rows *rows) {
    struct work work = work_of(run, PLEC_DOWN);
    struct plec_cuda_product product = multiply(run, &work);
    struct plec_cuda_down_args finish = {
        .bank = run->choice.bank, .rows = *rows, .out = run->out, .n_splits = 1};
    if (run->launch.status == PLEC_OK)
        plec_cuda_launched(
            &run->launch,
            plec_cuda_launch_products_down(&finish, &product, run->launch.stream->handle),
            "products_down");
}
