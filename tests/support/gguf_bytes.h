/* gguf_bytes.h: GGUF files put together byte by byte, wrong ones included, and small whole ones. */
#ifndef PLEC_TESTS_SUPPORT_GGUF_BYTES_H
#define PLEC_TESTS_SUPPORT_GGUF_BYTES_H

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace plec_test {

/* Appends fields in file order; nothing is checked. */
class GgufBytes {
  public:
    std::vector<uint8_t> bytes;

    GgufBytes() = default;
    GgufBytes(uint64_t n_tensors, uint64_t n_keys, uint32_t version = 3) {
        raw("GGUF").u32(version).u64(n_tensors).u64(n_keys);
    }
    GgufBytes &raw(const std::string &text) {
        bytes.insert(bytes.end(), text.begin(), text.end());
        return *this;
    }
    GgufBytes &u8(unsigned value) {
        bytes.push_back(static_cast<uint8_t>(value));
        return *this;
    }
    GgufBytes &u32(uint32_t value) { return number(value, 4); }
    GgufBytes &u64(uint64_t value) { return number(value, 8); }
    GgufBytes &string(const std::string &text) { return u64(text.size()).raw(text); }
    /* Key and value type; the value follows. */
    GgufBytes &key(const std::string &name, uint32_t type) { return string(name).u32(type); }
    GgufBytes &key_u32(const std::string &name, uint32_t value) { return key(name, 4).u32(value); }
    GgufBytes &key_string(const std::string &name, const std::string &value) {
        return key(name, 8).string(value);
    }
    GgufBytes &array(const std::string &name, uint32_t type, uint64_t count) {
        return key(name, 9).u32(type).u64(count);
    }
    GgufBytes &tensor(const std::string &name, const std::vector<uint64_t> &ne, uint32_t type,
                      uint64_t offset) {
        string(name).u32(static_cast<uint32_t>(ne.size()));
        for (uint64_t dim : ne)
            u64(dim);
        return u32(type).u64(offset);
    }
    GgufBytes &pad(size_t alignment = 32) {
        bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
        return *this;
    }
    GgufBytes &zeros(size_t n) {
        bytes.resize(bytes.size() + n);
        return *this;
    }

  private:
    GgufBytes &number(uint64_t value, unsigned width) {
        for (unsigned i = 0; i < width; i++)
            u8(static_cast<unsigned>(value >> (8 * i)) & 0xFFu);
        return *this;
    }
};

/* A shard: split keys, then one f32 tensor [32] for each name. */
inline std::vector<uint8_t> shard_bytes(unsigned number, unsigned count, int total,
                                        const std::vector<std::string> &names) {
    GgufBytes file(names.size(), 3);
    file.key("split.no", 2).u8(number & 255).u8(number >> 8);
    file.key("split.count", 2).u8(count & 255).u8(count >> 8);
    file.key("split.tensors.count", 5).u32(static_cast<uint32_t>(total));
    for (size_t i = 0; i < names.size(); i++)
        file.tensor(names[i], {32}, 0, 128 * i);
    return file.pad().zeros(128 * names.size()).bytes;
}

} // namespace plec_test
#endif
