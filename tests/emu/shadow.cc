#include "tests/emu/shadow.h"
#include "tests/emu/check.h"
#include "tests/emu/memory.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace plec_emu {

/* Global memory: a page of shadow for 4 KiB, made when it is first touched. */
struct ShadowPage {
    Cell cells[1024];
    uint8_t initialised[1024];
};

static std::vector<ShadowPage *> pages[2]; /* by MemoryKind */
static std::vector<Cell> &shared_cells = *new std::vector<Cell>;
static std::vector<uint8_t> &shared_initialised = *new std::vector<uint8_t>;

static ShadowPage *&page_of(const void *address) {
    int kind = is_device(address) ? DEVICE_MEMORY : PINNED_MEMORY;
    size_t i = (size_t)((const char *)address - arenas[kind].base) >> 12;
    std::vector<ShadowPage *> &list = pages[kind];
    if (list.size() <= i) list.resize(i + 1);
    return list[i];
}

static size_t word_in_page(const void *address) {
    return (uintptr_t)address >> 2 & 1023;
}

Word shadow_of_global(const void *address) {
    ShadowPage *&page = page_of(address);
    if (!page) page = (ShadowPage *)calloc(1, sizeof(ShadowPage));
    if (!page) abort();
    size_t i = word_in_page(address);
    return {&page->cells[i], &page->initialised[i]};
}

void check_forget(const void *address, size_t n_bytes) {
    if (!checking) return;
    const char *first = (const char *)((uintptr_t)address & ~(uintptr_t)3);
    const char *end = (const char *)address + n_bytes;
    while (first < end) { /* a page at a time */
        size_t i = word_in_page(first);
        size_t n = std::min((size_t)1024 - i, (size_t)(end - first + 3) / 4);
        ShadowPage *page = page_of(first);
        if (page) {
            memset((void *)&page->cells[i], 0, n * sizeof(Cell));
            memset(&page->initialised[i], 0, n);
        }
        first += n * 4;
    }
}

static const size_t SLOT_WORDS = SHARED_SLOT / 4;

Word shadow_of_shared(int slot, unsigned offset) {
    size_t i = (size_t)slot * SLOT_WORDS + offset / 4;
    return {&shared_cells[i], &shared_initialised[i]};
}

void check_shared_reserve(int n_slots) {
    if (!checking) return;
    shared_cells.assign((size_t)n_slots * SLOT_WORDS, Cell());
    shared_initialised.assign((size_t)n_slots * SLOT_WORDS, 0);
}

void check_shared_clear(const Block *block, unsigned offset, size_t n_bytes) {
    if (!checking || !n_bytes) return;
    size_t first = (size_t)block->slot * SLOT_WORDS + offset / 4, n = (n_bytes + 3) / 4;
    if (first + n > shared_cells.size()) /* reserved before a checked object was there */
        check_shared_reserve((int)(shared_arena_bytes / SHARED_SLOT));
    memset((void *)&shared_cells[first], 0, n * sizeof(Cell));
    memset(&shared_initialised[first], 0, n);
}

} // namespace plec_emu
