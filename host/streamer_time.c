/* Time: the system's, in which a thread takes what has ended; or a virtual one, without it. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <time.h>

#include "host/nvtx.h"
#include "host/streamer_parts.h"

/* How long the thread waits for a sign: of an event that no call announces (a failed stream skips
 * the call), and of anything. */
static const uint64_t POLL_NS = 2000000, IDLE_NS = 200000000;

uint64_t plec_streamer_now(const struct plec_streamer *streamer) {
    if (plec_streamer_virtual(streamer)) return streamer->options.clock->now_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

void plec_streamer_unlock(struct plec_streamer *streamer) {
    bool news = plec_prefetch_has_ended(streamer->prefetch);
    pthread_mutex_unlock(&streamer->lock);
    if (news) pthread_cond_broadcast(&streamer->changed);
}

void plec_streamer_kick(struct plec_streamer *streamer) {
    pthread_mutex_lock(&streamer->wake_lock);
    bool first = !streamer->kicked; /* the thread has not looked since the last one */
    streamer->kicked = true;
    if (first && streamer->reaping) plec_io_wake(streamer->io);
    if (first && !streamer->reaping) pthread_cond_signal(&streamer->wake);
    pthread_mutex_unlock(&streamer->wake_lock);
}

/* --- virtual time ---------------------------------------------------------------------------- */

/* When n_bytes that enter a pipe now have come out of it. */
static uint64_t through(uint64_t *free_ns, uint64_t now, uint64_t latency_ns, uint64_t bytes_per_s,
                        uint64_t n_bytes) {
    uint64_t start = now + latency_ns > *free_ns ? now + latency_ns : *free_ns;
    uint64_t took = bytes_per_s != 0 ? (uint64_t)((double)n_bytes * 1e9 / (double)bytes_per_s) : 0;
    return *free_ns = start + took;
}

uint64_t plec_streamer_job_due(struct plec_streamer *streamer, const struct plec_job *job) {
    const struct plec_stream_clock *clock = streamer->options.clock;
    if (clock == NULL) return 0;
    uint64_t delay = clock->delay != NULL ? clock->delay(clock->user, job) : 0;
    if (delay == UINT64_MAX) return delay;
    uint64_t end = job->kind == PLEC_JOB_READ
                       ? through(&streamer->disk_free_ns, clock->now_ns, clock->disk_latency_ns,
                                 clock->disk_bytes_per_s, job->n_bytes)
                       : through(&streamer->link_free_ns, clock->now_ns, clock->link_latency_ns,
                                 clock->link_bytes_per_s, job->n_bytes);
    return end + delay;
}

uint64_t plec_streamer_use_due(struct plec_streamer *streamer, uint32_t n_experts) {
    const struct plec_stream_clock *clock = streamer->options.clock;
    if (clock == NULL) return 0;
    uint64_t *free_ns = &streamer->compute_free_ns;
    if (*free_ns < clock->now_ns) *free_ns = clock->now_ns;
    return *free_ns += n_experts * clock->compute_ns;
}

static void reap_all(struct plec_streamer *streamer) {
    while (plec_streamer_pieces_under_way(streamer)) {
        size_t n = plec_io_reap(streamer->io, streamer->completions, PLEC_REAP, UINT32_MAX);
        for (size_t i = 0; i < n; i++)
            plec_streamer_completed(streamer, &streamer->completions[i]);
    }
}

/* Waits for the work itself, so that only virtual time stands between it and its end. */
static void end_real_work(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    reap_all(streamer);
    for (uint32_t i = 0; i < PLEC_MAX_COPIES; i++)
        if (streamer->copies[i].active) plec_event_sync(streamer->copies[i].event);
    for (uint32_t i = dispatch->first_use; i < dispatch->n_uses; i++)
        plec_event_sync(dispatch->uses[i].event);
}

/* The sooner of two ends, of which the second counts only if it is still to come: a copy may have
 * to wait for one that began before it. */
static uint64_t sooner(uint64_t next, uint64_t due_ns, uint64_t now) {
    return due_ns > now && due_ns < next ? due_ns : next;
}

static uint64_t next_end(const struct plec_streamer *streamer) {
    const struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    uint64_t now = streamer->options.clock->now_ns;
    uint64_t next = sooner(UINT64_MAX, plec_streamer_next_due(streamer), now);
    for (uint32_t i = 0; i < PLEC_MAX_COPIES; i++)
        if (streamer->copies[i].active) next = sooner(next, streamer->copies[i].due_ns, now);
    if (dispatch->first_use < dispatch->n_uses)
        next = sooner(next, dispatch->uses[dispatch->first_use].due_ns, now);
    return next;
}

void plec_streamer_move_on(struct plec_streamer *streamer, uint64_t until_ns) {
    struct plec_stream_clock *clock = streamer->options.clock;
    end_real_work(streamer);
    if (plec_streamer_round(streamer)) return; /* something was due already */
    uint64_t next = next_end(streamer);
    if (next > until_ns) next = until_ns;
    if (next > clock->now_ns) clock->now_ns = next;
    plec_streamer_round(streamer);
}

void plec_streamer_pass(struct plec_streamer *streamer, uint64_t n_ns) {
    pthread_mutex_lock(&streamer->lock);
    uint64_t until_ns = streamer->options.clock->now_ns + n_ns;
    plec_streamer_round(streamer);
    while (streamer->options.clock->now_ns < until_ns)
        plec_streamer_move_on(streamer, until_ns);
    pthread_mutex_unlock(&streamer->lock);
}

static void end_virtually(struct plec_streamer *streamer) {
    pthread_mutex_lock(&streamer->lock);
    while (streamer->n_reading > 0 || streamer->n_copying > 0) {
        end_real_work(streamer);
        plec_streamer_round(streamer);
    }
    pthread_mutex_unlock(&streamer->lock);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* How long nothing need be looked at. */
static uint64_t patience(const struct plec_streamer *streamer) {
    uint64_t now = plec_streamer_now(streamer), wait_ns = IDLE_NS;
    bool polls =
        streamer->n_copying > 0 || streamer->dispatch.first_use < streamer->dispatch.n_uses;
    if (polls) wait_ns = POLL_NS;
    uint64_t due = plec_streamer_next_due(streamer);
    if (due < now + wait_ns) wait_ns = due > now ? due - now : 0;
    return wait_ns;
}

static void wait_for_kick(struct plec_streamer *streamer, uint64_t wait_ns) {
    uint64_t until_ns = plec_streamer_now(streamer) + wait_ns;
    struct timespec until = {(time_t)(until_ns / 1000000000), (long)(until_ns % 1000000000)};
    pthread_mutex_lock(&streamer->wake_lock);
    while (!streamer->kicked &&
           pthread_cond_timedwait(&streamer->wake, &streamer->wake_lock, &until) != ETIMEDOUT)
        continue;
    streamer->kicked = false;
    pthread_mutex_unlock(&streamer->wake_lock);
}

/* Completions, as many as there are; waits for the first up to wait_ns, or a kick. */
static size_t reap(struct plec_streamer *streamer, uint64_t wait_ns) {
    pthread_mutex_lock(&streamer->wake_lock);
    uint32_t wait_ms = streamer->kicked ? 0 : (uint32_t)((wait_ns + 999999) / 1000000);
    streamer->kicked = false;
    streamer->reaping = true;
    pthread_mutex_unlock(&streamer->wake_lock);
    size_t n = plec_io_reap(streamer->io, streamer->completions, PLEC_REAP, wait_ms);
    pthread_mutex_lock(&streamer->wake_lock);
    streamer->reaping = false;
    pthread_mutex_unlock(&streamer->wake_lock);
    return n;
}

static void *serve(void *user) {
    struct plec_streamer *streamer = user;
    pthread_setname_np(pthread_self(), "plec-streamer");
    plec_nvtx_name_thread();
    pthread_mutex_lock(&streamer->lock);
    for (;;) {
        plec_streamer_round(streamer);
        bool idle = streamer->n_reading == 0 && streamer->n_copying == 0;
        if (streamer->closing && idle) break;
        uint64_t wait_ns = patience(streamer);
        bool reads = plec_streamer_pieces_under_way(streamer);
        size_t n = 0;
        plec_streamer_unlock(streamer);
        if (reads)
            n = reap(streamer, wait_ns);
        else
            wait_for_kick(streamer, wait_ns);
        pthread_mutex_lock(&streamer->lock);
        for (size_t i = 0; i < n; i++)
            plec_streamer_completed(streamer, &streamer->completions[i]);
    }
    pthread_mutex_unlock(&streamer->lock);
    return NULL;
}

enum plec_status plec_streamer_start(struct plec_streamer *streamer, struct plec_error *err) {
    sigset_t all, before;
    if (plec_streamer_virtual(streamer)) return PLEC_OK;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&streamer->thread, NULL, serve, streamer);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed != 0)
        return plec_fail(err, PLEC_NO_MEMORY, "ThreadNotStarted", "the streaming thread: %s",
                         strerror(failed));
    streamer->thread_started = true;
    return PLEC_OK;
}

void plec_streamer_stop(struct plec_streamer *streamer) {
    pthread_mutex_lock(&streamer->lock);
    streamer->closing = true;
    pthread_mutex_unlock(&streamer->lock);
    if (plec_streamer_virtual(streamer)) end_virtually(streamer);
    if (!streamer->thread_started) return;
    plec_streamer_kick(streamer);
    pthread_join(streamer->thread, NULL);
    streamer->thread_started = false;
}
