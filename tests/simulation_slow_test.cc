/* A hundred thousand steps in virtual time: nothing may grow. */
#include <malloc.h>

#include "host/predict.h"
#include "tests/support/simulator.h"

namespace {

using namespace plec_test;

struct Block {
    uint64_t wait_ns = 0, n_waits = 0, queue = 0, bytes = 0, in_use = 0;
    double mean_wait() const { return double(wait_ns) / double(n_waits); }
};

SimulatorOptions soak_bank() {
    SimulatorOptions options;
    options.tiers.n_layers = 3;
    options.tiers.n_experts = 32;
    options.tiers.width = 8;
    options.tiers.entry_bytes = 1 << 20;
    options.tiers.n_frames = 6;
    options.tiers.n_slots = 5;
    options.tiers.n_slot_staging = 1;
    options.tiers.policy = PLEC_RESIDENCY_LFU;
    options.tiers.prefetch.max_requests = 8;
    options.max_delay_ns = 100000;
    options.fails = [](const plec_job &, uint64_t n) { return n % 1009 == 0; };
    return options;
}

/* After some two thousand tokens decode fell to a twentieth, the disks idle. */
TEST(Soak, AHundredThousandStepsKeepMemoryQueueAndWaitFlat) {
    const uint32_t n_blocks = 10, n_steps = 10000;
    Simulator sim(soak_bank());
    plec_predict_options predict_options = {};
    predict_options.keys = &sim.tiers.keys;
    predict_options.tier = sim.tiers.device;
    plec_predict *predict;
    ASSERT_EQ(plec_predict_open(&predict, &predict_options, nullptr), PLEC_OK);
    std::vector<plec_request> requests(plec_predict_max_requests(predict));
    auto trace = make_trace(Trace::MARKOV, 1000, 3, 32, 4, 9);
    std::vector<Block> blocks(n_blocks);
    for (uint64_t s = 0; s < uint64_t(n_blocks) * n_steps; s++)
        for (uint32_t layer = 0; layer < 3; layer++) {
            const std::vector<int32_t> &ids = trace[s % trace.size()][layer];
            for (int policy = PLEC_FROM_NEXT_ROUTER; policy <= PLEC_FROM_FREQUENCY; policy++) {
                plec_guess guess = {plec_origin(policy), s + (layer + 1) / 3, (layer + 1) % 3,
                                    ids.data(), uint32_t(ids.size())};
                uint32_t n = plec_predict_guess(requests.data(), predict, &guess, sim.now);
                for (uint32_t i = 0; i < n; i++)
                    plec_prefetch_request(sim.tiers.prefetch, &requests[i]);
            }
            sim.pass(200000);
            plec_predict_routed(predict, s, layer, ids.data(), uint32_t(ids.size()), sim.now);
            LayerRun run = sim.run_layer(s, layer, needs_of(sim.tiers.keys, layer, ids));
            Block &block = blocks[s / n_steps];
            for (uint64_t wait : run.waits)
                block.wait_ns += wait;
            block.n_waits += run.waits.size();
            if (s % n_steps != n_steps - 1 || layer != 2) continue;
            block.queue = sim.longest_queue;
            block.bytes = mallinfo2().uordblks;
            ASSERT_EQ(sim.tiers.fault(), "");
        }
    plec_predict_close(predict);
    for (uint32_t i = 2; i < n_blocks; i++) {
        EXPECT_NEAR(blocks[i].mean_wait(), blocks[1].mean_wait(), 0.05 * blocks[1].mean_wait());
        EXPECT_LE(blocks[i].queue, 8u + 6u) << "max_requests and a dispatch";
        EXPECT_LE(blocks[i].bytes, blocks[1].bytes + 4096);
    }
    sim.drain();
    plec_residency_counters counters;
    plec_residency_get_counters(&counters, sim.tiers.device);
    EXPECT_EQ(counters.in_use, 0u);
}

} // namespace
