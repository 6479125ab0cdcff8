/* layer.h: one MoE layer as arithmetic: what the executors are given, whatever file it came from.
 *
 * The host fills these structs from a bank container, a GGUF or a TEZW file; the reference
 * executor, the CPU backend and the CUDA backend read them. Nothing here knows a file, a thread or
 * a device; all pointers are views that must outlive the layer.
 *
 *   y = out_scale * ( routed(x) + shared(x) + dense(x) )
 *   routed(x) = latent_out . norm( sum over slots of w * expert(latent_in . x) )
 *   expert(z) = down . act(gate . z * gs + bg, up . z * us + bu) * ds + bd
 */
#ifndef PLEC_DEVICE_LAYER_H
#define PLEC_DEVICE_LAYER_H

#include <stdbool.h>
#include <stdint.h>

#include "lyrw/format.h"

#ifdef __cplusplus
extern "C" {
#endif

/* g: gate value, u: up value, s: logistic sigmoid. Without a gate operand the function acts on u
 * and there is no product. Source: docs/format.md "Activations". */
enum plec_activation {
    PLEC_SILU,          /* g s(g) u */
    PLEC_GELU_TANH,     /* tanh-approximated gelu(g) u */
    PLEC_GELU_ERF,      /* exact gelu(g) u */
    PLEC_RELU,          /* max(g, 0) u */
    PLEC_RELU_SQR,      /* max(g, 0)^2 u */
    PLEC_CLAMPED_GLU,   /* g' = min(g, L), u' = clamp(u, -L, L): g' s(alpha g') (u' + 1) */
    PLEC_CLAMPED_GATED, /* g' = min(g, L), u' = clamp(u, -L, L): g' s(g') u' */
    PLEC_SITU_GLU,      /* beta tanh(g / beta) s(g) U, U = lb tanh(u / lb), or u when lb is 0 */
    PLEC_SILU_STEP,     /* min(g s(g), L) clamp(u, -L, L) */
    PLEC_N_ACTIVATIONS
};

/* "silu", "gelu_tanh", ...; -1 for an unknown name. */
const char *plec_activation_name(enum plec_activation activation);
int plec_activation_by_name(const char *name);

struct plec_expert_maths {
    enum plec_activation activation;
    double limit;       /* L; clamped_glu 7, clamped_gated 10 unless given */
    double alpha;       /* clamped_glu: 1.702 unless given */
    double beta;        /* situ_glu: 0 or absent acts as 1 */
    double linear_beta; /* situ_glu: 0 or absent leaves u as it is */
};

/* The operands an expert can have. A fused gate-and-up matrix (and its bias) stands in the GATE
 * place with a layout; UP is then absent. */
enum plec_operand_id {
    PLEC_GATE,
    PLEC_UP,
    PLEC_DOWN,
    PLEC_GATE_BIAS,
    PLEC_UP_BIAS,
    PLEC_DOWN_BIAS,
    PLEC_N_OPERANDS
};
enum { PLEC_N_MATRICES = 3 }; /* GATE, UP, DOWN; the rest are vectors */

/* How gate and up rows share one fused matrix of 2n rows. */
enum plec_fusion {
    PLEC_NOT_FUSED,
    PLEC_FUSED_GATE_FIRST, /* gate i at row i, up i at row n + i */
    PLEC_FUSED_UP_FIRST,   /* up i at row i, gate i at row n + i */
    PLEC_FUSED_INTERLEAVED /* gate i at row 2i, up i at row 2i + 1 */
};

/* What every entry of a bank has in common for one operand. rows 0: the operand is absent. A bias
 * is rows 1 x cols = outputs of its matrix, in that matrix's row order. */
struct plec_operand {
    uint16_t format; /* enum plec_format_tag, with a codec */
    uint32_t rows, cols;
};

/* Where one entry's operands lie. values is NULL for an operand the bank lacks. */
struct plec_entry {
    const uint8_t *values[PLEC_N_OPERANDS];
    const uint8_t *scales[PLEC_N_MATRICES]; /* paired formats only, else NULL */
};

/* Experts of one kind. n_entries 0: the layer has no such bank. */
struct plec_bank {
    uint32_t n_entries;
    uint32_t input_dim;        /* columns of gate and up: hidden or latent width */
    uint32_t intermediate_dim; /* outputs of gate, and of up */
    uint32_t output_dim;       /* rows of down */
    enum plec_fusion fusion;
    struct plec_operand operands[PLEC_N_OPERANDS]; /* down.cols may exceed intermediate_dim by less
                                                      than a block: padding, multiplied by 0 */
    struct plec_expert_maths maths;
    const struct plec_entry *entries; /* [n_entries] */
    bool arrived; /* entries are in the form of the device that launches the bank
                     (plec_device_arrival); else as files have them */
    const float *gate_scale, *up_scale, *down_scale; /* [n_entries] f32 each, or NULL: 1. Multiply
                                                        the product before its bias; fused: gate
                                                        rows by gate_scale, up rows by up_scale */
};

enum plec_gating {
    PLEC_GATING_SOFTMAX,          /* p = softmax(z) over all experts */
    PLEC_GATING_SIGMOID,          /* p = s(z) */
    PLEC_GATING_SOFTMAX_SELECTED, /* p = z; the weights are a softmax over the chosen */
    PLEC_GATING_SQRT_SOFTPLUS     /* p = sqrt(log(1 + e^z)) */
};

/* What the selection key starts from, before selection_bias is added. */
enum plec_select_on { PLEC_SELECT_ON_SCORES, PLEC_SELECT_ON_LOGITS, PLEC_SELECT_ON_SIGMOID };

/* r = x, or rmsnorm(x) / sqrt(input_dim) * input_scale with input_norm;  z = weight . r + bias;
 * p = gating(z);  key = p (or z) + selection_bias;  ids = the top_k largest keys, ties to the lower
 * id;  w = p of the chosen;  normalise;  * scale;  * expert_scale. */
struct plec_router {
    uint32_t n_experts, top_k; /* top_k: experts a token in all */
    enum plec_gating gating;
    enum plec_select_on select_on;
    uint32_t n_groups;      /* equal, contiguous groups; 0 or 1: no groups */
    uint32_t n_groups_used; /* best groups by the sum of their two largest keys ... */
    uint32_t k_per_group;   /* ... or, if not 0: this many from every group (grouped_top_k) */
    bool normalise;         /* w /= max(sum w + norm_epsilon, norm_floor) */
    double norm_epsilon, norm_floor;
    double scale;         /* 1 when there is none */
    bool weight_on_input; /* the weight multiplies the expert's input, and its output is summed
                             unweighted */
    uint32_t input_dim;   /* columns of weight */
    struct plec_matrix
        weight;        /* [n_experts, input_dim]; values NULL: no router, the caller routes */
    const float *bias; /* [n_experts] or NULL */
    const float *selection_bias; /* [n_experts] or NULL */
    const float *expert_scale;   /* [n_experts] or NULL */
    bool input_norm;             /* RMSNorm without a gain, then / sqrt(input_dim) (gemma4) */
    double input_eps;            /* of that norm */
    const float *input_scale;    /* [input_dim] multiplied into the normed input, or NULL: 1 */
};

struct plec_layer {
    uint32_t hidden_size;
    struct plec_router router;
    struct plec_bank routed;
    struct plec_bank shared; /* every entry runs on every token with weight 1, in entry order */
    struct plec_bank dense;  /* a parallel dense branch (grok, cohere2moe): as shared */
    struct plec_matrix latent_in;  /* [latent, hidden]; values NULL: experts see x */
    struct plec_matrix latent_out; /* [hidden, latent] */
    const float *routed_norm;      /* [routed.output_dim] RMSNorm gain on the routed sum, or NULL */
    double norm_eps;
    struct plec_matrix shared_gate; /* [1, hidden]: shared * s(gate . x); values NULL: plain */
    double out_scale;               /* 1 unless a parallel branch has a factor */
};

#ifdef __cplusplus
}
#endif
#endif
