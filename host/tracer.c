#include "host/tracer.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { DEFAULT_EVENTS = 1 << 16, DEFAULT_THREADS = 32, MOST_EVENTS = 1 << 24 };
/* An event is stored as words, so that reader and writer may meet in one slot: the words but the
 * last 8 bytes, which are the reader's. */
enum { N_WORDS = (sizeof(struct plec_tracer_event) + 7) / 8 };
_Static_assert(sizeof(struct plec_tracer_event) == N_WORDS * sizeof(uint64_t), "whole words");

/* One thread's events. The writer claims a place, fills it, and says that it is written; a reader
 * drops what was claimed again while it copied. */
struct ring {
    _Atomic uint32_t tid; /* 0: nobody's yet */
    char name[16];        /* set before tid */
    _Atomic uint64_t claimed, written;
    _Atomic uint64_t cleared; /* events before this one are forgotten */
    uint64_t last_ns;         /* of the writer: its events never go back in time */
    _Atomic uint64_t *words;  /* [capacity, N_WORDS] */
};

struct plec_tracer {
    uint64_t serial; /* of all tracers of the process: never that of a closed one */
    const struct plec_stream_clock *clock; /* NULL: CLOCK_MONOTONIC */
    struct plec_nvtx_view view;
    _Atomic uint64_t start_ns;
    _Atomic uint32_t order, n_rings;
    _Atomic uint32_t layer; /* that began last */
    _Atomic uint64_t n_ringless;
    uint32_t max_rings;
    uint64_t capacity; /* 0: nothing is recorded */
    struct ring *rings;
    _Atomic uint64_t *words; /* of all rings */
};

static uint64_t now_ns(const struct plec_tracer *tracer) {
    if (tracer->clock != NULL) return tracer->clock->now_ns;
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* --- open ------------------------------------------------------------------------------------ */

static enum plec_status alloc_rings(struct plec_tracer *tracer,
                                    const struct plec_tracer_options *options,
                                    struct plec_error *err) {
    uint64_t wanted = options->events_per_thread != 0 ? options->events_per_thread : DEFAULT_EVENTS;
    if (wanted > MOST_EVENTS) wanted = MOST_EVENTS;
    tracer->capacity = 1;
    while (tracer->capacity < wanted)
        tracer->capacity *= 2;
    tracer->max_rings = options->max_threads != 0 ? options->max_threads : DEFAULT_THREADS;
    tracer->rings = calloc(tracer->max_rings, sizeof *tracer->rings);
    /* Pages that no event reaches are never touched. */
    tracer->words = calloc(tracer->max_rings, tracer->capacity * N_WORDS * sizeof *tracer->words);
    if (tracer->rings == NULL || tracer->words == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory",
                         "a trace of %u threads, %llu events each", tracer->max_rings,
                         (unsigned long long)tracer->capacity);
    for (uint32_t i = 0; i < tracer->max_rings; i++)
        tracer->rings[i].words = tracer->words + i * tracer->capacity * N_WORDS;
    return PLEC_OK;
}

enum plec_status plec_tracer_open(struct plec_tracer **out,
                                  const struct plec_tracer_options *options,
                                  struct plec_error *err) {
    static _Atomic uint64_t n_opened;
    *out = NULL;
    struct plec_tracer *tracer = calloc(1, sizeof *tracer);
    if (tracer == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a tracer");
    tracer->serial = atomic_fetch_add(&n_opened, 1) + 1;
    tracer->layer = UINT32_MAX;
    tracer->clock = options->clock;
    tracer->start_ns = now_ns(tracer);
    tracer->view.level = options->nvtx;
    if (options->nvtx != PLEC_NVTX_OFF) tracer->view.nvtx = plec_nvtx_get();
    enum plec_status status = options->record ? alloc_rings(tracer, options, err) : PLEC_OK;
    if (status != PLEC_OK) {
        plec_tracer_close(tracer);
        return status;
    }
    *out = tracer;
    return PLEC_OK;
}

void plec_tracer_close(struct plec_tracer *tracer) {
    if (tracer == NULL) return;
    free(tracer->words);
    free(tracer->rings);
    free(tracer);
}

bool plec_tracer_records(const struct plec_tracer *tracer) {
    return tracer != NULL && tracer->capacity > 0;
}

bool plec_tracer_active(const struct plec_tracer *tracer) {
    return tracer != NULL && (tracer->capacity > 0 || tracer->view.nvtx != NULL);
}

void plec_tracer_clear(struct plec_tracer *tracer) {
    atomic_store(&tracer->start_ns, now_ns(tracer));
    atomic_store(&tracer->n_ringless, 0);
    uint32_t n = atomic_load(&tracer->n_rings);
    for (uint32_t i = 0; i < n && i < tracer->max_rings; i++)
        atomic_store(&tracer->rings[i].cleared, atomic_load(&tracer->rings[i].written));
}

/* --- recording ------------------------------------------------------------------------------- */

/* The calling thread's ring in a tracer that it has none cached for: one it had before, or a new
 * one; NULL: there are no more. */
static struct ring *find_ring(struct plec_tracer *tracer) {
    uint32_t tid = (uint32_t)syscall(SYS_gettid), n = atomic_load(&tracer->n_rings);
    for (uint32_t i = 0; i < n && i < tracer->max_rings; i++)
        if (atomic_load(&tracer->rings[i].tid) == tid) return &tracer->rings[i];
    if (n >= tracer->max_rings) return NULL;
    n = atomic_fetch_add(&tracer->n_rings, 1);
    if (n >= tracer->max_rings) return NULL;
    struct ring *ring = &tracer->rings[n];
    pthread_getname_np(pthread_self(), ring->name, sizeof ring->name);
    atomic_store(&ring->tid, tid);
    return ring;
}

static struct ring *ring_of_thread(struct plec_tracer *tracer) {
    static _Thread_local struct {
        uint64_t serial;
        struct ring *ring;
    } cached;
    if (cached.serial != tracer->serial) {
        cached.ring = find_ring(tracer);
        cached.serial = tracer->serial;
    }
    return cached.ring;
}

/* Each word is released after the claim: who reads one of the new event sees the claim too. */
static void store(struct plec_tracer *tracer, struct ring *ring,
                  const struct plec_tracer_event *event) {
    uint64_t n = atomic_load_explicit(&ring->written, memory_order_relaxed), words[N_WORDS];
    _Atomic uint64_t *to = ring->words + (n & (tracer->capacity - 1)) * N_WORDS;
    memcpy(words, event, sizeof words);
    atomic_store_explicit(&ring->claimed, n + 1, memory_order_relaxed);
    for (uint32_t i = 0; i < N_WORDS; i++)
        atomic_store_explicit(&to[i], words[i], memory_order_release);
    atomic_store_explicit(&ring->written, n + 1, memory_order_release);
}

static void record(struct plec_tracer *tracer, struct plec_tracer_event *event) {
    struct ring *ring = ring_of_thread(tracer);
    if (ring == NULL) {
        atomic_fetch_add_explicit(&tracer->n_ringless, 1, memory_order_relaxed);
        return;
    }
    if (event->at_ns < ring->last_ns) event->at_ns = ring->last_ns;
    ring->last_ns = event->at_ns;
    event->order = atomic_fetch_add_explicit(&tracer->order, 1, memory_order_relaxed);
    store(tracer, ring, event);
}

void plec_tracer_add(struct plec_tracer *tracer, const struct plec_tracer_event *event) {
    if (tracer == NULL) return;
    struct plec_tracer_event copy = *event;
    if (tracer->view.nvtx != NULL) plec_nvtx_show(&tracer->view, event);
    if (tracer->capacity == 0) return;
    if (copy.at_ns == 0) copy.at_ns = now_ns(tracer);
    record(tracer, &copy);
}

void plec_tracer_push(struct plec_tracer *tracer, enum plec_tracer_what what, uint32_t layer,
                      uint32_t value) {
    struct plec_tracer_event event = {.what = (uint8_t)what,
                                      .phase = PLEC_TRACE_BEGIN,
                                      .layer = layer,
                                      .key = PLEC_NO_KEY,
                                      .value = value};
    if (tracer != NULL && what == PLEC_TRACE_LAYER)
        atomic_store_explicit(&tracer->layer, layer, memory_order_relaxed);
    plec_tracer_add(tracer, &event);
}

void plec_tracer_pop(struct plec_tracer *tracer, enum plec_tracer_what what, uint32_t layer,
                     enum plec_status status) {
    struct plec_tracer_event event = {.what = (uint8_t)what,
                                      .phase = PLEC_TRACE_END,
                                      .layer = layer,
                                      .key = PLEC_NO_KEY,
                                      .status = (uint8_t)status};
    plec_tracer_add(tracer, &event);
}

static void mark_device(void *user, enum plec_device_work work, bool ends) {
    struct plec_tracer *tracer = user;
    enum plec_tracer_what what = work == PLEC_WORK_DOWN ? PLEC_TRACE_DOWN : PLEC_TRACE_GATE_UP;
    uint32_t layer = atomic_load_explicit(&tracer->layer, memory_order_relaxed);
    if (ends)
        plec_tracer_pop(tracer, what, layer, PLEC_OK);
    else
        plec_tracer_push(tracer, what, layer, 0);
}

struct plec_device_probe plec_tracer_of_device(struct plec_tracer *tracer) {
    bool useful = plec_tracer_active(tracer) && tracer->clock == NULL;
    return (struct plec_device_probe){useful ? mark_device : NULL, tracer};
}

/* --- reading --------------------------------------------------------------------------------- */

/* A ring's events [first, end) at the time of reading. */
struct stretch {
    uint64_t first, end;
    uint64_t head, tail; /* where its copy stands among all */
};

static struct stretch stretch_of(const struct plec_tracer *tracer, struct ring *ring) {
    uint64_t end = atomic_load_explicit(&ring->written, memory_order_acquire);
    uint64_t first = end > tracer->capacity ? end - tracer->capacity : 0;
    uint64_t cleared = atomic_load(&ring->cleared);
    return (struct stretch){.first = first < cleared ? cleared : first, .end = end};
}

/* Copies a stretch to out; what was overwritten meanwhile is left out. Returns how many. */
static uint64_t copy_stretch(struct plec_tracer_event *out, const struct plec_tracer *tracer,
                             struct ring *ring, const struct stretch *stretch) {
    uint64_t n = 0;
    for (uint64_t i = stretch->first; i < stretch->end; i++) {
        const _Atomic uint64_t *from = ring->words + (i & (tracer->capacity - 1)) * N_WORDS;
        uint64_t words[N_WORDS];
        for (uint32_t w = 0; w < N_WORDS; w++)
            words[w] = atomic_load_explicit(&from[w], memory_order_acquire);
        memcpy(&out[n++], words, sizeof words);
    }
    uint64_t claimed = atomic_load_explicit(&ring->claimed, memory_order_relaxed);
    uint64_t whole = claimed > tracer->capacity ? claimed - tracer->capacity : 0;
    uint64_t torn = whole > stretch->first ? whole - stretch->first : 0;
    if (torn > n) torn = n;
    memmove(out, out + torn, (n - torn) * sizeof *out);
    return n - torn;
}

static bool earlier(const struct plec_tracer_event *a, const struct plec_tracer_event *b) {
    if (a->at_ns != b->at_ns) return a->at_ns < b->at_ns;
    return (int32_t)(a->order - b->order) < 0;
}

/* Stretches, each in time order, into one list in time order. */
static void merge(struct plec_tracer_event *out, const struct plec_tracer_event *all,
                  struct stretch *stretches, uint32_t n) {
    for (;;) {
        struct stretch *best = NULL;
        for (struct stretch *at = stretches; at < stretches + n; at++)
            if (at->head < at->tail && (best == NULL || earlier(&all[at->head], &all[best->head])))
                best = at;
        if (best == NULL) return;
        *out = all[best->head++];
        out->thread = (uint32_t)(best - stretches);
        out++;
    }
}

static void read_rings(struct plec_tracer_snapshot *out, struct plec_tracer_event *all,
                       struct stretch *stretches, struct plec_tracer *tracer) {
    for (uint32_t i = 0; i < out->n_threads; i++) {
        struct ring *ring = &tracer->rings[i];
        struct plec_tracer_thread *thread = &out->threads[i];
        struct stretch *stretch = &stretches[i];
        thread->tid = atomic_load(&ring->tid);
        if (thread->tid != 0) memcpy(thread->name, ring->name, sizeof thread->name);
        stretch->head = out->n_events;
        out->n_events += copy_stretch(all + out->n_events, tracer, ring, stretch);
        stretch->tail = out->n_events;
        thread->n_lost =
            stretch->end - atomic_load(&ring->cleared) - (stretch->tail - stretch->head);
        out->n_lost += thread->n_lost;
    }
}

enum plec_status plec_tracer_read(struct plec_tracer_snapshot *out, struct plec_tracer *tracer,
                                  struct plec_error *err) {
    memset(out, 0, sizeof *out);
    uint32_t n = atomic_load(&tracer->n_rings);
    if (n > tracer->max_rings) n = tracer->max_rings;
    struct stretch *stretches = calloc(n + (size_t)1, sizeof *stretches);
    uint64_t most = 1;
    for (uint32_t i = 0; stretches != NULL && i < n; i++) {
        stretches[i] = stretch_of(tracer, &tracer->rings[i]);
        most += stretches[i].end - stretches[i].first;
    }
    struct plec_tracer_event *all = calloc(most, sizeof *all);
    out->threads = calloc(n + (size_t)1, sizeof *out->threads);
    out->events = calloc(most, sizeof *out->events);
    bool fits = stretches != NULL && all != NULL && out->threads != NULL && out->events != NULL;
    if (fits) {
        out->n_threads = n;
        out->virtual_time = tracer->clock != NULL;
        out->start_ns = atomic_load(&tracer->start_ns);
        read_rings(out, all, stretches, tracer);
        merge(out->events, all, stretches, n);
        out->n_lost += atomic_load(&tracer->n_ringless);
        out->read_ns = now_ns(tracer);
    }
    free(all);
    free(stretches);
    if (fits) return PLEC_OK;
    plec_tracer_snapshot_close(out);
    return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%llu events of a trace",
                     (unsigned long long)most);
}

void plec_tracer_snapshot_close(struct plec_tracer_snapshot *snapshot) {
    free(snapshot->events);
    free(snapshot->threads);
    memset(snapshot, 0, sizeof *snapshot);
}
