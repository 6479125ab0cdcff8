/* copy_async.cc: cp.async. A copy is done when it is waited for, as late as can be; until then its
 * destination is poison. Where a copy may land early and break somebody, the checker sees the race
 * of the write, which it dates at the issue. */
#include "tests/emu/bulk.h"
#include "tests/emu/check.h"
#include "tests/emu/instructions.h"
#include "tests/emu/memory.h"
#include "tests/emu/settings.h"
#include "tests/emu/shared.h"
#include "tests/emu/state.h"
#include "tests/emu/statistics.h"

#include <cstring>

namespace plec_emu {

static void count_under_way(Thread *t, Place place) {
    size_t n_bytes = 0;
    for (const PendingCopy &copy : t->copies)
        if (copy.place == place) n_bytes += (size_t)copy.n_there;
    statistics_under_way(t, n_bytes, place);
}

void copy_async(unsigned to, const void *from, int n_bytes, int n_there, const char *file,
                int line) {
    Thread *t = running;
    unsigned n = (unsigned)n_bytes;
    if (to % n || (uintptr_t)from % n) trap("cp.async: misaligned address", file, line);
    Place place = place_of_line(file, line);
    char *target = shared_pointer(to, n, file, line);
    if (n_there && !is_device(from) && !is_pinned(from))
        trap("cp.async: the source is not global memory", file, line);
    if (n_there) {
        statistics_access(PLEC_EMU_COPY_ASYNC, t, from, (size_t)n_there, place);
        check_access(t, from, (size_t)n_there, ACCESS_READ, place);
    }
    check_access(t, target, n, ACCESS_WRITE | ACCESS_UNDEFINED, place);
    memset(target, 0xff, n);
    t->copies.push_back({to, (const char *)from, n_bytes, n_there, place});
    t->n_open_copies++;
    count_under_way(t, place);
}

void copy_async_commit(const char *, int) {
    running->copy_groups.push_back(running->n_open_copies);
    running->n_open_copies = 0;
}

static void land(Thread *t, const PendingCopy &copy) {
    char *target = t->block->shared + copy.to;
    size_t n_there = (size_t)copy.n_there, n_bytes = (size_t)copy.n_bytes;
    if (n_there) memcpy(target, copy.from, n_there);
    memset(target + n_there, 0, n_bytes - n_there);
    check_access(t, target, n_bytes, ACCESS_WRITE, copy.place);
}

/* The thread's copies under way land together, when the schedule says so, and arrive: the barrier
 * counts the arrival among those it expects (noinc). */
void copy_async_arrive(unsigned barrier, const char *file, int line) {
    Thread *t = running;
    if (!t->copy_groups.empty())
        trap("cp.async.mbarrier.arrive behind committed groups is not emulated", file, line);
    mbarrier_check(barrier, file, line);
    t->block->arrivals.push_back(
        {t, barrier, std::move(t->copies), place_of_line(file, line), t->now});
    t->copies.clear();
    t->n_open_copies = 0;
    t->now = clock_tick();
}

void land_arrival(Block *block, size_t i) {
    AsyncArrival arrival = std::move(block->arrivals[i]);
    Thread *t = arrival.thread;
    block->arrivals.erase(block->arrivals.begin() + (long)i);
    uint32_t now = t->now;
    t->now = arrival.issued_at;
    for (const PendingCopy &copy : arrival.copies)
        land(t, copy);
    mbarrier_arrive_late(t, arrival.barrier, arrival.place);
    t->now = now;
}

/* Those that a barrier counts were issued before any group (copy_async_arrive). */
static void land_arrivals(const Thread *t) {
    std::vector<AsyncArrival> &arrivals = t->block->arrivals;
    for (size_t i = 0; i < arrivals.size();)
        if (arrivals[i].thread == t)
            land_arrival(t->block, i);
        else
            i++;
}

void copy_async_wait(int n_under_way, const char *, int) {
    Thread *t = running;
    int n_groups = (int)t->copy_groups.size() - n_under_way;
    if (n_groups <= 0) return;
    land_arrivals(t);
    size_t n_copies = 0;
    for (int group = 0; group < n_groups; group++)
        n_copies += (size_t)t->copy_groups[(size_t)group];
    for (size_t i = 0; i < n_copies; i++)
        land(t, t->copies[i]);
    t->copies.erase(t->copies.begin(), t->copies.begin() + (long)n_copies);
    t->copy_groups.erase(t->copy_groups.begin(), t->copy_groups.begin() + n_groups);
}

} // namespace plec_emu
