/* arch_layer.c: keys, settings and the table made into one layer's values. */
#include "manifests/arch_layer.h"

#include <math.h>
#include <string.h>

/* The floor of the sum the weights are divided by, in every architecture: GGUF's reference graph
 * clamps to the smallest normal f16. */
static const double norm_floor = 6.103515625e-5;

/* A layer being resolved. The first refusal is kept; the rest is still filled in. */
struct resolving {
    struct plec_arch_layer *out;
    const struct plec_arch_args *args;
    const struct plec_arch *arch; /* NULL: unknown */
    const struct plec_arch_set *set;
    bool wanted; /* whether what is being settled is needed: refusals count */
    enum plec_status status;
    struct plec_error *err;
};

#define REFUSE(r, code, ...)                                                                       \
    do {                                                                                           \
        if ((r)->wanted && (r)->status == PLEC_OK)                                                 \
            (r)->status = plec_fail((r)->err, code, __VA_ARGS__);                                  \
    } while (0)

static bool is_set(const struct resolving *r, enum plec_arch_setting setting) {
    return r->set->given >> setting & 1;
}

static enum plec_arch_origin row_origin(const struct resolving *r) {
    return r->arch != NULL ? PLEC_ARCH_BY_DEFAULT : PLEC_ARCH_UNKNOWN;
}

/* ---- Keys ---- */

/* A key that is there and scalar, or an element of an array by layer. */
static bool read_key(struct resolving *r, struct plec_arch_key *key, const char *suffix,
                     bool by_layer) {
    *key = r->args->keys->find(r->args->keys->user, suffix, r->args->layer);
    if (key->kind == PLEC_KEY_ABSENT) return false;
    if (key->kind != PLEC_KEY_OTHER && (by_layer || !key->is_array)) return true;
    REFUSE(r, PLEC_MALFORMED, "WrongType", "key %s: wanted %s, found %s", suffix,
           by_layer ? "a number, or one for each layer" : "a number",
           !key->is_array ? "another type"
           : by_layer     ? "an array without one for this layer"
                          : "an array");
    return false;
}

static bool read_count(struct resolving *r, uint32_t *out, const char *suffix, bool by_layer) {
    struct plec_arch_key key;
    if (!read_key(r, &key, suffix, by_layer)) return false;
    if (key.kind != PLEC_KEY_INTEGER) {
        REFUSE(r, PLEC_MALFORMED, "WrongType", "key %s: wanted an integer", suffix);
        return false;
    }
    if (key.integer < 0 || key.integer > UINT32_MAX) {
        REFUSE(r, PLEC_MALFORMED, "IntegerRange", "key %s: wanted 0 to 4294967295, found %lld",
               suffix, (long long)key.integer);
        return false;
    }
    *out = (uint32_t)key.integer;
    return true;
}

static bool read_flag(struct resolving *r, uint32_t *out, const char *suffix) {
    struct plec_arch_key key;
    if (!read_key(r, &key, suffix, false)) return false;
    if (key.kind == PLEC_KEY_REAL || key.integer < 0 || key.integer > 1) {
        REFUSE(r, PLEC_MALFORMED, "WrongType", "key %s: wanted true or false", suffix);
        return false;
    }
    *out = (uint32_t)key.integer;
    return true;
}

static bool read_real(struct resolving *r, double *out, const char *suffix, bool by_layer) {
    struct plec_arch_key key;
    if (!read_key(r, &key, suffix, by_layer)) return false;
    if (key.kind == PLEC_KEY_BOOL) {
        REFUSE(r, PLEC_MALFORMED, "WrongType", "key %s: wanted a number, found a bool", suffix);
        return false;
    }
    *out = key.kind == PLEC_KEY_REAL ? key.real : (double)key.integer;
    if (isfinite(*out)) return true;
    REFUSE(r, PLEC_MALFORMED, "NotFinite", "key %s: %g", suffix, *out);
    return false;
}

/* A count from the file; 0 and unknown where the key is absent. */
static struct plec_arch_count count_in_file(struct resolving *r, const char *suffix,
                                            bool by_layer) {
    struct plec_arch_count count = {0, PLEC_ARCH_UNKNOWN};
    if (read_count(r, &count.value, suffix, by_layer)) count.origin = PLEC_ARCH_IN_FILE;
    return count;
}

/* A count from --set, else from the file. */
static struct plec_arch_count count_of(struct resolving *r, enum plec_arch_setting setting,
                                       uint32_t set_value, const char *suffix, bool by_layer) {
    if (is_set(r, setting)) return (struct plec_arch_count){set_value, PLEC_ARCH_BY_USER};
    return count_in_file(r, suffix, by_layer);
}

/* ---- Which layer this is ---- */

static bool is_mtp(struct resolving *r) {
    uint32_t heads = 0, blocks = 0;
    if (!read_count(r, &heads, "nextn_predict_layers", false) || heads == 0) return false;
    if (!read_count(r, &blocks, "block_count", false)) return false;
    if (heads <= blocks) return r->args->layer >= blocks - heads;
    REFUSE(r, PLEC_MALFORMED, "IntegerRange", "key nextn_predict_layers: %u of %u blocks", heads,
           blocks);
    return false;
}

static enum plec_arch_presence experts_by_keys(struct resolving *r) {
    uint32_t layer = r->args->layer, leading = 0, step = 0, every = 0;
    if (r->out->n_experts.value == 0) return PLEC_ARCH_NO;
    if (r->arch == NULL || r->arch->by_tensors) return PLEC_ARCH_OPTIONAL;
    if (read_count(r, &leading, "leading_dense_block_count", false) && layer < leading)
        return PLEC_ARCH_NO;
    if (read_count(r, &step, "interleave_moe_layer_step", false) && step > 0 &&
        ((uint64_t)layer + 1) % step != 0)
        return PLEC_ARCH_NO;
    if (read_count(r, &every, "moe_every_n_layers", false) && every > 0 && layer % every != 1)
        return PLEC_ARCH_NO;
    return PLEC_ARCH_YES;
}

/* The tensors' count, which the key may not contradict. */
static void settle_expert_count(struct resolving *r) {
    struct plec_arch_count *count = &r->out->n_experts;
    if (r->args->n_experts == 0) return;
    if (count->origin == PLEC_ARCH_IN_FILE && count->value != r->args->n_experts)
        REFUSE(r, PLEC_MALFORMED, "ExpertCountMismatch",
               "expert_count: %u, but the tensors hold %u", count->value, r->args->n_experts);
    *count = (struct plec_arch_count){r->args->n_experts, PLEC_ARCH_IN_FILE};
}

static void settle_counts(struct resolving *r) {
    struct plec_arch_layer *out = r->out;
    out->n_experts = count_in_file(r, "expert_count", true);
    out->experts = experts_by_keys(r);
    settle_expert_count(r);
    out->top_k = count_of(r, PLEC_SET_TOP_K, r->set->top_k, "expert_used_count", true);
    out->n_shared = count_in_file(r, "expert_shared_count", false);
    out->width = count_in_file(r, "expert_feed_forward_length", true);
    out->shared_width = count_in_file(r, "expert_shared_feed_forward_length", true);
    out->latent = count_in_file(r, "moe_latent_size", false);
}

/* ---- The router ---- */

/* Old files of GLM-4.7-Flash came as deepseek2 without the gating's key; only their size tells. */
static bool is_glm_flash(struct resolving *r) {
    uint32_t blocks = 0, heads = 0;
    if (strcmp(r->arch->name, "deepseek2") != 0 || r->args->vocabulary != 154880) return false;
    read_count(r, &heads, "nextn_predict_layers", false);
    if (!read_count(r, &blocks, "block_count", false) || heads > blocks) return false;
    return blocks - heads == 47 || blocks - heads == 48;
}

static void refuse_missing(struct resolving *r, const char *suffix, const char *setting) {
    if (r->arch != NULL)
        REFUSE(r, PLEC_MISSING, "MissingKey",
               "architecture %s needs key %s, which the file lacks; --set %s=... gives it",
               r->arch->name, suffix, setting);
    else
        REFUSE(r, PLEC_MISSING, "NotSet",
               "unknown architecture \"%s\": key %s is not in the file; --set %s=... gives it",
               r->args->name, suffix, setting);
}

/* The gating the key names; 0 when it is absent, 0 or refused. */
static uint32_t gating_in_file(struct resolving *r) {
    uint32_t gating = 0;
    if (!read_count(r, &gating, "expert_gating_func", false)) return 0;
    uint32_t allowed = r->arch != NULL ? r->arch->gatings : 0;
    if (gating < PLEC_ARCH_N_GATINGS && (gating == 0 || allowed == 0 || (allowed >> gating & 1)))
        return gating;
    REFUSE(r, PLEC_UNSUPPORTED, "UnknownGating",
           "key expert_gating_func: %u is no gating of architecture %s", gating, r->args->name);
    return 0;
}

static struct plec_arch_count settle_gating(struct resolving *r) {
    if (is_set(r, PLEC_SET_GATING))
        return (struct plec_arch_count){r->set->gating, PLEC_ARCH_BY_USER};
    if (r->arch != NULL && r->arch->gating.from == PLEC_ARCH_FIXED)
        return (struct plec_arch_count){r->arch->gating.value, PLEC_ARCH_BY_DEFAULT};
    uint32_t gating = gating_in_file(r);
    if (gating != 0) return (struct plec_arch_count){gating, PLEC_ARCH_IN_FILE};
    if (r->arch != NULL && r->arch->gating.from == PLEC_ARCH_KEY)
        return (struct plec_arch_count){is_glm_flash(r) ? PLEC_ARCH_SIGMOID : r->arch->gating.value,
                                        PLEC_ARCH_BY_DEFAULT};
    refuse_missing(r, "expert_gating_func", "gating");
    return (struct plec_arch_count){PLEC_ARCH_NO_GATING, PLEC_ARCH_UNKNOWN};
}

static struct plec_arch_count settle_norm(struct resolving *r) {
    struct plec_arch_count norm = {0, PLEC_ARCH_IN_FILE};
    if (is_set(r, PLEC_SET_NORM)) return (struct plec_arch_count){r->set->norm, PLEC_ARCH_BY_USER};
    if (r->arch != NULL && r->arch->norm.from == PLEC_ARCH_FIXED)
        return (struct plec_arch_count){r->arch->norm.value, PLEC_ARCH_BY_DEFAULT};
    if (read_flag(r, &norm.value, "expert_weights_norm")) return norm;
    if (r->arch != NULL && r->arch->norm.from == PLEC_ARCH_KEY)
        return (struct plec_arch_count){r->arch->norm.value, PLEC_ARCH_BY_DEFAULT};
    refuse_missing(r, "expert_weights_norm", "norm");
    return (struct plec_arch_count){0, PLEC_ARCH_UNKNOWN};
}

static struct plec_arch_real settle_norm_floor(struct resolving *r) {
    if (!is_set(r, PLEC_SET_NORM_FLOOR))
        return (struct plec_arch_real){norm_floor, PLEC_ARCH_BY_DEFAULT};
    if (r->out->norm.value == 0)
        REFUSE(r, PLEC_BAD_INPUT, "SettingUnused", "norm_floor: the weights are not normalised");
    return (struct plec_arch_real){r->set->norm_floor, PLEC_ARCH_BY_USER};
}

static struct plec_arch_real settle_scale(struct resolving *r) {
    struct plec_arch_real scale = {1, PLEC_ARCH_IN_FILE};
    if (is_set(r, PLEC_SET_SCALE)) return (struct plec_arch_real){r->set->scale, PLEC_ARCH_BY_USER};
    if (r->arch != NULL && r->arch->scale == PLEC_ARCH_FIXED)
        return (struct plec_arch_real){1, PLEC_ARCH_BY_DEFAULT};
    if (read_real(r, &scale.value, "expert_weights_scale", false)) {
        if (scale.value == 0) scale.value = 1;
        return scale;
    }
    if (r->arch != NULL && r->arch->scale == PLEC_ARCH_KEY_REQUIRED)
        refuse_missing(r, "expert_weights_scale", "scale");
    return (struct plec_arch_real){1, row_origin(r)};
}

/* A value that no key carries. */
static struct plec_arch_count row_or_set(const struct resolving *r, enum plec_arch_setting setting,
                                         uint32_t set_value, uint32_t row_value) {
    if (is_set(r, setting)) return (struct plec_arch_count){set_value, PLEC_ARCH_BY_USER};
    return (struct plec_arch_count){row_value, row_origin(r)};
}

static void check_selection(struct resolving *r) {
    const struct plec_arch_layer *out = r->out;
    uint64_t experts = out->n_experts.value, k = out->top_k.value, groups = out->groups.value;
    uint64_t used = out->groups_used.value;
    enum plec_status code = is_set(r, PLEC_SET_TOP_K) ? PLEC_BAD_INPUT : PLEC_MALFORMED;
    if (k == 0)
        REFUSE(r, code, "NoExpertsUsed", "expert_used_count: 0 of %llu experts",
               (unsigned long long)experts);
    if (k > experts)
        REFUSE(r, code, "SelectionExceedsBank", "expert_used_count: %llu of %llu experts",
               (unsigned long long)k, (unsigned long long)experts);
    if (groups <= 1) return;
    if (is_set(r, PLEC_SET_GROUPS) || is_set(r, PLEC_SET_GROUPS_USED)) code = PLEC_BAD_INPUT;
    if (experts % groups != 0 || experts / groups < 2)
        REFUSE(r, code, "BadGroups", "%llu experts do not make %llu equal groups of 2 or more",
               (unsigned long long)experts, (unsigned long long)groups);
    else if (used == 0 || used >= groups)
        REFUSE(r, code, "BadGroups", "expert_group_used_count: wanted 1 to %llu, found %llu",
               (unsigned long long)groups - 1, (unsigned long long)used);
    else if (k > used * (experts / groups))
        REFUSE(r, code, "BadGroups", "%llu experts a token, but %llu groups hold %llu",
               (unsigned long long)k, (unsigned long long)used,
               (unsigned long long)(used * (experts / groups)));
}

static void settle_router(struct resolving *r) {
    struct plec_arch_layer *out = r->out;
    const struct plec_arch *arch = r->arch;
    uint32_t hashed = 0;
    out->gating = settle_gating(r);
    out->norm = settle_norm(r);
    out->norm_floor = settle_norm_floor(r);
    out->scale = settle_scale(r);
    out->select_on = row_or_set(r, PLEC_SET_SELECT_ON, r->set->select_on,
                                arch != NULL ? arch->select_on : PLEC_ARCH_ON_SCORES);
    out->router_input = row_or_set(r, PLEC_SET_ROUTER_INPUT, r->set->router_input,
                                   arch != NULL ? arch->router_input : PLEC_ARCH_FFN_INPUT);
    out->weight_on_input = row_or_set(r, PLEC_SET_WEIGHT_BEFORE, r->set->weight_before,
                                      arch != NULL && arch->weight_on_input);
    out->groups = count_of(r, PLEC_SET_GROUPS, r->set->groups, "expert_group_count", false);
    out->groups_used =
        count_of(r, PLEC_SET_GROUPS_USED, r->set->groups_used, "expert_group_used_count", false);
    if (is_set(r, PLEC_SET_GROUPS_USED) && out->groups.value <= 1)
        REFUSE(r, PLEC_BAD_INPUT, "SettingUnused", "groups_used: there are no groups");
    out->hash_routed = arch != NULL && arch->hash_layers &&
                       read_count(r, &hashed, "hash_layer_count", false) && r->args->layer < hashed;
    out->selection_bias = arch == NULL       ? PLEC_ARCH_OPTIONAL
                          : out->hash_routed ? PLEC_ARCH_NO
                                             : arch->selection_bias;
    check_selection(r);
}

/* ---- What experts compute ---- */

/* A limit of the file; 0 is off. */
static struct plec_arch_real limit_in_file(struct resolving *r, const char *suffix) {
    struct plec_arch_real limit = {0, PLEC_ARCH_UNKNOWN};
    if (!read_real(r, &limit.value, suffix, true)) return limit;
    limit.origin = PLEC_ARCH_IN_FILE;
    if (limit.value >= 0) return limit;
    REFUSE(r, PLEC_MALFORMED, "BadLimit", "key %s: wanted at least 0, found %g", suffix,
           limit.value);
    limit.value = 0;
    return limit;
}

static struct plec_arch_real or_default(struct plec_arch_real given, double value) {
    return given.value > 0 ? given : (struct plec_arch_real){value, PLEC_ARCH_BY_DEFAULT};
}

/* Turns plain silu with a limit into the function that clamps. */
static void apply_limit_to_silu(struct resolving *r, struct plec_arch_maths *maths,
                                struct plec_arch_real limit) {
    enum plec_arch_limit kind = r->arch != NULL ? r->arch->limit : PLEC_ARCH_NO_LIMIT;
    if (kind == PLEC_ARCH_NO_LIMIT && limit.origin == PLEC_ARCH_IN_FILE) {
        REFUSE(r, PLEC_UNSUPPORTED, "LimitWithoutRule",
               "the file clamps at %g, and architecture %s says no kind of clamp; --set "
               "act=clamped_gated or act=silu_step gives it, limit=0 turns it off",
               limit.value, r->args->name);
        return;
    }
    maths->activation.value = kind == PLEC_ARCH_LIMIT_STEP ? "silu_step" : "clamped_gated";
    maths->limit = limit;
}

/* Gives an activation its limit and alpha. limit.value 0: none was given. */
static void settle_limit(struct resolving *r, struct plec_arch_maths *maths,
                         struct plec_arch_real limit, const char *setting) {
    const char *activation = maths->activation.value;
    maths->limit = (struct plec_arch_real){0, limit.origin};
    if (activation == NULL) return;
    if (strcmp(activation, "clamped_glu") == 0) {
        maths->limit = or_default(limit, 7);
        maths->alpha = is_set(r, PLEC_SET_ALPHA)
                           ? (struct plec_arch_real){r->set->alpha, PLEC_ARCH_BY_USER}
                           : (struct plec_arch_real){1.702, PLEC_ARCH_BY_DEFAULT};
    } else if (strcmp(activation, "clamped_gated") == 0) {
        maths->limit = or_default(limit, 10);
    } else if (strcmp(activation, "silu_step") == 0) {
        maths->limit = limit;
        if (limit.value == 0)
            REFUSE(r, PLEC_MISSING, "NotSet", "silu_step has no limit; --set %s=... gives it",
                   setting);
    } else if (limit.value == 0) {
        return;
    } else if (strcmp(activation, "silu") == 0) {
        apply_limit_to_silu(r, maths, limit);
    } else if (limit.origin == PLEC_ARCH_BY_USER) {
        REFUSE(r, PLEC_BAD_INPUT, "SettingUnused", "%s: %s has no limit", setting, activation);
    } else {
        REFUSE(r, PLEC_UNSUPPORTED, "LimitWithoutRule",
               "the file clamps at %g, and %s has no limit", limit.value, activation);
    }
}

static struct plec_arch_word word_of(struct resolving *r, enum plec_arch_setting setting,
                                     const char *set_value, const char *row_value) {
    if (is_set(r, setting)) return (struct plec_arch_word){set_value, PLEC_ARCH_BY_USER};
    return (struct plec_arch_word){row_value,
                                   row_value != NULL ? PLEC_ARCH_BY_DEFAULT : PLEC_ARCH_UNKNOWN};
}

/* The limit of what is not routed: the shared expert, and a dense MLP beside routed layers. */
static struct plec_arch_real unrouted_limit(struct resolving *r, struct plec_arch_real routed) {
    struct plec_arch_real limit = limit_in_file(r, "swiglu_clamp_shexp");
    bool same = r->arch == NULL || r->arch->limit != PLEC_ARCH_LIMIT_STEP;
    return limit.origin == PLEC_ARCH_UNKNOWN && same ? routed : limit;
}

static void settle_shared_maths(struct resolving *r, struct plec_arch_word routed,
                                struct plec_arch_real routed_limit) {
    struct plec_arch_maths *maths = &r->out->shared_expert;
    struct plec_arch_real limit;
    maths->activation = routed;
    if (is_set(r, PLEC_SET_SHARED_ACTIVATION)) {
        maths->activation = (struct plec_arch_word){r->set->shared_activation, PLEC_ARCH_BY_USER};
        routed_limit = (struct plec_arch_real){0, PLEC_ARCH_UNKNOWN};
    }
    limit = unrouted_limit(r, routed_limit);
    if (is_set(r, PLEC_SET_SHARED_LIMIT))
        limit = (struct plec_arch_real){r->set->shared_limit, PLEC_ARCH_BY_USER};
    settle_limit(r, maths, limit, "shared_limit");
}

static void settle_experts(struct resolving *r) {
    struct plec_arch_layer *out = r->out;
    struct plec_arch_real limit = limit_in_file(r, "swiglu_clamp_exp");
    if (is_set(r, PLEC_SET_LIMIT))
        limit = (struct plec_arch_real){r->set->limit, PLEC_ARCH_BY_USER};
    struct plec_arch_word activation = word_of(r, PLEC_SET_ACTIVATION, r->set->activation,
                                               r->arch != NULL ? r->arch->activation : NULL);
    if (activation.value == NULL)
        REFUSE(r, PLEC_MISSING, "NotSet", "architecture \"%s\": --set act=... names the activation",
               r->args->name);
    out->expert.activation = activation;
    settle_limit(r, &out->expert, limit, "limit");
    settle_shared_maths(r, activation, limit);
    if (is_set(r, PLEC_SET_ALPHA) && out->expert.alpha.value == 0 &&
        out->shared_expert.alpha.value == 0)
        REFUSE(r, PLEC_BAD_INPUT, "SettingUnused", "alpha: no expert is a clamped_glu");
}

static void settle_shared(struct resolving *r) {
    struct plec_arch_layer *out = r->out;
    const struct plec_arch *arch = r->arch;
    bool by_keys = out->n_shared.value > 0 || out->shared_width.value > 0;
    out->shared = arch != NULL ? arch->shared : PLEC_ARCH_OPTIONAL;
    if (arch != NULL && out->shared == PLEC_ARCH_OPTIONAL && by_keys) out->shared = PLEC_ARCH_YES;
    if (out->shared == PLEC_ARCH_YES && out->n_shared.origin == PLEC_ARCH_IN_FILE && !by_keys)
        out->shared = PLEC_ARCH_OPTIONAL;
    out->branch_factor = (struct plec_arch_real){1, row_origin(r)};
    if (arch != NULL && arch->branch_factor != 0) out->branch_factor.value = arch->branch_factor;
    if (is_set(r, PLEC_SET_FACTOR))
        out->branch_factor = (struct plec_arch_real){r->set->factor, PLEC_ARCH_BY_USER};
}

/* The dense MLP: of a layer without experts, or of the branch beside them. An unknown architecture
 * takes the experts' activation, and never their limit. */
static void settle_dense(struct resolving *r) {
    struct plec_arch_layer *out = r->out;
    struct plec_arch_real limit = {0, PLEC_ARCH_UNKNOWN};
    const char *row = r->arch != NULL ? r->arch->dense : NULL;
    out->dense_width = count_in_file(r, "feed_forward_length", true);
    out->dense.activation = word_of(r, PLEC_SET_DENSE_ACTIVATION, r->set->dense_activation, row);
    if (out->dense.activation.value == NULL)
        out->dense.activation = word_of(r, PLEC_SET_ACTIVATION, r->set->activation, NULL);
    if (out->dense.activation.value == NULL)
        REFUSE(r, PLEC_MISSING, "NotSet",
               "architecture \"%s\": --set dense_act=... names the activation of a dense layer",
               r->args->name);
    if (r->arch != NULL && r->arch->limit != PLEC_ARCH_NO_LIMIT)
        limit = unrouted_limit(r, limit_in_file(r, "swiglu_clamp_exp"));
    if (is_set(r, PLEC_SET_DENSE_LIMIT))
        limit = (struct plec_arch_real){r->set->dense_limit, PLEC_ARCH_BY_USER};
    settle_limit(r, &out->dense, limit, "dense_limit");
}

enum plec_status plec_arch_resolve(struct plec_arch_layer *out, const struct plec_arch_args *args,
                                   struct plec_error *err) {
    static const struct plec_arch_set nothing;
    memset(out, 0, sizeof *out);
    struct resolving r = {.out = out, .args = args, .wanted = true, .err = err};
    r.set = args->set != NULL ? args->set : &nothing;
    r.arch = out->arch = plec_arch_find(args->name);
    out->mtp = is_mtp(&r);
    if (!out->mtp) {
        if (r.arch == NULL && r.set->given == 0)
            REFUSE(&r, PLEC_UNSUPPORTED, "UnknownArchitecture",
                   "\"%s\" is none of the known ones; --as names one whose rules hold, or --set "
                   "gating=...,norm=...,act=... gives them",
                   args->name);
        r.wanted = args->n_experts > 0;
        settle_counts(&r);
        settle_router(&r);
        settle_experts(&r);
        settle_shared(&r);
        r.wanted = args->n_experts == 0;
        settle_dense(&r);
    }
    if (r.status != PLEC_OK) plec_error_context(err, "layer %u", args->layer);
    return r.status;
}
