/* Memory that does not keep what was read into it: a slot or a frame that changed is never handed
 * to a launch; it goes out of service, is said and counted, and the expert is read anew. */
#include "tests/support/stream_engine.h"
#include "tests/support/stream_model.h"

#include <memory>

using namespace plec_test;

namespace {

class StreamingSpoil : public testing::Test {
  protected:
    void open(uint32_t n_slots, uint32_t n_frames, uint32_t width,
              void (*spoil)(void *, void *, uint64_t) = nullptr, void *user = nullptr) {
        plec_stream_options stream = budget(frame_bytes(model, width), n_slots, n_frames, width);
        stream.spoil = spoil;
        stream.spoil_user = user;
        engine = std::make_unique<Engine>(model.path(), 2, stream);
        ASSERT_EQ(engine->status, PLEC_OK) << engine->err.message;
    }
    void expect_said(const std::string &what) const {
        EXPECT_NE(engine->news.find(what), std::string::npos) << engine->news;
    }
    void expect_sound() const {
        EXPECT_EQ(engine->fault(), "");
        plec_stream_stats stats = engine->stats();
        while (stats.n_reading > 0 || stats.n_copying > 0)
            stats = engine->stats();
        EXPECT_EQ(stats.device.in_use, 0u);
        EXPECT_EQ(stats.host.in_use, 0u);
        EXPECT_EQ(stats.read_bytes, stats.io.bytes);
    }

    StreamModel model;
    std::unique_ptr<Engine> engine;
};

/* Output stayed wrong across requests after a slot was corrupted. */
TEST_F(StreamingSpoil, ASlotThatChangedBetweenTwoRequestsIsFilledAnew) {
    open(4, 4, 3);
    engine->must_run(0, {3, 5, 7});
    engine->must_run(0, {3, 5, 7});
    uint64_t hits = engine->stats().device_hits, copied = engine->stats().copied_bytes;
    engine->handed_out(0, 5, PLEC_DOWN)[100] ^= 0x10;
    engine->must_run(0, {3, 5, 7}); /* compares every byte */
    plec_stream_stats stats = engine->stats();
    EXPECT_EQ(stats.device.quarantined, 1u);
    EXPECT_EQ(stats.host.quarantined, 0u);
    EXPECT_EQ(stats.device_hits, hits + 1) << "expert 7 alone: 3 and 5 shared the slot";
    EXPECT_EQ(stats.copied_bytes, copied + 2 * model.expert_bytes());
    expect_said("slot ");
    expect_said(": expert 5 of layer 0 is not what was read; the slot goes out of service");
    engine->must_run(0, {3, 5, 7});
    EXPECT_EQ(engine->stats().device.quarantined, 1u);
    EXPECT_EQ(engine->stats().device_hits, hits + 4);
    expect_sound();
}

TEST_F(StreamingSpoil, AnyByteOfAnyMatrixCounts) {
    open(12, 12, 2);
    uint32_t n = 0;
    for (int matrix = 0; matrix < PLEC_N_MATRICES; matrix++)
        for (uint64_t at : {uint64_t(0), model.expert_bytes() / 3 - 1}) {
            engine->must_run(1, {4});
            engine->handed_out(1, 4, matrix)[at] ^= 1;
            engine->must_run(1, {4});
            EXPECT_EQ(engine->stats().device.quarantined, ++n) << matrix << " " << at;
        }
    expect_sound();
}

TEST_F(StreamingSpoil, WhenEverySlotIsOutOfServiceEveryDispatchEndsByName) {
    open(1, 2, 1);
    engine->must_run(0, {3});
    engine->handed_out(0, 3, PLEC_GATE)[0] ^= 1;
    for (int i = 0; i < 3; i++) {
        EngineRun run = engine->run(i % 2, {3, 4});
        EXPECT_EQ(run.status, PLEC_NO_MEMORY);
        EXPECT_EQ(run.error, "NoSlotInService");
        EXPECT_TRUE(run.experts.empty());
    }
    EXPECT_EQ(engine->stats().device.quarantined, 1u);
    expect_sound();
}

/* Changes a byte of the n-th piece that is read. */
struct NthPiece {
    int left;
    bool done = false;
    static void spoil(void *user, void *bytes, uint64_t n_bytes) {
        auto *nth = static_cast<NthPiece *>(user);
        if (nth->left-- != 0) return;
        static_cast<uint8_t *>(bytes)[n_bytes / 8] ^= 0x80;
        nth->done = true;
    }
};

TEST_F(StreamingSpoil, AFrameThatChangedAfterAnyReadIsReadAnew) {
    uint32_t n_seen = 0;
    for (int at = 0;; at++) {
        NthPiece nth{at};
        open(12, 12, 1, NthPiece::spoil, &nth);
        for (uint32_t layer : {0u, 1u, 0u})
            engine->must_run(layer, {0, 2, 6, 7});
        expect_sound();
        plec_stream_stats stats = engine->stats();
        EXPECT_EQ(stats.device.quarantined, nth.done ? 1u : 0u);
        EXPECT_EQ(stats.host.quarantined, nth.done ? 1u : 0u);
        EXPECT_EQ(stats.read_bytes, (nth.done ? 9 : 8) * model.expert_bytes());
        if (!nth.done) break;
        n_seen++;
        expect_said("the frame goes out of service");
        ASSERT_LT(at, 200);
        engine.reset();
    }
    EXPECT_EQ(n_seen, 8u) << "as many as there are experts";
}

TEST_F(StreamingSpoil, AFrameThatChangedIsSeenWithFewSlotsAndWideExtentsToo) {
    for (uint32_t n : {2u, 3u, 4u})
        for (int at = 0; at < 12; at++) {
            NthPiece nth{at};
            open(n, n, 3, NthPiece::spoil, &nth);
            for (uint32_t layer : {0u, 1u, 0u, 1u})
                engine->must_run(layer, {0, 2, 6, 7, 11});
            expect_sound();
            EXPECT_LE(engine->stats().device.quarantined, 1u);
            engine.reset();
        }
}

} // namespace
