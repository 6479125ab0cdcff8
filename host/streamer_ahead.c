/* What will be used next: guesses, what a caller expects, profiles. */
#include "host/streamer_parts.h"

/* A dispatch that used this share of a layer's experts is a batch: the next layer will use as many.
 */
static const double WHOLE_LAYER = 0.6;

static void guess(struct plec_streamer *streamer, const struct plec_guess *guess, uint64_t now) {
    uint32_t n = plec_predict_guess(streamer->requests, streamer->predict, guess, now);
    for (uint32_t i = 0; i < n; i++)
        (void)plec_prefetch_request(streamer->prefetch, &streamer->requests[i]);
}

/* The next time a layer will run. */
static uint64_t step_of_next(const struct plec_streamer *streamer, uint32_t layer) {
    return streamer->last_layer != UINT32_MAX && layer <= streamer->last_layer ? streamer->step + 1
                                                                               : streamer->step;
}

static uint32_t layer_after(const struct plec_streamer *streamer, uint32_t layer) {
    uint32_t after = streamer->layers[layer].after;
    if (after != UINT32_MAX) return after;
    return layer + 1 < streamer->n_layers ? layer + 1 : UINT32_MAX;
}

void plec_streamer_look_ahead(struct plec_streamer *streamer, uint64_t now) {
    const struct plec_stream_dispatch *dispatch = &streamer->dispatch;
    uint32_t next = layer_after(streamer, dispatch->layer);
    if (next == UINT32_MAX || streamer->options.bypass) return;
    struct plec_guess ahead = {.step = step_of_next(streamer, next), .layer = next};
    uint32_t n_entries = streamer->layers[dispatch->layer].bank.n_entries;
    if (dispatch->n_experts >= WHOLE_LAYER * n_entries) {
        ahead.policy = PLEC_FROM_PLAN;
        ahead.ids = streamer->all_ids;
        ahead.n = streamer->layers[next].bank.n_entries;
        guess(streamer, &ahead, now);
        return;
    }
    if (streamer->options.speculation == PLEC_SPECULATE_OFF) return;
    ahead.policy = PLEC_FROM_PREVIOUS;
    guess(streamer, &ahead, now);
    ahead.policy = PLEC_FROM_FREQUENCY;
    guess(streamer, &ahead, now);
    if (!streamer->has_profile) return;
    ahead.policy = PLEC_FROM_PROFILE;
    guess(streamer, &ahead, now);
}

/* --- beside dispatches ----------------------------------------------------------------------- */

void plec_streamer_expect(struct plec_streamer *streamer,
                          const struct plec_expectation *expectation) {
    bool certain = expectation->why == PLEC_FROM_PLAN;
    if (streamer->options.bypass) return;
    if (!certain && streamer->options.speculation == PLEC_SPECULATE_OFF) return;
    pthread_mutex_lock(&streamer->lock);
    struct plec_guess ahead = {.policy = expectation->why,
                               .step = step_of_next(streamer, expectation->layer),
                               .layer = expectation->layer,
                               .ids = expectation->ids,
                               .n = expectation->n_ids};
    guess(streamer, &ahead, plec_streamer_now(streamer));
    plec_streamer_round(streamer);
    plec_streamer_keep_up(streamer);
    plec_streamer_unlock(streamer);
}

uint32_t plec_streamer_layer_after(struct plec_streamer *streamer, uint32_t layer) {
    pthread_mutex_lock(&streamer->lock);
    uint32_t after = layer_after(streamer, layer);
    pthread_mutex_unlock(&streamer->lock);
    return after;
}

void plec_streamer_get_profile(uint64_t *counts, struct plec_streamer *streamer, uint32_t layer) {
    pthread_mutex_lock(&streamer->lock);
    plec_predict_get_profile(counts, streamer->predict, layer);
    pthread_mutex_unlock(&streamer->lock);
}

enum plec_status plec_streamer_set_profile(struct plec_streamer *streamer, uint32_t layer,
                                           const uint64_t *counts, uint32_t n,
                                           struct plec_error *err) {
    pthread_mutex_lock(&streamer->lock);
    enum plec_status status = plec_predict_set_profile(streamer->predict, 0, layer, counts, n, err);
    if (status == PLEC_OK) streamer->has_profile = true;
    pthread_mutex_unlock(&streamer->lock);
    return status;
}
