/* mm_launch.cuh: a format's mm_sync as launches: stage, product; and its place in the launch
 * table. */
#ifndef PLEC_DEVICE_CUDA_MM_LAUNCH_CUH
#define PLEC_DEVICE_CUDA_MM_LAUNCH_CUH

#include "device/cuda/launch.cuh"
#include "device/cuda/mm_sync.cuh"

enum { PLEC_MM_NARROW = 8, PLEC_MM_WIDE = 32, PLEC_MM_ALIGN = 256 };

static inline uint64_t plec_mm_aligned(uint64_t n_bytes) {
    return (n_bytes + PLEC_MM_ALIGN - 1) / PLEC_MM_ALIGN * PLEC_MM_ALIGN;
}

template <class F> static struct plec_mm_staging plec_mm_staging_of(void) {
    struct plec_mm_staging how;
    how.block = F::block < 32 ? 16 : 32;
    how.spread = F::spread != 0;
    how.by_step = false;
    how.token_factor = plec_bits_f32((uint32_t)(127 + F::token_shift) << 23);
    float one =
        plec_bits_f32((uint32_t)(127 - F::unit) << 23); /* of a code of 1 and a token of 1 */
    how.sum_factor = F::offset != 0 ? -one * F::offset : F::has_minimum ? one : 0.0f;
    return how;
}

/* The workspace of a launch: how large, and cut up. */
struct plec_mm_space {
    uint64_t sums, powers, n_bytes; /* byte offsets; staged tokens come first */
    uint32_t pitch;
};

static inline struct plec_mm_space plec_mm_space_of(uint32_t n_cols, uint64_t n_staged) {
    struct plec_mm_space space;
    space.pitch = (n_cols + 31) / 32 * 32;
    space.sums = plec_mm_aligned(n_staged * space.pitch * 2);
    space.powers = space.sums + plec_mm_aligned(n_staged * (space.pitch / 16) * 4);
    space.n_bytes = space.powers + plec_mm_aligned(n_staged * 4);
    return space;
}

static inline uint64_t plec_mm_workspace(const struct plec_cuda_bank *bank, enum plec_operand_id id,
                                         uint32_t n_tokens, uint32_t n_pairs) {
    return id == PLEC_DOWN ? plec_mm_space_of(bank->intermediate_dim, n_pairs).n_bytes
                           : plec_mm_space_of(bank->input_dim, n_tokens).n_bytes;
}

/* Tokens in a launch's workspace. */
static inline void plec_mm_place(struct plec_mm_tokens *tokens, void *workspace,
                                 const struct plec_mm_space *space) {
    tokens->x = (uint16_t *)workspace;
    tokens->sums = (float *)((uint8_t *)workspace + space->sums);
    tokens->powers = (float *)((uint8_t *)workspace + space->powers);
    tokens->pitch = space->pitch;
}

/* Blocks of a product whose blocks have `n_rows` weight rows. */
static inline unsigned plec_mm_grid(const struct plec_mm_args *mm, uint32_t n_rows) {
    uint32_t channels = mm->kind == PLEC_MM_GATE_AND_UP ? n_rows / 2 : n_rows;
    uint64_t n =
        (uint64_t)mm->rows.max_tiles * ((mm->n_channels + channels - 1) / channels) * mm->n_splits;
    if (n > mm->rows.n_blocks) n = mm->rows.n_blocks;
    return (unsigned)(n < 1 ? 1 : n);
}

template <class F, int NT>
static int plec_mm_launch_product(const struct plec_mm_args *mm, cudaStream_t stream) {
    typedef plec_mm_shape<F, NT> S;
    cudaError_t status = cudaFuncSetAttribute(
        (const void *)mm_sync<F, NT>, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
    if (status != cudaSuccess) return (int)status;
    return (int)PLEC_LAUNCH((mm_sync<F, NT>), dim3(plec_mm_grid(mm, S::ROWS)), dim3(S::THREADS),
                            S::BYTES, stream, *mm);
}

/* A kernel as launches of its format need it: how it wants tokens, and how it is started. */
template <class F> struct plec_mm_sync_kernel {
    static struct plec_mm_staging staging(void) { return plec_mm_staging_of<F>(); }
    static int launch(const struct plec_mm_args *mm, cudaStream_t stream) {
        typedef plec_mm_shape<F, PLEC_MM_NARROW> Narrow;
        static_assert(plec_mm_in_flight<Narrow>(PLEC_SM80_SHARED) >= PLEC_MM_IN_FLIGHT &&
                          plec_mm_in_flight<Narrow>(PLEC_SM89_SHARED) >= PLEC_MM_IN_FLIGHT &&
                          plec_mm_in_flight<Narrow>(PLEC_SM90_SHARED) >= PLEC_MM_IN_FLIGHT,
                      "decode keeps 48 KB of weights in flight on an SM");
        if (mm->rows.width == PLEC_MM_NARROW)
            return plec_mm_launch_product<F, PLEC_MM_NARROW>(mm, stream);
        if (mm->rows.width == PLEC_MM_WIDE)
            return plec_mm_launch_product<F, PLEC_MM_WIDE>(mm, stream);
        return plec_mm_launch_product<F, F::widest>(mm, stream);
    }
};

template <class F, class K>
static int plec_mm_launch(const struct plec_mm_args *mm, const struct plec_mm_stage_args *stage,
                          cudaStream_t stream) {
    int status = plec_mm_launch_stage(stage, stream);
    if (status != 0) return status;
    return K::launch(mm, stream);
}

template <class F, class K = plec_mm_sync_kernel<F>>
static int plec_mm_gate_up(const struct plec_cuda_gate_up_args *args, cudaStream_t stream) {
    const struct plec_cuda_bank *bank = &args->bank;
    uint32_t n_tokens = args->rows.n_pairs / args->rows.n_slots;
    struct plec_mm_args mm = {};
    mm.bank = *bank, mm.rows = args->rows;
    mm.kind = plec_mm_kind_of(args);
    int id = mm.kind == PLEC_MM_UP ? PLEC_UP : PLEC_GATE;
    mm.n_channels = bank->intermediate_dim, mm.n_splits = 1;
    mm.weights.rows = bank->operands[id].rows, mm.weights.cols = bank->operands[id].cols;
    mm.weights.factors = plec_planes_of<F>(mm.weights.rows, mm.weights.cols).factors;
    mm.weights.operands[0] = id;
    mm.weights.operands[1] = bank->fusion == PLEC_NOT_FUSED ? PLEC_UP : id;
    struct plec_mm_space space = plec_mm_space_of(bank->input_dim, n_tokens);
    plec_mm_place(&mm.tokens, args->workspace, &space);
    mm.tokens.n_cols = bank->input_dim;
    mm.tokens.row = args->rows.row_token;
    mm.input_weights = args->input_weights, mm.token_scale = args->token_scale;
    mm.gate_product = args->gate_product;
    mm.act = args->act, mm.act_f32 = args->act_f32, mm.act_cols = args->act_cols;
    struct plec_mm_stage_args stage = {};
    stage.to = mm.tokens, stage.how = K::staging();
    stage.from = args->x, stage.from_pitch = bank->input_dim;
    stage.n_rows = n_tokens, stage.rows.n_blocks = args->rows.n_blocks;
    stage.rows.chained = args->rows.chained;
    return plec_mm_launch<F, K>(&mm, &stage, stream);
}

template <class F, class K = plec_mm_sync_kernel<F>>
static int plec_mm_down(const struct plec_cuda_down_args *args, cudaStream_t stream) {
    const struct plec_cuda_bank *bank = &args->bank;
    const struct plec_operand *down = &bank->operands[PLEC_DOWN];
    struct plec_mm_args mm = {};
    mm.bank = *bank, mm.rows = args->rows, mm.kind = PLEC_MM_DOWN;
    mm.n_channels = bank->output_dim, mm.n_splits = args->n_splits;
    mm.weights.rows = down->rows, mm.weights.cols = down->cols;
    mm.weights.factors = plec_planes_of<F>(down->rows, down->cols).factors;
    mm.weights.operands[0] = mm.weights.operands[1] = PLEC_DOWN;
    struct plec_mm_space space = plec_mm_space_of(bank->intermediate_dim, args->rows.n_pairs);
    plec_mm_place(&mm.tokens, args->workspace, &space);
    mm.tokens.n_cols = bank->intermediate_dim;
    mm.out = args->out;
    struct plec_mm_stage_args stage = {};
    stage.to = mm.tokens, stage.how = K::staging();
    stage.from = args->act, stage.from_bf16 = !args->act_f32, stage.from_pitch = args->act_cols;
    stage.rows = args->rows;
    return plec_mm_launch<F, K>(&mm, &stage, stream);
}

/* Splits of down: enough blocks for a few experts to fill a large device, of at least four steps
 * each. Of the shape alone. */
template <class F> static uint32_t plec_mm_down_splits(uint32_t rows, uint32_t cols) {
    uint32_t n_blocks = rows / 64 + (rows % 64 != 0), n_steps = cols / F::k_step, splits = 1;
    while (splits < 8 && n_blocks * splits < 66 && n_steps / (2 * splits) >= 4)
        splits *= 2;
    return splits;
}

/* Whether a block's rows begin where a group does, as bulk copies want it. */
static inline bool plec_mm_rows_in_groups(const struct plec_cuda_bank *bank,
                                          enum plec_operand_id id) {
    return bank->operands[id].rows % 8 == 0 && (id == PLEC_DOWN || bank->intermediate_dim % 8 == 0);
}

#define PLEC_MM_GEMM(tag, name)                                                                    \
    extern "C" const struct plec_cuda_gemm plec_cuda_mm_sync_##name = {                            \
        "mm_sync",                                                                                 \
        tag,                                                                                       \
        PLEC_CUDA_MM_SYNC,                                                                         \
        80,                                                                                        \
        0,                                                                                         \
        false,                                                                                     \
        PLEC_CUDA_ORDER_MMA,                                                                       \
        {PLEC_MM_NARROW, PLEC_MM_WIDE, plec_fragment_##name::widest},                              \
        plec_mm_gate_up<plec_fragment_##name>,                                                     \
        plec_mm_down<plec_fragment_##name>,                                                        \
        NULL,                                                                                      \
        NULL,                                                                                      \
        plec_mm_down_splits<plec_fragment_##name>,                                                 \
        NULL,                                                                                      \
        plec_mm_workspace,                                                                         \
        {plec_mm_shape<plec_fragment_##name, PLEC_MM_NARROW>::BYTES,                               \
         plec_mm_shape<plec_fragment_##name, PLEC_MM_WIDE>::BYTES,                                 \
         plec_mm_shape<plec_fragment_##name, plec_fragment_##name::widest>::BYTES}};

#endif
