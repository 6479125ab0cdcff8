#include "tests/support/bank_files.h"

#include "lyrw/cursor.h"
#include "lyrw/segment_plan.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <random>

namespace plec_test {

plec_lyrw_schema matrix(uint16_t role, uint32_t rows, uint32_t cols, uint16_t format) {
    return {0, role, format, PLEC_PACKING_ROW_MAJOR, PLEC_LYRW_UNPAIRED, 0, rows, cols};
}

plec_lyrw_schema fused(uint32_t rows, uint32_t cols, uint16_t layout, uint16_t format) {
    plec_lyrw_schema schema = matrix(PLEC_ROLE_GATE_UP_FUSED, rows, cols, format);
    schema.layout = layout;
    return schema;
}

plec_lyrw_schema values_of(uint16_t role, uint32_t rows, uint32_t cols, uint16_t pair,
                           uint16_t format) {
    return {0, role, format, PLEC_PACKING_BLOCKS_VALUES, pair, 0, rows, cols};
}

plec_lyrw_schema scales_of(uint32_t rows, uint32_t cols, uint16_t pair, uint16_t format) {
    return {0, PLEC_ROLE_SCALES, format, PLEC_PACKING_BLOCKS_SCALES, pair, 0, rows, cols};
}

static uint64_t region_bytes(const void *user, uint64_t slot) {
    const auto &schemas = *static_cast<const std::vector<plec_lyrw_schema> *>(user);
    const plec_lyrw_schema &schema = schemas[slot % schemas.size()];
    uint64_t n_bytes;
    if (plec_lyrw_schema_bytes(&n_bytes, &schema)) return n_bytes;
    uint64_t each = schema.format == PLEC_FORMAT_GGUF_I32 ? 4 : 1;
    return uint64_t(schema.rows) * schema.cols * each;
}

/* f32 values between -1 and 1, scale bytes near 2^0, any codes. */
static void fill(uint8_t *to, uint64_t n_bytes, const plec_lyrw_schema &schema, uint32_t seed) {
    std::mt19937 random(seed);
    if (schema.format == PLEC_FORMAT_F32) {
        for (uint64_t i = 0; i + 4 <= n_bytes; i += 4) {
            float value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
            memcpy(to + i, &value, 4);
        }
        return;
    }
    for (uint64_t i = 0; i < n_bytes; i++)
        to[i] = static_cast<uint8_t>(
            schema.packing == PLEC_PACKING_BLOCKS_SCALES ? 124 + random() % 4 : random());
}

std::vector<uint8_t> BankFile::bytes() const {
    plec_lyrw_bank bank = {};
    bank.id = id;
    bank.kind = kind;
    bank.flags = flags;
    bank.n_schemas = static_cast<uint16_t>(schemas.size());
    bank.num_entries = n_entries;
    bank.input_dim = input;
    bank.intermediate_dim = intermediate;
    bank.output_dim = output;
    std::vector<plec_lyrw_schema> numbered = schemas;
    for (size_t i = 0; i < numbered.size(); i++)
        numbered[i].index = static_cast<uint16_t>(i);
    std::vector<plec_lyrw_segment> records = segments;
    if (records.empty()) records.push_back({id, 0, 0, n_entries, 0, 0});

    plec_segment_plan plan = {};
    plan.header.format_version = PLEC_LYRW_VERSION;
    plan.header.logical_layer = layer;
    plan.header.num_banks = 1;
    plan.header.num_segments = static_cast<uint16_t>(records.size());
    plan.banks = &bank;
    plan.segments = records.data();
    plan.schemas = numbered.data();
    plan.n_schemas = numbered.size();
    plan.rewrite = true;
    plan.length = region_bytes;
    plan.user = &numbered;
    plec_error err = {};
    plec_segment_layout layout = {};
    EXPECT_EQ(plec_segment_plan_layout(&layout, &plan, &err), PLEC_OK) << err.message;
    std::vector<uint8_t> out(layout.file_bytes);
    EXPECT_EQ(plec_segment_plan_render(out.data(), &plan, &err), PLEC_OK) << err.message;
    for (const plec_lyrw_segment &record : records)
        for (uint32_t e = record.first_entry; e < record.first_entry + record.entry_count; e++)
            for (uint32_t s = 0; s < numbered.size(); s++) {
                uint64_t slot = slot_of(out, e, s);
                fill(out.data() + plec_load_u64(&out[slot]), plec_load_u64(&out[slot + 8]),
                     numbered[s],
                     seed * 7919 + e * 131 + numbered[s].role * 7 +
                         (numbered[s].role == PLEC_ROLE_BIAS ? s : 0));
            }
    return out;
}

BankFile gated_bank(uint16_t kind, uint32_t n_entries) {
    BankFile file;
    file.kind = kind;
    file.n_entries = n_entries;
    file.schemas = {matrix(PLEC_ROLE_GATE, 6, 8), matrix(PLEC_ROLE_UP, 6, 8),
                    matrix(PLEC_ROLE_DOWN, 8, 6)};
    return file;
}

BankFile control_file(uint32_t layer, const std::vector<plec_lyrw_schema> &schemas) {
    BankFile file;
    file.layer = layer;
    file.kind = PLEC_BANK_DENSE;
    file.n_entries = 1;
    file.schemas = schemas;
    file.seed = 5;
    return file;
}

uint64_t slot_of(const std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema) {
    plec_segment segment;
    plec_error err = {};
    EXPECT_EQ(plec_segment_parse(&segment, bytes.data(), bytes.size(), &err), PLEC_OK)
        << err.message;
    uint64_t slot = 0;
    for (uint32_t i = 0; i < segment.header.num_segments; i++) {
        const plec_lyrw_segment &record = segment.segments[i];
        if (entry < record.first_entry || entry - record.first_entry >= record.entry_count)
            continue;
        slot = record.entry_table +
               (uint64_t(entry - record.first_entry) * segment.banks[0].n_schemas + schema) *
                   PLEC_LYRW_SLOT_BYTES;
        break;
    }
    plec_segment_close(&segment);
    EXPECT_NE(slot, 0u) << "entry " << entry;
    return slot;
}

void set_offset(std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema, uint64_t offset) {
    plec_store_u64(&bytes[slot_of(bytes, entry, schema)], offset);
}

void set_length(std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema, uint64_t length) {
    plec_store_u64(&bytes[slot_of(bytes, entry, schema) + 8], length);
}

uint64_t get_offset(const std::vector<uint8_t> &bytes, uint32_t entry, uint32_t schema) {
    return plec_load_u64(&bytes[slot_of(bytes, entry, schema)]);
}

static const char index_text[] = R"({
  "version": 4, "model": "test", "family": "test", "hidden_size": 8, "num_layers": 1,
  "moe_manifest": "moe_manifest.json", "profiles": [ { "name": "exact" } ], "segments": {} })";
static const char manifest_text[] = R"({
  "schema_version": 1, "layers": [ {
    "layer": 0, "input_space": "residual",
    "router": { "scores": "router", "activation": "softmax",
                "selection": { "kind": "top_k", "k": 2 }, "post": {},
                "shared_expert_sink": false },
    "transforms": null,
    "routed_bank": { "experts": 4, "programme": "gated-mlp-v1", "storage": "routed/layer_000",
                     "expert_dims": null },
    "shared_bank": null, "reduction": "gate_weighted_sum", "routed_output_norm": null,
    "combine": "residual_add",
    "plectrum": { "expert": { "activation": "silu" } } } ] })";

BankDirectory::BankDirectory()
    : index(std::string(index_text)), manifest(std::string(manifest_text)) {
    add("routed/layer_000", gated_bank());
}

void BankDirectory::set(const std::string &member, const std::string &text) {
    set_member(manifest.get(), "layers/0/" + member, text);
}

void BankDirectory::set_index(const std::string &member, const std::string &text) {
    set_member(index.get(), member, text);
}

void BankDirectory::add_shared(const BankFile &file, const std::string &programme) {
    add("shared/layer_000", file);
    set("shared_bank", R"({ "experts": )" + std::to_string(file.n_entries) + R"(, "programme": ")" +
                           programme +
                           R"(", "storage": "shared/layer_000", "expert_dims": null })");
}

void BankDirectory::add_control(const std::vector<plec_lyrw_schema> &schemas) {
    add("control/layer_000", control_file(0, schemas));
    set("plectrum/control", "\"control/layer_000\"");
}

std::string BankDirectory::write() {
    std::string root = dir_.path();
    for (const auto &[key, bytes] : files) {
        std::filesystem::path path = root + "/" + key + ".lyrw";
        std::filesystem::create_directories(path.parent_path());
        write_file(path.string(), bytes.data(), bytes.size());
        json_object_set_new(json_object_get(index.get(), "segments"), key.c_str(), json_integer(1));
    }
    std::string text = format_json(manifest.get());
    write_file(root + "/moe_manifest.json", text.data(), text.size());
    text = format_json(index.get());
    write_file(root + "/index.json", text.data(), text.size());
    return root;
}

} // namespace plec_test
