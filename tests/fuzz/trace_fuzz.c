/* Any bytes as a routing trace: what is read must be in order and in range, and caches of every
 * policy must come through it with as many uses as it has. */
#include <stdint.h>
#include <stdlib.h>

#include "host/replay.h"

enum { SMALL = 4096 }; /* experts of a trace that is replayed, so that a run takes no time */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static uint64_t check(const struct plec_trace *trace) {
    uint64_t n = 0;
    for (uint64_t d = 0; d < trace->n_dispatches; d++) {
        const struct plec_trace_dispatch *dispatch = &trace->dispatches[d];
        if (dispatch->first_id != n || dispatch->layer >= trace->info.n_layers) abort();
        n += dispatch->n_ids;
        if (n > trace->n_ids) abort();
        for (uint32_t i = 0; i < dispatch->n_ids; i++) {
            const uint32_t *id = &trace->ids[dispatch->first_id + i];
            if (*id >= trace->info.n_experts || (i > 0 && id[-1] >= *id)) abort();
        }
    }
    if (n != trace->n_ids) abort();
    return n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct plec_trace trace;
    struct plec_error err;
    if (plec_trace_parse(&trace, (const char *)data, size, &err) != PLEC_OK) return 0;
    uint64_t n_uses = check(&trace);
    uint64_t all = (uint64_t)trace.info.n_layers * trace.info.n_experts;
    for (int policy = 0; policy < 3 && all <= SMALL; policy++) {
        struct plec_replay_args args = {.trace = &trace,
                                        .width = (uint32_t)(size % 9 + 1),
                                        .n_experts = size % 37,
                                        .policy = (enum plec_residency_policy)policy,
                                        .ns_per_byte = 0.2};
        struct plec_replay_result result;
        if (plec_replay_run(&result, &args, &err) != PLEC_OK) abort();
        if (result.uses != n_uses || result.hits > n_uses) abort();
    }
    plec_trace_close(&trace);
    return 0;
}
