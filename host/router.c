#include "host/router.h"

#include <math.h>

#include "device/reference/reference.h"

/* Tokens that one pass over a row serves: as many independent sums as hide an addition's latency.
 */
enum { LANES = 8 };

/* z [n] of expert `expert` for n <= LANES neighbouring tokens. */
static void dot_lanes(double *sums, const double *row, const float *x, uint32_t n, uint32_t width) {
    for (uint32_t t = 0; t < n; t++)
        sums[t] = 0;
    if (n == LANES) {
        for (uint32_t i = 0; i < width; i++)
            for (uint32_t t = 0; t < LANES; t++)
                sums[t] += row[i] * x[(size_t)t * width + i];
        return;
    }
    for (uint32_t t = 0; t < n; t++)
        for (uint32_t i = 0; i < width; i++)
            sums[t] += row[i] * x[(size_t)t * width + i];
}

void plec_router_logits(double *z, const struct plec_router *router, const float *x,
                        uint32_t n_tokens, double *row) {
    uint32_t width = router->input_dim;
    double sums[LANES], factors[PLEC_ROUTER_BATCH];
    for (uint32_t t = 0; t < n_tokens; t++)
        factors[t] = plec_reference_input_factor(router, x + (size_t)t * width);
    for (uint32_t e = 0; e < router->n_experts; e++) {
        plec_reference_router_row(row, router, e);
        for (uint32_t t = 0; t < n_tokens; t += LANES) {
            uint32_t n = n_tokens - t < LANES ? n_tokens - t : LANES;
            dot_lanes(sums, row, x + (size_t)t * width, n, width);
            for (uint32_t i = 0; i < n; i++) {
                double product = sums[i] * factors[t + i];
                z[(size_t)(t + i) * router->n_experts + e] =
                    router->bias != NULL ? product + router->bias[e] : product;
            }
        }
    }
}

size_t plec_router_scratch(const struct plec_router *router) {
    return (size_t)PLEC_ROUTER_BATCH * router->n_experts + router->weight.cols +
           plec_reference_route_scratch(router);
}

static enum plec_status check_token_ids(const struct plec_routing_args *args,
                                        struct plec_error *err) {
    const struct plec_bound_layer *layer = args->layer;
    for (uint32_t t = 0; layer->token_table != NULL && t < args->n_tokens; t++)
        if (args->token_ids[t] < 0 || (uint32_t)args->token_ids[t] >= layer->n_token_ids)
            return plec_fail(err, PLEC_BAD_INPUT, "BadTokenId",
                             "token %u: its id is %d, the layer knows ids from 0 to %u", t,
                             args->token_ids[t], layer->n_token_ids - 1);
    return PLEC_OK;
}

/* Weights of the experts that the token's id names. */
static enum plec_status weigh_by_table(int32_t *ids, double *weights,
                                       const struct plec_bound_layer *layer, int32_t token_id,
                                       const double *z, double *scratch, struct plec_error *err) {
    const struct plec_router *router = &layer->layer.router;
    const int32_t *named = layer->token_table + (size_t)token_id * router->top_k;
    plec_reference_weigh(weights, named, router, z, scratch);
    for (uint32_t j = 0; j < router->top_k; j++) {
        ids[j] = named[j];
        if (!isfinite(weights[j]))
            return plec_fail(err, PLEC_BAD_INPUT, "NanScores", "expert %d has no finite weight",
                             named[j]);
    }
    return PLEC_OK;
}

static enum plec_status route_one(const struct plec_routing_args *args, uint32_t t, const double *z,
                                  double *scratch, struct plec_error *err) {
    const struct plec_router *router = &args->layer->layer.router;
    uint32_t k = router->top_k;
    int32_t *ids = args->ids + (size_t)t * k;
    double *weights = args->weights + (size_t)t * k;
    enum plec_status status =
        args->layer->token_table != NULL
            ? weigh_by_table(ids, weights, args->layer, args->token_ids[t], z, scratch, err)
            : plec_reference_route(ids, weights, router, z, scratch, err);
    args->unrouted[t] = status != PLEC_OK;
    for (uint32_t j = 0; status != PLEC_OK && j < k; j++) {
        ids[j] = 0;
        weights[j] = NAN;
    }
    if (status != PLEC_OK) plec_error_context(err, "token %u", t);
    return status;
}

enum plec_status plec_router_route(const struct plec_routing_args *args, struct plec_error *err) {
    const struct plec_router *router = &args->layer->layer.router;
    double *z = args->scratch;
    double *row = z + (size_t)PLEC_ROUTER_BATCH * router->n_experts;
    double *scratch = row + router->weight.cols;
    enum plec_status first = check_token_ids(args, err);
    if (first != PLEC_OK) return first;
    for (uint32_t start = 0; start < args->n_tokens; start += PLEC_ROUTER_BATCH) {
        uint32_t left = args->n_tokens - start;
        uint32_t n = left < PLEC_ROUTER_BATCH ? left : PLEC_ROUTER_BATCH;
        plec_router_logits(z, router, args->x + (size_t)start * router->input_dim, n, row);
        for (uint32_t i = 0; i < n; i++) {
            enum plec_status status = route_one(args, start + i, z + (size_t)i * router->n_experts,
                                                scratch, first == PLEC_OK ? err : NULL);
            if (first == PLEC_OK) first = status;
        }
    }
    return first;
}

enum plec_status plec_router_check_ids(const int32_t *ids, uint32_t n_tokens, uint32_t n_slots,
                                       uint32_t n_experts, struct plec_error *err) {
    for (size_t i = 0; i < (size_t)n_tokens * n_slots; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= n_experts)
            return plec_fail(err, PLEC_BAD_INPUT, "BadExpertId",
                             "token %zu slot %zu: id %d, the layer has experts 0 to %u",
                             i / n_slots, i % n_slots, ids[i], n_experts - 1);
    return PLEC_OK;
}
