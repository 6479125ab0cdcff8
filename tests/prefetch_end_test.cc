/* How asks end: given up, failed, stalled, or served from a cache that is smaller than they need.
 */
#include <cstring>
#include <mutex>
#include <string>
#include <thread>

#include "tests/support/asks.h"

namespace {

using namespace plec_test;

constexpr uint64_t SECOND = 1000000000;

/* --- giving up --- */

TEST(Prefetch, ACancelledDemandThatHasNotStartedIsNeverRead) {
    Tiers t({});
    plec_ticket ticket = wait_for(t, 0, 1);
    plec_prefetch_cancel(t.prefetch, ticket, 7);
    EXPECT_TRUE(no_read(t));
    plec_demand_result result = result_of(t, ticket);
    EXPECT_EQ(result.status, PLEC_CANCELLED);
    EXPECT_STREQ(result.error.name, "Cancelled");
    plec_prefetch_cancel(t.prefetch, ticket, 8); /* again: nothing */
    EXPECT_EQ(tier_counters(t.host).in_use + tier_counters(t.device).in_use, 0u);
}

TEST(Prefetch, AStartedReadOfACancelledDemandEndsInTheFrame) {
    Tiers t({});
    plec_ticket ticket = wait_for(t, 0, 1);
    plec_job read = read_job(t);
    plec_prefetch_cancel(t.prefetch, ticket, 0);
    EXPECT_EQ(result_of(t, ticket).status, PLEC_CANCELLED);
    end(t, read);
    EXPECT_TRUE(no_copy(t));
    EXPECT_EQ(counters(t).classes[PLEC_DEMAND].orphaned, 1u);
    EXPECT_EQ(plec_residency_valid(t.host, 0), 1u);
    wait_for(t, 0, 1);
    EXPECT_TRUE(no_read(t)) << "who comes next finds it";
    EXPECT_EQ(copy_job(t).key, 0u);
}

TEST(Prefetch, CancellingOneOfTwoDemandsLeavesTheOther) {
    Tiers t({});
    plec_ticket gone = wait_for(t, 0, 0x3), stays = wait_for(t, 0, 0x6);
    plec_prefetch_cancel(t.prefetch, gone, 0);
    plec_job read = read_job(t);
    EXPECT_EQ(read.mask, 0x6u);
    end(t, read);
    t.run_all(0);
    expect_ready(t, stays);
    EXPECT_EQ(result_of(t, gone).status, PLEC_CANCELLED);
}

TEST(Prefetch, RequestsPastTheirDeadlineAreDropped) {
    TiersOptions options;
    options.max_unconsumed = 4;
    Tiers t(options);
    ask(t, 0, 1, PLEC_CERTAIN, 3);
    ask(t, 1, 1, PLEC_LIKELY, 4);
    ask(t, 2, 1, PLEC_LIKELY, 2);
    ask(t, 2, 1, PLEC_LIKELY, 6); /* asked again, for later */
    plec_prefetch_advance(t.prefetch, 4);
    EXPECT_EQ(ask(t, 3, 1, PLEC_IDLE, 3), PLEC_REQUEST_LATE);
    EXPECT_EQ(counters(t).n_requests, 2u);
    EXPECT_EQ(counters(t).classes[PLEC_CERTAIN].dropped, 1u);
    EXPECT_EQ(read_job(t).key, 1u);
    EXPECT_EQ(read_job(t).key, 2u);
    EXPECT_TRUE(no_read(t));
}

TEST(Prefetch, DroppingAnOriginSparesTheOthersAndDemands) {
    Tiers t({});
    ask(t, 0, 1, PLEC_LIKELY); /* from previous */
    plec_request plan = {};
    plan.key = 1;
    plan.mask = 1;
    plan.urgency = PLEC_CERTAIN;
    plan.deadline = 9;
    plan.origin = PLEC_FROM_PLAN;
    EXPECT_EQ(plec_prefetch_request(t.prefetch, &plan), PLEC_REQUEST_TAKEN);
    plec_prefetch_drop(t.prefetch, PLEC_FROM_PREVIOUS, PLEC_NO_KEY);
    EXPECT_EQ(counters(t).n_requests, 1u);
    EXPECT_EQ(read_job(t).key, 1u);
}

TEST(Prefetch, ADemandPastItsOwnDeadlineEndsByName) {
    Tiers t({});
    plec_demand_args args = {};
    args.mask = 1;
    args.deadline_ns = 100;
    plec_demand_result result;
    ASSERT_EQ(plec_prefetch_demand(&result, t.prefetch, &args, 0), PLEC_DEMAND_WAITING);
    plec_ticket ticket = result.ticket;
    plec_job read = read_job(t);
    EXPECT_FALSE(plec_prefetch_expire(t.prefetch, 99, nullptr, 0));
    EXPECT_FALSE(plec_prefetch_take(&result, t.prefetch, ticket));
    EXPECT_FALSE(plec_prefetch_expire(t.prefetch, 100, nullptr, 0)) << "no stall";
    result = result_of(t, ticket);
    EXPECT_EQ(result.status, PLEC_CANCELLED);
    EXPECT_STREQ(result.error.name, "DeadlinePast");
    end(t, read);
    EXPECT_EQ(tier_counters(t.device).in_use, 0u) << "its slot is free";
}

/* Decode fell from 2 to 0.1 tokens a second while the disks were idle. */
TEST(Prefetch, TheWatchdogShowsADemandWaitingBesideAnIdleDisk) {
    TiersOptions options;
    options.n_slots = 1;
    Tiers t(options);
    plec_ticket first = wait_for(t, 0, 1);
    t.run_all(0);
    plec_demand_result held = result_of(t, first); /* a kernel that never ends */
    plec_ticket stuck = wait_for(t, 1, 1, SECOND);
    EXPECT_TRUE(no_read(t));
    char dump[4096];
    EXPECT_FALSE(plec_prefetch_expire(t.prefetch, 6 * SECOND - 1, dump, sizeof dump));
    EXPECT_TRUE(plec_prefetch_expire(t.prefetch, 6 * SECOND, dump, sizeof dump));
    EXPECT_NE(std::strstr(dump, "demand: key 1 experts 1 waits 5000 ms"), nullptr) << dump;
    EXPECT_NE(std::strstr(dump, "slots: 0 free, 0 at rest, 1 in use"), nullptr) << dump;
    plec_demand_result result = result_of(t, stuck);
    EXPECT_EQ(result.status, PLEC_IO);
    EXPECT_STREQ(result.error.name, "DemandStalled");
    plec_residency_release(t.device, held.ref);
    use(t, 1, 1); /* and the machine goes on */
}

TEST(Prefetch, TheWatchdogIsQuietWhileASlowDiskMoves) {
    Tiers t({});
    plec_ticket ticket = wait_for(t, 0, 1, 0);
    plec_job job;
    for (uint64_t now = 0; now < 60 * SECOND; now += 4 * SECOND) {
        ask(t, 1, 1, PLEC_CERTAIN, 100, true);
        plec_residency_evict(t.host, 1);
        ask(t, 1, 1, PLEC_CERTAIN, 100, true);
        while (plec_prefetch_next_read(&job, t.prefetch, now))
            if (job.key == 1) end(t, job, now);
        EXPECT_FALSE(plec_prefetch_expire(t.prefetch, now, nullptr, 0)) << now;
    }
    plec_prefetch_cancel(t.prefetch, ticket, 60 * SECOND);
}

TEST(Prefetch, ADumpIsCutToItsBuffer) {
    Tiers t({});
    for (uint32_t key = 0; key < 10; key++)
        wait_for(t, key, 1);
    for (size_t size : {1, 2, 50, 300}) {
        std::string text(size + 1, 'x');
        plec_prefetch_dump(t.prefetch, 0, &text[0], size);
        EXPECT_LT(std::strlen(text.c_str()), size);
        EXPECT_EQ(text[size], 'x');
    }
}

/* --- failures --- */

TEST(Prefetch, AFailedReadEndsItsDemandsByNameAndTheNextOneTriesAgain) {
    Tiers t({});
    plec_ticket hurt = wait_for(t, 0, 0x1), fine = wait_for(t, 1, 0x1);
    plec_error err = error("ReadFailed");
    plec_job bad = read_job(t), good = read_job(t);
    end(t, bad, 0, &err);
    plec_demand_result result = result_of(t, hurt);
    EXPECT_EQ(result.status, PLEC_IO);
    EXPECT_STREQ(result.error.name, "ReadFailed");
    EXPECT_NE(std::strstr(result.error.message, "as planned"), nullptr);
    end(t, good);
    t.run_all(0);
    expect_ready(t, fine);
    use(t, 0, 0x1);
    EXPECT_EQ(counters(t).failed, 1u);
}

TEST(Prefetch, AFailedCopyEndsItsDemandsWhenItsOtherChunksHaveLanded) {
    TiersOptions options;
    options.entry_bytes = 3000;
    options.prefetch.chunk_bytes = 1000;
    options.n_slots = 1;
    Tiers t(options);
    plec_ticket hurt = wait_for(t, 0, 0x1);
    end(t, read_job(t));
    plec_job a = copy_job(t), b = copy_job(t);
    plec_error err = error("CopyFailed");
    end(t, a, 0, &err);
    EXPECT_STREQ(result_of(t, hurt).error.name, "CopyFailed");
    EXPECT_TRUE(no_copy(t));
    EXPECT_EQ(tier_counters(t.device).in_use, 1u) << "a chunk still writes into the slot";
    plec_ticket next = wait_for(t, 1, 0x1);
    EXPECT_TRUE(no_read(t)) << "so it cannot be another's";
    end(t, b);
    t.run_all(0);
    expect_ready(t, next);
}

TEST(Prefetch, AFailedSpeculationIsDroppedInSilenceAndCounted) {
    Tiers t({});
    ask(t, 0, 1, PLEC_LIKELY);
    plec_error err = error("ReadFailed");
    end(t, read_job(t), 0, &err);
    EXPECT_TRUE(no_read(t));
    EXPECT_EQ(counters(t).classes[PLEC_LIKELY].failed, 1u);
    EXPECT_EQ(counters(t).n_requests, 0u);
    EXPECT_EQ(tier_counters(t.host).free, 4u);
}

TEST(Prefetch, AJobThatCouldNotStartIsGivenAgain) {
    Tiers t({});
    plec_ticket ticket = wait_for(t, 0, 1);
    plec_job read = read_job(t);
    plec_prefetch_job_returned(t.prefetch, read.id);
    EXPECT_EQ(t.fault(), "");
    plec_job again = read_job(t);
    EXPECT_EQ(again.mask, read.mask);
    EXPECT_NE(again.id, read.id);
    end(t, again);
    plec_job copy = copy_job(t);
    plec_prefetch_job_returned(t.prefetch, copy.id);
    EXPECT_EQ(t.fault(), "");
    t.run_all(0);
    expect_ready(t, ticket);
    EXPECT_EQ(tier_counters(t.host).in_use + tier_counters(t.device).in_use, 0u);
}

#ifndef NDEBUG
TEST(PrefetchDeathTest, AJobThatEndsTwiceIsCaught) {
    Tiers t({});
    plec_ticket ticket = wait_for(t, 0, 1);
    plec_job read = read_job(t);
    end(t, read);
    EXPECT_DEATH(plec_prefetch_job_ended(t.prefetch, read.id, 0, 0, nullptr), "id == id");
    plec_prefetch_cancel(t.prefetch, ticket, 0);
}
#endif

/* --- caches and dispatches --- */

/* Hit rate 0.000 at every budget, everything read again at every token. */
TEST(Prefetch, ASecondStepOverWhatFitsReadsNothing) {
    for (bool device : {false, true}) {
        TiersOptions options;
        options.has_device = device;
        Tiers t(options);
        uint64_t first = 0;
        for (int step = 0; step < 10; step++) {
            use(t, 0, 0x1);
            use(t, 1, 0x2);
            uint64_t read = counters(t).classes[PLEC_DEMAND].read_bytes;
            if (step == 0) first = read;
            EXPECT_EQ(read, first) << "step " << step;
        }
        EXPECT_EQ(first, 2000u);
        EXPECT_EQ(tier_counters(t.final_tier()).hits, 18u);
        EXPECT_EQ(tier_counters(t.final_tier()).misses, 2u);
    }
}

/* Runs a dispatch as the contract says: hold what fits, stream the rest. */
void dispatch(Tiers &t, std::vector<plec_need> needs) {
    plec_fit fit = plec_prefetch_fit(t.prefetch, needs.data(), uint32_t(needs.size()));
    std::vector<plec_slot_ref> held;
    for (uint32_t i = 0; i < needs.size(); i++) {
        plec_demand_args args = {};
        args.key = needs[i].key;
        args.mask = needs[i].mask;
        args.stream = i >= fit.n_hold;
        args.stream_host = i >= fit.n_cache;
        plec_demand_result result;
        if (plec_prefetch_demand(&result, t.prefetch, &args, 0) == PLEC_DEMAND_WAITING) {
            t.run_all(0);
            result = result_of(t, result.ticket);
        }
        ASSERT_EQ(result.status, PLEC_OK);
        EXPECT_TRUE(t.intact(result.ref, needs[i].key, needs[i].mask));
        if (args.stream)
            plec_residency_release(t.final_tier(), result.ref);
        else
            held.push_back(result.ref);
    }
    for (plec_slot_ref ref : held)
        plec_residency_release(t.final_tier(), ref);
}

/* With a dispatch of twice the cache, an LRU was slower than staging alone. */
TEST(Prefetch, ADispatchOfTwiceTheCacheStillHitsWhatTheCacheHolds) {
    TiersOptions options;
    options.n_slots = 4;
    options.n_slot_staging = 2;
    options.n_frames = 6;
    options.n_frame_staging = 2;
    Tiers t(options);
    std::vector<plec_need> needs;
    for (uint32_t key = 0; key < 8; key++)
        needs.push_back({key, 0x1});
    const uint64_t rounds = 10;
    for (uint64_t round = 0; round < rounds; round++)
        dispatch(t, needs);
    /* Eight misses at first. Then four are on the device and two more in frames; the last two take
     * frames of those that the device holds, and nothing is read any more. */
    EXPECT_EQ(tier_counters(t.device).hits, 4 * (rounds - 1));
    EXPECT_EQ(tier_counters(t.device).misses, 8 + 4 * (rounds - 1));
    EXPECT_EQ(counters(t).classes[PLEC_DEMAND].read_experts, 10u);
    EXPECT_EQ(tier_counters(t.device).evictions - tier_counters(t.device).staged, 0u);
}

/* Prefill allocated what did not fit and ran into illegal memory. */
TEST(Prefetch, ADeviceOfOneSlotRunsALargeDispatchOneByOne) {
    TiersOptions options;
    options.n_slots = 1;
    options.n_frames = 1;
    Tiers t(options);
    std::vector<plec_need> needs;
    for (uint32_t key = 0; key < 16; key++)
        needs.push_back({key, 0xff});
    std::vector<plec_need> ordered = needs;
    EXPECT_EQ(plec_prefetch_fit(t.prefetch, ordered.data(), 16).n_hold, 1u);
    for (const plec_need &need : ordered) /* no staging: each is released before the next */
        use(t, need.key, need.mask);
    EXPECT_EQ(counters(t).ready, 16u);
    EXPECT_EQ(counters(t).classes[PLEC_DEMAND].read_bytes, 16 * 8000u);
}

TEST(Prefetch, ADemandThatAsksForNoStagingPassesThroughItWhereNothingCaches) {
    TiersOptions options;
    options.n_slots = options.n_frames = 0;
    options.n_slot_staging = options.n_frame_staging = 1;
    Tiers t(options);
    for (uint32_t key = 0; key < 4; key++)
        use(t, key, 0x11);
    EXPECT_EQ(counters(t).ready, 4u);
    EXPECT_EQ(tier_counters(t.device).staged, 4u);
    EXPECT_EQ(tier_counters(t.host).staged, 4u);
}

/* Takes the slot of a key out of service, as one does who finds it spoiled. */
void spoil(Tiers &t, plec_residency *tier, uint32_t key) {
    plec_slot_ref ref;
    ASSERT_TRUE(plec_residency_hold(&ref, tier, key));
    plec_residency_seal(tier, ref, 0, 1);
    EXPECT_FALSE(plec_residency_check(tier, ref, 0, 2));
    plec_residency_release(tier, ref);
    plec_prefetch_quarantined(t.prefetch, key, 0);
    EXPECT_EQ(t.fault(), "");
}

TEST(Prefetch, ADemandWhoseFrameOrSlotGoesOutOfServiceAtAnyPointIsServedAnew) {
    for (bool device : {false, true})
        for (int at = 0; at < 4; at++) {
            TiersOptions options;
            options.tags = true;
            options.n_slots = options.n_frames = 2;
            options.prefetch.chunk_bytes = 1000;
            Tiers t(options);
            plec_ticket ticket = wait_for(t, 0, 0x3);
            plec_job job = read_job(t);
            for (int i = 0; i < 4; i++) { /* spoiled while read, when read, after one copy, two */
                if (i == at) spoil(t, device ? t.device : t.host, 0);
                if (i == 3) break;
                end(t, job);
                if (i < 2 && !plec_prefetch_next_copy(&job, t.prefetch, 0)) job = read_job(t);
            }
            t.run_all(0);
            expect_ready(t, ticket);
            EXPECT_EQ(tier_counters(device ? t.device : t.host).quarantined, 1u);
            EXPECT_EQ(tier_counters(t.host).in_use + tier_counters(t.device).in_use, 0u);
        }
}

TEST(Prefetch, WithNoSlotInServiceEveryDemandEndsByName) {
    for (bool device : {false, true}) {
        TiersOptions options;
        options.tags = true;
        options.n_slots = options.n_frames = 1;
        Tiers t(options);
        plec_ticket first = wait_for(t, 0, 0x1), other = wait_for(t, 1, 0x1);
        plec_job job = read_job(t);
        spoil(t, device ? t.device : t.host, 0);
        end(t, job);
        for (plec_ticket ticket : {first, other, wait_for(t, 2, 0x1)}) {
            plec_demand_result result = result_of(t, ticket);
            EXPECT_EQ(result.status, PLEC_NO_MEMORY);
            EXPECT_STREQ(result.error.name, "NoSlotInService");
        }
        EXPECT_TRUE(no_read(t));
        EXPECT_EQ(tier_counters(t.host).in_use + tier_counters(t.device).in_use, 0u);
    }
}

TEST(Prefetch, PlansDoNotPushOutWhatThePlanNeedsSooner) {
    TiersOptions options;
    options.n_slots = 2;
    options.n_frames = 3;
    options.prefetch.max_requests = 16;
    Tiers t(options);
    for (uint32_t key = 0; key < 8; key++)
        ask(t, key, 0xff, PLEC_CERTAIN, key);
    t.run_all(0);
    EXPECT_EQ(plec_residency_valid(t.device, 0), 0xffu);
    EXPECT_EQ(plec_residency_valid(t.device, 1), 0xffu);
    EXPECT_EQ(counters(t).classes[PLEC_CERTAIN].read_experts, 5 * 8u) << "2 slots and 3 frames";
    for (uint32_t key = 0; key < 8; key++) {
        plec_prefetch_advance(t.prefetch, key);
        use(t, key, 0xff);
        t.run_all(0);
    }
    EXPECT_EQ(counters(t).classes[PLEC_DEMAND].reads, 0u) << "nothing was read for a demand";
    EXPECT_EQ(counters(t).classes[PLEC_CERTAIN].read_experts, 8 * 8u) << "and nothing twice";
}

/* An LRU was shared by callers without a lock. Here the owner's lock is the only one
 * needed: nothing is shared behind it. */
TEST(Prefetch, TwoCallersUnderOneLockAreServed) {
    TiersOptions options;
    options.n_slots = 2;
    Tiers t(options);
    std::mutex lock;
    auto caller = [&](uint32_t first) {
        for (uint32_t i = 0; i < 500; i++) {
            std::lock_guard<std::mutex> guard(lock);
            use(t, (first + i * 3) % t.keys.n_keys, 0x1);
        }
    };
    std::thread other(caller, 1);
    caller(0);
    other.join();
    EXPECT_EQ(t.fault(), "");
    EXPECT_EQ(counters(t).demands, 1000u);
    EXPECT_EQ(counters(t).ready + counters(t).ready_at_once, 1000u);
}

} // namespace
