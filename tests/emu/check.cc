#include "tests/emu/check.h"
#include "tests/emu/memory.h"
#include "tests/emu/operation.h"
#include "tests/emu/race.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/wgmma.h"

#include <algorithm>

namespace plec_emu {

/* ---- bounds ---------------------------------------------------------------------------------- */

static const char *verb(int access) {
    return access & ACCESS_WRITE ? "write" : "read";
}

static void out_of_bounds(Thread *thread, const void *address, size_t n_bytes, int access,
                          Place place, const char *space) {
    bool global = is_device(address) || is_pinned(address);
    report("oob", "%s of %zu bytes at %p (%s) out of bounds by %s %s", verb(access), n_bytes,
           address, space, accessor(thread, place).c_str(),
           global ? describe_address(address).c_str() : "");
    if (thread && thread == running) abort_launch();
}

static void check_alignment(Thread *thread, const void *address, size_t n_bytes, Place place) {
    bool vector = n_bytes >= 2 && n_bytes <= 16 && !(n_bytes & (n_bytes - 1));
    if (!vector || (uintptr_t)address % n_bytes == 0) return;
    if (first_time("misaligned", place, 0))
        report("misaligned", "%zu-byte access to %p by %s", n_bytes, address,
               accessor(thread, place).c_str());
}

/* The parts of an access that lie in one word each. */
template <class F> static void for_each_word(const void *address, size_t n_bytes, F visit) {
    for (size_t i = 0; i < n_bytes;) {
        const char *at = (const char *)address + i;
        unsigned first = (unsigned)((uintptr_t)at & 3);
        unsigned n = (unsigned)std::min<size_t>(4 - first, n_bytes - i);
        visit(at, ((1u << n) - 1) << first);
        i += n;
    }
}

/* ---- shared memory --------------------------------------------------------------------------- */

static void check_wgmma(const Thread *thread, unsigned offset, size_t n_bytes, Place place) {
    Place reader = wgmma_reading(thread->block, offset, n_bytes);
    if (reader && first_time("wgmma-overwrite", place, reader))
        report("wgmma-overwrite",
               "%s writes shared memory that the wgmma issued at %s, not waited for, reads",
               accessor(thread, place).c_str(), place_text(reader).c_str());
}

static void check_shared(Thread *thread, const void *address, size_t n_bytes, int access,
                         Place place) {
    size_t at = (size_t)((const char *)address - shared_arena);
    int slot = (int)(at / SHARED_SLOT);
    unsigned offset = (unsigned)(at % SHARED_SLOT);
    if (slot != thread->block->slot) {
        out_of_bounds(thread, address, n_bytes, access, place, "another block's shared memory");
        return;
    }
    if (!shared_holds(offset, n_bytes)) {
        out_of_bounds(thread, address, n_bytes, access, place, "shared memory");
        return;
    }
    check_alignment(thread, address, n_bytes, place);
    if (access & ACCESS_WRITE && !thread->block->warpgroups.empty())
        check_wgmma(thread, offset, n_bytes, place);
    const char *slot_start = shared_arena + (size_t)slot * SHARED_SLOT;
    for_each_word(address, n_bytes, [&](const char *word, unsigned bytes) {
        check_word(shadow_of_shared(slot, (unsigned)(word - slot_start)),
                   {thread, word, bytes, access, place, true});
    });
}

/* ---- global memory --------------------------------------------------------------------------- */

static void check_global(Thread *thread, const void *address, size_t n_bytes, int access,
                         Place place) {
    bool device = is_device(address);
    if (!allocation_of(address, n_bytes)) {
        /* The host's own accesses beside pinned memory may be its allocator's. */
        if (thread || operation_running != HOST || !device)
            out_of_bounds(thread, address, n_bytes, access, place,
                          device ? "device memory" : "pinned memory");
        return;
    }
    if (thread) check_alignment(thread, address, n_bytes, place);
    /* The host may have written pinned memory in code that is not checked. */
    if (!device && !(access & ACCESS_WRITE)) access |= ACCESS_UNDEFINED;
    for_each_word(address, n_bytes, [&](const char *word, unsigned bytes) {
        check_word(shadow_of_global(word), {thread, word, bytes, access, place, false});
    });
}

void check_access(Thread *thread, const void *address, size_t n_bytes, int access, Place place) {
    if (!checking) return;
    bool shared = (size_t)((const char *)address - shared_arena) < shared_arena_bytes;
    if (shared && thread)
        check_shared(thread, address, n_bytes, access, place);
    else if (is_device(address) || is_pinned(address))
        check_global(thread, address, n_bytes, access, place);
}

void check_range(const void *address, size_t n_bytes, int access) {
    check_access(nullptr, address, n_bytes, access, 0);
}

} // namespace plec_emu
