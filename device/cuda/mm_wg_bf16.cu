/* mm_wg_bf16.cu: the grouped product of experts of many rows in bf16 with wgmma: both operands in
 * shared memory, and nothing done to either on the way.
 *
 * Mapping. A block works through (tile, channels, split) by grid stride, one block an SM: 256
 * weight rows, gate's and up's halves of them or neighbours, times a tile of up to 128 rows of one
 * expert, a product of 8, 16, .. 128 columns. Two warpgroups multiply, 128 weight rows each; a
 * third copies, and goes on into the next tile while the others finish one.
 *
 * A stage is 64 columns. Weights are operand A as the planes have them (planes.cuh, swizzled): two
 * runs of neighbouring groups, one bulk copy each. Tokens are operand B: gathered row by row with
 * cp.async into the places of the same swizzle. Each stage has a barrier that says it is full, for
 * the bytes of the bulk copies and every copying thread, which says two stages late, behind a proxy
 * fence, that what it copied has landed; and one that says it was read, for the eight warps.
 *
 * Shared memory: plec_wg_bf16_shape. Bytes moved: weights and tokens once a block.
 */
#include "device/cuda/fragment/float.cuh"
#include "device/cuda/mm_finish.cuh"
#include "device/cuda/mm_launch.cuh"
#include "device/cuda/mm_wg_tokens.cuh"
#include "device/cuda/ptx_wgmma.cuh"

typedef plec_fragment_bf16 plec_wg_bf16_fragment;

struct plec_wg_bf16_shape {
    enum {
        THREADS = 256, /* that multiply */
        COPIERS = 128,
        REGISTERS = 232, /* of a thread, once both are at work */
        COPIER_REGISTERS = 40,
        ROWS = 256,
        WIDTH = 128, /* most tokens of a tile */
        COLS = plec_wg_bf16_fragment::k_step,
        STAGES = 4,
        LATE = 2, /* stages that a copy has to land */
        BLOCK = 32,
        STEP_SUMS = 0,
        SUM_PITCH = 0,
        GROUP = plec_planes_group<plec_wg_bf16_fragment>::BYTES,
        SLAB = 8 * GROUP,        /* 64 weight rows */
        RUN = ROWS / 16 * GROUP, /* what a warpgroup multiplies */
        TOKENS = 2 * RUN,        /* byte offset in a stage */
        STAGE = TOKENS + WIDTH * COLS * 2,
        /* products of PART tokens at a time */
        PART = 32,
        OUT_PITCH = ROWS + 4,
        OUT = STAGES * STAGE,
        FULL = OUT + PART * OUT_PITCH * 4,
        EMPTY = FULL + STAGES * 8,
        BYTES = EMPTY + STAGES * 8
    };
    static_assert(COLS * 2 == 128 && GROUP == 1024, "a group is what a swizzle repeats after");
    static_assert(plec_wg_bf16_fragment::unit == 0, "products are what they are");
    static_assert(THREADS * REGISTERS + COPIERS * COPIER_REGISTERS <= 65536, "an SM has these");
    static_assert(WIDTH == 4 * PART, "as finish has it");
    static_assert(LATE + 2 <= STAGES, "a stage is read once the next one is full, and filled then");
    static_assert(BYTES <= 227 * 1024, "a block has this much on sm_90");
};

typedef plec_wg_bf16_shape S;

#ifdef PLEC_HAS_SM90A
/* ---- the warpgroup that copies --------------------------------------------------------------- */

struct plec_wg_bf16_copier {
    plec_wg_token_loader<plec_wg_bf16_fragment, S, S::WIDTH> tokens;
    const uint8_t *runs[2]; /* at the next step; one thread's */
    uint32_t run_bytes[2];
    uint64_t step_bytes;
    unsigned base;             /* of shared memory */
    unsigned n_filled, n_late; /* stages: so far, up to STAGES; not yet said to be full */
    plec_wg_turn fill, say;

    __device__ __forceinline__ void open(const struct plec_mm_args &args, unsigned shared) {
        plec_planes planes =
            plec_planes_of<plec_wg_bf16_fragment>(args.weights.rows, args.weights.cols);
        step_bytes = (uint64_t)planes.n_groups * S::GROUP;
        base = shared;
        n_filled = n_late = 0;
        fill = say = {0, 0};
    }

    /* At the first step of a tile and split. */
    __device__ __forceinline__ void enter(const struct plec_mm_args &args,
                                          const struct plec_mm_work &work) {
        plec_planes planes =
            plec_planes_of<plec_wg_bf16_fragment>(args.weights.rows, args.weights.cols);
        for (int i = 0; i < 2; i++) {
            struct plec_mm_run run = plec_mm_run_of<S::ROWS / 2>(args, work, i);
            run_bytes[i] = run.n_rows / 8 * S::GROUP;
            runs[i] = plec_mm_planes_of(args, work.tile.expert, run.of_up) +
                      plec_planes_at<plec_wg_bf16_fragment>(planes, work.first_step, run.first);
        }
        tokens.open(args, work);
    }

    /* The step from column k on into the next stage, once that was read. */
    __device__ __forceinline__ void load(uint32_t k, uint32_t k_end) {
        unsigned stage = base + fill.stage * S::STAGE, full = base + S::FULL + fill.stage * 8;
        if (n_filled == S::STAGES)
            plec_mbarrier_wait(base + S::EMPTY + fill.stage * 8, fill.phase ^ 1);
        else
            n_filled++;
        if (threadIdx.x == S::THREADS) {
            plec_mbarrier_arrive_expect(full, run_bytes[0] + run_bytes[1]);
            plec_bulk_load(stage, runs[0], run_bytes[0], full);
            if (run_bytes[1] != 0) plec_bulk_load(stage + S::RUN, runs[1], run_bytes[1], full);
        }
        runs[0] += step_bytes;
        runs[1] += step_bytes;
        tokens.load(stage + S::TOKENS, k, k_end);
        plec_copy_async_commit();
        fill.next(S::STAGES);
        if (n_late++ < S::LATE) return;
        plec_copy_async_wait<S::LATE>();
        say_full();
    }

    /* What this thread copied into the oldest stage has landed, and is there for wgmma. */
    __device__ __forceinline__ void say_full() {
        plec_fence_proxy_async();
        plec_mbarrier_arrive(base + S::FULL + say.stage * 8);
        say.next(S::STAGES);
        n_late--;
    }

    __device__ __forceinline__ void close() {
        plec_copy_async_wait<0>();
        while (n_late > 0)
            say_full();
    }
};

static __device__ __forceinline__ void plec_wg_bf16_copy(const struct plec_mm_args &args,
                                                         unsigned shared, uint64_t n_works,
                                                         uint32_t n_steps) {
    plec_wg_bf16_copier copier;
    copier.open(args, shared);
    for (uint64_t at = blockIdx.x; at < n_works; at += gridDim.x) {
        struct plec_mm_work work = plec_wg_work_at<S::ROWS>(args, at, n_steps);
        uint32_t k_end = min(work.end_step * S::COLS, args.tokens.pitch);
        copier.enter(args, work);
        for (uint32_t step = work.first_step; step < work.end_step; step++)
            copier.load(step * S::COLS, k_end);
    }
    copier.close();
}

/* ---- the warpgroups that multiply ------------------------------------------------------------ */

/* A lane's sums: two slabs of 64 weight rows; products of fewer columns leave the last ones 0. */
struct plec_wg_bf16_sums {
    float slab[2][S::WIDTH / 2];

    /* Zeros, though a first product need not read them: registers that nothing has written are
     * alive for the compiler from the kernel's first line on. */
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < S::WIDTH / 2; i++)
            slab[0][i] = slab[1][i] = 0.0f;
    }

    /* Those of the first N columns of a slab. */
    template <int N> __device__ __forceinline__ float (&of(int i))[N / 2] {
        return reinterpret_cast<float(&)[N / 2]>(slab[i]);
    }

    template <int N> __device__ __forceinline__ void hold() {
        plec_wgmma_hold(of<N>(0));
        plec_wgmma_hold(of<N>(1));
    }

    /* A stage's products are under way when it returns, those of the stage before are done. */
    template <int N> __device__ __forceinline__ void add(unsigned stage) {
        uint64_t a = plec_wgmma_descriptor_128(stage + threadIdx.x / 128 * S::RUN);
        uint64_t b = plec_wgmma_descriptor_128(stage + S::TOKENS);
        hold<N>();
        plec_wgmma_fence();
#pragma unroll
        for (int k = 0; k < S::COLS / 16; k++) {
            plec_wgmma_bf16(of<N>(0), a + 2 * k, b + 2 * k, 1);
            plec_wgmma_bf16(of<N>(1), a + S::SLAB / 16 + 2 * k, b + 2 * k, 1);
        }
        plec_wgmma_commit();
        plec_wgmma_wait<1>();
        hold<N>();
    }

    /* All steps of a tile of up to N tokens. */
    template <int N>
    __device__ __forceinline__ void run(unsigned base, uint32_t n_steps, plec_wg_turn *turn) {
        unsigned before = 0;
        for (uint32_t i = 0; i < n_steps; i++) {
            plec_mbarrier_wait(base + S::FULL + turn->stage * 8, turn->phase);
            add<N>(base + turn->stage * S::STAGE);
            if (i > 0) leave(base, before);
            before = turn->stage;
            turn->next(S::STAGES);
        }
        plec_wgmma_wait<0>();
        hold<N>();
        leave(base, before);
    }

    /* A stage was read. */
    static __device__ __forceinline__ void leave(unsigned base, unsigned stage) {
        __syncwarp();
        if (threadIdx.x % 32 == 0) plec_mbarrier_arrive(base + S::EMPTY + stage * 8);
    }

    /* The products of tokens FROM to FROM + PART - 1, as [token][OUT_PITCH]: where gate and up rows
     * take turns, up's behind gate's. */
    template <int FROM> __device__ __forceinline__ void store(float *out, bool turns) const {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x % 128 / 32;
        unsigned first = threadIdx.x / 128 * (S::ROWS / 2) + warp * 16 + plec_planes_row(lane / 4);
#pragma unroll
        for (int s = 0; s < 4; s++) {
            unsigned row = first + s / 2 * 64 + s % 2 * 8;
            float *to = out + (turns ? row / 2 + row % 2 * (S::ROWS / 2) : row);
#pragma unroll
            for (int i = 0; i < S::PART / 8; i++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    to[(i * 8 + lane % 4 * 2 + j) * S::OUT_PITCH] =
                        slab[s / 2][FROM / 2 + i * 4 + s % 2 * 2 + j];
        }
    }

    /* From products to what is written, PART tokens at a time. */
    __device__ __forceinline__ void finish(const struct plec_mm_args &args,
                                           const struct plec_mm_work &work, float *out) const {
        bool turns = plec_mm_takes_turns(args);
#pragma unroll 1
        for (uint32_t from = 0; from < work.tile.n_rows; from += S::PART) {
            struct plec_mm_work part = work;
            part.tile.first_row += from;
            part.tile.n_rows = min(work.tile.n_rows - from, (uint32_t)S::PART);
            plec_barrier_sync(1, S::THREADS); /* all have left the products before */
            switch (from / S::PART) {
            case 0: store<0>(out, turns); break;
            case 1: store<S::PART>(out, turns); break;
            case 2: store<2 * S::PART>(out, turns); break;
            default: store<3 * S::PART>(out, turns);
            }
            plec_barrier_sync(1, S::THREADS);
            plec_mm_finish_products<S>(args, part, out);
        }
    }
};

static __device__ __forceinline__ void plec_wg_bf16_multiply(const struct plec_mm_args &args,
                                                             unsigned char *shared,
                                                             uint64_t n_works, uint32_t n_steps) {
    plec_wg_turn turn = {0, 0};
    plec_wg_bf16_sums sums;
    for (uint64_t at = blockIdx.x; at < n_works; at += gridDim.x) {
        struct plec_mm_work work = plec_wg_work_at<S::ROWS>(args, at, n_steps);
        sums.clear();
        plec_wg_width(work.tile.n_rows, [&](auto width) {
            sums.template run<decltype(width)::value>(plec_shared_address(shared),
                                                      work.end_step - work.first_step, &turn);
        });
        sums.finish(args, work, (float *)(shared + S::OUT));
    }
}

/* Barriers; and zeros where the last rows of a matrix leave a stage unfilled. */
static __device__ __forceinline__ void plec_wg_bf16_begin(const struct plec_mm_args &args,
                                                          unsigned char *shared) {
    unsigned base = plec_shared_address(shared);
    uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? S::ROWS / 2 : S::ROWS;
    if (args.n_channels % channels != 0)
        for (uint32_t i = threadIdx.x * 16; i < S::STAGES * S::TOKENS; i += blockDim.x * 16)
            plec_store_16(shared + i / S::TOKENS * S::STAGE + i % S::TOKENS,
                          make_uint4(0, 0, 0, 0));
    plec_fence_proxy_async();
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < S::STAGES; i++) {
            plec_mbarrier_init(base + S::FULL + i * 8, 1 + S::COPIERS);
            plec_mbarrier_init(base + S::EMPTY + i * 8, S::THREADS / 32);
        }
        plec_mbarrier_init_fence();
    }
    __syncthreads();
}
#endif

static __global__ void __launch_bounds__(S::THREADS + S::COPIERS, 1)
    mm_wg_bf16(struct plec_mm_args args) {
#ifdef PLEC_HAS_SM90A
    PLEC_SHARED_DYNAMIC(shared);
    uint64_t n_works = plec_mm_n_works<S::ROWS>(args);
    uint32_t n_steps = (args.tokens.n_cols + S::COLS - 1) / S::COLS;
    if (blockIdx.x >= n_works) return;
    plec_wg_bf16_begin(args, shared);
    if (threadIdx.x < S::THREADS) {
        plec_registers_grow<S::REGISTERS>();
        plec_wg_bf16_multiply(args, shared, n_works, n_steps);
    } else {
        plec_registers_shrink<S::COPIER_REGISTERS>();
        plec_wg_bf16_copy(args, plec_shared_address(shared), n_works, n_steps);
    }
#else
    (void)args;
#endif
}

/* ---- launches -------------------------------------------------------------------------------- */

struct plec_wg_bf16_kernel {
    static struct plec_mm_staging staging(void) {
        return plec_mm_staging_of<plec_wg_bf16_fragment>();
    }

    static int launch(const struct plec_mm_args *mm, cudaStream_t stream) {
        struct plec_mm_args own = *mm;
        own.rows.n_blocks = mm->rows.n_processors;
        cudaError_t status = cudaFuncSetAttribute(
            (const void *)mm_wg_bf16, cudaFuncAttributeMaxDynamicSharedMemorySize, S::BYTES);
        if (status != cudaSuccess) return (int)status;
        return (int)PLEC_LAUNCH(mm_wg_bf16, dim3(plec_mm_grid(&own, S::ROWS)),
                                dim3(S::THREADS + S::COPIERS), S::BYTES, stream, own);
    }
};

extern "C" const struct plec_cuda_gemm plec_cuda_mm_wg_bf16 = {
    "mm_wg",
    PLEC_FORMAT_BF16,
    PLEC_CUDA_WGMMA,
    90,
    90,
    false,
    PLEC_CUDA_ORDER_WGMMA,
    {0, 0, S::WIDTH},
    plec_mm_gate_up<plec_wg_bf16_fragment, plec_wg_bf16_kernel>,
    plec_mm_down<plec_wg_bf16_fragment, plec_wg_bf16_kernel>,
    NULL,
    NULL,
    plec_mm_down_splits<plec_wg_bf16_fragment>,
    plec_mm_rows_in_groups,
    plec_mm_workspace,
    {0, 0, S::BYTES}};
