/* What a streamer tells, as events of a trace. */
#include "host/tracer.h"

static const struct {
    uint8_t what, phase;
} kinds[] = {
    [PLEC_STREAM_READ_BEGIN] = {PLEC_TRACE_READ, PLEC_TRACE_BEGIN},
    [PLEC_STREAM_READ_END] = {PLEC_TRACE_READ, PLEC_TRACE_END},
    [PLEC_STREAM_COPY_BEGIN] = {PLEC_TRACE_COPY, PLEC_TRACE_BEGIN},
    [PLEC_STREAM_COPY_END] = {PLEC_TRACE_COPY, PLEC_TRACE_END},
    [PLEC_STREAM_WAIT_BEGIN] = {PLEC_TRACE_WAIT, PLEC_TRACE_BEGIN},
    [PLEC_STREAM_WAIT_END] = {PLEC_TRACE_WAIT, PLEC_TRACE_END},
    [PLEC_STREAM_LAYER_BEGIN] = {PLEC_TRACE_DISPATCH, PLEC_TRACE_BEGIN},
    [PLEC_STREAM_LAYER_END] = {PLEC_TRACE_DISPATCH, PLEC_TRACE_END},
    [PLEC_STREAM_PLAN_BEGIN] = {PLEC_TRACE_PLAN, PLEC_TRACE_BEGIN},
    [PLEC_STREAM_PLAN_END] = {PLEC_TRACE_PLAN, PLEC_TRACE_END},
    [PLEC_STREAM_HAND_OUT] = {PLEC_TRACE_HAND_OUT, PLEC_TRACE_MOMENT},
    [PLEC_STREAM_READY] = {PLEC_TRACE_READY, PLEC_TRACE_MOMENT},
    [PLEC_STREAM_CANCEL] = {PLEC_TRACE_CANCEL, PLEC_TRACE_MOMENT},
    [PLEC_STREAM_EVICT_SLOT] = {PLEC_TRACE_EVICT_SLOT, PLEC_TRACE_MOMENT},
    [PLEC_STREAM_EVICT_FRAME] = {PLEC_TRACE_EVICT_FRAME, PLEC_TRACE_MOMENT},
    [PLEC_STREAM_PINNED] = {PLEC_TRACE_PINNED, PLEC_TRACE_MOMENT},
};

static void take_event(void *user, const struct plec_stream_event *event) {
    bool dispatch = event->kind == PLEC_STREAM_LAYER_BEGIN || event->kind == PLEC_STREAM_LAYER_END;
    const struct plec_tracer_event out = {.at_ns = event->at_ns,
                                          .id = event->id,
                                          .n_bytes = event->n_bytes,
                                          .mask = dispatch ? 0 : event->mask,
                                          .in_slot = event->in_slot,
                                          .in_frame = event->in_frame,
                                          .layer = event->layer,
                                          .key = event->key,
                                          .extent = event->extent,
                                          .first_expert = event->first_expert,
                                          .frame = event->frame,
                                          .slot = event->slot,
                                          .value = dispatch ? (uint32_t)event->mask : 0,
                                          .what = kinds[event->kind].what,
                                          .phase = kinds[event->kind].phase,
                                          .urgency = (uint8_t)event->urgency,
                                          .status = (uint8_t)event->status};
    plec_tracer_add(user, &out);
}

struct plec_stream_trace plec_tracer_of_stream(struct plec_tracer *tracer) {
    bool useful = plec_tracer_active(tracer);
    return (struct plec_stream_trace){useful ? take_event : NULL, tracer};
}
