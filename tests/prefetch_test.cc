#include "host/prefetch.h"

#include <cstring>
#include <string>

#include "tests/support/tiers.h"

namespace {

using plec_test::Tiers;
using plec_test::TiersOptions;

constexpr uint64_t SECOND = 1000000000;

/* Asks for a demand that must wait. */
plec_ticket wait_for(Tiers &t, uint32_t key, uint64_t mask, uint64_t now = 0, bool stream = false) {
    plec_demand_args args = {};
    args.key = key;
    args.mask = mask;
    args.stream = stream;
    plec_demand_result result;
    EXPECT_EQ(plec_prefetch_demand(&result, t.prefetch, &args, now), PLEC_DEMAND_WAITING);
    return result.ticket;
}

plec_request_state ask(Tiers &t, uint32_t key, uint64_t mask, plec_urgency urgency,
                       uint64_t deadline = 100, bool host_only = false) {
    plec_request request = {};
    request.key = key;
    request.mask = mask;
    request.urgency = urgency;
    request.deadline = deadline;
    request.origin = PLEC_FROM_PREVIOUS;
    request.host_only = host_only;
    return plec_prefetch_request(t.prefetch, &request);
}

plec_job read_job(Tiers &t, uint64_t now = 0) {
    plec_job job = {};
    EXPECT_TRUE(plec_prefetch_next_read(&job, t.prefetch, now)) << "no read may start";
    return job;
}
plec_job copy_job(Tiers &t, uint64_t now = 0) {
    plec_job job = {};
    EXPECT_TRUE(plec_prefetch_next_copy(&job, t.prefetch, now)) << "no copy may start";
    return job;
}
bool no_read(Tiers &t) {
    plec_job job;
    return !plec_prefetch_next_read(&job, t.prefetch, 0);
}
bool no_copy(Tiers &t) {
    plec_job job;
    return !plec_prefetch_next_copy(&job, t.prefetch, 0);
}
void end(Tiers &t, const plec_job &job, uint64_t now = 0, const plec_error *err = nullptr) {
    if (err == nullptr) {
        EXPECT_TRUE(t.perform(job));
    }
    uint64_t n_bytes =
        job.kind == PLEC_JOB_READ ? plec_key_bytes(&t.keys.keys[job.key], job.mask) : job.n_bytes;
    plec_prefetch_job_ended(t.prefetch, job.id, now, err == nullptr ? n_bytes : 0, err);
    EXPECT_EQ(t.fault(), "");
}
plec_demand_result result_of(Tiers &t, plec_ticket ticket) {
    plec_demand_result result = {};
    EXPECT_TRUE(plec_prefetch_take(&result, t.prefetch, ticket)) << "it still waits";
    return result;
}
/* A demand that must end well; its reference is given back. */
void expect_ready(Tiers &t, plec_ticket ticket) {
    plec_demand_result result = result_of(t, ticket);
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    EXPECT_TRUE(t.intact(result.ref, result.key, result.mask));
    plec_residency_release(t.final_tier(), result.ref);
}
/* Demands, runs everything, releases: one use as a whole. */
void use(Tiers &t, uint32_t key, uint64_t mask) {
    plec_demand_args args = {};
    args.key = key;
    args.mask = mask;
    plec_demand_result result;
    if (plec_prefetch_demand(&result, t.prefetch, &args, 0) == PLEC_DEMAND_WAITING) {
        t.run_all(0);
        expect_ready(t, result.ticket);
    } else {
        plec_residency_release(t.final_tier(), result.ref);
    }
}
plec_prefetch_counters counters(const Tiers &t) {
    plec_prefetch_counters out;
    plec_prefetch_get_counters(&out, t.prefetch);
    return out;
}
plec_residency_counters tier_counters(const plec_residency *tier) {
    plec_residency_counters out;
    plec_residency_get_counters(&out, tier);
    return out;
}
plec_error error(const char *name) {
    plec_error err = {};
    plec_fail(&err, PLEC_IO, name, "as planned");
    return err;
}

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

/* ds4#16: decode fell from 2 to 0.1 tokens a second while the disks were idle. */
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

/* antirez/ds4#639: hit rate 0.000 at every budget, everything read again at every token. */
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

/* imp#1365: with a dispatch of twice the cache, an LRU was slower than staging alone. */
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

/* ds4#629: prefill allocated what did not fit and ran into illegal memory. */
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

} // namespace
