/* asks.h: short ways to ask a scheduler over two tiers, to play its engine, and to look at it. */
#ifndef PLEC_TESTS_SUPPORT_ASKS_H
#define PLEC_TESTS_SUPPORT_ASKS_H

#include "tests/support/tiers.h"

namespace plec_test {

/* Asks for a demand that must wait. */
inline plec_ticket wait_for(Tiers &t, uint32_t key, uint64_t mask, uint64_t now = 0,
                            bool stream = false) {
    plec_demand_args args = {};
    args.key = key;
    args.mask = mask;
    args.stream = stream;
    plec_demand_result result;
    EXPECT_EQ(plec_prefetch_demand(&result, t.prefetch, &args, now), PLEC_DEMAND_WAITING);
    return result.ticket;
}

inline plec_request_state ask(Tiers &t, uint32_t key, uint64_t mask, plec_urgency urgency,
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

inline plec_job read_job(Tiers &t, uint64_t now = 0) {
    plec_job job = {};
    EXPECT_TRUE(plec_prefetch_next_read(&job, t.prefetch, now)) << "no read may start";
    return job;
}
inline plec_job copy_job(Tiers &t, uint64_t now = 0) {
    plec_job job = {};
    EXPECT_TRUE(plec_prefetch_next_copy(&job, t.prefetch, now)) << "no copy may start";
    return job;
}
inline bool no_read(Tiers &t) {
    plec_job job;
    return !plec_prefetch_next_read(&job, t.prefetch, 0);
}
inline bool no_copy(Tiers &t) {
    plec_job job;
    return !plec_prefetch_next_copy(&job, t.prefetch, 0);
}
inline void end(Tiers &t, const plec_job &job, uint64_t now = 0, const plec_error *err = nullptr) {
    if (err == nullptr) {
        EXPECT_TRUE(t.perform(job));
    }
    uint64_t n_bytes =
        job.kind == PLEC_JOB_READ ? plec_key_bytes(&t.keys.keys[job.key], job.mask) : job.n_bytes;
    plec_prefetch_job_ended(t.prefetch, job.id, now, err == nullptr ? n_bytes : 0, err);
    EXPECT_EQ(t.fault(), "");
}
inline plec_demand_result result_of(Tiers &t, plec_ticket ticket) {
    plec_demand_result result = {};
    EXPECT_TRUE(plec_prefetch_take(&result, t.prefetch, ticket)) << "it still waits";
    return result;
}
/* A demand that must end well; its reference is given back. */
inline void expect_ready(Tiers &t, plec_ticket ticket) {
    plec_demand_result result = result_of(t, ticket);
    ASSERT_EQ(result.status, PLEC_OK) << result.error.message;
    EXPECT_TRUE(t.intact(result.ref, result.key, result.mask));
    plec_residency_release(t.final_tier(), result.ref);
}
/* Demands, runs everything, releases: one use as a whole. */
inline void use(Tiers &t, uint32_t key, uint64_t mask) {
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
inline plec_prefetch_counters counters(const Tiers &t) {
    plec_prefetch_counters out;
    plec_prefetch_get_counters(&out, t.prefetch);
    return out;
}
inline plec_residency_counters tier_counters(const plec_residency *tier) {
    plec_residency_counters out;
    plec_residency_get_counters(&out, tier);
    return out;
}
inline plec_error error(const char *name) {
    plec_error err = {};
    plec_fail(&err, PLEC_IO, name, "as planned");
    return err;
}

} // namespace plec_test
#endif
