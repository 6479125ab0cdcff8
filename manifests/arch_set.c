/* arch_set.c: --set, from text. */
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "manifests/arch_layer.h"

/* The longest name or value, with its NUL. */
enum { WORD_MAX = 32 };

enum value_kind { GATING, SELECT_ON, ROUTER_INPUT, FLAG, COUNT, POSITIVE, AT_LEAST_0, ACTIVATION };

struct setting {
    const char *name;
    enum value_kind kind;
    size_t offset; /* into struct plec_arch_set */
};

#define AT(member) offsetof(struct plec_arch_set, member)
static const struct setting settings[PLEC_N_SETTINGS] = {
    [PLEC_SET_GATING] = {"gating", GATING, AT(gating)},
    [PLEC_SET_SELECT_ON] = {"select_on", SELECT_ON, AT(select_on)},
    [PLEC_SET_ROUTER_INPUT] = {"router_input", ROUTER_INPUT, AT(router_input)},
    [PLEC_SET_NORM] = {"norm", FLAG, AT(norm)},
    [PLEC_SET_NORM_FLOOR] = {"norm_floor", AT_LEAST_0, AT(norm_floor)},
    [PLEC_SET_SCALE] = {"scale", POSITIVE, AT(scale)},
    [PLEC_SET_TOP_K] = {"k", COUNT, AT(top_k)},
    [PLEC_SET_GROUPS] = {"groups", COUNT, AT(groups)},
    [PLEC_SET_GROUPS_USED] = {"groups_used", COUNT, AT(groups_used)},
    [PLEC_SET_WEIGHT_BEFORE] = {"weight_before", FLAG, AT(weight_before)},
    [PLEC_SET_ACTIVATION] = {"act", ACTIVATION, AT(activation)},
    [PLEC_SET_LIMIT] = {"limit", AT_LEAST_0, AT(limit)},
    [PLEC_SET_ALPHA] = {"alpha", POSITIVE, AT(alpha)},
    [PLEC_SET_SHARED_ACTIVATION] = {"shared_act", ACTIVATION, AT(shared_activation)},
    [PLEC_SET_SHARED_LIMIT] = {"shared_limit", AT_LEAST_0, AT(shared_limit)},
    [PLEC_SET_DENSE_ACTIVATION] = {"dense_act", ACTIVATION, AT(dense_activation)},
    [PLEC_SET_DENSE_LIMIT] = {"dense_limit", AT_LEAST_0, AT(dense_limit)},
    [PLEC_SET_FACTOR] = {"factor", POSITIVE, AT(factor)},
};

static const char *may_be(enum value_kind kind) {
    switch (kind) {
    case GATING: return "softmax, sigmoid, softmax_selected or sqrt_softplus";
    case SELECT_ON: return "scores, logits or sigmoid";
    case ROUTER_INPUT: return "ffn, attention or block";
    case FLAG: return "0 or 1";
    case COUNT: return "a whole number";
    case POSITIVE: return "a number above 0";
    case AT_LEAST_0: return "a number of at least 0";
    case ACTIVATION:
        return "silu, gelu_tanh, gelu_erf, relu, relu_sqr, clamped_glu, clamped_gated or silu_step";
    }
    return "";
}

static bool read_gating(enum plec_arch_gating *out, const char *text) {
    for (int i = PLEC_ARCH_SOFTMAX; i < PLEC_ARCH_N_GATINGS; i++) {
        *out = (enum plec_arch_gating)i;
        if (strcmp(plec_arch_gating_name(*out), text) == 0) return true;
    }
    return false;
}

static bool read_select(enum plec_arch_select *out, const char *text) {
    for (int i = PLEC_ARCH_ON_SCORES; i <= PLEC_ARCH_ON_SIGMOID; i++) {
        *out = (enum plec_arch_select)i;
        if (strcmp(plec_arch_select_name(*out), text) == 0) return true;
    }
    return false;
}

static bool read_router_input(enum plec_arch_router_input *out, const char *text) {
    for (int i = PLEC_ARCH_FFN_INPUT; i <= PLEC_ARCH_BLOCK_INPUT; i++) {
        *out = (enum plec_arch_router_input)i;
        if (strcmp(plec_arch_router_input_name(*out), text) == 0) return true;
    }
    return false;
}

static bool read_count(uint32_t *out, const char *text, uint32_t largest) {
    if (text[0] < '0' || text[0] > '9') return false; /* strtoull takes signs and spaces */
    char *end;
    errno = 0;
    unsigned long long value = strtoull(text, &end, 10);
    if (*end != '\0' || errno != 0 || value > largest) return false;
    *out = (uint32_t)value;
    return true;
}

static bool read_real(double *out, const char *text) {
    if (strchr("0123456789.", text[0]) == NULL || text[0] == '\0') return false;
    char *end;
    *out = strtod(text, &end);
    return *end == '\0' && isfinite(*out);
}

/* situ_glu needs two betas that no GGUF key or setting carries. */
static bool read_activation(const char **out, const char *text) {
    *out = plec_arch_activation(text);
    return *out != NULL && strcmp(text, "situ_glu") != 0;
}

static bool read_value(void *to, enum value_kind kind, const char *text) {
    switch (kind) {
    case GATING: return read_gating(to, text);
    case SELECT_ON: return read_select(to, text);
    case ROUTER_INPUT: return read_router_input(to, text);
    case FLAG: return read_count(to, text, 1);
    case COUNT: return read_count(to, text, UINT32_MAX);
    case POSITIVE: return read_real(to, text) && *(double *)to > 0;
    case AT_LEAST_0: return read_real(to, text);
    case ACTIVATION: return read_activation(to, text);
    }
    return false;
}

static enum plec_status unknown_setting(const char *name, struct plec_error *err) {
    char known[PLEC_N_SETTINGS * WORD_MAX] = "";
    for (int i = 0; i < PLEC_N_SETTINGS; i++) {
        if (i > 0) strcat(known, ", ");
        strcat(known, settings[i].name);
    }
    return plec_fail(err, PLEC_BAD_INPUT, "UnknownSetting", "\"%s\" is none of %s", name, known);
}

/* One "name=value". */
static enum plec_status parse_one(struct plec_arch_set *out, const char *name, const char *value,
                                  struct plec_error *err) {
    for (int i = 0; i < PLEC_N_SETTINGS; i++) {
        if (strcmp(settings[i].name, name) != 0) continue;
        if (out->given >> i & 1)
            return plec_fail(err, PLEC_BAD_INPUT, "SettingGivenTwice", "%s", name);
        if (!read_value((char *)out + settings[i].offset, settings[i].kind, value))
            return plec_fail(err, PLEC_BAD_INPUT, "BadSetting", "%s: wanted %s, found \"%s\"", name,
                             may_be(settings[i].kind), value);
        out->given |= UINT32_C(1) << i;
        return PLEC_OK;
    }
    return unknown_setting(name, err);
}

/* Copies [from, to) into word; false when it is too long. */
static bool cut(char *word, const char *from, const char *to) {
    size_t n = (size_t)(to - from);
    if (n >= WORD_MAX) return false;
    memcpy(word, from, n);
    word[n] = '\0';
    return true;
}

enum plec_status plec_arch_set_parse(struct plec_arch_set *out, const char *text,
                                     struct plec_error *err) {
    memset(out, 0, sizeof *out);
    for (const char *at = text; *text != '\0';) {
        const char *comma = at + strcspn(at, ","), *equals = at + strcspn(at, "=,");
        char name[WORD_MAX], value[WORD_MAX] = "";
        bool fits = cut(name, at, equals) && (equals == comma || cut(value, equals + 1, comma));
        if (!fits)
            return plec_fail(err, PLEC_BAD_INPUT, "UnknownSetting", "\"%.*s\" is too long",
                             (int)(comma - at), at);
        enum plec_status status = parse_one(out, name, value, err);
        if (status != PLEC_OK) return status;
        if (*comma == '\0') break;
        at = comma + 1;
    }
    return PLEC_OK;
}
