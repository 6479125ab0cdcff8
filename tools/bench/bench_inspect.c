/* bench_inspect.c: what `plectrum inspect` costs on a container of full size: 92 layers of 896
 * experts, two files a layer, 2.2 TB of weights that are holes. Prints time and peak memory beside
 * the number of regions. Usage: bench_inspect [PLECTRUM]
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "lyrw/segment.h"
#include "tools/bench/sparse.h"

enum { N_RUNS = 10 };

struct cost {
    double wall_ms;
    long peak_kib;
    int exit_status;
};

static double now_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static struct cost run(const char *tool, const char *form, const char *root) {
    struct cost cost = {0, 0, -1};
    double started = now_ms();
    pid_t child = fork();
    if (child == 0) {
        int nowhere = open("/dev/null", O_WRONLY);
        dup2(nowhere, STDOUT_FILENO);
        execl(tool, tool, "inspect", form, root, (char *)NULL);
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

/* The best time and the worst memory of several runs; -1 ms when one failed. */
static struct cost measure(const char *tool, const char *form, const char *root) {
    struct cost best = {1e9, 0, 0};
    for (int i = 0; i < N_RUNS; i++) {
        struct cost cost = run(tool, form, root);
        if (cost.exit_status != 0) return cost;
        if (cost.wall_ms < best.wall_ms) best.wall_ms = cost.wall_ms;
        if (cost.peak_kib > best.peak_kib) best.peak_kib = cost.peak_kib;
    }
    return best;
}

static int report(const char *tool, const char *form, const char *root,
                  const struct plec_sparse_args *args) {
    struct cost cost = measure(tool, form, root);
    if (cost.exit_status != 0) {
        fprintf(stderr, "bench_inspect: %s inspect %s left with %d\n", tool, form,
                cost.exit_status);
        return 1;
    }
    printf("inspect %-7s %u layers, %u files, %u regions: %.1f ms (best of %d), peak %.1f MiB\n",
           form, args->n_layers, args->n_layers * args->n_segments,
           args->n_layers * args->n_experts * 2, cost.wall_ms, N_RUNS,
           (double)cost.peak_kib / 1024);
    return 0;
}

/* plectrum beside this program. */
static void default_tool(char *out, size_t capacity, const char *self) {
    const char *slash = strrchr(self, '/');
    int length = slash == NULL ? 0 : (int)(slash - self + 1);
    snprintf(out, capacity, "%.*splectrum", length, self);
}

static void remove_folder(const char *root) {
    char line[4200];
    snprintf(line, sizeof line, "rm -rf '%s'", root);
    if (system(line) != 0) fprintf(stderr, "bench_inspect: cannot remove %s\n", root);
}

int main(int argc, char **argv) {
    char tool[4096];
    default_tool(tool, sizeof tool, argv[0]);
    if (argc > 1) snprintf(tool, sizeof tool, "%s", argv[1]);
    const struct plec_sparse_args args = {.n_layers = 92,
                                          .n_experts = 896,
                                          .n_segments = 2,
                                          .hidden = 3584,
                                          .intermediate = 3072,
                                          .extent = 16,
                                          .format = PLEC_FORMAT_Q6_K};
    char root[] = "/tmp/plectrum-bench-XXXXXX";
    struct plec_error err;
    if (mkdtemp(root) == NULL) {
        perror(root);
        return 4;
    }
    int failed = 1;
    if (plec_sparse_make(root, &args, &err) != PLEC_OK)
        fprintf(stderr, "bench_inspect: %s\n", err.message);
    else
        failed = report(tool, "--json", root, &args) | report(tool, "--", root, &args);
    remove_folder(root);
    return failed;
}
