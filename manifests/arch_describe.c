/* arch_describe.c: a resolved layer as lines for people. */
#include <stdio.h>

#include "manifests/arch_layer.h"

const char *plec_arch_origin_name(enum plec_arch_origin origin) {
    switch (origin) {
    case PLEC_ARCH_UNKNOWN: return "unknown";
    case PLEC_ARCH_IN_FILE: return "in file";
    case PLEC_ARCH_BY_DEFAULT: return "default of architecture";
    case PLEC_ARCH_BY_USER: return "set by user";
    }
    return "unknown";
}

struct lines {
    struct plec_arch_line *at;
    size_t n;
};

static void add_word(struct lines *lines, const char *name, const char *text,
                     enum plec_arch_origin origin) {
    struct plec_arch_line *line = &lines->at[lines->n++];
    line->name = name;
    line->origin = origin;
    snprintf(line->text, sizeof line->text, "%s", text != NULL ? text : "?");
}

static void add_count(struct lines *lines, const char *name, struct plec_arch_count count) {
    char text[16];
    snprintf(text, sizeof text, "%u", count.value);
    add_word(lines, name, count.origin == PLEC_ARCH_UNKNOWN ? NULL : text, count.origin);
}

static void add_real(struct lines *lines, const char *name, struct plec_arch_real real) {
    char text[32];
    snprintf(text, sizeof text, "%.9g", real.value);
    add_word(lines, name, text, real.origin);
}

static void add_maths(struct lines *lines, const char *names[3],
                      const struct plec_arch_maths *maths) {
    add_word(lines, names[0], maths->activation.value, maths->activation.origin);
    if (maths->limit.value != 0) add_real(lines, names[1], maths->limit);
    if (maths->alpha.value != 0) add_real(lines, names[2], maths->alpha);
}

static void add_router(struct lines *lines, const struct plec_arch_layer *layer) {
    add_count(lines, "experts", layer->n_experts);
    add_count(lines, "experts used", layer->top_k);
    add_word(lines, "gating", plec_arch_gating_name((enum plec_arch_gating)layer->gating.value),
             layer->gating.origin);
    add_word(lines, "select on",
             plec_arch_select_name((enum plec_arch_select)layer->select_on.value),
             layer->select_on.origin);
    if (layer->groups.value > 1) {
        add_count(lines, "groups", layer->groups);
        add_count(lines, "groups used", layer->groups_used);
    }
    add_word(lines, "normalise", layer->norm.value ? "yes" : "no", layer->norm.origin);
    if (layer->norm.value) add_real(lines, "norm floor", layer->norm_floor);
    add_real(lines, "scale", layer->scale);
    add_word(lines, "weight on", layer->weight_on_input.value ? "input" : "output",
             layer->weight_on_input.origin);
    add_word(lines, "router reads",
             plec_arch_router_input_name((enum plec_arch_router_input)layer->router_input.value),
             layer->router_input.origin);
    if (layer->hash_routed) add_word(lines, "ids", "by token id", PLEC_ARCH_IN_FILE);
}

size_t plec_arch_describe(struct plec_arch_line *out, const struct plec_arch_layer *layer,
                          bool experts) {
    static const char *routed[] = {"activation", "limit", "alpha"};
    static const char *shared[] = {"shared activation", "shared limit", "shared alpha"};
    struct lines lines = {out, 0};
    if (layer->mtp) return 0;
    if (!experts) {
        add_maths(&lines, routed, &layer->dense);
        return lines.n;
    }
    add_router(&lines, layer);
    add_maths(&lines, routed, &layer->expert);
    if (layer->shared != PLEC_ARCH_NO) add_maths(&lines, shared, &layer->shared_expert);
    if (layer->branch_factor.value != 1) add_real(&lines, "factor", layer->branch_factor);
    if (layer->width.value != 0) add_count(&lines, "width", layer->width);
    if (layer->shared_width.value != 0) add_count(&lines, "shared width", layer->shared_width);
    if (layer->latent.value != 0) add_count(&lines, "latent", layer->latent);
    return lines.n;
}
