/* Streamed steps when reads, copies and memory fail, and when a caller gives up: each at every
 * point. The failure has a name, the runner goes on with the resident bits, and nothing leaks. */
#include "tests/support/stream_model.h"

#include <atomic>
#include <chrono>
#include <malloc.h>
#include <memory>
#include <thread>

using namespace plec_test;

namespace {

/* --- faults ---------------------------------------------------------------------------------- */

/* Fails the call numbered `at`, once. */
struct Fault {
    std::atomic<int> left{0};
    std::atomic<int> fired{0};
    int error = EIO;
    explicit Fault(int at) : left(at) {}
    bool strikes() {
        if (left.fetch_sub(1) != 0) return false;
        fired++;
        return true;
    }
    static int before_read(void *user, uint32_t, uint64_t, uint64_t) {
        auto *fault = static_cast<Fault *>(user);
        return fault->strikes() ? fault->error : 0;
    }
    static bool in_copy(void *user, const void *, uint64_t) {
        return static_cast<Fault *>(user)->strikes();
    }
    static bool in_alloc(void *user, uint64_t) { return static_cast<Fault *>(user)->strikes(); }
};

/* What a process has taken of the system; it must have no more when a test of many faults ends. */
class Leaks {
  public:
    Leaks() : before_(now()) {}
    void expect_none() const {
        Counts after = now();
        for (int i = 0; i < 1000 && after.threads > before_.threads; i++) { /* a joined thread */
            std::this_thread::sleep_for(std::chrono::milliseconds(1));      /* may still be seen */
            after = now();
        }
        EXPECT_EQ(after.files, before_.files);
        EXPECT_EQ(after.threads, before_.threads);
        EXPECT_LE(after.heap_bytes, before_.heap_bytes + 131072) << "arenas of threads take some";
        EXPECT_EQ(after.locked, before_.locked);
    }

  private:
    struct Counts {
        long files = 0, threads = 0;
        size_t heap_bytes = 0; /* 0 under a sanitizer, which looks for leaks itself */
        std::string locked;
    };
    static long entries(const char *folder) {
        auto list = std::filesystem::directory_iterator(folder);
        return std::distance(begin(list), end(list));
    }
    static Counts now() {
        std::string status = read_text("/proc/self/status");
        return {entries("/proc/self/fd"), entries("/proc/self/task"), mallinfo2().uordblks,
                status.substr(status.find("VmLck:"), 24)};
    }
    Counts before_;
};

/* Nothing is referenced or under way, and all that was moved is accounted for. */
void expect_at_rest(const StreamRunner &runner) {
    runner.expect_sound();
    plec_stream_stats stats = runner.settled();
    EXPECT_EQ(stats.device.in_use, 0u);
    EXPECT_EQ(stats.host.in_use, 0u);
    EXPECT_EQ(stats.prefetch.n_waiting + stats.prefetch.n_untaken, 0u);
    EXPECT_EQ(stats.read_bytes, stats.io.bytes);
}

/* Runs steps of which one meets the fault: it alone fails, with this name, or none does. */
void expect_one_failure(const StreamModel &model, const plec_stream_options &stream,
                        const std::vector<StreamStep> &steps,
                        const std::vector<std::vector<float>> &wanted, const Fault &fault,
                        const std::string &name) {
    StreamRunner runner(model.path(), stream);
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    int n_failed = 0;
    for (size_t i = 0; i < steps.size(); i++) {
        std::vector<float> out;
        plec_error err = {};
        int fired = fault.fired;
        plec_status status = runner.forward(steps[i], &out, &err);
        if (status == PLEC_OK) {
            ASSERT_TRUE(same_bits(out, wanted[i])) << "step " << i;
            continue;
        }
        n_failed++;
        EXPECT_EQ(err.name, name) << err.message;
        EXPECT_EQ(err.code, status);
        EXPECT_TRUE(fired == 0 && fault.fired == 1) << "step " << i << ": " << err.message;
        for (float value : out)
            EXPECT_TRUE(std::isnan(value)); /* nothing that looks like a result */
        i--;                                /* the same again must do */
    }
    EXPECT_LE(n_failed, 1);
    expect_at_rest(runner);
    plec_stream_stats stats = runner.settled();
    EXPECT_LE(stats.failed, static_cast<uint64_t>(n_failed)); /* a step's own copies may fail too */
}

class StreamingFaults : public testing::Test {
  protected:
    void SetUp() override {
        std::mt19937 random(8);
        for (int i = 0; i < 2; i++)
            for (uint32_t layer : {0u, 1u})
                steps.push_back(StreamStep::random(random, model.spec, layer, 3, 12));
        wanted = resident(model, steps);
        frame = frame_bytes(model, 3);
    }
    plec_stream_options options() const { return budget(frame, 3, 3, 3); }
    /* Every step, on a runner that has seen a fault. */
    void expect_all_right(const StreamRunner &runner) const {
        for (size_t i = 0; i < steps.size(); i++)
            EXPECT_TRUE(same_bits(runner.run(steps[i]), wanted[i])) << "step " << i;
        expect_at_rest(runner);
    }
    void expect_all_right(const plec_stream_options &stream) const {
        StreamRunner runner(model.path(), stream);
        ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
        expect_all_right(runner);
    }

    StreamModel model;
    std::vector<StreamStep> steps;
    std::vector<std::vector<float>> wanted;
    uint64_t frame = 0;
};

TEST_F(StreamingFaults, EveryReadErrorIsNamedAndTheRunnerGoesOn) {
    Leaks leaks;
    for (plec_io_engine engine : {PLEC_IO_PREAD, PLEC_IO_AUTO})
        for (int at = 0, fired = 1; fired > 0; at++) {
            Fault fault(at);
            plec_stream_options stream = options();
            stream.io_engine = engine;
            stream.io_fault = {Fault::before_read, &fault};
            expect_one_failure(model, stream, steps, wanted, fault, "ReadFailed");
            fired = fault.fired;
            ASSERT_LT(at, 1000);
            if (fired == 0) {
                EXPECT_GT(at, 10);
            }
        }
    leaks.expect_none();
}

TEST_F(StreamingFaults, EveryShortReadGoesOn) {
    Leaks leaks;
    for (int at = 0, fired = 1; fired > 0; at++) {
        Fault fault(at);
        fault.error = -7;
        plec_stream_options stream = options();
        stream.io_fault = {Fault::before_read, &fault};
        StreamRunner runner(model.path(), stream);
        for (size_t i = 0; i < steps.size(); i++)
            ASSERT_TRUE(same_bits(runner.run(steps[i]), wanted[i])) << "step " << i;
        EXPECT_EQ(runner.settled().io.bytes, runner.settled().read_bytes);
        fired = fault.fired;
        ASSERT_LT(at, 1000);
    }
    leaks.expect_none();
}

TEST_F(StreamingFaults, AFileCutShortIsNamed) {
    StreamRunner runner(model.path(), options());
    std::filesystem::resize_file(model.file(0), 4096);
    std::vector<float> out;
    plec_error err = {};
    EXPECT_EQ(runner.forward(steps[0], &out, &err), PLEC_IO);
    EXPECT_STREQ(err.name, "ShortFile");
    EXPECT_NE(strstr(err.message, "layer 0"), nullptr) << err.message;
    EXPECT_NE(strstr(err.message, "experts "), nullptr) << err.message;
    EXPECT_NE(strstr(err.message, "0.lyrw"), nullptr) << err.message;
    EXPECT_TRUE(same_bits(runner.run(steps[1]), wanted[1]));
    runner.expect_sound();
}

TEST_F(StreamingFaults, EveryFailedCopyIsNamedAndTheRunnerGoesOn) {
    Leaks leaks;
    for (int at = 0, fired = 1; fired > 0; at++) {
        Fault fault(at);
        plec_simulation simulation = {};
        simulation.fail_copy = Fault::in_copy;
        simulation.user = &fault;
        plec_stream_options stream = options();
        stream.simulation = &simulation;
        expect_one_failure(model, stream, steps, wanted, fault, "CopyFailed");
        fired = fault.fired;
        ASSERT_LT(at, 1000);
        if (fired == 0) {
            EXPECT_GT(at, 20);
        }
    }
    leaks.expect_none();
}

TEST_F(StreamingFaults, EveryRefusedAllocationIsANamedRefusalToOpenAndTheNextOpenIsRight) {
    Leaks leaks;
    int n_inputs = 0;
    for (int at = 0, fired = 1; fired > 0; at++) {
        Fault fault(at);
        plec_simulation simulation = {};
        simulation.fail_alloc = Fault::in_alloc;
        simulation.user = &fault;
        plec_stream_options stream = options();
        stream.simulation = &simulation;
        {
            StreamRunner runner(model.path(), stream);
            fired = fault.fired;
            EXPECT_EQ(runner.status, fired > 0 ? PLEC_NO_MEMORY : PLEC_OK);
            std::string name = fired > 0 ? runner.err.name : "";
            EXPECT_TRUE(fired == 0 || name == "NoMemory" || name == "DeviceMemory" ||
                        name == "PinnedMemory")
                << name;
            n_inputs += strstr(runner.err.message, "the inputs of a step") != nullptr;
        }
        expect_all_right(options());
        ASSERT_LT(at, 100);
        if (fired == 0) {
            EXPECT_GT(at, 5);
        }
    }
    EXPECT_EQ(n_inputs, 4) << "hidden states, ids, weights and marks are copied from pinned memory";
    leaks.expect_none();
}

TEST_F(StreamingFaults, DeviceMemoryThatIsNotThereIsNamedWithItsSize) {
    plec_simulation simulation = {};
    uint64_t slots = budget_of_slots(frame, 3);
    simulation.fail_alloc = [](void *user, uint64_t n_bytes) {
        return n_bytes == *static_cast<uint64_t *>(user);
    };
    simulation.user = &slots;
    plec_stream_options stream = options();
    stream.simulation = &simulation;
    StreamRunner runner(model.path(), stream);
    EXPECT_STREQ(runner.err.name, "DeviceMemory");
    EXPECT_NE(strstr(runner.err.message, "3 slots"), nullptr) << runner.err.message;
}

/* Slab k cannot be mapped (step 0) or pinned (step 1). */
struct BadSlab {
    uint32_t slab;
    int step;
    static bool allow(void *user, uint32_t slab, int step) {
        auto *bad = static_cast<BadSlab *>(user);
        return slab != bad->slab || step != bad->step;
    }
};

TEST_F(StreamingFaults, PinnedMemoryThatFailsAtAnySlabIsNamedOrUsedInPart) {
    Leaks leaks;
    for (plec_pin_mode mode : {PLEC_PIN_PREFER, PLEC_PIN_REQUIRE})
        for (int step = 0; step < 2; step++)
            for (uint32_t k = 0; k < 6; k++) {
                BadSlab bad{k, step};
                plec_stream_options stream = budget(frame, 3, 5, 3);
                stream.pin = mode;
                stream.pin_slab_bytes = frame; /* five slabs */
                stream.allow_slab = BadSlab::allow;
                stream.allow_user = &bad;
                SCOPED_TRACE(std::to_string(mode) + " step " + std::to_string(step) + " slab " +
                             std::to_string(k));
                {
                    StreamRunner runner(model.path(), stream);
                    bool refused = k < 5 && (mode == PLEC_PIN_REQUIRE || (step == 0 && k == 0));
                    EXPECT_EQ(runner.status, refused ? PLEC_NO_MEMORY : PLEC_OK);
                    if (refused) {
                        EXPECT_STREQ(runner.err.name, "PinnedMemory");
                    } else {
                        uint32_t n = step == 0 && k < 5 ? k : 5;
                        plec_stream_stats stats = runner.stats();
                        EXPECT_EQ(stats.n_frames, n);
                        EXPECT_EQ(stats.pinned.asked_bytes, 5 * frame);
                        EXPECT_EQ(stats.pinned.obtained_bytes, n * frame);
                        EXPECT_EQ(stats.pinned.pinned_bytes, (k < n ? k : n) * frame);
                        EXPECT_EQ(stats.pinned.limits[0] != 0, k < 5);
                        expect_all_right(runner);
                    }
                }
            }
    leaks.expect_none();
}

/* --- giving up ------------------------------------------------------------------------------- */

/* A virtual machine that is slow enough for everything to be awaited. */
struct VirtualMachine {
    plec_stream_clock clock = {1, 400000000, 20000, 800000000, 10000, 10000, nullptr, nullptr};
};

class GivingUp : public StreamingFaults {
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

class StuckReads : public StreamingFaults {
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

} // namespace
