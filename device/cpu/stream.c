#include "device/cpu/stream.h"

#include <assert.h>
#include <fenv.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cpu/cpu.h"

/* Waits until operation `position` - 1 and all before are done. */
static void wait_for(struct plec_cpu_mark mark) {
    struct plec_cpu_stream *stream = mark.stream;
    if (stream == NULL) return;
    if (atomic_load(&stream->n_done) >= mark.position) return;
    pthread_mutex_lock(&stream->mutex);
    stream->n_waiting++;
    while (atomic_load(&stream->n_done) < mark.position)
        pthread_cond_wait(&stream->progress, &stream->mutex);
    stream->n_waiting--;
    pthread_mutex_unlock(&stream->mutex);
}

static void spin_for_operation(struct plec_cpu_stream *stream, uint64_t position) {
    for (int i = 0; i < PLEC_CPU_SPINS; i++) {
        if (atomic_load(&stream->n_enqueued) > position) return;
        plec_cpu_relax(i);
    }
}

/* The next operation, in its slot of the ring; NULL when the stream closes and is empty. */
static struct plec_cpu_operation *next_operation(struct plec_cpu_stream *stream, bool *skip) {
    uint64_t position = atomic_load(&stream->n_done);
    spin_for_operation(stream, position);
    pthread_mutex_lock(&stream->mutex);
    while (atomic_load(&stream->n_enqueued) == position && !stream->closing)
        pthread_cond_wait(&stream->work, &stream->mutex);
    bool empty = atomic_load(&stream->n_enqueued) == position;
    struct plec_cpu_operation *operation = &stream->ring[position % stream->capacity];
    *skip = stream->failed && !operation->always;
    pthread_mutex_unlock(&stream->mutex);
    return empty ? NULL : operation;
}

static void finish_operation(struct plec_cpu_stream *stream, enum plec_status status,
                             const struct plec_error *error) {
    pthread_mutex_lock(&stream->mutex);
    if (status != PLEC_OK && !stream->failed) {
        stream->failed = true;
        stream->error = *error;
        stream->error.code = status;
    }
    atomic_fetch_add(&stream->n_done, 1);
    if (stream->n_waiting > 0) pthread_cond_broadcast(&stream->progress);
    pthread_mutex_unlock(&stream->mutex);
}

static void *serve(void *user) {
    struct plec_cpu_stream *stream = user;
    struct plec_error error;
    bool skip;
    fesetenv(FE_DFL_ENV);
    for (;;) {
        struct plec_cpu_operation *operation = next_operation(stream, &skip);
        if (operation == NULL) return NULL;
        enum plec_status status = PLEC_OK;
        if (!skip) {
            memset(&error, 0, sizeof error);
            status = operation->run(stream, operation->args, &error);
        }
        finish_operation(stream, status, &error);
    }
}

static enum plec_status enqueue(struct plec_stream *base, plec_cpu_run *run, const void *args,
                                size_t n_bytes, bool always) {
    struct plec_cpu_stream *stream = (struct plec_cpu_stream *)base;
    assert(n_bytes <= PLEC_CPU_OPERATION_BYTES);
    pthread_mutex_lock(&stream->mutex);
    stream->n_waiting++;
    while (atomic_load(&stream->n_enqueued) - atomic_load(&stream->n_done) >= stream->capacity)
        pthread_cond_wait(&stream->progress, &stream->mutex);
    stream->n_waiting--;
    uint64_t position = atomic_load(&stream->n_enqueued);
    struct plec_cpu_operation *operation = &stream->ring[position % stream->capacity];
    operation->run = run;
    operation->always = always;
    memcpy(operation->args, args, n_bytes);
    atomic_store(&stream->n_enqueued, position + 1);
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&stream->mutex);
    return PLEC_OK;
}

enum plec_status plec_cpu_enqueue(struct plec_stream *stream, plec_cpu_run *run, const void *args,
                                  size_t n_bytes) {
    return enqueue(stream, run, args, n_bytes, false);
}

void plec_cpu_stream_release(struct plec_cpu_stream *stream) {
    pthread_cond_destroy(&stream->progress);
    pthread_cond_destroy(&stream->work);
    pthread_mutex_destroy(&stream->mutex);
    free(stream->scratch);
    free(stream->ring);
    free(stream);
}

static struct plec_cpu_stream *make_stream(struct plec_cpu_device *device) {
    struct plec_cpu_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return NULL;
    stream->base.backend = &plec_cpu_backend;
    stream->device = device;
    stream->capacity = device->queue_capacity;
    stream->ring = calloc(stream->capacity, sizeof *stream->ring);
    stream->scratch = aligned_alloc(64, PLEC_CPU_SCRATCH_BYTES);
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_cond_init(&stream->work, NULL);
    pthread_cond_init(&stream->progress, NULL);
    if (stream->ring != NULL && stream->scratch != NULL) return stream;
    plec_cpu_stream_release(stream);
    return NULL;
}

static struct plec_cpu_stream *take_free_stream(struct plec_cpu_device *device) {
    pthread_mutex_lock(&device->mutex);
    struct plec_cpu_stream *stream = device->free_streams;
    if (stream != NULL) device->free_streams = stream->next_free;
    pthread_mutex_unlock(&device->mutex);
    return stream;
}

static void give_free_stream(struct plec_cpu_stream *stream) {
    struct plec_cpu_device *device = stream->device;
    pthread_mutex_lock(&device->mutex);
    stream->next_free = device->free_streams;
    device->free_streams = stream;
    pthread_mutex_unlock(&device->mutex);
}

void plec_cpu_stream_set_name(struct plec_stream *base, const char *name) {
    char kept[16]; /* what Linux keeps of a thread's name */
    snprintf(kept, sizeof kept, "%.15s", name);
    pthread_setname_np(((struct plec_cpu_stream *)base)->thread, kept);
}

enum plec_status plec_cpu_stream_open(struct plec_stream **out, struct plec_device *base,
                                      struct plec_error *err) {
    struct plec_cpu_device *device = (struct plec_cpu_device *)base;
    *out = NULL;
    struct plec_cpu_stream *stream = take_free_stream(device);
    if (stream == NULL) stream = make_stream(device);
    if (stream == NULL)
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a stream of %u operations",
                         device->queue_capacity);
    enum plec_status status = plec_cpu_thread_start(&stream->thread, serve, stream, err);
    if (status != PLEC_OK) {
        give_free_stream(stream);
        return status;
    }
    plec_cpu_stream_set_name(&stream->base, "plec-cpu-stream");
    atomic_fetch_add(&device->n_open, 1);
    *out = &stream->base;
    return PLEC_OK;
}

void plec_cpu_stream_close(struct plec_stream *base) {
    struct plec_cpu_stream *stream = (struct plec_cpu_stream *)base;
    struct plec_cpu_device *device = stream->device;
    pthread_mutex_lock(&stream->mutex);
    stream->closing = true;
    pthread_cond_signal(&stream->work);
    pthread_mutex_unlock(&stream->mutex);
    pthread_join(stream->thread, NULL);
    stream->closing = stream->failed = false;
    give_free_stream(stream);
    atomic_fetch_sub(&device->n_open, 1);
}

enum plec_status plec_cpu_stream_sync(struct plec_stream *base, struct plec_error *err) {
    struct plec_cpu_stream *stream = (struct plec_cpu_stream *)base;
    wait_for((struct plec_cpu_mark){stream, atomic_load(&stream->n_enqueued)});
    pthread_mutex_lock(&stream->mutex);
    enum plec_status status = stream->failed ? stream->error.code : PLEC_OK;
    if (stream->failed && err != NULL) *err = stream->error;
    stream->failed = false;
    pthread_mutex_unlock(&stream->mutex);
    return status;
}

enum plec_status plec_cpu_event_open(struct plec_event **out, struct plec_device *device,
                                     struct plec_error *err) {
    (void)device;
    struct plec_cpu_event *event = calloc(1, sizeof *event);
    *out = NULL;
    if (event == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "an event");
    event->base.backend = &plec_cpu_backend;
    pthread_mutex_init(&event->mutex, NULL);
    *out = &event->base;
    return PLEC_OK;
}

void plec_cpu_event_close(struct plec_event *base) {
    struct plec_cpu_event *event = (struct plec_cpu_event *)base;
    pthread_mutex_destroy(&event->mutex);
    free(event);
}

enum plec_status plec_cpu_event_record(struct plec_event *base, struct plec_stream *stream_base,
                                       struct plec_error *err) {
    struct plec_cpu_event *event = (struct plec_cpu_event *)base;
    struct plec_cpu_stream *stream = (struct plec_cpu_stream *)stream_base;
    (void)err;
    pthread_mutex_lock(&event->mutex);
    event->mark = (struct plec_cpu_mark){stream, atomic_load(&stream->n_enqueued)};
    pthread_mutex_unlock(&event->mutex);
    return PLEC_OK;
}

static struct plec_cpu_mark latest_mark(const struct plec_event *base) {
    struct plec_cpu_event *event = (struct plec_cpu_event *)base;
    pthread_mutex_lock(&event->mutex);
    struct plec_cpu_mark mark = event->mark;
    pthread_mutex_unlock(&event->mutex);
    return mark;
}

static enum plec_status run_wait(struct plec_cpu_stream *stream, const void *args,
                                 struct plec_error *err) {
    struct plec_cpu_mark mark;
    memcpy(&mark, args, sizeof mark);
    (void)stream, (void)err;
    wait_for(mark);
    return PLEC_OK;
}

enum plec_status plec_cpu_event_wait(struct plec_stream *stream, struct plec_event *event,
                                     struct plec_error *err) {
    struct plec_cpu_mark mark = latest_mark(event);
    (void)err;
    if (mark.stream == NULL || atomic_load(&mark.stream->n_done) >= mark.position) return PLEC_OK;
    return enqueue(stream, run_wait, &mark, sizeof mark, true);
}

bool plec_cpu_event_done(const struct plec_event *event) {
    struct plec_cpu_mark mark = latest_mark(event);
    return mark.stream == NULL || atomic_load(&mark.stream->n_done) >= mark.position;
}

void plec_cpu_event_sync(struct plec_event *event) {
    wait_for(latest_mark(event));
}
