#include "device/cpu/experts.h"

#include <string.h>

float plec_cpu_pair_weight(const struct plec_cpu_experts *run, uint64_t pair) {
    const struct plec_experts_args *args = run->args;
    float weight = args->weights != NULL ? args->weights[pair] : 1;
    return args->token_scale != NULL ? weight * args->token_scale[pair / args->n_slots] : weight;
}

struct plec_cpu_matrix plec_cpu_operand(const struct plec_cpu_experts *run,
                                        const struct plec_entry *entry, enum plec_operand_id id) {
    const struct plec_operand *operand = &run->bank->operands[id];
    struct plec_matrix m = {operand->format, operand->rows, operand->cols, entry->values[id],
                            entry->scales[id]};
    return plec_cpu_matrix_bind(&m, run->kernels);
}

void plec_cpu_bias_open(struct plec_cpu_bias *bias, const struct plec_bank *bank,
                        const struct plec_entry *entry, enum plec_operand_id id) {
    bias->values = plec_cpu_has(bank, id) ? entry->values[id] : NULL;
    bias->format = plec_format_find(bank->operands[id].format);
    bias->block = UINT64_MAX;
}

static float bias_at(struct plec_cpu_bias *bias, uint32_t i) {
    uint64_t block = i / bias->format->block_elems;
    if (block != bias->block) {
        struct plec_matrix m = {bias->format->tag, 1, bias->format->block_elems,
                                bias->values + block * bias->format->block_bytes, NULL};
        plec_matrix_row_f32(bias->decoded, &m, 0);
        bias->block = block;
    }
    return bias->decoded[i % bias->format->block_elems];
}

void plec_cpu_bias_read(float *out, struct plec_cpu_bias *bias, uint32_t first, uint32_t step,
                        uint32_t n) {
    if (bias->values == NULL)
        memset(out, 0, n * sizeof *out);
    else
        for (uint32_t i = 0; i < n; i++)
            out[i] = bias_at(bias, first + i * step);
}

/* The images of one operand's vectors, without their memory. Absent operands: none. */
static struct plec_cpu_images describe(const struct plec_bank *bank, enum plec_operand_id id,
                                       uint64_t n, uint32_t width, enum plec_cpu_set kernels) {
    const struct plec_operand *operand = &bank->operands[id];
    struct plec_cpu_images images = {.n = n, .width = width, .cols = operand->cols};
    if (operand->rows == 0) return images;
    images.kernel = plec_cpu_kernel_find(operand->format, kernels);
    if (images.kernel != NULL)
        images.floats = plec_cpu_image_floats(images.kernel, width, operand->cols);
    return images;
}

static bool same_images(const struct plec_cpu_images *a, const struct plec_cpu_images *b) {
    return a->kernel == b->kernel && a->cols == b->cols;
}

/* Fills the run's image descriptions. A fused matrix serves gate and up. */
static void describe_all(struct plec_cpu_experts *run, const struct plec_bank *bank,
                         uint32_t n_tokens) {
    uint32_t in = bank->input_dim, mid = bank->intermediate_dim;
    enum plec_operand_id up = bank->fusion != PLEC_NOT_FUSED ? PLEC_GATE : PLEC_UP;
    run->gate_images = describe(bank, PLEC_GATE, n_tokens, in, run->kernels);
    run->up_images = describe(bank, up, n_tokens, in, run->kernels);
    run->down_images = describe(bank, PLEC_DOWN, run->n_pairs, mid, run->kernels);
}

/* Reserves n items of item_bytes, 64-byte aligned; false on overflow. */
static bool reserve(uint64_t *at, uint64_t *n_bytes, uint64_t n, uint64_t item_bytes) {
    uint64_t bytes;
    *at = *n_bytes;
    return !__builtin_mul_overflow(n, item_bytes, &bytes) &&
           !__builtin_add_overflow(bytes, 63, &bytes) &&
           !__builtin_add_overflow(*n_bytes, bytes & ~UINT64_C(63), n_bytes);
}

static bool reserve_images(uint64_t *at, uint64_t *n_bytes, const struct plec_cpu_images *images) {
    return reserve(at, n_bytes, images->n, images->floats * sizeof(float));
}

static bool lay_out(struct plec_cpu_layout *layout, const struct plec_cpu_experts *run,
                    const struct plec_bank *bank) {
    uint64_t *end = &layout->n_bytes, n = run->n_pairs;
    memset(layout, 0, sizeof *layout);
    bool fits = reserve(&layout->first, end, (uint64_t)bank->n_entries + 1, sizeof(uint64_t)) &&
                reserve(&layout->active, end, bank->n_entries, sizeof(uint32_t)) &&
                reserve(&layout->left, end, bank->n_entries, sizeof(uint8_t)) &&
                reserve(&layout->n_left, end, 1, sizeof(uint32_t)) &&
                reserve(&layout->pairs, end, n, sizeof(uint64_t)) &&
                reserve_images(&layout->gate_images, end, &run->gate_images);
    layout->up_images = layout->gate_images;
    if (fits && !same_images(&run->gate_images, &run->up_images))
        fits = reserve_images(&layout->up_images, end, &run->up_images);
    return fits && reserve(&layout->hidden, end, n, bank->intermediate_dim * UINT64_C(4)) &&
           reserve_images(&layout->down_images, end, &run->down_images) &&
           reserve(&layout->out, end, n, bank->output_dim * UINT64_C(4));
}

bool plec_cpu_experts_workspace(uint64_t *n_bytes, const struct plec_device *base,
                                const struct plec_bank *bank, uint32_t n_tokens, uint32_t n_slots) {
    const struct plec_cpu_device *device = (const struct plec_cpu_device *)base;
    struct plec_cpu_experts run = {.kernels = device->kernels};
    struct plec_cpu_layout layout;
    run.n_pairs = (uint64_t)n_tokens * n_slots;
    describe_all(&run, bank, n_tokens);
    bool fits = lay_out(&layout, &run, bank);
    *n_bytes = fits ? layout.n_bytes : 0;
    return fits;
}

static float *images_at(uint8_t *workspace, uint64_t at, const struct plec_cpu_images *images) {
    return images->floats == 0 ? NULL : (float *)(void *)(workspace + at);
}

static void place(struct plec_cpu_experts *run, const struct plec_cpu_layout *layout) {
    uint8_t *workspace = run->args->workspace;
    run->first = (uint64_t *)(void *)(workspace + layout->first);
    run->all_active = (uint32_t *)(void *)(workspace + layout->active);
    run->left = workspace + layout->left;
    run->n_left = (uint32_t *)(void *)(workspace + layout->n_left);
    run->pairs = (uint64_t *)(void *)(workspace + layout->pairs);
    run->hidden = (float *)(void *)(workspace + layout->hidden);
    run->out = (float *)(void *)(workspace + layout->out);
    run->gate_images.x = run->up_images.x = run->args->x;
    run->down_images.x = run->hidden;
    run->gate_images.images = images_at(workspace, layout->gate_images, &run->gate_images);
    run->up_images.images = images_at(workspace, layout->up_images, &run->up_images);
    run->down_images.images = images_at(workspace, layout->down_images, &run->down_images);
}

static void make_image(const struct plec_cpu_images *images, uint64_t i) {
    plec_cpu_image_make(images->images + i * images->floats, images->kernel,
                        images->x + i * images->width, images->width, images->cols);
}

static void image_range(void *context, uint64_t first, uint64_t n) {
    for (uint64_t i = first; i < first + n; i++)
        make_image(context, i);
}

static void make_images(struct plec_cpu_experts *run, struct plec_cpu_images *images) {
    if (images->images == NULL) return;
    plec_cpu_pool_run(run->pool, images->n, PLEC_CPU_GRAIN / images->cols + 1, image_range, images);
}

/* Images of the hidden vectors of one expert. */
struct expert_images {
    const struct plec_cpu_images *images;
    const uint64_t *pairs;
};

static void pair_range(void *context, uint64_t first, uint64_t n) {
    const struct expert_images *expert = context;
    for (uint64_t i = first; i < first + n; i++)
        make_image(expert->images, expert->pairs[i]);
}

/* Only those of the experts at hand: the others have none yet, or theirs already. */
static void make_down_images(struct plec_cpu_experts *run) {
    if (run->args->phase == PLEC_EXPERTS_ALL) {
        make_images(run, &run->down_images);
        return;
    }
    if (run->down_images.images == NULL) return;
    for (uint32_t i = 0; i < run->n_active; i++) {
        uint64_t first = run->first[run->active[i]], n = run->first[run->active[i] + 1] - first;
        struct expert_images expert = {&run->down_images, run->pairs + first};
        plec_cpu_pool_run(run->pool, n, PLEC_CPU_GRAIN / run->down_images.cols + 1, pair_range,
                          &expert);
    }
}

static enum plec_status begin(struct plec_cpu_experts *run, struct plec_error *err) {
    enum plec_status status = plec_cpu_plan(run, err);
    if (status != PLEC_OK) return status;
    make_images(run, &run->gate_images);
    if (!same_images(&run->gate_images, &run->up_images)) make_images(run, &run->up_images);
    return PLEC_OK;
}

static void mark(const struct plec_cpu_experts *run, enum plec_device_work work, bool ends) {
    if (run->probe->mark != NULL) run->probe->mark(run->probe->user, work, ends);
}

static void run_active(struct plec_cpu_experts *run) {
    if (run->n_active == 0) return;
    mark(run, PLEC_WORK_GATE_UP, false);
    plec_cpu_gate_up(run);
    mark(run, PLEC_WORK_GATE_UP, true);
    mark(run, PLEC_WORK_DOWN, false);
    make_down_images(run);
    plec_cpu_down(run);
    mark(run, PLEC_WORK_DOWN, true);
}

static enum plec_status run_part(struct plec_cpu_experts *run, struct plec_error *err) {
    enum plec_status status = plec_cpu_take_part(run, err);
    if (status == PLEC_OK) run_active(run);
    return status;
}

static enum plec_status finish(struct plec_cpu_experts *run, struct plec_error *err) {
    if (*run->n_left != 0)
        return plec_fail(err, PLEC_BAD_INPUT, "ExpertsLeftOut", "%u experts have not run",
                         *run->n_left);
    plec_cpu_finalize(run);
    return PLEC_OK;
}

static enum plec_status run_phase(struct plec_cpu_experts *run, struct plec_error *err) {
    switch (run->args->phase) {
    case PLEC_EXPERTS_BEGIN: return begin(run, err);
    case PLEC_EXPERTS_PART: return run_part(run, err);
    case PLEC_EXPERTS_FINISH: return finish(run, err);
    case PLEC_EXPERTS_ALL: break;
    }
    enum plec_status status = begin(run, err);
    if (status != PLEC_OK) return status;
    run_active(run);
    plec_cpu_finalize(run);
    return PLEC_OK;
}

static enum plec_status run_experts(struct plec_cpu_stream *stream, const void *op_args,
                                    struct plec_error *err) {
    const struct plec_experts_args *args = op_args;
    struct plec_cpu_experts run = {.args = args,
                                   .bank = args->bank,
                                   .pool = &stream->device->pool,
                                   .probe = &stream->device->probe,
                                   .kernels = stream->device->kernels,
                                   .sigmoid = plec_cpu_sigmoid_find(stream->device->kernels)};
    struct plec_cpu_layout layout;
    run.n_pairs = (uint64_t)args->n_tokens * args->n_slots;
    describe_all(&run, args->bank, args->n_tokens);
    if (!lay_out(&layout, &run, args->bank))
        return plec_fail(err, PLEC_NO_MEMORY, "SizeOverflow", "%u tokens of %u slots",
                         args->n_tokens, args->n_slots);
    place(&run, &layout);
    return run_phase(&run, err);
}

_Static_assert(sizeof(struct plec_experts_args) <= PLEC_CPU_OPERATION_BYTES, "fits the ring");

enum plec_status plec_cpu_experts(struct plec_stream *stream, const struct plec_experts_args *args,
                                  struct plec_error *err) {
    static const char *const names[PLEC_N_OPERANDS] = {"gate",      "up",      "down",
                                                       "gate_bias", "up_bias", "down_bias"};
    for (int id = 0; id < PLEC_N_OPERANDS; id++) {
        if (!plec_cpu_has(args->bank, (enum plec_operand_id)id)) continue;
        enum plec_status status =
            plec_cpu_check_kernel(args->bank->operands[id].format, names[id], err);
        if (status != PLEC_OK) return status;
    }
    if (args->n_tokens == 0) return PLEC_OK;
    return plec_cpu_enqueue(stream, run_experts, args, sizeof *args);
}
