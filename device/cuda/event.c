/* event.c: events of the CUDA backend: the runtime's own mean what device.h says. */
#include <stdlib.h>
#include <time.h>

#include "device/cuda/cuda.h"

enum plec_status plec_cuda_event_open(struct plec_event **out, struct plec_device *base,
                                      struct plec_error *err) {
    struct plec_cuda_device *device = (struct plec_cuda_device *)base;
    *out = NULL;
    enum plec_status status = plec_cuda_enter(device, err);
    if (status != PLEC_OK) return status;
    struct plec_cuda_event *event = calloc(1, sizeof *event);
    if (event == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "an event");
    event->base.backend = base->backend;
    event->device = device;
    status = plec_cuda_check(cudaEventCreateWithFlags(&event->handle, cudaEventDisableTiming), err,
                             "an event");
    if (status != PLEC_OK) {
        free(event);
        return status;
    }
    *out = &event->base;
    return PLEC_OK;
}

void plec_cuda_event_close(struct plec_event *base) {
    struct plec_cuda_event *event = (struct plec_cuda_event *)base;
    (void)cudaEventDestroy(event->handle);
    free(event);
}

enum plec_status plec_cuda_event_record(struct plec_event *base, struct plec_stream *stream_base,
                                        struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)stream_base;
    struct plec_cuda_event *event = (struct plec_cuda_event *)base;
    enum plec_status status = plec_cuda_enter(stream->device, err);
    if (status != PLEC_OK) return status;
    return plec_cuda_check(cudaEventRecord(event->handle, stream->handle), err,
                           "recording an event");
}

enum plec_status plec_cuda_event_wait(struct plec_stream *stream_base, struct plec_event *base,
                                      struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)stream_base;
    struct plec_cuda_event *event = (struct plec_cuda_event *)base;
    enum plec_status status = plec_cuda_enter(stream->device, err);
    if (status != PLEC_OK) return status;
    return plec_cuda_check(cudaStreamWaitEvent(stream->handle, event->handle, 0), err,
                           "waiting for an event");
}

/* While others of the process capture, and hold all threads to it, no thread may ask or wait: that
 * is no answer. */
static bool is_answer(cudaError_t status) {
    return status != cudaErrorStreamCaptureUnsupported;
}

/* What failed before the event has a stream whose next sync tells it: here it is done. */
bool plec_cuda_event_done(const struct plec_event *base) {
    cudaError_t status = cudaEventQuery(((const struct plec_cuda_event *)base)->handle);
    return is_answer(status) && status != cudaErrorNotReady;
}

void plec_cuda_event_sync(struct plec_event *base) {
    const struct timespec nap = {0, 100000};
    while (!is_answer(cudaEventSynchronize(((struct plec_cuda_event *)base)->handle)))
        nanosleep(&nap, NULL);
}
