/* mm_wg_rule.cuh: where a format's scales come in when wgmma multiplies it, and operand A.
 *
 *   plain    there are none
 *   sums     on the f32 sums, block by block, as in mm_sync: exact whatever the scale is
 *   weights  a code times its block's scale is a bf16: multiplied beforehand, so that the tensor
 *            cores sum a whole row
 *   steps    likewise but for a factor of the step, which comes in on the sums, step by step
 *
 * A code is a whole number n times 2^-133 (fragment.cuh). An offset is taken off it in bf16, where
 * n - offset is exact. Multiplied formats leave the range of subnormals first: times 2^raise; the
 * scale may carry 2^lift, and tokens enter times 2^token_shift. What is put right at the end:
 * 2^exponent.
 */
#ifndef PLEC_DEVICE_CUDA_MM_WG_RULE_CUH
#define PLEC_DEVICE_CUDA_MM_WG_RULE_CUH

#include "device/cuda/fragment/all.cuh"

enum plec_wg_way { PLEC_WG_PLAIN, PLEC_WG_SUMS, PLEC_WG_WEIGHTS, PLEC_WG_STEPS };

/* The upper half of an f32, twice: a scale of up to eight significant bits as a pair of bf16. */
static __device__ __forceinline__ uint32_t plec_wg_pair(float scale) {
    uint32_t bits = plec_f32_bits(scale);
    return plec_permute(bits, bits, 0x3232u);
}

template <class F> struct plec_wg_rule_defaults {
    enum { raise = 0, lift = 0, token_shift = F::token_shift };
    static __device__ __forceinline__ uint32_t weight_scale(const uint32_t *, uint32_t) {
        return 0;
    }
    static __device__ __forceinline__ float step_scale(uint32_t) { return 1.0f; }
};

template <class F> struct plec_wg_rule : plec_wg_rule_defaults<F> {
    static constexpr plec_wg_way way = F::block > 32 ? PLEC_WG_PLAIN : PLEC_WG_SUMS;
};

/* E2M1 times a power of two: n * 2^-6 first, which no scale can push out of range. */
template <class F> struct plec_wg_power_rule : plec_wg_rule_defaults<F> {
    static constexpr plec_wg_way way = PLEC_WG_WEIGHTS;
    enum { raise = 127, token_shift = 0 };
    static __device__ __forceinline__ uint32_t weight_scale(const uint32_t *record, uint32_t s) {
        return plec_wg_pair(F::scale(record, 0, s));
    }
};
template <> struct plec_wg_rule<plec_fragment_mxfp4> : plec_wg_power_rule<plec_fragment_mxfp4> {};
template <>
struct plec_wg_rule<plec_fragment_gguf_mxfp4> : plec_wg_power_rule<plec_fragment_gguf_mxfp4> {};

/* E4M3 times a power of two: the weight itself. */
template <> struct plec_wg_rule<plec_fragment_mxfp8> : plec_wg_power_rule<plec_fragment_mxfp8> {
    enum { raise = 120 };
};

/* E2M1 times E4M3: six significant bits. What is left of the scale is 2^-31 to 1. */
static __device__ __forceinline__ uint32_t plec_wg_lifted(const uint32_t *record, uint32_t s) {
    return plec_wg_pair(plec_fragment_e5m3_value(record[s / 4], s & 3)) + (126u << 7) * 0x10001u;
}
template <class F> struct plec_wg_lifted_rule : plec_wg_rule_defaults<F> {
    static constexpr plec_wg_way way = PLEC_WG_WEIGHTS;
    enum { lift = 126, token_shift = 0 };
    static __device__ __forceinline__ uint32_t weight_scale(const uint32_t *record, uint32_t s) {
        return plec_wg_lifted(record, s);
    }
};
template <> struct plec_wg_rule<plec_fragment_nvfp4> : plec_wg_lifted_rule<plec_fragment_nvfp4> {};
template <>
struct plec_wg_rule<plec_fragment_gguf_nvfp4> : plec_wg_lifted_rule<plec_fragment_gguf_nvfp4> {};

/* The block's own scale, E4M3 / 6, is the step's. */
template <>
struct plec_wg_rule<plec_fragment_fp4_larql> : plec_wg_lifted_rule<plec_fragment_fp4_larql> {
    static constexpr plec_wg_way way = PLEC_WG_STEPS;
    static __device__ __forceinline__ float step_scale(uint32_t super) {
        return plec_bits_f32(super);
    }
};

/* -4 to 3 times -32 to 31, 0 to 3 times 0 to 15. */
template <> struct plec_wg_rule<plec_fragment_q3_k> : plec_wg_rule_defaults<plec_fragment_q3_k> {
    static constexpr plec_wg_way way = PLEC_WG_STEPS;
    static __device__ __forceinline__ uint32_t weight_scale(const uint32_t *record, uint32_t s) {
        return plec_wg_pair(plec_sub(plec_fragment_biased(record[s / 4], s & 3), 32768.0f + 32));
    }
    static __device__ __forceinline__ float step_scale(uint32_t super) {
        return plec_fragment_half(super, 0);
    }
};
template <> struct plec_wg_rule<plec_fragment_q2_k> : plec_wg_rule_defaults<plec_fragment_q2_k> {
    static constexpr plec_wg_way way = PLEC_WG_STEPS;
    static __device__ __forceinline__ uint32_t weight_scale(const uint32_t *record, uint32_t s) {
        return plec_wg_pair(
            plec_sub(plec_fragment_biased(record[s / 4] & 0x0F0F0F0Fu, s & 3), 32768.0f));
    }
    static __device__ __forceinline__ float step_scale(uint32_t super) {
        return plec_fragment_half(super, 0);
    }
};

template <class F> static inline int plec_wg_exponent(void) {
    typedef plec_wg_rule<F> R;
    return F::token_shift - R::token_shift - R::raise - R::lift;
}

#ifdef PLEC_HAS_SM90
/* ---- operand A --------------------------------------------------------------------------------
 */

/* One pair of codes as they enter: p of its block, under scale `scale`. */
template <class F>
static __device__ __forceinline__ uint32_t plec_wg_weigh(uint32_t pair, int p, uint32_t scale) {
    typedef plec_wg_rule<F> R;
    if constexpr (F::offset != 0) {
        const uint32_t offset = F::spread && p % 2 == 1 ? F::offset * 16 : F::offset;
        static_assert(F::offset * (F::spread ? 16 : 1) < 256, "an offset is a code");
        pair = plec_add_bf16x2(pair, (0x8000u | offset) * 0x10001u);
    }
    if constexpr (R::raise != 0) pair = plec_mul_bf16x2(pair, (127u + R::raise) * 0x00800080u);
    if constexpr (R::way == PLEC_WG_WEIGHTS || R::way == PLEC_WG_STEPS)
        pair = plec_mul_bf16x2(pair, scale);
    return pair;
}

/* One lane's block of 32 columns: two k16 steps of four registers, rows g and g + 8 in turn; parts:
 * what adds up to a weight. Its registers are wgmma's until the product is waited for. */
template <class F> struct plec_wg_operand {
    unsigned a[F::parts][2][4];

    template <class In>
    __device__ __forceinline__ void make(const In &in, const uint32_t *table, int b) {
        typedef plec_wg_rule<F> R;
#pragma unroll
        for (int side = 0; side < 2; side++) {
            uint32_t pairs[4], scales[2] = {0, 0};
            F::pairs(pairs, in.words[side], b, table);
            if constexpr (R::way == PLEC_WG_WEIGHTS || R::way == PLEC_WG_STEPS) {
                scales[0] = R::weight_scale(in.record[side], F::block == 32 ? b : 2 * b);
                scales[1] =
                    F::block == 32 ? scales[0] : R::weight_scale(in.record[side], 2 * b + 1);
            }
#pragma unroll
            for (int p = 0; p < 4; p++)
                a[0][p / 2][p % 2 * 2 + side] = plec_wg_weigh<F>(pairs[p], p, scales[p / 2]);
            if constexpr (F::parts == 2) {
                F::rests(pairs, in.words[side], b);
#pragma unroll
                for (int p = 0; p < 4; p++)
                    a[1][p / 2][p % 2 * 2 + side] = pairs[p];
            }
        }
    }
};

#endif
#endif
