/* arch_keys.h: the keys of a GGUF file as a test makes them up, and a layer resolved from them. */
#ifndef PLEC_TESTS_SUPPORT_ARCH_KEYS_H
#define PLEC_TESTS_SUPPORT_ARCH_KEYS_H

#include "manifests/arch_layer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace plec_test {

inline plec_arch_key integer(int64_t value) {
    return {PLEC_KEY_INTEGER, false, value, 0};
}
inline plec_arch_key real(double value) {
    return {PLEC_KEY_REAL, false, 0, value};
}
inline plec_arch_key boolean(bool value) {
    return {PLEC_KEY_BOOL, false, value, 0};
}
const plec_arch_key OTHER = {PLEC_KEY_OTHER, false, 0, 0};

/* A file's keys: one value, or one a layer. */
struct Keys {
    std::map<std::string, plec_arch_key> one;
    std::map<std::string, std::vector<plec_arch_key>> by_layer;

    static plec_arch_key find(const void *user, const char *suffix, uint64_t i) {
        const Keys &keys = *static_cast<const Keys *>(user);
        auto array = keys.by_layer.find(suffix);
        if (array != keys.by_layer.end()) {
            plec_arch_key key = i < array->second.size() ? array->second[i] : OTHER;
            key.is_array = true;
            return key;
        }
        auto value = keys.one.find(suffix);
        return value != keys.one.end() ? value->second
                                       : plec_arch_key{PLEC_KEY_ABSENT, false, 0, 0};
    }
    Keys with(const std::string &name, plec_arch_key value) const {
        Keys copy = *this;
        copy.one[name] = value;
        return copy;
    }
    Keys without(const std::string &name) const {
        Keys copy = *this;
        copy.one.erase(name);
        return copy;
    }
};

struct Resolved {
    plec_status status;
    plec_error error;
    plec_arch_layer layer;
};

struct Ask {
    std::string name;
    Keys keys;
    std::string set;
    uint32_t layer = 5, n_experts = 16;
    uint64_t vocabulary = 32000;
};

inline Resolved resolve(const Ask &ask) {
    Resolved r = {};
    plec_arch_set set = {};
    EXPECT_EQ(plec_arch_set_parse(&set, ask.set.c_str(), &r.error), PLEC_OK) << r.error.message;
    plec_arch_keys keys = {Keys::find, &ask.keys};
    plec_arch_args args = {
        ask.name.c_str(), ask.set.empty() ? nullptr : &set, &keys, ask.vocabulary, ask.layer,
        ask.n_experts};
    memset(&r.layer, 0xA5, sizeof r.layer);
    r.status = plec_arch_resolve(&r.layer, &args, &r.error);
    return r;
}

inline Resolved resolve(const std::string &name, const Keys &keys, const std::string &set = "") {
    Ask ask;
    ask.name = name;
    ask.keys = keys;
    ask.set = set;
    return resolve(ask);
}

inline void expect_refused(const Resolved &r, plec_status status, const std::string &name,
                           const std::string &text) {
    EXPECT_EQ(r.status, status) << r.error.message;
    if (r.status == PLEC_OK) return;
    EXPECT_STREQ(r.error.name, name.c_str()) << r.error.message;
    EXPECT_NE(std::string(r.error.message).find(text), std::string::npos) << r.error.message;
}

/* Everything any architecture asks for: 16 experts, 4 used. */
inline Keys full_keys() {
    Keys keys;
    keys.one = {{"expert_count", integer(16)},       {"expert_used_count", integer(4)},
                {"expert_gating_func", integer(2)},  {"expert_weights_norm", boolean(true)},
                {"expert_weights_scale", real(2.5)}, {"block_count", integer(32)},
                {"expert_shared_count", integer(1)}};
    return keys;
}

} // namespace plec_test
#endif
