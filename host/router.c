#include "host/router.h"

#include <math.h>

#include "device/reference/reference.h"

/* Rows that are summed side by side: as many independent sums as hide an addition's latency. */
enum { ROWS = 4 };

/* sums [ROWS] = rows [ROWS, stride] . x [width], each in the order of x. */
static void dot_rows(double *sums, const double *rows, size_t stride, const float *x,
                     uint32_t width) {
    const double *a = rows, *b = a + stride, *c = b + stride, *d = c + stride;
    double sum_a = 0, sum_b = 0, sum_c = 0, sum_d = 0;
    for (uint32_t i = 0; i < width; i++) {
        double value = x[i];
        sum_a += a[i] * value;
        sum_b += b[i] * value;
        sum_c += c[i] * value;
        sum_d += d[i] * value;
    }
    sums[0] = sum_a;
    sums[1] = sum_b;
    sums[2] = sum_c;
    sums[3] = sum_d;
}

size_t plec_router_rows_scratch(const struct plec_router *router) {
    return (size_t)ROWS * router->weight.cols;
}

void plec_router_logits(double *z, const struct plec_router *router, const float *x,
                        uint32_t n_tokens, double *rows) {
    size_t n_experts = router->n_experts, stride = router->weight.cols;
    double sums[ROWS], factors[PLEC_ROUTER_BATCH];
    for (size_t t = 0; t < n_tokens; t++)
        factors[t] = plec_reference_input_factor(router, x + t * router->input_dim);
    for (size_t first = 0; first < n_experts; first += ROWS) {
        size_t n = n_experts - first < ROWS ? n_experts - first : ROWS;
        /* A last, partial block sums its last row again: the excess is dropped. */
        for (size_t r = 0; r < ROWS; r++)
            plec_reference_router_row(rows + r * stride, router,
                                      (uint32_t)(first + (r < n ? r : n - 1)));
        for (size_t t = 0; t < n_tokens; t++) {
            dot_rows(sums, rows, stride, x + t * router->input_dim, router->input_dim);
            for (size_t r = 0; r < n; r++) {
                double product = sums[r] * factors[t];
                z[t * n_experts + first + r] =
                    router->bias != NULL ? product + router->bias[first + r] : product;
            }
        }
    }
}

size_t plec_router_scratch(const struct plec_router *router) {
    return (size_t)PLEC_ROUTER_BATCH * router->n_experts + plec_router_rows_scratch(router) +
           plec_reference_route_scratch(router);
}

static enum plec_status check_token_ids(const struct plec_routing_args *args,
                                        struct plec_error *err) {
    const struct plec_bound_layer *layer = args->layer;
    for (uint32_t t = 0; layer->token_table != NULL && t < args->n_tokens; t++)
        if (args->token_ids[t] < 0 || (uint32_t)args->token_ids[t] >= layer->n_token_ids)
            return plec_fail(err, PLEC_BAD_INPUT, "BadTokenId",
                             "token %u: its id is %d, the layer knows ids from 0 to %u",
                             args->first_token + t, args->token_ids[t], layer->n_token_ids - 1);
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
    if (status != PLEC_OK) plec_error_context(err, "token %u", args->first_token + t);
    return status;
}

enum plec_status plec_router_route(const struct plec_routing_args *args, struct plec_error *err) {
    const struct plec_router *router = &args->layer->layer.router;
    double *z = args->scratch;
    double *rows = z + (size_t)PLEC_ROUTER_BATCH * router->n_experts;
    double *scratch = rows + plec_router_rows_scratch(router);
    enum plec_status first = check_token_ids(args, err);
    if (first != PLEC_OK) return first;
    for (uint32_t start = 0; start < args->n_tokens; start += PLEC_ROUTER_BATCH) {
        uint32_t left = args->n_tokens - start;
        uint32_t n = left < PLEC_ROUTER_BATCH ? left : PLEC_ROUTER_BATCH;
        plec_router_logits(z, router, args->x + (size_t)start * router->input_dim, n, rows);
        for (uint32_t i = 0; i < n; i++) {
            enum plec_status status = route_one(args, start + i, z + (size_t)i * router->n_experts,
                                                scratch, first == PLEC_OK ? err : NULL);
            if (first == PLEC_OK) first = status;
        }
    }
    return first;
}

enum plec_status plec_router_check_ids(const struct plec_router_given *given,
                                       struct plec_error *err) {
    for (size_t i = 0; i < (size_t)given->n_tokens * given->n_slots; i++)
        if (given->ids[i] < 0 || (uint32_t)given->ids[i] >= given->n_experts)
            return plec_fail(err, PLEC_BAD_INPUT, "BadExpertId",
                             "token %zu slot %zu: id %d, the layer has experts 0 to %u",
                             given->first_token + i / given->n_slots, i % given->n_slots,
                             given->ids[i], given->n_experts - 1);
    return PLEC_OK;
}
