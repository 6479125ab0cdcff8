/* gguf_slab.h: a tensor of a model, or one expert of it, or one row, by the name a user gives:
 * TENSOR, TENSOR:EXPERT or TENSOR:EXPERT:ROW.
 */
#ifndef PLEC_TOOLS_GGUF_SLAB_H
#define PLEC_TOOLS_GGUF_SLAB_H

#include "lyrw/gguf_split.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_slab {
    const struct plec_gguf_tensor *tensor;
    const struct plec_gguf *file;
    uint64_t expert, row;
    bool one_expert, one_row;
    const uint8_t *bytes; /* [n_bytes], whole blocks */
    uint64_t n_bytes, n_elements;
};

/* Experts of a tensor: what lies along ne[2] (and ne[3]); 1 for a matrix or a vector. */
uint64_t plec_tensor_experts(const struct plec_gguf_tensor *tensor);

/* The same where each can be told of on its own: 1 for tensors cut in more than 65536, or in slabs
 * of less than 64 bytes, so that what is kept for each stays within the size of the file. */
uint64_t plec_tensor_experts_apart(const struct plec_gguf_tensor *tensor);

/* Finds it and checks that its bytes can be used. A tensor whose whole name is given is taken
 * before the name is cut at a colon. PLEC_MISSING "NoSuchTensor", "NoSuchExpert", "NoSuchRow", and
 * the statuses of plec_gguf_use_tensor. */
PLEC_MUST_USE enum plec_status plec_slab_find(struct plec_slab *out,
                                              const struct plec_gguf_set *set, const char *name,
                                              struct plec_error *err);

/* One expert of a tensor that is known already; expert < plec_tensor_experts. */
PLEC_MUST_USE enum plec_status plec_slab_expert(struct plec_slab *out,
                                                const struct plec_gguf_set *set,
                                                const struct plec_gguf_tensor *tensor,
                                                uint64_t expert, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
