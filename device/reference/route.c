/* route.c: every router, token by token: scores, keys, groups, the k largest, their weights. */
#include <assert.h>
#include <math.h>

#include "device/reference/parts.h"
#include "device/reference/reference.h"

double plec_reference_input_factor(const struct plec_router *router, const float *x) {
    double sum = 0, n = router->input_dim;
    if (!router->input_norm) return 1;
    for (uint32_t i = 0; i < router->input_dim; i++)
        sum += (double)x[i] * x[i];
    return 1 / sqrt(sum / n + router->input_eps) / sqrt(n);
}

void plec_reference_router_row(double *row, const struct plec_router *router, uint32_t expert) {
    plec_matrix_row_f64(row, &router->weight, expert);
    if (!router->input_norm || router->input_scale == NULL) return;
    for (uint32_t i = 0; i < router->input_dim; i++)
        row[i] *= router->input_scale[i];
}

void plec_reference_logits(double *z, const struct plec_router *router, const float *x,
                           double *row) {
    assert(router->input_dim <= router->weight.cols);
    double factor = plec_reference_input_factor(router, x);
    for (uint32_t e = 0; e < router->n_experts; e++) {
        plec_reference_router_row(row, router, e);
        double sum = 0;
        for (uint32_t i = 0; i < router->input_dim; i++)
            sum += row[i] * x[i];
        sum *= factor;
        z[e] = router->bias != NULL ? sum + router->bias[e] : sum;
    }
}

static void softmax(double *p, const double *z, uint32_t n) {
    double largest = -INFINITY, sum = 0;
    for (uint32_t i = 0; i < n; i++)
        if (z[i] > largest) largest = z[i];
    for (uint32_t i = 0; i < n; i++)
        sum += p[i] = exp(z[i] - largest);
    for (uint32_t i = 0; i < n; i++)
        p[i] /= sum;
}

/* log(1 + e^z) without overflow for large z or loss for very negative z. */
static double softplus(double z) {
    return z > 0 ? z + log1p(exp(-z)) : log1p(exp(z));
}

/* p [n_experts]: what the weights are made of. */
static void scores(double *p, const struct plec_router *router, const double *z) {
    uint32_t n = router->n_experts;
    switch (router->gating) {
    case PLEC_GATING_SOFTMAX: softmax(p, z, n); return;
    case PLEC_GATING_SIGMOID:
        for (uint32_t e = 0; e < n; e++)
            p[e] = plec_reference_sigmoid(z[e]);
        return;
    case PLEC_GATING_SOFTMAX_SELECTED:
        for (uint32_t e = 0; e < n; e++)
            p[e] = z[e];
        return;
    case PLEC_GATING_SQRT_SOFTPLUS:
        for (uint32_t e = 0; e < n; e++)
            p[e] = sqrt(softplus(z[e]));
        return;
    }
    assert(!"a gating of enum plec_gating");
}

static void selection_keys(double *key, const struct plec_router *router, const double *z,
                           const double *p) {
    for (uint32_t e = 0; e < router->n_experts; e++) {
        switch (router->select_on) {
        case PLEC_SELECT_ON_SCORES: key[e] = p[e]; break;
        case PLEC_SELECT_ON_LOGITS: key[e] = z[e]; break;
        case PLEC_SELECT_ON_SIGMOID: key[e] = plec_reference_sigmoid(z[e]); break;
        }
        if (router->selection_bias != NULL) key[e] += router->selection_bias[e];
    }
}

static uint32_t group_count(const struct plec_router *router) {
    return router->n_groups > 1 ? router->n_groups : 1;
}

/* The sum of the two largest of n keys; the key itself when there is one. */
static double two_largest(const double *key, uint32_t n) {
    double first = key[0], second = -INFINITY;
    for (uint32_t i = 1; i < n; i++) {
        if (key[i] > first) {
            second = first;
            first = key[i];
        } else if (key[i] > second) {
            second = key[i];
        }
    }
    return n > 1 ? first + second : first;
}

/* The largest value whose taken is 0, the first of equals; n when there is none. */
static uint32_t largest_free(const double *value, const double *taken, uint32_t n) {
    uint32_t best = n;
    for (uint32_t i = 0; i < n; i++)
        if (taken[i] == 0 && (best == n || value[i] > value[best])) best = i;
    return best;
}

/* Marks every expert outside the n_groups_used best groups as taken. score, used: [n_groups].
 * Returns a group whose score is NaN, or n_groups. */
static uint32_t close_groups(double *taken, const struct plec_router *router, const double *key,
                             double *score, double *used) {
    uint32_t n_groups = group_count(router), size = router->n_experts / n_groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        score[g] = two_largest(key + (size_t)g * size, size);
        used[g] = 0;
        if (isnan(score[g])) return g;
    }
    for (uint32_t i = 0; i < router->n_groups_used; i++) {
        uint32_t best = largest_free(score, used, n_groups);
        assert(best < n_groups);
        used[best] = 1;
    }
    for (uint32_t e = 0; e < size * n_groups; e++)
        taken[e] = !used[e / size];
    return n_groups;
}

/* chosen [top_k]: the largest of order among experts not taken, best first; with k_per_group, a
 * group that has given its share is closed. given: [n_groups]. */
static void choose(double *chosen, const struct plec_router *router, const double *order,
                   double *taken, double *given) {
    uint32_t n_groups = group_count(router), size = router->n_experts / n_groups;
    for (uint32_t g = 0; g < n_groups; g++)
        given[g] = 0;
    for (uint32_t j = 0; j < router->top_k; j++) {
        uint32_t best = largest_free(order, taken, router->n_experts);
        assert(best < router->n_experts);
        chosen[j] = best;
        taken[best] = 1;
        uint32_t group = best / size;
        given[group]++;
        if (router->k_per_group == 0 || given[group] < router->k_per_group) continue;
        for (uint32_t e = group * size; e < (group + 1) * size; e++)
            taken[e] = 1;
    }
}

/* weights [top_k] hold p of the chosen; makes them the weights before expert_scale. */
static void finish_weights(double *weights, const struct plec_router *router) {
    uint32_t k = router->top_k;
    if (router->gating == PLEC_GATING_SOFTMAX_SELECTED) softmax(weights, weights, k);
    if (router->normalise) {
        double sum = 0;
        for (uint32_t j = 0; j < k; j++)
            sum += weights[j];
        double divisor = sum + router->norm_epsilon;
        if (divisor < router->norm_floor) divisor = router->norm_floor;
        for (uint32_t j = 0; j < k; j++)
            weights[j] /= divisor;
    }
    for (uint32_t j = 0; j < k; j++)
        weights[j] *= router->scale;
}

static double expert_scale(const struct plec_router *router, uint32_t expert) {
    return router->expert_scale != NULL ? router->expert_scale[expert] : 1;
}

/* Names the logit to blame: the expert's own, unless that one is finite and another is not. */
static enum plec_status nan_score(const struct plec_router *router, const double *z,
                                  uint32_t expert, struct plec_error *err) {
    for (uint32_t e = 0; e < router->n_experts && isfinite(z[expert]); e++)
        if (!isfinite(z[e])) expert = e;
    return plec_fail(err, PLEC_BAD_INPUT, "NanScores",
                     "expert %u: with logit %g the router has no finite weights", expert,
                     z[expert]);
}

/* Views of the scratch. */
struct routing {
    double *p, *key, *taken; /* [n_experts] */
    double *by_group, *used; /* [n_groups] */
    double *chosen, *weight; /* [top_k] */
};

static struct routing routing_in(double *scratch, const struct plec_router *router) {
    struct routing r;
    r.p = scratch;
    r.key = r.p + router->n_experts;
    r.taken = r.key + router->n_experts;
    r.by_group = r.taken + router->n_experts;
    r.used = r.by_group + group_count(router);
    r.chosen = r.used + group_count(router);
    r.weight = r.chosen + router->top_k;
    return r;
}

size_t plec_reference_route_scratch(const struct plec_router *router) {
    return 3 * (size_t)router->n_experts + 2 * (size_t)group_count(router) +
           2 * (size_t)router->top_k;
}

/* Fills p, key and taken: what choose needs. */
static enum plec_status prepare(const struct routing *r, const struct plec_router *router,
                                const double *z, struct plec_error *err) {
    uint32_t n = router->n_experts, n_groups = group_count(router);
    for (uint32_t e = 0; e < n; e++)
        if (isnan(z[e])) return nan_score(router, z, e, err);
    scores(r->p, router, z);
    selection_keys(r->key, router, z, r->p);
    for (uint32_t e = 0; e < n; e++) {
        if (isnan(r->p[e]) || isnan(r->key[e])) return nan_score(router, z, e, err);
        r->taken[e] = 0;
    }
    if (n_groups == 1 || router->k_per_group != 0) return PLEC_OK;
    uint32_t bad = close_groups(r->taken, router, r->key, r->by_group, r->used);
    return bad < n_groups ? nan_score(router, z, bad * (n / n_groups), err) : PLEC_OK;
}

enum plec_status plec_reference_route(int32_t *ids, double *weights,
                                      const struct plec_router *router, const double *z,
                                      double *scratch, struct plec_error *err) {
    assert(router->n_experts % group_count(router) == 0);
    struct routing r = routing_in(scratch, router);
    enum plec_status status = prepare(&r, router, z, err);
    if (status != PLEC_OK) return status;
    bool by_logit = router->gating == PLEC_GATING_SOFTMAX &&
                    router->select_on == PLEC_SELECT_ON_SCORES && router->selection_bias == NULL;
    choose(r.chosen, router, by_logit ? z : r.key, r.taken, r.by_group);
    for (uint32_t j = 0; j < router->top_k; j++)
        r.weight[j] = r.p[(uint32_t)r.chosen[j]];
    finish_weights(r.weight, router);
    for (uint32_t j = 0; j < router->top_k; j++) {
        uint32_t expert = (uint32_t)r.chosen[j];
        r.weight[j] *= expert_scale(router, expert);
        if (!isfinite(r.weight[j])) return nan_score(router, z, expert, err);
    }
    for (uint32_t j = 0; j < router->top_k; j++) {
        ids[j] = (int32_t)r.chosen[j];
        weights[j] = r.weight[j];
    }
    return PLEC_OK;
}

void plec_reference_weigh(double *weights, const int32_t *ids, const struct plec_router *router,
                          const double *z, double *scratch) {
    scores(scratch, router, z);
    for (uint32_t j = 0; j < router->top_k; j++)
        weights[j] = scratch[ids[j]];
    finish_weights(weights, router);
    for (uint32_t j = 0; j < router->top_k; j++)
        weights[j] *= expert_scale(router, (uint32_t)ids[j]);
}
