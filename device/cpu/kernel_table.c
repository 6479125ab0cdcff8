/* kernel_table.c: which kernel a format runs with: the sets, what the processor can do, the choice.
 */
#include <stddef.h>

#include "device/cpu/kernel.h"

#if defined(__x86_64__)
#include <cpuid.h>

extern const struct plec_cpu_kernel plec_cpu_f32_avx2, plec_cpu_f16_avx2, plec_cpu_bf16_avx2,
    plec_cpu_q8_0_avx2, plec_cpu_q4_0_avx2, plec_cpu_mxfp4_avx2, plec_cpu_q4_k_avx2,
    plec_cpu_q6_k_avx2;
extern const struct plec_cpu_kernel plec_cpu_f32_avx512, plec_cpu_f16_avx512, plec_cpu_bf16_avx512,
    plec_cpu_q8_0_avx512, plec_cpu_q4_0_avx512, plec_cpu_mxfp4_avx512, plec_cpu_q4_k_avx512,
    plec_cpu_q6_k_avx512;

/* Wider sets first: the first that fits is taken. */
static const struct {
    enum plec_cpu_set set;
    const struct plec_cpu_kernel *kernel;
} kernels[] = {
    {PLEC_CPU_AVX512, &plec_cpu_f32_avx512},  {PLEC_CPU_AVX512, &plec_cpu_f16_avx512},
    {PLEC_CPU_AVX512, &plec_cpu_bf16_avx512}, {PLEC_CPU_AVX512, &plec_cpu_q8_0_avx512},
    {PLEC_CPU_AVX512, &plec_cpu_q4_0_avx512}, {PLEC_CPU_AVX512, &plec_cpu_mxfp4_avx512},
    {PLEC_CPU_AVX512, &plec_cpu_q4_k_avx512}, {PLEC_CPU_AVX512, &plec_cpu_q6_k_avx512},
    {PLEC_CPU_AVX2, &plec_cpu_f32_avx2},      {PLEC_CPU_AVX2, &plec_cpu_f16_avx2},
    {PLEC_CPU_AVX2, &plec_cpu_bf16_avx2},     {PLEC_CPU_AVX2, &plec_cpu_q8_0_avx2},
    {PLEC_CPU_AVX2, &plec_cpu_q4_0_avx2},     {PLEC_CPU_AVX2, &plec_cpu_mxfp4_avx2},
    {PLEC_CPU_AVX2, &plec_cpu_q4_k_avx2},     {PLEC_CPU_AVX2, &plec_cpu_q6_k_avx2},
};

enum plec_cpu_set plec_cpu_detect(void) {
    unsigned a, b, c = 0, d;
    bool f16c = __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
    if (!f16c || !__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma"))
        return PLEC_CPU_PLAIN_C;
    bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                  __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq");
    return avx512 ? PLEC_CPU_AVX512 : PLEC_CPU_AVX2;
}

static const struct plec_cpu_kernel *find_vector_kernel(uint16_t format, enum plec_cpu_set set) {
    for (size_t i = 0; i < sizeof kernels / sizeof kernels[0]; i++)
        if (kernels[i].set <= set && kernels[i].kernel->format == format) return kernels[i].kernel;
    return NULL;
}
#else
enum plec_cpu_set plec_cpu_detect(void) {
    return PLEC_CPU_PLAIN_C;
}

static const struct plec_cpu_kernel *find_vector_kernel(uint16_t format, enum plec_cpu_set set) {
    (void)format, (void)set;
    return NULL;
}
#endif

const struct plec_cpu_kernel *plec_cpu_kernel_find(uint16_t format, enum plec_cpu_set set) {
    if (plec_format_find(format) == NULL) return NULL;
    const struct plec_cpu_kernel *kernel = find_vector_kernel(format, set);
    return kernel != NULL ? kernel : &plec_cpu_plain_kernel;
}

const char *plec_cpu_set_name(enum plec_cpu_set set) {
    switch (set) {
    case PLEC_CPU_PLAIN_C: return "plain C";
    case PLEC_CPU_AVX2: return "AVX2+FMA";
    case PLEC_CPU_AVX512: return "AVX-512";
    }
    return "unknown";
}
