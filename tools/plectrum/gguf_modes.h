/* gguf_modes.h: the ways `plectrum gguf` looks at a model, one function each. A mode prints on
 * stdout, says what is wrong on stderr and returns the exit status: 0, 1 where the model is not
 * sound or the check it makes fails, 3 or 4 when nothing can be told.
 */
#ifndef PLEC_TOOLS_GGUF_MODES_H
#define PLEC_TOOLS_GGUF_MODES_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct plec_gguf_options {
    bool json;
    bool noalign;      /* floats, sketch: read from where the records end */
    bool experts;      /* hash: every expert of a tensor apart */
    const char *check; /* dump, hash: a file to compare with */
    const char *write; /* hash: where the manifest goes */
    uint32_t align;    /* sketch */
    uint64_t n;        /* peek: how many values */
};

/* operands: what stands behind the mode, as many as it asks for. */
int plec_gguf_head(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_meta(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_stack(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_layer(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_account(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_bytes(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_floats(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_dump(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_sketch(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_peek(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_hash(const char *const *operands, const struct plec_gguf_options *options);
int plec_gguf_diff(const char *const *operands, const struct plec_gguf_options *options);

#ifdef __cplusplus
}
#endif
#endif
