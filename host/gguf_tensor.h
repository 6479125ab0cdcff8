/* gguf_tensor.h: tensors of a GGUF model as matrices and vectors: views of the mapped file, shape,
 * type and place checked. Refusals name the tensor, and what was wanted and found in ne order.
 */
#ifndef PLEC_HOST_GGUF_TENSOR_H
#define PLEC_HOST_GGUF_TENSOR_H

#include "host/arena.h"
#include "host/gguf_model.h"
#include "lyrw/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* PLEC_MALFORMED "ShapesDisagree" unless ne is {ne0, ne1, ne2} and 1 beyond: a matrix is in x out,
 * or in x out x experts. */
PLEC_MUST_USE enum plec_status plec_gguf_expect_matrix(const struct plec_gguf_tensor *tensor,
                                                       uint64_t ne0, uint64_t ne1, uint64_t ne2,
                                                       struct plec_error *err);
/* As above for {n} or {n, count}; dims of 1 may stand anywhere. what: "experts", "input". */
PLEC_MUST_USE enum plec_status plec_gguf_expect_vector(const struct plec_gguf_tensor *tensor,
                                                       uint64_t n, uint64_t count, const char *what,
                                                       struct plec_error *err);

/* The format a tensor's bytes travel under. PLEC_UNSUPPORTED "NeedsCodebook", "NoCodec",
 * "UnknownType", by the type's name. */
PLEC_MUST_USE enum plec_status plec_gguf_tensor_format(uint16_t *format,
                                                       const struct plec_gguf_tensor *tensor,
                                                       struct plec_error *err);

/* Format, rows (ne1), columns (ne0) and first byte of a tensor's matrices, of which ne2 lie behind
 * each other. Fails as plec_gguf_tensor_format and plec_gguf_use_tensor; PLEC_MALFORMED "BadDim"
 * for a dim beyond 32 bits. */
PLEC_MUST_USE enum plec_status plec_gguf_matrix(struct plec_matrix *out,
                                                const struct plec_gguf_model *model,
                                                const struct plec_gguf_tensor *tensor,
                                                struct plec_error *err);
/* Bytes of one of a tensor's matrices: the whole but for the third dim. */
uint64_t plec_gguf_matrix_bytes(const struct plec_gguf_tensor *tensor);

/* All elements of a small tensor as f32: a view where it is f32 and aligned, else decoded into the
 * arena. */
PLEC_MUST_USE enum plec_status plec_gguf_tensor_f32(const float **out, struct plec_arena *arena,
                                                    const struct plec_gguf_model *model,
                                                    const struct plec_gguf_tensor *tensor,
                                                    struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
