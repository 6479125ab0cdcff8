/* A streamer without a runner: when slots are given away, and dispatches that stop half way. */
#include "tests/support/bare_streamer.h"

#include <algorithm>
#include <atomic>
#include <thread>

using namespace plec_test;

namespace {

class Streamer : public BareStreamer {};

TEST_F(Streamer, HandsOutEachExpertOnceWithItsBytes) {
    open(24, 24);
    for (int round = 0; round < 2; round++)
        for (uint32_t layer : {0u, 1u}) {
            begin(layer, {7, 3, 3, 11, 7});
            std::vector<uint32_t> all;
            for (std::vector<uint32_t> part = next(); !part.empty(); part = next()) {
                for (uint32_t e : part)
                    expect_bytes(layer, e);
                all.insert(all.end(), part.begin(), part.end());
                used();
            }
            plec_streamer_end(streamer);
            std::sort(all.begin(), all.end());
            EXPECT_EQ(all, (std::vector<uint32_t>{3, 7, 11}));
        }
    EXPECT_EQ(stats().device_hits, 6u);
}

/* Work that takes as long as it likes. */
struct SlowWork {
    std::atomic<bool> go{false}, finished{false};
    static plec_status run(void *user, plec_error *) {
        auto *work = static_cast<SlowWork *>(user);
        while (!work->go)
            std::this_thread::sleep_for(std::chrono::milliseconds(1));
        work->finished = true;
        return PLEC_OK;
    }
};

TEST_F(Streamer, ASlotIsNotGivenAwayWhileWorkReadsIt) {
    open(1, 2);
    SlowWork work;
    begin(0, {4, 5});
    std::vector<uint32_t> first = next();
    ASSERT_EQ(first.size(), 1u);
    EXPECT_EQ(plec_stream_call(stream, SlowWork::run, &work, nullptr), PLEC_OK);
    used();
    std::atomic<bool> had_second{false};
    std::thread other([&] {
        std::vector<uint32_t> second = next();
        had_second = true;
        ASSERT_EQ(second.size(), 1u);
        EXPECT_NE(second[0], first[0]);
        expect_bytes(0, second[0]);
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
    EXPECT_FALSE(had_second);
    expect_bytes(0, first[0]); /* its bytes are still there */
    work.go = true;
    other.join();
    used();
    EXPECT_TRUE(next().empty());
    plec_streamer_end(streamer);
    EXPECT_GE(stats().stall_slot_ns, 40000000u);
}

TEST_F(Streamer, EndWaitsForTheWorkOfEveryPart) {
    open(2, 2);
    SlowWork work;
    begin(0, {4});
    next();
    EXPECT_EQ(plec_stream_call(stream, SlowWork::run, &work, nullptr), PLEC_OK);
    used();
    std::atomic<bool> ended{false};
    std::thread other([&] {
        plec_streamer_end(streamer);
        ended = true;
    });
    std::this_thread::sleep_for(std::chrono::milliseconds(40));
    EXPECT_FALSE(ended);
    work.go = true;
    other.join();
}

/* A device whose events can be told to refuse to be recorded on a stream. */
struct RefusedRecords {
    static inline const plec_backend *real;
    static inline plec_backend backend;
    static inline const plec_stream *on;
    static inline int n_to_pass, n_refused;

    static plec_status open_event(plec_event **out, plec_device *device, plec_error *err) {
        plec_status status = real->event_open(out, device, err);
        if (status == PLEC_OK) (*out)->backend = &backend;
        return status;
    }
    static plec_status record(plec_event *event, plec_stream *stream, plec_error *err) {
        if (stream != on || n_to_pass-- > 0) return real->event_record(event, stream, err);
        n_refused++;
        return plec_fail(err, PLEC_NO_DEVICE, "NotRecorded", "by a test");
    }
    /* Events opened from here on. */
    static void take_over(plec_device *device, const plec_stream *stream) {
        on = stream;
        real = device->backend;
        backend = *real;
        backend.event_open = open_event;
        backend.event_record = record;
        n_to_pass = 1 << 30;
        n_refused = 0;
        device->backend = &backend;
    }
};

/* An event that was never recorded was waited for, and a slot given away under the work on it. */
TEST_F(Streamer, AUseThatCannotBeRecordedIsWaitedFor) {
    before_open = RefusedRecords::take_over;
    open(2, 4);
    for (int n_to_pass : {0, 1}) { /* the end of the work; the call behind it */
        SlowWork work;
        begin(0, {4, 5, 6, 7});
        ASSERT_FALSE(next().empty());
        EXPECT_EQ(plec_stream_call(stream, SlowWork::run, &work, nullptr), PLEC_OK);
        RefusedRecords::n_to_pass = n_to_pass;
        std::thread other([&] {
            std::this_thread::sleep_for(std::chrono::milliseconds(30));
            work.go = true;
        });
        plec_error err = {};
        EXPECT_EQ(plec_streamer_used(streamer, stream, &err), PLEC_NO_DEVICE);
        EXPECT_TRUE(work.finished);
        RefusedRecords::n_to_pass = 1 << 30;
        other.join();
        plec_streamer_end(streamer);
    }
    EXPECT_EQ(RefusedRecords::n_refused, 2);
}

TEST_F(Streamer, ADispatchMayEndAtAnyPoint) {
    open(3, 3);
    for (int stop = 0; stop < 40; stop++) {
        begin(stop % 2, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
        for (int i = 0; i < stop % 8; i++) {
            std::vector<uint32_t> part = next();
            for (uint32_t e : part)
                expect_bytes(stop % 2, e);
            if (stop < 20 || i + 1 < stop % 8) used();
        }
        plec_streamer_end(streamer);
    }
    EXPECT_EQ(stats().failed, 0u);
}

TEST_F(Streamer, WhatIsExpectedIsThereWhenAskedFor) {
    open(24, 24);
    begin(0, {0});
    next();
    used();
    plec_streamer_end(streamer);
    const int32_t ids[] = {2, 9, 2};
    plec_expectation plan = {PLEC_FROM_PLAN, 1, ids, 3};
    plec_streamer_expect(streamer, &plan);
    while (stats().device.loaded < 3)
        std::this_thread::yield();
    begin(1, {2, 9});
    EXPECT_EQ(next().size(), 2u);
    used();
    plec_streamer_end(streamer);
    EXPECT_EQ(stats().device_hits, 2u);
    EXPECT_EQ(stats().policies[PLEC_FROM_PLAN].right, 2u);
    EXPECT_EQ(plec_streamer_layer_after(streamer, 0), 1u);
    EXPECT_EQ(plec_streamer_layer_after(streamer, 1), UINT32_MAX);
}

TEST_F(Streamer, AnEmptyDispatchIsFine) {
    open(2, 2);
    begin(0, {});
    EXPECT_TRUE(next().empty());
    plec_streamer_end(streamer);
    EXPECT_EQ(stats().dispatches, 1u);
    EXPECT_EQ(stats().io.reads, 0u);
}

} // namespace
