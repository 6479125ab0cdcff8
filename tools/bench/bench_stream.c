/* bench_stream.c: the engine of streaming on a container: how much of reading, copying and
 * computing goes on at once when the future is known, in real time on a disk, a link and a compute
 * stream of set speed; and what the engine costs the host, an extent.
 *
 * Usage: bench_stream CONTAINER [ROUNDS [overlap|host]]     (all routed layers; experts are
 * compared with the file's bytes where that is not timed, and other bytes are no result)
 */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "host/streamer.h"

enum { MAX_LAYERS = 256, MAX_ROUNDS = 101, HOST_NS_MAX = 2000 };
static const double OVERLAP_MAX = 1.03;

struct bench {
    struct plec_container *container;
    struct plec_bound_layer bound[MAX_LAYERS];
    struct plec_streamer_layer layers[MAX_LAYERS];
    uint32_t n_layers, n_experts; /* of all layers */
    uint32_t most_experts;        /* of one layer */
    int32_t *ids;                 /* [most_experts] 0, 1, ... */
    int n_rounds, n_missed;
};

struct machine;
/* Experts that arrived together, for the compute stream. */
struct part {
    struct machine *machine;
    uint32_t n_experts;
};

/* What a streamer runs on. */
struct machine {
    struct plec_device *device;
    struct plec_stream *compute;
    struct plec_streamer *streamer;
    uint64_t compute_ns; /* an expert; 0: none is simulated */
    uint64_t free_ns;    /* of the compute stream */
    struct part *parts;  /* of a dispatch [most experts of a layer] */
};

static uint64_t now_ns(clockid_t clock) {
    struct timespec now;
    clock_gettime(clock, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static bool failed(const char *what, enum plec_status status, const struct plec_error *err) {
    if (status != PLEC_OK) fprintf(stderr, "bench_stream: %s: %s\n", what, err->message);
    return status != PLEC_OK;
}

/* --- opening --------------------------------------------------------------------------------- */

static bool open_layers(struct bench *b, const char *path) {
    struct plec_error err;
    if (failed(path, plec_container_open(&b->container, path, NULL, &err), &err)) return false;
    for (size_t i = 0; i < plec_container_n_layers(b->container) && b->n_layers < MAX_LAYERS; i++) {
        struct plec_layer_info info;
        plec_container_layer_info(&info, b->container, i);
        if (info.dense) continue;
        struct plec_bound_layer *bound = &b->bound[b->n_layers];
        if (failed(path, plec_container_bind(bound, b->container, info.layer, &err), &err))
            return false;
        uint32_t n = bound->layer.routed.n_entries;
        b->layers[b->n_layers++] = (struct plec_streamer_layer){info.layer, &bound->layer.routed};
        b->n_experts += n;
        if (n > b->most_experts) b->most_experts = n;
    }
    b->ids = calloc(b->most_experts + (size_t)1, sizeof *b->ids);
    for (uint32_t e = 0; b->ids != NULL && e < b->most_experts; e++)
        b->ids[e] = (int32_t)e;
    if (b->n_layers == 0) fprintf(stderr, "bench_stream: %s: no routed layers\n", path);
    return b->n_layers > 0 && b->ids != NULL;
}

static bool open_machine(struct machine *out, const struct bench *b,
                         const struct plec_stream_options *options) {
    struct plec_error err;
    const struct plec_device_options device = {.simulation = options->simulation};
    struct plec_streamer_args args = {.container = b->container,
                                      .layers = b->layers,
                                      .n_layers = b->n_layers,
                                      .options = options};
    if (failed("device", plec_device_open(&out->device, PLEC_DEVICE_CPU, &device, &err), &err) ||
        failed("stream", plec_stream_open(&out->compute, out->device, &err), &err))
        return false;
    out->parts = calloc(b->most_experts, sizeof *out->parts);
    if (out->parts == NULL) return false;
    args.device = out->device;
    return !failed("streamer", plec_streamer_open(&out->streamer, &args, &err), &err);
}

static void close_machine(struct machine *machine) {
    plec_streamer_close(machine->streamer);
    if (machine->compute != NULL) plec_stream_close(machine->compute);
    plec_device_close(machine->device);
    free(machine->parts);
}

/* --- dispatches ------------------------------------------------------------------------------ */

/* On the compute stream: takes as long as the part's experts do. */
static enum plec_status compute_part(void *user, struct plec_error *err) {
    const struct part *part = user;
    struct machine *machine = part->machine;
    uint64_t now = now_ns(CLOCK_MONOTONIC);
    (void)err;
    if (machine->free_ns < now) machine->free_ns = now;
    machine->free_ns += part->n_experts * machine->compute_ns;
    struct timespec until = {(time_t)(machine->free_ns / 1000000000),
                             (long)(machine->free_ns % 1000000000)};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
    return PLEC_OK;
}

static bool same(const uint8_t *a, const uint8_t *b, uint64_t n) {
    return b == NULL || n == 0 || memcmp(a, b, n) == 0;
}

/* Whether an expert handed out has the bytes of the file: values, scales and biases. */
static bool same_bytes(const struct bench *b, uint32_t layer, uint32_t expert,
                       const struct plec_bank *bank) {
    const struct plec_bank *file = b->layers[layer].bank;
    const struct plec_entry *had = &bank->entries[expert], *wanted = &file->entries[expert];
    for (int id = 0; id < PLEC_N_OPERANDS; id++) {
        const struct plec_operand *operand = &file->operands[id];
        uint64_t values, scales;
        if (wanted->values[id] == NULL) continue;
        if (plec_format_size(&values, &scales, operand->format, operand->rows, operand->cols,
                             NULL) != PLEC_OK)
            return false;
        if (!same(had->values[id], wanted->values[id], values)) return false;
        if (id < PLEC_N_MATRICES && !same(had->scales[id], wanted->scales[id], scales))
            return false;
    }
    return true;
}

static bool all_same_bytes(const struct bench *b, uint32_t layer,
                           const struct plec_stream_part *part, const struct plec_bank *bank) {
    for (uint32_t i = 0; i < part->n_experts; i++)
        if (!same_bytes(b, layer, part->experts[i], bank)) {
            fprintf(stderr, "bench_stream: expert %u of layer %u has other bytes than the file's\n",
                    part->experts[i], b->layers[layer].number);
            return false;
        }
    return true;
}

/* All experts of a layer, from begin to end; the bytes of those that were handed out are looked at
 * when `check`. */
static bool dispatch(const struct bench *b, struct machine *machine, uint32_t layer, bool check) {
    struct plec_error err;
    const struct plec_bank *bank;
    uint32_t n = b->layers[layer].bank->n_entries, n_had = 0;
    struct plec_dispatch_args args = {.layer = layer, .ids = b->ids, .n_ids = n};
    struct plec_stream_part part;
    bool right = true;
    plec_streamer_begin(&bank, machine->streamer, &args);
    enum plec_status status = plec_streamer_next(&part, machine->streamer, &err);
    for (uint32_t i = 0; status == PLEC_OK && part.n_experts > 0; i++) {
        right = right && (!check || all_same_bytes(b, layer, &part, bank));
        n_had += part.n_experts;
        machine->parts[i] = (struct part){machine, part.n_experts};
        if (machine->compute_ns > 0)
            status = plec_stream_call(machine->compute, compute_part, &machine->parts[i], &err);
        if (status == PLEC_OK)
            status = plec_streamer_used(machine->streamer, machine->compute, &err);
        if (status == PLEC_OK) status = plec_streamer_next(&part, machine->streamer, &err);
    }
    plec_streamer_end(machine->streamer);
    return !failed("dispatch", status, &err) && right && n_had == n;
}

static bool pass(const struct bench *b, struct machine *machine, bool check) {
    bool good = true;
    for (uint32_t i = 0; good && i < b->n_layers; i++)
        good = dispatch(b, machine, i, check);
    return good;
}

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}
static double median(double *values, int n) {
    qsort(values, (size_t)n, sizeof *values, by_value);
    return values[n / 2];
}

/* --- overlap --------------------------------------------------------------------------------- */

/* Seconds a pass over all layers takes in each of the three alone. */
struct speeds {
    const char *name;
    double read_s, copy_s, compute_s;
};
static const struct speeds speeds[] = {{"bound by the disk", 2, 1, 1},
                                       {"bound by the link", 1, 2, 1},
                                       {"bound by computing", 1, 1, 2},
                                       {"all alike", 2, 2, 2}};

/* A quarter of the layers' extents fits; what is read is in the cache of pages. */
static bool time_pass(double *took_s, double *extent_s, const struct bench *b,
                      const struct speeds *at, const struct plec_stream_stats *all) {
    struct plec_simulation simulation = {.copy_bytes_per_s =
                                             (uint64_t)((double)all->weight_bytes / at->copy_s)};
    uint64_t rate = (uint64_t)((double)all->weight_bytes / at->read_s);
    struct plec_stream_options options = {.device_budget = all->n_keys / 4 * all->frame_bytes,
                                          .extent_width = 4,
                                          .speculation = PLEC_SPECULATE_OFF,
                                          .disk_bytes_per_s = rate,
                                          .simulation = &simulation};
    struct machine machine = {.compute_ns = (uint64_t)(at->compute_s * 1e9 / b->n_experts)};
    bool good = open_machine(&machine, b, &options);
    uint64_t start = now_ns(CLOCK_MONOTONIC);
    good = good && pass(b, &machine, false);
    *took_s = (double)(now_ns(CLOCK_MONOTONIC) - start) * 1e-9;
    *extent_s = (double)all->frame_bytes / (double)all->weight_bytes *
                (at->read_s + at->copy_s + at->compute_s);
    close_machine(&machine);
    return good;
}

static bool report_overlap(struct bench *b, const struct plec_stream_stats *all) {
    double took[MAX_ROUNDS], extent_s = 0;
    for (size_t s = 0; s < sizeof speeds / sizeof speeds[0]; s++) {
        const struct speeds *at = &speeds[s];
        double most = at->read_s > at->copy_s ? at->read_s : at->copy_s;
        if (at->compute_s > most) most = at->compute_s;
        for (int i = 0; i < b->n_rounds; i++)
            if (!time_pass(&took[i], &extent_s, b, at, all)) return false;
        double best = median(took, b->n_rounds), allowed = OVERLAP_MAX * most + extent_s;
        printf("%s\t%.4f\ts\t%.4f\t%.3f%s\n", at->name, best, allowed, best / allowed,
               best > allowed ? "\tMISSED" : "");
        b->n_missed += best > allowed;
    }
    return true;
}

/* --- what it costs the host ------------------------------------------------------------------ */

/* Processor time, in nanoseconds: all of it, and what was not the kernel's. */
struct spent {
    double all_ns, user_ns;
};

/* Adds a task's, by its folder in /proc. */
static void add_task(struct spent *spent, const char *folder) {
    char path[600], text[1024] = "";
    unsigned long user = 0, system = 0;
    snprintf(path, sizeof path, "%s/stat", folder);
    FILE *file = fopen(path, "r");
    if (file != NULL && fgets(text, sizeof text, file) == NULL) text[0] = 0;
    if (file != NULL) fclose(file);
    const char *fields = strrchr(text, ')'); /* state is the third field, utime the fourteenth */
    if (fields == NULL || sscanf(fields + 2, "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu",
                                 &user, &system) != 2)
        return;
    double tick_ns = 1e9 / (double)sysconf(_SC_CLK_TCK);
    spent->user_ns += (double)user * tick_ns;
    spent->all_ns += (double)(user + system) * tick_ns;
}

/* What the calling thread and the streamer's own have used. */
static struct spent scheduling_spent(void) {
    struct spent spent = {0};
    DIR *tasks = opendir("/proc/self/task");
    for (struct dirent *task; tasks != NULL && (task = readdir(tasks)) != NULL;) {
        char path[512], name[32] = "";
        snprintf(path, sizeof path, "/proc/self/task/%s/comm", task->d_name);
        FILE *file = fopen(path, "r");
        if (file == NULL) continue;
        bool ours = fgets(name, sizeof name, file) != NULL &&
                    (strncmp(name, "plec-streamer", 13) == 0 || atoi(task->d_name) == getpid());
        fclose(file);
        snprintf(path, sizeof path, "/proc/self/task/%s", task->d_name);
        if (ours) add_task(&spent, path);
    }
    if (tasks != NULL) closedir(tasks);
    return spent;
}

/* Processor time of the calling thread and the streamer's own, an extent of one expert; reading,
 * copying and computing are other threads'. Without hits there are slots for three eighths of a
 * layer: each pass finds next to nothing of the one before. */
static bool time_host(struct spent *cost, const struct bench *b,
                      const struct plec_stream_stats *all, bool hits) {
    uint64_t all_slots = UINT64_C(1) << 40, slots = all->frame_bytes * b->most_experts * 3 / 8;
    struct plec_stream_options options = {.device_budget = hits ? all_slots : slots,
                                          .extent_width = 1,
                                          .speculation = PLEC_SPECULATE_OFF,
                                          .io_engine = PLEC_IO_PREAD,
                                          .io_cache = PLEC_CACHE_BUFFERED};
    struct machine machine = {0};
    bool good = open_machine(&machine, b, &options) && pass(b, &machine, true);
    struct spent start = scheduling_spent();
    int n_passes = hits ? 20000 : 1000;
    for (int i = 0; good && i < n_passes; i++)
        good = pass(b, &machine, false);
    struct spent end = scheduling_spent();
    cost->all_ns = (end.all_ns - start.all_ns) / n_passes / b->n_experts;
    cost->user_ns = (end.user_ns - start.user_ns) / n_passes / b->n_experts;
    if (good) {
        struct plec_stream_stats stats;
        plec_streamer_get_stats(&stats, machine.streamer);
        uint64_t wanted = (uint64_t)n_passes * b->n_experts;
        good = (hits ? stats.device_hits : stats.device.loaded) >= wanted * 3 / 4;
        if (!good) fprintf(stderr, "bench_stream: the counters do not add up\n");
    }
    close_machine(&machine);
    return good;
}

static bool report_host(struct bench *b, const struct plec_stream_stats *all, bool hits,
                        const char *name) {
    double user[MAX_ROUNDS], whole[MAX_ROUNDS];
    for (int i = 0; i < b->n_rounds; i++) {
        struct spent cost;
        if (!time_host(&cost, b, all, hits)) return false;
        user[i] = cost.user_ns;
        whole[i] = cost.all_ns;
    }
    double cost = median(user, b->n_rounds);
    printf("%s\t%.0f\tns an extent, %.0f with the kernel's\t%d\t%.3f%s\n", name, cost,
           median(whole, b->n_rounds), HOST_NS_MAX, cost / HOST_NS_MAX,
           cost > HOST_NS_MAX ? "\tMISSED" : "");
    b->n_missed += cost > HOST_NS_MAX;
    return true;
}

/* --- all of it ------------------------------------------------------------------------------- */

static bool measure(struct plec_stream_stats *out, const struct bench *b) {
    struct plec_stream_options options = {.device_budget = UINT64_C(1) << 40, .extent_width = 4};
    struct machine machine = {0};
    bool good = open_machine(&machine, b, &options) && pass(b, &machine, true);
    if (good) plec_streamer_get_stats(out, machine.streamer);
    close_machine(&machine);
    return good;
}

int main(int argc, char **argv) {
    static struct bench b = {.n_rounds = 5};
    const char *half = argc > 3 ? argv[3] : "both";
    bool overlap = strcmp(half, "host") != 0, host = strcmp(half, "overlap") != 0;
    if (argc > 2) b.n_rounds = atoi(argv[2]);
    if (argc < 2 || b.n_rounds < 1 || b.n_rounds > MAX_ROUNDS) {
        fprintf(stderr, "usage: bench_stream CONTAINER [ROUNDS [overlap|host]]\n");
        return 2;
    }
    struct plec_stream_stats all;
    bool good = open_layers(&b, argv[1]) && measure(&all, &b);
    if (good) printf("what\tvalue\tunit\tallowed\tratio\n");
    good = good && (!overlap || report_overlap(&b, &all));
    good = good && (!host || (report_host(&b, &all, true, "host cost, experts in their slots") &&
                              report_host(&b, &all, false, "host cost, experts read and copied")));
    for (uint32_t i = 0; i < b.n_layers; i++)
        plec_bound_layer_close(&b.bound[i]);
    plec_container_close(b.container);
    free(b.ids);
    if (!good) return 4;
    return b.n_missed > 0;
}
