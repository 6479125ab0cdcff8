/* core.h: what the intrinsics of CUDA C++ become. Each takes the caller's file and line, which
 * reports name. Included in front of every emulated source, so it stays small. */
#ifndef PLEC_TESTS_EMU_CORE_H
#define PLEC_TESTS_EMU_CORE_H

#include <cstddef>
#include <cstdint>
#include <cuda_runtime_api.h>
#include <memory>
#include <vector_types.h>

namespace plec_emu {

/* ---- launching ------------------------------------------------------------------------------- */

/* As enum plec_launch_kind of device/cuda/launch.cuh. */
enum { LAUNCH_PLAIN, LAUNCH_COOPERATIVE, LAUNCH_DEPENDENT };

struct LaunchShape {
    dim3 grid, block;
    size_t shared_bytes;
    cudaStream_t stream;
    int kind;
    LaunchShape(dim3 blocks, dim3 threads, size_t n_shared, cudaStream_t in, int how)
        : grid(blocks), block(threads), shared_bytes(n_shared), stream(in), kind(how) {}
};

/* A kernel with its arguments, which are copied when it is launched. */
struct KernelCall {
    void (*run)(const void *arguments); /* what one thread does */
    std::shared_ptr<const void> arguments;
    size_t argument_bytes;
};

cudaError_t enqueue_kernel(const char *name, const void *kernel, const LaunchShape &shape,
                           const KernelCall &call);

/* ---- shared memory --------------------------------------------------------------------------- */

void *dynamic_shared(const char *file, int line);
/* `key`: of the declaration. */
void *static_shared(const void *key, unsigned n_bytes, unsigned alignment, const char *file,
                    int line);
unsigned shared_address(const void *object, const char *file, int line);

/* ---- barriers and warps ---------------------------------------------------------------------- */

enum BarrierResult { BARRIER_NOTHING, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };
enum ShuffleKind { SHUFFLE_INDEX, SHUFFLE_UP, SHUFFLE_DOWN, SHUFFLE_XOR };
enum VoteKind { VOTE_BALLOT, VOTE_ANY, VOTE_ALL };
enum ReduceKind {
    REDUCE_ADD,
    REDUCE_MIN,
    REDUCE_MAX,
    REDUCE_MIN_SIGNED,
    REDUCE_MAX_SIGNED,
    REDUCE_AND,
    REDUCE_OR,
    REDUCE_XOR
};

/* n_threads 0: all of the block. */
int block_barrier(const char *what, int id, int n_threads, int predicate, int result, bool wait,
                  const char *file, int line);
void sync_warp(unsigned mask, const char *file, int line);
uint64_t shuffle(ShuffleKind kind, unsigned mask, uint64_t value, int lane, int width,
                 const char *file, int line);
unsigned vote(VoteKind kind, unsigned mask, int predicate, const char *file, int line);
unsigned match_any(unsigned mask, uint64_t value, const char *file, int line);
unsigned reduce(ReduceKind kind, unsigned mask, unsigned value, const char *file, int line);
unsigned active_mask(void);
unsigned lane(void);
unsigned image_arch(void);

/* ---- memory order ---------------------------------------------------------------------------- */

enum AtomicOperation {
    ATOMIC_ADD,
    ATOMIC_SUB,
    ATOMIC_MIN,
    ATOMIC_MAX,
    ATOMIC_EXCHANGE,
    ATOMIC_COMPARE,
    ATOMIC_AND,
    ATOMIC_OR,
    ATOMIC_XOR,
    ATOMIC_INCREMENT
};
enum AtomicType { ATOMIC_I32, ATOMIC_U32, ATOMIC_F32, ATOMIC_F64, ATOMIC_U64, ATOMIC_I64 };

uint64_t atomic(AtomicOperation operation, AtomicType type, void *at, uint64_t value,
                uint64_t compare, const char *file, int line);
void fence(void);
void spin_hint(const char *file, int line);
[[noreturn]] void trap(const char *what, const char *file, int line);
uint64_t clock_now(void);

} // namespace plec_emu

#endif
