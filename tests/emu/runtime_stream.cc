/* runtime_stream.cc: the runtime's functions for streams, events and errors. */
#include "tests/emu/capture.h"
#include "tests/emu/memory.h"
#include "tests/emu/report.h"
#include "tests/emu/runtime.h"
#include "tests/emu/settings.h"

using namespace plec_emu;

/* ---- streams --------------------------------------------------------------------------------- */

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned flags) {
    PLEC_EMU_CALL;
    stream_of(nullptr);
    count_live("stream(s)", 1);
    *stream = stream_create(!(flags & cudaStreamNonBlocking));
    return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t *stream) {
    return cudaStreamCreateWithFlags(stream, cudaStreamDefault);
}

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *stream, unsigned flags, int) {
    return cudaStreamCreateWithFlags(stream, flags);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

/* CUDA returns at once and lets the work end; ending it here makes no difference to anybody. */
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    PLEC_EMU_CALL;
    if (!stream) return fail(cudaErrorInvalidResourceHandle);
    run_until(stream->last);
    stream_retire(stream);
    count_live("stream(s)", -1);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
    PLEC_EMU_CALL;
    if (capture_forbids(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
    return wait_for_stream(stream_of(handle));
}

cudaError_t cudaDeviceSynchronize(void) {
    PLEC_EMU_CALL;
    if (capture_forbids(__func__, true)) return fail(cudaErrorStreamCaptureUnsupported);
    return wait_for_all();
}

cudaError_t cudaStreamQuery(cudaStream_t handle) {
    PLEC_EMU_CALL;
    if (capture_forbids(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
    CUstream_st *stream = stream_of(handle);
    if (!stream->queue.empty()) run_one();
    if (!stream->queue.empty()) return cudaErrorNotReady;
    host_learns(stream->knows);
    return sticking_error();
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void *user) {
    PLEC_EMU_CALL;
    return issue(handle, "host function", Work::HOST, [=] { function(user); });
}

/* ---- events ---------------------------------------------------------------------------------- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *event, unsigned) {
    PLEC_EMU_CALL;
    *event = new CUevent_st;
    count_live("event(s)", 1);
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *event) {
    return cudaEventCreateWithFlags(event, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event) {
    PLEC_EMU_CALL;
    if (!event) return fail(cudaErrorInvalidResourceHandle);
    delete event;
    count_live("event(s)", -1);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t handle) {
    PLEC_EMU_CALL;
    CUstream_st *stream = stream_of(handle);
    if (sticking_error()) return fail(sticking_error());
    event->capture = stream->capture ? stream->capture->number : 0;
    if (stream->capture) {
        event->captured = stream->capture->n_events++;
        stream->capture->nodes.push_back({stream->branch, NodeKind::RECORD, "event is recorded",
                                          Work::MARK, nullptr, event->captured});
        return cudaSuccess;
    }
    event->operation = enqueue(stream, "event is recorded", Work::MARK, nullptr);
    event->knows = operations[(size_t)event->operation].knows;
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t handle, unsigned) {
    return cudaEventRecord(event, handle);
}

/* A stream that waits for an event of a capture joins it. */
static cudaError_t wait_in_capture(CUstream_st *stream, cudaEvent_t event) {
    Capture *capture = capture_under_way(event->capture);
    if (!capture || (stream->capture && stream->capture != capture)) {
        report("capture", "cudaStreamWaitEvent: the event was recorded in another capture");
        if (stream->capture) stream->capture->broken = true;
        return fail(cudaErrorStreamCaptureIsolation);
    }
    if (!stream->capture) {
        stream->capture = capture;
        stream->branch = capture->n_branches++;
    }
    stream->capture->nodes.push_back({stream->branch, NodeKind::WAIT, "event is waited for",
                                      Work::MARK, nullptr, event->captured});
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event, unsigned) {
    PLEC_EMU_CALL;
    CUstream_st *stream = stream_of(handle);
    if (event->capture) return wait_in_capture(stream, event);
    if (stream->capture && event->operation >= 0) {
        report("capture", "cudaStreamWaitEvent: the event was recorded before the capture began");
        stream->capture->broken = true;
        return fail(cudaErrorStreamCaptureIsolation);
    }
    if (event->operation < 0) return cudaSuccess; /* never recorded: no effect */
    enqueue(stream, "event is waited for", Work::MARK, nullptr, {event->operation}, &event->knows);
    return cudaSuccess;
}

cudaError_t cudaEventSynchronize(cudaEvent_t event) {
    PLEC_EMU_CALL;
    if (event->capture || capture_forbids(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
    if (event->operation < 0) return cudaSuccess;
    cudaError_t error = run_until(event->operation);
    host_learns(event->knows);
    return fail(error);
}

/* A poll makes a little progress, so that a loop of polls ends. */
cudaError_t cudaEventQuery(cudaEvent_t event) {
    PLEC_EMU_CALL;
    if (event->capture || capture_forbids(__func__)) return fail(cudaErrorStreamCaptureUnsupported);
    if (event->operation < 0) return cudaSuccess;
    const Operation &operation = operations[(size_t)event->operation];
    if (!operation.done) run_one();
    if (!operation.done) return cudaErrorNotReady;
    host_learns(event->knows);
    return sticking_error();
}

/* No time passes here: a microsecond for each operation between the two. */
cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to) {
    PLEC_EMU_CALL;
    if (from->operation < 0 || to->operation < 0) return fail(cudaErrorInvalidResourceHandle);
    if (!operations[(size_t)from->operation].done || !operations[(size_t)to->operation].done)
        return fail(cudaErrorNotReady);
    *ms = 1e-3f * (float)(to->operation - from->operation);
    return cudaSuccess;
}

/* ---- errors ---------------------------------------------------------------------------------- */

cudaError_t cudaGetLastError(void) {
    PLEC_EMU_CALL;
    return take_error();
}

cudaError_t cudaPeekAtLastError(void) {
    PLEC_EMU_CALL;
    return peek_error();
}
