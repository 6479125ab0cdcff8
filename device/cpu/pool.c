#include "device/cpu/pool.h"

#include <assert.h>
#include <fenv.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

/* Lives on its submitter's stack, which waits until no helper is inside. */
struct plec_cpu_loop {
    plec_cpu_range *fn;
    void *context;
    uint64_t n_items, grain;
    uint32_t n_threads;
    _Atomic uint64_t next;
    atomic_uint n_inside; /* helpers that may still touch the loop; changed under the mutex */
    struct plec_cpu_loop *after;
};

/* Takes a share of what is left: n items from *first on; 0 when none are left. */
static uint64_t take_range(struct plec_cpu_loop *loop, uint64_t *first) {
    uint64_t at = atomic_load_explicit(&loop->next, memory_order_relaxed), n;
    do {
        if (at >= loop->n_items) return 0;
        uint64_t left = loop->n_items - at;
        n = left / (2 * (uint64_t)loop->n_threads);
        if (n < loop->grain) n = loop->grain < left ? loop->grain : left;
    } while (!atomic_compare_exchange_weak_explicit(&loop->next, &at, at + n, memory_order_relaxed,
                                                    memory_order_relaxed));
    *first = at;
    return n;
}

static void run_ranges(struct plec_cpu_loop *loop) {
    uint64_t first, n;
    while ((n = take_range(loop, &first)) != 0)
        loop->fn(loop->context, first, n);
}

/* The first listed loop with items left; the mutex is held. */
static struct plec_cpu_loop *find_loop(const struct plec_cpu_pool *pool) {
    struct plec_cpu_loop *loop = pool->loops;
    while (loop != NULL && atomic_load_explicit(&loop->next, memory_order_relaxed) >= loop->n_items)
        loop = loop->after;
    return loop;
}

static void spin_for_work(struct plec_cpu_pool *pool, unsigned seen) {
    for (int i = 0; i < PLEC_CPU_SPINS; i++) {
        if (atomic_load_explicit(&pool->n_submitted, memory_order_relaxed) != seen) return;
        plec_cpu_relax(i);
    }
}

static void *help(void *user) {
    struct plec_cpu_pool *pool = user;
    pthread_setname_np(pthread_self(), "plec-cpu-helper");
    fesetenv(FE_DFL_ENV);
    pthread_mutex_lock(&pool->mutex);
    while (!pool->stop) {
        struct plec_cpu_loop *loop = find_loop(pool);
        if (loop == NULL) {
            unsigned seen = atomic_load(&pool->n_submitted);
            pthread_mutex_unlock(&pool->mutex);
            spin_for_work(pool, seen);
            pthread_mutex_lock(&pool->mutex);
            if (!pool->stop && atomic_load(&pool->n_submitted) == seen)
                pthread_cond_wait(&pool->work, &pool->mutex);
            continue;
        }
        atomic_fetch_add(&loop->n_inside, 1);
        pthread_mutex_unlock(&pool->mutex);
        run_ranges(loop);
        pthread_mutex_lock(&pool->mutex);
        atomic_fetch_sub(&loop->n_inside, 1); /* the last touch of loop */
        pthread_cond_broadcast(&pool->left);
    }
    pthread_mutex_unlock(&pool->mutex);
    return NULL;
}

static void list_loop(struct plec_cpu_pool *pool, struct plec_cpu_loop *loop) {
    pthread_mutex_lock(&pool->mutex);
    struct plec_cpu_loop **end = &pool->loops;
    while (*end != NULL)
        end = &(*end)->after;
    *end = loop;
    atomic_fetch_add(&pool->n_submitted, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
}

/* Takes the loop off the list, so that no helper enters any more, and waits for those inside. */
static void unlist_loop(struct plec_cpu_pool *pool, struct plec_cpu_loop *loop) {
    pthread_mutex_lock(&pool->mutex);
    struct plec_cpu_loop **at = &pool->loops;
    while (*at != loop)
        at = &(*at)->after;
    *at = loop->after;
    pthread_mutex_unlock(&pool->mutex);
    for (int i = 0; i < PLEC_CPU_SPINS && atomic_load(&loop->n_inside) != 0; i++)
        plec_cpu_relax(i);
    if (atomic_load(&loop->n_inside) == 0) return;
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&loop->n_inside) != 0)
        pthread_cond_wait(&pool->left, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

void plec_cpu_pool_run(struct plec_cpu_pool *pool, uint64_t n_items, uint64_t grain,
                       plec_cpu_range *fn, void *context) {
    assert(grain >= 1);
    if (n_items == 0) return;
    if (pool->n_helpers == 0 || n_items <= grain) {
        fn(context, 0, n_items);
        return;
    }
    struct plec_cpu_loop loop = {.fn = fn,
                                 .context = context,
                                 .n_items = n_items,
                                 .grain = grain,
                                 .n_threads = pool->n_helpers + 1};
    list_loop(pool, &loop);
    run_ranges(&loop);
    unlist_loop(pool, &loop);
}

enum plec_status plec_cpu_thread_start(pthread_t *out, void *(*fn)(void *user), void *user,
                                       struct plec_error *err) {
    sigset_t all, old;
    sigfillset(&all);
    /* A fault is the thread's own: blocked, it ends the process without its handler's word. */
    static const int faults[] = {SIGBUS, SIGSEGV, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof faults / sizeof faults[0]; i++)
        sigdelset(&all, faults[i]);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int failed = pthread_create(out, NULL, fn, user);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (failed != 0)
        return plec_fail(err, PLEC_NO_MEMORY, "ThreadNotStarted", "pthread_create: error %d",
                         failed);
    return PLEC_OK;
}

enum plec_status plec_cpu_pool_open(struct plec_cpu_pool *pool, uint32_t n_threads,
                                    struct plec_error *err) {
    assert(n_threads >= 1 && n_threads <= PLEC_CPU_THREADS_MAX);
    memset(pool, 0, sizeof *pool);
    pool->helpers = calloc(n_threads, sizeof *pool->helpers);
    if (pool->helpers == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a table of %u threads", n_threads);
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->work, NULL);
    pthread_cond_init(&pool->left, NULL);
    while (pool->n_helpers < n_threads - 1) {
        enum plec_status status =
            plec_cpu_thread_start(&pool->helpers[pool->n_helpers], help, pool, err);
        if (status != PLEC_OK) {
            plec_cpu_pool_close(pool);
            return status;
        }
        pool->n_helpers++;
    }
    return PLEC_OK;
}

void plec_cpu_pool_close(struct plec_cpu_pool *pool) {
    if (pool->helpers == NULL) return;
    pthread_mutex_lock(&pool->mutex);
    pool->stop = true;
    atomic_fetch_add(&pool->n_submitted, 1);
    pthread_cond_broadcast(&pool->work);
    pthread_mutex_unlock(&pool->mutex);
    for (uint32_t i = 0; i < pool->n_helpers; i++)
        pthread_join(pool->helpers[i], NULL);
    pthread_cond_destroy(&pool->left);
    pthread_cond_destroy(&pool->work);
    pthread_mutex_destroy(&pool->mutex);
    free(pool->helpers);
    memset(pool, 0, sizeof *pool);
}
