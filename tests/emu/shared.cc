#include "tests/emu/shared.h"
#include "tests/emu/check.h"
#include "tests/emu/core.h"
#include "tests/emu/scheduler.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <sys/mman.h>

namespace plec_emu {

char *shared_arena;
size_t shared_arena_bytes;

void shared_reserve(int n_slots, Launch *launch) {
    size_t n_bytes = (size_t)n_slots * SHARED_SLOT;
    launch->shared_end = SHARED_BASE + (unsigned)launch->shared_bytes;
    if (n_bytes <= shared_arena_bytes) return;
    if (shared_arena) munmap(shared_arena, shared_arena_bytes);
    void *arena = mmap(nullptr, n_bytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (arena == MAP_FAILED) {
        perror("EMU: shared memory");
        abort();
    }
    shared_arena = (char *)arena;
    shared_arena_bytes = n_bytes;
    check_shared_reserve(n_slots);
}

static void poison(Block *block, unsigned offset, size_t n_bytes) {
    ASAN_UNPOISON_MEMORY_REGION(block->shared + offset, n_bytes);
    memset(block->shared + offset, 0xff, n_bytes);
    check_shared_clear(block, offset, n_bytes);
}

void shared_begin(Block *block) {
    block->shared = shared_arena + (size_t)block->slot * SHARED_SLOT;
    ASAN_POISON_MEMORY_REGION(block->shared, SHARED_SLOT);
    poison(block, SHARED_BASE, launch_running->shared_bytes);
    for (const StaticShared &s : launch_running->statics)
        poison(block, s.offset, s.n_bytes);
}

void *dynamic_shared(const char *file, int line) {
    if (!launch_running->shared_bytes)
        report("smem", "%s:%d: %s uses dynamic shared memory but was launched with 0 bytes",
               base_name(file), line, launch_running->name.c_str());
    return running->block->shared + SHARED_BASE;
}

/* The first thread to come by places it, in all resident blocks. */
static unsigned place_static(const void *key, unsigned n_bytes, unsigned alignment) {
    Launch &launch = *launch_running;
    alignment = std::max(alignment, 16u);
    unsigned offset = (launch.shared_end + 64 + alignment - 1) & ~(alignment - 1);
    launch.statics.push_back({key, offset, n_bytes});
    launch.shared_end = offset + n_bytes;
    return offset;
}

static size_t bytes_in_use(void) {
    size_t n = launch_running->shared_bytes;
    for (const StaticShared &s : launch_running->statics)
        n += s.n_bytes;
    return n;
}

void *static_shared(const void *key, unsigned n_bytes, unsigned alignment, const char *file,
                    int line) {
    for (const StaticShared &s : launch_running->statics)
        if (s.key == key) return running->block->shared + s.offset;
    unsigned offset = place_static(key, n_bytes, alignment);
    if (bytes_in_use() > SHARED_LIMIT || launch_running->shared_end > SHARED_SLOT) {
        report("smem", "%s:%d: %s uses %zu bytes of shared memory", base_name(file), line,
               launch_running->name.c_str(), bytes_in_use());
        abort_launch();
    }
    for (Block *block : resident)
        poison(block, offset, n_bytes);
    return running->block->shared + offset;
}

unsigned shared_address(const void *object, const char *file, int line) {
    size_t offset = (size_t)((const char *)object - running->block->shared);
    if (offset >= SHARED_SLOT)
        trap("address of a shared object expected (__cvta_generic_to_shared)", file, line);
    return (unsigned)offset;
}

bool shared_holds(unsigned address, size_t n_bytes) {
    const Launch &launch = *launch_running;
    size_t end = address + n_bytes;
    if (address >= SHARED_BASE && end <= SHARED_BASE + launch.shared_bytes) return true;
    for (const StaticShared &s : launch.statics)
        if (address >= s.offset && end <= s.offset + s.n_bytes) return true;
    return false;
}

char *shared_pointer(unsigned address, unsigned n_bytes, const char *file, int line) {
    if (!shared_holds(address, n_bytes)) {
        report("smem-oob", "%s:%d: shared address %#x+%u is outside shared memory, %s",
               base_name(file), line, address, n_bytes, who(running).c_str());
        abort_launch();
    }
    return running->block->shared + address;
}

} // namespace plec_emu
