#include "tests/emu/clock.h"
#include "tests/emu/memory.h"
#include "tests/emu/operation.h"
#include "tests/emu/state.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace plec_emu {

static uint32_t ticks;
static uint64_t versions;
static std::vector<Clock *> &unused = *new std::vector<Clock *>;

uint32_t clock_tick(void) {
    return ++ticks;
}

static Clock *new_clock(void) {
    Clock *clock;
    if (unused.empty()) {
        clock = (Clock *)malloc(sizeof(Clock));
    } else {
        clock = unused.back();
        unused.pop_back();
    }
    clock->n_references = 1;
    clock->version = ++versions;
    return clock;
}

Clock *clock_share(Clock *clock) {
    if (clock) clock->n_references++;
    return clock;
}

void clock_drop(Clock **clock) {
    if (*clock && --(*clock)->n_references == 0) unused.push_back(*clock);
    *clock = nullptr;
}

/* A clock that only the caller refers to, with the same n entries. */
static void make_own(Clock **clock, int n) {
    if (*clock && (*clock)->n_references == 1) return;
    Clock *own = new_clock();
    if (*clock)
        memcpy(own->of, (*clock)->of, sizeof(uint32_t) * (size_t)n);
    else
        memset(own->of, 0, sizeof(uint32_t) * (size_t)n);
    clock_drop(clock);
    *clock = own;
}

void clock_learn(Clock **a, Clock *b, int n) {
    if (!b || *a == b) return;
    if (!*a) {
        *a = clock_share(b);
        return;
    }
    make_own(a, n);
    (*a)->version = ++versions;
    for (int i = 0; i < n; i++)
        (*a)->of[i] = std::max((*a)->of[i], b->of[i]);
}

void clock_start(Thread *thread) {
    clock_drop(&thread->knows);
    clock_drop(&thread->knew_at_fence);
    thread->now = ++ticks;
    thread->fenced = thread->proxy_fenced = 0;
}

void clock_release(Thread *thread, Clock **into) {
    /* Threads that leave one barrier reach the next knowing the same: then only their own entries
     * are new. */
    static const Clock *last_into;
    static uint64_t last_knows;
    int n = thread->block->n_threads;
    uint64_t knows = thread->knows ? thread->knows->version : 0;
    if (!*into || (*into)->n_references != 1 || last_into != *into || last_knows != knows) {
        clock_learn(into, thread->knows, n);
        make_own(into, n);
        last_into = *into;
        last_knows = knows;
    }
    /* A copy that lands late releases what its thread knew when it was issued. */
    uint32_t *own = &(*into)->of[thread->index];
    *own = std::max(*own, thread->now);
    thread->now = ++ticks;
}

void clock_adopt(Thread *thread, Clock *from) {
    Clock *old = thread->knows;
    thread->knows = clock_share(from);
    clock_drop(&old);
}

void clock_acquire(Thread *thread, Clock *from) {
    if (!from || thread->knows == from) return;
    int n = thread->block->n_threads;
    bool holds_all = true;
    for (int i = 0; thread->knows && i < n; i++)
        holds_all &= thread->knows->of[i] <= from->of[i];
    if (holds_all)
        clock_adopt(thread, from);
    else
        clock_learn(&thread->knows, from, n);
}

void clock_join(Thread **threads, int n) {
    Clock *all = nullptr;
    for (int i = 0; i < n; i++)
        clock_release(threads[i], &all);
    for (int i = 0; i < n; i++)
        clock_adopt(threads[i], all);
    clock_drop(&all);
}

void clock_fence(Thread *thread) {
    thread->fenced = thread->now;
    thread->now = ++ticks;
    clock_drop(&thread->knew_at_fence);
    thread->knew_at_fence = clock_share(thread->knows);
    for (Acquired &a : thread->block->acquired)
        if (a.thread == thread->index && !a.fenced_at) a.fenced_at = thread->now;
}

/* ---- between blocks -------------------------------------------------------------------------- */

/* What was published at each word, by block, during the operation that runs. */
struct Published {
    int operation = -2;
    std::map<const void *, std::map<unsigned, Clock *>> words;
};
static Published &published = *new Published;

static std::map<unsigned, Clock *> *published_at(const void *word) {
    if (!is_device(word) && !is_pinned(word)) return nullptr;
    if (published.operation != operation_running) {
        for (auto &at : published.words)
            for (auto &from : at.second)
                clock_drop(&from.second);
        published.words.clear();
        published.operation = operation_running;
    }
    return &published.words[word];
}

/* Knew the thread all that `a` brings? */
static bool holds(const Acquired &a, const Thread *thread) {
    if (a.thread == thread->index) return a.fenced_at != 0;
    if (a.fenced_at && thread->knows && thread->knows->of[a.thread] >= a.fenced_at) return true;
    /* A fence of its own after it learned that the other thread had observed the word. */
    return thread->knew_at_fence && thread->knew_at_fence->of[a.thread] >= a.at;
}

bool clock_knows_other_block(const Thread *thread, unsigned from, unsigned other, uint32_t at) {
    for (const Acquired &a : thread->block->acquired)
        if (a.from == from && a.clock->of[other] >= at && holds(a, thread)) return true;
    return false;
}

/* What thread `u` of the block did that `thread` may publish: up to u's own last fence, as far as
 * thread knows of it, or all that thread knew at its own. */
static uint32_t publishable(const Thread *thread, int u) {
    const Thread *other = thread->block->threads[(size_t)u];
    if (other == thread) return thread->fenced;
    uint32_t known = thread->knows ? thread->knows->of[u] : 0;
    uint32_t at_fence = thread->knew_at_fence ? thread->knew_at_fence->of[u] : 0;
    return std::max(at_fence, std::min(other->fenced, known));
}

void clock_publish(const void *word, Thread *thread) {
    auto *at = published_at(word);
    if (!at) return;
    Block *block = thread->block;
    int n = block->n_threads;
    Clock *own = new_clock();
    for (int u = 0; u < n; u++)
        own->of[u] = publishable(thread, u);
    clock_learn(&(*at)[block->index], own, n);
    clock_drop(&own);
    for (const Acquired &a : block->acquired) /* what it learned itself goes on */
        if (holds(a, thread)) clock_learn(&(*at)[a.from], a.clock, n);
}

/* A loop that waits observes the same again and again. */
static bool observed_before(const Thread *thread, unsigned from, const Clock *clock, bool fenced) {
    for (const Acquired &a : thread->block->acquired)
        if (a.from == from && a.clock == clock && a.thread == thread->index &&
            (a.fenced_at || !fenced))
            return true;
    return false;
}

void clock_observe(const void *word, Thread *thread, bool fenced) {
    auto *at = published_at(word);
    if (!at) return;
    for (auto &from : *at) {
        if (from.first == thread->block->index) continue;
        if (observed_before(thread, from.first, from.second, fenced)) continue;
        thread->block->acquired.push_back({from.first, clock_share(from.second), thread->index,
                                           thread->now, fenced ? thread->now : 0});
    }
}

} // namespace plec_emu
