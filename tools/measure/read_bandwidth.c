#include "tools/measure/read_bandwidth.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

double plec_bench_now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double plec_bench_median(double *values, size_t n) {
    qsort(values, n, sizeof *values, compare);
    return n == 0 ? 0 : values[n / 2];
}

static uint64_t sum_words(const uint64_t *words, size_t n) {
    uint64_t sums[8] = {0};
    for (size_t i = 0; i + 8 <= n; i += 8)
        for (size_t j = 0; j < 8; j++)
            sums[j] += words[i + j];
    return sums[0] + sums[1] + sums[2] + sums[3] + sums[4] + sums[5] + sums[6] + sums[7];
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static uint64_t sum_avx2(const uint64_t *words, size_t n) {
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a;
    for (size_t i = 0; i + 16 <= n; i += 16) {
        const __m256i *p = (const __m256i *)(const void *)(words + i);
        a = _mm256_add_epi64(a, _mm256_load_si256(p));
        b = _mm256_add_epi64(b, _mm256_load_si256(p + 1));
        c = _mm256_add_epi64(c, _mm256_load_si256(p + 2));
        d = _mm256_add_epi64(d, _mm256_load_si256(p + 3));
    }
    uint64_t lanes[4];
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
    memcpy(lanes, &a, sizeof lanes);
    return lanes[0] + lanes[1] + lanes[2] + lanes[3];
}
#endif

static uint64_t sum(const uint64_t *words, size_t n) {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return sum_avx2(words, n);
#endif
    return sum_words(words, n);
}

struct part {
    const uint64_t *words;
    size_t n_words;
    pthread_barrier_t *start;
    double ended;
    uint64_t sum; /* stored, so that the reads are not optimised away */
};

static void *read_part(void *user) {
    struct part *part = user;
    pthread_barrier_wait(part->start);
    part->sum = sum(part->words, part->n_words);
    part->ended = plec_bench_now();
    return NULL;
}

enum { THREADS_MAX = 1024 };

double plec_bench_read_bandwidth(const void *buffer, size_t n_bytes, uint32_t n_threads) {
    static struct part parts[THREADS_MAX];
    static pthread_t threads[THREADS_MAX];
    if (n_threads > THREADS_MAX) n_threads = THREADS_MAX;
    pthread_barrier_t start;
    pthread_barrier_init(&start, NULL, n_threads + 1);
    size_t words_each = n_bytes / n_threads / 128 * 16;
    for (uint32_t i = 0; i < n_threads; i++) {
        parts[i] =
            (struct part){(const uint64_t *)buffer + i * words_each, words_each, &start, 0, 0};
        if (pthread_create(&threads[i], NULL, read_part, &parts[i]) != 0) return 0;
    }
    double started = plec_bench_now(), ended = 0;
    pthread_barrier_wait(&start);
    for (uint32_t i = 0; i < n_threads; i++) {
        pthread_join(threads[i], NULL);
        if (parts[i].ended > ended) ended = parts[i].ended;
    }
    pthread_barrier_destroy(&start);
    return (double)(words_each * 8 * n_threads) / (ended - started);
}
