/* stream.c: streams of the CUDA backend: work in order, and failures that stick.
 *
 * Three kinds of failure, told by the next sync, the first of them: what a kernel found and wrote
 * to the stream's fault record; what a call returned; what the runtime says went wrong. Kernels
 * look at the record and calls at a copy of it, so both are skipped after a fault; after a failed
 * call what is enqueued later is skipped. A copy that was already enqueued runs.
 */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/cuda.h"

static void release(struct plec_cuda_stream *stream) {
    if (stream->handle != NULL) (void)cudaStreamDestroy(stream->handle);
    if (stream->fault != NULL) (void)cudaFree(stream->fault);
    if (stream->fault_host != NULL) (void)cudaFreeHost(stream->fault_host);
    pthread_mutex_destroy(&stream->error_mutex);
    pthread_mutex_destroy(&stream->mutex);
    free(stream->calls);
    free(stream);
}

static enum plec_status clear_fault(struct plec_cuda_stream *stream, struct plec_error *err) {
    memset(stream->fault_host, 0, sizeof *stream->fault_host);
    return plec_cuda_check(cudaMemsetAsync(stream->fault, 0, sizeof *stream->fault, stream->handle),
                           err, "clearing a stream's fault record");
}

static enum plec_status make(struct plec_cuda_stream *stream, struct plec_error *err) {
    void *fault = NULL, *fault_host = NULL;
    enum plec_status status = plec_cuda_check(
        cudaStreamCreateWithFlags(&stream->handle, cudaStreamNonBlocking), err, "a stream");
    if (status == PLEC_OK)
        status = plec_cuda_check(cudaMalloc(&fault, sizeof *stream->fault), err,
                                 "a stream's fault record");
    stream->fault = fault;
    if (status == PLEC_OK)
        status = plec_cuda_check(
            cudaHostAlloc(&fault_host, sizeof *stream->fault_host, cudaHostAllocPortable), err,
            "a stream's fault record");
    stream->fault_host = fault_host;
    return status == PLEC_OK ? clear_fault(stream, err) : status;
}

enum plec_status plec_cuda_stream_open(struct plec_stream **out, struct plec_device *base,
                                       struct plec_error *err) {
    struct plec_cuda_device *device = (struct plec_cuda_device *)base;
    *out = NULL;
    enum plec_status status = plec_cuda_enter(device, err);
    if (status != PLEC_OK) return status;
    struct plec_cuda_stream *stream = calloc(1, sizeof *stream);
    if (stream == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a stream");
    stream->base.backend = base->backend;
    stream->device = device;
    pthread_mutex_init(&stream->mutex, NULL);
    pthread_mutex_init(&stream->error_mutex, NULL);
    stream->calls = calloc(device->n_calls, sizeof *stream->calls);
    status = stream->calls != NULL ? make(stream, err)
                                   : plec_fail(err, PLEC_NO_MEMORY, "NoMemory",
                                               "a stream of %u calls", device->n_calls);
    if (status != PLEC_OK) {
        release(stream);
        return status;
    }
    atomic_fetch_add(&device->n_open, 1);
    *out = &stream->base;
    return PLEC_OK;
}

void plec_cuda_stream_close(struct plec_stream *base) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    struct plec_cuda_device *device = stream->device;
    assert(!stream->capturing);
    if (plec_cuda_enter(device, NULL) == PLEC_OK) (void)cudaStreamSynchronize(stream->handle);
    plec_cuda_entries_leave(stream);
    release(stream);
    atomic_fetch_sub(&device->n_open, 1);
}

bool plec_cuda_stream_failed(struct plec_cuda_stream *stream) {
    pthread_mutex_lock(&stream->error_mutex);
    bool failed = stream->failed;
    pthread_mutex_unlock(&stream->error_mutex);
    return failed;
}

/* Brings the fault record to the host, behind the kernels that may have written it. */
static enum plec_status fetch_fault(struct plec_cuda_stream *stream, struct plec_error *err) {
    if (!stream->may_fault) return PLEC_OK;
    stream->may_fault = false;
    return plec_cuda_check(cudaMemcpyAsync(stream->fault_host, stream->fault, sizeof *stream->fault,
                                           cudaMemcpyDeviceToHost, stream->handle),
                           err, "reading a stream's fault record");
}

/* What a launch of the stream was of. */
static const char *what_was(const struct plec_cuda_stream *stream, uint32_t launch) {
    const struct plec_cuda_what *what = &stream->whats[launch % PLEC_CUDA_WHATS];
    if (stream->n_launches == 0) return "nothing";
    return what->launch == launch ? what->text : "a captured step";
}

/* The first failure since the last sync, forgotten with that. */
static enum plec_status take_failure(struct plec_cuda_stream *stream, struct plec_error *err) {
    enum plec_status status = plec_cuda_fault_status(
        stream->fault_host, what_was(stream, stream->fault_host->launch), err);
    if (status != PLEC_OK) {
        enum plec_status cleared = clear_fault(stream, NULL);
        (void)cleared; /* a runtime that fails says so again */
    }
    pthread_mutex_lock(&stream->error_mutex);
    if (stream->failed && status == PLEC_OK) {
        status = stream->error.code;
        if (err != NULL) *err = stream->error;
    }
    stream->failed = false;
    pthread_mutex_unlock(&stream->error_mutex);
    return status;
}

static enum plec_status fetch_for_sync(struct plec_cuda_stream *stream, struct plec_error *err) {
    pthread_mutex_lock(&stream->mutex);
    enum plec_status status = stream->capturing ? plec_fail(err, PLEC_BAD_INPUT, "Capturing",
                                                            "the stream is being captured")
                                                : fetch_fault(stream, err);
    pthread_mutex_unlock(&stream->mutex);
    return status;
}

/* Waits without the mutex: others may enqueue meanwhile. */
enum plec_status plec_cuda_stream_sync(struct plec_stream *base, struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    enum plec_status status = plec_cuda_enter(stream->device, err);
    if (status == PLEC_OK) status = fetch_for_sync(stream, err);
    if (status != PLEC_OK) return status;
    cudaError_t waited = cudaStreamSynchronize(stream->handle);
    pthread_mutex_lock(&stream->mutex);
    status = plec_cuda_check(waited, err, "waiting for a stream; launched last: %s",
                             what_was(stream, stream->n_launches - 1));
    if (status == PLEC_OK) status = take_failure(stream, err);
    pthread_mutex_unlock(&stream->mutex);
    return status;
}

/* Runs on a thread of the runtime, which must not be called from it. */
static void run_call(void *user) {
    struct plec_cuda_call *call = user;
    struct plec_cuda_stream *stream = call->stream;
    struct plec_error error;
    memset(&error, 0, sizeof error);
    bool skip = stream->fault_host->code != PLEC_CUDA_NO_FAULT || plec_cuda_stream_failed(stream);
    enum plec_status status = skip ? PLEC_OK : call->fn(call->user, &error);
    if (status != PLEC_OK) {
        pthread_mutex_lock(&stream->error_mutex);
        stream->failed = true;
        stream->error = error;
        stream->error.code = status;
        pthread_mutex_unlock(&stream->error_mutex);
    }
    atomic_fetch_add(&stream->n_returned, 1);
}

static enum plec_status call_locked(struct plec_cuda_stream *stream, plec_stream_function *fn,
                                    void *user, struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    if (stream->capturing)
        return plec_fail(err, PLEC_BAD_INPUT, "Capturing", "a call cannot be captured");
    if (stream->n_called - atomic_load(&stream->n_returned) >= stream->device->n_calls)
        status = plec_cuda_check(cudaStreamSynchronize(stream->handle), err,
                                 "waiting for room for a call");
    if (status == PLEC_OK) status = fetch_fault(stream, err);
    if (status != PLEC_OK) return status;
    struct plec_cuda_call *call = &stream->calls[stream->n_called % stream->device->n_calls];
    *call = (struct plec_cuda_call){stream, fn, user};
    status = plec_cuda_check(cudaLaunchHostFunc(stream->handle, run_call, call), err, "a call");
    if (status == PLEC_OK) stream->n_called++;
    return status;
}

enum plec_status plec_cuda_stream_call(struct plec_stream *base, plec_stream_function *fn,
                                       void *user, struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    enum plec_status status = plec_cuda_enter(stream->device, err);
    if (status != PLEC_OK) return status;
    pthread_mutex_lock(&stream->mutex);
    status = call_locked(stream, fn, user, err);
    pthread_mutex_unlock(&stream->mutex);
    return status;
}

enum plec_status plec_cuda_copy(void *to, const void *from, uint64_t n_bytes,
                                struct plec_stream *base, struct plec_error *err) {
    struct plec_cuda_launch launch = plec_cuda_launch_begin(base, err, NULL);
    if (n_bytes > 0 && !launch.skip)
        launch.status = plec_cuda_check(
            cudaMemcpyAsync(to, from, (size_t)n_bytes, cudaMemcpyDefault, launch.stream->handle),
            err, "a copy of %llu bytes", (unsigned long long)n_bytes);
    return plec_cuda_launch_end(&launch);
}

enum plec_status plec_cuda_fill(void *to, uint8_t byte, uint64_t n_bytes, struct plec_stream *base,
                                struct plec_error *err) {
    struct plec_cuda_launch launch = plec_cuda_launch_begin(base, err, NULL);
    if (n_bytes > 0 && !launch.skip)
        launch.status =
            plec_cuda_check(cudaMemsetAsync(to, byte, (size_t)n_bytes, launch.stream->handle), err,
                            "a fill of %llu bytes", (unsigned long long)n_bytes);
    return plec_cuda_launch_end(&launch);
}

struct plec_cuda_launch plec_cuda_launch_begin(struct plec_stream *base, struct plec_error *err,
                                               const char *format, ...) {
    struct plec_cuda_launch launch = {.stream = (struct plec_cuda_stream *)base, .err = err};
    launch.status = plec_cuda_enter(launch.stream->device, err);
    pthread_mutex_lock(&launch.stream->mutex);
    launch.skip = launch.status != PLEC_OK || plec_cuda_stream_failed(launch.stream);
    if (launch.skip || format == NULL) return launch;
    launch.number = launch.stream->n_launches++;
    struct plec_cuda_what *what = &launch.stream->whats[launch.number % PLEC_CUDA_WHATS];
    what->launch = launch.number;
    va_list list;
    va_start(list, format);
    vsnprintf(what->text, sizeof what->text, format, list);
    va_end(list);
    return launch;
}

bool plec_cuda_launched(struct plec_cuda_launch *launch, int status, const char *kernel) {
    if (launch->status != PLEC_OK) return false;
    launch->status = plec_cuda_check((cudaError_t)status, launch->err, "kernel %s of %s", kernel,
                                     what_was(launch->stream, launch->number));
    return launch->status == PLEC_OK;
}

enum plec_status plec_cuda_launch_end(struct plec_cuda_launch *launch) {
    pthread_mutex_unlock(&launch->stream->mutex);
    return launch->status;
}
