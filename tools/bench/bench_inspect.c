/* bench_inspect.c: what `plectrum inspect` costs on a container of full size: 92 layers of 896
 * experts, two files a layer, 2.2 TB of weights that are holes. Prints time and peak memory beside
 * the number of regions. Usage: bench_inspect [PLECTRUM]
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "lyrw/segment.h"
#include "tools/bench/measure.h"
#include "tools/bench/sparse.h"

enum { N_RUNS = 10 };

static int report(const char *tool, const char *form, const char *root,
                  const struct plec_sparse_args *args) {
    char *const line[] = {(char *)tool, "inspect", (char *)form, (char *)root, NULL};
    struct plec_run_cost cost = plec_measure_runs(line, N_RUNS, 0);
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

static void remove_folder(const char *root) {
    char line[4200];
    snprintf(line, sizeof line, "rm -rf '%s'", root);
    if (system(line) != 0) fprintf(stderr, "bench_inspect: cannot remove %s\n", root);
}

int main(int argc, char **argv) {
    char tool[4096];
    plec_measure_tool(tool, sizeof tool, argv[0]);
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
