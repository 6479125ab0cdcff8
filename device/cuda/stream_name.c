/* stream_name.c: the names of streams in a profiler's timeline. The one file here that sees NVTX's
 * headers, which come with a toolkit; without them, and in the emulation, streams have no names.
 * With no profiler attached NVTX does nothing.
 */
#include <stdio.h>

#include "device/cuda/cuda.h"

#if !defined(PLEC_CUDA_EMULATED) && __has_include(<nvtx3/nvToolsExtCudaRt.h>)
#include <nvtx3/nvToolsExtCudaRt.h>

void plec_cuda_stream_set_name(struct plec_stream *base, const char *name) {
    char kept[16];
    snprintf(kept, sizeof kept, "%.15s", name);
    nvtxNameCudaStreamA(((struct plec_cuda_stream *)base)->handle, kept);
}
#else
void plec_cuda_stream_set_name(struct plec_stream *stream, const char *name) {
    (void)stream;
    (void)name;
}
#endif
