#include "device/layer.h"
#include "manifests/field.h"
#include "manifests/moe.h"
#include "manifests/moe_build.h"
#include "tests/support/data.h"
#include "tests/support/json.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <limits>

using namespace plec_test;

namespace {

class Moe : public plec_moe {
  public:
    explicit Moe(json_t *from) : plec_moe() {
        plec_error err = {};
        EXPECT_EQ(plec_moe_read(this, from, &err), PLEC_OK) << err.message;
    }
    Moe(const Moe &) = delete;
    Moe &operator=(const Moe &) = delete;
    ~Moe() { plec_moe_close(this); }
};

Json fixture(const std::string &container) {
    return load_json(data_path(container + "/moe_manifest.json"));
}

/* A layer with every member: latent, shared bank, transforms, plectrum. */
Json latent_document() {
    return fixture("run/run03_latent");
}

std::string defects(json_t *from) {
    Moe moe(from);
    plec_findings findings = {};
    plec_moe_defects(&findings, &moe);
    plec_error err = {};
    std::string text;
    if (plec_findings_to_error(&findings, PLEC_MALFORMED, &err) != PLEC_OK) text = err.message;
    plec_findings_clear(&findings);
    return text;
}

void expect_refused(json_t *document, const std::string &name,
                    const std::vector<std::string> &facts) {
    plec_moe moe = {};
    plec_error err = {};
    ASSERT_EQ(plec_moe_read(&moe, document, &err), PLEC_MALFORMED) << facts[0];
    EXPECT_EQ(err.name, name) << err.message;
    for (const std::string &fact : facts)
        EXPECT_NE(std::string(err.message).find(fact), std::string::npos)
            << err.message << "\nshould tell: " << fact;
    EXPECT_EQ(moe.document, nullptr) << "closed on failure";
}

/* latent_document with one member changed must be refused. */
void expect_change_refused(const std::string &path, const std::string &value,
                           const std::string &name, const std::vector<std::string> &facts) {
    Json document = latent_document();
    set_member(document.get(), path, value);
    expect_refused(document.get(), name, facts);
}

/* latent_document with members changed must have exactly these defects. */
void expect_defects(const std::vector<std::pair<std::string, std::string>> &changes,
                    const std::string &wanted) {
    Json document = latent_document();
    for (const auto &[path, value] : changes)
        set_member(document.get(), path, value);
    EXPECT_EQ(defects(document.get()), wanted);
}

std::string last_part(const std::string &path) {
    return path.substr(path.rfind('/') + 1);
}

} // namespace

TEST(Moe, ReadsEveryMember) {
    Json document = latent_document();
    set_member(document.get(), "layers/0/plectrum/router",
               R"({"gating": "sqrt_softplus", "select_on": "logits", "groups": 4, "groups_used": 2,
                   "normalise": true, "norm_floor": 6.103515625e-5, "scale": 2,
                   "weight_on": "input", "zz": 0})");
    Moe moe(document.get());
    ASSERT_EQ(moe.n_layers, 1u);
    const plec_moe_layer &layer = moe.layers[0];
    EXPECT_EQ(layer.layer, 1u);
    EXPECT_EQ(layer.input_space, PLEC_SPACE_LATENT);
    EXPECT_STREQ(layer.router.scores, "layers.1.router.weight");
    EXPECT_TRUE(layer.router.sigmoid);
    EXPECT_EQ(plec_moe_experts_per_token(&layer.router), 3u);
    EXPECT_TRUE(layer.router.renormalise);
    EXPECT_STREQ(layer.routed_output, "layers.1.latent_out");
    EXPECT_EQ(layer.routed.experts, 12u);
    EXPECT_STREQ(layer.shared.storage, "shared/layer_001");
    EXPECT_STREQ(layer.routed_output_norm, "layers.1.routed_norm");
    EXPECT_STREQ(layer.control, "control/layer_001");
    EXPECT_TRUE(layer.has_norm_eps);
    EXPECT_EQ(layer.norm_eps, 1e-5);
    EXPECT_STREQ(layer.expert.activation, "situ_glu");
    EXPECT_EQ(layer.expert.linear_beta, 25.0);
    EXPECT_FALSE(layer.expert.has_limit);
    EXPECT_STREQ(layer.shared_expert.activation, "silu");
    const plec_moe_router_extra &extra = layer.router.extra;
    EXPECT_TRUE(extra.given);
    EXPECT_STREQ(extra.gating, "sqrt_softplus");
    EXPECT_STREQ(extra.select_on, "logits");
    EXPECT_STREQ(extra.weight_on, "input");
    EXPECT_EQ(extra.groups, 4u);
    EXPECT_EQ(extra.groups_used, 2u);
    EXPECT_TRUE(extra.has_normalise && extra.normalise);
    EXPECT_EQ(extra.norm_floor, 6.103515625e-5);
    EXPECT_EQ(extra.scale, 2.0);
    EXPECT_EQ(defects(document.get()), "");
}

TEST(Moe, WhatIsNotGivenHasItsDefault) {
    Json document = latent_document();
    for (const char *path :
         {"layers/0/router/post", "layers/0/router/shared_expert_sink", "layers/0/transforms",
          "layers/0/shared_bank", "layers/0/routed_output_norm", "layers/0/plectrum",
          "layers/0/routed_bank/expert_dims"})
        remove_member(document.get(), path);
    Moe moe(document.get());
    const plec_moe_layer &layer = moe.layers[0];
    EXPECT_FALSE(layer.router.renormalise || layer.router.norm_after_top_k ||
                 layer.router.quantile_balanced || layer.router.has_route_scale ||
                 layer.router.shared_expert_sink || layer.router.extra.given);
    EXPECT_EQ(layer.router.gate_bias, nullptr);
    EXPECT_EQ(layer.routed_input, nullptr);
    EXPECT_FALSE(layer.shared.present || layer.routed.has_dims || layer.expert.given ||
                 layer.shared_expert.given || layer.has_norm_eps);
    EXPECT_EQ(layer.control, nullptr);
    EXPECT_EQ(moe.n_dense, 0u);
}

TEST(Moe, EveryRequiredMemberIsMissedByNameAndPlace) {
    const std::vector<std::pair<std::string, std::string>> required = {
        {"schema_version", ""},
        {"layers", ""},
        {"layers/0/layer", "layers[0]"},
        {"layers/0/input_space", "layers[0]"},
        {"layers/0/router", "layers[0]"},
        {"layers/0/router/scores", "layers[0].router"},
        {"layers/0/router/activation", "layers[0].router"},
        {"layers/0/router/selection", "layers[0].router"},
        {"layers/0/router/selection/kind", "layers[0].router.selection"},
        {"layers/0/router/selection/k", "layers[0].router.selection"},
        {"layers/0/transforms/routed_input", "layers[0].transforms"},
        {"layers/0/transforms/routed_output", "layers[0].transforms"},
        {"layers/0/routed_bank", "layers[0]"},
        {"layers/0/routed_bank/experts", "layers[0].routed_bank"},
        {"layers/0/routed_bank/programme", "layers[0].routed_bank"},
        {"layers/0/routed_bank/storage", "layers[0].routed_bank"},
        {"layers/0/shared_bank/experts", "layers[0].shared_bank"},
        {"layers/0/reduction", "layers[0]"},
        {"layers/0/combine", "layers[0]"},
    };
    for (const auto &[path, place] : required) {
        Json document = latent_document();
        remove_member(document.get(), path);
        expect_refused(document.get(), "MissingField",
                       {"missing field `" + last_part(path) + "`", place});
    }
    expect_change_refused("layers/0/router/selection", R"({"kind": "grouped_top_k", "k": 1})",
                          "MissingField", {"missing field `groups`"});
    expect_change_refused("layers/0/routed_bank/expert_dims", R"({"input": 1, "output": 2})",
                          "MissingField", {"missing field `intermediate`"});
}

TEST(Moe, WrongTypesAreRefusedByPath) {
    const std::vector<std::pair<std::string, std::vector<std::string>>> wrong = {
        {"schema_version", {"null", "\"1\"", "-1", "1.0"}},
        {"layers", {"null", "{}"}},
        {"layers/0/layer", {"null", "-1", "1.5", "\"1\"", "true"}},
        {"layers/0/input_space", {"null", "1"}},
        {"layers/0/router", {"null", "[]"}},
        {"layers/0/router/scores", {"null", "[]"}},
        {"layers/0/router/activation", {"null", "0"}},
        {"layers/0/router/selection", {"null", "\"top_k\""}},
        {"layers/0/router/selection/kind", {"null", "1"}},
        {"layers/0/router/selection/k", {"null", "-1", "3.0"}},
        {"layers/0/router/post", {"null", "[]"}},
        {"layers/0/router/post/renormalise", {"null", "1", "\"true\""}},
        {"layers/0/router/post/norm_after_top_k", {"null", "0"}},
        {"layers/0/router/post/quantile_balanced", {"null", "{}"}},
        {"layers/0/router/post/gate_bias", {"1", "true"}},
        {"layers/0/router/post/route_scale", {"\"1\"", "true", "[]"}},
        {"layers/0/router/shared_expert_sink", {"null", "0"}},
        {"layers/0/transforms", {"[]", "\"x\""}},
        {"layers/0/transforms/routed_input", {"null", "1"}},
        {"layers/0/routed_bank", {"null", "[]"}},
        {"layers/0/routed_bank/experts", {"null", "-1", "\"4\""}},
        {"layers/0/routed_bank/programme", {"null", "0"}},
        {"layers/0/routed_bank/storage", {"null", "0"}},
        {"layers/0/routed_bank/expert_dims", {"[]", "3"}},
        {"layers/0/shared_bank", {"[]", "0"}},
        {"layers/0/reduction", {"null", "1"}},
        {"layers/0/routed_output_norm", {"1", "[]"}},
        {"layers/0/combine", {"null", "[]"}},
        {"layers/0/plectrum", {"[]", "1"}},
        {"layers/0/plectrum/control", {"1", "{}"}},
        {"layers/0/plectrum/norm_eps", {"\"1e-6\"", "true"}},
        {"layers/0/plectrum/expert", {"\"silu\"", "[]"}},
        {"layers/0/plectrum/expert/activation", {"1", "[]"}},
        {"layers/0/plectrum/expert/limit", {"\"7\"", "false"}},
        {"layers/0/plectrum/expert/alpha", {"\"7\"", "{}"}},
        {"layers/0/plectrum/expert/beta", {"\"inf\""}},
        {"layers/0/plectrum/expert/linear_beta", {"[]"}},
        {"layers/0/plectrum/shared_expert", {"1"}},
        {"layers/0/plectrum/shared_expert/activation", {"1"}},
        {"layers/0/plectrum/router", {"[]", "\"sigmoid\""}},
        {"plectrum", {"[]", "5"}},
    };
    for (const auto &[path, values] : wrong)
        for (const std::string &value : values)
            expect_change_refused(path, value, "WrongType", {last_part(path), "expected"});
    expect_refused(Json(std::string(R"({"schema_version": 1, "layers": [5]})")).get(), "WrongType",
                   {"`layers[0]`", "an object"});
    expect_refused(Json(std::string("[]")).get(), "WrongType", {"an object"});
}

TEST(Moe, WrongTypesInsidePlectrumRouterAndDenseAreRefusedByPath) {
    const std::vector<std::pair<std::string, std::string>> router = {
        {"gating", "1"},     {"select_on", "[]"}, {"weight_on", "0"},     {"groups", "-1"},
        {"groups", "\"2\""}, {"normalise", "1"},  {"scale", "\"1\""},     {"norm_floor", "true"},
        {"ids_from", "1"},   {"input", "{}"},     {"input_eps", "\"0\""},
    };
    for (const auto &[name, value] : router)
        expect_change_refused("layers/0/plectrum/router", "{\"" + name + "\": " + value + "}",
                              "WrongType", {"`layers[0].plectrum.router." + name + "`"});
    expect_change_refused("layers/0/plectrum/router", R"({"groups_used": 2})", "MissingField",
                          {"groups"});
    const std::vector<std::array<std::string, 3>> dense = {
        {R"({"dense": {}})", "WrongType", "`plectrum.dense`"},
        {R"({"dense": [1]})", "WrongType", "`plectrum.dense[0]`"},
        {R"({"dense": [{"layer": 0}]})", "MissingField", "storage"},
        {R"({"dense": [{"storage": "a"}]})", "MissingField", "layer"},
        {R"({"dense": [{"layer": 0, "storage": "../a"}]})", "UnsafeKey",
         "`plectrum.dense[0].storage`"},
        {R"({"dense": [{"layer": "0", "storage": "a"}]})", "WrongType", "layer"},
        {R"({"dense": [{"layer": 0, "storage": "a", "expert": {"activation": "tanh"}}]})",
         "UnknownVariant", "`plectrum.dense[0].expert`"},
        {R"({"dense": [{"layer": 0, "storage": "a", "control": "/c"}]})", "UnsafeKey",
         "`plectrum.dense[0].control`"},
    };
    for (const auto &[value, name, fact] : dense)
        expect_change_refused("plectrum", value, name, {fact});
    const std::vector<std::array<std::string, 3>> branch = {
        {"[]", "WrongType", "`layers[0].plectrum.dense_branch`"},
        {"{}", "MissingField", "storage"},
        {R"({"storage": "a/../b"})", "UnsafeKey", "storage"},
        {R"({"storage": "a", "expert": {"limit": "7"}})", "WrongType", "limit"},
    };
    for (const auto &[value, name, fact] : branch)
        expect_change_refused("layers/0/plectrum/dense_branch", value, name, {fact});
    expect_change_refused("layers/0/plectrum/out_scale", "\"1\"", "WrongType", {"out_scale"});
}

TEST(Moe, UnknownWordsAreRefusedWithWhatWasExpected) {
    const std::vector<std::pair<std::string, std::string>> words = {
        {"layers/0/input_space", "[residual, latent]"},
        {"layers/0/router/activation", "[softmax, sigmoid]"},
        {"layers/0/router/selection/kind", "[top_k, grouped_top_k]"},
        {"layers/0/reduction", "[gate_weighted_sum]"},
        {"layers/0/combine", "[residual_add]"},
        {"layers/0/plectrum/expert/activation",
         "[silu, gelu_tanh, gelu_erf, relu, clamped_glu, clamped_gated, situ_glu, relu_sqr, "
         "silu_step]"},
        {"layers/0/plectrum/shared_expert/activation", "[silu, "},
    };
    for (const auto &[path, expected] : words)
        expect_change_refused(
            path, "\"nope\"", "UnknownVariant",
            {"unknown variant `nope` for `" + last_part(path) + "`, expected one of " + expected});
    for (const char *name : {"gating", "select_on", "weight_on", "ids_from", "input"})
        expect_change_refused("layers/0/plectrum/router",
                              std::string("{\"") + name + "\": \"nope\"}", "UnknownVariant",
                              {"`nope` for `" + std::string(name) + "`"});
    /* Names are whole and spelled in lower case. */
    for (const char *word : {"\"SoftMax\"", "\"softmax \"", "\"\""})
        expect_change_refused("layers/0/router/activation", word, "UnknownVariant", {"activation"});
}

TEST(Moe, EveryActivationTheExecutorsKnowIsReadAndNoOther) {
    for (int i = 0; i < PLEC_N_ACTIVATIONS; i++) {
        std::string name = plec_activation_name(static_cast<plec_activation>(i));
        Json document = latent_document();
        set_member(document.get(), "layers/0/plectrum/expert/activation", "\"" + name + "\"");
        Moe moe(document.get());
        EXPECT_EQ(moe.layers[0].expert.activation, name);
    }
    plec_error err = {};
    plec_moe moe = {};
    Json document = latent_document();
    set_member(document.get(), "layers/0/plectrum/expert/activation", "\"x\"");
    EXPECT_EQ(plec_moe_read(&moe, document.get(), &err), PLEC_MALFORMED);
    std::string list = err.message;
    EXPECT_EQ(std::count(list.begin(), list.end(), ','), PLEC_N_ACTIVATIONS)
        << "one comma ahead of the list, one between two names: " << list;
}

TEST(Moe, NumbersAndNamesOutOfRangeAreRefusedByPath) {
    expect_change_refused("layers/0/layer", "4294967296", "IntegerRange", {"`layers[0].layer`"});
    expect_change_refused("layers/0/router/selection/k", "4294967296", "IntegerRange",
                          {"`layers[0].router.selection.k`"});
    for (const char *path : {"layers/0/routed_bank/storage", "layers/0/shared_bank/storage",
                             "layers/0/plectrum/control"}) {
        expect_change_refused(path, "\"/abs\"", "UnsafeKey", {last_part(path), "/abs"});
        expect_change_refused(path, "\"a/../b\"", "UnsafeKey", {last_part(path)});
        expect_change_refused(path, "\"a\\u0000b\"", "UnsafeKey", {last_part(path), "NUL"});
    }
    expect_change_refused("layers/0/router/scores", "\"a\\u0000b\"", "NulInString", {"scores"});
}

TEST(Moe, NullStandsForAnAbsentOptionalMember) {
    Json document = latent_document();
    for (const char *path :
         {"layers/0/transforms", "layers/0/shared_bank", "layers/0/routed_output_norm",
          "layers/0/router/post/gate_bias", "layers/0/router/post/route_scale",
          "layers/0/routed_bank/expert_dims", "layers/0/plectrum/control",
          "layers/0/plectrum/expert/beta", "layers/0/plectrum/shared_expert", "plectrum"})
        set_member(document.get(), path, "null");
    Moe moe(document.get());
    EXPECT_FALSE(moe.layers[0].expert.has_beta);
    EXPECT_FALSE(moe.layers[0].shared.present);
}

TEST(Moe, IntegersServeAsNumbers) {
    Json document = latent_document();
    set_member(document.get(), "layers/0/router/post/route_scale", "8");
    set_member(document.get(), "layers/0/plectrum/expert/beta", "4");
    Moe moe(document.get());
    EXPECT_EQ(moe.layers[0].router.route_scale, 8.0);
    EXPECT_EQ(moe.layers[0].expert.beta, 4.0);
    EXPECT_TRUE(json_is_integer(json_object_get(
        json_object_get(
            json_object_get(json_array_get(json_object_get(moe.document, "layers"), 0), "router"),
            "post"),
        "route_scale")))
        << "the document keeps the spelling";
}

TEST(Moe, UnknownMembersAreKeptAndIgnoredAtEveryLevel) {
    Json document = latent_document();
    set_member(document.get(), "plectrum", R"({"dense": [{"layer": 7, "storage": "d"}]})");
    for (const char *path :
         {"zz", "layers/0/zz", "layers/0/router/zz", "layers/0/router/selection/zz",
          "layers/0/router/post/zz", "layers/0/transforms/zz", "layers/0/routed_bank/zz",
          "layers/0/shared_bank/zz", "layers/0/plectrum/zz", "layers/0/plectrum/expert/zz",
          "plectrum/zz", "plectrum/dense/0/zz"})
        set_member(document.get(), path, "[9223372036854775807, {\"a\": \"\\u0000\"}, 1e-300]");
    Moe moe(document.get());
    TempDir dir;
    plec_error err = {};
    ASSERT_EQ(plec_json_store(dir.path("m").c_str(), moe.document, &err), PLEC_OK) << err.message;
    EXPECT_TRUE(same_document(document.get(), load_json(dir.path("m")).get()));
}

/* The seed that reaches every reader would be worth nothing if it were refused early. */
TEST(Moe, TheRichestFuzzSeedIsRead) {
    Json document = load_json(data_path("fuzz/moe/everything.json"));
    Moe moe(document.get());
    EXPECT_TRUE(moe.layers[0].router.extra.given);
    EXPECT_EQ(moe.n_dense, 1u);
}

TEST(Moe, GroupsOfTopKCountForEveryGroupOnly) {
    plec_moe_router router = {};
    router.selection = PLEC_GROUPED_TOP_K;
    router.k = 3;
    router.groups = 4;
    EXPECT_EQ(plec_moe_experts_per_token(&router), 12u);
    router.k = router.groups = UINT32_MAX;
    EXPECT_EQ(plec_moe_experts_per_token(&router), UINT32_MAX);
    router.selection = PLEC_TOP_K;
    router.k = 3;
    EXPECT_EQ(plec_moe_experts_per_token(&router), 3u) << "stray groups do not count";
}

TEST(Moe, FindsLayersByNumber) {
    Json document(std::string(R"({"schema_version": 1, "layers": []})"));
    json_t *layers = json_object_get(document.get(), "layers");
    Json source = latent_document();
    for (int number : {9, 2, 5, 2}) {
        json_t *layer = json_deep_copy(json_array_get(json_object_get(source.get(), "layers"), 0));
        json_object_set_new(layer, "layer", json_integer(number));
        json_array_append_new(layers, layer);
    }
    Moe moe(document.get());
    EXPECT_EQ(moe.layers[0].layer, 9u) << "document order is kept";
    EXPECT_EQ(plec_moe_find_layer(&moe, 9), &moe.layers[0]);
    EXPECT_EQ(plec_moe_find_layer(&moe, 2), &moe.layers[1]) << "the first of two";
    EXPECT_EQ(plec_moe_find_layer(&moe, 5), &moe.layers[2]);
    EXPECT_EQ(plec_moe_find_layer(&moe, 3), nullptr);
    EXPECT_EQ(defects(document.get()), "DuplicateLayer: layer=2");
}

TEST(Defects, EachIsToldByNameWithItsCoordinates) {
    expect_defects({}, "");
    expect_defects({{"schema_version", "2"}, {"layers/0/routed_bank/experts", "0"}},
                   "UnsupportedSchemaVersion: found=2 supported=1");
    expect_defects({{"layers/0/routed_bank/programme", "\"x\""}},
                   "UnknownProgramme: layer=1 storage=routed/layer_001 programme=x");
    expect_defects({{"layers/0/shared_bank/programme", "\"x\""}},
                   "UnknownProgramme: layer=1 storage=shared/layer_001 programme=x");
    expect_defects({{"layers/0/transforms", "null"}},
                   "LatentBankWithoutTransforms: layer=1 which=routed programme=latent-moe-v1");
    expect_defects({{"layers/0/shared_bank/programme", "\"latent-moe-v1\""}}, "");
    expect_defects({{"layers/0/input_space", "\"residual\""}},
                   "InputSpaceContradictsProgramme: layer=1 declared=residual "
                   "programme=latent-moe-v1");
    expect_defects({{"layers/0/routed_bank/programme", "\"gated-mlp-v1\""}},
                   "InputSpaceContradictsProgramme: layer=1 declared=latent "
                   "programme=gated-mlp-v1");
    expect_defects({{"layers/0/routed_bank/programme", "\"plectrum-latent-mlp-v1\""}}, "");
    for (const char *blank : {"\"\"", "\" \"", "\"\\t\\n\"", "\"\\u00a0\\u2003\\u3000\""})
        expect_defects({{"layers/0/router/scores", blank}}, "RouterHasNoScores: layer=1");
    expect_defects({{"layers/0/router/scores", "\"\\u200b\""}}, "");
    expect_defects({{"layers/0/router/selection/k", "13"}},
                   "SelectionExceedsBank: layer=1 selected=13 available=12");
    expect_defects({{"layers/0/router/selection",
                     R"({"kind": "grouped_top_k", "k": 4294967295, "groups": 4294967295})"}},
                   "SelectionExceedsBank: layer=1 selected=18446744065119617025 available=12");
    expect_defects(
        {{"layers/0/router/selection", R"({"kind": "grouped_top_k", "k": 3, "groups": 4})"}}, "");
    expect_defects(
        {{"layers/0/shared_bank", "null"}, {"layers/0/router/shared_expert_sink", "true"}},
        "SinkWithoutSharedBank: layer=1");
    for (const char *blank : {"\"\"", "\" \""})
        expect_defects(
            {{"layers/0/routed_bank/storage", blank}, {"layers/0/shared_bank/storage", blank}},
            "BankHasNoStorage: layer=1 which=routed; BankHasNoStorage: layer=1 "
            "which=shared");
    expect_defects({{"layers/0/shared_bank/experts", "0"}},
                   "BankHasNoExperts: layer=1 which=shared");
    expect_defects(
        {{"layers/0/shared_bank/expert_dims", R"({"input": 0, "intermediate": 2, "output": 3})"}},
        "BankHasZeroDimension: layer=1 which=shared input=0 intermediate=2 output=3");
    expect_defects({{"layers/0/shared_bank/storage", "\"routed/layer_001\""}},
                   "DuplicateBankStorage: layer=1 storage=routed/layer_001");
}

TEST(Defects, OfOurAdditionsAreToldToo) {
    const std::pair<const char *, const char *> routers[] = {
        {R"({"groups": 4, "groups_used": 2})", ""},
        {R"({"groups": 4})", ""},
        {R"({"groups": 5, "groups_used": 2})",
         "BadGroups: layer=1 groups=5 groups_used=2 experts=12"},
        {R"({"groups": 4, "groups_used": 5})",
         "BadGroups: layer=1 groups=4 groups_used=5 experts=12"},
        {R"({"groups": 4, "groups_used": 0})",
         "BadGroups: layer=1 groups=4 groups_used=0 experts=12"},
        {R"({"groups": 0})", "BadGroups: layer=1 groups=0 groups_used=0 experts=12"},
    };
    for (const auto &[router, wanted] : routers)
        expect_defects({{"layers/0/plectrum/router", router}}, wanted);
    expect_defects({{"layers/0/plectrum/dense_branch", R"({"storage": "  "})"}},
                   "BankHasNoStorage: layer=1 which=dense_branch");
    for (const char *storage : {"routed/layer_001", "shared/layer_001"})
        expect_defects(
            {{"layers/0/plectrum/dense_branch", std::string("{\"storage\": \"") + storage + "\"}"}},
            std::string("DuplicateBankStorage: layer=1 which=dense_branch storage=") + storage);
    expect_defects({{"plectrum", R"({"dense": [{"layer": 4, "storage": "a"},
                                               {"layer": 3, "storage": " "},
                                               {"layer": 4, "storage": "b"}]})"}},
                   "BankHasNoStorage: layer=3 which=dense; DuplicateLayer: layer=4 which=dense");
}

TEST(Defects, AreAllToldAtOnce) {
    expect_defects({{"layers/0/routed_bank/programme", "\"x\""},
                    {"layers/0/router/scores", "\"\""},
                    {"layers/0/routed_bank/experts", "0"},
                    {"layers/0/shared_bank", "null"},
                    {"layers/0/router/shared_expert_sink", "true"}},
                   "UnknownProgramme: layer=1 storage=routed/layer_001 programme=x; "
                   "RouterHasNoScores: layer=1; "
                   "SelectionExceedsBank: layer=1 selected=3 available=0; "
                   "SinkWithoutSharedBank: layer=1; BankHasNoExperts: layer=1 which=routed");
}

TEST(Defects, NoneInTheRunnableContainers) {
    for (const char *name : {"run01_sigmoid_two_segments", "run02_gpt_oss_bias", "run03_latent"})
        EXPECT_EQ(defects(fixture(std::string("run/") + name).get()), "") << name;
}

TEST(MoeBuild, MakesTheWrittenFixturesByteForByte) {
    for (const char *name :
         {"c01_gated_decomposed_f32", "c02_mxfp4_as_imported", "c03_hybrid_dense_layer_1",
          "c05_sigmoid_routers", "c06_packs_and_profiles"}) {
        std::string path = data_path(std::string("containers/") + name + "/moe_manifest.json");
        Json document = load_json(path);
        Moe moe(document.get());
        Json built;
        plec_error err = {};
        ASSERT_EQ(plec_moe_build(built.out(), &err), PLEC_OK);
        for (size_t i = 0; i < moe.n_layers; i++)
            ASSERT_EQ(plec_moe_build_layer(built.get(), &moe.layers[i], &err), PLEC_OK)
                << err.message;
        EXPECT_EQ(format_json(built.get()), read_text(path));
    }
}

TEST(MoeBuild, OurAdditionsReadBackAsBuilt) {
    Json document = latent_document();
    set_member(document.get(), "layers/0/plectrum/router",
               R"({"gating": "softmax_selected", "select_on": "scores", "groups": 4,
                   "groups_used": 2, "normalise": false, "norm_floor": 0.1, "scale": 2.5,
                   "weight_on": "output", "ids_from": "tokens", "input": "attention",
                   "input_eps": 1e-5})");
    set_member(document.get(), "layers/0/plectrum/dense_branch",
               R"({"storage": "dense/layer_001", "expert": {"activation": "gelu_tanh"}})");
    set_member(document.get(), "layers/0/plectrum/out_scale", "0.7071067811865476");
    set_member(document.get(), "layers/0/plectrum/left_out", "\"blk.1.ffn_up.weight\"");
    Moe moe(document.get());
    Json built;
    plec_error err = {};
    ASSERT_EQ(plec_moe_build(built.out(), &err), PLEC_OK);
    ASSERT_EQ(plec_moe_build_layer(built.get(), &moe.layers[0], &err), PLEC_OK) << err.message;
    plec_moe_dense dense = {};
    dense.layer = 0;
    dense.storage = "dense/layer_000";
    dense.control = "control/layer_000";
    dense.expert.given = dense.expert.has_limit = true;
    dense.expert.activation = "clamped_gated";
    dense.expert.limit = 10;
    ASSERT_EQ(plec_moe_build_dense(built.get(), &dense, &err), PLEC_OK) << err.message;

    json_t *before = json_array_get(json_object_get(document.get(), "layers"), 0);
    json_t *after = json_array_get(json_object_get(built.get(), "layers"), 0);
    EXPECT_TRUE(
        json_equal(json_object_get(before, "plectrum"), json_object_get(after, "plectrum")));
    Moe again(built.get());
    ASSERT_EQ(again.n_dense, 1u);
    EXPECT_STREQ(again.dense[0].storage, "dense/layer_000");
    EXPECT_STREQ(again.dense[0].control, "control/layer_000");
    EXPECT_TRUE(again.layers[0].branch.present && again.layers[0].has_out_scale);
    EXPECT_STREQ(again.layers[0].branch.storage, "dense/layer_001");
    EXPECT_EQ(again.layers[0].out_scale, 0.7071067811865476);
    EXPECT_STREQ(again.layers[0].left_out, "blk.1.ffn_up.weight");
    EXPECT_STREQ(again.layers[0].router.extra.ids_from, "tokens");
    EXPECT_STREQ(again.layers[0].router.extra.input, "attention");
    EXPECT_EQ(again.layers[0].router.extra.input_eps, 1e-5);
    EXPECT_STREQ(again.dense[0].expert.activation, "clamped_gated");
    EXPECT_EQ(again.dense[0].expert.limit, 10.0);
    EXPECT_EQ(defects(built.get()), "");
}

TEST(MoeBuild, RefusesWhatCouldNotBeReadBackAndLeavesTheDocument) {
    Json document = latent_document();
    Moe moe(document.get());
    Json built;
    plec_error err = {};
    ASSERT_EQ(plec_moe_build(built.out(), &err), PLEC_OK);
    auto refuse = [&](const plec_moe_layer &layer, const char *name) {
        std::string before = format_json(built.get());
        EXPECT_EQ(plec_moe_build_layer(built.get(), &layer, &err), PLEC_BAD_INPUT) << name;
        EXPECT_STREQ(err.name, name);
        EXPECT_EQ(format_json(built.get()), before);
    };
    plec_moe_layer layer = moe.layers[0];
    layer.routed.storage = "../x";
    refuse(layer, "UnsafeKey");
    layer = moe.layers[0];
    layer.control = "/x";
    refuse(layer, "UnsafeKey");
    layer = moe.layers[0];
    layer.branch.present = true;
    layer.branch.storage = "a//..";
    refuse(layer, "UnsafeKey");
    layer = moe.layers[0];
    layer.router.scores = "\xff";
    refuse(layer, "BadValue");
    layer = moe.layers[0];
    layer.norm_eps = std::numeric_limits<double>::quiet_NaN();
    refuse(layer, "BadValue");
    ASSERT_EQ(plec_moe_build_layer(built.get(), &moe.layers[0], &err), PLEC_OK);
    refuse(moe.layers[0], "DuplicateLayer");
    plec_moe_dense dense = {};
    dense.storage = "/x";
    EXPECT_EQ(plec_moe_build_dense(built.get(), &dense, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "UnsafeKey");
}

/* Every single member of a manifest, removed or replaced by each type of value: read or refused,
 * never more. The sanitizer builds make this bite. */
TEST(Moe, AnyOneMemberOfAnyTypeIsReadOrRefused) {
    const char *const values[] = {"null", "true", "-1", "0", "1e308", "\"\"", "[]", "{}", "[{}]"};
    Json whole = latent_document();
    std::vector<std::string> paths;
    std::function<void(json_t *, const std::string &)> walk = [&](json_t *at,
                                                                  const std::string &path) {
        if (json_is_array(at))
            for (size_t i = 0; i < json_array_size(at); i++)
                walk(json_array_get(at, i), path + "/" + std::to_string(i));
        for (void *i = json_object_iter(at); i != nullptr; i = json_object_iter_next(at, i)) {
            std::string member = (path.empty() ? "" : path + "/") + json_object_iter_key(i);
            paths.push_back(member);
            walk(json_object_iter_value(i), member);
        }
    };
    walk(whole.get(), "");
    ASSERT_EQ(paths.size(), 38u);
    size_t n_read = 0, n_refused = 0;
    for (const std::string &path : paths) {
        for (const char *value : values) {
            Json document = latent_document();
            set_member(document.get(), path, value);
            plec_moe moe = {};
            plec_error err = {};
            if (plec_moe_read(&moe, document.get(), &err) == PLEC_OK) {
                plec_findings findings = {};
                plec_moe_defects(&findings, &moe);
                plec_findings_clear(&findings);
                n_read++;
            } else {
                EXPECT_NE(std::string(err.message).find(last_part(path)), std::string::npos)
                    << path << " " << value << ": " << err.message;
                n_refused++;
            }
            plec_moe_close(&moe);
        }
    }
    EXPECT_GT(n_read, 20u);
    EXPECT_GT(n_refused, 200u);
}
