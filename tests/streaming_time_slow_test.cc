/* The engine in virtual time, at length: demand beside speculation with experts of real size; a
 * hundred thousand steps, faults among them, in which the bits stay and nothing grows. */
#include "tests/support/allocation_guard.h"
#include "tests/support/virtual_stream.h"

#include <fstream>

using namespace plec_test;

namespace {

/* --- speculation ------------------------------------------------------------------------------ */

TEST(StreamingSpeculation, KeepsDemandP99WithinOneFifthAtLength) {
    for (Trace kind : {Trace::UNIFORM, Trace::ZIPF, Trace::MARKOV})
        expect_speculation_spares_demands(kind, 6, 32, 200);
}

/* --- soak ------------------------------------------------------------------------------------- */

/* What must be as small at the end as at the beginning. */
struct Block {
    uint64_t stall_ns = 0, failed = 0, longest_queue = 0, resident_pages = 0;
};

uint64_t resident_pages() {
    uint64_t all = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> all >> resident;
    return resident;
}

/* Every thousandth read fails, and as many copies. */
struct RareFaults {
    uint64_t n_reads = 0, n_copies = 0;
    static int in_read(void *user, uint32_t, uint64_t, uint64_t) {
        return ++static_cast<RareFaults *>(user)->n_reads % 1009 == 0 ? EIO : 0;
    }
    static bool in_copy(void *user, const void *, uint64_t) {
        return ++static_cast<RareFaults *>(user)->n_copies % 4001 == 0;
    }
};

struct Soak {
    StreamModelSpec spec;
    std::unique_ptr<StreamModel> model;
    std::vector<StreamStep> steps;
    std::vector<std::vector<float>> wanted, out;
    plec_stream_clock clock = {};
    RareFaults faults;
    plec_simulation simulation = {};
    std::unique_ptr<StreamRunner> runner;

    Soak() {
        spec.n_layers = 3;
        spec.n_experts = 32;
        spec.hidden = 8;
        spec.inner = 8;
        model = std::make_unique<StreamModel>(spec);
        std::mt19937 random(4);
        Routing trace = make_trace(Trace::MARKOV, 200, 3, 32, 4, 9);
        StreamRunner resident(model->path(), {}, 1);
        for (const auto &step : trace)
            for (uint32_t layer = 0; layer < 3; layer++) {
                steps.push_back(StreamStep::of(random, spec, layer, step[layer]));
                wanted.push_back(resident.run(steps.back()));
                out.emplace_back(wanted.back().size());
            }
        open();
    }
    void open() {
        clock = {1, 10000000, 80000, 50000000, 10000, 20000, nullptr, nullptr};
        plec_stream_options stream = {};
        stream.clock = &clock;
        stream.extent_width = 8;
        stream.device_budget = UINT64_C(1) << 30;
        StreamRunner all(model->path(), stream, 1);
        uint64_t frame = all.stats().frame_bytes;
        stream.device_budget = 5 * frame;
        stream.pinned_budget = 6 * frame;
        stream.policy = PLEC_RESIDENCY_LFU;
        stream.speculation = PLEC_SPECULATE_ON;
        stream.io_fault = {RareFaults::in_read, &faults};
        simulation.fail_copy = RareFaults::in_copy;
        simulation.user = &faults;
        stream.simulation = &simulation;
        runner = std::make_unique<StreamRunner>(model->path(), stream, 1);
        ASSERT_EQ(runner->status, PLEC_OK) << runner->err.message;
    }
    /* One forward; false: it failed, by a name that was asked for. */
    bool run(size_t i) {
        StreamStep &step = steps[i];
        plec_forward_args args = {};
        args.layer = step.layer;
        args.n_tokens = 1;
        args.hidden = step.x.data();
        args.ids = step.ids.data();
        args.weights = step.weights.data();
        args.n_slots = step.n_slots;
        args.out = out[i].data();
        plec_error err = {};
        if (plec_runner_forward(runner->runner, &args, &err) == PLEC_OK) {
            EXPECT_TRUE(same_bits(out[i], wanted[i])) << "step " << i;
            return true;
        }
        EXPECT_TRUE(strcmp(err.name, "ReadFailed") == 0 || strcmp(err.name, "CopyFailed") == 0)
            << err.name;
        return false;
    }
    void run_block(Block *block, uint32_t n_steps) {
        uint64_t stall = runner->stats().stall_ns;
        for (uint32_t s = 0; s < n_steps; s++)
            for (uint32_t layer = 0; layer < 3; layer++) {
                plec_streamer_pass(plec_runner_streamer(runner->runner), 200000); /* attention */
                block->failed += !run((s * 3 + layer) % steps.size());
                plec_stream_stats stats = runner->stats();
                block->longest_queue = std::max<uint64_t>(
                    block->longest_queue, stats.prefetch.n_requests + stats.prefetch.n_waiting +
                                              stats.prefetch.n_untaken);
            }
        block->stall_ns = runner->stats().stall_ns - stall;
    }
};

/* Decode that fell to a twentieth after some two thousand tokens, the disks idle. */
TEST(StreamingSoak, AHundredThousandStepsKeepMemoryQueueAndWaitFlat) {
    const uint32_t n_blocks = 10, n_steps = 10000;
    Soak soak;
    ASSERT_NE(soak.runner, nullptr);
    std::vector<Block> blocks(n_blocks);
    for (Block &block : blocks) {
#if PLEC_TEST_COUNTS_ALLOCATIONS
        counting = true;
#endif
        soak.run_block(&block, n_steps);
#if PLEC_TEST_COUNTS_ALLOCATIONS
        counting = false;
#endif
        block.resident_pages = resident_pages();
        ASSERT_FALSE(HasFailure());
    }
    for (const Block &block : blocks) {
        EXPECT_NEAR(double(block.stall_ns), double(blocks[1].stall_ns),
                    0.05 * double(blocks[1].stall_ns));
        EXPECT_LE(block.longest_queue, 12u + 4u) << "more than there are extents and demands";
        EXPECT_GT(block.failed, 0u);
#if PLEC_TEST_COUNTS_ALLOCATIONS /* a sanitizer's own tables grow with what it has seen */
        if (&block != &blocks[0]) {
            EXPECT_LE(block.resident_pages, blocks[0].resident_pages + 16);
        }
#endif
    }
#if PLEC_TEST_COUNTS_ALLOCATIONS
    EXPECT_EQ(n_allocations, 0u);
#endif
    soak.runner->expect_sound();
    plec_streamer_pass(plec_runner_streamer(soak.runner->runner), 1000000000);
    plec_stream_stats stats = soak.runner->stats();
    EXPECT_EQ(stats.device.in_use, 0u);
    EXPECT_EQ(stats.host.in_use, 0u);
    EXPECT_EQ(stats.read_bytes, stats.io.bytes);
    EXPECT_EQ(stats.dispatches, uint64_t(n_blocks) * n_steps * 3);
}

} // namespace
