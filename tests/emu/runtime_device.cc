/* runtime_device.cc: the runtime's functions about the device and its kernels. */
#include "tests/emu/launch.h"
#include "tests/emu/operation.h"
#include "tests/emu/runtime.h"
#include "tests/emu/settings.h"
#include "tests/emu/tensor_map.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <cuda_runtime_api.h>

using namespace plec_emu;

static const size_t KIB = 1024;
static int device_chosen;

/* ---- devices --------------------------------------------------------------------------------- */

cudaError_t cudaGetDeviceCount(int *n) {
    *n = settings.n_devices;
    return settings.n_devices ? cudaSuccess : cudaErrorNoDevice;
}

cudaError_t cudaSetDevice(int device) {
    PLEC_EMU_CALL;
    if (device < 0 || device >= settings.n_devices) return fail(cudaErrorInvalidDevice);
    device_chosen = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = device_chosen;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int, int) {
    *can = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int, unsigned) {
    return cudaSuccess;
}

cudaError_t cudaDeviceReset(void) {
    PLEC_EMU_CALL;
    return wait_for_all();
}

static size_t most_shared_bytes(void) {
    int capability = settings.capability;
    if (capability >= 120 || capability == 86 || capability == 89) return 99 * KIB;
    return capability < 90 ? 163 * KIB : 227 * KIB;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device) {
    PLEC_EMU_CALL;
    if (device < 0 || device >= settings.n_devices) return fail(cudaErrorInvalidDevice);
    memset(p, 0, sizeof(*p));
    snprintf(p->name, sizeof(p->name), "CUDA emulated on the CPU (sm_%d)", settings.capability);
    p->major = settings.capability / 10;
    p->minor = settings.capability % 10;
    p->multiProcessorCount = settings.n_processors;
    p->warpSize = 32;
    p->totalGlobalMem = settings.device_bytes;
    p->sharedMemPerBlock = 48 * KIB;
    p->sharedMemPerBlockOptin = most_shared_bytes();
    p->sharedMemPerMultiprocessor = most_shared_bytes() + KIB;
    p->regsPerBlock = 65536;
    p->maxThreadsPerBlock = 1024;
    p->maxThreadsPerMultiProcessor = 2048;
    p->l2CacheSize = 50 << 20;
    p->unifiedAddressing = 1;
    p->concurrentKernels = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    struct cudaDeviceProp p;
    cudaError_t error = cudaGetDeviceProperties(&p, device);
    if (error) return error;
    switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor: *value = p.major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = p.minor; break;
    case cudaDevAttrMultiProcessorCount: *value = p.multiProcessorCount; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = (int)p.sharedMemPerBlock; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = (int)p.sharedMemPerBlockOptin; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        *value = (int)p.sharedMemPerMultiprocessor;
        break;
    case cudaDevAttrWarpSize: *value = p.warpSize; break;
    case cudaDevAttrL2CacheSize: *value = p.l2CacheSize; break;
    case cudaDevAttrCooperativeLaunch: *value = 1; break;
    case cudaDevAttrHostNumaId: *value = -1; break;
    default: return fail(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = CUDART_VERSION;
    return cudaSuccess;
}

/* Of no NUMA node. */
cudaError_t cudaDeviceGetPCIBusId(char *, int, int) {
    return cudaErrorInvalidDevice;
}

/* ---- kernels --------------------------------------------------------------------------------- */

cudaError_t cudaFuncSetAttribute(const void *kernel, enum cudaFuncAttribute attribute, int value) {
    PLEC_EMU_CALL;
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
    if (value < 0 || (size_t)value > most_shared_bytes()) return fail(cudaErrorInvalidValue);
    allow_shared_bytes(kernel, (size_t)value);
    return cudaSuccess;
}

/* Registers are the compiler's business, which is not here. */
cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attributes, const void *kernel) {
    PLEC_EMU_CALL;
    *attributes = {};
    attributes->maxThreadsPerBlock = 1024;
    attributes->numRegs = 64;
    attributes->maxDynamicSharedSizeBytes = (int)shared_bytes_allowed(kernel);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int *n, const void *, int block_threads,
                                                          size_t shared_bytes) {
    size_t by_shared = (most_shared_bytes() + KIB) / (shared_bytes + KIB);
    *n = std::min(2048 / std::max(block_threads, 1), (int)by_shared);
    return cudaSuccess;
}

cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int *n, const void *kernel,
                                                                   int block_threads,
                                                                   size_t shared_bytes, unsigned) {
    return cudaOccupancyMaxActiveBlocksPerMultiprocessor(n, kernel, block_threads, shared_bytes);
}

/* ---- names of errors, driver functions ------------------------------------------------------- */

struct ErrorText {
    cudaError_t error;
    const char *name, *text;
};

static const ErrorText ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration",
     "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection",
     "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver",
     "CUDA driver version is insufficient for CUDA runtime version"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidDevice, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorIllegalState, "cudaErrorIllegalState",
     "the operation cannot be performed in the present state"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorNotReady, "cudaErrorNotReady", "device not ready"},
    {cudaErrorHostMemoryAlreadyRegistered, "cudaErrorHostMemoryAlreadyRegistered",
     "part or all of the requested memory range is already mapped"},
    {cudaErrorHostMemoryNotRegistered, "cudaErrorHostMemoryNotRegistered",
     "pointer does not correspond to a registered memory region"},
    {cudaErrorLaunchOutOfResources, "cudaErrorLaunchOutOfResources",
     "too many resources requested for launch"},
    {cudaErrorLaunchFailure, "cudaErrorLaunchFailure", "unspecified launch failure"},
    {cudaErrorNotSupported, "cudaErrorNotSupported", "operation not supported"},
    {cudaErrorStreamCaptureUnsupported, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {cudaErrorStreamCaptureInvalidated, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
    {cudaErrorStreamCaptureUnjoined, "cudaErrorStreamCaptureUnjoined",
     "capture was not joined to original stream"},
    {cudaErrorStreamCaptureIsolation, "cudaErrorStreamCaptureIsolation",
     "dependency created on uncaptured work in another stream"},
    {cudaErrorStreamCaptureImplicit, "cudaErrorStreamCaptureImplicit",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {cudaErrorStreamCaptureWrongThread, "cudaErrorStreamCaptureWrongThread",
     "attempt to terminate a thread-local capture sequence from another thread"},
    {cudaErrorUnknown, "cudaErrorUnknown", "unknown error"},
};

static const ErrorText *error_text(cudaError_t error) {
    for (const ErrorText &each : ERRORS)
        if (each.error == error) return &each;
    return nullptr;
}

const char *cudaGetErrorString(cudaError_t error) {
    const ErrorText *found = error_text(error);
    return found ? found->text : "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t error) {
    const ErrorText *found = error_text(error);
    return found ? found->name : "unrecognized error code";
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *symbol, void **function, unsigned,
                                             unsigned long long,
                                             enum cudaDriverEntryPointQueryResult *result) {
    bool found = !strcmp(symbol, "cuTensorMapEncodeTiled");
    *function = found ? (void *)encode_tiled : nullptr;
    if (result) *result = found ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return found ? cudaSuccess : fail(cudaErrorSymbolNotFound);
}
