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
#include "device/cuda/ptx_wgmma.cuh"

#ifdef PLEC_HAS_SM90A

/* A lane's sums over N tokens. */
template <class F, int N> struct plec_wg_sums {
    typedef plec_wg_shape<F> S;
    typedef plec_wg_rule<F> R;
    enum { STRAIGHT = R::way == PLEC_WG_PLAIN || R::way == PLEC_WG_WEIGHTS };
    float sum[N / 2], apart[STRAIGHT ? 1 : N / 2];
    uint32_t table[F::n_table + 1];

    /* As in mm_sync: constants that the compiler does not know. */
    __device__ __forceinline__ void open(uint32_t n_rows) {
        F::table(table);
#pragma unroll
        for (int i = 0; i < (int)F::n_table; i++)
            table[i] += n_rows >> 24;
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sum[i] = 0.0f;
    }

    static __device__ __forceinline__ void hold(plec_wg_operand<F> &op) {
#pragma unroll
        for (int part = 0; part < F::parts; part++) {
            plec_wgmma_hold(op.a[part][0]);
            plec_wgmma_hold(op.a[part][1]);
        }
    }

    /* One k16 step into d; all of its products are waited for together. */
    template <int M>
    static __device__ __forceinline__ void multiply(float (&d)[M], const plec_wg_operand<F> &op,
                                                    int step, uint64_t b, int add) {
        plec_wgmma_bf16(d, op.a[0][step], b + 2 * step, add);
        if constexpr (F::parts == 2) plec_wgmma_bf16(d, op.a[1][step], b + 2 * step, 1);
    }

    /* Block b of the step: operand `op` times the columns that descriptor x begins with; meanwhile
     * the next operand is made. */
    template <class In>
    __device__ __forceinline__ void add(plec_wg_operand<F> &op, plec_wg_operand<F> &next,
                                        const In &in, int b, uint64_t x, const float *sums) {
        if constexpr (R::way == PLEC_WG_SUMS && F::block < 32) {
            begin(op, 0, x);
            add_minima(in, 2 * b, sums);
            end(in, 2 * b);
            begin(op, 1, x);
            if (b + 1 < F::k_step / 32) next.make(in, table, b + 1);
            add_minima(in, 2 * b + 1, sums);
            end(in, 2 * b + 1);
            return;
        }
        hold(op);
        if constexpr (STRAIGHT) {
            plec_wgmma_hold(sum);
            plec_wgmma_fence();
            multiply(sum, op, 0, x, 1);
            multiply(sum, op, 1, x, 1);
        } else {
            plec_wgmma_hold(apart);
            plec_wgmma_fence();
            multiply(apart, op, 0, x, R::way == PLEC_WG_STEPS && b > 0);
            multiply(apart, op, 1, x, 1);
        }
        plec_wgmma_commit();
        if (b + 1 < F::k_step / 32) next.make(in, table, b + 1);
        if constexpr (F::block < 32) add_minima(in, 2 * b, sums);
        add_minima(in, F::block < 32 ? 2 * b + 1 : b, sums);
        if constexpr (R::way == PLEC_WG_SUMS) {
            end(in, b);
            return;
        }
        plec_wgmma_wait<0>();
        if constexpr (STRAIGHT)
            plec_wgmma_hold(sum);
        else
            plec_wgmma_hold(apart);
    }

    /* A block of 16 columns. */
    __device__ __forceinline__ void begin(plec_wg_operand<F> &op, int step, uint64_t x) {
        hold(op);
        plec_wgmma_hold(apart);
        plec_wgmma_fence();
        multiply(apart, op, step, x, 0);
        plec_wgmma_commit();
    }

    /* Waits for the products of block s, and puts its scale on them. */
    template <class In> __device__ __forceinline__ void end(const In &in, int s) {
        float scales[2];
        for (int side = 0; side < 2; side++)
            scales[side] = F::scale(in.record[side], in.super[side], s);
        plec_wgmma_wait<0>();
        plec_wgmma_hold(apart);
        add_scaled(scales);
    }

    __device__ __forceinline__ void add_scaled(const float scales[2]) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sum[i] = __fmaf_rn(scales[i >> 1 & 1], apart[i], sum[i]);
    }

    template <class In> __device__ __forceinline__ void end_step(const In &in) {
        if constexpr (R::way == PLEC_WG_STEPS) {
            const float scales[2] = {R::step_scale(in.super[0]), R::step_scale(in.super[1])};
            add_scaled(scales);
        }
    }

    /* The minimum of block s times the sums of the tokens over it. */
    template <class In>
    __device__ __forceinline__ void add_minima(const In &in, int s, const float *sums) {
        if constexpr (F::has_minimum != 0) {
            const float *from = sums + s * S::SUM_PITCH + threadIdx.x % 4 * 2;
            float minima[2];
            for (int side = 0; side < 2; side++)
                minima[side] = F::minimum(in.record[side], in.super[side], s);
#pragma unroll
            for (int i = 0; i < N / 8; i++) {
                uint2 two = plec_load_8(from + i * 8);
                float x[2] = {plec_bits_f32(two.x), plec_bits_f32(two.y)};
#pragma unroll
                for (int j = 0; j < 4; j++)
                    sum[4 * i + j] = __fmaf_rn(minima[j / 2], x[j % 2], sum[4 * i + j]);
            }
        }
    }

    /* The products into shared memory, each row times its factor: channels side by side, those of
     * up behind those of gate. */
    __device__ __forceinline__ void store(float *out, const struct plec_mm_args &args,
                                          const struct plec_mm_work &work, float unit) const {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        plec_planes planes = plec_planes_of<F>(args.weights.rows, args.weights.cols);
        bool both = args.kind == PLEC_MM_GATE_AND_UP;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            struct plec_mm_row row = plec_mm_row_of(args, work, lane / 4 + 8 * side);
            float factor = ((const float *)(row.planes + planes.factors))[row.row] * unit;
            float *to =
                out + lane / 4 + (both ? side * S::ROWS / 2 + warp * 8 : warp * 16 + side * 8);
#pragma unroll
            for (int i = 0; i < N / 8; i++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    to[(i * 8 + lane % 4 * 2 + j) * S::OUT_PITCH] =
                        sum[i * 4 + 2 * side + j] * factor;
        }
    }
};

/* A tile of up to N rows. */
template <class F, int N>
static __device__ __forceinline__ void
plec_wg_tile(const struct plec_mm_args &args, const struct plec_mm_work &work,
             unsigned char *shared, float unit, struct plec_wg_turn *turn) {
    typedef plec_wg_shape<F> S;
    plec_wg_ring<F, N> ring;
    plec_wg_sums<F, N> sums;
    plec_wg_operand<F> operands[2];
    const unsigned address = plec_shared_address(shared);
    sums.open(work.tile.n_rows);
    ring.open(args, work, address, *turn);
    while (ring.more()) {
        plec_mm_operands<F, S> in;
        const float *block_sums = NULL;
#pragma unroll
        for (int b = 0; b < F::k_step / 32; b++) {
            if (b % 2 == 0 && b > 0 && !ring.more()) break;
            if (b % 2 == 0) ring.take(*turn);
            if (b == 0) {
                const unsigned char *stage = shared + ring.take_weights();
                block_sums = (const float *)(stage + S::SUMS);
                in.read(stage);
                operands[0].make(in, sums.table, 0);
            }
            uint64_t x = plec_wgmma_descriptor_128(address + turn->stage * S::TOKENS) + b % 2 * 4;
            sums.add(operands[b % 2], operands[(b + 1) % 2], in, b, x, block_sums);
            if (b % 2 == 1) ring.leave(turn);
        }
        sums.end_step(in);
    }
    plec_copy_async_wait<0>();
    __syncthreads();
    sums.store((float *)shared, args, work, unit);
}

/* The narrowest product that holds a tile. */
template <class F>
static __device__ __forceinline__ void
plec_wg_any_tile(const struct plec_mm_args &args, const struct plec_mm_work &work,
                 unsigned char *shared, float unit, struct plec_wg_turn *turn) {
    switch ((work.tile.n_rows + 31) / 32) {
    case 1: plec_wg_tile<F, 32>(args, work, shared, unit, turn); break;
    case 2: plec_wg_tile<F, 64>(args, work, shared, unit, turn); break;
    case 3: plec_wg_tile<F, 96>(args, work, shared, unit, turn); break;
    default: plec_wg_tile<F, 128>(args, work, shared, unit, turn); break;
    }
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
        plec_wg_any_tile<F>(args, work, shared, unit, &turn);
        __syncthreads();
        plec_mm_finish_products<S>(args, work, (const float *)shared);
        __syncthreads();
    }
#else
    (void)args, (void)unit;
#endif
}

#endif
