/* mm_wg_shape.cuh: a block of mm_wg: how its stages lie in shared memory, and in which order blocks
 * take their work. */
#ifndef PLEC_DEVICE_CUDA_MM_WG_SHAPE_CUH
#define PLEC_DEVICE_CUDA_MM_WG_SHAPE_CUH

#include "device/cuda/mm_shape.cuh"
#include "device/cuda/mm_wg_rule.cuh"

enum { PLEC_WG_ROWS = 128, PLEC_WG_WIDTH = 128 };

template <class F> struct plec_wg_shape : plec_mm_weight_shape<F, PLEC_WG_ROWS> {
    typedef plec_mm_weight_shape<F, PLEC_WG_ROWS> W;
    enum {
        THREADS = 256, /* two warpgroups, 64 weight rows each */
        COPIERS = THREADS,
        COLS = 64, /* of a part: 128 bytes a token, what a swizzled row holds */
        PARTS = F::k_step / COLS,
        AHEAD = 4, /* parts under way */
        STAGES = AHEAD + 2,
        BLOCK = F::block < 32 ? 16 : 32,
        STEP_SUMS = F::has_minimum ? F::k_step / BLOCK : 0,
        /* A step's weights come with its first part, and are read there; sums until its last. */
        READ_FOR = STEP_SUMS != 0 ? PARTS : 1,
        WEIGHT_STAGES = (AHEAD + 1 + READ_FOR + PARTS - 1) / PARTS,
        SUM_PITCH = PLEC_WG_WIDTH + 4, /* writes of eight sums a token meet no bank twice */
        TOKENS = PLEC_WG_WIDTH * COLS * 2,
        /* byte offsets in a weight stage: codes, records and supers, then sums */
        SUMS = W::WEIGHTS,
        WEIGHT_STAGE = SUMS + STEP_SUMS * SUM_PITCH * 4,
        /* byte offsets in the block: stages of tokens come first */
        WEIGHTS_AT = STAGES * TOKENS,
        BARRIERS = WEIGHTS_AT + WEIGHT_STAGES * WEIGHT_STAGE,
        BYTES = BARRIERS + STAGES * 8,
        OUT_PITCH = PLEC_WG_ROWS + 4
    };
    static_assert(PLEC_WG_WIDTH * OUT_PITCH * 4 <= BARRIERS, "the products reuse the stages");
    static_assert(WEIGHT_STAGE % 16 == 0, "stages are aligned for 16-byte copies");
    static_assert(BYTES <= 227 * 1024, "a block has this much on sm_90");
};

#ifdef PLEC_HAS_SM90A
/* What plec_wg_width calls its function with. */
template <int N> struct plec_wg_columns {
    enum { value = N };
};

/* Calls run with the narrowest product that has a column for each of n_rows (1 to 128) tokens. */
template <class Run>
static __device__ __forceinline__ void plec_wg_width(uint32_t n_rows, Run run) {
    switch ((n_rows + 7) / 8) {
    case 1: run(plec_wg_columns<8>()); break;
    case 2: run(plec_wg_columns<16>()); break;
    case 3: run(plec_wg_columns<24>()); break;
    case 4: run(plec_wg_columns<32>()); break;
    case 5: run(plec_wg_columns<40>()); break;
    case 6: run(plec_wg_columns<48>()); break;
    case 7: run(plec_wg_columns<56>()); break;
    case 8: run(plec_wg_columns<64>()); break;
    case 9: run(plec_wg_columns<72>()); break;
    case 10: run(plec_wg_columns<80>()); break;
    case 11: run(plec_wg_columns<88>()); break;
    case 12: run(plec_wg_columns<96>()); break;
    case 13: run(plec_wg_columns<104>()); break;
    case 14: run(plec_wg_columns<112>()); break;
    case 15: run(plec_wg_columns<120>()); break;
    default: run(plec_wg_columns<128>());
    }
}
#endif

/* Work `at` of a launch, in blocks of ROWS weight rows: up to eight tiles in turn run through the
 * same weights, so that blocks beside each other find them, and their tokens, in L2. */
template <int ROWS>
static __device__ __forceinline__ struct plec_mm_work
plec_wg_work_at(const struct plec_mm_args &args, uint64_t at, uint32_t n_steps) {
    const uint32_t group = 8;
    uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? ROWS / 2 : ROWS;
    uint64_t per_tile = (uint64_t)((args.n_channels + channels - 1) / channels) * args.n_splits;
    uint32_t first = (uint32_t)(at / (group * per_tile)) * group;
    uint32_t n_tiles = min(group, *args.rows.n_tiles - first);
    uint64_t rest = at % (group * per_tile);
    return plec_mm_work_at<ROWS>(args, (first + rest % n_tiles) * per_tile + rest / n_tiles,
                                 n_steps);
}

#endif
