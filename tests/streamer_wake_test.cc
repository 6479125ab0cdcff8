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
    static inline std::function<bool(plec_stream *)> refuses; /* to record on it */
    static inline std::function<void(plec_stream *)> called;  /* what is to run on it */
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
        if (refuses && refuses(stream))
            return plec_fail(err, PLEC_NO_DEVICE, "NotRecorded", "by a test");
        plec_status status = real->event_record(event, stream, err);
        if (status == PLEC_OK && recorded) recorded(event);
        return status;
    }
    static plec_status call(plec_stream *stream, plec_stream_function *fn, void *user,
                            plec_error *err) {
        plec_status status = real->stream_call(stream, fn, user, err);
        if (status == PLEC_OK && called) called(stream);
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
        backend.stream_call = call;
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

/* Whether one of n tries succeeds: a busy machine spoils some of them, a call that is missing all.
 */
template <class Try> bool one_of(int n, const Try &succeeds) {
    for (int i = 0; i < n; i++)
        if (succeeds(i)) return true;
    return false;
}

class StreamerWake : public BareStreamer {
  protected:
    void SetUp() override { before_open = Watched::take_over; }
    void TearDown() override {
        Watched::recorded = nullptr;
        Watched::refuses = nullptr;
        Watched::called = nullptr;
        BareStreamer::TearDown();
        Watched::closing = nullptr;
    }
    void expect(int32_t expert, plec_origin why = PLEC_FROM_PLAN) {
        plec_expectation ahead = {why, 0, &expert, 1};
        plec_streamer_expect(streamer, &ahead);
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
    open(4, 4, options);
    /* Every copy has ended, and told so, before the round that began it goes on. */
    Watched::recorded = [](plec_event *event) { Watched::real->event_sync(event); };
    EXPECT_TRUE(one_of(40, [&](int) {
        reads.hold();
        expect(0);
        reads.wait_for_one();
        copy.took = 0;
        expect(1);
        while (copy.took == 0)
            std::this_thread::sleep_for(std::chrono::microseconds(20));
        int64_t took = copy.took;
        reads.keeps = false;
        settle();
        close();
        reopen();
        return took < 1500000;
    }));
}

/* --- an end wakes who waits for it ------------------------------------------------------------ */

/* Work that takes as long as a test likes. */
struct SlowWork {
    std::atomic<bool> go{false}, finished{false};
    static plec_status run(void *user, plec_error *) {
        auto *work = static_cast<SlowWork *>(user);
        while (!work->go)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        work->finished = true;
        return PLEC_OK;
    }
};

/* A use's end is the waiting dispatch's to look at; the engine's thread would see it at its next
 * look, milliseconds later. */
TEST_F(StreamerWake, TheEndOfAUseWakesTheDispatchThatWaitsForItsSlot) {
    struct Copies {
        std::thread::id last; /* that began one; of the thread that waits for it */
        static void event(void *user, const plec_stream_event *event) {
            if (event->kind == PLEC_STREAM_COPY_BEGIN)
                static_cast<Copies *>(user)->last = std::this_thread::get_id();
        }
    } copies;
    plec_stream_options options = {};
    options.trace = {Copies::event, &copies};
    open(1, 4, options);
    EXPECT_TRUE(one_of(60, [&](int) {
        SlowWork work;
        begin(0, {4, 5});
        EXPECT_EQ(next().size(), 1u);
        EXPECT_EQ(plec_stream_call(stream, SlowWork::run, &work, nullptr), PLEC_OK);
        used();
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            work.go = true;
        });
        EXPECT_EQ(next().size(), 1u);
        bool own = copies.last == std::this_thread::get_id();
        used();
        other.join();
        plec_streamer_end(streamer);
        return own;
    }));
}

/* The end of a copy made ahead, which a demand has joined, is the dispatch's to look at though two
 * are behind it: it waits for no other. */
TEST_F(StreamerWake, ACopyAheadWakesTheDispatchThatJoinedIt) {
    struct Copies {
        std::atomic<bool> shut{false};  /* no piece goes on */
        std::atomic<bool> keeps{false}; /* nothing behind a copy's call does */
        std::atomic<int> n_begun{0};
        std::thread::id first; /* that took the end of the first */
        static void event(void *user, const plec_stream_event *event) {
            auto *copies = static_cast<Copies *>(user);
            if (event->kind == PLEC_STREAM_COPY_BEGIN) copies->n_begun++;
            if (event->kind == PLEC_STREAM_COPY_END && copies->first == std::thread::id())
                copies->first = std::this_thread::get_id();
        }
        static void wait_while(const std::atomic<bool> &shut) {
            while (shut)
                std::this_thread::sleep_for(std::chrono::microseconds(50));
        }
        static bool piece(void *user, const void *, uint64_t) {
            wait_while(static_cast<Copies *>(user)->shut);
            return false;
        }
        static plec_status behind(void *user, plec_error *) {
            wait_while(static_cast<Copies *>(user)->keeps);
            return PLEC_OK;
        }
        void wait_for(int n) const {
            while (n_begun < n)
                std::this_thread::yield();
        }
    } copies;
    plec_simulation link = {};
    link.fail_copy = Copies::piece;
    link.user = &copies;
    simulation = &link;
    plec_stream_options options = {};
    options.trace = {Copies::event, &copies};
    options.speculation = PLEC_SPECULATE_ON;
    poison = !arriving; /* looking at what landed allows one copy at a time */
    open(24, 24, options);
    Watched::called = [&](plec_stream *on) {
        EXPECT_EQ(Watched::real->stream_call(on, Copies::behind, &copies, nullptr), PLEC_OK);
    };
    EXPECT_TRUE(one_of(60, [&](int) {
        copies.first = {};
        copies.n_begun = 0;
        copies.shut = copies.keeps = true;
        for (int32_t i = 0; i < 3; i++) { /* as many of a class as there may be, in this order */
            expect(i, i < 2 ? PLEC_FROM_PLAN : PLEC_FROM_NEXT_ROUTER);
            copies.wait_for(i + 1);
        }
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(3));
            copies.shut = false;
        });
        begin(0, {0});
        EXPECT_EQ(next().size(), 1u);
        bool own = copies.first == std::this_thread::get_id();
        copies.keeps = false;
        used();
        plec_streamer_end(streamer);
        other.join();
        settle();
        close();
        reopen();
        return own;
    }));
}

/* The engine's thread takes a read that failed: the dispatch would look by itself 50 ms later. */
TEST_F(StreamerWake, ADispatchIsToldAtOnceOfAReadThatFailed) {
    struct BadReads {
        std::atomic<bool> bad{false};
        std::atomic<int64_t> failed{0};
        static int before(void *user, uint32_t, uint64_t, uint64_t) {
            auto *reads = static_cast<BadReads *>(user);
            if (!reads->bad) return 0;
            std::this_thread::sleep_for(std::chrono::milliseconds(5)); /* it waits by then */
            reads->failed = Clock::now().time_since_epoch().count();
            return EIO;
        }
    } reads;
    plec_stream_options options = {};
    options.io_engine = PLEC_IO_PREAD;
    options.io_fault = {BadReads::before, &reads};
    open(4, 4, options);
    EXPECT_TRUE(one_of(20, [&](int) {
        reads.bad = true;
        begin(0, {4});
        plec_stream_part part;
        EXPECT_EQ(plec_streamer_next(&part, streamer, nullptr), PLEC_IO);
        int64_t took = Clock::now().time_since_epoch().count() - reads.failed;
        plec_streamer_end(streamer);
        reads.bad = false;
        settle();
        return took < 25000000;
    }));
}

/* Nothing tells of a copy that failed: somebody has to look. */
TEST_F(StreamerWake, ACopyThatFailedIsLookedForWhileADispatchWaits) {
    std::atomic<bool> bad{false};
    plec_simulation link = {};
    link.user = &bad;
    link.fail_copy = [](void *user, const void *, uint64_t) {
        return static_cast<std::atomic<bool> *>(user)->load();
    };
    simulation = &link;
    open(4, 4);
    EXPECT_TRUE(one_of(20, [&](int) {
        bad = true;
        Clock::time_point start = Clock::now();
        begin(0, {4});
        plec_stream_part part;
        plec_error err = {};
        EXPECT_EQ(plec_streamer_next(&part, streamer, &err), PLEC_NO_DEVICE);
        EXPECT_STREQ(err.name, "CopyFailed");
        Clock::duration took = Clock::now() - start;
        plec_streamer_end(streamer);
        bad = false;
        settle();
        return took < std::chrono::milliseconds(25);
    }));
    EXPECT_EQ(stats().copied_bytes, 0u);
}

/* With nothing under way the engine's thread sleeps for 200 ms. */
TEST_F(StreamerWake, AReadThatBeginsElsewhereWakesTheIdleEngine) {
    struct Copies {
        std::atomic<int> n_ended{0};
        static void event(void *user, const plec_stream_event *event) {
            static_cast<Copies *>(user)->n_ended += event->kind == PLEC_STREAM_COPY_END;
        }
    } copies;
    plec_stream_options options = {};
    options.trace = {Copies::event, &copies};
    open(24, 24, options);
    EXPECT_TRUE(one_of(12, [&](int expert) {
        std::this_thread::sleep_for(std::chrono::milliseconds(15)); /* it sleeps by then */
        Clock::time_point start = Clock::now();
        expect(expert);
        while (copies.n_ended <= expert)
            std::this_thread::sleep_for(std::chrono::microseconds(100));
        return Clock::now() - start < std::chrono::milliseconds(100);
    }));
}

TEST_F(StreamerWake, ClosingWakesTheIdleEngine) {
    open(4, 4);
    EXPECT_TRUE(one_of(12, [&](int i) {
        if (i > 0) reopen();
        Clock::time_point ended = {}; /* the engine's thread, when streams begin to close */
        Watched::closing = [&] {
            if (ended == Clock::time_point()) ended = Clock::now();
        };
        std::this_thread::sleep_for(std::chrono::milliseconds(15)); /* it sleeps by then */
        Clock::time_point start = Clock::now();
        close();
        Watched::closing = nullptr;
        return ended - start < std::chrono::milliseconds(100);
    }));
}

/* --- nothing comes behind the end ------------------------------------------------------------- */

/* The call behind a use's end wakes a streamer that may be closed once a dispatch has ended. */
TEST_F(StreamerWake, ADispatchEndsWhenTheCallsBehindItsUsesHaveRun) {
    open(1, 2);
    SlowWork before, behind;
    begin(0, {4, 5});
    ASSERT_EQ(next().size(), 1u);
    EXPECT_EQ(plec_stream_call(stream, SlowWork::run, &before, nullptr), PLEC_OK);
    int n_recorded = 0; /* the use's end, then, behind a call, that call's */
    Watched::recorded = [&](plec_event *) {
        if (n_recorded++ > 0) return;
        EXPECT_EQ(plec_stream_call(stream, SlowWork::run, &behind, nullptr), PLEC_OK);
    };
    used();
    Watched::recorded = nullptr;
    ASSERT_EQ(n_recorded, 2);
    std::atomic<bool> ended{false};
    std::thread other([&] {
        plec_streamer_end(streamer);
        ended = true;
    });
    before.go = true;
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    EXPECT_FALSE(ended);
    behind.go = true;
    other.join();
}

/* A copy whose end could not be recorded: what was enqueued of it still writes to its slot. */
TEST_F(StreamerWake, ACopyThatFailsAtItsStartHasEndedWhenItIsTold) {
    struct Copies {
        std::atomic<int> n_failed{0};
        std::atomic<bool> ran{false}, had_run{false};
        static void event(void *user, const plec_stream_event *event) {
            auto *copies = static_cast<Copies *>(user);
            if (event->kind != PLEC_STREAM_COPY_END || event->status == PLEC_OK) return;
            copies->n_failed++;
            copies->had_run = copies->ran.load();
        }
        static plec_status piece(void *user, plec_error *) {
            std::this_thread::sleep_for(std::chrono::milliseconds(20));
            static_cast<Copies *>(user)->ran = true;
            return PLEC_OK;
        }
    } copies;
    plec_stream_options options = {};
    options.trace = {Copies::event, &copies};
    open(4, 4, options);
    bool refused = false;
    Watched::refuses = [&](plec_stream *on) {
        if (refused || on == stream) return false;
        EXPECT_EQ(plec_stream_call(on, Copies::piece, &copies, nullptr), PLEC_OK);
        return refused = true;
    };
    begin(0, {4});
    plec_stream_part part;
    plec_error err = {};
    EXPECT_EQ(plec_streamer_next(&part, streamer, &err), PLEC_NO_DEVICE);
    EXPECT_STREQ(err.name, "NotRecorded");
    plec_streamer_end(streamer);
    EXPECT_EQ(copies.n_failed, 1);
    EXPECT_TRUE(copies.had_run);
    Watched::refuses = nullptr;
    begin(0, {4});
    ASSERT_EQ(next().size(), 1u);
    expect_bytes(0, 4);
    used();
    plec_streamer_end(streamer);
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
