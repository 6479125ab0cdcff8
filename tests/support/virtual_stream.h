/* virtual_stream.h: the engine of streaming in virtual time: real files, frames and slots, on a
 * disk, a link and a compute stream that take as long as set.
 */
#ifndef PLEC_TESTS_SUPPORT_VIRTUAL_STREAM_H
#define PLEC_TESTS_SUPPORT_VIRTUAL_STREAM_H

#include <numeric>

#include "tests/support/simulator.h"
#include "tests/support/stream_engine.h"
#include "tests/support/stream_model.h"

namespace plec_test {

/* A model, its tiers in extents, and the machine. */
struct VirtualBank {
    StreamModelSpec model;
    uint32_t width = 8, n_slots = 12, n_frames = 12;
    plec_stream_clock clock = {};
    plec_stream_options stream = {};

    VirtualBank() {
        model.n_layers = 12;
        model.n_experts = 64;
        model.hidden = 16;
        model.inner = 16;
        clock.now_ns = 1;
        clock.disk_bytes_per_s = 5000000; /* an expert of 3 KiB takes 614 us, an extent 4.9 ms */
        clock.disk_latency_ns = 80000;
        clock.link_bytes_per_s = 25000000;
        clock.link_latency_ns = 10000;
        clock.compute_ns = 20000;
        stream.speculation = PLEC_SPECULATE_OFF;
        stream.pin = PLEC_PIN_OFF;
        stream.io_engine = PLEC_IO_PREAD;
        stream.io_cache = PLEC_CACHE_BUFFERED;
    }
    uint64_t entry_bytes() const { return uint64_t(3) * model.hidden * model.inner * 4; }
};

/* An engine on a bank of its own. */
class VirtualStream {
  public:
    explicit VirtualStream(const VirtualBank &from)
        : VirtualStream(from, std::make_shared<StreamModel>(from.model)) {}
    VirtualStream(const VirtualBank &from, std::shared_ptr<StreamModel> on)
        : bank(from), model(std::move(on)) {
        bank.stream.clock = &bank.clock;
        bank.stream.extent_width = bank.width;
        bank.stream.device_budget = UINT64_C(1) << 40; /* for the size of a frame */
        uint64_t frame =
            learn_sizes(Engine(model->path(), bank.model.n_layers, bank.stream).stats());
        bank.stream.device_budget = budget_of_slots(frame, bank.n_slots);
        bank.stream.pinned_budget = frame * bank.n_frames;
        engine = std::make_unique<Engine>(model->path(), bank.model.n_layers, bank.stream);
        EXPECT_EQ(engine->status, PLEC_OK) << engine->err.message;
    }
    uint64_t now() const { return bank.clock.now_ns; }
    void pass(uint64_t ns) { plec_streamer_pass(engine->streamer, ns); }
    void settle() {
        plec_stream_stats stats = engine->stats();
        for (; stats.n_reading > 0 || stats.n_copying > 0; stats = engine->stats())
            pass(1000000);
    }
    std::vector<int32_t> all_experts() const {
        std::vector<int32_t> ids(bank.model.n_experts);
        std::iota(ids.begin(), ids.end(), 0);
        return ids;
    }

    VirtualBank bank;
    std::shared_ptr<StreamModel> model;
    std::unique_ptr<Engine> engine;
};

/* [step][layer] experts. */
using Routing = std::vector<std::vector<std::vector<int32_t>>>;

struct Decoded {
    uint64_t p50, p99, stall_ns, read_bytes;
    plec_policy_report previous;
};

/* Runs a trace: attention between layers, then the experts; waits are those after `warm` steps. */
inline Decoded decode(VirtualStream &on, const Routing &trace, uint32_t warm,
                      uint64_t attention_ns) {
    std::vector<uint64_t> waits;
    uint64_t stall_before = 0;
    for (size_t s = 0; s < trace.size(); s++) {
        if (s == warm) stall_before = on.engine->stats().stall_ns;
        for (uint32_t layer = 0; layer < trace[s].size(); layer++) {
            on.pass(attention_ns);
            EngineRun run = on.engine->must_run(layer, trace[s][layer]);
            if (s >= warm) waits.insert(waits.end(), run.waits.begin(), run.waits.end());
        }
    }
    on.settle();
    EXPECT_EQ(on.engine->fault(), "");
    plec_stream_stats stats = on.engine->stats();
    EXPECT_EQ(stats.read_bytes, stats.io.bytes);
    return {quantile(waits, 0.5), quantile(waits, 0.99), stats.stall_ns - stall_before,
            stats.read_bytes, stats.policies[PLEC_FROM_PREVIOUS]};
}

/* Experts of 768 KiB, of which a speculative read brings one, in a cache smaller than a step's use.
 * Attention is short: what speculation has begun is still under way when a layer asks. */
inline VirtualBank speculation_bank(uint32_t n_layers, uint32_t n_experts,
                                    plec_speculation speculation) {
    VirtualBank bank;
    bank.model.n_layers = n_layers;
    bank.model.n_experts = n_experts;
    bank.model.hidden = bank.model.inner = 256;
    bank.width = 4;
    bank.n_slots = n_layers * n_experts / 24;
    bank.n_frames = n_layers * n_experts / 16;
    bank.clock.disk_bytes_per_s = UINT64_C(5000000000);
    bank.clock.link_bytes_per_s = UINT64_C(25000000000);
    bank.stream.speculation = speculation;
    return bank;
}

inline void expect_speculation_spares_demands(Trace kind, uint32_t n_layers, uint32_t n_experts,
                                              uint32_t n_steps) {
    VirtualBank bank = speculation_bank(n_layers, n_experts, PLEC_SPECULATE_OFF);
    auto model = std::make_shared<StreamModel>(bank.model);
    Routing trace = make_trace(kind, n_steps, n_layers, n_experts, 4, 11);
    VirtualStream without(bank, model);
    Decoded off = decode(without, trace, n_steps / 6, 100000);
    EXPECT_GT(off.p99, 500000u);
    for (plec_speculation speculation : {PLEC_SPECULATE_AUTO, PLEC_SPECULATE_ON}) {
        VirtualStream with(speculation_bank(n_layers, n_experts, speculation), model);
        Decoded on = decode(with, trace, n_steps / 6, 100000);
        std::string name = std::to_string(int(kind)) + "_" + std::to_string(speculation);
        EXPECT_LE(double(on.p99), 1.2 * double(off.p99)) << name;
        testing::Test::RecordProperty("p99_" + name,
                                      std::to_string(on.p99) + " of " + std::to_string(off.p99));
    }
}

} // namespace plec_test
#endif
