/* barrier.cc: the sixteen barriers of a block, and a thread's end. */
#include "tests/emu/collective.h"
#include "tests/emu/core.h"
#include "tests/emu/scheduler.h"
#include "tests/emu/settings.h"
#include "tests/emu/statistics.h"

namespace plec_emu {

static void finish(Barrier *barrier, int result) {
    barrier->result = result == BARRIER_COUNT ? barrier->n_true
                      : result == BARRIER_AND ? (int)barrier->all
                                              : (int)barrier->any;
    std::vector<Thread *> threads;
    threads.swap(barrier->threads);
    for (Thread *t : threads) {
        if (checking) clock_adopt(t, barrier->released);
        make_ready(t);
    }
    clock_drop(&barrier->released);
    barrier->n_arrived = barrier->n_expected = barrier->n_true = 0;
    barrier->all = true;
    barrier->any = false;
}

/* All threads of a barrier name the same count; those of __syncthreads the same line, too. */
static void compare_with_first(Barrier *barrier, const Waiting &at, int expected, bool whole) {
    if (barrier->n_expected != expected)
        report("barrier", "%s at %s:%d: barrier %u expects %d threads, %s asks for %d", at.what,
               base_name(at.file), at.line, at.id, barrier->n_expected, who(running).c_str(),
               expected);
    const Waiting &first = barrier->at;
    bool same = first.line == at.line && first.file == at.file && first.what == at.what;
    if (!whole || same) return;
    report("divergent-barrier", "%s arrives at %s %s:%d while others of the block wait at %s %s:%d",
           who(running).c_str(), at.what, base_name(at.file), at.line, first.what,
           base_name(first.file), first.line);
    barrier->at = at; /* once a pair */
}

static void arrive(Barrier *barrier, bool predicate) {
    barrier->n_arrived++;
    barrier->n_true += predicate;
    barrier->all &= predicate;
    barrier->any |= predicate;
    if (checking) clock_release(running, &barrier->released);
}

int block_barrier(const char *what, int id, int n_threads, int predicate, int result, bool wait,
                  const char *file, int line) {
    Block *block = running->block;
    Barrier &barrier = block->barriers[id & 15];
    bool whole = n_threads == 0;
    int expected = whole ? block->n_threads : n_threads;
    int n_exited = block->n_threads - block->n_live;
    Waiting at = {what, file, line, (unsigned)id};
    if (n_threads % 32)
        report("barrier", "%s:%d: barrier %d of %d threads, not a multiple of 32", base_name(file),
               line, id, n_threads);
    if (barrier.n_arrived) {
        compare_with_first(&barrier, at, expected, whole);
    } else {
        barrier.n_expected = expected;
        barrier.at = at;
    }
    arrive(&barrier, predicate != 0);
    if (running->lane == 0) statistics_count(PLEC_EMU_BARRIER, place_of_line(file, line));
    if (wait) {
        barrier.threads.push_back(running);
        wait_at(what, file, line, (unsigned)id);
    }
    if (barrier.n_arrived + (whole ? n_exited : 0) >= barrier.n_expected) {
        if (whole && n_exited)
            report("exited-before-barrier",
                   "%s:%d: %d thread(s) of block (%u,%u,%u) exited before %s", base_name(file),
                   line, n_exited, block->position.x, block->position.y, block->position.z, what);
        finish(&barrier, result);
    }
    if (wait) let_others_run();
    return barrier.result;
}

void leave_barriers(Thread *thread) {
    Block *block = thread->block;
    Barrier &barrier = block->barriers[0];
    bool whole = barrier.n_expected == block->n_threads;
    int n_exited = block->n_threads - block->n_live;
    if (!block->n_live || !barrier.n_arrived || !whole) return;
    if (barrier.n_arrived + n_exited < barrier.n_expected) return;
    report("exited-before-barrier", "%s exited without reaching %s %s:%d where %d threads wait",
           who(thread).c_str(), barrier.at.what, base_name(barrier.at.file), barrier.at.line,
           barrier.n_arrived);
    finish(&barrier, BARRIER_NOTHING);
}

/* ---- a thread's end -------------------------------------------------------------------------- */

static void check_nothing_under_way(const Thread *t) {
    if (!t->copies.empty())
        report("cp-async", "%s exits with cp.async copies not waited for (issued at %s)",
               who(t).c_str(), place_text(t->copies[0].place).c_str());
    size_t group = (size_t)t->index / 128;
    const std::vector<Warpgroup> &groups = t->block->warpgroups;
    if (group < groups.size() && groups[group].n_done < t->n_wgmma)
        report("wgmma", "%s exits with wgmma operations not waited for", who(t).c_str());
}

/* A block ends with copies under way into its shared memory, which is another block's then. */
static void check_nothing_lands(const Thread *t) {
    const Block *block = t->block;
    Place place = !block->bulk.empty()       ? block->bulk[0].place
                  : !block->arrivals.empty() ? block->arrivals[0].place
                                             : 0;
    if (place)
        report("cp-async", "%s ends its block with copies under way (issued at %s)", who(t).c_str(),
               place_text(place).c_str());
}

void retire(void) {
    check_nothing_under_way(running);
    running->run = Run::DONE;
    running->block->n_live--;
    note_progress();
    if (!running->block->n_live) check_nothing_lands(running);
    leave_collectives(running);
    leave_barriers(running);
}

} // namespace plec_emu
