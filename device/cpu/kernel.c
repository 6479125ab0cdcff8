#include "device/cpu/kernel.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#include "lyrw/codec/bits.h"

#if defined(__x86_64__)
#include <cpuid.h>

extern const struct plec_cpu_kernel plec_cpu_f32_avx2, plec_cpu_f16_avx2, plec_cpu_bf16_avx2,
    plec_cpu_q8_0_avx2, plec_cpu_q4_0_avx2, plec_cpu_mxfp4_avx2, plec_cpu_q4_k_avx2,
    plec_cpu_q6_k_avx2;

static const struct plec_cpu_kernel *const avx2_kernels[] = {
    &plec_cpu_f32_avx2,  &plec_cpu_f16_avx2,   &plec_cpu_bf16_avx2, &plec_cpu_q8_0_avx2,
    &plec_cpu_q4_0_avx2, &plec_cpu_mxfp4_avx2, &plec_cpu_q4_k_avx2, &plec_cpu_q6_k_avx2};

enum plec_cpu_set plec_cpu_detect(void) {
    unsigned a, b, c = 0, d;
    if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_F16C) == 0) return PLEC_CPU_PLAIN_C;
    bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    return avx2 ? PLEC_CPU_AVX2 : PLEC_CPU_PLAIN_C;
}

static const struct plec_cpu_kernel *find_vector_kernel(uint16_t format) {
    enum { N_KERNELS = sizeof avx2_kernels / sizeof avx2_kernels[0] };
    for (int i = 0; i < N_KERNELS; i++)
        if (avx2_kernels[i]->format == format) return avx2_kernels[i];
    return NULL;
}
#else
enum plec_cpu_set plec_cpu_detect(void) {
    return PLEC_CPU_PLAIN_C;
}

static const struct plec_cpu_kernel *find_vector_kernel(uint16_t format) {
    (void)format;
    return NULL;
}
#endif

const struct plec_cpu_kernel *plec_cpu_kernel_find(uint16_t format, enum plec_cpu_set set) {
    if (plec_format_find(format) == NULL) return NULL;
    const struct plec_cpu_kernel *kernel =
        set == PLEC_CPU_PLAIN_C ? NULL : find_vector_kernel(format);
    return kernel != NULL ? kernel : &plec_cpu_plain_kernel;
}

const char *plec_cpu_set_name(enum plec_cpu_set set) {
    return set == PLEC_CPU_AVX2 ? "AVX2+FMA" : "plain C";
}

struct plec_cpu_matrix plec_cpu_matrix_bind(const struct plec_matrix *m, enum plec_cpu_set set) {
    const struct plec_format *format = plec_format_find(m->format);
    assert(format != NULL && m->cols % format->block_elems == 0);
    size_t row_blocks = m->cols / format->block_elems;
    struct plec_cpu_matrix bound = {
        .kernel = plec_cpu_kernel_find(m->format, set),
        .format = format,
        .rows = m->rows,
        .cols = m->cols,
        .values = m->values,
        .row_bytes = row_blocks * format->block_bytes,
        .tensor_scale = 1,
    };
    if (format->geometry == PLEC_INLINE) return bound;
    bound.row_scales = row_blocks;
    bound.scales = m->scales;
    if (format->geometry == PLEC_TRAILING) {
        bound.scales = m->values + m->rows * bound.row_bytes;
        bound.tensor_scale = plec_bits_f32(plec_le32(bound.scales + m->rows * row_blocks));
    }
    return bound;
}

static uint64_t round_up(uint64_t n, uint64_t step) {
    return (n + step - 1) / step * step;
}

uint64_t plec_cpu_image_floats(const struct plec_cpu_kernel *kernel, uint32_t n, uint32_t cols) {
    if (kernel->image_floats != NULL) return round_up(kernel->image_floats(cols), 16);
    return n == cols ? 0 : round_up(cols, 16);
}

void plec_cpu_image_make(float *image, const struct plec_cpu_kernel *kernel, const float *x,
                         uint32_t n, uint32_t cols) {
    if (kernel->make_image != NULL) {
        kernel->make_image(image, x, n, cols);
        return;
    }
    memcpy(image, x, n * sizeof *x);
    memset(image + n, 0, (cols - n) * sizeof *x);
}

void plec_cpu_dot(float *out, const struct plec_cpu_matrix *m, uint32_t row,
                  const struct plec_cpu_vector *vectors, uint32_t n_vectors) {
    assert(row < m->rows && n_vectors >= 1 && n_vectors <= PLEC_CPU_TOKENS);
    struct plec_cpu_row view = {
        .blocks = m->values + row * m->row_bytes,
        .scales = m->scales == NULL ? NULL : m->scales + row * m->row_scales,
        .format = m->format,
        .tensor_scale = m->tensor_scale,
        .cols = m->cols,
    };
    const float *images[PLEC_CPU_TOKENS];
    for (uint32_t t = 0; t < n_vectors; t++)
        images[t] = vectors[t].image;
    m->kernel->dot[n_vectors - 1](out, &view, images);
    for (uint32_t t = 0; t < n_vectors; t++)
        if (!isfinite(out[t])) out[t] = plec_cpu_plain_dot(&view, vectors[t].x, vectors[t].n);
}
