#include "tools/bench/models.h"

#include <string.h>

const struct plec_bench_model plec_bench_models[] = {
    {"gpt-oss-120b", 2880, 2880, 128, 4, PLEC_CLAMPED_GLU},
    {"mixtral-8x7b", 4096, 14336, 8, 2, PLEC_SILU},
    {"qwen3-30b-a3b", 2048, 768, 128, 8, PLEC_SILU},
    {"qwen3-235b-a22b", 4096, 1536, 128, 8, PLEC_SILU},
    {"deepseek-v3", 7168, 2048, 256, 8, PLEC_SILU},
    {"gpt-oss-20b", 2880, 2880, 32, 4, PLEC_CLAMPED_GLU},
    {"kimi-k2", 7168, 2048, 384, 8, PLEC_SILU},
    {"olmoe-1b-7b", 2048, 1024, 64, 8, PLEC_SILU},
    {"granite-3-3b-a800m", 1536, 512, 40, 8, PLEC_SILU},
    {"llama-4-scout", 5120, 8192, 16, 1, PLEC_SILU},
    {"kimi-k3", 3584, 3072, 896, 16, PLEC_SILU},
};
const size_t plec_bench_n_models = sizeof plec_bench_models / sizeof plec_bench_models[0];

const struct plec_bench_model *plec_bench_model_by_name(const char *name) {
    for (size_t i = 0; i < plec_bench_n_models; i++)
        if (strcmp(plec_bench_models[i].name, name) == 0) return &plec_bench_models[i];
    return NULL;
}
