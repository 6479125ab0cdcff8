/* make_container.c: makes a small but real bank container for the demonstration: four MoE layers
 * that differ in format, router and programme, with normally distributed weights, quantised by our
 * own encoders, written by our own writer, hashed.
 *
 * Usage: make_container FOLDER     (a folder that does not exist yet)
 */
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lyrw/hash.h"
#include "manifests/index_build.h"
#include "manifests/moe_build.h"
#include "tools/demo/bank.h"
#include "tools/plectrum/progress.h"

enum { HIDDEN = 512, LATENT = 256, INTERMEDIATE = 256, EXPERTS = 32, PATH_MAX_BYTES = 4096 };

/* What one layer is. */
struct recipe {
    const char *programme, *activation;
    uint16_t format;
    enum plec_demo_form form;
    bool sigmoid, latent;
    uint32_t top_k, n_shared;
    uint32_t n_segments, extent;
};

static const struct recipe recipes[] = {
    {.programme = "gated-mlp-v1",
     .activation = "silu",
     .format = PLEC_FORMAT_Q4_K,
     .form = PLEC_DEMO_FUSED,
     .top_k = 4,
     .n_segments = 2,
     .extent = 8},
    {.programme = "gated-mlp-v1",
     .activation = "silu",
     .format = PLEC_FORMAT_Q6_K,
     .form = PLEC_DEMO_SEPARATE,
     .sigmoid = true,
     .top_k = 6,
     .n_shared = 1,
     .n_segments = 1,
     .extent = 16},
    {.programme = "gpt-oss-expert-v1",
     .activation = "clamped_glu",
     .format = PLEC_FORMAT_MXFP4,
     .form = PLEC_DEMO_FUSED_BIASED,
     .top_k = 4,
     .n_segments = 1,
     .extent = 8},
    {.programme = "latent-moe-v1",
     .activation = "situ_glu",
     .format = PLEC_FORMAT_Q8_0,
     .form = PLEC_DEMO_FUSED,
     .sigmoid = true,
     .latent = true,
     .top_k = 8,
     .n_shared = 2,
     .n_segments = 1,
     .extent = 8},
};
enum { N_LAYERS = sizeof recipes / sizeof recipes[0] };

struct maker {
    const char *root;
    json_t *index, *manifest;
    struct plec_demo_random random;
    struct plec_progress progress;
    uint64_t n_written; /* matrices */
    struct plec_error err;
};

static bool path_of(char *out, const struct maker *maker, const char *name, const char *suffix) {
    int length = snprintf(out, PATH_MAX_BYTES, "%s/%s%s", maker->root, name, suffix);
    return length > 0 && length < PATH_MAX_BYTES;
}

/* Declares a written file with its extent width and hash. */
static enum plec_status declare(struct maker *maker, const char *key, uint32_t extent) {
    char path[PATH_MAX_BYTES], name[PATH_MAX_BYTES], hex[PLEC_SHA256_TEXT];
    uint8_t digest[PLEC_SHA256_BYTES];
    struct plec_error *err = &maker->err;
    path_of(path, maker, key, ".lyrw");
    snprintf(name, sizeof name, "%s.lyrw", key);
    enum plec_status status = plec_index_build_segment(maker->index, key, err);
    if (status == PLEC_OK && extent != 0)
        status = plec_index_build_extent(maker->index, key, extent, err);
    if (status == PLEC_OK) status = plec_sha256_file(hex, path, NULL, NULL, err);
    if (status != PLEC_OK) return status;
    for (int i = 0; i < PLEC_SHA256_BYTES; i++) {
        unsigned byte;
        sscanf(hex + 2 * i, "%2x", &byte);
        digest[i] = (uint8_t)byte;
    }
    return plec_index_build_sha256(maker->index, name, digest, err);
}

static void count_matrix(void *user) {
    struct maker *maker = user;
    plec_progress_update(&maker->progress, ++maker->n_written);
}

static enum plec_status write_file(struct maker *maker, const char *key,
                                   const struct plec_demo_bank *bank, uint32_t extent) {
    char path[PATH_MAX_BYTES];
    path_of(path, maker, key, ".lyrw");
    enum plec_status status =
        plec_demo_write_bank(path, bank, &maker->random, count_matrix, maker, &maker->err);
    return status == PLEC_OK ? declare(maker, key, extent) : status;
}

static enum plec_status write_routed(struct maker *maker, uint32_t layer,
                                     const struct recipe *recipe, const char *storage) {
    uint32_t width = recipe->latent ? LATENT : HIDDEN, n = EXPERTS / recipe->n_segments;
    enum plec_status status = PLEC_OK;
    for (uint32_t i = 0; status == PLEC_OK && i < recipe->n_segments; i++) {
        char key[64];
        snprintf(key, sizeof key, recipe->n_segments > 1 ? "%s.seg%02u" : "%s", storage, i);
        const struct plec_demo_bank bank = {.layer = layer,
                                            .kind = PLEC_BANK_ROUTED,
                                            .format = recipe->format,
                                            .form = recipe->form,
                                            .n_entries = EXPERTS,
                                            .segment = i,
                                            .first_entry = i * n,
                                            .n_held = n,
                                            .input = width,
                                            .intermediate = INTERMEDIATE,
                                            .output = width,
                                            .extent = recipe->extent};
        status = write_file(maker, key, &bank, recipe->extent);
    }
    return status;
}

static enum plec_status write_shared(struct maker *maker, uint32_t layer, uint32_t n_shared,
                                     const char *storage) {
    const struct plec_demo_bank bank = {.layer = layer,
                                        .kind = PLEC_BANK_SHARED,
                                        .format = PLEC_FORMAT_BF16,
                                        .form = PLEC_DEMO_SEPARATE,
                                        .n_entries = n_shared,
                                        .n_held = n_shared,
                                        .input = HIDDEN,
                                        .intermediate = INTERMEDIATE,
                                        .output = HIDDEN};
    return write_file(maker, storage, &bank, 0);
}

/* The router and what belongs to it. */
static enum plec_status write_control(struct maker *maker, uint32_t layer,
                                      const struct recipe *recipe, const char *key) {
    struct plec_demo_tensor tensors[5];
    size_t n = 0;
    tensors[n++] = (struct plec_demo_tensor){PLEC_ROLE_ROUTER_WEIGHT, EXPERTS, HIDDEN, 0};
    if (recipe->sigmoid)
        tensors[n++] = (struct plec_demo_tensor){PLEC_ROLE_SELECTION_BIAS, 1, EXPERTS, 0};
    if (recipe->latent) {
        tensors[n++] = (struct plec_demo_tensor){PLEC_ROLE_LATENT_IN, LATENT, HIDDEN, 0};
        tensors[n++] = (struct plec_demo_tensor){PLEC_ROLE_LATENT_OUT, HIDDEN, LATENT, 0};
        tensors[n++] = (struct plec_demo_tensor){PLEC_ROLE_ROUTED_OUTPUT_NORM, 1, LATENT, 1};
    }
    char path[PATH_MAX_BYTES];
    path_of(path, maker, key, ".lyrw");
    enum plec_status status =
        plec_demo_write_control(path, layer, tensors, n, &maker->random, &maker->err);
    return status == PLEC_OK ? declare(maker, key, 0) : status;
}

static enum plec_status declare_layer(struct maker *maker, uint32_t number,
                                      const struct recipe *recipe, const char *routed,
                                      const char *shared, const char *control) {
    struct plec_moe_layer layer = {
        .layer = number,
        .input_space = recipe->latent ? PLEC_SPACE_LATENT : PLEC_SPACE_RESIDUAL,
        .router = {.scores = "router.weight",
                   .sigmoid = recipe->sigmoid,
                   .k = recipe->top_k,
                   .renormalise = true,
                   .gate_bias = recipe->sigmoid ? "router.selection_bias" : NULL,
                   .has_route_scale = recipe->sigmoid,
                   .route_scale = 2.5},
        .routed = {.present = true,
                   .experts = EXPERTS,
                   .programme = recipe->programme,
                   .storage = routed},
        .control = control,
        .expert = {.given = true,
                   .activation = recipe->activation,
                   .has_beta = recipe->latent,
                   .beta = 4,
                   .has_linear_beta = recipe->latent,
                   .linear_beta = 25}};
    if (recipe->latent) {
        layer.routed_input = "latent_in.weight";
        layer.routed_output = "latent_out.weight";
        layer.routed_output_norm = "routed_norm.weight";
        layer.has_norm_eps = true;
        layer.norm_eps = 1e-5;
    }
    if (recipe->n_shared > 0) {
        layer.shared = (struct plec_moe_bank){.present = true,
                                              .experts = recipe->n_shared,
                                              .programme = "gated-mlp-v1",
                                              .storage = shared};
        layer.shared_expert = (struct plec_moe_expert){.given = true, .activation = "silu"};
    }
    return plec_moe_build_layer(maker->manifest, &layer, &maker->err);
}

static enum plec_status make_layer(struct maker *maker, uint32_t number) {
    const struct recipe *recipe = &recipes[number];
    char routed[64], shared[64], control[64];
    snprintf(routed, sizeof routed, "routed/layer_%03u", number);
    snprintf(shared, sizeof shared, "shared/layer_%03u", number);
    snprintf(control, sizeof control, "control/layer_%03u", number);
    enum plec_status status = write_routed(maker, number, recipe, routed);
    if (status == PLEC_OK && recipe->n_shared > 0)
        status = write_shared(maker, number, recipe->n_shared, shared);
    if (status == PLEC_OK) status = write_control(maker, number, recipe, control);
    if (status == PLEC_OK) status = declare_layer(maker, number, recipe, routed, shared, control);
    return status;
}

static enum plec_status make_folders(struct maker *maker) {
    static const char *const folders[] = {"", "routed", "shared", "control"};
    for (size_t i = 0; i < sizeof folders / sizeof folders[0]; i++) {
        char path[PATH_MAX_BYTES];
        if (!path_of(path, maker, folders[i], "") || mkdir(path, 0755) != 0)
            return plec_fail(&maker->err, PLEC_IO, "CannotMakeFolder", "%s/%s: %s", maker->root,
                             folders[i], strerror(errno));
    }
    return PLEC_OK;
}

/* The manifest first, the index last: without it there is no container. */
static enum plec_status store_manifests(struct maker *maker) {
    char path[PATH_MAX_BYTES];
    path_of(path, maker, "moe_manifest", ".json");
    enum plec_status status = plec_json_store(path, maker->manifest, &maker->err);
    path_of(path, maker, "index", ".json");
    return status == PLEC_OK ? plec_json_store(path, maker->index, &maker->err) : status;
}

static uint64_t count_matrices(void) {
    uint64_t n = 0;
    for (int i = 0; i < N_LAYERS; i++)
        n += (recipes[i].form == PLEC_DEMO_SEPARATE ? 3 : 2) * EXPERTS + 3 * recipes[i].n_shared;
    return n;
}

static enum plec_status make(struct maker *maker) {
    const struct plec_index_build_args about = {.model = "plectrum-demo",
                                                .family = "demonstration",
                                                .hidden_size = HIDDEN,
                                                .num_layers = N_LAYERS,
                                                .moe_manifest = "moe_manifest.json"};
    enum plec_status status = make_folders(maker);
    if (status == PLEC_OK) status = plec_index_build(&maker->index, &about, &maker->err);
    if (status == PLEC_OK) status = plec_moe_build(&maker->manifest, &maker->err);
    maker->progress =
        plec_progress_start("quantising matrices", count_matrices(), PLEC_PROGRESS_COUNT);
    for (uint32_t i = 0; status == PLEC_OK && i < N_LAYERS; i++)
        status = make_layer(maker, i);
    plec_progress_end(&maker->progress);
    return status == PLEC_OK ? store_manifests(maker) : status;
}

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: make_container FOLDER\n");
        return 2;
    }
    struct maker maker = {.root = argv[1], .random = {UINT64_C(0x706c656374727564)}};
    enum plec_status status = make(&maker);
    json_decref(maker.index);
    json_decref(maker.manifest);
    if (status != PLEC_OK) {
        fprintf(stderr, "make_container: %s\n", maker.err.message);
        return 4;
    }
    printf("made %s: %d layers of %d experts, hidden size %d\n", maker.root, N_LAYERS, EXPERTS,
           HIDDEN);
    return 0;
}
