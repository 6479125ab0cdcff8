#include "host/prefetch.h"

#include "tests/support/asks.h"

namespace {

using namespace plec_test;

TiersOptions no_device() {
    TiersOptions options;
    options.has_device = false;
    return options;
}

/* --- reads --- */

TEST(Prefetch, ADemandOfOneExpertReadsAndCopiesThatExpertAlone) {
    Tiers t({});
    plec_ticket ticket = wait_for(t, 3, 0x10);
    plec_job read = read_job(t);
    EXPECT_EQ(read.key, 3u);
    EXPECT_EQ(read.mask, 0x10u);
    EXPECT_EQ(read.n_bytes, 1000u);
    EXPECT_TRUE(no_copy(t));
    end(t, read, 10);
    plec_job copy = copy_job(t, 10);
    EXPECT_EQ(copy.mask, 0x10u);
    EXPECT_EQ(copy.frame, read.frame);
    plec_demand_result none;
    EXPECT_FALSE(plec_prefetch_take(&none, t.prefetch, ticket));
    end(t, copy, 15);
    plec_demand_result result = result_of(t, ticket);
    EXPECT_EQ(result.status, PLEC_OK);
    EXPECT_EQ(result.ref.slot, copy.slot);
    EXPECT_EQ(result.wait_ns, 15u);
    EXPECT_EQ(result.disk_ns, 10u);
    EXPECT_EQ(result.copy_ns, 5u);
    plec_residency_release(t.device, result.ref);
}

TEST(Prefetch, WithoutADeviceFramesAreUsedWhereTheyStand) {
    Tiers t(no_device());
    plec_ticket ticket = wait_for(t, 0, 0x3);
    plec_job read = read_job(t);
    end(t, read);
    EXPECT_TRUE(no_copy(t));
    plec_demand_result result = result_of(t, ticket);
    EXPECT_EQ(result.ref.slot, read.frame);
    plec_residency_release(t.host, result.ref);
    plec_demand_args again = {};
    again.mask = 0x2;
    EXPECT_EQ(plec_prefetch_demand(&result, t.prefetch, &again, 0), PLEC_DEMAND_READY);
    plec_residency_release(t.host, result.ref);
    EXPECT_EQ(tier_counters(t.host).hits, 1u);
    EXPECT_EQ(tier_counters(t.host).misses, 2u);
}

TEST(Prefetch, ReadsAnExtentWholeWhenEnoughOfItIsNeeded) {
    TiersOptions options;
    options.prefetch.whole_ratio = 0.5;
    Tiers t(options);
    wait_for(t, 0, 0x07); /* three of eight */
    wait_for(t, 1, 0x0f); /* four */
    plec_job three = read_job(t), four = read_job(t);
    EXPECT_EQ(three.mask, 0x07u);
    EXPECT_EQ(four.mask, 0xffu);
    EXPECT_EQ(four.n_bytes, 8000u);
    EXPECT_EQ(counters(t).whole_reads, 1u);
    end(t, three);
    end(t, four);
    t.run_all(0);
    EXPECT_EQ(plec_residency_valid(t.device, 1), 0x0fu); /* the rest waits in the frame */
    EXPECT_EQ(plec_residency_valid(t.host, 1), 0xffu);
    EXPECT_EQ(tier_counters(t.host).origin[PLEC_FROM_EXTENT].fetched, 4000u);
}

TEST(Prefetch, LearnsFromItsReadsWhenAWholeExtentPays) {
    TiersOptions options;
    options.n_frames = 16;
    options.n_slots = 16;
    options.n_experts = 128; /* 16 extents a layer */
    Tiers t(options);
    /* A disk on which each read costs its latency: a whole extent takes what one expert takes. */
    uint64_t now = 0;
    auto read_for = [&](uint32_t key, uint64_t mask, uint64_t took) {
        plec_ticket ticket = wait_for(t, key, mask, now);
        plec_job job = read_job(t, now);
        now += took;
        end(t, job, now);
        t.run_all(now);
        expect_ready(t, ticket);
        return job.mask;
    };
    for (uint32_t key = 0; key < 4; key++)
        read_for(key, 0x01, 1000);
    EXPECT_DOUBLE_EQ(plec_prefetch_whole_ratio(t.prefetch, 0), 0.5); /* not measured yet */
    for (uint32_t key = 4; key < 8; key++)
        read_for(key, 0xff, 1000);
    EXPECT_DOUBLE_EQ(plec_prefetch_whole_ratio(t.prefetch, 0), 1.0 / 8);
    EXPECT_EQ(read_for(8, 0x01, 1000), 0xffu);
    EXPECT_DOUBLE_EQ(plec_prefetch_whole_ratio(t.prefetch, 1), 0.5) << "a rule a layer";
}

TEST(Prefetch, FetchesTheRestOfAnExtentLaterWhenItsLayerUsesMost) {
    TiersOptions options;
    options.n_frames = 1;
    options.n_slots = 2;
    options.prefetch.whole_ratio = 0.5;
    Tiers t(options);
    use(t, 0, 0x7f);
    use(t, 1, 0x7f); /* 0 left its frame with seven of eight used */
    EXPECT_GT(plec_residency_use_share(t.host, 0), 0.8);
    plec_ticket ticket = wait_for(t, 2, 0x01);
    plec_job own = read_job(t);
    EXPECT_EQ(own.mask, 0x01u); /* the demand does not wait for the rest */
    EXPECT_TRUE(no_read(t));
    end(t, own);
    plec_job copy = copy_job(t);
    end(t, copy);
    expect_ready(t, ticket);
    plec_job rest = read_job(t);
    EXPECT_EQ(rest.urgency, PLEC_LIKELY);
    EXPECT_EQ(rest.key, 2u);
    EXPECT_EQ(rest.mask, 0xfeu);
    end(t, rest);
    EXPECT_TRUE(no_copy(t)) << "the rest stays in the frame";
}

/* --- merging --- */

TEST(Prefetch, TwoDemandsOfOneExpertAreOneRead) {
    Tiers t({});
    plec_ticket first = wait_for(t, 0, 0x3), second = wait_for(t, 0, 0x2), third;
    plec_job read = read_job(t);
    EXPECT_EQ(read.mask, 0x3u);
    third = wait_for(t, 0, 0x5);
    plec_job more = read_job(t);
    EXPECT_EQ(more.mask, 0x4u) << "only what is not being read already";
    end(t, read);
    end(t, more);
    t.run_all(0);
    expect_ready(t, first);
    expect_ready(t, second);
    expect_ready(t, third);
    EXPECT_EQ(counters(t).classes[PLEC_DEMAND].reads, 2u);
    EXPECT_EQ(tier_counters(t.device).misses, 4u);
    EXPECT_EQ(tier_counters(t.device).late, 1u);
}

TEST(Prefetch, ADemandLiftsWhatIsQueuedAsIdle) {
    Tiers t({});
    ask(t, 0, 0xff, PLEC_CERTAIN);
    ask(t, 1, 0x01, PLEC_IDLE);
    wait_for(t, 1, 0x01);
    plec_job first = read_job(t);
    EXPECT_EQ(first.key, 1u);
    EXPECT_EQ(first.urgency, PLEC_DEMAND);
    EXPECT_EQ(counters(t).classes[PLEC_IDLE].lifted, 1u);
    end(t, first);
    plec_job second = read_job(t);
    EXPECT_EQ(second.key, 0u);
    end(t, second);
}

TEST(Prefetch, ADemandJoinsAnIdleReadInFlightAndItsCopyGoesFirst) {
    Tiers t({});
    ask(t, 0, 0x01, PLEC_IDLE);
    ask(t, 1, 0x01, PLEC_CERTAIN, 100, true);
    plec_job certain = read_job(t), idle = read_job(t);
    EXPECT_EQ(idle.urgency, PLEC_IDLE);
    plec_ticket ticket = wait_for(t, 0, 0x01);
    EXPECT_TRUE(no_read(t)) << "it is being read";
    end(t, certain);
    end(t, idle);
    plec_job copy = copy_job(t);
    EXPECT_EQ(copy.key, 0u);
    EXPECT_EQ(copy.urgency, PLEC_DEMAND);
    end(t, copy);
    expect_ready(t, ticket);
    EXPECT_EQ(tier_counters(t.device).late, 1u);
    EXPECT_EQ(tier_counters(t.host).late, 1u);
}

TEST(Prefetch, AskingAgainForWhatIsAskedForOrThereTakesNothing) {
    Tiers t({});
    EXPECT_EQ(ask(t, 0, 0x3, PLEC_LIKELY), PLEC_REQUEST_TAKEN);
    EXPECT_EQ(ask(t, 0, 0x1, PLEC_LIKELY), PLEC_REQUEST_MERGED);
    EXPECT_EQ(ask(t, 0, 0x3, PLEC_IDLE), PLEC_REQUEST_MERGED);
    EXPECT_EQ(ask(t, 0, 0x7, PLEC_LIKELY), PLEC_REQUEST_TAKEN);
    EXPECT_EQ(counters(t).n_requests, 1u);
    t.run_all(0);
    EXPECT_EQ(ask(t, 0, 0x7, PLEC_CERTAIN), PLEC_REQUEST_THERE);
    EXPECT_EQ(counters(t).n_requests, 0u);
    EXPECT_EQ(counters(t).classes[PLEC_LIKELY].read_experts, 3u);
}

TEST(Prefetch, AHostOnlyRequestStopsInTheFrameUntilTheDeviceIsAskedFor) {
    Tiers t({});
    ask(t, 0, 0x3, PLEC_LIKELY, 100, true);
    t.run_all(0);
    EXPECT_EQ(plec_residency_valid(t.host, 0), 0x3u);
    EXPECT_EQ(plec_residency_valid(t.device, 0), 0u);
    EXPECT_EQ(ask(t, 0, 0x3, PLEC_LIKELY, 100, true), PLEC_REQUEST_THERE);
    EXPECT_EQ(ask(t, 0, 0x1, PLEC_LIKELY), PLEC_REQUEST_TAKEN);
    t.run_all(0);
    EXPECT_EQ(plec_residency_valid(t.device, 0), 0x1u);
}

/* --- order, budgets, bounds --- */

TEST(Prefetch, HigherClassesAndEarlierDeadlinesGoFirst) {
    Tiers t(no_device());
    ask(t, 0, 1, PLEC_IDLE, 1);
    ask(t, 1, 1, PLEC_LIKELY, 9);
    ask(t, 2, 1, PLEC_LIKELY, 8);
    ask(t, 3, 1, PLEC_CERTAIN, 50);
    ask(t, 4, 1, PLEC_CERTAIN, 40);
    for (uint32_t key : {4u, 3u, 2u, 1u, 0u}) {
        plec_job job = read_job(t);
        EXPECT_EQ(job.key, key);
        end(t, job);
        plec_residency_evict(t.host, key);
    }
}

/* Micro-Expert-Router#116: speculation took demand reads from 120 to 405 ms. */
TEST(Prefetch, SpeculationStartsNoReadWhileADemandWaits) {
    TiersOptions options;
    options.max_unconsumed = 4;
    Tiers t(options);
    ask(t, 0, 1, PLEC_LIKELY);
    ask(t, 1, 1, PLEC_IDLE);
    plec_ticket ticket = wait_for(t, 2, 1);
    plec_job demand = read_job(t);
    EXPECT_EQ(demand.key, 2u);
    EXPECT_TRUE(no_read(t));
    end(t, demand);
    EXPECT_TRUE(no_read(t)) << "its copy is still to come";
    t.run_all(0);
    expect_ready(t, ticket);
    EXPECT_EQ(counters(t).n_requests, 0u);
}

TEST(Prefetch, SpeculationBeginsNoCopyWhileADemandWaitsButEndsThoseItBegan) {
    TiersOptions options;
    options.max_unconsumed = 4;
    options.entry_bytes = 3000;
    options.prefetch.chunk_bytes = 1000;
    Tiers t(options);
    ask(t, 0, 1, PLEC_LIKELY);
    ask(t, 1, 1, PLEC_LIKELY);
    end(t, read_job(t));
    end(t, read_job(t));
    plec_job first = copy_job(t);
    wait_for(t, 2, 1);
    plec_job demand = read_job(t);
    end(t, first);
    end(t, copy_job(t));
    plec_job last = copy_job(t);
    EXPECT_EQ(last.key, first.key) << "it holds a slot and a frame";
    end(t, last);
    EXPECT_TRUE(no_copy(t)) << "the other has begun nothing";
    end(t, demand);
    EXPECT_EQ(copy_job(t).key, 2u);
}

/* vllm#51710: offload copies contended with collectives for the link, and nothing could cap them.
 */
TEST(Prefetch, AClassReadsNoMoreBytesAtOnceThanItsBudget) {
    TiersOptions options = no_device();
    options.n_frames = 8;
    options.prefetch.read_budget[PLEC_LIKELY] = 2500;
    options.prefetch.read_bytes[PLEC_LIKELY] = 1000;
    Tiers t(options);
    ask(t, 0, 0xff, PLEC_LIKELY);
    plec_job a = read_job(t), b = read_job(t);
    EXPECT_EQ(a.mask, 0x1u); /* one expert a read: a demand waits for no more than that */
    EXPECT_EQ(b.mask, 0x2u);
    EXPECT_TRUE(no_read(t));
    EXPECT_EQ(counters(t).classes[PLEC_LIKELY].reading_bytes, 2000u);
    end(t, a);
    end(t, read_job(t));
    end(t, b);
    plec_prefetch_set_budget(t.prefetch, PLEC_LIKELY, 0);
    EXPECT_TRUE(no_read(t));
    ask(t, 2, 0x1, PLEC_IDLE);
    EXPECT_EQ(read_job(t).key, 2u) << "a closed class holds back no other";
}

TEST(Prefetch, ABudgetBelowOneReadStillLetsOneGo) {
    TiersOptions options = no_device();
    options.prefetch.read_budget[PLEC_IDLE] = 1;
    Tiers t(options);
    ask(t, 0, 0x1, PLEC_IDLE);
    ask(t, 1, 0x1, PLEC_IDLE);
    read_job(t);
    EXPECT_TRUE(no_read(t));
}

TEST(Prefetch, AFullQueueSaysSoAndStillTakesDemands) {
    TiersOptions options;
    options.prefetch.max_requests = 3;
    options.prefetch.max_demands = 2;
    Tiers t(options);
    for (uint32_t key = 0; key < 3; key++)
        EXPECT_EQ(ask(t, key, 1, PLEC_LIKELY), PLEC_REQUEST_TAKEN);
    for (uint32_t key = 3; key < 16; key++)
        EXPECT_EQ(ask(t, key, 1, PLEC_LIKELY), PLEC_REQUEST_FULL);
    EXPECT_EQ(ask(t, 0, 2, PLEC_LIKELY), PLEC_REQUEST_TAKEN) << "more of one that is queued";
    wait_for(t, 8, 1);
    wait_for(t, 9, 1);
    plec_demand_args args = {};
    args.key = 10;
    args.mask = 1;
    plec_demand_result result;
    EXPECT_EQ(plec_prefetch_demand(&result, t.prefetch, &args, 0), PLEC_DEMAND_FULL);
    EXPECT_EQ(counters(t).n_requests, 3u);
    EXPECT_EQ(counters(t).classes[PLEC_LIKELY].full, 13u);
    EXPECT_EQ(t.fault(), "");
}

TEST(Prefetch, InAFullQueueWhatIsCertainDisplacesWhatIsIdle) {
    TiersOptions options;
    options.prefetch.max_requests = 2;
    Tiers t(options);
    ask(t, 0, 1, PLEC_IDLE);
    ask(t, 1, 1, PLEC_LIKELY);
    EXPECT_EQ(ask(t, 2, 1, PLEC_CERTAIN), PLEC_REQUEST_TAKEN);
    EXPECT_EQ(ask(t, 3, 1, PLEC_CERTAIN), PLEC_REQUEST_TAKEN);
    EXPECT_EQ(ask(t, 4, 1, PLEC_CERTAIN), PLEC_REQUEST_FULL);
    EXPECT_EQ(counters(t).classes[PLEC_IDLE].dropped, 1u);
    EXPECT_EQ(counters(t).classes[PLEC_LIKELY].dropped, 1u);
}

/* --- chunks --- */

TEST(Prefetch, ADemandCopyWaitsForAtMostOneChunk) {
    TiersOptions options;
    options.entry_bytes = 100000; /* one expert is ten chunks */
    options.prefetch.chunk_bytes = 10000;
    options.prefetch.copies[PLEC_CERTAIN] = 1;
    Tiers t(options);
    ask(t, 0, 0x3, PLEC_CERTAIN);
    end(t, read_job(t));
    plec_job chunk = copy_job(t);
    EXPECT_EQ(chunk.n_bytes, 10000u);
    EXPECT_EQ(chunk.at, 0u);
    plec_ticket ticket = wait_for(t, 1, 0x1);
    end(t, read_job(t));
    for (uint64_t at = 0; at < 100000; at += 10000) {
        plec_job demand = copy_job(t);
        EXPECT_EQ(demand.key, 1u);
        EXPECT_EQ(demand.at, at);
        if (at == 0) end(t, chunk); /* the one chunk it shares the link with */
        end(t, demand);
    }
    expect_ready(t, ticket);
    plec_job next = copy_job(t);
    EXPECT_EQ(next.key, 0u);
    EXPECT_EQ(next.at, 10000u) << "the copy goes on where it was";
    end(t, next);
    t.run_all(0);
    EXPECT_EQ(plec_residency_valid(t.device, 0), 0x3u);
    EXPECT_EQ(counters(t).classes[PLEC_CERTAIN].copied_bytes, 200000u);
}

TEST(Prefetch, ADemandLiftsAnIdleCopyUnderWay) {
    TiersOptions options;
    options.entry_bytes = 3000;
    options.prefetch.chunk_bytes = 1000;
    Tiers t(options);
    ask(t, 0, 0x1, PLEC_IDLE);
    ask(t, 1, 0x1, PLEC_CERTAIN, 100, true);
    plec_job certain = read_job(t);
    end(t, read_job(t));
    plec_job first = copy_job(t);
    EXPECT_EQ(first.urgency, PLEC_IDLE);
    plec_ticket ticket = wait_for(t, 0, 0x1);
    plec_job second = copy_job(t);
    EXPECT_EQ(second.urgency, PLEC_DEMAND);
    EXPECT_EQ(second.at, 1000u);
    end(t, second);
    end(t, first);
    end(t, copy_job(t));
    expect_ready(t, ticket);
    end(t, certain);
}

TEST(Prefetch, CopiesSmallExpertsTogetherAndLargeOnesInParts) {
    TiersOptions options;
    options.prefetch.chunk_bytes = 2500;
    options.prefetch.whole_ratio = 1;
    Tiers t(options);
    plec_ticket ticket = wait_for(t, 0, 0x1f);
    end(t, read_job(t));
    EXPECT_EQ(copy_job(t).mask, 0x03u);
    EXPECT_EQ(copy_job(t).mask, 0x0cu);
    EXPECT_EQ(copy_job(t).mask, 0x10u);
    EXPECT_TRUE(no_copy(t));
    plec_prefetch_cancel(t.prefetch, ticket, 0);
    EXPECT_EQ(t.fault(), "");
}

} // namespace
