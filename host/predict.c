#include "host/predict.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_POLICIES = PLEC_FROM_PROFILE + 1, FIRST_POLICY = PLEC_FROM_PLAN };
enum { DEFAULT_WINDOW = 64, DEFAULT_HALF_LIFE = 32, DEFAULT_EXPECTED = 8 };
/* Frequencies are scaled down before a use weighs more than 2^this. */
enum { MAX_EXPONENT = 512 };
static const double DEFAULT_NS_PER_BYTE = 0.2;
static const uint64_t DEFAULT_LATENCY_NS = 100000;
/* A policy comes back when it would have saved this much more than it wasted. */
static const double COME_BACK = 1.25;
/* Weight of the newest step in the mean number of experts a layer uses. */
static const double SIZE_WEIGHT = 1.0 / 8;

/* A guess that waits for its layer to be routed. Its experts are bits in `predicted`. */
struct open_guess {
    bool open, asked; /* asked: the policy was on */
    uint64_t step, made_at;
};

struct balance {
    double waste_ns, saved_ns;
};

struct policy {
    bool on;
    uint64_t *predicted, *absent; /* [n_words] bits of experts, layer by layer */
    struct open_guess *guesses;   /* [n_layers] */
    struct balance *window;       /* [options.window] by step */
    uint32_t n_seen;              /* steps judged since the last switch, up to the window */
    struct plec_policy_report report;
};

struct plec_predict {
    struct plec_arena arena;
    struct plec_predict_options options;
    uint32_t n_words;
    uint32_t *first_word;       /* [n_layers + 1] */
    uint64_t *previous;         /* [n_words] experts of the last step */
    uint64_t *actual;           /* [n_words] scratch */
    double *frequency;          /* [n_experts] decayed uses */
    double base;                /* step at which a use weighs 1 */
    uint64_t *counts, *profile; /* [n_experts] uses since open; of earlier runs */
    double *n_used;             /* [n_layers] mean experts used in a step; 0: not known */
    uint32_t *best;             /* [most experts of a layer] scratch */
    uint32_t max_experts, max_requests;
    uint64_t step; /* of the last routing */
    struct policy policies[N_POLICIES];
};

static inline bool is_policy(int origin) {
    return origin >= FIRST_POLICY && origin < N_POLICIES;
}

/* --- opening ------------------------------------------------------------------------------- */

static void measure(struct plec_predict *predict) {
    const struct plec_keyspace *keys = predict->options.keys;
    for (uint32_t i = 0; i < keys->n_layers; i++) {
        uint32_t n = plec_keyspace_experts(keys, i);
        uint32_t n_keys = keys->layer_first_key[i + 1] - keys->layer_first_key[i];
        predict->first_word[i + 1] = predict->first_word[i] + (n + 63) / 64;
        if (n > predict->max_experts) predict->max_experts = n;
        if (n_keys > predict->max_requests) predict->max_requests = n_keys;
    }
    predict->n_words = predict->first_word[keys->n_layers];
}

static bool allocate_policy(struct policy *policy, struct plec_predict *predict,
                            struct plec_error *err) {
    struct plec_arena *arena = &predict->arena;
    policy->predicted = plec_arena_alloc(arena, predict->n_words, sizeof(uint64_t), err);
    policy->absent = plec_arena_alloc(arena, predict->n_words, sizeof(uint64_t), err);
    policy->guesses =
        plec_arena_alloc(arena, predict->options.keys->n_layers, sizeof *policy->guesses, err);
    policy->window = plec_arena_alloc(arena, predict->options.window, sizeof *policy->window, err);
    return policy->predicted != NULL && policy->absent != NULL && policy->guesses != NULL &&
           policy->window != NULL;
}

static bool allocate(struct plec_predict *predict, struct plec_error *err) {
    const struct plec_keyspace *keys = predict->options.keys;
    struct plec_arena *arena = &predict->arena;
    predict->first_word =
        plec_arena_alloc(arena, (uint64_t)keys->n_layers + 1, sizeof(uint32_t), err);
    if (predict->first_word == NULL) return false;
    measure(predict);
    predict->previous = plec_arena_alloc(arena, predict->n_words, sizeof(uint64_t), err);
    predict->actual = plec_arena_alloc(arena, predict->n_words, sizeof(uint64_t), err);
    predict->frequency = plec_arena_alloc(arena, keys->n_experts, sizeof(double), err);
    predict->counts = plec_arena_alloc(arena, keys->n_experts, sizeof(uint64_t), err);
    predict->profile = plec_arena_alloc(arena, keys->n_experts, sizeof(uint64_t), err);
    predict->n_used = plec_arena_alloc(arena, keys->n_layers, sizeof(double), err);
    predict->best = plec_arena_alloc(arena, predict->max_experts, sizeof(uint32_t), err);
    bool done = predict->previous != NULL && predict->actual != NULL &&
                predict->frequency != NULL && predict->counts != NULL && predict->profile != NULL &&
                predict->n_used != NULL && predict->best != NULL;
    for (int i = FIRST_POLICY; i < N_POLICIES; i++)
        done = done && allocate_policy(&predict->policies[i], predict, err);
    return done;
}

static void set_defaults(struct plec_predict_options *options) {
    if (options->window == 0) options->window = DEFAULT_WINDOW;
    if (!(options->half_life > 0)) options->half_life = DEFAULT_HALF_LIFE;
    if (!(options->ns_per_byte > 0)) options->ns_per_byte = DEFAULT_NS_PER_BYTE;
    if (options->n_expected == 0) options->n_expected = DEFAULT_EXPECTED;
    if (options->latency_ns == 0) options->latency_ns = DEFAULT_LATENCY_NS;
    if (!(options->waste_weight > 0)) options->waste_weight = 1;
}

enum plec_status plec_predict_open(struct plec_predict **out,
                                   const struct plec_predict_options *options,
                                   struct plec_error *err) {
    *out = NULL;
    struct plec_predict *predict = calloc(1, sizeof *predict);
    if (predict == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "a predictor");
    predict->options = *options;
    set_defaults(&predict->options);
    if (!allocate(predict, err)) {
        plec_predict_close(predict);
        return PLEC_NO_MEMORY;
    }
    for (int i = FIRST_POLICY; i < N_POLICIES; i++)
        predict->policies[i].on = i == PLEC_FROM_PLAN || options->start_on;
    *out = predict;
    return PLEC_OK;
}

void plec_predict_close(struct plec_predict *predict) {
    if (predict == NULL) return;
    plec_arena_close(&predict->arena);
    free(predict);
}

void plec_predict_set_cost(struct plec_predict *predict, double ns_per_byte, uint64_t latency_ns) {
    if (ns_per_byte > 0) predict->options.ns_per_byte = ns_per_byte;
    if (latency_ns > 0) predict->options.latency_ns = latency_ns;
}

uint32_t plec_predict_max_requests(const struct plec_predict *predict) {
    return predict->max_requests;
}

/* --- sets of experts ----------------------------------------------------------------------- */

static uint32_t n_words_of(const struct plec_predict *predict, uint32_t layer) {
    return predict->first_word[layer + 1] - predict->first_word[layer];
}

static void add_ids(uint64_t *bits, const struct plec_predict *predict, uint32_t layer,
                    const int32_t *ids, uint32_t n) {
    uint32_t n_experts = plec_keyspace_experts(predict->options.keys, layer);
    for (uint32_t i = 0; i < n; i++) {
        assert(ids[i] >= 0 && (uint32_t)ids[i] < n_experts);
        bits[ids[i] / 64] |= UINT64_C(1) << ids[i] % 64;
    }
    (void)n_experts;
}

static uint32_t count(const uint64_t *bits, uint32_t n_words) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcountll(bits[i]);
    return n;
}

/* Bits [first, first + n) as a mask, n <= 64. */
static uint64_t slice(const uint64_t *bits, uint32_t first, uint32_t n) {
    uint64_t low = bits[first / 64] >> first % 64;
    if (first % 64 + n > 64) low |= bits[first / 64 + 1] << (64 - first % 64);
    return n == 64 ? low : low & ((UINT64_C(1) << n) - 1);
}

static void clear_slice(uint64_t *bits, uint32_t first, uint64_t mask) {
    bits[first / 64] &= ~(mask << first % 64);
    if (first % 64 != 0 && mask >> (64 - first % 64) != 0)
        bits[first / 64 + 1] &= ~(mask >> (64 - first % 64));
}

/* --- guessing ------------------------------------------------------------------------------ */

/* Experts a layer may be expected to use in a step. */
static uint32_t expected_size(const struct plec_predict *predict, uint32_t layer) {
    double seen = predict->n_used[layer];
    return seen > 0 ? (uint32_t)(seen + 0.5) : predict->options.n_expected;
}

struct ranking {
    const double *frequency; /* or */
    const uint64_t *counts;
};

static double score(const struct ranking *ranking, uint32_t expert) {
    return ranking->frequency != NULL ? ranking->frequency[expert]
                                      : (double)ranking->counts[expert];
}

/* Sinks the root of a heap whose least score is on top. */
static void sink(uint32_t *heap, uint32_t n, const struct ranking *ranking) {
    for (uint32_t at = 0;;) {
        uint32_t child = 2 * at + 1;
        if (child >= n) return;
        if (child + 1 < n && score(ranking, heap[child + 1]) < score(ranking, heap[child])) child++;
        if (score(ranking, heap[at]) <= score(ranking, heap[child])) return;
        uint32_t other = heap[at];
        heap[at] = heap[child];
        heap[child] = other;
        at = child;
    }
}

static void rise(uint32_t *heap, uint32_t at, const struct ranking *ranking) {
    while (at > 0 && score(ranking, heap[at]) < score(ranking, heap[(at - 1) / 2])) {
        uint32_t other = heap[at];
        heap[at] = heap[(at - 1) / 2];
        heap[(at - 1) / 2] = other;
        at = (at - 1) / 2;
    }
}

/* The n_best experts of a layer by score; those never used are none. */
static void add_best(uint64_t *bits, const struct plec_predict *predict, uint32_t layer,
                     struct ranking ranking) {
    uint32_t first = predict->options.keys->layer_first_expert[layer], n = 0;
    uint32_t n_best = expected_size(predict, layer);
    if (ranking.frequency != NULL) ranking.frequency += first;
    if (ranking.counts != NULL) ranking.counts += first;
    for (uint32_t e = 0; e < plec_keyspace_experts(predict->options.keys, layer); e++) {
        if (score(&ranking, e) <= 0) continue;
        if (n < n_best) {
            predict->best[n] = e;
            rise(predict->best, n++, &ranking);
        } else if (n > 0 && score(&ranking, e) > score(&ranking, predict->best[0])) {
            predict->best[0] = e;
            sink(predict->best, n, &ranking);
        }
    }
    for (uint32_t i = 0; i < n; i++)
        bits[predict->best[i] / 64] |= UINT64_C(1) << predict->best[i] % 64;
}

static void fill_guess(uint64_t *bits, const struct plec_predict *predict,
                       const struct plec_guess *guess) {
    uint32_t word = predict->first_word[guess->layer];
    uint32_t n_words = n_words_of(predict, guess->layer);
    memset(bits, 0, n_words * sizeof *bits);
    switch (guess->policy) {
    case PLEC_FROM_PREVIOUS: memcpy(bits, predict->previous + word, n_words * sizeof *bits); break;
    case PLEC_FROM_FREQUENCY:
        add_best(bits, predict, guess->layer, (struct ranking){.frequency = predict->frequency});
        break;
    case PLEC_FROM_PROFILE:
        add_best(bits, predict, guess->layer, (struct ranking){.counts = predict->profile});
        break;
    default: add_ids(bits, predict, guess->layer, guess->ids, guess->n); break;
    }
}

/* What of a guess is neither there nor asked for by another policy that is on. */
static void find_absent(struct plec_predict *predict, const struct plec_guess *guess) {
    const struct plec_keyspace *keys = predict->options.keys;
    uint32_t word = predict->first_word[guess->layer];
    uint64_t *absent = predict->policies[guess->policy].absent + word;
    for (uint32_t k = keys->layer_first_key[guess->layer];
         predict->options.tier != NULL && k < keys->layer_first_key[guess->layer + 1]; k++)
        clear_slice(absent, keys->keys[k].first_entry,
                    plec_residency_valid(predict->options.tier, k));
    for (int i = FIRST_POLICY; i < N_POLICIES; i++) {
        const struct policy *other = &predict->policies[i];
        const struct open_guess *open = &other->guesses[guess->layer];
        if (i == (int)guess->policy || !open->open || !open->asked || open->step != guess->step)
            continue;
        for (uint32_t w = 0; w < n_words_of(predict, guess->layer); w++)
            absent[w] &= ~other->absent[word + w];
    }
}

static enum plec_urgency urgency_of(enum plec_origin policy) {
    if (policy == PLEC_FROM_PLAN) return PLEC_CERTAIN;
    bool of_this_step = policy == PLEC_FROM_NEXT_ROUTER || policy == PLEC_FROM_PREVIOUS;
    return of_this_step ? PLEC_LIKELY : PLEC_IDLE;
}

static uint32_t write_requests(struct plec_request *out, const struct plec_predict *predict,
                               const struct plec_guess *guess) {
    const struct plec_keyspace *keys = predict->options.keys;
    const uint64_t *absent =
        predict->policies[guess->policy].absent + predict->first_word[guess->layer];
    uint32_t n = 0;
    for (uint32_t k = keys->layer_first_key[guess->layer];
         k < keys->layer_first_key[guess->layer + 1]; k++) {
        uint64_t mask = slice(absent, keys->keys[k].first_entry, keys->keys[k].n_entries);
        if (mask == 0) continue;
        out[n++] = (struct plec_request){
            .key = k,
            .mask = mask,
            .urgency = urgency_of(guess->policy),
            .deadline = plec_position(keys, guess->step, guess->layer),
            .origin = guess->policy,
        };
    }
    return n;
}

uint32_t plec_predict_guess(struct plec_request *out, struct plec_predict *predict,
                            const struct plec_guess *guess, uint64_t now) {
    assert(is_policy(guess->policy));
    assert(guess->layer < predict->options.keys->n_layers);
    struct policy *policy = &predict->policies[guess->policy];
    uint32_t word = predict->first_word[guess->layer];
    fill_guess(policy->predicted + word, predict, guess);
    memcpy(policy->absent + word, policy->predicted + word,
           n_words_of(predict, guess->layer) * sizeof(uint64_t));
    find_absent(predict, guess);
    policy->guesses[guess->layer] = (struct open_guess){true, policy->on, guess->step, now};
    return policy->on ? write_requests(out, predict, guess) : 0;
}

/* --- judging ------------------------------------------------------------------------------- */

static uint64_t layer_entry_bytes(const struct plec_predict *predict, uint32_t layer) {
    const struct plec_keyspace *keys = predict->options.keys;
    return keys->keys[keys->layer_first_key[layer]].entry_bytes;
}

/* Weighs a guess against what the layer used: bits of experts. */
static void judge(struct plec_predict *predict, struct policy *policy, uint32_t layer,
                  const uint64_t *actual, uint64_t now) {
    const struct open_guess *guess = &policy->guesses[layer];
    uint32_t word = predict->first_word[layer], n_right = 0, n_useful = 0;
    for (uint32_t w = 0; w < n_words_of(predict, layer); w++) {
        n_right += (uint32_t)__builtin_popcountll(policy->predicted[word + w] & actual[w]);
        n_useful += (uint32_t)__builtin_popcountll(policy->absent[word + w] & actual[w]);
    }
    uint64_t bytes = layer_entry_bytes(predict, layer);
    uint64_t n_absent = count(policy->absent + word, n_words_of(predict, layer));
    uint64_t useful = n_useful * bytes, wasted = (n_absent - n_useful) * bytes;
    const struct plec_predict_options *options = &predict->options;
    double stall =
        n_useful > 0 ? (double)options->latency_ns + (double)useful * options->ns_per_byte : 0;
    double lead = (double)(now - guess->made_at); /* no stall longer than this can be saved */
    double saved = stall < lead ? stall : lead;
    double waste = (double)wasted * options->ns_per_byte * options->waste_weight;
    struct balance *bucket = &policy->window[predict->step % options->window];
    bucket->saved_ns += saved;
    bucket->waste_ns += waste;
    struct plec_policy_report *report = &policy->report;
    report->guesses++;
    report->predicted += count(policy->predicted + word, n_words_of(predict, layer));
    report->used += count(actual, n_words_of(predict, layer));
    report->right += n_right;
    if (!guess->asked) return;
    report->asked_bytes += n_absent * bytes;
    report->wasted_bytes += wasted;
    report->saved_ns += (uint64_t)saved;
}

static struct balance sum_window(const struct plec_predict *predict, const struct policy *policy) {
    struct balance sum = {0, 0};
    for (uint32_t i = 0; i < predict->options.window; i++) {
        sum.waste_ns += policy->window[i].waste_ns;
        sum.saved_ns += policy->window[i].saved_ns;
    }
    return sum;
}

static void clear_window(struct plec_predict *predict, struct policy *policy) {
    memset(policy->window, 0, predict->options.window * sizeof *policy->window);
    policy->n_seen = 0;
}

/* Decides whether a policy goes on, after a step was judged. */
static void decide(struct plec_predict *predict, struct policy *policy) {
    uint32_t window = predict->options.window;
    if (policy->n_seen < window) policy->n_seen++;
    struct balance sum = sum_window(predict, policy);
    if (policy->on && policy->n_seen >= (window + 3) / 4 && sum.waste_ns > sum.saved_ns) {
        policy->on = false;
        policy->report.switched_off++;
        clear_window(predict, policy);
    } else if (!policy->on && policy->n_seen >= window && sum.saved_ns > 0 &&
               sum.saved_ns > COME_BACK * sum.waste_ns) {
        policy->on = true;
        policy->report.switched_on++;
        clear_window(predict, policy);
    }
}

/* Ends the step: every policy but the plan, which is no guess, must have paid. */
static void end_steps(struct plec_predict *predict, uint64_t step) {
    for (int i = FIRST_POLICY; i < N_POLICIES; i++) {
        struct policy *policy = &predict->policies[i];
        if (i != PLEC_FROM_PLAN) decide(predict, policy);
        uint32_t window = predict->options.window;
        uint64_t n = step - predict->step < window ? step - predict->step : window;
        for (uint64_t s = step - n + 1; s <= step; s++)
            policy->window[s % window] = (struct balance){0, 0};
    }
    predict->step = step;
}

/* --- learning ------------------------------------------------------------------------------ */

static double use_weight(struct plec_predict *predict) {
    double age = ((double)predict->step - predict->base) / predict->options.half_life;
    if (age <= MAX_EXPONENT) return exp2(age);
    /* Whatever was used so long ago counts nothing beside what comes now. */
    double factor = age < 2 * MAX_EXPONENT ? exp2(-age) : 0;
    for (uint32_t e = 0; e < predict->options.keys->n_experts; e++)
        predict->frequency[e] *= factor;
    predict->base = (double)predict->step;
    return 1;
}

static void learn(struct plec_predict *predict, uint32_t layer, const int32_t *ids, uint32_t n) {
    uint32_t first = predict->options.keys->layer_first_expert[layer];
    double weight = use_weight(predict);
    for (uint32_t i = 0; i < n; i++) {
        predict->frequency[first + (uint32_t)ids[i]] += weight;
        predict->counts[first + (uint32_t)ids[i]]++;
    }
    uint32_t n_words = n_words_of(predict, layer);
    memcpy(predict->previous + predict->first_word[layer], predict->actual,
           n_words * sizeof(uint64_t));
    double size = count(predict->actual, n_words), *mean = &predict->n_used[layer];
    *mean += *mean > 0 ? SIZE_WEIGHT * (size - *mean) : size;
}

void plec_predict_routed(struct plec_predict *predict, uint64_t step, uint32_t layer,
                         const int32_t *ids, uint32_t n, uint64_t now) {
    assert(step >= predict->step && layer < predict->options.keys->n_layers);
    if (step > predict->step) end_steps(predict, step);
    memset(predict->actual, 0, n_words_of(predict, layer) * sizeof(uint64_t));
    add_ids(predict->actual, predict, layer, ids, n);
    for (int i = FIRST_POLICY; i < N_POLICIES; i++) {
        struct policy *policy = &predict->policies[i];
        struct open_guess *guess = &policy->guesses[layer];
        if (!guess->open || guess->step > step) continue;
        if (guess->step == step) judge(predict, policy, layer, predict->actual, now);
        guess->open = false; /* an older one was for a step that never came */
    }
    learn(predict, layer, ids, n);
}

/* --- profiles and reports ------------------------------------------------------------------ */

void plec_predict_get_profile(uint64_t *counts, const struct plec_predict *predict,
                              uint32_t layer) {
    const struct plec_keyspace *keys = predict->options.keys;
    memcpy(counts, predict->counts + keys->layer_first_expert[layer],
           plec_keyspace_experts(keys, layer) * sizeof *counts);
}

enum plec_status plec_predict_set_profile(struct plec_predict *predict, uint64_t identity,
                                          uint32_t layer, const uint64_t *counts, uint32_t n,
                                          struct plec_error *err) {
    const struct plec_keyspace *keys = predict->options.keys;
    if (identity != predict->options.identity)
        return plec_fail(
            err, PLEC_BAD_INPUT, "OtherModel", "the profile is of model %016llx, not of %016llx",
            (unsigned long long)identity, (unsigned long long)predict->options.identity);
    if (layer >= keys->n_layers || n != plec_keyspace_experts(keys, layer))
        return plec_fail(err, PLEC_BAD_INPUT, "ProfileShape",
                         "%u counts for layer %u; the model has %u experts in it, and %u layers", n,
                         layer, layer < keys->n_layers ? plec_keyspace_experts(keys, layer) : 0,
                         keys->n_layers);
    memcpy(predict->profile + keys->layer_first_expert[layer], counts, n * sizeof *counts);
    return PLEC_OK;
}

void plec_predict_report(struct plec_policy_report *out, const struct plec_predict *predict,
                         enum plec_origin policy_id) {
    assert(is_policy(policy_id));
    const struct policy *policy = &predict->policies[policy_id];
    *out = policy->report;
    out->on = policy->on;
    struct balance sum = sum_window(predict, policy);
    out->window_saved_ns = (uint64_t)sum.saved_ns;
    out->window_waste_ns = (uint64_t)sum.waste_ns;
}
