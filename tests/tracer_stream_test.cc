/* What a trace holds of a streaming runner: the numbers of its counters, and a whole life of every
 * expert that moved. */
#include "tests/support/allocation_guard.h"
#include "tests/support/stream_model.h"
#include "tests/support/traced.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

using namespace plec_test;

namespace {

/* Follows every expert of every extent through the events. */
class Lives {
  public:
    void take(const plec_tracer_event &event) {
        if (event.key == PLEC_NO_KEY) return;
        for (uint64_t left = event.mask; left != 0; left &= left - 1)
            follow(event, lives_[{event.key, __builtin_ctzll(left)}]);
    }
    /* After the streamer was closed. */
    void expect_ended() const {
        for (const auto &life : lives_)
            EXPECT_FALSE(life.second.arriving)
                << "key " << life.first.first << ", expert " << life.first.second;
    }
    uint64_t n_reads = 0, n_ready = 0, n_cancelled = 0;

  private:
    struct Life {
        bool reading = false, in_frame = false, copied = false, in_slot = false, arriving = false;
        int copying = 0;
    };
    void follow(const plec_tracer_event &event, Life &life) {
        bool begins = event.phase == PLEC_TRACE_BEGIN;
        switch (event.what) {
        case PLEC_TRACE_READ:
            EXPECT_NE(life.reading, begins);
            EXPECT_FALSE(begins && life.in_frame) << "read twice";
            life.reading = begins;
            life.arriving |= begins;
            n_reads += begins;
            if (!begins && event.status == PLEC_OK) life.in_frame = true;
            return;
        case PLEC_TRACE_COPY:
            EXPECT_TRUE(!begins || life.in_frame) << "copied from nowhere";
            life.copying += begins ? 1 : -1;
            EXPECT_GE(life.copying, 0);
            life.arriving |= begins;
            if (!begins && event.status == PLEC_OK) life.copied = true;
            return;
        case PLEC_TRACE_READY:
            EXPECT_TRUE(life.copied && life.arriving && !life.in_slot);
            life.arriving = life.copied = false;
            life.in_slot = true;
            n_ready++;
            return;
        case PLEC_TRACE_CANCEL:
            EXPECT_TRUE(life.arriving);
            life.arriving = false;
            n_cancelled++;
            return;
        case PLEC_TRACE_HAND_OUT: EXPECT_TRUE(life.in_slot) << "handed out from nowhere"; return;
        case PLEC_TRACE_EVICT_SLOT: life.in_slot = false; return;
        case PLEC_TRACE_EVICT_FRAME: life.in_frame = false; return;
        default: return;
        }
    }
    std::map<std::pair<uint32_t, int>, Life> lives_;
};

plec_stream_options small_budget(const StreamModel &model, uint32_t n_slots, uint32_t n_frames,
                                 uint32_t width) {
    plec_stream_options stream = {};
    stream.extent_width = width;
    stream.device_budget = UINT64_C(1) << 30;
    StreamRunner runner(model.path(), stream, 1);
    uint64_t frame_bytes = runner.stats().frame_bytes;
    stream.device_budget = n_slots * frame_bytes;
    stream.pinned_budget = n_frames * frame_bytes;
    return stream;
}

/* Runs steps on a runner with a tracer of its own; the runner is closed when this is over. */
struct Traffic {
    Traffic(const StreamModel &model, const plec_stream_options &stream, int n_steps,
            uint32_t most_tokens, uint32_t seed = 5) {
        StreamRunner runner(model.path(), stream, 2, 64, 64, traced.tracer);
        EXPECT_EQ(runner.status, PLEC_OK) << runner.err.message;
        std::mt19937 random(seed);
        for (int i = 0; i < n_steps; i++)
            for (uint32_t layer = 0; layer < model.spec.n_layers; layer++)
                runner.run(StreamStep::random(random, model.spec, layer, 1 + random() % most_tokens,
                                              model.spec.n_experts));
        stats = runner.settled();
    }
    Traced traced;
    plec_stream_stats stats;
};

TEST(TracerStream, EveryExpertThatMovedIsReadyOrCancelledOnce) {
    StreamModelSpec spec;
    spec.n_layers = 3, spec.n_experts = 16, spec.router = true;
    StreamModel model(spec);
    uint64_t cancelled = 0;
    for (uint32_t width : {1u, 4u, 16u})
        for (uint32_t n_slots : {1u, 2u, 5u, 50u})
            for (auto speculation : {PLEC_SPECULATE_OFF, PLEC_SPECULATE_ON}) {
                SCOPED_TRACE(testing::Message()
                             << width << " wide, " << n_slots << " slots, " << speculation);
                plec_stream_options stream = small_budget(model, n_slots, 1 + n_slots / 2, width);
                stream.speculation = speculation;
                stream.bypass = n_slots == 2;
                Traffic run(model, stream, 6, 2);
                run.traced.read();
                EXPECT_EQ(run.traced.seen.n_lost, 0u);
                Lives lives;
                for (const plec_tracer_event &event : run.traced)
                    lives.take(event);
                lives.expect_ended();
                EXPECT_GT(lives.n_ready, 0u);
                cancelled += lives.n_cancelled;
            }
    EXPECT_GT(cancelled, 0u);
}

TEST(TracerStream, AgreesWithTheCountersExactly) {
    StreamModelSpec spec;
    spec.n_layers = 2, spec.n_experts = 12;
    StreamModel model(spec);
    Traffic run(model, small_budget(model, 3, 3, 3), 8, 8);
    const plec_stream_stats &stats = run.stats;
    run.traced.read();
    EXPECT_EQ(run.traced.span(PLEC_TRACE_WAIT), stats.stall_ns);
    EXPECT_GT(stats.stall_ns, 0u);
    EXPECT_EQ(run.traced.ends(PLEC_TRACE_WAIT), stats.waits);
    EXPECT_EQ(run.traced.ends(PLEC_TRACE_DISPATCH), stats.dispatches);
    EXPECT_EQ(run.traced.ends(PLEC_TRACE_PLAN), stats.dispatches);
    EXPECT_EQ(run.traced.bytes(PLEC_TRACE_READ), stats.io.bytes);
    EXPECT_EQ(run.traced.bytes(PLEC_TRACE_COPY), stats.copied_bytes);
    EXPECT_EQ(run.traced.bytes(PLEC_TRACE_PINNED), stats.pinned.pinned_bytes);
    EXPECT_EQ(run.traced.bytes(PLEC_TRACE_HAND_OUT), stats.expert_bytes);
    uint64_t device = 0, host = 0, disk = 0;
    for (const plec_tracer_event &event : run.traced) {
        if (event.what != PLEC_TRACE_HAND_OUT) continue;
        device += static_cast<uint64_t>(__builtin_popcountll(event.in_slot));
        host += static_cast<uint64_t>(__builtin_popcountll(event.in_frame));
        disk += static_cast<uint64_t>(
            __builtin_popcountll(event.mask & ~event.in_slot & ~event.in_frame));
    }
    EXPECT_EQ(device, stats.device_hits);
    EXPECT_EQ(host, stats.host_hits);
    EXPECT_EQ(disk, stats.disk_misses);
    EXPECT_GT(disk, 0u);
}

TEST(TracerStream, RangesOfEveryThreadNest) {
    StreamModelSpec spec;
    spec.n_layers = 2, spec.router = true;
    StreamModel model(spec);
    Traffic run(model, small_budget(model, 3, 3, 3), 5, 1);
    run.traced.read();
    std::map<uint32_t, std::vector<uint8_t>> stacks;
    std::map<uint8_t, int> seen;
    for (const plec_tracer_event &event : run.traced) {
        if (event.phase == PLEC_TRACE_MOMENT || event.what == PLEC_TRACE_READ ||
            event.what == PLEC_TRACE_COPY)
            continue;
        std::vector<uint8_t> &stack = stacks[event.thread];
        if (event.phase == PLEC_TRACE_BEGIN) {
            stack.push_back(event.what);
            continue;
        }
        ASSERT_FALSE(stack.empty());
        ASSERT_EQ(stack.back(), event.what);
        stack.pop_back();
        seen[event.what]++;
    }
    for (const auto &stack : stacks)
        EXPECT_TRUE(stack.second.empty());
    EXPECT_EQ(seen[PLEC_TRACE_LAYER], 10);
    EXPECT_EQ(seen[PLEC_TRACE_ROUTE], 10);
    EXPECT_EQ(seen[PLEC_TRACE_DISPATCH], 10);
    EXPECT_GT(seen[PLEC_TRACE_LOOK_AHEAD], 0);
    EXPECT_GT(seen[PLEC_TRACE_WAIT], 0);
    EXPECT_GE(seen[PLEC_TRACE_GATE_UP], 10);
    EXPECT_EQ(seen[PLEC_TRACE_GATE_UP], seen[PLEC_TRACE_DOWN]);
}

int fail_read(void *, uint32_t, uint64_t, uint64_t) {
    return EIO;
}

TEST(TracerStream, AFailedReadCancelsItsExperts) {
    StreamModel model;
    Traced traced;
    plec_stream_options stream = small_budget(model, 3, 3, 4);
    stream.io_fault.before = fail_read;
    {
        StreamRunner runner(model.path(), stream, 1, 64, 64, traced.tracer);
        std::mt19937 random(1);
        std::vector<float> out;
        plec_error error = {};
        EXPECT_EQ(runner.forward(StreamStep::of(random, model.spec, 0, {1, 2}), &out, &error),
                  PLEC_IO);
    }
    traced.read();
    Lives lives;
    int with_reason = 0;
    for (const plec_tracer_event &event : traced) {
        lives.take(event);
        with_reason += event.what == PLEC_TRACE_CANCEL && event.status == PLEC_IO;
    }
    lives.expect_ended();
    EXPECT_GT(with_reason, 0);
    EXPECT_EQ(lives.n_ready, 0u);
}

#if PLEC_TEST_COUNTS_ALLOCATIONS
TEST(TracerStream, AForwardThatIsTracedAllocatesNothing) {
    StreamModel model;
    Traced traced;
    StreamRunner runner(model.path(), small_budget(model, 3, 3, 3), 2, 64, 64, traced.tracer);
    std::mt19937 random(1);
    StreamStep step = StreamStep::random(random, model.spec, 0, 4, 12);
    runner.run(step);
    std::vector<float> out;
    plec_error error = {};
    plec_forward_args args = runner.args(step, &out);
    n_allocations = 0;
    counting = true;
    plec_status status = plec_runner_forward(runner.runner, &args, &error);
    counting = false;
    EXPECT_EQ(status, PLEC_OK) << error.message;
    EXPECT_EQ(n_allocations, 0u);
}
#endif

} // namespace
