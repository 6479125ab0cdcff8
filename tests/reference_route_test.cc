#include "device/reference/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

namespace {

const double INF = std::numeric_limits<double>::infinity();
const double NOT_A_NUMBER = std::numeric_limits<double>::quiet_NaN();

struct Routing {
    plec_status status;
    plec_error error;
    std::vector<int32_t> ids;
    std::vector<double> weights;
};

/* A router that normalises nothing and scales by one. */
plec_router plain(plec_gating gating, size_t n_experts, uint32_t top_k) {
    plec_router router = {};
    router.n_experts = n_experts;
    router.top_k = top_k;
    router.gating = gating;
    router.scale = 1;
    return router;
}

Routing route(const plec_router &router, const std::vector<double> &z) {
    EXPECT_EQ(z.size(), router.n_experts);
    std::vector<double> scratch(plec_reference_route_scratch(&router), NOT_A_NUMBER);
    Routing r = {
        PLEC_OK, {}, std::vector<int32_t>(router.top_k, -7), std::vector<double>(router.top_k, -7)};
    r.status = plec_reference_route(r.ids.data(), r.weights.data(), &router, z.data(),
                                    scratch.data(), &r.error);
    return r;
}

void expect_nan_scores(const Routing &r, const std::string &expert) {
    EXPECT_EQ(r.status, PLEC_BAD_INPUT);
    EXPECT_STREQ(r.error.name, "NanScores");
    EXPECT_NE(std::string(r.error.message).find(expert + ":"), std::string::npos)
        << r.error.message;
    for (size_t j = 0; j < r.ids.size(); j++) {
        EXPECT_EQ(r.ids[j], -7) << "ids must be untouched";
        EXPECT_EQ(r.weights[j], -7) << "weights must be untouched";
    }
}

double sigmoid(double z) {
    return 1 / (1 + std::exp(-z));
}

using Ids = std::vector<int32_t>;
const std::vector<plec_gating> ALL_GATINGS = {PLEC_GATING_SOFTMAX, PLEC_GATING_SIGMOID,
                                              PLEC_GATING_SOFTMAX_SELECTED,
                                              PLEC_GATING_SQRT_SOFTPLUS};

TEST(ReferenceRoute, LogitsAreDoubleSumsPlusBias) {
    std::vector<float> w = {1, 2, 3, 4, 5, 6}, x = {1e8f, 1, -1e8f}, bias = {0.5f, 0.25f};
    plec_router router = plain(PLEC_GATING_SOFTMAX, 2, 1);
    router.input_dim = 3;
    router.weight = {PLEC_FORMAT_F32, 2, 3, reinterpret_cast<const uint8_t *>(w.data()), nullptr};
    double z[2], row[3];
    plec_reference_logits(z, &router, x.data(), row);
    EXPECT_EQ(z[0], 1e8 + 2 - 3e8);
    router.bias = bias.data();
    plec_reference_logits(z, &router, x.data(), row);
    EXPECT_EQ(z[0], 1e8 + 2 - 3e8 + 0.5);
    EXPECT_EQ(z[1], 4e8 + 5 - 6e8 + 0.25);
}

TEST(ReferenceRoute, NormedInputIsRmsNormOverRootOfTheWidthTimesItsScale) {
    const std::vector<float> weight = {1, -2, 0.5f, 3, 0.25f, 1}, x = {3, -4, 12},
                             scale = {2, 0.5f, -1}, bias = {1, -1};
    plec_router router = plain(PLEC_GATING_SOFTMAX, 2, 1);
    router.input_dim = 3;
    router.weight = {PLEC_FORMAT_F32, 2, 3, reinterpret_cast<const uint8_t *>(weight.data()),
                     nullptr};
    router.input_norm = true;
    router.input_eps = 0.5;
    double z[2], row[3], factor = 1 / std::sqrt(169.0 / 3 + 0.5) / std::sqrt(3.0);
    plec_reference_logits(z, &router, x.data(), row);
    EXPECT_NEAR(z[0], factor * 17, 1e-14);
    EXPECT_NEAR(z[1], factor * 20, 1e-14);
    router.input_scale = scale.data();
    router.bias = bias.data();
    plec_reference_logits(z, &router, x.data(), row);
    EXPECT_NEAR(z[0], factor * 4 + 1, 1e-14);
    EXPECT_NEAR(z[1], factor * 5.5 - 1, 1e-14);
}

TEST(ReferenceRoute, EachGatingWeighsByItsFormula) {
    std::vector<double> z = {0.5, -1, 2, 0};
    double all = std::exp(0.5) + std::exp(-1) + std::exp(2) + 1;
    double p[4][2] = {
        {std::exp(2) / all, std::exp(0.5) / all},
        {sigmoid(2), sigmoid(0.5)},
        {sigmoid(1.5), sigmoid(-1.5)},
        {std::sqrt(std::log(1 + std::exp(2))), std::sqrt(std::log(1 + std::exp(0.5)))}};
    for (size_t i = 0; i < 4; i++) {
        Routing r = route(plain(ALL_GATINGS[i], 4, 2), z);
        ASSERT_EQ(r.status, PLEC_OK);
        EXPECT_EQ(r.ids, (Ids{2, 0}));
        EXPECT_NEAR(r.weights[0], p[i][0], 1e-15) << i;
        EXPECT_NEAR(r.weights[1], p[i][1], 1e-15) << i;
    }
}

TEST(ReferenceRoute, TiesGoToTheLowerExpert) {
    for (plec_gating gating : ALL_GATINGS) {
        EXPECT_EQ(route(plain(gating, 6, 4), {1, 1, 1, 1, 1, 1}).ids, (Ids{0, 1, 2, 3}));
        EXPECT_EQ(route(plain(gating, 6, 3), {0, 3, 0, 3, 3, 3}).ids, (Ids{1, 3, 4}));
        EXPECT_EQ(route(plain(gating, 4, 4), {0, 3, 0, 3}).ids, (Ids{1, 3, 0, 2}));
    }
    Routing r = route(plain(PLEC_GATING_SOFTMAX_SELECTED, 4, 2), {0, 1, 1, 0});
    EXPECT_EQ(r.ids, (Ids{1, 2}));
    EXPECT_EQ(r.weights, (std::vector<double>{0.5, 0.5}));
}

TEST(ReferenceRoute, OneExpertAndAllExpertsAreRoutings) {
    for (plec_gating gating : ALL_GATINGS) {
        EXPECT_EQ(route(plain(gating, 1, 1), {-3}).ids, (Ids{0}));
        Routing r = route(plain(gating, 5, 5), {0, 1, 4, -2, 3});
        EXPECT_EQ(r.ids, (Ids{2, 4, 1, 0, 3}));
    }
    EXPECT_EQ(route(plain(PLEC_GATING_SOFTMAX, 1, 1), {-3}).weights[0], 1);
}

TEST(ReferenceRoute, WinnersBeyond255AreFoundAmong896) {
    std::vector<double> z(896, -1);
    z[255] = 3;
    z[256] = 4;
    z[895] = 5;
    for (plec_gating gating : ALL_GATINGS)
        EXPECT_EQ(route(plain(gating, 896, 4), z).ids, (Ids{895, 256, 255, 0}));
}

TEST(ReferenceRoute, NamesTheExpertOfANanLogit) {
    for (plec_gating gating : ALL_GATINGS) {
        expect_nan_scores(route(plain(gating, 4, 2), {1, 2, NOT_A_NUMBER, 3}), "expert 2");
        expect_nan_scores(route(plain(gating, 2, 1), {NOT_A_NUMBER, NOT_A_NUMBER}), "expert 0");
    }
    plec_router by_logit = plain(PLEC_GATING_SIGMOID, 3, 1);
    by_logit.select_on = PLEC_SELECT_ON_LOGITS;
    expect_nan_scores(route(by_logit, {9, NOT_A_NUMBER, 0}), "expert 1");
}

TEST(ReferenceRoute, NamesTheExpertOfANanSelectionBias) {
    float bias[] = {0, 0, 0, NAN};
    plec_router router = plain(PLEC_GATING_SIGMOID, 4, 2);
    router.selection_bias = bias;
    expect_nan_scores(route(router, {1, 2, 3, 4}), "expert 3");
}

TEST(ReferenceRoute, InfiniteLogitsAreRefusedWhereTheyLeaveNoWeights) {
    expect_nan_scores(route(plain(PLEC_GATING_SOFTMAX, 3, 1), {0, INF, 1}), "expert 1");
    expect_nan_scores(route(plain(PLEC_GATING_SOFTMAX, 3, 1), {-INF, -INF, -INF}), "expert 0");
    expect_nan_scores(route(plain(PLEC_GATING_SOFTMAX_SELECTED, 3, 2), {0, 1, INF}), "expert 2");
    expect_nan_scores(route(plain(PLEC_GATING_SQRT_SOFTPLUS, 3, 1), {0, INF, 1}), "expert 1");
    plec_router sigmoid_sum = plain(PLEC_GATING_SIGMOID, 2, 2);
    sigmoid_sum.normalise = true; /* 0 / 0 without an epsilon */
    expect_nan_scores(route(sigmoid_sum, {-INF, -INF}), "expert 0");
}

TEST(ReferenceRoute, InfiniteLogitsAreSaneWhereTheyHaveALimit) {
    Routing r = route(plain(PLEC_GATING_SOFTMAX, 4, 3), {-INF, 0, 0, -INF});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.ids, (Ids{1, 2, 0}));
    EXPECT_EQ(r.weights, (std::vector<double>{0.5, 0.5, 0}));
    r = route(plain(PLEC_GATING_SIGMOID, 3, 3), {-INF, INF, 0});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.ids, (Ids{1, 2, 0}));
    EXPECT_EQ(r.weights, (std::vector<double>{1, 0.5, 0}));
    r = route(plain(PLEC_GATING_SQRT_SOFTPLUS, 2, 2), {-INF, 0});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.ids, (Ids{1, 0}));
    EXPECT_EQ(r.weights[1], 0);
    r = route(plain(PLEC_GATING_SOFTMAX_SELECTED, 3, 2), {-INF, 2, -INF});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.ids, (Ids{1, 0}));
    EXPECT_EQ(r.weights, (std::vector<double>{1, 0}));
}

TEST(ReferenceRoute, LargeLogitsNeitherOverflowNorLoseTheirOrder) {
    Routing r = route(plain(PLEC_GATING_SOFTMAX, 4, 4), {3000, 3001, -3000, -2999});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.ids, (Ids{1, 0, 3, 2})) << "both last scores are 0, their logits are not equal";
    EXPECT_NEAR(r.weights[0], sigmoid(1), 1e-15);
    EXPECT_NEAR(r.weights[1], sigmoid(-1), 1e-15);
    r = route(plain(PLEC_GATING_SOFTMAX_SELECTED, 3, 2), {3000, 3001, 0});
    EXPECT_NEAR(r.weights[0], sigmoid(1), 1e-15);
    r = route(plain(PLEC_GATING_SQRT_SOFTPLUS, 3, 3), {900, -60, 0});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.ids, (Ids{0, 2, 1}));
    EXPECT_DOUBLE_EQ(r.weights[0], 30);
    EXPECT_DOUBLE_EQ(r.weights[1], std::sqrt(std::log(2)));
    EXPECT_NEAR(r.weights[2], std::exp(-30), 1e-14 * std::exp(-30));
}

TEST(ReferenceRoute, SelectionBiasSelectsAndNeverWeighs) {
    float bias[] = {0, 5, 0, -5};
    std::vector<double> z = {1, -2, 0.5, 3};
    for (plec_gating gating : ALL_GATINGS) {
        plec_router router = plain(gating, 4, 2);
        Routing without = route(router, z);
        EXPECT_EQ(without.ids, (Ids{3, 0}));
        router.selection_bias = bias;
        Routing with = route(router, z);
        EXPECT_EQ(with.ids, (Ids{1, 0}));
        if (gating == PLEC_GATING_SOFTMAX_SELECTED) continue; /* its weights depend on the set */
        EXPECT_EQ(with.weights[1], without.weights[1]);
    }
    plec_router router = plain(PLEC_GATING_SIGMOID, 4, 1);
    router.selection_bias = bias;
    EXPECT_EQ(route(router, z).weights[0], sigmoid(-2));
}

TEST(ReferenceRoute, SelectOnSaysWhatTheKeyStartsFrom) {
    /* The bias is larger than any sigmoid can make up for, not than the logits. */
    float bias[] = {0, 2, 0};
    std::vector<double> z = {9, 1, -4};
    plec_router router = plain(PLEC_GATING_SIGMOID, 3, 1);
    router.selection_bias = bias;
    EXPECT_EQ(route(router, z).ids, (Ids{1}));
    router.select_on = PLEC_SELECT_ON_LOGITS;
    Routing r = route(router, z);
    EXPECT_EQ(r.ids, (Ids{0}));
    EXPECT_EQ(r.weights[0], sigmoid(9)) << "select_on must not change the weight";
    router.gating = PLEC_GATING_SOFTMAX;
    router.select_on = PLEC_SELECT_ON_SIGMOID;
    r = route(router, z);
    EXPECT_EQ(r.ids, (Ids{1}));
    EXPECT_NEAR(r.weights[0], std::exp(-8) / (1 + std::exp(-8) + std::exp(-13)), 1e-16);
}

TEST(ReferenceRoute, OnlyTheBestGroupsAreOpen) {
    plec_router router = plain(PLEC_GATING_SIGMOID, 8, 3);
    router.n_groups = 4;
    router.n_groups_used = 2;
    /* Group 0's 0.73 + 0.00 is beaten by 0.55 + 0.55 and by 0.60 + 0.57. */
    std::vector<double> z = {1, -9, 0.2, 0.2, 0.4, 0.3, -9, -8};
    Routing r = route(router, z);
    EXPECT_EQ(r.ids, (Ids{4, 5, 2})) << "expert 0 is the best, its group is not";
    router.n_groups_used = 3;
    EXPECT_EQ(route(router, z).ids, (Ids{0, 4, 5}));
}

TEST(ReferenceRoute, GroupScoreIsTheSumOfTwoNotOfAll) {
    plec_router router = plain(PLEC_GATING_SIGMOID, 8, 2);
    router.select_on = PLEC_SELECT_ON_LOGITS;
    router.n_groups = 2;
    router.n_groups_used = 1;
    EXPECT_EQ(route(router, {3, 3, 3, 3, 4, 3, -9, -9}).ids, (Ids{4, 5}));
    EXPECT_EQ(route(router, {-9, 4, -9, 4, 3, 3, 3, 3}).ids, (Ids{1, 3}));
}

TEST(ReferenceRoute, TiedGroupsGoToTheLowerGroup) {
    plec_router router = plain(PLEC_GATING_SIGMOID, 6, 2);
    router.n_groups = 3;
    router.n_groups_used = 1;
    EXPECT_EQ(route(router, {0, 1, 2, 3, 3, 2}).ids, (Ids{3, 2}));
    EXPECT_EQ(route(router, {1, 1, 1, 1, 1, 1}).ids, (Ids{0, 1}));
}

TEST(ReferenceRoute, GroupsAreScoredWithTheSelectionBias) {
    float bias[] = {0, 0, 3, 3};
    plec_router router = plain(PLEC_GATING_SIGMOID, 4, 1);
    router.n_groups = 2;
    router.n_groups_used = 1;
    router.selection_bias = bias;
    EXPECT_EQ(route(router, {5, 5, -5, -4}).ids, (Ids{3}));
}

TEST(ReferenceRoute, ExpertsOfClosedGroupsAreNotChosenForTheirMinusInfinity) {
    plec_router router = plain(PLEC_GATING_SIGMOID, 4, 2);
    router.select_on = PLEC_SELECT_ON_LOGITS;
    router.n_groups = 2;
    router.n_groups_used = 1;
    EXPECT_EQ(route(router, {-1, -1, 5, -INF}).ids, (Ids{0, 1}));
    EXPECT_EQ(route(router, {-INF, -INF, -INF, 2}).ids, (Ids{0, 1})) << "both groups tie at -Inf";
}

TEST(ReferenceRoute, GroupedTopKTakesItsShareFromEveryGroup) {
    plec_router router = plain(PLEC_GATING_SOFTMAX, 9, 6);
    router.n_groups = 3;
    router.k_per_group = 2;
    Routing r = route(router, {9, 8, 7, 1, 2, 3, 6, 4, 5});
    EXPECT_EQ(r.ids, (Ids{0, 1, 6, 8, 5, 4})) << "ids by descending key over all groups";
    EXPECT_TRUE(std::is_sorted(r.weights.rbegin(), r.weights.rend()));
    router.k_per_group = 1;
    router.top_k = 3;
    EXPECT_EQ(route(router, {1, 1, 1, 1, 1, 1, 1, 1, 1}).ids, (Ids{0, 3, 6}));
    router.n_groups = 1;
    router.k_per_group = 3;
    EXPECT_EQ(route(router, {9, 8, 7, 1, 2, 3, 6, 4, 5}).ids, (Ids{0, 1, 2}));
}

TEST(ReferenceRoute, NormalisesByTheLargerOfSumPlusEpsilonAndFloor) {
    plec_router router = plain(PLEC_GATING_SIGMOID, 3, 2);
    router.normalise = true;
    Routing r = route(router, {0, 0, -9});
    EXPECT_EQ(r.weights, (std::vector<double>{0.5, 0.5}));
    router.norm_epsilon = 1;
    EXPECT_EQ(route(router, {0, 0, -9}).weights, (std::vector<double>{0.25, 0.25}));
    router.norm_epsilon = 0;
    router.norm_floor = 4;
    EXPECT_EQ(route(router, {0, 0, -9}).weights, (std::vector<double>{0.125, 0.125}));
    router.norm_floor = 6.103515625e-5;
    r = route(router, {-INF, -INF, -INF});
    ASSERT_EQ(r.status, PLEC_OK);
    EXPECT_EQ(r.weights, (std::vector<double>{0, 0}));
}

TEST(ReferenceRoute, NormalisedSoftmaxIsSoftmaxOverTheSelected) {
    std::mt19937 random(1);
    std::normal_distribution<double> normal(0, 3);
    for (int round = 0; round < 50; round++) {
        std::vector<double> z(12);
        for (double &value : z)
            value = normal(random);
        plec_router router = plain(PLEC_GATING_SOFTMAX, 12, 4);
        router.normalise = true;
        Routing a = route(router, z), b = route(plain(PLEC_GATING_SOFTMAX_SELECTED, 12, 4), z);
        EXPECT_EQ(a.ids, b.ids);
        for (size_t j = 0; j < 4; j++)
            EXPECT_NEAR(a.weights[j], b.weights[j], 1e-15);
    }
}

TEST(ReferenceRoute, ScaleComesAfterNormalisingAndExpertScaleLast) {
    float expert_scale[] = {10, 100, 1000};
    plec_router router = plain(PLEC_GATING_SIGMOID, 3, 2);
    router.normalise = true;
    router.scale = 3;
    router.expert_scale = expert_scale;
    Routing r = route(router, {0, -9, 0});
    EXPECT_EQ(r.ids, (Ids{0, 2}));
    EXPECT_EQ(r.weights, (std::vector<double>{15, 1500}));
}

TEST(ReferenceRoute, WeighingChosenIdsGivesTheRoutersWeights) {
    float expert_scale[] = {1, 2, 3, 4, 5};
    std::vector<double> z = {0.3, -1, 2, 0.1, 0.7};
    for (plec_gating gating : ALL_GATINGS) {
        plec_router router = plain(gating, 5, 3);
        router.normalise = true;
        router.norm_epsilon = 0.1;
        router.scale = 2.5;
        router.expert_scale = expert_scale;
        Routing r = route(router, z);
        std::vector<double> again(3), scratch(plec_reference_route_scratch(&router));
        plec_reference_weigh(again.data(), r.ids.data(), &router, z.data(), scratch.data());
        EXPECT_EQ(again, r.weights);
    }
    plec_router router = plain(PLEC_GATING_SIGMOID, 5, 3);
    std::vector<double> weights(3), scratch(plec_reference_route_scratch(&router));
    Ids repeated = {4, 1, 4};
    plec_reference_weigh(weights.data(), repeated.data(), &router, z.data(), scratch.data());
    EXPECT_EQ(weights, (std::vector<double>{sigmoid(0.7), sigmoid(-1), sigmoid(0.7)}));
}

/* The same selection by sorting: keys, then a stable descending sort inside the open groups. */
Ids select_by_sorting(const plec_router &router, const std::vector<double> &key) {
    uint32_t n = router.n_experts, n_groups = std::max(1u, router.n_groups), size = n / n_groups;
    std::vector<std::pair<double, uint32_t>> groups;
    for (uint32_t g = 0; g < n_groups; g++) {
        std::vector<double> sorted(key.begin() + g * size, key.begin() + (g + 1) * size);
        std::sort(sorted.rbegin(), sorted.rend());
        groups.push_back({-(sorted[0] + sorted[1]), g});
    }
    std::sort(groups.begin(), groups.end());
    std::set<uint32_t> open;
    for (uint32_t i = 0; i < (n_groups > 1 ? router.n_groups_used : 1); i++)
        open.insert(groups[i].second);
    Ids ids;
    for (uint32_t e = 0; e < n; e++)
        if (open.count(e / size)) ids.push_back(int32_t(e));
    std::stable_sort(ids.begin(), ids.end(), [&](int32_t a, int32_t b) { return key[a] > key[b]; });
    ids.resize(router.top_k);
    return ids;
}

TEST(ReferenceRoute, SelectsWhatSortingSelects) {
    std::mt19937 random(2);
    std::uniform_int_distribution<int> coarse(-6, 6); /* many ties */
    for (int round = 0; round < 400; round++) {
        plec_router router = plain(PLEC_GATING_SIGMOID, 24, 1 + round % 6);
        router.n_groups = round % 3 == 0 ? 0 : round % 3 == 1 ? 4 : 8;
        router.n_groups_used = 3;
        std::vector<double> z(24), key(24);
        std::vector<float> bias(24);
        for (size_t e = 0; e < 24; e++) {
            z[e] = coarse(random);
            bias[e] = float(coarse(random)) / 8;
            key[e] = sigmoid(z[e]) + bias[e];
        }
        router.selection_bias = bias.data();
        Routing r = route(router, z);
        ASSERT_EQ(r.status, PLEC_OK);
        ASSERT_EQ(r.ids, select_by_sorting(router, key)) << round;
        for (size_t j = 0; j < r.ids.size(); j++)
            ASSERT_EQ(r.weights[j], sigmoid(z[r.ids[j]]));
    }
}

} // namespace
