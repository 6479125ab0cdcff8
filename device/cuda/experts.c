/* experts.c: one experts launch, or a part of one, as kernels in a stream.
 *
 *   BEGIN   plan: pairs by expert, rows, tiles [plan.cu]; x rounded to bf16 where a kernel wants it
 *   run     gate_up, then down, for the tiles of every expert (ALL) or of the named ones (PART)
 *   FINISH  that none was left out [part.cu]; the sum over slots in slot order [finalize.cu]
 *
 * What a tile gives depends on its expert and its rows alone, and the order of the sums on the
 * shape and, where kernels of several orders share an operand, on the class of the expert's rows:
 * ALL and parts agree on a token's output bit for bit, and with kernels of one order any two
 * batches that share it. The host knows no routing: how many tiles there are is read on the device,
 * and a kernel whose class has none ends at once.
 */
#include "device/cuda/library.h"

#include <string.h>

#include "lyrw/cursor.h"

enum { ALIGNMENT = 256 };

struct plec_cuda_bank plec_cuda_bank_of(const struct plec_bank *bank) {
    struct plec_cuda_bank out = {.n_entries = bank->n_entries,
                                 .input_dim = bank->input_dim,
                                 .intermediate_dim = bank->intermediate_dim,
                                 .output_dim = bank->output_dim,
                                 .fusion = bank->fusion};
    memcpy(out.operands, bank->operands, sizeof out.operands);
    out.maths.activation = bank->maths.activation;
    out.maths.limit = (float)bank->maths.limit;
    out.maths.alpha = (float)bank->maths.alpha;
    out.maths.beta = bank->maths.beta == 0 ? 1.0f : (float)bank->maths.beta;
    out.maths.linear_beta = (float)bank->maths.linear_beta;
    return out;
}

static bool has(const struct plec_cuda_bank *bank, enum plec_operand_id id) {
    return bank->operands[id].rows != 0;
}

/* The list of a class, added when no kernel before had the same. */
static uint32_t list_of(struct plec_cuda_choice *choice, const struct plec_cuda_class *c) {
    for (uint32_t i = 0; i < choice->n_lists; i++)
        if (memcmp(&choice->lists[i], c, sizeof *c) == 0) return i;
    choice->lists[choice->n_lists] = *c;
    return choice->n_lists++;
}

static enum plec_status choose_one(struct plec_cuda_choice *choice, enum plec_operand_id id,
                                   const struct plec_cuda_device *device, struct plec_error *err) {
    static const char *const names[PLEC_N_MATRICES] = {"gate", "up", "down"};
    char name[PLEC_NAME_MAX];
    const struct plec_cuda_bank *bank = &choice->bank;
    struct plec_cuda_ask ask = plec_cuda_ask_for(device, bank->operands[id].format);
    struct plec_cuda_kernels kernels;
    struct plec_cuda_share shares[PLEC_CUDA_CLASSES];
    const struct plec_operand *bias = &bank->operands[PLEC_GATE_BIAS + id];
    ask.bank = bank, ask.id = id;
    if (!plec_cuda_kernels_choose(&kernels, &ask))
        return plec_fail(err, PLEC_UNSUPPORTED, "NoKernel", "%s: no kernel for %s", names[id],
                         plec_format_name(bank->operands[id].format, name));
    if (bias->rows != 0 && bias->format > PLEC_FORMAT_BF16)
        return plec_fail(err, PLEC_UNSUPPORTED, "NoKernel", "%s bias: no kernel for %s", names[id],
                         plec_format_name(bias->format, name));
    choice->n_passes[id] = plec_cuda_kernels_share(shares, &kernels);
    for (uint32_t i = 0; i < choice->n_passes[id]; i++) {
        choice->passes[id][i].gemm = shares[i].gemm;
        choice->passes[id][i].list = list_of(choice, &shares[i].rows);
        choice->wants_bf16 = choice->wants_bf16 || (shares[i].gemm->wants_bf16 && id != PLEC_DOWN);
    }
    return PLEC_OK;
}

/* Whether gate and up, both of them matrices of their own, run in kernels of their own. */
static bool are_apart(const struct plec_cuda_choice *choice) {
    const struct plec_cuda_pass *gate = choice->passes[PLEC_GATE], *up = choice->passes[PLEC_UP];
    uint32_t n = choice->n_passes[PLEC_GATE];
    if (n == 0 || choice->n_passes[PLEC_UP] == 0) return false;
    if (choice->n_passes[PLEC_UP] != n) return true;
    for (uint32_t i = 0; i < n; i++)
        if (gate[i].gemm != up[i].gemm || gate[i].list != up[i].list) return true;
    return false;
}

enum plec_status plec_cuda_choose(struct plec_cuda_choice *out,
                                  const struct plec_cuda_device *device,
                                  const struct plec_bank *bank, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->bank = plec_cuda_bank_of(bank);
    if (bank->n_entries > PLEC_CUDA_EXPERTS_MAX)
        return plec_fail(err, PLEC_UNSUPPORTED, "TooManyExperts", "%u experts, at most %u",
                         bank->n_entries, PLEC_CUDA_EXPERTS_MAX);
    for (int id = 0; id < PLEC_N_MATRICES; id++) {
        if (!has(&out->bank, (enum plec_operand_id)id)) continue;
        enum plec_status status = choose_one(out, (enum plec_operand_id)id, device, err);
        if (status != PLEC_OK) return status;
    }
    const struct plec_operand *down = &out->bank.operands[PLEC_DOWN];
    const struct plec_cuda_gemm *gemm = out->passes[PLEC_DOWN][0].gemm; /* all agree in splits */
    out->by_library = gemm->rung < PLEC_CUDA_PLAIN;                     /* then so are the others */
    out->act_f32 = !out->by_library && !plec_format_rounds_inputs(down->format);
    out->apart = out->by_library ? out->n_passes[PLEC_GATE] > 0 && out->n_passes[PLEC_UP] > 0
                                 : are_apart(out);
    out->n_splits = gemm->down_splits != NULL ? gemm->down_splits(down->rows, down->cols) : 1;
    return PLEC_OK;
}

/* --- workspace ------------------------------------------------------------------------------- */

/* Room for a * b * c bytes; where it starts. */
static uint64_t take(struct plec_cuda_layout *layout, bool *fits, uint64_t a, uint64_t b,
                     uint64_t c) {
    uint64_t n = 0, at = layout->n_bytes;
    *fits = *fits && plec_mul_u64(&n, a, b) && plec_mul_u64(&n, n, c) &&
            plec_add_u64(&n, n, ALIGNMENT - 1) &&
            plec_add_u64(&n, n & ~(uint64_t)(ALIGNMENT - 1), at);
    layout->n_bytes = *fits ? n : at;
    return at;
}

/* The most that a kernel of the launch wants for itself. */
static uint64_t kernel_bytes(const struct plec_cuda_choice *choice, uint32_t n_tokens,
                             uint32_t n_pairs) {
    uint64_t most = 0;
    for (int id = 0; id < PLEC_N_MATRICES; id++)
        for (uint32_t i = 0; i < choice->n_passes[id]; i++) {
            const struct plec_cuda_gemm *gemm = choice->passes[id][i].gemm;
            if (gemm->workspace == NULL) continue;
            uint64_t n =
                gemm->workspace(&choice->bank, (enum plec_operand_id)id, n_tokens, n_pairs);
            most = n > most ? n : most;
        }
    return most;
}

bool plec_cuda_layout_of(struct plec_cuda_layout *out, const struct plec_cuda_choice *choice,
                         uint32_t n_tokens, uint32_t n_slots) {
    const struct plec_cuda_bank *bank = &choice->bank;
    uint64_t pairs = (uint64_t)n_tokens * n_slots, entries = bank->n_entries;
    bool fits = pairs <= INT32_MAX;
    memset(out, 0, sizeof *out);
    out->first = take(out, &fits, entries + 1, 4, 1);
    out->row_pair = take(out, &fits, pairs, 4, 1);
    out->row_token = take(out, &fits, pairs, 4, 1);
    out->pair_row = take(out, &fits, pairs, 4, 1);
    out->left = take(out, &fits, entries, 4, 1);
    out->block_counts = take(out, &fits, plec_cuda_plan_blocks(pairs), entries, 4);
    out->counts = take(out, &fits, 2 * PLEC_CUDA_LISTS + 1, 4, 1);
    for (uint32_t i = 0; i < choice->n_lists; i++) {
        out->max_tiles[i] = plec_cuda_max_tiles(pairs, bank->n_entries, choice->lists[i].width);
        out->first_tile[i] = take(out, &fits, entries + 1, 4, 1);
        out->tiles[i] = take(out, &fits, out->max_tiles[i], sizeof(struct plec_cuda_tile), 1);
        out->part_tiles[i] = take(out, &fits, out->max_tiles[i], sizeof(struct plec_cuda_tile), 1);
    }
    out->act_cols = bank->operands[PLEC_DOWN].cols;
    out->x_bf16 = take(out, &fits, choice->wants_bf16 ? n_tokens : 0, bank->input_dim, 2);
    out->gate_product = take(out, &fits, choice->apart ? pairs : 0, bank->intermediate_dim, 4);
    out->act = take(out, &fits, pairs, out->act_cols, choice->act_f32 ? 4 : 2);
    uint64_t rows = 0;
    fits = fits && plec_mul_u64(&rows, pairs, choice->n_splits);
    out->out = take(out, &fits, rows, bank->output_dim, 4);
    uint64_t kernels = fits ? kernel_bytes(choice, n_tokens, (uint32_t)pairs) : 0;
    out->kernels = take(out, &fits, kernels, 1, 1);
    return fits;
}

bool plec_cuda_experts_workspace(uint64_t *n_bytes, const struct plec_device *device,
                                 const struct plec_bank *bank, uint32_t n_tokens,
                                 uint32_t n_slots) {
    struct plec_cuda_choice choice;
    struct plec_cuda_layout layout;
    *n_bytes = 0;
    /* A bank without a kernel needs no room: its launch says so by name. */
    if (plec_cuda_choose(&choice, (const struct plec_cuda_device *)device, bank, NULL) != PLEC_OK)
        return true;
    if (!plec_cuda_layout_of(&layout, &choice, n_tokens, n_slots)) return false;
    *n_bytes = layout.n_bytes;
    return true;
}

/* --- one launch ------------------------------------------------------------------------------ */

static struct plec_cuda_plan plan_in(const struct plec_cuda_run *run) {
    unsigned char *base = run->args->workspace;
    const struct plec_cuda_layout *layout = &run->layout;
    struct plec_cuda_plan plan = {.first = (uint32_t *)(base + layout->first),
                                  .row_pair = (uint32_t *)(base + layout->row_pair),
                                  .row_token = (uint32_t *)(base + layout->row_token),
                                  .pair_row = (int32_t *)(base + layout->pair_row),
                                  .left = (uint32_t *)(base + layout->left),
                                  .counts = (uint32_t *)(base + layout->counts)};
    plan.n_left = plan.counts + PLEC_CUDA_LISTS;
    for (uint32_t i = 0; i < run->choice.n_lists; i++) {
        plan.first_tile[i] = (uint32_t *)(base + layout->first_tile[i]);
        plan.tiles[i] = (struct plec_cuda_tile *)(base + layout->tiles[i]);
    }
    return plan;
}

static void begin(struct plec_cuda_run *run) {
    const struct plec_experts_args *args = run->args;
    cudaStream_t stream = run->launch.stream->handle;
    struct plec_cuda_plan_args plan = {.ids = args->ids,
                                       .n_tokens = args->n_tokens,
                                       .n_slots = args->n_slots,
                                       .n_entries = run->choice.bank.n_entries,
                                       .n_lists = run->choice.n_lists,
                                       .plan = run->plan,
                                       .fault = run->launch.stream->fault,
                                       .launch = run->launch.number};
    plan.block_counts = (uint32_t *)((unsigned char *)args->workspace + run->layout.block_counts);
    memcpy(plan.lists, run->choice.lists, sizeof plan.lists);
    run->launch.stream->may_fault = true;
    if (!plec_cuda_launched(&run->launch, plec_cuda_launch_plan(&plan, stream), "plan")) return;
    if (run->choice.wants_bf16)
        plec_cuda_launched(
            &run->launch,
            plec_cuda_launch_round(run->x_bf16, args->x,
                                   (uint64_t)args->n_tokens * run->choice.bank.input_dim, stream),
            "round_bf16");
}

/* Kernels of one launch overlap where the device can. */
static bool is_chained(const struct plec_cuda_run *run) {
    return run->launch.stream->device->image_arch >= PLEC_CUDA_CHAINS_ARCH;
}

/* The tiles of list `list`: the plan's, or the part's. */
static struct plec_cuda_rows rows_of(const struct plec_cuda_run *run, uint32_t list) {
    unsigned char *base = run->args->workspace;
    bool part = run->args->phase == PLEC_EXPERTS_PART;
    const struct plec_cuda_device *device = run->launch.stream->device;
    struct plec_cuda_rows rows = {
        .tiles = part ? (struct plec_cuda_tile *)(base + run->layout.part_tiles[list])
                      : run->plan.tiles[list],
        .n_tiles = run->plan.counts + list + (part ? PLEC_CUDA_LISTS + 1 : 0),
        .max_tiles = run->layout.max_tiles[list],
        .width = run->choice.lists[list].width,
        .row_pair = run->plan.row_pair,
        .row_token = run->plan.row_token,
        .n_pairs = run->args->n_tokens * run->args->n_slots,
        .n_slots = run->args->n_slots,
        .n_blocks = device->n_multiprocessors * PLEC_CUDA_BLOCKS_PER_SM,
        .n_processors = device->n_multiprocessors,
        .shared_bytes = device->shared_bytes,
        .chained = is_chained(run)};
    return rows;
}

/* Whether a list can have tiles at all: an expert has at most every pair. */
static bool possible(const struct plec_cuda_run *run, uint32_t list) {
    return run->choice.lists[list].least_rows <= (uint64_t)run->args->n_tokens * run->args->n_slots;
}

static void gate_up(struct plec_cuda_run *run, enum plec_operand_id id, enum plec_cuda_half half) {
    const struct plec_experts_args *args = run->args;
    struct plec_cuda_gate_up_args gate_up = {.bank = run->choice.bank,
                                             .half = half,
                                             .x = args->x,
                                             .x_bf16 = run->x_bf16,
                                             .gate_product = run->gate_product,
                                             .act = run->act,
                                             .act_f32 = run->choice.act_f32,
                                             .act_cols = run->layout.act_cols,
                                             .workspace = run->kernel_space};
    if (args->weight_on_input) {
        gate_up.input_weights = args->weights;
        gate_up.token_scale = args->token_scale;
    }
    for (uint32_t i = 0; i < run->choice.n_passes[id]; i++) {
        const struct plec_cuda_pass *pass = &run->choice.passes[id][i];
        if (!possible(run, pass->list)) continue;
        gate_up.rows = rows_of(run, pass->list);
        plec_cuda_launched(&run->launch, pass->gemm->gate_up(&gate_up, run->launch.stream->handle),
                           pass->gemm->name);
    }
}

static void down(struct plec_cuda_run *run) {
    struct plec_cuda_down_args down = {.bank = run->choice.bank,
                                       .act = run->act,
                                       .act_f32 = run->choice.act_f32,
                                       .act_cols = run->layout.act_cols,
                                       .out = run->out,
                                       .n_splits = run->choice.n_splits,
                                       .workspace = run->kernel_space};
    for (uint32_t i = 0; i < run->choice.n_passes[PLEC_DOWN]; i++) {
        const struct plec_cuda_pass *pass = &run->choice.passes[PLEC_DOWN][i];
        if (!possible(run, pass->list)) continue;
        down.rows = rows_of(run, pass->list);
        plec_cuda_launched(&run->launch, pass->gemm->down(&down, run->launch.stream->handle),
                           pass->gemm->name);
    }
}

static void mark(const struct plec_cuda_run *run, enum plec_device_work work, bool ends) {
    const struct plec_device_probe *probe = &run->launch.stream->device->probe;
    if (probe->mark != NULL) probe->mark(probe->user, work, ends);
}

/* The same by a library: all tiles are in one list. */
static void run_products(struct plec_cuda_run *run) {
    struct plec_cuda_rows rows = rows_of(run, run->choice.passes[PLEC_DOWN][0].list);
    if (plec_cuda_library_begin(run)) {
        mark(run, PLEC_WORK_GATE_UP, false);
        plec_cuda_library_gate_up(run, &rows);
        mark(run, PLEC_WORK_GATE_UP, true);
        mark(run, PLEC_WORK_DOWN, false);
        if (run->launch.status == PLEC_OK) plec_cuda_library_down(run, &rows);
        mark(run, PLEC_WORK_DOWN, true);
    }
    plec_cuda_library_end(run);
}

static void run_tiles(struct plec_cuda_run *run) {
    if (run->choice.by_library) {
        run_products(run);
        return;
    }
    mark(run, PLEC_WORK_GATE_UP, false);
    if (run->choice.apart) {
        gate_up(run, PLEC_GATE, PLEC_CUDA_GATE_ALONE);
        gate_up(run, PLEC_UP, PLEC_CUDA_UP_LAST);
    } else {
        gate_up(run, run->choice.n_passes[PLEC_UP] != 0 ? PLEC_UP : PLEC_GATE,
                PLEC_CUDA_GATE_AND_UP);
    }
    mark(run, PLEC_WORK_GATE_UP, true);
    mark(run, PLEC_WORK_DOWN, false);
    down(run);
    mark(run, PLEC_WORK_DOWN, true);
}

static void take_part(struct plec_cuda_run *run) {
    struct plec_cuda_part_args part = {.plan = run->plan,
                                       .n_lists = run->choice.n_lists,
                                       .n_entries = run->choice.bank.n_entries,
                                       .counts = run->plan.counts + PLEC_CUDA_LISTS + 1,
                                       .fault = run->launch.stream->fault,
                                       .launch = run->launch.number};
    part.n_part = run->args->n_part < PLEC_CUDA_PART_MAX ? run->args->n_part : PLEC_CUDA_PART_MAX;
    for (uint32_t i = 0; i < part.n_part; i++)
        part.part[i] =
            (uint16_t)(run->args->part[i] < UINT16_MAX ? run->args->part[i] : UINT16_MAX);
    for (uint32_t i = 0; i < run->choice.n_lists; i++)
        part.tiles[i] = (struct plec_cuda_tile *)((unsigned char *)run->args->workspace +
                                                  run->layout.part_tiles[i]);
    run->launch.stream->may_fault = true;
    plec_cuda_launched(&run->launch, plec_cuda_launch_part(&part, run->launch.stream->handle),
                       "part");
}

static void finish(struct plec_cuda_run *run) {
    const struct plec_experts_args *args = run->args;
    bool weigh = !args->weight_on_input;
    struct plec_cuda_finalize_args finalize = {.weights = weigh ? args->weights : NULL,
                                               .token_scale = weigh ? args->token_scale : NULL,
                                               .pair_row = run->plan.pair_row,
                                               .out = run->out,
                                               .n_splits = run->choice.n_splits,
                                               .n_tokens = args->n_tokens,
                                               .n_slots = args->n_slots,
                                               .output_dim = run->choice.bank.output_dim,
                                               .accumulate = args->accumulate,
                                               .y = args->y,
                                               .fault = run->launch.stream->fault,
                                               .chained = is_chained(run)};
    struct plec_cuda_finish_args left = {run->plan.n_left, run->launch.stream->fault,
                                         run->launch.number};
    if (args->phase == PLEC_EXPERTS_FINISH) {
        run->launch.stream->may_fault = true;
        plec_cuda_launched(&run->launch, plec_cuda_launch_finish(&left, run->launch.stream->handle),
                           "finish");
    }
    plec_cuda_launched(
        &run->launch, plec_cuda_launch_finalize(&finalize, run->launch.stream->handle), "finalize");
}

static void run_phase(struct plec_cuda_run *run) {
    const struct plec_experts_args *args = run->args;
    bool all = args->phase == PLEC_EXPERTS_ALL, part = args->phase == PLEC_EXPERTS_PART;
    if (all || part)
        run->choice.bank.table = plec_cuda_entries_take(
            &run->launch, args->bank, part ? args->part : NULL, part ? args->n_part : UINT32_MAX);
    if (run->launch.status != PLEC_OK) return;
    if (all || args->phase == PLEC_EXPERTS_BEGIN) begin(run);
    if (part) take_part(run);
    if (all || part) run_tiles(run);
    if (all || args->phase == PLEC_EXPERTS_FINISH) finish(run);
}

/* Planes are never made of what a launch is given: an entry in the file's form would be taken for
 * planes. */
static enum plec_status check_arrived(const struct plec_cuda_choice *choice,
                                      const struct plec_bank *bank, struct plec_error *err) {
    for (int id = 0; id < PLEC_N_MATRICES && !bank->arrived; id++) {
        const struct plec_cuda_gemm *gemm = choice->passes[id][0].gemm; /* all agree in the form */
        if (choice->n_passes[id] != 0 && plec_cuda_gemm_form(gemm) != NULL)
            return plec_fail(err, PLEC_BAD_INPUT, "NotArrived",
                             "%s reads planes, and the bank's entries are as files have them",
                             gemm->name);
    }
    return PLEC_OK;
}

static const char *phase_name(enum plec_experts_phase phase) {
    static const char *const names[] = {"experts", "experts, begin", "experts, part",
                                        "experts, finish"};
    return names[phase];
}

enum plec_status plec_cuda_experts(struct plec_stream *base, const struct plec_experts_args *args,
                                   struct plec_error *err) {
    const struct plec_bank *bank = args->bank;
    struct plec_cuda_run run = {.args = args};
    enum plec_status status =
        plec_cuda_choose(&run.choice, ((struct plec_cuda_stream *)base)->device, bank, err);
    if (status != PLEC_OK || args->n_tokens == 0) return status;
    status = check_arrived(&run.choice, bank, err);
    if (status != PLEC_OK) return status;
    if (!plec_cuda_layout_of(&run.layout, &run.choice, args->n_tokens, args->n_slots))
        return plec_fail(err, PLEC_BAD_INPUT, "TooManyTokens", "%u tokens of %u slots",
                         args->n_tokens, args->n_slots);
    unsigned char *workspace = args->workspace;
    run.plan = plan_in(&run);
    run.x_bf16 = run.choice.wants_bf16 ? (uint16_t *)(workspace + run.layout.x_bf16) : NULL;
    run.gate_product = (float *)(workspace + run.layout.gate_product);
    run.act = workspace + run.layout.act;
    run.out = (float *)(workspace + run.layout.out);
    run.kernel_space = workspace + run.layout.kernels;
    run.launch = plec_cuda_launch_begin(
        base, err, "%s: %u of %u -> %u -> %u, %u tokens of %u slots", phase_name(args->phase),
        bank->n_entries, bank->input_dim, bank->intermediate_dim, bank->output_dim, args->n_tokens,
        args->n_slots);
    if (!run.launch.skip) run_phase(&run);
    return plec_cuda_launch_end(&run.launch);
}
