// `plectrum inspect` and `plectrum verify` of GGUF and TEZW files, sets and folders.
#include "tests/support/data.h"
#include "tests/support/gguf_models.h"
#include "tests/support/keyword.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

using plec_test::data_path;
using plec_test::GgufBytes;
using plec_test::run_tool;
using plec_test::TempDir;
using plec_test::ToolResult;

namespace {

struct Decref {
    void operator()(json_t *json) const { json_decref(json); }
};
using Json = std::unique_ptr<json_t, Decref>;

Json parse(const std::string &text) {
    json_error_t error;
    json_t *json = json_loads(text.c_str(), JSON_REJECT_DUPLICATES, &error);
    EXPECT_NE(json, nullptr) << error.text << "\n" << text.substr(0, 300);
    return Json(json);
}

int64_t number(json_t *object, const char *member) {
    json_t *value = json_object_get(object, member);
    EXPECT_TRUE(json_is_integer(value)) << member;
    return json_integer_value(value);
}

std::string text(json_t *object, const char *member) {
    const char *value = json_string_value(json_object_get(object, member));
    return value == nullptr ? "(none)" : value;
}

bool has(const std::string &all, const std::string &part) {
    return all.find(part) != std::string::npos;
}

std::string put(const TempDir &dir, const std::string &name, const std::vector<uint8_t> &bytes) {
    plec_test::write_file(dir.path(name), bytes.data(), bytes.size());
    return dir.path(name);
}

std::string model(const char *name) {
    return data_path(std::string("gguf/") + name + "/model.gguf");
}

} // namespace

TEST(InspectGguf, MalformedFilesLeaveWithTheStatusExpected) {
    std::stringstream table(plec_test::read_text(data_path("gguf/malformed/expected.tsv")));
    std::string line;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::vector<std::string> row;
        std::stringstream in(line);
        for (std::string part; std::getline(in, part, '\t');)
            row.push_back(part);
        SCOPED_TRACE(row[0]);
        ToolResult result = run_tool({"inspect", data_path("gguf/malformed/" + row[0])});
        // A file that cannot run but can be shown is 1.
        bool shown = row[2] == "refuse" && row[5].rfind("warn:", 0) == 0;
        bool runs = row[4] == "open-ok";
        int wanted = row[2] == "open-ok" ? 0 : row[2] == "refuse" && !shown ? 3 : runs ? 0 : 1;
        EXPECT_EQ(result.exit_status, wanted) << result.err;
        EXPECT_TRUE(plec_test::has_keyword(result.err, row[3])) << result.err;
        if (row[2] == "open-ok") {
            EXPECT_EQ(result.err, "");
        }
    }
}

TEST(InspectGguf, TextShowsFilesKeysTensorsAndTotals) {
    ToolResult result = run_tool({"inspect", model("07_gpt_oss")});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(result.err, "");
    for (const char *part : {"GGUF v3, little-endian", "alignment 32 (default)",
                             "gpt-oss.expert_count", "blk.0.ffn_gate_exps.weight", "mxfp4",
                             "[in, out, experts]", "[out, experts]", "4.25 bits", "bits a weight"})
        EXPECT_TRUE(has(result.out, part)) << part << "\n" << result.out;
}

TEST(InspectGguf, JsonHasEveryMemberInOrder) {
    Json json = parse(run_tool({"inspect", "--json", model("16_tiny_f32")}).out);
    std::string keys;
    for (void *i = json_object_iter(json.get()); i != nullptr;
         i = json_object_iter_next(json.get(), i))
        keys += std::string(json_object_iter_key(i)) + " ";
    EXPECT_EQ(keys,
              "kind schema bytes byte_order architecture name split files keys tensors totals "
              "selected_tensors selected_elements selected_bytes layers experts findings "
              "sound ");
    EXPECT_EQ(text(json.get(), "kind"), "gguf");
    EXPECT_EQ(text(json.get(), "architecture"), "qwen3moe");
    EXPECT_EQ(number(json.get(), "bytes"), 4576);
    EXPECT_TRUE(json_is_true(json_object_get(json.get(), "sound")));
    json_t *tensors = json_object_get(json.get(), "tensors");
    ASSERT_GT(json_array_size(tensors), 5u);
    bool found = false;
    for (size_t i = 0; i < json_array_size(tensors); i++) {
        json_t *tensor = json_array_get(tensors, i);
        if (text(tensor, "name") != "blk.0.ffn_gate_exps.weight") continue;
        found = true;
        EXPECT_EQ(json_integer_value(json_array_get(json_object_get(tensor, "shape"), 2)), 3);
        EXPECT_EQ(number(tensor, "bytes"), 384);
        EXPECT_EQ(number(tensor, "file_offset"), number(tensor, "offset") + 1632);
        EXPECT_EQ(json_real_value(json_object_get(tensor, "bits_per_weight")), 32.0);
    }
    EXPECT_TRUE(found);
}

TEST(InspectGguf, SplitSetsAreShownFromAnyShard) {
    std::string first = data_path("gguf/17_split/model-00001-of-00003.gguf");
    std::string last = data_path("gguf/17_split/model-00003-of-00003.gguf");
    std::string a = run_tool({"inspect", "--json", first}).out;
    EXPECT_EQ(a, run_tool({"inspect", "--json", last}).out);
    Json json = parse(a);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "files")), 3u);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "tensors")), 9u);
}

TEST(InspectGguf, MissingShardsAreNamedAndTheRestIsShown) {
    TempDir dir;
    std::string name = "x-00002-of-00004.gguf";
    std::string path = put(dir, name, plec_test::shard_bytes(1, 4, 2, {"a"}));
    ToolResult result = run_tool({"inspect", path});
    EXPECT_EQ(result.exit_status, 1);
    for (const char *missing :
         {"x-00001-of-00004.gguf", "x-00003-of-00004.gguf", "x-00004-of-00004.gguf"})
        EXPECT_TRUE(has(result.err, missing)) << result.err;
    EXPECT_TRUE(has(result.out, "missing\n")) << result.out;
    EXPECT_EQ(run_tool({"verify", path}).exit_status, 1);
}

TEST(InspectGguf, FilterTakesGlobsAndExpressionsAndTotalsThem) {
    std::string path = model("07_gpt_oss");
    auto selected = [&](const std::string &pattern) {
        Json json = parse(run_tool({"inspect", "--json", "--filter", pattern, path}).out);
        return number(json.get(), "selected_tensors");
    };
    EXPECT_EQ(selected("blk.*.ffn_*_exps.weight"), 3);
    EXPECT_EQ(selected("ffn_(up|down)_exps\\.weight"), 2);
    EXPECT_EQ(selected("_exps"), 6);
    EXPECT_EQ(selected("nothing like it"), 0);
    ToolResult bad = run_tool({"inspect", "--filter", "(", path});
    EXPECT_EQ(bad.exit_status, 2);
}

TEST(InspectGguf, SortOrdersTensors) {
    auto first = [&](const char *how) {
        Json json = parse(run_tool({"inspect", "--json", "--sort", how, model("01_mixtral")}).out);
        return text(json_array_get(json_object_get(json.get(), "tensors"), 0), "name");
    };
    EXPECT_EQ(first("name"), "blk.0.attn_norm.weight");
    EXPECT_EQ(first("bytes"), "blk.0.ffn_down_exps.weight");
    EXPECT_EQ(first("offset"), "token_embd.weight");
    EXPECT_EQ(run_tool({"inspect", "--sort", "size", model("01_mixtral")}).exit_status, 2);
}

TEST(InspectGguf, KeyPrintsTheWholeValueRaw) {
    TempDir dir;
    std::string chat = "{{ \x1b[31m" + std::string(5000, 'x') + "\n}}";
    GgufBytes file(0, 3);
    file.key_string("chat", chat)
        .array("n", 4, 3)
        .u32(1)
        .u32(2)
        .u32(3)
        .key("f", 6)
        .u32(0x3F000000u);
    std::string path = put(dir, "m.gguf", file.bytes);
    EXPECT_EQ(run_tool({"inspect", "--key", "chat", path}).out, chat);
    EXPECT_EQ(run_tool({"inspect", "--key", "n", path}).out, "1\n2\n3\n");
    EXPECT_EQ(run_tool({"inspect", "--key=f", path}).out, "0.5\n");
    EXPECT_EQ(run_tool({"inspect", "--key", "absent", path}).exit_status, 3);
    Json json = parse(run_tool({"inspect", "--json", "--key", "chat", path}).out);
    EXPECT_EQ(text(json.get(), "value"), chat);
    ToolResult shown = run_tool({"inspect", path});
    EXPECT_FALSE(has(shown.out, "\x1b")) << "escaped wherever it is not asked for raw";
    EXPECT_TRUE(has(shown.out, "more bytes"));
}

TEST(InspectGguf, StrictTellsWhatLlamaCppRefuses) {
    std::string gap = data_path("gguf/malformed/gap.gguf");
    EXPECT_EQ(run_tool({"inspect", gap}).exit_status, 0);
    ToolResult strict = run_tool({"inspect", "--strict", gap});
    EXPECT_EQ(strict.exit_status, 1);
    EXPECT_TRUE(has(strict.err, "StrictOffset")) << strict.err;
    EXPECT_EQ(run_tool({"inspect", "--strict", model("07_gpt_oss")}).exit_status, 0);
}

TEST(InspectGguf, StripDataKeepsTheHeaderAndNothingElse) {
    TempDir dir;
    std::string out = dir.path("header.gguf");
    EXPECT_EQ(run_tool({"inspect", "--strip-data", out, model("01_mixtral")}).exit_status, 0);
    EXPECT_EQ(std::filesystem::file_size(out), 1824u);
    ToolResult shown = run_tool({"inspect", "--json", out});
    EXPECT_EQ(shown.exit_status, 1) << "the weights are missing";
    Json json = parse(shown.out);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "tensors")), 9u);
    EXPECT_TRUE(has(shown.err, "TensorOutsideFile")) << shown.err;
    EXPECT_TRUE(has(shown.err, "needs 271104")) << shown.err;
}

TEST(InspectGguf, TheFirstPartOfADownloadIsShown) {
    TempDir dir;
    std::vector<uint8_t> whole = plec_test::read_file(model("13_fused"));
    for (size_t n : {600u, 1400u, 4000u}) {
        std::string path = put(dir, "part.gguf", {whole.begin(), whole.begin() + ptrdiff_t(n)});
        ToolResult result = run_tool({"inspect", path});
        EXPECT_EQ(result.exit_status, 1) << n;
        EXPECT_TRUE(has(result.out, "general.architecture")) << n;
        EXPECT_TRUE(has(result.err, "truncated")) << result.err;
        EXPECT_EQ(run_tool({"verify", path}).exit_status, 1) << n;
    }
}

TEST(InspectGguf, OneBadFileInAFolderDoesNotStopTheRest) {
    ToolResult result = run_tool({"inspect", data_path("gguf/malformed")});
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_TRUE(has(result.out, "align0.gguf: refused\n")) << result.out;
    EXPECT_TRUE(has(result.out, "v2.gguf: gguf")) << result.out;
    Json json = parse(run_tool({"inspect", "--json", data_path("gguf/malformed")}).out);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "files")), 32u);
    TempDir dir;
    for (const char *name : {"a.gguf", "b.gguf"})
        put(dir, name, plec_test::sketch_bytes());
    EXPECT_EQ(run_tool({"inspect", dir.path()}).exit_status, 0);
    ToolResult set = run_tool({"inspect", data_path("gguf/17_split")});
    EXPECT_EQ(std::count(set.out.begin(), set.out.end(), '\n'), 1) << "a set is one line\n"
                                                                   << set.out;
}

TEST(InspectGguf, SeveralPathsAreShownOneAfterTheOther) {
    ToolResult result = run_tool({"inspect", data_path("gguf/malformed/v1.gguf"),
                                  data_path("gguf/malformed/ok.gguf"), model("16_tiny_f32")});
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_TRUE(has(result.out, "ok.gguf: GGUF v3"));
    EXPECT_TRUE(has(result.out, "qwen3moe.expert_count"));
}

TEST(InspectGguf, OptionsOfModelsAreRefusedForOthers) {
    ToolResult result = run_tool({"inspect", "--strict", data_path("tezw/tiny/model.tezw")});
    EXPECT_EQ(result.exit_status, 2);
    EXPECT_TRUE(has(result.err, "GGUF")) << result.err;
}

TEST(InspectGguf, G36BlockCountIsANumberAndNoArraySize) {
    TempDir dir;
    GgufBytes file(1, 2);
    file.key_string("general.architecture", "llama").key_u32("llama.block_count", 4294967295u);
    std::string path =
        put(dir, "m.gguf", file.tensor("blk.4294967295.x", {1}, 0, 0).pad().zeros(4).bytes);
    EXPECT_EQ(run_tool({"inspect", path}).exit_status, 0);
    EXPECT_EQ(run_tool({"verify", path}).exit_status, 0);
    EXPECT_EQ(run_tool({"gguf", "stack", path}).exit_status, 0);
    EXPECT_EQ(run_tool({"gguf", "layer", path, "4294967295"}).exit_status, 0);
}

TEST(InspectTezw, ShowsHeaderAndLayers) {
    ToolResult result = run_tool({"inspect", "--entries", data_path("tezw/tiny/model.tezw")});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_TRUE(has(result.out, "TEZW v2")) << result.out;
    EXPECT_TRUE(has(result.out, "8 -> 12 -> 8")) << result.out;
    EXPECT_TRUE(has(result.out, "layer 1 wproj")) << result.out;
    Json json = parse(run_tool({"inspect", "--json", data_path("tezw/tiny/model.tezw")}).out);
    EXPECT_EQ(text(json.get(), "kind"), "tezw");
    EXPECT_EQ(number(json.get(), "weights"), 1216);
}

TEST(InspectTezw, MalformedFilesAreRefused) {
    std::stringstream table(plec_test::read_text(data_path("tezw/malformed/expected.tsv")));
    std::string line, name, expect, keyword;
    std::getline(table, line);
    while (std::getline(table, line)) {
        std::stringstream row(line);
        std::getline(row, name, '\t');
        std::getline(row, expect, '\t');
        std::getline(row, keyword, '\t');
        for (const char *command : {"inspect", "verify"}) {
            ToolResult result = run_tool({command, data_path("tezw/malformed/" + name)});
            EXPECT_EQ(result.exit_status, 3) << name;
            EXPECT_TRUE(plec_test::has_keyword(result.err, keyword)) << name << result.err;
        }
    }
}

// Three experts of q8_0 [32, 2], then f32 and a factor for each expert.
static std::vector<uint8_t> scannable(const std::vector<uint16_t> &scales, const float factors[3]) {
    GgufBytes file(2, 0);
    file.tensor("blk.5.ffn_up_exps.weight", {32, 2, 3}, 8, 0);
    file.tensor("blk.5.ffn_up_exps.scale", {3}, 0, 224).pad();
    for (size_t block = 0; block < 6; block++) {
        file.u8(scales[block] & 255).u8(scales[block] >> 8);
        for (unsigned i = 0; i < 32; i++)
            file.u8(static_cast<unsigned>(block) + i);
    }
    file.pad();
    for (int i = 0; i < 3; i++) {
        uint32_t bits;
        memcpy(&bits, &factors[i], 4);
        file.u32(bits);
    }
    return file.bytes;
}

TEST(VerifyGguf, M15ScanFindsNanScalesByExpert) {
    TempDir dir;
    const float ones[3] = {1, 1, 1};
    const uint16_t good = 0x2C00, nan = 0x7E00;
    std::string path = put(dir, "good.gguf", scannable({good, good, good, good, good, good}, ones));
    EXPECT_EQ(run_tool({"verify", "--scan", path}).exit_status, 0);
    path = put(dir, "nan.gguf", scannable({good, good, good, good, good, nan}, ones));
    EXPECT_EQ(run_tool({"verify", path}).exit_status, 0) << "not without reading the weights";
    ToolResult result = run_tool({"verify", "--scan", path});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "defect   NonFiniteScale: tensor \"blk.5.ffn_up_exps.weight\", "
                                "expert 2: 1 NaN or infinite scales in 2 blocks of q8_0"))
        << result.out;
    Json json = parse(run_tool({"verify", "--scan", "--json", path}).out);
    EXPECT_EQ(number(json.get(), "scanned"), 2);
    EXPECT_EQ(number(json.get(), "defects"), 1);
}

TEST(VerifyGguf, M25ScanFindsZeroFactorsAndNonFiniteValues) {
    TempDir dir;
    const uint16_t good = 0x2C00;
    const float zero[3] = {1, 0, 1}, infinite[3] = {1, 1, INFINITY};
    const std::vector<uint16_t> scales(6, good);
    ToolResult result = run_tool({"verify", "--scan", put(dir, "z.gguf", scannable(scales, zero))});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "ZeroScale")) << result.out;
    result = run_tool({"verify", "--scan", put(dir, "i.gguf", scannable(scales, infinite))});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "NonFiniteValue")) << result.out;
}

TEST(VerifyGguf, ScanNotesZeroIdenticalAndExtremeExperts) {
    TempDir dir;
    const float ones[3] = {1, 1, 1};
    std::vector<uint8_t> bytes = scannable({0, 0, 0x2C00, 0x2C00, 0x2C00, 0x6800}, ones);
    ToolResult result = run_tool({"verify", "--scan", put(dir, "a.gguf", bytes)});
    EXPECT_EQ(result.exit_status, 0) << result.out;
    EXPECT_TRUE(has(result.out, "ZeroExpert: tensor \"blk.5.ffn_up_exps.weight\", expert 0"))
        << result.out;
    EXPECT_TRUE(has(result.out, "ExtremeScale: tensor \"blk.5.ffn_up_exps.weight\", expert 2"))
        << result.out;
    size_t data = bytes.size() - 12 - 224;
    std::copy_n(bytes.begin() + ptrdiff_t(data + 68), 68, bytes.begin() + ptrdiff_t(data + 136));
    result = run_tool({"verify", "--scan", put(dir, "b.gguf", bytes)});
    EXPECT_TRUE(has(result.out, "IdenticalExperts: tensor \"blk.5.ffn_up_exps.weight\", expert 2: "
                                "the same bytes as expert 1"))
        << result.out;
}

TEST(VerifyGguf, ScanCountsScaleBytesThatOthersReadAsNan) {
    TempDir dir;
    GgufBytes file(1, 0);
    file.tensor("t", {32, 2}, 39, 0).pad();
    for (unsigned e : {127u, 255u})
        file.u8(e).raw(std::string(16, '\x12'));
    ToolResult result = run_tool({"verify", "--scan", put(dir, "m.gguf", file.bytes)});
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_TRUE(has(result.out, "NanScaleByte: tensor \"t\": 1 ")) << result.out;
}

TEST(VerifyGguf, G32ACheckThatLookedAtNothingIsNoSuccess) {
    TempDir dir;
    std::string path = put(dir, "empty.gguf", GgufBytes(0, 1).key_u32("a", 1).bytes);
    ToolResult result = run_tool({"verify", path});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "NothingChecked")) << result.out;
}

TEST(VerifyGguf, AllFixtureModelsPass) {
    for (const char *name : {"01_mixtral", "02_qwen2moe", "05_deepseek_v3", "07_gpt_oss",
                             "12_nemotron_h", "13_fused", "16_tiny_f32"}) {
        ToolResult result = run_tool({"verify", "--scan", model(name)});
        EXPECT_EQ(result.exit_status, 0) << result.out << result.err;
        EXPECT_TRUE(has(result.out, "0 defects, 0 notes")) << result.out;
    }
    EXPECT_EQ(run_tool({"verify", "--scan", data_path("tezw/tiny/model.tezw")}).exit_status, 0);
}

TEST(VerifyTezw, ScanFindsWeightsThatAreNotFinite) {
    TempDir dir;
    std::vector<uint8_t> bytes = plec_test::read_file(data_path("tezw/tiny/model.tezw"));
    std::fill_n(bytes.end() - 8, 8, uint8_t(0xFF));
    std::string path = put(dir, "m.tezw", bytes);
    EXPECT_EQ(run_tool({"verify", path}).exit_status, 0);
    ToolResult result = run_tool({"verify", "--scan", path});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "layer 1, wproj: 1 NaN")) << result.out;
}
