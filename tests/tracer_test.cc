/* Rings of events: what is kept, what is lost, in which order it is read back. */
#include "host/tracer.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <set>
#include <thread>
#include <vector>

namespace {

/* A tracer that records, and what it held when it was last read. */
struct Recorder {
    explicit Recorder(uint32_t events = 0, uint32_t threads = 0) {
        plec_tracer_options options = {};
        options.record = true;
        options.events_per_thread = events;
        options.max_threads = threads;
        EXPECT_EQ(plec_tracer_open(&tracer, &options, nullptr), PLEC_OK);
    }
    ~Recorder() {
        plec_tracer_snapshot_close(&seen);
        plec_tracer_close(tracer);
    }
    void add(uint64_t id, uint64_t at_ns = 0) {
        plec_tracer_event event = {};
        event.what = PLEC_TRACE_READY;
        event.phase = PLEC_TRACE_MOMENT;
        event.id = id;
        event.n_bytes = ~id;
        event.at_ns = at_ns;
        plec_tracer_add(tracer, &event);
    }
    const plec_tracer_snapshot &read() {
        plec_tracer_snapshot_close(&seen);
        EXPECT_EQ(plec_tracer_read(&seen, tracer, nullptr), PLEC_OK);
        return seen;
    }
    std::vector<uint64_t> ids() {
        read();
        std::vector<uint64_t> out;
        for (uint64_t i = 0; i < seen.n_events; i++)
            out.push_back(seen.events[i].id);
        return out;
    }
    plec_tracer *tracer = nullptr;
    plec_tracer_snapshot seen = {};
};

TEST(Tracer, GivesBackWhatWasRecordedInOrderOfTime) {
    Recorder recorder;
    uint64_t before = recorder.read().start_ns;
    for (uint64_t i = 1; i <= 5; i++)
        recorder.add(i);
    EXPECT_EQ(recorder.ids(), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
    uint64_t last = before;
    for (uint64_t i = 0; i < recorder.seen.n_events; i++) {
        EXPECT_GE(recorder.seen.events[i].at_ns, last);
        EXPECT_EQ(recorder.seen.events[i].n_bytes, ~recorder.seen.events[i].id);
        last = recorder.seen.events[i].at_ns;
    }
    EXPECT_GE(recorder.seen.read_ns, last);
    EXPECT_EQ(recorder.seen.n_lost, 0u);
    EXPECT_EQ(recorder.seen.n_threads, 1u);
}

TEST(Tracer, AFullRingKeepsTheNewestAndCountsTheRest) {
    Recorder recorder(8);
    for (uint64_t i = 1; i <= 8; i++)
        recorder.add(i);
    recorder.read();
    EXPECT_EQ(recorder.seen.n_lost, 0u);
    for (uint64_t i = 9; i <= 21; i++)
        recorder.add(i);
    EXPECT_EQ(recorder.ids(), (std::vector<uint64_t>{14, 15, 16, 17, 18, 19, 20, 21}));
    EXPECT_EQ(recorder.seen.n_lost, 13u);
    EXPECT_EQ(recorder.seen.threads[0].n_lost, 13u);
}

TEST(Tracer, RoundsTheRingUpToAPowerOfTwo) {
    Recorder recorder(5);
    for (uint64_t i = 1; i <= 9; i++)
        recorder.add(i);
    EXPECT_EQ(recorder.ids().size(), 8u);
}

TEST(Tracer, ThreadsBeyondTheLastRingAreCountedAsLost) {
    Recorder recorder(16, 1);
    recorder.add(1);
    std::thread([&] { recorder.add(2), recorder.add(3); }).join();
    EXPECT_EQ(recorder.ids(), (std::vector<uint64_t>{1}));
    EXPECT_EQ(recorder.seen.n_lost, 2u);
    EXPECT_EQ(recorder.seen.n_threads, 1u);
}

TEST(Tracer, MergesThreadsByTimeAndByOrderWithinOneTime) {
    Recorder recorder;
    recorder.add(1, 100);
    recorder.add(4, 300);
    std::thread([&] { recorder.add(2, 200), recorder.add(5, 300), recorder.add(6, 300); }).join();
    recorder.add(7, 300);
    std::thread([&] { recorder.add(3, 250); }).join();
    EXPECT_EQ(recorder.ids(), (std::vector<uint64_t>{1, 2, 3, 4, 5, 6, 7}));
    EXPECT_GE(recorder.seen.n_threads, 2u);
}

TEST(Tracer, NamesThreadsAsTheSystemDoes) {
    Recorder recorder;
    std::thread([&] {
        pthread_setname_np(pthread_self(), "of-the-test");
        recorder.add(1);
    }).join();
    recorder.read();
    ASSERT_EQ(recorder.seen.n_threads, 1u);
    EXPECT_STREQ(recorder.seen.threads[0].name, "of-the-test");
    EXPECT_NE(recorder.seen.threads[0].tid, 0u);
}

TEST(Tracer, OneThreadMayTakeTurnsBetweenTracers) {
    Recorder a, b;
    for (uint64_t i = 0; i < 100; i++)
        a.add(i), b.add(i + 1000);
    EXPECT_EQ(a.ids().size(), 100u);
    EXPECT_EQ(b.ids().size(), 100u);
    EXPECT_EQ(a.seen.n_threads, 1u);
    EXPECT_EQ(b.seen.n_threads, 1u);
    EXPECT_EQ(b.seen.events[0].id, 1000u);
}

TEST(Tracer, ATracerOpenedWhereAnotherStoodStartsEmpty) {
    for (int i = 0; i < 3; i++) {
        Recorder recorder;
        recorder.add(7);
        EXPECT_EQ(recorder.ids(), (std::vector<uint64_t>{7}));
    }
}

TEST(Tracer, ClearForgets) {
    Recorder recorder(8);
    for (uint64_t i = 0; i < 20; i++)
        recorder.add(i);
    plec_tracer_clear(recorder.tracer);
    recorder.add(100);
    EXPECT_EQ(recorder.ids(), (std::vector<uint64_t>{100}));
    EXPECT_EQ(recorder.seen.n_lost, 0u);
}

/* Events are whole, in order, and none is missing from the middle, however the reader meets the
 * writers. */
TEST(Tracer, ReadingBesideWritersGivesWholeEvents) {
    Recorder recorder(256, 4); /* written over while it is read */
    std::atomic<bool> stop{false};
    std::vector<std::thread> writers;
    for (uint64_t w = 0; w < 3; w++)
        writers.emplace_back([&, w] {
            for (uint64_t i = 0; !stop; i++)
                recorder.add(w << 56 | i);
        });
    uint64_t torn = 0, gaps = 0;
    auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(300);
    for (int met = 0; met < 1000 || std::chrono::steady_clock::now() < until;) {
        met += recorder.read().n_lost > 0; /* rings that are full are being written over */
        std::vector<uint64_t> next(4, 0);
        for (uint64_t i = 0; i < recorder.seen.n_events; i++) {
            const plec_tracer_event &event = recorder.seen.events[i];
            torn += event.n_bytes != ~event.id;
            gaps += next[event.thread] != 0 && next[event.thread] != event.id;
            next[event.thread] = event.id + 1;
        }
    }
    stop = true;
    for (std::thread &writer : writers)
        writer.join();
    EXPECT_EQ(torn, 0u);
    EXPECT_EQ(gaps, 0u);
}

TEST(Tracer, ANullTracerRecordsNothing) {
    plec_tracer_event event = {};
    plec_tracer_add(nullptr, &event);
    plec_tracer_push(nullptr, PLEC_TRACE_LAYER, 1, 1);
    plec_tracer_pop(nullptr, PLEC_TRACE_LAYER, 1, PLEC_OK);
    plec_tracer_begin(nullptr, PLEC_TRACE_LAYER, 1, 1);
    plec_tracer_end(nullptr, PLEC_TRACE_LAYER, 1, PLEC_OK);
    EXPECT_FALSE(plec_tracer_records(nullptr));
    EXPECT_FALSE(plec_tracer_active(nullptr));
    EXPECT_EQ(plec_tracer_of_stream(nullptr).event, nullptr);
    EXPECT_EQ(plec_tracer_of_device(nullptr).mark, nullptr);
}

TEST(Tracer, WithoutRingsAndListenersItIsNotWorthTelling) {
    plec_tracer_options options = {};
    plec_tracer *tracer = nullptr;
    ASSERT_EQ(plec_tracer_open(&tracer, &options, nullptr), PLEC_OK);
    EXPECT_FALSE(plec_tracer_active(tracer));
    EXPECT_EQ(plec_tracer_of_stream(tracer).event, nullptr);
    plec_tracer_begin(tracer, PLEC_TRACE_LAYER, 1, 1);
    plec_tracer_snapshot seen;
    ASSERT_EQ(plec_tracer_read(&seen, tracer, nullptr), PLEC_OK);
    EXPECT_EQ(seen.n_events, 0u);
    plec_tracer_snapshot_close(&seen);
    plec_tracer_close(tracer);
}

TEST(Tracer, EveryKindHasANameOfItsOwnAndACategory) {
    std::set<std::string> names;
    for (int i = 0; i < PLEC_N_TRACES; i++) {
        ASSERT_NE(plec_tracer_name(static_cast<plec_tracer_what>(i)), nullptr) << i;
        names.insert(plec_tracer_name(static_cast<plec_tracer_what>(i)));
        plec_nvtx_category category = plec_tracer_category(static_cast<plec_tracer_what>(i));
        ASSERT_GE(category, PLEC_NVTX_ROUTE) << i;
        EXPECT_NE(plec_nvtx_category_name(category), nullptr);
    }
    EXPECT_EQ(names.size(), static_cast<size_t>(PLEC_N_TRACES));
}

} // namespace
