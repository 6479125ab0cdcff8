/* Random schedules: every order of asks, job ends, failures, cancels and releases must keep the
 * scheduler sound, lose no demand and recycle no slot under its reader. */
#include <deque>
#include <map>
#include <random>

#include "tests/support/tiers.h"

namespace {

using plec_test::Tiers;
using plec_test::TiersOptions;

struct Held {
    plec_slot_ref ref;
    uint32_t key;
    uint64_t mask;
};

/* An engine that does whatever a generator says, as long as the contract allows it. */
class RandomEngine {
  public:
    RandomEngine(const TiersOptions &options, uint32_t seed)
        : tiers_(options), random_(seed),
          n_hold_(options.has_device ? options.n_slots : options.n_frames) {}

    void step() {
        now_ += below(1000);
        switch (below(12)) {
        case 0:
        case 1: demand(); break;
        case 2:
        case 3: request(); break;
        case 4:
        case 5: start(); break;
        case 6:
        case 7: end_one(chance(20)); break;
        case 8: release_one(); break;
        case 9: seldom(); break;
        default: start_and_end(); break;
        }
        take_all();
        check();
    }

    /* Lets everything end: every demand must, without a further ask. */
    void finish() {
        for (int i = 0; i < 10000 && (!open_.empty() || !running_.empty() || !held_.empty()); i++) {
            now_ += 10;
            while (start()) {
            }
            if (!running_.empty())
                end_one(false);
            else
                release_one();
            take_all();
            check();
        }
        EXPECT_TRUE(open_.empty()) << open_.size() << " demands never ended";
        EXPECT_TRUE(running_.empty());
        plec_prefetch_drop_all();
        plec_prefetch_counters counters;
        plec_prefetch_get_counters(&counters, tiers_.prefetch);
        EXPECT_EQ(counters.n_waiting + counters.n_untaken, 0u);
        EXPECT_EQ(counters.demands, n_demands_);
        EXPECT_EQ(counters.demands,
                  counters.ready_at_once + counters.ready + counters.failed + counters.cancelled);
        for (plec_residency *tier : {tiers_.host, tiers_.device}) {
            if (tier == nullptr) continue;
            plec_residency_counters slots;
            plec_residency_get_counters(&slots, tier);
            EXPECT_EQ(slots.in_use, 0u) << "references leak";
        }
    }

  private:
    void plec_prefetch_drop_all() {
        for (int i = 0; i < PLEC_N_ORIGINS; i++)
            plec_prefetch_drop(tiers_.prefetch, plec_origin(i), PLEC_NO_KEY);
        check();
    }

    uint32_t below(uint32_t n) { return uint32_t(random_() % n); }
    bool chance(uint32_t percent) { return below(100) < percent; }

    void random_experts(uint32_t *key, uint64_t *mask) {
        *key = below(tiers_.keys.n_keys);
        uint64_t full = plec_key_full(&tiers_.keys.keys[*key]);
        do
            *mask = chance(30) ? full : random_() & random_() & full;
        while (*mask == 0);
    }

    void hold(const plec_demand_result &result) {
        EXPECT_TRUE(tiers_.intact(result.ref, result.key, result.mask));
        held_.push_back({result.ref, result.key, result.mask});
    }

    void demand() {
        /* The contract: those that wait hold no more slots than there are. */
        if (open_.size() + held_.size() >= n_hold_) return;
        plec_demand_args args = {};
        random_experts(&args.key, &args.mask);
        args.stream = chance(20);
        args.stream_host = chance(20);
        args.deadline_ns = chance(10) ? now_ + below(5000) : 0;
        plec_demand_result result;
        switch (plec_prefetch_demand(&result, tiers_.prefetch, &args, now_)) {
        case PLEC_DEMAND_READY:
            n_demands_++;
            hold(result);
            break;
        case PLEC_DEMAND_WAITING:
            n_demands_++;
            open_[result.ticket] = args.key;
            break;
        case PLEC_DEMAND_FULL: break;
        }
    }

    void request() {
        plec_request request = {};
        random_experts(&request.key, &request.mask);
        request.urgency = plec_urgency(1 + below(3));
        request.deadline = position_ + below(8);
        request.origin = plec_origin(1 + below(5));
        request.host_only = chance(30);
        plec_prefetch_request(tiers_.prefetch, &request);
    }

    bool start() {
        plec_job job;
        bool read = chance(50);
        bool got = read ? plec_prefetch_next_read(&job, tiers_.prefetch, now_)
                        : plec_prefetch_next_copy(&job, tiers_.prefetch, now_);
        if (!got)
            got = read ? plec_prefetch_next_copy(&job, tiers_.prefetch, now_)
                       : plec_prefetch_next_read(&job, tiers_.prefetch, now_);
        if (!got) return false;
        if (chance(5)) {
            plec_prefetch_job_returned(tiers_.prefetch, job.id);
            return false;
        }
        running_.push_back(job);
        return true;
    }

    void end_one(bool fail) {
        if (running_.empty()) return;
        size_t i = below(uint32_t(running_.size()));
        plec_job job = running_[i];
        running_.erase(running_.begin() + long(i));
        plec_error err = {};
        plec_fail(&err, PLEC_IO, "ReadFailed", "as planned");
        if (!fail) {
            EXPECT_TRUE(tiers_.perform(job)) << "copied from a recycled frame";
        }
        plec_prefetch_job_ended(tiers_.prefetch, job.id, now_, 1, fail ? &err : nullptr);
    }

    void start_and_end() {
        start();
        end_one(chance(10));
    }

    void release_one() {
        if (held_.empty()) return;
        size_t i = below(uint32_t(held_.size()));
        EXPECT_TRUE(tiers_.intact(held_[i].ref, held_[i].key, held_[i].mask))
            << "a slot was recycled under its reader";
        plec_residency_release(tiers_.final_tier(), held_[i].ref);
        held_.erase(held_.begin() + long(i));
    }

    void seldom() {
        switch (below(6)) {
        case 0:
            if (!open_.empty()) plec_prefetch_cancel(tiers_.prefetch, open_.begin()->first, now_);
            break;
        case 1: plec_prefetch_advance(tiers_.prefetch, position_ += below(3)); break;
        case 2:
            plec_prefetch_drop(tiers_.prefetch, plec_origin(1 + below(5)),
                               chance(50) ? PLEC_NO_KEY : below(tiers_.keys.n_keys));
            break;
        case 3: (void)plec_prefetch_expire(tiers_.prefetch, now_, nullptr, 0); break;
        case 4:
            plec_prefetch_set_budget(tiers_.prefetch, plec_urgency(1 + below(3)),
                                     chance(30) ? 0 : 1 + below(20000));
            break;
        case 5: plec_residency_evict(tiers_.final_tier(), below(tiers_.keys.n_keys)); break;
        }
    }

    void take_all() {
        plec_demand_result result;
        while (plec_prefetch_next_ended(&result, tiers_.prefetch)) {
            EXPECT_EQ(open_.erase(result.ticket), 1u) << "a demand ended twice, or never began";
            if (result.status == PLEC_OK) {
                hold(result);
            } else {
                EXPECT_NE(result.error.name, nullptr);
                EXPECT_NE(result.error.message[0], 0);
            }
            EXPECT_EQ(result.wait_ns, result.slot_ns + result.disk_ns + result.copy_ns);
        }
    }

    void check() {
        EXPECT_EQ(tiers_.fault(), "");
        for (const Held &held : held_)
            EXPECT_TRUE(tiers_.intact(held.ref, held.key, held.mask));
    }

    Tiers tiers_;
    std::mt19937_64 random_;
    size_t n_hold_;
    uint64_t now_ = 0, position_ = 0, n_demands_ = 0;
    std::map<plec_ticket, uint32_t> open_;
    std::deque<plec_job> running_;
    std::vector<Held> held_;
};

TiersOptions random_options(uint32_t seed) {
    std::mt19937 random(seed);
    auto between = [&](uint32_t low, uint32_t high) { return low + random() % (high - low + 1); };
    TiersOptions options;
    options.n_layers = between(1, 3);
    options.n_experts = between(4, 20);
    options.width = between(1, 8);
    options.n_frames = between(1, 4);
    options.n_frame_staging = between(0, 2);
    options.has_device = between(0, 3) != 0;
    options.n_slots = between(1, 4);
    options.n_slot_staging = between(0, 2);
    options.policy = between(0, 1) ? PLEC_RESIDENCY_LRU : PLEC_RESIDENCY_LFU;
    options.protect = between(0, 3);
    options.prefetch.max_requests = between(1, 6);
    options.prefetch.max_demands = between(1, 6);
    options.prefetch.max_reads = between(1, 4);
    options.prefetch.chunk_bytes = between(300, 3000);
    for (int c = 1; c < PLEC_N_URGENCIES; c++) {
        options.prefetch.read_budget[c] = between(1, 8000);
        options.prefetch.read_bytes[c] = between(1, 4000);
        options.prefetch.copies[c] = between(1, 3);
    }
    return options;
}

TEST(Schedule, TenThousandRandomOnesLoseNoDemandAndRecycleNoSlotInUse) {
    for (uint32_t seed = 0; seed < 10000 && !::testing::Test::HasFailure(); seed++) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        RandomEngine engine(random_options(seed), seed);
        for (int i = 0; i < 80 && !::testing::Test::HasFailure(); i++)
            engine.step();
        engine.finish();
    }
}

} // namespace
