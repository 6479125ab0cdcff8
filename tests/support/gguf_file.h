/* gguf_file.h: GGUF files put together by name, changed, and written. */
#ifndef PLEC_TESTS_SUPPORT_GGUF_FILE_H
#define PLEC_TESTS_SUPPORT_GGUF_FILE_H

#include "lyrw/gguf_write.h"

#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace plec_test {

struct GgufTensor {
    std::string name;
    std::vector<uint64_t> ne;
    uint32_t type;
    std::vector<uint8_t> bytes;
};

class GgufFile {
  public:
    explicit GgufFile(const std::string &architecture);
    /* Keys replace one of the same name. Those of the architecture get its prefix: ".k". */
    GgufFile &text(const std::string &name, const std::string &value);
    GgufFile &u32(const std::string &name, uint32_t value);
    GgufFile &f32(const std::string &name, float value);
    GgufFile &flag(const std::string &name, bool value);
    GgufFile &u32s(const std::string &name, const std::vector<uint32_t> &values);
    GgufFile &f32s(const std::string &name, const std::vector<float> &values);
    GgufFile &without_key(const std::string &name);

    /* A tensor of f32, of i32, and of any type as bytes. Replaces one of the same name. */
    GgufFile &tensor(const std::string &name, const std::vector<uint64_t> &ne,
                     const std::vector<float> &values);
    GgufFile &tensor_i32(const std::string &name, const std::vector<uint64_t> &ne,
                         const std::vector<int32_t> &values);
    GgufFile &tensor_bytes(const std::string &name, const std::vector<uint64_t> &ne, uint32_t type,
                           const std::vector<uint8_t> &bytes);
    GgufFile &first_tensor(const GgufTensor &tensor);
    GgufFile &without(const std::string &name);
    GgufFile &rename(const std::string &from, const std::string &to);
    GgufFile &reshape(const std::string &name, const std::vector<uint64_t> &ne);
    /* The f32 tensor again in a format that has an encoder; returns what it decodes to. */
    std::vector<float> requantise(const std::string &name, uint16_t format);
    GgufTensor &find(const std::string &name);
    bool has(const std::string &name) const;
    const std::vector<GgufTensor> &tensors() const { return tensors_; }

    void write(const std::string &path, uint32_t alignment = 32) const;
    /* shard_of(tensor name) from 0 to n - 1; returns the path of shard `opened`. */
    std::string write_split(const std::string &prefix, uint32_t n,
                            const std::function<uint32_t(const std::string &)> &shard_of,
                            uint32_t opened) const;

  private:
    using Put = std::function<void(plec_gguf_writer *, const char *)>;
    GgufFile &key(const std::string &name, Put put);

    std::string architecture_;
    std::vector<std::pair<std::string, Put>> keys_;
    std::vector<GgufTensor> tensors_;
};

} // namespace plec_test
#endif
