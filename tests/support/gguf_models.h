/* gguf_models.h: whole GGUF models for tests: a sketch of 408 bytes and the header of a real model
 * of seven billion weights, whose data is a hole in a sparse file. */
#ifndef PLEC_TESTS_SUPPORT_GGUF_MODELS_H
#define PLEC_TESTS_SUPPORT_GGUF_MODELS_H

#include "tests/support/gguf_bytes.h"

#include <fcntl.h>
#include <unistd.h>

namespace plec_test {

/* One f32 tensor of six numbers under an alignment that is not the default: 327 bytes of header,
 * 57 of padding, 24 of weights. */
inline std::vector<uint8_t> sketch_bytes() {
    GgufBytes file(1, 5);
    file.key_string("general.architecture", "counts");
    file.key_string("general.name", "one page about counting");
    file.key_u32("general.alignment", 64).key_u32("counts.block_count", 1);
    file.array("counts.tokens", 8, 3).string("wheat").string("sheep").string("stone");
    file.tensor("blk.0.counts.weight", {3, 2}, 0, 0).pad(64);
    for (float value : {0.5f, 1.5f, 2.5f, 3.5f, 4.5f, 5.5f}) {
        uint32_t bits;
        memcpy(&bits, &value, 4);
        file.u32(bits);
    }
    return file.bytes;
}

/* n strings of `total` bytes together. */
inline void put_strings(GgufBytes *file, const std::string &key, uint64_t n, uint64_t total) {
    file->array(key, 8, n);
    for (uint64_t i = 0; i < n; i++)
        file->string(std::string(total * (i + 1) / n - total * i / n, 't'));
}

/* The 34 keys of the published model, 5,934,607 bytes: vocabulary texts are filler. */
inline void put_seven_b_keys(GgufBytes *file, uint64_t token_bytes, uint64_t merge_bytes) {
    file->key_string("general.architecture", "qwen2").key_string("general.type", "model");
    file->key_string("general.name", "Qwen2.5 7B Instruct");
    file->key_string("general.finetune", "Instruct").key_string("general.basename", "Qwen2.5");
    file->key_string("general.size_label", "7B").key_string("general.license", "apache-2.0");
    file->key_string("general.license.link",
                     "https://huggingface.co/Qwen/Qwen2.5-7B-Instruct/blob/main/LICENSE");
    file->key_u32("general.base_model.count", 1);
    file->key_string("general.base_model.0.name", "Qwen2.5 7B");
    file->key_string("general.base_model.0.organization", "Qwen");
    file->key_string("general.base_model.0.repo_url", "https://huggingface.co/Qwen/Qwen2.5-7B");
    file->array("general.tags", 8, 2).string("chat").string("text-generation");
    file->array("general.languages", 8, 1).string("en");
    file->key_u32("qwen2.block_count", 28).key_u32("qwen2.context_length", 32768);
    file->key_u32("qwen2.embedding_length", 3584).key_u32("qwen2.feed_forward_length", 18944);
    file->key_u32("qwen2.attention.head_count", 28).key_u32("qwen2.attention.head_count_kv", 4);
    file->key("qwen2.rope.freq_base", 6).u32(0x49742400u); /* 1e6 */
    file->key("qwen2.attention.layer_norm_rms_epsilon", 6).u32(0x358637BDu);
    file->key_u32("general.file_type", 15).key_string("tokenizer.ggml.model", "gpt2");
    file->key_string("tokenizer.ggml.pre", "qwen2");
    put_strings(file, "tokenizer.ggml.tokens", 152064, token_bytes);
    file->array("tokenizer.ggml.token_type", 5, 152064);
    for (int i = 0; i < 152064; i++)
        file->u32(1);
    put_strings(file, "tokenizer.ggml.merges", 151387, merge_bytes);
    file->key_u32("tokenizer.ggml.eos_token_id", 151645);
    file->key_u32("tokenizer.ggml.padding_token_id", 151643);
    file->key_u32("tokenizer.ggml.bos_token_id", 151643);
    file->key("tokenizer.ggml.add_bos_token", 7).u8(0);
    file->key_string("tokenizer.chat_template",
                     "{%- if tools %}\n    {{- '<|im_start|>system\\" + std::string(2465, '%'));
    file->key_u32("general.quantization_version", 2);
}

struct SevenB {
    GgufBytes file{339, 34};
    uint64_t offset = 0;
    void put(const std::string &name, std::vector<uint64_t> ne, uint32_t type) {
        file.tensor(name, ne, type, offset);
        uint64_t n = ne[0] * (ne.size() > 1 ? ne[1] : 1);
        offset += type == 0 ? n * 4 : n / 256 * (type == 12 ? 144 : 210);
    }
};

/* Types that the published file holds wider in some blocks: both in twelve of them, one in four. */
inline void put_seven_b_block(SevenB *model, int i) {
    std::string b = "blk." + std::to_string(i) + ".";
    const bool both = i < 12, only_down = i == 12 || i == 13, only_v = i == 14 || i == 15;
    const uint32_t down = both || only_down ? 14 : 12, v = both || only_v ? 14 : 12;
    model->put(b + "attn_norm.weight", {3584}, 0);
    model->put(b + "ffn_down.weight", {18944, 3584}, down);
    model->put(b + "ffn_gate.weight", {3584, 18944}, 12);
    model->put(b + "ffn_up.weight", {3584, 18944}, 12);
    model->put(b + "ffn_norm.weight", {3584}, 0);
    model->put(b + "attn_k.bias", {512}, 0);
    model->put(b + "attn_k.weight", {3584, 512}, 12);
    model->put(b + "attn_output.weight", {3584, 3584}, 12);
    model->put(b + "attn_q.bias", {3584}, 0);
    model->put(b + "attn_q.weight", {3584, 3584}, 12);
    model->put(b + "attn_v.bias", {512}, 0);
    model->put(b + "attn_v.weight", {3584, 512}, v);
}

/* Writes the model: header as published to the byte, then 4,677,120,000 bytes of hole. False when
 * the file system has no room for a sparse file. */
inline bool write_seven_b(const std::string &path) {
    GgufBytes bare;
    put_seven_b_keys(&bare, 0, 0);
    const uint64_t text = 5934607 - bare.bytes.size();
    SevenB model;
    put_seven_b_keys(&model.file, text / 2, text - text / 2);
    model.put("token_embd.weight", {3584, 152064}, 12);
    for (int i = 0; i < 28; i++)
        put_seven_b_block(&model, i);
    model.put("output.weight", {3584, 152064}, 14);
    model.put("output_norm.weight", {3584}, 0);
    const std::vector<uint8_t> &header = model.file.pad().bytes;
    int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool good = fd >= 0 &&
                write(fd, header.data(), header.size()) == static_cast<ssize_t>(header.size()) &&
                ftruncate(fd, static_cast<off_t>(header.size() + model.offset)) == 0;
    if (fd >= 0) close(fd);
    return good;
}

} // namespace plec_test
#endif
