/* runner_parts.h: the inside of runner.h: opening in runner.c, a forward in runner_forward.c. */
#ifndef PLEC_HOST_RUNNER_PARTS_H
#define PLEC_HOST_RUNNER_PARTS_H

#include <pthread.h>

#include "host/runner.h"
#include "host/upload.h"

enum { PLEC_NOT_STREAMED = UINT32_MAX };

/* The next layer's router is tried on this one's hidden states for at most so many tokens: more of
 * them use most experts anyway. */
enum { PLEC_AHEAD_TOKENS = 8 };

struct plec_runner_layer {
    uint32_t number;
    struct plec_bound_layer bound;
    char kernels[PLEC_EXPERTS_KERNELS_MAX];
    struct plec_layer on_device; /* bound.layer as launches read it */
    struct plec_upload upload;   /* what on_device points at, where the device wants it */
    uint32_t streamed;           /* its index in the streamer; PLEC_NOT_STREAMED */
    bool routes;                 /* the device routes, by on_device.router */
    struct plec_step_graphs graphs;
};

struct plec_runner {
    pthread_mutex_t lock; /* over busy */
    pthread_cond_t idle;  /* by CLOCK_MONOTONIC */
    bool busy;            /* one forward at a time: the buffers below are its own */
    bool reference, bf16_rule;
    struct plec_tracer *tracer; /* NULL: nobody is told */
    struct plec_device *device; /* NULL on the reference */
    bool needs_upload;          /* of the device */
    bool graphs;                /* steps of layers that are not streamed are captured */
    char device_name[128];
    struct plec_runner_layer *layers; /* [n_layers] */
    size_t n_layers;
    uint32_t max_tokens, max_slots;

    /* What a step copies to the device: its pinned memory, where there is a device. */
    float *x;           /* [max_tokens, widest hidden] */
    int32_t *ids;       /* [max_tokens, max_slots] */
    float *weights_f32; /* [max_tokens, max_slots] */
    uint8_t *marks;     /* [max_tokens] of tokens that the device could not route */

    struct plec_arena buffers; /* holds all of these */
    double *weights;           /* [max_tokens, max_slots] */
    bool *unrouted;            /* [max_tokens] */
    double *scratch;           /* of the router or the reference executor, never both at once */
    struct plec_step step;     /* closed on the reference */

    struct plec_streamer *streamer; /* NULL: nothing is streamed */
    uint32_t *streamed;             /* [layers that stream] index in `layers` */
    int32_t *ahead_ids;             /* [PLEC_AHEAD_TOKENS, max_slots] */
    double *ahead_weights;          /* likewise */
    bool ahead;                     /* the router of the next layer is tried */
};

/* The layer with a number; NULL: the runner does not have it. */
struct plec_runner_layer *plec_runner_find_layer(const struct plec_runner *runner, uint32_t number);

#endif
