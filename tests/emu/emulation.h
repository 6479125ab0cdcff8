// cuda_emu.h -- device-side half of the CPU emulation.  Force-included (g++ -x c++ -include
// cuda_emu.h) in front of a .cu file.  Host side API (cudaMalloc, streams, ...) comes from the
// ordinary cuda_runtime_api.h prototypes and is implemented in emu_rt.cc, i.e. the emulation
// replaces libcudart at link time.
#pragma once
#ifndef __cplusplus
#error "cuda_emu.h is for .cu files compiled as C++"
#endif
#ifndef PLEC_CUDA_EMULATED
#error "compiled through plec_emulated_library (cmake/emulation.cmake)"
#endif
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cuda_runtime.h> // types, vector types, API prototypes (toolkit header, host mode)
#include <functional>
#include <tuple>
#include <type_traits>

#undef __shared__
#define __shared__                                                                                 \
    PLEC_EMU_error_use_PLEC_SHARED_STATIC_or_PLEC_SHARED_DYNAMIC // makes a raw __shared__ a compile
                                                                 // error
#undef __launch_bounds__
#define __launch_bounds__(...)
#undef __grid_constant__
#define __grid_constant__
#undef __forceinline__
#define __forceinline__ inline

// ---- built-in variables: plain globals, rewritten by the scheduler at each switch
// -------------------------
extern uint3 threadIdx, blockIdx;
extern dim3 blockDim, gridDim;
static constexpr int warpSize = 32;

// ---- core (emu_core.cc)
// -----------------------------------------------------------------------------------
#define PLEC_EMU_LOC  const char *f_ = __builtin_FILE(), int l_ = __builtin_LINE()
#define PLEC_EMU_PASS f_, l_
namespace plec_emu {
void *dyn_smem(const char *f, int l);
void *static_smem(const void *key, unsigned size, unsigned align, const char *f, int l);
// rendezvous of the lanes of `mask`; the last lane to arrive runs fn(args, mask) on everybody's
// argument struct
typedef void (*CollFn)(void **args, unsigned mask);
void warp_coll(const char *what, unsigned mask, void *arg, CollFn fn, bool aligned, bool memsync,
               const char *f, int l);
int block_barrier(const char *what, int id, int nthreads, int pred, int redop, bool wait,
                  const char *f, int l);
uint64_t shfl(int mode, unsigned mask, uint64_t v, int src, int width, const char *f, int l);
unsigned vote(int kind, unsigned mask, int pred, const char *f, int l);
unsigned match_any(unsigned mask, uint64_t v, const char *f, int l);
unsigned reduce(int op, unsigned mask, unsigned v, const char *f, int l);
unsigned activemask();
unsigned lane();
uint64_t atomic_rmw(int op, int ty, void *p, uint64_t v, uint64_t cmp, const char *f, int l);
void fence(int scope); // 0 block 1 device 2 system
void spin_hint(const char *f, int l);
unsigned shared_address(const void *p, const char *f, int l);
void *shared_pointer(unsigned a, unsigned bytes, const char *f, int l);
[[noreturn]] void trap(const char *what, const char *f, int l);
void report(const char *kind, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
uint64_t clock_now();
struct launch_shape {
    dim3 grid, block;
    size_t smem;
    cudaStream_t stream;
    int kind;
}; // kind: enum plec_launch_kind of launch.cuh
cudaError_t enqueue_kernel(const char *name, const void *fn, const launch_shape &c,
                           std::function<void()> body);
template <class... P, class... A>
cudaError_t launch(const char *name, void (*k)(P...), const launch_shape &c, A &&...a) {
    // arguments are copied at launch, as CUDA does; each thread then gets its own by-value copy
    std::tuple<std::decay_t<P>...> t(static_cast<P>(std::forward<A>(a))...);
    return enqueue_kernel(name, (const void *)k, c, [k, t] { std::apply(k, t); });
}
template <class T> inline uint64_t bits(T v) {
    static_assert(sizeof(T) <= 8, "<=8 bytes");
    uint64_t u = 0;
    __builtin_memcpy(&u, &v, sizeof v);
    return u;
}
template <class T> inline T unbits(uint64_t u) {
    T v;
    __builtin_memcpy(&v, &u, sizeof v);
    return v;
}
template <class T> struct AtTy;
template <> struct AtTy<int> {
    enum { v = 0 };
};
template <> struct AtTy<unsigned> {
    enum { v = 1 };
};
template <> struct AtTy<float> {
    enum { v = 2 };
};
template <> struct AtTy<double> {
    enum { v = 3 };
};
template <> struct AtTy<unsigned long long> {
    enum { v = 4 };
};
template <> struct AtTy<unsigned long> {
    enum { v = 4 };
};
template <> struct AtTy<long long> {
    enum { v = 5 };
};
} // namespace plec_emu

// ---- shared memory declarations (kcompat.cuh gives the nvcc side)
// ------------------------------------------
#define PLEC_SHARED_DYNAMIC(name)                                                                  \
    unsigned char *const name = (unsigned char *)plec_emu::dyn_smem(__FILE__, __LINE__)
#define PLEC_SHARED_STATIC(T, name)                                                                \
    static char name##_plec_key;                                                                   \
    auto &name = *(std::add_pointer_t<T>)plec_emu::static_smem(&name##_plec_key, sizeof(T),        \
                                                               alignof(T), __FILE__, __LINE__)

// ---- barriers and warp primitives
// --------------------------------------------------------------------------
inline void __syncthreads(PLEC_EMU_LOC) {
    plec_emu::block_barrier("__syncthreads", 0, 0, 0, 0, true, PLEC_EMU_PASS);
}
inline int __syncthreads_count(int p, PLEC_EMU_LOC) {
    return plec_emu::block_barrier("__syncthreads_count", 0, 0, p, 1, true, PLEC_EMU_PASS);
}
inline int __syncthreads_and(int p, PLEC_EMU_LOC) {
    return plec_emu::block_barrier("__syncthreads_and", 0, 0, p, 2, true, PLEC_EMU_PASS);
}
inline int __syncthreads_or(int p, PLEC_EMU_LOC) {
    return plec_emu::block_barrier("__syncthreads_or", 0, 0, p, 3, true, PLEC_EMU_PASS);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, PLEC_EMU_LOC) {
    plec_emu::warp_coll("__syncwarp", mask, nullptr, nullptr, false, true, PLEC_EMU_PASS);
}
template <class T> inline T __shfl_sync(unsigned m, T v, int s, int w = 32, PLEC_EMU_LOC) {
    return plec_emu::unbits<T>(plec_emu::shfl(0, m, plec_emu::bits(v), s, w, PLEC_EMU_PASS));
}
template <class T> inline T __shfl_up_sync(unsigned m, T v, unsigned s, int w = 32, PLEC_EMU_LOC) {
    return plec_emu::unbits<T>(plec_emu::shfl(1, m, plec_emu::bits(v), (int)s, w, PLEC_EMU_PASS));
}
template <class T>
inline T __shfl_down_sync(unsigned m, T v, unsigned s, int w = 32, PLEC_EMU_LOC) {
    return plec_emu::unbits<T>(plec_emu::shfl(2, m, plec_emu::bits(v), (int)s, w, PLEC_EMU_PASS));
}
template <class T> inline T __shfl_xor_sync(unsigned m, T v, int s, int w = 32, PLEC_EMU_LOC) {
    return plec_emu::unbits<T>(plec_emu::shfl(3, m, plec_emu::bits(v), s, w, PLEC_EMU_PASS));
}
inline unsigned __ballot_sync(unsigned m, int p, PLEC_EMU_LOC) {
    return plec_emu::vote(0, m, p, PLEC_EMU_PASS);
}
inline int __any_sync(unsigned m, int p, PLEC_EMU_LOC) {
    return (int)plec_emu::vote(1, m, p, PLEC_EMU_PASS);
}
inline int __all_sync(unsigned m, int p, PLEC_EMU_LOC) {
    return (int)plec_emu::vote(2, m, p, PLEC_EMU_PASS);
}
template <class T> inline unsigned __match_any_sync(unsigned m, T v, PLEC_EMU_LOC) {
    return plec_emu::match_any(m, plec_emu::bits(v), PLEC_EMU_PASS);
}
inline unsigned __reduce_add_sync(unsigned m, unsigned v, PLEC_EMU_LOC) {
    return plec_emu::reduce(0, m, v, PLEC_EMU_PASS);
}
inline unsigned __reduce_min_sync(unsigned m, unsigned v, PLEC_EMU_LOC) {
    return plec_emu::reduce(1, m, v, PLEC_EMU_PASS);
}
inline unsigned __reduce_max_sync(unsigned m, unsigned v, PLEC_EMU_LOC) {
    return plec_emu::reduce(2, m, v, PLEC_EMU_PASS);
}
inline int __reduce_add_sync(unsigned m, int v, PLEC_EMU_LOC) {
    return (int)plec_emu::reduce(0, m, (unsigned)v, PLEC_EMU_PASS);
}
inline int __reduce_min_sync(unsigned m, int v, PLEC_EMU_LOC) {
    return (int)plec_emu::reduce(3, m, (unsigned)v, PLEC_EMU_PASS);
}
inline int __reduce_max_sync(unsigned m, int v, PLEC_EMU_LOC) {
    return (int)plec_emu::reduce(4, m, (unsigned)v, PLEC_EMU_PASS);
}
inline unsigned __reduce_and_sync(unsigned m, unsigned v, PLEC_EMU_LOC) {
    return plec_emu::reduce(5, m, v, PLEC_EMU_PASS);
}
inline unsigned __reduce_or_sync(unsigned m, unsigned v, PLEC_EMU_LOC) {
    return plec_emu::reduce(6, m, v, PLEC_EMU_PASS);
}
inline unsigned __reduce_xor_sync(unsigned m, unsigned v, PLEC_EMU_LOC) {
    return plec_emu::reduce(7, m, v, PLEC_EMU_PASS);
}
inline unsigned __activemask() {
    return plec_emu::activemask();
}
inline void __threadfence_block() {
    plec_emu::fence(0);
}
inline void __threadfence() {
    plec_emu::fence(1);
}
inline void __threadfence_system() {
    plec_emu::fence(2);
}
inline void __nanosleep(unsigned, PLEC_EMU_LOC) {
    plec_emu::spin_hint(PLEC_EMU_PASS);
}
inline void __trap(PLEC_EMU_LOC) {
    plec_emu::trap("__trap", PLEC_EMU_PASS);
}
inline long long clock64() {
    return (long long)plec_emu::clock_now();
}
inline unsigned __cvta_generic_to_shared_u32(const void *p, PLEC_EMU_LOC) {
    return plec_emu::shared_address(p, PLEC_EMU_PASS);
}
inline size_t __cvta_generic_to_shared(const void *p, PLEC_EMU_LOC) {
    return plec_emu::shared_address(p, PLEC_EMU_PASS);
}

// ---- atomics
// -----------------------------------------------------------------------------------------------
#define PLEC_EMU_ATOMIC(name, op)                                                                  \
    template <class T> inline T name(T *p, std::common_type_t<T> v, PLEC_EMU_LOC) {                \
        return plec_emu::unbits<T>(plec_emu::atomic_rmw(op, plec_emu::AtTy<T>::v, p,               \
                                                        plec_emu::bits<T>(v), 0, PLEC_EMU_PASS));  \
    }
PLEC_EMU_ATOMIC(atomicAdd, 0)
PLEC_EMU_ATOMIC(atomicMin, 1)
PLEC_EMU_ATOMIC(atomicMax, 2)
PLEC_EMU_ATOMIC(atomicExch, 3)
PLEC_EMU_ATOMIC(atomicAnd, 5)
PLEC_EMU_ATOMIC(atomicOr, 6) PLEC_EMU_ATOMIC(atomicXor, 7) PLEC_EMU_ATOMIC(atomicInc, 8)
    PLEC_EMU_ATOMIC(atomicSub, 9) template <class T>
    inline T atomicCAS(T *p, std::common_type_t<T> cmp, std::common_type_t<T> v, PLEC_EMU_LOC) {
    return plec_emu::unbits<T>(plec_emu::atomic_rmw(
        4, plec_emu::AtTy<T>::v, p, plec_emu::bits<T>(v), plec_emu::bits<T>(cmp), PLEC_EMU_PASS));
}

// ---- plain intrinsics
// ----------------------------------------------------------------------------------------
template <class T> inline T __ldg(const T *p) {
    return *p;
}
template <class T> inline T __ldcs(const T *p) {
    return *p;
}
template <class T> inline T __ldcg(const T *p) {
    return *p;
}
template <class T> inline void __stcs(T *p, T v) {
    *p = v;
}
template <class T> inline void __stcg(T *p, T v) {
    *p = v;
}
inline unsigned __float_as_uint(float f) {
    return plec_emu::unbits<unsigned>(plec_emu::bits(f));
}
inline int __float_as_int(float f) {
    return plec_emu::unbits<int>(plec_emu::bits(f));
}
inline float __uint_as_float(unsigned u) {
    return plec_emu::unbits<float>(u);
}
inline float __int_as_float(int u) {
    return plec_emu::unbits<float>((unsigned)u);
}
inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline unsigned __brev(unsigned x) {
    unsigned r = 0;
    for (int i = 0; i < 32; i++)
        r |= ((x >> i) & 1u) << (31 - i);
    return r;
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned s) {
    uint64_t t = ((uint64_t)b << 32) | a;
    unsigned r = 0;
    for (int i = 0; i < 4; i++) {
        unsigned k = (s >> (4 * i)) & 15u, v = (unsigned)(t >> (8 * (k & 7u))) & 255u;
        if (k & 8u) v = (v & 128u) ? 255u : 0u;
        r |= v << (8 * i);
    }
    return r;
}
inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 4; i++)
        c += (int)(int8_t)(a >> (8 * i)) * (int)(int8_t)(b >> (8 * i));
    return c;
}
inline float __expf(float x) {
    return expf(x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __frcp_rn(float a) {
    return 1.0f / a;
}
inline float rsqrtf(float a) {
    return 1.0f / sqrtf(a);
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline float __saturatef(float x) {
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
inline int __float2int_rn(float x) {
    return (int)lrintf(x);
}
inline float __int2float_rn(int x) {
    return (float)x;
}
using std::max;
using std::min;
inline unsigned min(int a, unsigned b) {
    return std::min((unsigned)a, b);
}
inline unsigned min(unsigned a, int b) {
    return std::min(a, (unsigned)b);
}
inline unsigned max(unsigned a, int b) {
    return std::max(a, (unsigned)b);
}

// ---- fp16/bf16: the toolkit headers give conversions, +,-,*,/ and compares on the host; the rest
// is here ------
#include <cuda_bf16.h>
#include <cuda_fp16.h>
inline __half __hfma(__half a, __half b, __half c) {
    return __float2half_rn((float)((double)__half2float(a) * __half2float(b) + __half2float(c)));
}
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
    return __halves2half2(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}
inline __nv_bfloat16 __hfma(__nv_bfloat16 a, __nv_bfloat16 b, __nv_bfloat16 c) {
    return __float2bfloat16_rn(
        (float)((double)__bfloat162float(a) * __bfloat162float(b) + __bfloat162float(c)));
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
    return __halves2bfloat162(__hfma(a.x, b.x, c.x), __hfma(a.y, b.y, c.y));
}

#include "tests/emu/instructions.h" // emulated PTX instructions used by ptx.cuh
