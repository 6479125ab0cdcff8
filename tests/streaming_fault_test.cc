/* Streamed steps when reads, copies and memory fail, and when a caller gives up: each at every
 * point. The failure has a name, the runner goes on with the resident bits, and nothing leaks. */
#include "tests/support/stream_model.h"

#include <atomic>
#include <chrono>
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
    runner.expect_sound();
    plec_stream_stats stats = runner.settled();
    EXPECT_EQ(stats.device.in_use, 0u);
    EXPECT_EQ(stats.host.in_use, 0u);
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

    StreamModel model;
    std::vector<StreamStep> steps;
    std::vector<std::vector<float>> wanted;
    uint64_t frame = 0;
};

TEST_F(StreamingFaults, EveryReadErrorIsNamedAndTheRunnerGoesOn) {
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
}

TEST_F(StreamingFaults, EveryShortReadGoesOn) {
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
}

TEST_F(StreamingFaults, EveryRefusedAllocationIsACleanRefusalToOpen) {
    for (int at = 0, fired = 1; fired > 0; at++) {
        Fault fault(at);
        plec_simulation simulation = {};
        simulation.fail_alloc = Fault::in_alloc;
        simulation.user = &fault;
        plec_stream_options stream = options();
        stream.simulation = &simulation;
        StreamRunner runner(model.path(), stream);
        fired = fault.fired;
        EXPECT_EQ(runner.status, fired > 0 ? PLEC_NO_MEMORY : PLEC_OK);
        ASSERT_LT(at, 100);
    }
}

TEST_F(StreamingFaults, DeviceMemoryThatIsNotThereIsNamedWithItsSize) {
    plec_simulation simulation = {};
    uint64_t slots = 3 * frame;
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

TEST_F(StreamingFaults, PinnedMemoryThatIsNotThereIsNamedOrUsedInPart) {
    plec_stream_options stream = options();
    stream.allow_slab = [](void *, uint32_t, int) { return false; };
    EXPECT_STREQ(StreamRunner(model.path(), stream).err.name, "PinnedMemory");
}

/* --- giving up ------------------------------------------------------------------------------- */

/* Reads that stand still until they are let go. */
struct Gate {
    std::atomic<bool> shut{true};
    static int before_read(void *user, uint32_t, uint64_t, uint64_t) {
        while (static_cast<Gate *>(user)->shut)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        return 0;
    }
};

TEST_F(StreamingFaults, ACancelledForwardEndsAndTheNextIsRight) {
    Gate gate;
    plec_stream_options stream = options();
    stream.io_engine = PLEC_IO_PREAD;
    stream.io_fault = {Gate::before_read, &gate};
    StreamRunner runner(model.path(), stream);
    std::vector<float> out;
    plec_forward_args args = runner.args(steps[0], &out);
    std::atomic<int> asked{0};
    args.cancelled = [](void *user) { return ++*static_cast<std::atomic<int> *>(user) > 1; };
    args.cancelled_user = &asked;
    plec_error err = {};
    EXPECT_EQ(plec_runner_forward(runner.runner, &args, &err), PLEC_CANCELLED);
    EXPECT_STREQ(err.name, "Cancelled");
    EXPECT_EQ(asked, 2);
    gate.shut = false;
    for (size_t i = 0; i < steps.size(); i++)
        EXPECT_TRUE(same_bits(runner.run(steps[i]), wanted[i]));
    runner.expect_sound();
    EXPECT_EQ(runner.settled().device.in_use, 0u);
}

TEST_F(StreamingFaults, AForwardPastItsTimeEndsAndTheNextIsRight) {
    Gate gate;
    plec_stream_options stream = options();
    stream.io_engine = PLEC_IO_PREAD;
    stream.io_fault = {Gate::before_read, &gate};
    StreamRunner runner(model.path(), stream);
    std::vector<float> out;
    plec_forward_args args = runner.args(steps[0], &out);
    args.timeout_ns = 20000000;
    plec_error err = {};
    EXPECT_NE(plec_runner_forward(runner.runner, &args, &err), PLEC_OK);
    EXPECT_STREQ(err.name, "DeadlinePast");
    gate.shut = false;
    for (size_t i = 0; i < steps.size(); i++)
        EXPECT_TRUE(same_bits(runner.run(steps[i]), wanted[i]));
    runner.expect_sound();
}

TEST_F(StreamingFaults, TheWatchdogEndsAWaitInWhichNothingMoves) {
    Gate gate;
    plec_stream_options stream = options();
    stream.io_engine = PLEC_IO_PREAD;
    stream.io_fault = {Gate::before_read, &gate};
    stream.watchdog_ns = 100000000;
    StreamRunner runner(model.path(), stream);
    std::vector<float> out;
    plec_error err = {};
    EXPECT_NE(runner.forward(steps[0], &out, &err), PLEC_OK);
    EXPECT_STREQ(err.name, "DemandStalled");
    EXPECT_NE(runner.news.find("no read or copy ends"), std::string::npos) << runner.news;
    gate.shut = false;
    EXPECT_TRUE(same_bits(runner.run(steps[0]), wanted[0]));
}

} // namespace
