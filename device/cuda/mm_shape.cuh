/* mm_shape.cuh: a block of mm_sync: how its stages lie in shared memory, and which rows it works
 * on. What mm_wg has in common with it as well. */
#ifndef PLEC_DEVICE_CUDA_MM_SHAPE_CUH
#define PLEC_DEVICE_CUDA_MM_SHAPE_CUH

#include "device/cuda/maths.cuh"
#include "device/cuda/mm_args.h"
#include "device/cuda/planes.cuh"
#include "device/cuda/ptx.cuh"

/* The weights of one step and N_ROWS rows in shared memory. */
template <class F, int N_ROWS> struct plec_mm_weight_shape {
    enum {
        ROWS = N_ROWS,
        CHUNKS = F::lane_words / 4,
        REST = F::lane_words % 4, /* 0 or 2 words */
        CHUNK_COLS = F::k_step / CHUNKS,
        RECORD = F::record_words * 4,
        /* byte offsets; codes come first */
        RECORDS = ROWS * F::lane_words * 16,
        SUPERS = RECORDS + ROWS * RECORD,
        WEIGHTS = SUPERS + ROWS * F::super_words * 4
    };
};

template <class F, int NT> struct plec_mm_shape : plec_mm_weight_shape<F, 64> {
    typedef plec_mm_weight_shape<F, 64> W; /* 4 slabs of weight rows */
    enum {
        THREADS = 128,
        GROUPS = NT / 8, /* MMAs wide */
        HAS_SUMS = F::offset != 0 || F::has_minimum,
        BLOCK = F::block < 32 ? 16 : 32,
        STEP_SUMS = HAS_SUMS ? F::k_step / BLOCK : 0,
        /* The halves of every 128 bytes of odd rows of tokens are exchanged, so that the two rows
         * that eight lanes read together lie in different banks. */
        TOKEN_PITCH = F::k_step * 2,
        TOKEN_THREADS = THREADS / NT, /* threads that copy one token */
        /* byte offsets in a stage; weights come first */
        TOKENS = W::WEIGHTS,
        SUMS = TOKENS + NT * TOKEN_PITCH,
        STAGE = SUMS + STEP_SUMS * NT * 4,
        /* Weights are what is in flight: small steps need more of them under way. Wide tiles have
         * long stages, and must fit where a block has 99 KB. */
        WIDE_STAGES = 3 * STAGE <= 99 * 1024 ? 3 : 2,
        NARROW_STAGES = W::WEIGHTS < 6000    ? 5
                        : W::WEIGHTS < 8000  ? 4
                        : W::WEIGHTS < 13000 ? 3
                                             : 2,
        STAGES = NT > 8 ? WIDE_STAGES : NARROW_STAGES,
        REFILLS = NT <= 8, /* a stage's weights are replaced as soon as they are read */
        OUT_PITCH = 68,
        /* blocks an SM should hold: bounds the registers, of which scales of 16 columns and long
         * codes need more */
        NARROW_RESIDENT = F::block < 32 || F::lane_words > 8 ? 3 : 4,
        RESIDENT = NT > 8 ? 2 : NARROW_RESIDENT,
        BYTES = STAGES * STAGE
    };
    static_assert(NT * OUT_PITCH * 4 <= BYTES, "the products reuse the stages");
    static_assert(STAGE % 16 == 0, "stages are aligned for 16-byte copies");
    static_assert(BYTES <= 99 * 1024, "a block runs on every architecture");
};

/* Shared memory of an SM, by architecture; a block takes 1 KB more than it asks for. */
enum {
    PLEC_SM80_SHARED = 164 * 1024,
    PLEC_SM89_SHARED = 100 * 1024,
    PLEC_SM90_SHARED = 228 * 1024, /* sm_100 as well */
    PLEC_SM120_SHARED = 100 * 1024,
    PLEC_BLOCK_SHARED = 1024
};

/* What decode keeps in flight on an SM, on each architecture. */
enum { PLEC_MM_IN_FLIGHT = 48 * 1024 };

/* Bytes of weights that the blocks on an SM of so much shared memory have in flight: each of the
 * stages but for the moment in which its words are read. S::RESIDENT blocks have the registers. */
template <class S> constexpr uint32_t plec_mm_in_flight(uint32_t shared_bytes) {
    uint32_t fit = shared_bytes / ((uint32_t)S::BYTES + PLEC_BLOCK_SHARED);
    return (fit < (uint32_t)S::RESIDENT ? fit : (uint32_t)S::RESIDENT) * S::STAGES * S::WEIGHTS;
}

/* What a block works on. */
struct plec_mm_work {
    struct plec_cuda_tile tile;
    uint32_t first_channel, split;
    uint32_t first_step, end_step; /* of the split */
};

template <int ROWS>
static __device__ __forceinline__ struct plec_mm_work
plec_mm_work_at(const struct plec_mm_args &args, uint64_t at, uint32_t n_steps) {
    struct plec_mm_work work;
    uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? ROWS / 2 : ROWS;
    uint32_t n_blocks = (args.n_channels + channels - 1) / channels;
    work.split = (uint32_t)(at % args.n_splits);
    at /= args.n_splits;
    work.first_channel = (uint32_t)(at % n_blocks) * channels;
    work.tile = args.rows.tiles[at / n_blocks];
    work.first_step = (uint32_t)((uint64_t)n_steps * work.split / args.n_splits);
    work.end_step = (uint32_t)((uint64_t)n_steps * (work.split + 1) / args.n_splits);
    return work;
}

/* How much there is to work on. Asked anew each time: a count kept takes two of the main loop's
 * registers. */
template <int ROWS>
static __device__ __forceinline__ uint64_t plec_mm_n_works(const struct plec_mm_args &args) {
    uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? ROWS / 2 : ROWS;
    uint64_t n_blocks = (args.n_channels + channels - 1) / channels;
    return *args.rows.n_tiles * n_blocks * args.n_splits;
}

/* The planes of the matrix that a row is in. */
static __device__ __forceinline__ const uint8_t *plec_mm_planes_of(const struct plec_mm_args &args,
                                                                   uint32_t expert, bool of_up) {
    int32_t id = of_up ? args.weights.operands[1] : args.weights.operands[0];
    return args.bank.table[expert].values[id];
}

/* Where one weight row lies. */
struct plec_mm_row {
    const uint8_t *planes;
    uint32_t row, channel;
    bool there;
};

/* Row `slot` (0..15) of a warp's slab. */
static __device__ __forceinline__ struct plec_mm_row
plec_mm_row_of(const struct plec_mm_args &args, const struct plec_mm_work &work, uint32_t slot) {
    struct plec_mm_row out;
    uint32_t warp = threadIdx.x / 32, n = args.n_channels;
    bool both = args.kind == PLEC_MM_GATE_AND_UP, up = both && slot >= 8;
    out.channel = work.first_channel + (both ? warp * 8 + slot % 8 : warp * 16 + slot);
    out.there = out.channel < n;
    uint32_t channel = out.there ? out.channel : 0;
    out.row = !both ? channel
              : up  ? plec_cuda_up_row(args.bank.fusion, n, channel)
                    : plec_cuda_gate_row(args.bank.fusion, n, channel);
    out.planes = plec_mm_planes_of(args, work.tile.expert, up);
    return out;
}

/* One of the two runs of a block's weight rows, HALF each: rows `first` to first + n_rows - 1 of a
 * matrix. */
struct plec_mm_run {
    uint32_t first, n_rows;
    bool of_up; /* in up's matrix, where gate and up are two */
};

template <int HALF>
static __device__ __forceinline__ struct plec_mm_run
plec_mm_run_of(const struct plec_mm_args &args, const struct plec_mm_work &work, uint32_t i) {
    uint32_t n = args.n_channels, channel = work.first_channel;
    if (args.kind == PLEC_MM_GATE_AND_UP && args.bank.fusion != PLEC_FUSED_INTERLEAVED) {
        uint32_t first = i == 0 ? plec_cuda_gate_row(args.bank.fusion, n, channel)
                                : plec_cuda_up_row(args.bank.fusion, n, channel);
        return {first, min((uint32_t)HALF, n - channel), i == 1};
    }
    bool both = args.kind == PLEC_MM_GATE_AND_UP; /* gate and up row by row */
    uint32_t first = (both ? 2 * channel : channel) + HALF * i, all = both ? 2 * n : n;
    return {first, first < all ? min((uint32_t)HALF, all - first) : 0, false};
}

/* Whether gate and up rows take turns: then row 2 i + j of a warp's 16 is gate's or up's of its
 * channel i. */
static __device__ __forceinline__ bool plec_mm_takes_turns(const struct plec_mm_args &args) {
    return args.kind == PLEC_MM_GATE_AND_UP && args.bank.fusion == PLEC_FUSED_INTERLEAVED;
}

#endif
