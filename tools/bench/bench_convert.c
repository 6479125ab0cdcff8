/* bench_convert.c: the speed of `plectrum convert` beside `cp` and `sync` of the same bytes on the
 * same disk, from a cold cache, taking turns. Makes a GGUF of random q4_K experts for it.
 *
 * Usage: bench_convert [--dir DIR] [--gib N] [--runs N] [--convert OPTIONS...]
 *   --dir    where the source and the copies lie (/var/tmp); needs twice the size
 *   --gib    size of the source in GiB (4)
 *   --runs   turns (5)
 *   --convert all that follows is handed to `plectrum convert`
 * As root the page cache is dropped before each turn; else the source's pages are asked to go,
 * which a file system may decline: what was cached is then told.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lyrw/gguf_write.h"
#include "tools/bench/measure.h"

enum {
    HIDDEN = 4096,
    INNER = 1536,
    EXPERTS = 64,
    Q4_K = 12,
    BLOCK_ELEMS = 256,
    BLOCK_BYTES = 144,
    MAX_RUNS = 99,
    MAX_EXTRA = 16,
    PATH_BYTES = 4096
};

struct bench {
    const char *dir;
    uint64_t gib;
    int n_runs;
    char tool[PATH_BYTES];
    char root[PATH_BYTES], source[PATH_BYTES + 32], copy[PATH_BYTES + 32], out[PATH_BYTES + 32];
    char *extra[MAX_EXTRA]; /* options of convert */
    int n_extra;
};

/* -- the source ------------------------------------------------------------------------------- */

static uint64_t matrix_bytes(void) {
    return (uint64_t)HIDDEN * INNER / BLOCK_ELEMS * BLOCK_BYTES * EXPERTS;
}

static uint32_t n_layers(const struct bench *bench) {
    uint64_t layer = 3 * matrix_bytes();
    return (uint32_t)(((bench->gib << 30) + layer - 1) / layer);
}

static void put_layer(struct plec_gguf_writer *writer, uint32_t layer) {
    static const char *const matrices[] = {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"};
    char name[64];
    uint64_t router[] = {HIDDEN, EXPERTS};
    snprintf(name, sizeof name, "blk.%u.ffn_gate_inp.weight", layer);
    plec_gguf_put_tensor(writer, plec_view_of(name), 0, 2, router, 0);
    for (int i = 0; i < 3; i++) {
        uint64_t ne[] = {i < 2 ? HIDDEN : INNER, i < 2 ? INNER : HIDDEN, EXPERTS};
        snprintf(name, sizeof name, "blk.%u.%s.weight", layer, matrices[i]);
        plec_gguf_put_tensor(writer, plec_view_of(name), Q4_K, 3, ne, 0);
    }
}

/* Bytes that no disk can make smaller; block scales are finite f16. */
static void fill(uint8_t *bytes, uint64_t n_bytes, uint64_t *state) {
    for (uint64_t i = 0; i + 8 <= n_bytes; i += 8) {
        *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(bytes + i, state, 8);
    }
    for (uint64_t i = 0; i + BLOCK_BYTES <= n_bytes; i += BLOCK_BYTES)
        bytes[i + 1] = bytes[i + 3] = 0x20;
}

static enum plec_status write_layers(struct plec_gguf_writer *writer, uint32_t n,
                                     struct plec_error *err) {
    uint64_t state = 1, expert = matrix_bytes() / EXPERTS, router = 4 * HIDDEN * EXPERTS;
    uint8_t *bytes = malloc((size_t)(expert > router ? expert : router));
    if (bytes == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "an expert");
    enum plec_status status = PLEC_OK;
    for (uint32_t layer = 0; status == PLEC_OK && layer < n; layer++) {
        memset(bytes, 0, (size_t)router);
        status = plec_gguf_writer_data(writer, bytes, router, err);
        for (int i = 0; status == PLEC_OK && i < 3 * EXPERTS; i++) {
            fill(bytes, expert, &state);
            status = plec_gguf_writer_data(writer, bytes, expert, err);
        }
    }
    free(bytes);
    return status;
}

static enum plec_status make_source(const struct bench *bench, struct plec_error *err) {
    uint32_t n = n_layers(bench);
    struct plec_gguf_writer *writer = plec_gguf_writer_new(32);
    if (writer == NULL) return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "a GGUF writer");
    plec_gguf_put_string(writer, "general.architecture", "llama");
    plec_gguf_put_u32(writer, "llama.block_count", n);
    plec_gguf_put_u32(writer, "llama.expert_count", EXPERTS);
    plec_gguf_put_u32(writer, "llama.expert_used_count", 4);
    for (uint32_t layer = 0; layer < n; layer++)
        put_layer(writer, layer);
    enum plec_status status = plec_gguf_writer_begin(writer, bench->source, err);
    if (status == PLEC_OK) status = write_layers(writer, n, err);
    if (status == PLEC_OK) status = plec_gguf_writer_finish(writer, false, err);
    plec_gguf_writer_free(writer);
    return status;
}

/* -- a turn ----------------------------------------------------------------------------------- */

/* Share of the file that is in the page cache; -1: not known. */
static double cached_share(int fd, uint64_t n_bytes) {
    long page = sysconf(_SC_PAGESIZE);
    size_t n_pages = (size_t)((n_bytes + (uint64_t)page - 1) / (uint64_t)page), there = 0;
    void *map = mmap(NULL, (size_t)n_bytes, PROT_READ, MAP_SHARED, fd, 0);
    unsigned char *resident = malloc(n_pages);
    double share = -1;
    if (map != MAP_FAILED && resident != NULL && mincore(map, (size_t)n_bytes, resident) == 0) {
        for (size_t i = 0; i < n_pages; i++)
            there += resident[i] & 1;
        share = (double)there / (double)n_pages;
    }
    free(resident);
    if (map != MAP_FAILED) munmap(map, (size_t)n_bytes);
    return share;
}

/* Everything written, nothing of the source cached; returns the share of it that still is. */
static double make_cold(const struct bench *bench, uint64_t n_bytes) {
    int fd = open(bench->source, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return -1;
    if (syncfs(fd) != 0) perror(bench->source);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    double share = cached_share(fd, n_bytes);
    int drop = share > 0.01 ? open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC) : -1;
    if (drop >= 0) {
        if (write(drop, "1", 1) != 1) perror("drop_caches");
        close(drop);
        share = cached_share(fd, n_bytes);
    }
    close(fd);
    return share;
}

static double run_line(char *const *line) {
    struct plec_run_cost cost = plec_measure_runs(line, 1, 0);
    if (cost.exit_status == 0) return cost.wall_ms;
    fprintf(stderr, "bench_convert: %s left with %d\n", line[0], cost.exit_status);
    exit(4);
}

static void remove_path(char *path) {
    char *const line[] = {"/bin/rm", "-rf", path, NULL};
    run_line(line);
}

/* Milliseconds until a copy is on the disk. */
static double copy_turn(struct bench *bench) {
    char *const copy[] = {"/bin/cp", bench->source, bench->copy, NULL};
    char *const to_disk[] = {"/bin/sync", bench->copy, NULL};
    double ms = run_line(copy);
    ms += run_line(to_disk);
    remove_path(bench->copy);
    return ms;
}

static double convert_turn(struct bench *bench) {
    char *line[MAX_EXTRA + 5] = {bench->tool, "convert"};
    int n = 2;
    for (int i = 0; i < bench->n_extra; i++)
        line[n++] = bench->extra[i];
    line[n++] = bench->source;
    line[n++] = bench->out;
    double ms = run_line(line);
    remove_path(bench->out);
    return ms;
}

/* -- the figures ------------------------------------------------------------------------------ */

static int ascending(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, ascending);
    return n % 2 != 0 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

static void measure(struct bench *bench, uint64_t n_bytes) {
    double copies[MAX_RUNS], conversions[MAX_RUNS], mb = (double)n_bytes * 1e-6;
    printf("source %.2f GB, %u layers of %d experts, q4_K\n", mb * 1e-3, n_layers(bench), EXPERTS);
    for (int i = 0; i < bench->n_runs; i++) {
        double cached[2];
        /* Who goes first alternates, so that neither always follows the other's writes. */
        for (int turn = 0; turn < 2; turn++) {
            bool copying = (i + turn) % 2 == 0;
            cached[copying] = make_cold(bench, n_bytes);
            double ms = copying ? copy_turn(bench) : convert_turn(bench);
            *(copying ? &copies[i] : &conversions[i]) = ms;
        }
        printf("turn %d  cp+sync %7.0f MB/s  convert %7.0f MB/s  (cached before: %.0f%%, %.0f%%)\n",
               i + 1, mb / copies[i] * 1e3, mb / conversions[i] * 1e3, cached[1] * 100,
               cached[0] * 100);
        fflush(stdout);
    }
    double copy_ms = median(copies, bench->n_runs), convert_ms = median(conversions, bench->n_runs);
    printf("median  cp+sync %7.0f MB/s  convert %7.0f MB/s  ratio %.2f\n", mb / copy_ms * 1e3,
           mb / convert_ms * 1e3, copy_ms / convert_ms);
}

static bool parse(struct bench *bench, int argc, char **argv) {
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--convert") == 0) {
            for (i++; i < argc && bench->n_extra < MAX_EXTRA; i++)
                bench->extra[bench->n_extra++] = argv[i];
            return i >= argc;
        }
        if (i + 1 >= argc) return false;
        if (strcmp(argv[i], "--dir") == 0)
            bench->dir = argv[++i];
        else if (strcmp(argv[i], "--gib") == 0)
            bench->gib = strtoull(argv[++i], NULL, 10);
        else if (strcmp(argv[i], "--runs") == 0)
            bench->n_runs = atoi(argv[++i]);
        else
            return false;
    }
    return bench->gib > 0 && bench->gib < 4096 && bench->n_runs > 0 && bench->n_runs <= MAX_RUNS;
}

int main(int argc, char **argv) {
    struct bench bench = {.dir = "/var/tmp", .gib = 4, .n_runs = 5};
    struct plec_error err;
    struct stat info;
    if (!parse(&bench, argc, argv)) {
        fprintf(stderr,
                "usage: bench_convert [--dir DIR] [--gib N] [--runs N] [--convert OPTIONS...]\n");
        return 2;
    }
    plec_measure_tool(bench.tool, sizeof bench.tool, argv[0]);
    snprintf(bench.root, sizeof bench.root, "%s/plectrum-bench-XXXXXX", bench.dir);
    if (mkdtemp(bench.root) == NULL) {
        perror(bench.root);
        return 4;
    }
    snprintf(bench.source, sizeof bench.source, "%s/source.gguf", bench.root);
    snprintf(bench.copy, sizeof bench.copy, "%s/copy.gguf", bench.root);
    snprintf(bench.out, sizeof bench.out, "%s/container", bench.root);
    int leave = 0;
    if (make_source(&bench, &err) != PLEC_OK || stat(bench.source, &info) != 0) {
        fprintf(stderr, "bench_convert: %s\n", err.message);
        leave = 4;
    } else {
        measure(&bench, (uint64_t)info.st_size);
    }
    remove_path(bench.root);
    return leave;
}
