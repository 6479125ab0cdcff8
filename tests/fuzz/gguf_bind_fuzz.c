/* Any bytes as a GGUF model: every layer viewed, bound, routed and run for one token. */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "device/reference/reference.h"
#include "host/gguf_bind.h"
#include "host/gguf_view.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Larger layers bind, and are not run: the time goes into their arithmetic. */
enum { MAX_LAYERS = 4, MAX_PRODUCT = 1 << 20 };

static void *zeroed(size_t n, size_t size) {
    void *memory = calloc(n + 1, size);
    if (memory == NULL) abort();
    return memory;
}

static uint64_t products(const struct plec_layer *layer) {
    const struct plec_bank *banks[] = {&layer->routed, &layer->shared, &layer->dense};
    uint64_t n = (uint64_t)layer->router.n_experts * layer->hidden_size;
    for (int i = 0; i < 3; i++)
        n += (uint64_t)(i == 0 ? layer->router.top_k : banks[i]->n_entries) *
             banks[i]->intermediate_dim * ((uint64_t)banks[i]->input_dim + banks[i]->output_dim);
    return n + (uint64_t)layer->latent_in.rows * layer->hidden_size * 2;
}

/* Experts by the router, or the first ones; in range either way. */
static void route(int32_t *ids, double *weights, const struct plec_bound_layer *bound,
                  const float *x) {
    const struct plec_router *router = &bound->layer.router;
    for (uint32_t j = 0; j < router->top_k; j++) {
        ids[j] = (int32_t)j;
        weights[j] = 1;
    }
    if (!plec_matrix_present(&router->weight)) return;
    double *z = zeroed(router->n_experts, sizeof *z), *row = zeroed(router->weight.cols, sizeof *z);
    double *scratch = zeroed(plec_reference_route_scratch(router), sizeof *z);
    plec_reference_logits(z, router, x, row);
    if (bound->token_table != NULL) {
        memcpy(ids, bound->token_table + (size_t)(bound->n_token_ids - 1) * router->top_k,
               router->top_k * sizeof *ids);
        plec_reference_weigh(weights, ids, router, z, scratch);
    } else {
        (void)!plec_reference_route(ids, weights, router, z, scratch, NULL);
    }
    free(z);
    free(row);
    free(scratch);
}

static void run(const struct plec_bound_layer *bound) {
    const struct plec_layer *layer = &bound->layer;
    if (products(layer) > MAX_PRODUCT) return;
    float *x = zeroed(layer->hidden_size, sizeof *x), *y = zeroed(layer->hidden_size, sizeof *y);
    int32_t *ids = zeroed(layer->router.top_k, sizeof *ids);
    double *weights = zeroed(layer->router.top_k, sizeof *weights);
    double *scratch = zeroed(plec_reference_layer_scratch(layer), sizeof *scratch);
    for (uint32_t i = 0; i < layer->hidden_size; i++)
        x[i] = (float)(i % 7) - 3;
    route(ids, weights, bound, x);
    struct plec_reference_args args = {.layer = layer,
                                       .n_tokens = 1,
                                       .n_slots = layer->router.top_k,
                                       .x = x,
                                       .ids = ids,
                                       .weights = weights,
                                       .y = y,
                                       .scratch = scratch};
    plec_reference_layer(&args);
    free(x);
    free(y);
    free(ids);
    free(weights);
    free(scratch);
}

/* What looking says of a layer must be what binding does. */
static void try_layer(struct plec_gguf_model *model, uint32_t i) {
    struct plec_gguf_layer_view view;
    struct plec_bound_layer bound;
    struct plec_error err;
    memset(&bound, 0, sizeof bound);
    plec_gguf_view_layer(&view, model, i);
    enum plec_status status = plec_gguf_bind(&bound, model, i, &err);
    if ((status == PLEC_OK) != view.converts) abort();
    if (status == PLEC_OK) run(&bound);
    plec_bound_layer_close(&bound);
}

static void try_model(const char *path) {
    static const struct plec_gguf_model_options help = {
        .architecture = NULL, .settings = "gating=sigmoid,norm=1,act=silu"};
    struct plec_gguf_set set;
    struct plec_gguf_model model;
    if (plec_gguf_set_open(&set, path, PLEC_GGUF_LOOK, NULL) != PLEC_OK) return;
    for (int unknown = 0; unknown < 2; unknown++) {
        if (plec_gguf_model_open(&model, &set, unknown ? &help : NULL, NULL) != PLEC_OK) continue;
        for (uint32_t i = 0; i < model.n_blocks && i < MAX_LAYERS; i++)
            try_layer(&model, i);
        plec_gguf_model_close(&model);
    }
    plec_gguf_set_close(&set);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static int file = -1;
    char path[40];
    if (file < 0) file = memfd_create("model", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, 0) != 0 || pwrite(file, data, size, 0) != (ssize_t)size)
        abort();
    snprintf(path, sizeof path, "/proc/self/fd/%d", file);
    try_model(path);
    return 0;
}
