#include "tests/support/simulator.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace plec_test {

Simulator::Simulator(const SimulatorOptions &options)
    : tiers(options.tiers), options_(options), random_(options.seed) {}

/* When n_bytes entering a pipe now come out of it. */
uint64_t Simulator::through(Pipe &pipe, uint64_t *free_at, uint64_t n_bytes) {
    uint64_t begin = std::max(now + pipe.latency_ns, *free_at);
    *free_at = begin + uint64_t(double(n_bytes) / pipe.bytes_per_ns);
    uint64_t delay = options_.max_delay_ns > 0 ? random_() % options_.max_delay_ns : 0;
    return *free_at + delay;
}

bool Simulator::put_back(const plec_job &job) {
    if (!options_.returns || !options_.returns(job, n_given++)) return false;
    plec_prefetch_job_returned(tiers.prefetch, job.id);
    return true;
}

void Simulator::start_jobs() {
    /* A key asked for twice is one request: plan less than a step ahead. */
    while (!plan.empty() && plan.front().deadline < position_ + tiers.keys.n_layers &&
           plec_prefetch_request(tiers.prefetch, &plan.front()) != PLEC_REQUEST_FULL)
        plan.pop_front();
    plec_job job;
    while (reading_ < options_.disk.depth && plec_prefetch_next_read(&job, tiers.prefetch, now)) {
        if (put_back(job)) continue;
        reading_++;
        events_.push({through(options_.disk, &disk_free_, job.n_bytes), order_++, true, job, {}});
    }
    while (copying_ < options_.link.depth && plec_prefetch_next_copy(&job, tiers.prefetch, now)) {
        if (put_back(job)) continue;
        copying_++;
        events_.push({through(options_.link, &link_free_, job.n_bytes), order_++, true, job, {}});
    }
    plec_prefetch_counters counters;
    plec_prefetch_get_counters(&counters, tiers.prefetch);
    longest_queue = std::max<uint64_t>(longest_queue, counters.n_requests + counters.n_waiting);
}

void Simulator::end_job(const plec_job &job) {
    bool failed = options_.fails && options_.fails(job, n_ended);
    n_ended++;
    plec_error err = {};
    if (failed) {
        plec_fail(&err, PLEC_IO, job.kind == PLEC_JOB_READ ? "ReadFailed" : "CopyFailed",
                  "job of key %u", job.key);
    } else {
        EXPECT_TRUE(tiers.perform(job)) << "copied from a recycled frame";
    }
    if (job.kind == PLEC_JOB_READ) {
        reading_--;
        if (!failed) read_bytes += job.n_bytes;
    } else {
        copying_--;
        if (!failed) copied_bytes += job.n_bytes;
    }
    plec_prefetch_job_ended(tiers.prefetch, job.id, now, failed ? 0 : job.n_bytes,
                            failed ? &err : nullptr);
}

void Simulator::compute(const plec_demand_result &result) {
    uint64_t n = uint64_t(__builtin_popcountll(result.mask));
    compute_free_ = std::max(now, compute_free_) + n * options_.compute_ns;
    computed += n;
    events_.push({compute_free_, order_++, false, {}, result});
}

void Simulator::got(const plec_demand_result &result, bool stream) {
    LayerRun &run = dispatch_->run;
    run.waits.push_back(result.wait_ns);
    if (result.status != PLEC_OK) {
        run.errors.push_back(result.error.name);
        dispatch_->done++;
        dispatch_->streaming -= stream;
        return;
    }
    EXPECT_TRUE(tiers.intact(result.ref, result.key, result.mask));
    run.ready++;
    streams_[uint32_t(order_)] = stream;
    compute(result);
}

void Simulator::ask_one(uint32_t i) {
    const plec_need &need = dispatch_->needs[i];
    plec_demand_args args = {};
    args.key = need.key;
    args.mask = need.mask;
    args.stream = i >= dispatch_->fit.n_hold;
    args.stream_host = i >= dispatch_->fit.n_cache;
    args.deadline_ns = options_.patience_ns > 0 ? now + options_.patience_ns : 0;
    plec_demand_result result;
    dispatch_->streaming += args.stream;
    if (plec_prefetch_demand(&result, tiers.prefetch, &args, now) == PLEC_DEMAND_READY)
        got(result, args.stream);
    else
        dispatch_->open[result.ticket] = args.stream;
}

/* Asks for what may be asked for: all that is held, and as much as staging takes of the rest. */
void Simulator::ask() {
    uint32_t staging =
        tiers.device != nullptr ? options_.tiers.n_slot_staging : options_.tiers.n_frame_staging;
    while (dispatch_->next < dispatch_->needs.size()) {
        uint32_t i = dispatch_->next;
        bool stream = i >= dispatch_->fit.n_hold;
        bool alone = staging == 0 && i == dispatch_->done; /* no staging: the rest one by one */
        if (stream && dispatch_->streaming >= staging && !alone) return;
        dispatch_->next++;
        ask_one(i);
    }
}

void Simulator::take_results() {
    plec_demand_result result;
    while (plec_prefetch_next_ended(&result, tiers.prefetch)) {
        auto open = dispatch_->open.find(result.ticket);
        ASSERT_NE(open, dispatch_->open.end());
        bool stream = open->second;
        dispatch_->open.erase(open);
        got(result, stream);
    }
}

/* Goes to the next event and does it; false: there is none. */
bool Simulator::next_event() {
    if (events_.empty()) return false;
    Event event = events_.top();
    events_.pop();
    now = std::max(now, event.at);
    if (event.is_job) {
        end_job(event.job);
        return true;
    }
    EXPECT_TRUE(tiers.intact(event.result.ref, event.result.key, event.result.mask))
        << "a slot was recycled under its reader";
    plec_residency_release(tiers.final_tier(), event.result.ref);
    auto stream = streams_.find(uint32_t(event.order));
    if (dispatch_ != nullptr) {
        dispatch_->done++;
        dispatch_->streaming -= stream->second;
    }
    streams_.erase(stream);
    return true;
}

LayerRun Simulator::run_layer(uint64_t step, uint32_t layer, std::vector<plec_need> needs) {
    Dispatch dispatch;
    dispatch.needs = std::move(needs);
    position_ = plec_position(&tiers.keys, step, layer);
    plec_prefetch_advance(tiers.prefetch, position_);
    dispatch.fit =
        plec_prefetch_fit(tiers.prefetch, dispatch.needs.data(), uint32_t(dispatch.needs.size()));
    dispatch_ = &dispatch;
    uint64_t start = now, computed_before = computed;
    for (bool moving = true; moving && dispatch.done < dispatch.needs.size();) {
        ask();
        start_jobs();
        take_results();
        if (dispatch.done == dispatch.needs.size()) break;
        moving = next_event();
        if (options_.cancels && options_.cancels(n_events++) && !dispatch.open.empty())
            plec_prefetch_cancel(tiers.prefetch, dispatch.open.begin()->first, now);
        if (options_.patience_ns > 0) {
            EXPECT_FALSE(plec_prefetch_expire(tiers.prefetch, now, nullptr, 0));
        }
        if (!moving) { /* nothing will ever end: only the watchdog can */
            now += 6000000000;
            moving = plec_prefetch_expire(tiers.prefetch, now, nullptr, 0);
        }
    }
    EXPECT_EQ(dispatch.done, dispatch.needs.size()) << "a demand was lost";
    dispatch_ = nullptr;
    dispatch.run.ns = now - start;
    dispatch.run.stall_ns = dispatch.run.ns - (computed - computed_before) * options_.compute_ns;
    return dispatch.run;
}

void Simulator::pass(uint64_t ns) {
    uint64_t until = now + ns;
    start_jobs();
    while (!events_.empty() && events_.top().at <= until) {
        next_event();
        start_jobs();
    }
    now = until;
}

void Simulator::drain() {
    start_jobs();
    while (next_event())
        start_jobs();
}

std::vector<plec_need> needs_of(const plec_keyspace &keys, uint32_t layer,
                                const std::vector<int32_t> &ids) {
    std::map<uint32_t, uint64_t> masks;
    for (int32_t id : ids) {
        uint64_t bit;
        uint32_t key = plec_keyspace_find(&bit, &keys, layer, uint32_t(id));
        masks[key] |= bit;
    }
    std::vector<plec_need> needs;
    for (const auto &[key, mask] : masks)
        needs.push_back({key, mask});
    return needs;
}

namespace {

class Router {
  public:
    Router(Trace kind, uint32_t n_experts, uint32_t seed)
        : kind_(kind), random_(seed), order_(n_experts) {
        for (uint32_t e = 0; e < n_experts; e++) {
            order_[e] = int32_t(e);
            total_ += weight(e);
        }
        std::shuffle(order_.begin(), order_.end(), random_);
    }
    std::vector<int32_t> route(uint32_t top_k) {
        std::set<int32_t> chosen;
        if (kind_ == Trace::MARKOV)
            for (int32_t id : last_)
                if (random_() % 100 < 80) chosen.insert(id);
        while (chosen.size() < top_k)
            chosen.insert(draw());
        last_.assign(chosen.begin(), chosen.end());
        return last_;
    }

  private:
    double weight(size_t rank) const { return kind_ == Trace::UNIFORM ? 1 : 1 / double(rank + 1); }
    int32_t draw() {
        double at = double(random_() >> 11) * 0x1p-53 * total_;
        for (size_t rank = 0; rank < order_.size(); rank++)
            if ((at -= weight(rank)) < 0) return order_[rank];
        return order_.back();
    }

    Trace kind_;
    std::mt19937_64 random_;
    std::vector<int32_t> order_, last_;
    double total_ = 0;
};

} // namespace

std::vector<std::vector<std::vector<int32_t>>> make_trace(Trace kind, uint32_t n_steps,
                                                          uint32_t n_layers, uint32_t n_experts,
                                                          uint32_t top_k, uint32_t seed) {
    std::vector<Router> routers;
    for (uint32_t layer = 0; layer < n_layers; layer++)
        routers.emplace_back(kind, n_experts, seed * 1000 + layer);
    std::vector<std::vector<std::vector<int32_t>>> trace(n_steps);
    for (auto &step : trace)
        for (Router &router : routers)
            step.push_back(router.route(top_k));
    return trace;
}

uint64_t quantile(std::vector<uint64_t> values, double share) {
    if (values.empty()) return 0;
    size_t at = std::min(values.size() - 1, size_t(share * double(values.size())));
    std::nth_element(values.begin(), values.begin() + long(at), values.end());
    return values[at];
}

} // namespace plec_test
