/* bench_prefetch.c: what scheduling costs the host, without moving a byte: nanoseconds an extent
 * for a hit, a miss that is read and copied, and a request that is read and copied ahead, on a
 * model of full size (60 layers of 512 experts, extents of 8; 700 device slots, 1400 frames), and
 * for guesses. The counters are checked against what was done. Usage: bench_prefetch
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "host/predict.h"

enum { N_LAYERS = 60, N_EXPERTS = 512, WIDTH = 8, TOP_K = 10, N_SLOTS = 700, N_FRAMES = 1400 };
enum { N_ROUNDS = 7, N_STEPS = 20, N_AHEAD = 100 };
static const uint64_t ENTRY_BYTES = 2650000;

struct bench {
    struct plec_keyspace keys;
    struct plec_residency *host, *device;
    struct plec_prefetch *prefetch;
    struct plec_predict *predict;
    struct plec_request *requests;
    uint32_t random;
    uint64_t n_jobs;
};

static double now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static uint32_t next_random(struct bench *bench) {
    bench->random = bench->random * 1664525 + 1013904223;
    return bench->random >> 8;
}

static bool open_bench(struct bench *bench, enum plec_residency_policy policy) {
    *bench = (struct bench){.random = 1};
    struct plec_error err;
    struct plec_residency_options tier = {.keys = &bench->keys, .policy = policy};
    struct plec_residency_options host = tier, device = tier;
    host.n_slots = N_FRAMES;
    device.n_slots = N_SLOTS;
    struct plec_prefetch_options options = {.keys = &bench->keys, .max_requests = N_AHEAD};
    struct plec_predict_options predict = {.keys = &bench->keys, .start_on = true};
    bool opened = plec_keyspace_open_uniform(&bench->keys, N_LAYERS, N_EXPERTS, WIDTH, ENTRY_BYTES,
                                             &err) == PLEC_OK &&
                  plec_residency_open(&bench->host, &host, &err) == PLEC_OK &&
                  plec_residency_open(&bench->device, &device, &err) == PLEC_OK;
    options.host = bench->host;
    options.device = bench->device;
    predict.tier = bench->device;
    opened = opened && plec_prefetch_open(&bench->prefetch, &options, &err) == PLEC_OK &&
             plec_predict_open(&bench->predict, &predict, &err) == PLEC_OK;
    if (!opened) {
        fprintf(stderr, "bench_prefetch: %s\n", err.message);
        return false;
    }
    bench->requests = calloc(plec_predict_max_requests(bench->predict), sizeof *bench->requests);
    return bench->requests != NULL;
}

static void close_bench(struct bench *bench) {
    free(bench->requests);
    plec_predict_close(bench->predict);
    plec_prefetch_close(bench->prefetch);
    plec_residency_close(bench->device);
    plec_residency_close(bench->host);
    plec_keyspace_close(&bench->keys);
}

/* Ends all that may start, as an engine of infinite speed. */
static void run_jobs(struct bench *bench) {
    struct plec_job job;
    while (plec_prefetch_next_read(&job, bench->prefetch, 0) ||
           plec_prefetch_next_copy(&job, bench->prefetch, 0)) {
        plec_prefetch_job_ended(bench->prefetch, job.id, 0, job.n_bytes, NULL);
        bench->n_jobs++;
    }
}

/* A use of one expert from asking to releasing. False: it failed. */
static bool use(struct bench *bench, uint32_t key, uint64_t mask) {
    struct plec_demand_args args = {.key = key, .mask = mask};
    struct plec_demand_result result;
    if (plec_prefetch_demand(&result, bench->prefetch, &args, 0) == PLEC_DEMAND_WAITING) {
        run_jobs(bench);
        if (!plec_prefetch_take(&result, bench->prefetch, result.ticket)) return false;
    }
    if (result.status != PLEC_OK) return false;
    plec_residency_release(bench->device, result.ref);
    return true;
}

/* ns an extent of a scan over more keys than the cache holds: every use a miss, read and copied. */
static double time_misses(struct bench *bench) {
    double start = now_ns();
    for (uint32_t k = 0; k < bench->keys.n_keys; k++)
        if (!use(bench, k, 1)) return -1;
    return (now_ns() - start) / bench->keys.n_keys;
}

static double time_hits(struct bench *bench) {
    uint32_t n = 0;
    double start = now_ns();
    for (uint32_t round = 0; round < 10; round++)
        for (uint32_t k = bench->keys.n_keys - N_SLOTS / 2; k < bench->keys.n_keys; k++, n++)
            if (!use(bench, k, 1)) return -1;
    return (now_ns() - start) / n;
}

/* ns an extent asked for ahead in a queue of N_AHEAD, read, copied, and then used. */
static double time_ahead(struct bench *bench, uint64_t *position) {
    double start = now_ns();
    for (uint32_t first = 0; first + N_AHEAD <= bench->keys.n_keys; first += N_AHEAD) {
        plec_prefetch_advance(bench->prefetch, ++*position);
        for (uint32_t i = 0; i < N_AHEAD; i++) {
            struct plec_request request = {.key = first + i,
                                           .mask = 1,
                                           .urgency = PLEC_CERTAIN,
                                           .deadline = *position + 1,
                                           .origin = PLEC_FROM_PLAN};
            if (plec_prefetch_request(bench->prefetch, &request) == PLEC_REQUEST_FULL) return -1;
        }
        run_jobs(bench);
        for (uint32_t i = 0; i < N_AHEAD; i++)
            if (!use(bench, first + i, 1)) return -1;
    }
    return (now_ns() - start) / (bench->keys.n_keys / N_AHEAD * N_AHEAD);
}

/* ns a layer for a guess of each policy and the judging of them all. */
static double time_guesses(struct bench *bench, uint64_t first_step) {
    int32_t ids[TOP_K];
    double start = now_ns();
    for (uint64_t step = first_step; step < first_step + N_STEPS; step++)
        for (uint32_t layer = 0; layer < N_LAYERS; layer++) {
            for (int i = 0; i < TOP_K; i++)
                ids[i] = (int32_t)(next_random(bench) % N_EXPERTS);
            for (int p = PLEC_FROM_PLAN; p <= PLEC_FROM_PROFILE; p++) {
                struct plec_guess guess = {(enum plec_origin)p, step, layer, ids, TOP_K};
                plec_predict_guess(bench->requests, bench->predict, &guess, 0);
            }
            plec_predict_routed(bench->predict, step, layer, ids, TOP_K, 0);
        }
    return (now_ns() - start) / (N_STEPS * N_LAYERS);
}

struct times {
    double miss, hit, ahead, guess;
};

static void keep_least(double *best, double value) {
    if (*best == 0 || value < *best) *best = value;
}

static bool run_rounds(struct times *best, struct bench *bench) {
    uint64_t position = 0;
    *best = (struct times){0};
    for (int i = 0; i < N_ROUNDS; i++) {
        double miss = time_misses(bench), hit = time_hits(bench);
        double ahead = time_ahead(bench, &position);
        if (miss < 0 || hit < 0 || ahead < 0) return false;
        keep_least(&best->miss, miss);
        keep_least(&best->hit, hit);
        keep_least(&best->ahead, ahead);
        keep_least(&best->guess, time_guesses(bench, (uint64_t)i * N_STEPS));
    }
    return true;
}

/* Whether the counters say what the rounds did: a bench of nothing would be fast. */
static bool counted(const struct bench *bench) {
    struct plec_prefetch_counters counters;
    struct plec_residency_counters slots;
    plec_prefetch_get_counters(&counters, bench->prefetch);
    plec_residency_get_counters(&slots, bench->device);
    uint64_t jobs = 0, uses = 0;
    for (int c = 0; c < PLEC_N_URGENCIES; c++)
        jobs += counters.classes[c].reads + counters.classes[c].copies;
    for (uint32_t e = 0; e < bench->keys.n_experts; e++)
        uses += plec_residency_uses(bench->device)[e];
    return jobs == bench->n_jobs && uses == counters.demands &&
           uses == slots.hits + slots.late + slots.misses &&
           slots.misses >= (uint64_t)N_ROUNDS * (bench->keys.n_keys - N_SLOTS) &&
           counters.failed + counters.cancelled == 0;
}

int main(void) {
    static const char *const names[] = {"lru", "lfu"};
    int status = 0;
    printf("policy  miss ns  hit ns  ahead ns  guess ns a layer\n");
    for (int policy = PLEC_RESIDENCY_LRU; policy <= PLEC_RESIDENCY_LFU; policy++) {
        struct bench bench;
        struct times best;
        if (!open_bench(&bench, (enum plec_residency_policy)policy)) return 4;
        bool done = run_rounds(&best, &bench) && counted(&bench);
        if (done)
            printf("%-6s %8.0f %7.0f %9.0f %9.0f\n", names[policy], best.miss, best.hit, best.ahead,
                   best.guess);
        else
            fprintf(stderr, "bench_prefetch: %s: the counters do not add up\n", names[policy]);
        status |= !done;
        close_bench(&bench);
    }
    return status;
}
