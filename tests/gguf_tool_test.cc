// `plectrum gguf`: every mode against models whose every number is known.
#include "tests/support/data.h"
#include "tests/support/gguf_models.h"
#include "tools/plectrum/gguf_text.h"
#include "tools/plectrum/gguf_values.h"

#include <gtest/gtest.h>
#include <jansson.h>

#include <cstring>
#include <filesystem>
#include <memory>

using plec_test::GgufBytes;
using plec_test::run_tool;
using plec_test::TempDir;
using plec_test::ToolResult;

namespace {

// Runs of spaces as one, so that a test names words and numbers and not columns.
std::string squeezed(const std::string &text) {
    std::string out;
    for (char c : text)
        if (c != ' ' || out.empty() || (out.back() != ' ' && out.back() != '\n')) out += c;
    return out;
}

bool has(const std::string &text, const std::string &part) {
    return squeezed(text).find(part) != std::string::npos;
}

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

int64_t number(const Json &json, const char *member) {
    json_t *value = json_object_get(json.get(), member);
    EXPECT_TRUE(json_is_integer(value)) << member;
    return json_integer_value(value);
}

// A path with the given bytes.
std::string put(const TempDir &dir, const std::string &name, const std::vector<uint8_t> &bytes) {
    plec_test::write_file(dir.path(name), bytes.data(), bytes.size());
    return dir.path(name);
}

// The header of a model of seven billion weights, once for all tests.
class SevenB : public ::testing::Test {
  protected:
    static TempDir *dir_;
    static bool written_;
    static void SetUpTestSuite() {
        dir_ = new TempDir;
        written_ = plec_test::write_seven_b(path());
    }
    static void TearDownTestSuite() { delete dir_; }
    static std::string path() { return dir_->path("model.gguf"); }
    void SetUp() override {
        if (!written_) GTEST_SKIP() << "no sparse file of 4.7 GB here";
    }
    // The output of a mode that must succeed.
    std::string show(std::vector<std::string> args) {
        args.insert(args.begin(), "gguf");
        ToolResult result = run_tool(args);
        EXPECT_EQ(result.exit_status, 0) << result.err;
        EXPECT_EQ(result.err, "");
        return result.out;
    }
};
TempDir *SevenB::dir_ = nullptr;
bool SevenB::written_ = false;

} // namespace

TEST_F(SevenB, HeadTellsTheModel) {
    std::string out = show({"head", path()});
    for (const char *line : {"architecture qwen2\n",
                             "name Qwen2.5 7B Instruct\n",
                             "blocks in the stack 28\n",
                             "embedding width 3584\n",
                             "attention heads 28\n",
                             "key and value heads 4\n",
                             "feed-forward width 18944\n",
                             "trained context 32768\n",
                             "vocabulary 152064 tokens\n",
                             "merges 151387\n",
                             "file type 15 (mostly q4_K, medium)\n",
                             "width of one head 128\n",
                             "version 3\n",
                             "tensors 339\n",
                             "metadata entries 34\n",
                             "bytes 4683073952\n",
                             "alignment 32, the default: the file states none\n",
                             "metadata ends at 5934631\n",
                             "last info record ends at 5953935\n",
                             "padding 17\n",
                             "tensor data starts at 5953952\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
}

TEST_F(SevenB, MetaListsKeysInFileOrder) {
    std::string out = show({"meta", path()});
    for (const char *line :
         {"0 general.architecture string \"qwen2\"\n",
          "7 general.license.link string \"https://huggingface.co/Qwen/Qwen2.5-7B-Instr\" ... and "
          "21 more bytes\n",
          "11 general.base_model.0.repo_url string \"https://huggingface.co/Qwen/Qwen2.5-7B\"\n",
          "12 general.tags array 2 of string\n", "20 qwen2.rope.freq_base f32 1e+06\n",
          "21 qwen2.attention.layer_norm_rms_epsilon f32 9.999999974752427e-07\n",
          "26 tokenizer.ggml.token_type array 152064 of i32\n",
          "31 tokenizer.ggml.add_bos_token bool 0\n", "... and 2465 more bytes\n",
          "33 general.quantization_version u32 2\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
}

TEST_F(SevenB, StackShowsWhatRepeats) {
    std::string out = show({"stack", path()});
    for (const char *line :
         {"1 token_embd.weight 3584 x 152064 q4_K 306561024\n",
          "28 blk.N.attn_norm.weight 3584 f32 401408\n",
          "28 blk.N.ffn_down.weight 18944 x 3584 q4_K x14 q6_K x14 1314410496\n",
          "28 blk.N.ffn_gate.weight 3584 x 18944 q4_K 1069350912\n",
          "28 blk.N.attn_v.weight 3584 x 512 q4_K x14 q6_K x14 35524608\n",
          "1 output_norm.weight 3584 f32 14336\n", "15 names, 12 of them repeat\n",
          "in front of the stack 306561024 bytes\n",
          "the stack itself 3923476480 bytes, over 28 blocks\n", "behind it 447082496 bytes\n",
          "the three together 4677120000 bytes\n", "the smallest block 131135488 bytes\n",
          "the largest block 149112832 bytes\n",
          "the blocks do not have the same number of bytes\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
}

TEST_F(SevenB, LayerComparesWithTheOthers) {
    std::string out = show({"layer", path(), "0"});
    for (const char *line :
         {"attn_k.bias 512 f32 438667264 2048\n",
          "attn_v.weight 3584 x 512 q6_K 454168576 1505280\n",
          "ffn_down.weight 18944 x 3584 q6_K 306575360 55695360\n", "12 tensors, 149112832 bytes\n",
          "against the other 27 blocks\n", "same names and shapes 27\n",
          "and the same element types too 11\n", "same shapes, some type elsewhere 16\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
    ToolResult absent = run_tool({"gguf", "layer", path(), "28"});
    EXPECT_EQ(absent.exit_status, 3);
    EXPECT_TRUE(has(absent.err, "NoSuchLayer")) << absent.err;
}

TEST_F(SevenB, AccountLeavesNothingOver) {
    std::string out = show({"account", path()});
    for (const char *line : {"the fixed numbers at the front 24\n", "34 metadata entries 5934607\n",
                             "339 info records 19304\n", "padding to alignment 32 17\n",
                             "tensor data starts at 5953952\n", "f32 141 333312 1333248\n",
                             "q4_K 169 6094061568 3427909632\n", "q6_K 29 1521221632 1247877120\n",
                             "all 339 7615616512 4677120000\n", "header and padding 5953952\n",
                             "every tensor's bytes 4677120000\n", "all of it together 4683073952\n",
                             "the file on disk 4683073952\n", "left over 0\n",
                             "339 tensors start where the one before them ended, and 0 do not\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
    Json json = parse(show({"account", path(), "--json"}));
    EXPECT_EQ(number(json, "left_over"), 0);
    EXPECT_EQ(number(json, "tensor_bytes"), 4677120000);
    EXPECT_EQ(number(json, "in_line"), 339);
}

TEST_F(SevenB, FloatsAreReadWhereTheAlignmentSays) {
    std::string out = show({"floats", path(), "output_norm.weight"});
    for (const char *line :
         {"tensor data at 5953952, the alignment applied\n", "tensor offset 4677105664\n",
          "read from 4683059616\n", "numbers 3584\n", "smaller than a hundred 3584 of 3584\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
    out = show({"floats", path(), "output_norm.weight", "--noalign"});
    for (const char *line :
         {"tensor data at 5953935, where the info records end\n", "read from 4683059599\n"})
        EXPECT_TRUE(has(out, line)) << line << out;
}

TEST_F(SevenB, DumpStandsInForTheModel) {
    std::string dump = show({"dump", path()});
    EXPECT_LT(dump.size(), 80000u);
    plec_test::write_file(dir_->path("header.json"), dump.data(), dump.size());
    std::string header = dir_->path("header.json");
    EXPECT_EQ(show({"dump", header}), dump) << "read back and written again";
    for (const char *mode : {"head", "meta", "stack", "account"})
        EXPECT_EQ(show({mode, header}), show({mode, path()})) << mode;
    EXPECT_EQ(show({"layer", header, "3"}), show({"layer", path(), "3"}));
    std::string checked = show({"dump", path(), "--check", header});
    EXPECT_TRUE(has(checked, "read and written again: the same ")) << checked;
    EXPECT_TRUE(has(checked, "against the model: the same ")) << checked;
}

TEST(GgufTool, DumpRefusesUnknownFieldsAndTellsDifferences) {
    TempDir dir;
    std::string model = plec_test::data_path("gguf/16_tiny_f32/model.gguf");
    std::string dump = run_tool({"gguf", "dump", model}).out;
    auto check = [&](const std::string &text) {
        plec_test::write_file(dir.path("h.json"), text.data(), text.size());
        return run_tool({"gguf", "dump", model, "--check", dir.path("h.json")});
    };
    EXPECT_EQ(check(dump).exit_status, 0);

    std::string unknown = dump;
    unknown.replace(unknown.find("\"offset\""), 8, "\"extra\": 1, \"offset\"");
    ToolResult result = check(unknown);
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_TRUE(has(result.err, "\"extra\": an unknown field")) << result.err;

    std::string missing = dump;
    missing.replace(missing.find("\"version\": 3,"), 13, "");
    EXPECT_EQ(check(missing).exit_status, 3);

    std::string spaced = dump + " ";
    result = check(spaced);
    EXPECT_EQ(result.exit_status, 1) << "not byte for byte";
    EXPECT_TRUE(has(result.out, "not the same: byte " + std::to_string(dump.size()))) << result.out;

    std::string other = dump;
    size_t at = other.find("\"value\": \"qwen3moe\"");
    ASSERT_NE(at, std::string::npos);
    other.replace(at, 19, "\"value\": \"qwen2moe\"");
    result = check(other);
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "read and written again: the same ")) << result.out;
    EXPECT_TRUE(has(result.out, "against the model: not the same: byte ")) << result.out;

    std::string wrong_size = dump;
    at = wrong_size.find("\"bytes\": 384}");
    ASSERT_NE(at, std::string::npos);
    wrong_size.replace(at, 13, "\"bytes\": 385}");
    result = check(wrong_size);
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_TRUE(has(result.err, "not what shape and type say")) << result.err;
}

TEST(GgufTool, DumpSurvivesWhatJsonCannotSay) {
    TempDir dir;
    GgufBytes file(4, 8);
    file.key("big", 10).u64(UINT64_MAX).key("nan", 6).u32(0x7FC00123u);
    file.key("inf", 12).u64(0xFFF0000000000000u).key("zero", 6).u32(0x80000000u);
    file.key_string("bytes", "a\xff\x01").key_string("quote", "\"\\\n\t\x7f");
    file.key("tiny", 6).u32(1).key(std::string("k\xfe\0y", 4), 7).u8(2);
    file.tensor("odd\xff", {7}, 139, 0).tensor("plain", {32}, 0, 32).tensor("one", {}, 0, 160);
    file.tensor("none", {uint64_t(1) << 40, 0, uint64_t(1) << 40}, 0, 192);
    std::string model = put(dir, "m.gguf", file.pad().zeros(192).bytes);
    ToolResult dump = run_tool({"gguf", "dump", model});
    EXPECT_EQ(dump.exit_status, 0) << dump.err;
    parse(dump.out);
    plec_test::write_file(dir.path("h.json"), dump.out.data(), dump.out.size());
    ToolResult checked = run_tool({"gguf", "dump", model, "--check", dir.path("h.json")});
    EXPECT_EQ(checked.exit_status, 0) << checked.out << checked.err << dump.out;
}

TEST(GgufTool, SketchNamesEveryByteAndGetsItsNumbersBack) {
    TempDir dir;
    std::string path = dir.path("sketch.gguf");
    ToolResult result = run_tool({"gguf", "sketch", path});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_EQ(plec_test::read_file(path), plec_test::sketch_bytes());
    for (const char *line :
         {"24 46 metadata: general.architecture (string)\n",
          "70 55 metadata: general.name (string)\n", "268 59 info record: blk.0.counts.weight\n",
          "327 57 padding up to the alignment of 64\n", "384 24 tensor data: blk.0.counts.weight",
          "408 bytes written\n", "architecture counts, 1 block, 3 tokens named\n",
          "blk.0.counts.weight, 3 x 2, f32: 6 weights, 24 bytes, at offset 0\n",
          "327 + 57 + 24 = 408\n", "6 of 6 numbers came back\n"})
        EXPECT_TRUE(has(result.out, line)) << line << result.out;
    result = run_tool({"gguf", "sketch", path, "--noalign"});
    EXPECT_EQ(result.exit_status, 0);
    EXPECT_TRUE(has(result.out, "0 of 6 numbers came back\n")) << result.out;
    EXPECT_TRUE(has(run_tool({"gguf", "floats", path, "blk.0.counts.weight"}).out,
                    "0.5 1.5 2.5 3.5 4.5 5.5\n"));
    EXPECT_TRUE(has(run_tool({"gguf", "floats", path, "blk.0.counts.weight", "--noalign"}).out,
                    "0 0 0 0 0 0\n"));
    ToolResult spans = run_tool({"gguf", "bytes", path});
    EXPECT_TRUE(has(spans.out, "24 46 14 00 00 00 00 00 00 00 67 65 6e 65 ... metadata: "
                               "general.architecture (string)\n"))
        << spans.out;
}

TEST(GgufTool, SketchTakesAnyAlignment) {
    TempDir dir;
    std::string path = dir.path("sketch.gguf");
    ToolResult result = run_tool({"gguf", "sketch", path, "--align", "4096"});
    EXPECT_TRUE(has(result.out, "327 3769 padding up to the alignment of 4096\n")) << result.out;
    EXPECT_TRUE(has(result.out, "4120 bytes written\n"));
    EXPECT_EQ(std::filesystem::file_size(path), 4120u);
    for (const char *bad : {"0", "48", "2097152"})
        EXPECT_EQ(run_tool({"gguf", "sketch", path, "--align", bad}).exit_status, 2) << bad;
    EXPECT_EQ(run_tool({"gguf", "sketch", path, "--align", "1"}).exit_status, 0);
}

TEST(GgufTool, ByteTwentyFourRaisedIsRefusedWhereTheReaderStands) {
    TempDir dir;
    std::vector<uint8_t> bytes = plec_test::sketch_bytes();
    bytes[24] = 21;
    ToolResult result = run_tool({"gguf", "head", put(dir, "bad.gguf", bytes)});
    EXPECT_EQ(result.exit_status, 3);
    EXPECT_TRUE(has(result.err, "value type 100663296")) << result.err;
    EXPECT_TRUE(has(result.err, "at byte 57")) << result.err;
}

TEST(GgufTool, ACutHeaderShowsWhatIsThere) {
    TempDir dir;
    std::vector<uint8_t> bytes = plec_test::sketch_bytes();
    bytes.resize(200);
    std::string path = put(dir, "cut.gguf", bytes);
    for (const char *mode : {"head", "meta", "stack", "account", "bytes", "dump"}) {
        ToolResult result = run_tool({"gguf", mode, path});
        EXPECT_EQ(result.exit_status, 1) << mode;
        EXPECT_TRUE(has(result.err, "HeaderIncomplete")) << result.err;
        EXPECT_TRUE(has(result.err, "4 of 5 keys")) << result.err;
    }
    EXPECT_TRUE(has(run_tool({"gguf", "meta", path}).out, "3 counts.block_count u32 1\n"));
}

TEST(GgufTool, AccountFindsWhatDoesNotAddUp) {
    TempDir dir;
    for (const char *name : {"gap", "trail", "overlap", "truncdata"}) {
        std::string path = plec_test::data_path(std::string("gguf/malformed/") + name + ".gguf");
        EXPECT_EQ(run_tool({"gguf", "account", path}).exit_status, 1) << name;
    }
    std::string trail = plec_test::data_path("gguf/malformed/trail.gguf");
    EXPECT_TRUE(has(run_tool({"gguf", "account", trail}).out, "left over 4\n"));
    std::string set = plec_test::data_path("gguf/17_split/model-00002-of-00003.gguf");
    ToolResult split = run_tool({"gguf", "account", set});
    EXPECT_EQ(split.exit_status, 0) << split.out << split.err;
    EXPECT_TRUE(has(split.out, "left over 0\n"));
}

TEST(GgufTool, PeekShowsValuesAndBlockFields) {
    TempDir dir;
    GgufBytes file(2, 0);
    file.tensor("q", {32, 2, 3}, 8, 0).tensor("f", {4}, 0, 224).pad();
    for (unsigned block = 0; block < 6; block++) {
        file.u8(0).u8(0x38); // d = 0.5
        for (unsigned i = 0; i < 32; i++)
            file.u8(block * 32 + i);
    }
    file.pad().u32(0x3F800000u).u32(0x40000000u).u32(0x7FC00000u).u32(0xFF800000u);
    std::string path = put(dir, "m.gguf", file.bytes);
    ToolResult result = run_tool({"gguf", "peek", path, "q:1:1", "-n", "3"});
    EXPECT_EQ(result.exit_status, 0) << result.err;
    EXPECT_TRUE(has(result.out, "q: q8_0, 32 x 2 x 3, expert 1, row 1")) << result.out;
    EXPECT_TRUE(has(result.out, "\n 0 48\n 1 48.5\n 2 49\n") ||
                has(result.out, "\n0 48\n1 48.5\n2 49\n"))
        << squeezed(result.out);
    EXPECT_TRUE(has(result.out, "d 0.5 (0x3800)")) << result.out;
    EXPECT_TRUE(has(result.out, "qs 96 97 98")) << result.out;
    Json json = parse(run_tool({"gguf", "peek", path, "f", "--n=9", "--json"}).out);
    json_t *values = json_object_get(json.get(), "values");
    ASSERT_EQ(json_array_size(values), 4u);
    EXPECT_EQ(json_real_value(json_array_get(values, 1)), 2.0);
    EXPECT_TRUE(json_is_null(json_array_get(values, 2))) << "no NaN in JSON";
    for (const char *bad : {"q:3", "q:0:2", "absent", "q:x", "f:0:1"})
        EXPECT_EQ(run_tool({"gguf", "peek", path, bad}).exit_status, 3) << bad;
}

TEST(GgufTool, HashManifestFindsTheChangedExpert) {
    TempDir dir;
    std::string model = plec_test::data_path("gguf/13_fused/model.gguf");
    std::string manifest = dir.path("m.sha256");
    ASSERT_EQ(run_tool({"gguf", "hash", model, "--experts", "--write", manifest}).exit_status, 0);
    ToolResult same = run_tool({"gguf", "hash", model, "--check", manifest});
    EXPECT_EQ(same.exit_status, 0) << same.out;

    std::vector<uint8_t> bytes = plec_test::read_file(model);
    bytes[bytes.size() - 40] ^= 1;
    std::string changed = put(dir, "changed.gguf", bytes);
    ToolResult result = run_tool({"gguf", "hash", changed, "--check", manifest});
    EXPECT_EQ(result.exit_status, 1);
    EXPECT_TRUE(has(result.out, "changed: blk.")) << result.out;
    EXPECT_TRUE(has(result.out, "2 changed") || has(result.out, "1 changed")) << result.out;

    plec_test::write_file(dir.path("empty"), "", 0);
    EXPECT_EQ(run_tool({"gguf", "hash", model, "--check", dir.path("empty")}).exit_status, 1);
    plec_test::write_file(dir.path("bad"), "xyz\n", 4);
    EXPECT_EQ(run_tool({"gguf", "hash", model, "--check", dir.path("bad")}).exit_status, 3);
    EXPECT_EQ(
        run_tool({"gguf", "hash", model, "--check", manifest, "--write", manifest}).exit_status, 2);
}

TEST(GgufTool, HashIsTheOneOfTheBytes) {
    TempDir dir;
    GgufBytes file(1, 0);
    std::string path = put(dir, "m.gguf", file.tensor("abc", {3}, 24, 0).pad().raw("abc").bytes);
    EXPECT_EQ(run_tool({"gguf", "hash", path}).out,
              "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad  abc\n");
}

TEST(GgufTool, DiffTellsKeysTensorsAndNumbers) {
    TempDir dir;
    GgufBytes a(2, 3), b(2, 2);
    a.key_u32("same", 1).key_u32("changed", 1).key_string("gone", "x");
    b.key_u32("same", 1).key_u32("changed", 2);
    a.tensor("t", {4}, 0, 0).tensor("old", {4}, 0, 32).pad();
    b.tensor("new", {4}, 0, 0).tensor("t", {4}, 1, 32).pad();
    for (uint32_t bits : {0x3F800000u, 0x40000000u, 0x40400000u, 0x40800000u})
        a.u32(bits);
    a.pad().zeros(16);
    b.zeros(16).pad().raw(std::string("\x00\x3c\x00\x40\x00\x42\x00\x00", 8));
    std::string path_a = put(dir, "a.gguf", a.bytes), path_b = put(dir, "b.gguf", b.bytes);
    EXPECT_EQ(run_tool({"gguf", "diff", path_a, path_a}).exit_status, 0);
    ToolResult result = run_tool({"gguf", "diff", path_a, path_b});
    EXPECT_EQ(result.exit_status, 1) << result.err;
    EXPECT_EQ(result.out, "~ key changed: u32 1 -> u32 2\n"
                          "- key gone: string \"x\"\n"
                          "+ tensor new: f32 4\n"
                          "- tensor old: f32 4\n"
                          "~ tensor t: f32 4 -> f16 4, nmse 0.53333336\n"
                          "1 of 3 keys and 0 of 3 tensors are the same\n");
    Json json = parse(run_tool({"gguf", "diff", path_a, path_b, "--json"}).out);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "keys")), 2u);
    EXPECT_EQ(json_array_size(json_object_get(json.get(), "tensors")), 3u);
}

TEST(GgufTool, DiffLooksThroughHowAModelIsCutIntoFiles) {
    TempDir dir;
    std::string set = plec_test::data_path("gguf/17_split/model-00001-of-00003.gguf");
    EXPECT_EQ(run_tool({"gguf", "diff", set, set}).exit_status, 0);
}

TEST(GgufTool, EveryModeGivesOneJsonObject) {
    std::string model = plec_test::data_path("gguf/07_gpt_oss/model.gguf");
    for (const char *mode : {"head", "meta", "stack", "account", "bytes", "hash"}) {
        ToolResult result = run_tool({"gguf", mode, model, "--json"});
        EXPECT_EQ(result.exit_status, 0) << mode << result.err;
        Json json = parse(result.out);
        EXPECT_STREQ(json_string_value(json_object_get(json.get(), "mode")), mode);
    }
    Json json = parse(run_tool({"gguf", "layer", model, "0", "--json"}).out);
    EXPECT_GT(json_array_size(json_object_get(json.get(), "tensors")), 4u);
}

TEST(GgufTool, BadCommandLinesAreUsage) {
    std::string model = plec_test::data_path("gguf/16_tiny_f32/model.gguf");
    EXPECT_EQ(run_tool({"gguf", "heads", model}).exit_status, 2);
    EXPECT_EQ(run_tool({"gguf", "layer", model}).exit_status, 2);
    EXPECT_EQ(run_tool({"gguf", "layer", model, "x"}).exit_status, 2);
    EXPECT_EQ(run_tool({"gguf", "head", model, model}).exit_status, 2);
    EXPECT_EQ(run_tool({"gguf"}).exit_status, 2);
    EXPECT_EQ(run_tool({"gguf", "head", "/nonexistent"}).exit_status, 3);
    EXPECT_EQ(run_tool({"gguf", "head", "/"}).exit_status, 3);
}

TEST(GgufTool, MalformedFilesAreRefusedByEveryModeWithoutACrash) {
    for (const std::string &name :
         plec_test::list_folder(plec_test::data_path("gguf/malformed"), ".gguf"))
        for (const char *mode : {"head", "meta", "stack", "account", "bytes", "dump", "hash"}) {
            ToolResult result =
                run_tool({"gguf", mode, plec_test::data_path("gguf/malformed/" + name + ".gguf")});
            EXPECT_TRUE(result.exit_status == 0 || result.exit_status == 1 ||
                        result.exit_status == 3)
                << mode << " " << name << ": " << result.exit_status << result.err;
        }
}

TEST(GgufFields, CoverTheirBlockExactly) {
    unsigned n_types = 0;
    for (uint32_t id = 0; id < 64; id++) {
        const plec_gguf_type *type = plec_gguf_type_find(id);
        const plec_block_field *fields = nullptr;
        size_t n = plec_block_fields(&fields, id);
        bool in_blocks = type != nullptr && type->block_elems > 1;
        EXPECT_EQ(n > 0, in_blocks) << id;
        unsigned at = 0;
        for (size_t i = 0; i < n; i++) {
            EXPECT_EQ(fields[i].at, at) << type->name << " " << fields[i].name;
            at += plec_field_bytes(&fields[i]);
        }
        if (in_blocks) {
            EXPECT_EQ(at, type->block_bytes) << type->name;
        }
        n_types += n > 0;
    }
    EXPECT_EQ(n_types, 27u);
}

TEST(GgufText, RealsAreTheShortestThatComeBack) {
    char text[PLEC_REAL_TEXT_MAX];
    EXPECT_STREQ(plec_real_text(text, 0.1, false), "0.1");
    EXPECT_STREQ(plec_real_text(text, static_cast<double>(0.1f), true), "0.1");
    EXPECT_STREQ(plec_real_text(text, static_cast<double>(0.1f), false), "0.10000000149011612");
    EXPECT_STREQ(plec_real_text(text, 1e6, false), "1e+06");
    EXPECT_STREQ(plec_real_text(text, 123456, false), "123456");
    EXPECT_STREQ(plec_real_text(text, -0.0, false), "-0.0");
    EXPECT_STREQ(plec_real_text(text, 1e-5, false), "1e-05");
    for (double value : {1.0 / 3, 5e-324, 1.7976931348623157e308, 3.8387838091169084, -2.5e10})
        EXPECT_EQ(strtod(plec_real_text(text, value, false), nullptr), value);
}
