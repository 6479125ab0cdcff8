/* event.c: events of the CUDA backend: the runtime's own mean what device.h says. */
#include <stdlib.h>

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

/* What failed before the event has a stream whose next sync tells it: here it is done. */
bool plec_cuda_event_done(const struct plec_event *base) {
    return cudaEventQuery(((const struct plec_cuda_event *)base)->handle) != cudaErrorNotReady;
}

void plec_cuda_event_sync(struct plec_event *base) {
    (void)cudaEventSynchronize(((struct plec_cuda_event *)base)->handle);
}
