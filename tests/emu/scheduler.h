/* scheduler.h: which thread of the grid runs next. */
#ifndef PLEC_TESTS_EMU_SCHEDULER_H
#define PLEC_TESTS_EMU_SCHEDULER_H

#include "tests/emu/state.h"

namespace plec_emu {

/* Empties the queue and makes room for n threads. */
void scheduler_reset(size_t n_threads);

/* `thread` can go on; under LIFO it is chosen next, or last. */
void make_ready(Thread *thread);
void make_ready_last(Thread *thread);

/* The running thread stops here until another makes it ready. A bulk copy may land meanwhile. */
void wait_at(const char *what, const char *file, int line, unsigned id);
void let_others_run(void);

/* Some progress was made: threads that spin have reason to. */
void note_progress(void);

/* Runs ready threads until none is left. Called by the host thread. */
void run_threads(void);

/* The running thread has ended: runs another, or returns to run_threads. */
[[noreturn]] void thread_ends(void);

/* Ends the launch at once, as a trap does. */
[[noreturn]] void abort_launch(void);

/* May yield, in the checked build with PLEC_EMU_PREEMPT. */
void maybe_preempt(void);

uint64_t count_switches(void);

} // namespace plec_emu

#endif
