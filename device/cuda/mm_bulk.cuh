/* mm_bulk.cuh: the grouped product of mm_sync for experts of few rows, on sm_90 and later: weights
 * come by bulk copies that barriers in shared memory count, and kernels overlap.
 *
 * Mapping. A block is four warps that multiply as those of mm_sync do, on the same planes, so that
 * sums are bit-equal, and a fifth that copies. Blocks work through (tile, channels, split) by grid
 * stride, as many as the device holds at once. A step of a block's 64 weight rows is two runs of
 * bytes, each one bulk copy of four groups (planes.cuh), as they lie: 2 to 7 KB.
 *
 * The copying warp goes on into the next tile while the others finish one: its stages never drain.
 * A stage of weights has a barrier that says it has arrived (for 1 lane that says how many bytes,
 * and 32 whose cp.async copies of tokens count, too) and one that says it was read (4 warps).
 * Tokens have two stages of their own: they come later than the weights of their step.
 *
 * Dependent launches. What this kernel reads before it waits was written by nobody, or by kernels
 * ahead of the one ahead: every kernel of the chain waits before it lets others start. So weights
 * are under way while the kernel ahead still stages tokens, or multiplies.
 *
 * Shared memory: plec_mm_bulk_shape. Bytes moved: every code and scale of the tile's experts once a
 * tile, whole steps; tokens once a block.
 */
#ifndef PLEC_DEVICE_CUDA_MM_BULK_CUH
#define PLEC_DEVICE_CUDA_MM_BULK_CUH

#include "device/cuda/mm_bulk_shape.cuh"
#include "device/cuda/mm_sync.cuh"

#ifdef PLEC_HAS_SM90

/* The steps of a block's tiles, one after another. */
template <class F> struct plec_mm_bulk_steps {
    uint64_t at;
    uint32_t n_steps;
    uint32_t left; /* steps of the tile that are still to come; 0: there are no more */

    __device__ __forceinline__ void open(const struct plec_mm_args &args) {
        n_steps = (args.tokens.n_cols + F::k_step - 1) / F::k_step;
        at = blockIdx.x;
    }
    /* Read anew for each tile, for the sake of the loop's registers. */
    __device__ __forceinline__ bool more(const struct plec_mm_args &args) const {
        uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? 32 : 64;
        return at < (uint64_t)*args.rows.n_tiles * ((args.n_channels + channels - 1) / channels) *
                        args.n_splits;
    }
    __device__ __forceinline__ struct plec_mm_work work(const struct plec_mm_args &args) const {
        return plec_mm_work_at<64>(args, at, n_steps);
    }
};

/* Where a block is in its stages. */
struct plec_mm_bulk_turn {
    uint32_t stage, phase; /* of weights */
    uint32_t slot;         /* of tokens */
    __device__ __forceinline__ void next(uint32_t n_stages) {
        slot ^= 1;
        stage = stage + 1 == n_stages ? 0 : stage + 1;
        phase ^= stage == 0;
    }
};

/* Weights on their way, a step at a time. Lanes 0 and 1 copy a run each. */
template <class F, int NT> struct plec_mm_bulk_weights {
    typedef plec_mm_bulk_shape<F, NT> S;
    typedef plec_planes_group<F> G;
    plec_mm_bulk_steps<F> steps;
    const uint8_t *from; /* of the run, at the next step */
    uint64_t step_bytes, policy;
    uint32_t run_bytes, n_bytes; /* of the run, of both */

    __device__ __forceinline__ void open(const struct plec_mm_args &args) {
        plec_planes planes = plec_planes_of<F>(args.weights.rows, args.weights.cols);
        step_bytes = (uint64_t)planes.n_groups * G::BYTES;
        policy = plec_evict_first();
        steps.open(args);
        enter(args, planes);
    }

    __device__ __forceinline__ void enter(const struct plec_mm_args &args,
                                          const plec_planes &planes) {
        steps.left = 0;
        if (!steps.more(args)) return;
        struct plec_mm_work work = steps.work(args);
        struct plec_mm_run run = plec_mm_run_of<S::ROWS / 2>(args, work, threadIdx.x % 2);
        run_bytes = run.n_rows / 8 * G::BYTES;
        n_bytes = run_bytes + __shfl_xor_sync(0xFFFFFFFFu, run_bytes, 1);
        from = plec_mm_planes_of(args, work.tile.expert, run.of_up) +
               plec_planes_at<F>(planes, work.first_step, run.first);
        steps.left = work.end_step - work.first_step;
    }

    /* The next step into the stage at `to`, counted by the barrier `full`. */
    __device__ __forceinline__ void load(const struct plec_mm_args &args, unsigned to,
                                         unsigned full) {
        unsigned lane = threadIdx.x % 32;
        if (lane == 0) plec_mbarrier_arrive_expect(full, n_bytes);
        __syncwarp();
        if (lane < 2 && run_bytes != 0)
            plec_bulk_load_once(to + lane * S::RUN, from, run_bytes, full, policy);
        from += step_bytes;
        if (--steps.left != 0) return;
        steps.at += gridDim.x;
        enter(args, plec_planes_of<F>(args.weights.rows, args.weights.cols));
    }
};

/* Tokens on their way, likewise, by all lanes. */
template <class F, int NT> struct plec_mm_bulk_tokens {
    typedef plec_mm_bulk_shape<F, NT> S;
    plec_mm_bulk_steps<F> steps;
    plec_mm_token_loader<F, NT, S> loader;
    uint32_t k, k_end;

    __device__ __forceinline__ void open(const struct plec_mm_args &args) {
        steps.open(args);
        enter(args);
    }
    __device__ __forceinline__ void enter(const struct plec_mm_args &args) {
        steps.left = 0;
        if (!steps.more(args)) return;
        struct plec_mm_work work = steps.work(args);
        loader.open(args, work);
        k = work.first_step * F::k_step;
        k_end = min(work.end_step * F::k_step, args.tokens.pitch);
        steps.left = work.end_step - work.first_step;
    }
    __device__ __forceinline__ void load(const struct plec_mm_args &args, unsigned to,
                                         unsigned full) {
        loader.load(to, k, k_end);
        plec_copy_async_arrive(full);
        k += F::k_step;
        if (--steps.left != 0) return;
        steps.at += gridDim.x;
        enter(args);
    }
};

/* Barriers; and zeros where the last rows of a matrix leave a stage unfilled. */
template <class F, int NT>
static __device__ __forceinline__ void
plec_mm_bulk_begin(const struct plec_mm_args &args, unsigned char *shared, uint32_t n_stages) {
    typedef plec_mm_bulk_shape<F, NT> S;
    unsigned base = plec_shared_address(shared);
    uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? S::ROWS / 2 : S::ROWS;
    if (args.n_channels % channels != 0) {
        for (uint32_t i = threadIdx.x * 16; i < n_stages * S::WEIGHTS; i += S::BLOCK_THREADS * 16)
            plec_store_16(shared + S::WEIGHTS_AT + i, make_uint4(0, 0, 0, 0));
        plec_fence_proxy_async();
    }
    if (threadIdx.x == 0) {
        for (uint32_t i = 0; i < n_stages; i++) {
            plec_mbarrier_init(base + S::FULL + i * 8, 1 + 32);
            plec_mbarrier_init(base + S::EMPTY + i * 8, S::THREADS / 32);
        }
        plec_mbarrier_init_fence();
    }
    __syncthreads();
}

template <class F, int NT>
static __device__ __forceinline__ void plec_mm_bulk_copy(const struct plec_mm_args &args,
                                                         unsigned base, uint32_t n_stages) {
    typedef plec_mm_bulk_shape<F, NT> S;
    const uint32_t ahead = S::TOKEN_STAGES;
    plec_mm_bulk_weights<F, NT> weights;
    plec_mm_bulk_tokens<F, NT> tokens;
    weights.open(args);
    for (uint32_t i = 0; i < n_stages && weights.steps.left != 0; i++)
        weights.load(args, base + S::WEIGHTS_AT + i * S::WEIGHTS, base + S::FULL + i * 8);
    plec_grid_wait(); /* tokens were written by the kernel ahead */
    tokens.open(args);
    for (uint32_t i = 0; i < ahead && tokens.steps.left != 0; i++)
        tokens.load(args, base + S::TOKENS_AT + i * S::TOKEN_STAGE, base + S::FULL + i * 8);
    /* A step that was read makes room for the tokens of the second one after it, and for the
     * weights of the one that takes its stage. */
    for (plec_mm_bulk_turn turn = {0, 0, 0}; tokens.steps.left != 0; turn.next(n_stages)) {
        uint32_t read = turn.stage;
        plec_mbarrier_wait(base + S::EMPTY + read * 8, turn.phase);
        if (weights.steps.left != 0)
            weights.load(args, base + S::WEIGHTS_AT + read * S::WEIGHTS, base + S::FULL + read * 8);
        uint32_t to = read + ahead < n_stages ? read + ahead : read + ahead - n_stages;
        tokens.load(args, base + S::TOKENS_AT + turn.slot * S::TOKEN_STAGE,
                    base + S::FULL + to * 8);
    }
    /* No thread ends before its copies do. */
    plec_copy_async_commit();
    plec_copy_async_wait<0>();
}

template <class F, int NT>
static __device__ __forceinline__ void
plec_mm_bulk_multiply(const struct plec_mm_args &args, unsigned char *shared, uint32_t n_stages) {
    typedef plec_mm_bulk_shape<F, NT> S;
    unsigned base = plec_shared_address(shared);
    plec_grid_wait();
    plec_grid_launch_dependents();
    plec_mm_bulk_steps<F> steps;
    plec_mm_bulk_view<F, NT> view;
    plec_mm_sums<F, NT, S> sums;
    steps.open(args);
    view.open(args);
    float *out = (float *)(shared + S::OUT);
    plec_mm_bulk_turn turn = {0, 0, 0};
    for (; steps.more(args); steps.at += gridDim.x) {
        struct plec_mm_work work = steps.work(args);
        sums.open(work.tile.n_rows);
        sums.clear();
        for (uint32_t left = work.end_step - work.first_step; left != 0; left--) {
            plec_mm_operands<F, plec_mm_shape<F, NT>> in;
            plec_mbarrier_wait(base + S::FULL + turn.stage * 8, turn.phase);
            view.read(&in, shared + S::WEIGHTS_AT + turn.stage * S::WEIGHTS);
            sums.add_step(in, shared + S::TOKENS_AT + turn.slot * S::TOKEN_STAGE, work.tile.n_rows);
            __syncwarp();
            if (threadIdx.x % 32 == 0) plec_mbarrier_arrive(base + S::EMPTY + turn.stage * 8);
            turn.next(n_stages);
        }
        plec_barrier_sync(1, S::THREADS); /* all have left the products before */
        work = steps.work(args);          /* not kept in the loop's registers */
        /* Every tile has rows, but the compiler does not know, and so keeps nothing of what the
         * lines below make in the main loop's registers. */
        sums.store(out, args, work, plec_mm_takes_turns(args) && work.tile.n_rows != 0);
        plec_barrier_sync(1, S::THREADS);
        plec_mm_finish_products<S>(args, work, out);
    }
}
#endif

/* n_stages: of weights, 3 to MOST_STAGES. */
template <class F, int NT>
static __global__ void __launch_bounds__(plec_mm_bulk_shape<F, NT>::BLOCK_THREADS,
                                         plec_mm_bulk_shape<F, NT>::RESIDENT)
    mm_bulk(struct plec_mm_args args, uint32_t n_stages) {
#ifdef PLEC_HAS_SM90
    PLEC_SHARED_DYNAMIC(shared);
    plec_mm_bulk_begin<F, NT>(args, shared, n_stages);
    if (threadIdx.x < plec_mm_bulk_shape<F, NT>::THREADS)
        plec_mm_bulk_multiply<F, NT>(args, shared, n_stages);
    else
        plec_mm_bulk_copy<F, NT>(args, plec_shared_address(shared), n_stages);
#else
    (void)args, (void)n_stages;
#endif
}

#endif
