/* Layers whose experts are streamed: the bits of resident ones, whatever the budget, the engine and
 * the guesses; and what a user sees of it. */
#include "tests/support/allocation_guard.h"
#include "tests/support/stream_model.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

using namespace plec_test;

namespace {

TEST(StreamingRunner, EveryBudgetWidthAndPolicyGivesTheResidentBits) {
    StreamModelSpec spec;
    spec.n_layers = 3;
    spec.shared = true;
    StreamModel model(spec);
    std::mt19937 random(3);
    std::vector<StreamStep> steps = steps_of(random, spec, 3);
    std::vector<std::vector<float>> wanted = resident(model, steps);
    for (uint32_t width : {1u, 4u, 5u, 64u}) {
        uint64_t frame = frame_bytes(model, width);
        for (uint32_t n_slots : {1u, 2u, 3u, 7u, 1000u})
            for (bool lfu : {false, true}) {
                plec_stream_options stream = budget(frame, n_slots, 1 + n_slots % 4, width);
                stream.policy = lfu ? PLEC_RESIDENCY_LFU : PLEC_RESIDENCY_LRU;
                StreamRunner runner(model.path(), stream, 1 + n_slots % 3);
                ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
                for (size_t i = 0; i < steps.size(); i++)
                    ASSERT_TRUE(same_bits(runner.run(steps[i]), wanted[i]))
                        << "width " << width << ", " << n_slots << " slots, step " << i;
                runner.expect_sound();
            }
    }
}

/* --- what must be refused or narrowed --------------------------------------------------------- */

TEST(StreamingRunner, NarrowsExtentsToTheBudgetAndSaysSo) {
    StreamModel model;
    plec_stream_options stream = budget(frame_bytes(model, 2), 1, 1, 8);
    StreamRunner runner(model.path(), stream);
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    EXPECT_EQ(runner.stats().extent_width, 2u);
    EXPECT_NE(runner.news.find("extents of 8 experts do not fit the budget, 2 do"),
              std::string::npos)
        << runner.news;
}

TEST(StreamingRunner, RefusesABudgetBelowOneExpert) {
    StreamModel model;
    uint64_t one = frame_bytes(model, 1);
    for (bool device : {false, true}) {
        plec_stream_options stream = budget(one, 4, 4, 4);
        (device ? stream.device_budget : stream.pinned_budget) = one - 1;
        StreamRunner runner(model.path(), stream);
        EXPECT_EQ(runner.status, PLEC_BAD_INPUT);
        EXPECT_STREQ(runner.err.name, "BudgetTooSmall");
        EXPECT_NE(strstr(runner.err.message, std::to_string(one).c_str()), nullptr)
            << runner.err.message;
    }
}

TEST(StreamingRunner, RefusesWhatItCannotStream) {
    StreamModel model;
    plec_stream_options stream = budget(1 << 20, 4, 4, 65);
    EXPECT_STREQ(StreamRunner(model.path(), stream).err.name, "ExtentTooWide");
    plec_container *container = nullptr;
    plec_error err = {};
    ASSERT_EQ(plec_container_open(&container, model.path().c_str(), nullptr, &err), PLEC_OK);
    plec_runner_options options = {};
    options.device = PLEC_RUN_REFERENCE;
    options.stream.device_budget = 1 << 20;
    plec_runner *runner = nullptr;
    EXPECT_EQ(plec_runner_open(&runner, container, &options, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "NothingToStream");
    plec_container_close(container);
}

TEST(StreamingRunner, AModelWithoutRoutedExpertsRunsAsItIs) {
    StreamModelSpec spec;
    spec.n_experts = 1;
    spec.top_k = 1;
    StreamModel model(spec);
    StreamRunner runner(model.path(), budget(1 << 20, 1, 1, 1));
    ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
    std::mt19937 random(1);
    StreamStep step = StreamStep::of(random, spec, 0, {0});
    EXPECT_TRUE(same_bits(runner.run(step), resident(model, {step})[0]));
    plec_stream_stats stats;
    EXPECT_FALSE(plec_runner_stream_stats(&stats, runner.runner));
    EXPECT_EQ(plec_runner_streamer(runner.runner), nullptr);
}

/* --- many at once, and what users see --------------------------------------------------------- */

TEST(StreamingRunner, EightThreadsGetTheResidentBits) {
    StreamModel model;
    std::mt19937 random(4);
    std::vector<StreamStep> steps = steps_of(random, model.spec, 8);
    std::vector<std::vector<float>> wanted = resident(model, steps);
    plec_stream_options stream = budget(frame_bytes(model, 4), 3, 3, 4);
    stream.speculation = PLEC_SPECULATE_ON;
    StreamRunner runner(model.path(), stream);
    std::atomic<int> right{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            for (size_t i = t; i < steps.size(); i += 8)
                right += same_bits(runner.run(steps[i]), wanted[i]);
        });
    for (int i = 0; i < 50; i++)
        runner.stats();
    for (std::thread &thread : threads)
        thread.join();
    EXPECT_EQ(right, static_cast<int>(steps.size()));
    runner.expect_sound();
}

TEST(StreamingRunner, EveryEngineCacheAndPinModeGivesTheResidentBits) {
    StreamModel model;
    std::mt19937 random(5);
    std::vector<StreamStep> steps = steps_of(random, model.spec, 2);
    std::vector<std::vector<float>> wanted = resident(model, steps);
    uint64_t frame = frame_bytes(model, 4);
    for (plec_io_engine engine : {PLEC_IO_AUTO, PLEC_IO_URING, PLEC_IO_PREAD, PLEC_IO_MMAP})
        for (plec_io_cache cache : {PLEC_CACHE_AUTO, PLEC_CACHE_DIRECT, PLEC_CACHE_BUFFERED})
            for (plec_pin_mode pin : {PLEC_PIN_PREFER, PLEC_PIN_OFF}) {
                plec_stream_options stream = budget(frame, 2, 3, 4);
                stream.io_engine = engine;
                stream.io_cache = cache;
                stream.io_depth = 2;
                stream.pin = pin;
                stream.pin_method = engine == PLEC_IO_URING ? PLEC_PIN_ALLOCATE : PLEC_PIN_REGISTER;
                StreamRunner runner(model.path(), stream);
                ASSERT_EQ(runner.status, PLEC_OK) << runner.err.message;
                for (size_t i = 0; i < steps.size(); i++)
                    ASSERT_TRUE(same_bits(runner.run(steps[i]), wanted[i]))
                        << engine << cache << pin << " step " << i;
                plec_stream_stats stats = runner.settled();
                EXPECT_EQ(stats.io.bytes, stats.read_bytes);
                uint64_t pinned = pin == PLEC_PIN_OFF ? 0 : stats.pinned.obtained_bytes;
                EXPECT_EQ(stats.pinned.pinned_bytes, pinned) << stats.pinned.limits;
            }
}

TEST(StreamingRunner, GuessesChangeNoBit) {
    StreamModelSpec spec;
    spec.n_layers = 3;
    spec.router = true;
    StreamModel model(spec);
    std::mt19937 random(6);
    std::vector<StreamStep> steps = steps_of(random, spec, 10);
    for (StreamStep &step : steps)
        step.ids.clear(); /* the layer's router */
    std::vector<std::vector<float>> wanted = resident(model, steps);
    for (uint32_t n_slots : {1u, 3u, 8u, 100u}) {
        plec_stream_options stream = budget(frame_bytes(model, 2), n_slots, 4, 2);
        stream.speculation = PLEC_SPECULATE_ON;
        StreamRunner runner(model.path(), stream);
        for (size_t i = 0; i < steps.size(); i++)
            ASSERT_TRUE(same_bits(runner.run(steps[i]), wanted[i])) << n_slots << " step " << i;
        plec_stream_stats stats = runner.settled();
        EXPECT_GT(stats.policies[PLEC_FROM_NEXT_ROUTER].guesses, 0u);
        EXPECT_GT(stats.policies[PLEC_FROM_PREVIOUS].guesses, 0u);
        EXPECT_GT(stats.policies[PLEC_FROM_FREQUENCY].guesses, 0u);
        runner.expect_sound();
    }
}

TEST(StreamingRunner, AProfileOfOneRunServesTheNext) {
    StreamModel model;
    std::mt19937 random(6);
    plec_stream_options stream = budget(frame_bytes(model, 2), 4, 4, 2);
    StreamRunner first(model.path(), stream);
    first.run(StreamStep::of(random, model.spec, 0, {3, 5}));
    first.run(StreamStep::of(random, model.spec, 0, {3}));
    std::vector<uint64_t> counts(12);
    plec_streamer_get_profile(counts.data(), plec_runner_streamer(first.runner), 0);
    EXPECT_EQ(counts, (std::vector<uint64_t>{0, 0, 0, 2, 0, 1, 0, 0, 0, 0, 0, 0}));
    stream.speculation = PLEC_SPECULATE_ON;
    StreamRunner second(model.path(), stream);
    plec_streamer *streamer = plec_runner_streamer(second.runner);
    plec_error err = {};
    EXPECT_EQ(plec_streamer_set_profile(streamer, 0, counts.data(), 11, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "ProfileShape");
    EXPECT_EQ(plec_streamer_set_profile(streamer, 0, counts.data(), 12, &err), PLEC_OK);
    second.run(StreamStep::of(random, model.spec, 1, {1}));
    second.run(StreamStep::of(random, model.spec, 0, {1}));
    second.run(StreamStep::of(random, model.spec, 1, {1}));
    second.run(StreamStep::of(random, model.spec, 0, {3}));
    EXPECT_GT(second.settled().policies[PLEC_FROM_PROFILE].right, 0u);
}

/* Everything that happens, and what must hold of it. */
struct Events {
    std::vector<plec_stream_event> all;
    static void take(void *user, const plec_stream_event *event) {
        static_cast<Events *>(user)->all.push_back(*event);
    }
    uint64_t count(plec_stream_event_kind kind) const {
        uint64_t n = 0;
        for (const plec_stream_event &event : all)
            n += event.kind == kind;
        return n;
    }
    uint64_t bytes(plec_stream_event_kind kind) const {
        uint64_t n = 0;
        for (const plec_stream_event &event : all)
            n += event.kind == kind ? event.n_bytes : 0;
        return n;
    }
    /* Time between begins and ends of one kind with equal ids, each begun once and ended once. */
    uint64_t spans(plec_stream_event_kind begin, plec_stream_event_kind end) const {
        std::map<uint64_t, uint64_t> open;
        uint64_t total = 0;
        for (const plec_stream_event &event : all) {
            bool begun = event.kind != begin || open.emplace(event.id, event.at_ns).second;
            EXPECT_TRUE(begun);
            if (event.kind != end) continue;
            EXPECT_EQ(open.count(event.id), 1u);
            total += event.at_ns - open[event.id];
            open.erase(event.id);
        }
        EXPECT_TRUE(open.empty());
        return total;
    }
};

TEST(StreamingRunner, TheTraceAgreesWithTheCounters) {
    Events events;
    plec_stream_stats stats;
    StreamModel model;
    {
        std::mt19937 random(7);
        plec_stream_options stream = budget(frame_bytes(model, 3), 3, 3, 3);
        stream.trace = {Events::take, &events};
        StreamRunner runner(model.path(), stream);
        for (const StreamStep &step : steps_of(random, model.spec, 6))
            runner.run(step);
        stats = runner.settled();
    }
    EXPECT_EQ(events.spans(PLEC_STREAM_WAIT_BEGIN, PLEC_STREAM_WAIT_END), stats.stall_ns);
    EXPECT_EQ(events.count(PLEC_STREAM_WAIT_END), stats.waits);
    EXPECT_EQ(stats.stall_ns, stats.stall_slot_ns + stats.stall_disk_ns + stats.stall_copy_ns +
                                  stats.stall_other_ns);
    EXPECT_GT(stats.stall_ns, 0u);
    EXPECT_GT(events.spans(PLEC_STREAM_READ_BEGIN, PLEC_STREAM_READ_END), 0u);
    EXPECT_GT(events.spans(PLEC_STREAM_COPY_BEGIN, PLEC_STREAM_COPY_END), 0u);
    events.spans(PLEC_STREAM_LAYER_BEGIN, PLEC_STREAM_LAYER_END);
    EXPECT_EQ(events.count(PLEC_STREAM_LAYER_END), stats.dispatches);
    EXPECT_EQ(events.bytes(PLEC_STREAM_READ_END), stats.io.bytes);
    EXPECT_EQ(events.bytes(PLEC_STREAM_COPY_END), stats.copied_bytes);
    EXPECT_EQ(events.count(PLEC_STREAM_EVICT_SLOT), stats.device.evictions);
    EXPECT_EQ(events.count(PLEC_STREAM_EVICT_FRAME), stats.host.evictions);
    uint64_t n_experts = 0, before = 0;
    for (const plec_stream_event &event : events.all) {
        EXPECT_GE(event.at_ns, before);
        before = event.at_ns;
        if (event.kind == PLEC_STREAM_HAND_OUT)
            n_experts += static_cast<uint64_t>(__builtin_popcountll(event.mask));
    }
    EXPECT_EQ(n_experts, stats.experts);
}

TEST(StreamingRunner, ASlowLinkAndASlowDiskAreWaitedFor) {
    StreamModel model;
    std::mt19937 random(7);
    StreamStep step = StreamStep::of(random, model.spec, 0, {0, 1, 2, 3});
    std::vector<float> wanted = resident(model, {step})[0];
    plec_simulation simulation = {};
    simulation.copy_bytes_per_s = 4 * model.expert_bytes() * 20; /* 50 ms */
    for (bool disk : {false, true}) {
        plec_stream_options stream = budget(frame_bytes(model, 4), 3, 3, 4);
        if (disk)
            stream.disk_bytes_per_s = simulation.copy_bytes_per_s;
        else
            stream.simulation = &simulation;
        StreamRunner runner(model.path(), stream);
        EXPECT_TRUE(same_bits(runner.run(step), wanted));
        plec_stream_stats stats = runner.settled();
        EXPECT_GE(stats.stall_ns, 45000000u);
        EXPECT_GE(disk ? stats.stall_disk_ns : stats.stall_copy_ns, 40000000u);
        EXPECT_GE(disk ? stats.read_busy_ns : stats.copy_busy_ns, 45000000u);
    }
}

TEST(StreamingRunner, AStepAllocatesNothing) {
#if PLEC_TEST_COUNTS_ALLOCATIONS
    StreamModel model;
    std::mt19937 random(9);
    std::vector<StreamStep> steps = steps_of(random, model.spec, 4);
    for (plec_io_engine engine : {PLEC_IO_AUTO, PLEC_IO_PREAD}) {
        plec_stream_options stream = budget(frame_bytes(model, 3), 3, 3, 3);
        stream.speculation = PLEC_SPECULATE_ON;
        stream.io_engine = engine;
        StreamRunner runner(model.path(), stream);
        std::vector<float> out(64 * 32);
        for (const StreamStep &step : steps) {
            plec_forward_args args = runner.args(step, &out);
            counting = true;
            plec_status status = plec_runner_forward(runner.runner, &args, nullptr);
            counting = false;
            EXPECT_EQ(status, PLEC_OK);
        }
        EXPECT_EQ(n_allocations, 0u);
    }
#else
    GTEST_SKIP() << "the sanitizer has the allocator: allocations are not counted";
#endif
}

TEST(StreamingRunner, OpenAndCloseLeaveNothingPinned) {
    StreamModel model;
    std::mt19937 random(9);
    StreamStep step = StreamStep::random(random, model.spec, 0, 4, 12);
    plec_stream_options stream = budget(frame_bytes(model, 3), 3, 3, 3);
    auto locked = [] {
        std::string text = read_text("/proc/self/status");
        return text.substr(text.find("VmLck:"), 24);
    };
    std::string before = locked();
    for (int i = 0; i < 20; i++) {
        StreamRunner runner(model.path(), stream);
        runner.run(step);
    }
    EXPECT_EQ(locked(), before);
}

/* --- other sources --------------------------------------------------------------------------- */

class StreamedFiles : public testing::TestWithParam<std::string> {};

TEST_P(StreamedFiles, GiveTheResidentBits) {
    std::string folder = data_path(GetParam());
    std::string path = folder;
    for (const char *name : {"/model.gguf", "/model-00001-of-00003.gguf", "/model.tezw"})
        if (std::filesystem::exists(folder + name)) path = folder + name;
    Json document = load_json(folder + "/case.json");
    StreamStep step;
    step.layer =
        static_cast<uint32_t>(json_integer_value(json_object_get(document.get(), "layer")));
    Npy x = read_npy(folder + "/x.npy"), ids = read_npy(folder + "/ids.npy");
    step.x = x.f32();
    step.ids = ids.i32();
    step.weights = read_npy(folder + "/weights.npy").f32();
    step.n_tokens = static_cast<uint32_t>(x.shape[0]);
    step.n_slots = static_cast<uint32_t>(ids.shape[1]);
    StreamRunner whole(path, {});
    ASSERT_EQ(whole.status, PLEC_OK) << whole.err.message;
    std::vector<float> wanted = whole.run(step);
    plec_stream_options stream = {};
    stream.poison = true;
    stream.extent_width = 2;
    stream.device_budget = UINT64_C(1) << 30;
    StreamRunner all(path, stream);
    ASSERT_EQ(all.status, PLEC_OK) << all.err.message;
    EXPECT_TRUE(same_bits(all.run(step), wanted));
    plec_stream_stats stats;
    if (!plec_runner_stream_stats(&stats, all.runner)) return; /* dense */
    stream.pinned_budget = learn_sizes(stats);
    stream.device_budget = budget_of_slots(stats.frame_bytes, 1);
    StreamRunner one(path, stream);
    ASSERT_EQ(one.status, PLEC_OK) << one.err.message;
    for (int i = 0; i < 2; i++)
        EXPECT_TRUE(same_bits(one.run(step), wanted));
}

std::vector<std::string> cases() {
    std::vector<std::string> names;
    for (const std::string group : {"run", "gguf", "tezw"})
        if (std::filesystem::exists(data_path(group)))
            for (const std::string &name : list_folder(data_path(group), ""))
                if (std::filesystem::exists(data_path(group + "/" + name + "/case.json")) &&
                    std::filesystem::exists(data_path(group + "/" + name + "/ids.npy")))
                    names.push_back(group + "/" + name);
    return names;
}

std::string case_name(const testing::TestParamInfo<std::string> &info) {
    std::string name = info.param;
    for (char &c : name)
        if (!isalnum(static_cast<unsigned char>(c))) c = '_';
    return name;
}

INSTANTIATE_TEST_SUITE_P(Data, StreamedFiles, testing::ValuesIn(cases()), case_name);

} // namespace
