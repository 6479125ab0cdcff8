/* step.h: the device side of a step: its buffers, and the launches that make one layer's output.
 *
 * Owns: a stream and device memory for steps up to the sizes given at open; a step allocates
 * nothing but a graph it captures. Never: routes on the host, checks the caller's arrays. One
 * thread at a time.
 *
 *   z = latent_in . x;  r = sum of weight * expert(z);  r = norm(r);  y = latent_out . r
 *   y += sigmoid(shared_gate . x) * shared(x);  y += dense(x);  y *= out_scale
 */
#ifndef PLEC_HOST_STEP_H
#define PLEC_HOST_STEP_H

#include "host/step_graphs.h"
#include "host/streamer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The largest step there will be. */
struct plec_step_limits {
    uint32_t max_tokens, max_slots;
    bool routes; /* there will be steps that the device routes */
};

/* How the launches of steps were made. */
struct plec_graph_stats {
    uint64_t captured; /* graphs made */
    uint64_t replayed; /* steps that a graph was launched for */
    uint64_t launched; /* steps launched one kernel after the other */
};

/* A zeroed step is closed. */
struct plec_step {
    struct plec_device *device;
    struct plec_stream *stream;
    uint32_t max_tokens;
    float *x, *y;           /* [max_tokens, hidden] device */
    int32_t *ids;           /* [max_tokens, max_slots] device */
    float *weights;         /* [max_tokens, max_slots] device */
    float *latent, *routed; /* [max_tokens, widest latent_in / routed output] device */
    float *gate;            /* [max_tokens] device */
    uint8_t *unrouted;      /* [max_tokens] device; NULL: no step routes */
    void *workspace;        /* largest plec_experts_workspace, or of a router, device */
    struct plec_graph_stats stats;
    bool dispatching; /* within a step: the streamer's dispatch is to be ended */
};

/* Buffers for any of the layers [n_layers]. PLEC_NO_MEMORY, PLEC_NO_DEVICE. */
PLEC_MUST_USE enum plec_status plec_step_open(struct plec_step *out, struct plec_device *device,
                                              const struct plec_layer *const *layers,
                                              size_t n_layers,
                                              const struct plec_step_limits *limits,
                                              struct plec_error *err);
void plec_step_close(struct plec_step *step);

/* Where the routed experts of a step come from when they are not views. */
struct plec_step_source {
    struct plec_streamer *streamer;
    struct plec_dispatch_args dispatch; /* ids and n_ids: set by the step */
    void (*meanwhile)(void *user); /* called when the experts were asked for, before they are waited
                                      for; or NULL */
    void *user;
};

/* Where the routing of a step goes that the device makes: host memory. */
struct plec_step_routing {
    int32_t *ids;      /* [n_tokens, n_slots] */
    float *weights;    /* [n_tokens, n_slots] */
    uint8_t *unrouted; /* [n_tokens] 1: the token's scores are no numbers; its output is no use */
};

struct plec_step_args {
    const struct plec_layer *layer;
    uint32_t n_tokens, n_slots;
    const float *x;       /* [n_tokens, hidden] f32, host */
    const int32_t *ids;   /* [n_tokens, n_slots], host, in range */
    const float *weights; /* [n_tokens, n_slots], host */
    /* NULL: ids and weights are the routing. Else layer->router, whose arrays are the device's,
     * makes it from x, n_slots is its top_k, and it comes back here. */
    const struct plec_step_routing *routing;
    bool routed_only;
    struct plec_step_graphs *graphs; /* of the layer; NULL: kernels are launched one by one, as they
                                        are with a source, or where no experts are routed */
    const struct plec_step_source *source; /* NULL: layer->routed has its entries */
    /* Asked before each bank, and before each part of what is streamed; another status than PLEC_OK
     * ends the step with it. NULL: nobody is asked. */
    enum plec_status (*may_go_on)(void *user, struct plec_error *err);
    void *user;
    float *y; /* out [n_tokens, hidden] f32, host */
};
/* Runs one step and waits for it. Statuses of the device and of plec_streamer_next. With a source
 * or without, *y is the same, bit for bit. */
PLEC_MUST_USE enum plec_status
plec_step_run(struct plec_step *step, const struct plec_step_args *args, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
