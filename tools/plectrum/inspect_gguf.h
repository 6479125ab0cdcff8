/* inspect_gguf.h: what the two forms of the GGUF view share. */
#ifndef PLEC_TOOLS_INSPECT_GGUF_H
#define PLEC_TOOLS_INSPECT_GGUF_H

#include "tools/plectrum/gguf_select.h"
#include "tools/plectrum/inspect.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Bytes and tensors of one type. */
struct plec_type_total {
    uint32_t type;
    uint64_t n_tensors, n_elements, n_bytes;
};

struct plec_gguf_view {
    const char *path;
    const struct plec_inspect_options *options;
    struct plec_gguf_set set;
    struct plec_selection selection;
    struct plec_type_total *totals; /* [n_totals] of the selection, largest first */
    uint32_t n_totals;
};

/* Bytes of all files that are there. */
uint64_t plec_gguf_view_bytes(const struct plec_gguf_view *view);
/* "[in, out, experts]" for the axes of a tensor, as far as its rank and name tell. */
const char *const *plec_gguf_axes(const struct plec_gguf_tensor *tensor);
/* Bits a weight; 0 where there are no elements or no known size. */
double plec_gguf_bits(uint64_t n_bytes, uint64_t n_elements);
/* Bytes behind the last tensor, and bytes that the tensors ask for beyond the end. */
void plec_gguf_ends(uint64_t *trailing, uint64_t *missing, const struct plec_gguf *file);

/* One JSON object on stdout; false when it could not be written. `schema` in it is 1. */
bool plec_gguf_view_json(const struct plec_gguf_view *view);
/* The value of one key, as JSON with its type. */
bool plec_gguf_key_json(const struct plec_gguf *file, const struct plec_gguf_key *key);

#ifdef __cplusplus
}
#endif
#endif
