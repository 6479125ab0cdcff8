/* allocation_guard.h: this program's own malloc family, counted while `counting` is set. Included
 * by one file of a program; under a sanitizer, which has its own, nothing is counted. */
#ifndef PLEC_TESTS_SUPPORT_ALLOCATION_GUARD_H
#define PLEC_TESTS_SUPPORT_ALLOCATION_GUARD_H

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define PLEC_TEST_COUNTS_ALLOCATIONS 0
#else
#define PLEC_TEST_COUNTS_ALLOCATIONS 1
static std::atomic<bool> counting{false};
static std::atomic<uint64_t> n_allocations{0};

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void *malloc(size_t n) {
    if (counting) n_allocations++;
    return __libc_malloc(n);
}
void *calloc(size_t n, size_t size) {
    if (counting) n_allocations++;
    return __libc_calloc(n, size);
}
void *realloc(void *p, size_t n) {
    if (counting) n_allocations++;
    return __libc_realloc(p, n);
}
int posix_memalign(void **out, size_t alignment, size_t n) {
    if (counting) n_allocations++;
    *out = __libc_memalign(alignment, n);
    return *out == nullptr ? ENOMEM : 0;
}
void *aligned_alloc(size_t alignment, size_t n) {
    if (counting) n_allocations++;
    return __libc_memalign(alignment, n);
}
}
#endif

#endif
