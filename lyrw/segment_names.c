#include <stdio.h>

#include "lyrw/segment.h"

static const char *known_or_number(const char *const *names, uint32_t n_names, const char *what,
                                   uint16_t value, char *buffer) {
    if (value < n_names) return names[value];
    snprintf(buffer, PLEC_NAME_MAX, "%s_%u", what, value);
    return buffer;
}

#define COUNT(names) (uint32_t)(sizeof names / sizeof *names)

const char *plec_role_name(uint16_t role, char *buffer) {
    static const char *const registered[] = {"gate", "up",     "gate_up_fused", "down",
                                             "bias", "scales", "latent_in",     "latent_out"};
    static const char *const vendor[] = {
        "router_weight",      "selection_bias",   "router_bias",        "input_norm",
        "routed_output_norm", "shared_gate",      "expert_scale",       "gate_scale",
        "up_scale",           "down_scale",       "router_input_scale", "token_table",
        "shared_gate_scale",  "shared_up_scale",  "shared_down_scale",  "branch_gate_scale",
        "branch_up_scale",    "branch_down_scale"};
    uint32_t own = (uint32_t)role - PLEC_ROLE_ROUTER_WEIGHT; /* wraps for registered roles */
    if (own < COUNT(vendor)) return vendor[own];
    return known_or_number(registered, COUNT(registered), "role", role, buffer);
}

const char *plec_packing_name(uint16_t packing, char *buffer) {
    static const char *const names[] = {"row_major", "blocks_with_scales_inline", "blocks_values",
                                        "blocks_scales"};
    return known_or_number(names, COUNT(names), "packing", packing, buffer);
}

const char *plec_layout_name(uint16_t layout, char *buffer) {
    static const char *const names[] = {"unspecified", "contiguous_halves", "interleaved"};
    return known_or_number(names, COUNT(names), "layout", layout, buffer);
}

const char *plec_bank_kind_name(uint16_t kind, char *buffer) {
    static const char *const names[] = {"dense", "routed", "shared"};
    return known_or_number(names, COUNT(names), "bank_kind", kind, buffer);
}

const char *plec_browse_name(uint16_t bank_flags) {
    static const char *const names[] = {"none", "direct", "strided", "none"};
    return names[bank_flags & 3u];
}
