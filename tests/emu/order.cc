/* order.cc: atomics, fences, acquire and release, and kernels that start early. */
#include "tests/emu/check.h"
#include "tests/emu/instructions.h"
#include "tests/emu/memory.h"
#include "tests/emu/race.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/state.h"
#include "tests/emu/statistics.h"

#include <algorithm>
#include <cstring>

namespace plec_emu {

/* ---- atomics --------------------------------------------------------------------------------- */

template <class T> static T as(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof(value));
    return value;
}

template <class T> static T arithmetic(AtomicOperation operation, T old, T value, T compare) {
    switch (operation) {
    case ATOMIC_ADD: return (T)(old + value);
    case ATOMIC_SUB: return (T)(old - value);
    case ATOMIC_MIN: return std::min(old, value);
    case ATOMIC_MAX: return std::max(old, value);
    case ATOMIC_EXCHANGE: return value;
    case ATOMIC_COMPARE: return old == compare ? value : old;
    case ATOMIC_INCREMENT: return old >= value ? T(0) : (T)(old + T(1));
    default: return old;
    }
}

template <class T> static T bitwise(AtomicOperation operation, T old, T value) {
    return operation == ATOMIC_AND  ? old & value
           : operation == ATOMIC_OR ? old | value
                                    : old ^ value;
}

template <class T>
static uint64_t update(AtomicOperation operation, void *at, uint64_t value, uint64_t compare) {
    T old;
    memcpy(&old, at, sizeof(old));
    T updated = arithmetic<T>(operation, old, as<T>(value), as<T>(compare));
    if constexpr (std::is_integral_v<T>) {
        bool bits = operation == ATOMIC_AND || operation == ATOMIC_OR || operation == ATOMIC_XOR;
        if (bits) updated = bitwise<T>(operation, old, as<T>(value));
    }
    memcpy(at, &updated, sizeof(updated));
    uint64_t result = 0;
    memcpy(&result, &old, sizeof(old));
    return result;
}

static uint64_t update_as(AtomicType type, AtomicOperation operation, void *at, uint64_t value,
                          uint64_t compare) {
    switch (type) {
    case ATOMIC_I32: return update<int32_t>(operation, at, value, compare);
    case ATOMIC_U32: return update<uint32_t>(operation, at, value, compare);
    case ATOMIC_F32: return update<float>(operation, at, value, compare);
    case ATOMIC_F64: return update<double>(operation, at, value, compare);
    case ATOMIC_U64: return update<uint64_t>(operation, at, value, compare);
    case ATOMIC_I64: return update<int64_t>(operation, at, value, compare);
    }
    return 0;
}

uint64_t atomic(AtomicOperation operation, AtomicType type, void *at, uint64_t value,
                uint64_t compare, const char *file, int line) {
    size_t n_bytes = type == ATOMIC_I32 || type == ATOMIC_U32 || type == ATOMIC_F32 ? 4 : 8;
    if ((uintptr_t)at % n_bytes) trap("misaligned atomic", file, line);
    Place place = place_of_line(file, line);
    statistics_access(PLEC_EMU_ATOMIC, running, at, n_bytes, place);
    if (checking) {
        check_access(running, at, n_bytes, ACCESS_WRITE | ACCESS_ATOMIC, place);
        clock_observe(at, running, false);
        clock_publish(at, running);
    }
    note_progress();
    return update_as(type, operation, at, value, compare);
}

/* ---- fences ---------------------------------------------------------------------------------- */

void fence(void) {
    if (checking) clock_fence(running);
}

uint32_t load_acquire(const uint32_t *from, const char *file, int line) {
    uint32_t value;
    if (checking) {
        check_access(running, from, 4, ACCESS_READ | ACCESS_ATOMIC, place_of_line(file, line));
        clock_observe(from, running, true);
    }
    memcpy(&value, from, 4);
    return value;
}

void store_release(uint32_t *to, uint32_t value, const char *file, int line) {
    if (checking) {
        clock_fence(running);
        check_access(running, to, 4, ACCESS_WRITE | ACCESS_ATOMIC, place_of_line(file, line));
        clock_publish(to, running);
    }
    memcpy(to, &value, 4);
    note_progress();
}

void fence_proxy_async(const char *, int) {
    running->now = clock_tick();
    running->proxy_fenced = running->now;
}

/* ---- programmatic dependent launch ----------------------------------------------------------- */

void grid_wait(const char *, int) {
    running->now = clock_tick();
    running->grid_waited = true;
    running->block->grid_waits.push_back({running->index, running->now});
}

/* Kernels run one after another, so what may start early starts late; the checker knows it. */
void grid_launch_dependents(const char *, int) {
    running->block->released = true;
    running->block->released_early |= before_grid_wait(running);
}

} // namespace plec_emu
