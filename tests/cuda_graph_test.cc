// A step captured once and replayed with other routings, against launches of their own.
#include "tests/support/cuda_device.h"
#ifndef PLEC_ON_GPU
#include "tests/emu/emulator.h"
#endif

#include <atomic>
#include <chrono>
#include <cstring>
#include <cuda_runtime_api.h>
#include <thread>

namespace {

using namespace plec_test;

class Graph : public testing::TestWithParam<uint32_t> {
  protected:
    Graph() : bank_(spec()), uploaded_(&cuda_, bank_.get()) {}
    ~Graph() override { plec_graph_close(graph_); }
    static BankSpec spec(uint32_t seed = 1) {
        BankSpec spec;
        spec.n_entries = 12, spec.input_dim = 32, spec.intermediate_dim = 32, spec.output_dim = 8;
        spec.gate = spec.up = spec.down = PLEC_FORMAT_Q8_0;
        spec.seed = seed;
        return spec;
    }
    /* A step of T tokens: random, all to one expert, or few experts. */
    Step step(uint32_t n_tokens, uint32_t i) {
        Step step = make_step(bank_.get(), n_tokens, 2, 100 + i);
        for (int32_t &id : step.ids)
            id = i % 4 == 1 ? int32_t(i % 12) : i % 4 == 2 ? id % 2 : id;
        return step;
    }
    void capture(CudaLaunch *launch) {
        ASSERT_EQ(plec_graph_begin(cuda_.stream, &cuda_.err), PLEC_OK) << cuda_.err.message;
        launch->phase(PLEC_EXPERTS_ALL);
        ASSERT_EQ(plec_graph_end(&graph_, cuda_.stream, &cuda_.err), PLEC_OK) << cuda_.err.message;
    }
    /* The captured launch with another step's inputs. */
    std::vector<float> replay(CudaLaunch *launch, const Step &step) {
        auto put = [&](const void *to, const void *from, size_t n_bytes) {
            cuda_.copy(const_cast<void *>(to), from, n_bytes);
        };
        put(launch->args.ids, step.ids.data(), step.ids.size() * 4);
        put(launch->args.weights, step.weights.data(), step.weights.size() * 4);
        put(launch->args.x, step.x.data(), step.x.size() * 4);
        EXPECT_EQ(plec_fill(launch->args.y, 0xFF, launch->n_values * 4, cuda_.stream, nullptr),
                  PLEC_OK);
        EXPECT_EQ(plec_graph_launch(graph_, &cuda_.err), PLEC_OK) << cuda_.err.message;
        return launch->y();
    }
    bool same(const std::vector<float> &a, const std::vector<float> &b) {
        return a.size() == b.size() && memcmp(a.data(), b.data(), a.size() * 4) == 0;
    }

    CudaDevice cuda_;
    Bank bank_;
    UploadedBank uploaded_;
    struct plec_graph *graph_ = nullptr;
};

TEST_P(Graph, ReplaysTwentyRoutingsAsLaunchesOfTheirOwn) {
    uint32_t n_tokens = GetParam();
    CudaLaunch launch(&cuda_, uploaded_.get(), step(n_tokens, 0));
    launch.run();
    capture(&launch);
    for (uint32_t i = 1; i <= 20; i++) {
        SCOPED_TRACE(i);
        Step other = step(n_tokens, i);
        std::vector<float> alone = CudaLaunch(&cuda_, uploaded_.get(), other).run();
        EXPECT_TRUE(same(replay(&launch, other), alone));
    }
}
INSTANTIATE_TEST_SUITE_P(, Graph, testing::Values(1, 8, 64, 512));

class GraphOne : public Graph {};
INSTANTIATE_TEST_SUITE_P(, GraphOne, testing::Values(0));

TEST_P(GraphOne, ReadsPointersFromTheTable) {
    Step step = this->step(8, 3);
    CudaLaunch launch(&cuda_, uploaded_.get(), step);
    std::vector<float> before = launch.run();
    capture(&launch);
    EXPECT_TRUE(same(replay(&launch, step), before));
    Bank other(spec(2));
    UploadedBank moved(&cuda_, other.get());
    std::vector<float> after = CudaLaunch(&cuda_, moved.get(), step).run();
    ASSERT_FALSE(same(before, after));
    /* Every slot is overwritten: the graph must not keep a pointer. */
    uploaded_.entries() = moved.entries();
    ASSERT_EQ(plec_graph_refresh(cuda_.stream, uploaded_.get(), &cuda_.err), PLEC_OK);
    EXPECT_TRUE(same(replay(&launch, step), after));
}

TEST_P(GraphOne, RefusesToCaptureATableThatIsNotCurrent) {
    CudaLaunch launch(&cuda_, uploaded_.get(), step(2, 0));
    ASSERT_EQ(plec_graph_begin(cuda_.stream, &cuda_.err), PLEC_OK);
    EXPECT_EQ(plec_launch_experts(cuda_.stream, &launch.args, &cuda_.err), PLEC_BAD_INPUT);
    EXPECT_STREQ(cuda_.err.name, "TableNotCurrent");
    EXPECT_EQ(plec_stream_sync(cuda_.stream, &cuda_.err), PLEC_BAD_INPUT);
    EXPECT_STREQ(cuda_.err.name, "Capturing");
    EXPECT_EQ(plec_graph_end(&graph_, cuda_.stream, nullptr), PLEC_OK); /* of nothing */
    launch.run(); /* the stream works as before */
}

/* A streamer's threads take memory, and ask and wait for events, whatever is captured: a call that
 * a capture of all threads refuses would look like an event that is done. */
TEST_P(GraphOne, LetsOtherThreadsAskEventsAndTakeMemoryMeanwhile) {
    Step step = this->step(8, 0);
    CudaLaunch launch(&cuda_, uploaded_.get(), step);
    std::vector<float> right = launch.run();
    struct plec_stream *other = nullptr;
    struct plec_event *event = nullptr;
    void *landing = nullptr;
    ASSERT_EQ(plec_stream_open(&other, cuda_.device, nullptr), PLEC_OK);
    ASSERT_EQ(plec_event_open(&event, cuda_.device, nullptr), PLEC_OK);
    ASSERT_EQ(plec_pinned_alloc(&landing, cuda_.device, 64, nullptr), PLEC_OK);
    memset(landing, 0, 64);
    ASSERT_EQ(plec_graph_begin(cuda_.stream, &cuda_.err), PLEC_OK);
    std::thread([&] {
        void *memory = nullptr;
        struct plec_error err = {};
        ASSERT_EQ(plec_device_alloc(&memory, cuda_.device, 64, &err), PLEC_OK) << err.message;
        EXPECT_EQ(plec_fill(memory, 7, 64, other, nullptr), PLEC_OK);
        EXPECT_EQ(plec_copy(landing, memory, 64, other, nullptr), PLEC_OK);
        EXPECT_EQ(plec_event_record(event, other, nullptr), PLEC_OK);
        while (!plec_event_done(event))
            std::this_thread::yield();
        plec_event_sync(event);
        EXPECT_EQ(static_cast<uint8_t *>(landing)[63], 7); /* done is done */
        EXPECT_EQ(plec_stream_sync(other, &err), PLEC_OK) << err.message;
        plec_device_free(cuda_.device, memory);
    }).join();
    launch.phase(PLEC_EXPERTS_ALL);
    enum plec_status ended = plec_graph_end(&graph_, cuda_.stream, &cuda_.err);
    plec_event_close(event);
    plec_stream_close(other);
    plec_pinned_free(cuda_.device, landing);
    ASSERT_EQ(ended, PLEC_OK) << cuda_.err.message;
    EXPECT_TRUE(same(replay(&launch, step), right));
}

/* Memory is given back when the device has done with it: another thread's capture is waited for,
 * and not broken. */
TEST(GraphReserved, IsNotBrokenByMemoryThatIsGivenBack) {
    struct plec_device_options options = {};
    options.reserve_bytes = 1 << 20;
    struct plec_device *device = nullptr;
    struct plec_stream *stream = nullptr;
    struct plec_graph *graph = nullptr;
    struct plec_error err = {};
    void *kept = nullptr, *given = nullptr;
    ASSERT_EQ(plec_device_open(&device, PLEC_DEVICE_CUDA, &options, &err), PLEC_OK) << err.message;
    ASSERT_EQ(plec_stream_open(&stream, device, &err), PLEC_OK);
    ASSERT_EQ(plec_device_alloc(&kept, device, 64, &err), PLEC_OK);
    ASSERT_EQ(plec_device_alloc(&given, device, 64, &err), PLEC_OK);
    ASSERT_EQ(plec_graph_begin(stream, &err), PLEC_OK);
    std::atomic<bool> begun(false), freed(false);
    std::thread other([&] {
        begun = true;
        plec_device_free(device, given);
        freed = true;
    });
    while (!begun)
        std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_FALSE(freed);
    EXPECT_EQ(plec_fill(kept, 1, 64, stream, &err), PLEC_OK);
    EXPECT_EQ(plec_graph_end(&graph, stream, &err), PLEC_OK) << err.message;
    other.join();
    plec_graph_close(graph);
    plec_device_free(device, kept);
    plec_stream_close(stream);
    plec_device_close(device);
}

/* The bank's table was read last by a stream that captures: nothing of it can be waited for. */
TEST_P(GraphOne, LetsAnotherStreamLaunchTheBankMeanwhile) {
    Step step = this->step(8, 0);
    CudaLaunch launch(&cuda_, uploaded_.get(), step), beside(&cuda_, uploaded_.get(), step);
    struct plec_stream *other = nullptr;
    std::vector<float> right = launch.run();
    ASSERT_EQ(plec_stream_open(&other, cuda_.device, nullptr), PLEC_OK);
    ASSERT_EQ(plec_graph_begin(cuda_.stream, &cuda_.err), PLEC_OK);
    launch.phase(PLEC_EXPERTS_ALL);
    EXPECT_EQ(plec_launch_experts(other, &beside.args, &cuda_.err), PLEC_OK) << cuda_.err.message;
    ASSERT_EQ(plec_graph_end(&graph_, cuda_.stream, &cuda_.err), PLEC_OK) << cuda_.err.message;
    EXPECT_EQ(plec_stream_sync(other, &cuda_.err), PLEC_OK) << cuda_.err.message;
    plec_stream_close(other);
    EXPECT_TRUE(same(beside.y(), right));
    EXPECT_TRUE(same(replay(&launch, step), right));
}

/* Tables of refused captures must not be kept for graphs that there are not. */
TEST_P(GraphOne, KeepsNoTableOfACaptureThatWasRefused) {
    Bank few(spec(3));
    UploadedBank uploaded(&cuda_, few.get());
    CudaLaunch launch(&cuda_, uploaded.get(), step(2, 0));
    struct plec_device_info info;
    plec_device_get_info(&info, cuda_.device);
    std::vector<std::vector<plec_entry>> many(info.graph_banks + 1, uploaded.entries());
    struct plec_bank bank = *uploaded.get();
    launch.args.bank = &bank;
    ASSERT_EQ(plec_graph_begin(cuda_.stream, &cuda_.err), PLEC_OK);
    for (const std::vector<plec_entry> &entries : many) {
        bank.entries = entries.data();
        ASSERT_EQ(plec_launch_experts(cuda_.stream, &launch.args, &cuda_.err), PLEC_BAD_INPUT);
        ASSERT_STREQ(cuda_.err.name, "TableNotCurrent");
    }
    ASSERT_EQ(plec_graph_end(&graph_, cuda_.stream, &cuda_.err), PLEC_OK); /* of nothing */
    for (const std::vector<plec_entry> &entries : many) {
        bank.entries = entries.data();
        ASSERT_EQ(plec_graph_refresh(cuda_.stream, &bank, &cuda_.err), PLEC_OK)
            << cuda_.err.message;
    }
}

/* Another part of the process captures, and lets no thread ask for an event meanwhile. */
TEST_P(GraphOne, AnEventThatMayNotBeAskedForIsNotDone) {
#ifndef PLEC_ON_GPU
    plec_emu_set_quiet(true); /* asking breaks their capture */
#endif
    cudaStream_t theirs;
    cudaGraph_t graph = nullptr;
    struct plec_event *filled = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&theirs, cudaStreamNonBlocking), cudaSuccess);
    ASSERT_EQ(plec_event_open(&filled, cuda_.device, nullptr), PLEC_OK);
    void *to = cuda_.poisoned(1 << 12);
    cuda_.sync();
    std::atomic<bool> began{false}, asked{false};
    std::thread other([&] {
        EXPECT_EQ(cudaStreamBeginCapture(theirs, cudaStreamCaptureModeGlobal), cudaSuccess);
        began = true;
        while (!asked)
            std::this_thread::yield();
        std::this_thread::sleep_for(std::chrono::milliseconds(5)); /* it waits meanwhile */
        (void)cudaStreamEndCapture(theirs, &graph);
    });
    while (!began)
        std::this_thread::yield();
    EXPECT_EQ(plec_fill(to, 7, 1 << 12, cuda_.stream, nullptr), PLEC_OK);
    EXPECT_EQ(plec_event_record(filled, cuda_.stream, nullptr), PLEC_OK);
    EXPECT_FALSE(plec_event_done(filled));
    asked = true;
    plec_event_sync(filled);
    EXPECT_TRUE(plec_event_done(filled));
    other.join();
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
    (void)cudaGetLastError();
    plec_event_close(filled);
    (void)cudaStreamDestroy(theirs);
#ifndef PLEC_ON_GPU
    plec_emu_clear_errors();
    plec_emu_set_quiet(false);
#endif
}

TEST_P(GraphOne, TellsAFaultOfAReplay) {
    Step step = this->step(4, 0);
    CudaLaunch launch(&cuda_, uploaded_.get(), step);
    std::vector<float> right = launch.run();
    capture(&launch);
    std::vector<int32_t> bad = step.ids;
    bad[5] = 12;
    cuda_.copy(const_cast<int32_t *>(launch.args.ids), bad.data(), bad.size() * 4);
    ASSERT_EQ(plec_graph_launch(graph_, &cuda_.err), PLEC_OK);
    EXPECT_EQ(cuda_.failure(), "BadExpertId");
    EXPECT_TRUE(same(replay(&launch, step), right));
}

} // namespace
