/* intrinsics.h: CUDA C++'s functions. Part of emulation.h. */
#ifndef PLEC_TESTS_EMU_INTRINSICS_H
#define PLEC_TESTS_EMU_INTRINSICS_H

#include <algorithm>
#include <cmath>
#include <cstring>

/* ---- barriers -------------------------------------------------------------------------------- */

inline void __syncthreads(PLEC_EMU_HERE) {
    plec_emu::block_barrier("__syncthreads", 0, 0, 0, plec_emu::BARRIER_NOTHING, true, file_,
                            line_);
}
inline int __syncthreads_count(int predicate, PLEC_EMU_HERE) {
    return plec_emu::block_barrier("__syncthreads_count", 0, 0, predicate, plec_emu::BARRIER_COUNT,
                                   true, file_, line_);
}
inline int __syncthreads_and(int predicate, PLEC_EMU_HERE) {
    return plec_emu::block_barrier("__syncthreads_and", 0, 0, predicate, plec_emu::BARRIER_AND,
                                   true, file_, line_);
}
inline int __syncthreads_or(int predicate, PLEC_EMU_HERE) {
    return plec_emu::block_barrier("__syncthreads_or", 0, 0, predicate, plec_emu::BARRIER_OR, true,
                                   file_, line_);
}
inline void __syncwarp(unsigned mask = 0xffffffffu, PLEC_EMU_HERE) {
    plec_emu::sync_warp(mask, file_, line_);
}

/* ---- warps ----------------------------------------------------------------------------------- */

template <class T>
inline T __shfl_sync(unsigned mask, T value, int from, int width = 32, PLEC_EMU_HERE) {
    return plec_emu::from_bits<T>(plec_emu::shuffle(
        plec_emu::SHUFFLE_INDEX, mask, plec_emu::bits_of(value), from, width, file_, line_));
}
template <class T>
inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, PLEC_EMU_HERE) {
    return plec_emu::from_bits<T>(plec_emu::shuffle(
        plec_emu::SHUFFLE_UP, mask, plec_emu::bits_of(value), (int)by, width, file_, line_));
}
template <class T>
inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, PLEC_EMU_HERE) {
    return plec_emu::from_bits<T>(plec_emu::shuffle(
        plec_emu::SHUFFLE_DOWN, mask, plec_emu::bits_of(value), (int)by, width, file_, line_));
}
template <class T>
inline T __shfl_xor_sync(unsigned mask, T value, int by, int width = 32, PLEC_EMU_HERE) {
    return plec_emu::from_bits<T>(plec_emu::shuffle(
        plec_emu::SHUFFLE_XOR, mask, plec_emu::bits_of(value), by, width, file_, line_));
}

inline unsigned __ballot_sync(unsigned mask, int predicate, PLEC_EMU_HERE) {
    return plec_emu::vote(plec_emu::VOTE_BALLOT, mask, predicate, file_, line_);
}
inline int __any_sync(unsigned mask, int predicate, PLEC_EMU_HERE) {
    return (int)plec_emu::vote(plec_emu::VOTE_ANY, mask, predicate, file_, line_);
}
inline int __all_sync(unsigned mask, int predicate, PLEC_EMU_HERE) {
    return (int)plec_emu::vote(plec_emu::VOTE_ALL, mask, predicate, file_, line_);
}
template <class T> inline unsigned __match_any_sync(unsigned mask, T value, PLEC_EMU_HERE) {
    return plec_emu::match_any(mask, plec_emu::bits_of(value), file_, line_);
}
inline unsigned __activemask(void) {
    return plec_emu::active_mask();
}

#define PLEC_EMU_DEFINE_REDUCE(name, type, kind)                                                   \
    inline type name(unsigned mask, type value, PLEC_EMU_HERE) {                                   \
        return (type)plec_emu::reduce(plec_emu::kind, mask, (unsigned)value, file_, line_);        \
    }
PLEC_EMU_DEFINE_REDUCE(__reduce_add_sync, unsigned, REDUCE_ADD)
PLEC_EMU_DEFINE_REDUCE(__reduce_add_sync, int, REDUCE_ADD)
PLEC_EMU_DEFINE_REDUCE(__reduce_min_sync, unsigned, REDUCE_MIN)
PLEC_EMU_DEFINE_REDUCE(__reduce_min_sync, int, REDUCE_MIN_SIGNED)
PLEC_EMU_DEFINE_REDUCE(__reduce_max_sync, unsigned, REDUCE_MAX)
PLEC_EMU_DEFINE_REDUCE(__reduce_max_sync, int, REDUCE_MAX_SIGNED)
PLEC_EMU_DEFINE_REDUCE(__reduce_and_sync, unsigned, REDUCE_AND)
PLEC_EMU_DEFINE_REDUCE(__reduce_or_sync, unsigned, REDUCE_OR)
PLEC_EMU_DEFINE_REDUCE(__reduce_xor_sync, unsigned, REDUCE_XOR)
#undef PLEC_EMU_DEFINE_REDUCE

/* ---- memory order, time ---------------------------------------------------------------------- */

/* A fence within the block is one between blocks here: more than it is on a GPU. */
inline void __threadfence_block(void) {
    plec_emu::fence();
}
inline void __threadfence(void) {
    plec_emu::fence();
}
inline void __threadfence_system(void) {
    plec_emu::fence();
}
inline void __nanosleep(unsigned, PLEC_EMU_HERE) {
    plec_emu::spin_hint(file_, line_);
}
inline void __trap(PLEC_EMU_HERE) {
    plec_emu::trap("__trap", file_, line_);
}
inline long long clock64(void) {
    return (long long)plec_emu::clock_now();
}
inline size_t __cvta_generic_to_shared(const void *object, PLEC_EMU_HERE) {
    return plec_emu::shared_address(object, file_, line_);
}

/* ---- atomics --------------------------------------------------------------------------------- */

namespace plec_emu {
template <class T> struct AtomicTypeOf;
#define PLEC_EMU_ATOMIC_TYPE(type, name)                                                           \
    template <> struct AtomicTypeOf<type> { static constexpr AtomicType value = name; };
PLEC_EMU_ATOMIC_TYPE(int, ATOMIC_I32)
PLEC_EMU_ATOMIC_TYPE(unsigned, ATOMIC_U32)
PLEC_EMU_ATOMIC_TYPE(float, ATOMIC_F32)
PLEC_EMU_ATOMIC_TYPE(double, ATOMIC_F64)
PLEC_EMU_ATOMIC_TYPE(unsigned long, ATOMIC_U64)
PLEC_EMU_ATOMIC_TYPE(unsigned long long, ATOMIC_U64)
PLEC_EMU_ATOMIC_TYPE(long long, ATOMIC_I64)
#undef PLEC_EMU_ATOMIC_TYPE

template <class T>
inline T atomic_of(AtomicOperation operation, T *at, T value, T compare, const char *file,
                   int line) {
    return from_bits<T>(atomic(operation, AtomicTypeOf<T>::value, at, bits_of(value),
                               bits_of(compare), file, line));
}
} // namespace plec_emu

#define PLEC_EMU_DEFINE_ATOMIC(name, operation)                                                    \
    template <class T> inline T name(T *at, std::common_type_t<T> value, PLEC_EMU_HERE) {          \
        return plec_emu::atomic_of<T>(plec_emu::operation, at, value, T(), file_, line_);          \
    }
PLEC_EMU_DEFINE_ATOMIC(atomicAdd, ATOMIC_ADD)
PLEC_EMU_DEFINE_ATOMIC(atomicSub, ATOMIC_SUB)
PLEC_EMU_DEFINE_ATOMIC(atomicMin, ATOMIC_MIN)
PLEC_EMU_DEFINE_ATOMIC(atomicMax, ATOMIC_MAX)
PLEC_EMU_DEFINE_ATOMIC(atomicExch, ATOMIC_EXCHANGE)
PLEC_EMU_DEFINE_ATOMIC(atomicAnd, ATOMIC_AND)
PLEC_EMU_DEFINE_ATOMIC(atomicOr, ATOMIC_OR)
PLEC_EMU_DEFINE_ATOMIC(atomicXor, ATOMIC_XOR)
PLEC_EMU_DEFINE_ATOMIC(atomicInc, ATOMIC_INCREMENT)
#undef PLEC_EMU_DEFINE_ATOMIC
template <class T>
inline T atomicCAS(T *at, std::common_type_t<T> compare, std::common_type_t<T> value,
                   PLEC_EMU_HERE) {
    return plec_emu::atomic_of<T>(plec_emu::ATOMIC_COMPARE, at, value, compare, file_, line_);
}

/* ---- loads and stores with cache hints ------------------------------------------------------- */

template <class T> inline T __ldg(const T *from) {
    return *from;
}
template <class T> inline T __ldcs(const T *from) {
    return *from;
}
template <class T> inline T __ldcg(const T *from) {
    return *from;
}
template <class T> inline T __ldca(const T *from) {
    return *from;
}
template <class T> inline void __stcs(T *to, T value) {
    *to = value;
}
template <class T> inline void __stcg(T *to, T value) {
    *to = value;
}
/* 16 and 8 bytes are one access each, which a struct's copy need not be. */
inline uint4 __ldg(const uint4 *from) {
    return plec_emu::load<uint4>(from, "", 0);
}
inline uint2 __ldg(const uint2 *from) {
    return plec_emu::load<uint2>(from, "", 0);
}

/* ---- integers -------------------------------------------------------------------------------- */

inline int __popc(unsigned x) {
    return __builtin_popcount(x);
}
inline int __popcll(unsigned long long x) {
    return __builtin_popcountll(x);
}
inline int __clz(int x) {
    return x ? __builtin_clz((unsigned)x) : 32;
}
inline int __ffs(int x) {
    return __builtin_ffs(x);
}
inline unsigned __umulhi(unsigned a, unsigned b) {
    return (unsigned)((uint64_t)a * b >> 32);
}

inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int i = 0; i < 32; i++)
        reversed |= (x >> i & 1u) << (31 - i);
    return reversed;
}

/* Byte i of the result: byte s of b:a, where s is nibble i; with the nibble's top bit its sign. */
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
    uint64_t both = (uint64_t)b << 32 | a;
    unsigned result = 0;
    for (int i = 0; i < 4; i++) {
        unsigned nibble = selector >> (4 * i) & 15u;
        unsigned byte = (unsigned)(both >> (8 * (nibble & 7u))) & 255u;
        if (nibble & 8u) byte = byte & 128u ? 255u : 0u;
        result |= byte << (8 * i);
    }
    return result;
}

inline int __dp4a(int a, int b, int c) {
    for (int i = 0; i < 32; i += 8)
        c += (int)(int8_t)(a >> i) * (int)(int8_t)(b >> i);
    return c;
}

inline unsigned __funnelshift_r(unsigned low, unsigned high, unsigned by) {
    return (unsigned)(((uint64_t)high << 32 | low) >> (by & 31));
}

/* ---- floats ---------------------------------------------------------------------------------- */

inline unsigned __float_as_uint(float x) {
    return plec_emu::from_bits<unsigned>(plec_emu::bits_of(x));
}
inline int __float_as_int(float x) {
    return plec_emu::from_bits<int>(plec_emu::bits_of(x));
}
inline float __uint_as_float(unsigned x) {
    return plec_emu::from_bits<float>(x);
}
inline float __int_as_float(int x) {
    return plec_emu::from_bits<float>((unsigned)x);
}
/* Those that a GPU approximates are exact here. */
inline float __expf(float x) {
    return expf(x);
}
inline float __logf(float x) {
    return logf(x);
}
inline float __log2f(float x) {
    return log2f(x);
}
inline float __fdividef(float a, float b) {
    return a / b;
}
inline float __fdiv_rn(float a, float b) {
    return a / b;
}
inline float __frcp_rn(float x) {
    return 1.0f / x;
}
inline float __fsqrt_rn(float x) {
    return sqrtf(x);
}
inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}
inline float __fmaf_rn(float a, float b, float c) {
    return fmaf(a, b, c);
}
inline float __fadd_rn(float a, float b) {
    return a + b;
}
inline float __fmul_rn(float a, float b) {
    return a * b;
}
inline float __saturatef(float x) {
    return x > 0 ? x < 1 ? x : 1 : 0;
}
inline int __float2int_rn(float x) {
    return (int)lrintf(x);
}
inline int __float2int_rz(float x) {
    return (int)x;
}
inline float __int2float_rn(int x) {
    return (float)x;
}
inline float __uint2float_rn(unsigned x) {
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
inline unsigned max(int a, unsigned b) {
    return std::max((unsigned)a, b);
}
inline unsigned max(unsigned a, int b) {
    return std::max(a, (unsigned)b);
}

#endif
