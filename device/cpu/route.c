/* route.c: routing on the CPU device: the reference's own, token by token, on the stream's thread.
 */
#include <math.h>
#include <string.h>

#include "device/cpu/cpu.h"
#include "device/reference/reference.h"
#include "lyrw/cursor.h"

/* Views of the workspace. */
struct workspace {
    double *row, *z, *weights, *scratch;
};

bool plec_cpu_route_workspace(uint64_t *n_bytes, const struct plec_device *device,
                              const struct plec_router *router, uint32_t n_tokens) {
    (void)device, (void)n_tokens;
    uint64_t n = (uint64_t)router->weight.cols + router->n_experts + router->top_k +
                 plec_reference_route_scratch(router);
    return plec_mul_u64(n_bytes, n, sizeof(double));
}

bool plec_cpu_routes(const struct plec_device *device, const struct plec_router *router) {
    (void)device, (void)router;
    return true;
}

static struct workspace workspace_in(const struct plec_route_args *args) {
    struct workspace w = {.row = args->workspace};
    w.z = w.row + args->router->weight.cols;
    w.weights = w.z + args->router->n_experts;
    w.scratch = w.weights + args->router->top_k;
    return w;
}

static void route_token(const struct plec_route_args *args, const struct workspace *w,
                        uint32_t token) {
    const struct plec_router *router = args->router;
    size_t k = router->top_k;
    int32_t *ids = args->ids + token * k;
    float *weights = args->weights + token * k;
    plec_reference_logits(w->z, router, args->x + (size_t)token * router->input_dim, w->row);
    bool routed = plec_reference_route(ids, w->weights, router, w->z, w->scratch, NULL) == PLEC_OK;
    args->unrouted[token] = !routed;
    for (size_t j = 0; j < k; j++) {
        if (!routed) ids[j] = 0;
        weights[j] = routed ? (float)w->weights[j] : NAN;
    }
}

static enum plec_status run_route(struct plec_cpu_stream *stream, const void *op_args,
                                  struct plec_error *err) {
    struct plec_route_args args;
    memcpy(&args, op_args, sizeof args);
    (void)stream, (void)err;
    struct workspace w = workspace_in(&args);
    for (uint32_t token = 0; token < args.n_tokens; token++)
        route_token(&args, &w, token);
    return PLEC_OK;
}

enum plec_status plec_cpu_route(struct plec_stream *stream, const struct plec_route_args *args,
                                struct plec_error *err) {
    (void)err;
    return plec_cpu_enqueue(stream, run_route, args, sizeof *args);
}
