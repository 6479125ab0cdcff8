/* runtime_memory.cc: the runtime's functions for memory and copies. */
#include "tests/emu/capture.h"
#include "tests/emu/check.h"
#include "tests/emu/fiber.h"
#include "tests/emu/memory.h"
#include "tests/emu/report.h"
#include "tests/emu/runtime.h"
#include "tests/emu/settings.h"

#include <cstring>
#include <memory>

using namespace plec_emu;

/* ---- allocation ------------------------------------------------------------------------------ */

static cudaError_t allocate(void **memory, size_t n_bytes, MemoryKind kind, const char *call) {
    if (capture_forbids(call)) return fail(cudaErrorStreamCaptureUnsupported);
    if (!memory) return fail(cudaErrorInvalidValue);
    *memory = n_bytes ? memory_allocate(n_bytes, kind) : nullptr;
    return *memory || !n_bytes ? cudaSuccess : fail(cudaErrorMemoryAllocation);
}

/* As CUDA does, waits for all work first. */
static cudaError_t release(void *memory, MemoryKind kind, const char *call) {
    if (!memory) return cudaSuccess;
    if (capture_forbids(call)) return fail(cudaErrorStreamCaptureUnsupported);
    cudaError_t error = wait_for_all();
    if (memory_free(memory, kind)) return error;
    report("free", "%s of %p, which is %s", call, memory, describe_address(memory).c_str());
    return fail(cudaErrorInvalidValue);
}

cudaError_t cudaMalloc(void **memory, size_t n_bytes) {
    PLEC_EMU_CALL;
    return allocate(memory, n_bytes, DEVICE_MEMORY, __func__);
}

cudaError_t cudaMallocHost(void **memory, size_t n_bytes) {
    PLEC_EMU_CALL;
    return allocate(memory, n_bytes, PINNED_MEMORY, __func__);
}

cudaError_t cudaHostAlloc(void **memory, size_t n_bytes, unsigned) {
    PLEC_EMU_CALL;
    return allocate(memory, n_bytes, PINNED_MEMORY, __func__);
}

cudaError_t cudaMallocManaged(void **memory, size_t n_bytes, unsigned) {
    PLEC_EMU_CALL;
    return allocate(memory, n_bytes, PINNED_MEMORY, __func__);
}

cudaError_t cudaHostGetDevicePointer(void **device, void *host, unsigned) {
    PLEC_EMU_CALL;
    if (!is_page_locked(host)) return fail(cudaErrorInvalidValue);
    *device = host;
    return cudaSuccess;
}

cudaError_t cudaFree(void *memory) {
    PLEC_EMU_CALL;
    return release(memory, DEVICE_MEMORY, __func__);
}

cudaError_t cudaFreeHost(void *memory) {
    PLEC_EMU_CALL;
    return release(memory, PINNED_MEMORY, __func__);
}

cudaError_t cudaMallocAsync(void **memory, size_t n_bytes, cudaStream_t stream) {
    PLEC_EMU_CALL;
    if (stream_of(stream)->capture) return fail(cudaErrorNotSupported);
    *memory = n_bytes ? memory_allocate(n_bytes, DEVICE_MEMORY) : nullptr;
    if (!*memory) return n_bytes ? fail(cudaErrorMemoryAllocation) : cudaSuccess;
    void *start = *memory;
    return issue(stream, "cudaMallocAsync", Work::DEVICE,
                 [=] { check_range(start, n_bytes, ACCESS_WRITE | ACCESS_UNDEFINED); });
}

cudaError_t cudaFreeAsync(void *memory, cudaStream_t stream) {
    PLEC_EMU_CALL;
    if (!memory) return cudaSuccess;
    const Allocation *a = allocation_of(memory, 1);
    if (!a || a->start != memory) {
        report("free", "%s of %p, which is %s", __func__, memory, describe_address(memory).c_str());
        return fail(cudaErrorInvalidValue);
    }
    size_t n_bytes = a->n_bytes;
    return issue(stream, "cudaFreeAsync", Work::DEVICE, [=] {
        check_range(memory, n_bytes, ACCESS_WRITE | ACCESS_UNDEFINED);
        memset(memory, 0xff, n_bytes);
        memory_free(memory, DEVICE_MEMORY);
    });
}

cudaError_t cudaHostRegister(void *memory, size_t n_bytes, unsigned) {
    PLEC_EMU_CALL;
    if (!memory || !n_bytes || is_device(memory)) return fail(cudaErrorInvalidValue);
    if (is_page_locked(memory)) return fail(cudaErrorHostMemoryAlreadyRegistered);
    memory_register(memory, n_bytes);
    return cudaSuccess;
}

cudaError_t cudaHostUnregister(void *memory) {
    PLEC_EMU_CALL;
    return memory_unregister(memory) ? cudaSuccess : fail(cudaErrorHostMemoryNotRegistered);
}

cudaError_t cudaMemGetInfo(size_t *n_free, size_t *n_total) {
    PLEC_EMU_CALL;
    *n_total = settings.device_bytes;
    *n_free = settings.device_bytes - device_bytes_used();
    return cudaSuccess;
}

cudaError_t cudaPointerGetAttributes(struct cudaPointerAttributes *attributes, const void *p) {
    PLEC_EMU_CALL;
    bool device = is_device(p), pinned = is_page_locked(p);
    *attributes = {};
    attributes->type = device   ? cudaMemoryTypeDevice
                       : pinned ? cudaMemoryTypeHost
                                : cudaMemoryTypeUnregistered;
    attributes->devicePointer = device || pinned ? const_cast<void *>(p) : nullptr;
    attributes->hostPointer = device ? nullptr : const_cast<void *>(p);
    return cudaSuccess;
}

/* ---- copies ---------------------------------------------------------------------------------- */

static bool direction_is(enum cudaMemcpyKind kind, bool from_device, bool to_device) {
    switch (kind) {
    case cudaMemcpyHostToHost: return !from_device && !to_device;
    case cudaMemcpyHostToDevice: return !from_device && to_device;
    case cudaMemcpyDeviceToHost: return from_device && !to_device;
    case cudaMemcpyDeviceToDevice: return from_device && to_device;
    case cudaMemcpyDefault: return true;
    }
    return false;
}

static cudaError_t refuse_copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    if (!direction_is(kind, is_device(from), is_device(to))) {
        report("memcpy", "direction %d does not fit to %s, from %s", (int)kind,
               is_device(to) ? "device" : "host", is_device(from) ? "device" : "host");
        return fail(cudaErrorInvalidMemcpyDirection);
    }
    for (const void *side : {(const void *)to, from}) {
        if ((!is_device(side) && !is_pinned(side)) || allocation_of(side, n)) continue;
        report("memcpy", "%zu bytes run out of %s", n, describe_address(side).c_str());
        return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

static void copy_now(void *to, const void *from, size_t n_bytes) {
    check_range(from, n_bytes, ACCESS_READ | ACCESS_UNDEFINED);
    check_range(to, n_bytes, ACCESS_WRITE);
    memcpy(to, from, n_bytes);
}

static const char *copy_name(const void *to, const void *from) {
    if (is_device(to)) return is_device(from) ? "copy in the device" : "copy to the device";
    return is_device(from) ? "copy from the device" : "copy in the host";
}

/* Memory that is not page-locked is read before the call returns and written before it returns;
 * while a graph is captured nothing is read at all. */
static cudaError_t copy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                        cudaStream_t stream, bool wait) {
    if (!n) return cudaSuccess;
    cudaError_t error = refuse_copy(to, from, n, kind);
    if (error) return error;
    bool capturing = stream_of(stream)->capture != nullptr;
    const char *name = copy_name(to, from);
    if (is_device(from) || is_page_locked(from) || capturing) {
        error = issue(stream, name, Work::DEVICE, [=] { copy_now(to, from, n); });
    } else {
        auto staged = std::make_shared<std::string>((const char *)from, n);
        error = issue(stream, name, Work::DEVICE, [=] { copy_now(to, staged->data(), n); });
    }
    if (error || capturing) return error;
    bool blocks = wait || (!is_device(to) && !is_page_locked(to));
    return blocks ? wait_for_stream(stream_of(stream)) : cudaSuccess;
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t n, enum cudaMemcpyKind kind) {
    PLEC_EMU_CALL;
    if (capture_forbids(__func__)) return fail(cudaErrorStreamCaptureImplicit);
    return copy(to, from, n, kind, nullptr, true);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t n, enum cudaMemcpyKind kind,
                            cudaStream_t stream) {
    PLEC_EMU_CALL;
    return copy(to, from, n, kind, stream, false);
}

cudaError_t cudaMemcpy2DAsync(void *to, size_t to_pitch, const void *from, size_t from_pitch,
                              size_t width, size_t height, enum cudaMemcpyKind kind,
                              cudaStream_t stream) {
    PLEC_EMU_CALL;
    cudaError_t error = cudaSuccess;
    for (size_t row = 0; row < height && !error; row++)
        error = copy((char *)to + row * to_pitch, (const char *)from + row * from_pitch, width,
                     kind, stream, false);
    return error;
}

static cudaError_t set(void *to, int value, size_t n, cudaStream_t stream) {
    if (!n) return cudaSuccess;
    if (!allocation_of(to, n)) {
        report("memset", "%zu bytes run out of %s", n, describe_address(to).c_str());
        return fail(cudaErrorInvalidValue);
    }
    return issue(stream, "memset", Work::DEVICE, [=] {
        check_range(to, n, ACCESS_WRITE);
        memset(to, value, n);
    });
}

cudaError_t cudaMemsetAsync(void *to, int value, size_t n, cudaStream_t stream) {
    PLEC_EMU_CALL;
    return set(to, value, n, stream);
}

cudaError_t cudaMemset(void *to, int value, size_t n) {
    PLEC_EMU_CALL;
    return set(to, value, n, nullptr);
}
