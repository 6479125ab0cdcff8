/* Steps that a caller gives up, at every point: they end by name, soon, and with nothing under way;
 * the runner goes on with the resident bits. */
#include "tests/support/stream_steps.h"

#include <atomic>
#include <chrono>
#include <thread>

using namespace plec_test;

namespace {

/* A virtual machine that is slow enough for everything to be awaited. */
struct VirtualMachine {
    plec_stream_clock clock = {1, 400000000, 20000, 800000000, 10000, 10000, nullptr, nullptr};
};

class GivingUp : public StreamedSteps {
  protected:
    /* Step `at` is given up by what `change` does to its arguments; then it and all others are
     * right. Returns the name it ended with; empty: it did not. */
    template <typename Change>
    std::string give_up(size_t at, const Change &change, VirtualMachine *machine) {
        plec_stream_options stream = options();
        stream.clock = &machine->clock;
        StreamRunner runner(model.path(), stream, 1);
        EXPECT_EQ(runner.status, PLEC_OK) << runner.err.message;
        std::string name;
        for (size_t i = 0; i < steps.size(); i++) {
            if (i == at) {
                std::vector<float> out;
                plec_forward_args args = runner.args(steps[i], &out);
                plec_error err = {};
                change(&args);
                plec_status status = plec_runner_forward(runner.runner, &args, &err);
                if (status == PLEC_OK) {
                    EXPECT_TRUE(same_bits(out, wanted[i]));
                } else {
                    EXPECT_EQ(status, PLEC_CANCELLED);
                    name = err.name;
                    for (float value : out)
                        EXPECT_TRUE(std::isnan(value));
                }
            }
            EXPECT_TRUE(same_bits(runner.run(steps[i]), wanted[i])) << "step " << i;
        }
        plec_streamer_pass(plec_runner_streamer(runner.runner), 1000000000);
        expect_at_rest(runner);
        return name;
    }
};

struct NthAsk {
    int left;
    static bool cancel(void *user) { return static_cast<NthAsk *>(user)->left-- == 0; }
};

TEST_F(GivingUp, AForwardCancelledAtAnyPointEndsByNameAndTheNextIsRight) {
    Leaks leaks;
    for (size_t step = 0; step < steps.size(); step++)
        for (int at = 0;; at++) {
            SCOPED_TRACE("step " + std::to_string(step) + " ask " + std::to_string(at));
            NthAsk nth{at};
            VirtualMachine machine;
            std::string name = give_up(
                step,
                [&](plec_forward_args *args) {
                    args->cancelled = NthAsk::cancel;
                    args->cancelled_user = &nth;
                },
                &machine);
            ASSERT_LT(at, 200);
            if (nth.left < 0) {
                EXPECT_EQ(name, "Cancelled");
                continue;
            }
            EXPECT_EQ(name, "");
            EXPECT_GT(at, 4);
            break;
        }
    leaks.expect_none();
}

/* What the demand before it went through is no part of a wait in which none ended. */
TEST_F(GivingUp, AWaitThatIsCancelledIsNotChargedToAnEarlierRead) {
    VirtualMachine machine;
    plec_stream_options stream = options();
    stream.clock = &machine.clock;
    for (int at = 0;; at++) {
        ASSERT_LT(at, 20) << "never cancelled while it waited";
        StreamRunner runner(model.path(), stream, 1);
        EXPECT_TRUE(same_bits(runner.run(steps[0]), wanted[0]));
        plec_stream_stats before = runner.stats();
        EXPECT_GT(before.stall_disk_ns, 0u);
        std::vector<float> out;
        plec_forward_args args = runner.args(steps[1], &out);
        NthAsk nth{at};
        args.cancelled = NthAsk::cancel;
        args.cancelled_user = &nth;
        plec_error err = {};
        EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
        plec_stream_stats after = runner.stats();
        if (strstr(err.message, "while experts were awaited") == nullptr) continue;
        EXPECT_EQ(after.waits, before.waits + 1);
        EXPECT_GT(after.stall_ns, before.stall_ns);
        EXPECT_EQ(after.stall_other_ns - before.stall_other_ns, after.stall_ns - before.stall_ns);
        break;
    }
}

TEST_F(GivingUp, AForwardPastItsTimeAtAnyEventEndsByNameAndTheNextIsRight) {
    Leaks leaks;
    for (size_t step = 0; step < steps.size(); step++) {
        int n_late = 0;
        /* Finer than any read, copy or computation is long. */
        for (uint64_t timeout = 1;; timeout += 2000, n_late++) {
            SCOPED_TRACE("step " + std::to_string(step) + " after " + std::to_string(timeout));
            VirtualMachine machine;
            std::string name = give_up(
                step, [&](plec_forward_args *args) { args->timeout_ns = timeout; }, &machine);
            if (name.empty()) break;
            EXPECT_EQ(name, "DeadlinePast");
            ASSERT_LT(n_late, 2000);
        }
        EXPECT_GT(n_late, step == 0 ? 60 : 1);
    }
    leaks.expect_none();
}

/* Reads that stand still until they are let go. */
struct Gate {
    std::atomic<bool> shut{true};
    static int before_read(void *user, uint32_t, uint64_t, uint64_t) {
        while (static_cast<Gate *>(user)->shut)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return 0;
    }
};

class StuckReads : public StreamedSteps {
  protected:
    plec_stream_options stuck() {
        plec_stream_options stream = options();
        stream.io_engine = PLEC_IO_PREAD;
        stream.io_fault = {Gate::before_read, &gate};
        return stream;
    }
    /* The reads go on, and all is right. */
    void let_go(const StreamRunner &runner) {
        gate.shut = false;
        expect_all_right(runner);
    }
    Gate gate;
};

TEST_F(StuckReads, AreCancelledWhileTheyAreAwaited) {
    StreamRunner runner(model.path(), stuck());
    std::vector<float> out;
    plec_forward_args args = runner.args(steps[0], &out);
    std::atomic<int> asked{0};
    args.cancelled = [](void *user) { return ++*static_cast<std::atomic<int> *>(user) > 6; };
    args.cancelled_user = &asked;
    plec_error err = {};
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_STREQ(err.name, "Cancelled");
    EXPECT_NE(strstr(err.message, "while experts were awaited"), nullptr) << err.message;
    EXPECT_EQ(asked, 7);
    let_go(runner);
}

TEST_F(StuckReads, EndAForwardAtItsTime) {
    StreamRunner runner(model.path(), stuck());
    std::vector<float> out;
    plec_forward_args args = runner.args(steps[0], &out);
    args.timeout_ns = 20000000;
    plec_error err = {};
    auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_STREQ(err.name, "DeadlinePast");
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(20));
    let_go(runner);
}

TEST_F(StuckReads, AreSeenByTheWatchdogWhichShowsTheState) {
    plec_stream_options stream = stuck();
    stream.watchdog_ns = 100000000;
    StreamRunner runner(model.path(), stream);
    std::vector<float> out;
    plec_error err = {};
    EXPECT_EQ(runner.forward(steps[0], &out, &err), PLEC_IO);
    EXPECT_STREQ(err.name, "DemandStalled");
    for (const char *shown : {"no read or copy ends", "demands wait", "demand: key ", " waits 1",
                              "demand read key ", "frames: ", "slots: "})
        EXPECT_NE(runner.news.find(shown), std::string::npos) << shown << " in " << runner.news;
    EXPECT_EQ(runner.stats().prefetch.stalls, 1u);
    let_go(runner);
}

/* A caller whose turn has not come yet. */
TEST_F(StuckReads, AForwardThatQueuesBehindThemEndsAtItsTimeOrWhenCancelled) {
    StreamRunner runner(model.path(), stuck());
    std::thread first([&] { EXPECT_TRUE(same_bits(runner.run(steps[0]), wanted[0])); });
    while (runner.stats().prefetch.n_waiting == 0)
        std::this_thread::yield();
    std::vector<float> out;
    plec_forward_args args = runner.args(steps[1], &out);
    plec_error err = {};
    args.timeout_ns = 20000000;
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_STREQ(err.name, "DeadlinePast");
    args.timeout_ns = 0;
    NthAsk nth{2};
    args.cancelled = NthAsk::cancel;
    args.cancelled_user = &nth;
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_STREQ(err.name, "Cancelled");
    gate.shut = false;
    first.join();
    expect_all_right(runner);
}

TEST(ResidentForward, EndsAtItsTimeOrWhenCancelledToo) {
    StreamModel model;
    std::mt19937 random(8);
    StreamStep step = StreamStep::random(random, model.spec, 0, 3, 12);
    StreamRunner runner(model.path(), {});
    std::vector<float> out;
    plec_error err = {};
    for (int at = 0;; at++) {
        NthAsk nth{at};
        plec_forward_args args = runner.args(step, &out);
        args.cancelled = NthAsk::cancel;
        args.cancelled_user = &nth;
        plec_status status = plec_runner_forward(runner.runner, &args, &err);
        EXPECT_EQ(status, nth.left < 0 ? PLEC_CANCELLED : PLEC_OK);
        if (status != PLEC_OK) continue;
        EXPECT_GE(at, 2);
        break;
    }
    plec_forward_args args = runner.args(step, &out);
    args.timeout_ns = 1;
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_STREQ(err.name, "DeadlinePast");
    args.timeout_ns = UINT64_MAX;
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_OK);
}

/* What was enqueued before a step was given up reads the runner's arrays, which the next fills. */
TEST(ResidentForward, HasEndedOnTheDeviceWhenItIsGivenUp) {
    StreamModel model;
    std::mt19937 random(8);
    StreamStep step = StreamStep::random(random, model.spec, 0, 3, 12);
    plec_simulation link = {};
    link.copy_latency_ns = 20000000; /* of three copies to the device */
    plec_stream_options stream = {};
    stream.simulation = &link;
    StreamRunner runner(model.path(), stream);
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    std::vector<float> out;
    plec_error err = {};
    NthAsk nth{1};
    plec_forward_args args = runner.args(step, &out);
    args.cancelled = NthAsk::cancel;
    args.cancelled_user = &nth;
    auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_GE(std::chrono::steady_clock::now() - start, std::chrono::milliseconds(60));
}

} // namespace
