/* plan.cu: sorts pairs by expert and cuts the rows into tiles, all on the device.
 *
 *   histogram -> first row of each expert -> tile counts of each list -> tile lists -> stable rows
 *
 * Mapping: blocks of 512 threads. Up to PLAN_PAIRS pairs: one block does it all, in one launch.
 * More: three launches, of a block every BLOCK_PAIRS pairs that counts them, of one block that
 * makes offsets and tiles of the counts, and of the same blocks again that place their pairs.
 * Experts are looped over 512 at a time, pairs 512 at a time in order, so that a row's place is its
 * rank among the pairs of its expert in pair order: within a warp by match, across warps, chunks
 * and blocks by prefix sums. No order depends on an atomic. Shared memory: 44 bytes an expert and
 * less than 48 KB in all. Reads ids twice; writes 16 bytes a pair.
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"

enum { THREADS = 512, WARPS = THREADS / 32, PLAN_PAIRS = 4096, BLOCK_PAIRS = 2048 };

/* Shared arrays. warp_counts is used after tile_starts are done with: they share their place. */
struct shared_arrays {
    uint32_t *count, *next; /* [n_entries] pairs; the row its next pair gets */
    uint32_t *base;         /* [n_entries] next, at the start of a chunk */
    uint32_t *tile_start;   /* [n_entries + 1] of one list */
    uint16_t *warp_counts;  /* [WARPS, n_entries] */
    uint32_t *scan;         /* [2 * WARPS] */
};

__host__ __device__ uint32_t plec_cuda_plan_blocks(uint64_t n_pairs) {
    return n_pairs <= PLAN_PAIRS ? 1 : (uint32_t)((n_pairs + BLOCK_PAIRS - 1) / BLOCK_PAIRS);
}

size_t plec_cuda_plan_shared(uint32_t n_entries) {
    size_t tiles = (n_entries + 1) * sizeof(uint32_t);
    size_t counts = (size_t)n_entries * WARPS * sizeof(uint16_t);
    return 2 * WARPS * sizeof(uint32_t) + 3 * (size_t)n_entries * sizeof(uint32_t) +
           (tiles > counts ? tiles : counts) + 16;
}

static __device__ __forceinline__ struct shared_arrays arrays_in(unsigned char *raw, uint32_t n) {
    struct shared_arrays s;
    s.scan = (uint32_t *)raw;
    s.count = s.scan + 2 * WARPS;
    s.next = s.count + n;
    s.base = s.next + n;
    s.tile_start = s.base + n;
    s.warp_counts = (uint16_t *)s.tile_start;
    return s;
}

static __device__ __forceinline__ uint32_t warp_sum_to(uint32_t value, uint32_t lane) {
    for (uint32_t d = 1; d < 32; d *= 2) {
        uint32_t other = __shfl_up_sync(0xFFFFFFFFu, value, d);
        if (lane >= d) value += other;
    }
    return value;
}

/* The sum of the values of all threads before this one; *total: of all. Every thread calls it. */
static __device__ uint32_t sum_before(uint32_t value, uint32_t *scan, uint32_t *total) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32, sum = warp_sum_to(value, lane);
    __syncthreads(); /* the last call's sums have been read */
    if (lane == 31) scan[warp] = sum;
    __syncthreads();
    if (warp == 0) {
        uint32_t of_warp = lane < WARPS ? scan[lane] : 0;
        uint32_t to = warp_sum_to(of_warp, lane);
        if (lane < WARPS) scan[WARPS + lane] = to;
    }
    __syncthreads();
    *total = scan[2 * WARPS - 1];
    return sum - value + (warp > 0 ? scan[WARPS + warp - 1] : 0);
}

/* The expert of a pair, or -1. */
static __device__ __forceinline__ int32_t expert_of(const struct plec_cuda_plan_args &args,
                                                    uint32_t pair) {
    int32_t id = args.ids != NULL ? args.ids[pair] : (int32_t)(pair % args.n_slots);
    return (uint32_t)id < args.n_entries ? id : -1;
}

static __device__ void tell_bad_id(const struct plec_cuda_plan_args &args, uint32_t pair) {
    if (atomicCAS(&args.fault->code, PLEC_CUDA_NO_FAULT, PLEC_CUDA_BAD_EXPERT_ID) !=
        PLEC_CUDA_NO_FAULT)
        return;
    args.fault->a = pair;
    args.fault->b = args.ids[pair];
    args.fault->launch = args.launch;
}

/* The pairs of one block: from `first` up to `end`. */
struct pair_range {
    uint32_t first, end;
};
static __device__ __forceinline__ struct pair_range
all_pairs(const struct plec_cuda_plan_args &args) {
    return {0, args.n_tokens * args.n_slots};
}
static __device__ __forceinline__ struct pair_range
block_pairs(const struct plec_cuda_plan_args &args) {
    uint32_t first = blockIdx.x * BLOCK_PAIRS, n = args.n_tokens * args.n_slots;
    return {first, n - first < BLOCK_PAIRS ? n : first + BLOCK_PAIRS};
}

/* count = pairs of each expert within the range. Returns whether any thread met an id that is a
 * fault. */
static __device__ int count_pairs(const struct plec_cuda_plan_args &args,
                                  const struct shared_arrays &s, struct pair_range range) {
    int bad = 0;
    for (uint32_t e = threadIdx.x; e < args.n_entries; e += THREADS)
        s.count[e] = 0;
    __syncthreads();
    for (uint32_t pair = range.first + threadIdx.x; pair < range.end; pair += THREADS) {
        int32_t e = expert_of(args, pair);
        if (e >= 0) {
            atomicAdd(&s.count[e], 1u);
        } else if (!args.drop_bad_ids) {
            tell_bad_id(args, pair);
            bad = 1;
        }
    }
    return __syncthreads_or(bad);
}

/* first, left, next, and how many experts have rows. */
static __device__ void place_experts(const struct plec_cuda_plan_args &args,
                                     const struct shared_arrays &s) {
    uint32_t before = 0, n_left = 0, total;
    for (uint32_t from = 0; from < args.n_entries; from += THREADS) {
        uint32_t e = from + threadIdx.x;
        bool there = e < args.n_entries;
        uint32_t count = there ? s.count[e] : 0;
        uint32_t row = before + sum_before(count, s.scan, &total);
        before += total;
        n_left += (uint32_t)__syncthreads_count(count > 0);
        if (!there) continue;
        s.next[e] = row;
        args.plan.first[e] = row;
        args.plan.left[e] = count > 0;
    }
    if (threadIdx.x > 0) return;
    args.plan.first[args.n_entries] = before;
    *args.plan.n_left = n_left;
}

static __device__ __forceinline__ bool in_class(const struct plec_cuda_class &c, uint32_t n_rows) {
    return n_rows > 0 && n_rows >= c.least_rows && n_rows <= c.most_rows;
}

/* The last expert whose tiles start at or before tile `at`. */
static __device__ uint32_t expert_at(const uint32_t *tile_start, uint32_t n_entries, uint32_t at) {
    uint32_t low = 0, high = n_entries - 1;
    while (low < high) {
        uint32_t middle = (low + high + 1) / 2;
        if (tile_start[middle] <= at)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

static __device__ void write_tiles(const struct plec_cuda_plan_args &args,
                                   const struct shared_arrays &s, int c, uint32_t n_tiles) {
    uint32_t width = args.lists[c].width;
    for (uint32_t i = threadIdx.x; i < n_tiles; i += THREADS) {
        uint32_t e = expert_at(s.tile_start, args.n_entries, i);
        uint32_t done = (i - s.tile_start[e]) * width, left = s.count[e] - done;
        struct plec_cuda_tile tile = {e, s.next[e] + done, left < width ? left : width, 0};
        args.plan.tiles[c][i] = tile;
    }
}

static __device__ void cut_list(const struct plec_cuda_plan_args &args,
                                const struct shared_arrays &s, int c) {
    uint32_t before = 0, total, width = args.lists[c].width;
    for (uint32_t from = 0; from < args.n_entries; from += THREADS) {
        uint32_t e = from + threadIdx.x;
        uint32_t n_rows = e < args.n_entries ? s.count[e] : 0;
        uint32_t n = in_class(args.lists[c], n_rows) ? (n_rows + width - 1) / width : 0;
        uint32_t start = before + sum_before(n, s.scan, &total);
        before += total;
        if (e >= args.n_entries) continue;
        s.tile_start[e] = start;
        args.plan.first_tile[c][e] = start;
    }
    __syncthreads();
    write_tiles(args, s, c, before);
    if (threadIdx.x == 0) {
        args.plan.first_tile[c][args.n_entries] = before;
        args.plan.counts[c] = before;
    }
    __syncthreads(); /* tile_start is free again */
}

/* Counts of each warp's pairs become the warp's offset inside its expert's rows of this chunk. */
static __device__ void offset_warps(const struct shared_arrays &s, uint32_t n_entries) {
    for (uint32_t e = threadIdx.x; e < n_entries; e += THREADS) {
        uint32_t sum = 0;
        for (uint32_t warp = 0; warp < WARPS; warp++) {
            uint32_t n = s.warp_counts[warp * n_entries + e];
            s.warp_counts[warp * n_entries + e] = (uint16_t)sum;
            sum += n;
        }
        s.base[e] = s.next[e];
        s.next[e] += sum;
    }
}

static __device__ void place_chunk(const struct plec_cuda_plan_args &args,
                                   const struct shared_arrays &s, uint32_t from, uint32_t end) {
    uint32_t lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    uint32_t pair = from + threadIdx.x;
    for (uint32_t i = threadIdx.x; i < WARPS * args.n_entries; i += THREADS)
        s.warp_counts[i] = 0;
    __syncthreads();
    int32_t e = pair < end ? expert_of(args, pair) : -1;
    uint32_t same = __match_any_sync(0xFFFFFFFFu, e);
    uint32_t rank = (uint32_t)__popc(same & ((1u << lane) - 1));
    if (e >= 0 && rank == 0)
        s.warp_counts[warp * args.n_entries + (uint32_t)e] = (uint16_t)__popc(same);
    __syncthreads();
    offset_warps(s, args.n_entries);
    __syncthreads();
    if (pair < end && e < 0) args.plan.pair_row[pair] = PLEC_CUDA_NO_ROW;
    if (e >= 0) {
        uint32_t row = s.base[e] + s.warp_counts[warp * args.n_entries + (uint32_t)e] + rank;
        args.plan.pair_row[pair] = (int32_t)row;
        args.plan.row_pair[row] = pair;
        args.plan.row_token[row] = pair / args.n_slots;
    }
    __syncthreads();
}

static __device__ void place_pairs(const struct plec_cuda_plan_args &args,
                                   const struct shared_arrays &s, struct pair_range range) {
    for (uint32_t from = range.first; from < range.end; from += THREADS)
        place_chunk(args, s, from, range.end);
}

/* Offsets and tiles, once count is known. */
static __device__ void make_lists(const struct plec_cuda_plan_args &args,
                                  const struct shared_arrays &s) {
    place_experts(args, s);
    __syncthreads();
    for (uint32_t c = 0; c < PLEC_CUDA_LISTS; c++)
        if (c < args.n_lists)
            cut_list(args, s, (int)c);
        else if (threadIdx.x == 0)
            args.plan.counts[c] = 0;
}

/* Nothing to run: what later kernels of the launch look at. */
static __device__ void empty_plan(const struct plec_cuda_plan_args &args) {
    if (threadIdx.x < PLEC_CUDA_LISTS) args.plan.counts[threadIdx.x] = 0;
    if (threadIdx.x == 0) *args.plan.n_left = 0;
    for (uint32_t e = threadIdx.x; e < args.n_entries; e += THREADS)
        args.plan.left[e] = 0;
}

/* Whether there was a fault before this launch; every thread of the block has looked, so that one
 * may fault now. */
static __device__ bool faulted(const struct plec_cuda_plan_args &args) {
    bool before = args.fault->code != PLEC_CUDA_NO_FAULT;
    __syncthreads();
    return before;
}

static __global__ void __launch_bounds__(THREADS) plan_kernel(struct plec_cuda_plan_args args) {
    plec_chain_begin();
    PLEC_SHARED_DYNAMIC(raw);
    struct shared_arrays s = arrays_in(raw, args.n_entries);
    if (faulted(args) || count_pairs(args, s, all_pairs(args))) {
        empty_plan(args);
        return;
    }
    make_lists(args, s);
    place_pairs(args, s, all_pairs(args));
}

static __global__ void __launch_bounds__(THREADS) plan_count(struct plec_cuda_plan_args args) {
    PLEC_SHARED_DYNAMIC(raw);
    struct shared_arrays s = arrays_in(raw, args.n_entries);
    uint32_t *counts = args.block_counts + plec_cuda_at(blockIdx.x, args.n_entries);
    count_pairs(args, s, block_pairs(args));
    for (uint32_t e = threadIdx.x; e < args.n_entries; e += THREADS)
        counts[e] = s.count[e];
}

/* Each block's counts become the rows of its first pairs. */
static __global__ void __launch_bounds__(THREADS) plan_lists(struct plec_cuda_plan_args args) {
    PLEC_SHARED_DYNAMIC(raw);
    struct shared_arrays s = arrays_in(raw, args.n_entries);
    if (faulted(args)) {
        empty_plan(args);
        return;
    }
    uint32_t n_blocks = plec_cuda_plan_blocks((uint64_t)args.n_tokens * args.n_slots);
    for (uint32_t e = threadIdx.x; e < args.n_entries; e += THREADS) {
        uint32_t sum = 0;
        for (uint32_t block = 0; block < n_blocks; block++)
            sum += args.block_counts[plec_cuda_at(block, args.n_entries) + e];
        s.count[e] = sum;
    }
    __syncthreads();
    make_lists(args, s);
    for (uint32_t e = threadIdx.x; e < args.n_entries; e += THREADS) {
        uint32_t row = s.next[e];
        for (uint32_t block = 0; block < n_blocks; block++) {
            uint32_t *count = args.block_counts + plec_cuda_at(block, args.n_entries) + e;
            uint32_t n = *count;
            *count = row;
            row += n;
        }
    }
}

static __global__ void __launch_bounds__(THREADS) plan_place(struct plec_cuda_plan_args args) {
    plec_chain_begin();
    PLEC_SHARED_DYNAMIC(raw);
    struct shared_arrays s = arrays_in(raw, args.n_entries);
    if (args.fault->code != PLEC_CUDA_NO_FAULT) return;
    const uint32_t *rows = args.block_counts + plec_cuda_at(blockIdx.x, args.n_entries);
    for (uint32_t e = threadIdx.x; e < args.n_entries; e += THREADS)
        s.next[e] = rows[e];
    __syncthreads();
    place_pairs(args, s, block_pairs(args));
}

uint32_t plec_cuda_max_tiles(uint64_t n_pairs, uint32_t n_entries, uint32_t width) {
    uint64_t n = (n_pairs < n_entries ? n_pairs : n_entries) + n_pairs / width;
    return n < UINT32_MAX ? (uint32_t)n : UINT32_MAX;
}

int plec_cuda_launch_plan(const struct plec_cuda_plan_args *args, cudaStream_t stream) {
    size_t shared = plec_cuda_plan_shared(args->n_entries);
    uint32_t n_blocks = plec_cuda_plan_blocks((uint64_t)args->n_tokens * args->n_slots);
    dim3 one(1), grid(n_blocks), block(THREADS);
    if (n_blocks == 1) return (int)PLEC_LAUNCH(plan_kernel, one, block, shared, stream, *args);
    cudaError_t status = PLEC_LAUNCH(plan_count, grid, block, shared, stream, *args);
    if (status == cudaSuccess) status = PLEC_LAUNCH(plan_lists, one, block, shared, stream, *args);
    if (status == cudaSuccess) status = PLEC_LAUNCH(plan_place, grid, block, shared, stream, *args);
    return (int)status;
}
