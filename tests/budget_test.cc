/* What fits and what moves, on paper: against arithmetic done by hand, against the cache itself in
 * a replay, and against a real streamer on a real bank. */
#include "host/budget.h"

#include "host/extent.h"
#include "host/replay.h"
#include "tests/support/stream_model.h"

#include <algorithm>

using namespace plec_test;

namespace {

/* A layer of equal experts of one read each. */
plec_budget_layer layer_of(uint32_t n_experts, uint32_t top_k, uint32_t width,
                           uint64_t entry_bytes) {
    plec_budget_layer layer = {};
    layer.n_experts = n_experts;
    layer.top_k = top_k;
    layer.n_extents = n_experts / width;
    layer.weight_bytes = n_experts * entry_bytes;
    layer.frame_bytes = layer.slot_bytes = width * entry_bytes;
    layer.entry_reads = n_experts;
    layer.extent_reads = layer.n_extents;
    return layer;
}

plec_budget budget_of(const std::vector<plec_budget_layer> &layers, uint32_t width, uint64_t device,
                      uint64_t host) {
    plec_budget budget;
    plec_budget_make(&budget, layers.data(), static_cast<uint32_t>(layers.size()), width, device,
                     host);
    return budget;
}

plec_budget_step expect(const plec_budget &budget, const plec_budget_machine &machine,
                        uint32_t n_tokens) {
    plec_budget_step step;
    plec_budget_expect(&step, &budget, &machine, n_tokens);
    return step;
}

const plec_budget_machine MACHINE = {1e9, 0, 4e9, 8e9};

TEST(Budget, DistinctExpertsAreTheClosedForm) {
    EXPECT_DOUBLE_EQ(plec_budget_distinct(4, 2, 1), 2);
    EXPECT_DOUBLE_EQ(plec_budget_distinct(4, 2, 2), 3);   /* 4 (1 - 1/4) */
    EXPECT_DOUBLE_EQ(plec_budget_distinct(4, 2, 3), 3.5); /* 4 (1 - 1/8) */
    EXPECT_DOUBLE_EQ(plec_budget_distinct(8, 8, 1), 8);
    EXPECT_DOUBLE_EQ(plec_budget_distinct(4, 1, 0), 0);
    EXPECT_NEAR(plec_budget_distinct(128, 8, 64), 128 * (1 - std::pow(0.9375, 64)), 1e-12);
}

TEST(Budget, TouchedExtentsAreThoseOfTheDesign) {
    /* One token over 128 experts, 8 of them: extents of 8, 16 and 32. */
    plec_budget_layer eight = layer_of(128, 8, 8, 1), sixteen = layer_of(128, 8, 16, 1),
                      wide = layer_of(128, 8, 32, 1);
    EXPECT_NEAR(plec_budget_touched(&eight, 1), 6.6, 0.05);
    EXPECT_NEAR(plec_budget_touched(&sixteen, 1), 5.3, 0.05);
    EXPECT_NEAR(plec_budget_touched(&wide, 1), 3.6, 0.05);
    /* 4 experts, 2 a token, extents of 2: an extent is missed when both fall into the other, one
     * case of six. */
    plec_budget_layer small = layer_of(4, 2, 2, 1);
    EXPECT_DOUBLE_EQ(plec_budget_touched(&small, 1), 2 * (1 - 1.0 / 6));
    EXPECT_DOUBLE_EQ(plec_budget_touched(&small, 2), 2 * (1 - 1.0 / 36));
    /* Extents of one expert are experts. */
    plec_budget_layer single = layer_of(128, 8, 1, 1);
    EXPECT_NEAR(plec_budget_touched(&single, 5), plec_budget_distinct(128, 8, 5), 1e-9);
}

TEST(Budget, SlotsAreWholeFramesAndNoMoreThanExtents) {
    EXPECT_EQ(plec_budget_fit(0, 4096, 10), 0u);
    EXPECT_EQ(plec_budget_fit(4095, 4096, 10), 0u);
    EXPECT_EQ(plec_budget_fit(3 * 4096 + 4095, 4096, 10), 3u);
    EXPECT_EQ(plec_budget_fit(UINT64_MAX, 1, 10), 10u);
    EXPECT_EQ(plec_budget_staging(10, 10), 0u);
    EXPECT_EQ(plec_budget_staging(9, 10), 2u);
    EXPECT_EQ(plec_budget_staging(3, 10), 2u);
    EXPECT_EQ(plec_budget_staging(2, 10), 1u);
    EXPECT_EQ(plec_budget_staging(1, 10), 0u);
    EXPECT_EQ(plec_budget_staging(0, 10), 0u);
}

TEST(Budget, EverythingResidentMovesNothing) {
    std::vector<plec_budget_layer> layers(3, layer_of(4, 2, 2, 1000000));
    for (plec_budget_layer &layer : layers)
        layer.other_bytes = 500000;
    plec_budget budget = budget_of(layers, 2, 12000000, 2000000);
    EXPECT_TRUE(budget.resident);
    EXPECT_EQ(budget.n_slots, 6u);
    EXPECT_EQ(budget.n_slot_staging, 0u);
    plec_budget_step step = expect(budget, MACHINE, 2);
    EXPECT_DOUBLE_EQ(step.experts, 9);
    EXPECT_DOUBLE_EQ(step.device_hits, 9);
    EXPECT_EQ(step.misses, 0);
    EXPECT_EQ(step.read_bytes, 0);
    EXPECT_EQ(step.copied_bytes, 0);
    EXPECT_DOUBLE_EQ(step.active_bytes, 9e6);
    EXPECT_DOUBLE_EQ(step.other_bytes, 1.5e6);
    EXPECT_DOUBLE_EQ(step.step_s, 10.5e6 / 8e9);
    EXPECT_DOUBLE_EQ(step.resident_s, step.step_s);
    /* Were none kept: the disk is slowest. 3 experts of a layer against its 2 extents, whole. */
    EXPECT_DOUBLE_EQ(step.streamed_s, 9e6 / 1e9);
}

/* Rounding made a share of hits larger than one, and what is copied "-0.0000 ms". */
TEST(Budget, NothingMovesLessThanNothing) {
    for (uint32_t n_experts : {6, 12, 16, 60, 96, 128, 160, 384})
        for (uint32_t top_k = 1; top_k <= 8 && top_k <= n_experts; top_k++)
            for (uint32_t width : {1, 2, 3, 6})
                for (uint32_t n_tokens : {1, 3, 17, 512})
                    for (uint32_t n_held : {n_experts, n_experts / 2}) {
                        std::vector<plec_budget_layer> layers(
                            2, layer_of(n_experts, top_k, width, 1000));
                        plec_budget budget = budget_of(layers, width, 2000 * n_held, 2000 * n_held);
                        plec_budget_step step = expect(budget, MACHINE, n_tokens);
                        for (double value :
                             {step.device_hits, step.host_hits, step.misses, step.reads,
                              step.read_bytes, step.copied_bytes, step.disk_s, step.link_s})
                            ASSERT_FALSE(std::signbit(value))
                                << value << ": " << n_experts << " " << top_k << " " << width << " "
                                << n_tokens;
                        ASSERT_LE(step.device_hits, step.experts);
                    }
}

TEST(Budget, ColdSingleSlotReadsEverythingEveryStep) {
    std::vector<plec_budget_layer> layers(2, layer_of(4, 2, 1, 1000000));
    plec_budget budget = budget_of(layers, 1, 1000000, 1000000);
    EXPECT_EQ(budget.n_slots, 1u);
    plec_budget_step step = expect(budget, MACHINE, 1);
    EXPECT_DOUBLE_EQ(step.experts, 4);
    EXPECT_EQ(step.device_hits, 0);
    EXPECT_DOUBLE_EQ(step.misses, 4);
    EXPECT_DOUBLE_EQ(step.reads, 4);
    EXPECT_DOUBLE_EQ(step.read_bytes, 4e6);
    EXPECT_DOUBLE_EQ(step.copied_bytes, 4e6);
    EXPECT_DOUBLE_EQ(step.disk_s, 4e-3);
    EXPECT_DOUBLE_EQ(step.link_s, 1e-3);
    EXPECT_DOUBLE_EQ(step.memory_s, 5e-4);
    /* Each layer: the disk's 2 ms, and the first of its two experts through link and kernel. */
    EXPECT_DOUBLE_EQ(step.step_s, 2 * (2e-3 + (5e-4 + 2.5e-4) / 2));
    EXPECT_DOUBLE_EQ(step.streamed_s, 4e-3);
    EXPECT_DOUBLE_EQ(step.resident_s, 5e-4);
}

TEST(Budget, SlotsKeepTheStepsTheyHold) {
    /* 2 layers of 4 experts, 2 a token: a step uses 4 of 8 experts. Three slots are less
     * than that, and two of them pass through. */
    std::vector<plec_budget_layer> layers(2, layer_of(4, 2, 1, 1000));
    const struct {
        uint64_t n_slots;
        double hit;
    } cases[] = {{3, 0}, {4, 0.5}, {8, 1}};
    for (auto &c : cases) {
        plec_budget budget = budget_of(layers, 1, c.n_slots * 1000, 1000);
        plec_budget_step step = expect(budget, MACHINE, 1);
        EXPECT_NEAR(step.device_hits / step.experts, c.hit, 0.02) << c.n_slots;
    }
}

TEST(Budget, FramesCatchWhatSlotsLose) {
    std::vector<plec_budget_layer> layers(2, layer_of(4, 2, 1, 1000));
    plec_budget_step step = expect(budget_of(layers, 1, 4000, 8000), MACHINE, 1);
    EXPECT_NEAR(step.device_hits, 2, 0.06); /* one step's of 4 */
    EXPECT_NEAR(step.host_hits, 2, 0.06);   /* all are in frames */
    EXPECT_EQ(step.misses, 0);
    EXPECT_EQ(step.read_bytes, 0);
    EXPECT_DOUBLE_EQ(step.copied_bytes, 1000 * step.host_hits);
    EXPECT_DOUBLE_EQ(step.host_hit_bytes, 1000 * step.host_hits);
}

TEST(Budget, ASingleLayerKeepsWhatFitsAndStreamsTheRest) {
    std::vector<plec_budget_layer> layers(1, layer_of(8, 8, 1, 1000));
    plec_budget budget = budget_of(layers, 1, 6000, 1000);
    EXPECT_EQ(budget.n_slot_staging, 2u);
    plec_budget_step step = expect(budget, MACHINE, 1);
    EXPECT_DOUBLE_EQ(step.device_hits, 4);
}

TEST(Budget, WholeExtentsAreReadWhereThatCostsNoMore) {
    /* A read costs 1 ms beside its bytes: extents of 4 experts of 1 MB cost 5 ms whole, 8 ms one by
     * one, so from 2.5 needed on they are read whole. */
    plec_budget_machine machine = {1e9, 1e-3, 1e12, 1e12};
    std::vector<plec_budget_layer> layers(2, layer_of(8, 2, 4, 1000000));
    plec_budget budget = budget_of(layers, 4, 4000000, 4000000);
    plec_budget_step one = expect(budget, machine, 1);
    EXPECT_NEAR(one.reads, 4, 0.01);
    EXPECT_NEAR(one.read_bytes, 4e6, 1e4);
    plec_budget_step many = expect(budget, machine, 50);
    EXPECT_NEAR(many.reads, 4, 1e-3);
    EXPECT_NEAR(many.read_bytes, 16e6, 1e4);
    EXPECT_NEAR(many.disk_s, 4 * 5e-3, 1e-4);
}

TEST(Budget, RanksAreTheFewestThatHoldEverything) {
    std::vector<plec_budget_layer> layers(3, layer_of(10, 2, 1, 1000));
    for (uint64_t slots : {30, 29, 15, 14, 12, 9, 6, 3, 2}) {
        plec_budget budget = budget_of(layers, 1, slots * 1000, 1);
        uint32_t wanted = 0; /* by trying */
        for (uint32_t ranks = 1; wanted == 0 && ranks <= 10; ranks++)
            if (3 * ((10 + ranks - 1) / ranks) <= slots) wanted = ranks;
        EXPECT_EQ(plec_budget_ranks(&budget), wanted) << slots;
    }
}

/* --- against the cache ----------------------------------------------------------------------- */

/* What a replay of a uniform routing hits once it is warm, against the paper. */
void expect_as_replayed(uint32_t n_layers, uint32_t n_experts, uint32_t top_k, uint32_t n_tokens,
                        uint32_t width, uint32_t n_slots, double within = 0.05) {
    const uint32_t n_steps = 400, n_warm = 200;
    std::mt19937 random(n_experts * 31 + width * 7 + n_slots);
    plec_trace_info info = {n_layers, n_experts, 1000, 1};
    std::string text[2];
    char line[512];
    for (std::string &t : text)
        t.assign(line, plec_trace_write_header(line, sizeof line, &info));
    std::vector<int32_t> deck(n_experts);
    for (uint32_t e = 0; e < n_experts; e++)
        deck[e] = static_cast<int32_t>(e);
    for (uint32_t step = 0; step < n_steps; step++)
        for (uint32_t layer = 0; layer < n_layers; layer++)
            for (uint32_t token = 0; token < n_tokens; token++) {
                std::shuffle(deck.begin(), deck.end(), random);
                std::string one(line, plec_trace_write_token(line, sizeof line, step, layer, token,
                                                             deck.data(), top_k));
                text[1] += one;
                if (step < n_warm) text[0] += one;
            }
    plec_replay_result results[2];
    for (int i = 0; i < 2; i++) {
        plec_trace trace;
        plec_error err;
        ASSERT_EQ(plec_trace_parse(&trace, text[i].data(), text[i].size(), &err), PLEC_OK)
            << err.message;
        plec_replay_args args = {&trace, width, uint64_t(n_slots) * width, PLEC_RESIDENCY_LRU,
                                 1,      0};
        EXPECT_EQ(plec_replay_run(&results[i], &args, &err), PLEC_OK);
        plec_trace_close(&trace);
    }
    double hit =
        double(results[1].hits - results[0].hits) / double(results[1].uses - results[0].uses);
    double bytes = double(results[1].bytes - results[0].bytes) / (n_steps - n_warm);
    std::vector<plec_budget_layer> layers(n_layers, layer_of(n_experts, top_k, width, 1000));
    plec_budget budget = budget_of(layers, width, n_slots * width * 1000, width * 1000);
    budget.n_slot_staging = 0; /* the replay has staging beside its slots */
    plec_budget_step step = expect(budget, MACHINE, n_tokens);
    EXPECT_NEAR(step.device_hits / step.experts, hit, within)
        << n_experts << " choose " << top_k << ", " << n_tokens << " tokens, width " << width
        << ", " << n_slots << " slots";
    EXPECT_NEAR(step.copied_bytes / bytes, 1, within / (1 - hit) + 0.05);
}

TEST(Budget, HitsAreThoseOfTheCacheInAReplay) {
    expect_as_replayed(4, 64, 4, 1, 1, 128);
    expect_as_replayed(4, 64, 4, 1, 1, 60);
    expect_as_replayed(4, 64, 4, 1, 1, 12); /* less than a step uses */
    expect_as_replayed(4, 64, 4, 1, 4, 40);
    expect_as_replayed(4, 64, 4, 1, 8, 24);
    expect_as_replayed(6, 32, 8, 1, 8, 17);
    /* 24 extents, 22 of them a step: the edge of the model. */
    expect_as_replayed(6, 32, 8, 1, 8, 21, 0.12);
    expect_as_replayed(6, 32, 8, 1, 8, 23, 0.07);
    expect_as_replayed(4, 64, 4, 4, 1, 200);
    expect_as_replayed(3, 128, 8, 1, 2, 128);
    expect_as_replayed(3, 128, 8, 2, 16, 22);
}

/* --- against the streamer -------------------------------------------------------------------- */

struct Described {
    Described(const std::string &path, uint32_t width, uint64_t device, uint64_t host,
              const plec_simulation *simulation = nullptr) {
        plec_error err;
        plec_device *on = nullptr;
        plec_device_options options = {};
        options.simulation = simulation;
        EXPECT_EQ(plec_device_open(&on, PLEC_DEVICE_CPU, &options, &err), PLEC_OK);
        EXPECT_EQ(plec_container_open(&container, path.c_str(), nullptr, &err), PLEC_OK);
        plec_locator locator;
        plec_container_locator(&locator, container);
        for (size_t i = 0; i < plec_container_n_layers(container); i++) {
            plec_layer_info info;
            plec_container_layer_info(&info, container, i);
            plec_bound_layer bound;
            EXPECT_EQ(plec_container_bind(&bound, container, info.layer, &err), PLEC_OK);
            layers.emplace_back();
            EXPECT_TRUE(plec_budget_streams(&bound));
            plec_budget_of of = {&bound, info.layer, width, &locator, on};
            EXPECT_EQ(plec_budget_describe(&layers.back(), &of, &err), PLEC_OK);
            plec_bound_layer_close(&bound);
        }
        plec_device_close(on);
        budget = budget_of(layers, width, device, host);
    }
    ~Described() { plec_container_close(container); }
    Described(const Described &) = delete;
    Described &operator=(const Described &) = delete;
    plec_container *container = nullptr;
    std::vector<plec_budget_layer> layers;
    plec_budget budget;
};

/* As they are in files, and on a device where they arrive in another form. */
class BudgetOf : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(, BudgetOf, testing::Bool(), [](const auto &test) {
    return std::string(test.param ? "ADeviceWhereExpertsArrive" : "ADevice");
});

TEST_P(BudgetOf, CountsFramesAndSlotsAsTheStreamerMakesThem) {
    StreamModelSpec spec;
    spec.n_layers = 3;
    spec.segment_entries = 5;
    StreamModel model(spec);
    plec_simulation simulation = {};
    simulation.arrives = GetParam();
    for (uint32_t width : {1u, 2u, 4u, 16u})
        for (uint64_t budget : {100000u, 300000u, 10000000u}) {
            plec_stream_options stream = {};
            stream.device_budget = budget;
            stream.pinned_budget = budget + 70000;
            stream.extent_width = width;
            stream.simulation = &simulation;
            StreamRunner runner(model.path(), stream, 1);
            ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
            plec_stream_stats stats = runner.stats();
            Described made(model.path(), stats.extent_width, budget, budget + 70000, &simulation);
            EXPECT_EQ(made.budget.frame_bytes, stats.frame_bytes);
            EXPECT_EQ(made.budget.slot_bytes, stats.slot_bytes);
            EXPECT_EQ(made.budget.landing_bytes, stats.landing_bytes);
            EXPECT_EQ(stats.landing_bytes != 0, GetParam());
            EXPECT_LE(stats.n_slots * stats.slot_bytes + stats.landing_bytes, budget);
            EXPECT_EQ(made.budget.n_extents, stats.n_keys);
            EXPECT_EQ(made.budget.n_experts, stats.n_experts);
            EXPECT_EQ(made.budget.weight_bytes, stats.weight_bytes);
            EXPECT_EQ(made.budget.weight_bytes, 3 * 12 * model.expert_bytes());
            EXPECT_EQ(made.budget.n_slots, stats.n_slots);
            EXPECT_EQ(made.budget.n_slot_staging, stats.n_slot_staging);
            EXPECT_EQ(made.budget.n_frames, stats.n_frames);
            EXPECT_EQ(made.budget.n_frame_staging, stats.n_frame_staging);
        }
}

TEST(Budget, ExpectsTheHitsAndBytesOfARealRun) {
    StreamModelSpec spec;
    spec.n_layers = 4;
    spec.n_experts = 32;
    spec.top_k = 4;
    StreamModel model(spec);
    plec_stream_options stream = {};
    stream.extent_width = 1;
    stream.speculation = PLEC_SPECULATE_OFF;
    uint64_t frame = (model.expert_bytes() + 4095) / 4096 * 4096 + 4096;
    stream.device_budget = 48 * frame;
    stream.pinned_budget = 90 * frame;
    StreamRunner runner(model.path(), stream);
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    std::mt19937 random(5);
    std::vector<int32_t> deck(spec.n_experts);
    for (uint32_t e = 0; e < spec.n_experts; e++)
        deck[e] = static_cast<int32_t>(e);
    plec_stream_stats before = {};
    const int n_steps = 300, n_warm = 60;
    for (int i = 0; i < n_steps; i++) {
        if (i == n_warm) before = runner.settled();
        for (uint32_t layer = 0; layer < spec.n_layers; layer++) {
            std::shuffle(deck.begin(), deck.end(), random);
            runner.run(StreamStep::of(random, spec, layer, {deck[0], deck[1], deck[2], deck[3]}));
        }
    }
    plec_stream_stats after = runner.settled();
    Described made(model.path(), 1, stream.device_budget, stream.pinned_budget);
    plec_budget_step step = expect(made.budget, MACHINE, 1);
    double n = n_steps - n_warm;
    EXPECT_DOUBLE_EQ(step.experts, double(after.experts - before.experts) / n);
    EXPECT_DOUBLE_EQ(step.active_bytes, double(after.expert_bytes - before.expert_bytes) / n);
    double used = step.experts;
    EXPECT_NEAR(step.device_hits / used, double(after.device_hits - before.device_hits) / n / used,
                0.05);
    EXPECT_NEAR(step.misses / used, double(after.disk_misses - before.disk_misses) / n / used, 0.1);
    EXPECT_NEAR(step.read_bytes, double(after.read_bytes - before.read_bytes) / n,
                0.1 * step.active_bytes);
}

} // namespace
