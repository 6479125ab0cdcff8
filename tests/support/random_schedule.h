/* random_schedule.h: one model, many ways of streaming it drawn by chance: layouts, formats,
 * budgets, widths, engines, policies, threads, callers, links, delays, faults of disk, link and
 * memory, cancellations and timeouts, in real time and in virtual; whatever they are, the bits
 * stay.
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
    /* Once, when it is let: of what was read a byte changes in memory. */
    std::atomic<int> spoils{0};
    static void spoil(void *user, void *bytes, uint64_t n_bytes) {
        auto *chances = static_cast<Chances *>(user);
        if (chances->spoils <= 0 || chances->draw() % 8 != 0) return;
        chances->spoils--;
        static_cast<uint8_t *>(bytes)[chances->draw() % n_bytes] ^= 1;
    }
    /* Slab k of the frames cannot be had; the first always can. */
    uint32_t bad_slab = 0;
    static bool allow_slab(void *user, uint32_t slab, int step) {
        auto *chances = static_cast<Chances *>(user);
        return chances->bad_slab == 0 || slab < chances->bad_slab || (step == 1 && slab % 2 == 0);
    }
    /* Added to the end of a read or copy in virtual time. */
    static uint64_t delay(void *user, const plec_job *) {
        return static_cast<Chances *>(user)->draw() % 300000;
    }
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
        spec.mxfp4 = pick(3) == 0;
        if (spec.mxfp4) {
            spec.hidden = 32 + 32 * pick(2);
            spec.inner = 32;
        }
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

    /* One schedule; `given` is its name in messages. */
    void run(const std::string &given) {
        Chances chances;
        plec_simulation simulation = {};
        plec_stream_clock clock = {};
        plec_stream_options stream = options(&chances, &simulation, &clock);
        StreamRunner runner(model_->path(), stream, 1 + pick(3));
        ASSERT_EQ(runner.status, PLEC_OK) << given << ": " << runner.err.message;
        if (stream.poison && runner.stats().n_slots > 2 && runner.stats().n_frames > 2)
            chances.spoils = static_cast<int>(pick(2));
        const std::string name = describe(given, stream, runner);
        uint32_t n_callers = stream.clock == nullptr && pick(4) == 0 ? 2 : 1;
        std::vector<std::thread> others;
        for (uint32_t c = 1; c < n_callers; c++)
            others.emplace_back([&, c] { call(runner, c, n_callers, &chances, name); });
        call(runner, 0, n_callers, &chances, name);
        for (std::thread &other : others)
            other.join();
        if (stream.clock != nullptr)
            plec_streamer_pass(plec_runner_streamer(runner.runner), UINT64_C(10000000000));
        runner.expect_sound();
        plec_stream_stats stats = runner.stats();
        while (stats.n_reading > 0 || stats.n_copying > 0)
            stats = runner.stats();
        EXPECT_EQ(stats.device.in_use, 0u) << name;
        EXPECT_EQ(stats.host.in_use, 0u) << name;
        EXPECT_EQ(stats.io.bytes, stats.read_bytes) << name;
        EXPECT_EQ(stats.experts, stats.device_hits + stats.host_hits + stats.disk_misses) << name;
        EXPECT_LE(stats.device.quarantined, 1u) << name;
    }

  private:
    static std::string describe(const std::string &name, const plec_stream_options &stream,
                                const StreamRunner &runner) {
        plec_stream_stats stats = runner.stats();
        std::string text = name + ": width " + std::to_string(stats.extent_width) + ", slots " +
                           std::to_string(stats.n_slots) + "/" +
                           std::to_string(stats.n_slot_staging) + ", frames " +
                           std::to_string(stats.n_frames) + "/" +
                           std::to_string(stats.n_frame_staging) + ", speculation " +
                           std::to_string(stream.speculation) + ", io " +
                           std::to_string(stream.io_engine) + std::to_string(stream.io_cache);
        if (stream.bypass) text += ", bypass";
        if (stream.poison) text += ", poison";
        if (stream.clock != nullptr) text += ", virtual time";
        return text + ",";
    }
    uint32_t pick(uint32_t n) { return random_() % n; }

    plec_stream_options options(Chances *chances, plec_simulation *simulation,
                                plec_stream_clock *clock) {
        plec_stream_options stream = {};
        stream.extent_width = 1 + pick(pick(2) ? 4 : 24);
        uint64_t entry = model_->expert_bytes() + 3 * 4096;
        stream.device_budget = 8 * entry + entry * pick(20) * pick(2);
        stream.pinned_budget = 8 * entry + entry * pick(20) * pick(2);
        stream.bypass = pick(8) == 0;
        if (pick(2)) stream.chunk_bytes = 200 + pick(4000); /* large experts go in several */
        stream.policy = pick(2) ? PLEC_RESIDENCY_LFU : PLEC_RESIDENCY_LRU;
        stream.speculation = static_cast<plec_speculation>(pick(3));
        stream.io_engine = static_cast<plec_io_engine>(pick(4));
        stream.io_cache = static_cast<plec_io_cache>(pick(3));
        stream.io_depth = 1 + pick(4);
        stream.pin = pick(2) ? PLEC_PIN_OFF : PLEC_PIN_PREFER;
        stream.pin_method = pick(2) ? PLEC_PIN_ALLOCATE : PLEC_PIN_REGISTER;
        stream.poison = pick(4) != 0;
        chances->state = random_();
        bool may_block = stream.io_engine == PLEC_IO_PREAD || stream.io_engine == PLEC_IO_MMAP;
        if (may_block && pick(4) == 0) chances->delay_us = 1 + pick(100);
        if (pick(3) == 0) chances->one_fault_in = 20 + pick(50);
        if (pick(3) == 0) chances->one_cut_in = 1 + pick(20);
        stream.io_fault = {Chances::before_read, chances};
        stream.spoil = Chances::spoil;
        stream.spoil_user = chances;
        if (pick(4) == 0) {
            stream.pin_slab_bytes = 4096; /* each frame has a slab to itself */
            chances->bad_slab = 1 + pick(4);
            stream.allow_slab = Chances::allow_slab;
            stream.allow_user = chances;
        }
        if (pick(4) == 0)
            *clock = {1,
                      1000000 + random_() % 1000000000,
                      random_() % 100000,
                      1000000 + random_() % 1000000000,
                      random_() % 20000,
                      random_() % 100000,
                      Chances::delay,
                      chances};
        if (clock->now_ns != 0) stream.clock = clock;
        if (clock->now_ns == 0 && pick(8) == 0) {
            simulation->copy_bytes_per_s = 50000000;
            simulation->copy_latency_ns = random_() % 20000;
        }
        simulation->fail_copy = Chances::in_copy;
        simulation->user = chances;
        stream.simulation = simulation;
        return stream;
    }

    /* Every n-th step, from one on. */
    void call(const StreamRunner &runner, uint32_t first, uint32_t n, Chances *chances,
              const std::string &name) const {
        for (size_t i = first; i < steps_.size() && !testing::Test::HasFatalFailure(); i += n)
            step(runner, i, chances, name);
    }

    /* A step until it succeeds; what fails on the way does so by a name that was asked for. */
    void step(const StreamRunner &runner, size_t i, Chances *chances,
              const std::string &name) const {
        for (int attempt = 0; attempt < 40; attempt++) {
            std::vector<float> out;
            plec_error err = {};
            plec_forward_args args = runner.args(steps_[i], &out);
            bool cancels = attempt == 0 && chances->draw() % 8 == 0;
            bool late = attempt == 0 && chances->draw() % 8 == 0;
            if (cancels) {
                args.cancelled = Chances::cancel;
                args.cancelled_user = chances;
            }
            if (late) args.timeout_ns = 1 + chances->draw() % 2000000;
            plec_status status = plec_runner_forward(runner.runner, &args, &err);
            if (status == PLEC_OK) {
                ASSERT_TRUE(same_bits(out, wanted_[i])) << name << " step " << i;
                return;
            }
            std::string why = err.name;
            bool given_up = (cancels && why == "Cancelled") || (late && why == "DeadlinePast");
            bool fault = chances->faults > 0 && (why == "ReadFailed" || why == "CopyFailed");
            ASSERT_TRUE(given_up || fault) << name << " step " << i << ": " << err.message << "\n"
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
