/* Time: the system's, in which a thread takes what has ended; or a virtual one, without it. */
#include <errno.h>
#include <time.h>

#include "host/nvtx.h"
#include "host/streamer_parts.h"
#include "host/thread.h"

/* How long the thread waits for a sign: of an event that no call announces (a failed stream skips
 * the call), and of anything. */
static const uint64_t POLL_NS = 2000000, IDLE_NS = 200000000;

uint64_t plec_streamer_now(const struct plec_streamer *streamer) {
    if (plec_streamer_virtual(streamer)) return streamer->options.clock->now_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- who sleeps ------------------------------------------------------------------------------ */

enum sleeper { NOBODY, DISPATCH, ENGINE, REAPER };

/* Both with the wake lock; who is to be woken. */
static enum sleeper call_dispatch(struct plec_streamer *streamer) {
    bool first = !streamer->dispatch_called;
    streamer->dispatch_called = true;
    return first ? DISPATCH : NOBODY;
}

static enum sleeper call_engine(struct plec_streamer *streamer) {
    bool first = !streamer->engine_called;
    streamer->engine_called = true;
    if (!first) return NOBODY;
    return streamer->reaping ? REAPER : ENGINE;
}

/* Lets the wake lock go before it wakes anybody, who would take it next. */
static void unlock_and_wake(struct plec_streamer *streamer, enum sleeper who) {
    pthread_mutex_unlock(&streamer->wake_lock);
    switch (who) {
    case NOBODY: return;
    case DISPATCH: pthread_cond_signal(&streamer->dispatch_wake); return;
    case ENGINE: pthread_cond_signal(&streamer->engine_wake); return;
    case REAPER: plec_io_wake(streamer->io); return;
    }
}

void plec_streamer_kick_dispatch(struct plec_streamer *streamer) {
    pthread_mutex_lock(&streamer->wake_lock);
    unlock_and_wake(streamer, streamer->dispatch_waits ? call_dispatch(streamer) : NOBODY);
}

void plec_streamer_unlock(struct plec_streamer *streamer) {
    bool news = plec_prefetch_has_ended(streamer->prefetch);
    pthread_mutex_unlock(&streamer->lock);
    if (news) plec_streamer_kick_dispatch(streamer);
}

void plec_streamer_kick(struct plec_streamer *streamer) {
    pthread_mutex_lock(&streamer->wake_lock);
    unlock_and_wake(streamer,
                    streamer->dispatch_waits ? call_dispatch(streamer) : call_engine(streamer));
}

/* Whether something may end of which no call tells. */
static bool is_to_poll(const struct plec_streamer *streamer) {
    const struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    return streamer->copying != 0 || dispatch->open || dispatch->first_use < dispatch->n_uses;
}

/* Copies that what is read now would queue behind. */
static uint32_t count_copies_ahead(const struct plec_streamer *streamer) {
    uint32_t n = 0;
    for (uint32_t left = streamer->copying; left != 0; left &= left - 1) {
        bool urgent = streamer->copies[__builtin_ctz(left)].stream == PLEC_DEMAND_STREAM;
        n += urgent || streamer->dispatch.n_waiting == 0;
    }
    return n;
}

void plec_streamer_keep_up(struct plec_streamer *streamer) {
    if (streamer->engine_until_ns == 0) return; /* it is awake, or there is none */
    bool elsewhere =
        streamer->n_pieces > 0 && !streamer->reaping && count_copies_ahead(streamer) == 0;
    bool late = elsewhere || (is_to_poll(streamer) && !streamer->engine_polls) ||
                plec_streamer_next_due(streamer) < streamer->engine_until_ns;
    if (!late) return;
    pthread_mutex_lock(&streamer->wake_lock);
    unlock_and_wake(streamer, call_engine(streamer));
}

static struct timespec time_of(uint64_t ns) {
    return (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
}

void plec_streamer_sleep(struct plec_streamer *streamer, uint64_t until_ns) {
    struct timespec until = time_of(until_ns);
    pthread_mutex_lock(&streamer->wake_lock);
    streamer->dispatch_waits = true;
    pthread_mutex_unlock(&streamer->lock);
    while (!streamer->dispatch_called &&
           pthread_cond_timedwait(&streamer->dispatch_wake, &streamer->wake_lock, &until) !=
               ETIMEDOUT)
        continue;
    streamer->dispatch_called = false;
    pthread_mutex_unlock(&streamer->wake_lock);
    pthread_mutex_lock(&streamer->lock);
}

/* A kick that the dispatch did not look after any more is the engine's. */
void plec_streamer_end_wait(struct plec_streamer *streamer) {
    if (!streamer->dispatch_waits) return; /* it never slept */
    pthread_mutex_lock(&streamer->wake_lock);
    bool called = streamer->dispatch_called;
    streamer->dispatch_waits = streamer->dispatch_called = false;
    unlock_and_wake(streamer, called ? call_engine(streamer) : NOBODY);
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
    while (streamer->n_pieces > 0) {
        size_t n = plec_io_reap(streamer->io, streamer->completions, PLEC_REAP, UINT32_MAX);
        for (size_t i = 0; i < n; i++)
            plec_streamer_completed(streamer, &streamer->completions[i]);
    }
}

/* Waits for the work itself, so that only virtual time stands between it and its end. */
static void end_real_work(struct plec_streamer *streamer) {
    struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    reap_all(streamer);
    for (uint32_t left = streamer->copying; left != 0; left &= left - 1)
        plec_event_sync(streamer->copies[__builtin_ctz(left)].event);
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
    for (uint32_t left = streamer->copying; left != 0; left &= left - 1)
        next = sooner(next, streamer->copies[__builtin_ctz(left)].due_ns, now);
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
    while (streamer->reading != 0 || streamer->copying != 0) {
        end_real_work(streamer);
        plec_streamer_round(streamer);
    }
    pthread_mutex_unlock(&streamer->lock);
}

/* --- the thread ------------------------------------------------------------------------------ */

/* From here on others call; the lock is held, so that they see what the thread has not seen. Who
 * called during the round, without the lock, is not in it: such a call ends the sleep at once, but
 * not one on completions. */
static void fall_asleep(struct plec_streamer *streamer) {
    bool polls = is_to_poll(streamer);
    uint64_t until_ns = plec_streamer_now(streamer) + (polls ? POLL_NS : IDLE_NS);
    uint64_t due_ns = plec_streamer_next_due(streamer);
    pthread_mutex_lock(&streamer->wake_lock);
    streamer->reaping = streamer->n_pieces > 0 && !streamer->engine_called &&
                        count_copies_ahead(streamer) < PLEC_COPIES_AHEAD;
    streamer->engine_polls = polls;
    streamer->engine_until_ns = due_ns < until_ns ? due_ns : until_ns;
    pthread_mutex_unlock(&streamer->wake_lock);
}

static void wait_for_call(struct plec_streamer *streamer) {
    struct timespec until = time_of(streamer->engine_until_ns);
    pthread_mutex_lock(&streamer->wake_lock);
    while (!streamer->engine_called &&
           pthread_cond_timedwait(&streamer->engine_wake, &streamer->wake_lock, &until) !=
               ETIMEDOUT)
        continue;
    pthread_mutex_unlock(&streamer->wake_lock);
}

/* Completions, as many as there are; waits for the first, or a call. */
static size_t reap(struct plec_streamer *streamer) {
    uint64_t now = plec_streamer_now(streamer), until_ns = streamer->engine_until_ns;
    uint64_t wait_ns = until_ns > now ? until_ns - now : 0;
    return plec_io_reap(streamer->io, streamer->completions, PLEC_REAP,
                        (uint32_t)((wait_ns + 999999) / 1000000));
}

/* Whoever called before this is seen by the round that follows. */
static void wake_up(struct plec_streamer *streamer) {
    pthread_mutex_lock(&streamer->wake_lock);
    streamer->engine_called = streamer->reaping = false;
    streamer->engine_until_ns = 0;
    pthread_mutex_unlock(&streamer->wake_lock);
}

static void *serve(void *user) {
    struct plec_streamer *streamer = user;
    pthread_setname_np(pthread_self(), "plec-streamer");
    plec_nvtx_name_thread();
    pthread_mutex_lock(&streamer->lock);
    for (;;) {
        plec_streamer_round(streamer);
        bool idle = streamer->reading == 0 && streamer->copying == 0;
        if (streamer->closing && idle) break;
        fall_asleep(streamer);
        size_t n = 0;
        plec_streamer_unlock(streamer);
        if (streamer->reaping)
            n = reap(streamer);
        else
            wait_for_call(streamer);
        pthread_mutex_lock(&streamer->lock);
        for (size_t i = 0; i < n; i++)
            plec_streamer_completed(streamer, &streamer->completions[i]);
        wake_up(streamer);
    }
    pthread_mutex_unlock(&streamer->lock);
    return NULL;
}

enum plec_status plec_streamer_start(struct plec_streamer *streamer, struct plec_error *err) {
    if (plec_streamer_virtual(streamer)) return PLEC_OK;
    enum plec_status status =
        plec_thread_start(&streamer->thread, serve, streamer, "the streaming thread", err);
    streamer->thread_started = status == PLEC_OK;
    return status;
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
