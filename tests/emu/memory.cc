#include "tests/emu/memory.h"
#include "tests/emu/check.h"
#include "tests/emu/faults.h"
#include "tests/emu/fiber.h"
#include "tests/emu/report.h"
#include "tests/emu/settings.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <sys/mman.h>

namespace plec_emu {

static constexpr size_t PAGE = 4096;
static const size_t RESERVED[2] = {(size_t)64 << 30, (size_t)16 << 30};

Arena arenas[2];
static int window_depth, n_allocations;
static size_t device_used;
static std::map<const char *, Allocation> &allocations = *new std::map<const char *, Allocation>;
static std::map<const char *, size_t> &registered = *new std::map<const char *, size_t>;
static std::map<std::string, int> &live = *new std::map<std::string, int>;

/* ---- the window ------------------------------------------------------------------------------ */

/* The pages that n bytes of device memory touch. */
static void protect(char *start, size_t n_bytes, bool open) {
    if (!settings.guard) return;
    char *page = start - (uintptr_t)start % PAGE;
    mprotect(page, (size_t)(start - page) + n_bytes, open ? PROT_READ | PROT_WRITE : PROT_NONE);
}

static void protect_all(bool open) {
    protect(arenas[DEVICE_MEMORY].base, arenas[DEVICE_MEMORY].n_taken, open);
}

static bool within_reach;

DeviceWindow::DeviceWindow() {
    window_depth++;
    if (!within_reach) protect_all(true);
    within_reach = true;
}

DeviceWindow::~DeviceWindow() {
    window_depth--;
}

bool device_window_open(void) {
    return window_depth > 0;
}

void close_device_window(void) {
    if (!within_reach || window_depth) return;
    protect_all(false);
    within_reach = false;
}

/* ---- allocation ------------------------------------------------------------------------------ */

static void reserve_arenas(void) {
    if (arenas[DEVICE_MEMORY].base) return;
    for (int kind = 0; kind < 2; kind++) {
        int access = kind == DEVICE_MEMORY && settings.guard ? PROT_NONE : PROT_READ | PROT_WRITE;
        void *base = mmap(nullptr, RESERVED[kind], access,
                          MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (base == MAP_FAILED) {
            perror("EMU: reserving memory");
            abort();
        }
        arenas[kind] = {(char *)base, RESERVED[kind], 0};
    }
    catch_faults();
}

/* A gap of at least 256 bytes follows, where no access is right. */
static size_t capacity_of(size_t n_bytes) {
    return (n_bytes + 511) & ~(size_t)255;
}

char *memory_allocate(size_t n_bytes, MemoryKind kind) {
    reserve_arenas();
    Arena &arena = arenas[kind];
    if (n_bytes > RESERVED[kind]) return nullptr;
    size_t alignment = n_bytes >= 16 * PAGE ? PAGE : 256;
    size_t offset = (arena.n_taken + alignment - 1) & ~(alignment - 1);
    size_t capacity = capacity_of(n_bytes);
    if (capacity > arena.n_bytes - offset) return nullptr;
    if (kind == DEVICE_MEMORY && n_bytes > settings.device_bytes - device_used) return nullptr;
    arena.n_taken = offset + capacity;
    char *start = arena.base + offset;
    if (kind == DEVICE_MEMORY) protect(start, capacity, true);
    ASAN_POISON_MEMORY_REGION(start, capacity);
    ASAN_UNPOISON_MEMORY_REGION(start, n_bytes);
    memset(start, 0xff, n_bytes);
    if (kind == DEVICE_MEMORY && !within_reach) protect(start, capacity, false);
    allocations[start] = {start, n_bytes, capacity, kind, true, ++n_allocations};
    if (kind == DEVICE_MEMORY) device_used += n_bytes;
    return start;
}

/* Gives whole pages back to the system; the addresses stay taken. */
static void drop_pages(const Allocation &a) {
    uintptr_t first = ((uintptr_t)a.start + PAGE - 1) & ~(uintptr_t)(PAGE - 1);
    uintptr_t end = ((uintptr_t)a.start + a.n_bytes) & ~(uintptr_t)(PAGE - 1);
    if (end > first) madvise((void *)first, end - first, MADV_DONTNEED);
}

bool memory_free(void *start, MemoryKind kind) {
    auto found = allocations.find((char *)start);
    if (found == allocations.end()) return false;
    Allocation &a = found->second;
    if (!a.live || a.kind != kind) return false;
    a.live = false;
    if (kind == DEVICE_MEMORY) device_used -= a.n_bytes;
    check_forget(a.start, a.n_bytes);
    ASAN_POISON_MEMORY_REGION(a.start, a.n_bytes);
    drop_pages(a);
    return true;
}

void memory_free_all(void) {
    for (auto &a : allocations)
        if (a.second.live) memory_free(a.second.start, a.second.kind);
    registered.clear();
    live.clear();
}

size_t device_bytes_used(void) {
    return device_used;
}

/* ---- looking up ------------------------------------------------------------------------------ */

const Allocation *allocation_near(const void *address) {
    auto after = allocations.upper_bound((const char *)address);
    return after == allocations.begin() ? nullptr : &(--after)->second;
}

const Allocation *allocation_of(const void *address, size_t n) {
    static const Allocation *last; /* map nodes stay where they are */
    const char *first = (const char *)address;
    if (!last || !last->live || first < last->start || first >= last->start + last->n_bytes)
        last = allocation_near(address);
    if (!last || !last->live || first < last->start) return nullptr;
    size_t offset = (size_t)(first - last->start);
    return offset < last->n_bytes && n <= last->n_bytes - offset ? last : nullptr;
}

std::string describe_address(const void *address) {
    const Allocation *a = allocation_near(address);
    if (!a) return "no allocation";
    const char *kind = a->kind == PINNED_MEMORY ? "pinned" : "device";
    size_t offset = (size_t)((const char *)address - a->start);
    if (offset < a->n_bytes)
        return text("%s allocation #%d+%zu (of %zu bytes%s)", kind, a->number, offset, a->n_bytes,
                    a->live ? "" : ", FREED");
    return text("%zu bytes past the end of %s allocation #%d (%zu bytes)", offset - a->n_bytes,
                kind, a->number, a->n_bytes);
}

void memory_register(const void *start, size_t n_bytes) {
    registered[(const char *)start] = n_bytes;
}

bool memory_unregister(const void *start) {
    return registered.erase((const char *)start) > 0;
}

bool is_page_locked(const void *address) {
    if (is_pinned(address)) return true;
    auto after = registered.upper_bound((const char *)address);
    if (after == registered.begin()) return false;
    --after;
    return (const char *)address < after->first + after->second;
}

void count_live(const char *what, int change) {
    live[what] += change;
}

std::string live_objects(void) {
    std::string list;
    int n_named = 0;
    for (auto &each : allocations) {
        const Allocation &a = each.second;
        if (!a.live || ++n_named > 6) continue;
        list += text("%s allocation #%d of %zu bytes not freed; ",
                     a.kind == PINNED_MEMORY ? "pinned" : "device", a.number, a.n_bytes);
    }
    for (auto &kind : live)
        if (kind.second > 0) list += text("%d %s not destroyed; ", kind.second, kind.first.c_str());
    return list;
}

} // namespace plec_emu
