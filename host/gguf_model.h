/* gguf_model.h: a GGUF model as a list of blocks with a feed-forward part, and the keys that say
 * what they compute.
 *
 * Owns: which tensor belongs to which block, the architecture's name, --as and --set. Never: owns
 * the files (a struct plec_gguf_set, opened to look or to run, stays with the caller), believes a
 * key about how many blocks or experts there are. After open it is only read, but for the news
 * already told, so any thread may bind from it.
 */
#ifndef PLEC_HOST_GGUF_MODEL_H
#define PLEC_HOST_GGUF_MODEL_H

#include "lyrw/gguf_split.h"
#include "manifests/arch_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A block, "blk.N.", with something to run. */
struct plec_gguf_block {
    uint32_t number;
    bool dense;              /* no experts: one MLP */
    uint32_t first, n_names; /* its feed-forward tensors: members[first .. first + n_names) */
    char prefix[16];         /* "blk.12" */
};

/* News told once a model, whichever layer brings it up first. */
enum plec_gguf_news {
    PLEC_GGUF_TOLD_ARCHITECTURE,
    PLEC_GGUF_TOLD_GATING,
    PLEC_GGUF_TOLD_NORM,
    PLEC_GGUF_TOLD_SCALE,
    PLEC_GGUF_TOLD_ROUTER_EPS,
    PLEC_GGUF_TOLD_ROUTER_INPUT,
    PLEC_GGUF_TOLD_NO_ROUTER,
    PLEC_GGUF_TOLD_BRANCH,
    PLEC_GGUF_TOLD_KIND,
    PLEC_GGUF_TOLD_NO_SCALE
};

/* A zeroed model is closed. Not to be moved while open: keys point back into it. */
struct plec_gguf_model {
    const struct plec_gguf_set *set;       /* the caller's */
    const struct plec_gguf *main;          /* the file with the model's keys */
    char architecture[PLEC_VIEW_TEXT_MAX]; /* of the file, printable; "" when it names none */
    char rules[PLEC_VIEW_TEXT_MAX];        /* whose row of the table is taken: --as, or the same */
    struct plec_arch_set settings;         /* --set */
    struct plec_arch_keys keys;
    uint64_t vocabulary;            /* tokens; 0 when the file does not say */
    struct plec_gguf_block *blocks; /* [n_blocks], by number; no prediction heads */
    uint32_t n_blocks;
    uint32_t first_head; /* blocks from here on are prediction heads; UINT32_MAX: there are none */
    uint32_t *members;   /* indices into set->tensors, block after block, in file order */
    struct plec_log log;
    uint32_t told; /* bit n: enum plec_gguf_news n; atomic */
};

struct plec_gguf_model_options {
    const char *architecture; /* --as; NULL: what the file says */
    const char *settings;     /* --set; NULL: nothing */
    struct plec_log log;
};

/* Reads names and a few keys; no weight. set must outlive the model. options NULL: defaults.
 * PLEC_BAD_INPUT for an --as that names no architecture, "UnknownSetting", "BadSetting",
 * "SettingGivenTwice"; PLEC_NO_MEMORY. */
PLEC_MUST_USE enum plec_status plec_gguf_model_open(struct plec_gguf_model *out,
                                                    const struct plec_gguf_set *set,
                                                    const struct plec_gguf_model_options *options,
                                                    struct plec_error *err);
void plec_gguf_model_close(struct plec_gguf_model *model);

/* The values of one block whose tensors hold n_experts (0: a dense MLP). As plec_arch_resolve. */
PLEC_MUST_USE enum plec_status plec_gguf_model_resolve(struct plec_arch_layer *out,
                                                       const struct plec_gguf_model *model,
                                                       uint32_t number, uint32_t n_experts,
                                                       struct plec_error *err);

/* An integer key "<architecture>.<suffix>", one value or one a layer; false when it is absent, no
 * integer or beyond 32 bits. */
bool plec_gguf_model_count(uint32_t *out, const struct plec_gguf_model *model, const char *suffix,
                           uint32_t number);

/* Writes news to the model's log, the first time `which` comes up. */
void plec_gguf_tell(struct plec_gguf_model *model, enum plec_gguf_news which, const char *format,
                    ...) PLEC_PRINTF(3, 4);

/* The name of a tensor behind "blk.N.", and N; false for other names and for numbers that are not
 * written the plain way. */
bool plec_gguf_block_name(uint32_t *number, struct plec_view *rest, struct plec_view name);
/* Whether what is behind "blk.N." belongs to the feed-forward part: ffn_... or exp_probs_b. */
bool plec_gguf_is_feed_forward(struct plec_view rest);
/* A decimal number without sign or leading zeros, below 2^32 - 1, in front of a '.'; text is moved
 * behind the dot. */
bool plec_gguf_take_number(uint32_t *out, struct plec_view *text);

#ifdef __cplusplus
}
#endif
#endif
