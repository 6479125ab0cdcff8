/* ptx.cuh: every PTX instruction of kernels and of the contract cases (tests/emu), one wrapper
 * each; wgmma has a file of its own (ptx_wgmma.cuh). Nothing else in the tree has inline PTX. Under
 * nvcc a wrapper is the instruction; in the emulation it is a call of the same meaning in
 * tests/emu/instructions.h, which checks what the hardware leaves undefined. A wrapper for an
 * instruction that the target lacks does not exist there.
 *
 * Shared memory is named by 32-bit addresses (plec_shared_address), global memory by pointers.
 * PLEC_HERE adds the caller's source line in the emulation: it is how reports name a line.
 */
#ifndef PLEC_DEVICE_CUDA_PTX_CUH
#define PLEC_DEVICE_CUDA_PTX_CUH

#include "device/cuda/launch.cuh"

#ifdef PLEC_CUDA_EMULATED
#define PLEC_HERE           , const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define PLEC_HERE_ONLY      const char *file_ = __builtin_FILE(), int line_ = __builtin_LINE()
#define PLEC_PTX(call, ...) plec_emu::call
#define PLEC_HAS_SM90       1
#define PLEC_HAS_SM90A      1
#else
#define PLEC_HERE
#define PLEC_HERE_ONLY
#define PLEC_PTX(call, ...) __VA_ARGS__
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900
#define PLEC_HAS_SM90 1
#endif
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PLEC_HAS_SM90A 1
#endif
#endif
#define PLEC_PTX_FUNCTION __device__ __forceinline__

/* ---- addresses, lanes, named barriers -------------------------------------------------------- */

/* The 32-bit shared-memory address of an object in shared memory. */
PLEC_PTX_FUNCTION unsigned plec_shared_address(const void *object PLEC_HERE) {
    return PLEC_PTX(shared_address(object, file_, line_),
                    (unsigned)__cvta_generic_to_shared(object));
}

PLEC_PTX_FUNCTION unsigned plec_lane(void) {
#ifdef PLEC_CUDA_EMULATED
    return plec_emu::lane();
#else
    unsigned lane;
    asm("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
#endif
}

/* What this code was compiled for, 90: its device may be later. */
PLEC_PTX_FUNCTION uint32_t plec_image_arch(void) {
#if defined(PLEC_CUDA_EMULATED)
    return plec_emu::image_arch();
#elif defined(__CUDA_ARCH__)
    return __CUDA_ARCH__ / 10;
#else
    return 0;
#endif
}

/* Barrier `id` (1..15) of `n_threads` threads (a multiple of 32): waits for all of them. */
PLEC_PTX_FUNCTION void plec_barrier_sync(int id, int n_threads PLEC_HERE) {
    PLEC_PTX(block_barrier("bar.sync", id, n_threads, 0, 0, true, file_, line_),
             asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n_threads)
                          : "memory"));
}

/* The same barrier without waiting. */
PLEC_PTX_FUNCTION void plec_barrier_arrive(int id, int n_threads PLEC_HERE) {
    PLEC_PTX(block_barrier("bar.arrive", id, n_threads, 0, 0, false, file_, line_),
             asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n_threads)
                          : "memory"));
}

/* PRMT as it is: __byte_perm masks its selector first. Selector nibbles are 0 to 7. */
PLEC_PTX_FUNCTION uint32_t plec_byte_permute(uint32_t low, uint32_t high, uint32_t selector) {
#ifdef PLEC_CUDA_EMULATED
    return __byte_perm(low, high, selector);
#else
    uint32_t out;
    asm("prmt.b32 %0, %1, %2, %3;" : "=r"(out) : "r"(low), "r"(high), "r"(selector));
    return out;
#endif
}

/* ---- vector accesses: one access each, aligned to its size ----------------------------------- */

/* 16 bytes from shared or global memory. */
PLEC_PTX_FUNCTION uint4 plec_load_16(const void *from PLEC_HERE) {
    return PLEC_PTX(load<uint4>(from, file_, line_), *(const uint4 *)from);
}

PLEC_PTX_FUNCTION uint2 plec_load_8(const void *from PLEC_HERE) {
    return PLEC_PTX(load<uint2>(from, file_, line_), *(const uint2 *)from);
}

PLEC_PTX_FUNCTION void plec_store_16(void *to, uint4 value PLEC_HERE) {
    PLEC_PTX(store<uint4>(to, value, file_, line_), *(uint4 *)to = value);
}

/* ---- between blocks -------------------------------------------------------------------------- */

PLEC_PTX_FUNCTION uint32_t plec_load_acquire(const uint32_t *from PLEC_HERE) {
#ifdef PLEC_CUDA_EMULATED
    return plec_emu::load_acquire(from, file_, line_);
#else
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
    return value;
#endif
}

PLEC_PTX_FUNCTION void plec_store_release(uint32_t *to, uint32_t value PLEC_HERE) {
    PLEC_PTX(store_release(to, value, file_, line_),
             asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(value)
                          : "memory"));
}

/* What a loop that waits for another block calls each time round. */
PLEC_PTX_FUNCTION void plec_spin(PLEC_HERE_ONLY) {
    PLEC_PTX(spin_hint(file_, line_), __nanosleep(64));
}

/* ---- sm_80: cp.async ------------------------------------------------------------------------- */

/* Copies from global to shared memory behind the thread's back; where `there` is false the
 * destination is zeroed and nothing is read. Both addresses are aligned to the size. */
PLEC_PTX_FUNCTION void plec_copy_async_16(unsigned to, const void *from, bool there PLEC_HERE) {
    PLEC_PTX(copy_async(to, from, 16, there ? 16 : 0, file_, line_),
             asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from),
                          "r"(there ? 16 : 0)
                          : "memory"));
}

PLEC_PTX_FUNCTION void plec_copy_async_8(unsigned to, const void *from, bool there PLEC_HERE) {
    PLEC_PTX(copy_async(to, from, 8, there ? 8 : 0, file_, line_),
             asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(to), "l"(from),
                          "r"(there ? 8 : 0)
                          : "memory"));
}

PLEC_PTX_FUNCTION void plec_copy_async_4(unsigned to, const void *from, bool there PLEC_HERE) {
    PLEC_PTX(copy_async(to, from, 4, there ? 4 : 0, file_, line_),
             asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(from),
                          "r"(there ? 4 : 0)
                          : "memory"));
}

/* Closes the group of the copies issued since the last commit. */
PLEC_PTX_FUNCTION void plec_copy_async_commit(PLEC_HERE_ONLY) {
    PLEC_PTX(copy_async_commit(file_, line_), asm volatile("cp.async.commit_group;" ::: "memory"));
}

/* Waits until at most N of this thread's groups are under way. */
template <int N> PLEC_PTX_FUNCTION void plec_copy_async_wait(PLEC_HERE_ONLY) {
    PLEC_PTX(copy_async_wait(N, file_, line_), asm volatile("cp.async.wait_group %0;" ::"n"(N)
                                                            : "memory"));
}

/* ---- sm_80: ldmatrix, mma.sync --------------------------------------------------------------- */

/* Four 8x8 matrices of 16-bit elements; lane 8 m + r holds the address of row r of matrix m. */
PLEC_PTX_FUNCTION void plec_ldmatrix_x4(unsigned (&r)[4], unsigned row PLEC_HERE) {
    PLEC_PTX(ldmatrix(r, 4, false, row, file_, line_),
             asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                          : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                          : "r"(row)
                          : "memory"));
}

/* The same, each matrix transposed. */
PLEC_PTX_FUNCTION void plec_ldmatrix_x4_transposed(unsigned (&r)[4], unsigned row PLEC_HERE) {
    PLEC_PTX(ldmatrix(r, 4, true, row, file_, line_),
             asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                          : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                          : "r"(row)
                          : "memory"));
}

/* d += a * b: m16n8k16, bf16 operands, f32 accumulators. */
PLEC_PTX_FUNCTION void plec_mma_bf16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                     unsigned b1 PLEC_HERE) {
    PLEC_PTX(mma_bf16(d, a, b0, b1, file_, line_),
             asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
                          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/* d += a * b: m16n8k16, f16 operands, f32 accumulators. */
PLEC_PTX_FUNCTION void plec_mma_f16(float (&d)[4], const unsigned (&a)[4], unsigned b0,
                                    unsigned b1 PLEC_HERE) {
    PLEC_PTX(mma_f16(d, a, b0, b1, file_, line_),
             asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
                          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                          : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

/* d += a * b: m16n8k32, s8 operands, s32 accumulators. */
PLEC_PTX_FUNCTION void plec_mma_s8(int (&d)[4], const unsigned (&a)[4], unsigned b0,
                                   unsigned b1 PLEC_HERE) {
    PLEC_PTX(mma_s8(d, a, b0, b1, file_, line_),
             asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
                          "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                          : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1)));
}

#ifdef PLEC_HAS_SM90
/* ---- sm_90: pairs of bf16 -------------------------------------------------------------------- */

/* Sum and product of two pairs, each rounded once; subnormals are kept. */
PLEC_PTX_FUNCTION uint32_t plec_add_bf16x2(uint32_t x, uint32_t y) {
#ifdef PLEC_CUDA_EMULATED
    return plec_emu::add_bf16x2(x, y);
#else
    uint32_t out;
    asm("add.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(x), "r"(y));
    return out;
#endif
}

PLEC_PTX_FUNCTION uint32_t plec_mul_bf16x2(uint32_t x, uint32_t y) {
#ifdef PLEC_CUDA_EMULATED
    return plec_emu::mul_bf16x2(x, y);
#else
    uint32_t out;
    asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(out) : "r"(x), "r"(y));
    return out;
#endif
}

/* ---- sm_90: stmatrix, dependent launches ----------------------------------------------------- */

/* Four 8x8 matrices to shared memory; addresses as ldmatrix. */
PLEC_PTX_FUNCTION void plec_stmatrix_x4(unsigned row, const unsigned (&r)[4] PLEC_HERE) {
    PLEC_PTX(
        stmatrix(r, 4, false, row, file_, line_),
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(row),
                     "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
                     : "memory"));
}

/* In a kernel launched with PLEC_LAUNCH_DEPENDENT: waits until the kernel ahead has ended and its
 * writes are visible. Nothing that it reads or writes may be touched before, by any thread that has
 * not waited, or met one at a barrier that has. */
PLEC_PTX_FUNCTION void plec_grid_wait(PLEC_HERE_ONLY) {
    PLEC_PTX(grid_wait(file_, line_), asm volatile("griddepcontrol.wait;" ::: "memory"));
}

/* The kernel behind may start once all blocks have called this or ended. */
PLEC_PTX_FUNCTION void plec_grid_launch_dependents(PLEC_HERE_ONLY) {
    PLEC_PTX(grid_launch_dependents(file_, line_),
             asm volatile("griddepcontrol.launch_dependents;" ::
                              : "memory"));
}

/* ---- sm_90: mbarrier, bulk copies ------------------------------------------------------------ */

/* A barrier in shared memory, 8 bytes, for `count` arrivals a phase. */
PLEC_PTX_FUNCTION void plec_mbarrier_init(unsigned barrier, unsigned count PLEC_HERE) {
    PLEC_PTX(mbarrier_init(barrier, count, file_, line_),
             asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count)
                          : "memory"));
}

/* Makes initialised barriers known to the asynchronous proxy; then a block barrier follows. */
PLEC_PTX_FUNCTION void plec_mbarrier_init_fence(PLEC_HERE_ONLY) {
    PLEC_PTX(mbarrier_init_fence(file_, line_),
             asm volatile("fence.mbarrier_init.release.cluster;" ::
                              : "memory"));
}

PLEC_PTX_FUNCTION void plec_mbarrier_arrive(unsigned barrier PLEC_HERE) {
    PLEC_PTX(mbarrier_arrive(barrier, 0, file_, line_),
             asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier)
                          : "memory"));
}

/* Arrives and makes the phase wait for `n_bytes` of bulk copies as well. */
PLEC_PTX_FUNCTION void plec_mbarrier_arrive_expect(unsigned barrier, unsigned n_bytes PLEC_HERE) {
    PLEC_PTX(mbarrier_arrive(barrier, n_bytes, file_, line_),
             asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier),
                          "r"(n_bytes)
                          : "memory"));
}

/* Waits until the phase of this parity (0 for the first) is complete. */
PLEC_PTX_FUNCTION void plec_mbarrier_wait(unsigned barrier, unsigned parity PLEC_HERE) {
#ifdef PLEC_CUDA_EMULATED
    plec_emu::mbarrier_wait(barrier, parity, file_, line_);
#else
    unsigned done;
    do {
        asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; "
                     "selp.u32 %0, 1, 0, p; }"
                     : "=r"(done)
                     : "r"(barrier), "r"(parity)
                     : "memory");
    } while (!done);
#endif
}

/* Arrives when all copies of plec_copy_async that this thread has issued so far have landed: one of
 * the arrivals that the barrier was initialised for. (The emulation has it not behind groups.) */
PLEC_PTX_FUNCTION void plec_copy_async_arrive(unsigned barrier PLEC_HERE) {
    PLEC_PTX(copy_async_arrive(barrier, file_, line_),
             asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier)
                          : "memory"));
}

/* What plec_bulk_load_once takes: lines that it brings are the first that the L2 cache gives up. */
PLEC_PTX_FUNCTION uint64_t plec_evict_first(void) {
#ifdef PLEC_CUDA_EMULATED
    return 0;
#else
    uint64_t policy;
    asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    return policy;
#endif
}

/* As plec_bulk_load, of bytes that nobody reads soon again. */
PLEC_PTX_FUNCTION void plec_bulk_load_once(unsigned to, const void *from, unsigned n_bytes,
                                           unsigned barrier, uint64_t policy PLEC_HERE) {
    (void)policy;
    PLEC_PTX(bulk_load(to, from, n_bytes, barrier, file_, line_),
             asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes"
                          ".L2::cache_hint [%0], [%1], %2, [%3], %4;" ::"r"(to),
                          "l"(from), "r"(n_bytes), "r"(barrier), "l"(policy)
                          : "memory"));
}

/* n_bytes from global to shared memory, counted by the barrier; all three multiples of 16. */
PLEC_PTX_FUNCTION void plec_bulk_load(unsigned to, const void *from, unsigned n_bytes,
                                      unsigned barrier PLEC_HERE) {
    PLEC_PTX(bulk_load(to, from, n_bytes, barrier, file_, line_),
             asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes "
                          "[%0], [%1], %2, [%3];" ::"r"(to),
                          "l"(from), "r"(n_bytes), "r"(barrier)
                          : "memory"));
}

/* The box at column x, row y of a tensor map's matrix; `to` aligned to 128 bytes. */
PLEC_PTX_FUNCTION void plec_tensor_load_2d(unsigned to, const void *map, int x, int y,
                                           unsigned barrier PLEC_HERE) {
    PLEC_PTX(tensor_load_2d(to, map, x, y, barrier, file_, line_),
             asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile."
                          "mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                          "l"(map), "r"(x), "r"(y), "r"(barrier)
                          : "memory"));
}

/* Makes this thread's ordinary stores to shared memory visible to wgmma and bulk copies. */
PLEC_PTX_FUNCTION void plec_fence_proxy_async(PLEC_HERE_ONLY) {
    PLEC_PTX(fence_proxy_async(file_, line_), asm volatile("fence.proxy.async.shared::cta;" ::
                                                               : "memory"));
}
#endif

/* ---- chains of kernels ----------------------------------------------------------------------- */

/* The first lines of a kernel that may be launched behind others of its stream as dependent, where
 * the architecture has such launches: waits for the kernel ahead and only then lets the one behind
 * start. So all that was ahead of the kernel ahead has ended before a kernel begins. */
PLEC_PTX_FUNCTION void plec_chain_wait(void) {
#ifdef PLEC_HAS_SM90
    plec_grid_wait();
    plec_grid_launch_dependents();
#endif
}

/* In a kernel that is not launched as dependent, but behind which one may be. */
PLEC_PTX_FUNCTION void plec_chain_begin(void) {
#ifdef PLEC_HAS_SM90
    plec_grid_launch_dependents();
#endif
}

#endif
