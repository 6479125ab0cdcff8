/* memory.h: the memory of the emulated device, and pinned memory of the host.
 *
 * Each is one reserved range of addresses, never reused, so that a freed pointer stays wrong. New
 * memory is 0xff throughout. Device memory is out of reach (PROT_NONE) while host code runs, so
 * that a host that dereferences a device pointer stops there. */
#ifndef PLEC_TESTS_EMU_MEMORY_H
#define PLEC_TESTS_EMU_MEMORY_H

#include <cstddef>
#include <string>

namespace plec_emu {

enum MemoryKind { DEVICE_MEMORY, PINNED_MEMORY };

struct Allocation {
    char *start;
    size_t n_bytes, capacity; /* asked for, taken */
    MemoryKind kind;
    bool live;
    int number; /* as reports name it */
};

struct Arena {
    char *base = nullptr;
    size_t n_bytes = 0, n_taken = 0;
};
extern Arena arenas[2]; /* by MemoryKind */

inline bool in_arena(const Arena &arena, const void *address) {
    return (size_t)((const char *)address - arena.base) < arena.n_bytes;
}
inline bool is_device(const void *address) {
    return in_arena(arenas[DEVICE_MEMORY], address);
}
inline bool is_pinned(const void *address) {
    return in_arena(arenas[PINNED_MEMORY], address);
}

/* Null when there is no room. n_bytes > 0. */
char *memory_allocate(size_t n_bytes, MemoryKind kind);
/* False when `start` is no live allocation of this kind. */
bool memory_free(void *start, MemoryKind kind);
void memory_free_all(void);
size_t device_bytes_used(void);

/* The live allocation that holds n bytes from address; null: none. */
const Allocation *allocation_of(const void *address, size_t n);
/* Any, live or freed, that address lies in or behind. */
const Allocation *allocation_near(const void *address);
std::string describe_address(const void *address);

/* Memory of the host's own that cudaHostRegister pinned. */
void memory_register(const void *start, size_t n_bytes);
bool memory_unregister(const void *start);
/* Pinned either way. */
bool is_page_locked(const void *address);

/* What was never freed or destroyed, as text; empty: nothing. */
std::string live_objects(void);
void count_live(const char *what, int change); /* streams, events, graphs */

/* Device memory can be touched while one of these lives. It stays within reach until the thread
 * returns to the host's code (close_device_window): changing the protection of many pages is dear.
 */
struct DeviceWindow {
    DeviceWindow();
    ~DeviceWindow();
    DeviceWindow(const DeviceWindow &) = delete;
};
bool device_window_open(void);
void close_device_window(void);

} // namespace plec_emu

#endif
