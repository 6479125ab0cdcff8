#include "host/predict.h"

#include <gtest/gtest.h>

#include <set>
#include <vector>

#include "tests/support/simulator.h"

namespace {

using plec_test::make_trace;
using plec_test::Trace;

constexpr uint64_t BYTES = 1000;
constexpr uint64_t MS = 1000000;

/* A predictor over a made-up model, and the calls a test makes of it. */
class Predictor {
  public:
    explicit Predictor(plec_predict_options options = {}, uint32_t n_layers = 2,
                       uint32_t n_experts = 100, uint32_t width = 24) {
        EXPECT_EQ(plec_keyspace_open_uniform(&keys, n_layers, n_experts, width, BYTES, nullptr),
                  PLEC_OK);
        options.keys = &keys;
        if (options.ns_per_byte == 0) options.ns_per_byte = 100;
        EXPECT_EQ(plec_predict_open(&predict, &options, nullptr), PLEC_OK);
        requests.resize(plec_predict_max_requests(predict));
    }
    ~Predictor() {
        plec_predict_close(predict);
        plec_keyspace_close(&keys);
    }
    Predictor(const Predictor &) = delete;
    Predictor &operator=(const Predictor &) = delete;

    /* The experts asked for. */
    std::set<uint32_t> guess(plec_origin policy, uint64_t step, uint32_t layer,
                             std::vector<int32_t> ids = {}) {
        plec_guess args = {policy, step, layer, ids.data(), uint32_t(ids.size())};
        n_requests = plec_predict_guess(requests.data(), predict, &args, now);
        std::set<uint32_t> asked;
        for (uint32_t i = 0; i < n_requests; i++)
            for (uint32_t bit = 0; bit < 64; bit++)
                if ((requests[i].mask >> bit & 1) != 0)
                    asked.insert(keys.keys[requests[i].key].first_entry + bit);
        return asked;
    }
    void routed(uint64_t step, uint32_t layer, std::vector<int32_t> ids) {
        now += 10 * MS;
        plec_predict_routed(predict, step, layer, ids.data(), uint32_t(ids.size()), now);
    }
    plec_policy_report report(plec_origin policy) const {
        plec_policy_report out;
        plec_predict_report(&out, predict, policy);
        return out;
    }

    plec_keyspace keys = {};
    plec_predict *predict = nullptr;
    std::vector<plec_request> requests;
    uint32_t n_requests = 0;
    uint64_t now = 0;
};

plec_predict_options started_on() {
    plec_predict_options options = {};
    options.start_on = true;
    return options;
}

using Set = std::set<uint32_t>;

TEST(Predict, APlanBecomesCertainRequestsByExtent) {
    Predictor p;
    EXPECT_EQ(p.guess(PLEC_FROM_PLAN, 3, 1, {0, 99, 25, 23, 25}), (Set{0, 23, 25, 99}));
    ASSERT_EQ(p.n_requests, 3u); /* extents of 24: 0 and 23, 25, 99 */
    EXPECT_EQ(p.requests[0].key, p.keys.layer_first_key[1]);
    EXPECT_EQ(p.requests[0].mask, 1u | 1u << 23);
    EXPECT_EQ(p.requests[2].key, p.keys.layer_first_key[1] + 4);
    for (uint32_t i = 0; i < 3; i++) {
        EXPECT_EQ(p.requests[i].urgency, PLEC_CERTAIN);
        EXPECT_EQ(p.requests[i].deadline, 3u * 2 + 1);
        EXPECT_EQ(p.requests[i].origin, PLEC_FROM_PLAN);
    }
}

TEST(Predict, BitsOfExtentsThatStraddleWordsAreFound) {
    Predictor p(started_on(), 1, 150, 64);
    p.routed(0, 0, {63, 64, 127, 128, 149});
    EXPECT_EQ(p.guess(PLEC_FROM_PREVIOUS, 1, 0), (Set{63, 64, 127, 128, 149}));
    Predictor q(started_on(), 1, 150, 40); /* 40 .. 79 lies in two words */
    q.routed(0, 0, {39, 40, 63, 64, 79, 80});
    EXPECT_EQ(q.guess(PLEC_FROM_PREVIOUS, 1, 0), (Set{39, 40, 63, 64, 79, 80}));
}

TEST(Predict, PreviousGuessesWhatTheLayerUsedLast) {
    Predictor p(started_on());
    EXPECT_TRUE(p.guess(PLEC_FROM_PREVIOUS, 0, 0).empty());
    p.routed(0, 0, {1, 2});
    p.routed(0, 1, {7, 8});
    EXPECT_EQ(p.guess(PLEC_FROM_PREVIOUS, 1, 0), (Set{1, 2}));
    EXPECT_EQ(p.guess(PLEC_FROM_PREVIOUS, 1, 1), (Set{7, 8}));
    EXPECT_EQ(p.requests[0].urgency, PLEC_LIKELY);
    p.routed(1, 0, {3});
    EXPECT_EQ(p.guess(PLEC_FROM_PREVIOUS, 2, 0), (Set{3}));
}

TEST(Predict, FrequencyGuessesTheMostUsedAsManyAsALayerUses) {
    plec_predict_options options = started_on();
    options.half_life = 1000;
    Predictor p(options);
    for (uint64_t step = 0; step < 30; step++)
        p.routed(step, 0, {5, int32_t(10 + step % 3), int32_t(20 + step)});
    std::set<uint32_t> guess = p.guess(PLEC_FROM_FREQUENCY, 30, 0);
    EXPECT_EQ(guess.size(), 3u);
    EXPECT_TRUE(guess.count(5));
    EXPECT_EQ(p.requests[0].urgency, PLEC_IDLE);
}

TEST(Predict, FrequencyForgets) {
    plec_predict_options options = started_on();
    options.half_life = 2;
    Predictor p(options);
    for (uint64_t step = 0; step < 50; step++)
        p.routed(step, 0, {5});
    for (uint64_t step = 50; step < 60; step++)
        p.routed(step, 0, {6});
    EXPECT_EQ(p.guess(PLEC_FROM_FREQUENCY, 60, 0), (Set{6}));
    p.routed(5000, 0, {7}); /* thousands of half-lives later */
    EXPECT_EQ(p.guess(PLEC_FROM_FREQUENCY, 5001, 0), (Set{7}));
}

TEST(Predict, AProfileGuessesBeforeAnythingWasRouted) {
    plec_predict_options options = started_on();
    options.identity = 17;
    options.n_expected = 2;
    Predictor p(options);
    std::vector<uint64_t> counts(100);
    counts[40] = 9, counts[41] = 8, counts[42] = 7;
    plec_error err;
    EXPECT_EQ(plec_predict_set_profile(p.predict, 18, 0, counts.data(), 100, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "OtherModel");
    EXPECT_EQ(plec_predict_set_profile(p.predict, 17, 0, counts.data(), 99, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "ProfileShape");
    EXPECT_EQ(plec_predict_set_profile(p.predict, 17, 2, counts.data(), 100, &err), PLEC_BAD_INPUT);
    ASSERT_EQ(plec_predict_set_profile(p.predict, 17, 0, counts.data(), 100, &err), PLEC_OK);
    EXPECT_EQ(p.guess(PLEC_FROM_PROFILE, 0, 0), (Set{40, 41}));
    EXPECT_TRUE(p.guess(PLEC_FROM_PROFILE, 0, 1).empty());
}

TEST(Predict, WhatWasCountedComesBackAsAProfile) {
    Predictor p(started_on());
    p.routed(0, 1, {3, 3, 4});
    std::vector<uint64_t> counts(100);
    plec_predict_get_profile(counts.data(), p.predict, 1);
    EXPECT_EQ(counts[3], 2u);
    EXPECT_EQ(counts[4], 1u);
    Predictor q(started_on());
    ASSERT_EQ(plec_predict_set_profile(q.predict, 0, 1, counts.data(), 100, nullptr), PLEC_OK);
    EXPECT_EQ(q.guess(PLEC_FROM_PROFILE, 0, 1), (Set{3, 4}));
}

TEST(Predict, CountsPrecisionRecallAndBytes) {
    Predictor p(started_on());
    p.guess(PLEC_FROM_NEXT_ROUTER, 0, 0, {1, 2, 3, 4});
    p.routed(0, 0, {3, 4, 5});
    plec_policy_report report = p.report(PLEC_FROM_NEXT_ROUTER);
    EXPECT_EQ(report.predicted, 4u);
    EXPECT_EQ(report.used, 3u);
    EXPECT_EQ(report.right, 2u);
    EXPECT_DOUBLE_EQ(plec_policy_precision(&report), 0.5);
    EXPECT_DOUBLE_EQ(plec_policy_recall(&report), 2.0 / 3);
    EXPECT_EQ(report.asked_bytes, 4 * BYTES);
    EXPECT_EQ(report.wasted_bytes, 2 * BYTES);
    EXPECT_EQ(report.saved_ns, 100000 + 2 * BYTES * 100);
    EXPECT_EQ(report.window_waste_ns, 2 * BYTES * 100);
}

TEST(Predict, AGuessSavesNoMoreThanTheTimeItWasAhead) {
    Predictor p(started_on());
    p.guess(PLEC_FROM_NEXT_ROUTER, 0, 0, {1});
    int32_t id = 1;
    plec_predict_routed(p.predict, 0, 0, &id, 1, p.now + 5000);
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).saved_ns, 5000u);
}

TEST(Predict, WhatIsThereOrAskedForByAnotherPolicyIsNotAskedForAgain) {
    plec_keyspace keys;
    ASSERT_EQ(plec_keyspace_open_uniform(&keys, 2, 100, 24, BYTES, nullptr), PLEC_OK);
    plec_residency_options tier_options = {};
    tier_options.keys = &keys;
    tier_options.n_slots = 4;
    plec_residency *tier;
    ASSERT_EQ(plec_residency_open(&tier, &tier_options, nullptr), PLEC_OK);
    plec_place_args place = {0, PLEC_PLACE_DEMAND, 0};
    plec_slot_ref ref;
    ASSERT_TRUE(plec_residency_place(&ref, nullptr, tier, &place));
    plec_residency_loaded(tier, ref, 0x6, PLEC_FROM_DEMAND); /* experts 1 and 2 */
    {
        plec_predict_options options = started_on();
        options.tier = tier;
        Predictor p(options);
        EXPECT_EQ(p.guess(PLEC_FROM_NEXT_ROUTER, 0, 0, {1, 2, 3}), (Set{3}));
        EXPECT_EQ(p.guess(PLEC_FROM_PLAN, 0, 0, {3, 4}), (Set{4}));
        p.routed(0, 0, {1, 9});
        plec_policy_report report = p.report(PLEC_FROM_NEXT_ROUTER);
        EXPECT_EQ(report.right, 1u);
        EXPECT_EQ(report.saved_ns, 0u); /* 1 was there anyway */
        EXPECT_EQ(report.wasted_bytes, BYTES);
    }
    plec_residency_release(tier, ref);
    plec_residency_close(tier);
    plec_keyspace_close(&keys);
}

TEST(Predict, AGuessOfAStepThatNeverCameIsNotJudged) {
    Predictor p(started_on());
    p.guess(PLEC_FROM_NEXT_ROUTER, 5, 0, {1});
    p.routed(6, 0, {2});
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).guesses, 0u);
    p.guess(PLEC_FROM_NEXT_ROUTER, 8, 0, {1});
    p.routed(7, 0, {1}); /* the guess is for the step after */
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).guesses, 0u);
    p.routed(8, 0, {1});
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).guesses, 1u);
}

/* Runs steps of guesses that are right or wrong; how many requests they made. */
uint32_t run(Predictor &p, uint64_t *step, uint32_t n_steps, bool right) {
    uint32_t n = 0;
    for (uint32_t i = 0; i < n_steps; i++, ++*step) {
        p.guess(PLEC_FROM_NEXT_ROUTER, *step, 0, {right ? 1 : 50});
        n += p.n_requests;
        p.routed(*step, 0, {1});
    }
    return n;
}

TEST(Predict, ALosingPolicySwitchesItselfOffAndComesBackWhenItWouldPay) {
    plec_predict_options options = started_on();
    options.window = 16;
    Predictor p(options);
    uint64_t step = 0;
    /* A quarter of the window, and the guess under way when the fourth step ended. */
    EXPECT_EQ(run(p, &step, 20, false), 5u);
    EXPECT_FALSE(p.report(PLEC_FROM_NEXT_ROUTER).on);
    EXPECT_EQ(run(p, &step, 100, false), 0u);
    uint64_t asked = p.report(PLEC_FROM_NEXT_ROUTER).asked_bytes;
    /* A right guess saves 200 us, a wrong one wastes 100: of 16 steps, 7 must be right to be worth
     * 1.25 of the rest; the eighth, and all after it, are asked for. */
    EXPECT_EQ(run(p, &step, 17, true), 9u);
    EXPECT_TRUE(p.report(PLEC_FROM_NEXT_ROUTER).on);
    EXPECT_EQ(run(p, &step, 100, true), 100u);
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).switched_off, 1u);
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).switched_on, 1u);
    EXPECT_EQ(p.report(PLEC_FROM_NEXT_ROUTER).asked_bytes, asked + 109 * BYTES);
}

TEST(Predict, SpeculationBeginsOffAndThePlanIsAlwaysOn) {
    Predictor p;
    for (plec_origin policy :
         {PLEC_FROM_NEXT_ROUTER, PLEC_FROM_PREVIOUS, PLEC_FROM_FREQUENCY, PLEC_FROM_PROFILE})
        EXPECT_FALSE(p.report(policy).on);
    uint64_t step = 0;
    EXPECT_EQ(run(p, &step, 65, true), 0u);
    EXPECT_EQ(run(p, &step, 2, true), 2u) << "it has shown over a window that it pays";
    for (; step < 300; step++) { /* a plan that nobody keeps to */
        p.guess(PLEC_FROM_PLAN, step, 1, {1});
        EXPECT_EQ(p.n_requests, 1u);
        p.routed(step, 1, {2});
    }
}

TEST(Predict, PreviousIsRightOnARepeatingTraceAndByChanceOnAUniformOne) {
    for (Trace kind : {Trace::UNIFORM, Trace::MARKOV}) {
        plec_predict_options options = {};
        options.latency_ns = 1;
        Predictor p(options, 2, 64, 8);
        auto trace = make_trace(kind, 400, 2, 64, 8, 5);
        for (uint64_t step = 0; step < trace.size(); step++)
            for (uint32_t layer = 0; layer < 2; layer++) {
                p.guess(PLEC_FROM_PREVIOUS, step, layer);
                p.routed(step, layer, trace[step][layer]);
            }
        plec_policy_report report = p.report(PLEC_FROM_PREVIOUS);
        double chance = 8.0 / 64;
        if (kind == Trace::MARKOV) {
            EXPECT_GT(plec_policy_precision(&report), 0.75);
            EXPECT_TRUE(report.on);
        } else {
            EXPECT_NEAR(plec_policy_precision(&report), chance, 0.05);
            EXPECT_FALSE(report.on);
            EXPECT_EQ(report.asked_bytes, 0u);
        }
    }
}

} // namespace
