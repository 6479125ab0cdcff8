/* hooks.cc: the calls that g++ compiles into the checked build: one before each access to memory
 * (-fsanitize=thread; libtsan itself is not linked), and one for each misaligned or out-of-range
 * access that -fsanitize=alignment,bounds finds. */
#include "tests/emu/check.h"
#include "tests/emu/memory.h"
#include "tests/emu/operation.h"
#include "tests/emu/race.h"
#include "tests/emu/runtime.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/statistics.h"

#include <algorithm>
#include <link.h>

namespace plec_emu {

static bool in_shared(const void *address) {
    return (size_t)((const char *)address - shared_arena) < shared_arena_bytes;
}

/* ---- memory of the host ---------------------------------------------------------------------- */

struct Image {
    uintptr_t low = UINTPTR_MAX, high = 0;
};

static int widen_image(struct dl_phdr_info *info, size_t, void *user) {
    Image *image = (Image *)user;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        if (info->dlpi_phdr[i].p_type != PT_LOAD) continue;
        uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
        image->low = std::min(image->low, start);
        image->high = std::max(image->high, start + info->dlpi_phdr[i].p_memsz);
    }
    return 1; /* the executable only */
}

/* Constants and statics of the program. */
static bool in_image(const void *address) {
    static const Image image = [] {
        Image found;
        dl_iterate_phdr(widen_image, &found);
        return found;
    }();
    return (uintptr_t)address >= image.low && (uintptr_t)address < image.high;
}

/* A kernel may read its own stack, its arguments and the program's constants; another address
 * outside the arenas is the host's, which a GPU does not reach. */
static void check_host_address(const void *address, size_t n_bytes, int access, const void *pc) {
    const char *at = (const char *)address;
    if ((size_t)(at - running->stack) < running->stack_bytes || in_image(address)) return;
    const Launch &launch = *launch_running;
    if ((size_t)(at - launch.arguments) < launch.argument_bytes) return;
    if (is_page_locked(address)) return;
    Place place = place_of_pc(pc);
    if (!first_time("host-memory", place, 0)) return;
    report("host-memory", "%s of %zu bytes at %p, which is the host's, by %s",
           access & ACCESS_WRITE ? "write" : "read", n_bytes, address,
           accessor(running, place).c_str());
}

/* ---- accesses -------------------------------------------------------------------------------- */

static void host_access(const void *address, size_t n_bytes, int access, const void *pc) {
    Inside inside;
    int before = operation_running;
    operation_running = host_function_running();
    check_access(nullptr, address, n_bytes, access, place_of_pc(pc));
    operation_running = before;
}

static inline void on_access(const void *address, size_t n_bytes, int access, const void *pc) {
    bool global = is_device(address) || is_pinned(address);
    if (!global && !in_shared(address)) {
        if (running) check_host_address(address, n_bytes, access, pc);
        return;
    }
    if (!running) {
        host_access(address, n_bytes, access, pc);
        return;
    }
    if (settings.preempt) maybe_preempt();
    Place place = place_of_pc(pc);
    bool writes = access & ACCESS_WRITE;
    Kind kind = global   ? writes ? PLEC_EMU_GLOBAL_STORE : PLEC_EMU_GLOBAL_LOAD
                : writes ? PLEC_EMU_SHARED_STORE
                         : PLEC_EMU_SHARED_LOAD;
    check_access(running, address, n_bytes, access, place);
    statistics_access(kind, running, address, n_bytes, place);
}

} // namespace plec_emu

using namespace plec_emu;

#define CALLER __builtin_return_address(0)

#define HOOKS(n)                                                                                   \
    extern "C" void __tsan_read##n(void *p) {                                                      \
        on_access(p, n, ACCESS_READ, CALLER);                                                      \
    }                                                                                              \
    extern "C" void __tsan_write##n(void *p) {                                                     \
        on_access(p, n, ACCESS_WRITE, CALLER);                                                     \
    }                                                                                              \
    extern "C" void __tsan_unaligned_read##n(void *p) {                                            \
        on_access(p, n, ACCESS_READ, CALLER);                                                      \
    }                                                                                              \
    extern "C" void __tsan_unaligned_write##n(void *p) {                                           \
        on_access(p, n, ACCESS_WRITE, CALLER);                                                     \
    }                                                                                              \
    extern "C" void __tsan_volatile_read##n(void *p) {                                             \
        on_access(p, n, ACCESS_READ, CALLER);                                                      \
    }                                                                                              \
    extern "C" void __tsan_volatile_write##n(void *p) {                                            \
        on_access(p, n, ACCESS_WRITE, CALLER);                                                     \
    }
HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)

extern "C" void __tsan_read_range(void *p, unsigned long n) {
    on_access(p, n, ACCESS_READ, CALLER);
}
extern "C" void __tsan_write_range(void *p, unsigned long n) {
    on_access(p, n, ACCESS_WRITE, CALLER);
}
extern "C" void __tsan_init(void) {
    checking = true;
}
extern "C" void __tsan_func_entry(void *) {}
extern "C" void __tsan_func_exit(void) {}
extern "C" void __tsan_vptr_update(void **, void *) {}
extern "C" void __tsan_vptr_read(void **) {}

/* Atomics of C and C++ belong to the host: they are done, and not checked. */
#define HOST_ATOMICS(bits, T)                                                                      \
    extern "C" T __tsan_atomic##bits##_load(const volatile T *p, int) {                            \
        return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                               \
    }                                                                                              \
    extern "C" void __tsan_atomic##bits##_store(volatile T *p, T v, int) {                         \
        __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                                  \
    }                                                                                              \
    extern "C" T __tsan_atomic##bits##_exchange(volatile T *p, T v, int) {                         \
        return __atomic_exchange_n(p, v, __ATOMIC_SEQ_CST);                                        \
    }                                                                                              \
    extern "C" T __tsan_atomic##bits##_fetch_add(volatile T *p, T v, int) {                        \
        return __atomic_fetch_add(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    extern "C" T __tsan_atomic##bits##_fetch_sub(volatile T *p, T v, int) {                        \
        return __atomic_fetch_sub(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    extern "C" T __tsan_atomic##bits##_fetch_and(volatile T *p, T v, int) {                        \
        return __atomic_fetch_and(p, v, __ATOMIC_SEQ_CST);                                         \
    }                                                                                              \
    extern "C" T __tsan_atomic##bits##_fetch_or(volatile T *p, T v, int) {                         \
        return __atomic_fetch_or(p, v, __ATOMIC_SEQ_CST);                                          \
    }                                                                                              \
    extern "C" int __tsan_atomic##bits##_compare_exchange_strong(volatile T *p, T *c, T v, int,    \
                                                                 int) {                            \
        return __atomic_compare_exchange_n(p, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }                                                                                              \
    extern "C" int __tsan_atomic##bits##_compare_exchange_weak(volatile T *p, T *c, T v, int,      \
                                                               int) {                              \
        return __atomic_compare_exchange_n(p, c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);        \
    }                                                                                              \
    extern "C" T __tsan_atomic##bits##_compare_exchange_val(volatile T *p, T c, T v, int, int) {   \
        __atomic_compare_exchange_n(p, &c, v, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);              \
        return c;                                                                                  \
    }
HOST_ATOMICS(8, unsigned char)
HOST_ATOMICS(16, unsigned short)
HOST_ATOMICS(32, unsigned)
HOST_ATOMICS(64, unsigned long)
extern "C" void __tsan_atomic_thread_fence(int) {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
extern "C" void __tsan_atomic_signal_fence(int) {}

/* ---- alignment and bounds of arrays ---------------------------------------------------------- */

struct SourceLocation {
    const char *file;
    uint32_t line, column;
};
struct TypeMismatch {
    SourceLocation at;
    void *type;
    unsigned char log_alignment, kind;
};
struct OutOfBounds {
    SourceLocation at;
    void *array_type, *index_type;
};

/* Weak: a program that links libubsan keeps libubsan's. */
extern "C" __attribute__((weak)) void __ubsan_handle_type_mismatch_v1(TypeMismatch *data,
                                                                      uintptr_t address) {
    Place place = place_of_line(data->at.file, (int)data->at.line);
    if (first_time("misaligned", place, 0))
        report(address ? "misaligned" : "null", "access to %p needs %d-byte alignment, %s",
               (void *)address, 1 << data->log_alignment, accessor(running, place).c_str());
    if (running) abort_launch();
}

extern "C" __attribute__((weak)) void __ubsan_handle_out_of_bounds(OutOfBounds *data,
                                                                   uintptr_t index) {
    Place place = place_of_line(data->at.file, (int)data->at.line);
    if (first_time("bounds", place, 0))
        report("bounds", "array index %ld out of bounds, %s", (long)index,
               accessor(running, place).c_str());
}
