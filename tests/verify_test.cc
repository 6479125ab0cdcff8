#include "lyrw/cursor.h"
#include "lyrw/hash.h"
#include "lyrw/mapping.h"
#include "lyrw/verify.h"
#include "tests/support/segment_file.h"

#include <gtest/gtest.h>

#include <set>

#include <sys/stat.h>
#include <unistd.h>

using namespace plec_test;

namespace {

struct Verdict {
    plec_findings findings = {};
    plec_verify_report report = {};

    explicit Verdict(const plec_segment &segment, bool scan = true,
                     const plec_verify_options *options = nullptr) {
        plec_error err;
        EXPECT_EQ(plec_segment_verify(&findings, &report, &segment, options, &err), PLEC_OK);
        if (scan) plec_segment_scan(&findings, &report, &segment, options);
    }
    ~Verdict() { plec_findings_clear(&findings); }
    Verdict(const Verdict &) = delete;
    Verdict &operator=(const Verdict &) = delete;

    std::set<std::string> names(plec_severity severity) const {
        std::set<std::string> all;
        for (size_t i = 0; i < findings.n_items; i++)
            if (findings.items[i].severity == severity) all.insert(findings.items[i].name);
        return all;
    }
    std::set<std::string> defects() const { return names(PLEC_DEFECT); }
    std::set<std::string> notes() const { return names(PLEC_NOTE); }
    std::string text(const std::string &name) const {
        for (size_t i = 0; i < findings.n_items; i++)
            if (findings.items[i].name == name) return findings.items[i].text;
        return "";
    }
};

using Names = std::set<std::string>;

Names defects_of(const std::vector<uint8_t> &bytes) {
    SegmentFile file(bytes);
    EXPECT_EQ(file.status, PLEC_OK) << file.err.message;
    return file.status == PLEC_OK ? Verdict(file.segment).defects() : Names{"refused"};
}
Names notes_of(const std::vector<uint8_t> &bytes) {
    SegmentFile file(bytes);
    EXPECT_EQ(file.status, PLEC_OK) << file.err.message;
    return file.status == PLEC_OK ? Verdict(file.segment).notes() : Names{"refused"};
}

/* odd/base: one bank of 3 entries with gate_up_fused 12 x 8 and down 8 x 6, f16. */
constexpr size_t bank_at = 24, segment_at = 48, schema_at = 60, slots_at = 100;
std::vector<uint8_t> base() {
    return segment_bytes("lyrw/odd/base");
}
std::vector<uint8_t> paired() {
    return segment_bytes("lyrw/03_mxfp4_paired_importer_shape");
}

} // namespace

TEST(Verify, WellFormedFilesHaveNoDefect) {
    for (const std::string &name : list_folder(data_path("lyrw"), ".lyrw")) {
        SegmentFile file(segment_bytes("lyrw/" + name));
        Verdict verdict(file.segment);
        EXPECT_EQ(verdict.defects(), Names{}) << name;
        uint64_t records = file.segment.header.num_banks + file.segment.header.num_segments +
                           file.segment.n_schemas;
        EXPECT_EQ(verdict.report.n_records, records) << name;
        EXPECT_EQ(verdict.report.n_regions, file.segment.entry_table_bytes / 16) << name;
    }
}

TEST(Verify, EachOddFileHasItsFinding) {
    const struct {
        const char *file;
        Names defects, notes;
    } cases[] = {
        {"base", {}, {}},
        {"duplicate_bank_ids", {"DuplicateBankId"}, {"BankWithoutSegment"}},
        {"fused_layout_undeclared_legacy", {}, {"UndeclaredFusedLayout"}},
        {"length_not_matching_shape", {"LengthNotShape"}, {}},
        {"multi_segment_flag_on_whole_file", {}, {"MultiSegmentFlagOnWholeFile"}},
        {"mxfp4_single_region", {}, {"StreamsStoredApart"}},
        {"nvfp4_paired_has_no_tensor_scale", {}, {"NoTensorScale"}},
        {"offset_at_file_end_length_zero", {"LengthNotShape", "OffsetNotAligned"}, {}},
        /* one byte further on: reaches into its neighbour, and its f16 are other ones */
        {"offset_not_aligned", {"NonFiniteValue", "OffsetNotAligned", "RegionsOverlap"}, {}},
        {"pair_ids_as_schema_indices_no_partner", {"MissingPartner"}, {}},
        {"reserved_bits_set",
         {"ReservedBankFlags", "ReservedNotZero", "UnknownBrowseMode"},
         {"EmptyShape", "UnknownBankKind", "UnknownFormat", "UnknownHeaderFlags", "UnknownLayout",
          "UnknownPacking", "UnknownRole"}},
        {"trailing_garbage", {"TrailingBytes"}, {}},
        {"writer_quirk_empty_segment", {"LengthNotShape", "TrailingBytes"}, {"EmptySegment"}},
    };
    EXPECT_EQ(list_folder(data_path("lyrw/odd"), ".lyrw").size(), std::size(cases));
    for (const auto &c : cases) {
        SegmentFile file(segment_bytes(std::string("lyrw/odd/") + c.file));
        Verdict verdict(file.segment);
        EXPECT_EQ(verdict.defects(), c.defects) << c.file;
        EXPECT_EQ(verdict.notes(), c.notes) << c.file;
    }
}

TEST(Verify, FindingsNameSegmentBankEntryRoleAndByte) {
    auto bytes = segment_bytes("lyrw/06_two_segments_one_file");
    size_t slot = 176 + 2 * 32 + 16; /* segment 1, entry 4, schema 1 */
    plec_store_u64(&bytes[slot], 897);
    SegmentFile file(bytes);
    plec_verify_options options = {};
    options.where = "routed/layer_002";
    Verdict verdict(file.segment, false, &options);
    EXPECT_EQ(
        verdict.text("OffsetNotAligned"),
        "routed/layer_002: segment=1 bank=0 entry=4 schema=1 role=down byte=256 offset=897 is "
        "no multiple of 64");
}

TEST(Verify, NothingToCheckIsVisible) {
    SegmentFile file(segment_bytes("lyrw/13_no_banks_no_segments"));
    EXPECT_EQ(Verdict(file.segment).report.n_regions, 0u);
}

TEST(Verify, RegionsInTheTablesAreDefects) {
    auto bytes = base();
    plec_store_u64(&bytes[slots_at], 64);
    /* and records read as f16 hold an unpaired 0xFFFF */
    EXPECT_EQ(defects_of(bytes), (Names{"NonFiniteValue", "RegionInTables"}));
}

TEST(Verify, IdenticalRegionsOverlap) {
    auto bytes = base();
    memcpy(&bytes[slots_at + 32], &bytes[slots_at], 16); /* entry 1 shares entry 0's region */
    EXPECT_EQ(defects_of(bytes), (Names{"RegionsOverlap"}));
}

TEST(Verify, PermutedRegionsThatTouchDoNotOverlap) {
    auto bytes = base();
    uint8_t slot[16];
    memcpy(slot, &bytes[slots_at], 16);
    memcpy(&bytes[slots_at], &bytes[slots_at + 64], 16);
    memcpy(&bytes[slots_at + 64], slot, 16);
    EXPECT_EQ(defects_of(bytes), Names{});
}

TEST(Verify, ARegionInsideAnEarlierLongerOneIsFoundBehindItsNeighbours) {
    auto bytes = base();
    plec_store_u64(&bytes[slots_at + 8], 800); /* entry 0's first region covers entry 1's */
    SegmentFile file(bytes);
    Verdict verdict(file.segment, false);
    EXPECT_EQ(verdict.findings.n_defects, 1 + 4u) << "its length, and four regions inside it";
    EXPECT_EQ(verdict.text("RegionsOverlap"),
              "segment=0 bank=0 entry=0 schema=1 role=down byte=116 bytes 448 to 543 share some "
              "with 256 to 1055 of segment=0 bank=0 entry=0 schema=0 role=gate_up_fused");
}

TEST(Verify, EmptyRegionsOverlapNothing) {
    auto bytes = base();
    plec_store_u64(&bytes[slots_at], 448);
    plec_store_u64(&bytes[slots_at + 8], 0);
    EXPECT_EQ(defects_of(bytes), (Names{"LengthNotShape"}));
}

TEST(Verify, CutEntryTableIsOneDefectThatCountsTheSlots) {
    auto bytes = base();
    bytes.resize(slots_at + 3 * 16 + 5);
    SegmentFile file(bytes);
    Verdict verdict(file.segment);
    EXPECT_EQ(verdict.defects(), (Names{"EntryTableTruncated", "RegionOutOfBounds"}));
    EXPECT_EQ(verdict.text("EntryTableTruncated"),
              "segment=0 bank=0 entry=1 schema=1 byte=148: the file ends at 153, 3 of 6 slots are "
              "missing");
    EXPECT_EQ(verdict.report.n_regions, 3u);
}

TEST(Verify, CountsOfTheFileDoNotBoundTheWork) {
    auto bytes = base();
    plec_store_u32(&bytes[bank_at + 8], UINT32_MAX);
    plec_store_u32(&bytes[segment_at + 8], UINT32_MAX);
    SegmentFile file(bytes);
    ASSERT_EQ(file.status, PLEC_OK);
    Verdict verdict(file.segment);
    EXPECT_EQ(verdict.report.n_regions, (1184u - slots_at) / 16);
    EXPECT_TRUE(verdict.defects().count("EntryTableTruncated"));
}

TEST(Verify, MissingPaddingIsANote) {
    auto bytes = segment_bytes("lyrw/13_no_banks_no_segments");
    bytes.resize(24);
    EXPECT_EQ(notes_of(bytes), (Names{"PaddingMissing"}));
}

TEST(Verify, SegmentsThatOverlapOrLeaveGaps) {
    auto two = segment_bytes("lyrw/06_two_segments_one_file"); /* [0,2) and [2,6) of 6 */
    auto with = [&](uint32_t first, uint32_t flags) {
        auto bytes = two;
        plec_store_u32(&bytes[16], flags);
        plec_store_u32(&bytes[60 + 4], first);
        plec_store_u32(&bytes[60 + 8], 3); /* its table is then 32 bytes shorter than written */
        SegmentFile file(bytes);
        EXPECT_EQ(file.status, PLEC_OK);
        Verdict verdict(file.segment, false);
        Names names;
        for (const char *name : {"SegmentsOverlap", "SegmentsGapped"})
            if (verdict.defects().count(name)) names.insert(name);
        return names;
    };
    EXPECT_EQ(with(1, 1), (Names{"SegmentsOverlap"}));
    EXPECT_EQ(with(3, 1), (Names{"SegmentsGapped"})) << "between two records of one file";
    EXPECT_EQ(with(2, 1), Names{}) << "the end is in another file";
    EXPECT_EQ(with(2, 0), (Names{"SegmentsGapped"})) << "there is no other file";
}

TEST(Verify, PartialFileWithoutTheFlagIsGapped) {
    for (const char *name : {"lyrw/05_multi_segment.seg00", "lyrw/05_multi_segment.seg01"}) {
        auto bytes = segment_bytes(name);
        EXPECT_EQ(defects_of(bytes), Names{});
        plec_store_u32(&bytes[16], 0);
        EXPECT_EQ(defects_of(bytes), (Names{"SegmentsGapped"}));
    }
}

TEST(Verify, RepeatedSegmentIndex) {
    auto bytes = segment_bytes("lyrw/06_two_segments_one_file");
    plec_store_u16(&bytes[60 + 2], 0);
    EXPECT_EQ(defects_of(bytes), (Names{"RepeatedSegmentIndex"}));
}

TEST(Verify, PairsThatDoNotMatch) {
    auto bytes = paired(); /* schemas: values 1, values 2, scales 1, scales 2 */
    plec_store_u16(&bytes[schema_at + 60 + 8], 1);
    EXPECT_EQ(defects_of(bytes), (Names{"AmbiguousPartner", "MissingPartner"}));
    bytes = paired();
    plec_store_u32(&bytes[schema_at + 40 + 12], 64);
    EXPECT_EQ(defects_of(bytes), (Names{"LengthNotShape", "PairShapeDiffers"}));
    bytes = paired();
    plec_store_u16(&bytes[schema_at + 40 + 4], PLEC_FORMAT_MXFP8);
    EXPECT_EQ(defects_of(bytes), (Names{"PairFormatDiffers"}));
    bytes = paired();
    plec_store_u16(&bytes[schema_at + 40 + 2], PLEC_ROLE_BIAS); /* no lookup finds it as scales */
    EXPECT_EQ(defects_of(bytes), (Names{"MissingPartner"}));
}

TEST(Verify, ShapesWithoutASizeAreDefects) {
    auto bytes = segment_bytes("lyrw/09_fmt03_q4_0");
    plec_store_u32(&bytes[schema_at + 16], 65);
    EXPECT_EQ(defects_of(bytes), (Names{"NotWholeBlocks"}));
    bytes = base();
    plec_store_u16(&bytes[schema_at + 4], PLEC_FORMAT_F32);
    plec_store_u32(&bytes[schema_at + 12], UINT32_MAX);
    plec_store_u32(&bytes[schema_at + 16], UINT32_MAX);
    EXPECT_EQ(defects_of(bytes), (Names{"SizeOverflow"}));
}

TEST(Verify, NotesOfCombinationsNothingCanHonour) {
    auto bytes = base();
    plec_store_u16(&bytes[bank_at + 6], 1); /* direct, but gate has no region of its own */
    EXPECT_EQ(notes_of(bytes), (Names{"BrowseNotHonoured"}));
    bytes = base();
    plec_store_u16(&bytes[schema_at + 20 + 2], PLEC_ROLE_GATE_UP_FUSED);
    plec_store_u16(&bytes[schema_at + 20 + 10], 1);
    EXPECT_EQ(notes_of(bytes), (Names{"RepeatedRole"}));
    bytes = paired();
    plec_store_u16(&bytes[schema_at + 4], PLEC_FORMAT_Q8_0);
    EXPECT_EQ(notes_of(bytes), (Names{"NoScaleStream"}));
}

TEST(Verify, FilesOfHolesDoNotKeepItBusy) {
    TempDir dir;
    std::vector<uint8_t> bytes = base();
    uint32_t n_entries = PLEC_VERIFY_SLOTS_MAX / 2 + 5;
    plec_store_u32(&bytes[bank_at + 8], n_entries);
    plec_store_u32(&bytes[segment_at + 8], n_entries);
    write_file(dir.path("holes.lyrw"), bytes.data(), slots_at);
    ASSERT_EQ(truncate(dir.path("holes.lyrw").c_str(), off_t(1) << 36), 0);
    plec_mapping mapping;
    plec_segment segment = {};
    plec_error err;
    ASSERT_EQ(plec_mapping_open(&mapping, dir.path("holes.lyrw").c_str(), &err), PLEC_OK);
    ASSERT_EQ(plec_segment_parse(&segment, mapping.data, mapping.size, &err), PLEC_OK);
    Verdict verdict(segment);
    EXPECT_EQ(verdict.report.n_regions, uint64_t(PLEC_VERIFY_SLOTS_MAX));
    /* The list was full of LengthNotShape long before: one defect more than slots is this one. */
    EXPECT_EQ(verdict.findings.n_defects, uint64_t(PLEC_VERIFY_SLOTS_MAX) + 1);
    plec_segment_close(&segment);
    plec_mapping_close(&mapping);
}

TEST(Verify, ManyFindingsAreCountedButNotKept) {
    constexpr uint32_t entries = 20000;
    auto bytes = base();
    bytes.resize(slots_at + entries * 32);
    plec_store_u32(&bytes[bank_at + 8], entries);
    plec_store_u32(&bytes[segment_at + 8], entries);
    for (size_t i = slots_at; i < bytes.size(); i += 16) {
        plec_store_u64(&bytes[i], 1);
        plec_store_u64(&bytes[i + 8], bytes.size() - 1);
    }
    SegmentFile file(bytes);
    Verdict verdict(file.segment);
    EXPECT_EQ(verdict.findings.n_items, size_t(PLEC_FINDINGS_MAX));
    EXPECT_EQ(verdict.findings.n_defects, entries * 2 * 4 - 1u);
}

namespace {

/* A file of one f32 bias region and one region of `format`, whose bytes are `fill` but for those
 * that change says. */
struct ScanFile {
    std::vector<uint8_t> bytes;
    uint64_t region;

    ScanFile(uint16_t format, uint32_t rows, uint32_t cols, uint16_t packing = 0,
             uint16_t role = PLEC_ROLE_DOWN) {
        bytes = base();
        plec_store_u16(&bytes[bank_at + 4], 1);
        plec_store_u32(&bytes[bank_at + 8], 1);
        plec_store_u32(&bytes[segment_at + 8], 1);
        uint8_t *schema = &bytes[schema_at];
        plec_store_u16(schema + 2, role);
        plec_store_u16(schema + 4, format);
        plec_store_u16(schema + 6, packing);
        plec_store_u16(schema + 8, packing >= 2 ? 1 : 0xFFFF);
        plec_store_u16(schema + 10, 0);
        plec_store_u32(schema + 12, rows);
        plec_store_u32(schema + 16, cols);
        plec_lyrw_schema record = {0, role, format, packing, 0, 0, rows, cols};
        uint64_t length = 0;
        EXPECT_TRUE(plec_lyrw_schema_bytes(&length, &record));
        region = 128;
        bytes.resize(region);
        plec_store_u64(&bytes[80], region);
        plec_store_u64(&bytes[88], length);
        bytes.resize(region + length, 0x11);
    }
    Verdict scan() const {
        SegmentFile file(bytes);
        EXPECT_EQ(file.status, PLEC_OK) << file.err.message;
        return Verdict(file.segment);
    }
};

} // namespace

TEST(Scan, FindsNonFiniteNumbersOfEveryFormatAtTheirByte) {
    /* {format, byte of one number that is made not finite, its bytes, packing} for 2 x 512 */
    const struct {
        uint16_t format;
        uint32_t at;
        std::vector<uint8_t> bytes;
        const char *name;
        uint16_t packing;
    } cases[] = {
        {PLEC_FORMAT_F32, 4092, {0, 0, 0x80, 0xFF}, "NonFiniteValue", 0},
        {PLEC_FORMAT_F16, 2046, {0x00, 0x7C}, "NonFiniteValue", 0},
        {PLEC_FORMAT_BF16, 2046, {0x81, 0xFF}, "NonFiniteValue", 0},
        {PLEC_FORMAT_Q4_0, 31 * 18, {0x00, 0xFC}, "NonFiniteScale", 0},
        {PLEC_FORMAT_Q8_0, 31 * 34, {0x01, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_Q4_K, 3 * 144, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_Q4_K, 3 * 144 + 2, {0x00, 0x7E}, "NonFiniteScale", 0},
        {PLEC_FORMAT_Q6_K, 3 * 210 + 208, {0x00, 0x7E}, "NonFiniteScale", 1},
        {PLEC_FORMAT_FP4_LARQL, 3 * 137 + 128, {0x7F}, "NonFiniteScale", 0},
        {PLEC_FORMAT_FP4_LARQL, 3 * 137 + 136, {0xFF}, "NonFiniteScale", 0},
        {PLEC_FORMAT_NVFP4, 64 * 8 + 63, {0x7F}, "NonFiniteScale", 0},
        {PLEC_FORMAT_NVFP4, 64 * 9, {0, 0, 0xC0, 0x7F}, "NonFiniteScale", 1},
        {PLEC_FORMAT_NVFP4, 63, {0xFF}, "NonFiniteScale", 3},
        {PLEC_FORMAT_MXFP4, 31, {0xFF}, "NonFiniteScale", 3},
        {PLEC_FORMAT_MXFP8, 1023, {0xFF}, "NonFiniteValue", 2},
        {PLEC_FORMAT_MXFP8, 31, {0xFF}, "NonFiniteScale", 3},
        {PLEC_FORMAT_GGUF_Q4_1, 31 * 20 + 2, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q5_0, 31 * 22, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q5_1, 31 * 24 + 2, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q2_K, 3 * 84 + 82, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q3_K, 3 * 110 + 108, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q5_K, 3 * 176 + 2, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_IQ4_NL, 31 * 18, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_IQ4_XS, 3 * 136, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_F64, 8184, {0, 0, 0, 0, 0, 0, 0xF0, 0x7F}, "NonFiniteValue", 0},
        {PLEC_FORMAT_GGUF_TQ1_0, 3 * 54 + 52, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_TQ2_0, 3 * 66 + 64, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q1_0, 7 * 18, {0x00, 0x7C}, "NonFiniteScale", 0},
        {PLEC_FORMAT_GGUF_Q2_0, 15 * 18, {0x00, 0x7C}, "NonFiniteScale", 0},
    };
    std::set<uint16_t> seen;
    for (const auto &c : cases) {
        char name[PLEC_NAME_MAX];
        SCOPED_TRACE(std::string(plec_format_name(c.format, name)) + " at " + std::to_string(c.at));
        seen.insert(c.format);
        uint16_t role = c.packing == 3 ? PLEC_ROLE_SCALES : PLEC_ROLE_DOWN;
        ScanFile file(c.format, 2, 512, c.packing, role);
        auto finite = [&]() {
            Names names = file.scan().defects();
            return names.count("NonFiniteValue") + names.count("NonFiniteScale") == 0;
        };
        EXPECT_TRUE(finite());
        ASSERT_LE(file.region + c.at + c.bytes.size(), file.bytes.size());
        memcpy(&file.bytes[file.region + c.at], c.bytes.data(), c.bytes.size());
        SegmentFile broken(file.bytes);
        Verdict verdict(broken.segment);
        EXPECT_TRUE(verdict.defects().count(c.name));
        std::string text = verdict.text(c.name);
        EXPECT_NE(text.find(": 1 "), std::string::npos) << text;
        std::string byte = "byte " + std::to_string(file.region + c.at);
        EXPECT_EQ(text.substr(text.size() - byte.size()), byte);
        EXPECT_EQ(verdict.report.n_scanned, 1u);
    }
    size_t n_formats;
    const plec_format *formats = plec_format_all(&n_formats);
    /* These two have no number that is not finite. */
    seen.insert({PLEC_FORMAT_GGUF_MXFP4, PLEC_FORMAT_GGUF_NVFP4});
    for (size_t i = 0; i < n_formats; i++)
        EXPECT_TRUE(seen.count(formats[i].tag)) << formats[i].name;
}

TEST(Scan, WhatIsNotAScaleMayHaveAnyBits) {
    ScanFile file(PLEC_FORMAT_Q8_0, 2, 512);
    memset(&file.bytes[file.region + 2], 0xFF, 32);
    EXPECT_EQ(file.scan().defects(), Names{});
    ScanFile values(PLEC_FORMAT_MXFP4, 2, 512, 2);
    memset(&values.bytes[values.region], 0xFF, values.bytes.size() - values.region);
    EXPECT_EQ(values.scan().defects(), (Names{"MissingPartner"}));
}

TEST(Scan, CountsAllAndNamesTheFirst) {
    ScanFile file(PLEC_FORMAT_F16, 2, 512);
    for (size_t i : {5, 6, 900})
        plec_store_u16(&file.bytes[file.region + 2 * i], 0x7C00);
    SegmentFile parsed(file.bytes);
    Verdict verdict(parsed.segment);
    EXPECT_NE(verdict.text("NonFiniteValue")
                  .find("3 f16 that are NaN or infinite, the first at "
                        "byte 138"),
              std::string::npos);
    EXPECT_EQ(verdict.report.scanned_bytes, 2048u);
}

TEST(Scan, ReadsNoMoreThanTheFileHas) {
    constexpr uint32_t entries = 100;
    auto bytes = base();
    plec_store_u32(&bytes[bank_at + 8], entries);
    plec_store_u32(&bytes[segment_at + 8], entries);
    bytes.resize(slots_at + entries * 32 + 192, 0);
    for (size_t i = 0; i < entries * 2; i++) {
        plec_store_u64(&bytes[slots_at + i * 16], bytes.size() - 192);
        plec_store_u64(&bytes[slots_at + i * 16 + 8], i % 2 == 0 ? 192 : 96);
    }
    SegmentFile file(bytes);
    Verdict verdict(file.segment);
    EXPECT_TRUE(verdict.notes().count("ScanStopped"));
    EXPECT_LE(verdict.report.scanned_bytes, bytes.size());
    EXPECT_GT(verdict.report.scanned_bytes, bytes.size() - 192);
}

TEST(Scan, TellsItsProgress) {
    SegmentFile file(base());
    uint64_t total = 0;
    plec_verify_options options = {};
    options.progress = [](void *user, uint64_t n) { *static_cast<uint64_t *>(user) += n; };
    options.user = &total;
    Verdict verdict(file.segment, true, &options);
    EXPECT_EQ(total, 3u * (192 + 96));
    EXPECT_EQ(verdict.report.scanned_bytes, total);
}

TEST(Hash, IsSha256) {
    char text[PLEC_SHA256_TEXT];
    ASSERT_EQ(plec_sha256(text, "abc", 3, nullptr), PLEC_OK);
    EXPECT_STREQ(text, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    ASSERT_EQ(plec_sha256(text, nullptr, 0, nullptr), PLEC_OK);
    EXPECT_STREQ(text, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
}

TEST(Hash, FilesOfSeveralPiecesEqualTheirBytes) {
    TempDir dir;
    std::vector<uint8_t> bytes(3 * 1048576 + 17);
    for (size_t i = 0; i < bytes.size(); i++)
        bytes[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
    write_file(dir.path("x"), bytes.data(), bytes.size());
    char of_file[PLEC_SHA256_TEXT], of_bytes[PLEC_SHA256_TEXT];
    uint64_t total = 0;
    auto progress = [](void *user, uint64_t n) { *static_cast<uint64_t *>(user) += n; };
    ASSERT_EQ(plec_sha256_file(of_file, dir.path("x").c_str(), progress, &total, nullptr), PLEC_OK);
    ASSERT_EQ(plec_sha256(of_bytes, bytes.data(), bytes.size(), nullptr), PLEC_OK);
    EXPECT_STREQ(of_file, of_bytes);
    EXPECT_EQ(total, bytes.size());
}

TEST(Hash, MissingFilesAndFoldersAreNamed) {
    TempDir dir;
    char text[PLEC_SHA256_TEXT];
    plec_error err;
    EXPECT_EQ(plec_sha256_file(text, dir.path("no").c_str(), nullptr, nullptr, &err), PLEC_MISSING);
    EXPECT_NE(std::string(err.message).find(dir.path("no")), std::string::npos);
    for (const std::string &path : {dir.path(), std::string("/dev/zero")}) {
        EXPECT_EQ(plec_sha256_file(text, path.c_str(), nullptr, nullptr, &err), PLEC_MISSING);
        EXPECT_STREQ(err.name, "NotAFile");
    }
}
