/* json.h: JSON documents in tests: parse a text, edit a member by path, compare member for member
 * in order. */
#ifndef PLEC_TESTS_SUPPORT_JSON_H
#define PLEC_TESTS_SUPPORT_JSON_H

#include "manifests/json.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>

namespace plec_test {

/* Owns one reference. */
class Json {
  public:
    explicit Json(json_t *value = nullptr) : value_(value) {}
    explicit Json(const std::string &text) : value_(nullptr) {
        plec_error err = {};
        EXPECT_EQ(plec_json_parse(&value_, text.data(), text.size(), &err), PLEC_OK) << err.message;
    }
    Json(Json &&other) noexcept : value_(std::exchange(other.value_, nullptr)) {}
    Json &operator=(Json &&other) noexcept {
        std::swap(value_, other.value_);
        return *this;
    }
    ~Json() { json_decref(value_); }
    json_t *get() const { return value_; }
    json_t **out() { return &value_; }

  private:
    json_t *value_;
};

inline Json load_json(const std::string &path) {
    Json document;
    plec_error err = {};
    EXPECT_EQ(plec_json_load(document.out(), path.c_str(), &err), PLEC_OK) << err.message;
    return document;
}

inline std::string format_json(const json_t *document) {
    char *text = nullptr;
    size_t n_bytes = 0;
    plec_error err = {};
    EXPECT_EQ(plec_json_format(&text, &n_bytes, document, &err), PLEC_OK) << err.message;
    std::string copy = text != nullptr ? std::string(text, n_bytes) : std::string();
    free(text);
    return copy;
}

/* The container of a member by path ("layers/0/router/k") and the member's name. Parts are split at
 * '/'; a number is an array index. */
inline std::pair<json_t *, std::string> locate(json_t *document, const std::string &path) {
    json_t *at = document;
    size_t begin = 0;
    for (size_t slash; (slash = path.find('/', begin)) != std::string::npos; begin = slash + 1) {
        std::string part = path.substr(begin, slash - begin);
        at = json_is_array(at) ? json_array_get(at, std::stoul(part))
                               : json_object_get(at, part.c_str());
    }
    EXPECT_NE(at, nullptr) << path;
    return {at, path.substr(begin)};
}

/* Sets a member (JSON text) in place or at the end, or removes it. */
inline void set_member(json_t *document, const std::string &path, const std::string &text) {
    auto [object, name] = locate(document, path);
    json_t *value = json_loadb(text.data(), text.size(), JSON_DECODE_ANY | JSON_ALLOW_NUL, nullptr);
    ASSERT_NE(value, nullptr) << text;
    ASSERT_EQ(json_object_set_new(object, name.c_str(), value), 0) << path;
}

inline void remove_member(json_t *document, const std::string &path) {
    auto [object, name] = locate(document, path);
    ASSERT_EQ(json_object_del(object, name.c_str()), 0) << path;
}

/* Equal types, values and, unlike json_equal, order of members; reals by their bits. */
inline bool same_document(json_t *a, json_t *b) {
    if (json_typeof(a) != json_typeof(b)) return false;
    if (json_is_array(a)) {
        if (json_array_size(a) != json_array_size(b)) return false;
        for (size_t i = 0; i < json_array_size(a); i++)
            if (!same_document(json_array_get(a, i), json_array_get(b, i))) return false;
        return true;
    }
    if (json_is_object(a)) {
        if (json_object_size(a) != json_object_size(b)) return false;
        void *i = json_object_iter(a), *j = json_object_iter(b);
        for (; i != nullptr; i = json_object_iter_next(a, i), j = json_object_iter_next(b, j)) {
            if (strcmp(json_object_iter_key(i), json_object_iter_key(j)) != 0) return false;
            if (!same_document(json_object_iter_value(i), json_object_iter_value(j))) return false;
        }
        return true;
    }
    if (json_is_string(a))
        return std::string(json_string_value(a), json_string_length(a)) ==
               std::string(json_string_value(b), json_string_length(b));
    if (json_is_integer(a)) return json_integer_value(a) == json_integer_value(b);
    if (json_is_real(a)) {
        double x = json_real_value(a), y = json_real_value(b);
        return memcmp(&x, &y, sizeof x) == 0;
    }
    return true;
}

} // namespace plec_test
#endif
