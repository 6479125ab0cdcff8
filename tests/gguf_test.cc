#include "lyrw/gguf.h"
#include "tests/support/data.h"
#include "tests/support/gguf_bytes.h"
#include "tests/support/keyword.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <sstream>

using plec_test::data_path;
using plec_test::GgufBytes;

namespace {

/* A parsed file with its bytes; closed at the end. */
class Parsed {
  public:
    std::vector<uint8_t> bytes;
    plec_gguf file = {};
    plec_error err = {};
    plec_status status;

    explicit Parsed(std::vector<uint8_t> data) : bytes(std::move(data)) {
        /* An exact heap block, so that a read past the end is seen. */
        bytes.shrink_to_fit();
        status = plec_gguf_parse(&file, bytes.data(), bytes.size(), &err);
    }
    explicit Parsed(const GgufBytes &made) : Parsed(made.bytes) {}
    ~Parsed() { plec_gguf_close(&file); }
    Parsed(const Parsed &) = delete;
    Parsed &operator=(const Parsed &) = delete;

    std::string findings() const {
        std::string all;
        for (size_t i = 0; i < file.findings.n_items; i++)
            all += std::string(file.findings.items[i].name) + ": " + file.findings.items[i].text +
                   "\n";
        return all;
    }
    const plec_gguf_key *key(const char *name) const {
        return plec_gguf_find_key_named(&file, name);
    }
};

std::string text(plec_view view) {
    return std::string(view.data, static_cast<size_t>(view.size));
}

std::vector<std::string> split_tabs(const std::string &line) {
    std::vector<std::string> parts;
    std::stringstream in(line);
    for (std::string part; std::getline(in, part, '\t');)
        parts.push_back(part);
    return parts;
}

void check_malformed(const std::vector<std::string> &row) {
    enum { FILE_NAME, DEFECT, EXPECT, KEYWORD, RUNNER, INSPECTOR };
    SCOPED_TRACE(row[FILE_NAME] + ": " + row[DEFECT]);
    Parsed parsed(plec_test::read_file(data_path("gguf/malformed/" + row[FILE_NAME])));
    plec_error err = {};
    bool runs = parsed.status == PLEC_OK && plec_gguf_require_sound(&parsed.file, &err) == PLEC_OK;
    EXPECT_EQ(runs, row[RUNNER] == "open-ok") << parsed.err.message << err.message;
    if (!runs) {
        std::string message = parsed.status != PLEC_OK ? parsed.err.message : err.message;
        EXPECT_TRUE(plec_test::has_keyword(message, row[KEYWORD])) << message;
    }
    if (row[EXPECT] == "open-ok") {
        EXPECT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
        EXPECT_EQ(parsed.findings(), "");
    } else if (row[EXPECT] == "inspector-ok-with-warning") {
        ASSERT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
        EXPECT_TRUE(plec_test::has_keyword(parsed.findings(), row[KEYWORD])) << parsed.findings();
    } else if (row[INSPECTOR].rfind("warn:", 0) == 0) {
        ASSERT_EQ(parsed.status, PLEC_OK);
        EXPECT_GT(parsed.file.findings.n_defects, 0u) << "shown, but not as sound";
    } else {
        EXPECT_EQ(parsed.status, PLEC_MALFORMED);
    }
}

} // namespace

TEST(Gguf, MalformedFilesComeOutAsExpected) {
    std::stringstream table(plec_test::read_text(data_path("gguf/malformed/expected.tsv")));
    std::string line;
    std::getline(table, line);
    unsigned n_rows = 0;
    for (; std::getline(table, line); n_rows++)
        check_malformed(split_tabs(line));
    EXPECT_EQ(n_rows, 32u);
}

TEST(Gguf, ReadsAModelsKeysAndTensors) {
    Parsed parsed(plec_test::read_file(data_path("gguf/16_tiny_f32/model.gguf")));
    ASSERT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
    EXPECT_EQ(parsed.findings(), "");
    EXPECT_TRUE(parsed.file.complete);
    EXPECT_EQ(text(plec_gguf_architecture(&parsed.file)), "qwen3moe");
    uint64_t value = 0;
    EXPECT_EQ(plec_gguf_u64(&value, &parsed.file,
                            plec_gguf_find_arch_key(&parsed.file, "expert_count"), 0, nullptr),
              PLEC_OK);
    EXPECT_EQ(value, 3u);
    const plec_gguf_tensor *tensor =
        plec_gguf_find_tensor(&parsed.file, plec_view_of("blk.0.ffn_gate_exps.weight"));
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->n_dims, 3u);
    EXPECT_EQ(tensor->ne[0], 32u);
    EXPECT_EQ(tensor->ne[1], 1u);
    EXPECT_EQ(tensor->ne[2], 3u);
    EXPECT_EQ(tensor->ne[3], 1u);
    EXPECT_EQ(tensor->n_elements, 96u);
    EXPECT_EQ(tensor->n_bytes, 384u);
    const uint8_t *bytes = nullptr;
    ASSERT_EQ(plec_gguf_use_tensor(&bytes, &parsed.file, tensor, &parsed.err), PLEC_OK);
    EXPECT_EQ(bytes, parsed.bytes.data() + parsed.file.data_at + tensor->offset);
    EXPECT_EQ(plec_gguf_find_tensor(&parsed.file, plec_view_of("blk.0.ffn")), nullptr);
}

TEST(Gguf, AllFixtureModelsAreSoundAndAccountedFor) {
    for (const char *name :
         {"01_mixtral", "02_qwen2moe", "04_olmoe", "05_deepseek_v3", "07_gpt_oss", "09_granitemoe",
          "10_glm4moe", "12_nemotron_h", "13_fused", "16_tiny_f32", "21_e896"}) {
        SCOPED_TRACE(name);
        Parsed parsed(plec_test::read_file(data_path(std::string("gguf/") + name + "/model.gguf")));
        ASSERT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
        EXPECT_EQ(parsed.findings(), "");
        plec_findings strict = {};
        plec_gguf_check_strict(&strict, &parsed.file);
        EXPECT_EQ(strict.n_defects, 0u);
        plec_findings_clear(&strict);
    }
}

TEST(Gguf, ByteTwentyFourRaisedIsRefusedAtFiftySeven) {
    GgufBytes file(0, 2);
    file.key_string("general.architecture", "counts")
        .key_string("general.name", std::string(23, 'x'));
    file.bytes[24] = 21;
    Parsed parsed(file);
    EXPECT_EQ(parsed.status, PLEC_MALFORMED);
    EXPECT_STREQ(parsed.err.name, "UnknownValueType");
    EXPECT_EQ(parsed.err.byte, 57u);
    EXPECT_NE(std::string(parsed.err.message).find("value type 100663296"), std::string::npos)
        << parsed.err.message;
}

TEST(Gguf, ByteTwentyFourRaisedFurtherIsRefusedWhereTheLengthStands) {
    GgufBytes file(0, 2);
    file.key_string("general.architecture", "counts")
        .key_string("general.name", "one page about counting");
    file.bytes[24] = 64;
    Parsed parsed(file);
    EXPECT_EQ(parsed.status, PLEC_MALFORMED);
    EXPECT_EQ(parsed.err.byte, 101u);
    EXPECT_NE(std::string(parsed.err.message).find("7449358543090511616"), std::string::npos)
        << parsed.err.message;
}

TEST(Gguf, AHeaderThatEndsOnTheBoundaryHasNoPadding) {
    /* 24 of head, 8 + 8 of name, 4 + 8 of dims, 4 + 8 of type and offset: 64. */
    GgufBytes exact(1, 0);
    exact.tensor("eight by", {32}, 0, 0).zeros(128);
    Parsed on_boundary(exact);
    ASSERT_EQ(on_boundary.status, PLEC_OK);
    EXPECT_EQ(on_boundary.file.infos_end, 64u);
    EXPECT_EQ(on_boundary.file.data_at, 64u);
    EXPECT_EQ(on_boundary.findings(), "");
}

TEST(Gguf, DataStartIsNotRoundedWithoutTensors) {
    Parsed parsed(GgufBytes(0, 1).key_u32("a", 1));
    ASSERT_EQ(parsed.status, PLEC_OK);
    EXPECT_EQ(parsed.file.data_at, parsed.file.infos_end);
    EXPECT_EQ(parsed.file.data_at, 41u);
    EXPECT_EQ(parsed.findings(), "");
}

TEST(Gguf, AlignmentComesOutOfTheFile) {
    for (uint32_t alignment : {8u, 16u, 64u, 4096u, 1u << 20}) {
        GgufBytes file(1, 1);
        file.key_u32("general.alignment", alignment)
            .tensor("a", {32}, 0, 0)
            .pad(alignment)
            .zeros(128);
        Parsed parsed(file);
        ASSERT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
        EXPECT_EQ(parsed.file.alignment, alignment);
        EXPECT_TRUE(parsed.file.alignment_stated);
        EXPECT_EQ(parsed.file.data_at % alignment, 0u);
        EXPECT_EQ(parsed.findings(), "");
    }
}

TEST(Gguf, EmptyArraysAndEmptyStringsAreLegal) {
    GgufBytes file(0, 3);
    file.array("a", 4, 0).array("s", 8, 0).key_string("t", "");
    Parsed parsed(file);
    ASSERT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
    EXPECT_EQ(parsed.key("a")->count, 0u);
    plec_view view;
    EXPECT_EQ(plec_gguf_string(&view, &parsed.file, parsed.key("t"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(view.size, 0u);
    EXPECT_EQ(plec_gguf_string(&view, &parsed.file, parsed.key("s"), 0, nullptr), PLEC_BAD_INPUT);
}

TEST(Gguf, TensorsMayLieInAnyOrderWithGaps) {
    GgufBytes file(2, 0);
    file.tensor("late", {32}, 0, 256).tensor("early", {32}, 0, 0).pad().zeros(384);
    Parsed parsed(file);
    ASSERT_EQ(parsed.status, PLEC_OK);
    EXPECT_EQ(plec_gguf_require_sound(&parsed.file, &parsed.err), PLEC_OK);
    EXPECT_NE(parsed.findings().find("Gap: tensor \"late\": 128 unused bytes"), std::string::npos)
        << parsed.findings();
    EXPECT_NE(parsed.findings().find("OutOfOrder"), std::string::npos);
    plec_findings strict = {};
    plec_gguf_check_strict(&strict, &parsed.file);
    EXPECT_EQ(strict.n_defects, 1u) << "llama.cpp wants the exact running sum";
    plec_findings_clear(&strict);
}

TEST(Gguf, TheLastTensorNeedsNoPaddingBehindIt) {
    GgufBytes file(1, 0);
    file.tensor("a", {3}, 0, 0).pad().zeros(12);
    Parsed parsed(file);
    EXPECT_EQ(parsed.findings(), "");
    file.zeros(20);
    Parsed padded(file);
    EXPECT_EQ(padded.findings(), "");
    file.zeros(1);
    Parsed more(file);
    EXPECT_NE(more.findings().find("1 bytes after the last tensor"), std::string::npos);
}

TEST(Gguf, NamesOfSixtyFourBytesAreTakenButNotStrictly) {
    Parsed parsed(GgufBytes(1, 0).tensor(std::string(64, 'n'), {32}, 0, 0).pad().zeros(128));
    ASSERT_EQ(parsed.status, PLEC_OK);
    plec_findings strict = {};
    plec_gguf_check_strict(&strict, &parsed.file);
    EXPECT_EQ(strict.n_defects, 1u);
    plec_findings_clear(&strict);
    Parsed longer(GgufBytes(1, 0).tensor(std::string(65, 'n'), {32}, 0, 0).pad().zeros(128));
    EXPECT_STREQ(longer.err.name, "NameTooLong");
}

TEST(Gguf, KeysUpToTheirLimitAreTaken) {
    Parsed parsed(GgufBytes(0, 1).key_u32(std::string(65535, 'k'), 1));
    EXPECT_EQ(parsed.status, PLEC_OK);
    Parsed longer(GgufBytes(0, 1).key_u32(std::string(65536, 'k'), 1));
    EXPECT_STREQ(longer.err.name, "KeyTooLong");
}

TEST(Gguf, ControlBytesInNamesAreEscaped) {
    Parsed parsed(GgufBytes(1, 1)
                      .key_u32(std::string("a\0b\x1b[2J", 7), 1)
                      .tensor("t\x1b\x07", {32}, 0, 0)
                      .pad()
                      .zeros(128));
    ASSERT_EQ(parsed.status, PLEC_OK);
    EXPECT_NE(parsed.findings().find("a\\x00b\\x1b[2J"), std::string::npos) << parsed.findings();
    EXPECT_EQ(parsed.findings().find('\x1b'), std::string::npos);
}

TEST(GgufValues, AnyIntegerWidthIsReadAndRangeChecked) {
    GgufBytes file(0, 10);
    file.key("u8", 0).u8(200).key("i8", 1).u8(0xFF).key("u16", 2).u8(0xFF).u8(0xFF);
    file.key("i16", 3).u8(0).u8(0x80).key("u32", 4).u32(4000000000u);
    file.key("i32", 5).u32(static_cast<uint32_t>(-7)).key("u64", 10).u64(UINT64_MAX);
    file.key("i64", 11).u64(static_cast<uint64_t>(INT64_MIN)).key("f32", 6).u32(0x3F800000u);
    file.key("bool", 7).u8(1);
    Parsed parsed(file);
    ASSERT_EQ(parsed.status, PLEC_OK) << parsed.err.message;
    const plec_gguf *f = &parsed.file;
    uint64_t u = 0;
    int64_t i = 0;
    EXPECT_EQ(plec_gguf_u64(&u, f, parsed.key("u8"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(u, 200u);
    EXPECT_EQ(plec_gguf_u64(&u, f, parsed.key("u32"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(u, 4000000000u);
    EXPECT_EQ(plec_gguf_u64(&u, f, parsed.key("i8"), 0, &parsed.err), PLEC_MALFORMED);
    EXPECT_STREQ(parsed.err.name, "OutOfRange");
    EXPECT_EQ(u, 4000000000u) << "untouched on failure";
    EXPECT_EQ(plec_gguf_i64(&i, f, parsed.key("i16"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(i, -32768);
    EXPECT_EQ(plec_gguf_i64(&i, f, parsed.key("i32"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(i, -7);
    EXPECT_EQ(plec_gguf_i64(&i, f, parsed.key("i64"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(i, INT64_MIN);
    EXPECT_EQ(plec_gguf_i64(&i, f, parsed.key("u64"), 0, &parsed.err), PLEC_MALFORMED);
    EXPECT_EQ(plec_gguf_u64(&u, f, parsed.key("f32"), 0, &parsed.err), PLEC_MALFORMED);
    EXPECT_STREQ(parsed.err.name, "WrongType");
    EXPECT_EQ(plec_gguf_u64(&u, f, parsed.key("absent"), 0, &parsed.err), PLEC_MISSING);
}

TEST(GgufValues, RealsTakeIntegersThatADoubleHolds) {
    GgufBytes file(0, 4);
    file.key("half", 6).u32(0x3F000000u).key("third", 12).u64(0x3FD5555555555555u);
    file.key("int", 4).u32(7).key("big", 10).u64((uint64_t(1) << 53) + 1);
    Parsed parsed(file);
    double value = 0;
    EXPECT_EQ(plec_gguf_f64(&value, &parsed.file, parsed.key("half"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(value, 0.5);
    EXPECT_EQ(plec_gguf_f64(&value, &parsed.file, parsed.key("third"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(value, 1.0 / 3.0);
    EXPECT_EQ(plec_gguf_f64(&value, &parsed.file, parsed.key("int"), 0, nullptr), PLEC_OK);
    EXPECT_EQ(value, 7);
    EXPECT_EQ(plec_gguf_f64(&value, &parsed.file, parsed.key("big"), 0, nullptr), PLEC_MALFORMED);
}

TEST(GgufValues, ArrayElementsAreReadOneByOne) {
    GgufBytes file(0, 2);
    file.array("n", 5, 3).u32(1).u32(static_cast<uint32_t>(-2)).u32(3);
    file.array("s", 8, 3).string("a").string("").string("ccc");
    Parsed parsed(file);
    ASSERT_EQ(parsed.status, PLEC_OK);
    int64_t value = 0;
    EXPECT_EQ(plec_gguf_i64(&value, &parsed.file, parsed.key("n"), 1, nullptr), PLEC_OK);
    EXPECT_EQ(value, -2);
    EXPECT_EQ(plec_gguf_i64(&value, &parsed.file, parsed.key("n"), 3, &parsed.err), PLEC_BAD_INPUT);
    plec_view view;
    EXPECT_EQ(plec_gguf_string(&view, &parsed.file, parsed.key("s"), 2, nullptr), PLEC_OK);
    EXPECT_EQ(text(view), "ccc");
    EXPECT_EQ(plec_gguf_string(&view, &parsed.file, parsed.key("n"), 0, &parsed.err),
              PLEC_MALFORMED);
    uint64_t at = parsed.key("s")->value_at;
    EXPECT_EQ(text(plec_gguf_next_string(&parsed.file, &at)), "a");
    EXPECT_EQ(text(plec_gguf_next_string(&parsed.file, &at)), "");
    EXPECT_EQ(text(plec_gguf_next_string(&parsed.file, &at)), "ccc");
}

TEST(GgufValues, BoolsTakeZeroAndOneOfAnyType) {
    GgufBytes file(0, 4);
    file.key("t", 7).u8(1).key("f", 7).u8(0).key("one", 4).u32(1).key("two", 4).u32(2);
    Parsed parsed(file);
    bool value = false;
    EXPECT_EQ(plec_gguf_bool(&value, &parsed.file, parsed.key("t"), 0, nullptr), PLEC_OK);
    EXPECT_TRUE(value);
    EXPECT_EQ(plec_gguf_bool(&value, &parsed.file, parsed.key("f"), 0, nullptr), PLEC_OK);
    EXPECT_FALSE(value);
    EXPECT_EQ(plec_gguf_bool(&value, &parsed.file, parsed.key("one"), 0, nullptr), PLEC_OK);
    EXPECT_TRUE(value);
    EXPECT_EQ(plec_gguf_bool(&value, &parsed.file, parsed.key("two"), 0, nullptr), PLEC_MALFORMED);
}

TEST(GgufTypes, TableIsTheOneOfTheFormat) {
    /* id, elements and bytes of a block: printed by the library that defines the format. */
    const unsigned known[][3] = {
        {0, 1, 4},      {1, 1, 2},      {2, 32, 18},    {3, 32, 20},    {6, 32, 22},
        {7, 32, 24},    {8, 32, 34},    {9, 32, 36},    {10, 256, 84},  {11, 256, 110},
        {12, 256, 144}, {13, 256, 176}, {14, 256, 210}, {15, 256, 292}, {16, 256, 66},
        {17, 256, 74},  {18, 256, 98},  {19, 256, 50},  {20, 32, 18},   {21, 256, 110},
        {22, 256, 82},  {23, 256, 136}, {24, 1, 1},     {25, 1, 2},     {26, 1, 4},
        {27, 1, 8},     {28, 1, 8},     {29, 256, 56},  {30, 1, 2},     {34, 256, 54},
        {35, 256, 66},  {39, 32, 17},   {40, 64, 36},   {41, 128, 18},  {42, 64, 18}};
    unsigned n_known = 0;
    for (uint32_t id = 0; id < 64; id++) {
        const plec_gguf_type *type = plec_gguf_type_find(id);
        EXPECT_EQ(type != nullptr, id <= 42);
        if (type == nullptr || type->removed) continue;
        ASSERT_LT(n_known, std::size(known));
        EXPECT_EQ(type->id, id);
        EXPECT_EQ(id, known[n_known][0]);
        EXPECT_EQ(type->block_elems, known[n_known][1]);
        EXPECT_EQ(type->block_bytes, known[n_known][2]);
        EXPECT_EQ(plec_gguf_type_by_name(type->name), type);
        n_known++;
    }
    EXPECT_EQ(n_known, std::size(known));
}

TEST(GgufTypes, TagsGoBothWays) {
    uint16_t tag = 0;
    uint32_t id = 0;
    for (uint32_t type = 0; type < 256; type++) {
        if (!plec_gguf_type_tag(&tag, type)) continue;
        EXPECT_TRUE(plec_gguf_type_of_tag(&id, tag));
        EXPECT_EQ(id, type);
    }
    EXPECT_TRUE(plec_gguf_type_tag(&tag, 12));
    EXPECT_EQ(tag, 4);
    EXPECT_TRUE(plec_gguf_type_tag(&tag, 39));
    EXPECT_EQ(tag, 0x4727) << "a GGUF block of mxfp4 is not LYRW's paired mxfp4";
    EXPECT_FALSE(plec_gguf_type_tag(&tag, 4));
    EXPECT_FALSE(plec_gguf_type_tag(&tag, 139));
    EXPECT_FALSE(plec_gguf_type_of_tag(&id, 8));
    EXPECT_FALSE(plec_gguf_type_of_tag(&id, 0x4700)) << "f32 travels under LYRW's own tag";
}

TEST(GgufTypes, RemovedAndUnknownIdsAreNamed) {
    char buffer[PLEC_GGUF_TYPE_TEXT_MAX];
    EXPECT_STREQ(plec_gguf_type_text(12, buffer), "q4_K");
    EXPECT_STREQ(plec_gguf_type_text(4, buffer), "type 4 (removed: q4_2)");
    EXPECT_STREQ(plec_gguf_type_text(139, buffer), "type 139 (unknown)");
    EXPECT_STREQ(plec_gguf_type_text(4294967295u, buffer), "type 4294967295 (unknown)");
}

TEST(View, TextIsEscapedAndCut) {
    char buffer[PLEC_VIEW_TEXT_MAX];
    EXPECT_STREQ(plec_view_text({"a\xff\xc3\xa9\x7f", 5}, buffer), "a\\xff\xc3\xa9\\x7f");
    EXPECT_STREQ(plec_view_text({"\xc2\x9b"
                                 "31m",
                                 5},
                                buffer),
                 "\\xc2\\x9b31m")
        << "C1 control";
    std::string longer(500, 'y');
    std::string cut = plec_view_text({longer.data(), longer.size()}, buffer);
    EXPECT_LT(cut.size(), size_t(PLEC_VIEW_TEXT_MAX));
    EXPECT_EQ(cut.substr(cut.size() - 3), "...");
    EXPECT_FALSE(plec_view_is_clean({"\xed\xa0\x80", 3})) << "a surrogate";
    EXPECT_FALSE(plec_view_is_clean({"\xe2\x82", 2})) << "cut in the middle";
    EXPECT_TRUE(plec_view_is_clean({"\xe2\x82\xac", 3}));
}
