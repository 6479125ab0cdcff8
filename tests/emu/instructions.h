/* instructions.h: the PTX instructions of device/cuda/ptx.cuh, whose wrappers call these in place
 * of inline assembly. Shared memory is named by 32-bit addresses. */
#ifndef PLEC_TESTS_EMU_INSTRUCTIONS_H
#define PLEC_TESTS_EMU_INSTRUCTIONS_H

#include "tests/emu/core.h"

namespace plec_emu {

/* One access of its own size, which a struct's copy is not in every compiler. */
typedef unsigned Vector16 __attribute__((vector_size(16), may_alias));
typedef unsigned long long Vector8 __attribute__((may_alias));
template <class T> struct VectorOf;
template <> struct VectorOf<uint4> { typedef Vector16 type; };
template <> struct VectorOf<uint2> { typedef Vector8 type; };

template <class T> inline T load(const void *from, const char *, int) {
    T value;
    typename VectorOf<T>::type whole = *(const typename VectorOf<T>::type *)from;
    __builtin_memcpy(&value, &whole, sizeof(value));
    return value;
}

template <class T> inline void store(void *to, T value, const char *, int) {
    typename VectorOf<T>::type whole;
    __builtin_memcpy(&whole, &value, sizeof(value));
    *(typename VectorOf<T>::type *)to = whole;
}

/* ---- cp.async -------------------------------------------------------------------------------- */
void copy_async(unsigned to, const void *from, int n_bytes, int n_there, const char *file,
                int line);
void copy_async_commit(const char *file, int line);
void copy_async_wait(int n_under_way, const char *file, int line);
void copy_async_arrive(unsigned barrier, const char *file, int line);

/* ---- ldmatrix, stmatrix, mma.sync ------------------------------------------------------------ */
void ldmatrix(unsigned *r, int n, bool transposed, unsigned row, const char *file, int line);
void stmatrix(const unsigned *r, int n, bool transposed, unsigned row, const char *file, int line);
void mma_bf16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *file, int line);
void mma_f16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *file, int line);
void mma_s8(int *d, const unsigned *a, unsigned b0, unsigned b1, const char *file, int line);

/* ---- pairs of bf16 --------------------------------------------------------------------------- */
uint32_t add_bf16x2(uint32_t x, uint32_t y);
uint32_t mul_bf16x2(uint32_t x, uint32_t y);

/* ---- between blocks and grids ---------------------------------------------------------------- */
uint32_t load_acquire(const uint32_t *from, const char *file, int line);
void store_release(uint32_t *to, uint32_t value, const char *file, int line);
void grid_wait(const char *file, int line);
void grid_launch_dependents(const char *file, int line);

/* ---- mbarrier, bulk copies ------------------------------------------------------------------- */
void mbarrier_init(unsigned barrier, unsigned count, const char *file, int line);
void mbarrier_init_fence(const char *file, int line);
void mbarrier_invalidate(unsigned barrier, const char *file, int line);
void mbarrier_arrive(unsigned barrier, unsigned expected_bytes, const char *file, int line);
bool mbarrier_test(unsigned barrier, unsigned parity, const char *file, int line);
void mbarrier_wait(unsigned barrier, unsigned parity, const char *file, int line);
void bulk_load(unsigned to, const void *from, unsigned n_bytes, unsigned barrier, const char *file,
               int line);
void tensor_load_2d(unsigned to, const void *map, int x, int y, unsigned barrier, const char *file,
                    int line);
void fence_proxy_async(const char *file, int line);

/* ---- wgmma: m64, k16, both operands K-major -------------------------------------------------- */
enum WgmmaKind { WGMMA_BF16, WGMMA_F16 };
void wgmma_fence(const char *file, int line);
void wgmma_commit(const char *file, int line);
void wgmma_wait(int n_under_way, const char *file, int line);
void wgmma_shared(WgmmaKind kind, int n, float *d, uint64_t a, uint64_t b, int scale_d,
                  const char *file, int line);
void wgmma_registers(WgmmaKind kind, int n, float *d, const unsigned *a, uint64_t b, int scale_d,
                     const char *file, int line);

} // namespace plec_emu

#endif
