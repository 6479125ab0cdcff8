/* mm_fma.cu: the grouped product of f32 experts. Nothing is rounded in front of f32 matrices, so
 * that tensor cores would need several products a weight; FMAs do, and at decode the weights' own
 * bytes bound them: eight tokens take fifteen instructions a weight, of the 28 that memory leaves
 * time for.
 *
 * Mapping. A block is four warps and works through (tile, channels, split) by grid stride. Narrow
 * tiles: 64 weight rows, 16 a warp, all 8 tokens in each. Wide ones: 32 rows in every warp, 8 of
 * the 32 tokens in each. Of gate and up, the lower half of the rows is gate's and the upper up's,
 * of the same channels. Lane 8g + c holds rows g, g + 4, ... of its warp and columns 4c .. 4c + 3
 * of every 32; the eight lanes of a row are summed at the end, in one order for both widths.
 *
 * One step is 32 columns in a stage of shared memory: [rows][32] f32, then [tokens][32]; STAGES of
 * them in flight by cp.async. Eight lanes read one row of a stage, 128 bytes: no bank conflict. The
 * weights are read as they lie in the file, rows that are not aligned to 16 bytes by bytes.
 *
 * Bytes moved: every weight of a tile's expert once a tile, tokens once a block.
 */
#include "device/cuda/mm_finish.cuh"

template <int NT> struct plec_fma_shape {
    enum {
        THREADS = 128,
        STEP = 32,        /* columns */
        PITCH = STEP * 4, /* bytes of a row of a stage */
        ROWS = NT > 8 ? 32 : 64,
        TOKEN_WARPS = NT / 8, /* warps side by side on the tokens of a tile */
        WARP_ROWS = ROWS * TOKEN_WARPS / 4,
        LANE_ROWS = WARP_ROWS / 4,
        ROW_COPIES = ROWS / 16, /* a thread copies 16 bytes of every 16th row */
        TOKEN_COPIES = (NT + 15) / 16,
        TOKENS = ROWS * PITCH, /* where they stand in a stage */
        STAGE = TOKENS + NT * PITCH,
        STAGES = 4,
        OUT_PITCH = NT > 8 ? ROWS + 16 : ROWS + 4,
        RESIDENT = NT > 8 ? 3 : 4, /* blocks an SM should hold */
        BYTES = STAGES * STAGE
    };
    static_assert(NT * OUT_PITCH * 4 <= BYTES, "the products reuse the stages");
    static_assert(NT > 8 || 2 * (STAGES - 1) * TOKENS >= 48 * 1024,
                  "two blocks keep 48 KB of weights in flight, on any architecture");
};

struct plec_fma_args {
    struct plec_mm_args mm;
    const float *x; /* [.., pitch] */
    uint32_t pitch, n_cols;
    const uint32_t *row; /* row of a tile -> row of x; NULL: the same */
};

/* Row `slot` of a block's weights; NULL past the last channel. */
static __device__ __forceinline__ const uint8_t *plec_fma_row(const struct plec_mm_args &args,
                                                              const struct plec_mm_work &work,
                                                              uint32_t slot, uint32_t n_rows) {
    const struct plec_cuda_bank &bank = args.bank;
    bool both = args.kind == PLEC_MM_GATE_AND_UP, up = both && slot >= n_rows / 2;
    uint32_t n = args.n_channels, channel = work.first_channel + slot - (up ? n_rows / 2 : 0);
    if (channel >= n) return NULL;
    uint32_t row = !both ? channel
                   : up  ? plec_cuda_up_row(bank.fusion, n, channel)
                         : plec_cuda_gate_row(bank.fusion, n, channel);
    int id = args.kind == PLEC_MM_DOWN       ? PLEC_DOWN
             : up || args.kind == PLEC_MM_UP ? plec_cuda_up_operand(bank.fusion)
                                             : PLEC_GATE;
    const uint8_t *values = bank.table[work.tile.expert].values[id];
    return values + plec_cuda_at(row, (size_t)bank.operands[id].cols * 4);
}

/* One thread's share of the copies: sources of the next step, moved on after each. */
template <int NT> struct plec_fma_loader {
    typedef plec_fma_shape<NT> S;
    const uint8_t *weights[S::ROW_COPIES]; /* NULL: zeros */
    const float *tokens[S::TOKEN_COPIES];
    uint32_t k, k_end; /* columns: of the next step, and where the split ends */
    unsigned to;       /* the next stage to fill, from the first */
    bool whole;        /* all sixteens are aligned, and none is cut by the last column */

    __device__ __forceinline__ void open(const struct plec_fma_args &args,
                                         const struct plec_mm_work &work) {
        unsigned first = threadIdx.x / 8, chunk = threadIdx.x % 8 * 4;
        k = work.first_step * S::STEP;
        k_end = min(work.end_step * S::STEP, args.n_cols);
        to = 0;
        uintptr_t bits = (uintptr_t)args.x | ((uintptr_t)args.pitch | args.n_cols) * 4;
#pragma unroll
        for (int j = 0; j < S::ROW_COPIES; j++) {
            weights[j] = plec_fma_row(args.mm, work, first + 16 * j, S::ROWS);
            bits |= (uintptr_t)weights[j];
            if (weights[j] != NULL) weights[j] += (size_t)(k + chunk) * 4;
        }
#pragma unroll
        for (int j = 0; j < S::TOKEN_COPIES; j++) {
            uint32_t n = first + 16 * j, row = work.tile.first_row + n;
            tokens[j] = NULL;
            if (n >= work.tile.n_rows) continue;
            if (args.row != NULL) row = args.row[row];
            tokens[j] = args.x + plec_cuda_at(row, args.pitch) + k + chunk;
        }
        whole = bits % 16 == 0;
    }

    /* Starts the copies of one step; past the split's end an empty group, for the count. */
    __device__ __forceinline__ void load(unsigned char *stages) {
        unsigned first = threadIdx.x / 8, at = to + first * S::PITCH + threadIdx.x % 8 * 16;
        if (k < k_end && whole)
            copy<true>(stages + at, NT >= 16 || first < NT);
        else if (k < k_end)
            copy<false>(stages + at, NT >= 16 || first < NT);
        plec_copy_async_commit();
        k += S::STEP;
        to = to == (S::STAGES - 1) * S::STAGE ? 0 : to + S::STAGE;
    }

    template <bool sixteens>
    __device__ __forceinline__ void copy(unsigned char *out, bool has_tokens) {
        unsigned to_shared = plec_shared_address(out);
#pragma unroll
        for (int j = 0; j < S::ROW_COPIES; j++) {
            copy_one<sixteens>(out, to_shared, j * 16 * S::PITCH, weights[j]);
            if (weights[j] != NULL) weights[j] += S::PITCH;
        }
#pragma unroll
        for (int j = 0; j < S::TOKEN_COPIES; j++) {
            if (has_tokens)
                copy_one<sixteens>(out, to_shared, S::TOKENS + j * 16 * S::PITCH,
                                   (const uint8_t *)tokens[j]);
            if (tokens[j] != NULL) tokens[j] += S::STEP;
        }
    }

    /* Byte by byte the copy is none behind the thread's back: the barrier in front of the step's
     * use orders it as well. */
    template <bool sixteens>
    __device__ __forceinline__ void copy_one(unsigned char *out, unsigned to_shared, unsigned at,
                                             const uint8_t *from) const {
        uint32_t column = k + threadIdx.x % 8 * 4;
        if constexpr (sixteens) {
            plec_copy_async_16(to_shared + at, from, from != NULL && column < k_end);
        } else {
#pragma unroll 1
            for (uint32_t i = 0; i < 4; i++)
                ((uint32_t *)(out + at))[i] =
                    from != NULL && column + i < k_end ? plec_le32(from + 4 * i) : 0;
        }
    }
};

/* A lane's sums: [row][token], of its columns. */
template <int NT> struct plec_fma_sums {
    typedef plec_fma_shape<NT> S;
    enum { N = S::LANE_ROWS * 8 };
    float sum[N];

    static __device__ __forceinline__ unsigned first_row() {
        return NT > 8 ? 0 : threadIdx.x / 32 * S::WARP_ROWS;
    }
    static __device__ __forceinline__ unsigned first_token() {
        return NT > 8 ? threadIdx.x / 32 * 8 : 0;
    }
    static __device__ __forceinline__ float4 read(const unsigned char *from) {
        uint4 v = plec_load_16(from);
        return make_float4(plec_bits_f32(v.x), plec_bits_f32(v.y), plec_bits_f32(v.z),
                           plec_bits_f32(v.w));
    }

    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < N; i++)
            sum[i] = 0.0f;
    }

    /* A step whose stage has arrived. */
    __device__ __forceinline__ void add(const unsigned char *stage) {
        unsigned g = threadIdx.x % 32 / 8, c = threadIdx.x % 8;
        const unsigned char *rows = stage + (first_row() + g) * S::PITCH + c * 16;
        const unsigned char *tokens = stage + S::TOKENS + first_token() * S::PITCH + c * 16;
        float4 w[S::LANE_ROWS];
#pragma unroll
        for (int r = 0; r < S::LANE_ROWS; r++)
            w[r] = read(rows + r * 4 * S::PITCH);
#pragma unroll
        for (int t = 0; t < 8; t++) {
            float4 x = read(tokens + t * S::PITCH);
#pragma unroll
            for (int r = 0; r < S::LANE_ROWS; r++) {
                float &s = sum[r * 8 + t];
                s = __fmaf_rn(w[r].x, x.x, s);
                s = __fmaf_rn(w[r].y, x.y, s);
                s = __fmaf_rn(w[r].z, x.z, s);
                s = __fmaf_rn(w[r].w, x.w, s);
            }
        }
    }

    /* Of lanes that far apart, each keeps a half of what both have. */
    template <int apart> __device__ __forceinline__ void fold() {
        const int n = N / 8 * apart;
        bool upper = (threadIdx.x & apart) != 0;
#pragma unroll
        for (int i = 0; i < n; i++) {
            float mine = upper ? sum[i + n] : sum[i], other = upper ? sum[i] : sum[i + n];
            sum[i] = mine + __shfl_xor_sync(0xFFFFFFFFu, other, apart);
        }
    }
    /* The sums over the eight lanes of a row: each ends with an eighth of them. */
    __device__ __forceinline__ void reduce() {
        fold<4>();
        fold<2>();
        fold<1>();
    }

    /* The products into shared memory, rows side by side. */
    __device__ __forceinline__ void store(float *out) const {
        unsigned g = threadIdx.x % 32 / 8, c = threadIdx.x % 8;
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            unsigned at = c * (N / 8) + i, r = at / 8, t = at % 8;
            out[(first_token() + t) * S::OUT_PITCH + first_row() + g + 4 * r] = sum[i];
        }
    }
};

/* The one format; named for the launch table and the list of kernels. */
struct plec_fma_f32 {};

template <class F, int NT>
static __global__ void __launch_bounds__(128, plec_fma_shape<NT>::RESIDENT)
    mm_fma(struct plec_fma_args args) {
    typedef plec_fma_shape<NT> S;
    PLEC_SHARED_DYNAMIC(shared);
    bool both = args.mm.kind == PLEC_MM_GATE_AND_UP;
    uint32_t channels = both ? S::ROWS / 2 : S::ROWS, n_channels = args.mm.n_channels;
    uint32_t n_steps = (args.n_cols + S::STEP - 1) / S::STEP;
    uint64_t total = (uint64_t)*args.mm.rows.n_tiles * ((n_channels + channels - 1) / channels) *
                     args.mm.n_splits;
    for (uint64_t at = blockIdx.x; at < total; at += gridDim.x) {
        struct plec_mm_work work = plec_mm_work_at<S::ROWS>(args.mm, at, n_steps);
        plec_fma_loader<NT> loader;
        plec_fma_sums<NT> sums;
        loader.open(args, work);
        sums.clear();
#pragma unroll 1
        for (int i = 0; i < S::STAGES - 1; i++)
            loader.load(shared);
        unsigned from = 0;
        for (uint32_t step = work.first_step; step < work.end_step; step++) {
            plec_copy_async_wait<S::STAGES - 2>();
            __syncthreads(); /* this step has arrived for all; all have left the one before */
            loader.load(shared);
            if (sums.first_token() < work.tile.n_rows) sums.add(shared + from);
            from = from == (S::STAGES - 1) * S::STAGE ? 0 : from + S::STAGE;
        }
        plec_copy_async_wait<0>();
        sums.reduce();
        __syncthreads();
        sums.store((float *)shared);
        __syncthreads();
        plec_mm_finish_products<S>(args.mm, work, (const float *)shared);
        __syncthreads();
    }
}

template <int NT> static int fma_launch(const struct plec_fma_args *args, cudaStream_t stream) {
    typedef plec_fma_shape<NT> S;
    const struct plec_mm_args *mm = &args->mm;
    uint32_t channels = mm->kind == PLEC_MM_GATE_AND_UP ? S::ROWS / 2 : S::ROWS;
    uint64_t n =
        (uint64_t)mm->rows.max_tiles * ((mm->n_channels + channels - 1) / channels) * mm->n_splits;
    if (n > mm->rows.n_blocks) n = mm->rows.n_blocks;
    return (int)PLEC_LAUNCH((mm_fma<plec_fma_f32, NT>), dim3((unsigned)(n < 1 ? 1 : n)),
                            dim3(S::THREADS), S::BYTES, stream, *args);
}

enum { FMA_NARROW = 8, FMA_WIDE = 32 };

static int fma_launch_tiles(const struct plec_fma_args *args, cudaStream_t stream) {
    return args->mm.rows.width == FMA_NARROW ? fma_launch<FMA_NARROW>(args, stream)
                                             : fma_launch<FMA_WIDE>(args, stream);
}

static int fma_gate_up(const struct plec_cuda_gate_up_args *args, cudaStream_t stream) {
    struct plec_fma_args fma = {};
    struct plec_mm_args *mm = &fma.mm;
    mm->bank = args->bank, mm->rows = args->rows, mm->kind = plec_mm_kind_of(args);
    mm->n_channels = args->bank.intermediate_dim, mm->n_splits = 1;
    mm->input_weights = args->input_weights, mm->token_scale = args->token_scale;
    mm->gate_product = args->gate_product;
    mm->act = args->act, mm->act_f32 = args->act_f32, mm->act_cols = args->act_cols;
    fma.x = args->x, fma.pitch = fma.n_cols = args->bank.input_dim;
    fma.row = args->rows.row_token;
    return fma_launch_tiles(&fma, stream);
}

static int fma_down(const struct plec_cuda_down_args *args, cudaStream_t stream) {
    struct plec_fma_args fma = {};
    struct plec_mm_args *mm = &fma.mm;
    mm->bank = args->bank, mm->rows = args->rows, mm->kind = PLEC_MM_DOWN;
    mm->n_channels = args->bank.output_dim, mm->n_splits = args->n_splits;
    mm->out = args->out;
    fma.x = (const float *)args->act; /* f32: what is in front of an f32 down is not rounded */
    fma.pitch = args->act_cols, fma.n_cols = args->bank.intermediate_dim;
    return fma_launch_tiles(&fma, stream);
}

/* Splits of down: enough blocks for a few experts to fill a large device, of at least 512 columns
 * each. Of the shape alone. */
static uint32_t fma_down_splits(uint32_t rows, uint32_t cols) {
    uint32_t n_blocks = rows / 64 + (rows % 64 != 0), splits = 1;
    while (splits < 8 && n_blocks * splits < 66 && cols / (2 * splits) >= 512)
        splits *= 2;
    return splits;
}

extern "C" const struct plec_cuda_gemm plec_cuda_mm_fma_f32 = {"mm_fma",
                                                               PLEC_FORMAT_F32,
                                                               PLEC_CUDA_MM_FMA,
                                                               80,
                                                               0,
                                                               false,
                                                               PLEC_CUDA_ORDER_FMA,
                                                               {FMA_NARROW, FMA_WIDE, FMA_WIDE},
                                                               fma_gate_up,
                                                               fma_down,
                                                               NULL,
                                                               NULL,
                                                               fma_down_splits,
                                                               NULL,
                                                               NULL,
                                                               {plec_fma_shape<FMA_NARROW>::BYTES,
                                                                plec_fma_shape<FMA_WIDE>::BYTES,
                                                                plec_fma_shape<FMA_WIDE>::BYTES}};
