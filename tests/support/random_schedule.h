/* random_schedule.h: one model, many ways of streaming it drawn by chance: budgets, widths,
 * engines, policies, threads, delays, faults and cancellations; whatever they are, the bits stay.
 */
#ifndef PLEC_TESTS_SUPPORT_RANDOM_SCHEDULE_H
#define PLEC_TESTS_SUPPORT_RANDOM_SCHEDULE_H

#include "tests/support/stream_model.h"

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

namespace plec_test {

/* Delays and faults of reads and copies, by a generator that any thread may draw from. */
struct Chances {
    std::atomic<uint32_t> state{1};
    /* A dispatch that keeps nothing would fail for ever by chance alone. */
    static constexpr uint64_t MOST_FAULTS = 30;
    uint32_t delay_us = 0, one_fault_in = 0, one_cut_in = 0;
    std::atomic<uint64_t> faults{0};

    uint32_t draw() {
        uint32_t x = state.fetch_add(0x9e3779b9u);
        x = (x ^ x >> 16) * 0x85ebca6bu;
        x = (x ^ x >> 13) * 0xc2b2ae35u;
        return x ^ x >> 16;
    }
    void dawdle() {
        if (delay_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(draw() % delay_us));
    }
    bool fault() {
        if (one_fault_in == 0 || faults >= MOST_FAULTS || draw() % one_fault_in != 0) return false;
        faults++;
        return true;
    }
    static int before_read(void *user, uint32_t, uint64_t, uint64_t length) {
        auto *chances = static_cast<Chances *>(user);
        chances->dawdle();
        if (chances->fault()) return EIO;
        bool cut = chances->one_cut_in > 0 && chances->draw() % chances->one_cut_in == 0;
        return cut && length > 1 ? -static_cast<int>(1 + chances->draw() % (length - 1)) : 0;
    }
    static bool in_copy(void *user, const void *, uint64_t) {
        auto *chances = static_cast<Chances *>(user);
        chances->dawdle();
        return chances->fault();
    }
    static bool cancel(void *user) { return static_cast<Chances *>(user)->draw() % 4 == 0; }
};

class RandomSchedules {
  public:
    explicit RandomSchedules(uint32_t seed) : random_(seed) {
        StreamModelSpec spec;
        spec.n_layers = 1 + pick(3);
        spec.n_experts = 2 + pick(20);
        spec.top_k = 1 + pick(spec.n_experts < 4 ? spec.n_experts : 4);
        spec.hidden = 8 + 8 * pick(3);
        spec.inner = 5 + pick(20);
        spec.segment_entries = pick(2) ? 1 + pick(spec.n_experts) : 0;
        spec.shared = pick(3) == 0;
        spec.router = pick(2) == 0;
        model_ = std::make_unique<StreamModel>(spec);
        StreamRunner resident(model_->path(), {}, 1);
        uint32_t n_steps = 4 + pick(6);
        for (uint32_t i = 0; i < n_steps; i++) {
            uint32_t layer = pick(4) ? i % spec.n_layers : pick(spec.n_layers);
            uint32_t n_tokens = pick(4) ? 1 + pick(3) : 20;
            StreamStep step =
                StreamStep::random(random_, spec, layer, n_tokens, 1 + pick(spec.n_experts));
            if (spec.router && pick(2)) step.ids.clear();
            wanted_.push_back(resident.run(step));
            steps_.push_back(std::move(step));
        }
    }

    /* One schedule; `name` is for messages. */
    void run(const std::string &name) {
        Chances chances;
        plec_simulation simulation = {};
        plec_stream_options stream = options(&chances, &simulation);
        StreamRunner runner(model_->path(), stream, 1 + pick(3));
        ASSERT_EQ(runner.status, PLEC_OK) << name << ": " << runner.err.message;
        for (size_t i = 0; i < steps_.size(); i++)
            ASSERT_NO_FATAL_FAILURE(step(runner, i, &chances, name));
        runner.expect_sound();
        plec_stream_stats stats = runner.settled();
        EXPECT_EQ(stats.device.in_use, 0u) << name;
        EXPECT_EQ(stats.host.in_use, 0u) << name;
        EXPECT_EQ(stats.io.bytes, stats.read_bytes) << name;
        EXPECT_EQ(stats.experts, stats.device_hits + stats.host_hits + stats.disk_misses) << name;
    }

  private:
    uint32_t pick(uint32_t n) { return random_() % n; }

    plec_stream_options options(Chances *chances, plec_simulation *simulation) {
        plec_stream_options stream = {};
        stream.extent_width = 1 + pick(pick(2) ? 4 : 24);
        uint64_t entry = model_->expert_bytes() + 3 * 4096;
        stream.device_budget = 8 * entry + entry * pick(20) * pick(2);
        stream.pinned_budget = 8 * entry + entry * pick(20) * pick(2);
        stream.bypass = pick(8) == 0;
        stream.policy = pick(2) ? PLEC_RESIDENCY_LFU : PLEC_RESIDENCY_LRU;
        stream.speculation = static_cast<plec_speculation>(pick(3));
        stream.io_engine = static_cast<plec_io_engine>(pick(4));
        stream.io_cache = static_cast<plec_io_cache>(pick(3));
        stream.io_depth = 1 + pick(4);
        stream.pin = pick(2) ? PLEC_PIN_OFF : PLEC_PIN_PREFER;
        stream.poison = pick(4) != 0;
        chances->state = random_();
        bool may_block = stream.io_engine == PLEC_IO_PREAD || stream.io_engine == PLEC_IO_MMAP;
        if (may_block && pick(4) == 0) chances->delay_us = 1 + pick(100);
        if (pick(3) == 0) chances->one_fault_in = 20 + pick(50);
        if (pick(3) == 0) chances->one_cut_in = 1 + pick(20);
        stream.io_fault = {Chances::before_read, chances};
        simulation->fail_copy = Chances::in_copy;
        simulation->user = chances;
        stream.simulation = simulation;
        return stream;
    }

    /* A step until it succeeds; what fails on the way does so by a name that was asked for. */
    void step(const StreamRunner &runner, size_t i, Chances *chances, const std::string &name) {
        for (int attempt = 0; attempt < 40; attempt++) {
            std::vector<float> out;
            plec_error err = {};
            plec_forward_args args = runner.args(steps_[i], &out);
            bool cancels = attempt == 0 && pick(8) == 0;
            if (cancels) {
                args.cancelled = Chances::cancel;
                args.cancelled_user = chances;
            }
            plec_status status = plec_runner_forward(runner.runner, &args, &err);
            if (status == PLEC_OK) {
                ASSERT_TRUE(same_bits(out, wanted_[i])) << name << " step " << i;
                return;
            }
            bool cancelled = cancels && std::string(err.name) == "Cancelled";
            bool fault = chances->faults > 0 && (std::string(err.name) == "ReadFailed" ||
                                                 std::string(err.name) == "CopyFailed");
            ASSERT_TRUE(cancelled || fault) << name << " step " << i << ": " << err.message << "\n"
                                            << runner.news;
        }
        FAIL() << name << " step " << i << ": never succeeds";
    }

    std::mt19937 random_;
    std::unique_ptr<StreamModel> model_;
    std::vector<StreamStep> steps_;
    std::vector<std::vector<float>> wanted_;
};

inline void run_random_schedules(uint32_t first_model, uint32_t n_models, uint32_t n_each) {
    for (uint32_t m = first_model; m < first_model + n_models; m++) {
        RandomSchedules schedules(m);
        for (uint32_t i = 0; i < n_each; i++)
            ASSERT_NO_FATAL_FAILURE(
                schedules.run("model " + std::to_string(m) + " schedule " + std::to_string(i)));
    }
}

} // namespace plec_test
#endif
