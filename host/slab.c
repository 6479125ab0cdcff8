#include "host/slab.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, HUGE_PAGE = 2 << 20, THREADS_MAX = 64, LINE_BYTES = 512 };

void *plec_slab_map(uint64_t n_bytes) {
    uint64_t extra = n_bytes >= HUGE_PAGE ? HUGE_PAGE : 0;
    uint8_t *whole = mmap(NULL, (size_t)(n_bytes + extra), PROT_READ | PROT_WRITE,
                          MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (whole == MAP_FAILED) return NULL;
    uint64_t before = extra == 0 ? 0 : -(uintptr_t)whole % HUGE_PAGE;
    uint8_t *memory = whole + before;
    if (before > 0) munmap(whole, (size_t)before);
    if (extra > before) munmap(memory + n_bytes, (size_t)(extra - before));
    if (extra > 0) madvise(memory, (size_t)n_bytes, MADV_HUGEPAGE);
    /* A child would share pages that a device writes to. */
    madvise(memory, (size_t)n_bytes, MADV_DONTFORK);
    return memory;
}

void plec_slab_unmap(void *memory, uint64_t n_bytes) {
    munmap(memory, (size_t)n_bytes);
}

struct share {
    uint8_t *memory;
    uint64_t n_bytes;
    int error;
};

static void *fault_share(void *user) {
    struct share *share = user;
    if (share->n_bytes == 0) return NULL;
#if defined(MADV_POPULATE_WRITE)
    if (madvise(share->memory, (size_t)share->n_bytes, MADV_POPULATE_WRITE) == 0) return NULL;
    if (errno != EINVAL) {
        share->error = errno;
        return NULL;
    }
#endif
    for (uint64_t at = 0; at < share->n_bytes; at += PAGE)
        *(volatile uint8_t *)(share->memory + at) = 0;
    return NULL;
}

bool plec_slab_fault(void *memory, uint64_t n_bytes, uint32_t n_threads) {
    struct share shares[THREADS_MAX];
    pthread_t threads[THREADS_MAX];
    bool started[THREADS_MAX] = {false};
    uint32_t n = n_threads < 1 ? 1 : n_threads > THREADS_MAX ? THREADS_MAX : n_threads;
    uint64_t each = (n_bytes / n + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE, at = 0;
    for (uint32_t i = 0; i < n; i++) {
        uint64_t left = n_bytes - at, mine = left < each ? left : each;
        shares[i] = (struct share){(uint8_t *)memory + at, mine, 0};
        at += mine;
    }
    /* The first share is this thread's; so is one whose thread cannot be had. */
    for (uint32_t i = 1; i < n; i++)
        started[i] = shares[i].n_bytes > 0 &&
                     pthread_create(&threads[i], NULL, fault_share, &shares[i]) == 0;
    for (uint32_t i = 0; i < n; i++)
        if (!started[i]) fault_share(&shares[i]);
    int error = 0;
    for (uint32_t i = 0; i < n; i++) {
        if (started[i]) pthread_join(threads[i], NULL);
        if (shares[i].error != 0) error = shares[i].error;
    }
    errno = error;
    return error == 0;
}

static uint64_t overlap(const struct plec_slab_range *range, uint64_t first, uint64_t end) {
    uint64_t a = (uintptr_t)range->memory, b = a + range->n_bytes;
    if (a < first) a = first;
    if (b > end) b = end;
    return b > a ? b - a : 0;
}

/* /proc/self/smaps: a line "first-end rwxp ..." a mapping, then lines "Name: N kB". The system
 * joins neighbouring mappings, so one may hold several ranges, or more than ours. */
uint64_t plec_slab_huge_bytes(const struct plec_slab_range *ranges, uint32_t n_ranges) {
    char line[LINE_BYTES];
    uint64_t ours = 0, huge = 0;
    FILE *file = fopen("/proc/self/smaps", "re");
    if (file == NULL) return 0;
    while (fgets(line, sizeof line, file) != NULL) {
        unsigned long long first, end, kib;
        if (sscanf(line, "%llx-%llx ", &first, &end) == 2) {
            ours = 0;
            for (uint32_t i = 0; i < n_ranges; i++)
                ours += overlap(&ranges[i], first, end);
        } else if (ours > 0 && sscanf(line, "AnonHugePages: %llu kB", &kib) == 1) {
            huge += kib * 1024 < ours ? kib * 1024 : ours;
        }
    }
    fclose(file);
    return huge;
}
