#include "device/reference/reference.h"
#include "host/bind.h"
#include "host/router.h"
#include "tests/support/experts.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

using namespace plec_test;

namespace {

/* A router over random weights, and everything a call needs. */
struct Routing {
    Routing(uint32_t n_experts, uint32_t width, uint32_t top_k, uint32_t n_tokens)
        : tokens(n_tokens), k(top_k) {
        std::mt19937 random(n_experts * 31 + width);
        weight = noise(random, size_t(n_experts) * width, 1);
        bias = noise(random, n_experts, 0.1f);
        x = noise(random, size_t(n_tokens) * width, 1);
        plec_router &router = layer.layer.router;
        router.n_experts = n_experts;
        router.top_k = top_k;
        router.gating = PLEC_GATING_SIGMOID;
        router.scale = 1;
        router.input_dim = width;
        router.weight = {PLEC_FORMAT_F32, n_experts, width, bytes(weight), nullptr};
        router.bias = bias.data();
    }
    plec_status run(plec_error *err) {
        scratch.assign(plec_router_scratch(&layer.layer.router), NOT_A_NUMBER);
        ids.assign(size_t(tokens) * k, 77);
        weights.assign(size_t(tokens) * k, 77);
        unrouted.reset(new bool[tokens]);
        plec_routing_args args = {};
        args.layer = &layer;
        args.n_tokens = tokens;
        args.x = x.data();
        args.token_ids = token_ids.empty() ? nullptr : token_ids.data();
        args.ids = ids.data();
        args.weights = weights.data();
        args.unrouted = unrouted.get();
        args.scratch = scratch.data();
        return plec_router_route(&args, err);
    }

    plec_bound_layer layer = {};
    uint32_t tokens, k;
    Floats weight, bias, x;
    std::vector<int32_t> token_ids, ids;
    Doubles weights, scratch;
    std::unique_ptr<bool[]> unrouted;
};

void expect_logits_of_the_reference(bool normed) {
    std::mt19937 random(5);
    Floats scale = noise(random, 37, 1);
    for (uint32_t n_experts : {1u, 3u, 4u, 13u})
        for (uint32_t n_tokens : {1u, 7u, 64u}) {
            Routing r(n_experts, 37, 1, n_tokens);
            plec_router &router = r.layer.layer.router;
            router.input_norm = normed;
            router.input_eps = 1e-3;
            router.input_scale = normed ? scale.data() : nullptr;
            Doubles z(size_t(n_tokens) * n_experts), expected(n_experts);
            Doubles rows(plec_router_rows_scratch(&router), NOT_A_NUMBER);
            plec_router_logits(z.data(), &router, r.x.data(), n_tokens, rows.data());
            for (uint32_t t = 0; t < n_tokens; t++) {
                plec_reference_logits(expected.data(), &router, r.x.data() + size_t(t) * 37,
                                      rows.data());
                EXPECT_EQ(memcmp(expected.data(), z.data() + size_t(t) * n_experts,
                                 n_experts * sizeof(double)),
                          0)
                    << n_experts << " experts, token " << t << " of " << n_tokens;
            }
        }
}

TEST(Router, LogitsAreTheReferencesBitForBit) {
    expect_logits_of_the_reference(false);
}

TEST(Router, LogitsOfANormedInputAreTheReferencesBitForBit) {
    expect_logits_of_the_reference(true);
}

TEST(Router, RoutesEachTokenAsTheReferenceAcrossBatches) {
    Routing r(24, 16, 3, 2 * PLEC_ROUTER_BATCH + 5);
    plec_error err = {};
    ASSERT_EQ(r.run(&err), PLEC_OK) << err.message;
    const plec_router &router = r.layer.layer.router;
    Doubles z(24), row(16), weights(3), scratch(plec_reference_route_scratch(&router));
    int32_t ids[3];
    for (uint32_t t = 0; t < r.tokens; t++) {
        plec_reference_logits(z.data(), &router, r.x.data() + size_t(t) * 16, row.data());
        ASSERT_EQ(
            plec_reference_route(ids, weights.data(), &router, z.data(), scratch.data(), &err),
            PLEC_OK);
        for (uint32_t j = 0; j < 3; j++) {
            EXPECT_EQ(r.ids[t * 3 + j], ids[j]);
            EXPECT_EQ(r.weights[t * 3 + j], weights[j]);
        }
        EXPECT_FALSE(r.unrouted[t]);
    }
}

TEST(Router, NanNamesTheFirstTokenAndRoutesTheOthers) {
    Routing clean(8, 4, 2, 70), r(8, 4, 2, 70);
    r.x[66 * 4 + 1] = std::numeric_limits<float>::quiet_NaN();
    r.x[69 * 4 + 3] = std::numeric_limits<float>::quiet_NaN();
    plec_error err = {};
    ASSERT_EQ(clean.run(&err), PLEC_OK) << err.message;
    ASSERT_EQ(r.run(&err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "NanScores");
    EXPECT_NE(std::string(err.message).find("token 66"), std::string::npos) << err.message;
    for (uint32_t t = 0; t < 70; t++) {
        bool bad = t == 66 || t == 69;
        EXPECT_EQ(r.unrouted[t], bad) << t;
        for (uint32_t i = t * 2; i < t * 2 + 2; i++) {
            EXPECT_EQ(r.ids[i], bad ? 0 : clean.ids[i]);
            EXPECT_EQ(std::isnan(r.weights[i]), bad);
            if (!bad) {
                EXPECT_EQ(r.weights[i], clean.weights[i]);
            }
        }
    }
}

TEST(Router, TokenTableGivesTheIdsAndScoresTheWeights) {
    Routing r(6, 5, 2, 3);
    const std::vector<int32_t> table = {5, 0, 1, 1, 2, 4};
    r.layer.token_table = table.data();
    r.layer.n_token_ids = 3;
    r.token_ids = {2, 0, 1};
    plec_error err = {};
    ASSERT_EQ(r.run(&err), PLEC_OK) << err.message;
    EXPECT_EQ(r.ids, (std::vector<int32_t>{2, 4, 5, 0, 1, 1}));
    Doubles z(6), row(5);
    plec_reference_logits(z.data(), &r.layer.layer.router, r.x.data(), row.data());
    EXPECT_DOUBLE_EQ(r.weights[0], sigmoid(z[2]));
    EXPECT_DOUBLE_EQ(r.weights[1], sigmoid(z[4]));
    r.token_ids = {2, 3, 1};
    ASSERT_EQ(r.run(&err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "BadTokenId");
    EXPECT_NE(std::string(err.message).find("token 1: its id is 3"), std::string::npos)
        << err.message;
    r.token_ids = {-1, 0, 0};
    EXPECT_EQ(r.run(&err), PLEC_BAD_INPUT);
}

TEST(Router, CallersIdsAreCheckedByTokenSlotAndId) {
    std::vector<int32_t> ids = {0, 3, 3, 3, 1, 2};
    plec_error err = {};
    plec_router_given given = {ids.data(), 3, 2, 4, 0};
    EXPECT_EQ(plec_router_check_ids(&given, &err), PLEC_OK);
    for (int32_t bad : {-1, 4, INT32_MAX, INT32_MIN}) {
        ids[3] = bad;
        ASSERT_EQ(plec_router_check_ids(&given, &err), PLEC_BAD_INPUT);
        EXPECT_STREQ(err.name, "BadExpertId");
        EXPECT_NE(std::string(err.message).find("token 1 slot 1: id " + std::to_string(bad)),
                  std::string::npos)
            << err.message;
    }
    given.first_token = 40;
    ASSERT_EQ(plec_router_check_ids(&given, &err), PLEC_BAD_INPUT);
    EXPECT_NE(std::string(err.message).find("token 41 slot 1"), std::string::npos) << err.message;
}

/* --- what a manifest says, as rules ----------------------------------------------------------- */

plec_moe_router top_k(uint32_t k) {
    plec_moe_router router = {};
    router.scores = "router";
    router.k = k;
    return router;
}

std::string bind_name(const plec_moe_router &manifest, plec_router *out = nullptr,
                      uint32_t n_experts = 8, bool selection_bias = false) {
    plec_router own;
    plec_error err = {};
    plec_status status = plec_bind_router(out != nullptr ? out : &own, &manifest, n_experts, 16,
                                          selection_bias, &err);
    return status == PLEC_OK ? "" : err.name;
}

TEST(BindRouter, SoftmaxKeepsTheOrderOfLogits) {
    plec_router router;
    ASSERT_EQ(bind_name(top_k(3), &router), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SOFTMAX);
    EXPECT_EQ(router.select_on, PLEC_SELECT_ON_LOGITS);
    EXPECT_FALSE(router.normalise);
    EXPECT_EQ(router.top_k, 3u);
    EXPECT_EQ(router.scale, 1.0);
    plec_moe_router renormalised = top_k(3);
    renormalised.renormalise = true;
    ASSERT_EQ(bind_name(renormalised, &router), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SOFTMAX_SELECTED);
    ASSERT_EQ(bind_name(renormalised, &router, 8, true), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SOFTMAX) << "a selection bias is added to scores";
    EXPECT_EQ(router.select_on, PLEC_SELECT_ON_SCORES);
    EXPECT_TRUE(router.normalise);
}

TEST(BindRouter, SigmoidRenormalisesOnlySeveral) {
    plec_router router;
    plec_moe_router manifest = top_k(1);
    manifest.sigmoid = manifest.renormalise = manifest.has_route_scale = true;
    manifest.route_scale = 2.446;
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SIGMOID);
    EXPECT_FALSE(router.normalise);
    EXPECT_EQ(router.scale, 2.446);
    manifest.k = 2;
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_TRUE(router.normalise);
    EXPECT_EQ(router.norm_epsilon, 1e-20);
    EXPECT_EQ(router.norm_floor, 0.0);
}

TEST(BindRouter, GroupedTopKTakesKFromEveryGroup) {
    plec_router router;
    plec_moe_router manifest = top_k(2);
    manifest.selection = PLEC_GROUPED_TOP_K;
    manifest.groups = 4;
    ASSERT_EQ(bind_name(manifest, &router, 12), "");
    EXPECT_EQ(router.top_k, 8u);
    EXPECT_EQ(router.n_groups, 4u);
    EXPECT_EQ(router.k_per_group, 2u);
    EXPECT_EQ(bind_name(manifest, nullptr, 10), "GroupsDoNotDivide");
    EXPECT_EQ(bind_name(manifest, nullptr, 4), "SelectionExceedsBank");
    manifest.groups = 0;
    EXPECT_EQ(bind_name(manifest), "SelectsNothing");
}

TEST(BindRouter, WhatCannotBeSelectedIsRefused) {
    EXPECT_EQ(bind_name(top_k(0)), "SelectsNothing");
    EXPECT_EQ(bind_name(top_k(9)), "SelectionExceedsBank");
    EXPECT_EQ(bind_name(top_k(8)), "");
}

TEST(BindRouter, FeaturesWithoutADefinitionAreRefusedByName) {
    plec_moe_router sink = top_k(2), norm = top_k(2), quantile = top_k(2);
    sink.shared_expert_sink = true;
    norm.norm_after_top_k = true;
    quantile.quantile_balanced = true;
    EXPECT_EQ(bind_name(sink), "SharedExpertSink");
    EXPECT_EQ(bind_name(norm), "NormAfterTopK");
    EXPECT_EQ(bind_name(quantile), "QuantileBalanced");
}

TEST(BindRouter, PlectrumFieldsRule) {
    plec_router router;
    plec_moe_router manifest = top_k(4);
    plec_moe_router_extra &extra = manifest.extra;
    extra.given = extra.has_groups = extra.has_normalise = extra.has_norm_floor = true;
    extra.has_scale = extra.normalise = true;
    extra.gating = "sigmoid";
    extra.select_on = "logits";
    extra.weight_on = "input";
    extra.groups = 4;
    extra.groups_used = 2;
    extra.norm_floor = 6.103515625e-5;
    extra.scale = 2.5;
    ASSERT_EQ(bind_name(manifest, &router, 16), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SIGMOID);
    EXPECT_EQ(router.select_on, PLEC_SELECT_ON_LOGITS);
    EXPECT_TRUE(router.weight_on_input);
    EXPECT_TRUE(router.normalise);
    EXPECT_EQ(router.norm_floor, 6.103515625e-5);
    EXPECT_EQ(router.norm_epsilon, 0.0);
    EXPECT_EQ(router.n_groups, 4u);
    EXPECT_EQ(router.n_groups_used, 2u);
    EXPECT_EQ(router.k_per_group, 0u);
    EXPECT_EQ(router.top_k, 4u);
    EXPECT_EQ(router.scale, 2.5);
    extra.groups_used = 5;
    EXPECT_EQ(bind_name(manifest, nullptr, 16), "SelectionExceedsBank");
    extra.groups_used = 0;
    EXPECT_EQ(bind_name(manifest, nullptr, 16), "SelectionExceedsBank");
    extra.groups_used = 1;
    EXPECT_EQ(bind_name(manifest, nullptr, 8), "SelectionExceedsBank") << "4 of one group of 2";
    extra.groups_used = 2;
    extra.gating = "entmax";
    EXPECT_EQ(bind_name(manifest, nullptr, 16), "UnknownGating");
    extra.gating = nullptr;
    extra.select_on = "mood";
    EXPECT_EQ(bind_name(manifest, nullptr, 16), "UnknownSelectOn");
    extra.select_on = nullptr;
    extra.weight_on = "both";
    EXPECT_EQ(bind_name(manifest, nullptr, 16), "UnknownWeightOn");
}

TEST(BindRouter, GroupsAreChosenByScores) {
    plec_router router;
    plec_moe_router manifest = top_k(2);
    manifest.renormalise = true;
    manifest.extra.given = manifest.extra.has_groups = true;
    manifest.extra.groups = 4;
    manifest.extra.groups_used = 1;
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SOFTMAX);
    EXPECT_EQ(router.select_on, PLEC_SELECT_ON_SCORES);
    EXPECT_TRUE(router.normalise);
}

TEST(BindRouter, ANormFloorIsNotLostBehindASoftmaxOfTheSelected) {
    plec_router router;
    plec_moe_router manifest = top_k(2);
    manifest.renormalise = true;
    manifest.extra.given = manifest.extra.has_norm_floor = true;
    manifest.extra.norm_floor = 0.9;
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_EQ(router.gating, PLEC_GATING_SOFTMAX);
    EXPECT_EQ(router.select_on, PLEC_SELECT_ON_SCORES);
    EXPECT_TRUE(router.normalise);
    EXPECT_EQ(router.norm_floor, 0.9);
}

TEST(BindRouter, OnlySigmoidLeavesASingleWeightAsItIs) {
    plec_router router;
    plec_moe_router manifest = top_k(1);
    manifest.renormalise = manifest.extra.given = true;
    manifest.extra.gating = "sigmoid";
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_FALSE(router.normalise) << "named or not, it is the same rule";
    manifest.sigmoid = true;
    manifest.extra.gating = "sqrt_softplus";
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_TRUE(router.normalise);
    manifest.extra.gating = "sigmoid";
    manifest.extra.has_normalise = manifest.extra.normalise = true;
    ASSERT_EQ(bind_name(manifest, &router), "");
    EXPECT_TRUE(router.normalise) << "spelt out";
}

/* --- activations ------------------------------------------------------------------------------ */

struct Said {
    std::vector<std::string> lines;
    plec_log log() {
        return {[](void *user, plec_log_level, const char *text) {
                    static_cast<Said *>(user)->lines.push_back(text);
                },
                this};
    }
};

TEST(BindMaths, DefaultsFollowTheProgrammeAndAreSaid) {
    plec_moe_expert nothing = {};
    plec_expert_maths maths;
    plec_error err = {};
    Said said;
    plec_log log = said.log();
    ASSERT_EQ(plec_bind_maths(&maths, &nothing, plec_programme_find("gpt-oss-expert-v1"), "routed",
                              &log, &err),
              PLEC_OK);
    EXPECT_EQ(maths.activation, PLEC_CLAMPED_GLU);
    EXPECT_EQ(maths.limit, 7.0);
    EXPECT_EQ(maths.alpha, 1.702);
    ASSERT_EQ(plec_bind_maths(&maths, &nothing, plec_programme_find("latent-moe-v1"), "routed",
                              &log, &err),
              PLEC_OK);
    EXPECT_EQ(maths.activation, PLEC_SILU);
    ASSERT_EQ(said.lines.size(), 2u);
    EXPECT_NE(said.lines[0].find("clamped_glu"), std::string::npos);
}

TEST(BindMaths, GivenFieldsRule) {
    plec_moe_expert expert = {};
    plec_expert_maths maths;
    plec_error err = {};
    Said said;
    plec_log log = said.log();
    const plec_programme *programme = plec_programme_find("gated-mlp-v1");
    expert.given = true;
    expert.activation = "clamped_gated";
    ASSERT_EQ(plec_bind_maths(&maths, &expert, programme, "routed", &log, &err), PLEC_OK);
    EXPECT_EQ(maths.limit, 10.0);
    expert.has_limit = true;
    expert.limit = 3;
    ASSERT_EQ(plec_bind_maths(&maths, &expert, programme, "routed", &log, &err), PLEC_OK);
    EXPECT_EQ(maths.limit, 3.0);
    expert.activation = "situ_glu";
    expert.has_beta = expert.has_linear_beta = true;
    expert.beta = 4;
    expert.linear_beta = 25;
    ASSERT_EQ(plec_bind_maths(&maths, &expert, programme, "routed", &log, &err), PLEC_OK);
    EXPECT_EQ(maths.beta, 4.0);
    EXPECT_EQ(maths.linear_beta, 25.0);
    EXPECT_TRUE(said.lines.empty()) << "nothing is assumed";
}

TEST(BindMaths, UnknownActivationsAndLimitsAreRefused) {
    plec_moe_expert expert = {};
    plec_expert_maths maths;
    plec_error err = {};
    const plec_programme *programme = plec_programme_find("gated-mlp-v1");
    expert.activation = "swish";
    EXPECT_EQ(plec_bind_maths(&maths, &expert, programme, "routed", nullptr, &err),
              PLEC_UNSUPPORTED);
    EXPECT_STREQ(err.name, "UnknownActivation");
    expert.activation = "silu_step";
    EXPECT_EQ(plec_bind_maths(&maths, &expert, programme, "routed", nullptr, &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "BadActivationLimit") << "no default is defined for it";
    expert.activation = "clamped_glu";
    expert.has_limit = true;
    expert.limit = -1;
    EXPECT_EQ(plec_bind_maths(&maths, &expert, programme, "routed", nullptr, &err), PLEC_MALFORMED);
}

} // namespace
