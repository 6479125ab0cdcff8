/* router.h: routing on the host: which experts each token uses, and with what weights.
 *
 * Logits are summed in double over a token's values in order, so that a token's routing does not
 * depend on its batch mates. Owns nothing, allocates nothing; safe from any thread.
 */
#ifndef PLEC_HOST_ROUTER_H
#define PLEC_HOST_ROUTER_H

#include "host/container.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Tokens whose logits are made together: each router row is decoded once for all of them. */
enum { PLEC_ROUTER_BATCH = 64 };

struct plec_routing_args {
    const struct plec_bound_layer *layer;
    uint32_t n_tokens;
    uint32_t first_token;     /* number of the first one, for messages */
    const float *x;           /* [n_tokens, router.input_dim] f32: what the router reads */
    const int32_t *token_ids; /* [n_tokens], for a layer with a token table; else NULL */
    int32_t *ids;             /* out [n_tokens, top_k]; 0 for a token that cannot be routed */
    double *weights;          /* out [n_tokens, top_k]; NaN for a token that cannot be routed */
    bool *unrouted;           /* out [n_tokens] */
    double *scratch;          /* plec_router_scratch doubles */
};
size_t plec_router_scratch(const struct plec_router *router);

/* Routes every token with the layer's router. PLEC_BAD_INPUT "NanScores" naming the first token
 * whose scores are NaN: it is marked unrouted, every other token is routed all the same.
 * "BadTokenId" (names the token and its id): nothing is routed. */
PLEC_MUST_USE enum plec_status plec_router_route(const struct plec_routing_args *args,
                                                 struct plec_error *err);

/* A caller's routing. */
struct plec_router_given {
    const int32_t *ids; /* [n_tokens, n_slots] */
    uint32_t n_tokens, n_slots, n_experts;
    uint32_t first_token; /* number of the first one, for messages */
};
/* Refuses an id outside [0, n_experts): PLEC_BAD_INPUT "BadExpertId" naming token, slot and id. */
PLEC_MUST_USE enum plec_status plec_router_check_ids(const struct plec_router_given *given,
                                                     struct plec_error *err);

/* z [n_tokens, n_experts] f64, the logits of n_tokens <= PLEC_ROUTER_BATCH. rows: scratch of
 * plec_router_rows_scratch doubles. Bit for bit plec_reference_logits of each token. */
void plec_router_logits(double *z, const struct plec_router *router, const float *x,
                        uint32_t n_tokens, double *rows);
size_t plec_router_rows_scratch(const struct plec_router *router);

#ifdef __cplusplus
}
#endif
#endif
