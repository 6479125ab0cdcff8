/* mm_weights.cuh: the weights of one step on their way: from the planes into a stage of shared
 * memory by cp.async, and from there into a lane's registers. Each lane copies the codes that it
 * will read. */
#ifndef PLEC_DEVICE_CUDA_MM_WEIGHTS_CUH
#define PLEC_DEVICE_CUDA_MM_WEIGHTS_CUH

#include "device/cuda/mm_shape.cuh"

/* One thread's share of the copies: sources of the next step, moved on after each. S: the shape of
 * the block. */
template <class F, class S> struct plec_mm_weight_loader {
    typedef plec_planes_group<F> G;
    const uint8_t *codes[2];
    const uint8_t *scales; /* lanes 0-15: a record, lanes 16-31: a super; or half a record a lane */
    uint32_t step;         /* from a step's groups to the next step's, in 32 bytes */
    int rest[2];           /* from codes to a lane's two words left over, or its second chunk */
    unsigned codes_to, scales_to; /* in a stage */
    bool codes_there[2], scales_there;

    static __device__ __forceinline__ unsigned lane() { return threadIdx.x % 32; }

    __device__ __forceinline__ void open(const struct plec_mm_args &args,
                                         const struct plec_mm_work &work) {
        plec_planes planes = plec_planes_of<F>(args.weights.rows, args.weights.cols);
        unsigned warp = threadIdx.x / 32, g = lane() / 4, c = lane() % 4;
        step = planes.n_groups * (G::BYTES / 32);
#pragma unroll
        for (int side = 0; side < 2; side++) {
            struct plec_mm_row row = plec_mm_row_of(args, work, g + 8 * side);
            const uint8_t *group = row.planes + plec_planes_at<F>(planes, work.first_step, row.row);
            unsigned first = plec_planes_word<F>(row.row, c, 0);
            codes[side] = group + first;
            if constexpr (S::REST != 0) rest[side] = (int)(G::REST - row.row % 8 * 32 - c * 8);
            if constexpr (F::swizzled) rest[side] = (int)(plec_planes_chunk<F>(first, 1) - first);
            codes_there[side] = row.there;
        }
        codes_to = warp * (16 * F::lane_words * 16) + lane() * 16;
        if constexpr (F::record_words == 0) return;
        unsigned slot = S::RECORD == 32 ? lane() / 2 : lane() % 16;
        unsigned part = S::RECORD == 32 ? lane() % 2 * 16 : 0;
        struct plec_mm_row row = plec_mm_row_of(args, work, slot);
        bool super = F::super_words != 0 && lane() >= 16;
        unsigned size = super ? 4u : (unsigned)S::RECORD;
        scales_there = row.there;
        scales = row.planes + plec_planes_at<F>(planes, work.first_step, row.row) +
                 (super ? G::SUPERS : G::RECORDS) + row.row % 8 * size + part;
        scales_to = (super ? S::SUPERS : S::RECORDS) + (warp * 16 + slot) * size + part;
    }

    /* Starts the copies of the step from column k on into the stage at `to`. */
    __device__ __forceinline__ void load(unsigned to, uint32_t k, uint32_t k_end) {
        load_codes(to, k, k_end);
        if constexpr (F::record_words != 0) load_scales(to);
    }

    __device__ __forceinline__ void load_codes(unsigned to, uint32_t k, uint32_t k_end) {
#pragma unroll
        for (int side = 0; side < 2; side++) {
            unsigned at = to + codes_to + side * (8 * F::lane_words * 16);
#pragma unroll
            for (int j = 0; j < S::CHUNKS; j++)
                plec_copy_async_16(at + j * 512,
                                   codes[side] + (F::swizzled ? j * rest[side] : j * 512),
                                   codes_there[side] && k + j * S::CHUNK_COLS < k_end);
            if constexpr (S::REST != 0)
                plec_copy_async_8(at - lane() * 8 + S::CHUNKS * 512, codes[side] + rest[side],
                                  codes_there[side]);
            codes[side] += (uint64_t)step * 32;
        }
    }

    __device__ __forceinline__ void load_scales(unsigned to) {
        unsigned at = to + scales_to;
        bool super = F::super_words != 0 && lane() >= 16;
        if (super) {
            plec_copy_async_4(at, scales, scales_there);
        } else if (S::RECORD == 32 || lane() < 16) {
            if constexpr (S::RECORD >= 16) plec_copy_async_16(at, scales, scales_there);
            if constexpr (S::RECORD == 8) plec_copy_async_8(at, scales, scales_there);
            if constexpr (S::RECORD == 4) plec_copy_async_4(at, scales, scales_there);
        }
        scales += (uint64_t)step * 32;
    }
};

/* One lane's words and scales of one step, rows g and g + 8. */
template <class F, class S> struct plec_mm_operands {
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

#endif
