/* mm_wg_sums.cuh: a lane's sums in mm_wg: scales, minima, and what becomes of them at the end. */
#ifndef PLEC_DEVICE_CUDA_MM_WG_SUMS_CUH
#define PLEC_DEVICE_CUDA_MM_WG_SUMS_CUH

#include "device/cuda/mm_wg_shape.cuh"
#include "device/cuda/ptx_wgmma.cuh"

#ifdef PLEC_HAS_SM90A

/* Over the tokens of a tile, of which a product has the first N. */
template <class F> struct plec_wg_sums {
    typedef plec_wg_shape<F> S;
    typedef plec_wg_rule<F> R;
    enum { STRAIGHT = R::way == PLEC_WG_PLAIN || R::way == PLEC_WG_WEIGHTS };
    float sum[PLEC_WG_WIDTH / 2];
    float apart[STRAIGHT ? 2 : PLEC_WG_WIDTH / 2]; /* of a block or a step, before its scale */

    __device__ __forceinline__ void open() {
#pragma unroll
        for (int i = 0; i < PLEC_WG_WIDTH / 2; i++)
            sum[i] = 0.0f;
    }

    /* What the tensor cores add to. */
    template <int N> __device__ __forceinline__ float (&products())[N / 2] {
        return reinterpret_cast<float(&)[N / 2]>(STRAIGHT ? *sum : *apart);
    }

    template <int N> __device__ __forceinline__ void add_scaled(const float scales[2]) {
#pragma unroll
        for (int i = 0; i < N / 2; i++)
            sum[i] = __fmaf_rn(scales[i >> 1 & 1], apart[i], sum[i]);
    }

    /* The products of block s, which are done, under its scale. */
    template <int N, class In> __device__ __forceinline__ void add_block(const In &in, int s) {
        float scales[2];
        for (int side = 0; side < 2; side++)
            scales[side] = F::scale(in.record[side], in.super[side], s);
        add_scaled<N>(scales);
    }

    template <int N, class In> __device__ __forceinline__ void end_step(const In &in) {
        if constexpr (R::way == PLEC_WG_STEPS) {
            const float scales[2] = {R::step_scale(in.super[0]), R::step_scale(in.super[1])};
            add_scaled<N>(scales);
        }
    }

    /* The minimum of block s times the sums of the tokens over it. */
    template <int N, class In>
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

    /* The sums into shared memory, each row times its factor: channels side by side, those of up
     * behind those of gate. */
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
            for (int i = 0; i < PLEC_WG_WIDTH / 8; i++) {
                if (i * 8u >= work.tile.n_rows) break;
#pragma unroll
                for (int j = 0; j < 2; j++)
                    to[(i * 8 + lane % 4 * 2 + j) * S::OUT_PITCH] =
                        sum[i * 4 + 2 * side + j] * factor;
            }
        }
    }
};

#endif

#endif
