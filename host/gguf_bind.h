/* gguf_bind.h: one block of a GGUF model as a layer ready to run: tensors recognised, compared with
 * each other and with the keys, values of the architecture settled.
 *
 * Nothing of the experts is copied: their regions are the mapped file. Small vectors that the
 * executors take as f32 are views where they are f32, else decoded into the layer's arena.
 */
#ifndef PLEC_HOST_GGUF_BIND_H
#define PLEC_HOST_GGUF_BIND_H

#include "host/container.h"
#include "host/gguf_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Binds block i of model, i < n_blocks; *out is zeroed. What is left out of the layer (a branch
 * that reads another vector) and which defaults were taken is told through the model's log. On
 * failure the caller closes *out. PLEC_UNSUPPORTED "ChunkExperts", "NoDefinition"; PLEC_MALFORMED
 * "DuplicateTensor", "TooManyExperts", "DimensionContradicted", "UnexpectedTensor"; and what
 * gguf_bank.h, gguf_tensor.h and plec_arch_resolve list. */
PLEC_MUST_USE enum plec_status plec_gguf_bind(struct plec_bound_layer *out,
                                              struct plec_gguf_model *model, uint32_t i,
                                              struct plec_error *err);

/* The programme that the tensors of a block carry: "gated-mlp-v1", "plectrum-latent-mlp-v1". */
const char *plec_gguf_programme(const struct plec_gguf_layer *layer);

/* The numbers of an expert's arithmetic. PLEC_UNSUPPORTED "UnknownActivation". */
PLEC_MUST_USE enum plec_status plec_gguf_maths(struct plec_expert_maths *out,
                                               const struct plec_arch_maths *maths,
                                               struct plec_error *err);

/* -- the router (gguf_router.c) -- */

/* Fills out->layer.router and what routing needs beside it (token table, router input).
 * PLEC_MISSING "MissingTensor", PLEC_MALFORMED "UnexpectedTensor", "ShapesDisagree",
 * "BadTokenTable" (an id outside the experts: token, slot, id). */
PLEC_MUST_USE enum plec_status plec_gguf_bind_router(struct plec_bound_layer *out,
                                                     struct plec_gguf_model *model,
                                                     const struct plec_gguf_layer *layer,
                                                     const struct plec_arch_layer *values,
                                                     struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
