/* measure.h: what a run of the command-line tool costs, for benchmarks.
 */
#ifndef PLEC_BENCH_MEASURE_H
#define PLEC_BENCH_MEASURE_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plec_run_cost {
    double wall_ms;
    long peak_kib;   /* resident */
    int exit_status; /* -1: could not be run */
};

/* Runs argv (a NULL ends it; argv[0] is the program's path) n_runs times, its output thrown away.
 * The best time and the worst memory; of the first run that leaves with more than `most_status`,
 * that run. */
struct plec_run_cost plec_measure_runs(char *const *argv, int n_runs, int most_status);

/* The path of plectrum beside a program of this build, from that program's argv[0]. */
void plec_measure_tool(char *out, size_t capacity, const char *self);

#ifdef __cplusplus
}
#endif
#endif
