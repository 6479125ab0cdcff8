/* memory.c: device and pinned memory. The host asks for it when it opens; launches ask for none. */
#include <assert.h>

#include "device/cuda/cuda.h"

enum { LEAST_BYTES = 256 };

/* cudaMalloc and cudaMallocHost align to 256 and to a page. Nothing wanted is a little given: the
 * runtime's answer would be no memory at all. */
static size_t bytes_for(uint64_t n_bytes) {
    return n_bytes < LEAST_BYTES ? LEAST_BYTES : (size_t)n_bytes;
}

static enum plec_status too_much(uint64_t n_bytes, struct plec_error *err) {
    return plec_fail(err, PLEC_NO_MEMORY, "NoMemory", "wanted %llu bytes",
                     (unsigned long long)n_bytes);
}

static enum plec_status take_reserved(void **out, struct plec_cuda_device *device, uint64_t n_bytes,
                                      struct plec_error *err) {
    uint64_t at = 0;
    pthread_mutex_lock(&device->mutex);
    bool taken = plec_cuda_pool_take(&at, &device->pool, n_bytes);
    pthread_mutex_unlock(&device->mutex);
    if (taken) *out = device->reserved + at;
    return taken ? PLEC_OK
                 : plec_fail(err, PLEC_NO_MEMORY, "NoMemory",
                             "wanted %llu bytes of the %llu that were reserved",
                             (unsigned long long)n_bytes, (unsigned long long)device->pool.n_bytes);
}

enum plec_status plec_cuda_device_alloc(void **out, struct plec_device *base, uint64_t n_bytes,
                                        struct plec_error *err) {
    struct plec_cuda_device *device = (struct plec_cuda_device *)base;
    *out = NULL;
    if (n_bytes > device->memory_bytes) return too_much(n_bytes, err);
    if (device->reserved != NULL) return take_reserved(out, device, n_bytes, err);
    enum plec_status status = plec_cuda_enter(device, err);
    if (status != PLEC_OK) return status;
    void *memory = NULL;
    status = plec_cuda_check(cudaMalloc(&memory, bytes_for(n_bytes)), err,
                             "%llu bytes of device memory", (unsigned long long)n_bytes);
    if (status == PLEC_OK) *out = memory;
    return status;
}

/* A failure to free is one of work enqueued before: its stream's next sync tells it. Either way the
 * device has done with the memory before another gets it. */
static void give_reserved(struct plec_cuda_device *device, const void *memory) {
    pthread_mutex_lock(&device->captures);
    if (plec_cuda_enter(device, NULL) == PLEC_OK) (void)cudaDeviceSynchronize();
    pthread_mutex_unlock(&device->captures);
    pthread_mutex_lock(&device->mutex);
    bool given =
        plec_cuda_pool_give(&device->pool, (uint64_t)((const uint8_t *)memory - device->reserved));
    pthread_mutex_unlock(&device->mutex);
    assert(given);
    (void)given;
}

void plec_cuda_device_free(struct plec_device *base, void *memory) {
    struct plec_cuda_device *device = (struct plec_cuda_device *)base;
    if (device->reserved != NULL)
        give_reserved(device, memory);
    else if (plec_cuda_enter(device, NULL) == PLEC_OK)
        (void)cudaFree(memory);
}

enum plec_status plec_cuda_pinned_alloc(void **out, struct plec_device *base, uint64_t n_bytes,
                                        struct plec_error *err) {
    *out = NULL;
    if (n_bytes > SIZE_MAX / 2) return too_much(n_bytes, err);
    enum plec_status status = plec_cuda_enter((const struct plec_cuda_device *)base, err);
    if (status != PLEC_OK) return status;
    void *memory = NULL;
    status = plec_cuda_check(cudaHostAlloc(&memory, bytes_for(n_bytes), cudaHostAllocPortable), err,
                             "%llu bytes of pinned memory", (unsigned long long)n_bytes);
    if (status == PLEC_OK) *out = memory;
    return status;
}

void plec_cuda_pinned_free(struct plec_device *base, void *memory) {
    if (plec_cuda_enter((const struct plec_cuda_device *)base, NULL) == PLEC_OK)
        (void)cudaFreeHost(memory);
}

enum plec_status plec_cuda_pin(struct plec_device *base, void *memory, uint64_t n_bytes,
                               struct plec_error *err) {
    enum plec_status status = plec_cuda_enter((const struct plec_cuda_device *)base, err);
    if (status != PLEC_OK) return status;
    cudaError_t result = cudaHostRegister(memory, (size_t)n_bytes, cudaHostRegisterPortable);
    if (result == cudaSuccess) return PLEC_OK;
    return plec_fail(err, PLEC_NO_MEMORY, "PinRefused", "cudaHostRegister of %llu bytes: %s",
                     (unsigned long long)n_bytes, cudaGetErrorString(result));
}

void plec_cuda_unpin(struct plec_device *base, void *memory, uint64_t n_bytes) {
    (void)n_bytes;
    if (plec_cuda_enter((const struct plec_cuda_device *)base, NULL) == PLEC_OK)
        (void)cudaHostUnregister(memory);
}
