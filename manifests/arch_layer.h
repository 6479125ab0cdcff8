/* arch_layer.h: one layer of a GGUF model resolved: every value of its router and its experts, and
 * where each comes from.
 *
 * Values are taken in this order: the user's --set, the file's key where the architecture reads it,
 * the architecture's row. Owns nothing; strings are static or views of the caller's. Never: reads a
 * file or a tensor. The caller answers for the keys, and compares what comes out with the tensors
 * (shapes, operands that must or must not be there).
 */
#ifndef PLEC_MANIFESTS_ARCH_LAYER_H
#define PLEC_MANIFESTS_ARCH_LAYER_H

#include "lyrw/status.h"
#include "manifests/arch.h"

#ifdef __cplusplus
extern "C" {
#endif

enum plec_arch_origin {
    PLEC_ARCH_UNKNOWN,    /* nothing says it */
    PLEC_ARCH_IN_FILE,    /* a key of the file */
    PLEC_ARCH_BY_DEFAULT, /* the row of the architecture */
    PLEC_ARCH_BY_USER,    /* --set */
};
/* "unknown", "in file", "default of architecture", "set by user". */
const char *plec_arch_origin_name(enum plec_arch_origin origin);

/* One key of the file, or one element of it. */
enum plec_key_kind {
    PLEC_KEY_ABSENT,
    PLEC_KEY_INTEGER, /* any integer type whose value fits int64 */
    PLEC_KEY_REAL,    /* f32 or f64 */
    PLEC_KEY_BOOL,
    PLEC_KEY_OTHER /* anything else: a string, a larger integer, an element past the array's end */
};
struct plec_arch_key {
    enum plec_key_kind kind;
    bool is_array;
    int64_t integer; /* INTEGER; BOOL: 0 or 1 */
    double real;     /* REAL */
};
/* Answers for "<architecture>.<suffix>", the prefix being the file's own architecture whatever --as
 * says. i: which element, where the key is an array. */
struct plec_arch_keys {
    struct plec_arch_key (*find)(const void *user, const char *suffix, uint64_t i);
    const void *user;
};

/* --set, parsed. A zeroed set sets nothing. */
enum plec_arch_setting {
    PLEC_SET_GATING,       /* gating=softmax|sigmoid|softmax_selected|sqrt_softplus */
    PLEC_SET_SELECT_ON,    /* select_on=scores|logits|sigmoid */
    PLEC_SET_ROUTER_INPUT, /* router_input=ffn|attention|block */
    PLEC_SET_NORM,         /* norm=0|1 */
    PLEC_SET_NORM_FLOOR,
    PLEC_SET_SCALE,
    PLEC_SET_TOP_K, /* k */
    PLEC_SET_GROUPS,
    PLEC_SET_GROUPS_USED,
    PLEC_SET_WEIGHT_BEFORE, /* weight_before=0|1: the weight multiplies the expert's input */
    PLEC_SET_ACTIVATION,    /* act: of the experts; silu with a limit is the architecture's kind,
                               clamped_gated where it has none */
    PLEC_SET_LIMIT,         /* limit=0 turns one in the file off */
    PLEC_SET_ALPHA,
    PLEC_SET_SHARED_ACTIVATION, /* shared_act, shared_limit: where they differ from the experts' */
    PLEC_SET_SHARED_LIMIT,
    PLEC_SET_DENSE_ACTIVATION, /* dense_act, dense_limit */
    PLEC_SET_DENSE_LIMIT,
    PLEC_SET_FACTOR,
    PLEC_N_SETTINGS
};
struct plec_arch_set {
    uint32_t given; /* bit n: setting n */
    enum plec_arch_gating gating;
    enum plec_arch_select select_on;
    enum plec_arch_router_input router_input;
    uint32_t norm, weight_before, top_k, groups, groups_used;
    double norm_floor, scale, limit, alpha, shared_limit, dense_limit, factor;
    const char *activation, *shared_activation, *dense_activation; /* static */
};
/* Parses "gating=sigmoid,norm=1,scale=2.5"; "" sets nothing. PLEC_BAD_INPUT "UnknownSetting" (lists
 * the known ones), "BadSetting" (says what the value may be), "SettingGivenTwice". */
PLEC_MUST_USE enum plec_status plec_arch_set_parse(struct plec_arch_set *out, const char *text,
                                                   struct plec_error *err);

struct plec_arch_count {
    uint32_t value;
    enum plec_arch_origin origin;
};
struct plec_arch_real {
    double value;
    enum plec_arch_origin origin;
};
struct plec_arch_word {
    const char *value; /* NULL when unknown */
    enum plec_arch_origin origin;
};

/* The arithmetic of one kind of expert: plec_expert_maths by names. */
struct plec_arch_maths {
    struct plec_arch_word activation;
    struct plec_arch_real limit, alpha; /* of the activations that have them, else 0 */
};

struct plec_arch_layer {
    const struct plec_arch *arch; /* NULL: unknown, everything comes from keys and --set */
    bool mtp; /* a prediction head behind the model's layers: nothing else is filled */
    enum plec_arch_presence experts; /* by the keys; OPTIONAL: only the tensors tell */

    struct plec_arch_count n_experts, top_k, n_shared;
    struct plec_arch_count width, shared_width, dense_width, latent; /* of intermediate values; 0
                                                                        where only tensors tell */
    struct plec_arch_count gating;                                   /* enum plec_arch_gating */
    struct plec_arch_count select_on, router_input;                  /* their enums */
    struct plec_arch_count norm, weight_on_input;                    /* 0 or 1 */
    struct plec_arch_real norm_floor, scale;
    struct plec_arch_count groups, groups_used; /* groups 0 or 1: none */
    enum plec_arch_presence selection_bias, shared;
    bool hash_routed; /* ids from ffn_gate_tid2eid by token id, weights from the router */
    struct plec_arch_maths expert, shared_expert, dense;
    struct plec_arch_real branch_factor; /* where the shared expert or the parallel branch is there;
                                            1: none */
};

struct plec_arch_args {
    const char *name;                /* general.architecture, or --as */
    const struct plec_arch_set *set; /* or NULL */
    const struct plec_arch_keys *keys;
    uint64_t vocabulary; /* tokens; 0 when the file does not say */
    uint32_t layer;
    uint32_t n_experts; /* the layer's tensors hold; 0: none, or a dense MLP */
};

/* Resolves a layer. out is filled as far as anything is known, also when the layer is refused, so
 * that an inspector can show it. With n_experts 0 only the dense values can refuse.
 * PLEC_UNSUPPORTED "UnknownArchitecture" (no row, and no --set), "UnknownGating",
 * "LimitWithoutRule" (the file has a trained limit this architecture gives no meaning);
 * PLEC_MISSING "MissingKey", "NotSet" (names the setting); PLEC_MALFORMED "WrongType",
 * "IntegerRange", "NotFinite", "BadLimit", "ExpertCountMismatch", "NoExpertsUsed",
 * "SelectionExceedsBank", "BadGroups" (the last three PLEC_BAD_INPUT where --set is at fault);
 * PLEC_BAD_INPUT "SettingUnused". */
PLEC_MUST_USE enum plec_status plec_arch_resolve(struct plec_arch_layer *out,
                                                 const struct plec_arch_args *args,
                                                 struct plec_error *err);

/* The values as text, for people. */
struct plec_arch_line {
    const char *name; /* "gating" */
    char text[40];    /* "sigmoid" */
    enum plec_arch_origin origin;
};
enum { PLEC_ARCH_LINES_MAX = 32 };
/* lines: [PLEC_ARCH_LINES_MAX]; returns how many were written: the router's and the experts', or
 * with experts false those of the dense MLP. */
size_t plec_arch_describe(struct plec_arch_line *lines, const struct plec_arch_layer *layer,
                          bool experts);

#ifdef __cplusplus
}
#endif
#endif
