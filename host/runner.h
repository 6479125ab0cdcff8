/* runner.h: the public face: runs the layers of a container on a device.
 *
 * Owns: the device, its streams, the bound layers, the streaming of experts and every buffer of a
 * step, all made at open: a forward allocates nothing, but for the graph that it captures when a
 * layer's steps have one size for the second time. Forward on one runner from several threads
 * is safe; calls queue.
 */
#ifndef PLEC_HOST_RUNNER_H
#define PLEC_HOST_RUNNER_H

#include "host/container.h"
#include "host/step.h"
#include "host/streamer.h"
#include "host/tracer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_runner;

enum plec_run_device { PLEC_RUN_AUTO, PLEC_RUN_CPU, PLEC_RUN_CUDA, PLEC_RUN_REFERENCE };

struct plec_runner_options {
    enum plec_run_device device; /* auto: CUDA when it is built and present, else CPU */
    uint32_t max_tokens;         /* most tokens of one forward; 0: 4096. Buffers are sized by it */
    uint32_t max_slots; /* most slots a token of a caller's routing; 0: the layer's top_k */
    uint32_t n_threads; /* 0: the processors available */
    bool plain_c;       /* CPU: no vector kernels */
    const char *rung;   /* as in struct plec_device_options; NULL: the fastest kernels. What a
                           layer then runs with is logged where it is something else */
    const char *cublas; /* likewise */
    bool eager;         /* CUDA: every kernel of a step is launched by itself. Else steps of up to
                           64 tokens of resident layers are captured as graphs and replayed, with
                           the same output, bit for bit */
    bool host_router;   /* CUDA: the host routes, as it does for streamed layers and for routers
                           that read something else than the hidden state. Else the device: the
                           same experts, weights within a rounding of f32 */
    bool bf16_rule;     /* reference: what enters experts is rounded as kernels with bf16 operands
                           round it (PLEC_REFERENCE_BF16). Else nothing is */
    const uint32_t *layers; /* [n_layers] layers to bind; NULL: every layer */
    size_t n_layers;
    struct plec_stream_options stream; /* device_budget 0: experts are used where their files are
                                          mapped. Else the routed experts of every layer with more
                                          than one are streamed; all else stays where it is */
    struct plec_tracer *tracer; /* told what happens, must outlive the runner; NULL: nobody. It
                                   takes the place of a stream.trace that is not set */
    struct plec_log log;
};

/* Opens a runner on a container, which must outlive it. options NULL: defaults. PLEC_BAD_INPUT
 * "NothingToStream" (the reference reads whole files); the statuses of plec_streamer_open. */
PLEC_MUST_USE enum plec_status plec_runner_open(struct plec_runner **out,
                                                struct plec_container *container,
                                                const struct plec_runner_options *options,
                                                struct plec_error *err);
void plec_runner_close(struct plec_runner *runner);

enum plec_element { PLEC_ELEMENT_F32, PLEC_ELEMENT_F16, PLEC_ELEMENT_BF16 };

struct plec_forward_args {
    uint32_t layer;
    uint32_t n_tokens;    /* 0 is a no-op */
    uint32_t first_token; /* number of the first one in what the caller runs in parts: messages
                             count from it */
    enum plec_element hidden_type;
    const void *hidden; /* [n_tokens, hidden_size], host, after the norm that precedes the FFN */
    const float *router_input; /* [n_tokens, hidden_size] f32 where the router reads another
                                  vector, else NULL */
    const int32_t *token_ids;  /* [n_tokens] for layers routed by token id, else NULL */
    const int32_t *ids; /* [n_tokens, n_slots] the caller's routing, or NULL: the layer's router */
    const float *weights; /* [n_tokens, n_slots], with ids */
    uint32_t n_slots;     /* of the caller's routing */
    bool routed_only;     /* leave shared and dense experts out */
    /* Ends of a step before it is whole: looked at while it queues behind others, before each bank,
     * or once before a graph, and before and while experts are awaited; what a device has begun is
     * waited for. */
    uint64_t timeout_ns; /* from the call on: "DeadlinePast"; 0: none */
    bool (*cancelled)(
        void *user); /* asked by the calling thread: true is "Cancelled"; NULL: never */
    void *cancelled_user;
    float *out;         /* [n_tokens, hidden_size] f32, host; no residual is added */
    int32_t *ids_out;   /* [n_tokens, slots] the routing used, or NULL */
    float *weights_out; /* [n_tokens, slots], or NULL */
};

/* One step of one layer; returns when out is complete. PLEC_MISSING "NoSuchLayer"; PLEC_BAD_INPUT:
 * "RoutingRequired", "RoutingIncomplete" (ids without weights), "BadExpertId" (names token, slot,
 * id), "NoSlots", "TooManySlots", "TooManyTokens", "NoArray", "RouterInputRequired",
 * "TokenIdsRequired", "BadTokenId", "NanScores"; PLEC_NO_DEVICE; PLEC_CANCELLED "DeadlinePast",
 * "Cancelled"; with streamed experts the statuses of plec_streamer_next: no row of out is then to
 * be used, and the next forward starts anew. NanScores names the first token with a NaN score, a
 * caller's weight that is not finite, or a NaN in its hidden state: such tokens have a NaN row in
 * out, id -1 and weight NaN in ids_out and weights_out; all other rows are complete and right. */
PLEC_MUST_USE enum plec_status plec_runner_forward(struct plec_runner *runner,
                                                   const struct plec_forward_args *args,
                                                   struct plec_error *err);

/* The bound layer, for its shapes; NULL when the runner does not have it. A view. */
const struct plec_bound_layer *plec_runner_layer(const struct plec_runner *runner, uint32_t layer);
/* What streaming did, and what it has; false: nothing is streamed, *out is zeroed. Any thread. */
bool plec_runner_stream_stats(struct plec_stream_stats *out, const struct plec_runner *runner);
/* How steps were launched: as graphs or kernel by kernel; false: the device has no graphs, or they
 * are off, and *out is zeroed. Not while a forward runs. */
bool plec_runner_graph_stats(struct plec_graph_stats *out, const struct plec_runner *runner);
/* The streamer itself, and the index it knows a layer by (UINT32_MAX: not streamed); NULL: nothing
 * is streamed. Views. */
struct plec_streamer *plec_runner_streamer(const struct plec_runner *runner);
uint32_t plec_runner_stream_index(const struct plec_runner *runner, uint32_t layer);
/* What a layer's routed experts run with, "gate q4_k mm_sync, up q4_k mm_sync, down q6_k plain";
 * NULL on the reference and for a layer that the runner does not have. A view. */
const char *plec_runner_kernels(const struct plec_runner *runner, uint32_t layer);
/* What it runs on: never auto. */
enum plec_run_device plec_runner_device(const struct plec_runner *runner);
/* "reference", "CPU, 2 threads, AVX2+FMA". */
const char *plec_runner_device_name(const struct plec_runner *runner);

#ifdef __cplusplus
}
#endif
#endif
