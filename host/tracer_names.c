/* What events are called, in every kind of trace. */
#include "host/tracer.h"

static const struct {
    const char *name;
    enum plec_nvtx_category category;
} names[PLEC_N_TRACES] = {
    [PLEC_TRACE_REQUEST] = {"request", PLEC_NVTX_SERVE},
    [PLEC_TRACE_STEADY] = {"steady", PLEC_NVTX_SERVE},
    [PLEC_TRACE_LAYER] = {"moe.layer", PLEC_NVTX_COMPUTE},
    [PLEC_TRACE_ROUTE] = {"moe.route", PLEC_NVTX_ROUTE},
    [PLEC_TRACE_LOOK_AHEAD] = {"moe.look_ahead", PLEC_NVTX_PREFETCH},
    [PLEC_TRACE_DISPATCH] = {"moe.dispatch", PLEC_NVTX_PREFETCH},
    [PLEC_TRACE_PLAN] = {"moe.plan", PLEC_NVTX_PREFETCH},
    [PLEC_TRACE_WAIT] = {"extent.wait", PLEC_NVTX_STALL},
    [PLEC_TRACE_GATE_UP] = {"moe.gate_up", PLEC_NVTX_COMPUTE},
    [PLEC_TRACE_DOWN] = {"moe.down", PLEC_NVTX_COMPUTE},
    [PLEC_TRACE_READ] = {"extent.read", PLEC_NVTX_IO},
    [PLEC_TRACE_COPY] = {"extent.h2d", PLEC_NVTX_H2D},
    [PLEC_TRACE_READY] = {"extent.ready", PLEC_NVTX_H2D},
    [PLEC_TRACE_CANCEL] = {"extent.cancel", PLEC_NVTX_PREFETCH},
    [PLEC_TRACE_HAND_OUT] = {"extent.use", PLEC_NVTX_PREFETCH},
    [PLEC_TRACE_EVICT_SLOT] = {"extent.evict_slot", PLEC_NVTX_EVICT},
    [PLEC_TRACE_EVICT_FRAME] = {"extent.evict_frame", PLEC_NVTX_EVICT},
    [PLEC_TRACE_PINNED] = {"pinned", PLEC_NVTX_PREFETCH},
};

const char *plec_tracer_name(enum plec_tracer_what what) {
    return names[what].name;
}

enum plec_nvtx_category plec_tracer_category(enum plec_tracer_what what) {
    return names[what].category;
}
