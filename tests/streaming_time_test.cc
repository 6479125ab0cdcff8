/* The engine of streaming in virtual time: what it makes of a known future, what guesses cost when
 * it cannot know, and when it gives up. */
#include "tests/support/virtual_stream.h"

using namespace plec_test;

namespace {

/* --- a known future --------------------------------------------------------------------------- */

using Layers = Routing::value_type; /* [layer] experts */

struct Floors {
    double read, copy, compute, one_extent;
    double most() const { return std::max(read, std::max(copy, compute)); }
};

double ns_of(uint64_t n_bytes, uint64_t bytes_per_s) {
    return double(n_bytes) * 1e9 / double(bytes_per_s);
}

/* What each stage takes alone, for experts that are each used, and so moved, once. */
Floors floors_of(const VirtualBank &bank, uint64_t n_used) {
    const plec_stream_clock &clock = bank.clock;
    uint64_t used = n_used * bank.entry_bytes(), extent = bank.entry_bytes() * bank.width;
    return {ns_of(used, clock.disk_bytes_per_s), ns_of(used, clock.link_bytes_per_s),
            double(n_used * clock.compute_ns),
            ns_of(extent, clock.disk_bytes_per_s) + double(clock.disk_latency_ns) +
                ns_of(extent, clock.link_bytes_per_s) + double(clock.link_latency_ns) +
                double(bank.width * clock.compute_ns)};
}

/* Runs a step; the plan of its next layers is told before each. */
uint64_t run_known(VirtualStream &on, const Layers &layers, uint32_t n_ahead) {
    uint64_t start = on.now();
    for (uint32_t i = 0; i < layers.size(); i++) {
        for (uint32_t a = 0; n_ahead > 0 && a <= n_ahead && i + a < layers.size(); a++)
            on.engine->expect(PLEC_FROM_PLAN, i + a, layers[i + a]);
        on.engine->must_run(i, layers[i]);
    }
    return on.now() - start;
}

void expect_overlap(const VirtualBank &bank, const Layers &layers, uint32_t n_ahead,
                    const std::string &what) {
    SCOPED_TRACE(what);
    VirtualStream on(bank);
    uint64_t took = run_known(on, layers, n_ahead), n_used = 0;
    for (const auto &layer : layers)
        n_used += layer.size();
    Floors floors = floors_of(bank, n_used);
    EXPECT_LE(double(took), 1.03 * floors.most() + floors.one_extent)
        << "read " << floors.read << " copy " << floors.copy << " compute " << floors.compute;
    EXPECT_GE(double(took), floors.most()) << "the virtual clock is wrong";
    on.settle();
    plec_stream_stats stats = on.engine->stats();
    EXPECT_EQ(stats.experts, n_used);
    EXPECT_EQ(stats.read_bytes, n_used * bank.entry_bytes());
    EXPECT_EQ(stats.copied_bytes, n_used * bank.entry_bytes());
    uint64_t piece = std::min<uint64_t>(bank.entry_bytes() / 3, 512 << 10);
    EXPECT_GE(stats.io.bytes / stats.io.pieces, piece) << "read in small pieces";
}

Layers prefill(const VirtualBank &bank) {
    std::vector<int32_t> all(bank.model.n_experts);
    std::iota(all.begin(), all.end(), 0);
    return Layers(bank.model.n_layers, all);
}

VirtualBank bound_by(const std::string &what) {
    VirtualBank bank;
    bank.model.n_layers = 24;
    if (what == "link") {
        bank.clock.disk_bytes_per_s = 50000000;
        bank.clock.link_bytes_per_s = 10000000;
    } else if (what == "compute") {
        bank.clock.compute_ns = 1200000;
    } else if (what == "all alike") {
        bank.clock.link_bytes_per_s = bank.clock.disk_bytes_per_s;
        bank.clock.compute_ns = uint64_t(ns_of(bank.entry_bytes(), bank.clock.disk_bytes_per_s));
    }
    return bank;
}

TEST(StreamingTime, AKnownFutureTakesWhatItsSlowestStageTakesPlusOneExtent) {
    for (const char *what : {"disk", "link", "compute", "all alike"})
        expect_overlap(bound_by(what), prefill(bound_by(what)), 1, what);
}

TEST(StreamingTime, ABatchOfWholeLayersNeedsNoPlanOfTheCallers) {
    for (const char *what : {"disk", "link", "compute", "all alike"})
        expect_overlap(bound_by(what), prefill(bound_by(what)), 0, what);
}

TEST(StreamingTime, AKnownFutureOfSparseNeedsTakesWhatItsSlowestStageTakes) {
    VirtualBank bank;
    bank.model.n_layers = 24;
    bank.n_slots = bank.n_frames = 24; /* a dispatch and the next fit */
    expect_overlap(bank, make_trace(Trace::ZIPF, 1, 24, 64, 20, 3)[0], 1, "20 of 64");
}

TEST(StreamingTime, ExpertsLargerThanAChunkOverlapToo) {
    VirtualBank bank;
    bank.model.n_layers = 2;
    bank.model.n_experts = 4;
    bank.model.hidden = 1024;
    bank.model.inner = 1024; /* 12 MiB, copied in chunks of 8 */
    bank.width = 1;
    bank.n_slots = bank.n_frames = 5;
    bank.clock.disk_bytes_per_s = UINT64_C(5000000000);
    bank.clock.link_bytes_per_s = UINT64_C(5000000000);
    expect_overlap(bank, prefill(bank), 1, "12 MiB");
}

/* A copy on the compute stream costs all of it; one layer ahead on its own, next to none. */
TEST(StreamingTime, CopiesALayerAheadExposeNextToNothing) {
    VirtualBank bank;
    bank.model.n_layers = 24;
    bank.model.n_experts = 2;
    bank.width = 1;
    bank.n_frames = 48; /* all in host memory */
    bank.n_slots = 3;
    bank.clock.link_bytes_per_s = 13000000; /* 236 us an expert */
    bank.clock.compute_ns = 300000;
    VirtualStream on(bank);
    for (uint32_t layer = 0; layer < 24; layer++)
        on.engine->must_run(layer, {1});
    plec_stream_stats before = on.engine->stats();
    run_known(on, Layers(24, {1}), 1);
    plec_stream_stats after = on.engine->stats();
    EXPECT_EQ(after.read_bytes, before.read_bytes);
    EXPECT_EQ(after.copied_bytes - before.copied_bytes, 24 * bank.entry_bytes());
    double serial = ns_of(after.copied_bytes - before.copied_bytes, bank.clock.link_bytes_per_s);
    EXPECT_LT(double(after.stall_ns - before.stall_ns), 0.05 * serial) << "exposed";
}

/* --- speculation ------------------------------------------------------------------------------ */

/* Speculation that read beside demands tripled what these waited. */
TEST(StreamingTime, SpeculationKeepsDemandP99WithinOneFifthOnEveryTrace) {
    for (Trace kind : {Trace::UNIFORM, Trace::ZIPF, Trace::MARKOV})
        expect_speculation_spares_demands(kind, 3, 16, 60);
}

VirtualBank decode_bank(plec_speculation speculation) {
    VirtualBank bank;
    bank.n_frames = 24; /* of 96 extents: less than a step uses */
    bank.n_slots = 16;
    bank.stream.speculation = speculation;
    return bank;
}

Decoded decode(Trace kind, plec_speculation speculation) {
    static auto model = std::make_shared<StreamModel>(VirtualBank().model);
    VirtualStream on(decode_bank(speculation), model);
    return plec_test::decode(on, make_trace(kind, 90, 12, 64, 4, 11), 20, 4000000);
}

TEST(StreamingTime, SpeculationPaysOnATraceThatRepeatsAndEndsOnOneThatDoesNot) {
    Decoded off = decode(Trace::MARKOV, PLEC_SPECULATE_OFF);
    Decoded on = decode(Trace::MARKOV, PLEC_SPECULATE_ON);
    EXPECT_TRUE(on.previous.on);
    EXPECT_LT(double(on.stall_ns), 0.95 * double(off.stall_ns));
    Decoded uniform = decode(Trace::UNIFORM, PLEC_SPECULATE_ON);
    EXPECT_FALSE(uniform.previous.on);
    EXPECT_EQ(uniform.previous.switched_off, 1u);
}

/* --- giving up -------------------------------------------------------------------------------- */

TEST(StreamingTime, ADemandThatWaits5SecondsBesideAnIdleDiskIsShownAndFailsByName) {
    VirtualBank bank;
    bool stuck = true;
    bank.clock.user = &stuck;
    bank.clock.delay = [](void *user, const plec_job *job) {
        bool never = *static_cast<bool *>(user) && job->kind == PLEC_JOB_READ;
        return never ? UINT64_MAX : UINT64_C(0);
    };
    VirtualStream on(bank);
    uint64_t start = on.now();
    EngineRun run = on.engine->run(3, {7, 9});
    EXPECT_EQ(run.status, PLEC_IO);
    EXPECT_EQ(run.error, "DemandStalled");
    EXPECT_NE(on.engine->message.find("waited 5000 ms while nothing moved"), std::string::npos)
        << on.engine->message;
    EXPECT_EQ((on.now() - start) / 100000000, 50u);
    for (const char *shown : {"no read or copy ends", "2 demands wait", "demand: key 24 ",
                              "demand read key 24", "for 5000 ms", "frames: 10 free", "slots: "})
        EXPECT_NE(on.engine->news.find(shown), std::string::npos) << shown << " in\n"
                                                                  << on.engine->news;
    stuck = false;
    on.engine->must_run(3, {8, 20});
}

TEST(StreamingTime, TheWatchdogIsQuietWhileASlowDiskMoves) {
    VirtualBank bank;
    bank.clock.disk_bytes_per_s = 1000; /* an expert of 3 KiB in 3 s */
    VirtualStream on(bank);
    uint64_t start = on.now();
    on.engine->must_run(0, {1, 11, 21, 31, 41});
    EXPECT_GT(on.now() - start, UINT64_C(15000000000));
    EXPECT_EQ(on.engine->stats().prefetch.stalls, 0u);
}

TEST(StreamingTime, AWaitLimitEndsADispatchAtItsTime) {
    VirtualBank bank;
    bank.stream.wait_limit_ns = 300000;
    VirtualStream on(bank);
    uint64_t start = on.now();
    EngineRun run = on.engine->run(0, {1, 2, 3});
    EXPECT_EQ(run.error, "DeadlinePast");
    EXPECT_EQ(on.now() - start, 300000u);
}

/* The end of the limit lay before its start. */
TEST(StreamingTime, AWaitLimitOfAllTimeEndsNothing) {
    VirtualBank bank;
    bank.clock.now_ns = 5000;
    bank.stream.wait_limit_ns = UINT64_MAX;
    bank.stream.watchdog_ns = UINT64_MAX;
    VirtualStream on(bank);
    on.engine->must_run(0, {1, 2, 3});
}

} // namespace
