/* routes.c: routing on the device: logits, then the choice. */
#include "device/cuda/cuda.h"
#include "lyrw/cursor.h"

bool plec_cuda_route_workspace(uint64_t *n_bytes, const struct plec_device *device,
                               const struct plec_router *router, uint32_t n_tokens) {
    (void)device;
    return plec_mul_u64(n_bytes, (uint64_t)router->n_experts * n_tokens, sizeof(double));
}

static struct plec_cuda_router router_of(const struct plec_router *router) {
    struct plec_cuda_router out = {.n_experts = router->n_experts,
                                   .top_k = router->top_k,
                                   .gating = router->gating,
                                   .select_on = router->select_on,
                                   .n_groups = router->n_groups > 1 ? router->n_groups : 1,
                                   .n_groups_used = router->n_groups_used,
                                   .k_per_group = router->k_per_group,
                                   .normalise = router->normalise,
                                   .input_norm = router->input_norm,
                                   .norm_epsilon = router->norm_epsilon,
                                   .norm_floor = router->norm_floor,
                                   .scale = router->scale,
                                   .input_eps = router->input_eps,
                                   .input_dim = router->input_dim,
                                   .bias = router->bias,
                                   .selection_bias = router->selection_bias,
                                   .expert_scale = router->expert_scale,
                                   .input_scale = router->input_norm ? router->input_scale : NULL};
    return out;
}

static enum plec_status check(const struct plec_cuda_gemm **gemm, const struct plec_router *router,
                              const struct plec_cuda_device *device, struct plec_error *err) {
    char name[PLEC_NAME_MAX];
    if (router->n_experts > PLEC_CUDA_EXPERTS_MAX || router->top_k > PLEC_CUDA_SLOTS_MAX)
        return plec_fail(err, PLEC_UNSUPPORTED, "TooManyExperts",
                         "a router over %u experts, %u a token: at most %u and %u",
                         router->n_experts, router->top_k, PLEC_CUDA_EXPERTS_MAX,
                         PLEC_CUDA_SLOTS_MAX);
    const struct plec_cuda_ask ask = plec_cuda_ask_for(device, router->weight.format);
    *gemm = plec_cuda_kernel_find(&ask, PLEC_CUDA_FOR_LOGITS);
    if (*gemm != NULL) return PLEC_OK;
    return plec_fail(err, PLEC_UNSUPPORTED, "NoKernel", "router: no kernel for %s",
                     plec_format_name(router->weight.format, name));
}

bool plec_cuda_routes(const struct plec_device *device, const struct plec_router *router) {
    const struct plec_cuda_gemm *gemm = NULL;
    return check(&gemm, router, (const struct plec_cuda_device *)device, NULL) == PLEC_OK;
}

enum plec_status plec_cuda_route(struct plec_stream *base, const struct plec_route_args *args,
                                 struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    const struct plec_router *router = args->router;
    const struct plec_cuda_gemm *gemm = NULL;
    enum plec_status status = check(&gemm, router, stream->device, err);
    if (status != PLEC_OK || args->n_tokens == 0) return status;
    struct plec_cuda_route_args route = {.router = router_of(router),
                                         .n_tokens = args->n_tokens,
                                         .x = args->x,
                                         .logits = args->workspace,
                                         .ids = args->ids,
                                         .weights = args->weights,
                                         .unrouted = args->unrouted,
                                         .fault = stream->fault};
    struct plec_cuda_logits_args logits = {.weight = router->weight,
                                           .input_dim = router->input_dim,
                                           .n_tokens = args->n_tokens,
                                           .x = args->x,
                                           .input_scale = route.router.input_scale,
                                           .logits = args->workspace,
                                           .fault = stream->fault};
    struct plec_cuda_launch launch =
        plec_cuda_launch_begin(base, err, "route, %u of %u experts, %u tokens", router->top_k,
                               router->n_experts, args->n_tokens);
    if (!launch.skip &&
        plec_cuda_launched(&launch, gemm->logits(&logits, stream->handle), "logits"))
        plec_cuda_launched(&launch, plec_cuda_launch_route(&route, stream->handle), "route");
    return plec_cuda_launch_end(&launch);
}
