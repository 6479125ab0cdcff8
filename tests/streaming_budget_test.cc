/* Budgets of streaming: hits and reads are the numbers of arithmetic, bytes by tier what was moved,
 * over bank containers, GGUF and TEZW files. */
#include "tests/support/stream_engine.h"
#include "tests/support/stream_model.h"

#include <cstdlib>
#include <fstream>
#include <memory>

using namespace plec_test;

namespace {

/* Extents of one expert: what is asked for is what is read. */
struct Counted {
    explicit Counted(uint32_t n_slots, uint32_t n_frames, bool bypass = false) {
        plec_stream_options stream = budget(frame_bytes(model, 1), n_slots, n_frames, 1);
        stream.bypass = bypass;
        runner = std::make_unique<StreamRunner>(model.path(), stream);
        EXPECT_EQ(runner->status, PLEC_OK) << runner->err.message;
    }
    void use(uint32_t layer, const std::vector<int32_t> &experts) {
        runner->run(StreamStep::of(random, model.spec, layer, experts));
    }
    /* Experts handed out from the device, from frames, from files; and what was moved for it. */
    void expect(uint64_t device, uint64_t host, uint64_t disk) {
        plec_stream_stats stats = runner->settled();
        uint64_t bytes = model.expert_bytes();
        EXPECT_EQ(stats.device_hits, device);
        EXPECT_EQ(stats.host_hits, host);
        EXPECT_EQ(stats.disk_misses, disk);
        EXPECT_EQ(stats.device_hit_bytes, device * bytes);
        EXPECT_EQ(stats.host_hit_bytes, host * bytes);
        EXPECT_EQ(stats.disk_miss_bytes, disk * bytes);
        EXPECT_EQ(stats.experts, device + host + disk);
        EXPECT_EQ(stats.expert_bytes, (device + host + disk) * bytes);
        EXPECT_EQ(stats.read_bytes, disk * bytes);
        EXPECT_EQ(stats.io.bytes, disk * bytes);
        EXPECT_EQ(stats.copied_bytes, (host + disk) * bytes);
        EXPECT_EQ(stats.device.hits, device);
        EXPECT_EQ(stats.device.misses, host + disk);
        EXPECT_EQ(stats.host.loaded, disk);
    }

    StreamModel model;
    std::mt19937 random{1};
    std::unique_ptr<StreamRunner> runner;
};

TEST(StreamingBudget, ABudgetForEverythingReadsEachExpertOnce) {
    Counted counted(1000, 1000);
    for (int round = 0; round < 3; round++)
        for (uint32_t layer : {0u, 1u})
            for (int32_t e = 0; e < 12; e += 3)
                counted.use(layer, {e, e + 1, e + 2, e});
    counted.expect(48, 0, 24);
    EXPECT_EQ(counted.runner->stats().pinned.n_frames, 24u); /* no more than there are extents */
}

uint64_t resident_bytes() {
    uint64_t pages = 0, resident = 0;
    std::ifstream("/proc/self/statm") >> pages >> resident;
    return resident * 4096;
}

/* The first copies into fresh slots waited for the system to find each page. */
TEST(StreamingBudget, EverySlotIsInMemoryBeforeTheFirstCopy) {
    StreamModelSpec spec;
    spec.n_layers = 1;
    spec.hidden = spec.inner = 512;
    StreamModel model(spec);
    plec_stream_options stream = {};
    stream.device_budget = UINT64_C(1) << 30;
    stream.extent_width = 1;
    stream.pin = PLEC_PIN_OFF;
    uint64_t before = resident_bytes();
    Engine engine(model.path(), 1, stream);
    plec_stream_stats stats = engine.stats();
    uint64_t frames = stats.n_frames * stats.frame_bytes, slots = stats.n_slots * stats.frame_bytes;
    ASSERT_GT(slots, UINT64_C(34) << 20); /* more than malloc keeps of what was freed */
    EXPECT_GT(resident_bytes() - before, frames + slots - (UINT64_C(4) << 20));
}

TEST(StreamingBudget, OneSlotAndOneFrameKeepTheLastExpert) {
    Counted counted(1, 1);
    counted.use(0, {3});
    counted.use(0, {3});
    counted.expect(1, 0, 1);
    counted.use(0, {4});
    counted.use(0, {3});
    counted.use(1, {3});
    counted.expect(1, 0, 4);
    counted.use(1, {1, 2, 3, 4}); /* four through one slot; the one that is there comes first */
    counted.expect(2, 0, 7);
}

TEST(StreamingBudget, FramesServeWhatTheSlotsGaveUp) {
    Counted counted(1, 1000);
    for (int round = 0; round < 3; round++)
        for (int32_t e : {1, 2, 3, 4})
            counted.use(0, {e});
    counted.expect(0, 8, 4);
}

TEST(StreamingBudget, BypassKeepsNothing) {
    Counted counted(3, 2, true);
    for (int round = 0; round < 3; round++)
        for (uint32_t layer : {0u, 1u})
            counted.use(layer, {0, 1, 2, 3, 4, 5});
    counted.expect(0, 0, 36);
}

/* Two tiers of the least recently used, done by hand. */
class LeastRecentlyUsed {
  public:
    explicit LeastRecentlyUsed(size_t size) : size_(size) {}
    bool has(int key) const { return std::find(keys_.begin(), keys_.end(), key) != keys_.end(); }
    void touch(int key) {
        keys_.erase(std::remove(keys_.begin(), keys_.end(), key), keys_.end());
        keys_.push_back(key);
        if (keys_.size() > size_) keys_.erase(keys_.begin());
    }

  private:
    size_t size_;
    std::vector<int> keys_;
};

TEST(StreamingBudget, CountsAreThoseOfTwoTiersDoneByHand) {
    for (uint32_t n_slots : {1u, 2u, 5u, 9u, 24u})
        for (uint32_t n_frames : {1u, 4u, 10u, 24u}) {
            Counted counted(n_slots, n_frames);
            plec_stream_stats stats = counted.runner->stats();
            LeastRecentlyUsed slots(stats.n_slots - stats.n_slot_staging),
                frames(stats.n_frames - stats.n_frame_staging);
            uint64_t device = 0, host = 0, disk = 0;
            std::mt19937 random(n_slots * 31 + n_frames);
            for (int i = 0; i < 60; i++) {
                uint32_t layer = random() % 2;
                int32_t e = static_cast<int32_t>(random() % 12 * (random() % 4) / 3);
                int key = static_cast<int>(layer) * 100 + e;
                counted.use(layer, {e});
                device += slots.has(key);
                host += !slots.has(key) && frames.has(key);
                disk += !slots.has(key) && !frames.has(key);
                if (!slots.has(key)) frames.touch(key);
                slots.touch(key);
            }
            SCOPED_TRACE(std::to_string(n_slots) + " slots, " + std::to_string(n_frames));
            counted.expect(device, host, disk);
        }
}

TEST(StreamingBudget, WholeExtentsMoveTheBytesTheyHold) {
    StreamModel model;
    plec_stream_options stream = budget(frame_bytes(model, 4), 6, 6, 4);
    StreamRunner runner(model.path(), stream);
    std::mt19937 random(1);
    std::vector<int32_t> all(12);
    for (int32_t e = 0; e < 12; e++)
        all[static_cast<size_t>(e)] = e;
    for (int i = 0; i < 3; i++) {
        runner.run(StreamStep::of(random, model.spec, 0, all));
        runner.settled(); /* the plan of the next layer holds until the next step begins */
    }
    plec_stream_stats stats = runner.stats();
    EXPECT_EQ(stats.disk_misses, 12u);
    EXPECT_EQ(stats.device_hits, 24u);
    EXPECT_EQ(stats.read_bytes, stats.io.bytes);
    EXPECT_EQ(stats.io.bytes, 24 * model.expert_bytes()); /* the next layer's too, by plan */
    EXPECT_EQ(stats.copied_bytes, 24 * model.expert_bytes());
}

TEST(StreamingBudget, ABatchBringsTheNextLayerBeforeItIsAskedFor) {
    StreamModel model;
    plec_stream_options stream = budget(frame_bytes(model, 4), 6, 6, 4);
    StreamRunner runner(model.path(), stream);
    std::mt19937 random(1);
    std::vector<int32_t> all(12);
    for (int32_t e = 0; e < 12; e++)
        all[static_cast<size_t>(e)] = e;
    runner.run(StreamStep::of(random, model.spec, 0, all));
    plec_stream_stats before = runner.settled();
    while (before.device.at_rest < 6)
        before = runner.settled();
    runner.run(StreamStep::of(random, model.spec, 1, all));
    plec_stream_stats stats = runner.settled();
    EXPECT_EQ(stats.device_hits, 12u);
    EXPECT_EQ(stats.stall_ns, before.stall_ns);
    EXPECT_EQ(stats.policies[PLEC_FROM_PLAN].right, 12u);
}

/* --- memory ---------------------------------------------------------------------------------- */

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool SANITIZED = true;
#else
constexpr bool SANITIZED = false;
#endif

uint64_t anonymous_bytes() {
    std::string status = read_text("/proc/self/status");
    return strtoull(status.c_str() + status.find("RssAnon:") + 8, nullptr, 10) * 1024;
}

/* Adds up what is asked of the device. */
bool add_up(void *user, uint64_t n_bytes) {
    *static_cast<uint64_t *>(user) += n_bytes;
    return false;
}

/* All layers were made whole before any was put aside, and memory ran out. */
TEST(StreamingBudget, OpeningAndRunningTakeNoMoreMemoryThanTheBudgets) {
    StreamModelSpec spec;
    spec.n_layers = 4;
    spec.n_experts = 16;
    spec.hidden = spec.inner = 256; /* 768 KiB an expert, 48 MiB in all */
    StreamModel model(spec);
    plec_stream_options stream = budget(frame_bytes(model, 1), 3, 3, 1);
    uint64_t asked = 0;
    plec_simulation simulation = {};
    simulation.fail_alloc = add_up;
    simulation.user = &asked;
    stream.simulation = &simulation;
    std::mt19937 random(1);
    uint64_t before = anonymous_bytes();
    StreamRunner runner(model.path(), stream, 1);
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    for (uint32_t layer = 0; layer < 4; layer++)
        runner.run(StreamStep::of(random, spec, layer, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}));
    uint64_t slots = 3 * runner.stats().slot_bytes + runner.stats().landing_bytes;
    EXPECT_GE(asked, slots);
    uint64_t buffers = 0;
    StreamModelSpec one = spec;
    one.n_layers = 1;
    one.n_experts = 2; /* the buffers of a step are as large for a small model */
    one.top_k = 2;
    StreamModel small(one);
    simulation.user = &buffers;
    plec_stream_options other = budget(frame_bytes(small, 1), 1, 1, 1);
    other.simulation = &simulation;
    StreamRunner steps(small.path(), other, 1);
    ASSERT_EQ(steps.status, PLEC_OK) << steps.err.message;
    buffers -= steps.stats().slot_bytes + steps.stats().landing_bytes;
    EXPECT_LE(asked, slots + buffers + (64 << 10));
    if (!SANITIZED) { /* whose own memory grows with every byte that is looked at */
        EXPECT_LE(anonymous_bytes() - before, 2 * slots + buffers + (UINT64_C(8) << 20));
    }
}

/* --- every container -------------------------------------------------------------------------- */

/* A file whose layers are streamed in extents of one expert. */
struct Source {
    std::string name, path;
    uint32_t n_layers;
};

std::vector<Source> sources() {
    return {{"lyrw", data_path("run/run01_sigmoid_two_segments"), 1},
            {"lyrw_fused_with_bias", data_path("run/run02_gpt_oss_bias"), 1},
            {"gguf", data_path("gguf/01_mixtral/model.gguf"), 1},
            {"gguf_mxfp4_with_bias", data_path("gguf/07_gpt_oss/model.gguf"), 1},
            {"gguf_of_three_files", data_path("gguf/17_split/model-00001-of-00003.gguf"), 1},
            {"tezw", data_path("tezw/tiny/model.tezw"), 1}};
}

enum class Budget { NOTHING_KEPT, ONE_EXTENT, ALL };

/* An engine with a budget, and the experts that are used of it. */
struct Streamed {
    Streamed(const Source &from, Budget budget) : source(from) {
        plec_stream_options stream = {};
        stream.device_budget = UINT64_C(1) << 30;
        stream.extent_width = 1;
        stream.speculation = PLEC_SPECULATE_OFF;
        uint64_t frame = learn_sizes(Engine(source.path, source.n_layers, stream).stats());
        stream.poison = true;
        stream.bypass = budget == Budget::NOTHING_KEPT;
        if (budget != Budget::ALL) {
            stream.device_budget = budget_of_slots(frame, 1);
            stream.pinned_budget = frame;
        }
        engine = std::make_unique<Engine>(source.path, source.n_layers, stream);
        EXPECT_EQ(engine->status, PLEC_OK) << engine->err.message;
    }
    uint32_t n_experts() const { return engine->stats().n_experts / source.n_layers; }
    /* Each expert of each layer twice, one at a time; returns how many uses that were. */
    uint64_t use_all() {
        uint64_t n = 0;
        for (uint32_t layer = 0; layer < source.n_layers; layer++)
            for (uint32_t e = 0; e < n_experts(); e++, n += 2)
                for (int i = 0; i < 2; i++)
                    engine->must_run(layer, {int32_t(e)});
        return n;
    }
    /* The same counts by every counter there is, in experts and in bytes. */
    void expect(uint64_t device, uint64_t host, uint64_t disk) const {
        plec_stream_stats stats = engine->stats();
        uint64_t each = stats.weight_bytes / stats.n_experts; /* all of a source are equal */
        ASSERT_EQ(each * stats.n_experts, stats.weight_bytes);
        EXPECT_EQ(stats.device_hits, device);
        EXPECT_EQ(stats.host_hits, host);
        EXPECT_EQ(stats.disk_misses, disk);
        EXPECT_EQ(stats.device_hit_bytes, device * each);
        EXPECT_EQ(stats.host_hit_bytes, host * each);
        EXPECT_EQ(stats.disk_miss_bytes, disk * each);
        EXPECT_EQ(stats.experts, device + host + disk);
        EXPECT_EQ(stats.expert_bytes, (device + host + disk) * each);
        EXPECT_EQ(stats.read_bytes, disk * each);
        EXPECT_EQ(stats.io.bytes, disk * each);
        EXPECT_EQ(stats.io.direct_bytes + stats.io.buffered_bytes, disk * each);
        EXPECT_EQ(stats.copied_bytes, (host + disk) * each);
        EXPECT_EQ(stats.host.loaded, disk);
        EXPECT_EQ(stats.device.loaded, host + disk);
        EXPECT_EQ(stats.device.hits, device);
        EXPECT_EQ(stats.device.misses, host + disk);
    }

    Source source;
    std::unique_ptr<Engine> engine;
};

class StreamedSource : public testing::TestWithParam<Source> {};

TEST_P(StreamedSource, ABudgetOfNothingReadsEveryUse) {
    Streamed streamed(GetParam(), Budget::NOTHING_KEPT);
    uint64_t n = streamed.use_all();
    streamed.expect(0, 0, n);
}

TEST_P(StreamedSource, ABudgetOfOneExtentReadsWhatIsNotTheLastOne) {
    Streamed streamed(GetParam(), Budget::ONE_EXTENT);
    uint64_t n = streamed.use_all();
    streamed.expect(n / 2, 0, n / 2);
    streamed.use_all(); /* the last one of before is another's by now */
    bool single = streamed.engine->stats().n_experts == 1;
    streamed.expect(single ? n + n / 2 : n, 0, single ? n / 2 : n);
}

TEST_P(StreamedSource, ABudgetForAllReadsEachExpertOnce) {
    Streamed streamed(GetParam(), Budget::ALL);
    uint64_t n = streamed.use_all();
    streamed.expect(n / 2, 0, n / 2);
    streamed.use_all();
    streamed.expect(n + n / 2, 0, n / 2);
    EXPECT_EQ(streamed.engine->stats().read_bytes, streamed.engine->stats().weight_bytes);
}

/* A layer of one expert is a batch of the whole layer: the next one is brought ahead of its use. */
TEST(StreamingBudget, BothLayersOfATezwFileAreReadOnce) {
    Streamed streamed({"tezw", data_path("tezw/tiny/model.tezw"), 2}, Budget::ALL);
    for (int i = 0; i < 3; i++)
        streamed.use_all();
    plec_stream_stats stats = streamed.engine->stats();
    EXPECT_EQ(stats.n_experts, 2u);
    EXPECT_EQ(stats.experts, 12u);
    EXPECT_EQ(stats.device_hits + stats.host_hits + stats.disk_misses, 12u);
    EXPECT_EQ(stats.read_bytes, stats.weight_bytes);
    EXPECT_EQ(stats.io.bytes, stats.weight_bytes);
    EXPECT_EQ(stats.copied_bytes, stats.weight_bytes);
}

INSTANTIATE_TEST_SUITE_P(Containers, StreamedSource, testing::ValuesIn(sources()),
                         [](const auto &source) { return source.param.name; });

} // namespace
