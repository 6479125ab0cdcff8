/* After open, nothing is allocated: counted by standing in for malloc. */
#include <cstdlib>

#include "host/predict.h"
#include "tests/support/tiers.h"

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

namespace {
uint64_t n_allocations = 0;
}

extern "C" {
void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *memory, size_t size);
void *malloc(size_t size) {
    n_allocations++;
    return __libc_malloc(size);
}
void *calloc(size_t n, size_t size) {
    n_allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *memory, size_t size) {
    n_allocations++;
    return __libc_realloc(memory, size);
}
}

namespace {

using plec_test::Tiers;

/* One step of everything: guesses, requests, demands, jobs, failures, the watchdog. */
void one_step(Tiers &t, plec_predict *predict, plec_request *requests, uint64_t step) {
    plec_error err = {};
    plec_fail(&err, PLEC_IO, "ReadFailed", "as planned");
    int32_t ids[2] = {int32_t(step % 32), int32_t(step * 7 % 32)};
    for (uint32_t layer = 0; layer < t.keys.n_layers; layer++) {
        plec_prefetch_advance(t.prefetch, plec_position(&t.keys, step, layer));
        for (int policy = PLEC_FROM_PLAN; policy <= PLEC_FROM_PROFILE; policy++) {
            plec_guess guess = {plec_origin(policy), step, layer, ids, 2};
            uint32_t n = plec_predict_guess(requests, predict, &guess, step);
            for (uint32_t i = 0; i < n; i++)
                plec_prefetch_request(t.prefetch, &requests[i]);
        }
        plec_predict_routed(predict, step, layer, ids, 2, step);
        plec_demand_args args = {};
        args.key = plec_keyspace_find(&args.mask, &t.keys, layer, uint32_t(ids[0]));
        plec_demand_result result;
        plec_demand_state state = plec_prefetch_demand(&result, t.prefetch, &args, step);
        plec_job job;
        if (step % 5 == 0 && plec_prefetch_next_read(&job, t.prefetch, step))
            plec_prefetch_job_ended(t.prefetch, job.id, step, 0, &err);
        while (plec_prefetch_next_read(&job, t.prefetch, step) ||
               plec_prefetch_next_copy(&job, t.prefetch, step))
            plec_prefetch_job_ended(t.prefetch, job.id, step, job.n_bytes, nullptr);
        (void)plec_prefetch_expire(t.prefetch, step, nullptr, 0);
        if (state == PLEC_DEMAND_WAITING && !plec_prefetch_take(&result, t.prefetch, result.ticket))
            continue;
        if (result.status == PLEC_OK) plec_residency_release(t.device, result.ref);
    }
}

TEST(Scheduler, AllocatesNothingAfterOpen) {
    Tiers t({});
    plec_predict_options options = {};
    options.keys = &t.keys;
    options.tier = t.device;
    options.start_on = true;
    plec_predict *predict;
    ASSERT_EQ(plec_predict_open(&predict, &options, nullptr), PLEC_OK);
    std::vector<plec_request> requests(plec_predict_max_requests(predict));
    uint64_t before = n_allocations;
    ASSERT_GT(before, 0u) << "the count counts";
    for (uint64_t step = 0; step < 500; step++)
        one_step(t, predict, requests.data(), step);
    uint64_t after = n_allocations;
    EXPECT_EQ(after, before);
    plec_residency_counters counters;
    plec_residency_get_counters(&counters, t.device);
    EXPECT_GT(counters.evictions, 100u) << "the steps did something";
    plec_predict_close(predict);
}

} // namespace

#else

TEST(Scheduler, AllocatesNothingAfterOpen) {
    GTEST_SKIP() << "another malloc stands in already";
}

#endif
