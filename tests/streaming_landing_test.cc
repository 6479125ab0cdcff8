/* Experts larger than a chunk, whose copies give way to others half way: what lands of each, and
 * that it arrives whole. In virtual time. */
#include "tests/support/virtual_stream.h"

using namespace plec_test;

namespace {

/* Experts of 3 KiB in four chunks, each a millisecond on the link; the disk takes next to nothing.
 */
VirtualBank slow_link() {
    VirtualBank bank;
    bank.model.n_layers = 2;
    bank.model.n_experts = 8;
    bank.width = 1;
    bank.n_slots = bank.n_frames = 16;
    bank.clock.disk_bytes_per_s = 0;
    bank.clock.disk_latency_ns = 1000;
    bank.clock.link_latency_ns = 0;
    bank.clock.link_bytes_per_s = 800000;
    bank.clock.compute_ns = 1000;
    bank.stream.chunk_bytes = 800;
    bank.stream.speculation = PLEC_SPECULATE_ON;
    bank.stream.poison = !arriving; /* looking at what landed allows one copy at a time */
    return bank;
}
const uint64_t MS = 1000000;

TEST(StreamingLanding, ExpertsInChunksArriveWhole) {
    VirtualStream on(slow_link());
    for (uint32_t layer : {0u, 1u})
        on.engine->must_run(layer, {0, 3, 7});
    on.settle();
    EXPECT_EQ(on.engine->stats().copied_bytes, 6 * on.bank.entry_bytes());
    EXPECT_EQ(on.engine->fault(), "");
}

/* An expert that was half copied ahead is demanded: what landed is not copied again. */
TEST(StreamingLanding, ADemandGoesOnWhereACopyAheadHasLanded) {
    VirtualStream on(slow_link());
    on.engine->must_run(0, {0});
    on.settle();
    uint64_t before = on.engine->stats().copied_bytes;
    on.engine->expect(PLEC_FROM_PLAN, 1, {5});
    on.pass(MS * 3 / 2);
    ASSERT_EQ(on.engine->stats().device.loaded, 1u) << "it is still on its way";
    on.engine->must_run(1, {5});
    on.settle();
    EXPECT_EQ(on.engine->stats().copied_bytes - before, on.bank.entry_bytes());
    EXPECT_EQ(on.engine->fault(), "");
}

/* A guess gives way to what is certain, half way, and goes on behind it: where both land in one
 * place, the guess has lost what had landed, and only that is copied again. */
TEST(StreamingLanding, ACopyThatGaveWayArrivesWholeAfterwards) {
    VirtualStream on(slow_link());
    on.engine->must_run(0, {0});
    on.settle();
    plec_stream_stats before = on.engine->stats();
    on.engine->expect(PLEC_FROM_NEXT_ROUTER, 1, {5});
    on.pass(MS * 3 / 2);
    ASSERT_GT(on.engine->stats().copied_bytes, before.copied_bytes) << "it has begun";
    on.engine->expect(PLEC_FROM_PLAN, 1, {2});
    on.settle();
    plec_stream_stats after = on.engine->stats();
    ASSERT_EQ(after.device.loaded - before.device.loaded, 2u);
    uint64_t again = after.copied_bytes - before.copied_bytes - 2 * on.bank.entry_bytes();
    if (arriving) {
        EXPECT_GT(again, 0u);
        EXPECT_LT(again, on.bank.entry_bytes());
    } else {
        EXPECT_EQ(again, 0u);
    }
    on.engine->must_run(1, {2, 5});
    EXPECT_EQ(on.engine->stats().device_hits - before.device_hits, 2u);
    EXPECT_EQ(on.engine->fault(), "");
}

/* A dispatch is given up while its expert is copied: what has landed is not taken for the bytes of
 * another expert, which gets its slot and lands elsewhere. */
TEST(StreamingLanding, ACopyThatWasGivenUpLeavesNothingToTheNext) {
    VirtualBank bank = slow_link();
    bank.stream.chunk_bytes = 300; /* a demand has four of them under way */
    VirtualStream on(bank);
    int n_asked = 0;
    plec_dispatch_args args = {};
    args.user = &n_asked;
    args.cancelled = [](void *user) { return ++*static_cast<int *>(user) > 2; };
    EXPECT_EQ(on.engine->run(1, {5}, args).error, "Cancelled");
    on.settle();
    plec_stream_stats before = on.engine->stats();
    ASSERT_EQ(before.device.loaded, 0u);
    ASSERT_GT(before.copied_bytes, 0u);
    on.engine->expect(PLEC_FROM_PLAN, 1, {2});
    on.settle();
    EXPECT_EQ(on.engine->stats().device.loaded, 1u);
    EXPECT_EQ(on.engine->stats().copied_bytes - before.copied_bytes, on.bank.entry_bytes());
    on.engine->must_run(1, {2});
    EXPECT_EQ(on.engine->stats().device_hits, 1u);
    EXPECT_EQ(on.engine->fault(), "");
}

/* Three classes at once, and slots that change hands: whatever lands where, experts are the file's.
 */
TEST(StreamingLanding, AnyOrderOfChunksGivesTheFilesBytes) {
    for (uint32_t seed = 0; seed < 20; seed++) {
        VirtualBank bank = slow_link();
        bank.n_slots = 4;
        bank.stream.chunk_bytes = 300 + 100 * seed;
        VirtualStream on(bank);
        std::mt19937 random(seed);
        for (int step = 0; step < 12; step++) {
            auto expert = [&] { return static_cast<int32_t>(random() % 8); };
            uint32_t layer = step % 2;
            on.engine->expect(PLEC_FROM_NEXT_ROUTER, layer, {expert(), expert()});
            on.pass(random() % (6 * MS));
            on.engine->expect(PLEC_FROM_PLAN, layer, {expert()});
            on.pass(random() % (3 * MS));
            on.engine->must_run(layer, {expert(), expert()});
        }
        on.settle();
        EXPECT_EQ(on.engine->fault(), "") << seed;
    }
}

} // namespace
