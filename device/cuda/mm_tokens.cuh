/* mm_tokens.cuh: the staged tokens of one step on their way into a stage of shared memory. */
#ifndef PLEC_DEVICE_CUDA_MM_TOKENS_CUH
#define PLEC_DEVICE_CUDA_MM_TOKENS_CUH

#include "device/cuda/mm_shape.cuh"

/* One thread's share of the copies of one token: sources of the next step, moved on after each. S:
 * the shape of the block, whose threads, or the last warp's, copy. */
template <class F, int NT, class S = plec_mm_shape<F, NT>> struct plec_mm_token_loader {
    const uint16_t *token;
    const float *sums;
    unsigned token_to, sums_to; /* in a stage */
    int odd;                    /* 64 in a row whose halves of 128 bytes are exchanged */
    bool there;

    __device__ __forceinline__ void open(const struct plec_mm_args &args,
                                         const struct plec_mm_work &work) {
        const struct plec_mm_tokens &tokens = args.tokens;
        unsigned n = threadIdx.x % (NT * S::TOKEN_THREADS) / S::TOKEN_THREADS;
        unsigned first = threadIdx.x % S::TOKEN_THREADS;
        there = n < work.tile.n_rows;
        uint32_t row = work.tile.first_row + (there ? n : 0);
        if (tokens.row != NULL) row = tokens.row[row];
        uint32_t column = work.first_step * F::k_step;
        token = tokens.x + plec_cuda_at(row, tokens.pitch) + column + first * 8;
        odd = (int)(n % 2) * 64;
        token_to = S::TOKENS + n * S::TOKEN_PITCH +
                   (S::TOKEN_THREADS < 8 ? first * 16 : (first * 16 ^ (unsigned)odd));
        if constexpr (!S::HAS_SUMS) return;
        sums = tokens.sums + plec_cuda_at(row, tokens.pitch / S::BLOCK) + column / S::BLOCK + first;
        sums_to = S::SUMS + (first * NT + n) * 4;
    }

    /* Where eight threads or more copy a row, a thread's chunks are all in one half. */
    __device__ __forceinline__ int exchange(int q) const {
        return S::TOKEN_THREADS >= 8 ? 0 : q * 16 & 64 ? -odd : odd;
    }

    /* Starts the copies of the step from column k on into the stage at `to`. */
    __device__ __forceinline__ void load(unsigned to, uint32_t k, uint32_t k_end) {
        unsigned first = threadIdx.x % S::TOKEN_THREADS;
#pragma unroll
        for (int q = 0; q < F::k_step / 8; q += S::TOKEN_THREADS)
            if (F::k_step / 8 >= S::TOKEN_THREADS || first < F::k_step / 8)
                plec_copy_async_16(to + token_to + q * 16 + exchange(q), token + q * 8,
                                   there && k + (q + first) * 8 < k_end);
        token += F::k_step;
        if constexpr (S::HAS_SUMS) load_sums(to, k, k_end);
    }

    __device__ __forceinline__ void load_sums(unsigned to, uint32_t k, uint32_t k_end) {
        unsigned first = threadIdx.x % S::TOKEN_THREADS;
#pragma unroll
        for (int s = 0; s < S::STEP_SUMS; s += S::TOKEN_THREADS)
            if (S::STEP_SUMS >= S::TOKEN_THREADS || first < S::STEP_SUMS)
                plec_copy_async_4(to + sums_to + s * NT * 4, sums + s,
                                  there && k + (s + first) * S::BLOCK < k_end);
        sums += S::STEP_SUMS;
    }
};

#endif
