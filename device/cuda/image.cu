/* image.cu: what architecture was the loaded image compiled for?
 *
 * A driver also runs an image of an earlier architecture: of the same major one, or compiled from
 * its PTX. Then kernels for later ones are empty, and those of a chain do not wait (ptx.cuh): they
 * must not be launched. One thread says, once a device is opened.
 */
#include "device/cuda/kernels.h"
#include "device/cuda/launch.cuh"
#include "device/cuda/ptx.cuh"

static __global__ void __launch_bounds__(1) image_kernel(uint32_t *arch) {
    *arch = plec_image_arch();
}

int plec_cuda_image_arch(uint32_t *arch, cudaStream_t stream) {
    return PLEC_LAUNCH(image_kernel, dim3(1), dim3(1), 0, stream, arch);
}
