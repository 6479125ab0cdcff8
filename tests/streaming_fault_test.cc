/* Streamed steps when reads, copies and memory fail: each at every point. The failure has a name,
 * the runner goes on with the resident bits, and nothing leaks. */
#include "tests/support/stream_steps.h"

#include <atomic>
#include <memory>

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
    expect_at_rest(runner);
    plec_stream_stats stats = runner.settled();
    EXPECT_LE(stats.failed, static_cast<uint64_t>(n_failed)); /* a step's own copies may fail too */
}

class StreamingFaults : public StreamedSteps {};

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

} // namespace
