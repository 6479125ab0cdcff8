/* mm_wg_ring.cuh: the stages of mm_wg in turn: tokens part by part, weights step by step.
 *
 * All threads copy, and all say of each part, by the barrier of its stage, that what they copied of
 * it has landed; they say so one part early. So a warpgroup may be a part ahead of the other, and
 * whoever has waited for a part knows that all have left the part before the one before it: its
 * stage is filled anew.
 */
#ifndef PLEC_DEVICE_CUDA_MM_WG_RING_CUH
#define PLEC_DEVICE_CUDA_MM_WG_RING_CUH

#include "device/cuda/mm_weights.cuh"
#include "device/cuda/mm_wg_tokens.cuh"

#ifdef PLEC_HAS_SM90

template <class F> struct plec_wg_ring {
    typedef plec_wg_shape<F> S;
    plec_mm_weight_loader<F, S> weights;
    plec_wg_token_loader<F, S, PLEC_WG_WIDTH> tokens;
    uint32_t k, k_end;     /* columns: of the next part to load, and where the split ends */
    uint32_t used;         /* columns behind the part under way */
    unsigned base;         /* of shared memory */
    unsigned to_weights;   /* the next stage of weights to fill */
    unsigned from_weights; /* the one to read */

    /* The first parts under way, the first of them announced. */
    __device__ __forceinline__ void open(const struct plec_mm_args &args,
                                         const struct plec_mm_work &work, unsigned shared,
                                         const struct plec_wg_turn &turn) {
        weights.open(args, work);
        tokens.open(args, work);
        k = used = work.first_step * F::k_step;
        k_end = min(work.end_step * F::k_step, args.tokens.pitch);
        base = shared;
        to_weights = from_weights = 0;
        unsigned stage = turn.stage;
        for (int i = 0; i < S::AHEAD; i++) {
            load(stage, i % S::PARTS == 0);
            stage = after(stage, 1);
        }
        plec_copy_async_wait<S::AHEAD - 1>();
        announce(turn.stage);
    }

    static __device__ __forceinline__ unsigned after(unsigned stage, unsigned n) {
        return stage + n < S::STAGES ? stage + n : stage + n - S::STAGES;
    }
    __device__ __forceinline__ unsigned barrier(unsigned stage) const {
        return base + S::BARRIERS + stage * 8;
    }
    __device__ __forceinline__ bool more() const { return used < k_end; }

    /* What this thread copied of a stage has landed, and is there for wgmma. */
    __device__ __forceinline__ void announce(unsigned stage) const {
        plec_fence_proxy_async();
        plec_mbarrier_arrive(barrier(stage));
    }

    /* Starts the copies of one part, and of its step's weights where it is the step's first; past
     * the split's end an empty group, for the count. */
    __device__ __forceinline__ void load(unsigned stage, bool is_first) {
        if (k < k_end) {
            tokens.load(base + stage * S::TOKENS, k, k_end);
            if (is_first) {
                unsigned to = base + S::WEIGHTS_AT + to_weights * S::WEIGHT_STAGE;
                weights.load(to, k, k_end);
                if constexpr (S::STEP_SUMS != 0) tokens.load_sums(to + S::SUMS, k, k_end);
                to_weights = to_weights + 1 < S::WEIGHT_STAGES ? to_weights + 1 : 0;
            }
            k += S::COLS;
        }
        plec_copy_async_commit();
    }

    /* Waits for the part of this turn. is_first: of its step; so is the part to load then. */
    __device__ __forceinline__ void take(const struct plec_wg_turn &turn, bool is_first) {
        static_assert(S::AHEAD % S::PARTS == 0, "whole steps ahead");
        plec_copy_async_wait<S::AHEAD - 2>();
        used += S::COLS;
        if (more()) announce(after(turn.stage, 1));
        plec_mbarrier_wait(barrier(turn.stage), turn.phase);
        load(after(turn.stage, S::AHEAD), is_first);
    }
    /* Every thread is done with it. */
    static __device__ __forceinline__ void leave(struct plec_wg_turn *turn) {
        turn->next(S::STAGES);
    }

    /* The stage of the step's weights, from its first part on. */
    __device__ __forceinline__ unsigned take_weights() {
        unsigned at = S::WEIGHTS_AT + from_weights * S::WEIGHT_STAGE;
        from_weights = from_weights + 1 < S::WEIGHT_STAGES ? from_weights + 1 : 0;
        return at;
    }
};

#endif

#endif
