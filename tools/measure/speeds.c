#include "tools/measure/speeds.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "host/budget.h"
#include "host/memory_limits.h"
#include "tools/measure/read_bandwidth.h"

/* --- the disk -------------------------------------------------------------------------------- */

enum { PLACES = 32, PLACE_BYTES = PLEC_BUDGET_PIECE_BYTES };
static const double half_a_second = 0.5;

/* Reads under way, each into a place of its own. */
struct reading {
    struct plec_io *io;
    uint8_t *memory; /* [PLACES, PLACE_BYTES + 2 blocks] */
    uint32_t free[PLACES], n_free;
    const struct plec_speed_reads *reads;
    size_t next;      /* range */
    uint64_t at;      /* within it */
    uint64_t n_bytes; /* arrived */
    uint64_t n_reads;
};

enum { BLOCK = PLEC_FRAME_ALIGNMENT, ROOM = PLACE_BYTES + 2 * BLOCK };

/* The next part of the next range that has bytes, into a free place. */
static bool submit_one(struct reading *reading) {
    while (reading->reads->ranges[reading->next].length == 0)
        reading->next = (reading->next + 1) % reading->reads->n;
    const struct plec_range *range = &reading->reads->ranges[reading->next];
    uint64_t left = range->length - reading->at, offset = range->offset + reading->at;
    uint64_t length = left < PLACE_BYTES ? left : PLACE_BYTES;
    uint32_t place = reading->free[reading->n_free - 1];
    struct plec_io_read read = {.file = range->file,
                                .offset = offset,
                                .length = length,
                                .to = reading->memory + (size_t)place * ROOM + offset % BLOCK,
                                .user = place,
                                .slack_before = (uint32_t)(offset % BLOCK),
                                .slack_after = (uint32_t)(-(offset + length) % BLOCK)};
    if (!plec_io_submit(reading->io, &read)) return false;
    reading->n_free--;
    reading->n_reads++;
    reading->at += length;
    if (length < left) return true;
    reading->at = 0;
    reading->next = (reading->next + 1) % reading->reads->n;
    return true;
}

static enum plec_status reap(struct reading *reading, const struct plec_speed_progress *progress,
                             struct plec_error *err) {
    struct plec_io_completion done[16];
    size_t n = plec_io_reap(reading->io, done, sizeof done / sizeof done[0], UINT32_MAX);
    enum plec_status status = PLEC_OK;
    for (size_t i = 0; i < n; i++) {
        reading->free[reading->n_free++] = (uint32_t)done[i].user;
        reading->n_bytes += done[i].n_bytes;
        if (progress != NULL) progress->tell(progress->user, done[i].n_bytes);
        if (done[i].status != PLEC_OK && status == PLEC_OK) {
            status = done[i].status;
            *err = done[i].error;
        }
    }
    return status;
}

/* Reads for half a second, and drains; seconds a read. */
static enum plec_status time_reads(double *seconds, double *bytes, struct reading *reading,
                                   const struct plec_speed_progress *progress,
                                   struct plec_error *err) {
    reading->next = 0;
    reading->at = reading->n_bytes = reading->n_reads = 0;
    enum plec_status status = PLEC_OK;
    double started = plec_bench_now();
    do {
        while (status == PLEC_OK && reading->n_free > 0 && submit_one(reading))
            ;
        status = reap(reading, progress, err);
    } while (status == PLEC_OK && plec_bench_now() - started < half_a_second);
    while (reading->n_free < PLACES) {
        struct plec_error later;
        enum plec_status drained = reap(reading, progress, &later);
        if (status == PLEC_OK && drained != PLEC_OK) {
            status = drained;
            *err = later;
        }
    }
    *seconds = (plec_bench_now() - started) / (double)reading->n_reads;
    *bytes = (double)reading->n_bytes / (double)reading->n_reads;
    return status;
}

/* Two lines through two points: seconds = read_s + bytes / bytes_per_s. */
static void solve(struct plec_disk_speed *out, double small_s, double small_bytes, double large_s,
                  double large_bytes) {
    double slope =
        large_bytes > 1.5 * small_bytes ? (large_s - small_s) / (large_bytes - small_bytes) : 0;
    double rest = small_s - slope * small_bytes;
    out->read_s = slope > 0 && rest > 0 ? rest : 0;
    out->bytes_per_s = out->read_s > 0 ? 1 / slope : large_bytes / large_s;
}

static enum plec_status open_files(struct plec_io **io, const struct plec_disk_args *args,
                                   struct plec_error *err) {
    enum plec_status status = plec_io_open(io, &args->io, err);
    for (uint32_t i = 0; status == PLEC_OK && i < args->n_files; i++) {
        uint32_t file; /* counts from 0, as they do */
        status = plec_io_add_file(&file, *io, args->path(args->user, i), err);
    }
    return status;
}

static enum plec_status measure_reads_of(struct plec_disk_speed *out, struct reading *reading,
                                         const struct plec_disk_args *args,
                                         const struct plec_speed_progress *progress,
                                         struct plec_error *err) {
    double small_s = 0, small_bytes = 0, large_s = 0, large_bytes = 0;
    plec_io_register(reading->io, reading->memory, (uint64_t)PLACES * ROOM);
    reading->reads = &args->small;
    enum plec_status status = time_reads(&small_s, &small_bytes, reading, progress, err);
    out->n_bytes = reading->n_bytes;
    reading->reads = &args->large;
    if (status == PLEC_OK) status = time_reads(&large_s, &large_bytes, reading, progress, err);
    out->n_bytes += reading->n_bytes;
    struct plec_io_counters counters;
    plec_io_get_counters(&counters, reading->io);
    out->engine = counters.engine;
    out->cache = counters.cache;
    if (status == PLEC_OK) solve(out, small_s, small_bytes, large_s, large_bytes);
    return status;
}

static bool has_bytes(const struct plec_speed_reads *reads) {
    size_t i = 0;
    while (i < reads->n && reads->ranges[i].length == 0)
        i++;
    return i < reads->n;
}

enum plec_status plec_measure_disk(struct plec_disk_speed *out, const struct plec_disk_args *args,
                                   const struct plec_speed_progress *progress,
                                   struct plec_error *err) {
    *out = (struct plec_disk_speed){0};
    if (!has_bytes(&args->small) || !has_bytes(&args->large))
        return plec_fail(err, PLEC_BAD_INPUT, "NothingToRead", "there is nothing to read");
    struct reading reading = {.n_free = PLACES};
    for (uint32_t i = 0; i < PLACES; i++)
        reading.free[i] = i;
    void *memory = NULL;
    if (posix_memalign(&memory, BLOCK, (size_t)PLACES * ROOM) != 0)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "room to read into");
    memset(memory, 0, (size_t)PLACES * ROOM);
    reading.memory = memory;
    enum plec_status status = open_files(&reading.io, args, err);
    if (status == PLEC_OK) status = measure_reads_of(out, &reading, args, progress, err);
    plec_io_close(reading.io); /* before the memory that it has registered */
    free(memory);
    return status;
}

/* --- link and memory ------------------------------------------------------------------------- */

enum { COPIED = 32 << 20, COPY_PIECE = 4 << 20, COPIES = 7 };

static enum plec_status copy_all(uint8_t *to, const uint8_t *from, struct plec_stream *stream,
                                 struct plec_error *err) {
    enum plec_status status = PLEC_OK;
    for (size_t at = 0; status == PLEC_OK && at < COPIED; at += COPY_PIECE)
        status = plec_copy(to + at, from + at, COPY_PIECE, stream, err);
    return status == PLEC_OK ? plec_stream_sync(stream, err) : status;
}

/* The median of several copies, bytes a second; the first one touches the memory and is no time. */
static enum plec_status time_copies(double *bytes_per_s, uint8_t *to, const uint8_t *from,
                                    struct plec_stream *stream, struct plec_error *err) {
    double rates[COPIES];
    enum plec_status status = copy_all(to, from, stream, err);
    for (int i = 0; status == PLEC_OK && i < COPIES; i++) {
        double started = plec_bench_now();
        status = copy_all(to, from, stream, err);
        rates[i] = COPIED / (plec_bench_now() - started);
    }
    if (status == PLEC_OK) *bytes_per_s = plec_bench_median(rates, COPIES);
    return status;
}

static enum plec_status measure_copies(double *bytes_per_s, struct plec_device *device,
                                       bool from_host, struct plec_error *err) {
    void *from = NULL, *to = NULL;
    struct plec_stream *stream = NULL;
    *bytes_per_s = 0;
    enum plec_status status = from_host ? plec_pinned_alloc(&from, device, COPIED, err)
                                        : plec_device_alloc(&from, device, COPIED, err);
    if (status == PLEC_OK) status = plec_device_alloc(&to, device, COPIED, err);
    if (status == PLEC_OK) status = plec_stream_open(&stream, device, err);
    if (status == PLEC_OK) status = plec_fill(to, 0, COPIED, stream, err);
    if (status == PLEC_OK && from_host) memset(from, 1, COPIED);
    if (status == PLEC_OK && !from_host) status = plec_fill(from, 1, COPIED, stream, err);
    if (status == PLEC_OK) status = time_copies(bytes_per_s, to, from, stream, err);
    if (stream != NULL) plec_stream_close(stream);
    plec_device_free(device, to);
    if (from_host)
        plec_pinned_free(device, from);
    else
        plec_device_free(device, from);
    return status;
}

enum plec_status plec_measure_link(double *bytes_per_s, struct plec_device *device,
                                   struct plec_error *err) {
    return measure_copies(bytes_per_s, device, true, err);
}

/* Far larger than the last-level cache, and no more than a quarter of what is left. */
static size_t reading_bytes(void) {
    struct plec_memory_limits limits;
    plec_memory_limits_read(&limits, "");
    uint64_t wanted = 4 * plec_measure_cache_bytes(), left = plec_memory_limits_left(&limits) / 4;
    if (wanted < UINT64_C(256) << 20) wanted = UINT64_C(256) << 20;
    if (wanted > UINT64_C(2) << 30) wanted = UINT64_C(2) << 30;
    return (size_t)(wanted < left ? wanted : left) / 4096 * 4096;
}

static enum plec_status measure_reads(double *bytes_per_s, uint32_t n_threads,
                                      struct plec_error *err) {
    enum { RUNS = 5 };
    size_t n_bytes = reading_bytes();
    void *memory = NULL;
    if (n_bytes == 0 || posix_memalign(&memory, 4096, n_bytes) != 0)
        return plec_fail(err, PLEC_NO_MEMORY, "OutOfMemory", "%zu bytes to read", n_bytes);
    memset(memory, 1, n_bytes);
    double rates[RUNS];
    for (int i = 0; i < RUNS; i++)
        rates[i] = plec_bench_read_bandwidth(memory, n_bytes, n_threads);
    free(memory);
    *bytes_per_s = plec_bench_median(rates, RUNS);
    if (*bytes_per_s > 0) return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "ThreadNotStarted", "%u threads to read memory",
                     n_threads);
}

enum plec_status plec_measure_memory(double *bytes_per_s, struct plec_device *device,
                                     struct plec_error *err) {
    struct plec_device_info info;
    plec_device_get_info(&info, device);
    if (info.kind == PLEC_DEVICE_CPU) return measure_reads(bytes_per_s, info.n_threads, err);
    enum plec_status status = measure_copies(bytes_per_s, device, false, err);
    *bytes_per_s *= 2;
    return status;
}

/* "32768K" of one cache of processor 0; 0: none. */
static uint64_t read_cache_size(int index) {
    char path[96];
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/size", index);
    FILE *file = fopen(path, "r");
    if (file == NULL) return 0;
    unsigned long long n = 0;
    char unit = 0;
    int found = fscanf(file, "%llu%c", &n, &unit);
    fclose(file);
    if (found < 1) return 0;
    return unit == 'K' ? n << 10 : unit == 'M' ? n << 20 : n;
}

uint64_t plec_measure_cache_bytes(void) {
    uint64_t most = 0;
    for (int i = 0; i < 8; i++) {
        uint64_t size = read_cache_size(i);
        if (size > most) most = size;
    }
    if (most > 0) return most;
    /* The C library asks the processor, which in a virtual machine speaks of all its cores. */
    long told = sysconf(_SC_LEVEL3_CACHE_SIZE);
    return told > 0 ? (uint64_t)told : 0;
}
