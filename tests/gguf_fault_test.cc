/* Faults that readers of GGUF have really had, one test each, named after the report in the log of
 * the format's documentation (G: container, S: split sets are in gguf_split_test.cc). */
#include "lyrw/gguf.h"
#include "lyrw/mapping.h"
#include "tests/support/data.h"
#include "tests/support/gguf_bytes.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include <fcntl.h>
#include <unistd.h>

using plec_test::GgufBytes;

namespace {

struct Outcome {
    plec_status look, run;
    std::string name, message; /* of the refusal */
    uint64_t byte;
    std::string findings;
};

Outcome outcome_of(const void *data, uint64_t size) {
    plec_gguf file;
    plec_error err = {};
    Outcome out = {};
    out.look = out.run = plec_gguf_parse(&file, data, size, &err);
    if (out.look == PLEC_OK) {
        for (size_t i = 0; i < file.findings.n_items; i++)
            out.findings += std::string(file.findings.items[i].name) + ": " +
                            file.findings.items[i].text + "\n";
        out.run = plec_gguf_require_sound(&file, &err);
    }
    if (out.run != PLEC_OK) {
        out.name = err.name;
        out.message = err.message;
        out.byte = err.byte;
    }
    plec_gguf_close(&file);
    return out;
}
Outcome outcome_of(const GgufBytes &file) {
    std::vector<uint8_t> exact(file.bytes);
    return outcome_of(exact.data(), exact.size());
}

bool has(const std::string &text, const std::string &part) {
    return text.find(part) != std::string::npos;
}

const uint64_t k2_32 = uint64_t(1) << 32;

} // namespace

TEST(GgufFault, G1CountsAndLengthsNearTwoToTheSixtyFour) {
    for (uint64_t n : {UINT64_MAX, UINT64_MAX - 7, uint64_t(1) << 63, uint64_t(1) << 40}) {
        EXPECT_EQ(outcome_of(GgufBytes(n, 0).zeros(64)).name, "TooManyTensors");
        EXPECT_EQ(outcome_of(GgufBytes(0, n).zeros(64)).name, "TooManyKeys");
        EXPECT_EQ(outcome_of(GgufBytes(0, 1).u64(n).zeros(64)).name, "KeyTooLong");
        EXPECT_EQ(outcome_of(GgufBytes(0, 1).key("s", 8).u64(n).zeros(64)).name, "StringTooLong");
        EXPECT_EQ(outcome_of(GgufBytes(0, 1).array("s", 4, n).zeros(64)).name, "ArrayTooLong");
        EXPECT_EQ(outcome_of(GgufBytes(0, 1).array("s", 8, 1).u64(n).zeros(64)).name,
                  "StringTooLong");
        EXPECT_EQ(outcome_of(GgufBytes(1, 0).u64(n).zeros(64)).name, "NameTooLong");
    }
}

TEST(GgufFault, G2SumOfPaddedSizesWraps) {
    const uint64_t half = uint64_t(1) << 61; /* f32 elements: 2^63 bytes */
    GgufBytes file(2, 0);
    file.tensor("a", {half}, 0, 0).tensor("b", {half}, 0, half * 4).pad().zeros(64);
    Outcome out = outcome_of(file);
    EXPECT_EQ(out.look, PLEC_OK);
    EXPECT_EQ(out.name, "TensorOutsideFile");
}

TEST(GgufFault, G4BytesWrapAfterTheElementsFit) {
    Outcome out =
        outcome_of(GgufBytes(1, 0).tensor("wide", {1152, (uint64_t(1) << 42) + 1}, 28, 0));
    EXPECT_NE(out.run, PLEC_OK);
    EXPECT_TRUE(has(out.message, "wide")) << out.message;
    /* 2^61 f64 are 2^64 bytes. */
    out = outcome_of(GgufBytes(1, 0).tensor("wide", {uint64_t(1) << 61}, 28, 0));
    EXPECT_EQ(out.name, "SizeOverflow");
}

TEST(GgufFault, G5CountBoundByAnotherRecordsSize) {
    EXPECT_EQ(outcome_of(GgufBytes(UINT64_MAX / 88, 0).zeros(100)).name, "TooManyTensors");
}

TEST(GgufFault, G6ElementProductWrapsToZero) {
    EXPECT_EQ(outcome_of(GgufBytes(1, 0).tensor("a", {k2_32, k2_32}, 0, 0)).name,
              "ElementOverflow");
    EXPECT_EQ(outcome_of(GgufBytes(1, 0).tensor("a", {k2_32, 65536, 65536}, 0, 0)).name,
              "ElementOverflow");
    EXPECT_EQ(
        outcome_of(GgufBytes(1, 0).tensor("a", {k2_32 * 2, (uint64_t(1) << 31) + 1}, 0, 0)).name,
        "ElementOverflow");
}

TEST(GgufFault, G7ZeroDimIsShownAndNeverDividedBy) {
    GgufBytes file(1, 0);
    file.tensor("none", {32, 0, uint64_t(1) << 62, uint64_t(1) << 62}, 12, 0).pad();
    std::vector<uint8_t> exact(file.bytes);
    plec_gguf parsed;
    plec_error err = {};
    ASSERT_NE(plec_gguf_parse(&parsed, exact.data(), exact.size(), &err), PLEC_OK)
        << "32 columns are no q4_K block";
    GgufBytes good(1, 0);
    good.tensor("none", {256, 0, uint64_t(1) << 62}, 12, 0).pad();
    exact = good.bytes;
    ASSERT_EQ(plec_gguf_parse(&parsed, exact.data(), exact.size(), &err), PLEC_OK) << err.message;
    EXPECT_EQ(plec_gguf_require_sound(&parsed, &err), PLEC_OK) << "only its user can judge";
    const uint8_t *bytes;
    EXPECT_EQ(plec_gguf_use_tensor(&bytes, &parsed, &parsed.tensors[0], &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "ZeroDim");
    plec_gguf_close(&parsed);
}

TEST(GgufFault, G8TypeWithoutABlockSize) {
    for (uint32_t type : {4u, 5u, 31u, 33u, 36u, 38u}) {
        Outcome out = outcome_of(GgufBytes(1, 0).tensor("old", {32}, type, 0).pad().zeros(18));
        EXPECT_EQ(out.run, PLEC_OK);
        EXPECT_TRUE(has(out.findings, "removed")) << out.findings;
        EXPECT_TRUE(has(out.findings, "18 bytes")) << out.findings;
    }
}

TEST(GgufFault, G9AlignmentZeroOrMinusOne) {
    for (uint32_t value : {0u, 48u, 0xFFFFFFFFu, 0x80000000u, 0x200000u}) {
        Outcome out =
            outcome_of(GgufBytes(1, 1).key_u32("general.alignment", value).tensor("a", {32}, 0, 0));
        EXPECT_EQ(out.name, "BadAlignment") << value;
        EXPECT_TRUE(has(out.message, "alignment must be a power of two")) << out.message;
    }
    GgufBytes minus_one(1, 1);
    minus_one.key("general.alignment", 5).u32(0xFFFFFFFFu).tensor("a", {32}, 0, 0);
    EXPECT_EQ(outcome_of(minus_one).name, "BadAlignment");
}

TEST(GgufFault, G12OffsetOutsideTheFile) {
    for (uint64_t offset : {uint64_t(1) << 40, UINT64_MAX - 63, UINT64_MAX - 95}) {
        Outcome out = outcome_of(
            GgufBytes(1, 0).tensor("far", {32}, 0, offset & ~uint64_t(31)).pad().zeros(128));
        EXPECT_EQ(out.look, PLEC_OK);
        EXPECT_EQ(out.name, "TensorOutsideFile");
        EXPECT_TRUE(has(out.message, "far")) << out.message;
    }
}

TEST(GgufFault, G13FileCutInTheMiddleOfTheLastTensor) {
    GgufBytes file(2, 0);
    file.tensor("a", {32}, 0, 0).tensor("last", {32}, 0, 128).pad().zeros(128 + 127);
    Outcome out = outcome_of(file);
    EXPECT_EQ(out.look, PLEC_OK);
    EXPECT_EQ(out.name, "TensorOutsideFile");
    /* G33: which tensor, how long the file is, how long it must be. */
    size_t size = file.bytes.size();
    EXPECT_TRUE(has(out.message, "last")) << out.message;
    EXPECT_TRUE(has(out.message, "the file is " + std::to_string(size) + " bytes, needs " +
                                     std::to_string(size + 1)))
        << out.message;
    EXPECT_EQ(outcome_of(file.zeros(1)).run, PLEC_OK);
}

TEST(GgufFault, G15ArrayCountFarBeyondTheBytesLeft) {
    Outcome out = outcome_of(GgufBytes(0, 1).array("a", 4, uint64_t(1) << 30).zeros(40));
    EXPECT_EQ(out.name, "ArrayTooLong");
    /* Within the limit but not in the file: looked at as a header cut short, never run. */
    out = outcome_of(GgufBytes(0, 1).array("a", 4, uint64_t(1) << 24).zeros(40));
    EXPECT_EQ(out.look, PLEC_OK);
    EXPECT_EQ(out.name, "HeaderIncomplete");
}

TEST(GgufFault, G16ArrayOfUnknownElementType) {
    EXPECT_EQ(outcome_of(GgufBytes(0, 1).array("a", 9, 1).zeros(64)).name, "NestedArray");
    EXPECT_EQ(outcome_of(GgufBytes(0, 1).array("a", 99, 1).zeros(64)).name, "UnknownElementType");
    EXPECT_EQ(outcome_of(GgufBytes(0, 1).array("a", 13, 0).zeros(64)).name, "UnknownElementType");
    EXPECT_EQ(outcome_of(GgufBytes(0, 1).key("a", 13).zeros(64)).name, "UnknownValueType");
}

TEST(GgufFault, G17ValuesOfTheWrongTypeAreAMessage) {
    GgufBytes file(0, 3);
    file.key_string("x.expert_count", "eight");
    file.array("x.swiglu_clamp_exp", 0, 2).u8(7).u8(7);
    file.key("x.scale", 8).string("2");
    std::vector<uint8_t> exact(file.bytes);
    plec_gguf parsed;
    plec_error err = {};
    ASSERT_EQ(plec_gguf_parse(&parsed, exact.data(), exact.size(), &err), PLEC_OK);
    uint64_t u = 3;
    double f = 3;
    const plec_gguf_key *count = plec_gguf_find_key_named(&parsed, "x.expert_count");
    EXPECT_EQ(plec_gguf_u64(&u, &parsed, count, 0, &err), PLEC_MALFORMED);
    EXPECT_TRUE(has(err.message, "x.expert_count")) << err.message;
    EXPECT_EQ(u, 3u);
    const plec_gguf_key *clamp = plec_gguf_find_key_named(&parsed, "x.swiglu_clamp_exp");
    EXPECT_EQ(plec_gguf_f64(&f, &parsed, clamp, 1, &err), PLEC_OK);
    EXPECT_EQ(f, 7);
    EXPECT_EQ(plec_gguf_f64(&f, &parsed, clamp, 2, &err), PLEC_BAD_INPUT) << "two bytes, not eight";
    const plec_gguf_key *scale = plec_gguf_find_key_named(&parsed, "x.scale");
    EXPECT_EQ(plec_gguf_f64(&f, &parsed, scale, 0, &err), PLEC_MALFORMED);
    plec_gguf_close(&parsed);
}

TEST(GgufFault, G19TwoTensorsOfOneName) {
    GgufBytes file(2, 0);
    file.tensor("blk.0.ffn_up_exps.weight", {32}, 0, 0)
        .tensor("blk.0.ffn_up_exps.weight", {32}, 0, 128)
        .pad()
        .zeros(256);
    Outcome out = outcome_of(file);
    EXPECT_EQ(out.name, "DuplicateTensor");
    EXPECT_TRUE(has(out.message, "blk.0.ffn_up_exps.weight"));
}

TEST(GgufFault, G20OneKeyTwice) {
    EXPECT_EQ(
        outcome_of(GgufBytes(0, 2).key_u32("x.expert_count", 8).key_u32("x.expert_count", 16)).name,
        "DuplicateKey");
}

TEST(GgufFault, G22NamesOutliveTheGrowthOfTheTable) {
    const unsigned n = 3000;
    GgufBytes file(n, 0);
    for (unsigned i = 0; i < n; i++)
        file.tensor("a.rather.long.name.of.a.tensor.that.no.short.string.holds." +
                        std::to_string(i),
                    {1}, 0, 32 * i);
    file.pad().zeros(32 * n);
    std::vector<uint8_t> exact(file.bytes);
    plec_gguf parsed;
    ASSERT_EQ(plec_gguf_parse(&parsed, exact.data(), exact.size(), nullptr), PLEC_OK);
    for (unsigned i = 0; i < n; i++) {
        std::string name =
            "a.rather.long.name.of.a.tensor.that.no.short.string.holds." + std::to_string(i);
        ASSERT_EQ(plec_gguf_find_tensor(&parsed, {name.data(), name.size()}), &parsed.tensors[i]);
    }
    plec_gguf_close(&parsed);
}

TEST(GgufFault, G23FilesOverFourGibAndOverTwoToTheThirtyThree) {
    plec_test::TempDir dir;
    std::string path = dir.path("large.gguf");
    const uint64_t elements = uint64_t(5) << 30; /* 20 GiB of f32 */
    GgufBytes file(2, 0);
    file.tensor("large", {1 << 20, elements >> 20}, 0, 0)
        .tensor("behind", {2}, 0, elements * 4)
        .pad();
    uint64_t data_at = file.bytes.size(), size = data_at + elements * 4 + 8;
    int fd = open(path.c_str(), O_RDWR | O_CREAT, 0600);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(write(fd, file.bytes.data(), file.bytes.size()), ssize_t(file.bytes.size()));
    if (ftruncate(fd, static_cast<off_t>(size)) != 0)
        GTEST_SKIP() << "no sparse file of 20 GiB here";
    const float values[2] = {1.5f, -2.5f};
    ASSERT_EQ(pwrite(fd, values, 8, static_cast<off_t>(size - 8)), 8);
    close(fd);
    plec_mapping mapping;
    plec_error err = {};
    ASSERT_EQ(plec_mapping_open(&mapping, path.c_str(), &err), PLEC_OK) << err.message;
    plec_gguf parsed;
    ASSERT_EQ(plec_gguf_parse(&parsed, mapping.data, mapping.size, &err), PLEC_OK) << err.message;
    EXPECT_EQ(plec_gguf_require_sound(&parsed, &err), PLEC_OK) << err.message;
    const uint8_t *bytes = nullptr;
    const plec_gguf_tensor *behind = plec_gguf_find_tensor(&parsed, plec_view_of("behind"));
    ASSERT_EQ(plec_gguf_use_tensor(&bytes, &parsed, behind, &err), PLEC_OK) << err.message;
    EXPECT_EQ(memcmp(bytes, values, 8), 0);
    EXPECT_EQ(parsed.tensors[0].n_bytes, elements * 4);
    plec_gguf_close(&parsed);
    plec_mapping_close(&mapping);
}

TEST(GgufFault, G25OffsetZeroIsAPlace) {
    GgufBytes file(1, 0);
    file.tensor("first", {2}, 0, 0).pad().u32(0x3F800000u).u32(0x40000000u);
    std::vector<uint8_t> exact(file.bytes);
    plec_gguf parsed;
    ASSERT_EQ(plec_gguf_parse(&parsed, exact.data(), exact.size(), nullptr), PLEC_OK);
    const uint8_t *bytes = nullptr;
    ASSERT_EQ(plec_gguf_use_tensor(&bytes, &parsed, &parsed.tensors[0], nullptr), PLEC_OK);
    EXPECT_EQ(bytes, exact.data() + parsed.data_at);
    plec_gguf_close(&parsed);
}

TEST(GgufFault, G28UnknownTypesAreSizedByTheNextOffset) {
    for (uint32_t type : {139u, 43u, 4000000000u}) {
        GgufBytes file(3, 0);
        file.tensor("odd", {7, 3}, type, 0)
            .tensor("known", {32}, 0, 96)
            .tensor("end", {5}, type, 224);
        file.pad().zeros(224 + 50);
        std::vector<uint8_t> exact(file.bytes);
        plec_gguf parsed;
        plec_error err = {};
        ASSERT_EQ(plec_gguf_parse(&parsed, exact.data(), exact.size(), &err), PLEC_OK);
        EXPECT_EQ(plec_gguf_require_sound(&parsed, &err), PLEC_OK) << err.message;
        EXPECT_EQ(parsed.tensors[0].n_bytes, 96u);
        EXPECT_EQ(parsed.tensors[2].n_bytes, 50u);
        const uint8_t *bytes;
        EXPECT_EQ(plec_gguf_use_tensor(&bytes, &parsed, &parsed.tensors[0], &err),
                  PLEC_UNSUPPORTED);
        EXPECT_TRUE(has(err.message, "type " + std::to_string(type) + " (unknown)")) << err.message;
        plec_gguf_close(&parsed);
    }
}

TEST(GgufFault, G29FileTypesAreNotTensorTypes) {
    EXPECT_STREQ(plec_gguf_type_find(12)->name, "q4_K");
    EXPECT_STREQ(plec_gguf_file_type_name(12), "mostly q3_K, medium");
    EXPECT_STREQ(plec_gguf_file_type_name(15), "mostly q4_K, medium");
    EXPECT_EQ(plec_gguf_file_type_name(4), nullptr);
    EXPECT_EQ(plec_gguf_file_type_name(UINT64_MAX), nullptr);
}

TEST(GgufFault, G31BigEndianIsNamed) {
    GgufBytes file;
    file.raw("GGUF").u32(0x03000000u).u64(0).u64(0);
    Outcome out = outcome_of(file);
    EXPECT_EQ(out.name, "BigEndian");
    EXPECT_TRUE(has(out.message, "version 3")) << out.message;
}

TEST(GgufFault, G31VersionsAreNamedWithTheirNumber) {
    Outcome out = outcome_of(GgufBytes(0, 0, 1));
    EXPECT_EQ(out.name, "OldVersion");
    EXPECT_TRUE(has(out.message, "re-convert")) << out.message;
    out = outcome_of(GgufBytes(0, 0, 4));
    EXPECT_EQ(out.name, "UnknownVersion");
    EXPECT_TRUE(has(out.message, "version 4")) << out.message;
    EXPECT_EQ(outcome_of(GgufBytes(0, 0, 2)).run, PLEC_OK);
    out = outcome_of(GgufBytes(0, 0, 0));
    EXPECT_EQ(out.name, "UnknownVersion"); /* 0 is not some big-endian version */
    EXPECT_TRUE(has(out.message, "version 0")) << out.message;
}

TEST(GgufFault, G32ACutFileIsNeverSound) {
    std::vector<uint8_t> whole =
        plec_test::read_file(plec_test::data_path("gguf/13_fused/model.gguf"));
    ASSERT_EQ(outcome_of(whole.data(), whole.size()).run, PLEC_OK);
    for (size_t n : {size_t(24), size_t(1000), whole.size() / 2, whole.size() - 33}) {
        std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
        EXPECT_EQ(outcome_of(cut.data(), n).run, PLEC_MALFORMED) << n;
    }
}

TEST(GgufFault, G35AStringWhereANumberBelongs) {
    std::vector<uint8_t> exact =
        GgufBytes(0, 1).key_string("general.file_type", "mostly good").bytes;
    plec_gguf parsed;
    plec_error err = {};
    ASSERT_EQ(plec_gguf_parse(&parsed, exact.data(), exact.size(), &err), PLEC_OK);
    uint64_t value = 0;
    EXPECT_EQ(plec_gguf_u64(&value, &parsed, plec_gguf_find_key_named(&parsed, "general.file_type"),
                            0, &err),
              PLEC_MALFORMED);
    plec_gguf_close(&parsed);
}

TEST(GgufFault, NegativeAndFiveDims) {
    EXPECT_EQ(outcome_of(GgufBytes(1, 0).tensor("a", {uint64_t(-32)}, 0, 0)).name, "BadDim");
    EXPECT_EQ(outcome_of(GgufBytes(1, 0).tensor("a", {1, 1, 1, 1, 1}, 0, 0)).name, "TooManyDims");
    EXPECT_EQ(outcome_of(GgufBytes(1, 0).tensor("", {1}, 0, 0)).name, "EmptyName");
    EXPECT_EQ(outcome_of(GgufBytes(0, 1).key_u32("", 1)).name, "EmptyKey");
}

TEST(GgufFault, MisalignedTensorDoesNotRun) {
    Outcome out = outcome_of(GgufBytes(1, 0).tensor("a", {32}, 0, 16).pad().zeros(16 + 128));
    EXPECT_EQ(out.look, PLEC_OK);
    EXPECT_EQ(out.name, "OffsetNotAligned");
}

TEST(GgufFault, OneLargeTensorOverSmallOnesIsAnOverlap) {
    GgufBytes file(3, 0);
    file.tensor("large", {256}, 0, 0).tensor("in", {32}, 0, 128).tensor("too", {32}, 0, 512);
    Outcome out = outcome_of(file.pad().zeros(1024));
    EXPECT_EQ(out.name, "TensorsOverlap");
    EXPECT_TRUE(has(out.findings, "\"in\"") && has(out.findings, "\"too\"")) << out.findings;
}

TEST(GgufFault, ManyDefectsAreCountedNotListed) {
    GgufBytes file(5000, 0);
    for (unsigned i = 0; i < 5000; i++)
        file.tensor("t" + std::to_string(i), {32}, 0, 1);
    Outcome out = outcome_of(file.pad().zeros(256));
    EXPECT_EQ(out.run, PLEC_MALFORMED);
    EXPECT_LT(out.findings.size(), 20000u);
    EXPECT_TRUE(has(out.findings, "and 4984 more tensors")) << out.findings;
}

/* Every prefix of two files: shown as incomplete or refused, never more. */
TEST(GgufFault, EveryPrefixIsIncompleteOrRefused) {
    for (const char *name : {"gguf/16_tiny_f32/model.gguf", "gguf/malformed/gap.gguf"}) {
        std::vector<uint8_t> whole = plec_test::read_file(plec_test::data_path(name));
        for (size_t n = 0; n < whole.size(); n++) {
            std::vector<uint8_t> cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(n));
            plec_gguf file;
            plec_error err = {};
            plec_status status = plec_gguf_parse(&file, cut.data(), n, &err);
            ASSERT_EQ(status == PLEC_OK, n >= 24) << name << " cut at " << n << ": " << err.message;
            if (status == PLEC_OK) {
                bool sound = plec_gguf_require_sound(&file, &err) == PLEC_OK;
                ASSERT_EQ(file.complete, n >= file.infos_end && file.infos_end > 0) << n;
                bool data_is_there = n + 31 >= whole.size() || (file.findings.n_defects == 0);
                ASSERT_TRUE(!sound || data_is_there) << n;
            }
            plec_gguf_close(&file);
        }
    }
}
