/* The scheduler in virtual time when jobs fail, demands are given up and budgets are small. */
#include <memory>

#include "tests/support/simulator.h"

namespace {

using namespace plec_test;

/* --- faults --- */

SimulatorOptions small_bank() {
    SimulatorOptions options;
    options.tiers.n_layers = 3;
    options.tiers.n_experts = 16;
    options.tiers.width = 4;
    options.tiers.entry_bytes = 100000;
    options.tiers.n_frames = 3;
    options.tiers.n_slots = 4;
    options.tiers.n_slot_staging = 1;
    options.tiers.prefetch.chunk_bytes = 60000;
    options.max_delay_ns = 200000;
    return options;
}

struct FaultRun {
    uint32_t ready = 0;
    std::map<std::string, uint32_t> errors;
    uint64_t n_jobs = 0, n_events = 0;
};

/* Three steps with a plan and guesses; then the same again without faults, which must all work. */
FaultRun run_with(const SimulatorOptions &options) {
    Simulator sim(options);
    FaultRun result;
    auto trace = make_trace(Trace::ZIPF, 6, 3, 16, 6, 5);
    for (uint64_t s = 0; s < trace.size(); s++)
        for (uint32_t layer = 0; layer < 3; layer++) {
            for (uint32_t k = sim.tiers.keys.layer_first_key[(layer + 1) % 3];
                 k < sim.tiers.keys.layer_first_key[(layer + 1) % 3 + 1]; k++) {
                plec_request request = {};
                request.key = k;
                request.mask = 0x3;
                request.urgency = k % 2 != 0 ? PLEC_CERTAIN : PLEC_LIKELY;
                request.deadline = plec_position(&sim.tiers.keys, s, layer) + 1;
                request.origin = PLEC_FROM_PREVIOUS;
                plec_prefetch_request(sim.tiers.prefetch, &request);
            }
            LayerRun run =
                sim.run_layer(s, layer, needs_of(sim.tiers.keys, layer, trace[s][layer]));
            result.ready += run.ready;
            for (const std::string &name : run.errors)
                result.errors[name]++;
            EXPECT_EQ(sim.tiers.fault(), "");
        }
    sim.drain();
    for (int origin = 0; origin < PLEC_N_ORIGINS; origin++)
        plec_prefetch_drop(sim.tiers.prefetch, plec_origin(origin), PLEC_NO_KEY);
    result.n_jobs = sim.n_ended;
    result.n_events = sim.n_events;
    for (plec_residency *tier : {sim.tiers.host, sim.tiers.device}) {
        plec_residency_counters counters;
        plec_residency_get_counters(&counters, tier);
        EXPECT_EQ(counters.in_use, 0u) << "a reference leaks";
    }
    plec_prefetch_counters counters;
    plec_prefetch_get_counters(&counters, sim.tiers.prefetch);
    EXPECT_EQ(counters.n_requests + counters.n_waiting + counters.n_untaken, 0u);
    return result;
}

TEST(Fault, AFailureOfAnyOneJobHurtsItsDemandsByNameAndNothingElse) {
    SimulatorOptions options = small_bank();
    FaultRun whole = run_with(options);
    ASSERT_TRUE(whole.errors.empty());
    ASSERT_GT(whole.n_jobs, 50u);
    uint32_t n_hurt = 0;
    for (uint64_t at = 0; at < whole.n_jobs; at++) {
        SCOPED_TRACE(at);
        options.fails = [at](const plec_job &, uint64_t n) { return n == at; };
        FaultRun run = run_with(options);
        uint32_t failed = 0;
        for (const auto &[name, n] : run.errors) {
            EXPECT_TRUE(name == "ReadFailed" || name == "CopyFailed") << name;
            failed += n;
        }
        EXPECT_EQ(run.ready + failed, whole.ready) << "a demand ended twice or never";
        n_hurt += failed;
    }
    EXPECT_GT(n_hurt, 20u);
}

TEST(Fault, ADemandCancelledAtAnyEventEndsByNameAndNothingElseDoes) {
    SimulatorOptions options = small_bank();
    options.cancels = [](uint64_t) { return false; };
    FaultRun whole = run_with(options);
    ASSERT_GT(whole.n_events, 100u);
    uint32_t n_cancelled = 0;
    for (uint64_t at = 0; at < whole.n_events; at++) {
        SCOPED_TRACE(at);
        options.cancels = [at](uint64_t n) { return n == at; };
        FaultRun run = run_with(options);
        EXPECT_LE(run.errors.size(), 1u);
        EXPECT_EQ(run.ready + run.errors["Cancelled"], whole.ready);
        n_cancelled += run.errors["Cancelled"];
    }
    EXPECT_GT(n_cancelled, 50u);
}

TEST(Fault, AJobPutBackAtAnyPointChangesNoOutcome) {
    SimulatorOptions options = small_bank();
    FaultRun whole = run_with(options);
    for (uint64_t at = 0; at < whole.n_jobs; at++) {
        SCOPED_TRACE(at);
        options.returns = [at](const plec_job &, uint64_t n) { return n == at; };
        FaultRun run = run_with(options);
        EXPECT_EQ(run.ready, whole.ready);
        EXPECT_TRUE(run.errors.empty());
    }
    options.returns = [](const plec_job &, uint64_t n) { return n % 2 == 0; };
    EXPECT_EQ(run_with(options).ready, whole.ready) << "every other one";
}

TEST(Fault, DemandsPastTheirDeadlineEndByNameAndTheRestIsServed) {
    SimulatorOptions options = small_bank();
    FaultRun whole = run_with(options);
    for (uint64_t patience : {1u, 100000u, 300000u, 600000u}) {
        SCOPED_TRACE(patience);
        options.patience_ns = patience;
        FaultRun run = run_with(options);
        EXPECT_GT(run.errors["DeadlinePast"], 0u);
        EXPECT_EQ(run.ready + run.errors["DeadlinePast"], whole.ready);
    }
    options.patience_ns = 1000000000;
    EXPECT_EQ(run_with(options).ready, whole.ready);
}

TEST(Fault, WhenEveryReadFailsEveryMissIsNamedAndNothingHangs) {
    SimulatorOptions options = small_bank();
    options.fails = [](const plec_job &job, uint64_t) { return job.kind == PLEC_JOB_READ; };
    FaultRun run = run_with(options);
    EXPECT_EQ(run.ready, 0u);
    EXPECT_GT(run.errors["ReadFailed"], 0u);
}

TEST(Fault, WhenEveryCopyFailsEveryMissIsNamedAndNothingHangs) {
    SimulatorOptions options = small_bank();
    options.fails = [](const plec_job &job, uint64_t) { return job.kind == PLEC_JOB_COPY; };
    FaultRun run = run_with(options);
    EXPECT_EQ(run.ready, 0u);
    EXPECT_GT(run.errors["CopyFailed"], 0u);
}

TEST(Fault, AThirdOfAllJobsFailingAtRandomLosesNoDemand) {
    for (uint32_t seed = 0; seed < 50; seed++) {
        SimulatorOptions options = small_bank();
        options.seed = seed;
        auto random = std::make_shared<std::mt19937>(seed);
        options.fails = [random](const plec_job &, uint64_t) { return (*random)() % 3 == 0; };
        run_with(options);
    }
}

/* A forward and a copy raced on their streams. */
TEST(Schedule, RandomDelaysOfEveryStreamChangeNoContent) {
    for (uint32_t seed = 0; seed < 500; seed++) {
        SimulatorOptions options = small_bank();
        options.seed = seed;
        options.max_delay_ns = 3000000;
        FaultRun run = run_with(options);
        EXPECT_TRUE(run.errors.empty());
    }
}

/* --- budgets --- */

/* Reads of a trace with so many slots: only what is not there, by hand. */
uint64_t misses_by_hand(const std::vector<std::vector<plec_need>> &needs, size_t n_slots) {
    std::vector<plec_need> cache; /* the longest unused first */
    uint64_t misses = 0;
    for (const auto &layer : needs)
        for (const plec_need &need : layer) {
            uint64_t there = 0;
            for (size_t i = 0; i < cache.size(); i++)
                if (cache[i].key == need.key) {
                    there = cache[i].mask;
                    cache.erase(cache.begin() + long(i));
                    break;
                }
            misses += uint64_t(__builtin_popcountll(need.mask & ~there));
            if (n_slots == 0) continue;
            if (cache.size() == n_slots) cache.erase(cache.begin());
            cache.push_back({need.key, there | need.mask});
        }
    return misses;
}

TEST(Budget, ZeroOneAndAllGiveTheReadsThatArithmeticGives) {
    for (uint32_t n_slots : {0u, 1u, 5u, 16u}) {
        SimulatorOptions options;
        options.tiers.n_layers = 4;
        options.tiers.n_experts = 16;
        options.tiers.width = 4;
        options.tiers.has_device = false;
        options.tiers.n_frames = n_slots;
        options.tiers.n_frame_staging = 1;
        options.tiers.prefetch.whole_ratio = 2; /* never: the reads are the misses */
        Simulator sim(options);
        auto trace = make_trace(Trace::ZIPF, 50, 4, 16, 1, 2); /* one extent a dispatch */
        std::vector<std::vector<plec_need>> needs;
        for (uint64_t s = 0; s < trace.size(); s++)
            for (uint32_t layer = 0; layer < 4; layer++) {
                needs.push_back(needs_of(sim.tiers.keys, layer, trace[s][layer]));
                sim.run_layer(s, layer, needs.back());
            }
        uint64_t misses = misses_by_hand(needs, n_slots);
        plec_residency_counters counters;
        plec_residency_get_counters(&counters, sim.tiers.host);
        EXPECT_EQ(counters.misses, misses) << n_slots;
        EXPECT_EQ(counters.hits, 200 - misses) << n_slots;
        EXPECT_EQ(sim.read_bytes, misses * options.tiers.entry_bytes) << n_slots;
        if (n_slots == 0) {
            EXPECT_EQ(misses, 200u);
        }
        if (n_slots == 16) {
            EXPECT_EQ(counters.evictions, 0u);
        }
    }
}

} // namespace
