#include "device/layer.h"

#include <string.h>

static const char *const activation_names[PLEC_N_ACTIVATIONS] = {
    [PLEC_SILU] = "silu",
    [PLEC_GELU_TANH] = "gelu_tanh",
    [PLEC_GELU_ERF] = "gelu_erf",
    [PLEC_RELU] = "relu",
    [PLEC_RELU_SQR] = "relu_sqr",
    [PLEC_CLAMPED_GLU] = "clamped_glu",
    [PLEC_CLAMPED_GATED] = "clamped_gated",
    [PLEC_SITU_GLU] = "situ_glu",
    [PLEC_SILU_STEP] = "silu_step",
};

const char *plec_activation_name(enum plec_activation activation) {
    return activation < PLEC_N_ACTIVATIONS ? activation_names[activation] : "unknown";
}

int plec_activation_by_name(const char *name) {
    for (int i = 0; i < PLEC_N_ACTIVATIONS; i++)
        if (strcmp(name, activation_names[i]) == 0) return i;
    return -1;
}
