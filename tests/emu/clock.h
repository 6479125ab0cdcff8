/* clock.h: vector clocks. An access happened before another when the second's thread knows the
 * clock that the first's thread had; so a race is found whatever the schedule was.
 *
 * One counter gives all values, so that they compare between blocks. A thread's clock advances when
 * it releases. Arrays are shared by reference: after a barrier all threads know the same. */
#ifndef PLEC_TESTS_EMU_CLOCK_H
#define PLEC_TESTS_EMU_CLOCK_H

#include <cstdint>

namespace plec_emu {

struct Thread;

struct Clock {
    uint64_t version; /* of its contents */
    int n_references;
    uint32_t of[1024]; /* by thread of the block */
};

Clock *clock_share(Clock *clock);
void clock_drop(Clock **clock);
uint32_t clock_tick(void);

/* `a` learns what `b` holds; n threads. */
void clock_learn(Clock **a, Clock *b, int n);

void clock_start(Thread *thread);
/* *into learns all that the thread knows, and the thread's clock advances. */
void clock_release(Thread *thread, Clock **into);
/* The thread learns what `from` holds (null: nothing). */
void clock_acquire(Thread *thread, Clock *from);
/* The same where `from` holds all that the thread knows. */
void clock_adopt(Thread *thread, Clock *from);
/* Everybody releases, then everybody acquires. */
void clock_join(Thread **threads, int n);
/* A fence between blocks, or between generic and asynchronous proxy. */
void clock_fence(Thread *thread);

/* Release and acquire through a word of global memory: an atomic, st.release or ld.acquire. What
 * is published is what the thread fenced before; what is acquired is known once it fences, or at
 * once with `fenced`. */
void clock_publish(const void *word, Thread *thread);
void clock_observe(const void *word, Thread *thread, bool fenced);
/* Thread `other` of block `from` had clock `at` when it did something: is that before `thread`'s
 * present? */
bool clock_knows_other_block(const Thread *thread, unsigned from, unsigned other, uint32_t at);

} // namespace plec_emu

#endif
