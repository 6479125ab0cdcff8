#include "tools/plectrum/parallel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 16, DRAW_EVERY_MS = 50 };

struct run {
    const struct plec_parallel *job;
    atomic_size_t next;
    atomic_uint_fast64_t done; /* bytes */
    pthread_mutex_t lock;
    pthread_cond_t ended;
    unsigned n_running; /* under the lock */
};

static void take_items(struct run *run) {
    for (;;) {
        size_t item = atomic_fetch_add(&run->next, 1);
        if (item >= run->job->n_items) return;
        atomic_fetch_add(&run->done, run->job->work(run->job->user, item));
    }
}

static void *worker(void *argument) {
    struct run *run = argument;
    take_items(run);
    pthread_mutex_lock(&run->lock);
    run->n_running--;
    pthread_cond_signal(&run->ended);
    pthread_mutex_unlock(&run->lock);
    return NULL;
}

static unsigned n_wanted(const struct plec_parallel *job) {
    long cores = sysconf(_SC_NPROCESSORS_ONLN);
    size_t n = cores < 1 ? 1 : cores > THREADS_MAX ? THREADS_MAX : (size_t)cores;
    return (unsigned)(n < job->n_items ? n : job->n_items);
}

/* Draws until the last worker has ended. */
static void wait_and_draw(struct run *run) {
    pthread_mutex_lock(&run->lock);
    while (run->n_running > 0) {
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_nsec += DRAW_EVERY_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        pthread_cond_timedwait(&run->ended, &run->lock, &until);
        if (run->job->progress != NULL)
            plec_progress_update(run->job->progress, atomic_load(&run->done));
    }
    pthread_mutex_unlock(&run->lock);
}

void plec_parallel_run(const struct plec_parallel *job) {
    struct run run = {
        .job = job, .lock = PTHREAD_MUTEX_INITIALIZER, .ended = PTHREAD_COND_INITIALIZER};
    pthread_t threads[THREADS_MAX];
    unsigned n = n_wanted(job), made = 0;
    pthread_mutex_lock(&run.lock); /* so that none ends before it is counted */
    while (made < n && pthread_create(&threads[made], NULL, worker, &run) == 0)
        made++;
    run.n_running = made;
    pthread_mutex_unlock(&run.lock);
    if (made == 0) take_items(&run);
    wait_and_draw(&run);
    for (unsigned i = 0; i < made; i++)
        pthread_join(threads[i], NULL);
    pthread_mutex_destroy(&run.lock);
    pthread_cond_destroy(&run.ended);
}
