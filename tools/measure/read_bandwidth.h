/* read_bandwidth.h: how fast this machine reads memory: the peer of every weight-streaming figure.
 */
#ifndef PLEC_TOOLS_READ_BANDWIDTH_H
#define PLEC_TOOLS_READ_BANDWIDTH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Seconds since some fixed moment. */
double plec_bench_now(void);
/* The middle of n values, which are sorted on the way. */
double plec_bench_median(double *values, size_t n);

/* Bytes a second at which n_threads sum a buffer of n_bytes once, a contiguous part each, with the
 * widest loads the processor has. The buffer should be far larger than the last-level cache and
 * must be 64-byte aligned. Thread start is not timed. 0 when a thread cannot be started. */
double plec_bench_read_bandwidth(const void *buffer, size_t n_bytes, uint32_t n_threads);

#endif
