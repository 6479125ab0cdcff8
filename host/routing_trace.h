/* routing_trace.h: a recorded routing, as text: which experts each token used.
 *
 *   plectrum-trace,1,LAYERS,EXPERTS,ENTRY_BYTES,IDENTITY
 *   STEP,LAYER,TOKEN,ID,ID,...
 *   ...
 *
 * The first line names the format and its version, then the layers that stream, the experts of
 * each, the bytes of one expert, and the model's identity in 16 hexadecimal digits. Then one line a
 * token, layer and step, all numbers decimal, ids at most once; lines of one layer of one step (a
 * dispatch) are neighbours; steps do not fall, layers rise within a step. Lines that begin with #
 * are notes. Every line ends with a newline: a trace cut short is known by its last line.
 *
 * Owns: the parsed table. Never: a file; text comes and goes through the caller's memory.
 */
#ifndef PLEC_HOST_ROUTING_TRACE_H
#define PLEC_HOST_ROUTING_TRACE_H

#include "host/arena.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Layers, experts of a layer, and layers x experts that a trace may name: tables are as large. */
enum { PLEC_TRACE_MAX_EXPERTS = 1 << 20 };

struct plec_trace_info {
    uint32_t n_layers, n_experts; /* experts of a layer */
    uint64_t entry_bytes, identity;
};

/* The experts that a layer uses in a step: the union over its tokens. */
struct plec_trace_dispatch {
    uint64_t step;
    uint32_t layer, n_tokens;
    uint64_t first_id; /* in ids */
    uint32_t n_ids;
};

/* Zeroed: closed. */
struct plec_trace {
    struct plec_trace_info info;
    uint64_t n_dispatches, n_ids, n_tokens, n_steps;
    struct plec_trace_dispatch *dispatches; /* [n_dispatches] */
    uint32_t *ids;                          /* [n_ids] ascending within a dispatch */
    struct plec_arena arena;
};

/* Writers, for whoever records: the length written to text [size], without a 0 at the end; 0 when
 * it does not fit. No state, no allocation; any thread. */
size_t plec_trace_write_header(char *text, size_t size, const struct plec_trace_info *info);
size_t plec_trace_write_token(char *text, size_t size, uint64_t step, uint32_t layer,
                              uint32_t token, const int32_t *ids, uint32_t n);

/* Reads a whole trace. PLEC_MALFORMED, naming line and byte: "NotATrace", "TraceVersion",
 * "TraceLine" (a number, comma or newline that is not as above), "BadExpertId", "BadLayer",
 * "RepeatedExpert", "TraceOrder"; PLEC_UNSUPPORTED "TraceTooLarge"; PLEC_NO_MEMORY. *out is closed
 * on failure. */
PLEC_MUST_USE enum plec_status plec_trace_parse(struct plec_trace *out, const char *text,
                                                uint64_t n_bytes, struct plec_error *err);
void plec_trace_close(struct plec_trace *trace);

#ifdef __cplusplus
}
#endif
#endif
