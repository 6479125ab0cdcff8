#include "lyrw/cursor.h"
#include "lyrw/segment.h"
#include "tests/support/data.h"

#include <gtest/gtest.h>

#include "tests/support/dump.h"
#include "tests/support/segment_file.h"

using namespace plec_test;

namespace {

using File = SegmentFile;

uint32_t number(const std::string &line, const char *key) {
    return static_cast<uint32_t>(std::stoul(field(line, key)));
}

/* mxfp8 has a codec here and none in the reference. */
bool only_decoded_here(const std::string &line) {
    return line.find("mxfp8: no codec in the reference") != std::string::npos;
}

/* Our line for the coordinates that a line of the dump names. */
std::string same_line(const plec_segment &s, const std::string &line) {
    std::string kind = line.substr(0, line.find(' '));
    if (kind == "header") return header_line(s);
    if (kind == "layout") return layout_line(s);
    if (kind == "bank") return bank_line(s, number(line, "ordinal"));
    if (kind == "schema")
        return schema_line(s, number(line, "bank_ordinal"), number(line, "index"));
    if (kind == "segment") return segment_line(s, number(line, "ordinal"));
    uint16_t bank = static_cast<uint16_t>(number(line, "bank"));
    uint32_t entry = number(line, "entry");
    if (kind == "region")
        return region_line(s, bank, entry, number(line, "schema"), !only_decoded_here(line));
    std::string role = field(line, "role"), partner = field(line, "partner");
    std::string head =
        format("%s bank=%u entry=%u role=%s", kind.c_str(), bank, entry, role.c_str());
    plec_region region;
    plec_error err = {};
    if (kind == "by_role") {
        plec_status status =
            plec_segment_region_by_role(&region, &s, bank, entry, role_of(role), &err);
        return head + place(status, region, err);
    }
    plec_status status =
        plec_segment_partner(&region, &s, bank, entry, role_of(role), role_of(partner), &err);
    return head + " partner=" + partner + place(status, region, err);
}

/* A dump that says why something is not decoded says it in the reference's words. */
std::string without_reason(const std::string &line) {
    return line.substr(0, line.find(" decode_refused="));
}

} // namespace

TEST(Segment, EveryFieldOfEveryDumpIsEqual) {
    size_t n_lines = 0, n_decoded = 0;
    for (const std::string &name : all_segment_files()) {
        File file(read_file(data_path(name + ".lyrw")));
        std::stringstream dump(read_text(data_path(name + ".txt")));
        std::map<std::string, uint64_t> n_kind;
        for (std::string line; std::getline(dump, line); n_lines++) {
            std::string kind = line.substr(0, line.find(' '));
            n_kind[kind]++;
            n_decoded += field(line, "decoded_fnv") != "";
            if (kind == "note") continue;
            if (kind == "file") {
                EXPECT_EQ(field(line, "bytes"), std::to_string(file.size)) << name;
            } else if (kind == "parse_error") {
                EXPECT_EQ("parse_error " + error_fields(file.err), line) << name;
                EXPECT_EQ(file.status, PLEC_MALFORMED) << name;
            } else {
                ASSERT_EQ(file.status, PLEC_OK) << name << ": " << file.err.message;
                EXPECT_EQ(same_line(file.segment, line), without_reason(line)) << name;
            }
        }
        if (file.status != PLEC_OK) continue;
        EXPECT_EQ(n_kind["bank"], file.segment.header.num_banks) << name;
        EXPECT_EQ(n_kind["segment"], file.segment.header.num_segments) << name;
        EXPECT_EQ(n_kind["schema"], file.segment.n_schemas) << name;
    }
    EXPECT_GT(n_lines, 600u);
    EXPECT_GT(n_decoded, 150u);
}

TEST(Segment, RefusedFilesHoldNothing) {
    size_t n_refused = 0;
    for (const std::string &name : all_segment_files()) {
        File file(read_file(data_path(name + ".lyrw")));
        if (file.status == PLEC_OK) continue;
        n_refused++;
        EXPECT_EQ(file.segment.banks, nullptr) << name;
        EXPECT_EQ(file.segment.schemas, nullptr) << name;
    }
    EXPECT_EQ(n_refused, 17u);
}

namespace {

/* odd/base with changes: one bank (id 0, 3 entries, 2 schemas), one segment; tables end at 196. */
std::vector<uint8_t> base() {
    return read_file(data_path("lyrw/odd/base.lyrw"));
}
constexpr size_t bank_at = 24, segment_at = 48, schema_at = 60, slots_at = 100;

void expect_refused(const std::vector<uint8_t> &bytes, const std::string &message) {
    File file(bytes);
    EXPECT_EQ(file.status, PLEC_MALFORMED);
    EXPECT_EQ(error_fields(file.err), message);
}

} // namespace

TEST(Segment, GenerationAboveTheLargestIsNamedWithoutWrapping) {
    auto bytes = base();
    plec_store_u32(&bytes[4], UINT32_MAX);
    expect_refused(bytes, "WrongGeneration found=4294967295 supported=2 "
                          "required_generation=4294967296");
}

TEST(Segment, MagicIsCheckedBeforeVersion) {
    auto bytes = base();
    plec_store_u32(&bytes[4], 7);
    bytes[0] = 'l';
    File file(bytes);
    EXPECT_STREQ(file.err.name, "NotLyrw");
}

TEST(Segment, UnknownPackingWithPairIdIsRefused) {
    auto bytes = base();
    plec_store_u16(&bytes[schema_at + 6], 77);
    plec_store_u16(&bytes[schema_at + 8], 3);
    expect_refused(bytes, "InconsistentPairing bank=0 schema=0 packing=packing_77 pair_id=3");
}

TEST(Segment, FaultsAreNamedInTheOrderOfTheFile) {
    auto bytes = base();
    plec_store_u16(&bytes[segment_at], 9);     /* unknown bank */
    plec_store_u16(&bytes[schema_at + 20], 5); /* schema 1: index */
    plec_store_u16(&bytes[schema_at + 30], 2); /* schema 1: layout on down */
    plec_store_u16(&bytes[schema_at + 28], 1); /* schema 1: pair id on row_major */
    expect_refused(bytes, "InconsistentPairing bank=0 schema=1 packing=row_major pair_id=1");
    plec_store_u16(&bytes[schema_at + 28], 0xFFFF);
    expect_refused(bytes, "LayoutOnNonFusedRegion bank=0 schema=1 role=down layout=interleaved");
    plec_store_u16(&bytes[schema_at + 30], 0);
    expect_refused(bytes, "BankSchemaCountMismatch bank=0 declared=1 found=5");
    plec_store_u16(&bytes[schema_at + 20], 1);
    expect_refused(bytes, "SegmentNamesUnknownBank segment=0 bank=9");
}

TEST(Segment, SegmentEndIsComputedInSixtyFourBits) {
    auto bytes = base();
    plec_store_u32(&bytes[segment_at + 4], UINT32_MAX);
    plec_store_u32(&bytes[segment_at + 8], UINT32_MAX);
    expect_refused(bytes, "SegmentOutOfBounds bank=0 segment=0 first=4294967295 end=8589934590 "
                          "num_entries=3");
}

TEST(Segment, TruncatedTableNamesTheFirstRecordThatDoesNotFit) {
    auto bytes = base();
    plec_store_u16(&bytes[bank_at + 4], 65535);
    expect_refused(bytes, "Truncated what=\"region schema table\" at=1180 need=20 have=4");
}

TEST(Segment, EntryTableIsReadOnlyWhenARegionIsAskedFor) {
    auto whole = base();
    for (size_t cut : {slots_at + 2 * 16, slots_at + 2 * 16 + 7}) {
        File file(std::vector<uint8_t>(whole.begin(), whole.begin() + cut));
        ASSERT_EQ(file.status, PLEC_OK);
        plec_region region;
        plec_error err;
        EXPECT_EQ(plec_segment_region(&region, &file.segment, 0, 1, 0, &err), PLEC_MALFORMED);
        EXPECT_EQ(error_fields(err),
                  format("Truncated what=\"entry table\" at=%zu need=16 have=%zu", slots_at + 32,
                         cut - slots_at - 32));
        EXPECT_EQ(err.byte, slots_at + 32);
    }
    File file(std::vector<uint8_t>(whole.begin(), whole.begin() + slots_at + 32 + 11));
    plec_region region;
    plec_error err;
    EXPECT_EQ(plec_segment_region(&region, &file.segment, 0, 1, 0, &err), PLEC_MALFORMED);
    EXPECT_EQ(error_fields(err), "Truncated what=\"entry table\" at=140 need=8 have=3");
    EXPECT_EQ(plec_segment_region(&region, &file.segment, 0, 2, 1, &err), PLEC_MALFORMED);
    EXPECT_EQ(error_fields(err), "Truncated what=\"entry table\" at=180 need=16 have=0");
}

TEST(Segment, RegionEndSaturates) {
    auto bytes = base();
    plec_store_u64(&bytes[slots_at], UINT64_MAX - 1);
    plec_store_u64(&bytes[slots_at + 8], 5);
    File file(bytes);
    plec_region region;
    plec_error err;
    EXPECT_EQ(plec_segment_region(&region, &file.segment, 0, 0, 0, &err), PLEC_MALFORMED);
    EXPECT_EQ(error_fields(err), "RegionOutOfBounds bank=0 entry=0 role=gate_up_fused "
                                 "offset=18446744073709551614 end=18446744073709551615 "
                                 "file_len=1184");
    EXPECT_FALSE(region.present);
}

TEST(Segment, UnknownBankSchemaAndEntryAreAbsent) {
    File file(base());
    plec_region region;
    region.present = true;
    EXPECT_EQ(plec_segment_region(&region, &file.segment, 1, 0, 0, nullptr), PLEC_OK);
    EXPECT_FALSE(region.present);
    EXPECT_EQ(plec_segment_region(&region, &file.segment, 0, 0, 2, nullptr), PLEC_OK);
    EXPECT_FALSE(region.present);
    EXPECT_EQ(plec_segment_region(&region, &file.segment, 0, 3, 0, nullptr), PLEC_OK);
    EXPECT_FALSE(region.present);
    EXPECT_EQ(plec_segment_region_by_role(&region, &file.segment, 0, 0, PLEC_ROLE_GATE, nullptr),
              PLEC_OK);
    EXPECT_FALSE(region.present);
}

TEST(Segment, RoleFaultsComeBeforeTheEntry) {
    File file(read_file(data_path("lyrw/03_mxfp4_paired_importer_shape.lyrw")));
    ASSERT_EQ(file.status, PLEC_OK);
    plec_region region;
    plec_error err;
    EXPECT_EQ(plec_segment_region_by_role(&region, &file.segment, 0, 999, PLEC_ROLE_SCALES, &err),
              PLEC_MALFORMED);
    EXPECT_EQ(error_fields(err), "AmbiguousRole bank=0 role=scales count=2");
}

TEST(Segment, TwoPartnersOfOnePairIdAreAmbiguous) {
    auto bytes = read_file(data_path("lyrw/03_mxfp4_paired_importer_shape.lyrw"));
    plec_store_u16(&bytes[schema_at + 3 * 20 + 8], 1);
    File file(bytes);
    plec_region region;
    plec_error err;
    EXPECT_EQ(plec_segment_partner(&region, &file.segment, 0, 0, PLEC_ROLE_GATE_UP_FUSED,
                                   PLEC_ROLE_SCALES, &err),
              PLEC_MALFORMED);
    EXPECT_EQ(error_fields(err),
              "AmbiguousPartner bank=0 role=gate_up_fused pair_id=1 partner_role=scales count=2");
}

TEST(Segment, FirstMatchingRecordWins) {
    auto bytes = read_file(data_path("lyrw/06_two_segments_one_file.lyrw"));
    plec_store_u32(&bytes[48 + 4], 2); /* both records now begin at entry 2 */
    File file(bytes);
    ASSERT_EQ(file.status, PLEC_OK);
    plec_region region;
    ASSERT_EQ(plec_segment_region(&region, &file.segment, 0, 2, 0, nullptr), PLEC_OK);
    EXPECT_EQ(region.offset, 320u) << "the slot of the first record";
    ASSERT_EQ(plec_segment_slot(&region, &file.segment, 1, 0, 0, nullptr), PLEC_OK);
    EXPECT_EQ(region.offset, 576u) << "the slot of the second, asked for by its place";
}

TEST(Segment, EntryTablesBeyondSixtyFourBitsAreRefused) {
    /* 65535 schemas of 2^32-1 entries are 2^52 bytes a segment; 4096 of them pass 2^64. */
    constexpr uint32_t n_segments = 65535, n_schemas = 65535;
    std::vector<uint8_t> bytes(24 + 24 + n_segments * 12 + n_schemas * 20);
    memcpy(bytes.data(), base().data(), 48);
    plec_store_u16(&bytes[14], n_segments);
    plec_store_u16(&bytes[28], n_schemas);
    plec_store_u32(&bytes[32], UINT32_MAX);
    for (uint32_t i = 0; i < n_segments; i++)
        plec_store_u32(&bytes[48 + i * 12 + 8], UINT32_MAX);
    for (uint32_t i = 0; i < n_schemas; i++) {
        plec_store_u16(&bytes[48 + n_segments * 12 + i * 20], static_cast<uint16_t>(i));
        plec_store_u16(&bytes[48 + n_segments * 12 + i * 20 + 8], 0xFFFF);
    }
    File file(bytes);
    EXPECT_EQ(file.status, PLEC_MALFORMED);
    EXPECT_STREQ(file.err.name, "EntryTableOverflow");
}

TEST(Segment, ManyBanksAndSegmentsParseQuickly) {
    constexpr uint32_t n = 65535;
    std::vector<uint8_t> bytes(24 + n * 24 + n * 12);
    memcpy(bytes.data(), base().data(), 24);
    plec_store_u16(&bytes[12], n);
    plec_store_u16(&bytes[14], n);
    for (uint32_t i = 0; i < n; i++) {
        plec_store_u16(&bytes[24 + i * 24], static_cast<uint16_t>(n - i));
        plec_store_u16(&bytes[24 + n * 24 + i * 12], static_cast<uint16_t>(1 + i));
    }
    File file(bytes);
    ASSERT_EQ(file.status, PLEC_OK) << file.err.message;
    EXPECT_EQ(plec_segment_find_bank(&file.segment, 1), int32_t(n - 1));
    EXPECT_EQ(plec_segment_find_bank(&file.segment, 0), -1);
    EXPECT_EQ(file.segment.segments[0].bank_ordinal, n - 1);
}

TEST(Segment, SchemaBytesKnowWhichHalfOfAPairTheyAre) {
    plec_lyrw_schema schema = {};
    schema.format = PLEC_FORMAT_MXFP8;
    schema.rows = 4;
    schema.cols = 64;
    uint64_t bytes = 0;
    const std::pair<uint16_t, uint64_t> sizes[] = {{0, 264}, {1, 264}, {2, 256}, {3, 8}};
    for (auto [packing, want] : sizes) {
        schema.packing = packing;
        EXPECT_TRUE(plec_lyrw_schema_bytes(&bytes, &schema));
        EXPECT_EQ(bytes, want) << packing;
    }
    schema.packing = 4;
    EXPECT_FALSE(plec_lyrw_schema_bytes(&bytes, &schema)) << "unknown packing";
    schema.packing = 2;
    schema.format = PLEC_FORMAT_Q8_0;
    EXPECT_FALSE(plec_lyrw_schema_bytes(&bytes, &schema)) << "no scale stream to split off";
    schema.packing = 0;
    schema.cols = 63;
    EXPECT_FALSE(plec_lyrw_schema_bytes(&bytes, &schema)) << "half a block";
    schema.format = PLEC_FORMAT_F32;
    schema.rows = schema.cols = UINT32_MAX;
    EXPECT_FALSE(plec_lyrw_schema_bytes(&bytes, &schema)) << "more than 64 bits";
}

TEST(SegmentMatrix, RefusesByNameWhatCannotBeDecoded) {
    const struct {
        const char *file, *name;
        plec_status status;
    } cases[] = {
        {"odd/length_not_matching_shape", "LengthNotShape", PLEC_MALFORMED},
        {"odd/mxfp4_single_region", "StreamsStoredApart", PLEC_UNSUPPORTED},
        {"09_fmt10_mxfp8", "StreamsStoredApart", PLEC_UNSUPPORTED},
        {"odd/nvfp4_paired_has_no_tensor_scale", "NoTensorScale", PLEC_UNSUPPORTED},
        {"odd/pair_ids_as_schema_indices_no_partner", "MissingPartner", PLEC_MALFORMED},
        {"08_unknown_tags", "UnknownPacking", PLEC_UNSUPPORTED},
        {"05_multi_segment.seg01", "MissingRegion", PLEC_MISSING},
    };
    for (const auto &c : cases) {
        File file(read_file(data_path(std::string("lyrw/") + c.file + ".lyrw")));
        ASSERT_EQ(file.status, PLEC_OK) << c.file;
        plec_matrix matrix;
        plec_error err = {};
        uint16_t bank = file.segment.banks[0].id;
        EXPECT_EQ(plec_segment_matrix(&matrix, &file.segment, bank, 0, 0, &err), c.status)
            << c.file;
        EXPECT_STREQ(err.name, c.name) << c.file;
        EXPECT_FALSE(plec_matrix_present(&matrix)) << c.file;
    }
}

TEST(SegmentMatrix, ScalesOfAnotherShapeAreRefused) {
    auto bytes = read_file(data_path("lyrw/03_mxfp4_paired_importer_shape.lyrw"));
    plec_store_u32(&bytes[schema_at + 2 * 20 + 12], 191);
    File file(bytes);
    plec_matrix matrix;
    plec_error err = {};
    EXPECT_EQ(plec_segment_matrix(&matrix, &file.segment, 0, 0, 0, &err), PLEC_MALFORMED);
    EXPECT_STREQ(err.name, "PairShapeDiffers");
}
