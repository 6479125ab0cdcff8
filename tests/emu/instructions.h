// instructions.h -- emulated PTX instructions; ptx.cuh calls these where nvcc would see inline asm.
#pragma once
#include <cstdint>
namespace plec_emu {
void ldmatrix(unsigned *r, int n, bool trans, unsigned saddr, const char *f, int l);
void stmatrix(const unsigned *r, int n, bool trans, unsigned saddr, const char *f, int l);
void mma_bf16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *f, int l);
void mma_f16(float *d, const unsigned *a, unsigned b0, unsigned b1, const char *f, int l);
void mma_s8(int *d, const unsigned *a, unsigned b0, unsigned b1, const char *f, int l);
void mbarrier_init_fence(const char *f, int l);
// one access of its own size (g++ splits struct copies)
typedef unsigned vector_16 __attribute__((vector_size(16), may_alias));
typedef unsigned long long vector_8 __attribute__((may_alias));
template <class T> inline T load(const void *p, const char *, int) {
    T r;
    if constexpr (sizeof(T) == 16) {
        vector_16 v = *(const vector_16 *)p;
        __builtin_memcpy(&r, &v, 16);
    } else {
        vector_8 v = *(const vector_8 *)p;
        __builtin_memcpy(&r, &v, 8);
    }
    return r;
}
template <class T> inline void store(void *p, T value, const char *, int) {
    if constexpr (sizeof(T) == 16) {
        vector_16 v;
        __builtin_memcpy(&v, &value, 16);
        *(vector_16 *)p = v;
    } else {
        vector_8 v;
        __builtin_memcpy(&v, &value, 8);
        *(vector_8 *)p = v;
    }
}
void copy_async(unsigned saddr, const void *g, int bytes, int src_bytes, const char *f, int l);
void copy_async_commit(const char *f, int l);
void copy_async_wait(int n, const char *f, int l);
void mbarrier_init(unsigned saddr, unsigned count, const char *f, int l);
void mbarrier_inval(unsigned saddr, const char *f, int l);
void mbarrier_arrive(unsigned saddr, unsigned tx_bytes, const char *f, int l);
void mbarrier_wait(unsigned saddr, unsigned parity, const char *f, int l);
void bulk_load(unsigned dst, const void *src, unsigned bytes, unsigned mbar, const char *f, int l);
void tensor_load_2d(unsigned dst, const void *tmap, int x, int y, unsigned mbar, const char *f,
                    int l);
void fence_proxy_async(const char *f, int l);
void wgmma_fence(const char *f, int l);
void wgmma_commit(const char *f, int l);
void wgmma_wait(int n, const char *f, int l);
void wgmma_ss(int N, float *d, uint64_t descA, uint64_t descB, int scale_d, const char *f, int l);
uint32_t load_acquire(const uint32_t *p, const char *f, int l);
void store_release(uint32_t *p, uint32_t v, const char *f, int l);
} // namespace plec_emu
