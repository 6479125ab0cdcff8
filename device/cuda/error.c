/* error.c: the runtime's failures, and those that kernels find, in the words of status.h. */
#include <stdio.h>

#include "device/cuda/cuda.h"

enum plec_status plec_cuda_check(cudaError_t status, struct plec_error *err, const char *format,
                                 ...) {
    char what[256];
    va_list list;
    if (status == cudaSuccess) return PLEC_OK;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    bool memory = status == cudaErrorMemoryAllocation;
    return plec_fail(err, memory ? PLEC_NO_MEMORY : PLEC_NO_DEVICE,
                     memory ? "NoMemory" : "CudaFailed", "%s: %s (%s)", what,
                     cudaGetErrorName(status), cudaGetErrorString(status));
}

enum plec_status plec_cuda_fault_status(const struct plec_cuda_fault *fault, const char *what,
                                        struct plec_error *err) {
    switch ((enum plec_cuda_fault_code)fault->code) {
    case PLEC_CUDA_NO_FAULT: return PLEC_OK;
    case PLEC_CUDA_BAD_EXPERT_ID:
        return plec_fail(err, PLEC_BAD_INPUT, "BadExpertId", "%s: pair %u has expert %d", what,
                         fault->a, fault->b);
    case PLEC_CUDA_PART_WITHOUT:
        return plec_fail(err, PLEC_BAD_INPUT, "BadPart", "%s: expert %u has no pairs", what,
                         fault->a);
    case PLEC_CUDA_PART_TWICE:
        return plec_fail(err, PLEC_BAD_INPUT, "BadPart", "%s: expert %u was named before", what,
                         fault->a);
    case PLEC_CUDA_PART_OUT_OF_BANK:
        return plec_fail(err, PLEC_BAD_INPUT, "BadPart", "%s: the bank has no expert %u", what,
                         fault->a);
    case PLEC_CUDA_EXPERTS_LEFT_OUT:
        return plec_fail(err, PLEC_BAD_INPUT, "ExpertsLeftOut",
                         "%s: %u experts with pairs were not run", what, fault->a);
    }
    return plec_fail(err, PLEC_NO_DEVICE, "CudaFailed", "%s: a fault record of code %u", what,
                     fault->code);
}

enum plec_status plec_cuda_enter(const struct plec_cuda_device *device, struct plec_error *err) {
    return plec_cuda_check(cudaSetDevice(device->number), err, "device %d", device->number);
}
