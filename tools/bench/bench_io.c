/* bench_io.c: reads of extents through host/io beside fio with the same size, depth and mode, and,
 * from the page cache, beside a plain loop of pread; and what a read costs its caller.
 *
 * Runs take turns, so that what else the machine does meets all of them; medians are told. Every
 * byte read is checked. Usage: bench_io [FOLDER [MIB [ROUNDS]]]: where the file is made (the disk
 * that is measured; .), its size (1024) and how often each is run (5). Exit status 1 when a bound
 * is missed. With fio not installed its half is left out, and said to be.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "host/io.h"
#include "host/pinned.h"

enum { ROUNDS_MAX = 101, WINDOW = 64, WORD = 8, BOOKKEEPING_NS_MAX = 2000 };
static const uint64_t MIB = 1 << 20;

struct setup {
    const char *name;
    enum plec_io_engine engine;
    enum plec_io_cache cache;
    uint64_t extent_bytes, piece_bytes;
    uint32_t depth; /* pieces in flight; threads of pread */
    uint32_t shift; /* extents begin this far behind a block */
    double least;   /* of the peer */
};

static const struct setup direct_setups[] = {
    {"io_uring direct, extents of 2 MiB", PLEC_IO_URING, PLEC_CACHE_DIRECT, 2 << 20, 2 << 20, 16, 0,
     0.95},
    {"io_uring direct, extents of 16 MiB", PLEC_IO_URING, PLEC_CACHE_DIRECT, 16 << 20, 2 << 20, 16,
     0, 0.95},
    {"io_uring direct, 16 MiB at odd places", PLEC_IO_URING, PLEC_CACHE_DIRECT, 16 << 20, 2 << 20,
     16, 96, 0.95},
    {"pread direct, extents of 16 MiB", PLEC_IO_PREAD, PLEC_CACHE_DIRECT, 16 << 20, 2 << 20, 4, 0,
     0.95},
};
static const struct setup cached_setups[] = {
    {"auto, cached, extents of 16 MiB", PLEC_IO_AUTO, PLEC_CACHE_BUFFERED, 16 << 20, 2 << 20, 16, 0,
     1.0},
    {"pread cached, extents of 16 MiB", PLEC_IO_PREAD, PLEC_CACHE_BUFFERED, 16 << 20, 2 << 20, 4, 0,
     1.0},
    {"auto, cached, extents of 2 MiB", PLEC_IO_AUTO, PLEC_CACHE_BUFFERED, 2 << 20, 2 << 20, 16, 0,
     1.0},
};

struct bench {
    char path[4096];
    uint64_t n_bytes;
    int n_rounds;
    struct plec_pinned *pool; /* of WINDOW frames */
    uint64_t frame_bytes;
    bool have_fio;
    int n_missed;
};

static double seconds(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t word_at(uint64_t offset) {
    uint64_t x = offset / WORD * UINT64_C(0x9E3779B97F4A7C15);
    return x ^ (x >> 29);
}

static void fill(uint8_t *to, uint64_t offset, uint64_t n_bytes) {
    for (uint64_t i = 0; i < n_bytes; i += WORD) {
        uint64_t word = word_at(offset + i);
        memcpy(to + i, &word, WORD);
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, compare);
    return values[n / 2];
}

/* A permutation of [0, n): order in which extents are read. */
static uint64_t shuffled(uint64_t i, uint64_t n) {
    uint64_t step = n * 5 / 8 | 1;
    for (uint64_t a = step, b = n; b != 0;) {
        uint64_t rest = a % b;
        a = b, b = rest;
        if (b == 0 && a != 1) {
            step += 2;
            a = step, b = n;
        }
    }
    return i * step % n;
}

static bool make_file(struct bench *b, const char *folder) {
    snprintf(b->path, sizeof b->path, "%s/plectrum-bench-io-%d", folder, (int)getpid());
    int fd = open(b->path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    bool good = fd >= 0;
    for (uint64_t at = 0; good && at < b->n_bytes; at += MIB) {
        fill(plec_pinned_frame(b->pool, 0), at, MIB);
        good = write(fd, plec_pinned_frame(b->pool, 0), MIB) == (ssize_t)MIB;
    }
    good = good && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    if (!good) perror(b->path);
    return good;
}

static void drop_cache(const struct bench *b) {
    int fd = open(b->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return;
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
}

struct run {
    struct plec_io *io;
    uint64_t n_extents, n_done;
    bool busy[WINDOW]; /* a frame is read into */
    double caller_s;   /* processor time of submit and reap */
};

static struct plec_io_read extent_read(const struct bench *b, const struct setup *setup, uint64_t i,
                                       uint64_t n_extents) {
    uint64_t slot = i % WINDOW;
    return (struct plec_io_read){.offset =
                                     shuffled(i, n_extents) * setup->extent_bytes + setup->shift,
                                 .length = setup->extent_bytes - 2 * setup->shift,
                                 .to = (uint8_t *)plec_pinned_frame(b->pool, slot) + setup->shift,
                                 .user = i,
                                 .slack_before = setup->shift,
                                 .slack_after = setup->shift};
}

static bool check_extent(const struct bench *b, const struct setup *setup, uint64_t i,
                         uint64_t n_extents) {
    struct plec_io_read read = extent_read(b, setup, i, n_extents);
    for (uint64_t at = 0; at < read.length; at += WORD) {
        uint64_t word;
        memcpy(&word, (const uint8_t *)read.to + at, WORD);
        if (word != word_at(read.offset + at)) {
            fprintf(stderr, "bench_io: %s: byte %llu is wrong\n", setup->name,
                    (unsigned long long)(read.offset + at));
            return false;
        }
    }
    return true;
}

/* Reads every extent once, with as many under way as keep `depth` pieces busy. */
static bool read_all(const struct bench *b, const struct setup *setup, struct run *run) {
    struct plec_io_completion done[WINDOW];
    uint64_t pieces_each = (setup->extent_bytes - 1) / setup->piece_bytes + 1;
    uint64_t ahead = setup->depth / pieces_each + 2, n_taken = 0;
    if (ahead > WINDOW) ahead = WINDOW;
    while (run->n_done < run->n_extents) {
        double before = seconds(CLOCK_THREAD_CPUTIME_ID);
        while (n_taken < run->n_extents && n_taken - run->n_done < ahead &&
               !run->busy[n_taken % WINDOW]) {
            struct plec_io_read read = extent_read(b, setup, n_taken, run->n_extents);
            if (!plec_io_submit(run->io, &read)) break;
            run->busy[n_taken++ % WINDOW] = true;
        }
        size_t n = plec_io_reap(run->io, done, WINDOW, UINT32_MAX);
        run->caller_s += seconds(CLOCK_THREAD_CPUTIME_ID) - before;
        for (size_t i = 0; i < n; i++) {
            run->busy[done[i].user % WINDOW] = false;
            if (done[i].status == PLEC_OK || setup->least == 0) continue;
            fprintf(stderr, "bench_io: %s\n", done[i].error.message);
            return false;
        }
        run->n_done += n;
    }
    return true;
}

static struct plec_io_options options_of(const struct setup *setup) {
    return (struct plec_io_options){.engine = setup->engine,
                                    .cache = setup->cache,
                                    .queue_depth = setup->depth,
                                    .n_threads = setup->engine == PLEC_IO_PREAD ? setup->depth : 4,
                                    .piece_bytes = setup->piece_bytes};
}

static void register_frames(struct plec_io *io, const struct plec_pinned *pool) {
    struct plec_pinned_info info;
    plec_pinned_get_info(&info, pool);
    for (uint32_t i = 0; i < info.n_slabs; i++) {
        uint64_t n_bytes;
        void *memory = plec_pinned_slab(pool, i, &n_bytes);
        plec_io_register(io, memory, n_bytes);
    }
}

/* GB/s of one pass over the file; 0: it failed. */
static double run_ours(const struct bench *b, const struct setup *setup, double *caller_us,
                       const char **engine) {
    struct plec_io_options options = options_of(setup);
    struct plec_error err = {0};
    struct run run = {.n_extents = b->n_bytes / setup->extent_bytes};
    uint32_t file;
    if (plec_io_open(&run.io, &options, &err) != PLEC_OK ||
        plec_io_add_file(&file, run.io, b->path, &err) != PLEC_OK) {
        fprintf(stderr, "bench_io: %s\n", err.message);
        plec_io_close(run.io);
        return 0;
    }
    register_frames(run.io, b->pool);
    double started = seconds(CLOCK_MONOTONIC);
    bool good = read_all(b, setup, &run);
    double took = seconds(CLOCK_MONOTONIC) - started;
    struct plec_io_counters counters;
    plec_io_get_counters(&counters, run.io);
    plec_io_close(run.io);
    uint64_t kept = run.n_extents < WINDOW ? run.n_extents : WINDOW;
    for (uint64_t i = run.n_extents - kept; good && i < run.n_extents; i++)
        good = check_extent(b, setup, i, run.n_extents);
    *caller_us = run.caller_s * 1e6 / (double)run.n_extents;
    *engine = counters.engine;
    return good ? (double)counters.bytes * 1e-9 / took : 0;
}

/* GB/s that fio reads the same file at; 0: it failed. */
static double run_fio(const struct bench *b, const struct setup *setup) {
    char line[8192], out[4096] = "";
    bool uring = setup->engine != PLEC_IO_PREAD;
    snprintf(line, sizeof line,
             "fio --name=x --filename='%s' --readonly --rw=randread --bs=%llu --size=%llu "
             "--io_size=%llu --direct=1 --norandommap=0 --randrepeat=0 --output-format=terse "
             "--group_reporting %s --iodepth=%u --numjobs=%u 2>/dev/null",
             b->path, (unsigned long long)setup->piece_bytes, (unsigned long long)b->n_bytes,
             (unsigned long long)(uring ? b->n_bytes : b->n_bytes / setup->depth),
             uring ? "--ioengine=io_uring --fixedbufs=1 --registerfiles=1" : "--ioengine=psync",
             uring ? setup->depth : 1, uring ? 1 : setup->depth);
    FILE *pipe = popen(line, "r");
    if (pipe == NULL) return 0;
    char *got = fgets(out, sizeof out, pipe);
    if (pclose(pipe) != 0 || got == NULL) return 0;
    const char *field = out; /* the seventh: KiB/s read */
    for (int i = 0; i < 6 && field != NULL; i++)
        field = strchr(field + (i > 0), ';');
    return field == NULL ? 0 : strtod(field + 1, NULL) * 1024 * 1e-9;
}

/* GB/s of pread, one extent a call, in the same order into the same frames. */
static double run_pread_loop(const struct bench *b, const struct setup *setup) {
    uint64_t n_extents = b->n_bytes / setup->extent_bytes, n_bytes = 0;
    int fd = open(b->path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return 0;
    double started = seconds(CLOCK_MONOTONIC);
    for (uint64_t i = 0; i < n_extents; i++) {
        struct plec_io_read read = extent_read(b, setup, i, n_extents);
        for (uint64_t at = 0; at < read.length;) {
            ssize_t n =
                pread(fd, (uint8_t *)read.to + at, read.length - at, (off_t)(read.offset + at));
            if (n <= 0) break;
            at += (uint64_t)n;
            n_bytes += (uint64_t)n;
        }
    }
    double took = seconds(CLOCK_MONOTONIC) - started;
    close(fd);
    return (double)n_bytes * 1e-9 / took;
}

static void report(struct bench *b, const struct setup *setup, const char *engine, double ours,
                   const char *peer, double theirs, double ratio, double caller_us) {
    bool missed = theirs > 0 && ratio < setup->least;
    printf("%s\t%s\t%.3f\tGB/s\t%s\t%.3f\t%.3f\t%.2f\t%.1f%s\n", setup->name, engine, ours, peer,
           theirs, ratio, setup->least, caller_us, missed ? "\tMISSED" : "");
    fflush(stdout);
    if (missed) b->n_missed++;
}

/* Ours and the peer in turn; the ratio is the median of the rounds' own. */
static bool compare_with(struct bench *b, const struct setup *setup, const char *peer,
                         double (*run_peer)(const struct bench *, const struct setup *)) {
    double ours[ROUNDS_MAX], theirs[ROUNDS_MAX], ratios[ROUNDS_MAX], caller[ROUNDS_MAX];
    const char *engine = "";
    for (int i = 0; i < b->n_rounds; i++) {
        for (int turn = 0; turn < 2; turn++) {
            bool direct = setup->cache == PLEC_CACHE_DIRECT;
            if (direct) drop_cache(b);
            if ((turn + i) % 2 == 0)
                ours[i] = run_ours(b, setup, &caller[i], &engine);
            else
                theirs[i] = run_peer == NULL ? 0 : run_peer(b, setup);
        }
        if (ours[i] == 0) return false;
        ratios[i] = theirs[i] > 0 ? ours[i] / theirs[i] : 0;
    }
    report(b, setup, engine, median(ours, b->n_rounds), peer, median(theirs, b->n_rounds),
           median(ratios, b->n_rounds), median(caller, b->n_rounds));
    return true;
}

static int fail_at_once(void *user, uint32_t file, uint64_t offset, uint64_t length) {
    (void)user, (void)file, (void)offset, (void)length;
    return 5; /* any errno: nothing is read */
}

/* What a submit and a reap cost their caller beside the reading: of pread, whose threads read, with
 * pages of the cache; of io_uring, which would read within the submit, with reads that fail at
 * once (0.65 us of it are the text of the failure). */
static bool report_bookkeeping(struct bench *b, enum plec_io_engine engine, const char *name) {
    bool fails = engine == PLEC_IO_URING;
    enum plec_io_cache cache = fails ? PLEC_CACHE_DIRECT : PLEC_CACHE_BUFFERED;
    const struct setup setup = {name, engine, cache, 4096, 4096, 16, 0, 0};
    double costs[ROUNDS_MAX];
    for (int i = 0; i < b->n_rounds; i++) {
        struct plec_io_options options = options_of(&setup);
        struct plec_error err = {0};
        struct run run = {.n_extents = 100000};
        uint32_t file;
        if (fails) options.fault.before = fail_at_once;
        if (plec_io_open(&run.io, &options, &err) != PLEC_OK ||
            plec_io_add_file(&file, run.io, b->path, &err) != PLEC_OK ||
            !read_all(b, &setup, &run)) {
            fprintf(stderr, "bench_io: %s\n", err.message);
            plec_io_close(run.io);
            return false;
        }
        plec_io_close(run.io);
        costs[i] = run.caller_s * 1e9 / (double)run.n_extents;
    }
    double cost = median(costs, b->n_rounds);
    bool missed = cost > BOOKKEEPING_NS_MAX;
    printf("%s\t\t%.0f\tns of the caller a read of 4 KiB, submit and reap\t\t\t\t%d\t%s\n", name,
           cost, BOOKKEEPING_NS_MAX, missed ? "\tMISSED" : "");
    if (missed) b->n_missed++;
    return true;
}

static bool run_all(struct bench *b) {
    bool good = true;
    printf("what\tengine\tvalue\tunit\tpeer\tpeer_value\tratio\tleast\tcaller_us_an_extent\n");
    for (size_t i = 0; i < sizeof direct_setups / sizeof direct_setups[0] && good; i++)
        good = compare_with(b, &direct_setups[i], b->have_fio ? "fio" : "none",
                            b->have_fio ? run_fio : NULL);
    for (size_t i = 0; i < sizeof cached_setups / sizeof cached_setups[0] && good; i++) {
        run_pread_loop(b, &cached_setups[i]); /* into the cache */
        good = compare_with(b, &cached_setups[i], "pread loop", run_pread_loop);
    }
    return good && report_bookkeeping(b, PLEC_IO_URING, "bookkeeping, io_uring") &&
           report_bookkeeping(b, PLEC_IO_PREAD, "bookkeeping, pread");
}

int main(int argc, char **argv) {
    struct bench b = {.n_bytes = 1024 * MIB, .n_rounds = 5, .frame_bytes = 16 * MIB};
    if (argc > 2) b.n_bytes = strtoull(argv[2], NULL, 10) / 16 * 16 * MIB;
    if (argc > 3) b.n_rounds = atoi(argv[3]);
    if (b.n_bytes == 0 || b.n_rounds < 1 || b.n_rounds > ROUNDS_MAX) {
        fprintf(stderr, "usage: bench_io [FOLDER [MIB [ROUNDS]]]\n");
        return 2;
    }
    b.have_fio = system("fio --version >/dev/null 2>&1") == 0;
    if (!b.have_fio) fprintf(stderr, "bench_io: fio is not installed: nothing to compare with\n");
    struct plec_device *device;
    struct plec_error err = {0};
    const struct plec_pinned_options frames = {
        .frame_bytes = b.frame_bytes, .n_frames = WINDOW, .numa_node = -1};
    if (plec_device_open(&device, PLEC_DEVICE_CPU, NULL, &err) != PLEC_OK ||
        plec_pinned_open(&b.pool, device, &frames, &err) != PLEC_OK) {
        fprintf(stderr, "bench_io: %s\n", err.message);
        return 4;
    }
    struct plec_pinned_info info;
    plec_pinned_get_info(&info, b.pool);
    bool good = info.n_frames == WINDOW && make_file(&b, argc > 1 ? argv[1] : ".") && run_all(&b);
    if (info.n_frames < WINDOW) fprintf(stderr, "bench_io: too little memory: %s\n", info.limits);
    unlink(b.path);
    plec_pinned_close(b.pool);
    plec_device_close(device);
    if (!good) return 4;
    return b.n_missed > 0;
}
