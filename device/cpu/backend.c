/* backend.c: the CPU device: opening, memory, copies, and its table for device.c. */
#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "device/cpu/cpu.h"
#include "device/cpu/kernel.h"

enum { PAGE = 4096, HUGE_PAGE = 2 << 20 };

static uint32_t processors_available(void) {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return (uint32_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN);
    return n < 1 ? 1 : (uint32_t)n;
}

static uint32_t in_range(uint32_t wanted, uint32_t otherwise, uint32_t most) {
    uint32_t n = wanted != 0 ? wanted : otherwise;
    return n < most ? n : most;
}

static enum plec_cpu_set choose_kernels(const struct plec_device_options *options) {
    enum plec_cpu_set best = plec_cpu_detect();
    if (options->plain_c) return PLEC_CPU_PLAIN_C;
    if (options->vector_bits != 0 && options->vector_bits < 512 && best > PLEC_CPU_AVX2)
        return PLEC_CPU_AVX2;
    return best;
}

/* Two rungs by name: the widest vectors, or none. */
static enum plec_status check_rung(struct plec_device_options *options, struct plec_error *err) {
    const char *rung = options->rung != NULL ? options->rung : "auto";
    options->plain_c = options->plain_c || strcmp(rung, "plain") == 0;
    if (strcmp(rung, "auto") == 0 || strcmp(rung, "plain") == 0) return PLEC_OK;
    return plec_fail(err, PLEC_UNSUPPORTED, "NoSuchRung",
                     "no kernels of the CPU are called %s: there are auto, plain", rung);
}

static enum plec_status cpu_open(struct plec_device **out, const struct plec_device_options *given,
                                 struct plec_error *err) {
    struct plec_device_options own = *given, *options = &own;
    enum plec_status status = check_rung(options, err);
    if (status != PLEC_OK) return status;
    struct plec_cpu_device *device = calloc(1, sizeof *device);
    if (device == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "the CPU device");
    device->base.backend = &plec_cpu_backend;
    device->n_threads = in_range(options->n_threads, processors_available(), PLEC_CPU_THREADS_MAX);
    device->queue_capacity =
        in_range(options->queue_capacity, PLEC_CPU_QUEUE_DEFAULT, PLEC_CPU_QUEUE_MAX);
    device->kernels = choose_kernels(options);
    status = plec_cpu_pool_open(&device->pool, device->n_threads, err);
    if (status != PLEC_OK) {
        free(device);
        return status;
    }
    pthread_mutex_init(&device->mutex, NULL);
    pthread_mutex_init(&device->link, NULL);
    if (options->simulation != NULL) device->simulation = *options->simulation;
    device->probe = options->probe;
    *out = &device->base;
    return PLEC_OK;
}

static void cpu_get_info(struct plec_device_info *out, const struct plec_device *base) {
    const struct plec_cpu_device *device = (const struct plec_cpu_device *)base;
    long pages = sysconf(_SC_PHYS_PAGES), page_bytes = sysconf(_SC_PAGESIZE);
    memset(out, 0, sizeof *out);
    out->kind = PLEC_DEVICE_CPU;
    out->n_threads = device->n_threads;
    out->numa_node = -1;
    if (pages > 0 && page_bytes > 0) out->memory_bytes = (uint64_t)pages * (uint64_t)page_bytes;
    snprintf(out->name, sizeof out->name, "CPU, %u thread%s, %s", device->n_threads,
             device->n_threads == 1 ? "" : "s", plec_cpu_set_name(device->kernels));
}

static void cpu_close(struct plec_device *base) {
    struct plec_cpu_device *device = (struct plec_cpu_device *)base;
    assert(atomic_load(&device->n_open) == 0);
    while (device->free_streams != NULL) {
        struct plec_cpu_stream *stream = device->free_streams;
        device->free_streams = stream->next_free;
        plec_cpu_stream_release(stream);
    }
    pthread_mutex_destroy(&device->link);
    pthread_mutex_destroy(&device->mutex);
    plec_cpu_pool_close(&device->pool);
    free(device);
}

/* Large blocks start on a huge page and ask for huge pages: weights are read in long runs. */
static enum plec_status cpu_alloc(void **out, struct plec_device *base, uint64_t n_bytes,
                                  struct plec_error *err) {
    const struct plec_simulation *simulation = &((struct plec_cpu_device *)base)->simulation;
    *out = NULL;
    if (simulation->fail_alloc != NULL && simulation->fail_alloc(simulation->user, n_bytes))
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory",
                         "wanted %llu bytes of a device told to refuse them",
                         (unsigned long long)n_bytes);
    void *memory = NULL;
    size_t alignment = n_bytes >= 2 * HUGE_PAGE ? HUGE_PAGE : PAGE;
    if (n_bytes > SIZE_MAX - HUGE_PAGE ||
        posix_memalign(&memory, alignment, n_bytes == 0 ? 1 : (size_t)n_bytes) != 0)
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "wanted %llu bytes",
                         (unsigned long long)n_bytes);
    if (alignment == HUGE_PAGE) madvise(memory, (size_t)n_bytes, MADV_HUGEPAGE);
    *out = memory;
    return PLEC_OK;
}

static void cpu_free(struct plec_device *device, void *memory) {
    (void)device;
    free(memory);
}

/* Locked in memory: what a copy engine needs, and the limit it meets, without the engine. */
static enum plec_status cpu_pin(struct plec_device *device, void *memory, uint64_t n_bytes,
                                struct plec_error *err) {
    (void)device;
    if (mlock(memory, (size_t)n_bytes) == 0) return PLEC_OK;
    int reason = errno;
    munlock(memory, (size_t)n_bytes);
    return plec_fail(err, PLEC_NO_MEMORY, "PinRefused", "mlock of %llu bytes: %s",
                     (unsigned long long)n_bytes, strerror(reason));
}

static void cpu_unpin(struct plec_device *device, void *memory, uint64_t n_bytes) {
    (void)device;
    munlock(memory, (size_t)n_bytes);
}

struct copy_args {
    void *to;
    const void *from;
    uint64_t n_bytes;
};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

/* Waits for a simulated link's turn, and for as long as it takes. */
static void cross_link(struct plec_cpu_device *device, uint64_t n_bytes) {
    const struct plec_simulation *simulation = &device->simulation;
    if (simulation->copy_bytes_per_s == 0 && simulation->copy_latency_ns == 0) return;
    uint64_t now = now_ns(), took = simulation->copy_latency_ns;
    if (simulation->copy_bytes_per_s != 0)
        took += (uint64_t)((double)n_bytes * 1e9 / (double)simulation->copy_bytes_per_s);
    pthread_mutex_lock(&device->link);
    uint64_t start = device->link_free_ns > now ? device->link_free_ns : now, end = start + took;
    device->link_free_ns = end;
    pthread_mutex_unlock(&device->link);
    struct timespec until = {(time_t)(end / 1000000000), (long)(end % 1000000000)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL) == EINTR)
        continue;
}

static enum plec_status run_copy(struct plec_cpu_stream *stream, const void *args,
                                 struct plec_error *err) {
    const struct copy_args *copy = args;
    const struct plec_simulation *simulation = &stream->device->simulation;
    if (simulation->fail_copy != NULL &&
        simulation->fail_copy(simulation->user, copy->to, copy->n_bytes))
        return plec_fail(err, PLEC_NO_DEVICE, "CopyFailed",
                         "a copy of %llu bytes, on a device told to fail it",
                         (unsigned long long)copy->n_bytes);
    cross_link(stream->device, copy->n_bytes);
    memcpy(copy->to, copy->from, copy->n_bytes);
    return PLEC_OK;
}

static enum plec_status cpu_copy(void *to, const void *from, uint64_t n_bytes,
                                 struct plec_stream *stream, struct plec_error *err) {
    struct copy_args args = {to, from, n_bytes};
    (void)err;
    if (n_bytes == 0) return PLEC_OK;
    return plec_cpu_enqueue(stream, run_copy, &args, sizeof args);
}

struct fill_args {
    void *to;
    uint64_t n_bytes;
    uint8_t byte;
};

static enum plec_status run_fill(struct plec_cpu_stream *stream, const void *args,
                                 struct plec_error *err) {
    const struct fill_args *fill = args;
    (void)stream, (void)err;
    memset(fill->to, fill->byte, fill->n_bytes);
    return PLEC_OK;
}

static enum plec_status cpu_fill(void *to, uint8_t byte, uint64_t n_bytes,
                                 struct plec_stream *stream, struct plec_error *err) {
    struct fill_args args = {to, n_bytes, byte};
    (void)err;
    if (n_bytes == 0) return PLEC_OK;
    return plec_cpu_enqueue(stream, run_fill, &args, sizeof args);
}

struct call_args {
    plec_stream_function *fn;
    void *user;
};

static enum plec_status run_call(struct plec_cpu_stream *stream, const void *args,
                                 struct plec_error *err) {
    const struct call_args *call = args;
    (void)stream;
    return call->fn(call->user, err);
}

static enum plec_status cpu_stream_call(struct plec_stream *stream, plec_stream_function *fn,
                                        void *user, struct plec_error *err) {
    struct call_args args = {fn, user};
    (void)err;
    return plec_cpu_enqueue(stream, run_call, &args, sizeof args);
}

static const char *cpu_kernel_name(const struct plec_device *base, uint16_t format, char *name) {
    const struct plec_cpu_device *device = (const struct plec_cpu_device *)base;
    const struct plec_cpu_kernel *kernel = plec_cpu_kernel_find(format, device->kernels);
    (void)name; /* one kernel for any number of rows: a constant */
    return kernel == NULL ? NULL : kernel->name;
}

static const char *cpu_operand_kernel(const struct plec_device *device,
                                      const struct plec_bank *bank, enum plec_operand_id id,
                                      char *name) {
    return cpu_kernel_name(device, bank->operands[id].format, name);
}

const struct plec_backend plec_cpu_backend = {
    .name = "CPU",
    .open = cpu_open,
    .get_info = cpu_get_info,
    .close = cpu_close,
    .device_alloc = cpu_alloc,
    .device_free = cpu_free,
    .pinned_alloc = cpu_alloc,
    .pinned_free = cpu_free,
    .pin = cpu_pin,
    .unpin = cpu_unpin,
    .stream_open = plec_cpu_stream_open,
    .stream_close = plec_cpu_stream_close,
    .stream_set_name = plec_cpu_stream_set_name,
    .stream_sync = plec_cpu_stream_sync,
    .stream_call = cpu_stream_call,
    .copy = cpu_copy,
    .fill = cpu_fill,
    .event_open = plec_cpu_event_open,
    .event_close = plec_cpu_event_close,
    .event_record = plec_cpu_event_record,
    .event_wait = plec_cpu_event_wait,
    .event_done = plec_cpu_event_done,
    .event_sync = plec_cpu_event_sync,
    .linear = plec_cpu_linear,
    .route_workspace = plec_cpu_route_workspace,
    .routes = plec_cpu_routes,
    .route = plec_cpu_route,
    .arrival = plec_cpu_arrival,
    .arrive = plec_cpu_arrive,
    .experts_workspace = plec_cpu_experts_workspace,
    .experts = plec_cpu_experts,
    .norm = plec_cpu_norm,
    .sigmoid = plec_cpu_sigmoid_launch,
    .scale = plec_cpu_scale,
    .graph_begin = plec_cpu_graph_begin,
    .graph_end = plec_cpu_graph_end,
    .graph_launch = plec_cpu_graph_launch,
    .graph_close = plec_cpu_graph_close,
    .graph_refresh = plec_cpu_graph_refresh,
    .kernel_name = cpu_kernel_name,
    .operand_kernel = cpu_operand_kernel,
};
