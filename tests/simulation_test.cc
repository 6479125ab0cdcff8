/* The scheduler in virtual time: what it makes of a known future, and what it costs when it cannot
 * know. */
#include "host/predict.h"
#include "tests/support/simulator.h"

namespace {

using namespace plec_test;

constexpr uint64_t MIB = 1 << 20;

/* --- a known future --- */

struct Floors {
    double read, copy, compute, one_extent;
    double most() const { return std::max(read, std::max(copy, compute)); }
};

/* What each stage takes alone, for these bytes and experts. */
Floors floors_of(const SimulatorOptions &options, const Simulator &sim) {
    double extent = double(options.tiers.entry_bytes) * options.tiers.width;
    Floors floors;
    floors.read = double(sim.read_bytes) / options.disk.bytes_per_ns;
    floors.copy = double(sim.copied_bytes) / options.link.bytes_per_ns;
    floors.compute = double(sim.computed * options.compute_ns);
    floors.one_extent = extent / options.disk.bytes_per_ns + double(options.disk.latency_ns) +
                        extent / options.link.bytes_per_ns + double(options.link.latency_ns) +
                        double(options.tiers.width * options.compute_ns);
    return floors;
}

void plan_all(Simulator &sim, const std::vector<std::vector<std::vector<plec_need>>> &steps) {
    for (uint64_t s = 0; s < steps.size(); s++)
        for (uint32_t layer = 0; layer < steps[s].size(); layer++)
            for (const plec_need &need : steps[s][layer]) {
                plec_request request = {};
                request.key = need.key;
                request.mask = need.mask;
                request.urgency = PLEC_CERTAIN;
                request.deadline = plec_position(&sim.tiers.keys, s, layer);
                request.origin = PLEC_FROM_PLAN;
                sim.plan.push_back(request);
            }
}

/* Runs steps whose needs were all told before. */
uint64_t run_known(Simulator &sim, const std::vector<std::vector<std::vector<plec_need>>> &steps) {
    plan_all(sim, steps);
    uint64_t start = sim.now;
    for (uint64_t s = 0; s < steps.size(); s++)
        for (uint32_t layer = 0; layer < steps[s].size(); layer++) {
            LayerRun run = sim.run_layer(s, layer, steps[s][layer]);
            EXPECT_TRUE(run.errors.empty());
        }
    return sim.now - start;
}

/* All extents of all layers once, as a large prefill needs them. */
std::vector<std::vector<std::vector<plec_need>>> prefill(const plec_keyspace &keys,
                                                         uint32_t n_steps) {
    std::vector<std::vector<plec_need>> step(keys.n_layers);
    for (uint32_t k = 0; k < keys.n_keys; k++)
        step[keys.keys[k].layer].push_back({k, plec_key_full(&keys.keys[k])});
    return std::vector<std::vector<std::vector<plec_need>>>(n_steps, step);
}

SimulatorOptions streaming_bank() {
    SimulatorOptions options;
    options.tiers.n_layers = 12;
    options.tiers.n_experts = 64;
    options.tiers.width = 8;
    options.tiers.entry_bytes = MIB;
    options.tiers.n_frames = 12;
    options.tiers.n_slots = 12;
    return options;
}

void expect_at_most_3_percent_over(const SimulatorOptions &options, const char *bound_by) {
    SCOPED_TRACE(bound_by);
    Simulator sim(options);
    uint64_t took = run_known(sim, prefill(sim.tiers.keys, 2));
    Floors floors = floors_of(options, sim);
    EXPECT_LE(double(took), 1.03 * floors.most() + floors.one_extent)
        << "read " << floors.read << " copy " << floors.copy << " compute " << floors.compute
        << " took " << took;
    EXPECT_GE(double(took), floors.most()) << "the simulator's clock is wrong";
    uint64_t all = 2ull * 12 * 64 * MIB;
    EXPECT_LE(sim.read_bytes, all) << "something was read twice";
    EXPECT_EQ(sim.computed, 2ull * 12 * 64);
}

TEST(KnownFuture, TakesWhatItsSlowestStageTakesPlusOneExtent) {
    SimulatorOptions disk = streaming_bank();
    expect_at_most_3_percent_over(disk, "disk");
    SimulatorOptions link = streaming_bank();
    link.disk.bytes_per_ns = 50;
    link.link.bytes_per_ns = 10;
    expect_at_most_3_percent_over(link, "link");
    SimulatorOptions compute = streaming_bank();
    compute.compute_ns = 400000;
    expect_at_most_3_percent_over(compute, "compute");
    SimulatorOptions balanced = streaming_bank();
    balanced.link.bytes_per_ns = 5;
    balanced.compute_ns = MIB / 5;
    expect_at_most_3_percent_over(balanced, "all alike");
}

TEST(KnownFuture, HoldsWithoutADeviceToo) {
    SimulatorOptions options = streaming_bank();
    options.tiers.has_device = false;
    expect_at_most_3_percent_over(options, "disk");
    options.compute_ns = 400000;
    expect_at_most_3_percent_over(options, "compute");
}

TEST(KnownFuture, HoldsForExpertsLargerThanAChunk) {
    SimulatorOptions options = streaming_bank();
    options.tiers.n_layers = 4;
    options.tiers.n_experts = 16;
    options.tiers.width = 4;
    options.tiers.entry_bytes = 25 * MIB;
    options.link.bytes_per_ns = 5;
    Simulator sim(options);
    uint64_t took = run_known(sim, prefill(sim.tiers.keys, 2));
    Floors floors = floors_of(options, sim);
    EXPECT_LE(double(took), 1.03 * floors.most() + floors.one_extent);
}

TEST(KnownFuture, HoldsForSparseNeedsOfABatch) {
    SimulatorOptions options = streaming_bank();
    options.tiers.n_slots = 24; /* a dispatch and the next fit */
    options.tiers.n_frames = 24;
    Simulator sim(options);
    auto trace = make_trace(Trace::ZIPF, 10, 12, 64, 20, 3);
    std::vector<std::vector<std::vector<plec_need>>> steps;
    for (const auto &step : trace) {
        steps.emplace_back();
        for (uint32_t layer = 0; layer < step.size(); layer++)
            steps.back().push_back(needs_of(sim.tiers.keys, layer, step[layer]));
    }
    uint64_t took = run_known(sim, steps);
    Floors floors = floors_of(options, sim);
    EXPECT_LE(double(took), 1.03 * floors.most() + floors.one_extent)
        << "read " << floors.read << " copy " << floors.copy << " compute " << floors.compute
        << " took " << took;
}

/* A copy on the compute stream cost all of it, one layer ahead on its own next to none. */
TEST(KnownFuture, CopiesALayerAheadExposeNextToNothing) {
    SimulatorOptions options;
    options.tiers.n_layers = 48;
    options.tiers.n_experts = 1;
    options.tiers.width = 1;
    options.tiers.entry_bytes = 6 * MIB;
    options.tiers.n_frames = 48; /* all in host memory */
    options.tiers.n_slots = 2;
    options.link.bytes_per_ns = 25.6;
    options.compute_ns = 300000;
    options.tiers.prefetch.max_requests = 64;
    Simulator sim(options);
    for (uint32_t key = 0; key < 48; key++) {
        plec_request warm = {};
        warm.key = key;
        warm.urgency = PLEC_CERTAIN;
        warm.deadline = 47;
        warm.host_only = true;
        sim.plan.push_back(warm);
    }
    sim.drain();
    ASSERT_EQ(sim.copied_bytes, 0u);
    uint64_t read = sim.read_bytes, stall = 0;
    for (uint32_t layer = 0; layer < 48; layer++) {
        plec_request next = {};
        next.key = layer + 1;
        next.urgency = PLEC_CERTAIN;
        next.deadline = layer + 1;
        if (layer + 1 < 48) sim.plan.push_back(next);
        stall += sim.run_layer(0, layer, {{layer, 1}}).stall_ns;
    }
    double serial = 48 * (6.0 * MIB / 25.6);
    EXPECT_EQ(sim.read_bytes, read);
    EXPECT_LT(double(stall), 0.05 * serial) << "exposed";
}

/* --- speculation --- */

struct Decode {
    uint64_t p50, p99, stall_ns, read_bytes;
    plec_policy_report previous;
};

struct Speculation {
    bool on;
    bool forced; /* never sees that it loses, so that it stays on */
};

SimulatorOptions decode_bank() {
    SimulatorOptions options;
    options.tiers.n_layers = 16;
    options.tiers.n_experts = 64;
    options.tiers.width = 8;
    options.tiers.entry_bytes = MIB;
    options.tiers.n_frames = 24; /* of 128 extents: less than a step uses */
    options.tiers.n_slots = 16;
    options.compute_ns = 20000;
    return options;
}

void guess_layer(Simulator &sim, plec_predict *predict, uint64_t step, uint32_t layer) {
    std::vector<plec_request> requests(plec_predict_max_requests(predict));
    for (plec_origin policy : {PLEC_FROM_PREVIOUS, PLEC_FROM_FREQUENCY}) {
        plec_guess guess = {policy, step, layer, nullptr, 0};
        uint32_t n = plec_predict_guess(requests.data(), predict, &guess, sim.now);
        for (uint32_t i = 0; i < n; i++)
            plec_prefetch_request(sim.tiers.prefetch, &requests[i]);
    }
}

/* Decodes a trace: attention, then the layer's experts; guesses are made two layers ahead. */
Decode decode(Trace kind, Speculation speculation) {
    SimulatorOptions options = decode_bank();
    Simulator sim(options);
    plec_predict_options predict_options = {};
    predict_options.keys = &sim.tiers.keys;
    predict_options.tier = sim.tiers.device;
    predict_options.ns_per_byte = 1 / options.disk.bytes_per_ns;
    predict_options.start_on = true; /* and must find out */
    predict_options.waste_weight = speculation.forced ? 1e-9 : 1;
    predict_options.window = 32;
    plec_predict *predict;
    EXPECT_EQ(plec_predict_open(&predict, &predict_options, nullptr), PLEC_OK);
    auto trace = make_trace(kind, 200, 16, 64, 4, 11);
    std::vector<uint64_t> waits;
    Decode result = {};
    for (uint64_t s = 0; s < trace.size(); s++)
        for (uint32_t layer = 0; layer < 16; layer++) {
            if (speculation.on) {
                uint32_t ahead = (layer + 2) % 16;
                guess_layer(sim, predict, s + (layer + 2) / 16, ahead);
            }
            sim.pass(1000000); /* attention */
            const std::vector<int32_t> &ids = trace[s][layer];
            plec_predict_routed(predict, s, layer, ids.data(), uint32_t(ids.size()), sim.now);
            LayerRun run = sim.run_layer(s, layer, needs_of(sim.tiers.keys, layer, ids));
            EXPECT_TRUE(run.errors.empty());
            if (s < 20) continue; /* the caches fill */
            waits.insert(waits.end(), run.waits.begin(), run.waits.end());
            result.stall_ns += run.stall_ns;
        }
    result.p50 = quantile(waits, 0.5);
    result.p99 = quantile(waits, 0.99);
    result.read_bytes = sim.read_bytes;
    plec_predict_report(&result.previous, predict, PLEC_FROM_PREVIOUS);
    plec_predict_close(predict);
    sim.drain();
    EXPECT_EQ(sim.tiers.fault(), "");
    return result;
}

/* Speculation tripled the latency of demand reads. */
TEST(Speculation, KeepsDemandP99WithinOneFifthOnEveryTrace) {
    for (Trace kind : {Trace::UNIFORM, Trace::ZIPF, Trace::MARKOV}) {
        Decode off = decode(kind, {false, false});
        Decode judged = decode(kind, {true, false});
        Decode forced = decode(kind, {true, true});
        EXPECT_GT(off.p99, 0u);
        EXPECT_LE(double(judged.p99), 1.2 * double(off.p99)) << int(kind);
        EXPECT_LE(double(forced.p99), 1.2 * double(off.p99)) << int(kind);
    }
}

TEST(Speculation, PaysOnATraceThatRepeatsAndIsSwitchedOffOnOneThatDoesNot) {
    Decode off = decode(Trace::MARKOV, {false, false});
    Decode on = decode(Trace::MARKOV, {true, false});
    EXPECT_TRUE(on.previous.on);
    EXPECT_GT(plec_policy_precision(&on.previous), 0.7);
    EXPECT_LT(double(on.stall_ns), 0.95 * double(off.stall_ns));
    Decode uniform = decode(Trace::UNIFORM, {true, false});
    EXPECT_FALSE(uniform.previous.on);
    EXPECT_LT(plec_policy_precision(&uniform.previous), 0.2);
    EXPECT_EQ(uniform.previous.switched_off, 1u);
    EXPECT_LE(uniform.previous.asked_bytes, 9u * 16 * 4 * MIB)
        << "a quarter of its window, and then nothing: 9 steps of 16 layers of 4 experts";
}

} // namespace
