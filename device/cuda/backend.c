/* backend.c: the CUDA device: opening, what it says of itself, and its table for device.c. */
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "device/cuda/library.h"
#include "device/cuda/table.h"

static uint32_t in_range(uint32_t wanted, uint32_t otherwise, uint32_t most) {
    uint32_t n = wanted != 0 ? wanted : otherwise;
    return n < most ? n : most;
}

/* No driver, an old one, or no device: the device is absent, which is no failure of it. */
static enum plec_status find_device(struct plec_error *err) {
    int n = 0;
    cudaError_t status = cudaGetDeviceCount(&n);
    if (status == cudaSuccess && n > 0) return PLEC_OK;
    return plec_fail(err, PLEC_NO_DEVICE, "DeviceAbsent", "%s",
                     status != cudaSuccess ? cudaGetErrorString(status)
                                           : "the CUDA runtime finds no device");
}

static enum plec_status attribute(int *out, enum cudaDeviceAttr which, int number,
                                  struct plec_error *err) {
    return plec_cuda_check(cudaDeviceGetAttribute(out, which, number), err, "asking device %d",
                           number);
}

static enum plec_status describe(struct plec_cuda_device *device, struct plec_error *err) {
    struct cudaDeviceProp properties;
    int major = 0, minor = 0, n = 0, shared = 0, node = -1;
    enum plec_status status = plec_cuda_check(cudaGetDeviceProperties(&properties, device->number),
                                              err, "device %d", device->number);
    if (status != PLEC_OK) return status;
    status = attribute(&major, cudaDevAttrComputeCapabilityMajor, device->number, err);
    if (status == PLEC_OK)
        status = attribute(&minor, cudaDevAttrComputeCapabilityMinor, device->number, err);
    if (status == PLEC_OK)
        status = attribute(&n, cudaDevAttrMultiProcessorCount, device->number, err);
    if (status == PLEC_OK)
        status =
            attribute(&shared, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device->number, err);
    if (status == PLEC_OK) status = attribute(&node, cudaDevAttrHostNumaId, device->number, err);
    device->arch = (uint32_t)(10 * major + minor);
    device->n_multiprocessors = (uint32_t)n;
    device->shared_bytes = (uint32_t)shared;
    device->numa_node = node;
    device->memory_bytes = properties.totalGlobalMem;
    snprintf(device->name, sizeof device->name, "%.*s", (int)sizeof device->name - 1,
             properties.name);
    return status;
}

/* Kernels of an older image than any that was built fail at their first launch: here it has a name.
 */
static enum plec_status check_arch(const struct plec_cuda_device *device, struct plec_error *err) {
    if (device->arch >= PLEC_CUDA_LEAST_ARCH) return PLEC_OK;
    return plec_fail(err, PLEC_NO_DEVICE, "DeviceAbsent",
                     "%s has compute capability %u.%u; kernels here want %u.%u", device->name,
                     device->arch / 10, device->arch % 10, PLEC_CUDA_LEAST_ARCH / 10,
                     PLEC_CUDA_LEAST_ARCH % 10);
}

static enum plec_status make_tables(struct plec_cuda_device *device, struct plec_error *err) {
    void *rows = NULL;
    device->shadow = calloc(PLEC_CUDA_TABLE_ROWS_MAX, sizeof *device->shadow);
    if (device->shadow == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "entry tables");
    enum plec_status status =
        plec_cuda_check(cudaMalloc(&rows, PLEC_CUDA_TABLE_ROWS_MAX * sizeof *device->rows), err,
                        "entry tables of %d rows", PLEC_CUDA_TABLE_ROWS_MAX);
    device->rows = rows;
    if (status == PLEC_OK)
        status = plec_cuda_check(cudaEventCreateWithFlags(&device->order, cudaEventDisableTiming),
                                 err, "an event");
    return status;
}

static enum plec_status reserve(struct plec_cuda_device *device, uint64_t n_bytes,
                                struct plec_error *err) {
    void *memory = NULL;
    if (n_bytes == 0) return PLEC_OK;
    if (n_bytes > device->memory_bytes)
        return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "wanted to reserve %llu bytes of %llu",
                         (unsigned long long)n_bytes, (unsigned long long)device->memory_bytes);
    enum plec_status status = plec_cuda_check(cudaMalloc(&memory, (size_t)n_bytes), err,
                                              "reserving %llu bytes", (unsigned long long)n_bytes);
    device->reserved = memory;
    device->pool.n_bytes = n_bytes;
    return status;
}

enum { PROBE_ANSWERS_MAX = 128 };

static enum plec_status ask(uint32_t *answers, size_t n,
                            int (*probe)(uint32_t *answers, cudaStream_t stream), const char *what,
                            struct plec_error *err) {
    void *memory = NULL;
    enum plec_status status =
        plec_cuda_check(cudaMalloc(&memory, n * sizeof *answers), err, "the answers of %s", what);
    if (status == PLEC_OK)
        status = plec_cuda_check((cudaError_t)probe(memory, NULL), err, "launching %s", what);
    if (status == PLEC_OK)
        status = plec_cuda_check(
            cudaMemcpy(answers, memory, n * sizeof *answers, cudaMemcpyDeviceToHost), err,
            "the answers of %s", what);
    if (memory != NULL) (void)cudaFree(memory);
    return status;
}

/* Whether all threads of a probe found what it is about. */
static enum plec_status ask_all(bool *all, int (*probe)(uint32_t *kept, cudaStream_t stream),
                                size_t n_threads, const char *what, struct plec_error *err) {
    uint32_t kept[PROBE_ANSWERS_MAX] = {0};
    enum plec_status status = ask(kept, n_threads, probe, what, err);
    *all = true;
    for (size_t i = 0; i < n_threads; i++)
        *all = *all && kept[i] != 0;
    return status;
}

static void limit(struct plec_cuda_device *device, int32_t rung) {
    if (device->most_rung > rung) device->most_rung = rung;
}

/* Where tensor cores do not multiply as mm_sync needs it, launches run on the rungs below it;
 * where wgmma does not, or is not in what was loaded, on the rungs below it. */
static enum plec_status ask_tensor_cores(struct plec_cuda_device *device, struct plec_error *err) {
    bool keeps = false, wgmma_keeps = true;
    enum plec_status status = ask_all(&keeps, plec_cuda_subnormals, 32, "subnormals", err);
    if (status == PLEC_OK && device->image_arch == 90)
        status = ask_all(&wgmma_keeps, plec_cuda_wgmma_subnormals, 128, "wgmma", err);
    device->flushes = !keeps;
    device->lacks_wgmma = !wgmma_keeps;
    if (device->lacks_wgmma) limit(device, PLEC_CUDA_WGMMA - 1);
    if (device->flushes) limit(device, PLEC_CUDA_MM_FMA);
    return status;
}

/* The rung that was asked for, and what it takes. */
static enum plec_status choose_rung(struct plec_cuda_device *device,
                                    const struct plec_device_options *options,
                                    struct plec_error *err) {
    char names[PLEC_ERROR_MESSAGE_MAX / 2];
    device->most_rung = options->plain_c ? PLEC_CUDA_PLAIN : INT32_MAX;
    device->batch_invariant = options->batch_invariant;
    if (options->rung == NULL || strcmp(options->rung, "auto") == 0) return PLEC_OK;
    plec_cuda_rung_list(names, sizeof names);
    if (!plec_cuda_rung_find(&device->most_rung, options->rung))
        return plec_fail(err, PLEC_UNSUPPORTED, "NoSuchRung",
                         "no kernels are called %s: there are auto, %s", options->rung, names);
    if (device->most_rung >= PLEC_CUDA_PLAIN) return PLEC_OK;
    if (device->batch_invariant)
        return plec_fail(err, PLEC_UNSUPPORTED, "NotBatchInvariant",
                         "%s sums in an order that depends on the batch", options->rung);
    enum plec_status status = plec_cuda_library_open(
        &device->library, options->cublas, device->most_rung == PLEC_CUDA_CUBLAS_GROUPED, err);
    if (status != PLEC_OK) plec_error_context(err, "rung %s", options->rung);
    return status;
}

static void make_recursive(pthread_mutex_t *mutex) {
    pthread_mutexattr_t recursive;
    pthread_mutexattr_init(&recursive);
    pthread_mutexattr_settype(&recursive, PTHREAD_MUTEX_RECURSIVE);
    pthread_mutex_init(mutex, &recursive);
    pthread_mutexattr_destroy(&recursive);
}

static void release(struct plec_cuda_device *device) {
    plec_cuda_library_close(device->library);
    if (device->reserved != NULL) (void)cudaFree(device->reserved);
    if (device->order != NULL) (void)cudaEventDestroy(device->order);
    if (device->rows != NULL) (void)cudaFree(device->rows);
    pthread_mutex_destroy(&device->captures);
    pthread_mutex_destroy(&device->mutex);
    free(device->shadow);
    free(device);
}

static enum plec_status cuda_open(struct plec_device **out,
                                  const struct plec_device_options *options,
                                  struct plec_error *err) {
    enum plec_status status = find_device(err);
    if (status != PLEC_OK) return status;
    struct plec_cuda_device *device = calloc(1, sizeof *device);
    if (device == NULL) return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "the CUDA device");
    device->base.backend = &plec_cuda_backend;
    device->n_calls =
        in_range(options->queue_capacity, PLEC_CUDA_CALLS_DEFAULT, PLEC_CUDA_CALLS_MAX);
    device->probe = options->probe;
    pthread_mutex_init(&device->mutex, NULL);
    make_recursive(&device->captures);
    status = plec_cuda_enter(device, err);
    if (status == PLEC_OK) status = describe(device, err);
    if (status == PLEC_OK) status = check_arch(device, err);
    if (status == PLEC_OK) status = choose_rung(device, options, err);
    if (status == PLEC_OK) status = ask(&device->image_arch, 1, plec_cuda_image_arch, "image", err);
    if (status == PLEC_OK) status = ask_tensor_cores(device, err);
    if (status == PLEC_OK) status = make_tables(device, err);
    if (status == PLEC_OK) status = reserve(device, options->reserve_bytes, err);
    if (status != PLEC_OK) {
        release(device);
        return status;
    }
    *out = &device->base;
    return PLEC_OK;
}

static void cuda_get_info(struct plec_device_info *out, const struct plec_device *base) {
    const struct plec_cuda_device *device = (const struct plec_cuda_device *)base;
    memset(out, 0, sizeof *out);
    out->kind = PLEC_DEVICE_CUDA;
    out->n_threads = device->n_multiprocessors;
    out->memory_bytes = device->memory_bytes;
    out->numa_node = device->numa_node;
    out->needs_upload = true;
    out->graph_banks = device->library == NULL ? PLEC_CUDA_TABLES_MAX : 0;
    out->graph_entries = device->library == NULL ? PLEC_CUDA_TABLE_ROWS_MAX : 0;
    char image[24] = "";
    if (device->image_arch != device->arch)
        snprintf(image, sizeof image, " as sm_%u", device->image_arch);
    const char *flushes = device->flushes       ? ", plain: flushes subnormals"
                          : device->lacks_wgmma ? ", without wgmma"
                                                : "";
#ifdef PLEC_CUDA_EMULATED
    snprintf(out->name, sizeof out->name, "CUDA" PLEC_CUDA_EMULATED_TEXT ", sm_%u%s%s",
             device->arch, image, flushes);
#else
    snprintf(out->name, sizeof out->name, "CUDA, %.64s, sm_%u%s%s", device->name, device->arch,
             image, flushes);
#endif
}

static void cuda_close(struct plec_device *base) {
    struct plec_cuda_device *device = (struct plec_cuda_device *)base;
    assert(atomic_load(&device->n_open) == 0);
    if (plec_cuda_enter(device, NULL) == PLEC_OK) release(device);
}

const struct plec_backend plec_cuda_backend = {
    .name = "CUDA" PLEC_CUDA_EMULATED_TEXT,
    .open = cuda_open,
    .get_info = cuda_get_info,
    .close = cuda_close,
    .device_alloc = plec_cuda_device_alloc,
    .device_free = plec_cuda_device_free,
    .pinned_alloc = plec_cuda_pinned_alloc,
    .pinned_free = plec_cuda_pinned_free,
    .pin = plec_cuda_pin,
    .unpin = plec_cuda_unpin,
    .stream_open = plec_cuda_stream_open,
    .stream_close = plec_cuda_stream_close,
    .stream_set_name = plec_cuda_stream_set_name,
    .stream_sync = plec_cuda_stream_sync,
    .stream_call = plec_cuda_stream_call,
    .copy = plec_cuda_copy,
    .fill = plec_cuda_fill,
    .event_open = plec_cuda_event_open,
    .event_close = plec_cuda_event_close,
    .event_record = plec_cuda_event_record,
    .event_wait = plec_cuda_event_wait,
    .event_done = plec_cuda_event_done,
    .event_sync = plec_cuda_event_sync,
    .linear = plec_cuda_linear,
    .route_workspace = plec_cuda_route_workspace,
    .routes = plec_cuda_routes,
    .route = plec_cuda_route,
    .arrival = plec_cuda_arrival,
    .arrive = plec_cuda_arrive,
    .experts_workspace = plec_cuda_experts_workspace,
    .experts = plec_cuda_experts,
    .norm = plec_cuda_norm,
    .sigmoid = plec_cuda_sigmoid,
    .scale = plec_cuda_scale,
    .graph_begin = plec_cuda_graph_begin,
    .graph_end = plec_cuda_graph_end,
    .graph_launch = plec_cuda_graph_launch,
    .graph_close = plec_cuda_graph_close,
    .graph_refresh = plec_cuda_graph_refresh,
    .kernel_name = plec_cuda_kernel_name,
    .operand_kernel = plec_cuda_operand_kernel,
};
