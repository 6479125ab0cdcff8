/* mm_bulk_shape.cuh: a block of mm_bulk: its shared memory, and where a lane's rows lie in it. */
#ifndef PLEC_DEVICE_CUDA_MM_BULK_SHAPE_CUH
#define PLEC_DEVICE_CUDA_MM_BULK_SHAPE_CUH

#include "device/cuda/mm_weights.cuh"

template <class F, int NT> struct plec_mm_bulk_shape {
    typedef plec_planes_group<F> G;
    typedef plec_mm_shape<F, NT> Sync;
    enum {
        THREADS = 128, /* that multiply; one more warp copies */
        BLOCK_THREADS = THREADS + 32,
        ROWS = 64, /* weight rows of a block: two runs of neighbours, 32 each */
        GROUPS = NT / 8,
        HAS_SUMS = Sync::HAS_SUMS,
        BLOCK = Sync::BLOCK,
        STEP_SUMS = Sync::STEP_SUMS,
        /* a stage of tokens: as in mm_sync */
        TOKEN_PITCH = Sync::TOKEN_PITCH,
        TOKEN_THREADS = 32 / NT,
        TOKENS = 0,
        SUMS = NT * TOKEN_PITCH,
        TOKEN_STAGE = SUMS + STEP_SUMS * NT * 4,
        TOKEN_STAGES = 2, /* tokens come from the L2 cache */
        /* a stage of weights: the groups of both runs */
        RUN = 4 * G::BYTES,
        WEIGHTS = 2 * RUN,
        OUT_PITCH = Sync::OUT_PITCH,
        /* byte offsets in a block's shared memory */
        MOST_STAGES = 8,
        FULL = 0, /* a barrier a stage: has arrived */
        EMPTY = FULL + MOST_STAGES * 8,
        OUT = EMPTY + MOST_STAGES * 8, /* products */
        TOKENS_AT = OUT + NT * OUT_PITCH * 4,
        WEIGHTS_AT = TOKENS_AT + TOKEN_STAGES * TOKEN_STAGE,
        /* blocks an SM of sm_90 should hold: bounds the registers */
        RESIDENT = F::block < 32 || F::lane_words > 8 ? 3 : 4
    };
    static_assert(TOKENS_AT % 128 == 0 && WEIGHTS_AT % 16 == 0, "aligned for their copies");
};

/* Blocks that an SM holds, and stages of each. */
struct plec_mm_bulk_depth {
    uint32_t n_resident, n_stages;
};

/* As many blocks as keep 48 KB of weights in flight on an SM of so much shared memory, where each
 * block takes 1 KB more than it asks for; a stage is being read while the others are in flight. */
template <class F, int NT>
constexpr struct plec_mm_bulk_depth plec_mm_bulk_depth_of(uint32_t shared_bytes) {
    typedef plec_mm_bulk_shape<F, NT> S;
    for (uint32_t n = S::RESIDENT; n > 0; n--) {
        uint32_t most = n == 1 ? shared_bytes - PLEC_BLOCK_SHARED
                               : shared_bytes / n / 128 * 128 - PLEC_BLOCK_SHARED;
        uint32_t stages = most < S::WEIGHTS_AT ? 0 : (most - S::WEIGHTS_AT) / S::WEIGHTS;
        if (stages > S::MOST_STAGES) stages = S::MOST_STAGES;
        if (stages >= 3 && n * (stages - 1) * S::WEIGHTS >= PLEC_MM_IN_FLIGHT) return {n, stages};
    }
    return {0, 0};
}

template <class F, int NT> constexpr uint32_t plec_mm_bulk_bytes(uint32_t n_stages) {
    return plec_mm_bulk_shape<F, NT>::WEIGHTS_AT + n_stages * plec_mm_bulk_shape<F, NT>::WEIGHTS;
}

/* Where a lane finds its rows g and g + 8 in a stage of weights, and reads them: row g of a group
 * both times. A warp's two groups are neighbours, or one of each run. */
template <class F, int NT> struct plec_mm_bulk_view {
    typedef plec_mm_bulk_shape<F, NT> S;
    typedef plec_planes_group<F> G;
    typedef plec_mm_operands<F, plec_mm_shape<F, NT>> Operands;
    unsigned codes, rest, record, super; /* in the first group */
    unsigned other;                      /* from there to the second */

    __device__ __forceinline__ void open(const struct plec_mm_args &args) {
        unsigned warp = threadIdx.x / 32, g = threadIdx.x % 32 / 4, c = threadIdx.x % 4;
        bool apart = args.kind == PLEC_MM_GATE_AND_UP && !plec_mm_takes_turns(args);
        unsigned group = (apart ? warp : 2 * warp) * G::BYTES;
        codes = group + plec_planes_word<F>(g, c, 0);
        rest = group + G::REST + g * 32 + c * 8;
        record = group + G::RECORDS + g * (F::record_words * 4);
        super = group + G::SUPERS + g * 4;
        other = apart ? (unsigned)S::RUN : (unsigned)G::BYTES;
    }

    __device__ __forceinline__ void read(Operands *in, const unsigned char *stage) const {
#pragma unroll
        for (int side = 0; side < 2; side++) {
#pragma unroll
            for (int j = 0; j < (int)G::CHUNKS; j++)
                Operands::put(in->words[side] + 4 * j,
                              plec_load_16(stage + plec_planes_chunk<F>(codes, j)));
            if constexpr (F::lane_words % 4 != 0)
                Operands::put(in->words[side] + 4 * G::CHUNKS, plec_load_8(stage + rest));
            Operands::read_record(in->record[side], stage + record);
            in->super[side] = 0;
            if constexpr (F::super_words != 0) in->super[side] = *(const uint32_t *)(stage + super);
            stage += other;
        }
    }
};

#endif
