#include "host/runner.h"
#include "tests/support/allocation_guard.h"
#include "tests/support/bank_files.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <thread>
#include <vector>

using namespace plec_test;

namespace {

const float NAN_F32 = std::numeric_limits<float>::quiet_NaN();
const plec_run_device DEVICES[] = {PLEC_RUN_REFERENCE, PLEC_RUN_CPU};

/* A container and a runner on it. */
class Runner {
  public:
    Runner(const std::string &path, plec_runner_options options, const char *profile = nullptr) {
        plec_container_options open = {};
        open.profile = profile;
        status = plec_container_open(&container_, path.c_str(), &open, &err);
        if (status == PLEC_OK) status = plec_runner_open(&runner, container_, &options, &err);
        EXPECT_EQ(status, PLEC_OK) << err.message;
    }
    ~Runner() {
        plec_runner_close(runner);
        plec_container_close(container_);
    }
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;

    plec_runner *runner = nullptr;
    plec_status status;
    plec_error err = {};

  private:
    plec_container *container_ = nullptr;
};

plec_runner_options on(plec_run_device device, uint32_t max_tokens = 16, uint32_t max_slots = 4) {
    plec_runner_options options = {};
    options.device = device;
    options.max_tokens = max_tokens;
    options.max_slots = max_slots;
    options.n_threads = 2;
    return options;
}

/* One case of data/run: its layer, arrays, and a forward over them. */
struct Case {
    explicit Case(const std::string &name) : path(data_path("run/" + name)) {
        x = read_npy(path + "/x.npy");
        ids = read_npy(path + "/ids.npy");
        weights = read_npy(path + "/weights.npy");
        y = read_npy(path + "/y.npy");
        std::string text = read_text(path + "/case.json");
        layer = static_cast<uint32_t>(std::stoul(text.substr(text.find("\"layer\":") + 8)));
        x_f32 = x.f32();
        ids_i32 = ids.i32();
        weights_f32 = weights.f32();
        out.resize(x_f32.size());
        ids_out.resize(ids_i32.size());
        weights_out.resize(ids_i32.size());
    }
    uint32_t tokens() const { return static_cast<uint32_t>(x.shape[0]); }
    uint32_t hidden() const { return static_cast<uint32_t>(x.shape[1]); }
    uint32_t slots() const { return static_cast<uint32_t>(ids.shape[1]); }
    /* Forward of the whole case by the layer's router, outputs poisoned first. */
    plec_forward_args args() {
        std::fill(out.begin(), out.end(), NAN_F32);
        std::fill(ids_out.begin(), ids_out.end(), -7);
        std::fill(weights_out.begin(), weights_out.end(), NAN_F32);
        plec_forward_args args = {};
        args.layer = layer;
        args.n_tokens = tokens();
        args.hidden = x_f32.data();
        args.out = out.data();
        args.ids_out = ids_out.data();
        args.weights_out = weights_out.data();
        return args;
    }

    std::string path;
    uint32_t layer;
    Npy x, ids, weights, y;
    std::vector<float> x_f32, weights_f32, out, weights_out;
    std::vector<int32_t> ids_i32, ids_out;
};

std::vector<std::string> case_names() {
    std::vector<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(data_path("run")))
        if (entry.is_directory()) names.push_back(entry.path().filename().string());
    std::sort(names.begin(), names.end());
    return names;
}

class RunCase : public testing::TestWithParam<std::string> {};

TEST_P(RunCase, RoutesAndComputesAsWritten) {
    Case c(GetParam());
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_error err = {};
        plec_forward_args args = c.args();
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        EXPECT_EQ(c.ids_out, c.ids_i32);
        for (size_t i = 0; i < c.weights_out.size(); i++)
            EXPECT_NEAR(c.weights_out[i], c.weights.values[i], 1e-6);
        EXPECT_LT(nmse(c.out, c.y.values), device == PLEC_RUN_REFERENCE ? 1e-12 : 1e-9);
    }
}

TEST_P(RunCase, TheCallersRoutingGivesTheSame) {
    Case c(GetParam());
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_error err = {};
        plec_forward_args args = c.args();
        args.ids = c.ids_i32.data();
        args.weights = c.weights_f32.data();
        args.n_slots = c.slots();
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        EXPECT_EQ(c.ids_out, c.ids_i32);
        EXPECT_EQ(c.weights_out, c.weights_f32);
        EXPECT_LT(nmse(c.out, c.y.values), device == PLEC_RUN_REFERENCE ? 1e-12 : 1e-9);
    }
}

TEST_P(RunCase, EveryTokenIsIndependentOfItsBatchMates) {
    Case c(GetParam());
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_error err = {};
        plec_forward_args args = c.args();
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        std::vector<float> together = c.out, alone(c.hidden());
        for (uint32_t t = 0; t < c.tokens(); t++) {
            args.n_tokens = 1;
            args.hidden = c.x_f32.data() + size_t(t) * c.hidden();
            args.out = alone.data();
            ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
            EXPECT_EQ(memcmp(alone.data(), together.data() + size_t(t) * c.hidden(),
                             c.hidden() * sizeof(float)),
                      0)
                << "token " << t;
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Runner, RunCase, testing::ValuesIn(case_names()),
                         [](const auto &run) { return run.param; });

uint16_t to_bf16(float value) {
    uint32_t bits;
    memcpy(&bits, &value, 4);
    return static_cast<uint16_t>(bits >> 16);
}

/* Exact for what this file gives it: multiples of 1/64 below 8. */
uint16_t to_f16(float value) {
    if (value == 0) return 0;
    int exponent;
    float fraction = std::frexp(std::fabs(value), &exponent);
    auto mantissa = static_cast<uint32_t>((fraction * 2 - 1) * 1024);
    return static_cast<uint16_t>((value < 0 ? 0x8000u : 0u) |
                                 static_cast<uint32_t>(exponent + 14) << 10 | mantissa);
}

TEST(Runner, HiddenStatesMayBeF16OrBf16) {
    Case c("run01_sigmoid_two_segments");
    std::vector<uint16_t> halves(c.x_f32.size());
    Runner r(c.path, on(PLEC_RUN_CPU));
    plec_error err = {};
    for (plec_element type : {PLEC_ELEMENT_F16, PLEC_ELEMENT_BF16}) {
        for (size_t i = 0; i < halves.size(); i++) {
            c.x_f32[i] = static_cast<float>(static_cast<int>(i * 37 % 61) - 30) / 64;
            halves[i] = type == PLEC_ELEMENT_F16 ? to_f16(c.x_f32[i]) : to_bf16(c.x_f32[i]);
        }
        plec_forward_args args = c.args();
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        std::vector<float> wide = c.out;
        args = c.args();
        args.hidden = halves.data();
        args.hidden_type = type;
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        EXPECT_EQ(c.out, wide) << "the values are exact in all three types";
    }
}

TEST(Runner, NoTokensIsANoOp) {
    Case c("run02_gpt_oss_bias");
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_forward_args args = c.args();
        args.n_tokens = 0;
        args.hidden = nullptr;
        args.out = nullptr;
        EXPECT_EQ(plec_runner_forward(r.runner, &args, nullptr), PLEC_OK);
        args.layer = 9;
        EXPECT_EQ(plec_runner_forward(r.runner, &args, nullptr), PLEC_MISSING);
    }
}

/* The name of a refused forward; "" when it ran. */
std::string refusal(plec_runner *runner, const plec_forward_args &args, plec_error *err) {
    *err = {};
    return plec_runner_forward(runner, &args, err) == PLEC_OK ? "" : err->name;
}

TEST(Runner, BadRoutingIsRefusedWithTokenSlotAndId) {
    Case c("run01_sigmoid_two_segments");
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_error err;
        for (int32_t bad : {-1, 16, INT32_MAX, INT32_MIN}) {
            std::vector<int32_t> ids = c.ids_i32;
            ids[2 * c.slots() + 3] = bad;
            plec_forward_args args = c.args();
            args.ids = ids.data();
            args.weights = c.weights_f32.data();
            args.n_slots = c.slots();
            EXPECT_EQ(refusal(r.runner, args, &err), "BadExpertId");
            EXPECT_NE(std::string(err.message).find("token 2 slot 3: id " + std::to_string(bad)),
                      std::string::npos)
                << err.message;
            EXPECT_TRUE(std::isnan(c.out[0])) << "nothing was written";
        }
        plec_forward_args args = c.args();
        args.ids = c.ids_i32.data();
        EXPECT_EQ(refusal(r.runner, args, &err), "RoutingIncomplete");
        args.weights = c.weights_f32.data();
        EXPECT_EQ(refusal(r.runner, args, &err), "NoSlots");
        args.n_slots = 5;
        EXPECT_EQ(refusal(r.runner, args, &err), "TooManySlots");
        args = c.args();
        args.n_tokens = 17;
        EXPECT_EQ(refusal(r.runner, args, &err), "TooManyTokens");
        args = c.args();
        args.out = nullptr;
        EXPECT_EQ(refusal(r.runner, args, &err), "NoArray");
        args = c.args();
        args.layer = 4;
        EXPECT_EQ(refusal(r.runner, args, &err), "NoSuchLayer");
    }
}

TEST(Runner, EverySlotIsATermEvenWhenAnIdRepeats) {
    Case c("run02_gpt_oss_bias");
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_error err = {};
        const std::vector<int32_t> twice = {5, 5, 5}, once = {5};
        const std::vector<float> parts = {0.5f, 0.25f, -0.125f}, sum = {0.625f};
        plec_forward_args args = c.args();
        args.n_tokens = 1;
        args.ids_out = nullptr;
        args.weights_out = nullptr;
        args.ids = once.data();
        args.weights = sum.data();
        args.n_slots = 1;
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        std::vector<double> whole(c.out.begin(), c.out.begin() + c.hidden());
        args.ids = twice.data();
        args.weights = parts.data();
        args.n_slots = 3;
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        std::vector<float> split(c.out.begin(), c.out.begin() + c.hidden());
        EXPECT_LT(nmse(split, whole), 1e-12);
    }
}

TEST(Runner, NanTokensAreNamedBlankedAndLeaveTheOthersRight) {
    Case c("run01_sigmoid_two_segments");
    for (plec_run_device device : DEVICES) {
        for (bool caller : {false, true}) {
            Runner r(c.path, on(device));
            plec_error err = {};
            std::vector<float> clean = c.x_f32;
            c.x_f32[2 * c.hidden() + 5] = NAN_F32;
            c.x_f32[4 * c.hidden()] = NAN_F32;
            plec_forward_args args = c.args();
            if (caller) {
                args.ids = c.ids_i32.data();
                args.weights = c.weights_f32.data();
                args.n_slots = c.slots();
            }
            EXPECT_EQ(refusal(r.runner, args, &err), "NanScores");
            EXPECT_EQ(err.code, PLEC_BAD_INPUT);
            EXPECT_NE(std::string(err.message).find("token 2"), std::string::npos) << err.message;
            for (uint32_t t = 0; t < c.tokens(); t++) {
                bool bad = t == 2 || t == 4;
                std::vector<float> row(c.out.begin() + t * c.hidden(),
                                       c.out.begin() + (t + 1) * c.hidden());
                std::vector<double> expected(c.y.values.begin() + t * c.hidden(),
                                             c.y.values.begin() + (t + 1) * c.hidden());
                for (float value : row)
                    EXPECT_EQ(std::isnan(value), bad) << t;
                for (uint32_t i = t * c.slots(); i < (t + 1) * c.slots(); i++) {
                    EXPECT_EQ(c.ids_out[i], bad ? -1 : c.ids_i32[i]);
                    EXPECT_EQ(std::isnan(c.weights_out[i]), bad);
                }
                if (!bad) {
                    EXPECT_LT(nmse(row, expected), 1e-9) << t;
                }
            }
            c.x_f32 = clean;
        }
    }
}

TEST(Runner, ACallersWeightThatIsNoNumberIsNamed) {
    Case c("run02_gpt_oss_bias");
    Runner r(c.path, on(PLEC_RUN_CPU));
    plec_error err;
    for (float bad : {NAN_F32, std::numeric_limits<float>::infinity()}) {
        std::vector<float> weights = c.weights_f32;
        weights[3 * c.slots() + 1] = bad;
        plec_forward_args args = c.args();
        args.ids = c.ids_i32.data();
        args.weights = weights.data();
        args.n_slots = c.slots();
        EXPECT_EQ(refusal(r.runner, args, &err), "NanScores");
        EXPECT_NE(std::string(err.message).find("token 3"), std::string::npos) << err.message;
        EXPECT_TRUE(std::isnan(c.out[3 * c.hidden()]));
        EXPECT_FALSE(std::isnan(c.out[2 * c.hidden()]));
    }
}

TEST(Runner, RoutedOnlyLeavesSharedExpertsOut) {
    Case c("run01_sigmoid_two_segments");
    for (plec_run_device device : DEVICES) {
        Runner r(c.path, on(device));
        plec_error err = {};
        plec_forward_args args = c.args();
        args.routed_only = true;
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        EXPECT_GT(nmse(c.out, c.y.values), 1e-3);
        std::vector<float> routed = c.out, zeros(c.weights_f32.size(), 0);
        args = c.args();
        args.ids = c.ids_i32.data();
        args.weights = zeros.data();
        args.n_slots = c.slots();
        ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        for (size_t i = 0; i < routed.size(); i++)
            routed[i] += c.out[i];
        EXPECT_LT(nmse(routed, c.y.values), 1e-9) << "routed + shared is the whole";
    }
}

TEST(Runner, OnlyTheLayersAskedForAreBound) {
    Case c("run03_latent");
    plec_runner_options options = on(PLEC_RUN_REFERENCE);
    const uint32_t layers[] = {c.layer};
    options.layers = layers;
    options.n_layers = 1;
    Runner r(c.path, options);
    ASSERT_NE(plec_runner_layer(r.runner, c.layer), nullptr);
    EXPECT_EQ(plec_runner_layer(r.runner, c.layer)->layer.hidden_size, c.hidden());
    EXPECT_EQ(plec_runner_layer(r.runner, 0), nullptr);
    EXPECT_STREQ(plec_runner_device_name(r.runner), "reference");
    const uint32_t absent[] = {55};
    options.layers = absent;
    plec_container *container = nullptr;
    ASSERT_EQ(plec_container_open(&container, c.path.c_str(), nullptr, nullptr), PLEC_OK);
    plec_runner *runner = nullptr;
    plec_error err = {};
    EXPECT_EQ(plec_runner_open(&runner, container, &options, &err), PLEC_MISSING);
    EXPECT_STREQ(err.name, "NoSuchLayer");
    EXPECT_EQ(runner, nullptr);
    plec_container_close(container);
}

TEST(Runner, ALayerWithoutARouterNeedsTheCallersRouting) {
    BankDirectory dir;
    std::string path = dir.write();
    std::vector<float> x(8, 0.5f), out(8, NAN_F32);
    for (plec_run_device device : DEVICES) {
        Runner r(path, on(device));
        plec_error err;
        plec_forward_args args = {};
        args.n_tokens = 1;
        args.hidden = x.data();
        args.out = out.data();
        EXPECT_EQ(refusal(r.runner, args, &err), "RoutingRequired");
        EXPECT_NE(std::string(err.message).find("layer 0"), std::string::npos) << err.message;
        const int32_t ids[] = {3, 1};
        const float weights[] = {0.5f, 0.5f};
        args.ids = ids;
        args.weights = weights;
        args.n_slots = 2;
        EXPECT_EQ(refusal(r.runner, args, &err), "");
        EXPECT_FALSE(std::isnan(out[0]));
    }
}

/* Layer 4 of one dense f32 expert. */
void make_dense(BankDirectory &dir) {
    BankFile file = gated_bank(PLEC_BANK_DENSE, 1);
    file.layer = 4;
    dir.add("dense/layer_004", file);
    set_member(dir.manifest.get(), "plectrum",
               R"({ "dense": [ { "layer": 4, "storage": "dense/layer_004",
                                 "expert": { "activation": "relu" } } ] })");
}

TEST(Runner, ADenseLayerRoutesEveryTokenToItsExpert) {
    BankDirectory dir;
    make_dense(dir);
    std::string path = dir.write();
    std::vector<float> x(3 * 8), weights = {1, 1, 1};
    for (size_t i = 0; i < x.size(); i++)
        x[i] = static_cast<float>(i % 7) - 3;
    std::vector<int32_t> zeros(3, 0);
    for (plec_run_device device : DEVICES) {
        Runner r(path, on(device));
        plec_error err;
        std::vector<float> own(3 * 8, NAN_F32), given(3 * 8, NAN_F32), weights_out(3, NAN_F32);
        std::vector<int32_t> ids_out(3, -7);
        plec_forward_args args = {};
        args.layer = 4;
        args.n_tokens = 3;
        args.hidden = x.data();
        args.out = own.data();
        args.ids_out = ids_out.data();
        args.weights_out = weights_out.data();
        EXPECT_EQ(refusal(r.runner, args, &err), "") << err.message;
        EXPECT_EQ(ids_out, zeros);
        EXPECT_EQ(weights_out, weights);
        args.out = given.data();
        args.ids = zeros.data();
        args.weights = weights.data();
        args.n_slots = 1;
        EXPECT_EQ(refusal(r.runner, args, &err), "");
        EXPECT_EQ(own, given);
        EXPECT_FALSE(std::isnan(own[0]));
        zeros[1] = 1;
        EXPECT_EQ(refusal(r.runner, args, &err), "BadExpertId");
        zeros[1] = 0;
    }
}

TEST(Runner, AClampCannotHideANanWhenTheCallerRoutes) {
    BankDirectory dir;
    make_dense(dir);
    std::vector<float> x(2 * 8, 0.5f), out(2 * 8);
    x[8 + 3] = NAN_F32;
    for (plec_run_device device : DEVICES) {
        Runner r(dir.write(), on(device));
        plec_error err;
        plec_forward_args args = {};
        args.layer = 4;
        args.n_tokens = 2;
        args.hidden = x.data();
        args.out = out.data();
        EXPECT_EQ(refusal(r.runner, args, &err), "NanScores");
        for (size_t i = 0; i < out.size(); i++)
            EXPECT_EQ(std::isnan(out[i]), i >= 8) << i;
    }
}

TEST(Runner, AProfileReadsItsOwnFiles) {
    BankDirectory dir;
    BankFile other = gated_bank();
    other.seed = 2;
    other.schemas = {matrix(PLEC_ROLE_DOWN, 8, 6)};
    dir.add("routed/other", other);
    dir.set_index("profiles", R"([ { "name": "exact" },
        { "name": "low", "selects": { "layer.0.routed.down": "low" } } ])");
    dir.set_index("variants", R"({ "layer.0.routed.down": { "baseline": "base", "variants": {
        "base": { "storage": "routed/layer_000", "fidelity": "source-exact" },
        "low": { "storage": "routed/other", "fidelity": "analysis-only" } } } })");
    /* The same layer with the variant's matrix in the bank itself. */
    BankDirectory merged;
    auto &bytes = merged.files["routed/layer_000"];
    for (uint32_t e = 0; e < 4; e++)
        memcpy(&bytes[get_offset(bytes, e, 2)],
               &dir.files["routed/other"][get_offset(dir.files["routed/other"], e, 0)], 192);
    std::string path = dir.write(), merged_path = merged.write();

    std::vector<float> x(8);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = static_cast<float>(i) / 8;
    const int32_t ids[] = {3, 1};
    const float weights[] = {0.75f, 0.25f};
    auto run = [&](const std::string &root, const char *profile) {
        Runner r(root, on(PLEC_RUN_CPU), profile);
        std::vector<float> out(8, NAN_F32);
        plec_forward_args args = {};
        args.n_tokens = 1;
        args.hidden = x.data();
        args.ids = ids;
        args.weights = weights;
        args.n_slots = 2;
        args.out = out.data();
        plec_error err = {};
        EXPECT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
        return out;
    };
    EXPECT_EQ(run(path, "low"), run(merged_path, nullptr));
    EXPECT_NE(run(path, "exact"), run(path, "low"));
    EXPECT_EQ(run(path, nullptr), run(path, "exact"));
}

/* NMSE of the CPU's output against the reference's on one input and routing. */
double cpu_against_reference(const std::string &path, plec_forward_args args, uint32_t hidden) {
    std::vector<float> out[2];
    for (int i = 0; i < 2; i++) {
        Runner r(path, on(DEVICES[i]));
        if (r.status != PLEC_OK) return std::numeric_limits<double>::infinity();
        out[i].assign(size_t(args.n_tokens) * hidden, NAN_F32);
        args.out = out[i].data();
        plec_error err = {};
        EXPECT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << path << err.message;
    }
    return nmse(out[1], std::vector<double>(out[0].begin(), out[0].end()));
}

std::vector<float> waves(size_t n) {
    std::vector<float> x(n);
    for (size_t i = 0; i < n; i++)
        x[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i) + 0.3));
    return x;
}

TEST(Runner, ALayerWithEveryPartEqualsTheReference) {
    BankDirectory dir;
    BankFile latent = gated_bank();
    latent.input = latent.output = 5;
    latent.schemas = {matrix(PLEC_ROLE_GATE, 6, 5), matrix(PLEC_ROLE_UP, 6, 5),
                      matrix(PLEC_ROLE_DOWN, 5, 6), matrix(PLEC_ROLE_BIAS, 1, 6),
                      matrix(PLEC_ROLE_BIAS, 1, 6), matrix(PLEC_ROLE_BIAS, 1, 5)};
    dir.add("routed/layer_000", latent);
    dir.set("input_space", "\"latent\"");
    dir.set("routed_bank/programme", "\"latent-moe-v1\"");
    dir.set("transforms", R"({"routed_input": "in", "routed_output": "out"})");
    dir.set("routed_output_norm", "\"norm\"");
    dir.set("router", R"({ "scores": "r", "activation": "sigmoid",
        "selection": { "kind": "grouped_top_k", "k": 1, "groups": 2 },
        "post": { "renormalise": true, "gate_bias": "b", "route_scale": 1.5 } })");
    dir.add_shared(gated_bank(PLEC_BANK_SHARED, 3));
    dir.add_control({matrix(PLEC_ROLE_ROUTER_WEIGHT, 4, 8), matrix(PLEC_ROLE_SELECTION_BIAS, 1, 4),
                     matrix(PLEC_ROLE_ROUTER_BIAS, 1, 4), matrix(PLEC_ROLE_EXPERT_SCALE, 1, 4),
                     matrix(PLEC_ROLE_GATE_SCALE, 1, 4), matrix(PLEC_ROLE_UP_SCALE, 1, 4),
                     matrix(PLEC_ROLE_DOWN_SCALE, 1, 4), matrix(PLEC_ROLE_SHARED_GATE, 1, 8),
                     matrix(PLEC_ROLE_LATENT_IN, 5, 8), matrix(PLEC_ROLE_LATENT_OUT, 8, 5),
                     matrix(PLEC_ROLE_ROUTED_OUTPUT_NORM, 1, 5)});
    std::string path = dir.write();
    std::vector<float> x = waves(16 * 8);
    plec_forward_args args = {};
    args.n_tokens = 16;
    args.hidden = x.data();
    EXPECT_LT(cpu_against_reference(path, args, 8), 1e-9);
    args.routed_only = true;
    EXPECT_LT(cpu_against_reference(path, args, 8), 1e-9);
    dir.set("plectrum/router", R"({ "gating": "softmax", "weight_on": "input" })");
    path = dir.write();
    EXPECT_LT(cpu_against_reference(path, args, 8), 1e-9);
}

TEST(Runner, EveryRunnableLoneFileEqualsTheReference) {
    int n_run = 0;
    for (const char *folder : {"lyrw", "lyrw/odd"})
        for (const std::string &name : list_folder(data_path(folder), ".lyrw")) {
            std::string path = data_path(std::string(folder) + "/" + name + ".lyrw");
            plec_container *container = nullptr;
            ASSERT_EQ(plec_container_open(&container, path.c_str(), nullptr, nullptr), PLEC_OK);
            plec_layer_info info = {};
            plec_bound_layer bound = {};
            if (plec_container_n_layers(container) > 0)
                plec_container_layer_info(&info, container, 0);
            bool runs = plec_container_bind(&bound, container, info.layer, nullptr) == PLEC_OK;
            if (runs) plec_bound_layer_close(&bound);
            plec_container_close(container);
            if (!runs) continue;
            std::vector<float> x = waves(size_t(3) * info.hidden_size);
            auto last = static_cast<int32_t>(info.n_experts) - 1;
            std::vector<int32_t> ids = {0, last, last, 0, last / 2, 0};
            std::vector<float> weights = {0.5f, 0.25f, 1, -1, 0.125f, 2};
            plec_forward_args args = {};
            args.layer = info.layer;
            args.n_tokens = 3;
            args.hidden = x.data();
            args.ids = ids.data();
            args.weights = weights.data();
            args.n_slots = 2;
            EXPECT_LT(cpu_against_reference(path, args, info.hidden_size), 1e-9) << path;
            n_run++;
        }
    EXPECT_GE(n_run, 17);
}

TEST(Runner, EightThreadsGetTheirOwnOutputs) {
    Case c("run01_sigmoid_two_segments");
    Runner r(c.path, on(PLEC_RUN_CPU));
    plec_error err = {};
    plec_forward_args args = c.args();
    ASSERT_EQ(plec_runner_forward(r.runner, &args, &err), PLEC_OK) << err.message;
    const std::vector<float> expected = c.out;
    std::vector<std::thread> threads;
    std::atomic<int> n_wrong{0};
    for (uint32_t i = 0; i < 8; i++)
        threads.emplace_back([&, i] {
            for (uint32_t repeat = 0; repeat < 20; repeat++) {
                uint32_t first = (i + repeat) % c.tokens(), n = 1 + i % (c.tokens() - first);
                std::vector<float> out(size_t(n) * c.hidden(), NAN_F32);
                plec_forward_args own = {};
                own.layer = c.layer;
                own.n_tokens = n;
                own.hidden = c.x_f32.data() + size_t(first) * c.hidden();
                own.out = out.data();
                if (plec_runner_forward(r.runner, &own, nullptr) != PLEC_OK ||
                    memcmp(out.data(), expected.data() + size_t(first) * c.hidden(),
                           out.size() * sizeof(float)) != 0)
                    n_wrong++;
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(n_wrong, 0);
}

TEST(Runner, AStepAllocatesNothing) {
#if PLEC_TEST_COUNTS_ALLOCATIONS
    for (const std::string &name : case_names()) {
        Case c(name);
        for (plec_run_device device : DEVICES) {
            Runner r(c.path, on(device));
            plec_forward_args args = c.args();
            plec_error err = {};
            n_allocations = 0;
            counting = true;
            plec_status first = plec_runner_forward(r.runner, &args, &err);
            args.ids = c.ids_i32.data();
            args.weights = c.weights_f32.data();
            args.n_slots = c.slots();
            plec_status second = plec_runner_forward(r.runner, &args, &err);
            int32_t id = c.ids_i32[0];
            c.ids_i32[0] = -1;
            plec_status third = plec_runner_forward(r.runner, &args, &err);
            counting = false;
            c.ids_i32[0] = id;
            EXPECT_EQ(first, PLEC_OK);
            EXPECT_EQ(second, PLEC_OK);
            EXPECT_EQ(third, PLEC_BAD_INPUT);
            EXPECT_EQ(n_allocations, 0u) << name;
        }
    }
    counting = true;
    void *volatile probe = malloc(24);
    counting = false;
    free(probe);
    EXPECT_GT(n_allocations, 0u) << "the guard sees an allocation when there is one";
#else
    GTEST_SKIP() << "a sanitizer owns malloc in this build";
#endif
}

TEST(Runner, ADeviceThatIsNotBuiltIsNamed) {
    Case c("run02_gpt_oss_bias");
    plec_container *container = nullptr;
    ASSERT_EQ(plec_container_open(&container, c.path.c_str(), nullptr, nullptr), PLEC_OK);
    plec_runner *runner = nullptr;
    plec_error err = {};
    plec_runner_options options = on(PLEC_RUN_CUDA);
    plec_status status = plec_runner_open(&runner, container, &options, &err);
    if (status != PLEC_OK) {
        EXPECT_EQ(status, PLEC_NO_DEVICE) << err.message;
    }
    plec_runner_close(runner);
    plec_container_close(container);
}

} // namespace
