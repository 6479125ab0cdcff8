/* stream_steps.h: steps on a small streamed model with what they give when it is resident, and the
 * claims that hold when none runs.
 */
#ifndef PLEC_TESTS_SUPPORT_STREAM_STEPS_H
#define PLEC_TESTS_SUPPORT_STREAM_STEPS_H

#include "tests/support/stream_model.h"

#include <chrono>
#include <malloc.h>
#include <thread>

namespace plec_test {

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
inline void expect_at_rest(const StreamRunner &runner) {
    runner.expect_sound();
    plec_stream_stats stats = runner.settled();
    EXPECT_EQ(stats.device.in_use, 0u);
    EXPECT_EQ(stats.host.in_use, 0u);
    EXPECT_EQ(stats.prefetch.n_waiting + stats.prefetch.n_untaken, 0u);
    EXPECT_EQ(stats.read_bytes, stats.io.bytes);
}

class StreamedSteps : public testing::Test {
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

} // namespace plec_test
#endif
