/* launches.c: the launches that are one kernel: linear, norm, sigmoid, scale. */
#include "device/cuda/cuda.h"

enum plec_status plec_cuda_linear(struct plec_stream *base, const struct plec_linear_args *args,
                                  struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    char name[PLEC_NAME_MAX];
    const char *format = plec_format_name(args->matrix.format, name);
    const struct plec_cuda_ask ask = plec_cuda_ask_for(stream->device, args->matrix.format);
    const struct plec_cuda_gemm *gemm = plec_cuda_kernel_find(&ask, PLEC_CUDA_FOR_LINEAR);
    if (gemm == NULL)
        return plec_fail(err, PLEC_UNSUPPORTED, "NoKernel", "linear: no kernel for %s", format);
    if (args->n_tokens == 0 || args->matrix.rows == 0) return PLEC_OK;
    struct plec_cuda_launch launch =
        plec_cuda_launch_begin(base, err, "linear %s, %u x %u, %u tokens", format,
                               args->matrix.rows, args->matrix.cols, args->n_tokens);
    if (!launch.skip)
        plec_cuda_launched(&launch, gemm->linear(args, stream->fault, stream->handle), gemm->name);
    return plec_cuda_launch_end(&launch);
}

enum plec_status plec_cuda_norm(struct plec_stream *base, const struct plec_norm_args *args,
                                struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    if (args->n_tokens == 0 || args->width == 0) return PLEC_OK;
    struct plec_cuda_launch launch = plec_cuda_launch_begin(
        base, err, "norm, %u tokens of %u values", args->n_tokens, args->width);
    if (!launch.skip)
        plec_cuda_launched(&launch, plec_cuda_launch_norm(args, stream->fault, stream->handle),
                           "norm");
    return plec_cuda_launch_end(&launch);
}

enum plec_status plec_cuda_sigmoid(struct plec_stream *base, float *x, uint64_t n,
                                   struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    if (n == 0) return PLEC_OK;
    struct plec_cuda_launch launch =
        plec_cuda_launch_begin(base, err, "sigmoid of %llu values", (unsigned long long)n);
    if (!launch.skip)
        plec_cuda_launched(&launch, plec_cuda_launch_sigmoid(x, n, stream->fault, stream->handle),
                           "sigmoid");
    return plec_cuda_launch_end(&launch);
}

enum plec_status plec_cuda_scale(struct plec_stream *base, float *x, uint64_t n, float factor,
                                 struct plec_error *err) {
    struct plec_cuda_stream *stream = (struct plec_cuda_stream *)base;
    if (n == 0) return PLEC_OK;
    struct plec_cuda_launch launch =
        plec_cuda_launch_begin(base, err, "scale of %llu values", (unsigned long long)n);
    if (!launch.skip)
        plec_cuda_launched(
            &launch, plec_cuda_launch_scale(x, n, factor, stream->fault, stream->handle), "scale");
    return plec_cuda_launch_end(&launch);
}
