#include "tests/emu/scheduler.h"
#include "tests/emu/bulk.h"
#include "tests/emu/collective.h"
#include "tests/emu/core.h"
#include "tests/emu/settings.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace plec_emu {

__thread Thread *running;
Launch *launch_running;
std::vector<Block *> &resident = *new std::vector<Block *>;

/* A ring of threads that can run: between `head` and `tail`, both taken modulo its size. */
static std::vector<Thread *> &ring = *new std::vector<Thread *>;
static size_t head, tail;
static uint64_t n_spins, n_switches; /* spins: since anybody made progress */
static thread_local Fiber host_fiber;

static const uint64_t SPIN_LIMIT = 2000000;

void scheduler_reset(size_t n_threads) {
    size_t n = 64;
    while (n < 2 * n_threads + 64)
        n *= 2;
    if (ring.size() < n) ring.assign(n, nullptr);
    head = tail = ring.size() * 1024;
    n_spins = 0;
}

static Thread *&slot(size_t i) {
    return ring[i & (ring.size() - 1)];
}

void make_ready(Thread *thread) {
    thread->run = Run::READY;
    slot(tail++) = thread;
}

void make_ready_last(Thread *thread) {
    thread->run = Run::READY;
    if (settings.schedule == PLEC_EMU_FIFO)
        slot(tail++) = thread;
    else
        slot(--head) = thread;
}

static size_t highest_priority(void) {
    size_t best = head;
    for (size_t i = head + 1; i < tail; i++)
        if (slot(i)->priority > slot(best)->priority) best = i;
    return best;
}

static Thread *next_ready(void) {
    if (head == tail) return nullptr;
    if (settings.schedule == PLEC_EMU_FIFO) return slot(head++);
    if (settings.schedule == PLEC_EMU_LIFO) return slot(--tail);
    size_t chosen =
        settings.schedule == PLEC_EMU_PCT ? highest_priority() : head + random_below(tail - head);
    Thread *thread = slot(chosen);
    slot(chosen) = slot(head++);
    return thread;
}

void note_progress(void) {
    n_spins = 0;
}
uint64_t count_switches(void) {
    return n_switches;
}
uint64_t clock_now(void) {
    return n_switches;
}

/* ---- no thread can go on --------------------------------------------------------------------- */

static bool waits_alike(const Thread *a, const Thread *b) {
    if (a->run != b->run) return false;
    return a->run != Run::WAITING ||
           (a->waiting.what == b->waiting.what && a->waiting.line == b->waiting.line &&
            a->waiting.file == b->waiting.file && a->waiting.id == b->waiting.id);
}

static std::string state_of(const Thread *t) {
    if (t->run == Run::DONE) return "have exited";
    if (t->run == Run::READY) return "are spinning";
    return text("wait at %s, %s:%d (mask or id %#x)", t->waiting.what, base_name(t->waiting.file),
                t->waiting.line, t->waiting.id);
}

[[noreturn]] static void report_stuck(const char *kind) {
    std::string list;
    for (const Block *block : resident) {
        if (!block->n_live) continue;
        list += text("\n    block (%u,%u,%u):", block->position.x, block->position.y,
                     block->position.z);
        for (int first = 0, end; first < block->n_threads; first = end) {
            const Thread *t = block->threads[(size_t)first];
            for (end = first + 1; end < block->n_threads; end++)
                if (!waits_alike(t, block->threads[(size_t)end])) break;
            list += text("\n      threads %d-%d %s", first, end - 1, state_of(t).c_str());
        }
    }
    report(kind, "%s: no thread can go on%s", launch_running->name.c_str(), list.c_str());
    abort_launch();
}

/* ---- switching ------------------------------------------------------------------------------- */

static void fiber_body(void) {
    fiber_entered();
    launch_running->run(launch_running->arguments);
    retire();
    thread_ends();
}

static void make_running(Thread *thread) {
    n_switches++;
    running = thread;
    threadIdx = thread->position;
    blockIdx = thread->block->position;
    if (thread->started) return;
    thread->started = true;
    fiber_prepare(thread, fiber_body);
}

/* The next thread that can run; bulk copies land while there is none. */
static Thread *choose(void) {
    Thread *thread;
    while (!(thread = next_ready()))
        if (!land_a_copy()) report_stuck("deadlock");
    return thread;
}

void wait_at(const char *what, const char *file, int line, unsigned id) {
    running->run = Run::WAITING;
    running->waiting = {what, file, line, id};
    note_progress();
}

void let_others_run(void) {
    Thread *self = running;
    bool late = settings.seed & 1; /* odd seeds: copies land when nothing else can happen */
    if (by_chance() && !late && random_below(8) == 0) land_a_copy();
    Thread *next = choose();
    make_running(next);
    if (next != self) fiber_switch(self, next);
}

void run_threads(void) {
    fiber_adopt(&host_fiber);
    make_running(choose());
    fiber_switch(&host_fiber, running);
    running = nullptr;
}

void thread_ends(void) {
    Thread *self = running;
    Thread *next;
    while (!(next = next_ready())) {
        bool alive = false;
        for (const Block *block : resident)
            alive |= block->n_live > 0;
        if (!alive) fiber_leave(self, &host_fiber);
        if (!land_a_copy()) report_stuck("deadlock");
    }
    make_running(next);
    fiber_leave(self, next);
}

void abort_launch(void) {
    Thread *self = running;
    launch_running->failed = true;
    running = nullptr;
    fiber_leave(self, &host_fiber);
}

void spin_hint(const char *file, int line) {
    running->waiting = {"a spin", file, line, 0};
    if (++n_spins > SPIN_LIMIT) report_stuck("livelock");
    if (n_spins % 64 == 0) land_a_copy();
    running->priority = running->priority > 1000 ? running->priority / 2 : random_below(1000);
    make_ready_last(running);
    let_others_run();
}

void maybe_preempt(void) {
    if (!running || !settings.preempt || random_below((uint64_t)settings.preempt)) return;
    make_ready_last(running);
    let_others_run();
}

void trap(const char *what, const char *file, int line) {
    report("trap", "%s at %s:%d by %s", what, base_name(file), line, who(running).c_str());
    abort_launch();
}

std::string who(const Thread *thread) {
    if (!thread) return "the host";
    const uint3 &at = thread->block->position;
    return text("%s block (%u,%u,%u) thread %d (warp %d lane %d)",
                launch_running ? launch_running->name.c_str() : "?", at.x, at.y, at.z,
                thread->index, thread->index / 32, thread->lane);
}

} // namespace plec_emu
