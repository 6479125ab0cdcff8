/* mm_wg_tokens.cuh: staged tokens on their way into shared memory as operand B of wgmma. */
#ifndef PLEC_DEVICE_CUDA_MM_WG_TOKENS_CUH
#define PLEC_DEVICE_CUDA_MM_WG_TOKENS_CUH

#include "device/cuda/mm_wg_shape.cuh"

/* Where a block is in its stages, over all its tiles. */
struct plec_wg_turn {
    unsigned stage, phase;
    __device__ __forceinline__ void next(unsigned n_stages) {
        stage = stage + 1 == n_stages ? 0 : stage + 1;
        phase ^= stage == 0;
    }
};

#ifdef PLEC_HAS_SM90

/* One thread's share of the copies of up to N tokens, the work of S::COPIERS threads: 16 bytes of
 * each APART-th token, and of the sums likewise every eighth. S: the shape of the block. */
template <class F, class S, int N> struct plec_wg_token_loader {
    enum { APART = S::COPIERS / 8, ROWS = (N + APART - 1) / APART };
    const uint16_t *x;
    const float *sums;
    /* Staged rows, in units of 32 columns: 2^32 of them are more memory than an sm_90 has. */
    uint32_t at[ROWS];
    uint32_t n_rows;

    static __device__ __forceinline__ unsigned piece() { return threadIdx.x % 8; }
    static __device__ __forceinline__ unsigned token(int i) {
        return threadIdx.x % S::COPIERS / 8 + APART * i;
    }

    __device__ __forceinline__ void open(const struct plec_mm_args &args,
                                         const struct plec_mm_work &work) {
        const struct plec_mm_tokens &tokens = args.tokens;
        uint32_t column = work.first_step * F::k_step;
        n_rows = work.tile.n_rows;
#pragma unroll
        for (int i = 0; i < ROWS; i++) {
            uint32_t row = work.tile.first_row + (token(i) < n_rows ? token(i) : 0);
            if (tokens.row != NULL) row = tokens.row[row];
            at[i] = row * (tokens.pitch / 32);
        }
        x = tokens.x + column + piece() * 8;
        sums = tokens.sums + column / S::BLOCK + piece();
    }

    /* The part from column k on: swizzled by 128 bytes, as the descriptor of operand B says. */
    __device__ __forceinline__ void load(unsigned to, uint32_t k, uint32_t k_end) {
        bool inside = k + piece() * 8 < k_end;
        to += token(0) * 128 + ((piece() ^ token(0)) & 7) * 16;
#pragma unroll
        for (int i = 0; i < ROWS; i++)
            if (N % APART == 0 || token(i) < N)
                plec_copy_async_16(to + i * APART * 128, x + (size_t)at[i] * 32,
                                   inside && token(i) < n_rows);
        x += S::COLS;
    }

    /* Sums of the step from column k on: [block][token]. */
    __device__ __forceinline__ void load_sums(unsigned to, uint32_t k, uint32_t k_end) {
#pragma unroll
        for (int i = 0; i < ROWS; i++)
#pragma unroll
            for (unsigned s = 0; s < S::STEP_SUMS; s += 8)
                if (token(i) < N)
                    plec_copy_async_4(to + ((s + piece()) * S::SUM_PITCH + token(i)) * 4,
                                      sums + (size_t)at[i] * (32 / S::BLOCK) + s,
                                      token(i) < n_rows && k + (s + piece()) * S::BLOCK < k_end);
        sums += S::STEP_SUMS;
    }
};

#endif

#endif
