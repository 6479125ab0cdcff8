/* gguf_bank.h: the matrices of one family of a GGUF block as a bank of experts: every region a view
 * into the mapped file.
 *
 * Separate gate and up, one fused tensor (gate rows first), no gate at all, or one tensor for each
 * expert, with biases and per-expert factors. A fused tensor whose biases come apart is shown as
 * two matrices, which are still the file's bytes.
 */
#ifndef PLEC_HOST_GGUF_BANK_H
#define PLEC_HOST_GGUF_BANK_H

#include "device/layer.h"
#include "host/arena.h"
#include "host/gguf_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Most experts of a bank. */
enum { PLEC_GGUF_MAX_EXPERTS = 65536 };

/* Whether the architecture's experts have a gate. */
enum plec_gguf_gate {
    PLEC_GGUF_GATE_NEVER,
    PLEC_GGUF_GATE_AS_FOUND,  /* with one, fused, or without */
    PLEC_GGUF_GATE_OR_DOUBLE, /* as found; an up tensor of 2F rows holds the gate's rows first */
    PLEC_GGUF_GATE_ALWAYS
};

struct plec_gguf_bank_request {
    enum plec_gguf_family family;
    uint32_t n_entries; /* 1 but for routed experts */
    uint32_t input, output;
    enum plec_gguf_gate gate;
    bool biases_required;
};

/* Builds a bank, all but its maths. PLEC_MISSING "MissingTensor" (names what the block lacks: of
 * tensors of single experts, all of them); PLEC_MALFORMED "UnexpectedTensor" (a gate where the
 * architecture has none, fused and separate at once, factors of a fused tensor that leave a half
 * out), "ShapesDisagree", "BadScale" (a factor that is 0 or not finite), "TypesDiffer" (single
 * experts of several types: which), "ExpertOutOfRange", and what gguf_tensor.h lists. */
PLEC_MUST_USE enum plec_status plec_gguf_bank_build(struct plec_bank *out, struct plec_arena *arena,
                                                    const struct plec_gguf_layer *layer,
                                                    const struct plec_gguf_bank_request *request,
                                                    struct plec_error *err);

/* The width between up and down: rows of an up or gate matrix, or half of a fused one's. 0 without
 * any. */
uint64_t plec_gguf_bank_inner(const struct plec_gguf_layer *layer, enum plec_gguf_family family);

/* -- tensors of single experts (gguf_per_expert.c) -- */

/* Fills the three matrices of every entry of a routed bank from one tensor for each expert. */
PLEC_MUST_USE enum plec_status
plec_gguf_bank_per_expert(struct plec_bank *out, struct plec_entry *entries,
                          struct plec_arena *arena, const struct plec_gguf_layer *layer,
                          const struct plec_gguf_bank_request *request, struct plec_error *err);

#ifdef __cplusplus
}
#endif
#endif
