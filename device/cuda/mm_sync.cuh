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
 *   tokens   [NT][k_step] bf16, rows 64 bytes more than a multiple of 128 apart: eight lanes read
 *            two rows in different banks
 *   sums     [k_step / block][NT] f32
 * Afterwards the same memory holds the tile's products as [NT][68] f32, and each thread finishes
 * outputs of neighbouring channels.
 *
 * Bytes moved: every code and scale of the tile's experts once a tile, tokens once a block.
 */
#ifndef PLEC_DEVICE_CUDA_MM_SYNC_CUH
#define PLEC_DEVICE_CUDA_MM_SYNC_CUH

#include "device/cuda/maths.cuh"
#include "device/cuda/mm_args.h"
#include "device/cuda/planes.cuh"
#include "device/cuda/ptx.cuh"

template <class F, int NT> struct plec_mm_shape {
    enum {
        THREADS = 128,
        ROWS = 64, /* weight rows of a block: 4 slabs */
        STAGES = 3,
        GROUPS = NT / 8, /* MMAs wide */
        CHUNKS = F::lane_words / 4,
        REST = F::lane_words % 4, /* 0 or 2 words */
        CHUNK_COLS = F::k_step / CHUNKS,
        RECORD = F::record_words * 4,
        HAS_SUMS = F::offset != 0 || F::has_minimum,
        BLOCK = F::block < 32 ? 16 : 32,
        STEP_SUMS = HAS_SUMS ? F::k_step / BLOCK : 0,
        TOKEN_PITCH = F::k_step * 2 + 64,
        TOKEN_THREADS = THREADS / NT, /* threads that copy one token */
        /* byte offsets in a stage */
        RECORDS = ROWS * F::lane_words * 16,
        SUPERS = RECORDS + ROWS * RECORD,
        TOKENS = SUPERS + ROWS * F::super_words * 4,
        SUMS = TOKENS + NT * TOKEN_PITCH,
        STAGE = SUMS + STEP_SUMS * NT * 4,
        OUT_PITCH = 68,
        /* blocks an SM should hold: bounds the registers; blocks of 16 keep more scales in them */
        RESIDENT = NT > 8          ? 2
                   : F::block < 32 ? 3
                                   : 4,
        BYTES = STAGES * STAGE
    };
    static_assert(NT * OUT_PITCH * 4 <= BYTES, "the products reuse the stages");
    static_assert(STAGE % 16 == 0, "stages are aligned for 16-byte copies");
};

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
    out.planes =
        args.weights.planes + args.weights.slots[work.tile.expert] * args.weights.slot_bytes;
    if (up && args.weights.n_matrices == 2) out.planes += args.weights.matrix_bytes;
    return out;
}

/* One thread's part of filling stages: sources of the next step, moved on after each. */
template <class F, int NT> struct plec_mm_loader {
    typedef plec_mm_shape<F, NT> S;
    const uint8_t *codes[2];
    const uint8_t *scales; /* lanes 0-15: a record, lanes 16-31: a super */
    uint64_t codes_step, scales_step;
    const uint16_t *token;
    const float *sums;
    uint32_t k, k_end; /* columns: of the next step, and where the split ends */
    unsigned to;       /* the next stage */
    unsigned codes_to, scales_to, token_to, sums_to;
    bool codes_there[2], scales_there, token_there;

    static __device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }

    __device__ __forceinline__ void open(const struct plec_mm_args &args,
                                         const struct plec_mm_work &work, unsigned stages) {
        open_weights(args, work);
        open_tokens(args, work);
        k = work.first_step * F::k_step;
        k_end = min(work.end_step * F::k_step, args.tokens.pitch);
        to = stages;
    }

    __device__ __forceinline__ void open_weights(const struct plec_mm_args &args,
                                                 const struct plec_mm_work &work) {
        plec_planes planes = plec_planes_of<F>(args.weights.rows, args.weights.cols);
        unsigned warp = threadIdx.x / 32, g = lane() / 4, c = lane() % 4;
        uint64_t cells = (uint64_t)work.first_step * planes.rows;
        codes_step = (uint64_t)planes.rows * (F::lane_words * 16);
#pragma unroll
        for (int side = 0; side < 2; side++) {
            struct plec_mm_row row = plec_mm_row_of(args, work, g + 8 * side);
            codes[side] = row.planes + (cells + row.row) * (F::lane_words * 16) + c * 16;
            codes_there[side] = row.there;
        }
        codes_to = warp * (16 * F::lane_words * 16) + lane() * 16;
        if constexpr (F::record_words == 0) return;
        struct plec_mm_row row = plec_mm_row_of(args, work, lane() % 16);
        bool super = F::super_words != 0 && lane() >= 16;
        unsigned size = super ? 4u : (unsigned)S::RECORD;
        scales_there = row.there && (super || lane() < 16);
        scales = row.planes + (super ? planes.supers : planes.records) + (cells + row.row) * size;
        scales_step = (uint64_t)planes.rows * size;
        scales_to = (super ? S::SUPERS : S::RECORDS) + (warp * 16 + lane() % 16) * size;
    }

    __device__ __forceinline__ void open_tokens(const struct plec_mm_args &args,
                                                const struct plec_mm_work &work) {
        const struct plec_mm_tokens &tokens = args.tokens;
        unsigned n = threadIdx.x / S::TOKEN_THREADS, first = threadIdx.x % S::TOKEN_THREADS;
        token_there = n < work.tile.n_rows;
        uint32_t row = work.tile.first_row + (token_there ? n : 0);
        if (tokens.row != NULL) row = tokens.row[row];
        uint32_t column = work.first_step * F::k_step;
        token = tokens.x + plec_cuda_at(row, tokens.pitch) + column + first * 8;
        token_to = S::TOKENS + n * S::TOKEN_PITCH + first * 16;
        if constexpr (!S::HAS_SUMS) return;
        sums = tokens.sums + plec_cuda_at(row, tokens.pitch / S::BLOCK) + column / S::BLOCK + first;
        sums_to = S::SUMS + (first * NT + n) * 4;
    }

    /* Starts the copies of one step; past the split's end an empty group, for the count. */
    __device__ __forceinline__ void load(unsigned stages) {
        if (k < k_end) {
            load_codes();
            if constexpr (F::record_words != 0) load_scales();
            load_tokens();
            k += F::k_step;
        }
        plec_copy_async_commit();
        to = to == stages + (S::STAGES - 1) * S::STAGE ? stages : to + S::STAGE;
    }

    __device__ __forceinline__ void load_codes() {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            unsigned at = to + codes_to + side * (8 * F::lane_words * 16);
#pragma unroll
            for (int j = 0; j < S::CHUNKS; j++)
                plec_copy_async_16(at + j * 512, codes[side] + j * 64,
                                   codes_there[side] && k + j * S::CHUNK_COLS < k_end);
            if constexpr (S::REST != 0)
                plec_copy_async_8(at - lane() * 8 + S::CHUNKS * 512,
                                  codes[side] + S::CHUNKS * 64 - lane() % 4 * 8, codes_there[side]);
            codes[side] += codes_step;
        }
    }

    __device__ __forceinline__ void load_scales() {
        unsigned at = to + scales_to;
        bool super = F::super_words != 0 && lane() >= 16;
        if (super) {
            plec_copy_async_4(at, scales, scales_there);
        } else if (lane() < 16) {
            if constexpr (S::RECORD >= 16) plec_copy_async_16(at, scales, scales_there);
            if constexpr (S::RECORD == 32) plec_copy_async_16(at + 16, scales + 16, scales_there);
            if constexpr (S::RECORD == 8) plec_copy_async_8(at, scales, scales_there);
            if constexpr (S::RECORD == 4) plec_copy_async_4(at, scales, scales_there);
        }
        scales += scales_step;
    }

    __device__ __forceinline__ void load_tokens() {
        unsigned first = threadIdx.x % S::TOKEN_THREADS;
#pragma unroll
        for (int q = 0; q < F::k_step / 8; q += S::TOKEN_THREADS)
            if (F::k_step / 8 >= S::TOKEN_THREADS || first < F::k_step / 8)
                plec_copy_async_16(to + token_to + q * 16, token + q * 8,
                                   token_there && k + (q + first) * 8 < k_end);
        token += F::k_step;
        if constexpr (S::HAS_SUMS) load_sums();
    }

    __device__ __forceinline__ void load_sums() {
        unsigned first = threadIdx.x % S::TOKEN_THREADS;
#pragma unroll
        for (int s = 0; s < S::STEP_SUMS; s += S::TOKEN_THREADS)
            if (S::STEP_SUMS >= S::TOKEN_THREADS || first < S::STEP_SUMS)
                plec_copy_async_4(to + sums_to + s * NT * 4, sums + s,
                                  token_there && k + (s + first) * S::BLOCK < k_end);
        sums += S::STEP_SUMS;
    }
};

/* One lane's words and scales of one step, rows g and g + 8. */
template <class F, int NT> struct plec_mm_operands {
    typedef plec_mm_shape<F, NT> S;
    uint32_t words[2][F::lane_words], record[2][F::record_words + 1], super[2];

    __device__ __forceinline__ void read(const unsigned char *stage) {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            const unsigned char *codes = stage + (warp * 16 + side * 8) * (F::lane_words * 16);
#pragma unroll
            for (int j = 0; j < S::CHUNKS; j++)
                put(words[side] + 4 * j, plec_load_16(codes + j * 512 + lane * 16));
            if constexpr (S::REST != 0)
                put(words[side] + 4 * S::CHUNKS, plec_load_8(codes + S::CHUNKS * 512 + lane * 8));
            unsigned row = warp * 16 + side * 8 + g;
            read_record(record[side], stage + S::RECORDS + row * S::RECORD);
            super[side] = 0;
            if constexpr (F::super_words != 0)
                super[side] = *(const uint32_t *)(stage + S::SUPERS + row * 4);
        }
    }

    static __device__ __forceinline__ void read_record(uint32_t *record,
                                                       const unsigned char *from) {
        if constexpr (S::RECORD >= 16) put(record, plec_load_16(from));
        if constexpr (S::RECORD == 32) put(record + 4, plec_load_16(from + 16));
        if constexpr (S::RECORD == 8) put(record, plec_load_8(from));
        if constexpr (S::RECORD == 4) record[0] = *(const uint32_t *)from;
    }
    static __device__ __forceinline__ void put(uint32_t *to, uint4 v) {
        to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
    }
    static __device__ __forceinline__ void put(uint32_t *to, uint2 v) {
        to[0] = v.x, to[1] = v.y;
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

/* The sums of a warp's slab. */
template <class F, int NT> struct plec_mm_sums {
    typedef plec_mm_shape<F, NT> S;
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

    /* A step whose stage has arrived. n_rows: of the tile. */
    __device__ __forceinline__ void add(const unsigned char *stage, uint32_t n_rows) {
        plec_mm_operands<F, NT> in;
        in.read(stage);
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
        return plec_load_16(stage + S::TOKENS + (lane / 4 + i * 8) * S::TOKEN_PITCH + b * 64 +
                            lane % 4 * 16);
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
    __device__ __forceinline__ void add_plain(const plec_mm_operands<F, NT> &in,
                                              const uint32_t a[2][4], const unsigned char *stage,
                                              int b, uint32_t n_rows) {
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
                                                     const plec_mm_operands<F, NT> &in, int s) {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            scales[side] = F::scale(in.record[side], in.super[side], s);
            minima[side] = F::has_minimum ? F::minimum(in.record[side], in.super[side], s) : 0.0f;
        }
    }

    __device__ __forceinline__ void add_scaled(const plec_mm_operands<F, NT> &in,
                                               const uint32_t a[2][4], const unsigned char *stage,
                                               int b, uint32_t n_rows) {
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
    __device__ __forceinline__ void add_halves(const plec_mm_operands<F, NT> &in,
                                               const uint32_t a[2][4], const unsigned char *stage,
                                               int b, uint32_t n_rows) {
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

    /* The products into shared memory, each row times its factor. */
    __device__ __forceinline__ void store(float *out, const struct plec_mm_args &args,
                                          const struct plec_mm_work &work) const {
        unsigned lane = threadIdx.x % 32, warp = threadIdx.x / 32;
        plec_planes planes = plec_planes_of<F>(args.weights.rows, args.weights.cols);
#pragma unroll
        for (int side = 0; side < 2; side++) {
            struct plec_mm_row row = plec_mm_row_of(args, work, lane / 4 + 8 * side);
            float factor = ((const float *)(row.planes + planes.factors))[row.row];
            float *to = out + warp * 16 + side * 8 + lane / 4;
#pragma unroll
            for (int i = 0; i < S::GROUPS; i++)
#pragma unroll
                for (int j = 0; j < 2; j++)
                    to[(i * 8 + lane % 4 * 2 + j) * S::OUT_PITCH] = sum[i][2 * side + j] * factor;
        }
    }
};

/* ---- outputs ----------------------------------------------------------------------------------*/

static __device__ __forceinline__ float plec_mm_input_weight(const struct plec_mm_args &args,
                                                             uint32_t row) {
    float weight = args.input_weights != NULL ? args.input_weights[args.rows.row_pair[row]] : 1.0f;
    return args.token_scale != NULL ? weight * args.token_scale[args.rows.row_token[row]] : weight;
}

static __device__ __forceinline__ void
plec_mm_store_act(const struct plec_mm_args &args, uint32_t row, uint32_t channel, float value) {
    size_t at = plec_cuda_at(row, args.act_cols) + channel;
    if (args.act_f32)
        ((float *)args.act)[at] = value;
    else
        ((uint16_t *)args.act)[at] = plec_f32_bf16(value);
}

/* One output; products: of gate and up, or of the one matrix. */
static __device__ __forceinline__ void plec_mm_finish(const struct plec_mm_args &args,
                                                      const struct plec_mm_work &work, uint32_t row,
                                                      uint32_t channel, float first, float second) {
    const struct plec_cuda_bank &bank = args.bank;
    const struct plec_cuda_entry &entry = bank.table[work.tile.expert];
    if (args.kind == PLEC_MM_DOWN) {
        args.out[plec_cuda_at(row, args.n_channels) +
                 (size_t)work.split * args.rows.n_pairs * args.n_channels + channel] =
            plec_cuda_finish_down(bank, entry, work.split, channel, first);
        return;
    }
    float weight = plec_mm_input_weight(args, row), gate = 0.0f;
    float *product = args.gate_product + plec_cuda_at(row, args.n_channels) + channel;
    bool both = args.kind == PLEC_MM_GATE_AND_UP, has_gate = bank.operands[PLEC_GATE].rows != 0;
    if (both || args.kind == PLEC_MM_GATE) {
        uint32_t at = plec_cuda_gate_row(bank.fusion, args.n_channels, channel);
        gate =
            plec_cuda_finish_product(bank, entry, PLEC_GATE, at, entry.gate_scale, first * weight);
        if (!both) {
            *product = gate;
            return;
        }
    } else if (has_gate) {
        gate = *product;
    }
    uint32_t at = plec_cuda_up_row(bank.fusion, args.n_channels, channel);
    float up = plec_cuda_finish_product(bank, entry, plec_cuda_up_operand(bank.fusion), at,
                                        entry.up_scale, (both ? second : first) * weight);
    plec_mm_store_act(args, row, channel, plec_cuda_combine(bank.maths, has_gate, gate, up));
}

template <class F, int NT>
static __device__ __forceinline__ void plec_mm_finish_tile(const struct plec_mm_args &args,
                                                           const struct plec_mm_work &work,
                                                           const float *out) {
    typedef plec_mm_shape<F, NT> S;
    bool both = args.kind == PLEC_MM_GATE_AND_UP;
    uint32_t channels = both ? S::ROWS / 2 : S::ROWS;
#pragma unroll 1
    for (uint32_t i = threadIdx.x; i < work.tile.n_rows * channels; i += S::THREADS) {
        uint32_t n = i / channels, at = i % channels, channel = work.first_channel + at;
        if (channel >= args.n_channels) continue;
        const float *products = out + n * S::OUT_PITCH + (both ? at / 8 * 16 + at % 8 : at);
        plec_mm_finish(args, work, work.tile.first_row + n, channel, products[0],
                       both ? products[8] : 0.0f);
    }
}

template <class F, int NT>
static __global__ void __launch_bounds__(128, plec_mm_shape<F, NT>::RESIDENT)
    mm_sync(struct plec_mm_args args) {
    typedef plec_mm_shape<F, NT> S;
    PLEC_SHARED_DYNAMIC(shared);
    const unsigned stages = plec_shared_address(shared);
    uint32_t channels = args.kind == PLEC_MM_GATE_AND_UP ? S::ROWS / 2 : S::ROWS;
    uint32_t n_steps = (args.tokens.n_cols + F::k_step - 1) / F::k_step;
    uint64_t total = (uint64_t)*args.rows.n_tiles * ((args.n_channels + channels - 1) / channels) *
                     args.n_splits;
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_mm_work work = plec_mm_work_at<S::ROWS>(args, at, n_steps);
        plec_mm_loader<F, NT> loader;
        plec_mm_sums<F, NT> sums;
        sums.open(work.tile.n_rows);
        loader.open(args, work, stages);
        sums.clear();
#pragma unroll
        for (int i = 0; i < S::STAGES - 1; i++)
            loader.load(stages);
        unsigned from = 0;
        for (uint32_t step = work.first_step; step < work.end_step; step++) {
            plec_copy_async_wait<S::STAGES - 2>();
            __syncthreads(); /* this step has arrived for all; all have left the one before */
            loader.load(stages);
            sums.add(shared + from, work.tile.n_rows);
            from = from == (S::STAGES - 1) * S::STAGE ? 0 : from + S::STAGE;
        }
        plec_copy_async_wait<0>();
        __syncthreads();
        sums.store((float *)shared, args, work);
        __syncthreads();
        plec_mm_finish_tile<F, NT>(args, work, (const float *)shared);
        __syncthreads();
    }
}

#endif
