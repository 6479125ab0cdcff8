/* mm_wg.cuh: the grouped product of experts with wgmma, for experts of many rows: weights are
 * operand A, through registers, tokens operand B in shared memory.
 *
 * Mapping. A block is two warpgroups and works through (tile, channels, split) by grid stride; a
 * tile is up to 128 rows of one expert, and one of fewer rows a product of fewer columns. A
 * warpgroup holds 64 weight rows, a warp 16 of them exactly as in mm_sync: the same planes, the
 * same fragments, the same sums of a lane. So gate and up of a channel meet in one lane.
 *
 * Operand B. Tokens are staged so that the 16 columns of an MMA step lie side by side: first pairs
 * of the four lanes, then second pairs (mm_stage.cu, by_step). A part is 64 columns, 128 bytes a
 * token, swizzled by 128 bytes: [128 tokens][8 pieces of 16 bytes], piece p of token t at p ^ t
 * % 8.
 *
 * While the products of a block of 32 columns are under way the lane makes operand A of the next
 * one; then it waits and puts the scale on what came out, while the tensor cores work for the other
 * warpgroup. No accumulator and no register of operand A is touched between commit and wait.
 *
 * Bytes moved: codes and scales of the tile's experts once a tile, tokens once a block.
 */
#ifndef PLEC_DEVICE_CUDA_MM_WG_CUH
#define PLEC_DEVICE_CUDA_MM_WG_CUH

#include "device/cuda/mm_finish.cuh"
#include "device/cuda/mm_wg_ring.cuh"
#include "device/cuda/mm_wg_sums.cuh"

#ifdef PLEC_HAS_SM90A

/* The products of a tile's first N columns, block by block. */
template <class F, int N> struct plec_wg_blocks {
    typedef plec_wg_shape<F> S;
    typedef plec_wg_rule<F> R;
    plec_wg_sums<F> &sums;
    const uint32_t *table;

    static __device__ __forceinline__ void hold(plec_wg_operand<F> &op) {
#pragma unroll
        for (int part = 0; part < F::parts; part++) {
            plec_wgmma_hold(op.a[part][0]);
            plec_wgmma_hold(op.a[part][1]);
        }
    }

    __device__ __forceinline__ void begin(plec_wg_operand<F> &op) const {
        hold(op);
        plec_wgmma_hold(sums.template products<N>());
        plec_wgmma_fence();
    }

    /* One k16 step; all of its products are waited for together. */
    __device__ __forceinline__ void multiply(const plec_wg_operand<F> &op, int step, uint64_t b,
                                             int add) const {
        float(&d)[N / 2] = sums.template products<N>();
        plec_wgmma_bf16(d, op.a[0][step], b + 2 * step, add);
        if constexpr (F::parts == 2) plec_wgmma_bf16(d, op.a[1][step], b + 2 * step, 1);
    }

    __device__ __forceinline__ void wait() const {
        plec_wgmma_wait<0>();
        plec_wgmma_hold(sums.template products<N>());
    }

    /* Block b of the step: operand `op` times the columns that descriptor x begins with; meanwhile
     * the next operand is made. */
    template <class In>
    __device__ __forceinline__ void add(plec_wg_operand<F> &op, plec_wg_operand<F> &next,
                                        const In &in, int b, uint64_t x,
                                        const float *token_sums) const {
        if constexpr (R::way == PLEC_WG_SUMS && F::block < 32) {
            add_half(op, in, b, 0, x, token_sums, NULL);
            add_half(op, in, b, 1, x, token_sums, b + 1 < F::k_step / 32 ? &next : NULL);
            return;
        }
        begin(op);
        multiply(op, 0, x, sums.STRAIGHT || (R::way == PLEC_WG_STEPS && b > 0));
        multiply(op, 1, x, 1);
        plec_wgmma_commit();
        if (b + 1 < F::k_step / 32) next.make(in, table, b + 1);
        if constexpr (F::block < 32) sums.template add_minima<N>(in, 2 * b, token_sums);
        sums.template add_minima<N>(in, F::block < 32 ? 2 * b + 1 : b, token_sums);
        wait();
        if constexpr (R::way == PLEC_WG_SUMS) sums.template add_block<N>(in, b);
    }

    /* Half a block: 16 columns that have a scale of their own. */
    template <class In>
    __device__ __forceinline__ void add_half(plec_wg_operand<F> &op, const In &in, int b,
                                             int sixteen, uint64_t x, const float *token_sums,
                                             plec_wg_operand<F> *next) const {
        begin(op);
        multiply(op, sixteen, x, 0);
        plec_wgmma_commit();
        if (next != NULL) next->make(in, table, b + 1);
        sums.template add_minima<N>(in, 2 * b + sixteen, token_sums);
        wait();
        sums.template add_block<N>(in, 2 * b + sixteen);
    }
};

/* A tile of up to N rows: all its steps. */
template <class F, int N>
static __device__ __forceinline__ void plec_wg_run(plec_wg_sums<F> &sums, plec_wg_ring<F> &ring,
                                                   const uint32_t *table, unsigned char *shared,
                                                   struct plec_wg_turn *turn) {
    typedef plec_wg_shape<F> S;
    const unsigned address = plec_shared_address(shared);
    const plec_wg_blocks<F, N> blocks = {sums, table};
    plec_wg_operand<F> operands[2];
    while (ring.more()) {
        plec_mm_operands<F, S> in;
        const float *token_sums = NULL;
#pragma unroll
        for (int b = 0; b < F::k_step / 32; b++) {
            if (b % 2 == 0 && b > 0 && !ring.more()) break;
            if (b % 2 == 0) ring.take(*turn, b == 0);
            if (b == 0) {
                const unsigned char *stage = shared + ring.take_weights();
                token_sums = (const float *)(stage + S::SUMS);
                in.read(stage);
                operands[0].make(in, table, 0);
            }
            uint64_t x = plec_wgmma_descriptor_128(address + turn->stage * S::TOKENS) + b % 2 * 4;
            blocks.add(operands[b % 2], operands[(b + 1) % 2], in, b, x, token_sums);
            if (b % 2 == 1) ring.leave(turn);
        }
        sums.template end_step<N>(in);
    }
}

template <class F>
static __device__ __forceinline__ void
plec_wg_tile(const struct plec_mm_args &args, const struct plec_mm_work &work,
             unsigned char *shared, float unit, struct plec_wg_turn *turn) {
    plec_wg_ring<F> ring;
    plec_wg_sums<F> sums;
    uint32_t table[F::n_table + 1];
    F::table(table);
    /* As in mm_sync: constants that the compiler does not know. */
#pragma unroll
    for (int i = 0; i < (int)F::n_table; i++)
        table[i] += work.tile.n_rows >> 24;
    sums.open();
    ring.open(args, work, plec_shared_address(shared), *turn);
    plec_wg_width(work.tile.n_rows, [&](auto width) {
        plec_wg_run<F, decltype(width)::value>(sums, ring, table, shared, turn);
    });
    plec_copy_async_wait<0>();
    __syncthreads();
    sums.store((float *)shared, args, work, unit);
}
#endif

/* unit: what sums are multiplied by beside their row's factor. */
template <class F, int WIDTH>
static __global__ void __launch_bounds__(plec_wg_shape<F>::THREADS, 1)
    mm_wg(struct plec_mm_args args, float unit) {
#ifdef PLEC_HAS_SM90A
    typedef plec_wg_shape<F> S;
    PLEC_SHARED_DYNAMIC(shared);
    uint32_t n_steps = (args.tokens.n_cols + F::k_step - 1) / F::k_step;
    uint64_t total = plec_mm_n_works<S::ROWS>(args);
    if (blockIdx.x >= total) return;
    struct plec_wg_turn turn = {0, 0};
    if (threadIdx.x == 0) {
        for (int i = 0; i < S::STAGES; i++)
            plec_mbarrier_init(plec_shared_address(shared) + S::BARRIERS + i * 8, S::THREADS);
        plec_mbarrier_init_fence();
    }
    __syncthreads();
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_mm_work work = plec_wg_work_at<S::ROWS>(args, at, n_steps);
        plec_wg_tile<F>(args, work, shared, unit, &turn);
        __syncthreads();
        plec_mm_finish_products<S>(args, work, (const float *)shared);
        __syncthreads();
    }
#else
    (void)args, (void)unit;
#endif
}

#endif
