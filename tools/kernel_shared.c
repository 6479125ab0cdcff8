/* kernel_shared.c: prints the dynamic shared memory that CUDA kernels are launched with at most, a
 * line a kernel, and the least and the last architecture that runs it (0: any later one) where not
 * all do: "mm_sync<q4_0,8> 12345 80 0", named as tools/kernel_table.sh names them. Linked with
 * the emulated backend: it needs no GPU. */
#include <stdio.h>
#include <string.h>

#include "device/cuda/kernels.h"

int main(void) {
    const char *symbol;
    static const char *const plans[] = {"plan_kernel", "plan_count", "plan_lists", "plan_place"};
    for (size_t i = 0; i < sizeof plans / sizeof plans[0]; i++)
        printf("%s %zu\n", plans[i], plec_cuda_plan_shared(PLEC_CUDA_EXPERTS_MAX));
    printf("route_kernel %zu\n",
           plec_cuda_route_shared(PLEC_CUDA_EXPERTS_MAX, PLEC_CUDA_EXPERTS_MAX));
    for (size_t i = 0; plec_cuda_gemm_at(&symbol, i) != NULL; i++) {
        const struct plec_cuda_gemm *gemm = plec_cuda_gemm_at(&symbol, i);
        const char *format = symbol + strlen("plec_cuda_") + strlen(gemm->name) + 1;
        for (uint32_t c = 0; c < PLEC_CUDA_CLASSES; c++)
            if (gemm->shared_bytes[c] > 0 && (c == 0 || gemm->widths[c] != gemm->widths[c - 1]))
                printf("%s<%s,%u> %u %u %u\n", gemm->name, format, gemm->widths[c],
                       gemm->shared_bytes[c], gemm->least_arch, gemm->most_arch);
    }
    return 0;
}
