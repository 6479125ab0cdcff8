#include "host/bind.h"

#include <math.h>
#include <string.h>

/* Defaults of docs/format.md "Activations". */
static const double glu_limit = 7.0, glu_alpha = 1.702, gated_limit = 10.0;

/* What sigmoid routers add to the sum they divide by. */
static const double sigmoid_epsilon = 1e-20;

static enum plec_status refuse_undefined(const struct plec_moe_router *router,
                                         struct plec_error *err) {
    const struct {
        bool on;
        const char *name, *field;
    } features[] = {
        {router->shared_expert_sink, "SharedExpertSink", "shared_expert_sink"},
        {router->norm_after_top_k, "NormAfterTopK", "norm_after_top_k"},
        {router->quantile_balanced, "QuantileBalanced", "quantile_balanced"},
    };
    for (size_t i = 0; i < sizeof features / sizeof features[0]; i++)
        if (features[i].on)
            return plec_fail(err, PLEC_UNSUPPORTED, features[i].name,
                             "the router asks for %s, which has no published executable definition",
                             features[i].field);
    return PLEC_OK;
}

/* Sigmoid routers leave the weight of a single expert as it is. */
static bool standard_normalise(const struct plec_router *out,
                               const struct plec_moe_router *router) {
    return router->renormalise && (out->gating != PLEC_GATING_SIGMOID || out->top_k > 1);
}

/* The standard fields. */
static void take_standard(struct plec_router *out, const struct plec_moe_router *router,
                          bool has_selection_bias) {
    out->top_k = plec_moe_experts_per_token(router);
    if (router->selection == PLEC_GROUPED_TOP_K && router->groups > 1) {
        out->n_groups = router->groups;
        out->k_per_group = router->k;
    }
    out->scale = router->has_route_scale ? router->route_scale : 1.0;
    if (router->sigmoid) {
        out->gating = PLEC_GATING_SIGMOID;
        out->normalise = standard_normalise(out, router);
        out->norm_epsilon = sigmoid_epsilon;
        return;
    }
    /* Softmax keeps the order of the logits, and normalised over the selected it is a softmax of
     * the selected: both hold where scores underflow. A selection bias is added to scores. */
    out->gating = PLEC_GATING_SOFTMAX;
    if (has_selection_bias) {
        out->normalise = router->renormalise;
        return;
    }
    out->select_on = PLEC_SELECT_ON_LOGITS;
    if (router->renormalise) out->gating = PLEC_GATING_SOFTMAX_SELECTED;
}

struct named_value {
    const char *name;
    int value;
};

/* Looks a word up; leaves *out alone when the word is not given. */
static enum plec_status look_up(int *out, const char *word, const struct named_value *values,
                                size_t n_values, const char *fault, struct plec_error *err) {
    if (word == NULL) return PLEC_OK;
    for (size_t i = 0; i < n_values; i++)
        if (strcmp(word, values[i].name) == 0) {
            *out = values[i].value;
            return PLEC_OK;
        }
    return plec_fail(err, PLEC_MALFORMED, fault, "plectrum.router says `%s`", word);
}

static const struct named_value gatings[] = {
    {"softmax", PLEC_GATING_SOFTMAX},
    {"sigmoid", PLEC_GATING_SIGMOID},
    {"softmax_selected", PLEC_GATING_SOFTMAX_SELECTED},
    {"sqrt_softplus", PLEC_GATING_SQRT_SOFTPLUS},
};
static const struct named_value select_ons[] = {
    {"scores", PLEC_SELECT_ON_SCORES},
    {"logits", PLEC_SELECT_ON_LOGITS},
    {"sigmoid", PLEC_SELECT_ON_SIGMOID},
};
static const struct named_value weight_ons[] = {{"output", 0}, {"input", 1}};

static enum plec_status take_words(struct plec_router *out,
                                   const struct plec_moe_router_extra *extra,
                                   struct plec_error *err) {
    int gating = (int)out->gating, select_on = (int)out->select_on, input = out->weight_on_input;
    enum plec_status status = look_up(&gating, extra->gating, gatings,
                                      sizeof gatings / sizeof gatings[0], "UnknownGating", err);
    if (status == PLEC_OK)
        status = look_up(&select_on, extra->select_on, select_ons,
                         sizeof select_ons / sizeof select_ons[0], "UnknownSelectOn", err);
    if (status == PLEC_OK)
        status = look_up(&input, extra->weight_on, weight_ons,
                         sizeof weight_ons / sizeof weight_ons[0], "UnknownWeightOn", err);
    out->gating = (enum plec_gating)gating;
    out->select_on = (enum plec_select_on)select_on;
    out->weight_on_input = input != 0;
    return status;
}

/* plectrum.router: each member given replaces what the standard fields said. */
static enum plec_status take_extra(struct plec_router *out, const struct plec_moe_router *router,
                                   struct plec_error *err) {
    const struct plec_moe_router_extra *extra = &router->extra;
    if (!extra->given) return PLEC_OK;
    bool spelt_out =
        extra->gating != NULL || extra->has_normalise || extra->has_norm_floor || extra->has_groups;
    if (spelt_out) { /* from here on the members mean themselves */
        if (!router->sigmoid) out->gating = PLEC_GATING_SOFTMAX;
        out->select_on = PLEC_SELECT_ON_SCORES;
    }
    enum plec_status status = take_words(out, extra, err);
    if (spelt_out)
        out->normalise = extra->has_normalise ? extra->normalise : standard_normalise(out, router);
    if (extra->has_groups) {
        out->n_groups = extra->groups;
        out->n_groups_used = extra->groups_used;
        out->k_per_group = 0;
    }
    if (extra->has_norm_floor) out->norm_floor = extra->norm_floor;
    if (extra->has_norm_floor || out->gating != PLEC_GATING_SIGMOID) out->norm_epsilon = 0;
    if (extra->has_scale) out->scale = extra->scale;
    return status;
}

static enum plec_status check_selection(const struct plec_router *router, struct plec_error *err) {
    if (router->top_k == 0)
        return plec_fail(err, PLEC_MALFORMED, "SelectsNothing",
                         "the router selects 0 experts a token");
    if (router->top_k > router->n_experts)
        return plec_fail(err, PLEC_MALFORMED, "SelectionExceedsBank", "selected=%u available=%u",
                         router->top_k, router->n_experts);
    if (router->n_groups <= 1 && router->n_groups_used <= 1) return PLEC_OK;
    if (router->n_groups == 0 || router->n_experts % router->n_groups != 0)
        return plec_fail(err, PLEC_MALFORMED, "GroupsDoNotDivide", "%u experts in %u equal groups",
                         router->n_experts, router->n_groups);
    uint32_t width = router->n_experts / router->n_groups;
    if (router->k_per_group > width)
        return plec_fail(err, PLEC_MALFORMED, "SelectionExceedsBank",
                         "%u a group selected, a group has %u", router->k_per_group, width);
    if (router->k_per_group > 0) return PLEC_OK;
    if (router->n_groups_used == 0 || router->n_groups_used > router->n_groups ||
        router->top_k > (uint64_t)router->n_groups_used * width)
        return plec_fail(err, PLEC_MALFORMED, "SelectionExceedsBank",
                         "selected=%u of %u groups of %u, of which %u are used", router->top_k,
                         router->n_groups, width, router->n_groups_used);
    return PLEC_OK;
}

enum plec_status plec_bind_router(struct plec_router *out, const struct plec_moe_router *router,
                                  uint32_t n_experts, uint32_t hidden_size, bool has_selection_bias,
                                  struct plec_error *err) {
    memset(out, 0, sizeof *out);
    out->n_experts = n_experts;
    out->input_dim = hidden_size;
    enum plec_status status = refuse_undefined(router, err);
    if (status != PLEC_OK) return status;
    take_standard(out, router, has_selection_bias);
    status = take_extra(out, router, err);
    return status == PLEC_OK ? check_selection(out, err) : status;
}

static enum plec_status take_limit(struct plec_expert_maths *out,
                                   const struct plec_moe_expert *expert, struct plec_error *err) {
    switch (out->activation) {
    case PLEC_CLAMPED_GLU: out->limit = glu_limit; break;
    case PLEC_CLAMPED_GATED: out->limit = gated_limit; break;
    default: break;
    }
    if (expert->has_limit) out->limit = expert->limit;
    bool needed = out->activation == PLEC_CLAMPED_GLU || out->activation == PLEC_CLAMPED_GATED ||
                  out->activation == PLEC_SILU_STEP;
    if (needed && !(out->limit > 0 && isfinite(out->limit)))
        return plec_fail(err, PLEC_MALFORMED, "BadActivationLimit",
                         "%s needs a limit above 0, it has %g",
                         plec_activation_name(out->activation), out->limit);
    return PLEC_OK;
}

enum plec_status plec_bind_maths(struct plec_expert_maths *out,
                                 const struct plec_moe_expert *expert,
                                 const struct plec_programme *programme, const char *which,
                                 const struct plec_log *log, struct plec_error *err) {
    memset(out, 0, sizeof *out);
    const char *name = expert->activation;
    if (name == NULL) {
        name = programme->default_activation;
        plec_log_write(log, PLEC_LOG_RUN, "%s experts: no activation is given; %s uses %s", which,
                       programme->name, name);
    }
    int activation = plec_activation_by_name(name);
    if (activation < 0)
        return plec_fail(err, PLEC_UNSUPPORTED, "UnknownActivation", "%s experts: `%s`", which,
                         name);
    out->activation = (enum plec_activation)activation;
    out->alpha = expert->has_alpha ? expert->alpha : glu_alpha;
    out->beta = expert->has_beta ? expert->beta : 0;
    out->linear_beta = expert->has_linear_beta ? expert->linear_beta : 0;
    return take_limit(out, expert, err);
}
