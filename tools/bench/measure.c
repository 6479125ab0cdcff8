#include "tools/bench/measure.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static struct plec_run_cost run(char *const *argv) {
    struct plec_run_cost cost = {0, 0, -1};
    double started = now_ms();
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        execv(argv[0], argv);
        _exit(127);
    }
    int status;
    struct rusage usage;
    if (child < 0 || wait4(child, &status, 0, &usage) != child) return cost;
    cost.wall_ms = now_ms() - started;
    cost.peak_kib = usage.ru_maxrss;
    cost.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    return cost;
}

struct plec_run_cost plec_measure_runs(char *const *argv, int n_runs, int most_status) {
    struct plec_run_cost best = {1e9, 0, 0};
    for (int i = 0; i < n_runs; i++) {
        struct plec_run_cost cost = run(argv);
        if (cost.exit_status < 0 || cost.exit_status > most_status) return cost;
        if (cost.wall_ms < best.wall_ms) best.wall_ms = cost.wall_ms;
        if (cost.peak_kib > best.peak_kib) best.peak_kib = cost.peak_kib;
        best.exit_status = cost.exit_status;
    }
    return best;
}

void plec_measure_tool(char *out, size_t capacity, const char *self) {
    const char *slash = strrchr(self, '/');
    int length = slash == NULL ? 0 : (int)(slash - self + 1);
    snprintf(out, capacity, "%.*splectrum", length, self);
}
