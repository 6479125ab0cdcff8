/* predict.h: which experts a layer will need before its router has said so, and whether guessing
 * pays.
 *
 * A policy guesses the experts of a layer of a step; when the layer is routed the guess is judged:
 * what of it was used, and what it would have fetched, being absent, in vain. A policy whose reads
 * in vain cost more than the stalls it saved, over a window of steps, is switched off; it goes on
 * guessing in silence, and is switched on again when that would have paid. Speculative policies
 * begin switched off: they must show first that they pay.
 *
 *   plan         the routing is known (a batch's next layers): always on, class certain
 *   next router  the caller ran the next layer's router on this layer's hidden state: likely
 *   previous     what this layer used in the previous step: likely
 *   frequency    what this layer used most lately: idle
 *   profile      what it used most in earlier runs, from a file: idle
 *
 * Owns: its tables. Never: fetches; a guess becomes requests, which the caller hands to prefetch.h.
 * No thread, no clock, nothing allocated after open; one caller at a time. Calls are O(experts of a
 * layer).
 */
#ifndef PLEC_HOST_PREDICT_H
#define PLEC_HOST_PREDICT_H

#include "host/prefetch.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_predict_options {
    const struct plec_keyspace *keys;
    const struct plec_residency *tier; /* what is there is not fetched; NULL: nothing is there */
    uint32_t window;                   /* steps over which a policy must pay; 0: 64 */
    double half_life;                  /* frequency: steps after which a use counts half; 0: 32 */
    uint32_t n_expected; /* experts a layer uses in a step, until some were seen; 0: 8 */
    double ns_per_byte;  /* of a read, until plec_predict_set_cost; 0: 0.2 (5 GB/s) */
    uint64_t latency_ns; /* of a read; 0: 100 us */
    double waste_weight; /* what reading in vain costs, of the time it takes; 0: 1 */
    bool start_on;       /* speculative policies begin switched on */
    uint64_t identity;   /* of the model, as a profile must have it */
};

struct plec_predict; /* opaque */

/* PLEC_NO_MEMORY. keys and tier must outlive it. */
PLEC_MUST_USE enum plec_status plec_predict_open(struct plec_predict **out,
                                                 const struct plec_predict_options *options,
                                                 struct plec_error *err);
void plec_predict_close(struct plec_predict *predict);
/* Measured: plec_prefetch_read_cost. */
void plec_predict_set_cost(struct plec_predict *predict, double ns_per_byte, uint64_t latency_ns);

struct plec_guess {
    enum plec_origin policy; /* PLEC_FROM_PLAN .. PLEC_FROM_PROFILE */
    uint64_t step;
    uint32_t layer;
    const int32_t *ids; /* [n] experts, may repeat: plan and next router; the others know theirs */
    uint32_t n;
};
/* The most requests a guess can become: extents of the largest layer. */
uint32_t plec_predict_max_requests(const struct plec_predict *predict);
/* Makes a policy guess; writes what it asks for to out [plec_predict_max_requests] and returns how
 * many: none while it is switched off. A second guess of a layer and step replaces the first. */
uint32_t plec_predict_guess(struct plec_request *out, struct plec_predict *predict,
                            const struct plec_guess *guess, uint64_t now);
/* Tells what a layer of a step uses, ids [n], may repeat: judges guesses, learns. Steps do not
 * fall.
 */
void plec_predict_routed(struct plec_predict *predict, uint64_t step, uint32_t layer,
                         const int32_t *ids, uint32_t n, uint64_t now);

/* Times each expert of a layer was used since open, into counts [n_experts of the layer]: what a
 * profile file holds. */
void plec_predict_get_profile(uint64_t *counts, const struct plec_predict *predict, uint32_t layer);
/* Gives a layer's counts of earlier runs. PLEC_BAD_INPUT "OtherModel", "ProfileShape". */
PLEC_MUST_USE enum plec_status plec_predict_set_profile(struct plec_predict *predict,
                                                        uint64_t identity, uint32_t layer,
                                                        const uint64_t *counts, uint32_t n,
                                                        struct plec_error *err);

struct plec_policy_report {
    bool on;
    uint64_t guesses;                          /* layers guessed and routed since */
    uint64_t predicted, used, right;           /* experts guessed, used by those layers, both */
    uint64_t asked_bytes;                      /* absent when guessed, while it was on */
    uint64_t wasted_bytes, saved_ns;           /* of those: not used; stall that the others saved */
    uint64_t window_waste_ns, window_saved_ns; /* over the window, also while off */
    uint32_t switched_on, switched_off;
};
void plec_predict_report(struct plec_policy_report *out, const struct plec_predict *predict,
                         enum plec_origin policy);
/* Of the guessed experts, those used; of the used experts, those guessed. 0 of nothing. */
static inline double plec_policy_precision(const struct plec_policy_report *report) {
    return report->predicted > 0 ? (double)report->right / (double)report->predicted : 0;
}
static inline double plec_policy_recall(const struct plec_policy_report *report) {
    return report->used > 0 ? (double)report->right / (double)report->used : 0;
}

#ifdef __cplusplus
}
#endif
#endif
