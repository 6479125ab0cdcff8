/* mm_sync.cuh: the grouped product of experts with mma.sync: weights are operand A, tokens operand
 * B, so that eight tokens fill a tile and gate and up of a channel meet in one lane.
 *
 * Mapping. A block is four warps and works through (tile, channels, split) by grid stride; a tile
 * is up to NT rows of one expert. A warp holds a slab of 16 weight rows: of gate and up, 8 gate
 * rows and the up rows of the same 8 channels; else 16 channels. Lane 4g + c holds rows g and g + 8
 * of the slab, c's columns of every block (fragment.cuh), and of the sums tokens 2c and 2c + 1.
 *
 * One step is k_step columns in a stage of shared memory, STAGES of them in flight by cp.async:
 *   codes    each lane copies what it will read itself, in the order it will
 *   records  row by row                   supers  likewise
 *   tokens   [NT][k_step] bf16; eight lanes read two rows in different banks (mm_shape.cuh)
 *   sums     [k_step / block][NT] f32
 * Afterwards the same memory holds the tile's products as [NT][68] f32, and each thread finishes
 * outputs of neighbouring channels.
 *
 * Bytes moved: every code and scale of the tile's experts once a tile, tokens once a block.
 */
#ifndef PLEC_DEVICE_CUDA_MM_SYNC_CUH
#define PLEC_DEVICE_CUDA_MM_SYNC_CUH

#include "device/cuda/mm_finish.cuh"
#include "device/cuda/mm_tokens.cuh"
#include "device/cuda/mm_weights.cuh"

/* The stages in turn. A step's weights and tokens are one group of copies. Tokens take the place of
 * those of the step before, which all warps must have left. So do the weights of wide tiles; those
 * of narrow ones take the place of the step that is being multiplied as soon as the warp, which
 * alone reads them, has their words in its registers: then all stages are in flight. */
template <class F, int NT> struct plec_mm_ring {
    typedef plec_mm_shape<F, NT> S;
    plec_mm_weight_loader<F, S> weights;
    plec_mm_token_loader<F, NT> tokens;
    uint32_t k, k_end; /* columns: of the next step of weights, and where the split ends */

    __device__ __forceinline__ void open(const struct plec_mm_args &args,
                                         const struct plec_mm_work &work) {
        weights.open(args, work);
        tokens.open(args, work);
        k = work.first_step * F::k_step;
        k_end = min(work.end_step * F::k_step, args.tokens.pitch);
    }

    /* Starts the copies of the next step's weights; past the split's end none. */
    __device__ __forceinline__ void load_weights(unsigned to) {
        if (k < k_end) weights.load(to, k, k_end);
        k += F::k_step;
    }
    /* The same for the tokens of the step whose weights were started last, and ends its group. */
    __device__ __forceinline__ void load_tokens(unsigned to) {
        if (k - F::k_step < k_end) tokens.load(to, k - F::k_step, k_end);
        plec_copy_async_commit();
    }
};

/* A weight's two parts in one call: formats of one part have no second. */
template <class F, int parts> struct plec_mm_rests {
    static __device__ __forceinline__ void get(uint32_t *, const uint32_t *, uint32_t) {}
};
template <class F> struct plec_mm_rests<F, 2> {
    static __device__ __forceinline__ void get(uint32_t out[4], const uint32_t *words, uint32_t b) {
        F::rests(out, words, b);
    }
};

/* The sums of a warp's slab. S: the shape of the block. */
template <class F, int NT, class S = plec_mm_shape<F, NT>> struct plec_mm_sums {
    typedef plec_mm_operands<F, plec_mm_shape<F, NT>> Operands;
    float sum[S::GROUPS][4];
    uint32_t table[F::n_table + 1];

    /* A tile has no 2^24 rows, but the compiler does not know: it would set a table's constants
     * anew before every use, an instruction each time. */
    __device__ __forceinline__ void open(uint32_t n_rows) {
        F::table(table);
#pragma unroll
        for (int i = 0; i < (int)F::n_table; i++)
            table[i] += n_rows >> 24;
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < S::GROUPS; i++)
            sum[i][0] = sum[i][1] = sum[i][2] = sum[i][3] = 0.0f;
    }

    /* A step: its weights, and its tokens in a stage. n_rows: of the tile. */
    __device__ __forceinline__ void add_step(const Operands &in, const unsigned char *stage,
                                             uint32_t n_rows) {
#pragma unroll
        for (int b = 0; b < F::k_step / 32; b++) {
            uint32_t a[2][4];
            F::pairs(a[0], in.words[0], b, table);
            F::pairs(a[1], in.words[1], b, table);
            if constexpr (F::block > 32)
                add_plain(in, a, stage, b, n_rows);
            else if constexpr (F::block == 32)
                add_scaled(in, a, stage, b, n_rows);
            else
                add_halves(in, a, stage, b, n_rows);
        }
    }

    static __device__ __forceinline__ uint4 tokens_of(const unsigned char *stage, int b, int i) {
        unsigned lane = threadIdx.x % 32;
        int odd = (int)(lane / 4 % 2) * 64;
        return plec_load_16(stage + S::TOKENS + (lane / 4 + i * 8) * S::TOKEN_PITCH + b * 64 +
                            (b % 2 ? -odd : odd) + lane % 4 * 16);
    }
    /* The sums of block s for tokens 2c and 2c + 1. */
    static __device__ __forceinline__ float2 sums_of(const unsigned char *stage, int s, int i) {
        unsigned c = threadIdx.x % 4;
        uint2 v = plec_load_8(stage + S::SUMS + (s * NT + i * 8 + c * 2) * 4);
        return make_float2(plec_bits_f32(v.x), plec_bits_f32(v.y));
    }
    /* One MMA step: pairs p and p + 1 of both rows. */
    static __device__ __forceinline__ void multiply(float (&d)[4], const uint32_t a[2][4], int p,
                                                    uint32_t b0, uint32_t b1) {
        const unsigned operand[4] = {a[0][p], a[1][p], a[0][p + 1], a[1][p + 1]};
        plec_mma_bf16(d, operand, b0, b1);
    }

    /* No scales: straight into the sums. */
    __device__ __forceinline__ void add_plain(const Operands &in, const uint32_t a[2][4],
                                              const unsigned char *stage, int b, uint32_t n_rows) {
        uint32_t rest[2][4];
        plec_mm_rests<F, F::parts>::get(rest[0], in.words[0], b);
        plec_mm_rests<F, F::parts>::get(rest[1], in.words[1], b);
#pragma unroll
        for (int i = 0; i < S::GROUPS; i++) {
            if (i > 0 && (uint32_t)i * 8 >= n_rows) continue;
            uint4 x = tokens_of(stage, b, i);
            multiply(sum[i], a, 0, x.x, x.y);
            multiply(sum[i], a, 2, x.z, x.w);
            if (F::parts != 2) continue;
            multiply(sum[i], rest, 0, x.x, x.y);
            multiply(sum[i], rest, 2, x.z, x.w);
        }
    }

    /* A block's products, from what its offset takes away; then its scale and minimum. */
    __device__ __forceinline__ void start(float (&d)[4], float2 sums) {
        d[0] = d[2] = F::offset != 0 ? sums.x : 0.0f;
        d[1] = d[3] = F::offset != 0 ? sums.y : 0.0f;
    }
    __device__ __forceinline__ void scale(int i, const float d[4], const float scales[2],
                                          const float minima[2], float2 sums) {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            sum[i][2 * side] = __fmaf_rn(scales[side], d[2 * side], sum[i][2 * side]);
            sum[i][2 * side + 1] = __fmaf_rn(scales[side], d[2 * side + 1], sum[i][2 * side + 1]);
            if (!F::has_minimum) continue;
            sum[i][2 * side] = __fmaf_rn(minima[side], sums.x, sum[i][2 * side]);
            sum[i][2 * side + 1] = __fmaf_rn(minima[side], sums.y, sum[i][2 * side + 1]);
        }
    }
    static __device__ __forceinline__ void scales_of(float scales[2], float minima[2],
                                                     const Operands &in, int s) {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            scales[side] = F::scale(in.record[side], in.super[side], s);
            minima[side] = F::has_minimum ? F::minimum(in.record[side], in.super[side], s) : 0.0f;
        }
    }

    __device__ __forceinline__ void add_scaled(const Operands &in, const uint32_t a[2][4],
                                               const unsigned char *stage, int b, uint32_t n_rows) {
        float scales[2], minima[2];
        scales_of(scales, minima, in, b);
#pragma unroll
        for (int i = 0; i < S::GROUPS; i++) {
            if (i > 0 && (uint32_t)i * 8 >= n_rows) continue;
            uint4 x = tokens_of(stage, b, i);
            float2 sums = S::HAS_SUMS ? sums_of(stage, b, i) : make_float2(0.0f, 0.0f);
            float d[4];
            start(d, sums);
            multiply(d, a, 0, x.x, x.y);
            multiply(d, a, 2, x.z, x.w);
            scale(i, d, scales, minima, sums);
        }
    }

    /* Blocks of 16: each MMA step is one. */
    __device__ __forceinline__ void add_halves(const Operands &in, const uint32_t a[2][4],
                                               const unsigned char *stage, int b, uint32_t n_rows) {
        float scales[2][2], minima[2][2];
        scales_of(scales[0], minima[0], in, 2 * b);
        scales_of(scales[1], minima[1], in, 2 * b + 1);
#pragma unroll
        for (int i = 0; i < S::GROUPS; i++) {
            if (i > 0 && (uint32_t)i * 8 >= n_rows) continue;
            uint4 x = tokens_of(stage, b, i);
#pragma unroll
            for (int s = 0; s < 2; s++) {
                float2 sums = S::HAS_SUMS ? sums_of(stage, 2 * b + s, i) : make_float2(0.0f, 0.0f);
                float d[4];
                start(d, sums);
                multiply(d, a, 2 * s, s == 0 ? x.x : x.z, s == 0 ? x.y : x.w);
                scale(i, d, scales[s], minima[s], sums);
            }
        }
    }

    /* The products into shared memory, each row times its factor: channels side by side, those of
     * up behind those of gate. turns: rows 2 i and 2 i + 1 of the slab are gate's and up's of its
     * channel i, and not rows i and i + 8. */
    __device__ __forceinline__ void store(float *out, const struct plec_mm_args &args,
                                          const struct plec_mm_work &work,
                                          bool turns = false) const {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            unsigned slot = lane / 4 + 8 * side;
            if (turns) slot = slot % 2 * 8 + slot / 2;
            struct plec_mm_row row = plec_mm_row_of(args, work, slot);
            float factor = ((const float *)(row.planes + args.weights.factors))[row.row];
            float *to =
                out + (args.kind == PLEC_MM_GATE_AND_UP ? slot / 8 * 32 + warp * 8 + slot % 8
                                                        : warp * 16 + slot);
#pragma unroll
            for (int i = 0; i < S::GROUPS; i++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    to[(i * 8 + lane % 4 * 2 + j) * S::OUT_PITCH] = sum[i][2 * side + j] * factor;
        }
    }
};

template <class F, int NT>
static __global__ void __launch_bounds__(128, plec_mm_shape<F, NT>::RESIDENT)
    mm_sync(struct plec_mm_args args) {
    typedef plec_mm_shape<F, NT> S;
    PLEC_SHARED_DYNAMIC(shared);
    const unsigned stages = plec_shared_address(shared);
    const uint32_t n_steps = (args.tokens.n_cols + F::k_step - 1) / F::k_step;
    for (uint64_t at = blockIdx.x; at < plec_mm_n_works<S::ROWS>(args); at += gridDim.x) {
        struct plec_mm_work work = plec_mm_work_at<S::ROWS>(args, at, n_steps);
        plec_mm_ring<F, NT> ring;
        plec_mm_sums<F, NT> sums;
        sums.open(work.tile.n_rows);
        ring.open(args, work);
        sums.clear();
#pragma unroll
        for (int i = 0; i < S::STAGES - 1; i++) {
            ring.load_weights(stages + i * S::STAGE);
            ring.load_tokens(stages + i * S::STAGE);
        }
        unsigned from = 0, before = (S::STAGES - 1) * S::STAGE;
        if (S::REFILLS) ring.load_weights(stages + before);
        for (uint32_t step = work.first_step; step < work.end_step; step++) {
            typename plec_mm_sums<F, NT>::Operands in;
            plec_copy_async_wait<S::STAGES - 2>();
            __syncthreads(); /* this step has arrived for all; all have left the one before */
            if (!S::REFILLS) ring.load_weights(stages + before);
            ring.load_tokens(stages + before);
            in.read(shared + from);
            if (S::REFILLS) {
                __syncwarp(); /* the warp has its words */
                ring.load_weights(stages + from);
            }
            sums.add_step(in, shared + from, work.tile.n_rows);
            before = from;
            from = from == (S::STAGES - 1) * S::STAGE ? 0 : from + S::STAGE;
        }
        plec_copy_async_wait<0>();
        __syncthreads();
        work = plec_mm_work_at<S::ROWS>(args, at, n_steps); /* not kept in the loop's registers */
        sums.store((float *)shared, args, work);
        __syncthreads();
        plec_mm_finish_tile<F, NT>(args, work, (const float *)shared);
        __syncthreads();
    }
}

#endif
