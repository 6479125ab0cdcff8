#include "device/device.h"
#include "device/reference/reference.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

/* Sanitizers end the program on a request no allocator can meet, unless told to return NULL. */
extern "C" const char *__asan_default_options();
extern "C" const char *__tsan_default_options();
extern "C" const char *__asan_default_options() {
    return "allocator_may_return_null=1";
}
extern "C" const char *__tsan_default_options() {
    return "allocator_may_return_null=1";
}

namespace {

/* Holds a stream until it is opened. */
class Gate {
  public:
    static enum plec_status pass(void *user, struct plec_error *) {
        auto *gate = static_cast<Gate *>(user);
        std::unique_lock<std::mutex> lock(gate->mutex_);
        gate->entered_ = true;
        gate->changed_.notify_all();
        gate->changed_.wait(lock, [gate] { return gate->open_; });
        return PLEC_OK;
    }
    void open() {
        std::lock_guard<std::mutex> lock(mutex_);
        open_ = true;
        changed_.notify_all();
    }
    void await_entry() {
        std::unique_lock<std::mutex> lock(mutex_);
        changed_.wait(lock, [this] { return entered_; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable changed_;
    bool open_ = false, entered_ = false;
};

enum plec_status fail_with_io(void *user, struct plec_error *err) {
    return plec_fail(err, PLEC_IO, "TestFailure", "%s", static_cast<const char *>(user));
}

enum plec_status count_up(void *user, struct plec_error *) {
    static_cast<std::atomic<int> *>(user)->fetch_add(1);
    return PLEC_OK;
}

/* Appends its number to a list, from the stream's thread only. */
struct Append {
    std::vector<int> *list;
    int value;
    static enum plec_status run(void *user, struct plec_error *) {
        auto *append = static_cast<Append *>(user);
        append->list->push_back(append->value);
        return PLEC_OK;
    }
};

class Device : public ::testing::Test {
  protected:
    void SetUp() override { open(2, 4); }
    void TearDown() override {
        for (struct plec_event *event : events_)
            plec_event_close(event);
        for (struct plec_stream *stream : streams_)
            plec_stream_close(stream);
        plec_device_close(device_);
    }
    void open(uint32_t n_threads, uint32_t queue_capacity) {
        plec_device_close(device_);
        struct plec_device_options options = {};
        options.n_threads = n_threads;
        options.queue_capacity = queue_capacity;
        ASSERT_EQ(plec_device_open(&device_, PLEC_DEVICE_CPU, &options, &err_), PLEC_OK);
    }
    struct plec_stream *stream() {
        struct plec_stream *out = nullptr;
        EXPECT_EQ(plec_stream_open(&out, device_, &err_), PLEC_OK) << err_.message;
        streams_.push_back(out);
        return out;
    }
    struct plec_event *event() {
        struct plec_event *out = nullptr;
        EXPECT_EQ(plec_event_open(&out, device_, &err_), PLEC_OK) << err_.message;
        events_.push_back(out);
        return out;
    }
    void call(struct plec_stream *on, plec_status (*fn)(void *, plec_error *), void *user) {
        EXPECT_EQ(plec_stream_call(on, fn, user, &err_), PLEC_OK);
    }
    void record(struct plec_event *event, struct plec_stream *on) {
        EXPECT_EQ(plec_event_record(event, on, &err_), PLEC_OK);
    }
    void wait(struct plec_stream *on, struct plec_event *event) {
        EXPECT_EQ(plec_event_wait(on, event, &err_), PLEC_OK);
    }
    enum plec_status sync(struct plec_stream *on) { return plec_stream_sync(on, &err_); }

    struct plec_device *device_ = nullptr;
    struct plec_error err_ = {};
    std::vector<struct plec_stream *> streams_;
    std::vector<struct plec_event *> events_;
};

TEST_F(Device, CudaSaysItWasNotBuilt) {
    struct plec_device *cuda = nullptr;
    enum plec_status status = plec_device_open(&cuda, PLEC_DEVICE_CUDA, nullptr, &err_);
    if (status == PLEC_OK) {
        plec_device_close(cuda);
        GTEST_SKIP() << "this build has a CUDA backend and the machine a GPU";
    }
    EXPECT_EQ(status, PLEC_NO_DEVICE);
    EXPECT_EQ(cuda, nullptr);
    std::string name = err_.name;
    EXPECT_TRUE(name == "DeviceNotBuilt" || name == "DeviceAbsent") << name;
}

TEST_F(Device, NamesItself) {
    struct plec_device_info info;
    plec_device_get_info(&info, device_);
    EXPECT_EQ(info.kind, PLEC_DEVICE_CPU);
    EXPECT_EQ(info.n_threads, 2u);
    EXPECT_GT(info.memory_bytes, 1u << 20);
    EXPECT_EQ(std::string(info.name).rfind("CPU, 2 threads, ", 0), 0u) << info.name;
}

TEST_F(Device, OpensWithDefaults) {
    struct plec_device *device = nullptr;
    ASSERT_EQ(plec_device_open(&device, PLEC_DEVICE_CPU, nullptr, &err_), PLEC_OK);
    struct plec_device_info info;
    plec_device_get_info(&info, device);
    EXPECT_GE(info.n_threads, 1u);
    plec_device_close(device);
    plec_device_close(nullptr);
}

TEST_F(Device, HasNoGraphsAndSaysSo) {
    struct plec_device_info info;
    plec_device_get_info(&info, device_);
    EXPECT_EQ(info.graph_entries, 0u);
    EXPECT_EQ(plec_graph_begin(stream(), &err_), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err_.name, "NoGraphs");
    plec_graph_close(nullptr);
}

TEST_F(Device, HasTwoRungsByNameAndRefusesOthers) {
    struct plec_device_options options = {};
    char name[PLEC_KERNEL_NAME_MAX];
    for (const char *rung : {"auto", "plain"}) {
        options.rung = rung;
        plec_device_close(device_);
        ASSERT_EQ(plec_device_open(&device_, PLEC_DEVICE_CPU, &options, &err_), PLEC_OK);
    }
    EXPECT_STREQ(plec_device_kernel_name(device_, PLEC_FORMAT_Q8_0, name), "plain_c");
    struct plec_device *none = nullptr;
    options.rung = "cublas_loop";
    EXPECT_EQ(plec_device_open(&none, PLEC_DEVICE_CPU, &options, &err_), PLEC_UNSUPPORTED);
    EXPECT_STREQ(err_.name, "NoSuchRung");
    EXPECT_NE(strstr(err_.message, "cublas_loop"), nullptr) << err_.message;
}

TEST_F(Device, AlignsMemoryOfAnySize) {
    for (uint64_t n : {0u, 1u, 4097u, 5u << 20}) {
        void *memory = nullptr, *pinned = nullptr;
        ASSERT_EQ(plec_device_alloc(&memory, device_, n, &err_), PLEC_OK);
        ASSERT_EQ(plec_pinned_alloc(&pinned, device_, n, &err_), PLEC_OK);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(memory) % PLEC_ARRIVAL_ALIGNMENT, 0u);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(pinned) % 64, 0u);
        memset(memory, 1, n);
        memset(pinned, 1, n);
        plec_device_free(device_, memory);
        plec_pinned_free(device_, pinned);
    }
    plec_device_free(device_, nullptr);
}

TEST_F(Device, RefusesMemoryTheMachineLacks) {
    void *memory = &err_;
    EXPECT_EQ(plec_device_alloc(&memory, device_, UINT64_MAX, &err_), PLEC_NO_MEMORY);
    EXPECT_EQ(memory, nullptr);
    EXPECT_EQ(plec_device_alloc(&memory, device_, UINT64_C(1) << 60, &err_), PLEC_NO_MEMORY);
    EXPECT_STREQ(err_.name, "NoMemory");
}

TEST_F(Device, RunsAStreamInOrder) {
    struct plec_stream *s = stream();
    std::vector<int> list;
    std::vector<Append> calls;
    for (int i = 0; i < 100; i++)
        calls.push_back({&list, i});
    for (Append &append : calls)
        call(s, Append::run, &append);
    ASSERT_EQ(sync(s), PLEC_OK);
    ASSERT_EQ(list.size(), 100u);
    for (int i = 0; i < 100; i++)
        EXPECT_EQ(list[i], i);
}

TEST_F(Device, CopiesAndFillsInOrder) {
    struct plec_stream *s = stream();
    std::vector<uint8_t> a(1000, 1), b(1000, 2), c(1000, 3);
    ASSERT_EQ(plec_copy(b.data(), a.data(), a.size(), s, &err_), PLEC_OK);
    ASSERT_EQ(plec_fill(a.data(), 7, 500, s, &err_), PLEC_OK);
    ASSERT_EQ(plec_copy(c.data(), a.data(), a.size(), s, &err_), PLEC_OK);
    ASSERT_EQ(plec_copy(nullptr, nullptr, 0, s, &err_), PLEC_OK);
    ASSERT_EQ(sync(s), PLEC_OK);
    EXPECT_EQ(b, std::vector<uint8_t>(1000, 1));
    EXPECT_EQ(c[499], 7);
    EXPECT_EQ(c[500], 1);
}

TEST_F(Device, EnqueueReturnsBeforeTheWorkIsDone) {
    struct plec_stream *s = stream();
    Gate gate;
    std::vector<uint8_t> a(16, 1);
    call(s, Gate::pass, &gate);
    ASSERT_EQ(plec_fill(a.data(), 9, a.size(), s, &err_), PLEC_OK);
    gate.await_entry();
    EXPECT_EQ(a[0], 1);
    gate.open();
    ASSERT_EQ(sync(s), PLEC_OK);
    EXPECT_EQ(a[0], 9);
}

TEST_F(Device, StreamsAreIndependent) {
    struct plec_stream *held = stream(), *free = stream();
    Gate gate;
    std::atomic<int> n{0};
    call(held, Gate::pass, &gate);
    call(free, count_up, &n);
    ASSERT_EQ(sync(free), PLEC_OK);
    EXPECT_EQ(n.load(), 1);
    gate.open();
    ASSERT_EQ(sync(held), PLEC_OK);
}

TEST_F(Device, AFullQueueMakesTheCallWait) {
    struct plec_stream *s = stream();
    Gate gate;
    std::atomic<int> n{0}, enqueued{0};
    call(s, Gate::pass, &gate);
    gate.await_entry();
    std::thread caller([&] {
        for (int i = 0; i < 8; i++) {
            EXPECT_EQ(plec_stream_call(s, count_up, &n, nullptr), PLEC_OK);
            enqueued.fetch_add(1);
        }
    });
    while (enqueued.load() < 3)
        std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    EXPECT_EQ(enqueued.load(), 3) << "the running operation and three more fill a queue of 4";
    gate.open();
    caller.join();
    ASSERT_EQ(sync(s), PLEC_OK);
    EXPECT_EQ(n.load(), 8);
}

TEST_F(Device, AFailureSticksUntilOneSyncReturnsIt) {
    struct plec_stream *s = stream(), *other = stream();
    std::atomic<int> n{0};
    std::string first = "the first", second = "the second";
    call(s, count_up, &n);
    call(s, fail_with_io, first.data());
    call(s, count_up, &n);
    call(s, fail_with_io, second.data());
    EXPECT_EQ(sync(s), PLEC_IO);
    EXPECT_STREQ(err_.name, "TestFailure");
    EXPECT_NE(strstr(err_.message, "the first"), nullptr) << err_.message;
    EXPECT_EQ(n.load(), 1) << "work after the failure is skipped";
    EXPECT_EQ(sync(s), PLEC_OK) << "once";
    call(s, count_up, &n);
    call(other, count_up, &n);
    EXPECT_EQ(sync(s), PLEC_OK);
    EXPECT_EQ(sync(other), PLEC_OK);
    EXPECT_EQ(n.load(), 3);
}

TEST_F(Device, AFailedStreamStillKeepsItsWaits) {
    struct plec_stream *held = stream(), *failed = stream();
    struct plec_event *on_held = event(), *on_failed = event();
    Gate gate;
    std::string text = "x";
    call(held, Gate::pass, &gate);
    record(on_held, held);
    call(failed, fail_with_io, text.data());
    wait(failed, on_held);
    record(on_failed, failed);
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_FALSE(plec_event_done(on_failed));
    gate.open();
    plec_event_sync(on_failed);
    EXPECT_TRUE(plec_event_done(on_held));
    EXPECT_EQ(sync(failed), PLEC_IO);
}

TEST_F(Device, AnEventNeverRecordedIsComplete) {
    struct plec_event *e = event();
    struct plec_stream *s = stream();
    EXPECT_TRUE(plec_event_done(e));
    plec_event_sync(e);
    wait(s, e);
    EXPECT_EQ(sync(s), PLEC_OK);
}

TEST_F(Device, AnEventIsDoneWhenItsRecordIs) {
    struct plec_stream *s = stream();
    struct plec_event *e = event();
    Gate gate;
    record(e, s);
    EXPECT_TRUE(plec_event_done(e)) << "nothing was enqueued before";
    call(s, Gate::pass, &gate);
    EXPECT_TRUE(plec_event_done(e)) << "later work is not marked";
    record(e, s);
    gate.await_entry();
    EXPECT_FALSE(plec_event_done(e));
    gate.open();
    plec_event_sync(e);
    EXPECT_TRUE(plec_event_done(e));
}

TEST_F(Device, AWaitHoldsAStreamForAnother) {
    struct plec_stream *producer = stream(), *consumer = stream();
    struct plec_event *e = event();
    Gate gate;
    std::vector<uint8_t> a(64, 1), b(64, 0);
    call(producer, Gate::pass, &gate);
    ASSERT_EQ(plec_fill(a.data(), 5, a.size(), producer, &err_), PLEC_OK);
    record(e, producer);
    wait(consumer, e);
    ASSERT_EQ(plec_copy(b.data(), a.data(), a.size(), consumer, &err_), PLEC_OK);
    gate.open();
    ASSERT_EQ(sync(consumer), PLEC_OK);
    EXPECT_EQ(b, std::vector<uint8_t>(64, 5));
}

TEST_F(Device, AWaitIsForTheRecordItSaw) {
    struct plec_stream *first = stream(), *second = stream(), *waiter = stream();
    struct plec_event *e = event();
    Gate gate_first, gate_second;
    std::atomic<int> n{0};
    call(first, Gate::pass, &gate_first);
    call(second, Gate::pass, &gate_second);
    record(e, first);
    wait(waiter, e);
    call(waiter, count_up, &n);
    record(e, second); /* the wait above must not care */
    gate_second.open();
    ASSERT_EQ(sync(second), PLEC_OK);
    EXPECT_TRUE(plec_event_done(e)) << "the latest record is the second stream's";
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(n.load(), 0) << "but the waiter waits for the first";
    gate_first.open();
    ASSERT_EQ(sync(waiter), PLEC_OK);
    EXPECT_EQ(n.load(), 1);
}

TEST_F(Device, AnEventMayBeClosedWhileAWaitIsPending) {
    struct plec_stream *producer = stream(), *consumer = stream();
    struct plec_event *e = nullptr;
    ASSERT_EQ(plec_event_open(&e, device_, &err_), PLEC_OK);
    Gate gate;
    std::atomic<int> n{0};
    call(producer, Gate::pass, &gate);
    record(e, producer);
    wait(consumer, e);
    call(consumer, count_up, &n);
    plec_event_close(e);
    EXPECT_EQ(n.load(), 0);
    gate.open();
    EXPECT_EQ(sync(consumer), PLEC_OK);
    EXPECT_EQ(n.load(), 1);
}

TEST_F(Device, CloseWaitsForWhatWasEnqueued) {
    struct plec_event *e = event();
    std::atomic<int> n{0};
    for (int round = 0; round < 3; round++) {
        struct plec_stream *s = nullptr;
        ASSERT_EQ(plec_stream_open(&s, device_, &err_), PLEC_OK);
        for (int i = 0; i < 10; i++)
            call(s, count_up, &n);
        record(e, s);
        plec_stream_close(s);
        EXPECT_EQ(n.load(), 10 * (round + 1));
        EXPECT_TRUE(plec_event_done(e)) << "the record outlives its stream";
    }
    plec_stream_close(nullptr);
}

TEST_F(Device, AReopenedStreamHasForgottenTheFailure) {
    struct plec_stream *s = nullptr;
    std::string text = "x";
    ASSERT_EQ(plec_stream_open(&s, device_, &err_), PLEC_OK);
    call(s, fail_with_io, text.data());
    plec_stream_close(s);
    ASSERT_EQ(plec_stream_open(&s, device_, &err_), PLEC_OK);
    EXPECT_EQ(sync(s), PLEC_OK);
    plec_stream_close(s);
}

TEST_F(Device, EightThreadsShareOneStream) {
    struct plec_stream *s = stream();
    std::vector<std::vector<int>> lists(8);
    std::vector<std::vector<Append>> calls(8);
    std::vector<std::thread> threads;
    for (int t = 0; t < 8; t++)
        for (int i = 0; i < 200; i++)
            calls[t].push_back({&lists[t], i});
    for (int t = 0; t < 8; t++)
        threads.emplace_back([&, t] {
            for (Append &append : calls[t])
                EXPECT_EQ(plec_stream_call(s, Append::run, &append, nullptr), PLEC_OK);
            EXPECT_EQ(plec_stream_sync(s, nullptr), PLEC_OK);
            EXPECT_EQ(lists[t].size(), 200u) << "sync covers the caller's own work";
        });
    for (std::thread &thread : threads)
        thread.join();
    for (const std::vector<int> &list : lists)
        for (int i = 0; i < 200; i++)
            EXPECT_EQ(list[i], i);
}

/* A ring of streams, each waiting for its left neighbour's last step: events order everything. */
/* Names of this process's threads. */
std::multiset<std::string> thread_names() {
    std::multiset<std::string> names;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(task.path() / "comm");
        std::string name;
        if (std::getline(file, name)) names.insert(name);
    }
    return names;
}

TEST_F(Device, AStreamHasTheNameItIsGiven) {
    struct plec_stream *named = nullptr;
    ASSERT_EQ(plec_stream_open(&named, device_, &err_), PLEC_OK) << err_.message;
    EXPECT_EQ(thread_names().count("plec-cpu-stream"), 1u);
    plec_stream_set_name(named, "plec-of-fifteen-and-more");
    EXPECT_EQ(thread_names().count("plec-of-fifteen"), 1u);
    plec_stream_close(named);
    EXPECT_EQ(thread_names().count("plec-of-fifteen"), 0u);
}

TEST_F(Device, EventsChainManyStreams) {
    enum { N = 6, ROUNDS = 50 };
    std::vector<struct plec_stream *> ring;
    std::vector<struct plec_event *> steps;
    for (int i = 0; i < N; i++) {
        ring.push_back(stream());
        steps.push_back(event());
    }
    std::vector<int> list; /* touched by six threads, in an order that only the events give */
    std::vector<Append> calls;
    for (int i = 0; i < N * ROUNDS; i++)
        calls.push_back({&list, i});
    for (int i = 0; i < N * ROUNDS; i++) {
        wait(ring[i % N], steps[(i + N - 1) % N]);
        call(ring[i % N], Append::run, &calls[i]);
        record(steps[i % N], ring[i % N]);
    }
    plec_event_sync(steps[N - 1]);
    ASSERT_EQ(list.size(), static_cast<size_t>(N * ROUNDS));
    for (int i = 0; i < N * ROUNDS; i++)
        EXPECT_EQ(list[i], i);
}

TEST_F(Device, ScalesAndSquashesInPlace) {
    struct plec_stream *s = stream();
    std::vector<float> x(100000), y;
    for (size_t i = 0; i < x.size(); i++)
        x[i] = static_cast<float>(i % 401) - 200.0f;
    y = x;
    ASSERT_EQ(plec_launch_scale(s, x.data(), x.size(), 0.5f, &err_), PLEC_OK);
    ASSERT_EQ(plec_launch_sigmoid(s, y.data(), y.size(), &err_), PLEC_OK);
    ASSERT_EQ(plec_launch_sigmoid(s, nullptr, 0, &err_), PLEC_OK);
    ASSERT_EQ(sync(s), PLEC_OK);
    for (size_t i = 0; i < x.size(); i++) {
        double z = static_cast<double>(i % 401) - 200.0;
        ASSERT_EQ(x[i], static_cast<float>(z / 2));
        ASSERT_NEAR(y[i], 1 / (1 + exp(-z)), 1e-7);
    }
}

TEST_F(Device, NormalisesEachRow) {
    struct plec_stream *s = stream();
    const uint32_t n_tokens = 5, width = 333;
    std::vector<float> x(n_tokens * width), gain(width);
    for (size_t i = 0; i < x.size(); i++)
        x[i] = sinf(static_cast<float>(i)) * static_cast<float>(1 + i / width);
    for (uint32_t i = 0; i < width; i++)
        gain[i] = 1.0f + static_cast<float>(i) / 100.0f;
    std::vector<float> before = x;
    struct plec_norm_args args = {x.data(), gain.data(), n_tokens, width, 1e-6};
    ASSERT_EQ(plec_launch_norm(s, &args, &err_), PLEC_OK);
    ASSERT_EQ(sync(s), PLEC_OK);
    for (uint32_t t = 0; t < n_tokens; t++) {
        double sum = 0;
        for (uint32_t i = 0; i < width; i++)
            sum += static_cast<double>(before[t * width + i]) * before[t * width + i];
        for (uint32_t i = 0; i < width; i++) {
            double wanted = before[t * width + i] / sqrt(sum / width + 1e-6) * gain[i];
            ASSERT_NEAR(x[t * width + i], wanted, 1e-6 * (1 + fabs(wanted)));
        }
    }
}

/* Loops of several streams share the helpers: none may wait for another. */
TEST_F(Device, StreamsShareTheHelpers) {
    TearDown();
    streams_.clear(), events_.clear(), device_ = nullptr;
    open(4, 0);
    std::vector<std::vector<float>> data(6, std::vector<float>(200000, 1.0f));
    for (auto &x : data) {
        struct plec_stream *s = stream();
        for (int i = 0; i < 10; i++)
            ASSERT_EQ(plec_launch_scale(s, x.data(), x.size(), 2.0f, &err_), PLEC_OK);
    }
    for (struct plec_stream *s : streams_)
        EXPECT_EQ(sync(s), PLEC_OK);
    for (const auto &x : data)
        for (float value : x)
            ASSERT_EQ(value, 1024.0f);
}

TEST_F(Device, KnowsAKernelForEveryFormatWithACodec) {
    size_t n = 0;
    char name[PLEC_KERNEL_NAME_MAX];
    const struct plec_format *formats = plec_format_all(&n);
    for (size_t i = 0; i < n; i++)
        EXPECT_NE(plec_device_kernel_name(device_, formats[i].tag, name), nullptr)
            << formats[i].name;
    EXPECT_EQ(plec_device_kernel_name(device_, 4242, name), nullptr);
    EXPECT_GT(n, 20u);
}

TEST_F(Device, RoutesAsTheReferenceDoes) {
    const uint32_t n_tokens = 3, n_experts = 5, k = 2, dim = 4;
    std::vector<float> weight, x(n_tokens * dim, 1);
    for (uint32_t i = 0; i < n_experts * dim; i++)
        weight.push_back(0.125f * static_cast<float>((7 * i) % 11));
    x[dim] = std::nanf("");
    struct plec_router router = {};
    router.n_experts = n_experts, router.top_k = k, router.input_dim = dim, router.scale = 1;
    router.weight = {PLEC_FORMAT_F32, n_experts, dim,
                     reinterpret_cast<const uint8_t *>(weight.data()), nullptr};
    uint64_t n_bytes = 0;
    ASSERT_TRUE(plec_route_workspace(&n_bytes, device_, &router, n_tokens));
    std::vector<uint64_t> workspace(n_bytes / 8 + 1, UINT64_MAX);
    std::vector<int32_t> ids(n_tokens * k, -7), want_ids(k);
    std::vector<float> weights(n_tokens * k, -7);
    std::vector<uint8_t> unrouted(n_tokens, 7);
    struct plec_route_args args = {&router,        n_tokens,        x.data(),        ids.data(),
                                   weights.data(), unrouted.data(), workspace.data()};
    struct plec_stream *on = stream();
    ASSERT_EQ(plec_launch_route(on, &args, &err_), PLEC_OK);
    ASSERT_EQ(sync(on), PLEC_OK);
    std::vector<double> z(n_experts), row(dim), want(k),
        scratch(plec_reference_route_scratch(&router));
    plec_reference_logits(z.data(), &router, x.data(), row.data());
    ASSERT_EQ(plec_reference_route(want_ids.data(), want.data(), &router, z.data(), scratch.data(),
                                   nullptr),
              PLEC_OK);
    for (uint32_t t : {0, 2})
        for (uint32_t j = 0; j < k; j++) {
            EXPECT_EQ(ids[t * k + j], want_ids[j]);
            EXPECT_EQ(weights[t * k + j], static_cast<float>(want[j]));
        }
    EXPECT_EQ(unrouted, (std::vector<uint8_t>{0, 1, 0}));
    EXPECT_EQ(ids[k], 0);
    EXPECT_TRUE(std::isnan(weights[k]));
}

} // namespace
