#include "host/residency.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

namespace {

constexpr uint64_t BYTES = 100; /* of an expert */

/* A tier over one layer a key group, and the calls a test makes of it. */
class Tier {
  public:
    explicit Tier(plec_residency_options options, uint32_t n_keys = 16, uint32_t width = 4,
                  uint32_t n_layers = 1) {
        plec_error err = {};
        EXPECT_EQ(plec_keyspace_open_uniform(&keys, n_layers, n_keys * width / n_layers, width,
                                             BYTES, &err),
                  PLEC_OK)
            << err.message;
        options.keys = &keys;
        EXPECT_EQ(plec_residency_open(&tier, &options, &err), PLEC_OK) << err.message;
    }
    ~Tier() {
        const char *broken = nullptr;
        EXPECT_TRUE(plec_residency_sound(tier, &broken)) << broken;
        plec_residency_close(tier);
        plec_keyspace_close(&keys);
    }
    Tier(const Tier &) = delete;
    Tier &operator=(const Tier &) = delete;

    bool place(plec_slot_ref *ref, uint32_t key, plec_place_for why = PLEC_PLACE_DEMAND,
               uint64_t until = 0) {
        plec_place_args args = {key, why, until};
        return plec_residency_place(ref, &evicted, tier, &args);
    }
    bool there(uint32_t key, uint64_t mask = 0xf) const {
        return (mask & ~plec_residency_valid(tier, key)) == 0;
    }
    /* Uses a key as a runner would: loads what is missing, hands out, releases. False: no slot. */
    bool use(uint32_t key, uint64_t mask = 0xf, plec_origin origin = PLEC_FROM_DEMAND) {
        uint64_t hit = plec_residency_valid(tier, key) & mask;
        if (hit != mask) {
            plec_slot_ref ref;
            if (!place(&ref, key)) return false;
            plec_residency_loaded(tier, ref, mask & ~hit, origin);
            plec_hand_out args = {key, mask, hit, 0};
            plec_slot_ref out = plec_residency_hand_out(tier, &args);
            plec_residency_release(tier, ref);
            plec_residency_release(tier, out);
            return true;
        }
        plec_hand_out args = {key, mask, hit, 0};
        plec_residency_release(tier, plec_residency_hand_out(tier, &args));
        return true;
    }
    /* Brings a key without using it. */
    bool bring(uint32_t key, plec_place_for why, uint64_t until, uint64_t mask = 0xf,
               plec_origin origin = PLEC_FROM_PREVIOUS) {
        plec_slot_ref ref;
        if (!place(&ref, key, why, until)) return false;
        plec_residency_loaded(tier, ref, mask, origin);
        plec_residency_release(tier, ref);
        return true;
    }
    plec_residency_counters counters() const {
        plec_residency_counters out;
        plec_residency_get_counters(&out, tier);
        return out;
    }

    plec_keyspace keys = {};
    plec_residency *tier = nullptr;
    plec_eviction evicted = {};
};

plec_residency_options slots(uint32_t n, plec_residency_policy policy = PLEC_RESIDENCY_LRU) {
    plec_residency_options options = {};
    options.n_slots = n;
    options.policy = policy;
    return options;
}

TEST(Residency, RefusesATierWithoutSlots) {
    plec_keyspace keys;
    ASSERT_EQ(plec_keyspace_open_uniform(&keys, 1, 4, 4, BYTES, nullptr), PLEC_OK);
    plec_residency_options options = slots(0);
    options.keys = &keys;
    plec_residency *tier;
    plec_error err;
    EXPECT_EQ(plec_residency_open(&tier, &options, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "NoSlots");
    plec_keyspace_close(&keys);
}

TEST(Residency, LruLetsTheLongestUnusedGo) {
    Tier t(slots(3));
    t.use(0), t.use(1), t.use(2);
    t.use(0);
    t.use(3);
    EXPECT_TRUE(t.there(0) && t.there(2) && t.there(3));
    EXPECT_FALSE(t.there(1));
}

TEST(Residency, LfuKeepsWhatIsUsedOften) {
    Tier t(slots(2, PLEC_RESIDENCY_LFU));
    for (int i = 0; i < 5; i++)
        t.use(0);
    t.use(1);
    t.use(2); /* LRU would let 0 go */
    EXPECT_TRUE(t.there(0));
    EXPECT_FALSE(t.there(1));
}

TEST(Residency, LfuForgetsOldUses) {
    plec_residency_options options = slots(2, PLEC_RESIDENCY_LFU);
    options.half_life = 10;
    Tier t(options);
    for (int i = 0; i < 5; i++)
        t.use(0);
    plec_residency_advance(t.tier, 100); /* ten half-lives */
    t.use(1);
    t.use(1);
    t.use(2);
    EXPECT_FALSE(t.there(0));
    EXPECT_TRUE(t.there(1) && t.there(2));
}

TEST(Residency, LfuOrderSurvivesThousandsOfHalfLives) {
    plec_residency_options options = slots(2, PLEC_RESIDENCY_LFU);
    options.half_life = 1;
    Tier t(options);
    for (uint64_t position = 0; position < 5000; position += 3) {
        plec_residency_advance(t.tier, position);
        t.use(uint32_t(position / 3 % 2 + 1));
        t.use(0);
        EXPECT_TRUE(t.there(0)) << position; /* used at every position: never the worst */
    }
}

/* Least misses of any policy, by trying every victim. */
unsigned least_misses(const std::vector<uint32_t> &trace, size_t at, std::vector<uint32_t> cache,
                      size_t n_slots) {
    for (; at < trace.size(); at++) {
        bool hit = false;
        for (uint32_t key : cache)
            hit = hit || key == trace[at];
        if (hit) continue;
        if (cache.size() < n_slots) {
            cache.push_back(trace[at]);
            return 1 + least_misses(trace, at + 1, cache, n_slots);
        }
        unsigned best = ~0u;
        for (size_t victim = 0; victim < n_slots; victim++) {
            std::vector<uint32_t> next = cache;
            next[victim] = trace[at];
            best = std::min(best, 1 + least_misses(trace, at + 1, next, n_slots));
        }
        return best;
    }
    return 0;
}

TEST(Residency, OracleMissesAsLittleAsAnyPolicyCan) {
    std::mt19937 random(7);
    for (int round = 0; round < 50; round++) {
        std::vector<uint32_t> trace(14);
        for (uint32_t &key : trace)
            key = random() % 5;
        plec_residency_options options = slots(3, PLEC_RESIDENCY_ORACLE);
        options.future = trace.data();
        options.n_future = trace.size();
        Tier t(options);
        for (uint32_t key : trace)
            ASSERT_TRUE(t.use(key));
        EXPECT_EQ(t.counters().misses / 4, least_misses(trace, 0, {}, 3));
    }
}

TEST(Residency, NoSlotNowIsAnAnswerWhileAllAreReferenced) {
    Tier t(slots(1));
    plec_slot_ref a, b;
    ASSERT_TRUE(t.place(&a, 0));
    plec_residency_loaded(t.tier, a, 0xf, PLEC_FROM_DEMAND);
    EXPECT_FALSE(t.place(&b, 1));
    EXPECT_EQ(t.counters().refused, 1u);
    plec_residency_release(t.tier, a);
    EXPECT_TRUE(t.place(&b, 1));
    EXPECT_EQ(t.evicted.key, 0u);
    plec_residency_release(t.tier, b);
}

/* The slot of a kernel still running was given away when its launch returned. */
TEST(Residency, KeepsASlotUntilTheEventOfItsLastReader) {
    Tier t(slots(1));
    t.use(0);
    plec_hand_out args = {0, 0xf, 0xf, 0};
    plec_slot_ref first = plec_residency_hand_out(t.tier, &args);
    plec_slot_ref second = plec_residency_hand_out(t.tier, &args);
    plec_slot_ref other;
    plec_residency_release(t.tier, first); /* one kernel's event; the other still runs */
    EXPECT_FALSE(t.place(&other, 1));
    EXPECT_TRUE(t.there(0));
    plec_residency_release(t.tier, second);
    EXPECT_TRUE(t.place(&other, 1));
    EXPECT_NE(other.generation, first.generation);
    plec_residency_release(t.tier, other);
}

#ifndef NDEBUG
TEST(ResidencyDeathTest, OneReleaseTooManyAndAStaleOneAreCaught) {
    Tier t(slots(1));
    plec_slot_ref ref, next;
    ASSERT_TRUE(t.place(&ref, 0));
    plec_residency_loaded(t.tier, ref, 0xf, PLEC_FROM_DEMAND);
    plec_residency_release(t.tier, ref);
    EXPECT_DEATH(plec_residency_release(t.tier, ref), "references > 0");
    ASSERT_TRUE(t.place(&next, 1));
    EXPECT_DEATH(plec_residency_release(t.tier, ref), "generation");
    plec_residency_release(t.tier, next);
}
#endif

/* A cache budget that was parsed, printed, and did nothing. */
TEST(Residency, HitsAndMissesAreWhatArithmeticGivesForEveryBudget) {
    for (uint32_t budget : {0u, 1u, 2u, 8u}) {
        plec_residency_options options = slots(budget);
        options.n_staging = 1;
        Tier t(options, 8);
        const uint64_t rounds = 5, n_keys = 8;
        for (uint64_t round = 0; round < rounds; round++)
            for (uint32_t key = 0; key < n_keys; key++) {
                plec_slot_ref ref;
                uint64_t hit = plec_residency_valid(t.tier, key) & 0x3;
                plec_place_for why = budget == 0 ? PLEC_PLACE_STREAM : PLEC_PLACE_DEMAND;
                ASSERT_TRUE(t.place(&ref, key, why));
                plec_residency_loaded(t.tier, ref, 0x3 & ~hit, PLEC_FROM_DEMAND);
                plec_hand_out args = {key, 0x3, hit, 0};
                plec_residency_release(t.tier, plec_residency_hand_out(t.tier, &args));
                plec_residency_release(t.tier, ref);
            }
        uint64_t uses = rounds * n_keys;
        uint64_t misses = budget == 8 ? n_keys : uses; /* a scan of 8 never meets an LRU of fewer */
        EXPECT_EQ(t.counters().misses, 2 * misses) << budget;
        EXPECT_EQ(t.counters().hits, 2 * (uses - misses)) << budget;
        EXPECT_EQ(t.counters().miss_bytes, 2 * misses * BYTES) << budget;
        EXPECT_EQ(t.counters().hit_bytes, 2 * (uses - misses) * BYTES) << budget;
        EXPECT_EQ(t.counters().loaded_bytes, 2 * misses * BYTES) << budget;
        EXPECT_EQ(t.counters().full, uses - misses) << budget;
        EXPECT_EQ(t.counters().absent, misses) << budget;
        EXPECT_EQ(plec_residency_uses(t.tier)[1], rounds);
        EXPECT_EQ(plec_residency_uses(t.tier)[2], 0u);
    }
}

TEST(Residency, CountsTheExpertsOfAPartlyResidentExtentOneByOne) {
    Tier t(slots(2));
    t.use(0, 0x3);
    t.use(0, 0x6);
    EXPECT_EQ(t.counters().hits, 1u);
    EXPECT_EQ(t.counters().misses, 3u);
    EXPECT_EQ(t.counters().partial, 1u);
    EXPECT_EQ(plec_residency_valid(t.tier, 0), 0x7u);
}

TEST(Residency, WhatWasOnItsWayIsLateAndNotAHit) {
    Tier t(slots(2));
    t.bring(0, PLEC_PLACE_CERTAIN, 5);
    plec_hand_out args = {0, 0xf, 0x1, 0x7};
    plec_residency_release(t.tier, plec_residency_hand_out(t.tier, &args));
    EXPECT_EQ(t.counters().hits, 1u);
    EXPECT_EQ(t.counters().late, 2u);
    EXPECT_EQ(t.counters().misses, 1u);
}

TEST(Residency, EveryByteFetchedIsUsedWastedOrStillThere) {
    Tier t(slots(3));
    std::mt19937 random(3);
    for (int i = 0; i < 1000; i++) {
        uint32_t key = random() % 8;
        plec_origin origin = plec_origin(random() % PLEC_N_ORIGINS);
        uint64_t mask = random() % 15 + 1, missing = mask & ~plec_residency_valid(t.tier, key);
        if (random() % 2 != 0)
            t.use(key, mask, origin);
        else if (missing != 0)
            t.bring(key, PLEC_PLACE_DEMAND, 0, missing, origin);
    }
    plec_residency_counters before = t.counters();
    for (uint32_t key = 0; key < 8; key++)
        plec_residency_evict(t.tier, key); /* what is there unused becomes wasted */
    plec_residency_counters after = t.counters();
    uint64_t wasted = 0, fetched = 0;
    for (int i = 0; i < PLEC_N_ORIGINS; i++) {
        EXPECT_GE(before.origin[i].fetched, before.origin[i].used + before.origin[i].wasted);
        EXPECT_EQ(after.origin[i].fetched, after.origin[i].used + after.origin[i].wasted);
        EXPECT_GT(after.origin[i].used, 0u);
        wasted += after.origin[i].wasted;
        fetched += after.origin[i].fetched;
    }
    EXPECT_EQ(wasted, after.wasted_bytes);
    EXPECT_EQ(fetched, after.loaded_bytes);
    EXPECT_EQ(after.evicted_bytes, after.loaded_bytes);
}

TEST(Residency, CountsWhatComesBackSoonAsThrash) {
    plec_residency_options options = slots(1);
    options.thrash = 10;
    Tier t(options);
    t.use(0, 0x3);
    t.use(1);
    plec_residency_advance(t.tier, 10);
    t.use(0, 0x7); /* two of the three were here ten positions ago */
    EXPECT_EQ(t.counters().thrash, 2u);
    EXPECT_EQ(t.counters().thrash_bytes, 2 * BYTES);
    t.use(1);
    plec_residency_advance(t.tier, 30);
    t.use(0);
    EXPECT_EQ(t.counters().thrash, 2u + 4u); /* 1 came back at once; 0 after 20 positions */
}

TEST(Residency, PinnedKeysNeverLeave) {
    Tier t(slots(2));
    ASSERT_EQ(plec_residency_pin(t.tier, 0, nullptr), PLEC_OK);
    t.use(0);
    for (uint32_t key = 1; key < 10; key++)
        t.use(key);
    EXPECT_TRUE(t.there(0));
    plec_error err;
    EXPECT_EQ(plec_residency_pin(t.tier, 1, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "TooManyPins");
    plec_residency_unpin(t.tier, 0);
    t.use(1), t.use(2);
    EXPECT_FALSE(t.there(0));
}

TEST(Residency, StagingSlotsAreEmptyAfterTheLastRelease) {
    plec_residency_options options = slots(1);
    options.n_staging = 1;
    Tier t(options);
    t.use(0);
    plec_slot_ref ref, other;
    ASSERT_TRUE(t.place(&ref, 1, PLEC_PLACE_STREAM));
    plec_residency_loaded(t.tier, ref, 0xf, PLEC_FROM_DEMAND);
    EXPECT_FALSE(t.place(&other, 2, PLEC_PLACE_STREAM)); /* never the cached slot */
    plec_residency_release(t.tier, ref);
    EXPECT_FALSE(t.there(1));
    EXPECT_TRUE(t.there(0));
    ASSERT_TRUE(t.place(&other, 2, PLEC_PLACE_STREAM));
    plec_residency_release(t.tier, other);
    EXPECT_EQ(t.counters().staged, 2u);
}

struct Hook {
    std::vector<plec_eviction> seen;
    static void call(void *user, const plec_eviction *eviction) {
        static_cast<Hook *>(user)->seen.push_back(*eviction);
    }
};

TEST(Residency, TellsWhatLeavesBeforeTheSlotIsUsedAgain) {
    Hook hook;
    plec_residency_options options = slots(1);
    options.evicted = Hook::call;
    options.user = &hook;
    Tier t(options);
    t.use(0, 0x1);
    t.bring(0, PLEC_PLACE_DEMAND, 0, 0x6);
    plec_slot_ref ref;
    ASSERT_TRUE(t.place(&ref, 1));
    ASSERT_EQ(hook.seen.size(), 1u);
    EXPECT_EQ(hook.seen[0].key, 0u);
    EXPECT_EQ(hook.seen[0].slot, ref.slot);
    EXPECT_EQ(hook.seen[0].valid, 0x7u);
    EXPECT_EQ(hook.seen[0].used, 0x1u);
    EXPECT_EQ(t.evicted.valid, 0x7u);
    EXPECT_FALSE(t.evicted.expected);
    plec_residency_release(t.tier, ref);
}

TEST(Residency, AFailedLoadLeavesTheSlotFree) {
    Tier t(slots(1));
    plec_slot_ref ref;
    ASSERT_TRUE(t.place(&ref, 0));
    plec_residency_release(t.tier, ref);
    EXPECT_FALSE(plec_residency_has(t.tier, 0));
    EXPECT_EQ(t.counters().free, 1u);
}

/* A cache smaller than one dispatch was slower than none. */
TEST(Residency, TellsUpFrontHowMuchOfADispatchFits) {
    Tier t(slots(4));
    t.use(5), t.use(7), t.use(9);
    plec_slot_ref busy;
    ASSERT_TRUE(plec_residency_hold(&busy, t.tier, 9)); /* another's */
    std::vector<plec_need> needs = {{0, 1}, {1, 1}, {7, 1}, {2, 1}, {5, 1}};
    uint32_t n = plec_residency_fit(t.tier, needs.data(), 5);
    EXPECT_EQ(n, 3u); /* 7 and 5 are there, one slot is free, 9 cannot go */
    std::vector<uint32_t> order;
    for (const plec_need &need : needs)
        order.push_back(need.key);
    EXPECT_EQ(order, (std::vector<uint32_t>{7, 5, 0, 1, 2}));
    plec_residency_release(t.tier, busy);
    EXPECT_EQ(plec_residency_fit(t.tier, needs.data(), 5), 4u);
}

TEST(Residency, OtherPrefetchSparesWhatIsToBeUsedAndADemandTakesTheLastNeeded) {
    Tier t(slots(2));
    ASSERT_TRUE(t.bring(0, PLEC_PLACE_CERTAIN, 3));
    ASSERT_TRUE(t.bring(1, PLEC_PLACE_CERTAIN, 4));
    EXPECT_FALSE(t.bring(2, PLEC_PLACE_CERTAIN, 5)); /* it would take what is needed before it */
    EXPECT_FALSE(t.bring(2, PLEC_PLACE_SPECULATION, 5));
    t.use(3); /* a demand */
    EXPECT_TRUE(t.there(0));
    EXPECT_FALSE(t.there(1));
}

TEST(Residency, ProtectionEndsWithTheDeadlineAndWithUse) {
    Tier t(slots(2));
    ASSERT_TRUE(t.bring(0, PLEC_PLACE_CERTAIN, 3));
    ASSERT_TRUE(t.bring(1, PLEC_PLACE_CERTAIN, 5));
    plec_residency_advance(t.tier, 3);
    EXPECT_FALSE(t.bring(2, PLEC_PLACE_CERTAIN, 5));
    plec_residency_advance(t.tier, 4);
    EXPECT_TRUE(t.bring(2, PLEC_PLACE_CERTAIN, 5)); /* 0's time is past */
    EXPECT_FALSE(t.there(0));
    t.use(1);
    EXPECT_TRUE(t.bring(3, PLEC_PLACE_CERTAIN, 5)); /* 1 was used */
    EXPECT_FALSE(t.there(1));
}

TEST(Residency, WhatIsCertainSoonerTakesTheSlotOfWhatIsCertainLater) {
    Tier t(slots(2));
    ASSERT_TRUE(t.bring(0, PLEC_PLACE_CERTAIN, 3));
    ASSERT_TRUE(t.bring(1, PLEC_PLACE_CERTAIN, 9));
    ASSERT_TRUE(t.bring(2, PLEC_PLACE_CERTAIN, 8));
    EXPECT_EQ(t.evicted.key, 1u);
    EXPECT_TRUE(t.evicted.expected);
    EXPECT_EQ(t.evicted.until, 9u);
    EXPECT_FALSE(t.bring(1, PLEC_PLACE_CERTAIN, 9)); /* and not the reverse */
}

TEST(Residency, WhatIsThereCanBeKeptForACertainUse) {
    Tier t(slots(2));
    t.use(0), t.use(1);
    plec_residency_expect(t.tier, 0, 4);
    ASSERT_TRUE(t.bring(2, PLEC_PLACE_CERTAIN, 4));
    EXPECT_TRUE(t.there(0));
    EXPECT_FALSE(t.bring(3, PLEC_PLACE_CERTAIN, 4));
    plec_residency_expect(t.tier, 9, 4); /* has no slot: nothing */
}

TEST(Residency, WhatWasBroughtInVainLeavesBeforeWhatWasUsed) {
    for (plec_residency_policy policy : {PLEC_RESIDENCY_LRU, PLEC_RESIDENCY_LFU}) {
        Tier t(slots(2, policy));
        t.use(0);
        ASSERT_TRUE(t.bring(1, PLEC_PLACE_SPECULATION, 3));
        plec_residency_advance(t.tier, 4); /* nobody came for it, though it is the newer */
        t.use(2);
        EXPECT_TRUE(t.there(0));
        EXPECT_FALSE(t.there(1));
    }
}

TEST(Residency, SpeculationSparesWhatWasUsedLately) {
    plec_residency_options options = slots(1);
    options.protect = 5;
    Tier t(options);
    plec_residency_advance(t.tier, 10);
    t.use(0);
    plec_residency_advance(t.tier, 14);
    EXPECT_FALSE(t.bring(1, PLEC_PLACE_SPECULATION, 20));
    plec_residency_advance(t.tier, 15);
    EXPECT_TRUE(t.bring(1, PLEC_PLACE_SPECULATION, 20));
}

TEST(Residency, UnusedSpeculationHoldsAtMostItsShare) {
    plec_residency_options options = slots(8);
    options.max_unconsumed = 2;
    Tier t(options);
    EXPECT_TRUE(t.bring(0, PLEC_PLACE_SPECULATION, 5));
    EXPECT_TRUE(t.bring(1, PLEC_PLACE_SPECULATION, 5));
    EXPECT_FALSE(t.bring(2, PLEC_PLACE_SPECULATION, 5)); /* though slots are free */
    t.use(0);
    EXPECT_TRUE(t.bring(2, PLEC_PLACE_SPECULATION, 5));
    plec_residency_advance(t.tier, 6); /* what nobody came for no longer counts */
    EXPECT_TRUE(t.bring(3, PLEC_PLACE_SPECULATION, 9));
}

/* Output stayed wrong across requests after a slot was corrupted. */
TEST(Residency, ASlotWithTheWrongTagIsNeverHandedOutAgain) {
    plec_residency_options options = slots(2);
    options.tags = true;
    Tier t(options);
    plec_slot_ref ref;
    ASSERT_TRUE(t.place(&ref, 0));
    plec_residency_loaded(t.tier, ref, 0x1, PLEC_FROM_DEMAND);
    plec_residency_seal(t.tier, ref, 0, 1234);
    EXPECT_TRUE(plec_residency_check(t.tier, ref, 0, 1234));
    EXPECT_FALSE(plec_residency_check(t.tier, ref, 0, 999)); /* the bytes hash to something else */
    EXPECT_FALSE(t.there(0, 0x1));                           /* a second request reads it anew */
    plec_slot_ref again;
    ASSERT_TRUE(t.place(&again, 0));
    EXPECT_NE(again.slot, ref.slot);
    plec_residency_release(t.tier, ref);
    plec_residency_release(t.tier, again);
    EXPECT_EQ(t.counters().quarantined, 1u);
    EXPECT_EQ(t.counters().free, 1u); /* of two */
}

/* Takes a key's slot out of service. */
void spoil(Tier &t, uint32_t key) {
    plec_slot_ref ref;
    ASSERT_TRUE(plec_residency_hold(&ref, t.tier, key));
    plec_residency_seal(t.tier, ref, 0, 1);
    EXPECT_EQ(plec_residency_tag(t.tier, ref.slot, 0), 1u);
    EXPECT_FALSE(plec_residency_check(t.tier, ref, 0, 2));
    const char *broken = "";
    EXPECT_TRUE(plec_residency_sound(t.tier, &broken)) << broken;
    plec_residency_release(t.tier, ref);
}

TEST(Residency, ADemandPassesThroughStagingWhereNoSlotCachesAnyMore) {
    plec_residency_options options = slots(1);
    options.n_staging = 1;
    options.tags = true;
    Tier t(options);
    EXPECT_EQ(plec_residency_in_service(t.tier), 2u);
    EXPECT_TRUE(t.bring(0, PLEC_PLACE_DEMAND, 0));
    spoil(t, 0);
    EXPECT_EQ(plec_residency_in_service(t.tier), 1u);
    EXPECT_TRUE(t.bring(1, PLEC_PLACE_DEMAND, 0));
    EXPECT_EQ(plec_residency_valid(t.tier, 1), 0u) << "it only passes through";
    EXPECT_EQ(t.counters().staged, 1u);
    EXPECT_EQ(t.counters().quarantined, 1u);
}

TEST(Residency, AStreamedDemandIsCachedWhereNoSlotPassesAnyMore) {
    plec_residency_options options = slots(1);
    options.n_staging = 1;
    options.tags = true;
    Tier t(options);
    plec_slot_ref ref;
    plec_place_args args = {0, PLEC_PLACE_STREAM, 0};
    ASSERT_TRUE(plec_residency_place(&ref, nullptr, t.tier, &args));
    spoil(t, 0);
    plec_residency_release(t.tier, ref);
    EXPECT_TRUE(t.bring(1, PLEC_PLACE_STREAM, 0));
    EXPECT_NE(plec_residency_valid(t.tier, 1), 0u);
}

/* A cache of one model's extents, used for another. */
TEST(Residency, RefusesAnotherModelsIdentity) {
    plec_residency_options options = slots(1);
    options.identity = 17;
    Tier t(options);
    plec_error err;
    EXPECT_EQ(plec_residency_check_identity(t.tier, 17, &err), PLEC_OK);
    EXPECT_EQ(plec_residency_check_identity(t.tier, 18, &err), PLEC_BAD_INPUT);
    EXPECT_STREQ(err.name, "OtherModel");
}

TEST(Residency, LearnsWhatShareOfAnExtentIsUsedWhileItIsThere) {
    Tier t(slots(1));
    EXPECT_LT(plec_residency_use_share(t.tier, 0), 0);
    t.bring(0, PLEC_PLACE_DEMAND, 0);
    t.use(0, 0x1);
    t.use(1, 0x3); /* 0 leaves: one of four was used */
    EXPECT_DOUBLE_EQ(plec_residency_use_share(t.tier, 0), 0.25);
    t.use(2);
    EXPECT_GT(plec_residency_use_share(t.tier, 0), 0.25);
}

} // namespace
