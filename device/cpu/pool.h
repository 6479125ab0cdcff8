/* pool.h: helper threads that share loops with whoever submits them.
 *
 * A loop is n_items items, dealt out in ranges: long ones first, so that a thread reads long runs
 * of memory, and ever shorter ones, so that all end together; never fewer than `grain` but for the
 * last. The submitter works on its own loop until no item is left, so a loop ends even when every
 * helper is busy elsewhere: loops of several threads at once cannot deadlock. Ranges must not
 * submit loops, and nothing computed may depend on where a range starts.
 */
#ifndef PLEC_DEVICE_CPU_POOL_H
#define PLEC_DEVICE_CPU_POOL_H

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "lyrw/status.h"

enum { PLEC_CPU_THREADS_MAX = 1024 };

/* Items first to first + n - 1, on any thread. */
typedef void plec_cpu_range(void *context, uint64_t first, uint64_t n);

struct plec_cpu_loop;

struct plec_cpu_pool {
    pthread_mutex_t mutex; /* over loops and stop */
    pthread_cond_t work;   /* a loop came, or stop */
    pthread_cond_t left;   /* a helper left a loop */
    struct plec_cpu_loop *loops;
    atomic_uint n_submitted; /* loops ever, for helpers that spin before they sleep */
    bool stop;
    uint32_t n_helpers;
    pthread_t *helpers; /* [n_helpers] */
};

/* Starts n_threads - 1 helpers; the submitter is the last thread. PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_cpu_pool_open(struct plec_cpu_pool *pool, uint32_t n_threads,
                                                  struct plec_error *err);
/* Returns when every item has run. What they wrote is visible to the caller. grain is at least 1.
 */
void plec_cpu_pool_run(struct plec_cpu_pool *pool, uint64_t n_items, uint64_t grain,
                       plec_cpu_range *fn, void *context);
/* No loop may be running. A zeroed pool is closed. */
void plec_cpu_pool_close(struct plec_cpu_pool *pool);

/* Starts a thread that takes no signals but its own faults and calculates with the default rounding
 * and subnormals, whatever its creator had set. PLEC_NO_MEMORY "ThreadNotStarted". */
PLEC_MUST_USE enum plec_status plec_cpu_thread_start(pthread_t *out, void *(*fn)(void *user),
                                                     void *user, struct plec_error *err);

/* Turn i of a bounded wait for another thread that is expected within microseconds. Now and then
 * it lets others have the processor: there may be more threads than processors. */
static inline void plec_cpu_relax(int i) {
    if (i % 32 == 31) sched_yield();
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
enum { PLEC_CPU_SPINS = 1000 }; /* some 10 to 20 us */

#endif
