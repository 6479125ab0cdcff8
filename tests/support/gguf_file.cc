#include "tests/support/gguf_file.h"

#include "lyrw/encode.h"
#include "lyrw/gguf_type.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

namespace plec_test {

GgufFile::GgufFile(const std::string &architecture) : architecture_(architecture) {
    text("general.architecture", architecture);
}

GgufFile &GgufFile::key(const std::string &name, Put put) {
    std::string full = name[0] == '.' ? architecture_ + name : name;
    for (auto &known : keys_)
        if (known.first == full) {
            known.second = put;
            return *this;
        }
    keys_.emplace_back(full, put);
    return *this;
}

GgufFile &GgufFile::text(const std::string &name, const std::string &value) {
    return key(name, [=](plec_gguf_writer *writer, const char *full) {
        plec_gguf_put_string(writer, full, value.c_str());
    });
}

GgufFile &GgufFile::u32(const std::string &name, uint32_t value) {
    return key(name, [=](plec_gguf_writer *writer, const char *full) {
        plec_gguf_put_u32(writer, full, value);
    });
}

GgufFile &GgufFile::f32(const std::string &name, float value) {
    return key(name, [=](plec_gguf_writer *writer, const char *full) {
        plec_gguf_put_f32(writer, full, value);
    });
}

GgufFile &GgufFile::flag(const std::string &name, bool value) {
    return key(name, [=](plec_gguf_writer *writer, const char *full) {
        plec_gguf_put_bool(writer, full, value);
    });
}

GgufFile &GgufFile::u32s(const std::string &name, const std::vector<uint32_t> &values) {
    return key(name, [=](plec_gguf_writer *writer, const char *full) {
        plec_gguf_put_array(writer, full, PLEC_GGUF_U32, values.data(), values.size());
    });
}

GgufFile &GgufFile::f32s(const std::string &name, const std::vector<float> &values) {
    return key(name, [=](plec_gguf_writer *writer, const char *full) {
        plec_gguf_put_array(writer, full, PLEC_GGUF_F32, values.data(), values.size());
    });
}

GgufFile &GgufFile::without_key(const std::string &name) {
    std::string full = name[0] == '.' ? architecture_ + name : name;
    size_t before = keys_.size();
    keys_.erase(std::remove_if(keys_.begin(), keys_.end(),
                               [&](const auto &known) { return known.first == full; }),
                keys_.end());
    EXPECT_LT(keys_.size(), before) << "no key " << full;
    return *this;
}

GgufFile &GgufFile::tensor_bytes(const std::string &name, const std::vector<uint64_t> &ne,
                                 uint32_t type, const std::vector<uint8_t> &bytes) {
    GgufTensor made = {name, ne, type, bytes};
    for (GgufTensor &known : tensors_)
        if (known.name == name) {
            known = made;
            return *this;
        }
    tensors_.push_back(made);
    return *this;
}

GgufFile &GgufFile::tensor(const std::string &name, const std::vector<uint64_t> &ne,
                           const std::vector<float> &values) {
    std::vector<uint8_t> bytes(values.size() * 4);
    if (!bytes.empty()) memcpy(bytes.data(), values.data(), bytes.size());
    return tensor_bytes(name, ne, PLEC_GGUF_TYPE_F32, bytes);
}

GgufFile &GgufFile::tensor_i32(const std::string &name, const std::vector<uint64_t> &ne,
                               const std::vector<int32_t> &values) {
    std::vector<uint8_t> bytes(values.size() * 4);
    memcpy(bytes.data(), values.data(), bytes.size());
    return tensor_bytes(name, ne, PLEC_GGUF_TYPE_I32, bytes);
}

GgufFile &GgufFile::first_tensor(const GgufTensor &tensor) {
    tensors_.insert(tensors_.begin(), tensor);
    return *this;
}

bool GgufFile::has(const std::string &name) const {
    return std::any_of(tensors_.begin(), tensors_.end(),
                       [&](const GgufTensor &known) { return known.name == name; });
}

GgufTensor &GgufFile::find(const std::string &name) {
    for (GgufTensor &known : tensors_)
        if (known.name == name) return known;
    ADD_FAILURE() << "no tensor " << name;
    return tensors_.front();
}

GgufFile &GgufFile::without(const std::string &name) {
    EXPECT_TRUE(has(name)) << name;
    tensors_.erase(std::remove_if(tensors_.begin(), tensors_.end(),
                                  [&](const GgufTensor &known) { return known.name == name; }),
                   tensors_.end());
    return *this;
}

GgufFile &GgufFile::rename(const std::string &from, const std::string &to) {
    find(from).name = to;
    return *this;
}

GgufFile &GgufFile::reshape(const std::string &name, const std::vector<uint64_t> &ne) {
    find(name).ne = ne;
    return *this;
}

std::vector<float> GgufFile::requantise(const std::string &name, uint16_t format) {
    GgufTensor &known = find(name);
    std::vector<float> values(known.bytes.size() / 4);
    memcpy(values.data(), known.bytes.data(), known.bytes.size());
    plec_encode_args args = {};
    args.format = format;
    args.cols = static_cast<uint32_t>(known.ne[0]);
    args.rows = static_cast<uint32_t>(values.size() / known.ne[0]);
    args.matrix = values.data();
    uint64_t n_bytes = 0;
    plec_error error = {};
    EXPECT_EQ(plec_format_size(&n_bytes, nullptr, format, args.rows, args.cols, &error), PLEC_OK)
        << error.message;
    std::vector<uint8_t> bytes(n_bytes);
    args.values = bytes.data();
    EXPECT_EQ(plec_matrix_encode(&args, &error), PLEC_OK) << error.message;
    EXPECT_TRUE(plec_gguf_type_of_tag(&known.type, format));
    known.bytes = bytes;
    plec_matrix matrix = {format, args.rows, args.cols, bytes.data(), nullptr};
    for (uint32_t row = 0; row < args.rows; row++)
        plec_matrix_row_f32(values.data() + size_t(row) * args.cols, &matrix, row);
    return values;
}

static void put_tensor(plec_gguf_writer *writer, const GgufTensor &tensor) {
    plec_gguf_put_tensor(writer, plec_view_of(tensor.name.c_str()), tensor.type,
                         static_cast<uint32_t>(tensor.ne.size()), tensor.ne.data(), 0);
}

static void finish(plec_gguf_writer *writer, const std::string &path,
                   const std::vector<const GgufTensor *> &tensors) {
    plec_error error = {};
    plec_status status = plec_gguf_writer_begin(writer, path.c_str(), &error);
    for (const GgufTensor *tensor : tensors)
        if (status == PLEC_OK)
            status =
                plec_gguf_writer_data(writer, tensor->bytes.data(), tensor->bytes.size(), &error);
    if (status == PLEC_OK) status = plec_gguf_writer_finish(writer, false, &error);
    EXPECT_EQ(status, PLEC_OK) << error.message;
    plec_gguf_writer_free(writer);
}

void GgufFile::write(const std::string &path, uint32_t alignment) const {
    plec_gguf_writer *writer = plec_gguf_writer_new(alignment);
    if (alignment != 32) plec_gguf_put_u32(writer, "general.alignment", alignment);
    for (const auto &known : keys_)
        known.second(writer, known.first.c_str());
    std::vector<const GgufTensor *> all;
    for (const GgufTensor &tensor : tensors_) {
        put_tensor(writer, tensor);
        all.push_back(&tensor);
    }
    finish(writer, path, all);
}

std::string GgufFile::write_split(const std::string &prefix, uint32_t n,
                                  const std::function<uint32_t(const std::string &)> &shard_of,
                                  uint32_t opened) const {
    std::string wanted;
    for (uint32_t i = 0; i < n; i++) {
        char suffix[40];
        snprintf(suffix, sizeof suffix, "-%05u-of-%05u.gguf", i + 1, n);
        plec_gguf_writer *writer = plec_gguf_writer_new(32);
        plec_gguf_put_u32(writer, "split.no", i);
        plec_gguf_put_u32(writer, "split.count", n);
        plec_gguf_put_u32(writer, "split.tensors.count", static_cast<uint32_t>(tensors_.size()));
        if (i == 0)
            for (const auto &known : keys_)
                known.second(writer, known.first.c_str());
        std::vector<const GgufTensor *> mine;
        for (const GgufTensor &tensor : tensors_)
            if (shard_of(tensor.name) == i) {
                put_tensor(writer, tensor);
                mine.push_back(&tensor);
            }
        finish(writer, prefix + suffix, mine);
        if (i == opened) wanted = prefix + suffix;
    }
    return wanted;
}

} // namespace plec_test
