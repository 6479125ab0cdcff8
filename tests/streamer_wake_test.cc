/* Who is woken when: ends that come at the worst time, and a close behind them. On the CPU device,
 * with a hand in its backend. */
#include "tests/support/bare_streamer.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <thread>

using namespace plec_test;

namespace {

/* The CPU device, told of what becomes of its events and streams. */
struct Watched {
    static inline const plec_backend *real;
    static inline plec_backend backend;
    static inline std::function<void(plec_event *)> recorded; /* on the thread that records it */
    static inline std::function<void()> closing;              /* a stream */

    static plec_status open_event(plec_event **out, plec_device *device, plec_error *err) {
        plec_status status = real->event_open(out, device, err);
        if (status == PLEC_OK) (*out)->backend = &backend;
        return status;
    }
    static plec_status open_stream(plec_stream **out, plec_device *device, plec_error *err) {
        plec_status status = real->stream_open(out, device, err);
        if (status == PLEC_OK) (*out)->backend = &backend;
        return status;
    }
    static plec_status record(plec_event *event, plec_stream *stream, plec_error *err) {
        plec_status status = real->event_record(event, stream, err);
        if (status == PLEC_OK && recorded) recorded(event);
        return status;
    }
    static void close_stream(plec_stream *stream) {
        if (closing) closing();
        real->stream_close(stream);
    }
    /* Events and streams opened from here on. */
    static void take_over(plec_device *device, const plec_stream *) {
        real = device->backend;
        backend = *real;
        backend.event_open = open_event;
        backend.event_record = record;
        backend.stream_open = open_stream;
        backend.stream_close = close_stream;
        device->backend = &backend;
    }
};

using Clock = std::chrono::steady_clock;

/* Holds reads that begin while `holds` is set, as long as `keeps` is. */
struct HeldReads {
    std::atomic<bool> holds{false}, keeps{false};
    std::atomic<int> n_held{0};
    static int before(void *user, uint32_t, uint64_t, uint64_t) {
        auto *reads = static_cast<HeldReads *>(user);
        if (!reads->holds) return 0;
        reads->n_held++;
        while (reads->keeps)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        return 0;
    }
    void hold() {
        n_held = 0;
        keeps = holds = true;
    }
    /* A read is held; those that begin from here on are not. */
    void wait_for_one() {
        while (n_held == 0)
            std::this_thread::yield();
        holds = false;
    }
};

class StreamerWake : public BareStreamer {
  protected:
    void SetUp() override { before_open = Watched::take_over; }
    void TearDown() override {
        Watched::recorded = nullptr;
        BareStreamer::TearDown();
        Watched::closing = nullptr;
    }
    void expect(int32_t expert) {
        plec_expectation plan = {PLEC_FROM_PLAN, 0, &expert, 1};
        plec_streamer_expect(streamer, &plan);
    }
    static plec_stream_options held(HeldReads *reads) {
        plec_stream_options options = {};
        options.io_engine = PLEC_IO_PREAD; /* whose reads may be held */
        options.io_fault = {HeldReads::before, reads};
        return options;
    }
};

/* A call that came while the engine's thread was at work was not looked at before it slept on
 * reads: for two milliseconds nobody took the copy's end. */
TEST_F(StreamerWake, AnEndBeforeTheEngineSleepsOnReadsIsTakenAtOnce) {
    struct Copy {
        std::atomic<int64_t> began{0};
        std::atomic<int64_t> took{0};
        static void event(void *user, const plec_stream_event *event) {
            auto *copy = static_cast<Copy *>(user);
            int64_t now = Clock::now().time_since_epoch().count();
            if (event->kind == PLEC_STREAM_COPY_BEGIN) copy->began = now;
            if (event->kind == PLEC_STREAM_COPY_END) copy->took = now - copy->began;
        }
    } copy;
    HeldReads reads;
    plec_stream_options options = held(&reads);
    options.trace = {Copy::event, &copy};
    open(24, 24, options);
    /* Every copy has ended, and told so, before the round that began it goes on. */
    Watched::recorded = [](plec_event *event) { Watched::real->event_sync(event); };
    int64_t least = INT64_MAX;
    for (int32_t i = 0; i < 6; i++) {
        reads.hold();
        expect(2 * i);
        reads.wait_for_one();
        copy.took = 0;
        expect(2 * i + 1);
        while (copy.took == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        least = std::min<int64_t>(least, copy.took);
        reads.keeps = false;
        settle();
    }
    EXPECT_LT(least, 1500000);
}

/* The call behind the last copy may still be on its way to the reaper when the engine's thread has
 * ended: the reads went before the streams, and with them what the call wakes. */
TEST_F(StreamerWake, CopyStreamsCloseBeforeTheReadsTheirCallsWake) {
    auto n_readers = [] {
        int n = 0;
        for (const auto &thread : std::filesystem::directory_iterator("/proc/self/task"))
            n += read_text(thread.path().string() + "/comm").rfind("plec-io", 0) == 0;
        return n;
    };
    HeldReads reads;
    open(4, 4, held(&reads));
    for (int32_t expert : {1, 2})
        expect(expert);
    settle();
    ASSERT_GT(n_readers(), 0);
    std::vector<int> seen;
    Watched::closing = [&] { seen.push_back(n_readers()); };
    close();
    ASSERT_GE(seen.size(), 2u);
    EXPECT_GT(*std::min_element(seen.begin(), seen.end()), 0);
}

} // namespace
