/* gguf_select.h: the tensors of a model that a pattern matches, in an order a user asked for. */
#ifndef PLEC_TOOLS_GGUF_SELECT_H
#define PLEC_TOOLS_GGUF_SELECT_H

#include "lyrw/gguf_split.h"

#ifdef __cplusplus
extern "C" {
#endif

struct plec_selection {
    const struct plec_gguf_tensor **tensors; /* [n_tensors] */
    uint32_t n_tensors;
    uint64_t n_bytes, n_elements; /* of them together; UINT64_MAX when 64 bits do not count them */
};

/* "name", "bytes" (largest first), "offset" (file after file) or "type". */
bool plec_sort_is_known(const char *sort);

/* filter: a glob over the whole name ("blk.*.ffn_*_exps.weight") or an extended regular expression
 * found anywhere in it ("ffn_(up|down)_exps"): a tensor that either fits is taken; NULL: all. sort
 * NULL: file order. PLEC_BAD_INPUT "BadPattern"; PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_selection_make(struct plec_selection *out,
                                                   const struct plec_gguf_set *set,
                                                   const char *filter, const char *sort,
                                                   struct plec_error *err);
void plec_selection_free(struct plec_selection *selection);

#ifdef __cplusplus
}
#endif
#endif
