// The runner on the CUDA device: steps as graphs give the bits of steps launched kernel by kernel,
// and the device's router the experts of the host's, on everything under tests/data.
// Built with PLEC_ON_GPU it is the same of a GPU.
#include "tests/support/sources.h"
#include "tests/support/stream_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

using namespace plec_test;

namespace {

const float NAN_F32 = std::numeric_limits<float>::quiet_NaN();
const float INFINITE = std::numeric_limits<float>::infinity();
const uint32_t MAX_TOKENS = 128, SLOTS = 2;

struct Output {
    plec_status status = PLEC_OK;
    std::string name, message;
    std::vector<float> y, weights;
    std::vector<int32_t> ids;
};

/* What a step is asked for, beside the output. */
struct Asked {
    uint32_t seed = 1;
    uint32_t slots = 0; /* of a caller's routing; 0: the router's */
    bool routed_only = false;
    const float *router_input = nullptr;
    plec_forward_args cuts = {}; /* how it may end before it is whole */
};

/* One layer of a container on a device; a layer that cannot be opened has no runner. */
class OneLayer {
  public:
    OneLayer(const std::string &path, uint32_t layer, plec_runner_options options) : layer_(layer) {
        EXPECT_EQ(plec_container_open(&container_, path.c_str(), nullptr, &err), PLEC_OK)
            << err.message;
        if (options.device == PLEC_RUN_AUTO) options.device = PLEC_RUN_CUDA;
        options.max_tokens = MAX_TOKENS;
        options.max_slots = SLOTS;
        options.layers = &layer_;
        options.n_layers = 1;
        if (plec_runner_open(&runner, container_, &options, &err) == PLEC_OK)
            bound = plec_runner_layer(runner, layer);
    }
    ~OneLayer() {
        plec_runner_close(runner);
        plec_container_close(container_);
    }
    OneLayer(const OneLayer &) = delete;
    OneLayer &operator=(const OneLayer &) = delete;

    uint32_t hidden() const { return bound->layer.hidden_size; }
    /* Whether a step needs what only a caller has. */
    bool asks_for_more() const {
        return bound->router_input_required || bound->token_table != nullptr;
    }
    std::vector<float> input(uint32_t n_tokens, uint32_t seed) const {
        std::mt19937 random(seed);
        std::normal_distribution<float> normal;
        std::vector<float> x(size_t(n_tokens) * hidden());
        for (float &value : x)
            value = normal(random);
        return x;
    }
    /* A step of x, by a routing of its own where the container has no router. */
    Output step(const std::vector<float> &x, const Asked &asked = {}) {
        uint32_t n_tokens = uint32_t(x.size() / hidden()), k = bound->layer.router.top_k;
        uint32_t n_experts = bound->layer.routed.n_entries;
        std::vector<int32_t> ids;
        std::vector<float> weights;
        plec_forward_args args = asked.cuts;
        if (bound->routing_required || asked.slots > 0) {
            k = asked.slots > 0 ? asked.slots : SLOTS;
            for (uint32_t i = 0; i < n_tokens * k; i++) {
                ids.push_back(int32_t((7 * i + asked.seed) % n_experts));
                weights.push_back(0.25f + 0.125f * float(i % 5));
            }
            args.ids = ids.data();
            args.weights = weights.data();
            args.n_slots = k;
        }
        Output out;
        out.y.assign(x.size(), NAN_F32);
        out.ids.assign(size_t(n_tokens) * k, -7);
        out.weights.assign(size_t(n_tokens) * k, NAN_F32);
        args.routed_only = asked.routed_only;
        args.router_input = asked.router_input;
        args.layer = layer_;
        args.n_tokens = n_tokens;
        args.hidden = x.data();
        args.out = out.y.data();
        args.ids_out = out.ids.data();
        args.weights_out = out.weights.data();
        out.status = plec_runner_forward(runner, &args, &err);
        if (out.status != PLEC_OK) out.name = err.name, out.message = err.message;
        return out;
    }
    plec_graph_stats stats() const {
        plec_graph_stats stats;
        plec_runner_graph_stats(&stats, runner);
        return stats;
    }

    plec_runner *runner = nullptr;
    const plec_bound_layer *bound = nullptr;
    plec_error err = {};

  private:
    uint32_t layer_;
    plec_container *container_ = nullptr;
};

plec_runner_options eager() {
    plec_runner_options options = {};
    options.eager = true;
    return options;
}

template <class T> bool same_bytes(const std::vector<T> &a, const std::vector<T> &b) {
    return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

void expect_same(const Output &got, const Output &wanted) {
    EXPECT_EQ(got.status, wanted.status) << got.message;
    EXPECT_EQ(got.name, wanted.name);
    EXPECT_EQ(got.message, wanted.message);
    EXPECT_TRUE(same_bytes(got.y, wanted.y));
    EXPECT_EQ(got.ids, wanted.ids);
    EXPECT_TRUE(same_bytes(got.weights, wanted.weights));
}

/* Calls look(path, layer) for every layer that runs on the device; how many there were. */
template <class Look> int every_layer(Look look) {
    int n = 0;
    for (const std::string &path : sources())
        for (const SourceLayer &layer : layers_of(path)) {
            SCOPED_TRACE(path + " layer " + std::to_string(layer.number));
            OneLayer probe(path, layer.number, {});
            if (probe.runner == nullptr || probe.asks_for_more()) continue;
            look(path, layer.number, probe);
            n++;
        }
    return n;
}

TEST(CudaRunner, ReplaysStepsAsKernelsOfTheirOwn) {
    int n = every_layer([](const std::string &path, uint32_t layer, OneLayer &graphs) {
        OneLayer one_by_one(path, layer, eager());
        for (uint32_t i = 0; i < 3; i++) {
            std::vector<float> x = graphs.input(2, i);
            expect_same(graphs.step(x, {i}), one_by_one.step(x, {i}));
        }
        plec_graph_stats stats = graphs.stats();
        EXPECT_EQ(stats.captured, 1u);
        EXPECT_EQ(stats.launched, 1u);
        EXPECT_EQ(stats.replayed, 2u);
        EXPECT_FALSE(plec_runner_graph_stats(&stats, one_by_one.runner));
    });
    EXPECT_GE(n, 33);
}

TEST(CudaRunner, RoutesOnTheDeviceAsTheHostDoes) {
    int n_compared = 0;
    every_layer([&](const std::string &path, uint32_t layer, OneLayer &there) {
        plec_runner_options options = {};
        options.host_router = true;
        OneLayer here(path, layer, options);
        if (here.bound->routing_required) return;
        std::vector<float> x = here.input(16, layer);
        Output device = there.step(x), host = here.step(x);
        ASSERT_EQ(device.status, PLEC_OK) << device.message;
        EXPECT_EQ(device.ids, host.ids);
        for (size_t i = 0; i < host.weights.size(); i++)
            EXPECT_NEAR(device.weights[i], host.weights[i], 2e-7 * std::fabs(host.weights[i]));
        n_compared += !here.bound->dense;
    });
    EXPECT_GE(n_compared, 14);
}

StreamModelSpec small_model() {
    StreamModelSpec spec;
    spec.n_layers = 1;
    spec.router = spec.shared = true;
    return spec;
}

/* The device's router took the hidden state where the caller gave another vector. */
TEST(CudaRunner, RoutesByTheVectorThatIsGiven) {
    StreamModel model(small_model());
    plec_runner_options options = {};
    options.host_router = true;
    OneLayer here(model.path(), 0, options), there(model.path(), 0, {});
    std::vector<float> x = here.input(8, 1), other = here.input(8, 2);
    ASSERT_NE(here.step(x).ids, here.step(other).ids);
    Asked asked;
    asked.router_input = other.data();
    Output wanted = here.step(x, asked);
    EXPECT_EQ(wanted.ids, here.step(other).ids);
    for (int i = 0; i < 3; i++)
        expect_same(there.step(x, asked), wanted);
}

TEST(CudaRunner, KeepsAGraphForEachOfTheLastSizes) {
    StreamModel model(small_model());
    OneLayer graphs(model.path(), 0, {}), one_by_one(model.path(), 0, eager());
    uint32_t n_steps = 0;
    auto step = [&](uint32_t n_tokens, uint32_t slots = 0) {
        std::vector<float> x = graphs.input(n_tokens, ++n_steps);
        Asked asked = {n_steps, slots};
        expect_same(graphs.step(x, asked), one_by_one.step(x, asked));
        return graphs.stats().captured;
    };
    uint64_t captured = 0;
    for (int round = 0; round < 3; round++)
        for (uint32_t n_tokens = 1; n_tokens <= PLEC_GRAPHS_A_LAYER; n_tokens++)
            captured = step(n_tokens);
    EXPECT_EQ(captured, uint64_t(PLEC_GRAPHS_A_LAYER));
    EXPECT_EQ(graphs.stats().replayed, 2u * PLEC_GRAPHS_A_LAYER);
    step(1);        /* used last, though made first */
    step(3, SLOTS); /* another size: the caller routes */
    EXPECT_EQ(step(3, SLOTS), captured + 1);
    step(1);
    EXPECT_EQ(step(1), captured + 1); /* still there */
    step(2);                          /* made room */
    EXPECT_EQ(step(2), captured + 2);
}

/* What a graph was captured with is what it replays: steps of as many tokens that differ in
 * anything else have their own. */
TEST(CudaRunner, StepsThatDifferShareNoGraph) {
    StreamModel model(small_model());
    OneLayer graphs(model.path(), 0, {}), one_by_one(model.path(), 0, eager());
    for (uint32_t round = 0; round < 3; round++)
        for (uint32_t slots : {0u, 1u, SLOTS})
            for (bool routed_only : {false, true}) {
                SCOPED_TRACE(std::to_string(slots) + (routed_only ? " routed" : ""));
                std::vector<float> x = graphs.input(2, round);
                Asked asked = {round, slots, routed_only};
                expect_same(graphs.step(x, asked), one_by_one.step(x, asked));
            }
    EXPECT_EQ(graphs.stats().captured, 6u);
    EXPECT_EQ(graphs.stats().replayed, 12u);
}

/* A first step that ended before its shared experts were launched leaves their table to be made. */
TEST(CudaRunner, CapturesAStepWhoseFirstLaunchWasCutShort) {
    StreamModel model(small_model());
    OneLayer one_by_one(model.path(), 0, eager());
    std::vector<float> x = one_by_one.input(2, 1);
    Output wanted = one_by_one.step(x);
    uint64_t n_cut_at_work = 0;
    for (int n_looks = 1; n_looks <= 3; n_looks++) {
        OneLayer graphs(model.path(), 0, {});
        int left = n_looks;
        Asked cut;
        cut.cuts.cancelled_user = &left;
        cut.cuts.cancelled = [](void *user) { return --*static_cast<int *>(user) == 0; };
        EXPECT_EQ(graphs.step(x, cut).name, "Cancelled");
        n_cut_at_work += graphs.stats().launched;
        for (int i = 0; i < 2; i++)
            expect_same(graphs.step(x), wanted);
        EXPECT_EQ(graphs.stats().captured, 1u);
    }
    EXPECT_EQ(n_cut_at_work, 2u); /* before any launch, before the first bank, before the second */
}

TEST(CudaRunner, LaunchesWhatComesOnceOrIsLarge) {
    StreamModel model(small_model());
    OneLayer graphs(model.path(), 0, {});
    for (uint32_t n_tokens : {PLEC_GRAPH_TOKENS + 1, PLEC_GRAPH_TOKENS + 1, 7})
        EXPECT_EQ(graphs.step(graphs.input(n_tokens, n_tokens)).status, PLEC_OK);
    EXPECT_EQ(graphs.stats().launched, 3u);
    EXPECT_EQ(graphs.stats().captured, 0u);
}

/* More banks than the device keeps tables of: no graph may be left without its own. */
TEST(CudaRunner, MakesNoGraphsOfMoreBanksThanThereAreTables) {
    StreamModelSpec spec;
    spec.n_layers = 513;
    spec.n_experts = 2;
    spec.hidden = spec.inner = 32;
    StreamModel model(spec);
    plec_container *container = nullptr;
    plec_runner *runner = nullptr;
    plec_error err = {};
    std::string said;
    ASSERT_EQ(plec_container_open(&container, model.path().c_str(), nullptr, &err), PLEC_OK);
    plec_runner_options options = {};
    options.device = PLEC_RUN_CUDA;
    options.max_tokens = 1;
    options.max_slots = 1;
    options.stream.device_budget = 1 << 20; /* so that nothing is uploaded */
    options.log = {[](void *user, plec_log_level, const char *text) {
                       *static_cast<std::string *>(user) += std::string(text) + "\n";
                   },
                   &said};
    ASSERT_EQ(plec_runner_open(&runner, container, &options, &err), PLEC_OK) << err.message;
    plec_graph_stats stats;
    EXPECT_FALSE(plec_runner_graph_stats(&stats, runner));
    EXPECT_NE(said.find("no graphs: 1026 experts in 513 banks"), std::string::npos) << said;
    plec_runner_close(runner);
    plec_container_close(container);
}

/* Logits take more room than such small experts do. */
TEST(CudaRunner, ARouterOfManyExpertsHasRoom) {
    StreamModelSpec spec = small_model();
    spec.n_experts = 512;
    StreamModel model(spec);
    plec_runner_options options = {};
    options.host_router = true;
    OneLayer here(model.path(), 0, options), there(model.path(), 0, {});
    std::vector<float> x = here.input(MAX_TOKENS, 1);
    EXPECT_EQ(there.step(x).ids, here.step(x).ids);
}

/* Streamed experts come in parts, and the host must know which: no graph, and the bits of the same
 * routing on resident ones. */
TEST(CudaRunner, LaunchesStreamedLayersKernelByKernel) {
    StreamModel model(small_model());
    plec_runner_options options = {};
    options.host_router = true;
    OneLayer resident(model.path(), 0, options);
    options.host_router = false;
    options.stream.device_budget = 8 * model.expert_bytes();
    options.stream.pinned_budget = 12 * model.expert_bytes();
    options.stream.extent_width = 1;
    OneLayer streamed(model.path(), 0, options);
    ASSERT_NE(streamed.runner, nullptr) << streamed.err.message;
    for (uint32_t i = 0; i < 3; i++) {
        std::vector<float> x = resident.input(2, i);
        expect_same(streamed.step(x), resident.step(x));
    }
    EXPECT_EQ(streamed.stats().launched, 3u);
    EXPECT_EQ(streamed.stats().replayed, 0u);
    EXPECT_EQ(resident.stats().replayed, 2u);
}

/* A NaN is seen by the host, an infinity by the device's router; the words are the host's. */
TEST(CudaRunner, NamesTokensThatCannotBeRouted) {
    StreamModel model(small_model());
    plec_runner_options options = {};
    options.host_router = true;
    OneLayer here(model.path(), 0, options), there(model.path(), 0, {});
    std::vector<float> x = here.input(5, 1), right = there.step(x).y;
    for (float bad : {NAN_F32, INFINITE}) {
        SCOPED_TRACE(bad);
        std::vector<float> spoilt = x;
        spoilt[2 * here.hidden() + 3] = bad;
        spoilt[4 * here.hidden()] = bad;
        for (int i = 0; i < 3; i++) { /* launched, captured, replayed */
            Output device = there.step(spoilt), host = here.step(spoilt);
            EXPECT_EQ(device.status, PLEC_BAD_INPUT);
            EXPECT_EQ(device.name, "NanScores");
            EXPECT_EQ(device.message, host.message);
            EXPECT_NE(device.message.find("token 2"), std::string::npos) << device.message;
            EXPECT_EQ(device.ids, host.ids);
            for (size_t t = 0; t < 5; t++)
                for (size_t j = 0; j < here.hidden(); j++) {
                    size_t at = t * here.hidden() + j;
                    if (t == 2 || t == 4)
                        EXPECT_TRUE(std::isnan(device.y[at]));
                    else
                        EXPECT_EQ(device.y[at], right[at]);
                }
        }
    }
}

} // namespace
